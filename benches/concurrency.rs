//! Which limiter of open calls is the better one: each against the simulated provider on a virtual
//! clock, with the same arrivals. Prints a table; the same seed prints the same table.
//!
//! `cargo bench --bench concurrency`
//!
//! The columns: goodput in answers per second, 95th percentiles of the time from arrival to answer and
//! of one call, refusals per thousand attempts, requests that waited too long, the second from which on
//! the answers keep up, and the mean limit of the last half minute. Where the provider's cap drops, the
//! time until fewer than 5 % of the attempts are refused stands in place of the start.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use weir::admission::{Aimd, Crowding, Gradient, Limiter};
use weir::signal::{Mono, Tokens};
use weir::sim::config::ProviderConfig;
use weir::sim::provider::{Call, CallId, CallKind, Outcome, Provider};

const SEED: u64 = 9;
const SECONDS: usize = 300;
/// The configured most of permits.
const CEILING: u32 = 64;
/// Whoever waited for so long is dropped, as by `queue.max_age_s`.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest pause after a refusal; the pause is drawn from zero up to it.
const BACKOFF_S: f64 = 0.5;

struct Scenario {
    name: &'static str,
    /// Originals per second.
    rate: f64,
    provider: &'static str,
    /// Second in which the provider changes for the worse, if it does.
    drop_s: usize,
}

/// No meter binds: concurrency alone is looked at.
const METERS: &str =
    "requests = { per_minute = 60_000_000 }\ntokens = { per_minute = 60_000_000_000 }\n";

const SCENARIOS: [Scenario; 6] = [
    Scenario { name: "default drill", rate: 66.7, provider: "", drop_s: 0 },
    Scenario {
        name: "answers of half a second",
        rate: 66.7,
        provider: "latency = { base_ms = 400, spread_ms = 200, per_open_call_ms = 0.5 }",
        drop_s: 0,
    },
    Scenario {
        name: "answers that differ by questions",
        rate: 66.7,
        provider: "latency = { base_ms = 50, spread_ms = 1000, per_open_call_ms = 0.5 }",
        drop_s: 0,
    },
    Scenario {
        name: "cap of 32, twice the work",
        rate: 200.0,
        provider: "concurrency_cap = 32\n\
                   latency = { base_ms = 250, spread_ms = 100, per_open_call_ms = 0.5 }",
        drop_s: 0,
    },
    Scenario {
        name: "cap drops from 32 to 8",
        rate: 200.0,
        provider: "concurrency_cap = 32\n\
                   latency = { base_ms = 250, spread_ms = 100, per_open_call_ms = 0.5 }\n\
                   steps = [{ at_s = 100, concurrency_cap = 8 }]",
        drop_s: 100,
    },
    Scenario {
        name: "own server, slower by each call",
        rate: 80.0,
        provider: "latency = { base_ms = 60, spread_ms = 20, per_open_call_ms = 18 }",
        drop_s: 0,
    },
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    Back { arrived: Mono },
    End { call: CallId, arrived: Mono, started: Mono, capped: bool },
}

#[derive(Clone, Copy, Default)]
struct Second {
    good: u32,
    attempts: u32,
    refused: u32,
    limit: u32,
}

struct Study {
    limiter: Limiter,
    provider: Provider,
    random: Pcg64,
    rate: f64,
    queue: VecDeque<Mono>,
    in_flight: u32,
    events: BinaryHeap<Reverse<(Mono, u64, Event)>>,
    pushed: u64,
    log: Vec<Second>,
    expired: u32,
    waited: Vec<Duration>,
    served: Vec<Duration>,
}

impl Study {
    fn new(limiter: Limiter, scenario: &Scenario) -> Self {
        let config: ProviderConfig =
            toml::from_str(&format!("{METERS}{}", scenario.provider)).expect("a provider");
        config.check().expect("a provider within its bounds");
        Self {
            limiter,
            provider: Provider::new(&config, SEED, Mono::START),
            random: Pcg64::seed_from_u64(SEED),
            rate: scenario.rate,
            queue: VecDeque::new(),
            in_flight: 0,
            events: BinaryHeap::new(),
            pushed: 0,
            log: vec![Second::default(); SECONDS],
            expired: 0,
            waited: Vec::new(),
            served: Vec::new(),
        }
    }

