//! Originals: what is the same, how long it is known, and that nothing stays.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn key(identity: Identity) -> Key {
    Key { scope: 0, identity }
}

/// Originals of one scope, asked for by requests whose numbers count up.
#[derive(Default)]
struct Bench {
    originals: Originals,
    attempted: Attempted,
    requests: u64,
}

impl Bench {
    /// A request for an original: its number, the original, and whether that is new.
    fn arrive(&mut self, identity: Identity, now: Mono) -> (u64, &mut Original, bool) {
        self.requests += 1;
        let (place, new) = self.originals.arrive(key(identity), self.requests, now);
        (self.requests, &mut self.originals[place], new)
    }

    fn is_new(&mut self, identity: Identity, now: Mono) -> bool {
        self.arrive(identity, now).2
    }

    fn get(&mut self, identity: Identity) -> Option<&mut Original> {
        let place = self.originals.place_of(key(identity))?;
        Some(&mut self.originals[Place(place)])
    }

    fn attempt(&mut self, identity: Identity, now: Mono) -> bool {
        let place = self.originals.place_of(key(identity)).expect("it has arrived");
        self.attempted.count(&mut self.originals[Place(place)], now)
    }
}

#[test]
fn a_repeat_before_success_is_the_same_original_and_after_it_a_new_one() {
    let mut bench = Bench::default();
    assert!(bench.is_new(7, at(0.0)));
    assert!(!bench.is_new(7, at(119.0)));
    bench.get(7).expect("known").served = true;
    assert_eq!(
        bench.originals.by_id(2).map(|original| original.id),
        Some(1),
        "the repeat's number"
    );
    let (id, original, new) = bench.arrive(7, at(119.5));
    assert!(new);
    assert_eq!((id, original.id), (3, 3));
    for id in [0, 1, 2, 4] {
        assert!(bench.originals.by_id(id).is_none(), "the served one is replaced");
    }
}

#[test]
fn the_same_fingerprint_in_another_scope_is_another_original() {
    let mut originals = Originals::default();
    assert!(originals.arrive(key(7), 1, at(0.0)).1);
    let elsewhere = Key { scope: 1, identity: 7 };
    assert!(originals.arrive(elsewhere, 2, at(0.0)).1);
    assert_eq!(originals.by_id(2).map(Original::scope), Some(1));
}

#[test]
fn memory_ends_exactly_after_two_minutes_of_silence() {
    let mut bench = Bench::default();
    bench.arrive(7, at(0.0));
    assert!(!bench.is_new(7, at(120.0)));
    assert!(bench.is_new(7, at(240.001)));
}

#[test]
fn nine_tries_of_one_original_count_once_in_a_window() {
    let mut bench = Bench::default();
    bench.arrive(1, at(0.0));
    bench.arrive(2, at(0.0));
    assert!(bench.attempt(1, at(0.0)));
    for n in 1..9 {
        assert!(!bench.attempt(1, at(f64::from(n))));
    }
    bench.attempt(2, at(8.5));
    let attempted = &bench.attempted;
    assert_eq!(attempted.since(at(0.0)), (10, 2));
    assert_eq!(attempted.since(at(8.0)), (2, 2));
    assert_eq!(attempted.since(at(8.4)), (1, 1));
    assert_eq!(attempted.since(at(9.0)), (0, 0));
}

/// Originals that begin each second and are tried nine times, `gap` seconds apart; what a window of
/// 10 s and the span say of them after five minutes.
fn chains(gap: u32, tries: u32) -> (f64, f64, Duration) {
    let mut bench = Bench::default();
    for second in 0..300 {
        for tried in 0..tries {
            if let Some(first) = u32::checked_sub(second, tried * gap) {
                if tried == 0 {
                    bench.arrive(first.into(), at(f64::from(second)));
                }
                bench.attempt(first.into(), at(f64::from(second)));
            }
        }
    }
    let now = at(299.5);
    let ratio = |window: Duration| {
        let (attempts, originals) = bench.attempted.since(now - window);
        f64::from(u32::try_from(attempts).unwrap()) / f64::from(u32::try_from(originals).unwrap())
    };
    let span = bench.attempted.span(now);
    (ratio(Duration::from_secs(10)), ratio(span), span)
}

