//! The stages of a question before its call: each asks its sources at once and waits for the slowest.
//!
//! So one slow source makes a slow stage, while nobody refuses anything. What is usual for a stage is
//! measured the way a dashboard knows it: over the questions of a day before, without the fault.

use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::admission::Histogram;
use crate::signal::Mono;
use crate::sim::config::{ConfigError, within};
use crate::sim::rng;

/// Names that a stage may have: those that the catalogue's `stages_p95_s` tells apart.
pub const STAGE_NAMES: [&str; 5] = ["retrieval", "rerank", "tools", "refine", "guard"];
/// The stage of the call itself.
const MODEL_STAGE: &str = "llm";
const STAGES_MAX: usize = 8;
const SOURCES_MAX: usize = 32;
/// Questions of the day before that make what is usual.
const USUAL_QUESTIONS: usize = 1_000;

/// One of `[[app.stages]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// Its name: `retrieval`, `rerank`, `tools`, `refine` or `guard`.
    pub name: String,
    /// How long one source takes: `base_ms` and up to `spread_ms` more.
    pub latency: SourceLatency,
    /// What is asked at once; absent means one source, named as the stage.
    #[serde(default)]
    pub sources: Vec<String>,
    /// How long the stage waits for a source before it goes on without.
    pub wait_ms: Option<f64>,
    /// A source that becomes slow.
    pub slow: Option<SlowSource>,
}

/// How long a source takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceLatency {
    /// The shortest answer.
    pub base_ms: f64,
    /// Up to this much more, uniformly.
    #[serde(default)]
    pub spread_ms: f64,
}

/// A source that becomes slow.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowSource {
    /// Which.
    pub source: String,
    /// Seconds after the start from when on.
    pub from_s: f64,
    /// Seconds after the start until when; absent means to the end.
    pub to_s: Option<f64>,
    /// What its latency is multiplied with.
    pub factor: f64,
}

/// Refuses stages that cannot be simulated.
pub(super) fn check(stages: &[StageConfig]) -> Result<(), ConfigError> {
    let refuse = |key: String, problem: String, allowed| Err(ConfigError { key, problem, allowed });
    if stages.len() > STAGES_MAX {
        return refuse("stages".to_owned(), format!("{} of them", stages.len()), "at most 8");
    }
    for (index, stage) in stages.iter().enumerate() {
        let key = |name: &str| format!("stages[{index}].{name}");
        let is_taken = stages[..index].iter().any(|other| other.name == stage.name);
        if is_taken || !STAGE_NAMES.contains(&stage.name.as_str()) {
            let allowed = "retrieval, rerank, tools, refine or guard, each once";
            return refuse(key("name"), format!("`{}` cannot be one", stage.name), allowed);
        }
        if stage.sources.len() > SOURCES_MAX {
            return refuse(
                key("sources"),
                format!("{} of them", stage.sources.len()),
                "at most 32",
            );
        }
        let milliseconds = "milliseconds from 0 to 600000";
        let SourceLatency { base_ms, spread_ms } = stage.latency;
        within(&key("latency.base_ms"), base_ms, 0.0, 600_000.0, milliseconds)?;
        within(&key("latency.spread_ms"), spread_ms, 0.0, 600_000.0, milliseconds)?;
        within(&key("wait_ms"), stage.wait_ms.unwrap_or(0.0), 0.0, 600_000.0, milliseconds)?;
        let Some(slow) = &stage.slow else { continue };
        within(&key("slow.factor"), slow.factor, 0.0, 10_000.0, "a factor from 0 to 10000")?;
        let allowed = "seconds from 0 to 86400, `to_s` after `from_s`";
        within(&key("slow.from_s"), slow.from_s, 0.0, 86_400.0, allowed)?;
        let to_s = slow.to_s.unwrap_or(86_400.0);
        within(&key("slow.to_s"), to_s, slow.from_s, 86_400.0, allowed)?;
        if !sources(stage).contains(&slow.source.as_str()) {
            let problem = format!("`{}` is none of the stage's sources", slow.source);
            return refuse(key("slow.source"), problem, "one of `sources`");
        }
    }
    Ok(())
}

fn sources(stage: &StageConfig) -> Vec<&str> {
    if stage.sources.is_empty() {
        return vec![&stage.name];
    }
    stage.sources.iter().map(String::as_str).collect()
}

