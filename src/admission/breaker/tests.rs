//! The breaker by its rules, and by the property that it lets a call pass exactly when it promised.

use proptest::prelude::*;

use super::reopening::{DUE_MAX, SPREAD_MAX, TURN_MAX};
use super::*;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn faults(breaker: &mut Breaker, times: u32, now: Mono) {
    for _ in 0..times {
        breaker.failed(0, now);
    }
}

/// Open from 1 s to 3 s.
fn opened() -> Breaker {
    let mut breaker = Breaker::new(Mono::START);
    faults(&mut breaker, 5, at(1.0));
    breaker
}

#[test]
fn so_many_faults_in_a_row_open_it_and_no_fewer() {
    for faults_in_row in [1, 5, 40] {
        // The share stays out of it.
        let thresholds = Thresholds { faults_in_row, outcomes_min: 1_000, ..Thresholds::default() };
        let mut breaker = Breaker::configured(thresholds, Spread::default(), Mono::START);
        faults(&mut breaker, faults_in_row - 1, at(1.0));
        breaker.succeeded(at(1.0));
        faults(&mut breaker, faults_in_row - 1, at(1.0));
        assert_eq!(breaker.state(at(1.0)), State::Closed, "a success breaks the row");
        breaker.failed(0, at(1.0));
        assert_eq!(breaker.state(at(1.0)), State::Open { until: at(3.0) });
        assert_eq!(breaker.reason(), Some(OpenReason::FaultsInRow));
    }
}

#[test]
fn a_row_that_chance_explains_does_not_open_it() {
    // Two of five fail, in rows of two; then a row of so many.
    for (row, expected) in [(12, None), (17, Some(OpenReason::FaultsInRow))] {
        let mut breaker = Breaker::new(Mono::START);
        for _ in 0..60 {
            (0..3).for_each(|_| breaker.succeeded(at(1.0)));
            faults(&mut breaker, 2, at(1.0));
        }
        breaker.succeeded(at(1.0));
        faults(&mut breaker, row, at(1.0));
        assert_eq!(breaker.reason(), expected, "{row} in a row");
    }
    // Hardly any failed before: five are none of chance's.
    let mut breaker = Breaker::new(Mono::START);
    (0..200).for_each(|_| breaker.succeeded(at(1.0)));
    breaker.failed(0, at(1.0));
    breaker.succeeded(at(1.0));
    faults(&mut breaker, 5, at(1.0));
    assert_eq!(breaker.reason(), Some(OpenReason::FaultsInRow));
}

/// Good and bad answers in turn, one instant per entry.
fn share(outcomes: &[(f64, u32, u32)]) -> Option<OpenReason> {
    let thresholds = Thresholds { faults_in_row: 1_000, ..Thresholds::default() };
    let mut breaker = Breaker::configured(thresholds, Spread::default(), Mono::START);
    for (seconds, good, bad) in outcomes {
        (0..*good).for_each(|_| breaker.succeeded(at(*seconds)));
        faults(&mut breaker, *bad, at(*seconds));
    }
    breaker.reason()
}

#[test]
fn more_than_half_of_the_outcomes_in_two_slices_open_it() {
    let opened = Some(OpenReason::FaultShare);
    for (outcomes, expected, why) in [
        (&[(1.0, 2, 8)][..], opened, "eight of ten"),
        (&[(1.0, 3, 7)], None, "seven of ten may be chance"),
        (&[(1.0, 41, 59)], opened, "fifty-nine of a hundred are none"),
        (&[(1.0, 0, 9)], None, "nine are too few"),
        (&[(9.9, 2, 7), (10.0, 0, 1)], opened, "the slice before counts"),
        (&[(9.9, 2, 7), (20.0, 0, 1)], None, "two slices later it does not"),
        (&[(1.0, 0, 4), (35.0, 0, 5)], None, "nor after a silence"),
    ] {
        assert_eq!(share(outcomes), expected, "{why}");
    }
}

