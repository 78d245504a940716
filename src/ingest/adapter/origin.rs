//! How a source reads a signal: its expressions, and the series that they select, as they are.
//!
//! The counterpart of [`super::fill`] for whoever asks where a number comes from. Evaluates nothing by
//! itself: what a reading comes to is what the snapshot has, in value and in quality.

use crate::ingest::origin::{HowRead, ORIGIN_SERIES_MAX, RawSeries};
use crate::signal::SeriesBook;

use super::aggregated::Aggregates;
use super::answered::Answered;
use super::ast::{Expr, Selector, bucket_metric};
use super::evaluate::{Evaluation, Found, Unknown};
use super::leaf::{Leaf, leaves_of};
use super::model::{Adapter, Entry, Form, Part, Reading, VALUE};
use super::{Source, checked};

/// An instance by name, with what it counted.
pub(in crate::ingest) type Named<'a> = (&'a str, &'a SeriesBook);

/// How a source reads a signal off its pages; none where it has no way to. `named` are its instances.
///
/// # Errors
///
/// With the reason why nothing can be said.
pub(in crate::ingest) fn readings(
    source: &Source<'_>,
    scope: Option<&str>,
    signal: &str,
    named: &[Named<'_>],
) -> Result<Vec<HowRead>, String> {
    let caveat = source.caveat();
    let evaluation = source.evaluation(scope, caveat.as_deref()).map_err(Unknown::reason)?;
    Ok(told(&evaluation, signal, |_, found| found, |reading| selected(&evaluation, reading, named)))
}

/// The same of a source that adds up by itself: what it was asked stands in place of series.
///
/// # Errors
///
/// With the reason why nothing can be said.
pub(in crate::ingest) fn readings_of_answers(
    answered: &Answered<'_>,
    scope: Option<&str>,
    signal: &str,
) -> Result<Vec<HowRead>, String> {
    let evaluation = answered.evaluation(scope).map_err(Unknown::reason)?;
    let doubted = |entry: &Entry, found| answered.doubted(entry, found);
    let series = |reading: &Reading| groups(&evaluation, reading, answered.aggregates);
    Ok(told(&evaluation, signal, doubted, series))
}

/// Every reading of a signal; of the one that is taken, its series.
fn told(
    evaluation: &Evaluation<'_>,
    signal: &str,
    doubted: impl Fn(&Entry, Found) -> Found,
    series_of: impl Fn(&Reading) -> Vec<RawSeries>,
) -> Vec<HowRead> {
    let Some(entry) = evaluation.adapter.signals.get(signal) else { return Vec::new() };
    let Entry::Readings(readings) = entry else { return Vec::new() };
    let mut is_found = false;
    let one = |reading: &Reading| {
        let said = evaluation.reading(reading);
        // The first that does not lack its metrics is gone by, even where it says nothing now.
        let is_taken = !is_found && !matches!(said, Err(Unknown::Missing(_)));
        is_found |= is_taken;
        let said = said.and_then(|found| checked(signal, doubted(entry, found)));
        let (mut quality, mut note) = (reading.quality, reading.note.clone());
        let outcome = said.map_err(Unknown::reason).map(|found| {
            (quality, note) = (found.quality, found.note);
            found.value
        });
        let mut series = if is_taken { series_of(reading) } else { Vec::new() };
        let more = series.len().saturating_sub(ORIGIN_SERIES_MAX);
        series.truncate(ORIGIN_SERIES_MAX);
        HowRead {
            expressions: reading.texts(),
            quality,
            note,
            outcome,
            is_taken,
            signals: reading.signals().into_iter().map(str::to_owned).collect(),
            series,
            more,
        }
    };
    readings.iter().map(one).collect()
}

/// The series of the instances that a reading selects.
fn selected(
    evaluation: &Evaluation<'_>,
    reading: &Reading,
    instances: &[Named<'_>],
) -> Vec<RawSeries> {
    let mut found: Vec<RawSeries> = Vec::new();
    let mut done: Vec<Selector> = Vec::new();
    for (selector, is_counter) in reading.selectors() {
        if done.contains(&selector) {
            continue;
        }
        for (instance, book) in instances {
            let values: Vec<_> = book.values(&selector.metric).collect();
            let value_of = |labels| values.iter().find(|(known, _)| *known == labels);
            let window = book.window().filter(|_| is_counter);
            let one = |labels, value, gained| RawSeries {
                instance: (*instance).to_owned(),
                name: selector.metric.to_string(),
                labels: Clone::clone(labels),
                value,
                gained,
                recent: Vec::new(),
            };
            if let Some(window) = window {
                let gains = book.increases(&selector.metric, window);
                let gains = gains.filter(|(labels, _)| evaluation.selects(&selector, labels));
                found.extend(gains.map(|(labels, gained)| {
                    let value = value_of(labels).map(|(_, value)| *value);
                    one(labels, value, Some((gained, window.seconds())))
                }));
            } else {
                let here = values.iter().filter(|(at, _)| evaluation.selects(&selector, at));
                found.extend(here.map(|(labels, value)| one(labels, Some(*value), None)));
            }
        }
        done.push(selector);
    }
    found
}

/// What a query API answered to the questions of a reading.
fn groups(evaluation: &Evaluation<'_>, reading: &Reading, answers: &Aggregates) -> Vec<RawSeries> {
    let leaves = leaves_of(evaluation.adapter, reading);
    let groups = leaves.iter().flat_map(|leaf| {
        let seen = answers.groups.get(&leaf.to_string()).map_or(&[][..], Vec::as_slice);
        let seen = seen.iter().filter(|(labels, _)| evaluation.is_in_view(labels));
        seen.map(move |group| (leaf, group))
    });
    let one = |(leaf, (labels, value)): (&Leaf, &(crate::signal::Labels, f64))| RawSeries {
        instance: String::new(),
        name: leaf.asked(),
        labels: labels.clone(),
        value: Some(*value),
        gained: None,
        recent: Vec::new(),
    };
    groups.map(one).collect()
}

impl Adapter {
    /// Whether it has a way to read a signal, or a reason why not.
    pub(in crate::ingest) fn speaks_of(&self, signal: &str) -> bool {
        self.signals.contains_key(signal)
    }

    /// Why it has no way to read a signal, where that is known.
    pub(in crate::ingest) fn why_absent(&self, signal: &str) -> Option<&str> {
        match self.signals.get(signal) {
            Some(Entry::Absent(why)) => Some(why),
            _ => None,
        }
    }
}

impl Reading {
    /// Its expressions as an adapter file has them, each with the part that it makes.
    fn texts(&self) -> Vec<(String, String)> {
        let mut texts: Vec<(String, String)> = Vec::new();
        let part = |(name, part): &(String, Part)| {
            let name = if name == VALUE { String::new() } else { name.clone() };
            match part {
                Part::Number { value, share: false } | Part::Word { value, .. } => {
                    (name, value.to_string())
                }
                Part::Number { value, share: true } => (name, format!("{value}, of all rows")),
                Part::Label { label, of } => (name, format!("label {label} of {of}")),
            }
        };
        match &self.form {
            Form::Value(expr) => texts.push((String::new(), expr.to_string())),
            Form::Counts(counts) => {
                texts.extend(counts.iter().map(|count| {
                    (String::new(), format!("increase({}) by {}", count.of, count.by))
                }));
            }
            Form::Parts(parts) => texts.extend(parts.iter().map(part)),
            Form::Rows { by, of, .. } => {
                texts.push(("a row for".to_owned(), format!("each {by} of {of}")));
                texts.extend(self.form.parts().iter().map(part));
            }
            Form::Least(cases) => texts.extend(
                cases
                    .iter()
                    .map(|case| (format!("if {} is least", case.by), case.value.to_string())),
            ),
        }
        texts.extend(self.age.iter().map(|age| ("its age, s".to_owned(), age.to_string())));
        texts
    }

    /// The series that it selects, and whether they are counters.
    fn selectors(&self) -> Vec<(Selector, bool)> {
        let mut all: Vec<(Selector, bool)> = Vec::new();
        if let Form::Rows { of, .. } = &self.form {
            all.push((of.clone(), true));
        }
        if let Form::Counts(counts) = &self.form {
            all.extend(counts.iter().map(|count| (count.of.clone(), true)));
        }
        for expr in self.expressions() {
            expr.walk(&mut |node| match node {
                Expr::Fold { of, .. } => all.push((of.selector().clone(), of.needs_window())),
                Expr::Over { of, .. } => all.push((of.clone(), true)),
                Expr::Quantile { of, .. } => {
                    let metric = bucket_metric(&of.metric).into();
                    all.push((Selector { metric, matchers: of.matchers.clone() }, true));
                }
                _ => {}
            });
        }
        let label = |(_, part): &(String, Part)| match part {
            Part::Label { of, .. } => Some((of.clone(), false)),
            Part::Number { .. } | Part::Word { .. } => None,
        };
        all.extend(self.form.parts().iter().filter_map(label));
        all
    }
}
