//! What a step of the diagnosis costs over 100 quota scopes after an hour of history: 1,000 predicates
//! in all, 1,000 for each scope, taking in the snapshots, and the built-in runbooks from a snapshot to
//! a verdict.
//!
//! The predicates are of every kind: bounds, means of minutes, the same an hour ago, trends, orders of
//! onset, words. The history is at 1 Hz.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use weir::diagnosis::{Completed, Diagnoser, Predicate, Ring, Watch, complete};
use weir::runbook;
use weir::signal::{Mono, Snapshot, Value};

const SCOPES: usize = 100;
const HOUR_S: u32 = 3_700;
const NUMBERS: [&str; 12] = [
    "originals_rps",
    "attempts_rps",
    "offered_rps",
    "success_rps",
    "provider_429_rps",
    "provider_503_rps",
    "latency_p95_s",
    "provider_latency_p95_s",
    "queue_oldest_age_s",
    "tokens_per_request",
    "inflight_actual",
    "tpm_remaining",
];

/// The `n`-th of as many different predicates as are wanted.
fn predicate(n: usize) -> Predicate {
    let signal = NUMBERS[n / 10 % NUMBERS.len()];
    let other = NUMBERS[(n / 10 + 1) % NUMBERS.len()];
    let bound = n;
    let text = match n % 10 {
        0..=3 => format!("{signal}[fast] > {bound} for 3s clear {}", bound / 2),
        4 | 5 => format!("{signal}[1m] > {bound} for 30s"),
        6 => format!("{signal}[2m] > {signal}@1h * 1.{bound}"),
        7 => format!("tpm_headroom[fast] < 0.{bound} for 3s clear 0.95"),
        8 => format!("{signal} rising 10m for {}s", n + 1),
        _ if n % 20 == 9 => format!("{signal} rose before {other} for {}s", n + 1),
        _ => format!("breaker.state is state-{n}"),
    };
    Predicate::parse(&text).expect(&text)
}

fn snapshot(scope: usize, random: &mut Pcg64Mcg) -> Snapshot {
    let mut snapshot = Snapshot::new(format!("openai/acct-{scope}/chat"), 10.0);
    let source = Arc::from("gateway");
    for (name, usual) in NUMBERS.iter().zip(1_u32..) {
        let value = f64::from(usual) * random.random_range(8.0..12.0);
        snapshot.set(name, Value::Number(value), &source);
    }
    snapshot.set("tpm_limit", Value::Number(200.0), &source);
    let breaker = BTreeMap::from([("state".to_owned(), Value::Text("closed".to_owned()))]);
    snapshot.set("breaker", Value::Map(breaker), &source);
    snapshot
}

/// A scope with an hour behind it, and the snapshot that comes next.
struct Scope {
    watch: Watch,
    ring: Ring,
    next: Snapshot,
}

fn scopes(each: impl Fn(usize) -> std::ops::Range<usize>) -> Vec<Scope> {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let scope = |number: usize| {
        let mut watch = Watch::default();
        for n in each(number) {
            watch.add(&predicate(n));
        }
        let mut ring = Ring::new(watch.paths()).following(&watch.movers());
        for second in 0..HOUR_S {
            let done: Completed = complete(&snapshot(number, &mut random));
            ring.push(Arc::new(done), Mono::from_secs_f64(f64::from(second)));
        }
        Scope { watch, ring, next: snapshot(number, &mut random) }
    };
    (0..SCOPES).map(scope).collect()
}

fn evaluate(scopes: &mut [Scope], at: Mono) {
    for scope in scopes {
        black_box(scope.watch.step(&scope.ring, at));
    }
}

fn steps(criterion: &mut Criterion) {
    let mut second = f64::from(HOUR_S);
    let mut later = move || {
        second += 1.0;
        Mono::from_secs_f64(second)
    };
    let mut group = criterion.benchmark_group("one step of 100 scopes");
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    let mut few = scopes(|number| number * 10..number * 10 + 10);
    group.bench_function("1,000 predicates", |bench| {
        bench.iter(|| evaluate(&mut few, later()));
    });
    group.bench_function("take in a snapshot each", |bench| {
        bench.iter(|| {
            let at = later();
            for scope in &mut few {
                scope.ring.push(Arc::new(complete(&scope.next)), at);
            }
        });
    });
    let mut many = scopes(|_| 0..1_000);
    group.bench_function("1,000 predicates each", |bench| {
        bench.iter(|| evaluate(&mut many, later()));
    });
    let library = runbook::embedded();
    let mut random = Pcg64Mcg::seed_from_u64(8);
    let mut diagnosers: Vec<(Diagnoser, Snapshot)> = (0..SCOPES)
        .map(|scope| (Diagnoser::new(Arc::clone(&library)), snapshot(scope, &mut random)))
        .collect();
    group.bench_function("the built-in runbooks, to a verdict", |bench| {
        bench.iter(|| {
            let at = later();
            for (diagnoser, snapshot) in &mut diagnosers {
                black_box(diagnoser.step(snapshot, at));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
