//! The scripts against [`Pool`], under a clock that the test winds: the same claims and reports give
//! the same verdicts, levels and mirrors, whatever happens and whenever.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::link::Link;
use super::script::{Scripts, read_claim, read_mirror};
use super::*;
use crate::admission::{
    Binding, Demand, Limit, Outcome, Pool, Receipt, Rules, Semantics, SharedBreaker,
};
use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;

#[path = "../../../tests/redis_server/mod.rs"]
#[expect(dead_code, reason = "that the server fails is tested from outside")]
mod redis_server;

use redis_server::RedisServer;

/// A day of this decade, in microseconds: numbers have to be exact at this size.
const BEGIN: u64 = 1_796_000_000_123_457;
/// Waits may differ by rounding of so many microseconds.
const ROUNDING: Duration = Duration::from_micros(3);
/// So many steps must have been compared.
const STEPS_MIN: u64 = 1_000;
const INSTANCES: [&str; 3] = ["a", "b", "c"];

/// What happens next, after so many microseconds.
#[derive(Clone, Debug)]
struct Step {
    gap: Gap,
    instance: usize,
    in_flight: u32,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Gap {
    Micros(u64),
    /// As long as the last claim was told to wait, to the microsecond.
    Promised,
}

#[derive(Clone, Debug)]
enum Action {
    Claim { tokens: (f64, f64), share: f64, in_flight_max: Option<u32> },
    Report { of: usize, charged: Option<f64>, outcome: Outcome, reading: Option<MeterReading> },
}

const METERS: [Meter; 6] = [
    Meter::Requests,
    Meter::Tokens,
    Meter::InputTokens,
    Meter::OutputTokens,
    Meter::RequestsPerDay,
    Meter::TokensPerDay,
];

/// What one scope is limited by: minutes and days in one way of counting, and slices.
fn limits(semantics: Semantics, share: f64) -> Vec<Limit> {
    let burst = Duration::from_millis(1_500);
    let limit = |meter, amount, seconds, semantics| Limit {
        meter,
        amount: amount * share,
        window: Duration::from_secs(seconds),
        semantics,
        burst,
    };
    vec![
        limit(Meter::Requests, 120.0, 60, semantics),
        limit(Meter::Tokens, 60_000.0, 60, semantics),
        limit(Meter::OutputTokens, 20_000.0, 60, semantics),
        limit(Meter::TokensPerDay, 250_000.0, 86_400, semantics),
        limit(Meter::Tokens, 1_000.0, 1, Semantics::SlidingWindow),
        limit(Meter::Tokens, 10_000.0, 10, Semantics::SlidingWindow),
    ]
}

fn gaps() -> impl Strategy<Value = Gap> {
    prop_oneof![
        2 => Just(Gap::Micros(0)),
        6 => (1..300_000_u64).prop_map(Gap::Micros),
        3 => (0..5_000_000_u64).prop_map(Gap::Micros),
        1 => (0..100_000_000_u64).prop_map(Gap::Micros),
        // A lease and a slice of the breaker, to the microsecond.
        1 => Just(Gap::Micros(10_000_000)),
        4 => Just(Gap::Promised),
    ]
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let meter = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Meter::Tokens)),
        1 => Just(Some(Meter::Concurrency)),
    ];
    let pause = prop_oneof![Just(0), 1..10_000_000_u64];
    prop_oneof![
        8 => Just(Outcome::Good),
        3 => any::<bool>().prop_map(|overload| Outcome::Fault { overload }),
        3 => (pause, meter).prop_map(|(pause, meter)| {
            Outcome::Throttled { pause: Duration::from_micros(pause), meter }
        }),
        1 => Just(Outcome::Exhausted),
        2 => Just(Outcome::Neither),
    ]
}

fn readings() -> impl Strategy<Value = MeterReading> {
    let limit = prop::option::of(50_000.0..100_000.0_f64);
    let reset = prop::option::of((0..90_000_000_u64).prop_map(Duration::from_micros));
    let remaining = prop_oneof![0.0..2_000.0_f64, 0.0..60_000.0_f64];
    let window = prop::option::of(prop_oneof![Just(60), Just(3_600)].prop_map(Duration::from_secs));
    (0..METERS.len(), limit, remaining, reset, window).prop_map(
        |(meter, limit, remaining, reset, window)| {
            let (limit, remaining) = (limit.map(f64::round), Some(remaining.round()));
            MeterReading { meter: METERS[meter], limit, remaining, reset, window }
        },
    )
}

