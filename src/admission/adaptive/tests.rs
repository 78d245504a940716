//! The rate factor against a provider that grants part of the quota, on a virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

/// Requests per second of the default drill's quota.
const RATE: f64 = 66.7;
/// Seconds after which the right pace must have been found.
const SETTLED_S: usize = 60;

/// A provider with a bucket and some instances with endless work, on a virtual clock. The instances
/// share pace, pause and factor, as they do where one keeper holds them.
struct Loop {
    /// Requests per second of the configured quota.
    rate: f64,
    adaptive: Adaptive,
    pause: Pause,
    /// Our pace: permits and when they were counted.
    pace: (f64, Mono),
    /// The provider's bucket, the same.
    bucket: (f64, Mono),
    /// What the provider's bucket holds at the most, in seconds of the quota.
    bucket_s: f64,
    /// Share of the quota that is ours from when on, in seconds.
    capacity: &'static [(u64, f64)],
    random: Pcg64Mcg,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Try(u32),
    /// A result, or a refusal that asks for a pause.
    Answer {
        pause: Option<Duration>,
        started: Mono,
    },
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    factor: f64,
    good: u32,
    refused: u32,
}

impl Loop {
    fn new(rate: f64, capacity: &'static [(u64, f64)], bucket_s: f64, seed: u64) -> Self {
        Self {
            rate,
            adaptive: Adaptive::default(),
            pause: Pause::default(),
            pace: (0.0, Mono::START),
            bucket: ((bucket_s.min(1.0) * rate).max(1.0), Mono::START),
            bucket_s,
            capacity,
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    fn run(mut self, instances: u32, seconds: u64) -> Vec<Second> {
        let mut log = Vec::new();
        let mut second = Second::default();
        let mut events: BinaryHeap<_> =
            (0..instances).map(|instance| Reverse((Mono::START, Event::Try(instance)))).collect();
        while let Some(Reverse((now, event))) = events.pop() {
            while (log.len() as u64) < now.since_start().as_secs().min(seconds) {
                second.factor = self.adaptive.factor();
                log.push(std::mem::take(&mut second));
            }
            if log.len() as u64 == seconds {
                break;
            }
            match event {
                Event::Try(_) => {
                    let (again, answer) = self.attempt(now);
                    events.push(Reverse((again, event)));
                    events.extend(answer.map(Reverse));
                }
                Event::Answer { pause, started } => {
                    self.adaptive.heard(pause.is_some(), started, now);
                    second.good += u32::from(pause.is_none());
                    second.refused += u32::from(pause.is_some());
                    if let Some(span) = pause {
                        self.pause.extend(span, now);
                        self.pace.0 = self.pace.0.min(0.0);
                    }
                }
            }
        }
        log
    }

    /// Sends one request if pause and pace allow it. When to try again, and the answer to come.
    fn attempt(&mut self, now: Mono) -> (Mono, Option<(Mono, Event)>) {
        let uniform = self.random.random::<f64>();
        if !self.pause.left(now).is_zero() {
            return (self.pause.wake(uniform), None);
        }
        let rate = self.rate * self.adaptive.factor();
        let since = self.pace.1.max(self.pause.until());
        let level =
            (self.pace.0 + rate * now.saturating_since(since).as_secs_f64()).min(rate.max(1.0));
        if level < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - level) / rate);
            return (now + wait.max(Duration::from_micros(10)), None);
        }
        self.pace = (level - 1.0, now);
        let fits = self.charge(now);
        let latency_ms = if fits.is_ok() { 150.0 + 350.0 * uniform } else { 5.0 + 15.0 * uniform };
        let answered = now + Duration::from_secs_f64(latency_ms / 1_000.0);
        let pause = fits.err().map(|wait| wait.mul_f64(1.0 + 0.25 * uniform));
        (now, Some((answered, Event::Answer { pause, started: now })))
    }

    fn charge(&mut self, now: Mono) -> Result<(), Duration> {
        let second = now.since_start().as_secs();
        let share = self.capacity.iter().rev().find(|(from, _)| *from <= second).expect("from 0").1;
        let granted = self.rate * share;
        let gained = granted * now.saturating_since(self.bucket.1).as_secs_f64();
        self.bucket = ((self.bucket.0 + gained).min((self.rate * self.bucket_s).max(1.0)), now);
        if self.bucket.0 < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.bucket.0) / granted));
        }
        self.bucket.0 -= 1.0;
        Ok(())
    }
}

/// The mean of a value over a stretch of seconds.
impl Adaptive {
    /// An answer to a call that has just started.
    fn answered(&mut self, refused: bool, now: Mono) -> bool {
        self.heard(refused, now, now)
    }
}

