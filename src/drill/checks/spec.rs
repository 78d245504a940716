//! What a scenario claims about itself: the evidence that appears, what its flips do.
//!
//! `[expect]`, `[[cures]]` and `[[harms]]` of a scenario file. Predicates are in diagnosis' own
//! language and parsed when the file is read. Plays nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::diagnosis::{HEALTHY, INSUFFICIENT, Predicate};
use crate::drill::scenario::{Flags, Wrong, flip_flags, seconds, wrong};
use crate::runbook;
use crate::signal::definition;

/// Within this long after the onset evidence appears, unless the file says otherwise.
const EVIDENCE_WITHIN_S: f64 = 15.0;
/// Within this long after its flip a cure works, unless the file says otherwise.
const BACK_WITHIN_S: f64 = 30.0;

/// Signals of which less is worse; of every other, more is.
const FALLS_WHEN_WORSE: [&str; 24] = [
    "served_share",
    "success_rps",
    "delivered_rps",
    "admitted_rps",
    "provider_completed_rps",
    "progress_items_per_min",
    "final_answer_share",
    "retry_success_share",
    "fallback_success_share",
    "rpm_headroom",
    "tpm_headroom",
    "account_rpm_headroom",
    "rpm_remaining",
    "tpm_remaining",
    "itpm_remaining",
    "otpm_remaining",
    "day_remaining",
    "spend_remaining_usd",
    "citation_valid_share",
    "retrieval_coverage",
    "grounded_share",
    "cached_share",
    "cache.hit_ratio",
    "cache.fast_share",
];

/// What a diagnosis should say, and what it should see.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The cause while the incident lasts.
    pub cause: String,
    /// The cause after the cure.
    pub after_cure: String,
    /// Causes that are so before the onset.
    pub before: Vec<String>,
    /// Causes that are so as well once it has begun.
    pub beside: Vec<String>,
    /// What becomes true once the incident has begun.
    pub evidence: Vec<Predicate>,
    /// How long after the onset at most.
    pub within: Duration,
}

/// Flags that are changed together, and what that does.
#[derive(Clone, Debug, PartialEq)]
pub struct Flip {
    /// The named plan that holds them, if it is one.
    pub plan: Option<String>,
    /// The flags.
    pub flags: Flags,
    /// What it does to the incident.
    pub why: String,
}

/// A flip that ends the incident.
#[derive(Clone, Debug, PartialEq)]
pub struct Cure {
    /// The flip.
    pub flip: Flip,
    /// What becomes true, and stays true.
    pub back: Vec<Predicate>,
    /// How long after the flip at most.
    pub within: Duration,
}

/// A flip that makes it worse.
#[derive(Clone, Debug, PartialEq)]
pub struct Harm {
    /// The flip.
    pub flip: Flip,
    /// What it is done to.
    pub on: Ground,
    /// What becomes worse.
    pub worse: Vec<Worse>,
}

/// What a harmful flip is done to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ground {
    /// The incident as it is.
    #[default]
    Incident,
    /// The incident that the first cure has ended.
    Cured,
}

/// A signal and the way in which it gets worse: `amplification`, `served_share falls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worse {
    /// The signal, or a dotted path into a record.
    pub signal: String,
    /// Whether less of it is worse.
    pub falls: bool,
}

