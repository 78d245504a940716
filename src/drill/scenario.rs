//! What a drill stages: a provider, its traffic, the layers above the gate, and what is to be learnt.
//!
//! A scenario is a TOML file; some ship with weir, a user adds others by path. Everything is checked
//! when it is read, so that a drill never stops half way over a bad number. Starts nothing.

mod callers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::checks::spec::{self, Cure, Expect, Harm, RawCure, RawExpect, RawHarm};
use super::lost::Lost;
use super::upstream::Upstream;
use crate::admission::{FlagValue, PLANS, flag};
use crate::signal::{TomlError, toml_error};
use crate::sim::app::AppConfig;
use crate::sim::callers::CallerConfig;
use crate::sim::config::{ConfigError, ProviderConfig};
use crate::sim::gate::GateConfig;
use crate::sim::layers::{Layers, Stack};
use crate::sim::world::{Patience, ScopeProvider, WorldConfig};

use callers::{check_callers, further_scopes, stack_layers};

/// Largest scenario file.
const FILE_LEN_MAX: u64 = 1024 * 1024;
/// The name of the quota scope of `[provider]`.
pub const FIRST_SCOPE: &str = "embed";
/// Longest drill: a day.
const DURATION_S_MAX: f64 = 86_400.0;

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../assets/scenarios/", $name, ".toml")))),+]
    };
}

/// The scenarios that ship with weir, by name, as text.
const SHIPPED: &[(&str, &str)] = shipped![
    "launch-0900",
    "deaf-wrapper",
    "slow-refusals",
    "tpm-exhausted",
    "rpm-exhausted",
    "burst-or-ramp",
    "retry-backlog",
    "retry-clock",
    "hard-quota",
    "calendar-quota",
    "provider-overload",
    "concurrency-cap",
    "agent-fan-out",
    "embedding-storm-other-routes-fine",
    "late-run-then-manual-run",
    "launch-that-goes-well",
    "quiet-night",
    "leaked-permits",
    "gate-refuses-wrongly",
    "quota-view-drift",
    "breaker-stuck",
    "limiter-store-fault",
    "local-queueing",
    "pool-imbalance",
    "demand-over-capacity",
    "lost-source",
    "tenant-starvation",
    "backfill-contention",
    "fan-out-tail",
    "cached-answer-wrong",
    "poisoned-request",
    "probe-spend",
    "runaway-demand",
    "disguised-refusals",
    "fallback-loop",
];

/// Why there is no scenario.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// Neither a shipped name nor a file.
    #[error("no scenario `{name}`; use a path, or one of: {}", names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is larger than a scenario can be.
    #[error("{} is larger than {FILE_LEN_MAX} bytes and cannot be a scenario", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is wrong.
    #[error(transparent)]
    Wrong(#[from] TomlError),
}

/// One incident to stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What happens, in a line.
    pub title: String,
    /// How long it runs unless `--for` says otherwise, the calm included.
    pub duration: Duration,
    /// When the incident begins.
    pub onset: Duration,
    /// The most attempts that the intended retry owner may make per original.
    pub max_attempts_configured: u32,
    /// When something new was deployed; `None`: days before the start.
    pub deployed: Option<Duration>,
    /// The gate's flags at the start.
    pub flags: Flags,
    /// The simulated provider of the first quota scope.
    pub provider: ProviderConfig,
    /// Further quota scopes, in the order of their names.
    pub providers: Vec<ScopeProvider>,
    /// The main caller; its steps name the phases.
    pub traffic: CallerConfig,
    /// Further callers.
    pub callers: Vec<CallerConfig>,
    /// The application around the questions of people.
    pub app: AppConfig,
    /// The layers above the gate.
    pub layers: Stack,
    /// What the gate believes, and what is wrong with it.
    pub gate: GateConfig,
    /// What a diagnosis should say.
    pub expect: Expect,
    /// Flips that end the incident.
    pub cures: Vec<Cure>,
    /// Flips that make it worse.
    pub harms: Vec<Harm>,
    /// A metrics page that cannot be read for a while.
    pub lost: Option<Lost>,
    /// A provider in place of the simulated one, when the drill is live.
    pub upstream: Option<Upstream>,
}

