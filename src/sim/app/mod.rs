//! The application around the calls: a cache before them, stages beside them, and how good its answers
//! are.
//!
//! Small models with counters. They say what a question gets and how long it takes, so that a drill can
//! stage what goes wrong *above* the gate; what they counted is what an application would export. Sends
//! nothing, keeps no time, and knows neither gate nor provider.

pub mod cache;
mod commonest;
mod quality;
mod stages;
mod sync;
pub mod tally;
mod walk;

use std::time::Duration;

use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::signal::Mono;
use crate::sim::config::ConfigError;
use crate::sim::rng;

use cache::{Cache, CacheConfig, Looked, Question};
use stages::{Gathered, Stages};

pub use quality::{QualityConfig, QualityCounts};
pub use stages::{STAGE_NAMES, SourceCounts, StageConfig, StageCounts};
pub use walk::Walk;

/// `[app]` of a scenario; absent parts are not there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AppConfig {
    /// Answers that are kept.
    pub cache: Option<CacheConfig>,
    /// What a question goes through before the call, in order.
    pub stages: Vec<StageConfig>,
    /// How its answers are judged.
    pub quality: Option<QualityConfig>,
}

impl AppConfig {
    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.cache.as_ref().map_or(Ok(()), CacheConfig::check)?;
        stages::check(&self.stages)?;
        self.quality.as_ref().map_or(Ok(()), QualityConfig::check)
    }
}

/// What a question gets before any call is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Asked {
    /// An answer out of the cache, after this long.
    Kept(Duration),
    /// A call has to be made, after this long; say [`App::answered`] when it has ended.
    Call(Duration, Pending),
}

/// A question whose call is being made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pending {
    question: Option<Question>,
    /// Share of the asked sources that answered.
    coverage: f64,
}

/// The application. [`Self::ask`] for every question, [`Self::answered`] when its call has ended.
#[derive(Clone, Debug)]
pub struct App {
    cache: Option<Cache>,
    stages: Stages,
    quality: Option<QualityConfig>,
    judged: QualityCounts,
    random: Pcg64,
}

impl App {
    /// An application with an empty cache, from a checked configuration.
    #[must_use]
    pub fn new(config: &AppConfig, seed: u64) -> Self {
        Self {
            cache: config.cache.clone().map(Cache::new),
            stages: Stages::new(&config.stages, seed),
            quality: config.quality,
            judged: QualityCounts::default(),
            random: rng::seeded(seed, rng::Stream::Application),
        }
    }

    /// Whether a question goes straight to its call: nothing here would do anything with it.
    #[must_use]
    pub const fn is_bare(&self) -> bool {
        self.cache.is_none() && self.stages.is_empty() && self.quality.is_none()
    }

    /// A question of `tenant`. `may_cache` is the run-time flag of the cache.
    pub fn ask(&mut self, tenant: usize, may_cache: bool, now: Mono) -> Asked {
        let cache = self.cache.as_mut().filter(|_| may_cache);
        let looked = cache.map(|cache| cache.look(tenant, &mut self.random, now));
        let question = match looked {
            Some(Looked::Hit { is_wrong, latency }) => {
                self.judge(1.0, is_wrong);
                return Asked::Kept(latency);
            }
            Some(Looked::Miss(question)) => Some(question),
            None => None,
        };
        let Gathered { took, coverage } = self.stages.gather(&mut self.random, now);
        Asked::Call(took, Pending { question, coverage })
    }

    /// The call of a question has ended, well or not, `took` after it began.
    pub fn answered(&mut self, pending: Pending, is_good: bool, took: Duration, now: Mono) {
        if let (Some(cache), Some(question)) = (&mut self.cache, pending.question) {
            cache.keep(question, is_good, now);
        }
        if is_good {
            self.stages.called(took);
            self.judge(pending.coverage, false);
        }
    }

    fn judge(&mut self, coverage: f64, is_wrong: bool) {
        if let Some(quality) = &self.quality {
            self.judged.judge(quality, coverage, is_wrong, &mut self.random);
        }
    }

    /// What the cache counted, if there is one.
    #[must_use]
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// What the stages counted.
    #[must_use]
    pub fn stages(&self) -> &[StageCounts] {
        self.stages.counts()
    }

    /// How the answers were judged, if they are.
    #[must_use]
    pub fn quality(&self) -> Option<&QualityCounts> {
        self.quality.as_ref().map(|_| &self.judged)
    }
}

#[cfg(test)]
mod tests;