#[test]
fn a_span_holds_the_attempts_of_one_original_however_slowly_they_follow_each_other() {
    for gap in [1, 4, 10, 12] {
        let (short, spanned, span) = chains(gap, 9);
        assert!(spanned > 4.0, "{gap} s apart: {spanned} in {span:?}");
        assert_eq!(
            span,
            Duration::from_secs(10.max(u64::from(gap) * 8)).min(Duration::from_mins(2))
        );
        assert!(gap < 10 || short < 1.1, "{gap} s apart: {short} in 10 s, so the span is needed");
    }
}

#[test]
fn a_span_is_short_where_few_repeat_and_as_soon_as_nobody_does() {
    let (_, ratio, span) = chains(30, 2);
    assert_eq!(span, Duration::from_secs(10), "half are repeats, and one costs two at most");
    assert!(ratio <= 2.0);

    let mut bench = Bench::default();
    bench.arrive(1, at(0.0));
    for n in 0..5 {
        bench.attempt(1, at(f64::from(n) * 10.0));
    }
    assert_eq!(bench.attempted.span(at(45.0)), Duration::from_secs(80));
    assert_eq!(bench.attempted.span(at(51.0)), Duration::from_secs(10));
}

#[test]
fn running_originals_are_never_forgotten() {
    let mut bench = Bench::default();
    bench.arrive(1, at(0.0)).1.running = 1;
    bench.arrive(2, at(500.0));
    assert!(!bench.is_new(1, at(500.0)));
}

#[test]
fn one_that_ran_for_longer_than_the_memory_is_forgotten_like_any_other() {
    let mut bench = Bench::default();
    bench.arrive(1, at(0.0)).1.running = 1;
    bench.originals.tidy(at(300.0));
    let original = bench.get(1).expect("it runs");
    (original.running, original.touched) = (0, at(310.0));
    bench.originals.tidy(at(420.001));
    bench.originals.tidy(at(540.002));
    assert!(bench.get(1).is_none());
    assert!(bench.originals.by_id(1).is_none());
}

#[test]
fn silence_gives_all_memory_back() {
    let mut bench = Bench::default();
    for n in 0..1_000 {
        bench.arrive(n, at(1.0)).1.log(entry(1.0));
    }
    let mut originals = bench.originals;
    originals.tidy(at(121.001));
    assert_eq!((originals.entries.capacity(), originals.looked_at.capacity()), (0, 0));
    assert_eq!((originals.by_key.capacity(), originals.numbers.capacity()), (0, 0));
}

#[test]
fn a_crowd_is_worked_off_and_its_places_are_used_again() {
    let mut bench = Bench::default();
    for n in 0..10_000 {
        bench.arrive(n, at(0.0));
    }
    bench.arrive(50_000, at(199.0));
    bench.originals.tidy(at(200.0));
    for n in 0..999 {
        bench.arrive(100_000 + n, at(200.0));
    }
    assert_eq!(bench.originals.looked_at.len(), 1_000);
    assert_eq!(bench.originals.numbers.len(), 1_000, "and so are numbers");
    assert!(bench.originals.entries.len() <= 10_001, "places are used again");
}

#[test]
fn of_those_that_are_served_only_the_latest_are_kept() {
    let mut bench = Bench::default();
    let serve = |bench: &mut Bench, n: Identity, second: f64| {
        let (place, _) = bench.originals.arrive(key(n), bench.requests + 1, at(second));
        bench.requests += 1;
        bench.originals[place].served = true;
        bench.originals.rest(place, 10);
        bench.requests
    };
    bench.arrive(1_000_000, at(0.0));
    let first = serve(&mut bench, 7, 0.1);
    // Served again it is another one, and what was kept of the first makes no difference.
    let again = serve(&mut bench, 7, 0.2);
    assert!(bench.originals.by_id(first).is_none() && bench.originals.by_id(again).is_some());
    let mut last = 0;
    for n in 0..50_000 {
        last = serve(&mut bench, 10 + n, 1.0);
    }
    assert!(bench.originals.entries.len() <= 13, "{}", bench.originals.entries.len());
    assert!(bench.originals.by_id(again).is_none() && bench.originals.by_id(last).is_some());
    assert!(!bench.is_new(1_000_000, at(2.0)), "one that is not served is remembered");
    bench.originals.tidy(at(3.0));
    assert!(bench.originals.looked_at.len() < 20, "{}", bench.originals.looked_at.len());
    assert!(!bench.is_new(1_000_000, at(4.0)));
    bench.originals.tidy(at(125.0));
    bench.originals.tidy(at(250.0));
    assert_eq!(bench.originals.len(), 0, "silence forgets them all the same");
}