#[test]
fn one_probe_passes_exactly_when_the_wait_is_over() {
    let mut breaker = opened();
    assert_eq!(breaker.permits(at(2.999)), Err(at(3.0)));
    assert_eq!(breaker.permits(at(3.0)), Ok(()));
    breaker.started(at(3.0));
    assert_eq!(breaker.permits(at(3.1)), Err(at(33.0)), "the probe is under way");
    breaker.succeeded(at(3.5));
    assert_eq!(breaker.permits(at(3.5)), Ok(()));
    assert_eq!(breaker.transitions(), [1, 1, 1]);
    faults(&mut breaker, 4, at(4.0));
    assert_eq!(breaker.state(at(4.0)), State::Closed, "the faults before do not count again");
}

#[test]
fn a_failed_probe_doubles_the_wait_up_to_the_longest() {
    let mut breaker = opened();
    let mut now = at(3.0);
    for wait_s in [4.0, 8.0, 16.0, 30.0, 30.0] {
        breaker.started(now);
        breaker.failed(0, now);
        let until = now + Duration::from_secs_f64(wait_s);
        assert_eq!(breaker.permits(now), Err(until));
        assert_eq!(breaker.reason(), Some(OpenReason::ProbeFailed));
        now = until;
    }
    breaker.started(now);
    breaker.succeeded(now);
    faults(&mut breaker, 5, now);
    assert_eq!(breaker.permits(now), Err(now + OPEN_FIRST), "a success forgets the doubling");
}

#[test]
fn a_lost_probe_gives_its_place_back_and_may_still_be_heard() {
    let mut breaker = opened();
    breaker.started(at(3.0));
    assert!(breaker.permits(at(32.9)).is_err());
    assert_eq!(breaker.permits(at(33.0)), Ok(()));
    breaker.started(at(33.0));
    breaker.ended(Outcome::Neither, at(3.0), 0, at(34.0));
    assert!(breaker.permits(at(34.0)).is_err(), "the second probe keeps its place");
    breaker.ended(Outcome::Neither, at(33.0), 0, at(35.0));
    assert_eq!(breaker.permits(at(35.0)), Ok(()));
    breaker.ended(Outcome::Good, at(3.0), 0, at(36.0));
    assert_eq!(breaker.state(at(36.0)), State::Closed);
}

#[test]
fn calls_from_before_the_opening_decide_nothing() {
    let mut breaker = opened();
    breaker.started(at(3.0));
    for _ in 0..50 {
        breaker.ended(Outcome::Fault { overload: true }, at(0.5), 0, at(3.1));
    }
    assert_eq!(breaker.state(at(3.1)), State::HalfOpen { probe: Some(at(3.0)) });
    breaker.ended(Outcome::Good, at(0.5), 0, at(3.2));
    assert_eq!(breaker.last_success(), Some(at(3.2)), "but it shows");
    assert_eq!(breaker.state(at(3.2)), State::HalfOpen { probe: Some(at(3.0)) });
    breaker.ended(Outcome::Good, at(3.0), 0, at(3.3));
    for _ in 0..50 {
        breaker.ended(Outcome::Fault { overload: true }, at(0.5), 0, at(30.0));
    }
    assert_eq!(breaker.state(at(30.0)), State::Closed);
    for _ in 0..5 {
        breaker.ended(Outcome::Fault { overload: true }, at(1.0), 0, at(30.0));
    }
    assert_eq!(breaker.state(at(30.0)).word(), "open", "one that began as it opened is not stale");
}

#[test]
fn an_exhausted_account_opens_it_at_once_and_again() {
    let mut breaker = Breaker::new(Mono::START);
    breaker.ended(Outcome::Exhausted, at(1.0), 0, at(1.0));
    breaker.ended(Outcome::Exhausted, at(0.9), 0, at(1.1));
    assert_eq!(breaker.state(at(1.1)), State::Open { until: at(31.1) });
    breaker.started(at(31.1));
    breaker.ended(Outcome::Exhausted, at(31.1), 0, at(31.2));
    assert_eq!(breaker.state(at(31.2)), State::Open { until: at(61.2) });
    assert_eq!(breaker.reason().map(OpenReason::word), Some("account_dead"));
    assert_eq!(breaker.since(), at(31.2));
}