fn mean(log: &[Second], value: impl Fn(&Second) -> f64) -> f64 {
    log.iter().map(value).sum::<f64>() / f64::from(u32::try_from(log.len()).expect("short"))
}

fn check_steady(share: f64, capacity: &'static [(u64, f64)], bucket_s: f64, instances: u32) {
    let log = Loop::new(RATE, capacity, bucket_s, 7).run(instances, 600);
    let told = format!("{share} of the quota, a bucket of {bucket_s} s, {instances} instances");
    let (settling, steady) = log.split_at(SETTLED_S);
    let refused: u32 = settling.iter().map(|second| second.refused).sum();
    assert!(refused <= 140, "{told}: {refused} refused while it settled");
    let factor = mean(steady, |second| second.factor);
    for second in steady {
        let swing = second.factor / factor - 1.0;
        assert!(swing.abs() < 0.05, "{told}: {} against a mean of {factor}", second.factor);
    }
    let granted = RATE * share;
    let refused = mean(steady, |second| f64::from(second.refused)) / granted;
    assert!(refused < 0.01, "{told}: {refused} refused");
    let used = mean(steady, |second| f64::from(second.good)) / granted;
    assert!(used > 0.95, "{told}: {used} used");
}

#[test]
fn it_settles_at_what_is_granted_and_does_not_swing() {
    for bucket_s in [1.0, 60.0] {
        for instances in [1, 4] {
            check_steady(0.3, &[(0, 0.3)], bucket_s, instances);
            check_steady(0.6, &[(0, 0.6)], bucket_s, instances);
            check_steady(0.8, &[(0, 0.8)], bucket_s, instances);
            check_steady(1.0, &[(0, 1.0)], bucket_s, instances);
        }
    }
}

#[test]
fn it_makes_room_for_a_foreign_user_and_takes_the_room_back() {
    for instances in [1, 4] {
        let log = Loop::new(RATE, &[(0, 1.0), (200, 0.6), (500, 1.0)], 1.0, 7).run(instances, 700);
        assert!(log[199].factor > 0.999, "nothing to adapt to");
        let settled = log[200..].iter().position(|second| second.factor < 0.63);
        assert!(settled.is_some_and(|seconds| seconds < 15), "{settled:?} s to make room");
        let refused: u32 = log[200..500].iter().map(|second| second.refused).sum();
        assert!(refused < 120, "{refused} refused, of 12,000");
        let back = log[500..].iter().position(|second| second.factor > 0.99);
        assert!(back.is_some_and(|seconds| seconds < 120), "{back:?} s to come back");
    }
}

#[test]
fn a_slow_scope_swings_no_more_but_pays_more_refusals() {
    let steady = &Loop::new(1.0, &[(0, 0.6)], 1.0, 7).run(1, 1_200)[300..];
    let refused = mean(steady, |second| f64::from(second.refused)) / 0.6;
    assert!(refused < 0.1, "{refused}");
    let used = mean(steady, |second| f64::from(second.good)) / 0.6;
    assert!(used > 0.9, "{used}");
}

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

/// One refusal after the other until the rate is cut; at this instant.
fn cut(adaptive: &mut Adaptive, now: Mono) {
    let before = adaptive.factor();
    (0..10).find(|_| adaptive.heard(true, now, now) && adaptive.factor() < before);
}

#[test]
fn one_refusal_is_noise_and_a_second_soon_after_is_not() {
    for (answers_between, cuts) in [(0, true), (150, true), (200, false)] {
        let mut adaptive = Adaptive::default();
        adaptive.answered(true, at(1.0));
        assert!((adaptive.factor() - 1.0).abs() < 1e-9);
        for _ in 0..answers_between {
            adaptive.answered(false, at(1.1));
        }
        adaptive.answered(true, at(1.2));
        assert_eq!(adaptive.factor() < 1.0, cuts, "{answers_between} good answers between");
    }
}

#[test]
fn what_was_sent_at_the_old_pace_does_not_cut_the_new_one() {
    let mut adaptive = Adaptive::default();
    cut(&mut adaptive, at(1.0));
    let factor = adaptive.factor();
    for _ in 0..100 {
        adaptive.heard(true, at(0.999), at(2.5));
    }
    assert!((adaptive.factor() - factor).abs() < 1e-9);
    adaptive.heard(true, at(1.5), at(2.5));
    adaptive.heard(true, at(1.5), at(2.5));
    assert!(adaptive.factor() < factor);
}

#[test]
fn a_cooldown_lies_between_two_cuts() {
    for (after_s, cuts) in [(0.999, false), (1.0, true)] {
        let mut adaptive = Adaptive::default();
        cut(&mut adaptive, at(1.0));
        let factor = adaptive.factor();
        cut(&mut adaptive, at(1.0 + after_s));
        assert_eq!(adaptive.factor() < factor, cuts, "after {after_s} s");
    }
}

