//! The limiters by their rules. How they fare against a provider is in `benches/concurrency.rs`.

use std::ops::Range;

use proptest::prelude::*;

use super::*;

const CEILING: u32 = 64;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

/// Ends so many calls of a tenth of a second, with the limit in full use.
fn end(limiter: &mut Limiter, calls: u32, crowding: Crowding, now: Mono) {
    for _ in 0..calls {
        limiter.ended(Duration::from_millis(100), crowding, limiter.limit(), now);
    }
}

/// So many seconds of ten answers each that last so long.
fn answer(limiter: &mut Limiter, latency_ms: u64, in_flight: u32, seconds: Range<u32>) {
    for second in seconds {
        for _ in 0..10 {
            let latency = Duration::from_millis(latency_ms);
            limiter.ended(latency, Crowding::Clean, in_flight, at(second.into()));
        }
    }
}

#[test]
fn it_starts_low_and_doubles_in_a_round_trip_until_the_first_refusal() {
    let mut limiter = Limiter::new(Permits::default(), CEILING);
    let mut limits = vec![limiter.limit()];
    for round in 0..5 {
        end(&mut limiter, limits[round], Crowding::Clean, at(1.0));
        limits.push(limiter.limit());
    }
    assert_eq!(limits, [4, 8, 16, 32, 64, 64]);
}

#[test]
fn after_a_cut_thirty_clean_answers_give_one_permit() {
    let mut limiter = Limiter::new(Permits::default(), CEILING);
    end(&mut limiter, 60, Crowding::Clean, at(1.0));
    end(&mut limiter, 1, Crowding::Overloaded, at(2.0));
    assert_eq!(limiter.limit(), 32);
    end(&mut limiter, 29, Crowding::Clean, at(3.0));
    assert_eq!(limiter.limit(), 32);
    end(&mut limiter, 1, Crowding::Clean, at(3.0));
    assert_eq!(limiter.limit(), 33);
    end(&mut limiter, 29, Crowding::Clean, at(4.0));
    end(&mut limiter, 1, Crowding::Overloaded, at(4.0));
    end(&mut limiter, 29, Crowding::Clean, at(4.0));
    assert_eq!(limiter.limit(), 33, "thirty without a refusal between them");
}

#[test]
fn only_the_first_refusal_of_a_window_halves() {
    for (crowding, seconds, expected) in [
        (Crowding::Overloaded, 61.999, 32),
        (Crowding::Overloaded, 62.0, 16),
        (Crowding::Capped, 62.0, 16),
        // A call from under the lowered limit says that it is still one too many.
        (Crowding::Capped, 61.999, 31),
        (Crowding::Capped, 2.1, 31),
        // One from before says what is known already.
        (Crowding::Capped, 2.099, 32),
        (Crowding::Unknown, 62.0, 32),
    ] {
        let mut limiter = Limiter::new(Permits::default(), CEILING);
        end(&mut limiter, 60, Crowding::Clean, at(1.0));
        end(&mut limiter, 1, crowding_first(crowding), at(2.0));
        end(&mut limiter, 1, crowding, at(seconds));
        assert_eq!(limiter.limit(), expected, "{crowding:?} at {seconds} s");
    }
}

/// The kind of the refusal that opens the window: the same, where that is one.
fn crowding_first(crowding: Crowding) -> Crowding {
    if crowding == Crowding::Unknown { Crowding::Overloaded } else { crowding }
}

/// Seconds of a provider that answers up to `capacity` calls at a time, each in half a second, and fails
/// `share` of them whatever it is sent. The limit is in full use.
fn crowd(limiter: &mut Limiter, capacity: u32, share: f64, seconds: Range<u32>) {
    let mut due = 0.0;
    for second in seconds {
        for half in 0..2 {
            let now = at(f64::from(second) + f64::from(half) * 0.5);
            let open = limiter.limit();
            due += f64::from(open.min(capacity)) * share;
            for place in 0..open {
                let fails = place >= capacity || due >= 1.0;
                due -= if fails && place < capacity { 1.0 } else { 0.0 };
                let crowding = if fails { Crowding::Overloaded } else { Crowding::Clean };
                limiter.ended(Duration::from_millis(500), crowding, open, now);
            }
        }
    }
}

#[test]
fn a_cut_that_costs_answers_and_cures_nothing_is_taken_back() {
    let mut limiter = Limiter::new(Permits::default(), CEILING);
    crowd(&mut limiter, CEILING, 0.0, 0..20);
    crowd(&mut limiter, CEILING, 0.4, 20..22);
    assert!(limiter.limit() < CEILING / 2 + 3, "the first overload cuts: {}", limiter.limit());
    crowd(&mut limiter, CEILING, 0.4, 22..26);
    assert!(limiter.limit() < CEILING / 4 + 3, "another is tried: {}", limiter.limit());
    crowd(&mut limiter, CEILING, 0.4, 26..32);
    assert_eq!(limiter.limit(), CEILING, "as many fail of fewer");
    crowd(&mut limiter, CEILING, 0.4, 32..300);
    assert_eq!(limiter.limit(), CEILING, "and it stays so for a while");
}