/// What one stage counted.
#[derive(Clone, Debug)]
pub struct StageCounts {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub latency: Histogram,
    /// The 95th percentile of a day before; `None` for the call itself, which the provider tells.
    pub usual_p95: Option<Duration>,
    /// Its sources.
    pub sources: Vec<SourceCounts>,
}

/// What one source counted.
#[derive(Clone, Debug)]
pub struct SourceCounts {
    /// Its name.
    pub name: String,
    /// How long it took, or was waited for.
    pub latency: Histogram,
    /// Questions for which it was the last to answer.
    pub slowest: u64,
    /// Questions that went on without it.
    pub given_up: u64,
}

/// What the stages took for one question, and how much of it came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gathered {
    pub(super) took: Duration,
    pub(super) coverage: f64,
}

/// The stages of an application and what they counted; the call itself is the last.
#[derive(Clone, Debug)]
pub(super) struct Stages {
    configs: Vec<StageConfig>,
    counts: Vec<StageCounts>,
}

/// What one source does in one question.
struct Answer {
    took: Duration,
    came: bool,
}

impl Stages {
    pub(super) fn new(configs: &[StageConfig], seed: u64) -> Self {
        let counted = |config: &StageConfig| StageCounts {
            name: config.name.clone(),
            latency: Histogram::default(),
            usual_p95: Some(usual_p95(config, seed)),
            sources: sources(config).into_iter().map(SourceCounts::named).collect(),
        };
        let mut counts: Vec<_> = configs.iter().map(counted).collect();
        if !counts.is_empty() {
            counts.push(StageCounts {
                name: MODEL_STAGE.to_owned(),
                latency: Histogram::default(),
                usual_p95: None,
                sources: Vec::new(),
            });
        }
        Self { configs: configs.to_vec(), counts }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }

    pub(super) fn counts(&self) -> &[StageCounts] {
        &self.counts
    }

    /// Takes one question through the stages.
    pub(super) fn gather(&mut self, random: &mut Pcg64, now: Mono) -> Gathered {
        let mut took = Duration::ZERO;
        let (mut asked, mut came) = (0_u32, 0_u32);
        for (config, counts) in self.configs.iter().zip(&mut self.counts) {
            let answers = answers(config, random, Some(now + took));
            let slowest = answers.iter().enumerate().max_by_key(|(_, answer)| answer.took);
            let (last, stage_took) = slowest.map_or((0, Duration::ZERO), |(i, a)| (i, a.took));
            for (source, answer) in counts.sources.iter_mut().zip(&answers) {
                source.latency.observe(answer.took);
                source.given_up += u64::from(!answer.came);
                asked += 1;
                came += u32::from(answer.came);
            }
            counts.sources[last].slowest += 1;
            counts.latency.observe(stage_took);
            took += stage_took;
        }
        let coverage = if asked == 0 { 1.0 } else { f64::from(came) / f64::from(asked) };
        Gathered { took, coverage }
    }

    /// The call of a question took so long.
    pub(super) fn called(&mut self, took: Duration) {
        if let Some(model) = self.counts.last_mut() {
            model.latency.observe(took);
        }
    }
}

impl SourceCounts {
    fn named(name: &str) -> Self {
        let (name, latency) = (name.to_owned(), Histogram::default());
        Self { name, latency, slowest: 0, given_up: 0 }
    }
}

/// What every source of a stage does; without an instant, on a day without a fault.
fn answers(config: &StageConfig, random: &mut Pcg64, now: Option<Mono>) -> Vec<Answer> {
    let of_source = |source: &str| {
        let slow = config
            .slow
            .as_ref()
            .filter(|slow| slow.source == source && now.is_some_and(|now| slow.is_in_force(now)));
        let SourceLatency { base_ms, spread_ms } = config.latency;
        let took_ms = base_ms + spread_ms * random.random::<f64>();
        let took_ms = took_ms * slow.map_or(1.0, |slow| slow.factor);
        let wait_ms = config.wait_ms.unwrap_or(f64::INFINITY);
        Answer { took: milliseconds(took_ms.min(wait_ms)), came: took_ms <= wait_ms }
    };
    sources(config).into_iter().map(of_source).collect()
}

