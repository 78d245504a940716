//! What one decision of the gate costs with 10,000 quota scopes and 100,000 tenants, and what a tenant
//! costs that has been served and is idle.
//!
//! Scopes and tenants are hit in two ways: each as often as any other, so that nothing is ever near the
//! processor, and as traffic is in fact, few of them often and most of them seldom (Zipf's law with
//! exponent 1). Criterion gives means of batches; the table before it gives the quantiles of single
//! decisions, each with its own two readings of the clock, whose cost is taken off.
//!
//! A decision is a request offered and its effects taken: let through at once, or refused at once. What
//! follows one that was let through (sent, answered, read to its end) is measured apart. Memory is
//! resident memory, since a counting allocator needs code that this package forbids; it is measured
//! first, because what was given back may stay resident.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod memory;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use memory::resident_bytes;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use rand_pcg::Pcg64Mcg;
use weir::admission::{
    AttemptId, Demand, Effect, Gate, Head, Lane, Offer, Permits, Policy, RequestId, ScopeConfig,
    ScopeId, Settings,
};
use weir::dialect::Class;
use weir::signal::Mono;

const SCOPES: usize = 10_000;
const TENANTS: usize = 100_000;
/// Decisions whose times are kept for the quantiles.
const TIMED: u64 = 200_000;
/// Decisions between two readings of the clock, so that reading it costs little.
const BATCH: u32 = 64;
/// Virtual time between two decisions: a thousand a second.
const STEP: Duration = Duration::from_millis(1);
const TOKENS: Demand = Demand { input: 300.0, output: 0.0 };
/// Quota per minute that no bench uses up, and one that is never enough.
const AMPLE: f64 = 1e9;
const SCARCE: f64 = 1e-6;
/// Virtual time between two requests while memory is measured.
const SLOW_STEP: Duration = Duration::from_millis(5);
/// Idle for longer than anything is remembered.
const LONG: Duration = Duration::from_mins(10);

/// A gate, and requests for it at random.
struct Bench {
    gate: Gate,
    tenants: Vec<Arc<str>>,
    /// Which of so many is asked for next.
    pick: fn(usize, &mut Pcg64Mcg) -> usize,
    random: Pcg64Mcg,
    now: Mono,
}

impl Bench {
    fn new(per_minute: f64, settings: Settings) -> Self {
        let scope = |index| ScopeConfig {
            rpm: Some(per_minute),
            tpm: Some(per_minute),
            policy: Policy { permits: Permits::Fixed, ..Policy::default() },
            ..ScopeConfig::named(format!("provider/account/model-{index}")).with_buckets()
        };
        let tenants = (0..TENANTS).map(|tenant| Arc::from(format!("tenant-{tenant:06}"))).collect();
        // Budgets begin empty; a minute later they have what they may have.
        Self {
            gate: Gate::new((0..SCOPES).map(scope).collect(), settings, 1, Mono::START),
            tenants,
            pick: evenly,
            random: Pcg64Mcg::seed_from_u64(1),
            now: Mono::from_start(Duration::from_mins(1)),
        }
    }

    fn admitting() -> Self {
        Self::new(AMPLE, Settings::default())
    }

    fn refusing() -> Self {
        Self::new(SCARCE, Settings { queue_max_age_s: 0.0, ..Settings::default() })
    }

    fn offer(&mut self) -> Offer {
        let tenant = (self.pick)(TENANTS, &mut self.random);
        self.offer_of(tenant)
    }

    fn offer_of(&mut self, tenant: usize) -> Offer {
        Offer {
            scope: ScopeId((self.pick)(SCOPES, &mut self.random)),
            identity: self.random.random(),
            lane: Lane::Interactive,
            backfill: false,
            tenant: Arc::clone(&self.tenants[tenant]),
            weight: 1.0,
            guess: TOKENS,
            repeatable: true,
            deferrable: false,
            deadline: None,
            retry_mark: 0,
        }
    }

    /// One decision, and whether it was to let the request through.
    fn decide(&mut self, offer: &Offer) -> Option<AttemptId> {
        self.gate.handle_request(offer, self.now);
        let mut admitted = None;
        while let Some(effect) = self.gate.poll_effect() {
            if let Effect::Send { attempt } = effect {
                admitted = Some(attempt);
            }
        }
        admitted
    }

    /// The answer to an attempt, to its end.
    fn answer(&mut self, attempt: AttemptId, head: &Head) {
        self.gate.handle_sent(attempt, self.now);
        self.gate.handle_head(attempt, head, self.now);
        while let Some(effect) = self.gate.poll_effect() {
            black_box(effect);
        }
        let request: RequestId = attempt.request;
        self.gate.handle_end(request, Some(TOKENS), self.now);
    }

    /// Decides and answers.
    fn serve(&mut self, offer: &Offer) {
        self.now = self.now + STEP;
        if let Some(attempt) = self.decide(offer) {
            self.answer(attempt, &good());
        }
    }

    /// Time that `rounds` decisions took, and the time that their ends took.
    fn run(&mut self, rounds: u64, admits: bool) -> (Duration, Duration) {
        let (mut deciding, mut ending) = (Duration::ZERO, Duration::ZERO);
        self.batches(rounds, |bench, offers| {
            let mut attempts = Vec::with_capacity(offers.len());
            let begun = Instant::now();
            for offer in offers {
                bench.now = bench.now + STEP;
                attempts.extend(bench.decide(offer));
            }
            deciding += begun.elapsed();
            let expected = if admits { offers.len() } else { 0 };
            assert_eq!(attempts.len(), expected, "every decision is the same");
            let decided = Instant::now();
            for attempt in attempts {
                bench.answer(attempt, &good());
            }
            ending += decided.elapsed();
        });
        (deciding, ending)
    }

