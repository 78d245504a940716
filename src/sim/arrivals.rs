//! When originals arrive: an open loop, so that a slow answer never slows the questions.
//!
//! A Poisson process whose rate changes in steps. Since it has no memory, the gap that crosses a step
//! is drawn anew from the step's instant; that is exact, not an approximation. Sizes, lanes and tenants
//! come from the same generator: the same seed gives the same bits.

use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::signal::{Mono, Tokens};
use crate::sim::config::{ConfigError, check_ascending, within};
use crate::sim::rng;

/// Highest rate that is simulated.
const RATE_MAX: f64 = 100_000.0;
/// Largest original, in tokens.
const TOKENS_MAX: f64 = 1_000_000.0;

/// The traffic of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalsConfig {
    /// How large an original is.
    pub tokens: TokenRange,
    /// Share of originals in the batch lane.
    #[serde(default)]
    pub batch_ratio: f64,
    /// How many originals per second from when, oldest first.
    pub steps: Vec<RateStep>,
    /// Who asks; absent means one tenant, `default`.
    #[serde(default)]
    pub tenants: Vec<TenantShare>,
}

/// A rate from an instant on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// The phase that begins here.
    pub name: String,
    /// Seconds after the start.
    pub at_s: f64,
    /// Originals per second.
    pub rate: f64,
}

/// Sizes of originals, uniformly between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRange {
    /// Fewest tokens.
    pub min: u32,
    /// Most tokens.
    pub max: u32,
}

/// One tenant's part of the traffic.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantShare {
    /// Its name.
    pub name: String,
    /// Its weight among the tenants.
    pub weight: f64,
}

impl ArrivalsConfig {
    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.steps.is_empty() {
            return Err(ConfigError {
                key: "steps".to_owned(),
                problem: "there are none".to_owned(),
                allowed: "at least one step with name, at_s and rate",
            });
        }
        check_ascending("steps", self.steps.iter().map(|step| step.at_s))?;
        for (index, step) in self.steps.iter().enumerate() {
            let key = format!("steps[{index}].rate");
            within(&key, step.rate, 0.0, RATE_MAX, "originals per second, 0 to 100000")?;
        }
        let (min, max) = (f64::from(self.tokens.min), f64::from(self.tokens.max));
        within("tokens.min", min, 1.0, TOKENS_MAX, "1 to 1000000 tokens")?;
        within("tokens.max", max, min, TOKENS_MAX, "from tokens.min to 1000000 tokens")?;
        within("batch_ratio", self.batch_ratio, 0.0, 1.0, "a share from 0 to 1")?;
        for (index, tenant) in self.tenants.iter().enumerate() {
            let key = format!("tenants[{index}].weight");
            within(&key, tenant.weight, 1e-6, 1e6, "a weight above 0, up to 1000000")?;
        }
        Ok(())
    }

    /// The name of a tenant by its index in [`Arrival::tenant`].
    #[must_use]
    pub fn tenant_name(&self, index: usize) -> &str {
        self.tenants.get(index).map_or("default", |tenant| tenant.name.as_str())
    }
}

/// The priority class of an original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A person waits.
    Interactive,
    /// Nobody waits.
    Batch,
}

/// One original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives.
    pub at: Mono,
    /// Its number, from 0.
    pub index: u64,
    /// Its size.
    pub tokens: Tokens,
    /// Its lane.
    pub lane: Lane,
    /// Index into the configured tenants.
    pub tenant: usize,
}

/// The endless stream of originals of one seed.
#[derive(Clone, Debug)]
pub struct Arrivals {
    config: ArrivalsConfig,
    weights: f64,
    random: Pcg64,
    /// Instant up to which the process has been drawn.
    at: Mono,
    /// Index of the step that follows the one in force.
    upcoming: usize,
    index: u64,
}

impl Arrivals {
    /// The arrivals of `seed`, from a checked configuration.
    #[must_use]
    pub fn new(config: ArrivalsConfig, seed: u64) -> Self {
        let weights = config.tenants.iter().map(|tenant| tenant.weight).sum();
        let random = rng::seeded(seed, rng::Stream::Arrivals);
        Self { config, weights, random, at: Mono::START, upcoming: 0, index: 0 }
    }

    fn rate(&self) -> f64 {
        self.upcoming.checked_sub(1).map_or(0.0, |current| self.config.steps[current].rate)
    }