#[test]
fn a_throttle_is_healthy_and_what_says_nothing_counts_nothing() {
    let throttled = Outcome::Throttled { pause: Duration::from_secs(1), meter: None };
    for outcome in [throttled, Outcome::Neither, Outcome::Good] {
        let mut breaker = Breaker::new(Mono::START);
        for _ in 0..100 {
            breaker.ended(outcome, at(1.0), 0, at(1.0));
        }
        assert_eq!(breaker.state(at(1.0)), State::Closed, "{outcome:?}");
        assert_eq!(breaker.transitions(), [0; 3]);
    }
    let mut breaker = opened();
    breaker.started(at(3.0));
    breaker.ended(throttled, at(3.0), 0, at(3.1));
    assert_eq!(breaker.state(at(3.1)), State::Closed);
}

#[test]
fn scopes_stay_open_for_times_that_differ() {
    let names = ["openai/a/gpt", "openai/a/embed", "openai/b/gpt", "azure/eu/gpt"];
    let mut ends: Vec<Mono> = names
        .iter()
        .map(|name| {
            let spread = Spread::by_name(name);
            assert!((0.0..=SPREAD_MAX).contains(&spread.share()));
            let mut breaker = Breaker::configured(Thresholds::default(), spread, Mono::START);
            faults(&mut breaker, 5, Mono::START);
            breaker.permits(Mono::START).expect_err("it is open")
        })
        .collect();
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), names.len(), "{ends:?}");
    assert!(ends.iter().all(|end| (at(2.0)..=at(2.5)).contains(end)), "{ends:?}");
}

#[test]
fn one_scope_of_a_provider_probes_at_a_time_and_nobody_waits_for_ever() {
    let mut turns = Reopening::default();
    assert_eq!(turns.permits(0, at(1.0), at(1.0)), Ok(()));
    turns.began(0, at(1.0));
    assert_eq!(turns.permits(0, at(1.0), at(2.0)), Ok(()), "its own turn");
    assert_eq!(turns.permits(1, at(1.0), at(2.0)), Err(at(1.0) + TURN_MAX));
    assert_eq!(turns.permits(1, at(1.0), at(1.0) + TURN_MAX), Ok(()), "a turn ends");
    turns.began(1, at(7.0));
    turns.ended(0);
    assert!(turns.permits(2, at(7.0), at(8.0)).is_err(), "it was not the turn of 0");
    turns.ended(1);
    assert_eq!(turns.permits(2, at(7.0), at(8.0)), Ok(()));
    turns.began(2, at(40.0));
    let due = at(40.0) + Duration::from_secs(1) - DUE_MAX;
    assert_eq!(turns.permits(3, due, at(40.5)), Err(due + DUE_MAX));
    assert_eq!(turns.permits(3, due, due + DUE_MAX), Ok(()));
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Good),
        Just(Outcome::Fault { overload: true }),
        Just(Outcome::Throttled { pause: Duration::from_secs(1), meter: None }),
        Just(Outcome::Exhausted),
        Just(Outcome::Neither),
    ]
}

proptest! {
    #[test]
    fn refused_before_and_allowed_exactly_at_the_promised_time(
        steps in prop::collection::vec((any_outcome(), 0_u64..40_000, any::<bool>()), 1..200),
    ) {
        let mut breaker = Breaker::configured(
            Thresholds::default(),
            Spread::by_name("a scope"),
            Mono::START,
        );
        let mut now = Mono::START;
        let mut started = now;
        for (outcome, gap_ms, wait) in steps {
            match breaker.permits(now) {
                Ok(()) => {
                    breaker.started(now);
                    started = now;
                }
                Err(until) => {
                    prop_assert!(until > now);
                    prop_assert!(breaker.permits(until - Duration::from_nanos(1)).is_err());
                    prop_assert!(breaker.permits(until).is_ok());
                    prop_assert!(until <= now + OPEN_MAX.mul_f64(1.0 + SPREAD_MAX));
                    if wait {
                        now = until;
                        continue;
                    }
                }
            }
            now = now + Duration::from_millis(gap_ms);
            breaker.ended(outcome, started, 0, now);
        }
    }

    #[test]
    fn at_most_one_call_passes_while_it_is_half_open(asks in 1_usize..50) {
        let mut breaker = opened();
        let passed = (0..asks)
            .filter(|_| {
                let passes = breaker.permits(at(3.0)).is_ok();
                if passes {
                    breaker.started(at(3.0));
                }
                passes
            })
            .count();
        prop_assert_eq!(passed, 1);
    }
}
