//! An adapter in memory: what one kind of source says about each signal, how well, and why not.
//!
//! Knows neither the file it came from nor any series.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::signal::Quality;

use super::ast::{Expr, Pattern, Selector};

/// Where a source stands. The first role that knows a signal is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The gateway, router or proxy that clients talk to.
    Gateway,
    /// What the gateway talks to.
    Provider,
    /// The callers.
    Clients,
}

/// How sure the mapping itself is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// Held against the truth in a run of that version.
    Run,
    /// Read in source code or documents.
    Documents,
}

impl Verified {
    /// The word for a reader.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Run => "verified by a run",
            Self::Documents => "from documents",
        }
    }
}

/// How the quota scopes of a source are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeLabel {
    /// The label that names the scope.
    pub label: String,
    /// Metrics that carry it begin so.
    pub metrics: String,
}

/// How one kind of source is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// Its name, the stem of its file.
    pub name: String,
    /// What it reads, with the version.
    pub title: String,
    /// What was checked, and what to switch on.
    pub about: String,
    /// Where the source stands.
    pub role: Role,
    /// How sure the mapping is.
    pub verified: Verified,
    /// How scopes are told apart; `None` when they are not.
    pub scope: Option<ScopeLabel>,
    /// Metrics whose series appear with their first event, so that none of them means none happened.
    pub lazy: Vec<Pattern>,
    /// Label values that stand for no value.
    pub unset: Vec<String>,
    /// Whether a gauge below zero is a placeholder.
    pub drop_negative: bool,
    /// What it says, by signal.
    pub signals: BTreeMap<String, Entry>,
    /// See [`Adapter::may_say`].
    pub(super) needs: BTreeMap<String, BTreeSet<String>>,
}

impl Adapter {
    /// Whether a signal can be said at all where the metrics are there that `has` says: told without
    /// evaluating it, and never no where it can.
    pub(super) fn may_say(&self, signal: &str, has: impl Fn(&str) -> bool) -> bool {
        self.needs.get(signal).is_none_or(|metrics| metrics.iter().any(|metric| has(metric)))
    }

    /// The metrics of which a signal needs one at least, by signal.
    pub(super) fn needs(&self) -> BTreeMap<String, BTreeSet<String>> {
        let names = self.signals.keys();
        names.filter_map(|name| Some((name.clone(), self.needs_of(name)?))).collect()
    }

    /// `None` for what is said without any metric: from a constant, or because nothing is a count too.
    fn needs_of(&self, signal: &str) -> Option<BTreeSet<String>> {
        let mut needs = BTreeSet::new();
        let Some(Entry::Readings(readings)) = self.signals.get(signal) else { return Some(needs) };
        for reading in readings {
            let (metrics, signals) = (reading.metrics(), reading.signals());
            let is_constant = |expr: &&Expr| expr.metrics().is_empty() && expr.signals().is_empty();
            let is_nothing = metrics.is_empty() && signals.is_empty();
            if is_nothing
                || reading.expressions().iter().any(is_constant)
                || metrics.iter().any(|metric| self.is_lazy(metric))
            {
                return None;
            }
            needs.extend(metrics);
            for name in signals {
                needs.extend(self.needs_of(name)?);
            }
        }
        Some(needs)
    }

    /// Every metric that it reads.
    pub fn metrics(&self) -> impl Iterator<Item = String> {
        self.signals.values().flat_map(Entry::metrics)
    }

    /// How well a signal can be read where the metrics are there that `has` says.
    ///
    /// # Errors
    ///
    /// With the reason, where it cannot.
    pub fn quality_where(
        &self,
        signal: &str,
        has: &impl Fn(&str) -> bool,
    ) -> Result<Quality, String> {
        let readings = match self.signals.get(signal) {
            Some(Entry::Readings(readings)) => readings,
            Some(Entry::Absent(why)) => return Err(why.clone()),
            None => return Err(format!("no metric of adapter {} says it", self.name)),
        };
        let mut why = None;
        for reading in readings {
            match self.lacks(reading, has) {
                None => return Ok(reading.quality),
                Some(lack) => why = why.or(Some(lack)),
            }
        }
        Err(why.unwrap_or_default())
    }