/// Flags and their values, in the order of their keys.
pub type Flags = Vec<(String, FlagValue)>;

/// A scenario as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    name: String,
    title: String,
    duration_s: f64,
    onset_s: f64,
    max_attempts_configured: u32,
    deployed_at_s: Option<f64>,
    flags: BTreeMap<String, toml::Value>,
    provider: ProviderConfig,
    #[serde(default)]
    providers: BTreeMap<String, ProviderConfig>,
    traffic: CallerConfig,
    #[serde(default)]
    callers: Vec<CallerConfig>,
    #[serde(default)]
    app: AppConfig,
    #[serde(default)]
    layers: Layers,
    #[serde(default)]
    gate: GateConfig,
    expect: RawExpect,
    #[serde(default)]
    cures: Vec<RawCure>,
    #[serde(default)]
    harms: Vec<RawHarm>,
    sources: Option<Lost>,
    upstream: Option<Upstream>,
}

/// The names of the scenarios that ship with weir.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

impl Scenario {
    /// The scenario that ships under this name, else the file at this path.
    ///
    /// # Errors
    /// There is none, or it is wrong.
    pub fn load(name_or_path: &str) -> Result<Self, ScenarioError> {
        Ok(Self::parse(name_or_path, &Self::source(name_or_path)?)?)
    }

    /// The text of the scenario that [`Self::load`] would read.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn source(name_or_path: &str) -> Result<String, ScenarioError> {
        if let Some((_, text)) = SHIPPED.iter().find(|(name, _)| *name == name_or_path) {
            return Ok((*text).to_owned());
        }
        let path = Path::new(name_or_path);
        if !path.exists() {
            return Err(ScenarioError::Unknown { name: name_or_path.to_owned() });
        }
        read_bounded(path)
    }

    /// Reads a scenario from its text; `file` is named in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with line, key and what is allowed.
    pub fn parse(file: &str, text: &str) -> Result<Self, TomlError> {
        let raw: Raw = toml::from_str(text).map_err(|error| toml_error(file, text, &error))?;
        let complain = |key: &str, message: &str, remedy: &str| {
            TomlError::at_key(file, text, key, message, remedy)
        };
        checked(raw).map_err(|wrong| complain(&wrong.key, &wrong.problem, &wrong.remedy))
    }

    /// Whether everybody waits for ever: no caller leaves, none has a deadline.
    #[must_use]
    pub fn nobody_leaves(&self) -> bool {
        self.all_callers().iter().all(|caller| caller.patience() == Patience::default())
    }

    /// The same incident on the virtual clock.
    #[must_use]
    pub fn world(&self, seed: u64) -> WorldConfig {
        WorldConfig {
            providers: self.scopes(),
            callers: self.all_callers(),
            layers: self.layers.clone(),
            app: self.app.clone(),
            seed,
        }
    }

    /// Every quota scope and its provider, the first first.
    #[must_use]
    pub fn scopes(&self) -> Vec<ScopeProvider> {
        let first = ScopeProvider { name: FIRST_SCOPE.to_owned(), provider: self.provider.clone() };
        [first].into_iter().chain(self.providers.iter().cloned()).collect()
    }

    /// Every caller, the main one first.
    #[must_use]
    pub fn all_callers(&self) -> Vec<CallerConfig> {
        [&self.traffic].into_iter().chain(&self.callers).cloned().collect()
    }
}

/// Reads a provider from the text of a `provider.toml`: the same keys as a scenario's `[provider]`.
///
/// # Errors
/// The first thing that is wrong, with line, key and what is allowed.
pub fn parse_provider(file: &str, text: &str) -> Result<ProviderConfig, TomlError> {
    let config: ProviderConfig =
        toml::from_str(text).map_err(|error| toml_error(file, text, &error))?;
    let complain = |wrong: ConfigError| {
        TomlError::at_key(file, text, &wrong.key, &wrong.problem, wrong.allowed)
    };
    config.check().map_err(complain)?;
    Ok(config)
}

