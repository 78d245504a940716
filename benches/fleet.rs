//! What a fleet costs: 200 endpoints of 1,000 series, scraped every second for an hour on a virtual
//! clock, 50 series of each watched. Prints the share of one core that reading and rates take, the
//! memory that is held at the end, what fetching the same pages costs beside it, and how the cost
//! grows with the number of series.
//!
//! Time is that of the thread on its processor, so a busy machine changes little. Making the pages is
//! left out of it.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod clock;
mod fetching;
mod memory;
mod support;

use std::rc::Rc;
use std::time::Duration;

use clock::thread_time;
use memory::resident_bytes;
use support::Page;
use weir::ingest::Intake;
use weir::ingest::exposition::Format;
use weir::signal::{Mono, Window};

const ENDPOINTS: usize = 200;
const SERIES: usize = 1000;
const WATCHED: usize = 50;
const HOUR_S: u32 = 3600;
/// Series in the rounds of the slope, and for how many scrapes after the first.
const SLOPE: [(usize, u32); 4] = [(1_000, 2000), (10_000, 200), (100_000, 40), (1_000_000, 20)];

/// Series of the kind that proxies write, 100 bytes with their values. The watched ones stand apart.
fn names(series: usize) -> Rc<[String]> {
    let name = |index: usize| {
        let metric = if index % (SERIES / WATCHED) == 9 { "watched" } else { "upstream" };
        format!(
            "gateway_{metric}_rq_total{{cluster=\"openai-{}\",model=\"embed-3-large\",\
             status=\"{}\",shard=\"{index:05}\"}}",
            index % 7,
            [200, 429, 503, 500][index % 4],
        )
    };
    (0..series).map(name).collect()
}

struct Endpoint {
    page: Page,
    intake: Intake,
}

impl Endpoint {
    fn new(names: &Rc<[String]>, seed: u64) -> Self {
        Self {
            page: Page::new(Rc::clone(names), seed),
            intake: Intake::new(Duration::from_secs(10), ["gateway_watched_rq_total".to_owned()]),
        }
    }

    /// Scrapes once; the time that reading and rates took, and the sum of the rates.
    fn scrape(&mut self, body: &mut Vec<u8>, at: Mono) -> (Duration, f64) {
        self.page.write(body);
        let begun = thread_time();
        self.intake.accept(body, Format::Text, at).expect("below the limit");
        let book = self.intake.book();
        let rate = |window: Window| {
            let gained: f64 =
                book.increases("gateway_watched_rq_total", window).map(|(_, gained)| gained).sum();
            gained / window.seconds()
        };
        let rates = book.window().map_or(0.0, rate);
        (thread_time().saturating_sub(begun), rates)
    }
}

fn at(second: u32) -> Mono {
    Mono::from_secs_f64(f64::from(second))
}

#[expect(clippy::cast_precision_loss, reason = "bytes and counts of a bench")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

fn mb(bytes: usize) -> f64 {
    as_f64(bytes) / 1e6
}

fn main() {
    // `cargo test --benches` passes `--test`, which is not for a program that takes minutes.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    // First, because memory that was given back may still be resident.
    hour();
    fetching::print(&names(SERIES), ENDPOINTS);
    slope();
}

fn hour() {
    let names = names(SERIES);
    let mut fleet: Vec<_> = (0..ENDPOINTS as u64).map(|seed| Endpoint::new(&names, seed)).collect();
    let mut body = Vec::new();
    let (mut spent, mut rates) = (Duration::ZERO, 0.0);
    let mut resident_most = 0;
    for second in 1..=HOUR_S {
        for endpoint in &mut fleet {
            let (took, rate) = endpoint.scrape(&mut body, at(second));
            spent += took;
            rates = rate;
        }
        resident_most = resident_most.max(resident_bytes().unwrap_or_default());
    }
    let share = spent.as_secs_f64() / f64::from(HOUR_S);
    println!("{ENDPOINTS} endpoints x {SERIES} series at 1 Hz, {WATCHED} watched each, an hour:");
    println!("  reading and rates: {:.2} % of one core", share * 100.0);
    println!("  one page: {} bytes; rates of the last endpoint: {rates:.1}/s", body.len());
    let held: usize = fleet.iter().map(|endpoint| endpoint.intake.held_bytes()).sum();
    println!("  held to read and remember: {:.1} MB", mb(held));
    if let Some(resident) = resident_bytes() {
        let most = mb(resident_most);
        println!("  resident, all of the process: {:.1} MB, at most {most:.1} MB", mb(resident));
    }
}

fn slope() {
    let mut costs = Vec::new();
    println!("series      ns per series and scrape (reading, remembering, rates)");
    for (series, scrapes) in SLOPE {
        let names = names(SERIES);
        let mut fleet: Vec<_> =
            (0..(series / SERIES) as u64).map(|seed| Endpoint::new(&names, seed)).collect();
        let mut body = Vec::new();
        let mut spent = Duration::ZERO;
        for second in 0..=scrapes {
            for endpoint in &mut fleet {
                let (took, _) = endpoint.scrape(&mut body, at(second));
                spent += if second == 0 { Duration::ZERO } else { took };
            }
        }
        let cost = spent.as_secs_f64() * 1e9 / as_f64(series) / f64::from(scrapes);
        println!("{series:>9}   {cost:.1}");
        costs.push((as_f64(series).ln(), (cost * as_f64(series)).ln()));
    }
    println!("slope of log cost over log series: {:.3} (1 is linear)", slope_of(&costs));
}

/// The slope of the straight line that fits best.
fn slope_of(points: &[(f64, f64)]) -> f64 {
    let count = as_f64(points.len());
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    covariance / variance
}