    /// What a reading needs and is not there. Of a record, a list or a choice one part is enough.
    fn lacks(&self, reading: &Reading, has: &impl Fn(&str) -> bool) -> Option<String> {
        let metrics = reading.metrics();
        let mut missing = metrics.iter().filter(|metric| !has(metric) && !self.is_lazy(metric));
        let (first, count) = (missing.next(), missing.count() + 1);
        let parts_do = !matches!(reading.form, Form::Value(_) | Form::Counts(_));
        if let Some(metric) = first.filter(|_| !parts_do || count == metrics.len()) {
            return Some(format!("does not export {metric}"));
        }
        let unread = |name: &&str| self.quality_where(name, has).is_err();
        let signals = reading.signals();
        let (first, count) = (
            signals.iter().copied().find(|name| unread(name)),
            signals.iter().filter(|name| unread(name)).count(),
        );
        let name = first.filter(|_| !parts_do || count == signals.len())?;
        Some(format!("{name} is unknown"))
    }

    /// The metrics that are counted over a span of their own, each with its longest.
    #[must_use]
    pub fn spans(&self) -> BTreeMap<String, Duration> {
        let mut spans: BTreeMap<String, Duration> = BTreeMap::new();
        let entries = self.signals.values();
        let readings = entries.filter_map(|entry| match entry {
            Entry::Readings(readings) => Some(readings),
            Entry::Absent(_) => None,
        });
        for expr in readings.flatten().flat_map(Reading::expressions) {
            for (metric, span) in expr.spans() {
                let longest = spans.entry(metric.to_owned()).or_default();
                *longest = span.max(*longest);
            }
        }
        spans
    }

    /// Whether none of a metric's series means that nothing happened.
    #[must_use]
    pub fn is_lazy(&self, metric: &str) -> bool {
        self.lazy.iter().any(|pattern| pattern.matches(metric))
    }
}

/// What an adapter says about one signal.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Ways to read it; a later one is used where an earlier one's metrics are missing.
    Readings(Vec<Reading>),
    /// It cannot be read, and why.
    Absent(String),
}

impl Entry {
    /// The best quality that it can have; `None` when it is absent.
    #[must_use]
    pub fn quality(&self) -> Option<Quality> {
        match self {
            Self::Readings(readings) => readings.iter().map(|reading| reading.quality).max(),
            Self::Absent(_) => None,
        }
    }

    /// The note of the first reading.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Readings(readings) => readings.first()?.note.as_deref(),
            Self::Absent(why) => Some(why),
        }
    }

    pub(super) fn metrics(&self) -> Vec<String> {
        match self {
            Self::Readings(readings) => readings.iter().flat_map(Reading::metrics).collect(),
            Self::Absent(_) => Vec::new(),
        }
    }
}

/// One way to read a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// How the value comes about.
    pub form: Form,
    /// How far it can be trusted.
    pub quality: Quality,
    /// What the reader of the screen should know.
    pub note: Option<String>,
    /// How old the source's own word was when it was scraped.
    pub age: Option<Expr>,
    /// Oldest word that still counts, in seconds.
    pub max_age_s: Option<f64>,
}

impl Reading {
    /// Every expression in it.
    pub fn expressions(&self) -> Vec<&Expr> {
        let mut all: Vec<&Expr> = self.age.iter().collect();
        match &self.form {
            Form::Value(expr) => all.push(expr),
            Form::Counts(_) => {}
            Form::Parts(_) | Form::Rows { .. } => {
                all.extend(self.form.parts().iter().filter_map(|(_, part)| part.expression()));
            }
            Form::Least(cases) => {
                all.extend(cases.iter().flat_map(|case| case.age.iter().chain([&case.value])));
            }
        }
        all
    }