/// Reads a configuration file that is not absurdly large.
///
/// # Errors
/// It cannot be read, or is no configuration.
pub fn read_bounded(path: &Path) -> Result<String, ScenarioError> {
    let unreadable = |source| ScenarioError::Unreadable { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_LEN_MAX {
        return Err(ScenarioError::TooLarge { path: path.to_owned() });
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

/// A key that is wrong, before its place in the file is known.
pub(super) struct Wrong {
    pub(super) key: String,
    pub(super) problem: String,
    pub(super) remedy: String,
}

pub(super) fn wrong(key: impl Into<String>, problem: impl Into<String>, remedy: &str) -> Wrong {
    Wrong { key: key.into(), problem: problem.into(), remedy: remedy.to_owned() }
}

fn under(table: impl std::fmt::Display) -> impl Fn(ConfigError) -> Wrong {
    move |error| wrong(format!("{table}.{}", error.key), error.problem, error.allowed)
}

fn as_it_is(error: ConfigError) -> Wrong {
    wrong(error.key, error.problem, error.allowed)
}

/// The text of a client that a scenario names by its path, from where weir runs.
fn read_client(path: &str) -> Result<String, String> {
    read_bounded(Path::new(path)).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    })
}

/// Checks everything that was written.
pub(super) fn checked(mut raw: Raw) -> Result<Scenario, Wrong> {
    raw.provider.check().map_err(under("provider"))?;
    raw.traffic.check().map_err(under("traffic"))?;
    check_callers(&raw)?;
    raw.app.check().map_err(under("app"))?;
    let layers = stack_layers(&mut raw)?;
    raw.gate.check().map_err(under("gate"))?;
    let duration = seconds("duration_s", raw.duration_s)?;
    let onset = seconds("onset_s", raw.onset_s)?;
    if !(1..=20).contains(&raw.max_attempts_configured) {
        return Err(wrong(
            "max_attempts_configured",
            format!("{} is out of bounds", raw.max_attempts_configured),
            "1 to 20, the first attempt included",
        ));
    }
    raw.upstream.as_ref().map_or(Ok(()), Upstream::check).map_err(under("upstream"))?;
    raw.sources.as_ref().map_or(Ok(()), Lost::check).map_err(under("sources"))?;
    Ok(Scenario {
        name: raw.name,
        title: raw.title,
        duration,
        onset,
        max_attempts_configured: raw.max_attempts_configured,
        deployed: raw.deployed_at_s.map(|at| seconds("deployed_at_s", at)).transpose()?,
        flags: flags("flags", &raw.flags)?,
        provider: raw.provider,
        providers: further_scopes(raw.providers),
        traffic: raw.traffic,
        callers: raw.callers,
        app: raw.app,
        layers,
        gate: raw.gate,
        expect: spec::expect(raw.expect)?,
        harms: spec::harms(raw.harms, !raw.cures.is_empty())?,
        cures: spec::cures(raw.cures)?,
        lost: raw.sources,
        upstream: raw.upstream,
    })
}

pub(super) fn seconds(key: &str, value: f64) -> Result<Duration, Wrong> {
    let in_bounds = (0.0..=DURATION_S_MAX).contains(&value);
    let span = Duration::try_from_secs_f64(value).ok().filter(|_| in_bounds);
    span.ok_or_else(|| wrong(key, format!("{value} is out of bounds"), "seconds from 0 to 86400"))
}

pub(super) fn flags(table: &str, raw: &BTreeMap<String, toml::Value>) -> Result<Flags, Wrong> {
    let read = |(key, value): (&String, &toml::Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let parsed = flag(key).and_then(|def| def.parse(&text));
        let at = format!("{table}.{key}");
        parsed.map(|value| (key.clone(), value)).map_err(|error| {
            wrong(at, error.to_string(), "write a flag of the table, with one of its values")
        })
    };
    raw.iter().map(read).collect()
}

/// The flags that a flip changes: those of its plan, and its own.
pub(super) fn flip_flags(
    at: &str,
    plan: Option<&str>,
    own: &BTreeMap<String, toml::Value>,
) -> Result<Flags, Wrong> {
    let mut changes = flags(&format!("{at}.flags"), own)?;
    if let Some(name) = plan {
        let plan = PLANS.iter().find(|plan| plan.name == name).ok_or_else(|| {
            let known: Vec<_> = PLANS.iter().map(|plan| plan.name).collect();
            wrong(format!("{at}.plan"), format!("no plan `{name}`"), &known.join(", "))
        })?;
        for (key, value) in plan.changes {
            let value = flag(key).and_then(|def| def.parse(value));
            let value = value
                .map_err(|error| wrong(format!("{at}.plan"), error.to_string(), "fix the plan"))?;
            changes.push(((*key).to_owned(), value));
        }
    }
    if changes.is_empty() {
        return Err(wrong(at, "changes nothing", "name a plan or flags"));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::layers::LayersConfig;

    #[test]
    fn what_ships_is_right() {
        for name in names() {
            let scenario = Scenario::load(name).expect("a shipped scenario is right");
            assert_eq!(scenario.name, name);
        }
        for name in ["launch-0900", "deaf-wrapper"] {
            let scenario = Scenario::load(name).expect("a shipped scenario is right");
            assert_eq!(scenario.onset, Duration::from_secs(10));
            assert_eq!(scenario.cures[0].flip.flags.len(), 3, "contain changes three flags");
            let phases: Vec<_> = scenario.traffic.steps.iter().map(|step| &step.name).collect();
            assert_eq!(phases, ["calm", "storm"]);
        }
        let deaf = Scenario::load("deaf-wrapper").expect("it ships");
        let launch = Scenario::load("launch-0900").expect("it ships");
        assert_eq!(launch.layers, Stack::default(), "the defaults are those of the design");
        let mut layers = LayersConfig::default();
        layers.wrapper.deaf = true;
        let expected = (Stack::from(&layers), launch.provider);
        assert_eq!(expected, (deaf.layers, deaf.provider), "one difference");
    }

    fn check(from: &str, to: &str, expected: &str) {
        let text = SHIPPED[0].1.replacen(from, to, 1);
        assert_ne!(text, SHIPPED[0].1, "`{from}` is in the file");
        let error = Scenario::parse("mine.toml", &text).expect_err("it is wrong now").to_string();
        assert!(error.starts_with("mine.toml"), "{error}");
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn errors_name_line_key_and_remedy() {
        check(
            "duration_s = 120",
            "duration_s = 86401",
            ":6:1: `duration_s`: 86401 is out of bounds",
        );
        check(
            "onset_s = 10",
            "onset = 10",
            ":7:1: `onset`: unknown field `onset`, expected one of",
        );
        check("\"off\"", "\"sometimes\"", "`admission.mode` takes enforce, shadow, off");
        check("rate = 180", "rate = -1", "`traffic.steps[1].rate`: -1 is out of bounds");
        check("back = [", "back = ['nonsense',", "`cures[0].back`: `nonsense`, column 9:");
        check("back = [", "back = ['lunch > 1',", "`cures[0].back`: no signal `lunch`");
        check("worse = [", "worse = ['lunch',", "`harms[0].worse`: no signal `lunch`");
        check(
            "[[cures]]",
            "[sources]\nlose = 'gateway'\nfrom_s = 2\nto_s = 1\n[[cures]]",
            "`sources.to_s`: 1",
        );
        check("plan = \"contain\"", "plan = \"pray\"", "`cures[0].plan`: no plan `pray`; contain");
        check("start = 3_000", "start = -1", "`provider.requests.start`: invalid value");
        check("nested-retries\"\nafter", "nested-retry\"\nafter", "no cause `nested-retry`");
        check("tries = 3", "tries = 0", "`layers.sdk.tries`: 0 is out of bounds");
        check("max_attempts_configured = 3", "max_attempts_configured = 0", "1 to 20");
        check("[expect]", "[gate]\ninstances = 99\n[expect]", "`gate.instances`: 99 is out of");
        check("[expect]", "[gate.faults]\nheader = false\n[expect]", "unknown field `header`");
        check(
            "[expect]",
            "[gate.faults]\nleak = { ratio = 2 }\n[expect]",
            "`gate.faults.leak.ratio`: 2 is out of bounds; a share from 0 to 1",
        );
        check("[expect]", "[[expect]]\n[expect]", "mine.toml:");
    }

    #[test]
    fn layers_may_be_a_list_of_clients() {
        let (before, rest) = SHIPPED[0].1.split_once("[layers.sdk]").expect("it is there");
        let after = &rest[rest.find("[expect]").expect("it is there")..];
        let parse =
            |layers: &str| Scenario::parse("mine.toml", &format!("{before}{layers}\n{after}"));
        let scenario = parse("[[layers]]\nuse = 'langchain-with-retry'\ntries = 2").expect("right");
        let names: Vec<_> = scenario.layers.names().collect();
        assert_eq!(names, ["langchain-with-retry", "openai-python"]);
        let wrong = parse("[[layers]]\nuse = 'openai-python'\ntries = 0").expect_err("no try");
        let line = before.lines().count() + 3;
        let expected = format!("mine.toml:{line}:1: `layers[0].tries`: 0 is out of bounds");
        assert!(wrong.to_string().starts_with(&expected), "{wrong}");
        let wrong = parse("[[layers]]\nuse = 'mine/sdk.toml'").expect_err("no file").to_string();
        assert!(
            wrong.contains("`layers[0].use`: cannot read mine/sdk.toml: No such file"),
            "{wrong}"
        );
        let wrong = parse("[[layers]]\nuse = 'httpx'\ntrys = 2").expect_err("a typo").to_string();
        assert!(wrong.starts_with(&format!("mine.toml:{line}:1: `layers[0].trys`: ")), "{wrong}");
    }

    #[test]
    fn another_machine_needs_a_budget() {
        let parse = |upstream: &str| {
            let text = format!("{}\n[upstream]\n{upstream}", SHIPPED[0].1);
            Scenario::parse("mine.toml", &text).map_err(|error| error.to_string())
        };
        let elsewhere = "url = 'https://api.example.com'\nmodel = 'm'\n";
        let refused = parse(elsewhere).expect_err("no budget");
        let line = SHIPPED[0].1.lines().count() + 2;
        let expected = format!("mine.toml:{line}:2: `upstream.budget_requests`: missing");
        assert!(refused.starts_with(&expected), "{refused}");
        let few = parse(&format!("{elsewhere}budget_requests = 3")).expect_err("too few");
        assert!(few.starts_with(&format!("mine.toml:{}:1: ", line + 3)), "{few}");
        let typo = parse(&format!("{elsewhere}budget = 3")).expect_err("a typo");
        assert!(typo.contains("`upstream.budget`: unknown field"), "{typo}");
        let nameless = parse("url = 'http://127.0.0.1:9'").expect_err("no model");
        assert!(nameless.contains("missing field `model`"), "{nameless}");
        let budget = "budget_requests = 100\nbudget_usd = 1.5\nusd_per_million_tokens = 0.02";
        let stated = parse(&format!("{elsewhere}{budget}")).expect("the budget is stated");
        assert_eq!(
            stated.upstream.map(|upstream| upstream.path).as_deref(),
            Some("/v1/embeddings")
        );
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Scenario::load("lunch-0900").expect_err("a typo").to_string();
        assert!(error.contains("launch-0900, deaf-wrapper"), "{error}");
    }
}
