//! What a fleet costs: 200 endpoints of 1,000 series, scraped every second for an hour on a virtual
//! clock, 50 series of each watched. Prints the share of one core that reading and rates take, the
//! memory that is held at the end, and how the cost grows with the number of series.
//!
//! Fetching is not in it. One scrape a second of 200 endpoints is 200 requests of 110 kB: that costs
//! what the network and, where wanted, decompression cost. Making the pages is left out of the time.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod support;

use std::time::{Duration, Instant};

use support::Page;
use weir::ingest::Intake;
use weir::ingest::exposition::Format;
use weir::signal::{Mono, Window};

const ENDPOINTS: usize = 200;
const SERIES: usize = 1000;
const WATCHED: usize = 50;
const HOUR_S: u32 = 3600;
/// Scrapes that the slope is measured over, after the first.
const SLOPE_SCRAPES: u32 = 10;

/// A series of the kind that proxies write, 100 bytes with its value. The watched ones stand apart.
fn name(index: usize) -> String {
    let metric = if index % (SERIES / WATCHED) == 9 { "watched" } else { "upstream" };
    format!(
        "gateway_{metric}_rq_total{{cluster=\"openai-{}\",model=\"embed-3-large\",status=\"{}\",\
         shard=\"{index:05}\"}}",
        index % 7,
        [200, 429, 503, 500][index % 4],
    )
}

struct Endpoint {
    page: Page,
    intake: Intake,
}

impl Endpoint {
    fn new(seed: usize) -> Self {
        Self {
            page: Page::new(SERIES, seed as u64, name),
            intake: Intake::new(Duration::from_secs(10), ["gateway_watched_rq_total".to_owned()]),
        }
    }

    /// Scrapes once; the time that reading and rates took, and the sum of the rates.
    fn scrape(&mut self, body: &mut Vec<u8>, at: Mono) -> (Duration, f64) {
        self.page.write(body);
        let begun = Instant::now();
        self.intake.accept(body, Format::Text, at).expect("below the limit");
        let book = self.intake.book();
        let rate = |window: Window| {
            let gained: f64 =
                book.increases("gateway_watched_rq_total", window).map(|(_, gained)| gained).sum();
            gained / window.seconds()
        };
        let rates = book.window().map_or(0.0, rate);
        (begun.elapsed(), rates)
    }
}

fn at(second: u32) -> Mono {
    Mono::from_secs_f64(f64::from(second))
}

/// Resident memory of this process in bytes, where the system says it.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[expect(clippy::cast_precision_loss, reason = "bytes and counts of a bench")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

fn mb(bytes: usize) -> f64 {
    as_f64(bytes) / 1e6
}

fn main() {
    // `cargo bench NAME` passes filters and `cargo test --benches` passes `--test`: neither is for
    // a program that takes minutes.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    slope();
    hour();
}

fn slope() {
    println!("series      ns per series and scrape (reading, remembering, rates)");
    for endpoints in [1, 10, 100, 1000] {
        let mut fleet: Vec<_> = (0..endpoints).map(Endpoint::new).collect();
        let mut body = Vec::new();
        let mut spent = Duration::ZERO;
        for second in 0..=SLOPE_SCRAPES {
            for endpoint in &mut fleet {
                let (took, _) = endpoint.scrape(&mut body, at(second));
                spent += if second == 0 { Duration::ZERO } else { took };
            }
        }
        let scraped = as_f64(endpoints * SERIES) * f64::from(SLOPE_SCRAPES);
        println!("{:>9}   {:.1}", endpoints * SERIES, spent.as_secs_f64() * 1e9 / scraped);
    }
}

fn hour() {
    let mut fleet: Vec<_> = (0..ENDPOINTS).map(Endpoint::new).collect();
    let mut body = Vec::new();
    let before = resident_bytes();
    let (mut spent, mut rates) = (Duration::ZERO, 0.0);
    for second in 1..=HOUR_S {
        for endpoint in &mut fleet {
            let (took, rate) = endpoint.scrape(&mut body, at(second));
            spent += took;
            rates = rate;
        }
    }
    let share = spent.as_secs_f64() / f64::from(HOUR_S);
    println!("{ENDPOINTS} endpoints x {SERIES} series at 1 Hz, {WATCHED} watched each, an hour:");
    println!("  reading and rates: {:.2} % of one core", share * 100.0);
    println!("  one page: {} bytes; rates of the last endpoint: {rates:.1}/s", body.len());
    let held: usize = fleet.iter().map(|endpoint| endpoint.intake.held_bytes()).sum();
    println!("  held to read and remember: {:.1} MB", mb(held));
    if let (Some(after), Some(before)) = (resident_bytes(), before) {
        println!("  resident: {:.1} MB, of which {:.1} MB before", mb(after), mb(before));
    }
}
