//! The ramp by its rules, and that no evidence brings it to a level that they do not allow.

use proptest::prelude::*;

use super::*;

const GOOD: Evidence =
    Evidence { amplification: Some(1.05), refused: Some(0.002), oldest_age_s: Some(0.4) };

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn rounded(level: f64) -> f64 {
    (level * 1_000.0).round() / 1_000.0
}

/// Feeds a ramp the same evidence every ten seconds; the levels that it went to, and when.
fn levels(ramp: &mut Ramp, evidence: Evidence, from_s: u32, to_s: u32) -> Vec<(u32, f64)> {
    (from_s..to_s)
        .step_by(10)
        .filter_map(|second| {
            let level = ramp.observe(&evidence, at(second.into()))?;
            Some((second, rounded(level)))
        })
        .collect()
}

#[test]
fn it_goes_up_by_steps_that_are_held() {
    let mut ramp = Ramp::new(RampPlan::default(), 1.0, Mono::START);
    assert!((ramp.level() - 0.5).abs() < 1e-9);
    let up = levels(&mut ramp, GOOD, 0, 1_200);
    assert_eq!(up, [(120, 0.6), (240, 0.7), (360, 0.8), (480, 0.9), (600, 1.0)]);
    assert!(ramp.is_over(at(720.0)));
    assert!(!ramp.is_over(at(719.0)), "the whole is held too");
}

#[test]
fn the_hold_is_the_longest_of_what_must_pass() {
    let seconds = Duration::from_secs;
    for (window_s, timeout_s, cooldown_s, hold_s) in
        [(60, 60, 60, 120), (60, 300, 60, 300), (60, 60, 240, 240), (1, 1, 1, 15)]
    {
        let plan = RampPlan {
            quota_window: seconds(window_s),
            client_timeout: seconds(timeout_s),
            cooldown: seconds(cooldown_s),
            ..RampPlan::default()
        };
        assert_eq!(plan.hold(), seconds(hold_s));
        let mut ramp = Ramp::new(plan, 0.3, Mono::START);
        ramp.observe(&GOOD, Mono::START);
        let end = Mono::START + seconds(hold_s);
        assert_eq!(ramp.observe(&GOOD, end - Duration::from_nanos(1)), None);
        assert!(ramp.observe(&GOOD, end).is_some());
    }
}

#[test]
fn a_failed_step_goes_down_two_and_halves_the_step() {
    let mut ramp = Ramp::new(RampPlan::default(), 0.5, Mono::START);
    assert_eq!(levels(&mut ramp, GOOD, 0, 250), [(120, 0.6), (240, 0.7)]);
    let refused = Evidence { refused: Some(0.02), ..GOOD };
    assert_eq!(levels(&mut ramp, refused, 250, 370), [(360, 0.5)]);
    assert!((ramp.step() - 0.05).abs() < 1e-9);
    assert_eq!(levels(&mut ramp, GOOD, 370, 610), [(480, 0.55), (600, 0.6)]);
}

#[test]
fn each_sign_alone_stops_it_and_what_is_unknown_holds_it() {
    let older = Some(1.5);
    for (evidence, up, why) in [
        (GOOD, Some(0.6), "all is well"),
        (Evidence { amplification: Some(1.1), ..GOOD }, Some(0.3), "retries"),
        (Evidence { refused: Some(0.01), ..GOOD }, Some(0.3), "refusals"),
        (Evidence { oldest_age_s: older, ..GOOD }, Some(0.3), "the queue grows"),
        (Evidence { amplification: None, ..GOOD }, None, "unknown"),
        (Evidence { refused: None, ..GOOD }, None, "unknown"),
        (Evidence { oldest_age_s: None, ..GOOD }, None, "unknown"),
        (Evidence { amplification: None, refused: Some(0.5), ..GOOD }, Some(0.3), "one is enough"),
        (Evidence { amplification: Some(f64::NAN), ..GOOD }, Some(0.3), "no number is not good"),
    ] {
        let mut ramp = Ramp::new(RampPlan::default(), 0.5, Mono::START);
        ramp.observe(&GOOD, at(1.0));
        let level = ramp.observe(&evidence, at(120.0));
        assert_eq!(level.map(rounded), up, "{why}: {evidence:?}");
    }
    let mut ramp = Ramp::new(RampPlan::default(), 0.5, Mono::START);
    assert_eq!(ramp.observe(&GOOD, at(500.0)), None, "one reading of an age is not flat");
    assert_eq!(ramp.observe(&GOOD, at(501.0)).map(rounded), Some(0.6));
}

