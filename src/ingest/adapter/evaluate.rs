//! Evaluates an adapter's expressions over one source's series, seen from one scope.
//!
//! Numbers come from the source's own pages ([`counted`](super::counted)) or from a query API
//! ([`aggregated`](super::aggregated)). Where some instances are silent, a sum is a lower bound and
//! the rest is inferred.
//!
//! What cannot be said comes out as a reason, never as zero. Gauges that hold a placeholder (`NaN`,
//! an infinity, 2^63 and more, which stand for "no limit" or for a counter below zero) say nothing.

use std::time::Duration;

use crate::signal::{Bucket, Labels, Quality, Value, histogram_quantile};

use super::aggregated::Aggregates;
use super::ast::{Expr, Fold, Op, Selector, Series};
use super::counted::Instance;
use super::model::{Adapter, Case, Entry, Form, Reading};

/// Why a rate cannot be said yet.
pub(super) const WARMING_UP: &str = "warming up: a rate needs two scrapes within the window";

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The source does not say, or not any more: an alternative may.
    Missing(String),
    /// It could be said, but not now.
    Nothing(String),
}

impl Unknown {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Missing(why) | Self::Nothing(why) => why,
        }
    }

    pub(super) fn missing(metric: &str) -> Self {
        Self::Missing(format!("does not export {metric}"))
    }

    pub(super) fn nothing(metric: &str) -> Self {
        Self::Nothing(format!("no {metric} in the window"))
    }
}

/// A value with what the reader should know about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) value: Value,
    pub(super) quality: Quality,
    pub(super) note: Option<String>,
    /// Age of the reading when it was scraped, in seconds.
    pub(super) extra_age_s: f64,
    /// A quantile beyond the last bucket, and so a lower bound however it is read otherwise.
    pub(super) is_floor: bool,
}

/// What an entry came to.
pub(super) type Said = Result<Found, Unknown>;

/// A number on its way through an expression.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) value: f64,
    quality: Quality,
    age_s: f64,
    note: Option<String>,
    /// A quantile beyond the last bucket: the truth is this or more.
    is_floor: bool,
}

impl Scalar {
    pub(super) const fn exact(value: f64) -> Self {
        Self { value, quality: Quality::Exact, age_s: 0.0, note: None, is_floor: false }
    }

    /// At least this, and what else there is to say.
    pub(super) const fn at_least(value: f64, note: Option<String>) -> Self {
        Self { value, quality: Quality::LowerBound, age_s: 0.0, note, is_floor: false }
    }

    /// The two as one number: as good as the worse, as old as the older.
    fn with(self, other: Self, value: f64) -> Self {
        Self {
            value,
            quality: self.quality.min(other.quality),
            age_s: self.age_s.max(other.age_s),
            note: self.note.or(other.note),
            is_floor: self.is_floor || other.is_floor,
        }
    }
}

/// One number of several, with the labels that are left of its series.
pub(super) struct Item<'a> {
    pub(super) tags: Tags<'a>,
    pub(super) value: f64,
}

pub(super) enum Tags<'a> {
    Series(&'a Labels),
    Group(Vec<(&'a str, &'a str)>),
}

/// One source's series, seen from one scope.
#[derive(Clone, Copy)]
pub(super) struct Evaluation<'a> {
    pub(super) adapter: &'a Adapter,
    /// Those that answer; none where the source adds up by itself.
    pub(super) instances: &'a [Instance<'a>],
    /// What is missing from the numbers, such as some of the instances.
    pub(super) caveat: Option<&'a str>,
    /// Where the source adds up by itself: its answers.
    pub(super) answers: Option<&'a Aggregates>,
    /// The scope that series must name; `None` where the source does not tell scopes apart.
    pub(super) scope: Option<&'a str>,
    /// The label and value that the current row of a list is about.
    pub(super) row: Option<(&'a str, &'a str)>,
}

impl<'a> Evaluation<'a> {
    /// What the adapter says about one signal: the first reading whose metrics are there.
    pub(super) fn entry(&self, entry: &'a Entry) -> Said {
        let readings = match entry {
            Entry::Readings(readings) => readings,
            Entry::Absent(why) => return Err(Unknown::Missing(why.clone())),
        };
        let mut first: Option<Unknown> = None;
        for reading in readings {
            match self.reading(reading) {
                Err(Unknown::Missing(why)) => {
                    first.get_or_insert(Unknown::Missing(why));
                }
                said => return said,
            }
        }
        Err(first.unwrap_or_else(|| Unknown::Missing("has no reading".to_owned())))
    }

