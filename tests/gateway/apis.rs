//! APIs beside OpenAI's: whose key goes where, whose errors look how, and those that know no models.

use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Gate, Hand, WIDE, answer};

const MESSAGES: &str = "/v1/messages";
/// A variable that every test process has; what it holds stands in for a key.
const KEY_ENV: &str = "PATH";

fn message(text: &str) -> String {
    let messages = json!([{ "role": "user", "content": text }]);
    json!({ "model": "claude", "max_tokens": 16, "messages": messages }).to_string()
}

fn lines(head: &str, name: &str) -> Vec<String> {
    let lines = head.lines().filter(|line| line.starts_with(&format!("{name}:")));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn anthropic_s_callers_get_errors_in_anthropic_s_shape() {
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let config = "body_max = 2000\n[flags]\n'admission.max_request_tokens' = 50";
    let scope = "name = 'anthropic/acct-1/claude'\nmodels = ['claude']\nrpm = 600_000\n";
    let gate = Gate::start(&hand.url(), config, scope).await;
    let big = "w ".repeat(600);
    let huge = "w ".repeat(1_200);
    for (body, status, kind, code) in [
        (message(&big), 429, "rate_limit_error", "weir_request_too_large"),
        (message(&huge), 413, "request_too_large", "weir_body_too_large"),
        (json!({ "model": "other" }).to_string(), 404, "not_found_error", "weir_no_scope"),
    ] {
        let reply = gate.post(MESSAGES, &[], &body).await;
        let said = reply.json();
        assert_eq!(reply.status.as_u16(), status, "{said}");
        assert_eq!(said["type"], "error", "{said}");
        assert_eq!((&said["error"]["type"], &said["error"]["code"]), (&json!(kind), &json!(code)));
        assert!(said["error"]["message"].is_string(), "{said}");
    }
    // The same refusal on another path has the shape of that path's API.
    let reply = gate.post("/v1/chat/completions", &[], &message(&big)).await;
    assert_eq!(reply.code(), "weir_request_too_large");
    assert!(hand.heads().is_empty(), "{:?}", hand.heads());
}

#[tokio::test]
async fn the_gateway_s_key_takes_the_place_of_the_callers_where_the_provider_reads_it() {
    let key = std::env::var(KEY_ENV).expect("every process has it");
    for (scope, header, before) in [
        ("name = 'openai/a/m'\nrpm = 600_000\n", "authorization", "Bearer "),
        ("name = 'anthropic/a/m'\nrpm = 600_000\n", "x-api-key", ""),
        ("name = 'azure-openai/a/m'\nrpm = 600_000\n", "api-key", ""),
    ] {
        let hand = Hand::saying(answer("200 OK", "", "{}")).await;
        let gate =
            Gate::start(&hand.url(), &format!("upstream_key_env = '{KEY_ENV}'"), scope).await;
        let theirs = [("authorization", "Bearer theirs"), ("x-api-key", "theirs")];
        assert_eq!(gate.post(MESSAGES, &theirs, &message("a")).await.status, 200);
        let heads = hand.heads();
        let [head] = &heads[..] else { panic!("{heads:?}") };
        assert!(!head.contains("theirs"), "{head}");
        let sent = lines(&head.to_lowercase(), header);
        assert_eq!(sent, [format!("{header}: {before}{key}").to_lowercase()], "{head}");
    }
    // Without a key of its own the gateway passes the callers' on.
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    gate.post(MESSAGES, &[("x-api-key", "theirs")], &message("a")).await;
    assert!(hand.heads()[0].contains("x-api-key: theirs"), "{:?}", hand.heads());
}

#[tokio::test]
async fn two_callers_of_anthropic_s_kind_are_two_tenants() {
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    for key in ["one", "two"] {
        // The same words of two callers are two originals.
        assert_eq!(gate.post(MESSAGES, &[("x-api-key", key)], &message("a")).await.status, 200);
    }
    gate.idle().await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_originals_total", &[]), 2);
    assert_eq!(metrics.count("weir_client_retries_total", &[]), 0);
}

const SEARCH: &str = "[upstream]\nurl = 'UPSTREAM'\nkind = 'http'";

#[tokio::test]
async fn a_search_api_has_every_path_and_no_tokens() {
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let scope = "name = 'brave/acct-1/search'\nrpm = 600_000\ntpm = 1_000\n";
    let gate = Gate::start(&hand.url(), SEARCH, scope).await;
    let url = format!("{}/res/v1/web/search?q=a%20b&count=3", gate.data);
    let key = [("x-subscription-token", "theirs")];
    for _ in 0..20 {
        assert_eq!(gate.http.send(Method::GET, &url, &key, "").await.status, 200);
    }
    let heads = hand.heads();
    assert!(heads[0].starts_with("get /res/v1/web/search?q=a%20b&count=3 "), "{}", heads[0]);
    assert!(heads[0].contains("x-subscription-token: theirs"), "{}", heads[0]);
    // A body of any kind goes through as it is, and its size costs nothing.
    let body = "not json at all ".repeat(1_000);
    assert_eq!(gate.post("/extract", &[], &body).await.status, 200);
    gate.idle().await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_admitted_total", &[]), 21);
    assert_eq!(metrics.count("weir_tokens_reserved_total", &[]), 0);
}

#[tokio::test]
async fn with_several_quotas_a_search_names_its_own() {
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let scopes = [
        "name = 'brave/a/web'\nmodels = ['web']\nrpm = 600_000\n",
        "name = 'brave/a/news'\nmodels = ['news']\nrpm = 600_000\n",
    ];
    let gate = Gate::with_scopes(&hand.url(), SEARCH, &scopes).await;
    let url = format!("{}/search", gate.data);
    let named = |scope| gate.http.send(Method::GET, &url, scope, "");
    assert_eq!(named(&[("x-weir-scope", "brave/a/news")]).await.status, 200);
    for headers in [&[][..], &[("x-weir-scope", "brave/a/else")]] {
        let reply = named(headers).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "weir_no_scope"));
    }
    gate.idle().await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_admitted_total", &[("scope", "brave/a/news")]), 1);
    assert_eq!(metrics.count("weir_admitted_total", &[("scope", "brave/a/web")]), 0);
}

