//! A drill against a provider that is not simulated by it: what it may send, and what it asks first.
//!
//! Requests go to servers in this process only. Whatever names another machine here must be refused,
//! and names one that cannot exist.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use http::{HeaderMap, Uri, header};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir::drill::provider_http;
use weir::drill::scenario::parse_provider;

const KEY_VARIABLE: &str = "WEIR_TEST_PROVIDER_KEY";
/// How long anything may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);
const ELSEWHERE: &str = "url = 'https://provider.invalid'\nmodel = 'm'\n";
const BUDGET: &str = "budget_requests = 500\nbudget_usd = 2\nusd_per_million_tokens = 0.02\n";
const TYPED: &str = "500 requests 2 USD";

/// A storm in small, whose layers hardly wait.
fn scenario(name: &str, flags: &str, upstream: &str) -> PathBuf {
    let text = format!(
        r#"name = "{name}"
title = "a storm in small"
duration_s = 2
onset_s = 0
max_attempts_configured = 3
flags = {{ {flags} }}

[provider]
requests = {{ per_minute = 60_000 }}
tokens = {{ per_minute = 600_000 }}

[traffic]
tokens = {{ min = 5, max = 5 }}
steps = [{{ name = "storm", at_s = 0, rate = 60 }}]

[layers]
sdk = {{ base_s = 0.01, cap_s = 0.02, hint_max_s = 0 }}
wrapper = {{ base_s = 0.01 }}
frontend = {{ after_s = 0.02, probability = 0.5 }}

[expect]
cause = "nested-retries"
after_cure = "demand-over-capacity"

[upstream]
{upstream}"#
    );
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    std::fs::write(&path, text).expect("the target folder can be written to");
    path
}

fn weir_drill(scenario: &Path, arguments: &[&str], key: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("drill").arg(scenario).args(arguments).env_remove(KEY_VARIABLE);
    if let Some(key) = key {
        command.env(KEY_VARIABLE, key);
    }
    command.stdin(std::process::Stdio::null()).output().expect("weir starts")
}

/// Plays a scenario without a screen, while this process serves the provider.
async fn play(scenario: PathBuf, key: Option<&'static str>) -> Value {
    let headless = ["--headless", "--json", "--for", "2s"];
    let playing = tokio::task::spawn_blocking(move || weir_drill(&scenario, &headless, key));
    let output = playing.await.expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}

async fn simulated_provider(config: &str) -> SocketAddr {
    let config = parse_provider("provider.toml", config).expect("it is right");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(provider_http::serve(listener, config, 1, std::future::pending()));
    address
}

async fn ledger(provider: SocketAddr) -> Value {
    let client = reqwest_client();
    let answer = client.get(format!("http://{provider}/ledger")).send().await.expect("an answer");
    answer.json().await.expect("JSON")
}

fn reqwest_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

