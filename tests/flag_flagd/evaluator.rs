//! The real evaluator of flagd, in Python: it reads what weir wrote, and sees a change.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use crate::store_plans::plan;
use crate::{apply, folder, store, table};

/// The longest that the evaluator may take to say something.
const PATIENCE: Duration = Duration::from_mins(1);

/// A Python that has the evaluator: the one of the environment, or any that is there.
async fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci-venv/bin/python");
    let named = std::env::var_os("WEIR_TEST_PYTHON").map(PathBuf::from);
    for known in named.into_iter().chain([own, PathBuf::from("python3")]) {
        let mut import = Command::new(&known);
        import.args(["-c", "import openfeature.contrib.provider.flagd"]);
        let ran = import.stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        if ran.is_ok_and(|status| status.success()) {
            return known;
        }
    }
    panic!(
        "this test needs flagd's evaluator: set WEIR_TEST_PYTHON to a Python that has the package \
         openfeature-provider-flagd, as tests/run.sh does"
    )
}

async fn next(said: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = tokio::time::timeout(PATIENCE, said.next_line()).await.expect("it says something");
    let line = line.expect("a pipe").expect("it has not stopped");
    serde_json::from_str(&line).expect("one JSON object a line")
}

#[tokio::test]
async fn flagds_evaluator_reads_what_weir_wrote_and_sees_a_change() {
    // This evaluator refuses a whole file for one unknown field.
    let team = crate::TEAM.replace(",\n      \"description\": \"kept\"", "");
    let (_folder, path) = folder(&team);
    let store = store(&path);
    let words = [
        "retry.max_attempts=3",
        "admission.mode=shadow",
        "cache.enabled=true",
        "queue.max_age_s=20",
        "admission.rate_factor=0.5",
    ];
    apply(&store, &plan(&table(&store).await, &words), "alice").await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flag_flagd/evaluator.py");
    let mut child = Command::new(python().await)
        .arg(script)
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a Python");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let shown = |value: Value, variant: &str, by: &str| json!([value, variant, by]);
    let first = json!({
        "retry.max_attempts": shown(json!(3), "override", "alice"),
        "admission.mode": shown(json!("shadow"), "override", "alice"),
        "cache.enabled": shown(json!(true), "override", "alice"),
        "queue.max_age_s": shown(json!(20.0), "override", "alice"),
        "admission.rate_factor": shown(json!(0.5), "override", "alice"),
        "new-checkout": [false, "off", null],
    });
    assert_eq!(next(&mut said).await, first);

    let words = ["retry.max_attempts=base", "queue.max_age_s=5"];
    apply(&store, &plan(&table(&store).await, &words), "bob").await;
    let mut second = first;
    second["retry.max_attempts"] = shown(json!(2), "base", "bob");
    second["queue.max_age_s"] = shown(json!(5.0), "override", "bob");
    assert_eq!(next(&mut said).await, second);
}