    /// The time that each of `rounds` decisions took, shortest first.
    fn times(&mut self, rounds: u64) -> Vec<Duration> {
        let mut times = Vec::new();
        self.batches(rounds, |bench, offers| {
            let mut attempts = Vec::with_capacity(offers.len());
            for offer in offers {
                bench.now = bench.now + STEP;
                let begun = Instant::now();
                let attempt = bench.decide(offer);
                times.push(begun.elapsed());
                attempts.extend(attempt);
            }
            for attempt in attempts {
                bench.answer(attempt, &good());
            }
        });
        times.sort_unstable();
        times
    }

    /// Batches of offers, and between them what is due to be forgotten is, as the shell would have it.
    fn batches(&mut self, rounds: u64, mut each: impl FnMut(&mut Self, &[Offer])) {
        let mut left = rounds;
        while left > 0 {
            let batch = left.min(u64::from(BATCH));
            left -= batch;
            while self.gate.poll_timeout().is_some_and(|at| at <= self.now) {
                self.gate.handle_timeout(self.now);
            }
            let offers: Vec<Offer> = (0..batch).map(|_| self.offer()).collect();
            each(self, &offers);
        }
    }
}

/// Each as often as any other.
fn evenly(of: usize, random: &mut Pcg64Mcg) -> usize {
    random.random_range(0..of)
}

/// The first often, the last seldom.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "numbers of scopes and tenants"
)]
fn by_zipf(of: usize, random: &mut Pcg64Mcg) -> usize {
    let law = Zipf::new(of as f64, 1.0).expect("an exponent of one has a distribution");
    (law.sample(random) as usize).clamp(1, of) - 1
}

/// What it costs to read the clock twice.
fn clock() -> Duration {
    let mut times: Vec<_> = (0..10_000).map(|_| Instant::now().elapsed()).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Prints the quantiles of single decisions.
fn quantiles(benches: [(&str, &mut Bench); 2]) {
    println!("one decision, ns:           p50    p90    p99");
    let clock = clock();
    for (what, bench) in benches {
        for (how, pick) in [("evenly", evenly as fn(usize, &mut _) -> _), ("by Zipf", by_zipf)] {
            bench.pick = pick;
            // What stands from before is another's.
            bench.times(TIMED);
            let times = bench.times(TIMED);
            let at =
                |share: usize| times[times.len() * share / 100].saturating_sub(clock).as_nanos();
            println!("  {what:<7} {how:<12} {:>8} {:>6} {:>6}", at(50), at(90), at(99));
        }
    }
}

fn good() -> Head {
    Head {
        status: 200,
        class: Class::Success,
        hint: None,
        code: None,
        meter: None,
        forbids_retry: false,
        meters: Vec::new(),
    }
}

fn deciding(criterion: &mut Criterion) {
    // `cargo test --benches` only wants to see that it runs.
    if !std::env::args().any(|argument| argument == "--test") {
        memory();
    }
    let (mut admitting, mut refusing) = (Bench::admitting(), Bench::refusing());
    if !std::env::args().any(|argument| argument == "--test") {
        quantiles([("admit", &mut admitting), ("refuse", &mut refusing)]);
    }
    let mut group = criterion.benchmark_group("decision");
    for (how, pick) in [("evenly", evenly as fn(usize, &mut _) -> _), ("by Zipf", by_zipf)] {
        (admitting.pick, refusing.pick) = (pick, pick);
        group.bench_function(format!("admit, {how}"), |bencher| {
            bencher.iter_custom(|rounds| admitting.run(rounds, true).0);
        });
        group.bench_function(format!("end of an admitted one, {how}"), |bencher| {
            bencher.iter_custom(|rounds| admitting.run(rounds, true).1);
        });
        group.bench_function(format!("refuse, {how}"), |bencher| {
            bencher.iter_custom(|rounds| refusing.run(rounds, false).0);
        });
    }
    group.finish();
}

/// Prints what a tenant costs that has been served and is idle, beside what is remembered of requests,
/// and whether what is forgotten makes room for others.
fn memory() {
    let mut bench = Bench::admitting();
    // Slow enough for originals to be forgotten on the way, and quick enough for no tenant to be.
    let round = |bench: &mut Bench, tenant: &dyn Fn(usize) -> Arc<str>| {
        for number in 0..TENANTS {
            bench.now = bench.now + SLOW_STEP;
            while let Some(at) = bench.gate.poll_timeout().filter(|at| *at <= bench.now) {
                bench.gate.handle_timeout(at);
            }
            let offer = Offer { tenant: tenant(number), ..bench.offer() };
            bench.serve(&offer);
        }
        resident_bytes()
    };
    round(&mut bench, &|_| Arc::from("one"));
    let before = round(&mut bench, &|_| Arc::from("one"));
    let after = round(&mut bench, &|number| Arc::from(format!("tenant-{number:06}")));
    bench.now = bench.now + LONG;
    let others = round(&mut bench, &|number| Arc::from(format!("others-{number:06}")));
    let per_tenant = |from: Option<usize>, to: Option<usize>| {
        from.zip(to).map_or_else(
            || "unknown".to_owned(),
            |(from, to)| format!("{} bytes", to.saturating_sub(from) / TENANTS),
        )
    };
    println!("{SCOPES} scopes, {TENANTS} tenants, each served once:");
    println!("  per idle tenant: {}", per_tenant(before, after));
    println!("  per tenant after as many others, those forgotten: {}", per_tenant(after, others));
}

criterion_group!(benches, deciding);
criterion_main!(benches);
