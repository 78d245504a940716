//! The tables of `assets/dialects`: what each provider's words mean, as data with its source.
//!
//! A table is read once, checked, and never changed. Its schema is described in the README beside the
//! files; unknown keys are errors.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderName;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::dialect::class::Class;
use crate::dialect::meter::Meter;

/// One provider's dialect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The name that a person writes.
    pub(super) name: String,
    /// Other names of the same dialect.
    #[serde(default)]
    pub(super) aliases: Vec<String>,
    /// The table whose rules follow after its own; the generic one is last in any case.
    pub(super) inherits: Option<String>,
    /// The header that it reads a key from, where that is not `Authorization` with a bearer token. Not
    /// inherited.
    #[serde(default, deserialize_with = "header_name")]
    pub(super) key_header: Option<HeaderName>,
    /// How headers without a unit in their name are counted.
    #[serde(default)]
    pub(super) plain: Plain,
    /// What gives the dialect away when nobody named the provider; one of them is enough.
    #[serde(default)]
    pub(super) detect: Vec<Condition>,
    /// The headers of its meters.
    #[serde(default, rename = "meter")]
    pub(super) rows: Vec<Row>,
    /// What its errors mean; the first that holds decides.
    #[serde(default, rename = "rule")]
    pub(super) rules: Vec<Rule>,
}

/// `x-ratelimit-limit` and the like, which name neither unit nor window.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plain {
    /// The window, where the provider documents one.
    #[serde(default, deserialize_with = "seconds")]
    pub(super) window_s: Option<Duration>,
    /// The header that names the resource that is counted.
    #[serde(default, deserialize_with = "header_name")]
    pub(super) resource: Option<HeaderName>,
    /// The windows of resources.
    #[serde(default)]
    pub(super) resources: Vec<Resource>,
}

/// One resource with a window of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resource {
    pub(super) name: String,
    #[serde(deserialize_with = "seconds")]
    pub(super) window_s: Option<Duration>,
}

/// The headers of one meter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    #[serde(deserialize_with = "meter")]
    pub(super) meter: Meter,
    #[serde(default, deserialize_with = "header_name")]
    pub(super) limit: Option<HeaderName>,
    #[serde(default, deserialize_with = "header_name")]
    pub(super) remaining: Option<HeaderName>,
    #[serde(default, deserialize_with = "header_name")]
    pub(super) reset: Option<HeaderName>,
    /// The window, where the provider documents it.
    #[serde(default, deserialize_with = "seconds")]
    pub(super) window_s: Option<Duration>,
    /// How the reset is written.
    #[serde(default)]
    pub(super) form: ResetForm,
    /// Read in answers of this provider only: others mean something else by the same names.
    #[serde(default)]
    pub(super) private: bool,
    #[serde(rename = "source")]
    _source: String,
    #[serde(default, rename = "trust")]
    _trust: Trust,
}

/// How a provider writes the time until a meter is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ResetForm {
    /// `1m2.5s`; exact, so that the window follows from it.
    #[default]
    Go,
    /// Whole seconds.
    Seconds,
    /// RFC 3339.
    Rfc3339,
}

/// How well a row or rule is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Trust {
    /// Seen in an answer, a test or the provider's documents.
    #[default]
    Verified,
    /// From memory; not checked.
    Recalled,
}

/// What an error means.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// Its name in `why`.
    pub(super) id: String,
    pub(super) when: Condition,
    #[serde(deserialize_with = "class")]
    pub(super) class: Class,
    /// The meter that it names. Absent: the one that words or headers name.
    #[serde(default, deserialize_with = "named_meter")]
    pub(super) meter: Option<NamedMeter>,
    /// For this provider only: those that inherit the table mean something else by it.
    #[serde(default)]
    pub(super) private: bool,
    /// The window of the meter that is shown without one.
    #[serde(default, deserialize_with = "seconds")]
    pub(super) window_s: Option<Duration>,
    #[serde(rename = "source")]
    _source: String,
    #[serde(default, rename = "trust")]
    _trust: Trust,
}