fn actions() -> impl Strategy<Value = Action> {
    let tokens = (1.0..1_500.0_f64, prop_oneof![Just(0.0), 1.0..400.0_f64]);
    let share = prop_oneof![6 => Just(1.0), 1 => Just(0.5)];
    let most = prop_oneof![4 => Just(None), 1 => (1..9_u32).prop_map(Some)];
    let charged = prop::option::weighted(0.8, 0.0..1.6_f64);
    let reading = prop::option::weighted(0.2, readings());
    prop_oneof![
        3 => (tokens, share, most)
            .prop_map(|(tokens, share, in_flight_max)| Action::Claim { tokens, share, in_flight_max }),
        2 => (0..8_usize, charged, outcomes(), reading)
            .prop_map(|(of, charged, outcome, reading)| Action::Report { of, charged, outcome, reading }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (gaps(), 0..INSTANCES.len(), 0..4_u32, actions())
        .prop_map(|(gap, instance, in_flight, action)| Step { gap, instance, in_flight, action });
    vec(step, 1..160)
}

fn rules() -> impl Strategy<Value = Rules> {
    let lease = Duration::from_secs(10);
    let is_on = || prop::bool::weighted(0.7);
    (is_on(), prop_oneof![Just(5), 1..8_u32], is_on()).prop_map(
        move |(breaker, faults_in_row, adaptive)| Rules { breaker, faults_in_row, adaptive, lease },
    )
}

/// Both keepers of one scope, and what was granted and not reported yet.
struct Pair<'a> {
    link: &'a Link,
    scripts: Scripts,
    runtime: &'a tokio::runtime::Runtime,
    scope: String,
    pool: Pool,
    semantics: Semantics,
    rules: Rules,
    now: u64,
    promised: u64,
    open: Vec<(Receipt, Demand)>,
}

impl Pair<'_> {
    /// Both are told the same. `false` when rounding made them part, or a busy machine kept the server
    /// from answering: nothing can be learned from them any more.
    fn step(&mut self, step: &Step) -> Result<bool, TestCaseError> {
        self.now += match step.gap {
            Gap::Micros(micros) => micros,
            Gap::Promised => self.promised,
        };
        self.promised = 0;
        // Whether a place in the line is still held must not depend on rounding.
        let now = self.mono();
        let away = |lapse: Mono| lapse.saturating_since(now).max(now.saturating_since(lapse));
        if self.pool.lapses().any(|lapse| away(lapse) <= ROUNDING) {
            return Ok(false);
        }
        let instance = INSTANCES[step.instance];
        match &step.action {
            Action::Claim { tokens, share, in_flight_max } => {
                let claim = Claim {
                    demand: Demand { input: tokens.0, output: tokens.1 },
                    limits: limits(self.semantics, *share),
                    in_flight: step.in_flight,
                    in_flight_max: *in_flight_max,
                    rules: self.rules,
                };
                self.claim(instance, &claim)
            }
            Action::Report { of, charged, outcome, reading } => {
                let (receipt, reserved) = match self.open.get(*of) {
                    Some(_) => self.open.remove(*of),
                    None => (Receipt(0), Demand { input: 300.0, output: 10.0 }),
                };
                let scaled = |by: f64| Demand {
                    input: (reserved.input * by).round(),
                    output: (reserved.output * by).round(),
                };
                let report = Report {
                    receipt: (receipt.0 > 0).then_some(receipt),
                    reserved,
                    charged: charged.map(scaled),
                    outcome: *outcome,
                    readings: reading.iter().copied().collect(),
                    limits: limits(self.semantics, 1.0),
                    in_flight: step.in_flight,
                    rules: self.rules,
                };
                self.report(instance, &report)
            }
        }
    }

    fn claim(&mut self, instance: &str, claim: &Claim) -> Result<bool, TestCaseError> {
        let (verdict, mirror) = self.pool.claim(instance, claim, self.mono());
        let call = self.scripts.claim(&self.scope, instance, claim, Some(self.now));
        let Ok(answer) = self.runtime.block_on(self.link.run(call)) else { return Ok(false) };
        let (told, shown) = read_claim(answer, &claim.limits).expect("well-formed");
        match (verdict, told) {
            (Verdict::Granted(ours), Verdict::Granted(theirs)) => {
                prop_assert_eq!(ours, theirs);
                self.open.push((ours, claim.demand));
            }
            (
                Verdict::Wait { at_least: ours, why },
                Verdict::Wait { at_least: theirs, why: because },
            ) => {
                prop_assert!(ours.abs_diff(theirs) <= ROUNDING, "{ours:?} or {theirs:?}: {why:?}");
                // Two meters may bind equally long.
                prop_assert!(why == because || is_meter(why) && is_meter(because));
                self.promised = u64::try_from(theirs.as_micros()).expect("short");
            }
            (Verdict::Wait { at_least, .. }, Verdict::Granted(_))
            | (Verdict::Granted(_), Verdict::Wait { at_least, .. }) => {
                prop_assert!(at_least <= ROUNDING, "{verdict:?} or {told:?}");
                return Ok(false);
            }
        }
        same(&mirror, &shown, &claim.limits)?;
        Ok(true)
    }

    fn report(&mut self, instance: &str, report: &Report) -> Result<bool, TestCaseError> {
        let mirror = self.pool.report(instance, report, self.mono());
        let call = self.scripts.report(&self.scope, instance, report, Some(self.now));
        let Ok(answer) = self.runtime.block_on(self.link.run(call)) else { return Ok(false) };
        same(&mirror, &read_mirror(answer).expect("well-formed"), &report.limits)?;
        Ok(true)
    }

    fn mono(&self) -> Mono {
        Mono::from_start(Duration::from_micros(self.now))
    }
}

