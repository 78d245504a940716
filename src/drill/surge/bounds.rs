//! What a surge gate may ask for, and whether a figure keeps within what was asked. Measures nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::drill::scenario::{Wrong, wrong};

/// A figure of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Originals that reached the provider, over originals.
    AcceptanceShare,
    /// Originals that were served, over originals.
    ServedShare,
    /// Requests that were refused before the provider saw them, over requests.
    ShedShare,
    /// Attempts over originals with an attempt.
    Amplification,
    /// Latency of requests that got a result: the 95th percentile.
    #[serde(rename = "latency_admitted_p95_s")]
    LatencyAdmittedP95,
    /// The 99th.
    #[serde(rename = "latency_admitted_p99_s")]
    LatencyAdmittedP99,
    /// Latency of all answered requests, refusals included: the 95th percentile.
    #[serde(rename = "latency_offered_p95_s")]
    LatencyOfferedP95,
    /// The 99th.
    #[serde(rename = "latency_offered_p99_s")]
    LatencyOfferedP99,
    /// Attempts for an original before the wait had passed that the provider had named for it.
    EarlyRetries,
    /// Attempts that began after their caller had left, or after its deadline.
    UnwantedAttempts,
    /// Attempts for an original after an answer that no repeat cures.
    PermanentRetries,
    /// What the tokens that the provider charged cost, in US dollars.
    CostUsd,
    /// Of admitted answers, by the application's own word: citations that hold.
    CitationValidShare,
    /// By the application's own word: what should have been found and was.
    RetrievalCoverage,
    /// By the application's own word: answers that rest on what was found.
    GroundedShare,
}

impl Measure {
    /// What `[bounds]` may name.
    const OF_THE_RUN: [Self; 12] = [
        Self::AcceptanceShare,
        Self::ServedShare,
        Self::ShedShare,
        Self::Amplification,
        Self::LatencyAdmittedP95,
        Self::LatencyAdmittedP99,
        Self::LatencyOfferedP95,
        Self::LatencyOfferedP99,
        Self::EarlyRetries,
        Self::UnwantedAttempts,
        Self::PermanentRetries,
        Self::CostUsd,
    ];
    /// What `[quality]` may name: what only the application can tell.
    pub const OF_QUALITY: [Self; 3] =
        [Self::CitationValidShare, Self::RetrievalCoverage, Self::GroundedShare];

    /// Its key in the file and in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::AcceptanceShare => "acceptance_share",
            Self::ServedShare => "served_share",
            Self::ShedShare => "shed_share",
            Self::Amplification => "amplification",
            Self::LatencyAdmittedP95 => "latency_admitted_p95_s",
            Self::LatencyAdmittedP99 => "latency_admitted_p99_s",
            Self::LatencyOfferedP95 => "latency_offered_p95_s",
            Self::LatencyOfferedP99 => "latency_offered_p99_s",
            Self::EarlyRetries => "early_retries",
            Self::UnwantedAttempts => "unwanted_attempts",
            Self::PermanentRetries => "permanent_retries",
            Self::CostUsd => "cost_usd",
            Self::CitationValidShare => "citation_valid_share",
            Self::RetrievalCoverage => "retrieval_coverage",
            Self::GroundedShare => "grounded_share",
        }
    }
}

/// The figures of one run; what is not there is unknown.
pub type Figures = BTreeMap<Measure, f64>;

/// What a figure must keep within.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The figure.
    pub measure: Measure,
    /// The least that it may be.
    pub min: Option<f64>,
    /// The most that it may be.
    pub max: Option<f64>,
    /// Whether it is asked of a live run too, where some figures cannot be told.
    pub live: bool,
}

/// How a bound stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The figure is within it.
    Kept,
    /// The figure is beyond it.
    Broken,
    /// Nobody has told the figure. That does not pass.
    Unknown,
}

/// A bound, and what the run came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The figure.
    pub measure: Measure,
    /// The least that it may be.
    pub min: Option<f64>,
    /// The most that it may be.
    pub max: Option<f64>,
    /// What it is.
    pub value: Option<f64>,
    /// How the bound stands.
    pub state: State,
}

