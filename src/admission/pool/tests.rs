//! The rules of a shared state, one by one, and that nobody starves in its line.

use super::*;
use crate::admission::limit::Semantics;

const LEASE: Duration = Duration::from_secs(10);

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn claim(in_flight: u32) -> Claim {
    let (window, burst) = (Duration::from_mins(1), Duration::from_secs(1));
    let semantics = Semantics::SlidingWindow;
    let rules = Rules { breaker: true, faults_in_row: 5, adaptive: true, lease: LEASE };
    Claim {
        demand: Demand { input: 100.0, output: 0.0 },
        limits: vec![Limit { meter: Meter::Tokens, amount: 60_000.0, window, semantics, burst }],
        in_flight,
        in_flight_max: Some(2),
        rules,
    }
}

fn report(claim: &Claim, receipt: Receipt, outcome: Outcome) -> Report {
    Report {
        receipt: Some(receipt),
        reserved: claim.demand,
        charged: None,
        outcome,
        readings: Vec::new(),
        limits: claim.limits.clone(),
        in_flight: 0,
        rules: claim.rules,
    }
}

/// A pool whose meters were set up at the start, so that their paces are full a second later.
fn pool() -> Pool {
    let mut pool = Pool::new("s", Mono::START);
    let idle = Report { receipt: None, ..report(&claim(0), Receipt(0), Outcome::Neither) };
    pool.report("first", &idle, Mono::START);
    pool.instances.clear();
    pool
}

fn granted(verdict: Verdict) -> Receipt {
    match verdict {
        Verdict::Granted(receipt) => receipt,
        Verdict::Wait { at_least, why } => panic!("waits {at_least:?} for {why:?}"),
    }
}

#[test]
fn calls_of_a_dead_instance_come_back_with_its_lease() {
    let mut pool = pool();
    granted(pool.claim("dies", &claim(0), at(1.0)).0);
    granted(pool.claim("dies", &claim(1), at(1.1)).0);
    let (verdict, mirror) = pool.claim("lives", &claim(0), at(2.0));
    let why = Binding::Meter(Meter::Concurrency);
    assert_eq!(verdict, Verdict::Wait { at_least: LOOK_AGAIN, why });
    assert_eq!((mirror.instances, mirror.in_flight), (2, 2));
    let (verdict, mirror) = pool.claim("lives", &claim(0), at(11.2));
    granted(verdict);
    assert_eq!((mirror.instances, mirror.in_flight), (1, 1));
}

#[test]
fn a_throttle_of_one_instance_pauses_all_and_work_then_leaves_at_the_pace() {
    let mut pool = pool();
    let one = claim(0);
    let receipt = granted(pool.claim("a", &one, at(5.0)).0);
    let pause = Duration::from_secs(2);
    let outcome = Outcome::Throttled { pause, meter: Some(Meter::Tokens) };
    pool.report("a", &report(&one, receipt, outcome), at(5.1));
    let (verdict, mirror) = pool.claim("b", &one, at(6.0));
    let left = Duration::from_millis(1_100);
    assert_eq!(verdict, Verdict::Wait { at_least: left, why: Binding::Pause });
    assert_eq!(mirror.paused, left);
    // 1,000 tokens a second: a tenth of a second for the first hundred.
    let (verdict, _) = pool.claim("b", &one, at(7.1));
    assert!(matches!(verdict, Verdict::Wait { at_least, .. } if at_least.as_millis() >= 99));
    granted(pool.claim("b", &one, at(7.21)).0);
}

#[test]
fn faults_of_several_instances_open_one_breaker() {
    let mut pool = pool();
    let one = Claim { in_flight_max: None, ..claim(0) };
    for (n, instance) in ["a", "b", "c", "a", "b"].into_iter().enumerate() {
        let now = at(5.0 + 0.2 * f64::from(u32::try_from(n).expect("small")));
        let receipt = granted(pool.claim(instance, &one, now).0);
        let fault = Outcome::Fault { overload: true };
        pool.report(instance, &report(&one, receipt, fault), now);
    }
    let (verdict, mirror) = pool.claim("c", &one, at(6.0));
    assert!(matches!(verdict, Verdict::Wait { why: Binding::Breaker, .. }), "{verdict:?}");
    assert!(matches!(mirror.breaker, SharedBreaker::Open { .. }));
}

