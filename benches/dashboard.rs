//! What an hour of the dashboard costs: 20 sources of 1,000 series each, 100 of each watched, taken in,
//! evaluated, diagnosed and drawn at 200 x 50 once a second on a virtual clock. Prints the share of one
//! core that each step takes and the memory that is held at the end. Nothing is fetched and no terminal
//! is written to. The argument after `--` is the number of quota scopes that the sources have.
//!
//! Time is that of the thread on its processor, so a busy machine changes little. Making the pages is
//! left out of it.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod clock;
mod memory;

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, FixedOffset, TimeDelta, Utc};
use clock::thread_time;
use memory::resident_bytes;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use weir::incident::Diagnoses;
use weir::ingest::exposition::Format;
use weir::ingest::{Adapter, Ledger, News, ONLY, Observation, SourceFacts, TIMEOUT};
use weir::runbook;
use weir::signal::Mono;
use weir::tui::app::{Model, Msg, update};
use weir::tui::{Appearance, Guidance, Update, view};

const SOURCES: usize = 20;
const SERIES: usize = 1_000;
/// Watched tenants of each source, with four counters each.
const TENANTS: u64 = 22;
const HOUR_S: u32 = 3_600;
/// A quarter of an hour into which an incident begins, so that the histories are not all flat.
const INCIDENT: std::ops::Range<u32> = 1_200..2_100;

/// Writes the page of a gateway of this scope as it is at `second`: 100 watched series, and others whose
/// numbers change too.
fn write_page(body: &mut String, scope: usize, second: u32) {
    body.clear();
    let now = u64::from(second);
    let is_bad = INCIDENT.contains(&second);
    let served = if is_bad { now * 40 } else { now * 59 };
    let mut line = |name: &str, labels: &str, value: u64| {
        let write =
            writeln!(body, "weir_{name}{{scope=\"openai/acct-{scope}/embed\"{labels}}} {value}");
        write.expect("memory is always written");
    };
    for (name, value) in [
        ("originals_total", now * 60),
        ("offered_total", now * 60),
        ("admitted_total", now * 59),
        ("completed_total", served),
        ("attempts_total", now * 61 + if is_bad { now * 30 } else { 0 }),
        ("queue_depth", now % 17),
        ("permits_limit", 64),
        ("permits_in_use", 20 + now % 23),
        ("retry_success_total", now / 3),
        ("expired_total", now / 50),
        ("cancelled_total", now / 40),
        ("originals_served_total", served),
    ] {
        line(name, "", value);
    }
    for tenant in 0..TENANTS {
        let labels = format!(",tenant=\"team-{tenant}\"");
        line("tenant_offered_total", &labels, now * (tenant + 3));
        line("tenant_tokens_total", &labels, now * (tenant + 3) * 811);
        line("tenant_failed_total", &labels, now * (tenant + 3) / 40);
        line("tenant_refused_total", &labels, now * (tenant + 3) / 30);
    }
    for other in 0..SERIES as u64 - 12 - 4 * TENANTS {
        let value = now * (other + 7) % 1_000_000_000;
        writeln!(body, "other_total{{series=\"{other}\"}} {value}")
            .expect("memory is always written");
    }
}

/// What one second took, by step.
#[derive(Default)]
struct Spent {
    reading: Duration,
    evaluating: Duration,
    diagnosing: Duration,
    drawing: Duration,
}

/// Everything that `weir watch` holds between the sockets and the terminal.
struct Dashboard {
    ledger: Ledger,
    diagnoses: Diagnoses,
    library: Arc<weir::diagnosis::Library>,
    model: Model,
    terminal: Terminal<TestBackend>,
    appearance: Appearance,
}

fn wall(second: u32) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(second.into())
}

fn timed<T>(spent: &mut Duration, step: impl FnOnce() -> T) -> T {
    let begun = thread_time();
    let made = step();
    *spent += thread_time().saturating_sub(begun);
    made
}