    /// Signals of the same adapter that it refers to.
    pub fn signals(&self) -> Vec<&str> {
        let mut signals: Vec<&str> = self.expressions().iter().flat_map(|e| e.signals()).collect();
        if let Form::Least(cases) = &self.form {
            signals.extend(cases.iter().map(|case| case.by.as_str()));
        }
        signals
    }

    fn metrics(&self) -> Vec<String> {
        let mut metrics: Vec<_> = self.expressions().iter().flat_map(|e| e.metrics()).collect();
        match &self.form {
            Form::Counts(counts) => {
                metrics.extend(counts.iter().map(|count| count.of.metric.to_string()));
            }
            Form::Parts(_) | Form::Rows { .. } => {
                metrics.extend(self.form.parts().iter().filter_map(|(_, part)| match part {
                    Part::Label { of, .. } => Some(of.metric.to_string()),
                    Part::Number { .. } | Part::Word { .. } => None,
                }));
            }
            Form::Value(_) | Form::Least(_) => {}
        }
        if let Form::Rows { of, .. } = &self.form {
            metrics.push(of.metric.to_string());
        }
        metrics
    }
}

/// How a value comes about.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// One number.
    Value(Expr),
    /// A map from a label's values to increases in the window.
    Counts(Vec<Count>),
    /// A record; parts that are unknown are left out.
    Parts(Vec<(String, Part)>),
    /// One record or number per value of a label.
    Rows {
        /// The label.
        by: String,
        /// The series whose values of it make the rows.
        of: Selector,
        /// What is read of each.
        parts: RowParts,
    },
    /// The value of the case whose signal is the least.
    Least(Vec<Case>),
}

/// What is read for each value of a label.
#[derive(Clone, Debug, PartialEq)]
pub enum RowParts {
    /// A record, in a list; its `id` is the label's value.
    Records(Vec<(String, Part)>),
    /// One number, in a map from the label's values.
    Numbers([(String, Part); 1]),
}

/// The name of the only part where rows are numbers.
pub const VALUE: &str = "value";

impl Form {
    /// The parts that it is read from, if it is read from parts.
    #[must_use]
    pub fn parts(&self) -> &[(String, Part)] {
        match self {
            Self::Parts(parts) | Self::Rows { parts: RowParts::Records(parts), .. } => parts,
            Self::Rows { parts: RowParts::Numbers(parts), .. } => parts,
            Self::Value(_) | Self::Counts(_) | Self::Least(_) => &[],
        }
    }

    /// Whether it can only grow when another instance is added, so that without one it is a lower
    /// bound.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        match self {
            Self::Value(expr) => expr.adds_up(),
            Self::Counts(_) => true,
            Self::Parts(_) | Self::Rows { .. } | Self::Least(_) => false,
        }
    }
}

/// One metric of a map of counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The series.
    pub of: Selector,
    /// The label that makes the keys.
    pub by: String,
    /// What the keys begin with.
    pub prefix: String,
}

/// One part of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A number.
    Number {
        /// Which.
        value: Expr,
        /// Divided by the sum over all rows.
        share: bool,
    },
    /// A word that stands for a number.
    Word {
        /// The number.
        value: Expr,
        /// The words.
        words: Vec<(f64, String)>,
    },
    /// The value of a label of the one series that is above zero.
    Label {
        /// The label.
        label: String,
        /// The series.
        of: Selector,
    },
}

impl Part {
    fn expression(&self) -> Option<&Expr> {
        match self {
            Self::Number { value, .. } | Self::Word { value, .. } => Some(value),
            Self::Label { .. } => None,
        }
    }
}

/// One case of [`Form::Least`].
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The signal that is compared.
    pub by: String,
    /// The value if it is the least.
    pub value: Expr,
    /// Its note.
    pub note: Option<String>,
    /// Age of its reading.
    pub age: Option<Expr>,
}
