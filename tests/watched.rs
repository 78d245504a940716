//! `weir signals` and `weir diagnose` on the sources of a configuration, as an operator runs them.

mod pages;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::Value as Json;

/// A gateway that has 100 originals a second and five attempts for each, four of them refused for
/// tokens. It counts by the clock, so that rates are the same however often it is asked.
fn storm(since: Instant) -> String {
    let n = since.elapsed().as_millis() / 10;
    format!(
        "process_start_time_seconds 1\n\
         weir_originals_total{{scope=\"s\",lane=\"interactive\"}} {n}\n\
         weir_originals_attempted_total{{scope=\"s\"}} {n}\n\
         weir_offered_total{{scope=\"s\",lane=\"interactive\"}} {m}\n\
         weir_admitted_total{{scope=\"s\",lane=\"interactive\"}} {m}\n\
         weir_attempts_total{{scope=\"s\",kind=\"first\"}} {n}\n\
         weir_attempts_total{{scope=\"s\",kind=\"retry\"}} {r}\n\
         weir_attempt_results_total{{scope=\"s\",class=\"SUCCESS\",status=\"200\"}} {n}\n\
         weir_attempt_results_total{{scope=\"s\",class=\"TRANSIENT_RATE_LIMIT\",status=\"429\"}} {r}\n\
         weir_provider_refusals_total{{scope=\"s\",status=\"429\",code=\"rate_limit_exceeded\",meter=\"tokens\"}} {r}\n\
         weir_recent_attempts{{scope=\"s\",window=\"10\"}} 5000\n\
         weir_recent_originals_attempted{{scope=\"s\",window=\"10\"}} 1000\n\
         weir_max_attempts_configured{{scope=\"s\"}} 3\n\
         weir_quota_limit{{scope=\"s\",meter=\"tokens\",source=\"provider\"}} 1200000\n\
         weir_quota_remaining{{scope=\"s\",meter=\"tokens\",source=\"provider\"}} 0\n\
         weir_quota_reading_age_seconds{{scope=\"s\",meter=\"tokens\",source=\"provider\"}} 0\n\
         weir_queue_depth{{scope=\"s\",lane=\"interactive\"}} 3\n",
        m = 5 * n,
        r = 4 * n,
    )
}

fn config(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the target folder can be written to");
    path
}

fn weir(args: &[&str], config: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).arg("-c").arg(config).output().expect("weir starts")
}

fn json(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    })
}

#[test]
fn instances_are_added_up_and_a_silent_one_makes_a_lower_bound() {
    let since = Instant::now();
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let urls = [
        pages::serve(move || Some(storm(since).into())),
        pages::serve(move || (!down.load(Ordering::SeqCst)).then(|| storm(since).into())),
    ];
    let text = format!("[[source]]\nname = 'fleet'\nadapter = 'weir'\nurls = {urls:?}\n");
    let path = config("fleet.toml", &text);
    let signals = ["signals", "--every", "4s", "--json"];
    let both = json(&weir(&signals, &path));
    is_down.store(true, Ordering::SeqCst);
    let output = weir(&signals, &path);
    let one = json(&output);
    for (seen, rate, depth, quality) in
        [(&both, 200.0, 6.0, "exact"), (&one, 100.0, 3.0, "lower-bound")]
    {
        let originals = &seen["signals"]["originals_rps"];
        let value = originals["value"].as_f64().expect("known");
        assert!((value / rate - 1.0).abs() < 0.05, "{originals}");
        assert_eq!(originals["quality"], quality);
        assert_eq!(seen["signals"]["queue_depth"]["value"], depth);
        assert_eq!(seen["scope"], "s");
    }
    assert_eq!(one["signals"]["originals_rps"]["note"], "1 of 2 instances");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("fleet 127.0.0.1:"), "the silent one is named: {errors}");
}

#[test]
fn a_storm_that_is_watched_is_named() {
    let since = Instant::now();
    let url = pages::serve(move || Some(storm(since).into()));
    let text = format!("[[source]]\nname = 'gateway'\nadapter = 'weir'\nurl = {url:?}\n");
    let path = config("storm.toml", &text);
    let output = weir(&["diagnose", "--for", "12s", "--json"], &path);
    let verdict = json(&output);
    assert_eq!((&verdict["cause"], &verdict["scope"]), (&"nested-retries".into(), &"s".into()));
    assert_eq!(output.status.code(), Some(10), "{verdict}");
}

#[test]
fn sources_that_all_fail_are_an_error_that_names_them() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let text =
        format!("[[source]]\nname = 'gone'\nadapter = 'weir'\nurl = 'http://{address}/metrics'\n");
    let path = config("gone.toml", &text);
    for command in [&["signals", "--every", "1s"][..], &["diagnose", "--for", "1s"]] {
        let output = weir(command, &path);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("gone: nothing answers"), "{errors}");
        assert!(errors.contains("no source answered"), "{errors}");
    }
}

/// Instances that a file lists are followed while they come and go.
#[test]
fn a_list_in_a_file_is_read_again() {
    let since = Instant::now();
    let one = pages::serve(move || Some(storm(since).into()));
    let host = one.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let targets = config("targets.json", "[]");
    let text = format!(
        "[[source]]\nname = 'fleet'\nadapter = 'weir'\nfile_sd = [{:?}]\n",
        targets.display().to_string()
    );
    let path = config("listed.toml", &text);
    let empty = weir(&["signals", "--every", "1s"], &path);
    assert_eq!(empty.status.code(), Some(1), "{}", String::from_utf8_lossy(&empty.stdout));
    config("targets.json", &format!("[{{\"targets\": [{host:?}]}}]"));
    let full = json(&weir(&["signals", "--every", "3s", "--json"], &path));
    assert_eq!(full["signals"]["queue_depth"]["value"], 3.0);
}