#[test]
fn at_the_bound_the_oldest_go_first_and_those_that_run_stay() {
    let mut bench = Bench::default();
    for n in 0..=ORIGINALS_MAX as u128 {
        bench.arrive(n, at(1.0)).1.running = u32::from(n == 0);
    }
    assert_eq!(bench.originals.looked_at.len(), ORIGINALS_MAX + 1);
    bench.arrive(u128::MAX, at(1.0));
    assert_eq!(bench.originals.looked_at.len(), ORIGINALS_MAX + 1);
    assert!(bench.get(0).is_some(), "it runs");
    assert!(bench.get(1).is_none(), "the oldest that does not");
    assert!(bench.get(2).is_some());
}

/// Looks at originals that still lie where they are looked for.
fn looks(originals: &Originals) -> usize {
    let lies = |look: &&Look| lies(&originals.entries, look.place, look.mark).is_some();
    originals.looked_at.iter().filter(lies).count()
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
        let mut bench = Bench::default();
        let mut model: BTreeMap<Identity, Original> = BTreeMap::new();
        let mut tenths = 0u32;
        for (step, wait) in steps {
            tenths += u32::from(wait);
            let now = at(f64::from(tenths) / 10.0);
            match step {
                Step::Arrive(who) => {
                    let who = Identity::from(who);
                    let known = model.get(&who).is_some_and(|o| {
                        o.running > 0 || (!o.served && o.touched + MEMORY >= now)
                    });
                    if !known {
                        model.insert(who, Original::new(key(who), bench.requests + 1, now));
                    }
                    let expected = model.get_mut(&who).expect("known or new");
                    (expected.touched, expected.running) = (now, expected.running + 1);
                    let (id, original, new) = bench.arrive(who, now);
                    original.running += 1;
                    prop_assert_eq!((new, original.id, original.running), (!known, expected.id, expected.running));
                    prop_assert_eq!(bench.originals.by_id(id).map(|o| o.id), Some(expected.id));
                }
                Step::Attempt(who) => {
                    let who = Identity::from(who);
                    if let Some(expected) = model.get_mut(&who).filter(|o| o.running > 0) {
                        (expected.touched, expected.attempts) = (now, expected.attempts + 1);
                        prop_assert_eq!(bench.attempt(who, now), expected.attempts == 1);
                    }
                }
                Step::Serve(who) => {
                    let who = Identity::from(who);
                    if let Some(expected) = model.get_mut(&who).filter(|o| o.running > 0) {
                        expected.served = true;
                        bench.get(who).expect("it runs").served = true;
                    }
                }
                Step::Finish(who) => {
                    let who = Identity::from(who);
                    if let Some(expected) = model.get_mut(&who).filter(|o| o.running > 0) {
                        (expected.touched, expected.running) = (now, expected.running - 1);
                        let original = bench.get(who).expect("it runs");
                        (original.touched, original.running) = (now, original.running - 1);
                    }
                }
                Step::Tidy => bench.originals.tidy(now),
            }
            let originals = &bench.originals;
            prop_assert_eq!(looks(originals), originals.len(), "every one is looked at again once");
        }
        let end = at(f64::from(tenths) / 10.0);
        for _ in 0..2 {
            bench.originals.tidy(end + MEMORY * 3);
        }
        let running = model.values().filter(|original| original.running > 0).count();
        prop_assert_eq!((looks(&bench.originals), bench.originals.len()), (running, running));
    }
}
