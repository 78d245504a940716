//! The golden surge gate: one surge, played from several seeds, held against bounds.
//!
//! For a pipeline that ships a change of anything that decides about admission or retries. What must
//! never happen (early retries, attempts for nobody, repeats of what cannot succeed) is counted by
//! whoever sees it from outside: the provider's ledger and an observer before the gate.

use serde::Serialize;

use super::observed::Totals;
use super::parallel::in_order;
use super::report::{LedgerReport, Report, quantile, ratio};
use super::virtual_run::{self, Play};
use crate::admission::FlagError;
use crate::signal::Tokens;

mod bounds;
mod file;
mod junit;
mod quality;

pub use bounds::{Bound, Figures, Judged, Measure, State};
pub use file::{GateFile, GateFileError};
pub use junit::write as junit;
pub use quality::{Means, QualityError, read as read_quality};

/// A gate, and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gated {
    /// What it guards.
    pub title: String,
    /// Name of the scenario.
    pub scenario: String,
    /// On the virtual clock.
    #[serde(rename = "virtual")]
    pub on_virtual_clock: bool,
    /// Whether every bound is kept from every seed.
    pub passed: bool,
    /// Seed by seed.
    pub runs: Vec<Run>,
}

/// The bounds of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// Whether every bound is kept.
    pub passed: bool,
    /// Each bound, in the order of the figures.
    pub bounds: Vec<Judged>,
}

impl GateFile {
    /// Plays every seed on the virtual clock, on every core: the figures of each. Quality is what the
    /// signals say of it.
    ///
    /// # Errors
    /// When a flag does not take its value.
    pub fn play(&self) -> Result<Vec<Figures>, FlagError> {
        let play = |seed: &u64| {
            let Self { scenario, total, .. } = self;
            let play = Play { scenario, seed: *seed, total: *total, flips: &[] };
            let mut means = Means::default();
            let report = virtual_run::watch(&play, None, |snapshot, _| means.see(snapshot))?;
            let mut figures = self.figures(&report);
            figures.extend(means.figures());
            Ok(figures)
        };
        in_order(&self.seeds, play).into_iter().collect()
    }

    /// The figures of a run that was played.
    #[must_use]
    pub fn figures(&self, report: &Report) -> Figures {
        let Totals { originals, served, offered, shed, .. } = report.totals;
        let latency = |q, buckets: &Vec<u64>| quantile(q, &[], buckets);
        let (admitted, all) = (&report.totals.latency_admitted, &report.totals.latency_offered);
        let unwanted = report.totals.unwanted_attempts;
        // Where nobody leaves and nobody has a deadline, nothing can come too late.
        let unwanted = unwanted.or_else(|| self.scenario.nobody_leaves().then_some(0));
        let ledger = report.ledger;
        let of_ledger = |read: fn(&LedgerReport) -> Option<f64>| ledger.as_ref().and_then(read);
        let price = self.usd_per_million_tokens;
        let cost = ledger.zip(price).map(|(ledger, price)| count(ledger.tokens_sent) * price / 1e6);
        // Of several providers each counts the originals that fell back to it, so the sum is no count.
        let counted = ledger.filter(|_| self.scenario.providers.is_empty());
        let counted = counted.map(|ledger| ledger.originals);
        let attempted = report.totals.originals_attempted.or(counted);
        let reached = attempted.and_then(|attempted| ratio(attempted, originals));
        let amplification = ledger.zip(attempted);
        let amplification = amplification.and_then(|(ledger, of)| ratio(ledger.attempts, of));
        [
            (Measure::AcceptanceShare, reached),
            (Measure::ServedShare, ratio(served, originals)),
            (Measure::ShedShare, ratio(shed, offered)),
            (Measure::Amplification, amplification),
            (Measure::LatencyAdmittedP95, latency(0.95, admitted)),
            (Measure::LatencyAdmittedP99, latency(0.99, admitted)),
            (Measure::LatencyOfferedP95, latency(0.95, all)),
            (Measure::LatencyOfferedP99, latency(0.99, all)),
            (Measure::EarlyRetries, of_ledger(|ledger| ledger.early_repeats.map(count))),
            (Measure::UnwantedAttempts, unwanted.map(count)),
            (Measure::PermanentRetries, of_ledger(|ledger| ledger.final_repeats.map(count))),
            (Measure::CostUsd, cost),
        ]
        .into_iter()
        .filter_map(|(measure, figure)| Some((measure, figure?)))
        .collect()
    }

    /// Holds the figures of each seed against the bounds. What the application says of its quality
    /// stands before what the signals say.
    #[must_use]
    pub fn judge(&self, runs: &[Figures], quality: &Figures, on_virtual_clock: bool) -> Gated {
        let judge = |(seed, figures): (&u64, &Figures)| {
            let mut figures = figures.clone();
            figures.extend(quality);
            let asked = self.bounds.iter().filter(|bound| on_virtual_clock || bound.live);
            let bounds: Vec<_> = asked.map(|bound| bound.judge(&figures)).collect();
            // What was held against nothing has not passed.
            let kept = |bound: &Judged| bound.state == State::Kept;
            let passed = !bounds.is_empty() && bounds.iter().all(kept);
            Run { seed: *seed, passed, bounds }
        };
        let runs: Vec<_> = self.seeds.iter().zip(runs).map(judge).collect();
        Gated {
            title: self.title.clone(),
            scenario: self.scenario.name.clone(),
            on_virtual_clock,
            passed: runs.iter().all(|run| run.passed),
            runs,
        }
    }
}

fn count(count: u64) -> f64 {
    Tokens(count).as_f64()
}

#[cfg(test)]
mod tests;
