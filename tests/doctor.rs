//! `weir doctor` as an operator runs it: on pages of real gateways, served on loopback.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use flate2::read::GzDecoder;
use serde_json::Value as Json;

/// Serves one page to whoever asks, for as long as the test runs.
fn serve(capture: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/captures").join(capture);
    let mut body = Vec::new();
    let file = fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    GzDecoder::new(file).read_to_end(&mut body).expect("gzip");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    format!("http://{address}/metrics")
}

fn doctor(directory: &Path, config: &str, extra: &[&str]) -> Output {
    let file = directory.join("weir.toml");
    fs::write(&file, config).expect("written");
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("doctor")
        .arg("-c")
        .arg(&file)
        .args(extra)
        .output()
        .expect("runs")
}

fn source(name: &str, adapter: &str, url: &str) -> String {
    format!("[[source]]\nname = \"{name}\"\nadapter = \"{adapter}\"\nurl = \"{url}\"\n")
}

fn reach<'a>(report: &'a Json, cause: &str) -> &'a Json {
    let causes = report["causes"].as_array().expect("a list");
    causes.iter().find(|row| row["cause"] == cause).unwrap_or_else(|| panic!("no {cause}"))
}

#[test]
fn what_envoy_says_and_what_cannot_be_told_without_the_rest() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = source("edge", "envoy", &serve("envoy-storm-final.prom.gz"));
    let output = doctor(directory.path(), &config, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let edge = &report["sources"][0];
    assert_eq!(edge["signals"]["attempts_rps"]["quality"], "exact");
    assert_eq!(edge["signals"]["amplification"]["quality"], "lower-bound");
    assert_eq!(edge["scrape"]["prometheus_parse_loses"], 102);
    assert_eq!(edge["scrape"]["missing_metrics"], serde_json::json!([]));
    let absent = edge["absent"].as_array().expect("a list");
    assert!(absent.iter().any(|row| row["name"] == "tpm_headroom" && row["why"].is_string()));
    // Envoy knows neither tokens nor the provider's quota.
    let exhausted = reach(&report, "tpm-exhausted");
    assert_ne!(exhausted["at_most"], "confirmed", "{exhausted}");
    assert!(exhausted["needs"].as_array().is_some_and(|needs| !needs.is_empty()), "{exhausted}");
    let words = doctor(directory.path(), &config, &[]);
    let words = String::from_utf8(words.stdout).expect("text");
    for part in ["edge  adapter envoy", "loses 102 of your 1", "cannot be told:", "exact"] {
        assert!(words.contains(part), "{part}\n{words}");
    }
}

#[test]
fn more_sources_reach_further_and_one_that_is_down_is_a_finding() {
    let directory = tempfile::tempdir().expect("a directory");
    // Port 9 answers nobody on loopback.
    let down = source("gateway", "weir", "http://127.0.0.1:9/metrics");
    let config = source("proxy", "litellm", &serve("litellm-storm-t2.prom.gz")) + &down;
    let output = doctor(directory.path(), &config, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert!(report["sources"][1]["error"].as_str().is_some_and(|e| e.starts_with("gateway")));
    assert_eq!(report["sources"][0]["scrape"]["prometheus_parse_loses"], 0);
    assert_ne!(reach(&report, "nested-retries")["at_most"], "cannot-tell");
}

#[test]
fn a_users_adapter_is_read_and_a_wrong_one_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let adapters = directory.path().join("adapters");
    fs::create_dir(&adapters).expect("created");
    let head = "[adapter]\ntitle = \"ours\"\nabout = \"a\"\nrole = \"gateway\"\n\
                verified = \"run\"\n[signals.offered_rps]\nquality = \"exact\"\n";
    let config = source("edge", "ours", &serve("smg-storm-t2.prom.gz"));
    fs::write(
        adapters.join("ours.toml"),
        format!("{head}value = 'rate(smg_http_requests_total)'\n"),
    )
    .expect("written");
    let output = doctor(directory.path(), &config, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    fs::write(adapters.join("ours.toml"), format!("{head}valeu = 'rate(a)'\n")).expect("written");
    let output = doctor(directory.path(), &config, &[]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("ours.toml:8:1: `signals.offered_rps.valeu`"), "{error}");
}