impl Bound {
    /// Holds the bound against the figures of a run.
    #[must_use]
    pub fn judge(&self, figures: &Figures) -> Judged {
        let Self { measure, min, max, .. } = *self;
        let value = figures.get(&measure).copied();
        let state = match value {
            None => State::Unknown,
            Some(value) => {
                let is_kept =
                    min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max);
                if is_kept { State::Kept } else { State::Broken }
            }
        };
        Judged { measure, min, max, value, state }
    }
}

impl Judged {
    /// What was asked, in words: `at most 1.1`.
    #[must_use]
    pub fn asked(&self) -> String {
        match (self.min, self.max) {
            (Some(min), Some(max)) if min.total_cmp(&max).is_eq() => format!("exactly {min}"),
            (Some(min), Some(max)) => format!("from {min} to {max}"),
            (Some(min), None) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => "anything".to_owned(),
        }
    }
}

/// A bound as it is written.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBound {
    min: Option<f64>,
    max: Option<f64>,
    #[serde(default = "yes")]
    live: bool,
}

const fn yes() -> bool {
    true
}

/// The bounds of `[bounds]` and `[quality]`, in the order in which they are listed here.
pub(super) fn bounds(
    run: &BTreeMap<String, RawBound>,
    quality: &BTreeMap<String, RawBound>,
) -> Result<Vec<Bound>, Wrong> {
    let mut bounds = table("bounds", run, &Measure::OF_THE_RUN)?;
    bounds.extend(table("quality", quality, &Measure::OF_QUALITY)?);
    if bounds.is_empty() {
        return Err(wrong(
            "bounds",
            "there are none",
            "write at least one, such as `amplification = { max = 1.1 }`",
        ));
    }
    bounds.sort_by_key(|bound| bound.measure);
    Ok(bounds)
}

fn table(
    name: &str,
    raw: &BTreeMap<String, RawBound>,
    known: &[Measure],
) -> Result<Vec<Bound>, Wrong> {
    let read = |(key, bound): (&String, &RawBound)| {
        let at = format!("{name}.{key}");
        let measure = known.iter().find(|measure| measure.word() == key).ok_or_else(|| {
            let words: Vec<_> = known.iter().map(|measure| measure.word()).collect();
            wrong(&at, "no such figure", &format!("use one of {}", words.join(", ")))
        })?;
        let RawBound { min, max, live } = *bound;
        let is_span = match (min, max) {
            (None, None) => false,
            (Some(min), Some(max)) => min <= max,
            (Some(one), None) | (None, Some(one)) => one.is_finite(),
        };
        if !is_span {
            return Err(wrong(&at, "bounds nothing", "write min, max or both, min not above max"));
        }
        Ok(Bound { measure: *measure, min, max, live })
    };
    raw.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(min: Option<f64>, max: Option<f64>, value: Option<f64>, expected: State) {
        for measure in Measure::OF_THE_RUN.into_iter().chain(Measure::OF_QUALITY) {
            let figures: Figures = value.map(|value| (measure, value)).into_iter().collect();
            let judged = Bound { measure, min, max, live: true }.judge(&figures);
            assert_eq!(judged.state, expected, "{} of {value:?}", judged.asked());
        }
    }

    #[test]
    fn every_figure_is_kept_broken_or_unknown() {
        check(None, Some(1.1), Some(1.1), State::Kept);
        check(None, Some(1.1), Some(1.100_001), State::Broken);
        check(Some(0.3), None, Some(0.3), State::Kept);
        check(Some(0.3), None, Some(0.299_999), State::Broken);
        check(Some(0.0), Some(0.0), Some(0.0), State::Kept);
        check(Some(0.0), Some(0.0), Some(1.0), State::Broken);
        check(None, Some(0.0), None, State::Unknown);
    }

    #[test]
    fn words_in_reports_are_those_of_the_file() {
        for measure in Measure::OF_THE_RUN.into_iter().chain(Measure::OF_QUALITY) {
            assert_eq!(serde_json::json!(measure), measure.word());
        }
    }
}
