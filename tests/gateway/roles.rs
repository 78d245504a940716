//! Tokens with roles: what each may do, what the history keeps, and how often it may ask.

use std::fmt::Write as _;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::flags::{FLAGS_PATH, body, idle_gate};
use crate::interlocks::breaking;
use crate::support::{Gate, Reply};

/// A gateway with a token of each role, and the folder of their files.
async fn gate_with_roles(config: &str) -> (Gate, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut tables = String::new();
    for role in ["read", "flip", "break-glass"] {
        let file = folder.path().join(role);
        std::fs::write(&file, format!("{role}-secret\n")).expect("it can be written to");
        let file = file.display();
        writeln!(
            tables,
            "[[admin_token]]\nname = 'the {role} token'\nrole = '{role}'\ntoken_file = '{file}'"
        )
        .expect("a string");
    }
    (idle_gate(&format!("{config}\n{tables}")).await, folder)
}

/// Asks with the token of a role.
async fn ask(gate: &Gate, role: &str, method: Method, path: &str, body: &Value) -> Reply {
    let bearer = format!("Bearer {role}-secret");
    let headers = [("authorization", &*bearer), ("if-match", "\"0\"")];
    let body = if method == Method::GET { String::new() } else { body.to_string() };
    gate.ask(method, path, &headers, &body).await
}

#[tokio::test]
async fn a_role_allows_what_it_says_and_the_history_names_its_token() {
    let (gate, _files) = gate_with_roles("").await;
    let flag = format!("{FLAGS_PATH}/queue.max_depth");
    let note = json!({ "text": "called the provider", "actor": "bob", "request_id": "n" });
    for path in [FLAGS_PATH, &flag, "/admin/v1/events", "/admin/v1/snapshot", "/admin/v1/tally"] {
        let reply = ask(&gate, "read", Method::GET, path, &Value::Null).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text());
    }
    let lower = body(&json!(300), "1");
    for (method, path, body) in [
        (Method::PUT, &*flag, &lower),
        (Method::DELETE, &flag, &lower),
        (Method::POST, "/admin/v1/notes", &note),
        (Method::POST, "/admin/v1/drain", &Value::Null),
        (Method::POST, "/admin/v1/tally", &Value::Null),
    ] {
        let reply = ask(&gate, "read", method, path, body).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{path}: {}", reply.text());
        let why = reply.message();
        assert!(why.contains("`the read token` may read, and this takes flip"), "{why}");
    }
    let flipped = ask(&gate, "flip", Method::PUT, &flag, &lower).await;
    assert_eq!(flipped.status, StatusCode::OK, "{}", flipped.text());
    let noted = ask(&gate, "flip", Method::POST, "/admin/v1/notes", &note).await;
    assert_eq!(noted.status, StatusCode::CREATED, "{}", noted.text());
    let events = ask(&gate, "read", Method::GET, "/admin/v1/events", &Value::Null).await.json();
    let events = events["events"].as_array().expect("a list");
    assert_eq!(events.len(), 2, "{events:?}");
    for event in events {
        assert_eq!(event["token"], "the flip token", "{event}");
    }
    assert_eq!(events[1]["actor"], "bob", "what its author says stays beside it");
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_admin_refused_total", &[("reason", "forbidden")]), 5);
}

#[tokio::test]
async fn only_the_last_role_passes_interlocks() {
    let (gate, _files) = gate_with_roles("").await;
    let flag = format!("{FLAGS_PATH}/admission.mode");
    let off = breaking(body(&json!("off"), "1"));
    let refused = ask(&gate, "flip", Method::PUT, &flag, &off).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text());
    let plain = ask(&gate, "break-glass", Method::PUT, &flag, &body(&json!("off"), "2")).await;
    assert_eq!(plain.status, StatusCode::CONFLICT, "an interlock is passed on demand only");
    let passed = ask(&gate, "break-glass", Method::PUT, &flag, &off).await;
    assert_eq!(passed.status, StatusCode::OK, "{}", passed.text());
}

#[tokio::test]
async fn a_token_that_asks_too_often_waits_and_no_other_does() {
    let (gate, _files) = gate_with_roles("admin_requests_per_s = 0.5").await;
    let first = ask(&gate, "read", Method::GET, FLAGS_PATH, &Value::Null).await;
    assert_eq!(first.status, StatusCode::OK, "{}", first.text());
    let second = ask(&gate, "read", Method::GET, FLAGS_PATH, &Value::Null).await;
    assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS, "{}", second.text());
    assert_eq!(second.header("retry-after"), Some("1"));
    let why = second.message();
    assert!(why.contains("`the read token`") && why.contains("admin_requests_per_s"), "{why}");
    let other = ask(&gate, "flip", Method::GET, FLAGS_PATH, &Value::Null).await;
    assert_eq!(other.status, StatusCode::OK, "{}", other.text());
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_admin_refused_total", &[("reason", "rate_limited")]), 1);
}

#[tokio::test]
async fn tokens_that_cannot_be_told_apart_are_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("token");
    std::fs::write(&file, "s").expect("it can be written to");
    let table = |name: &str| {
        let file = file.display();
        format!("[[admin_token]]\nname = '{name}'\nrole = 'read'\ntoken_file = '{file}'\n")
    };
    let twice = format!("{}{}", table("a"), table("b"));
    let same_name = table("admin");
    for (tables, words) in [
        (&*twice, "`gateway.admin_token[1].token_file`: is the same token as another one"),
        (&same_name, "`gateway.admin_token[0].name`: `admin` is the name of another token"),
        ("[[admin_token]]\nname = 'a'\nrole = 'read'", "write `token_file`"),
    ] {
        let text = format!(
            "listen = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\nupstream = 'http://x'\n{tables}"
        );
        let config: weir::gateway::GatewayConfig = toml::from_str(&text).expect("well-formed");
        let scope: weir::gateway::ScopeEntry =
            toml::from_str("name = 'a'\nrpm = 1").expect("it is");
        let started = weir::gateway::Gateway::start(&config, &[scope]).await;
        let error = started.err().expect(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}