#[test]
fn an_age_is_flat_within_a_second_or_a_tenth() {
    for (before_s, age_s, flat) in
        [(0.0, 1.0, true), (0.0, 1.1, false), (20.0, 22.0, true), (20.0, 22.1, false)]
    {
        let mut ramp = Ramp::new(RampPlan::default(), 0.5, Mono::START);
        ramp.observe(&Evidence { oldest_age_s: Some(before_s), ..GOOD }, at(1.0));
        ramp.observe(&Evidence { oldest_age_s: Some(age_s), ..GOOD }, at(120.0));
        assert_eq!(ramp.level() > 0.5, flat, "{before_s} s, then {age_s} s");
    }
}

#[test]
fn a_loop_that_runs_again_is_not_waited_for() {
    let looping = Evidence { amplification: Some(1.3), ..GOOD };
    let mut ramp = Ramp::new(RampPlan::default(), 0.5, Mono::START);
    assert_eq!(levels(&mut ramp, looping, 0, 130), [(60, 0.3), (120, 0.2)]);
    let plan = RampPlan { quota_window: Duration::from_secs(1), ..RampPlan::default() };
    let mut ramp = Ramp::new(plan, 0.5, Mono::START);
    assert_eq!(ramp.observe(&looping, at(14.9)), None, "not for less than the shortest hold");
    assert_eq!(ramp.observe(&looping, at(15.0)).map(rounded), Some(0.3));
    let strained = Evidence { amplification: Some(1.29), ..GOOD };
    let mut ramp = Ramp::new(RampPlan::default(), 0.5, Mono::START);
    assert_eq!(levels(&mut ramp, strained, 0, 130), [(120, 0.3)]);
}

#[test]
fn growth_is_limited_where_the_provider_asks_for_it() {
    let plan = RampPlan { step: 0.25, limit_growth: true, ..RampPlan::default() };
    let mut ramp = Ramp::new(plan, 0.2, Mono::START);
    let up = levels(&mut ramp, GOOD, 0, 3_600);
    // Half as much again; the next only when the lower level is a quarter of an hour away.
    assert_eq!(up, [(120, 0.3), (1_020, 0.45), (1_920, 0.675), (2_820, 0.925), (2_940, 1.0)]);
}

#[test]
fn nonsense_is_taken_as_a_bound() {
    for (admitted, step, level, size) in [
        (f64::NAN, 0.1, 0.5, 0.1),
        (-1.0, 9.0, 0.05, 0.25),
        (0.2, 0.0, 0.2, 0.1),
        (0.5, f64::NAN, 0.5, 0.1),
    ] {
        let ramp = Ramp::new(RampPlan { step, ..RampPlan::default() }, admitted, Mono::START);
        assert!((ramp.level() - level).abs() < 1e-9, "{admitted}");
        assert!((ramp.step() - size).abs() < 1e-9, "{step}");
    }
}

fn sign(high: f64) -> impl Strategy<Value = Option<f64>> {
    prop::option::weighted(0.9, 0.0..high)
}

proptest! {
    #[test]
    fn every_level_is_in_bounds_held_and_reached_by_the_rules(
        steps in prop::collection::vec((sign(1.4), sign(0.02), sign(2.0), 0_u32..90), 1..400),
        admitted in 0.0..1.0_f64,
        limit_growth in any::<bool>(),
    ) {
        let plan = RampPlan { limit_growth, ..RampPlan::default() };
        let mut ramp = Ramp::new(plan, admitted, Mono::START);
        let mut begun = vec![(Mono::START, ramp.level())];
        let mut now = Mono::START;
        for (amplification, refused, oldest_age_s, gap_s) in steps {
            now = now + Duration::from_secs(gap_s.into());
            let evidence = Evidence { amplification, refused, oldest_age_s };
            let (before, step) = (ramp.level(), ramp.step());
            let held = now.saturating_since(begun.last().expect("the start").0);
            let Some(level) = ramp.observe(&evidence, now) else {
                prop_assert!((ramp.level() - before).abs() < 1e-12);
                continue;
            };
            prop_assert!((FLOOR..=1.0).contains(&level));
            prop_assert!((STEP_MIN..=step).contains(&ramp.step()), "a step never grows");
            if level > before {
                prop_assert!(held >= plan.hold());
                prop_assert!(level <= before + step + 2.0 * ROUNDING);
                prop_assert!(amplification.is_some_and(|value| value < AMPLIFICATION_MAX));
                prop_assert!(refused.is_some_and(|value| value < REFUSED_MAX));
                for (since, lower) in &begun {
                    let recent = *since > now - GROWTH_SPAN;
                    prop_assert!(!limit_growth || !recent || level <= lower * GROWTH_MAX + 1e-12);
                }
            } else {
                prop_assert!(held >= plan.quota_window);
                prop_assert!((level - (before - 2.0 * step).max(FLOOR)).abs() < 1e-12);
            }
            begun.push((now, level));
        }
    }
}