#[test]
fn a_cut_is_as_deep_as_the_strain_within_bounds() {
    for (refused_in_cooldown, factor) in [(2, 0.96), (10, 0.91), (1_000, 0.7)] {
        let mut adaptive = Adaptive::default();
        cut(&mut adaptive, at(1.0));
        let first = adaptive.factor();
        for _ in 1..refused_in_cooldown {
            adaptive.heard(true, at(1.0), at(1.9));
        }
        adaptive.heard(true, at(1.0), at(2.0));
        let left = adaptive.factor() / first;
        assert!((left - factor).abs() < 0.01, "{refused_in_cooldown} refused leave {left}");
    }
    let mut adaptive = Adaptive::default();
    for second in 0..100 {
        cut(&mut adaptive, at(f64::from(second)));
    }
    assert!((adaptive.factor() - 0.1).abs() < 1e-9);
}

#[test]
fn one_success_vouches_for_a_second_and_five_seconds_raise_nothing() {
    let mut adaptive = Adaptive::default();
    cut(&mut adaptive, at(1.0));
    let factor = adaptive.factor();
    for hour in 1..=5 {
        adaptive.answered(false, at(3_600.0 * f64::from(hour)));
        assert!((adaptive.factor() - factor).abs() < 1e-9, "hour {hour}");
    }
    adaptive.answered(false, at(3_600.0 * 6.0));
    assert!(adaptive.factor() > factor);
    assert!(adaptive.factor() < 1.0, "an idle hour proves nothing");
}

#[test]
fn frozen_it_stays_where_it_is() {
    let mut adaptive = Adaptive::default();
    cut(&mut adaptive, at(1.0));
    let factor = adaptive.factor();
    adaptive.freeze(true);
    for second in 2..200 {
        adaptive.answered(second % 3 == 0, at(f64::from(second)));
    }
    assert!((adaptive.factor() - factor).abs() < 1e-9);
    adaptive.freeze(false);
    for second in 200..400 {
        adaptive.answered(false, at(f64::from(second)));
    }
    assert!((adaptive.factor() - 1.0).abs() < 1e-9);
}

#[test]
fn a_pause_is_never_shortened_and_instances_wake_apart() {
    let mut pause = Pause::default();
    assert!(pause.left(at(0.0)).is_zero());
    pause.extend(Duration::from_secs(4), at(10.0));
    pause.extend(Duration::from_secs(1), at(11.0));
    assert_eq!((pause.until(), pause.left(at(13.0))), (at(14.0), Duration::from_secs(1)));
    assert_eq!((pause.wake(0.0), pause.wake(1.0)), (at(14.0), at(14.4)));
    pause.extend(Duration::from_mins(1), at(12.0));
    assert_eq!((pause.wake(0.0), pause.wake(1.0)), (at(72.0), at(73.0)), "at most a second");
    pause.extend(Duration::from_secs(1), at(72.0));
    assert_eq!(pause.wake(1.0), at(73.1), "a new pause has a length of its own");
}

proptest! {
    #[test]
    fn it_stays_in_bounds_and_only_refusals_lower_it(
        answers in prop::collection::vec((any::<bool>(), 0_u32..5_000, 0_u32..2_000), 1..300),
    ) {
        let mut adaptive = Adaptive::default();
        let mut now = Mono::START;
        for (refused, gap_ms, latency_ms) in answers {
            now = now + Duration::from_millis(gap_ms.into());
            let before = adaptive.factor();
            adaptive.heard(refused, now - Duration::from_millis(latency_ms.into()), now);
            let factor = adaptive.factor();
            let (low, high) = if refused { (FLOOR, before) } else { (before, 1.0) };
            prop_assert!((low..=high).contains(&factor));
        }
    }

    #[test]
    fn nobody_wakes_before_the_pause_is_over(
        spans in prop::collection::vec((0_u64..100_000, 0_u64..50_000), 1..30),
        uniform in -0.5_f64..1.5,
    ) {
        let mut pause = Pause::default();
        let mut now = Mono::START;
        for (span_ms, gap_ms) in spans {
            now = now + Duration::from_millis(gap_ms);
            let before = pause.until();
            pause.extend(Duration::from_millis(span_ms), now);
            prop_assert!(pause.until() >= before.max(now + Duration::from_millis(span_ms)));
            prop_assert!(pause.wake(uniform) >= pause.until());
            prop_assert!(pause.wake(uniform) <= pause.until() + Duration::from_secs(1));
        }
    }
}