    /// The instant of the next original; `None` when the last step's rate is zero.
    fn next_instant(&mut self) -> Option<Mono> {
        loop {
            let step_at =
                self.config.steps.get(self.upcoming).map(|step| Mono::from_secs_f64(step.at_s));
            let rate = self.rate();
            if rate > 0.0 {
                // 1 - [0, 1) lies in (0, 1], so the logarithm is finite.
                let gap_s = -(1.0 - self.random.random::<f64>()).ln() / rate;
                let at = self.at + Duration::try_from_secs_f64(gap_s).unwrap_or(Duration::MAX);
                if step_at.is_none_or(|step_at| at < step_at) {
                    return Some(at);
                }
            }
            self.at = step_at?;
            self.upcoming += 1;
        }
    }

    fn tenant(&mut self) -> usize {
        let mut left = self.random.random::<f64>() * self.weights;
        for (index, tenant) in self.config.tenants.iter().enumerate() {
            left -= tenant.weight;
            if left < 0.0 {
                return index;
            }
        }
        self.config.tenants.len().saturating_sub(1)
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    /// `None` once the last rate is zero.
    fn next(&mut self) -> Option<Arrival> {
        self.at = self.next_instant()?;
        let index = self.index;
        self.index += 1;
        let TokenRange { min, max } = self.config.tokens;
        let tokens = Tokens(self.random.random_range(u64::from(min)..=u64::from(max)));
        let is_batch = self.random.random::<f64>() < self.config.batch_ratio;
        let lane = if is_batch { Lane::Batch } else { Lane::Interactive };
        Some(Arrival { at: self.at, index, tokens, lane, tenant: self.tenant() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ArrivalsConfig {
        let config: ArrivalsConfig = toml::from_str(text).expect("the text fits the types");
        config.check().expect("the values are in bounds");
        config
    }

    fn storm() -> ArrivalsConfig {
        config(
            "tokens = { min = 300, max = 300 }\n\
             steps = [{ name = 'calm', at_s = 0, rate = 60 }, { name = 'storm', at_s = 10, rate = 180 }]",
        )
    }

    #[test]
    fn the_same_seed_gives_the_same_bits() {
        let take = |seed| Arrivals::new(storm(), seed).take(2_000).collect::<Vec<_>>();
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }

    #[test]
    fn rates_follow_the_steps() {
        let until = |to_s| {
            let end = Mono::from_secs_f64(to_s);
            Arrivals::new(storm(), 1).take_while(|arrival| arrival.at < end).count()
        };
        let calm = until(10.0);
        let all = until(110.0);
        assert!((500..=700).contains(&calm), "600 expected in the calm, {calm} came");
        assert!((17_500..=18_500).contains(&(all - calm)), "18,000 expected, {} came", all - calm);
    }

    #[test]
    fn a_pause_and_an_end_are_possible() {
        let steps = "tokens = { min = 1, max = 9 }\nbatch_ratio = 0.5\n\
             tenants = [{ name = 'a', weight = 3 }, { name = 'b', weight = 1 }]\n\
             steps = [{ name = 'on', at_s = 1, rate = 100 }, { name = 'pause', at_s = 2, rate = 0 },\
             { name = 'on', at_s = 4, rate = 100 }, { name = 'off', at_s = 6, rate = 0 }]";
        let all: Vec<_> = Arrivals::new(config(steps), 3).collect();
        assert!((200..400).contains(&all.len()), "{} arrived", all.len());
        let out_of_hours = |at_s: f64| at_s < 1.0 || (2.0..4.0).contains(&at_s) || at_s >= 6.0;
        assert!(all.iter().all(|arrival| !out_of_hours(arrival.at.as_secs_f64())));
        assert!(all.iter().all(|arrival| (1..=9).contains(&arrival.tokens.0)));
        let of_a = all.iter().filter(|arrival| arrival.tenant == 0).count();
        assert!(of_a * 2 > all.len(), "three of four belong to a, {of_a} do");
        let batch = all.iter().filter(|arrival| arrival.lane == Lane::Batch).count();
        assert!(batch * 3 > all.len() && batch * 3 < all.len() * 2, "half are batch, {batch} are");
    }

    #[test]
    fn bounds_are_named() {
        let bad = |text: &str| {
            let config: ArrivalsConfig = toml::from_str(text).expect("fits the types");
            config.check().expect_err("out of bounds").key
        };
        assert_eq!(bad("tokens = { min = 1, max = 1 }\nsteps = []"), "steps");
        let one = "steps = [{ name = 'a', at_s = 0, rate = 1 }]\n";
        assert_eq!(bad(&format!("{one}tokens = {{ min = 2, max = 1 }}")), "tokens.max");
        let fast =
            "steps = [{ name = 'a', at_s = 0, rate = 100001 }]\ntokens = { min = 1, max = 1 }";
        assert_eq!(bad(fast), "steps[0].rate");
    }
}
