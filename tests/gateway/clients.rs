//! Real clients, unchanged, in front of the gateway and behind it: how often one call of each reaches the
//! provider while they own retries, and while the gate does.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::sdk::{python, root, run};
use crate::support::{Gate, Hand, Sim, WIDE, answer};

/// What a provider says that has had enough, without a hint.
const OPENAI: &str = r#"{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
const ANTHROPIC: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Number of requests too high"}}"#;

/// A client; attempts of one call while it owns its retries, and requests of it when the gate does and
/// forbids them.
struct Row {
    client: &'static str,
    provider: &'static str,
    alone: u64,
    forbidden: u64,
}

const fn row(client: &'static str, alone: u64, forbidden: u64) -> Row {
    Row { client, provider: OPENAI, alone, forbidden }
}

/// Who makes 1 of a forbidden retry obeys; the others have a loop of their own around the SDK.
const ROWS: [Row; 7] = [
    row("openai", 3, 1),
    row("openai-node", 3, 1),
    Row { provider: ANTHROPIC, ..row("anthropic", 3, 1) },
    row("langchain", 3, 1),
    row("llama-index", 6, 2),
    row("litellm", 5, 3),
    row("litellm-router", 9, 3),
];

/// Where npm has put the SDK.
fn node_modules() -> PathBuf {
    let named = std::env::var_os("WEIR_TEST_NODE").map(PathBuf::from);
    named.unwrap_or_else(|| root().join("target/ci-node"))
}

/// One call of each client, at the base URL beside it, all at once.
async fn call(calls: &[(&str, &str)]) -> Vec<Value> {
    let script = |name: &str| root().join("tests/gateway").join(name).display().to_string();
    let (of_node, of_python): (Vec<_>, Vec<_>) =
        calls.iter().partition(|(client, _)| *client == "openai-node");
    let node = async {
        let mut said = Vec::new();
        for (_, base) in &of_node {
            let folder = node_modules().display().to_string();
            let arguments = [&*script("client.mjs"), &folder, base];
            said.extend(read(run(Path::new("node"), &arguments).await));
        }
        said
    };
    let python = async {
        let script = script("clients.py");
        let mut arguments = vec![&*script];
        arguments.extend(of_python.iter().flat_map(|(client, base)| [*client, *base]));
        if of_python.is_empty() { Vec::new() } else { read(run(python().await, &arguments).await) }
    };
    let (of_node_said, of_python_said) = tokio::join!(node, python);
    let (mut node, mut python) = (of_node_said.into_iter(), of_python_said.into_iter());
    let said = |(client, _): &(&str, &str)| {
        let said = if *client == "openai-node" { node.next() } else { python.next() };
        said.expect("one answer each")
    };
    calls.iter().map(said).collect()
}

fn read(said: Result<String, String>) -> Vec<Value> {
    let said = said.unwrap_or_else(|error| panic!("{error}"));
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// One call of each client against a provider of its own that refuses: what came back, attempts there,
/// requests at the gate.
async fn refused(flags: &str) -> Vec<(&'static Row, Value, u64, u64)> {
    let mut stages = Vec::new();
    for row in &ROWS {
        let hand = Hand::saying(answer("429 Too Many Requests", "", row.provider)).await;
        let gate = Gate::start(&hand.url(), &format!("[flags]\n{flags}"), WIDE).await;
        stages.push((row, hand, gate));
    }
    let calls: Vec<_> = stages.iter().map(|(row, _, gate)| (row.client, &*gate.data)).collect();
    let said = call(&calls).await;
    let mut counted = Vec::new();
    for ((row, hand, gate), said) in stages.iter().zip(said) {
        let offered = gate.metrics().await.count("weir_offered_total", &[]);
        let attempts = u64::try_from(hand.heads().len()).expect("few");
        assert_eq!(said["answered"], false, "{}: {said}", row.client);
        counted.push((*row, said, attempts, offered));
    }
    counted
}

#[tokio::test]
async fn each_client_tries_as_often_as_it_always_does_while_it_owns_retries() {
    for (row, said, attempts, _) in refused("'retry.owner' = 'client'").await {
        assert_eq!(attempts, row.alone, "{}: {said}", row.client);
    }
}

#[tokio::test]
async fn one_attempt_is_made_while_the_gate_owns_retries_whatever_the_client_does() {
    let flags = "'retry.owner' = 'gateway'\n'retry.max_attempts' = 1";
    for (row, said, attempts, offered) in refused(flags).await {
        assert_eq!((attempts, offered), (1, row.forbidden), "{}: {said}", row.client);
    }
}

#[tokio::test]
async fn a_refusal_of_the_gate_is_understood_as_a_rate_limit_and_says_whose_it_is() {
    let hand = Hand::silent().await;
    let gate = Gate::start(&hand.url(), "", "name = 'a'\ntpm = 1").await;
    let clients = ["openai", "openai-node", "anthropic", "langchain", "litellm"];
    let said = call(&clients.map(|client| (client, &*gate.data))).await;
    for (client, said) in clients.iter().zip(said) {
        assert_eq!(said["error"], "RateLimitError", "{client}: {said}");
        let words = said["words"].as_str().expect("words");
        assert!(words.contains("weir"), "{client}: {words}");
    }
    assert!(hand.heads().is_empty(), "nothing reached the provider");
}

/// A LiteLLM proxy, ended with the test.
async fn litellm(folder: &Path, upstream: &str) -> (Child, String) {
    // Not one that the kernel gives to another test in the meantime.
    let first = 10_000 + u16::try_from(std::process::id() % 10_000).expect("below 10,000");
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (first..first + 1_000).find(is_free).expect("a free port");
    let config = folder.join("litellm.yaml");
    let text = format!(
        "model_list:\n  - model_name: m\n    litellm_params: {{model: openai/m, api_base: \
         '{upstream}/v1', api_key: sk-x, max_retries: 0}}\nrouter_settings: {{num_retries: 0}}\n\
         litellm_settings: {{telemetry: false, num_retries: 0}}\n"
    );
    std::fs::write(&config, text).expect("it can be written to");
    let program = python().await.with_file_name("litellm");
    let child = Command::new(&program)
        .args(["--config", config.to_str().expect("UTF-8"), "--host", "127.0.0.1", "--port"])
        .arg(port.to_string())
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true")
        .env("NO_PROXY", "127.0.0.1")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    // It imports half a Python before it listens.
    let listens = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), listens).await.expect("LiteLLM listens");
    (child, format!("http://127.0.0.1:{port}"))
}

#[tokio::test]
async fn litellm_stands_behind_the_gateway() {
    let sim = Sim::start("").await;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (_litellm, url) = litellm(folder.path(), &sim.url()).await;
    let gate = Gate::start(&url, "[flags]\n'retry.max_attempts' = 1", WIDE).await;
    for said in call(&[("openai", &*gate.data), ("openai-node", &gate.data)]).await {
        assert_eq!(said["answered"], true, "{said}");
    }
    sim.script("rate_limit:100").await;
    // Its words are passed on, and the gate knows them for what they are.
    let said = call(&[("openai", &*gate.data)]).await;
    assert_eq!(said[0]["error"], "RateLimitError", "{said:?}");
    let metrics = gate.metrics().await;
    let class = [("class", "TRANSIENT_RATE_LIMIT"), ("status", "429")];
    assert_eq!(metrics.count("weir_attempt_results_total", &class), 1);
    assert_eq!(metrics.count("weir_originals_served_total", &[]), 2);
}