impl SlowSource {
    fn is_in_force(&self, now: Mono) -> bool {
        let until = self.to_s.map(Mono::from_secs_f64);
        now >= Mono::from_secs_f64(self.from_s) && until.is_none_or(|until| now < until)
    }
}

fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1_000.0).unwrap_or(Duration::MAX)
}

/// Measured over the questions of a day before.
fn usual_p95(config: &StageConfig, seed: u64) -> Duration {
    let mut random = rng::seeded(seed, rng::Stream::Application);
    let slowest = |_| {
        let answers = answers(config, &mut random, None);
        answers.iter().map(|answer| answer.took).max().unwrap_or_default()
    };
    let mut all: Vec<_> = (0..USUAL_QUESTIONS).map(slowest).collect();
    all.sort_unstable();
    all[USUAL_QUESTIONS * 95 / 100]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Table {
        stages: Vec<StageConfig>,
    }

    fn table(text: &str) -> Vec<StageConfig> {
        toml::from_str::<Table>(text).expect("fits").stages
    }

    const RETRIEVAL: &str = "[[stages]]\nname = 'retrieval'\nlatency = { base_ms = 40, spread_ms = 40 }\n\
         sources = ['vectors', 'words', 'graph']\n";

    fn gathered(more: &str, at_s: f64) -> (Stages, Vec<Gathered>) {
        let configs = table(&format!("{RETRIEVAL}{more}"));
        check(&configs).expect("in bounds");
        let mut stages = Stages::new(&configs, 1);
        let mut random = rng::seeded(2, rng::Stream::Application);
        let now = Mono::from_secs_f64(at_s);
        let all = (0..1_000).map(|_| stages.gather(&mut random, now)).collect();
        (stages, all)
    }

    #[test]
    fn a_stage_is_as_slow_as_its_slowest_source() {
        let slow = "slow = { source = 'graph', from_s = 10, factor = 30 }";
        let (calm, all) = gathered(slow, 9.0);
        assert!(all.iter().all(|one| one.took <= Duration::from_millis(80)));
        let shares: Vec<_> = calm.counts()[0].sources.iter().map(|source| source.slowest).collect();
        assert!(shares.iter().all(|slowest| (250..420).contains(slowest)), "{shares:?}");
        let (late, all) = gathered(slow, 10.0);
        assert!(all.iter().all(|one| one.took >= Duration::from_millis(1_200)));
        assert_eq!(late.counts()[0].sources[2].slowest, 1_000);
        let usual = late.counts()[0].usual_p95.expect("measured");
        assert!((70..80).contains(&usual.as_millis()), "{usual:?}");
    }

    #[test]
    fn a_source_that_is_given_up_is_missing_from_the_answer() {
        let more = "wait_ms = 500\nslow = { source = 'graph', from_s = 0, to_s = 20, factor = 30 }";
        let (stages, all) = gathered(more, 10.0);
        assert!(all.iter().all(|one| (one.coverage - 2.0 / 3.0).abs() < 1e-9));
        assert_eq!(stages.counts()[0].sources[2].given_up, 1_000);
        let (_, after) = gathered(more, 20.0);
        assert!(after.iter().all(|one| (one.coverage - 1.0).abs() < 1e-9));
    }

    #[test]
    fn what_cannot_be_a_stage_is_named() {
        let bad = |text: &str| check(&table(text)).expect_err("it is wrong").key;
        let named =
            |name: &str| format!("[[stages]]\nname = '{name}'\nlatency = {{ base_ms = 1 }}\n");
        assert_eq!(bad(&named("lunch")), "stages[0].name");
        assert_eq!(bad(&format!("{}{}", named("tools"), named("tools"))), "stages[1].name");
        let slow = "slow = { source = 'x', from_s = 0, factor = 2 }";
        assert_eq!(bad(&format!("{}{slow}", named("tools"))), "stages[0].slow.source");
        let late = "slow = { source = 'tools', from_s = 9, to_s = 8, factor = 2 }";
        assert_eq!(bad(&format!("{}{late}", named("tools"))), "stages[0].slow.to_s");
        assert_eq!(bad(&format!("{}wait_ms = -1", named("tools"))), "stages[0].wait_ms");
    }
}
