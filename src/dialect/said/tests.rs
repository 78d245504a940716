//! The envelopes that errors come in, what is no error, the bounds on both sides, and arbitrary bytes.

use super::*;
use proptest::prelude::*;

#[test]
fn the_same_facts_in_many_envelopes() {
    let check = |body: &str, code: &str, message: &str| {
        let said = Said::of_error(body.as_bytes());
        let first = |list: &[String]| list.first().cloned().unwrap_or_default();
        assert_eq!(
            (first(&said.codes), first(&said.messages)),
            (code.into(), message.into()),
            "{body}"
        );
    };
    check(r#"{"error":{"message":"M","code":"c"}}"#, "c", "m");
    check(r#"[{"error":{"message":"M","code":"c"}}]"#, "c", "m");
    check(r#"{"code":"c","error":"M"}"#, "c", "m");
    check(r#"{"detail":{"error":"M"}}"#, "", "m");
    check(r#"{"error":{"error":{"message":"M","code":"c"}}}"#, "c", "m");
    check(r#"{"error":{"message":"{\"error\":{\"message\":\"M\",\"code\":\"c\"}}"}}"#, "c", "m");
    check("event: error\ndata: {\"error\":{\"message\":\"M\",\"code\":\"c\"}}\n\n", "c", "m");
    check("\n\n\n{\"message\":\"M\",\"code\":\"c\"}", "c", "m");
    check(r#"{"__type":"com.x#ThrottlingException","message":"M"}"#, "ThrottlingException", "m");
    check(r#"{"throttlingException":{"message":"M"}}"#, "throttlingException", "m");
    check("error code: 1015", "", "error code: 1015");
    check(r#"{"error":{"code":"c","message":"M","x":["#, "c", "m");
    check("", "", "");
}

#[test]
fn a_success_is_an_error_only_if_it_says_so() {
    let is_error = |body: &str| Said::of_success(body.as_bytes()).is_error;
    assert!(is_error(r#"{"error":{"code":502}}"#));
    assert!(is_error(r#"{"error":"Your account has run out of searches."}"#));
    assert!(is_error(
        "data: {\"id\":\"1\"}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{}}\n"
    ));
    assert!(is_error(r#"{"type":"error","code":"server_error"}"#));
    assert!(is_error("event: error\ndata: {\"code\":\"server_error\"}\n\n"));
    assert!(!is_error("event: message\ndata: {\"code\":\"server_error\"}\n\n"));
    assert!(!is_error(r#"{"meta":{"type":"error"},"type":"list"}"#));
    assert!(!is_error(r#"{"error":null,"data":[]}"#));
    assert!(!is_error(r#"{"error":"","data":[]}"#));
    assert!(!is_error(r#"{"data":[{"content":"\"error\""}]}"#));
    assert!(!is_error("data: {\"content\":\"say \\\"error\\\"\"}\n\n"));
}

#[test]
fn a_limit_of_zero_is_a_reason() {
    let is_zero = |message: &str| {
        let body = serde_json::json!({ "message": message }).to_string();
        Said::of_error(body.as_bytes()).reasons == [QUOTA_OF_ZERO]
    };
    for message in
        ["limit: 0", "Limit: 0.", "limit: 0, model: m", "limit: 0\nx", "limit: 05, limit: 0"]
    {
        assert!(is_zero(message), "{message}");
    }
    for message in ["limit: 05", "limit: 0.5", "limit 10: 0", "limit: 10", ""] {
        assert!(!is_zero(message), "{message}");
    }
}

#[test]
fn only_the_first_part_of_a_body_is_read() {
    let padded = |padding: usize| format!("{{\"x\":\"{}\",\"code\":\"c\"}}", "y".repeat(padding));
    let fits = BODY_LEN_MAX - padded(0).len();
    assert_eq!(Said::of_error(padded(fits).as_bytes()).codes, ["c"]);
    assert_eq!(Said::of_error(padded(fits + 3).as_bytes()).codes, Vec::<String>::new());
}

#[test]
fn what_is_kept_is_bounded() {
    let many = format!(r#"{{"error":[{}{{}}]}}"#, r#"{"code":"c","message":"m"},"#.repeat(100));
    let said = Said::of_error(many.as_bytes());
    assert_eq!((said.codes.len(), said.messages.len()), (FACTS_MAX, FACTS_MAX));
    let long = format!(r#"{{"message":"{}"}}"#, "é".repeat(MESSAGE_LEN_MAX));
    assert_eq!(Said::of_error(long.as_bytes()).messages[0].len(), MESSAGE_LEN_MAX);
}

proptest! {
    #[test]
    fn no_bytes_panic(body: Vec<u8>, text in "[\\[\\]{}\":,a-z0-9 \\\\]{0,300}") {
        let _ = Said::of_error(&body);
        let _ = Said::of_success(text.as_bytes());
        let _ = Said::of_error(format!("{{\"error\":{{\"message\":{text}").as_bytes());
    }
}