    pub(super) fn reading(&self, reading: &'a Reading) -> Said {
        let age_s = self.age(reading.age.as_ref());
        if let Some(limit) = reading.max_age_s.filter(|limit| age_s > *limit) {
            return Err(Unknown::Missing(format!(
                "the last word on it is {age_s:.0} s old, more than {limit:.0} s"
            )));
        }
        let mut found = match &reading.form {
            Form::Value(expr) => self.scalar(expr).map(finished)?,
            Form::Counts(counts) => self.counts(counts)?,
            Form::Parts(parts) => self.parts(parts)?,
            Form::Rows { by, of, parts } => self.rows(by, of, parts)?,
            Form::Least(cases) => self.least(cases)?,
        };
        if !found.is_floor {
            found.quality = found.quality.min(reading.quality);
        }
        if let Some(caveat) = self.caveat {
            let quality =
                if reading.form.adds_up() { Quality::LowerBound } else { Quality::Inferred };
            found.quality = found.quality.min(quality);
            found.note =
                Some(found.note.map_or_else(|| caveat.to_owned(), |n| format!("{n}; {caveat}")));
        }
        found.note = match (reading.note.clone(), found.note) {
            (Some(declared), Some(computed)) => Some(format!("{declared}; {computed}")),
            (declared, computed) => declared.or(computed),
        };
        found.extra_age_s = found.extra_age_s.max(age_s);
        Ok(found)
    }

    /// Age of a reading in seconds; 0 where the source does not tell it.
    fn age(&self, age: Option<&'a Expr>) -> f64 {
        let told = age.and_then(|age| self.scalar(age).ok());
        told.map_or(0.0, |age| age.value.max(0.0))
    }

    fn least(&self, cases: &'a [Case]) -> Said {
        let mut least: Option<(f64, &Case)> = None;
        let mut first: Option<Unknown> = None;
        for case in cases {
            match self.signal(&case.by) {
                Ok(by) if least.is_none_or(|(value, _)| by.value < value) => {
                    least = Some((by.value, case));
                }
                Ok(_) => {}
                Err(unknown) => {
                    first.get_or_insert(unknown);
                }
            }
        }
        let Some((_, case)) = least else {
            let why = first.map_or_else(|| "has no cases".to_owned(), Unknown::reason);
            return Err(Unknown::Missing(why));
        };
        let mut found = finished(self.scalar(&case.value)?);
        found.note = case.note.clone().or(found.note);
        found.extra_age_s = found.extra_age_s.max(self.age(case.age.as_ref()));
        Ok(found)
    }

    /// The number of another signal of the same adapter.
    fn signal(&self, name: &str) -> Result<Scalar, Unknown> {
        let unknown = || Unknown::Missing(format!("{name} is unknown"));
        let entry = self.adapter.signals.get(name).ok_or_else(unknown)?;
        let found = self.entry(entry)?;
        let value = found.value.as_number().ok_or_else(unknown)?;
        let is_floor = false;
        Ok(Scalar { value, quality: found.quality, age_s: found.extra_age_s, note: None, is_floor })
    }

    pub(super) fn scalar(&self, expr: &'a Expr) -> Result<Scalar, Unknown> {
        let scalar = match expr {
            Expr::Number(number) => Scalar::exact(*number),
            Expr::Signal(name) => self.signal(name)?,
            Expr::Fold { fold, of } => Scalar::exact(self.fold(*fold, of)?),
            Expr::Quantile { q, of } => self.quantile(*q, of)?,
            Expr::Over { of, span } => self.over(of, *span)?,
            Expr::Binary { op, left, right } => self.binary(*op, left, right)?,
            Expr::Clamp { of, min, max } => clamped(self.scalar(of)?, *min, *max),
            Expr::Above { of, bound } => {
                let scalar = self.scalar(of)?;
                if scalar.value <= *bound {
                    return Err(Unknown::nothing(&first_metric(of)));
                }
                scalar
            }
        };
        if scalar.value.is_finite() {
            return Ok(scalar);
        }
        Err(Unknown::Nothing(format!("{} makes no number", first_metric(expr))))
    }

    fn binary(&self, op: Op, left: &'a Expr, right: &'a Expr) -> Result<Scalar, Unknown> {
        let by = self.scalar(right)?;
        if op == Op::Divide && by.value <= 0.0 {
            return Err(Unknown::nothing(&first_metric(right)));
        }
        let of = self.scalar(left)?;
        let value = match op {
            Op::Add => of.value + by.value,
            Op::Subtract => of.value - by.value,
            Op::Multiply => of.value * by.value,
            Op::Divide => of.value / by.value,
        };
        Ok(of.with(by, value))
    }