fn remarks(report: &Value) -> String {
    report["remarks"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_retries_the_provider_counts_no_more_than_the_budget() {
    let quick = "latency = { base_ms = 2, spread_ms = 0, per_open_call_ms = 0 }\n";
    let empty = "requests = { per_minute = 60_000 }\ntokens = { per_minute = 60, start = 30 }\n";
    let broken = "requests = { per_minute = 60_000 }\ntokens = { per_minute = 600_000 }\n\
                  steps = [{ at_s = 0, error_ratio = 1.0 }]\n";
    let by_clients = "'admission.mode' = 'off', 'retry.owner' = 'client'";
    let by_gate = "'retry.owner' = 'gateway', 'retry.max_attempts' = 4, 'retry.budget_ratio' = 1, \
                   'breaker.enabled' = false, 'adaptive.enabled' = false";
    for (name, provider, flags) in
        [("retries-above", empty, by_clients), ("retries-at-the-gate", broken, by_gate)]
    {
        let address = simulated_provider(&format!("{quick}{provider}")).await;
        let upstream = format!("url = 'http://{address}'\nmodel = 'm'\nbudget_requests = 40\n");
        let report = play(scenario(name, flags, &upstream), None).await;
        let counted = ledger(address).await;
        let attempts = counted["attempts"].as_u64().expect("a count");
        assert!((20..=40).contains(&attempts), "{name}: {counted}");
        assert!(attempts > counted["originals"].as_u64().expect("a count"), "{name} is a storm");
        let ours: u64 = report["phases"]
            .as_array()
            .expect("phases")
            .iter()
            .map(|phase| phase["attempts"].as_u64().expect("a count"))
            .sum();
        assert_eq!(ours, attempts, "the gate counts what the provider counts");
        assert!(remarks(&report).contains("the budget ended the traffic"), "{report}");
    }
}

/// What one request looked like to the provider.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    path: String,
    authorization: String,
    model: Value,
}

type Log = Arc<Mutex<Vec<Asked>>>;

async fn record(State(log): State<Log>, uri: Uri, headers: HeaderMap, body: String) -> String {
    let body: Value = serde_json::from_str(&body).expect("JSON");
    let authorization = headers[header::AUTHORIZATION].to_str().expect("text").to_owned();
    let asked = Asked { path: uri.path().to_owned(), authorization, model: body["model"].clone() };
    log.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    json!({ "object": "list", "data": [], "usage": { "prompt_tokens": 5, "total_tokens": 5 } })
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn money_ends_it_too_and_what_nobody_can_ask_is_unknown() {
    let log = Log::default();
    let router = axum::Router::new().fallback(record).with_state(Arc::clone(&log));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async { axum::serve(listener, router).await });
    // Eight tokens a request by the clients' estimate, at a dollar a token.
    let upstream = format!(
        "url = 'http://{address}'\nkey_env = '{KEY_VARIABLE}'\nmodel = 'embed \"3\"'\n\
         path = '/v1/engines/embeddings'\nbudget_usd = 100\nusd_per_million_tokens = 1_000_000\n"
    );
    let scenario = scenario("by-money", "'admission.mode' = 'off'", &upstream);
    let report = play(scenario, Some("sk-of-the-provider")).await;
    let asked = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!((3..=12).contains(&asked.len()), "{asked:?}");
    let expected = Asked {
        path: "/v1/engines/embeddings".to_owned(),
        authorization: "Bearer sk-of-the-provider".to_owned(),
        model: json!("embed \"3\""),
    };
    assert!(asked.iter().all(|one| *one == expected), "{asked:?}");
    for count in ["originals", "attempts", "provider_429", "tokens_sent"] {
        assert_eq!(report["ledger"].get(count), Some(&Value::Null), "{count} is unknown, not zero");
    }
    assert!(remarks(&report).contains("the ledger is unknown"), "{report}");
    assert!(remarks(&report).contains("USD are spent"), "{report}");
}

#[test]
fn another_machine_is_refused_without_budget_person_or_key() {
    let whole = format!("{ELSEWHERE}{BUDGET}");
    let with_key = format!("{whole}key_env = '{KEY_VARIABLE}'\n");
    let cases: [(&str, &str, i32, &str); 3] = [
        ("no-budget", ELSEWHERE, 1, "`upstream.budget_requests`: missing"),
        ("no-terminal", &whole, 2, "no terminal"),
        ("no-key", &with_key, 1, KEY_VARIABLE),
    ];
    for (name, upstream, code, words) in cases {
        let scenario = scenario(name, "", upstream);
        for arguments in [&["--headless", "--json"][..], &[]] {
            let output = weir_drill(&scenario, arguments, None);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{name}: {errors}");
            assert!(errors.contains(words), "{name}: {errors}");
            assert!(output.stdout.is_empty(), "{name} prints nothing else");
        }
        let yes = weir_drill(&scenario, &["--headless", "--yes"], None);
        assert_eq!(yes.status.code(), Some(2), "{name}: nothing skips the question");
    }
}

#[test]
fn the_virtual_drill_sends_nothing_and_asks_nothing() {
    let scenario = scenario("on-paper", "", &format!("{ELSEWHERE}{BUDGET}"));
    let output = weir_drill(&scenario, &["--virtual", "--json", "--for", "2s"], None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["ledger"]["attempts"].as_u64() > Some(0), "{report}");
}

/// Types into the drill's terminal once it asks: everything that it has shown, and its exit code.
fn type_into(scenario: &Path, keys: &str) -> (String, u32) {
    let size = PtySize { rows: 24, cols: 200, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["drill", "--headless", "--json"]);
    command.arg(scenario);
    let mut child = pair.slave.spawn_command(command).expect("weir starts");
    drop(pair.slave);
    let mut output = pair.master.try_clone_reader().expect("a reader");
    let shown = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&shown);
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]);
            sink.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    });
    let text = || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let until = Instant::now() + PATIENCE;
    while !text().contains("to start, anything else refuses") {
        assert!(Instant::now() < until, "it does not ask: {}", text());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut writer = pair.master.take_writer().expect("a writer");
    writer.write_all(keys.as_bytes()).and_then(|()| writer.flush()).expect("it reads");
    let code = child.wait().expect("it ends").exit_code();
    drop(writer);
    drop(pair.master);
    reading.join().expect("the reader ends");
    (text(), code)
}

#[test]
fn only_the_budget_itself_starts_it() {
    let scenario = scenario("asks", "", &format!("{ELSEWHERE}{BUDGET}"));
    for keys in ["yes\r", "\r", "500 requests 2\r", "500 requests 20 USD\r", "\u{4}"] {
        let (shown, code) = type_into(&scenario, keys);
        assert_eq!(code, 2, "{keys:?}: {shown}");
        assert!(shown.contains("provider.invalid"), "it says where to: {shown}");
        assert!(shown.contains(TYPED), "it says how much: {shown}");
        assert!(shown.contains("nothing was sent"), "{keys:?}: {shown}");
    }
}
