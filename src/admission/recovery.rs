//! Decides how an operator's cut is taken back: by steps, each held and judged before the next.
//!
//! Changes nothing itself: it proposes levels, as shares of normal. The steps and the stop rule are
//! drawn from published incidents: start below the edge and not at it, because meters and caches must
//! refill; go on only while the loop stays broken; after a failed step go down two and halve the step
//! (Slack, 22 February 2022: the first raise was too large, smaller ones held). The limit of half as
//! much again in a quarter of an hour is a provider's rule of thumb for large accounts.
//!
//! What is not known is never taken for good: without evidence the level is held.

use std::collections::VecDeque;
use std::time::Duration;

use crate::signal::Mono;

#[cfg(test)]
mod tests;

/// Highest level at which a ramp begins.
const START_MAX: f64 = 0.5;
/// What makes up for ten steps of a tenth that come to a little less than the whole.
const ROUNDING: f64 = 1e-12;
/// Lowest level: something must pass, or nothing is learned.
const FLOOR: f64 = 0.05;
/// Smallest step, however often one failed.
const STEP_MIN: f64 = 0.01;
/// The configurable size of a step.
const STEP: std::ops::RangeInclusive<f64> = 0.1..=0.25;
/// Shortest hold of a level, and soonest end of a bad one.
const HOLD_MIN: Duration = Duration::from_secs(15);
/// The span of the growth limit, and its size.
const GROWTH_SPAN: Duration = Duration::from_mins(15);
const GROWTH_MAX: f64 = 1.5;
/// Levels that are remembered: [`HOLD_MIN`] lets no more come about within [`GROWTH_SPAN`].
const LEVELS_MAX: usize = 61;
/// Attempts per original from which on a step has failed.
const AMPLIFICATION_MAX: f64 = 1.1;
/// Attempts per original from which on the loop runs again: no hold is waited for.
const LOOP: f64 = 1.3;
/// Refusals per attempt from which on a step has failed.
const REFUSED_MAX: f64 = 0.01;
/// The oldest age is flat when it has grown by no more than this share ...
const AGE_GROWTH: f64 = 0.1;
/// ... or by no more than this, in seconds.
const AGE_SLACK_S: f64 = 1.0;

/// How a ramp is to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampPlan {
    /// Size of a step as a share of normal, 0.1 to 0.25; what lies outside is taken as the bound.
    pub step: f64,
    /// The provider's quota window. Two of them must pass at each step.
    pub quota_window: Duration,
    /// How long clients wait. What they do about a step shows only afterwards.
    pub client_timeout: Duration,
    /// The longest cooldown of breakers and limiters on the way.
    pub cooldown: Duration,
    /// Never above half as much again in fifteen minutes.
    pub limit_growth: bool,
}

impl Default for RampPlan {
    fn default() -> Self {
        Self {
            step: 0.1,
            quota_window: Duration::from_mins(1),
            client_timeout: Duration::from_mins(1),
            cooldown: Duration::from_mins(1),
            limit_growth: false,
        }
    }
}

impl RampPlan {
    /// How long each level is held.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.quota_window
            .saturating_mul(2)
            .max(self.client_timeout)
            .max(self.cooldown)
            .max(HOLD_MIN)
    }
}

/// What was seen of late, over one quota window. `None` is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Attempts per original.
    pub amplification: Option<f64>,
    /// Refusals per attempt, 0 to 1.
    pub refused: Option<f64>,
    /// Age of the oldest request that waits.
    pub oldest_age_s: Option<f64>,
}

/// How a level stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Good,
    Bad,
    Unknown,
}

/// The way back from one cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Ramp {
    plan: RampPlan,
    level: f64,
    step: f64,
    held_since: Mono,
    /// The first known oldest age of this level, and when it was seen.
    first_age_s: Option<(Mono, f64)>,
    /// Levels and when they began, oldest first; the current one is the last.
    levels: VecDeque<(Mono, f64)>,
}