    fn push(&mut self, at: Mono, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((at, self.pushed, event)));
    }

    fn run(mut self) -> Self {
        self.push(Mono::START, Event::Arrival);
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if second(now) >= SECONDS {
                break;
            }
            match event {
                Event::Arrival => {
                    let gap_s = -(1.0 - self.random.random::<f64>()).ln() / self.rate;
                    self.push(now + Duration::from_secs_f64(gap_s), Event::Arrival);
                    self.queue.push_back(now);
                }
                Event::Back { arrived } => self.queue.push_front(arrived),
                Event::End { call, arrived, started, capped } => {
                    self.provider.finish(call);
                    self.end(arrived, started, capped, now);
                }
            }
            self.pump(now);
            self.log[second(now)].limit = self.limiter.limit();
        }
        self
    }

    fn end(&mut self, arrived: Mono, started: Mono, capped: bool, now: Mono) {
        let latency = now.saturating_since(started);
        let crowding = if capped { Crowding::Capped } else { Crowding::Clean };
        self.limiter.ended(latency, crowding, self.in_flight, now);
        self.in_flight -= 1;
        if capped {
            self.log[second(now)].refused += 1;
            let pause_s = BACKOFF_S * self.random.random::<f64>();
            self.push(now + Duration::from_secs_f64(pause_s), Event::Back { arrived });
        } else {
            self.log[second(now)].good += 1;
            self.waited.push(now.saturating_since(arrived));
            self.served.push(latency);
        }
    }

    fn pump(&mut self, now: Mono) {
        while self.in_flight < self.limiter.limit() {
            let Some(arrived) = self.queue.pop_front() else { break };
            if now.saturating_since(arrived) > PATIENCE {
                self.expired += 1;
                continue;
            }
            let call = Call::new(0, Tokens(300), CallKind::ChatCompletions);
            let reply = self.provider.handle_request(&call, now);
            let capped = matches!(reply.outcome, Outcome::ConcurrencyCap { .. });
            self.in_flight += 1;
            self.log[second(now)].attempts += 1;
            let end = Event::End { call: reply.call, arrived, started: now, capped };
            self.push(now + reply.latency.max(Duration::from_millis(20)), end);
        }
    }

    /// From which second on the answers keep up with the end of the run, over five seconds.
    fn keeps_up_s(&self) -> Option<usize> {
        let steady = mean(&self.log[SECONDS - 60..], |second| second.good);
        self.log.windows(5).position(|five| mean(five, |second| second.good) >= 0.95 * steady)
    }

    /// Seconds after `drop_s` until five of them see fewer than 5 % refused.
    fn settles_s(&self, drop_s: usize) -> Option<usize> {
        self.log[drop_s..].windows(5).position(|five| {
            mean(five, |second| second.refused) < 0.05 * mean(five, |second| second.attempts)
        })
    }

    fn print(&mut self, name: &str, drop_s: usize) {
        let from = if drop_s == 0 { 0 } else { drop_s };
        let stretch = &self.log[from..];
        let refused = mean(stretch, |second| second.refused);
        let attempts = mean(stretch, |second| second.attempts);
        let reached = if drop_s == 0 { self.keeps_up_s() } else { self.settles_s(drop_s) };
        println!(
            "  {name:9} {:8.2} {:9.0} {:9.0} {:9.1} {:8} {:>8} {:6.1}",
            mean(stretch, |second| second.good),
            p95_ms(&mut self.waited),
            p95_ms(&mut self.served),
            refused / attempts * 1_000.0,
            self.expired,
            reached.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds} s")),
            mean(&self.log[SECONDS - 30..], |second| second.limit),
        );
    }
}

fn second(now: Mono) -> usize {
    usize::try_from(now.since_start().as_secs()).unwrap_or(usize::MAX)
}

fn mean(log: &[Second], value: impl Fn(&Second) -> u32) -> f64 {
    log.iter().map(|second| f64::from(value(second))).sum::<f64>()
        / f64::from(u32::try_from(log.len()).expect("a run of minutes"))
}

fn p95_ms(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let place = times.len() * 95 / 100;
    times.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
}

fn main() {
    for scenario in &SCENARIOS {
        println!("\n{} ({} originals/s)", scenario.name, scenario.rate);
        println!("  limiter   answers/s    p95 ms  call p95  refused‰  expired  reached  limit");
        for (name, limiter) in [
            ("fixed 64", Limiter::Fixed(CEILING)),
            ("aimd", Limiter::Aimd(Aimd::new(CEILING))),
            ("gradient", Limiter::Gradient(Gradient::new(CEILING))),
        ] {
            Study::new(limiter, scenario).run().print(name, scenario.drop_s);
        }
    }
}