/// The meter of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedMeter {
    This(Meter),
    /// It is not known which.
    Unknown,
}

/// All lists that are given must hold, each by one of its members. Words are compared without case.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase", default)]
pub(super) struct Condition {
    /// `429`, or `5xx`.
    #[serde(deserialize_with = "statuses")]
    pub(super) status: Vec<RangeInclusive<u16>>,
    /// A whole code of the body.
    pub(super) code: Vec<String>,
    /// A whole type of the body.
    #[serde(rename = "type")]
    pub(super) kind: Vec<String>,
    /// A whole reason or status word of the body.
    pub(super) reason: Vec<String>,
    /// A part of a quota's name.
    pub(super) quota: Vec<String>,
    /// A header that is there, or `name: part of its value`.
    pub(super) header: Vec<HeaderPart>,
    /// A part of the prose.
    pub(super) message: Vec<String>,
    /// A second part of the prose.
    pub(super) also: Vec<String>,
    /// A meter of which nothing is left; `any` for each.
    pub(super) empty: Vec<String>,
}

/// A header and, perhaps, a part of its value in lower case.
#[derive(Debug)]
pub(super) struct HeaderPart {
    pub(super) name: HeaderName,
    pub(super) part: Option<String>,
}

impl<'de> Deserialize<'de> for HeaderPart {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        let text = String::deserialize(text)?;
        let (name, part) = match text.split_once(": ") {
            Some((name, part)) => (name, Some(part.to_ascii_lowercase())),
            None => (text.as_str(), None),
        };
        let name = name.parse().map_err(D::Error::custom)?;
        Ok(Self { name, part })
    }
}

fn header_name<'de, D: Deserializer<'de>>(text: D) -> Result<Option<HeaderName>, D::Error> {
    String::deserialize(text)?.parse().map(Some).map_err(D::Error::custom)
}

fn seconds<'de, D: Deserializer<'de>>(number: D) -> Result<Option<Duration>, D::Error> {
    Ok(Some(Duration::from_secs(u64::deserialize(number)?)))
}

fn meter<'de, D: Deserializer<'de>>(word: D) -> Result<Meter, D::Error> {
    let word = String::deserialize(word)?;
    let found = Meter::ALL.into_iter().find(|meter| meter.word() == word);
    found.ok_or_else(|| D::Error::custom(format!("`{word}` is no meter")))
}

fn named_meter<'de, D: Deserializer<'de>>(word: D) -> Result<Option<NamedMeter>, D::Error> {
    let word = String::deserialize(word)?;
    if word == "unknown" {
        return Ok(Some(NamedMeter::Unknown));
    }
    let found = Meter::ALL.into_iter().find(|meter| meter.word() == word);
    let found = found.ok_or_else(|| D::Error::custom(format!("`{word}` is no meter")))?;
    Ok(Some(NamedMeter::This(found)))
}

fn class<'de, D: Deserializer<'de>>(word: D) -> Result<Class, D::Error> {
    let word = String::deserialize(word)?;
    let found = Class::ALL.into_iter().find(|class| class.word() == word);
    found.ok_or_else(|| D::Error::custom(format!("`{word}` is no class")))
}

fn statuses<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<RangeInclusive<u16>>, D::Error> {
    let status = |text: String| {
        let wrong = || D::Error::custom(format!("`{text}` is no status; write \"429\" or \"5xx\""));
        status_range(&text).ok_or_else(wrong)
    };
    Vec::<String>::deserialize(list)?.into_iter().map(status).collect()
}

/// The statuses that `429` or `5xx` stands for; `None` for anything else.
#[must_use]
pub fn status_range(text: &str) -> Option<RangeInclusive<u16>> {
    let Some(hundreds) = text.strip_suffix("xx") else {
        let status = text.parse().ok()?;
        return Some(status..=status);
    };
    let first = hundreds.parse::<u16>().ok().filter(|hundreds| *hundreds < 10)? * 100;
    Some(first..=first + 99)
}
