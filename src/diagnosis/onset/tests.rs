//! When moves are seen, what they are called, and which of two was first. All time is virtual.

use super::*;
use crate::signal::Value;
use proptest::prelude::*;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

/// A signal and its value at each second, `None` where it is not known.
type Played<'a> = (&'a str, &'a dyn Fn(f64) -> Option<f64>);

/// Plays seconds `from..to` into the onsets.
fn play(onsets: &mut Onsets, from: u32, to: u32, step: u32, signals: &[Played<'_>]) {
    for second in (from..to).step_by(step as usize).map(f64::from) {
        let mut snapshot = Snapshot::new("scope", 10.0);
        for (name, value) in signals {
            if let Some(value) = value(second) {
                snapshot.set(name, Value::Number(value), &Arc::from("test"));
            }
        }
        onsets.step(&snapshot, at(second));
    }
}

fn told(signals: &[Played<'_>], to: u32) -> Vec<String> {
    let mut onsets = Onsets::default();
    play(&mut onsets, 0, to, 1, signals);
    let line = |one: &Onset| format!("{:.0} {one}", one.at.as_secs_f64());
    onsets.recent().iter().map(line).collect()
}

/// What a source makes of a step: the mean of the last ten seconds.
fn smeared(second: f64, step_at: f64, before: f64, after: f64) -> f64 {
    before + (after - before) * ((second - step_at + 1.0) / 10.0).clamp(0.0, 1.0)
}

#[test]
fn an_incident_is_told_in_the_order_in_which_it_began() {
    let originals = |t: f64| Some(smeared(t, 60.0, 60.0, 180.0));
    let headroom = |t: f64| Some(if t < 64.0 { 0.6 } else { 0.02 });
    let attempts = |t: f64| Some(smeared(t, 66.0, 60.0, 1_600.0));
    let latency = |t: f64| Some(if t < 75.0 { 0.4 } else { 9.0 });
    let story = told(
        &[
            ("originals_rps", &originals),
            ("tpm_headroom", &headroom),
            ("attempts_rps", &attempts),
            ("latency_p95_s", &latency),
        ],
        120,
    );
    assert_eq!(
        story,
        [
            "61 originals_rps rose 60.2 -> 180 (x3.0)",
            "64 tpm_headroom fell 0.600 -> 0.020",
            "66 attempts_rps rose 60.0 -> 1600 (x26.7)",
            "75 latency_p95_s rose 0.400 -> 9.0 (x22.5)",
        ]
    );
}

#[test]
fn a_spike_a_gap_and_a_new_source_are_no_moves() {
    let spike = |t: f64| Some(if (60.0..62.0).contains(&t) { 900.0 } else { 60.0 });
    assert_eq!(told(&[("offered_rps", &spike)], 300), Vec::<String>::new());
    let gap = |t: f64| match t {
        ..60.0 => Some(60.0),
        60.0..120.0 => None,
        _ => Some(180.0),
    };
    assert_eq!(told(&[("offered_rps", &gap)], 300), Vec::<String>::new());
    let late = |t: f64| (t >= 60.0).then_some(180.0);
    assert_eq!(told(&[("offered_rps", &late)], 300), Vec::<String>::new());
    let mut onsets = Onsets::default();
    for second in 0..200_u32 {
        let mut snapshot = Snapshot::new("scope", 10.0);
        let (value, source) = if second < 100 { (60.0, "gateway") } else { (180.0, "provider") };
        snapshot.set("offered_rps", Value::Number(value), &Arc::from(source));
        onsets.step(&snapshot, at(f64::from(second)));
    }
    assert_eq!(onsets.recent(), Vec::new(), "another source is another way of counting");
}

#[test]
fn a_short_gap_hides_no_move() {
    let story = told(
        &[("offered_rps", &|t| match t {
            ..60.0 => Some(60.0),
            60.0..70.0 => None,
            _ => Some(180.0),
        })],
        200,
    );
    assert_eq!(story, ["70 offered_rps rose 60.0 -> 180 (x3.0)"]);
}

#[test]
fn a_slow_poll_finds_the_same_move() {
    let mut onsets = Onsets::default();
    play(
        &mut onsets,
        0,
        1_200,
        15,
        &[("offered_rps", &|t| Some(if t < 600.0 { 60.0 } else { 180.0 }))],
    );
    let found: Vec<_> = onsets.recent().iter().map(|one| one.at).collect();
    assert_eq!(found, [at(600.0)]);
}

#[test]
fn a_move_is_news_for_a_quarter_of_an_hour() {
    let step = |t: f64| Some(if t < 60.0 { 60.0 } else { 180.0 });
    assert_eq!(told(&[("offered_rps", &step)], 950).len(), 1);
    assert_eq!(told(&[("offered_rps", &step)], 970).len(), 0);
}

fn turn(signal: &str, way: Heading) -> Moved {
    Moved { signal: signal.to_owned(), way }
}

/// Steps of `a` and `b` at these seconds, and what `a rose before b rose` comes to at `now`.
fn order(a: Option<f64>, b: Option<f64>, now: u32) -> Result<bool, Gap> {
    let step = |when: Option<f64>| {
        move |t: f64| Some(if when.is_none_or(|w| t < w) { 60.0 } else { 180.0 })
    };
    let mut onsets = Onsets::default();
    play(&mut onsets, 0, now, 1, &[("offered_rps", &step(a)), ("attempts_rps", &step(b))]);
    let (a, b) = (turn("offered_rps", Heading::Up), turn("attempts_rps", Heading::Up));
    let (ab, ba) = (onsets.sequence(&a, &b), onsets.sequence(&b, &a));
    let yes = |found: &Result<Sequence, Gap>| matches!(found, Ok(Sequence { holds: true, .. }));
    assert!(!(yes(&ab) && yes(&ba)), "both were first: {ab:?}, {ba:?}");
    ab.map(|found| found.holds)
}

#[test]
fn the_order_of_two_moves_is_true_false_or_unknown() {
    assert_eq!(order(Some(100.0), Some(105.0), 160), Ok(true));
    assert_eq!(order(Some(105.0), Some(100.0), 160), Ok(false));
    assert_eq!(order(None, Some(100.0), 160), Ok(false));
    let unknown = |found: Result<bool, Gap>, word: &str| {
        let gap = found.expect_err("unknown").to_string();
        assert!(gap.starts_with(word), "{gap}");
    };
    unknown(order(None, None, 160), "no-data: neither");
    unknown(order(Some(100.0), None, 160), "no-data: not seen yet");
    unknown(order(Some(100.0), Some(101.0), 160), "thin: they moved within 1 s");
    unknown(order(None, Some(100.0), 110), "warming-up: offered_rps may yet");
    unknown(order(None, Some(30.0), 160), "warming-up: offered_rps was not watched");
    unknown(order(None, None, 4), "warming-up");
}

#[test]
fn an_order_does_not_turn_round_when_it_grows_old() {
    let step = |when: f64| move |t: f64| Some(if t < when { 60.0 } else { 180.0 });
    let (a, b) = (step(100.0), step(190.0));
    let mut onsets = Onsets::default();
    let (first, then) = (turn("offered_rps", Heading::Up), turn("attempts_rps", Heading::Up));
    for now in 0..3_000 {
        play(&mut onsets, now, now + 1, 1, &[("offered_rps", &a), ("attempts_rps", &b)]);
        match onsets.sequence(&first, &then) {
            Ok(found) => assert!(found.holds, "at {now}"),
            Err(gap) => assert!(!(200..1_080).contains(&now), "at {now}: {gap}"),
        }
    }
}

#[test]
fn a_signal_that_was_lost_when_the_other_moved_says_nothing() {
    let mut onsets = Onsets::default();
    let lost = |t: f64| (!(90.0..150.0).contains(&t)).then_some(60.0);
    let moved = |t: f64| Some(if t < 120.0 { 60.0 } else { 180.0 });
    play(&mut onsets, 0, 400, 1, &[("offered_rps", &lost), ("attempts_rps", &moved)]);
    let (a, b) = (turn("offered_rps", Heading::Up), turn("attempts_rps", Heading::Up));
    assert!(matches!(onsets.sequence(&a, &b), Err(Gap::WarmingUp(_))));
}

/// A noisy level at 1 Hz, as a source shows it: each reading the mean of `window` seconds.
fn noisy(seed: u64, swing: f64, window: usize, level: &dyn Fn(f64) -> f64, to: u32) -> Vec<f64> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let raw: Vec<f64> = (0..to)
        .map(|t| level(f64::from(t)) * (1.0 + swing * random.random_range(-1.0..1.0)))
        .collect();
    let mean = |end: usize| {
        let part = &raw[end.saturating_sub(window - 1)..=end];
        let count = f64::from(u32::try_from(part.len()).expect("few"));
        part.iter().sum::<f64>() / count
    };
    (0..raw.len()).map(mean).collect()
}

fn moves_of(values: &[f64], shift_s: u32) -> Vec<Onset> {
    let mut onsets = Onsets::default();
    for (second, value) in (shift_s..).zip(values) {
        let mut snapshot = Snapshot::new("scope", 10.0);
        snapshot.set("offered_rps", Value::Number(*value), &Arc::from("test"));
        onsets.step(&snapshot, at(f64::from(second)));
    }
    onsets.recent()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn noise_does_not_move(
        seed in any::<u64>(),
        swing in 0.0..0.6_f64,
        window in 1_usize..12,
        level in 0.5..1e4_f64,
    ) {
        let found = moves_of(&noisy(seed, swing, window, &|_| level, 880), 0);
        prop_assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_step_is_found_where_it_is(
        seed in any::<u64>(),
        swing in 0.0..0.25_f64,
        step_at in 60_u32..500,
        factor in 3.0..50.0_f64,
    ) {
        let step = |t: f64| if t < f64::from(step_at) { 60.0 } else { 60.0 * factor };
        let found = moves_of(&noisy(seed, swing, 10, &step, 600), 0);
        let first = found.first().map_or(f64::MAX, |one| one.at.as_secs_f64());
        let off = first - f64::from(step_at);
        prop_assert!((-3.0..=3.0).contains(&off), "{off}: {found:?}");
        prop_assert_eq!(found.len(), 1);
        let factor_found = found[0].factor().unwrap_or_default();
        prop_assert!((factor_found / factor - 1.0).abs() < 0.3, "{factor_found} of {factor}");
    }

    #[test]
    fn shifting_time_shifts_the_onsets(seed in any::<u64>(), shift_s in 1_u32..100_000) {
        let step = |t: f64| if t < 200.0 { 60.0 } else { 200.0 };
        let values = noisy(seed, 0.2, 10, &step, 400);
        let shifted: Vec<Onset> = moves_of(&values, shift_s);
        let expected: Vec<Onset> = moves_of(&values, 0)
            .into_iter()
            .map(|one| Onset { at: one.at + Duration::from_secs(shift_s.into()), ..one })
            .collect();
        prop_assert_eq!(shifted, expected);
    }

    #[test]
    fn of_two_only_one_is_first(a in 60_u32..200, b in 60_u32..200, now in 60_u32..260) {
        let (a, b) = (f64::from(a), f64::from(b));
        let moved = |s: f64| (s < f64::from(now)).then_some(s);
        // `order` itself asserts that not both are.
        if let Ok(holds) = order(moved(a), moved(b), now) {
            prop_assert_eq!(holds, a < b);
        }
    }

    #[test]
    fn no_value_panics(values in prop::collection::vec(any::<f64>(), 0..60)) {
        moves_of(&values, 0);
    }
}