/// What the pool's instances ask for, in tokens, again and again, and how late after the promised time,
/// in milliseconds.
type Asker = (&'static str, f64, u64);

/// Everybody wants everything for five minutes; the tokens that each was granted in the last four.
fn everybody_wants_everything(askers: &[Asker], semantics: Semantics) -> Vec<f64> {
    let mut pool = Pool::new("s", Mono::START);
    let mut one = Claim { in_flight_max: None, ..claim(0) };
    one.limits[0].semantics = semantics;
    let mut due: Vec<Mono> = askers.iter().map(|(_, _, late)| at(0.0) + millis(*late)).collect();
    let mut taken = vec![0.0; askers.len()];
    loop {
        let next = (0..askers.len()).min_by_key(|asker| due[*asker]).expect("somebody asks");
        let (now, (name, tokens, late)) = (due[next], askers[next]);
        if now >= at(300.0) {
            return taken;
        }
        one.demand.input = tokens;
        let wait = match pool.claim(name, &one, now).0 {
            Verdict::Granted(_) => {
                if now >= at(60.0) {
                    taken[next] += tokens;
                }
                Duration::ZERO
            }
            // As the gate does.
            Verdict::Wait { at_least, .. } => at_least.min(Duration::from_secs(1)),
        };
        due[next] = now + wait + millis(late);
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const ALL: [Semantics; 3] =
    [Semantics::TokenBucket, Semantics::SlidingWindow, Semantics::FixedWindow];

#[test]
fn large_requests_wait_for_their_turn_and_not_for_ever() {
    let askers = [("a", 1_500.0, 3), ("b", 100.0, 1), ("c", 100.0, 2), ("d", 300.0, 7)];
    for semantics in ALL {
        let taken = everybody_wants_everything(&askers, semantics);
        println!("{semantics:?}: {taken:?}");
        let used = taken.iter().sum::<f64>() / 240_000.0;
        assert!(used >= 0.95, "{semantics:?}: {used} of the quota: {taken:?}");
        // In turn: whoever asks for more takes more, and nobody has less than three turns of five.
        let turns: Vec<f64> =
            taken.iter().zip(askers).map(|(all, (_, each, _))| all / each).collect();
        let most = turns.iter().copied().fold(0.0, f64::max);
        assert!(turns.iter().all(|own| *own >= 0.6 * most), "{semantics:?}: {turns:?}");
    }
}

#[test]
fn equal_instances_have_equal_shares() {
    // Also where one comes later than others are served.
    for (semantics, tokens) in ALL.into_iter().flat_map(|one| [(one, 300.0), (one, 20.0)]) {
        let askers = [("a", tokens, 1), ("b", tokens, 10), ("c", tokens, 5), ("d", tokens, 2)];
        let taken = everybody_wants_everything(&askers, semantics);
        println!("{semantics:?} {tokens}: {taken:?}");
        let sum: f64 = taken.iter().sum();
        assert!(sum >= 0.95 * 240_000.0, "{semantics:?}, {tokens}: {taken:?}");
        let is_fair = |own: &f64| (own / sum - 0.25).abs() < 0.025;
        assert!(taken.iter().all(is_fair), "{semantics:?}, {tokens}: {taken:?}");
    }
}

#[test]
fn an_instance_with_requests_of_all_sizes_does_not_starve_its_own_large_ones() {
    let askers = [("a", 1_500.0, 3), ("a", 100.0, 1), ("b", 1_500.0, 2), ("b", 100.0, 1)];
    for semantics in ALL {
        let taken = everybody_wants_everything(&askers, semantics);
        println!("{semantics:?}: {taken:?}");
        assert!(taken.iter().sum::<f64>() >= 0.95 * 240_000.0, "{semantics:?}: {taken:?}");
        assert!(taken.iter().all(|own| *own >= 2_000.0), "{semantics:?}: {taken:?}");
    }
}

#[test]
fn whoever_gives_up_holds_up_the_others_for_a_moment() {
    let mut pool = pool();
    let ask = |tokens| Claim {
        demand: Demand { input: tokens, output: 0.0 },
        in_flight_max: None,
        ..claim(0)
    };
    granted(pool.claim("b", &ask(950.0), at(1.0)).0);
    let (verdict, _) = pool.claim("gives up", &ask(900.0), at(1.0));
    assert!(matches!(verdict, Verdict::Wait { .. }));
    // 500 are there at 1.45, but the 900 of the first are not.
    let (verdict, _) = pool.claim("b", &ask(100.0), at(1.45));
    assert!(matches!(verdict, Verdict::Wait { .. }));
    granted(pool.claim("b", &ask(100.0), at(2.2)).0);
}

#[test]
fn a_limit_that_is_never_enough_and_a_windows_end_hold_up_nobody() {
    let with = |tokens, semantics, amount| {
        let mut one = Claim { in_flight_max: None, ..claim(0) };
        one.demand.input = tokens;
        (one.limits[0].semantics, one.limits[0].amount) = (semantics, amount);
        one.limits[0].window = Duration::from_hours(24);
        one
    };
    for semantics in ALL {
        let mut pool = Pool::new("s", Mono::START);
        granted(pool.claim("a", &with(800.0, semantics, 1_000.0), at(1.0)).0);
        let (verdict, _) = pool.claim("a", &with(500.0, semantics, 1_000.0), at(1.0));
        assert!(matches!(verdict, Verdict::Wait { at_least, .. } if at_least == NEVER));
        granted(pool.claim("b", &with(100.0, semantics, 1_000.0), at(1.0)).0);
    }
}

#[test]
fn a_claim_that_waits_leaves_the_open_calls_as_they_were_told() {
    let mut pool = pool();
    let small = Claim { in_flight_max: Some(9), ..claim(3) };
    let large = Claim { demand: Demand { input: 9_000.0, output: 0.0 }, ..small.clone() };
    let (verdict, mirror) = pool.claim("a", &small, at(1.0));
    granted(verdict);
    assert_eq!(mirror.in_flight, 4);
    let (verdict, mirror) = pool.claim("a", &large, at(1.0));
    assert!(matches!(verdict, Verdict::Wait { .. }), "{verdict:?}");
    assert_eq!(mirror.in_flight, 3);
}