impl Dashboard {
    fn new() -> Self {
        let source = |number| SourceFacts {
            name: format!("g{number}"),
            url: format!("http://127.0.0.1:9000/{number}"),
            via: None,
            adapter: Adapter::weir(),
            interval: Duration::from_secs(1),
            timeout: TIMEOUT,
        };
        let library = runbook::embedded();
        let zone = FixedOffset::east_opt(0).expect("UTC");
        let mut ledger = Ledger::new((0..SOURCES).map(source));
        for index in 0..SOURCES {
            ledger.take(index, &News::Instances(vec![ONLY.to_owned()]), Mono::START);
        }
        Self {
            ledger,
            diagnoses: Diagnoses::new(Arc::clone(&library)),
            library,
            model: Model::new("watch", "bench", zone, wall(0)),
            terminal: Terminal::new(TestBackend::new(200, 50)).expect("a terminal in memory"),
            appearance: Appearance::from_env(|_| None),
        }
    }

    /// One round: every source says its page, and the screen shows what came of it.
    fn round(&mut self, pages: &[News], second: u32, spent: &mut Spent) {
        let at = Mono::from_secs_f64(second.into());
        timed(&mut spent.reading, || {
            for (index, page) in pages.iter().enumerate() {
                self.ledger.take(index, page, at);
            }
        });
        let observation: Arc<Observation> =
            timed(&mut spent.evaluating, || Arc::new(self.ledger.observation(at, wall(second))));
        let fresh = timed(&mut spent.diagnosing, || {
            let (verdicts, changes) = self.diagnoses.step(&observation);
            let facts = self.diagnoses.facts();
            let guide = Some(Arc::new(Guidance { library: Arc::clone(&self.library), facts }));
            Update { changes, guide, ..Update::new(observation, verdicts) }
        });
        timed(&mut spent.drawing, || {
            black_box(update(&mut self.model, Msg::Updated(Arc::new(fresh)), at));
            black_box(update(&mut self.model, Msg::Tick(wall(second)), at));
            let draw = |frame: &mut ratatui::Frame<'_>| {
                view::draw(frame, &self.model, &self.appearance);
            };
            self.terminal.draw(draw).expect("memory is always drawn to");
        });
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a bench")]
fn mb(bytes: Option<usize>) -> f64 {
    bytes.unwrap_or_default() as f64 / 1e6
}

fn main() {
    // `cargo test --benches` passes `--test`, which is not for a program that takes minutes.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let scopes = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1);
    let mut dashboard = Dashboard::new();
    let begun = mb(resident_bytes());
    let mut spent = Spent::default();
    let mut body = String::new();
    for second in 1..=HOUR_S {
        let page = |source: usize, body: &mut String| {
            write_page(body, source % scopes, second);
            let outcome = Ok((body.clone().into_bytes(), Format::Text));
            News::Polled { instance: ONLY.into(), took: Duration::from_millis(2), outcome }
        };
        let pages: Vec<News> = (0..SOURCES).map(|source| page(source, &mut body)).collect();
        dashboard.round(&pages, second, &mut spent);
        drop(pages);
        if second % 900 == 0 {
            println!("after {second:>4} s: {:.1} MB resident", mb(resident_bytes()));
        }
    }
    let watched = SOURCES as u64 * (12 + 4 * TENANTS);
    println!("{SOURCES} sources x {SERIES} series, {watched} watched, {scopes} scopes, an hour:");
    println!("  resident before the first page: {begun:.1} MB");
    let Spent { reading, evaluating, diagnosing, drawing } = spent;
    for (step, took) in [
        ("reading", reading),
        ("evaluating", evaluating),
        ("diagnosing", diagnosing),
        ("drawing", drawing),
    ] {
        println!("  {step}: {:.3} % of one core", took.as_secs_f64() / f64::from(HOUR_S) * 100.0);
    }
}
