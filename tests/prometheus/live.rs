//! A real gateway and a real provider under an even load, scraped by a real Prometheus and by weir:
//! both roads show the same signals, each within one scrape interval of the other.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use weir::ingest::Access;
use weir::signal::{Mono, Snapshot};

use super::process::Process;
use super::support::{Direct, Prometheus, WINDOW, told};

/// Requests a second. Each road counts whole requests between two scrapes of its own.
const LOAD_RPS: u32 = 40;
/// How far the roads may be apart: what happens in one scrape interval of the window.
const APART: f64 = 1.0 / 6.0;

/// What is another number a moment later, however even the load is.
const MOMENTARY: &[&str] = &["inflight_actual", "inflight_gauge", "queue_depth"];

fn gateway(provider: SocketAddr, home: &Path) -> Process {
    let file = home.join("weir.toml");
    let config = format!(
        "[gateway]\nlisten = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\n\
         upstream = 'http://{provider}'\n\n\
         [[scope]]\nname = 'sim/main/all'\nrpm = 600_000\ntpm = 600_000_000\n"
    );
    std::fs::write(&file, config).expect("written");
    Process::start(&["gateway", "-c", &file.display().to_string()], home)
}

/// Sends an even load until it is dropped.
async fn load(data: SocketAddr) {
    let client = Access::default().client().expect("a client");
    let url = format!("http://{data}/v1/embeddings");
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / LOAD_RPS);
    for number in 0_u64.. {
        ticks.tick().await;
        // No two are alike, or the gateway would take one for a retry of the other.
        let body = serde_json::json!({ "model": "m", "input": format!("text {number}") });
        let request = client.post(&url).json(&body);
        tokio::spawn(async move { request.send().await.map(drop) });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_roads_show_the_same_gateway() {
    let home = tempfile::tempdir().expect("a folder");
    let provider = Process::start(&["provider", "--listen", "127.0.0.1:0"], home.path());
    let provider_address = provider.address("listening");
    let gateway = gateway(provider_address, home.path());
    let admin = gateway.address("admin");
    let jobs = [("gateway", admin, "metrics"), ("provider", provider_address, "metrics")];
    let prometheus = Prometheus::start(&jobs).await;
    let sending = tokio::spawn(load(gateway.address("data")));
    let client = Access::default().client().expect("a client");
    let mut direct = [Direct::new("weir"), Direct::new("simprov")];
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    // Prometheus looks for its targets for 5 s before its first scrape.
    while begun.elapsed() < WINDOW + Duration::from_secs(9) {
        ticks.tick().await;
        for (road, address) in direct.iter_mut().zip([admin, provider_address]) {
            let answer = client.get(format!("http://{address}/metrics")).send().await;
            let page = answer.expect("it answers").text().await.expect("text");
            road.accept(&page, Mono::from_start(begun.elapsed()));
        }
    }
    for ((job, adapter), road) in [("gateway", "weir"), ("provider", "simprov")].iter().zip(&direct)
    {
        let answers = prometheus.source(job, adapter).poll().await;
        let answers = answers.unwrap_or_else(|error| panic!("{job}: {error}"));
        let snapshot = told(answers, adapter);
        agree(job, &snapshot, &road.snapshot());
        if let Some(offered) = snapshot.number("offered_rps") {
            let sent = f64::from(LOAD_RPS);
            assert!((offered - sent).abs() <= APART * sent, "{offered} a second of {sent}");
        }
    }
    sending.abort();
}

fn agree(what: &str, prometheus: &Snapshot, direct: &Snapshot) {
    assert_eq!(prometheus.scope, direct.scope, "{what}");
    let known = |snapshot: &Snapshot| snapshot.signals.keys().cloned().collect::<Vec<_>>();
    assert_eq!(known(prometheus), known(direct), "{what}: {:?}", prometheus.absent);
    for (name, reading) in &direct.signals {
        let theirs = prometheus.get(name).expect("the same names");
        let (Some(a), Some(b)) = (theirs.value.as_number(), reading.value.as_number()) else {
            continue;
        };
        if MOMENTARY.contains(&name.as_str()) {
            continue;
        }
        // A count may differ by a request at either end; a clock by an interval and a bit.
        let slack = match name {
            name if name.ends_with("_rps") => 0.5,
            name if name.ends_with("_s") => 1.5,
            _ => 0.15,
        };
        let slack = slack + APART * b.abs();
        assert!((a - b).abs() <= slack, "{what} {name}: {a}, from pages {b}");
    }
}