    pub(super) fn grouped(
        &self,
        fold: Fold,
        by: &'a [Box<str>],
        items: Vec<Item<'a>>,
    ) -> Vec<Item<'a>> {
        let mut groups: std::collections::BTreeMap<Vec<(&str, &str)>, Vec<f64>> =
            std::collections::BTreeMap::new();
        for item in items {
            let tags = by.iter().map(|label| (&**label, self.tag(&item.tags, label))).collect();
            groups.entry(tags).or_default().push(item.value);
        }
        let groups = groups.into_iter();
        groups
            .filter_map(|(tags, values)| {
                let value = folded(fold, values.into_iter())?;
                Some(Item { tags: Tags::Group(tags), value })
            })
            .collect()
    }

    pub(super) fn tag<'t>(&self, tags: &Tags<'t>, label: &str) -> &'t str {
        match tags {
            Tags::Series(labels) => self.label(labels, label),
            Tags::Group(tags) => {
                tags.iter().find(|(name, _)| *name == label).map_or("", |(_, value)| *value)
            }
        }
    }

    /// The value of a label, empty where it is missing or stands for no value.
    pub(super) fn label<'l>(&self, labels: &'l Labels, label: &str) -> &'l str {
        let value = labels.get(label).unwrap_or_default();
        if self.adapter.unset.iter().any(|unset| unset == value) { "" } else { value }
    }

    pub(super) fn selects(&self, selector: &Selector, labels: &Labels) -> bool {
        self.is_in_view(labels)
            && selector.matchers.iter().all(|m| m.accepts(self.label(labels, &m.label)))
    }

    /// Whether the scope and the row are about a series with these labels.
    pub(super) fn is_in_view(&self, labels: &Labels) -> bool {
        let scope = self.adapter.scope.as_ref().zip(self.scope);
        scope.is_none_or(|(by, scope)| labels.get(&by.label) == Some(scope))
            && self.row.is_none_or(|(label, value)| self.label(labels, label) == value)
    }

    fn quantile(&self, q: f64, of: &'a Selector) -> Result<Scalar, Unknown> {
        let estimate = histogram_quantile(q, self.buckets(of)?);
        if !estimate.value.is_finite() {
            return Err(Unknown::Nothing(format!("no {} observed in the window", of.metric)));
        }
        Ok(Scalar { is_floor: estimate.beyond_last, ..Scalar::exact(estimate.value) })
    }

    fn fold(&self, fold: Fold, of: &'a Series) -> Result<f64, Unknown> {
        match self.answers {
            Some(answers) => self.aggregated_fold(answers, fold, of),
            None => self.counted_fold(fold, of),
        }
    }

    /// What the selected series gained in `span`.
    fn over(&self, selector: &'a Selector, span: Duration) -> Result<Scalar, Unknown> {
        match self.answers {
            Some(answers) => self.aggregated_over(answers, selector, span),
            None => self.counted_over(selector, span),
        }
    }

    /// What the selected series gained in the window, with the value of one label.
    pub(super) fn increases_by(
        &self,
        selector: &'a Selector,
        label: &str,
    ) -> Result<Vec<(&'a str, f64)>, Unknown> {
        match self.answers {
            Some(answers) => self.aggregated_gains(answers, selector, label),
            None => self.counted_gains(selector, label),
        }
    }

    /// What each bucket of a histogram gained in the window.
    fn buckets(&self, of: &'a Selector) -> Result<Vec<Bucket>, Unknown> {
        match self.answers {
            Some(answers) => self.aggregated_buckets(answers, of),
            None => self.counted_buckets(of),
        }
    }
}

/// The sum of nothing is 0 and so is their number; the largest of nothing is unknown.
pub(super) fn folded(fold: Fold, numbers: impl Iterator<Item = f64>) -> Option<f64> {
    match fold {
        // `sum` of no floats is -0.0, which a reader would wonder about.
        Fold::Sum => Some(numbers.fold(0.0, |sum, number| sum + number)),
        Fold::Min => numbers.reduce(f64::min),
        Fold::Max => numbers.reduce(f64::max),
        Fold::Count => Some(numbers.fold(0.0, |count, _| count + 1.0)),
    }
}

/// Within bounds, and said where that changed it.
fn clamped(scalar: Scalar, min: f64, max: f64) -> Scalar {
    let value = scalar.value.clamp(min, max);
    if scalar.value < min || scalar.value > max {
        let note = Some(format!("clamped from {:.2}", scalar.value));
        return Scalar { value, note, ..scalar };
    }
    Scalar { value, ..scalar }
}

/// A number as a value. One that lies beyond the last bucket is a lower bound.
pub(super) fn finished(scalar: Scalar) -> Found {
    let mut found = Found {
        value: Value::Number(scalar.value),
        quality: scalar.quality,
        note: scalar.note,
        extra_age_s: scalar.age_s,
        is_floor: scalar.is_floor,
    };
    if scalar.is_floor {
        found.quality = Quality::LowerBound;
        found.note = Some(format!("beyond the last bucket: {} s or more", scalar.value));
    }
    found
}

/// What to call an expression in a reason.
fn first_metric(expr: &Expr) -> String {
    let mut names = expr.metrics().into_iter().chain(expr.signals().into_iter().map(str::to_owned));
    names.next().unwrap_or_else(|| "constant".to_owned())
}