#[tokio::test]
async fn the_time_that_is_left_reaches_the_provider() {
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let gate = Gate::start(&hand.url(), "attempt_timeout_s = 60.0", WIDE).await;
    let left = |head: &str| -> u64 {
        let lines = lines(head, "x-envoy-expected-rq-timeout-ms");
        let [line] = &lines[..] else { panic!("{head}") };
        line.rsplit(' ').next().and_then(|ms| ms.parse().ok()).expect("milliseconds")
    };
    // What the caller said, less what has passed; nobody's word is the time limit of an attempt.
    for headers in [&[("x-weir-deadline-ms", "30000")][..], &[]] {
        gate.post(MESSAGES, headers, &message("a")).await;
    }
    let heads = hand.heads();
    assert!((1..=30_000).contains(&left(&heads[0])), "{}", heads[0]);
    assert!((30_001..=60_000).contains(&left(&heads[1])), "{}", heads[1]);
}

#[tokio::test]
async fn a_body_that_comes_slower_than_its_caller_waits_holds_nothing() {
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let mut slow = tokio::net::TcpStream::connect(gate.data_host()).await.expect("it listens");
    let head = "POST /v1/embeddings HTTP/1.1\r\nhost: gate\r\ncontent-length: 1000\r\n\
                x-weir-deadline-ms: 100\r\nconnection: close\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.expect("it reads");
    let mut said = String::new();
    slow.read_to_string(&mut said).await.expect("an answer");
    assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("weir_body_slow"), "{said}");
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_offered_total", &[]), 0, "it never was a request");
    assert_eq!(gate.embed("a").await.status, 200);
}
