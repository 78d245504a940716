//! Every rule of a retry on both sides of its border, and what no input may break.

use proptest::prelude::*;

use super::*;

const PLENTY: Left = Left { retries: 9.0, tokens: None, usd: None };

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

/// A throttled first attempt that may be repeated; judged at 100 s with no jitter unless said.
fn throttled() -> Attempted {
    Attempted {
        is_ours: true,
        class: Class::TransientRateLimit,
        fate: Fate::Unprocessed,
        is_repeatable: false,
        attempts: 1,
        attempts_max: 2,
        waited: Duration::ZERO,
        hint: Some(secs(2.0)),
        start_by: at(110.0),
        deadline: Some(at(105.0)),
        expected: secs(1.0),
        left: PLENTY,
        cost: Cost { tokens: 300.0, usd: 0.01 },
        may_defer: false,
    }
}

#[test]
fn every_rule_on_both_sides_of_its_border() {
    use Denied::{Attempts, Budget, Deadline, Money, Owner, Permanent, Tokens, Unsafe, Wait};
    let base = throttled();
    let patient = Attempted { start_by: at(200.0), deadline: None, ..base };
    let hinted = |seconds| Attempted { hint: Some(secs(seconds)), ..patient };
    let lost =
        Attempted { class: Class::TemporaryOverload, fate: Fate::Unknown, hint: None, ..base };
    let limited = |left| Attempted { left, ..base };
    let ok = |seconds| Ok(secs(seconds));
    for (case, attempted, expected) in [
        ("a throttle with a hint", base, ok(2.0)),
        ("retries are the client's", Attempted { is_ours: false, ..base }, Err(Owner)),
        ("lost on the way, may be done twice", lost, Err(Unsafe)),
        ("lost, harmless to repeat", Attempted { is_repeatable: true, ..lost }, ok(0.0)),
        ("overloaded but refused", Attempted { fate: Fate::Unprocessed, ..lost }, ok(0.0)),
        ("the last attempt", Attempted { attempts: 2, ..base }, Err(Attempts)),
        (
            "repeats of clients count",
            Attempted { attempts: 7, attempts_max: 4, ..base },
            Err(Attempts),
        ),
        ("one attempt is all", Attempted { attempts_max: 1, ..base }, Err(Attempts)),
        ("a hint at the cap", hinted(8.0), ok(8.0)),
        ("a hint above the cap", hinted(8.001), Err(Wait)),
        ("20 s of waits", Attempted { waited: secs(18.0), ..base }, ok(2.0)),
        ("more than 20 s of waits", Attempted { waited: secs(18.001), ..base }, Err(Wait)),
        ("done at the deadline", Attempted { deadline: Some(at(103.0)), ..base }, ok(2.0)),
        ("done after it", Attempted { deadline: Some(at(102.999)), ..base }, Err(Deadline)),
        ("a hint beyond it", Attempted { deadline: Some(at(101.0)), ..base }, Err(Deadline)),
        ("the queue's patience", Attempted { start_by: at(102.001), ..base }, ok(2.0)),
        ("and its end", Attempted { start_by: at(102.0), ..base }, Err(Deadline)),
        ("one retry left", limited(Left { retries: 1.0, ..PLENTY }), ok(2.0)),
        ("not a whole one", limited(Left { retries: 0.999, ..PLENTY }), Err(Budget)),
        ("just enough tokens", limited(Left { tokens: Some(300.0), ..PLENTY }), ok(2.0)),
        ("too few tokens", limited(Left { tokens: Some(299.0), ..PLENTY }), Err(Tokens)),
        ("just enough money", limited(Left { usd: Some(0.01), ..PLENTY }), ok(2.0)),
        ("too little money", limited(Left { usd: Some(0.009), ..PLENTY }), Err(Money)),
        (
            "a full queue of reasons",
            Attempted { class: Class::BadRequest, attempts: 9, ..lost },
            Err(Permanent),
        ),
    ] {
        let expected = expected.map_or_else(NextTry::Final, |wait| NextTry::Retry { wait });
        assert_eq!(judge_retry(&attempted, 0.0, at(100.0)), expected, "{case}");
    }
}

