//! What the provider's quota allows over a span of time, and which of its meters binds.

use std::time::Duration;

use crate::dialect::Meter;
use crate::sim::callers::Sizes;
use crate::sim::config::ProviderConfig;

/// The limits of the meter that binds, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    binding: Meter,
    /// Per second, from when on; oldest first, the first from the start.
    rates: Vec<(Duration, f64)>,
}

impl Quota {
    /// The quota of `provider` for originals of these sizes. The meter binds that carries fewer of them.
    #[must_use]
    pub fn of(provider: &ProviderConfig, sizes: &Sizes) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "limits per minute are far below 2^53")]
        let per_second = |per_minute: std::num::NonZeroU64| per_minute.get() as f64 / 60.0;
        let mean_tokens = sizes.mean();
        let tokens = per_second(provider.tokens.per_minute);
        let requests = per_second(provider.requests.per_minute);
        let tokens_bind = tokens / mean_tokens <= requests;
        let (binding, first) =
            if tokens_bind { (Meter::Tokens, tokens) } else { (Meter::Requests, requests) };
        let mut rates = vec![(Duration::ZERO, first)];
        for step in &provider.steps {
            let changed =
                if tokens_bind { step.tokens_per_minute } else { step.requests_per_minute };
            if let Some(per_minute) = changed {
                rates.push((Duration::from_secs_f64(step.at_s), per_second(per_minute)));
            }
        }
        Self { binding, rates }
    }

    /// The meter that binds.
    #[must_use]
    pub const fn binding(&self) -> Meter {
        self.binding
    }

    /// What may be used of it between two instants.
    #[must_use]
    pub fn allowed(&self, from: Duration, to: Duration) -> f64 {
        let ends = self.rates.iter().skip(1).map(|(at, _)| *at).chain([Duration::MAX]);
        self.rates
            .iter()
            .zip(ends)
            .map(|((at, rate), end)| {
                let span = end.min(to).saturating_sub((*at).max(from));
                rate * span.as_secs_f64()
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::callers::TokenRange;

    fn quota(text: &str, max: u32) -> Quota {
        let provider: ProviderConfig = toml::from_str(text).expect("fits");
        Quota::of(&provider, &TokenRange { min: 300, max }.into())
    }

    const LAUNCH: &str = "requests = { per_minute = 6000 }\ntokens = { per_minute = 1_200_000 }\n";

    #[test]
    fn the_meter_binds_that_carries_fewer() {
        assert_eq!(quota(LAUNCH, 300).binding(), Meter::Tokens);
        let few = "requests = { per_minute = 600 }\ntokens = { per_minute = 1_200_000 }";
        assert_eq!(quota(few, 300).binding(), Meter::Requests);
    }

    #[test]
    fn a_change_counts_from_its_instant() {
        let text = format!("{LAUNCH}steps = [{{ at_s = 20, tokens_per_minute = 600_000 }}]");
        let allowed = |from, to| {
            quota(&text, 300).allowed(Duration::from_secs(from), Duration::from_secs(to))
        };
        assert!((allowed(0, 10) - 200_000.0).abs() < 1e-6);
        assert!((allowed(15, 25) - 150_000.0).abs() < 1e-6);
        assert!((allowed(30, 40) - 100_000.0).abs() < 1e-6);
    }
}