fn is_meter(why: Binding) -> bool {
    matches!(why, Binding::Meter(_))
}

fn same(pool: &Mirror, redis: &Mirror, limits: &[Limit]) -> Result<(), TestCaseError> {
    prop_assert_eq!(pool.paused, redis.paused);
    prop_assert!((pool.factor - redis.factor).abs() < 1e-9, "{} or {}", pool.factor, redis.factor);
    match (pool.breaker, redis.breaker) {
        (SharedBreaker::Open { left: ours }, SharedBreaker::Open { left: theirs }) => {
            prop_assert!(ours.abs_diff(theirs) <= ROUNDING, "{ours:?} or {theirs:?}");
        }
        (ours, theirs) => prop_assert_eq!(ours, theirs),
    }
    prop_assert_eq!(pool.instances, redis.instances);
    prop_assert_eq!(pool.in_flight, redis.in_flight);
    prop_assert_eq!(pool.left.len(), redis.left.len());
    for ((ours, theirs), limit) in pool.left.iter().zip(&redis.left).zip(limits) {
        let close = (ours - theirs).abs() <= 1e-6 * limit.amount;
        prop_assert!(close, "{limit:?}: {ours} or {theirs}");
    }
    Ok(())
}

#[test]
fn the_scripts_follow_the_pool() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let link = {
        let _inside = runtime.enter();
        // Rules are tested, not the clock: a busy machine may take its time.
        Link::open(&server.url(), Duration::from_secs(20)).expect("an address")
    };
    let ping = redis::Script::new("return 1");
    let (cases, compared) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut runner = TestRunner::new(Config { cases: 60, ..Config::default() });
    let semantics = prop_oneof![
        Just(Semantics::TokenBucket),
        Just(Semantics::SlidingWindow),
        Just(Semantics::FixedWindow),
    ];
    let outcome = runner.run(&(semantics, rules(), steps()), |(semantics, rules, steps)| {
        while runtime.block_on(link.run(ping.prepare_invoke())).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let scope = format!("scope {{{}}}", cases.fetch_add(1, Ordering::Relaxed));
        let mut pair = Pair {
            link: &link,
            scripts: Scripts::new(),
            runtime: &runtime,
            pool: Pool::new(&scope, Mono::from_start(Duration::from_micros(BEGIN))),
            scope,
            semantics,
            rules,
            now: BEGIN,
            promised: 0,
            open: Vec::new(),
        };
        for (number, step) in steps.iter().enumerate() {
            let same = pair.step(step);
            if !same.map_err(|error| TestCaseError::fail(format!("step {number}: {error}")))? {
                break;
            }
            compared.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let compared = compared.into_inner();
    assert!(compared >= STEPS_MIN, "only {compared} steps were compared");
}
