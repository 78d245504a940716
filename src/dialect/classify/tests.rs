//! What the tables do not show: the order of trust, strangers, and arbitrary bytes. The tables are
//! held against answers in `tests/classify.rs`.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn error(kind: &str, code: &str, message: &str) -> String {
    serde_json::json!({ "error": { "message": message, "type": kind, "code": code } }).to_string()
}

fn check(provider: &str, status: u16, body: &str, class: Class, meter: Option<Meter>) {
    let headers = HeaderMap::new();
    let answer = Answer { status, headers: &headers, body: body.as_bytes() };
    let provider = Provider::named(provider).expect("known");
    let seen = classify(&answer, provider, None);
    assert_eq!((seen.class, seen.meter), (class, meter), "{status} {body}: {}", seen.why);
}

#[test]
fn the_same_status_has_three_meanings() {
    let rate = "rate_limit_exceeded";
    let tpm = error("tokens", rate, "Limit 30000, Used 29937, Requested 385. Please try again");
    check("openai", 429, &tpm, Class::TransientRateLimit, Some(Meter::Tokens));
    let rpd =
        error("requests", rate, "on requests per day (RPD): Limit 200, Used 200, Requested 1");
    check("openai", 429, &rpd, Class::TransientRateLimit, Some(Meter::RequestsPerDay));
    let quota =
        error("insufficient_quota", "insufficient_quota", "You exceeded your current quota");
    check("openai", 429, &quota, Class::PermanentQuota, Some(Meter::Spend));
    let large = error("tokens", rate, "Request too large: Limit 30000, Requested 30601.");
    check("openai", 429, &large, Class::BadRequest, Some(Meter::Tokens));
    check("openai", 429, "Too Many Requests", Class::TransientRateLimit, None);
    check("openai", 429, "", Class::TransientRateLimit, None);
}

#[test]
fn the_same_words_mean_the_opposite_by_provider() {
    let quota = "You exceeded your current quota, please check your plan and billing details.";
    let openai = error("insufficient_quota", "insufficient_quota", quota);
    check("openai", 429, &openai, Class::PermanentQuota, Some(Meter::Spend));
    let gemini = serde_json::json!({ "error": {
        "code": 429, "message": quota, "status": "RESOURCE_EXHAUSTED",
        "details": [{ "violations": [{ "quotaId": "GenerateRequestsPerMinutePerProject" }] }],
    }});
    check("gemini", 429, &gemini.to_string(), Class::TransientRateLimit, Some(Meter::Requests));
    check("generic", 429, &gemini.to_string(), Class::TransientRateLimit, Some(Meter::Requests));
}

#[test]
fn a_stranger_is_judged_by_status() {
    check("generic", 402, "", Class::PermanentQuota, Some(Meter::Spend));
    for status in [300, 400, 404, 413, 422, 501] {
        check("generic", status, "{}", Class::BadRequest, None);
    }
    for status in [401, 403] {
        check("generic", status, "<html>", Class::AuthOrPermission, None);
    }
    for status in [0, 408, 500, 502, 503, 504, 529, 999] {
        check("generic", status, "", Class::TemporaryOverload, None);
    }
    check("generic", 200, "not even read", Class::Success, None);
    check("generic", 499, "", Class::Cancelled, None);
}

#[test]
fn every_status_has_a_rule() {
    let headers = HeaderMap::new();
    for status in 100..600 {
        let answer = Answer { status, headers: &headers, body: b"" };
        let why = classify(&answer, Provider::GENERIC, None).why;
        assert!((200..300).contains(&status) || why.contains('/'), "{status}: {why}");
    }
}

#[test]
fn why_names_the_rule_and_its_words() {
    let headers = HeaderMap::new();
    let body = error("insufficient_quota", "credit_balance_exhausted", "");
    let answer = Answer { status: 429, headers: &headers, body: body.as_bytes() };
    let why = classify(&answer, Provider::GENERIC, None).why;
    assert_eq!(why, "openai/account-exhausted: status 429, code `credit_balance_exhausted`");
}

#[test]
fn an_empty_meter_is_named_when_the_body_names_none() {
    let mut headers = HeaderMap::new();
    headers.insert("x-ratelimit-limit-tokens", HeaderValue::from_static("100"));
    headers.insert("x-ratelimit-remaining-tokens", HeaderValue::from_static("0"));
    headers.insert("x-should-retry", HeaderValue::from_static("false"));
    let read = |headers: &HeaderMap| {
        classify(&Answer { status: 429, headers, body: b"" }, Provider::GENERIC, None)
    };
    let seen = read(&headers);
    assert_eq!((seen.meter, seen.should_retry), (Some(Meter::Tokens), Some(false)));
    // An hour is longer than any minute's meter needs.
    headers.insert("retry-after", HeaderValue::from_static("3600"));
    assert_eq!(read(&headers).meter, Some(Meter::Tokens));
    headers.insert("retry-after", HeaderValue::from_static("3601"));
    assert_eq!(read(&headers).meter, Some(Meter::TokensPerDay));
}

proptest! {
    #[test]
    fn no_bytes_panic(
        status: u16,
        body: Vec<u8>,
        value in prop::collection::vec(any::<u8>(), 0..100),
        provider in 0..Provider::names().count(),
    ) {
        const NAMES: [&str; 9] = [
            "retry-after", "retry-after-ms", "x-ratelimit-limit-requests", "ratelimit",
            "x-ratelimit-remaining", "x-ratelimit-reset", "date", "x-amzn-errortype",
            "anthropic-ratelimit-tokens-reset",
        ];
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            for name in NAMES {
                headers.insert(HeaderName::from_static(name), value.clone());
            }
        }
        let provider = Provider::names().nth(provider).and_then(Provider::named);
        let answer = Answer { status, headers: &headers, body: &body };
        let _ = classify(&answer, provider.expect("it is named"), None);
    }

    #[test]
    fn no_message_panics(message in "\\PC{0,200}") {
        let words = format!("Limit {message} Requested {message}, try again in {message}");
        let body = error("tokens", "rate_limit_exceeded", &words);
        let headers = HeaderMap::new();
        let answer = Answer { status: 429, headers: &headers, body: body.as_bytes() };
        let _ = classify(&answer, Provider::GENERIC, None);
    }
}
