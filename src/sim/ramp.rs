//! A provider's rule for growth: above a free rate, no more than so many times what was used a while ago.
//!
//! Providers publish such rules of thumb ("at most 50% more per 15 minutes above 1 M tokens a minute")
//! and refuse what breaks them inside every limit. Knows nothing of limits.

use std::collections::VecDeque;
use std::time::Duration;

use crate::signal::Mono;
use crate::sim::config::RampConfig;

/// Slots that one period is counted in.
const SLOTS: usize = 60;

/// How much may be used in the running slot.
#[derive(Clone, Debug)]
pub(super) struct Ramp {
    growth: f64,
    free_per_slot: f64,
    slot: Duration,
    /// What was used in each slot of the last period, oldest first.
    before: VecDeque<u64>,
    used: u64,
    ends: Mono,
}

impl Ramp {
    #[expect(clippy::cast_precision_loss, reason = "rates stay far below 2^53")]
    pub(super) fn new(config: &RampConfig, now: Mono) -> Self {
        let slot = Mono::from_secs_f64(config.per_s / SLOTS as f64).since_start();
        let per_s = config.tokens_per_minute.get() as f64 / 60.0;
        Self {
            growth: config.growth,
            free_per_slot: per_s * slot.as_secs_f64(),
            slot,
            before: VecDeque::from([0; SLOTS]),
            used: 0,
            ends: now + slot,
        }
    }

    pub(super) fn advance(&mut self, now: Mono) {
        // After a whole period without calls every slot is empty anyway.
        for _ in 0..=SLOTS {
            if self.ends > now {
                return;
            }
            self.before.pop_front();
            self.before.push_back(std::mem::take(&mut self.used));
            self.ends = self.ends + self.slot;
        }
        self.ends = now + self.slot;
    }

    /// Time until so many tokens may pass; `None`: now.
    pub(super) fn wait(&self, tokens: u64, now: Mono) -> Option<Duration> {
        let fits = as_f64(self.used.saturating_add(tokens)) <= self.allowed() || self.used == 0;
        (!fits).then(|| self.ends.saturating_since(now))
    }

    pub(super) const fn take(&mut self, tokens: u64) {
        self.used = self.used.saturating_add(tokens);
    }

    fn allowed(&self) -> f64 {
        let before = self.before.front().map_or(0.0, |used| as_f64(*used));
        self.growth * before.max(self.free_per_slot)
    }
}

#[expect(clippy::cast_precision_loss, reason = "tokens of one slot stay far below 2^53")]
const fn as_f64(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens a second that pass when more than enough is asked for, in each second.
    fn passed(config: &RampConfig, seconds: u64) -> Vec<u64> {
        let mut ramp = Ramp::new(config, Mono::START);
        let one_second = |second: u64| {
            let now = Mono::from_start(Duration::from_secs(second));
            ramp.advance(now);
            let fits = |ramp: &mut Ramp| {
                let fits = ramp.wait(10, now).is_none();
                if fits {
                    ramp.take(10);
                }
                fits
            };
            (0..1_000).filter(|_| fits(&mut ramp)).count() as u64 * 10
        };
        (0..seconds).map(one_second).collect()
    }

    #[test]
    fn each_period_carries_so_many_times_the_one_before() {
        let text = "tokens_per_minute = 6000\ngrowth = 1.5\nper_s = 60";
        let config: RampConfig = toml::from_str(text).expect("it fits the types");
        let passed = passed(&config, 180);
        assert_eq!([passed[0], passed[59]], [150, 150], "100 a second are free, and half again");
        assert_eq!([passed[60], passed[119]], [220, 220]);
        assert_eq!([passed[120], passed[179]], [330, 330]);
    }

    #[test]
    fn after_a_calm_it_starts_anew_and_the_wait_is_that_for_the_next_slot() {
        let text = "tokens_per_minute = 6000\ngrowth = 1.0\nper_s = 60";
        let config: RampConfig = toml::from_str(text).expect("it fits the types");
        let mut ramp = Ramp::new(&config, Mono::START);
        ramp.take(5_000);
        let late = Mono::from_secs_f64(1_000.25);
        ramp.advance(late);
        assert_eq!(ramp.wait(5_000, late), None, "the first of a slot always passes");
        ramp.take(100);
        assert_eq!(ramp.wait(1, late), Some(Duration::from_secs(1)));
    }
}
