//! Originals: what is the same, how long it is known, and that nothing stays.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

#[test]
fn a_repeat_before_success_is_the_same_original_and_after_it_a_new_one() {
    let mut originals = Originals::default();
    assert!(originals.arrive(7, 1, at(0.0)).1);
    assert!(!originals.arrive(7, 2, at(119.0)).1);
    originals.get_mut(7).expect("known").served = true;
    assert_eq!(originals.by_id(2).map(|original| original.id), Some(1), "the repeat's number");
    let (original, new) = originals.arrive(7, 3, at(119.5));
    assert!(new);
    assert_eq!(original.id, 3);
    for id in [1, 2] {
        assert!(originals.by_id(id).is_none(), "the served one is replaced");
    }
}

#[test]
fn memory_ends_exactly_after_two_minutes_of_silence() {
    let mut originals = Originals::default();
    originals.arrive(7, 1, at(0.0));
    assert!(!originals.arrive(7, 2, at(120.0)).1);
    assert!(originals.arrive(7, 3, at(240.001)).1);
}

#[test]
fn nine_tries_of_one_original_count_once_in_a_window() {
    let mut originals = Originals::default();
    originals.arrive(1, 1, at(0.0));
    originals.arrive(2, 2, at(0.0));
    assert!(originals.attempted(1, at(0.0)));
    for n in 1..9 {
        assert!(!originals.attempted(1, at(f64::from(n))));
    }
    originals.attempted(2, at(8.5));
    assert_eq!(originals.since(at(0.0)), (10, 2));
    assert_eq!(originals.since(at(8.0)), (2, 2));
    assert_eq!(originals.since(at(8.4)), (1, 1));
    assert_eq!(originals.since(at(9.0)), (0, 0));
}

#[test]
fn running_originals_are_never_forgotten() {
    let mut originals = Originals::default();
    originals.arrive(1, 1, at(0.0)).0.running = 1;
    originals.arrive(2, 2, at(500.0));
    assert!(!originals.arrive(1, 3, at(500.0)).1);
}

#[test]
fn one_that_ran_for_longer_than_the_memory_is_forgotten_like_any_other() {
    let mut originals = Originals::default();
    originals.arrive(1, 1, at(0.0)).0.running = 1;
    originals.tidy(at(300.0));
    let original = originals.get_mut(1).expect("it runs");
    (original.running, original.touched) = (0, at(310.0));
    originals.tidy(at(420.001));
    originals.tidy(at(540.002));
    assert!(originals.get_mut(1).is_none());
    assert!(originals.by_id(1).is_none());
}

#[test]
fn silence_gives_all_memory_back() {
    let mut originals = Originals::default();
    for n in 0..1_000 {
        originals.arrive(n.into(), n, at(1.0)).0.log(entry(1.0));
        originals.attempted(n.into(), at(1.0));
    }
    originals.tidy(at(121.001));
    assert_eq!((originals.entries.capacity(), originals.looked_at.capacity()), (0, 0));
    assert_eq!((originals.by_identity.capacity(), originals.by_number.capacity()), (0, 0));
}

#[test]
fn a_crowd_is_worked_off_and_its_places_are_used_again() {
    let mut originals = Originals::default();
    for n in 0..10_000 {
        originals.arrive(n.into(), n, at(0.0));
    }
    originals.arrive(50_000, 50_000, at(199.0));
    originals.tidy(at(200.0));
    for n in 0..999 {
        originals.arrive((100_000 + n).into(), 100_000 + n, at(200.0));
    }
    assert_eq!(originals.looked_at.len(), 1_000);
    assert!(originals.entries.len() <= 10_001, "places are used again");
}

