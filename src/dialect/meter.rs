//! The counters of a quota, and what a provider shows of them.

use std::time::Duration;

/// One counter of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meter {
    /// Requests per minute, or per a window that has no name of its own.
    Requests,
    /// Tokens per minute, of whatever kind.
    Tokens,
    /// Tokens of requests per minute.
    InputTokens,
    /// Tokens of answers per minute.
    OutputTokens,
    /// Requests per second.
    RequestsPerSecond,
    /// Requests per hour.
    RequestsPerHour,
    /// Requests per day.
    RequestsPerDay,
    /// Requests per month.
    RequestsPerMonth,
    /// Tokens per day.
    TokensPerDay,
    /// Tokens per month.
    TokensPerMonth,
    /// Calls open at the same time.
    Concurrency,
    /// Money.
    Spend,
}

impl Meter {
    /// Every meter, in the order of the metrics.
    pub const ALL: [Self; 12] = [
        Self::Requests,
        Self::Tokens,
        Self::InputTokens,
        Self::OutputTokens,
        Self::RequestsPerSecond,
        Self::RequestsPerHour,
        Self::RequestsPerDay,
        Self::RequestsPerMonth,
        Self::TokensPerDay,
        Self::TokensPerMonth,
        Self::Concurrency,
        Self::Spend,
    ];

    /// The word used in JSON, metrics and the tables of `assets/dialects`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::RequestsPerSecond => "requests_per_second",
            Self::RequestsPerHour => "requests_per_hour",
            Self::RequestsPerDay => "requests_per_day",
            Self::RequestsPerMonth => "requests_per_month",
            Self::TokensPerDay => "tokens_per_day",
            Self::TokensPerMonth => "tokens_per_month",
            Self::Concurrency => "concurrency",
            Self::Spend => "spend",
        }
    }

    /// What is counted.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::Requests
            | Self::RequestsPerSecond
            | Self::RequestsPerHour
            | Self::RequestsPerDay
            | Self::RequestsPerMonth => Unit::Requests,
            Self::Tokens
            | Self::InputTokens
            | Self::OutputTokens
            | Self::TokensPerDay
            | Self::TokensPerMonth => Unit::Tokens,
            Self::Concurrency | Self::Spend => Unit::Other,
        }
    }

    /// The meter of the same unit over `window`; itself where that has no name of its own.
    pub(super) fn over(self, window: Duration) -> Self {
        const MONTH: std::ops::RangeInclusive<u64> = 28 * 86_400..=31 * 86_400;
        match (self, window.as_secs()) {
            (Self::Requests, 1) => Self::RequestsPerSecond,
            (Self::Requests, 3_600) => Self::RequestsPerHour,
            (Self::Requests, 86_400) => Self::RequestsPerDay,
            (Self::Requests, days) if MONTH.contains(&days) => Self::RequestsPerMonth,
            (Self::Tokens, 86_400) => Self::TokensPerDay,
            (Self::Tokens, days) if MONTH.contains(&days) => Self::TokensPerMonth,
            (same, _) => same,
        }
    }
}

/// What a meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Calls.
    Requests,
    /// Tokens.
    Tokens,
    /// Anything else.
    Other,
}

/// One meter as the provider shows it. A missing number is unknown, never zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeterReading {
    /// Which meter.
    pub meter: Meter,
    /// Its limit per window.
    pub limit: Option<f64>,
    /// What is left of it.
    pub remaining: Option<f64>,
    /// Time until the meter is full again.
    pub reset: Option<Duration>,
    /// The window that the limit is counted over, where the provider says it or it follows exactly.
    pub window: Option<Duration>,
}

impl MeterReading {
    /// A meter of which nothing is known yet.
    #[must_use]
    pub const fn unknown(meter: Meter) -> Self {
        Self { meter, limit: None, remaining: None, reset: None, window: None }
    }
}

impl MeterReading {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remaining.is_some_and(|left| left <= 0.0)
    }
}

/// The request meter that matters most: an empty one, else that of the shortest window.
#[must_use]
pub fn tightest_requests(meters: &[MeterReading]) -> Option<&MeterReading> {
    let of_requests = meters.iter().filter(|reading| reading.meter.unit() == Unit::Requests);
    of_requests.min_by_key(|one| (!one.is_empty(), one.window.unwrap_or(Duration::MAX)))
}

/// The token meter that matters most: the one with the least left. A combined meter may look roomy
/// while that of the input is empty.
#[must_use]
pub fn tightest_tokens(meters: &[MeterReading]) -> Option<&MeterReading> {
    let of_tokens = meters.iter().filter(|reading| reading.meter.unit() == Unit::Tokens);
    let left = |reading: &MeterReading| reading.remaining.unwrap_or(f64::INFINITY);
    of_tokens.min_by(|a, b| left(a).total_cmp(&left(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(meter: Meter, remaining: f64, window_s: u64) -> MeterReading {
        let window = Some(Duration::from_secs(window_s));
        MeterReading { meter, limit: Some(9.0), remaining: Some(remaining), reset: None, window }
    }

    #[test]
    fn an_empty_meter_matters_more_than_a_short_one() {
        let second = reading(Meter::RequestsPerSecond, 1.0, 1);
        let month = |left| reading(Meter::RequestsPerMonth, left, 30 * 86_400);
        let tightest = |meters: &[MeterReading]| tightest_requests(meters).map(|one| one.meter);
        assert_eq!(tightest(&[month(5.0), second]), Some(Meter::RequestsPerSecond));
        assert_eq!(tightest(&[second, month(0.0)]), Some(Meter::RequestsPerMonth));
        assert_eq!(tightest(&[reading(Meter::Tokens, 0.0, 60)]), None);
    }

    #[test]
    fn the_least_tokens_matter_most() {
        let meters = [
            reading(Meter::Tokens, 80_000.0, 60),
            reading(Meter::InputTokens, 0.0, 60),
            MeterReading { remaining: None, ..reading(Meter::OutputTokens, 0.0, 60) },
        ];
        assert_eq!(tightest_tokens(&meters).map(|one| one.meter), Some(Meter::InputTokens));
    }
}
