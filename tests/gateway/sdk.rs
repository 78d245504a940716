//! The real OpenAI SDK for Python in front of the gateway: it works unchanged, and its own retries
//! stop exactly when the gate owns them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::support::{Gate, Sim, WIDE};

const THREE_TRIES: &str = "'retry.max_attempts' = 3\n'retry.budget_ratio' = 1.0";

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs to the end; says what it wrote when it fails.
pub async fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let ran = Command::new(program)
        .args(arguments)
        .env("NO_PROXY", "127.0.0.1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let ran = tokio::time::timeout(std::time::Duration::from_mins(4), ran)
        .await
        .map_err(|_| format!("{} took too long", program.display()))?
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
}

/// A Python that has the clients: the one of the environment, any that is there, or a new one.
pub async fn python() -> &'static Path {
    static PYTHON: OnceCell<PathBuf> = OnceCell::const_new();
    PYTHON
        .get_or_init(async || {
            // Found and not imported: that would take seconds.
            const IMPORT: [&str; 2] = [
                "-c",
                "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('openai', \
                 'anthropic', 'langchain_openai', 'llama_index', 'litellm'))))",
            ];
            const PACKAGES: [&str; 5] = [
                "openai",
                "anthropic",
                "langchain-openai",
                "llama-index-embeddings-openai",
                "litellm[proxy]",
            ];
            if let Some(named) = std::env::var_os("WEIR_TEST_PYTHON") {
                let named = PathBuf::from(named);
                if let Err(error) = run(&named, &IMPORT).await {
                    panic!("WEIR_TEST_PYTHON lacks one of {PACKAGES:?}: {error}");
                }
                return named;
            }
            let own = root().join("target/ci-venv/bin/python");
            for known in [own.clone(), PathBuf::from("python3")] {
                if run(&known, &IMPORT).await.is_ok() {
                    return known;
                }
            }
            let place = root().join("target/ci-venv");
            let place = place.to_str().expect("a path in UTF-8");
            let made = async {
                run(Path::new("python3"), &["-m", "venv", place]).await?;
                let mut arguments = vec!["-m", "pip", "install", "-q"];
                arguments.extend(PACKAGES);
                run(&own, &arguments).await
            };
            if let Err(error) = made.await {
                panic!(
                    "this test needs real clients: set WEIR_TEST_PYTHON to a Python that has \
                     {PACKAGES:?}, or see .ci/run for how to install them: {error}"
                );
            }
            own
        })
        .await
}

async fn sdk(base: &str, task: &str) -> Value {
    let script = root().join("tests/gateway/sdk.py");
    let script = script.to_str().expect("a path in UTF-8");
    let said = run(python().await, &[script, &format!("{base}/v1"), task]).await;
    let said = said.unwrap_or_else(|error| panic!("{task}: {error}"));
    serde_json::from_str(&said).expect("one JSON object")
}

#[tokio::test]
async fn embeddings_are_the_same_as_without_the_gateway() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let direct = sdk(&sim.url(), "embed").await;
    let through = sdk(&gate.data, "embed").await;
    assert_eq!(direct, through);
    assert_eq!(through["tokens"], 4);
    assert_eq!(through["vectors"].as_array().map(Vec::len), Some(2));
    assert_ne!(through["vectors"][0], through["vectors"][1]);
    assert_eq!(through["floats"][0].as_array().map(Vec::len), Some(8));
    gate.idle().await;
}

#[tokio::test]
async fn a_chat_streams() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let said = sdk(&gate.data, "chat").await;
    assert!(said["chunks"].as_u64().is_some_and(|chunks| chunks > 5), "{said}");
    assert_eq!(said["tokens"], 10);
    assert!(said["text"].as_str().is_some_and(|text| text.contains("simulated")), "{said}");
    gate.reaches("weir_tokens_actual_total", &[], 10).await;
}

/// One call of the SDK against a provider that throttles every attempt: attempts seen there.
async fn check(flags: &str, status: u16, attempts: u64) {
    let sim = Sim::start("script = 'rate_limit:100'").await;
    let gate = Gate::start(&sim.url(), &format!("[flags]\n{flags}"), WIDE).await;
    let said = sdk(&gate.data, "status").await;
    assert_eq!(said["status"], status, "{flags}: {said}");
    assert_eq!(said["code"], "rate_limit_exceeded", "{flags}: {said}");
    assert_eq!(sim.attempts().await, attempts, "{flags}");
    let ledger = sim.ledger().await;
    assert_eq!(ledger["originals"], 1, "{flags}");
}

#[tokio::test]
async fn its_retries_stop_while_the_gate_owns_them() {
    check("'retry.owner' = 'gateway'\n'retry.max_attempts' = 1", 429, 1).await;
    check("'retry.owner' = 'gateway'", 429, 2).await;
}

#[tokio::test]
async fn its_retries_go_on_while_it_owns_them() {
    check("'retry.owner' = 'client'", 429, 3).await;
    check("'admission.mode' = 'off'", 429, 3).await;
}

#[tokio::test]
async fn its_retries_are_recognised() {
    let sim = Sim::start("script = 'rate_limit:2'").await;
    let flags = format!("[flags]\n'retry.owner' = 'client'\n{THREE_TRIES}");
    let gate = Gate::start(&sim.url(), &flags, WIDE).await;
    let said = sdk(&gate.data, "status").await;
    assert_eq!(said["status"], 200);
    let metrics = gate.metrics().await;
    for (name, labels, wanted) in [
        ("weir_retry_marked_total", &[][..], 2),
        ("weir_client_retries_total", &[("evidence", "repeat")], 2),
        ("weir_originals_total", &[], 1),
        ("weir_originals_served_total", &[], 1),
    ] {
        let sum = metrics.count(name, labels);
        assert_eq!(sum, wanted, "{name}{labels:?}: {sum}");
    }
}
