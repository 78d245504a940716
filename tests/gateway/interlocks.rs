//! What the service refuses whoever asks, and the two ways past it: taking back, and the second token.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use weir::admission::FlagValue;
use weir::flag::{self, Evidence, FlagTable, Outcome, Plan, Revision, Store, Token};

use crate::flags::{FLAGS_PATH, STORM, alice, body, client, contain, idle_gate, put, terms};
use crate::support::{Gate, Reply};

/// The second token of [`glass_gate`].
pub const GLASS: &str = "kept in a safe";

/// A gateway with a second token, whose provider nobody calls.
async fn glass_gate(config: &str) -> (Gate, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("glass");
    std::fs::write(&file, format!("{GLASS}\n")).expect("it can be written to");
    let config = format!("break_glass_token_file = '{}'\n{config}", file.display());
    (idle_gate(&config).await, folder)
}

/// The body with the wish to pass interlocks.
pub fn breaking(mut body: Value) -> Value {
    body["override"] = json!({ "by": "break-glass", "reason": "the cure is behind it" });
    body
}

pub async fn put_with(gate: &Gate, key: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
    gate.ask(Method::PUT, &format!("{FLAGS_PATH}/{key}"), headers, &body.to_string()).await
}

/// What was refused by an interlock, in words.
fn interlock(reply: &Reply) -> String {
    let code = &reply.json()["error"]["code"];
    assert_eq!((reply.status.as_u16(), code), (409, &json!("interlock")), "{}", reply.text());
    reply.message()
}

#[tokio::test]
async fn the_service_refuses_what_the_tool_would_refuse() {
    let gate = idle_gate("[flags]\n'admission.enforced_ratio' = 0.25").await;
    for (key, value, words) in [
        ("admission.mode", json!("off"), "amplification < 1.1: "),
        ("admission.mode", json!("shadow"), "amplification < 1.1: "),
        ("admission.enforced_ratio", json!(0.2), "amplification < 1.1: "),
        ("retry.max_attempts", json!(4), "rises by at most 1 a flip: +2"),
    ] {
        let reply = put(&gate, key, "\"0\"", &body(&value, "1")).await;
        let why = interlock(&reply);
        assert!(why.contains(words), "{key}={value}: {why}");
    }
    // The plan says the same beforehand, and what takes it back is seen by the service itself.
    let path = "/admin/v1/flags:plan";
    let plan = |changes: Value| {
        let body = json!({ "changes": changes, "on_expire": "remind", "reason": "r", "actor": "a",
            "request_id": "2" });
        let gate = &gate;
        async move { gate.ask(Method::POST, path, &[], &body.to_string()).await.json() }
    };
    let off = plan(json!([{ "key": "admission.mode", "value": "off" }])).await;
    assert!(off["refused"].as_str().is_some_and(|text| text.contains("amplification")), "{off}");
    let drop = json!([{ "key": "retry.max_attempts", "value": null }]);
    let raised = put(&gate, "retry.max_attempts", "\"0\"", &body(&json!(1), "3")).await;
    assert_eq!(raised.status, StatusCode::OK, "{}", raised.text());
    let back = plan(drop).await;
    assert_eq!((&back["risky"], &back["refused"]), (&json!(true), &Value::Null), "{back}");
}

#[tokio::test]
async fn a_flip_is_taken_back_past_interlocks_and_only_once() {
    let gate = idle_gate(STORM).await;
    let store = client(&gate);
    let before = store.list().await.expect("it answers");
    store.apply(&contain(&before, "id-1"), &alice()).await;
    let events = store.events(0).await.expect("it answers");
    let table = store.list().await.expect("it answers");
    let back = flag::undo(&events[0], &table, &Evidence::default(), terms("id-2")).expect("a plan");
    assert!(back.refusing().next().is_some(), "nothing is known to be calm");
    assert_eq!(store.apply(&back, &alice()).await, Outcome::applied(Revision(2)));
    let events = store.events(0).await.expect("it answers");
    assert_eq!(events[1].marks.undoes, Some(1));
    assert_eq!(flag::newest_in_force(&events), None, "the tool reads the service's mark");
    // Its words alone: nothing is in force that this would take back.
    let table = store.list().await.expect("it answers");
    let contain = Plan { revision: table.revision, ..contain(&table, "id-3") };
    store.apply(&contain, &alice()).await;
    let mut says = body(&json!("off"), "id-4");
    says["reason"] = json!("undo of event 3 by alice: storm");
    interlock(&put(&gate, "admission.mode", "\"3\"", &says).await);
}

