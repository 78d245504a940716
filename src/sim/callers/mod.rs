//! Who asks for what: one caller's traffic and how long it waits, as a scenario describes it.
//!
//! A caller begins tasks, at a rate that changes in steps, all at once every so often, or as a job with
//! workers; a task is one call, several at once, or several one after the other. `check` refuses what
//! cannot be simulated. Knows neither gate nor provider, and sends nothing.

pub mod job;
mod people;
mod sizes;

use std::time::Duration;

use serde::Deserialize;

use crate::sim::arrivals::{Lane, RateStep, TenantShare};
use crate::sim::config::{ConfigError, check_ascending, within};
use crate::sim::layers::{Layers, ReadFile, Stack};

pub use job::JobConfig;
pub use people::{Patience, People, Waits};
pub(super) use sizes::weighted;
pub use sizes::{ListedSize, LogNormalSizes, Sizes, TokenRange};

/// Most tenants of one caller.
pub const TENANTS_MAX: usize = 1_000;
/// Most callers of one scenario, the main one included.
pub const CALLERS_MAX: usize = 32;
/// Highest rate that is simulated.
const RATE_MAX: f64 = 100_000.0;
/// Most calls that one task makes, at once or one after the other.
const CALLS_MAX: f64 = 10_000.0;
/// Longest that anything of a caller lasts: a day.
const SPAN_S_MAX: f64 = 86_400.0;

const SHARE: &str = "a share from 0 to 1";
const SPAN: &str = "seconds from 0 to 86400";

/// What kind of work a caller does. It decides what the caller's tokens count as, nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallerKind {
    /// People's questions, which go through the application around the calls.
    #[default]
    User,
    /// Scheduled or bulk work.
    Job,
    /// An agent: calls that lead to further calls.
    Agent,
    /// A health check that spends quota.
    Probe,
    /// Work beside the answer: titles, summaries, suggestions.
    Extra,
    /// Someone with a key that was never given to them: the callers' own meters do not see it.
    Stranger,
}

impl CallerKind {
    /// Every kind, in the order of their words on the metrics page.
    pub const ALL: [Self; 6] =
        [Self::User, Self::Job, Self::Agent, Self::Probe, Self::Extra, Self::Stranger];

    /// The word in files and labels.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Job => "job",
            Self::Agent => "agent",
            Self::Probe => "probe",
            Self::Extra => "extra",
            Self::Stranger => "stranger",
        }
    }
}

/// A caller: `[traffic]` and each of `[[callers]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerConfig {
    /// Its name.
    #[serde(default = "main_name")]
    pub name: String,
    /// The quota scope that it calls; absent means the first.
    pub to: Option<String>,
    /// What kind of work it does.
    #[serde(default)]
    pub kind: CallerKind,
    /// How large a call is, in tokens of the request.
    pub tokens: Sizes,
    /// How large an answer is; absent means that answers have no tokens, as embeddings.
    pub output_tokens: Option<Sizes>,
    /// The lane of every call.
    pub lane: Option<Lane>,
    /// Without `lane`: share of calls in the batch lane.
    #[serde(default)]
    pub batch_ratio: f64,
    /// Whether its batch calls are backfill, which stands behind production ingest.
    #[serde(default)]
    pub backfill: bool,
    /// Who asks; absent means one tenant, `default`.
    #[serde(default)]
    pub tenants: Vec<TenantShare>,
    /// How many tasks begin per second from when, oldest first.
    #[serde(default)]
    pub steps: Vec<RateStep>,
    /// In place of `steps`: one task every so often.
    pub cron: Option<CronConfig>,
    /// In place of `steps`: a list of items that workers take from.
    pub job: Option<JobConfig>,
    /// Calls that a task makes at once.
    #[serde(default = "one")]
    pub fan_out: u32,
    /// Calls that a task makes one after the other, each after the success of the one before.
    #[serde(default = "one")]
    pub calls_per_task: u32,
    /// Share of calls that can never succeed, all for the same reason.
    #[serde(default)]
    pub poisoned_ratio: f64,
    /// Every call has a deadline, which the gate is told: this many seconds after it begins, or up to
    /// twice as many.
    pub deadline_s: Option<f64>,
    /// The people who leave before they have an answer.
    pub leaves: Option<Leaves>,
    /// The layers above the gate; absent means those of the scenario.
    pub layers: Option<Layers>,
    /// The same, looked up and checked by [`Self::stack_layers`].
    #[serde(skip)]
    pub stack: Option<Stack>,
}

/// One task every so often: all callers of a cron minute are in step.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CronConfig {
    /// Seconds from one to the next.
    pub every_s: f64,
    /// Seconds after the start when the first begins.
    #[serde(default)]
    pub at_s: f64,
}

/// People who leave before they have an answer.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaves {
    /// Their share.
    pub ratio: f64,
    /// They leave at any time up to so many seconds after their question.
    pub within_s: f64,
    /// Whether the layers below notice, hang up and stop; otherwise they go on for nobody.
    #[serde(default = "yes")]
    pub noticed: bool,
}