#[test]
fn at_the_bound_the_oldest_go_first_and_those_that_run_stay() {
    let mut originals = Originals::default();
    for n in 0..=ORIGINALS_MAX as u64 {
        originals.arrive(n.into(), n, at(1.0)).0.running = u32::from(n == 0);
    }
    assert_eq!(originals.looked_at.len(), ORIGINALS_MAX + 1);
    originals.arrive(u128::MAX, u64::MAX, at(1.0));
    assert_eq!(originals.looked_at.len(), ORIGINALS_MAX + 1);
    assert!(originals.get_mut(0).is_some(), "it runs");
    assert!(originals.get_mut(1).is_none(), "the oldest that does not");
    assert!(originals.get_mut(2).is_some());
}

fn entry(second: f64) -> ChainEntry {
    ChainEntry {
        at: at(second),
        what: "request",
        status: None,
        code: None,
        hint: None,
        wait: Duration::ZERO,
        tokens: None,
    }
}

/// What somebody does with originals.
#[derive(Clone, Debug)]
enum Step {
    Arrive(u8),
    Attempt(u8),
    Serve(u8),
    Finish(u8),
    Tidy,
}

fn steps() -> impl Strategy<Value = Vec<(Step, u16)>> {
    let step = prop_oneof![
        4 => (0u8..12).prop_map(Step::Arrive),
        3 => (0u8..12).prop_map(Step::Attempt),
        1 => (0u8..12).prop_map(Step::Serve),
        2 => (0u8..12).prop_map(Step::Finish),
        1 => Just(Step::Tidy),
    ];
    prop::collection::vec((step, prop_oneof![Just(0u16), 0u16..400, Just(1_200)]), 1..120)
}

proptest! {
    /// Against the rule itself, kept in the plainest way: forgetting is never seen from outside.
    #[test]
    fn what_is_known_follows_the_rule_and_nothing_is_lost(steps in steps()) {
        let mut originals = Originals::default();
        let mut model: BTreeMap<Identity, Original> = BTreeMap::new();
        let mut tenths = 0u32;
        for (n, (step, wait)) in steps.into_iter().enumerate() {
            tenths += u32::from(wait);
            let (now, id) = (at(f64::from(tenths) / 10.0), n as u64);
            match step {
                Step::Arrive(who) => {
                    let who = Identity::from(who);
                    let known = model.get(&who).is_some_and(|o| {
                        o.running > 0 || (!o.served && o.touched + MEMORY >= now)
                    });
                    if !known {
                        model.insert(who, Original::new(id, now));
                    }
                    let expected = model.get_mut(&who).expect("known or new");
                    (expected.touched, expected.running) = (now, expected.running + 1);
                    let (original, new) = originals.arrive(who, id, now);
                    original.running += 1;
                    prop_assert_eq!((new, original.id, original.running), (!known, expected.id, expected.running));
                    prop_assert_eq!(originals.by_id(id).map(|o| o.id), Some(expected.id));
                }
                Step::Attempt(who) => {
                    let who = Identity::from(who);
                    if let Some(expected) = model.get_mut(&who).filter(|o| o.running > 0) {
                        (expected.touched, expected.attempts) = (now, expected.attempts + 1);
                        prop_assert_eq!(originals.attempted(who, now), expected.attempts == 1);
                    }
                }
                Step::Serve(who) => {
                    let who = Identity::from(who);
                    if let Some(expected) = model.get_mut(&who).filter(|o| o.running > 0) {
                        expected.served = true;
                        originals.get_mut(who).expect("it runs").served = true;
                    }
                }
                Step::Finish(who) => {
                    let who = Identity::from(who);
                    if let Some(expected) = model.get_mut(&who).filter(|o| o.running > 0) {
                        (expected.touched, expected.running) = (now, expected.running - 1);
                        let original = originals.get_mut(who).expect("it runs");
                        (original.touched, original.running) = (now, original.running - 1);
                    }
                }
                Step::Tidy => originals.tidy(now),
            }
            prop_assert!(originals.looked_at.len() + originals.free.len() == originals.entries.len());
        }
        let end = at(f64::from(tenths) / 10.0);
        for _ in 0..2 {
            originals.tidy(end + MEMORY * 3);
        }
        let running = model.values().filter(|original| original.running > 0).count();
        prop_assert_eq!(originals.looked_at.len(), running);
    }
}