impl Flip {
    /// The plan's name, else the flags as they are written after `--set`.
    #[must_use]
    pub fn name(&self) -> String {
        let flags = || self.flags.iter().map(|(key, value)| format!("{key}={value}"));
        self.plan.clone().unwrap_or_else(|| flags().collect::<Vec<_>>().join(" "))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::drill) struct RawExpect {
    cause: String,
    after_cure: String,
    #[serde(default)]
    before: Vec<String>,
    #[serde(default)]
    beside: Vec<String>,
    #[serde(default)]
    evidence: Vec<String>,
    within_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::drill) struct RawCure {
    plan: Option<String>,
    #[serde(default)]
    flags: BTreeMap<String, toml::Value>,
    why: String,
    within_s: Option<f64>,
    #[serde(default)]
    back: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::drill) struct RawHarm {
    plan: Option<String>,
    #[serde(default)]
    flags: BTreeMap<String, toml::Value>,
    why: String,
    #[serde(default)]
    on: Ground,
    #[serde(default)]
    worse: OneOrMany,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// Refuses a cause that no shipped runbook is about.
fn staged(key: &str, cause: &str) -> Result<(), Wrong> {
    let library = runbook::embedded();
    let is_cause = |id: &str| library.cause(id).is_some();
    if is_cause(cause) || cause == HEALTHY || cause == INSUFFICIENT {
        return Ok(());
    }
    let causes = library.books().map(|book| book.id.as_str()).filter(|id| is_cause(id));
    let causes: Vec<_> = causes.collect();
    Err(wrong(key, format!("no cause `{cause}`"), &causes.join(", ")))
}

/// Reads `[expect]`.
pub(in crate::drill) fn expect(raw: RawExpect) -> Result<Expect, Wrong> {
    for (key, cause) in [("expect.cause", &raw.cause), ("expect.after_cure", &raw.after_cure)] {
        staged(key, cause)?;
    }
    for (key, causes) in [("expect.before", &raw.before), ("expect.beside", &raw.beside)] {
        causes.iter().try_for_each(|cause| staged(key, cause))?;
    }
    Ok(Expect {
        evidence: predicates("expect.evidence", &raw.evidence)?,
        within: seconds("expect.within_s", raw.within_s.unwrap_or(EVIDENCE_WITHIN_S))?,
        cause: raw.cause,
        after_cure: raw.after_cure,
        before: raw.before,
        beside: raw.beside,
    })
}

/// Reads `[[cures]]`.
pub(in crate::drill) fn cures(raw: Vec<RawCure>) -> Result<Vec<Cure>, Wrong> {
    let read = |(index, raw): (usize, RawCure)| {
        let at = format!("cures[{index}]");
        let flags = flip_flags(&at, raw.plan.as_deref(), &raw.flags)?;
        Ok(Cure {
            flip: Flip { plan: raw.plan, flags, why: raw.why },
            back: predicates(&format!("{at}.back"), &raw.back)?,
            within: seconds(&format!("{at}.within_s"), raw.within_s.unwrap_or(BACK_WITHIN_S))?,
        })
    };
    raw.into_iter().enumerate().map(read).collect()
}

/// Reads `[[harms]]`; `has_cure` is whether there is a cured incident to do harm to.
pub(in crate::drill) fn harms(raw: Vec<RawHarm>, has_cure: bool) -> Result<Vec<Harm>, Wrong> {
    let read = |(index, raw): (usize, RawHarm)| {
        let at = format!("harms[{index}]");
        let flags = flip_flags(&at, raw.plan.as_deref(), &raw.flags)?;
        if raw.on == Ground::Cured && !has_cure {
            return Err(wrong(format!("{at}.on"), "nothing is cured", "write a [[cures]] first"));
        }
        let worse = match raw.worse {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        };
        let key = format!("{at}.worse");
        Ok(Harm {
            flip: Flip { plan: raw.plan, flags, why: raw.why },
            on: raw.on,
            worse: worse.iter().map(|text| worse_of(&key, text)).collect::<Result<_, _>>()?,
        })
    };
    raw.into_iter().enumerate().map(read).collect()
}

fn predicates(key: &str, texts: &[String]) -> Result<Vec<Predicate>, Wrong> {
    let read = |text: &String| {
        let predicate = Predicate::parse(text).map_err(|error| {
            wrong(
                key,
                format!("`{text}`, column {}: {}", error.column, error.problem),
                error.remedy,
            )
        })?;
        predicate.signals().into_iter().try_for_each(|signal| known(key, signal))?;
        Ok(predicate)
    };
    texts.iter().map(read).collect()
}

fn worse_of(key: &str, text: &str) -> Result<Worse, Wrong> {
    let mut words = text.split_whitespace();
    let signal = words.next().unwrap_or_default();
    known(key, signal.split('.').next().unwrap_or(signal))?;
    let falls = match (words.next(), words.next()) {
        (None, _) => FALLS_WHEN_WORSE.contains(&signal),
        (Some("rises"), None) => false,
        (Some("falls"), None) => true,
        _ => {
            let problem = format!("`{text}` is not understood");
            return Err(wrong(key, problem, "write a signal, and after it `rises` or `falls`"));
        }
    };
    Ok(Worse { signal: signal.to_owned(), falls })
}

fn known(key: &str, signal: &str) -> Result<(), Wrong> {
    if definition(signal).is_some() {
        return Ok(());
    }
    Err(wrong(key, format!("no signal `{signal}`"), "write a name of the signal catalogue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_what_should_not_fall_is_of_the_catalogue() {
        for name in FALLS_WHEN_WORSE {
            assert!(known("", name.split('.').next().unwrap_or(name)).is_ok(), "{name}");
        }
    }

    #[test]
    fn worse_goes_the_way_of_the_signal_or_the_way_that_is_said() {
        let check = |text: &str, expected: Option<(&str, bool)>| {
            let read = worse_of("worse", text).ok();
            let read = read.as_ref().map(|worse| (worse.signal.as_str(), worse.falls));
            assert_eq!(read, expected, "{text}");
        };
        check("amplification", Some(("amplification", false)));
        check("served_share", Some(("served_share", true)));
        check("cache.hit_ratio", Some(("cache.hit_ratio", true)));
        check("served_share rises", Some(("served_share", false)));
        check("attempts_rps falls", Some(("attempts_rps", true)));
        check("attempts_rps sinks", None);
        check("attempts_rps falls fast", None);
        check("nonsense", None);
        check("", None);
    }
}
