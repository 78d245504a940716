//! What holds for every stack, every answer and every seed.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::sim::layers::backoff::{Backoff, Jitter};
use crate::sim::layers::policy::Wait;

fn written() -> impl Strategy<Value = Written> {
    prop_oneof![
        any::<i64>().prop_map(Written::Whole),
        (-5_i64..200).prop_map(Written::Whole),
        any::<i64>().prop_map(Written::Decimal),
        any::<i64>().prop_map(Written::Leading),
        any::<i64>().prop_map(Written::Date),
        Just(Written::Garbage),
    ]
}

fn inputs() -> impl Strategy<Value = Input> {
    let status = select(vec![200_u16, 301, 400, 402, 404, 408, 409, 413, 429, 500, 503, 529, 999]);
    let code = select(vec![Code::InsufficientQuota, Code::Throttling, Code::ServiceQuotaExceeded]);
    let answer = (
        status,
        any::<Option<bool>>(),
        prop::option::of(written()),
        prop::option::of(written()),
        any::<Option<i64>>(),
        prop::option::of(code),
    );
    prop_oneof![
        1 => Just(Input::TransportError),
        1 => Just(Input::TimedOut),
        8 => answer.prop_map(|(status, should_retry, retry_after_ms, retry_after, reset_in_ms, code)| {
            Input::Answer(AnswerSeen { status, should_retry, retry_after_ms, retry_after, reset_in_ms, code })
        }),
    ]
}

/// Tries that a layer makes at most.
fn most_tries(stack: &Stack) -> Vec<usize> {
    stack.layers().iter().map(|layer| usize::try_from(layer.policy.tries).expect("few")).collect()
}

proptest! {
    #[test]
    fn a_journey_ends_and_no_layer_tries_more_often_than_its_policy_allows(
        outer in prop::option::of(select(vec!["tenacity", "tenacity-random", "job-queue"])),
        inner in select(client_names().collect::<Vec<_>>()),
        input in inputs(),
        seed in any::<u64>(),
    ) {
        let outer = outer.map_or(String::new(), |outer| format!("[[layers]]\nuse = '{outer}'\nname = 'outer'\n"));
        let stack = parse(&format!("{outer}[[layers]]\nuse = '{inner}'")).expect("right");
        let run = run(&stack, seed, input);
        prop_assert!(matches!(run.end, Step::Served | Step::Failed));
        let calls: Vec<u64> = run.calls.by_layer(&stack).map(|(_, calls, _)| calls).collect();
        prop_assert_eq!(calls.last().copied(), u64::try_from(run.attempts()).ok());
        let mut above = 1;
        for (calls, tries) in calls.iter().zip(most_tries(&stack)) {
            let calls = usize::try_from(*calls).expect("few");
            prop_assert!(above <= calls && calls <= above * tries, "{calls} calls, {above} x {tries}");
            above = calls;
        }
    }

    #[test]
    fn without_time_bounds_tries_multiply_exactly(
        tries in prop::collection::vec(1_u32..5, 1..5),
        seed in any::<u64>(),
    ) {
        let layer = |(index, tries): (usize, &u32)| format!("[[layers]]\nname = 'l{index}'\ntries = {tries}\n");
        let text: String = tries.iter().enumerate().map(layer).collect();
        let stack = parse(&text).expect("right");
        let run = run(&stack, seed, Input::Answer(refusal(503)));
        let mut calls = 1;
        for ((_, counted, _), tries) in run.calls.by_layer(&stack).zip(&tries) {
            calls *= u64::from(*tries);
            prop_assert_eq!(counted, calls);
        }
    }

    #[test]
    fn no_wait_is_longer_than_its_policy_allows(
        name in select(client_names().collect::<Vec<_>>()),
        input in inputs(),
        seed in any::<u64>(),
    ) {
        let stack = client(name, "");
        let longest_s = stack.layers().iter().map(|layer| {
            let policy = &layer.policy;
            let own_s = match policy.wait {
                Wait::Backoff(backoff) => backoff.longest_s(policy.tries),
                Wait::Visibility(timeout) => timeout.as_secs_f64(),
            };
            let hints = &policy.hints;
            let hint_s = if hints.sources.is_empty() { 0.0 } else { hints.max_s };
            own_s.max(hint_s * (1.0 + hints.smear) + hints.added_s)
        });
        let longest_s = longest_s.fold(0.0, f64::max).min(crate::sim::layers::policy::WAIT_S_MAX);
        for waited_s in run(&stack, seed, input).waits_s {
            prop_assert!(waited_s <= longest_s + 1e-9, "{waited_s} s of {longest_s} s");
        }
    }

    #[test]
    fn every_jitter_stays_within_its_bounds(
        jitter in prop_oneof![
            Just(Jitter::None), (0.0..1.0).prop_map(Jitter::Minus), (0.0..5.0).prop_map(Jitter::AddedS),
            (0.0..5.0).prop_map(Jitter::FromS), Just(Jitter::Full), Just(Jitter::Decorrelated),
        ],
        base_s in 0.0..10.0,
        cap_s in 0.0..100.0,
        repeat in 0_u32..2_000,
        previous_s in prop::option::of(0.0..100.0),
        seed in any::<u128>(),
    ) {
        let backoff = Backoff { base_s, cap_s, jitter, ..Backoff::NONE };
        let mut random = rand_pcg::Pcg64::new(seed, 1);
        let wait_s = backoff.wait_s(repeat, false, previous_s, &mut random);
        prop_assert!((0.0..=backoff.longest_s(repeat + 1) + 1e-9).contains(&wait_s), "{wait_s}");
    }

    #[test]
    fn the_same_seed_walks_the_same_way(name in select(client_names().collect::<Vec<_>>()), seed in any::<u64>()) {
        let walk = || run(&client(name, ""), seed, Input::Answer(refusal(429)));
        prop_assert_eq!(walk().waits_s, walk().waits_s);
    }
}
