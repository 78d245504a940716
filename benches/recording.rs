//! What a recording costs: an hour at 1 Hz with 20,000 series of which 10% change a second. Prints its
//! size, the time that recording takes, and how long it takes to open it and to jump to a second, on its
//! processor: neighbours do not count, though they slow it.
//!
//! Twice: with 1,000 of the series being those that the adapter reads, as on a gateway's page among
//! much else, and with all of them.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod clock;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use clock::thread_time;
use rand::seq::index::sample;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use weir::incident::recording::{Header, Recorder, Replay, SourceLine};
use weir::ingest::exposition::Format;
use weir::ingest::{Adapter, Ledger, News, ONLY, SourceFacts};
use weir::runbook;
use weir::signal::Mono;

const SERIES: usize = 20_000;
const CHANGED: usize = SERIES / 10;
const HOUR_S: u32 = 3_600;
/// Moments that are jumped to.
const JUMPS: u32 = 60;

/// A page whose values are written anew where they change: 60% count, 20% add up seconds, 20% go up and
/// down.
struct Page {
    names: Vec<String>,
    values: Vec<f64>,
    rng: Pcg64Mcg,
}

impl Page {
    /// The first `read` series are those that the adapter of weir's gateway reads.
    fn new(read: usize) -> Self {
        let name = |index: usize| match index {
            index if index < read => format!(
                "weir_tokens_actual_total{{scope=\"openai/acct-1/embed\",tenant=\"tenant-{index:05}\"}}"
            ),
            index => format!(
                "gateway_upstream_rq_total{{cluster=\"openai-{}\",model=\"embed-3-large\",\
                 status=\"{}\",shard=\"{index:05}\"}}",
                index % 7,
                [200, 429, 503, 500][index % 4],
            ),
        };
        let values = vec![1_000.0; SERIES];
        Self { names: (0..SERIES).map(name).collect(), values, rng: Pcg64Mcg::seed_from_u64(1) }
    }

    fn move_on(&mut self) {
        for index in sample(&mut self.rng, SERIES, CHANGED) {
            let value = &mut self.values[index];
            match index % 5 {
                0..3 => *value += f64::from(self.rng.random_range(1..200_u32)),
                3 => *value += self.rng.random::<f64>() * 3.0,
                _ => *value = f64::from(self.rng.random_range(0..50_u32)),
            }
        }
    }

    fn body(&self) -> Vec<u8> {
        use std::io::Write as _;
        let mut body = b"process_start_time_seconds 5\n".to_vec();
        for (name, value) in self.names.iter().zip(&self.values) {
            writeln!(body, "{name} {value}").expect("memory is always written");
        }
        body
    }
}

fn at(second: u32) -> Mono {
    Mono::from_secs_f64(f64::from(second))
}

fn wall(second: u32) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + Duration::from_secs(u64::from(second))
}

fn source() -> SourceFacts {
    SourceFacts {
        name: "gateway".to_owned(),
        url: "http://gateway:9000/metrics".to_owned(),
        via: None,
        adapter: Adapter::weir(),
        interval: Duration::from_secs(1),
        timeout: Duration::from_millis(800),
    }
}

/// Records the hour; how long the recorder itself was at work.
fn record(path: &Path, read: usize) -> Duration {
    let header = Header { sources: vec![SourceLine::new(&source(), None)], ..Header::default() };
    let mut recorder = Recorder::create(path, header).expect("a new file");
    let mut ledger = Ledger::new([source()]);
    let mut page = Page::new(read);
    let instances = News::Instances(vec![ONLY.to_owned()]);
    recorder.hear(0, &instances, Mono::START);
    ledger.take(0, &instances, Mono::START);
    let mut spent = Duration::ZERO;
    for second in 1..=HOUR_S {
        page.move_on();
        let news = News::Polled {
            instance: Arc::from(ONLY),
            took: Duration::from_millis(20),
            outcome: Ok((page.body(), Format::Text)),
        };
        ledger.take(0, &news, at(second));
        let scopes = ledger.observation(at(second), wall(second)).scopes;
        let begun = thread_time();
        recorder.hear(0, &news, at(second));
        recorder.look(&scopes, at(second), wall(second));
        spent += thread_time().saturating_sub(begun);
    }
    recorder.finish().expect("the disk is there");
    spent
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a bench")]
fn print(read: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hour.weir");
    let spent = record(&path, read);
    let bytes = std::fs::metadata(&path).expect("a file").len();
    println!("{SERIES} series, {CHANGED} change a second, {read} are read, an hour at 1 Hz:");
    println!(
        "  {:.1} MB; recording takes {:.2} % of one core",
        bytes as f64 / 1e6,
        100.0 * spent.as_secs_f64() / f64::from(HOUR_S)
    );
    let library = runbook::embedded();
    let begun = Instant::now();
    let mut replay = Replay::open(&path, Arc::clone(&library)).expect("whole");
    println!("  opened in {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    let mut rng = Pcg64Mcg::seed_from_u64(2);
    let mut took: Vec<Duration> = (0..JUMPS)
        .map(|_| {
            let second = at(rng.random_range(1..=HOUR_S));
            let begun = thread_time();
            let moment = replay.seek(second).expect("within").moment;
            assert!(!moment.verdicts.is_empty());
            thread_time().saturating_sub(begun)
        })
        .collect();
    let begun = thread_time();
    let mut fresh = Replay::open(&path, library).expect("whole");
    fresh.seek(at(HOUR_S)).expect("the last");
    let first = thread_time().saturating_sub(begun);
    took.sort();
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    println!(
        "  {JUMPS} jumps: median {:.0} ms, longest {:.0} ms; to open it and jump to the end {:.0} ms",
        ms(took[took.len() / 2]),
        ms(took[took.len() - 1]),
        ms(first),
    );
    let begun = Instant::now();
    let mut looks = 0_u32;
    replay.seek(at(1)).expect("the first");
    while looks < 600 && replay.step().expect("whole").is_some() {
        looks += 1;
    }
    println!("  played at {:.0} times its speed", f64::from(looks) / begun.elapsed().as_secs_f64());
}

fn main() {
    // `cargo test --benches` passes `--test`, which is not for a program that takes minutes.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    print(SERIES / 20);
    print(SERIES);
}