#[tokio::test]
async fn interlocks_are_passed_with_a_second_token_and_a_reason() {
    let (gate, _folder) = glass_gate("").await;
    let off = || breaking(body(&json!("off"), "1"));
    let seen = ("if-match", "\"0\"");
    let right = ("x-weir-break-glass", GLASS);
    let token = gate.token.clone();
    for (headers, change) in [
        (vec![seen], off()),
        (vec![seen, ("x-weir-break-glass", "guessed")], off()),
        (vec![seen, ("x-weir-break-glass", &*token)], off()),
    ] {
        let reply = put_with(&gate, "admission.mode", &headers, &change).await;
        let code = &reply.json()["error"]["code"];
        assert_eq!((reply.status.as_u16(), code), (403, &json!("forbidden")), "{headers:?}");
        assert!(reply.message().contains("x-weir-break-glass"), "{}", reply.text());
    }
    interlock(&put_with(&gate, "admission.mode", &[seen, right], &body(&json!("off"), "1")).await);
    let wishes = [
        json!({ "by": "break-glass", "reason": " " }),
        json!({ "by": "break-glass" }),
        json!({ "by": "me", "reason": "r" }),
        json!({ "by": "break-glass", "reason": "r", "token": GLASS }),
    ];
    for wish in wishes {
        let mut change = off();
        change["override"] = wish;
        let reply = put_with(&gate, "admission.mode", &[seen, right], &change).await;
        assert_eq!(reply.status.as_u16(), 422, "{change}: {}", reply.text());
    }
    let store = client(&gate);
    assert_eq!(store.list().await.expect("it answers").revision, Revision(0), "nothing yet");

    let reply = put_with(&gate, "admission.mode", &[seen, right], &off()).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    let events = store.events(0).await.expect("it answers");
    let marks = &events[0].marks;
    assert_eq!(marks.override_reason.as_deref(), Some("the cure is behind it"));
    assert!(marks.overridden.iter().any(|text| text.contains("amplification")), "{marks:?}");
    let said = marks.broken_glass().expect("it was broken");
    assert!(said.starts_with("BREAK-GLASS (the cure is behind it) past: "), "{said}");
    let table = store.list().await.expect("it answers");
    let mode = table.get("admission.mode").expect("a flag");
    assert_eq!(mode.by.as_deref(), Some("bob (break-glass)"));

    // The same through the client, all or none.
    let breaker = client(&gate).breaking_glass(Token::new(GLASS), "a drill");
    let mut plan = contain(&before_storm(&table), "id-9");
    plan.changes.retain(|change| change.key == "retry.max_attempts");
    let four = FlagValue::Number(4.0);
    plan.changes[0].to = four.clone();
    plan.revision = table.revision;
    assert_eq!(breaker.apply(&plan, &alice()).await, Outcome::applied(Revision(2)));
    let table = store.list().await.expect("it answers");
    assert_eq!(table.get("retry.max_attempts").expect("a flag").stored(), &four);
}

/// The table as if three tries were stored, so that `contain` has something to say about them.
fn before_storm(table: &FlagTable) -> FlagTable {
    let mut table = table.clone();
    for flag in table.flags.iter_mut().filter(|flag| flag.key == "retry.max_attempts") {
        flag.overridden = Some(FlagValue::Number(3.0));
    }
    table
}

#[tokio::test]
async fn without_a_second_token_nothing_passes_and_the_refusal_says_how_to_have_one() {
    let gate = idle_gate("").await;
    for given in [GLASS, ""] {
        let headers = [("if-match", "\"0\""), ("x-weir-break-glass", given)];
        let change = breaking(body(&json!("off"), "1"));
        let reply = put_with(&gate, "admission.mode", &headers, &change).await;
        assert_eq!(reply.status.as_u16(), 403, "{}", reply.text());
        let why = reply.message();
        assert!(why.contains("gateway.break_glass_token_env") && why.contains("restart"), "{why}");
    }
}