impl Ramp {
    /// Begins at half of normal, or at what is admitted now if that is less.
    #[must_use]
    pub fn new(plan: RampPlan, admitted: f64, now: Mono) -> Self {
        #[expect(clippy::manual_clamp, reason = "what is not a number becomes a bound")]
        let level = admitted.min(START_MAX).max(FLOOR);
        Self {
            plan,
            level,
            step: plan.step.max(*STEP.start()).min(*STEP.end()),
            held_since: now,
            first_age_s: None,
            levels: VecDeque::from([(now, level)]),
        }
    }

    /// The share of normal that may be admitted.
    #[must_use]
    pub const fn level(&self) -> f64 {
        self.level
    }

    /// The size of the next step.
    #[must_use]
    pub const fn step(&self) -> f64 {
        self.step
    }

    /// When the level will have been held for long enough.
    #[must_use]
    pub fn held_until(&self) -> Mono {
        self.held_since + self.plan.hold()
    }

    /// Whether everything is admitted again and has been for long enough.
    #[must_use]
    pub fn is_over(&self, now: Mono) -> bool {
        self.level >= 1.0 && now >= self.held_until()
    }

    /// The new level, if it is time for one: one step up after a good hold, two down after a bad one.
    pub fn observe(&mut self, evidence: &Evidence, now: Mono) -> Option<f64> {
        self.first_age_s = self.first_age_s.or(evidence.oldest_age_s.map(|age_s| (now, age_s)));
        let held = now.saturating_since(self.held_since);
        let looping = evidence.amplification.is_some_and(|amplification| amplification >= LOOP)
            && held >= self.plan.quota_window.max(HOLD_MIN);
        if held < self.plan.hold() && !looping {
            return None;
        }
        match self.judge(evidence, now) {
            Judgement::Unknown => None,
            Judgement::Good => {
                let higher = (self.level + self.step + ROUNDING).min(self.highest(now));
                (higher > self.level).then(|| self.enter(higher, now))
            }
            Judgement::Bad => {
                let before = self.level;
                self.enter((before - 2.0 * self.step).max(FLOOR), now);
                self.step = (self.step / 2.0).max(STEP_MIN);
                (self.level < before).then_some(self.level)
            }
        }
    }

    fn enter(&mut self, level: f64, now: Mono) -> f64 {
        (self.level, self.held_since, self.first_age_s) = (level, now, None);
        if self.levels.len() == LEVELS_MAX {
            self.levels.pop_front();
        }
        self.levels.push_back((now, level));
        level
    }

    /// One bad sign is enough to stop; all must be known, and good, to go on.
    fn judge(&self, evidence: &Evidence, now: Mono) -> Judgement {
        let before_s = self.first_age_s.filter(|(seen, _)| *seen < now).map(|(_, age_s)| age_s);
        let flat = before_s.zip(evidence.oldest_age_s).map(|(before_s, age_s)| {
            age_s <= (before_s + AGE_SLACK_S).max(before_s * (1.0 + AGE_GROWTH))
        });
        let signs = [
            evidence.amplification.map(|amplification| amplification < AMPLIFICATION_MAX),
            evidence.refused.map(|refused| refused < REFUSED_MAX),
            flat,
        ];
        if signs.contains(&Some(false)) {
            Judgement::Bad
        } else if signs.contains(&None) {
            Judgement::Unknown
        } else {
            Judgement::Good
        }
    }

    /// The highest level that may begin now.
    fn highest(&self, now: Mono) -> f64 {
        if !self.plan.limit_growth {
            return 1.0;
        }
        let span = now - GROWTH_SPAN;
        let begun = self.levels.iter().rposition(|(since, _)| *since <= span).unwrap_or(0);
        let lowest = self.levels.iter().skip(begun).map(|(_, level)| *level);
        lowest.fold(1.0, |highest, level| (level * GROWTH_MAX).min(highest))
    }
}