#[test]
fn only_throttles_and_overloads_are_retried() {
    for class in Class::ALL {
        let attempted = Attempted { class, may_defer: true, ..throttled() };
        let retried = matches!(judge_retry(&attempted, 0.5, at(100.0)), NextTry::Retry { .. });
        let may = matches!(class, Class::TransientRateLimit | Class::TemporaryOverload);
        assert_eq!(retried, may, "{class}");
    }
}

#[test]
fn not_now_is_deferred_where_the_caller_allows_it_and_never_is_final_anyway() {
    let base = Attempted { may_defer: true, ..throttled() };
    let far = Some(secs(3_600.0));
    for (case, attempted, after, why) in [
        ("attempts", Attempted { attempts: 2, ..base }, 8.0, Denied::Attempts),
        ("a long hint", Attempted { hint: far, ..base }, 3_600.0, Denied::Wait),
        ("a deadline", Attempted { deadline: Some(at(101.0)), ..base }, 8.0, Denied::Deadline),
        (
            "a budget",
            Attempted { left: Left { retries: 0.0, ..PLENTY }, ..base },
            8.0,
            Denied::Budget,
        ),
    ] {
        let expected = NextTry::Defer { after: secs(after), why };
        assert_eq!(judge_retry(&attempted, 0.0, at(100.0)), expected, "{case}");
    }
    for attempted in [
        Attempted { is_ours: false, ..base },
        Attempted { class: Class::PermanentQuota, ..base },
        Attempted { fate: Fate::Unknown, ..base },
    ] {
        assert!(matches!(judge_retry(&attempted, 0.0, at(100.0)), NextTry::Final(_)));
    }
}

fn anything() -> impl Strategy<Value = Attempted> {
    let who = (any::<bool>(), 0..Class::ALL.len(), any::<bool>(), any::<bool>(), any::<bool>());
    let counts = (0u32..6, 0u32..6, 0u64..25_000, prop::option::of(0u64..20_000));
    let times = (0u64..20_000, prop::option::of(0u64..20_000), 0u64..5_000);
    let spent = (0.0..3.0f64, prop::option::of(0.0..1_000.0f64), prop::option::of(0.0..1.0f64));
    (who, counts, times, spent, (0.0..1_000.0f64, 0.0..1.0f64)).prop_map(
        |(who, counts, times, spent, cost)| Attempted {
            is_ours: who.0,
            class: Class::ALL[who.1],
            fate: if who.2 { Fate::Unprocessed } else { Fate::Unknown },
            is_repeatable: who.3,
            may_defer: who.4,
            attempts: counts.0,
            attempts_max: counts.1,
            waited: Duration::from_millis(counts.2),
            hint: counts.3.map(Duration::from_millis),
            start_by: at(100.0) + Duration::from_millis(times.0),
            deadline: times.1.map(|millis| at(100.0) + Duration::from_millis(millis)),
            expected: Duration::from_millis(times.2),
            left: Left { retries: spent.0, tokens: spent.1, usd: spent.2 },
            cost: Cost { tokens: cost.0, usd: cost.1 },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn a_retry_keeps_every_promise(attempted in anything(), uniform in 0.0..=1.0f64) {
        let now = at(100.0);
        match judge_retry(&attempted, uniform, now) {
            NextTry::Retry { wait } => {
                prop_assert!(attempted.is_ours && attempted.class.is_retryable());
                prop_assert!(attempted.fate == Fate::Unprocessed || attempted.is_repeatable);
                prop_assert!(attempted.attempts < attempted.attempts_max);
                prop_assert!(attempted.hint.is_none_or(|hint| wait >= hint && hint <= CAP));
                prop_assert!(attempted.waited + wait <= WAITS_MAX);
                prop_assert!(now + wait < attempted.start_by);
                prop_assert!(attempted.deadline.is_none_or(|end| now + wait + attempted.expected <= end));
                prop_assert!(attempted.left.covers(attempted.cost).is_ok());
            }
            NextTry::Defer { after, why } => {
                prop_assert!(attempted.may_defer && attempted.is_ours && attempted.class.is_retryable());
                prop_assert!(attempted.hint.is_none_or(|hint| after >= hint));
                prop_assert!(!matches!(why, Denied::Owner | Denied::Permanent | Denied::Unsafe));
            }
            NextTry::Final(why) => {
                let never = matches!(why, Denied::Owner | Denied::Permanent | Denied::Unsafe);
                prop_assert!(never || !attempted.may_defer);
            }
        }
    }
}
