//! One look at one quota scope: signals by name, each with its source, age and quality.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How far a reading can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quality {
    /// Derived from other signals or a heuristic.
    Inferred,
    /// The truth is this or more.
    LowerBound,
    /// Counted, not estimated.
    Exact,
}

impl Quality {
    /// The word used on screen and in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::LowerBound => "lower-bound",
            Self::Inferred => "inferred",
        }
    }
}

/// The value of a signal. Most are numbers; a few of the catalogue's are records or lists.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A finite number, in the unit that the catalogue gives.
    Number(f64),
    /// A word, such as a breaker state.
    Text(String),
    /// Yes or no.
    Bool(bool),
    /// Named parts, such as `breaker {state, open_since_s}` or `error_codes`.
    Map(BTreeMap<String, Value>),
    /// Several of one kind, such as `tenants`.
    List(Vec<Value>),
}

impl Value {
    /// The number, if this is one.
    #[must_use]
    pub const fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The word, if this is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// One signal as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// What was read.
    pub value: Value,
    /// How far to trust it.
    pub quality: Quality,
    /// Name of the source it came from (`gateway`, `provider`, a file).
    pub source: Arc<str>,
    /// Seconds between the reading and the snapshot's moment.
    pub age_s: f64,
    /// What the reader should know about it, in a few words.
    pub note: Option<Arc<str>>,
}

/// The catalogue's signals for one quota scope over `window_s`.
///
/// A name that is not in `signals` is unknown; `absent` may say why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The quota scope, or empty where the source does not tell scopes apart.
    pub scope: String,
    /// What rates and ratios are taken over, in seconds.
    pub window_s: f64,
    /// What is known.
    pub signals: BTreeMap<String, Reading>,
    /// What is not known, and why.
    pub absent: BTreeMap<String, String>,
}

impl Snapshot {
    /// An empty snapshot: everything unknown.
    #[must_use]
    pub fn new(scope: impl Into<String>, window_s: f64) -> Self {
        Self { scope: scope.into(), window_s, ..Self::default() }
    }

    /// Sets an exact reading of age zero; the short form that tests and cores use.
    pub fn set(&mut self, name: &str, value: Value, source: &Arc<str>) {
        let reading = Reading {
            value,
            quality: Quality::Exact,
            source: Arc::clone(source),
            age_s: 0.0,
            note: None,
        };
        self.signals.insert(name.to_owned(), reading);
    }

    /// The reading of `name`, or `None` when it is unknown.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Reading> {
        self.signals.get(name)
    }

    /// The value at a dotted path (`breaker.state`, `cooldown.in_cooldown`), if known.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<&Value> {
        if let Some(reading) = self.signals.get(path) {
            return Some(&reading.value);
        }
        let mut parts = path.split('.');
        let mut value = &self.signals.get(parts.next()?)?.value;
        for part in parts {
            let Value::Map(map) = value else { return None };
            value = map.get(part)?;
        }
        Some(value)
    }

    /// The number at a dotted path, if known and a number.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<f64> {
        self.value(path)?.as_number()
    }
}