fn main_name() -> String {
    "traffic".to_owned()
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

impl CallerConfig {
    /// A caller of calls of one size without any traffic yet.
    #[must_use]
    pub fn sized(tokens: Sizes) -> Self {
        Self {
            name: main_name(),
            to: None,
            kind: CallerKind::User,
            tokens,
            output_tokens: None,
            lane: None,
            batch_ratio: 0.0,
            backfill: false,
            tenants: Vec::new(),
            steps: Vec::new(),
            cron: None,
            job: None,
            fan_out: 1,
            calls_per_task: 1,
            poisoned_ratio: 0.0,
            deadline_s: None,
            leaves: None,
            layers: None,
            stack: None,
        }
    }

    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_traffic()?;
        self.tokens.check("tokens")?;
        self.output_tokens.as_ref().map_or(Ok(()), |sizes| sizes.check("output_tokens"))?;
        within("batch_ratio", self.batch_ratio, 0.0, 1.0, SHARE)?;
        within("poisoned_ratio", self.poisoned_ratio, 0.0, 1.0, SHARE)?;
        self.check_tenants()?;
        let calls = "1 to 10000 calls";
        within("fan_out", f64::from(self.fan_out), 1.0, CALLS_MAX, calls)?;
        within("calls_per_task", f64::from(self.calls_per_task), 1.0, CALLS_MAX, calls)?;
        within("deadline_s", self.deadline_s.unwrap_or(1.0), 0.001, SPAN_S_MAX, SPAN)?;
        if let Some(leaves) = &self.leaves {
            within("leaves.ratio", leaves.ratio, 0.0, 1.0, SHARE)?;
            within("leaves.within_s", leaves.within_s, 0.0, SPAN_S_MAX, SPAN)?;
        }
        Ok(())
    }

    /// Makes the layers a stack. Clients that are named by a path are read with `read`; `at` is where
    /// the caller stands in its file.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn stack_layers(&mut self, at: &str, read: &ReadFile<'_>) -> Result<(), ConfigError> {
        let key = format!("{at}.layers");
        self.stack = self.layers.as_ref().map(|layers| layers.stack(&key, read)).transpose()?;
        Ok(())
    }

    /// Exactly one of the three ways to begin tasks.
    fn check_traffic(&self) -> Result<(), ConfigError> {
        let ways = [!self.steps.is_empty(), self.cron.is_some(), self.job.is_some()];
        let problem = match ways.iter().filter(|way| **way).count() {
            0 => Some("there are none"),
            1 => None,
            _ => Some("there is another way to begin tasks beside them"),
        };
        if let Some(problem) = problem {
            return Err(ConfigError {
                key: "steps".to_owned(),
                problem: problem.to_owned(),
                allowed: "at least one step with name, at_s and rate; or in their place `cron` or `job`",
            });
        }
        check_ascending("steps", self.steps.iter().map(|step| step.at_s))?;
        for (index, step) in self.steps.iter().enumerate() {
            let key = |name: &str| format!("steps[{index}].{name}");
            within(&key("rate"), step.rate, 0.0, RATE_MAX, "originals per second, 0 to 100000")?;
            within(&key("ramp_s"), step.ramp_s, 0.0, SPAN_S_MAX, SPAN)?;
            within(&key("batch_ratio"), step.batch_ratio.unwrap_or(0.0), 0.0, 1.0, SHARE)?;
            within(&key("poisoned_ratio"), step.poisoned_ratio.unwrap_or(0.0), 0.0, 1.0, SHARE)?;
            step.tokens.as_ref().map_or(Ok(()), |sizes| sizes.check(&key("tokens")))?;
        }
        if let Some(cron) = &self.cron {
            within("cron.every_s", cron.every_s, 0.1, SPAN_S_MAX, "seconds from 0.1 to 86400")?;
            within("cron.at_s", cron.at_s, 0.0, SPAN_S_MAX, SPAN)?;
        }
        self.job.as_ref().map_or(Ok(()), JobConfig::check)
    }

    fn check_tenants(&self) -> Result<(), ConfigError> {
        let weighed = "a weight above 0, up to 1000000";
        if self.tenants.len() > TENANTS_MAX {
            return Err(ConfigError {
                key: "tenants".to_owned(),
                problem: format!("{} of them", self.tenants.len()),
                allowed: "at most 1000 tenants",
            });
        }
        for (index, tenant) in self.tenants.iter().enumerate() {
            within(&format!("tenants[{index}].weight"), tenant.weight, 1e-6, 1e6, weighed)?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            for (name, weight) in &step.tenants {
                let key = format!("steps[{index}].tenants.{name}");
                within(&key, *weight, 1e-6, 1e6, weighed)?;
                if !self.tenants.iter().any(|tenant| tenant.name == *name) {
                    return Err(ConfigError {
                        key,
                        problem: format!("`{name}` is none of this caller's tenants"),
                        allowed: "a name of its `tenants`",
                    });
                }
            }
        }
        Ok(())
    }

    /// The name of a tenant by its index in `Arrival::tenant`.
    #[must_use]
    pub fn tenant_name(&self, index: usize) -> &str {
        self.tenants.get(index).map_or("default", |tenant| tenant.name.as_str())
    }

    /// How long its people wait.
    #[must_use]
    pub fn patience(&self) -> Patience {
        let span = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let leaves = self.leaves.as_ref();
        Patience {
            deadline: self.deadline_s.map(span),
            leaving_ratio: leaves.map_or(0.0, |leaves| leaves.ratio),
            leaves_within: leaves.map_or(Duration::ZERO, |leaves| span(leaves.within_s)),
            noticed: leaves.is_none_or(|leaves| leaves.noticed),
        }
    }

    /// Whether its tasks are more than one call.
    #[must_use]
    pub const fn has_tasks(&self) -> bool {
        self.fan_out > 1 || self.calls_per_task > 1
    }
}

#[cfg(test)]
mod tests;