#[test]
fn a_cut_that_costs_no_answers_stays() {
    let mut limiter = Limiter::new(Permits::default(), CEILING);
    crowd(&mut limiter, CEILING, 0.0, 0..20);
    crowd(&mut limiter, 16, 0.0, 20..200);
    assert!(limiter.limit() <= 32, "{} for room for 16", limiter.limit());
}

#[test]
fn a_gate_that_begins_to_enforce_allows_what_is_open() {
    for (kind, before) in [(Permits::Aimd, 4), (Permits::Gradient, 20), (Permits::Fixed, CEILING)] {
        let mut limiter = Limiter::new(kind, CEILING);
        limiter.begin_at(1);
        assert_eq!(limiter.limit(), before, "{kind:?}");
        limiter.begin_at(40);
        assert_eq!(limiter.limit(), before.max(40), "{kind:?}");
        limiter.begin_at(1_000);
        assert_eq!(limiter.limit(), CEILING, "{kind:?}");
    }
}

#[test]
fn a_cap_that_was_touched_again_is_left_alone_until_the_window_ends() {
    let mut limiter = Limiter::new(Permits::default(), CEILING);
    end(&mut limiter, 60, Crowding::Clean, at(1.0));
    end(&mut limiter, 1, Crowding::Capped, at(2.0));
    end(&mut limiter, 1, Crowding::Capped, at(3.0));
    end(&mut limiter, 1_000, Crowding::Clean, at(61.9));
    assert_eq!(limiter.limit(), 31);
    end(&mut limiter, 30, Crowding::Clean, at(62.0));
    assert_eq!(limiter.limit(), 32);
}

#[test]
fn a_limit_that_is_not_used_does_not_grow() {
    for mut limiter in
        [Limiter::new(Permits::default(), CEILING), Limiter::Gradient(Gradient::new(CEILING))]
    {
        let before = limiter.limit();
        for (in_flight, grows, seconds) in
            [(before / 2 - 1, false, 0..20), (before / 2, true, 20..40)]
        {
            answer(&mut limiter, 100, in_flight, seconds);
            assert_eq!(limiter.limit() > before, grows, "{in_flight} of {before} in use");
        }
    }
}

#[test]
fn the_gradient_shrinks_while_latency_is_above_its_long_average() {
    let mut limiter = Limiter::Gradient(Gradient::new(CEILING));
    answer(&mut limiter, 100, CEILING, 1..101);
    assert_eq!(limiter.limit(), CEILING, "steady latency lets it grow");
    answer(&mut limiter, 600, CEILING, 101..121);
    let shrunk = limiter.limit();
    assert!(shrunk < 20, "{shrunk}");
    answer(&mut limiter, 100, CEILING, 121..221);
    assert_eq!(limiter.limit(), CEILING);
    end(&mut limiter, 5, Crowding::Overloaded, at(222.0));
    assert_eq!(limiter.limit(), 57, "a tenth less, once a second");
}

#[test]
fn one_slow_answer_among_many_is_no_load() {
    let mut limiter = Limiter::Gradient(Gradient::new(CEILING));
    answer(&mut limiter, 100, CEILING, 1..101);
    limiter.ended(Duration::from_secs(1), Crowding::Clean, CEILING, at(101.0));
    assert_eq!(limiter.limit(), CEILING, "a window has ten answers");
}

#[test]
fn a_fixed_limit_is_fixed() {
    let mut limiter = Limiter::Fixed(7);
    end(&mut limiter, 100, Crowding::Capped, at(1.0));
    end(&mut limiter, 100, Crowding::Clean, at(2.0));
    assert_eq!(limiter.limit(), 7);
    assert_eq!(Limiter::Fixed(0).limit(), FLOOR);
}

fn any_crowding() -> impl Strategy<Value = Crowding> {
    prop_oneof![
        4 => Just(Crowding::Clean),
        1 => Just(Crowding::Capped),
        1 => Just(Crowding::Overloaded),
        1 => Just(Crowding::Unknown),
    ]
}

proptest! {
    #[test]
    fn a_limit_stays_within_its_bounds(
        ends in prop::collection::vec((any_crowding(), 0_u32..100, 0_u64..90_000, 0_u64..9_000), 1..500),
        ceiling in 0_u32..100,
    ) {
        let mut limiters =
            [Limiter::Aimd(Aimd::new(ceiling)), Limiter::Gradient(Gradient::new(ceiling))];
        let mut now = Mono::START;
        for (crowding, in_flight, latency_ms, gap_ms) in ends {
            now = now + Duration::from_millis(gap_ms);
            for limiter in &mut limiters {
                let before = limiter.limit();
                limiter.ended(Duration::from_millis(latency_ms), crowding, in_flight, now);
                let limit = limiter.limit();
                prop_assert!((FLOOR..=ceiling.max(FLOOR)).contains(&limit));
                let may_grow = crowding == Crowding::Clean;
                prop_assert!(limit <= before || may_grow);
            }
        }
    }
}
