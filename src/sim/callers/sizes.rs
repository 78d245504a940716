//! How large calls are: drawn uniformly, log-normally, or from a list.

use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::Deserialize;

use crate::signal::Tokens;
use crate::sim::config::{ConfigError, within};

/// Largest call, in tokens.
const TOKENS_MAX: f64 = 1_000_000.0;
/// Standard deviations from the median to the 95th percentile of a normal distribution.
const P95_SIGMAS: f64 = 1.644_853_626_951_472_2;

/// Sizes in tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "{ min = .., max = .. }, { median = .., p95 = .. } or [{ tokens = .., weight = .. }]"
)]
pub enum Sizes {
    /// Uniformly between two.
    Uniform(TokenRange),
    /// Log-normally, as prompts of real traffic are.
    LogNormal(LogNormalSizes),
    /// One of a list.
    Listed(Vec<ListedSize>),
}

/// Uniformly between the two, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRange {
    /// Fewest tokens.
    pub min: u32,
    /// Most tokens.
    pub max: u32,
}

/// A log-normal distribution by two of its quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogNormalSizes {
    /// Half of the sizes lie below.
    pub median: f64,
    /// 95 of 100 lie below.
    pub p95: f64,
}

/// One size of a list.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedSize {
    /// The size.
    pub tokens: u32,
    /// Its weight among the sizes.
    pub weight: f64,
}

impl From<TokenRange> for Sizes {
    fn from(range: TokenRange) -> Self {
        Self::Uniform(range)
    }
}

impl Sizes {
    /// Refuses what cannot be simulated; `key` is where it stands.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self, key: &str) -> Result<(), ConfigError> {
        match self {
            Self::Uniform(TokenRange { min, max }) => {
                let (min, max) = (f64::from(*min), f64::from(*max));
                within(&format!("{key}.min"), min, 1.0, TOKENS_MAX, "1 to 1000000 tokens")?;
                let allowed = "from tokens.min to 1000000 tokens";
                within(&format!("{key}.max"), max, min, TOKENS_MAX, allowed)
            }
            Self::LogNormal(LogNormalSizes { median, p95 }) => {
                let allowed = "1 to 1000000 tokens";
                within(&format!("{key}.median"), *median, 1.0, TOKENS_MAX, allowed)?;
                let allowed = "from the median to 1000000 tokens";
                within(&format!("{key}.p95"), *p95, *median, TOKENS_MAX, allowed)
            }
            Self::Listed(sizes) => {
                if sizes.is_empty() {
                    return Err(ConfigError {
                        key: key.to_owned(),
                        problem: "the list is empty".to_owned(),
                        allowed: "at least one size",
                    });
                }
                for (index, size) in sizes.iter().enumerate() {
                    let at = |name: &str| format!("{key}[{index}].{name}");
                    let tokens = f64::from(size.tokens);
                    within(&at("tokens"), tokens, 1.0, TOKENS_MAX, "1 to 1000000 tokens")?;
                    let allowed = "a weight above 0, up to 1000000";
                    within(&at("weight"), size.weight, 1e-6, 1e6, allowed)?;
                }
                Ok(())
            }
        }
    }

    /// The mean, in tokens.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::Uniform(range) => f64::midpoint(f64::from(range.min), f64::from(range.max)),
            Self::LogNormal(sizes) => sizes.median * (sizes.sigma().powi(2) / 2.0).exp(),
            Self::Listed(sizes) => {
                let weighed = |size: &ListedSize| f64::from(size.tokens) * size.weight;
                let weights: f64 = sizes.iter().map(|size| size.weight).sum();
                sizes.iter().map(weighed).sum::<f64>() / weights
            }
        }
    }

    /// Draws one.
    pub(in crate::sim) fn draw(&self, random: &mut impl Rng) -> Tokens {
        match self {
            Self::Uniform(TokenRange { min, max }) => {
                Tokens(random.random_range(u64::from(*min)..=u64::from(*max)))
            }
            Self::LogNormal(sizes) => {
                let normal: f64 = StandardNormal.sample(random);
                rounded(sizes.median * (sizes.sigma() * normal).exp())
            }
            Self::Listed(sizes) => {
                let place = weighted(sizes.iter().map(|size| size.weight), random.random());
                Tokens(sizes.get(place).map_or(1, |size| u64::from(size.tokens)))
            }
        }
    }
}

impl LogNormalSizes {
    fn sigma(&self) -> f64 {
        (self.p95 / self.median).ln() / P95_SIGMAS
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=1e6")]
fn rounded(tokens: f64) -> Tokens {
    Tokens(tokens.round().clamp(1.0, TOKENS_MAX) as u64)
}

/// The place that `share`, from 0 up to 1, falls on when each has its weight; 0 without any.
pub(in crate::sim) fn weighted(weights: impl Iterator<Item = f64> + Clone, share: f64) -> usize {
    let mut left = share * weights.clone().sum::<f64>();
    let mut last = 0;
    for (place, weight) in weights.enumerate() {
        left -= weight;
        last = place;
        if left < 0.0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg64;

    use super::*;

    fn sizes(text: &str) -> Sizes {
        #[derive(Deserialize)]
        struct Table {
            tokens: Sizes,
        }
        let table: Table = toml::from_str(&format!("tokens = {text}")).expect("fits the types");
        table.tokens.check("tokens").expect("in bounds");
        table.tokens
    }

    fn drawn(sizes: &Sizes) -> Vec<u64> {
        let mut random = Pcg64::new(1, 1);
        let mut all: Vec<_> = (0..20_000).map(|_| sizes.draw(&mut random).0).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_log_normal_has_its_quantiles_and_its_mean() {
        let sizes = sizes("{ median = 400, p95 = 3_000 }");
        let all = drawn(&sizes);
        let quantile = |per_cent: usize| all[all.len() * per_cent / 100];
        assert!((380..=420).contains(&quantile(50)), "{}", quantile(50));
        assert!((2_700..=3_300).contains(&quantile(95)), "{}", quantile(95));
        let mean = Tokens(all.iter().sum::<u64>() / 20_000).as_f64();
        assert!((sizes.mean() / mean - 1.0).abs() < 0.1, "{} and {mean}", sizes.mean());
    }

    #[test]
    fn a_list_is_drawn_by_weight() {
        let sizes = sizes("[{ tokens = 100, weight = 3 }, { tokens = 900, weight = 1 }]");
        let large = drawn(&sizes).iter().filter(|tokens| **tokens == 900).count();
        assert!((4_700..5_300).contains(&large), "{large} of 20,000");
        assert!((sizes.mean() - 300.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_size_says_what_would_be() {
        let error = toml::from_str::<std::collections::BTreeMap<String, Sizes>>("a = 3");
        let error = error.expect_err("a number").to_string();
        assert!(error.contains("{ median = .., p95 = .. }"), "{error}");
    }
}
