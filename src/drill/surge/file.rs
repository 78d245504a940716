//! A gate file: which surge is played, and what must come out of it. Everything is checked when it is
//! read. Plays nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::bounds::{Bound, Measure, RawBound, bounds};
use crate::drill::scenario::{
    self, Flags, Scenario, ScenarioError, Wrong, flags, read_bounded, seconds, wrong,
};
use crate::signal::{TomlError, toml_error};

/// Most seeds of one gate.
const SEEDS_MAX: usize = 1_000;
/// Highest price: a dollar a token.
const PRICE_MAX: f64 = 1e6;

/// Why there is no gate.
#[derive(Debug, Error)]
pub enum GateFileError {
    /// The file is wrong.
    #[error(transparent)]
    Wrong(#[from] TomlError),
    /// The file, or the scenario that it names, cannot be used.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// One gate.
#[derive(Clone, Debug, PartialEq)]
pub struct GateFile {
    /// What it guards, in a line.
    pub title: String,
    /// The surge, with the flags of the gate.
    pub scenario: Scenario,
    /// The scenario's text, for the processes of a live run.
    pub source: String,
    /// Length of a run without its drain.
    pub total: Duration,
    /// The bounds hold for each of these seeds.
    pub seeds: Vec<u64>,
    /// What a million tokens cost.
    pub usd_per_million_tokens: Option<f64>,
    /// What must hold.
    pub bounds: Vec<Bound>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<S> {
    title: String,
    scenario: S,
    for_s: Option<f64>,
    #[serde(default = "one_seed")]
    seeds: Vec<u64>,
    usd_per_million_tokens: Option<f64>,
    #[serde(default)]
    flags: BTreeMap<String, toml::Value>,
    #[serde(default)]
    bounds: BTreeMap<String, RawBound>,
    #[serde(default)]
    quality: BTreeMap<String, RawBound>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

impl GateFile {
    /// Reads a gate from a file; a scenario that it names ships with weir or lies beside it.
    ///
    /// # Errors
    /// It cannot be read, or the first thing that is wrong, with line, key and what is allowed.
    pub fn load(path: &Path) -> Result<Self, GateFileError> {
        let text = read_bounded(path)?;
        Self::parse(&path.display().to_string(), &text, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a gate from its text; `folder` is where a scenario that it names is looked for.
    ///
    /// # Errors
    /// The first thing that is wrong, with line, key and what is allowed.
    pub fn parse(file: &str, text: &str, folder: &Path) -> Result<Self, GateFileError> {
        let complain =
            |wrong: Wrong| TomlError::at_key(file, text, &wrong.key, &wrong.problem, &wrong.remedy);
        // The kind of `scenario` decides how the file is read, so that errors keep their places.
        let loose: toml::Table = parsed(file, text)?;
        let Some(toml::Value::Table(inline)) = loose.get("scenario") else {
            let raw: Raw<String> = parsed(file, text)?;
            let beside = folder.join(&raw.scenario);
            let name = match beside.to_str() {
                Some(beside) if Path::new(beside).is_file() => beside,
                _ => &raw.scenario,
            };
            let source = Scenario::source(name)?;
            let scenario = Scenario::parse(name, &source).map_err(ScenarioError::from)?;
            return Ok(checked(raw, scenario, source).map_err(complain)?);
        };
        let source = inline.to_string();
        let raw: Raw<scenario::Raw> = parsed(file, text)?;
        let (raw, inline) = raw.split();
        let within = |wrong: Wrong| Wrong { key: format!("scenario.{}", wrong.key), ..wrong };
        let scenario = scenario::checked(inline).map_err(within).map_err(complain)?;
        Ok(checked(raw, scenario, source).map_err(complain)?)
    }
}

impl<S> Raw<S> {
    /// The file without its scenario, and the scenario.
    fn split(self) -> (Raw<()>, S) {
        let Self { title, scenario, for_s, seeds, usd_per_million_tokens, flags, bounds, quality } =
            self;
        let rest = Raw {
            title,
            scenario: (),
            for_s,
            seeds,
            usd_per_million_tokens,
            flags,
            bounds,
            quality,
        };
        (rest, scenario)
    }
}

fn parsed<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, TomlError> {
    toml::from_str(text).map_err(|error| toml_error(file, text, &error))
}

fn checked<S>(raw: Raw<S>, mut scenario: Scenario, source: String) -> Result<GateFile, Wrong> {
    let (raw, _) = raw.split();
    let total = raw.for_s.map(|for_s| seconds("for_s", for_s)).transpose()?;
    let total = total.unwrap_or(scenario.duration);
    if total.is_zero() {
        return Err(wrong("for_s", "nothing is played", "seconds above 0"));
    }
    if raw.seeds.is_empty() || raw.seeds.len() > SEEDS_MAX {
        let problem = format!("there are {}", raw.seeds.len());
        return Err(wrong("seeds", problem, "1 to 1000 seeds"));
    }
    let price = raw.usd_per_million_tokens;
    if price.is_some_and(|price| !(0.0..=PRICE_MAX).contains(&price)) {
        return Err(wrong("usd_per_million_tokens", "out of bounds", "dollars from 0 to 1000000"));
    }
    let bounds = bounds(&raw.bounds, &raw.quality)?;
    if price.is_none() && bounds.iter().any(|bound| bound.measure == Measure::CostUsd) {
        return Err(wrong("bounds.cost_usd", "has no price", "add `usd_per_million_tokens`"));
    }
    overlay(&mut scenario.flags, flags("flags", &raw.flags)?);
    Ok(GateFile {
        title: raw.title,
        scenario,
        source,
        total,
        seeds: raw.seeds,
        usd_per_million_tokens: price,
        bounds,
    })
}

/// Sets flags over those of the scenario.
fn overlay(flags: &mut Flags, over: Flags) {
    flags.retain(|(key, _)| over.iter().all(|(set, _)| set != key));
    flags.extend(over);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::FlagValue;

    const NAMED: &str = "title = 'a surge'\nscenario = 'launch-0900'\nfor_s = 60\nseeds = [1, 2]\n\
        usd_per_million_tokens = 0.02\n[flags]\n\"admission.mode\" = \"enforce\"\n[bounds]\n\
        amplification = { max = 1.1 }\ncost_usd = { max = 1 }\n[quality]\ngrounded_share = { min = 0.9 }\n";

    fn parse(text: &str) -> Result<GateFile, String> {
        GateFile::parse("g.toml", text, Path::new("")).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_stand_over_those_of_the_scenario() {
        let gate = parse(NAMED).expect("right");
        let mode = gate.scenario.flags.iter().filter(|(key, _)| key == "admission.mode");
        let values: Vec<_> = mode.map(|(_, value)| value.clone()).collect();
        assert_eq!(values, [FlagValue::Word("enforce".to_owned())]);
        assert_eq!(gate.total, Duration::from_mins(1));
        assert_eq!(gate.bounds.len(), 3);
    }

    #[test]
    fn a_scenario_can_be_written_in_the_file() {
        let launch = Scenario::source("launch-0900").expect("it ships");
        let table: toml::Table = toml::from_str(&launch).expect("right");
        let mut whole = toml::Table::new();
        whole.insert("scenario".to_owned(), toml::Value::Table(table));
        let text = format!("title = 'x'\n[bounds]\namplification = {{ max = 1.1 }}\n{whole}");
        let gate = parse(&text).expect("right");
        let own = Scenario::load("launch-0900").expect("it ships");
        assert_eq!(gate.scenario, own);
        assert_eq!(Scenario::parse("own.toml", &gate.source), Ok(own), "what processes will read");
        let bad = text.replace("rate = 180", "rate = -180");
        let error = parse(&bad).expect_err("wrong");
        assert!(
            error.contains("`scenario.traffic.steps[1].rate`: -180 is out of bounds"),
            "{error}"
        );
        let typo = parse(&text.replace("onset_s", "onset")).expect_err("a typo");
        assert!(typo.starts_with("g.toml:") && typo.contains("`scenario.onset`"), "{typo}");
    }

    #[test]
    fn errors_name_line_key_and_remedy() {
        let check = |from: &str, to: &str, expected: &str| {
            assert!(NAMED.contains(from), "{from}");
            let error = parse(&NAMED.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains(expected), "{error}");
        };
        check("for_s = 60", "for_s = -1", "g.toml:3:1: `for_s`: -1 is out of bounds; seconds");
        check("for_s = 60", "for_s = 0", "g.toml:3:1: `for_s`: nothing is played");
        check("[1, 2]", "[]", "g.toml:4:1: `seeds`: there are 0; 1 to 1000");
        check("for_s", "fors", "g.toml:3:1: `fors`: unknown field");
        check(
            "amplification",
            "amplify",
            "`bounds.amplify`: no such figure; use one of acceptance_share",
        );
        check("{ max = 1.1 }", "{ most = 1.1 }", "`bounds.amplification.most`: unknown field");
        check("{ max = 1.1 }", "{ min = 2, max = 1.1 }", "`bounds.amplification`: bounds nothing");
        check("{ max = 1.1 }", "{}", "write min, max or both");
        check("grounded_share", "amplification", "`quality.amplification`: no such figure");
        check("usd_per_million_tokens = 0.02\n", "", "`bounds.cost_usd`: has no price");
        check("launch-0900", "lunch", "no scenario `lunch`");
        check("\"enforce\"", "\"sometimes\"", "`flags.admission.mode`");
        check("'launch-0900'", "7", "g.toml:2:12: `scenario`: invalid type");
    }
}
