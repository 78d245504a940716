//! How good the application's answers are, as its own judges would say: a sample is a draw.
//!
//! An answer is as grounded as what its sources gave it, and never when it is somebody else's.

use rand::Rng;
use serde::Deserialize;

use crate::sim::config::{ConfigError, within};

/// `[app.quality]`: what holds for an answer with all its sources.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QualityConfig {
    /// Share of answers whose citations are in order.
    pub citation_valid: f64,
    /// Share of answers that follow from what was found.
    pub grounded: f64,
}

impl QualityConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for (key, share) in
            [("quality.citation_valid", self.citation_valid), ("quality.grounded", self.grounded)]
        {
            within(key, share, 0.0, 1.0, "a share from 0 to 1")?;
        }
        Ok(())
    }
}

/// How the answers so far were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QualityCounts {
    /// Answers that were judged.
    pub judged: u64,
    /// With citations in order.
    pub citation_valid: u64,
    /// That follow from what was found.
    pub grounded: u64,
    /// Sum over the answers of the share of their sources that had answered.
    pub coverage: f64,
}

impl QualityCounts {
    pub(super) fn judge(
        &mut self,
        config: &QualityConfig,
        coverage: f64,
        is_wrong: bool,
        random: &mut impl Rng,
    ) {
        let mut holds = |share: f64| random.random::<f64>() < share * coverage && !is_wrong;
        self.judged += 1;
        self.citation_valid += u64::from(holds(config.citation_valid));
        self.grounded += u64::from(holds(config.grounded));
        self.coverage += coverage;
    }
}
