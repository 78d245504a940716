//! What a source that can add up by itself is asked for: the innermost folds of an adapter.
//!
//! Everything above a leaf (arithmetic, outer folds, quantiles, what is unknown and why) is evaluated
//! by weir on either road, so that both agree. A leaf knows no query language.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::ast::{Expr, Fold, Keep, Selector, Series, bucket_metric};
use super::model::{Adapter, Entry, Form, Part, Reading};

/// The label that holds the upper bound of a histogram's bucket.
pub(in crate::ingest) const BOUND_LABEL: &str = "le";

/// What is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// What a gauge says now, placeholders apart.
    Values,
    /// What a counter gained per second of the window.
    Rates,
    /// What a counter gained in the window.
    Increases,
}

/// Some series of one metric, made one number per combination of labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// How a group becomes one number.
    pub fold: Fold,
    /// The labels that tell groups apart, those of scope and row among them.
    pub by: Vec<String>,
    /// What is folded.
    pub measure: Measure,
    /// Of which series.
    pub of: Selector,
    /// The span of an increase, where it is not the window.
    pub span: Option<Duration>,
    /// Which numbers are left before they are folded.
    pub kept: Vec<(Keep, f64)>,
    /// Whether a sum of increases stands for one of rates: divided by the window, they share a leaf.
    pub(super) per_second: bool,
}

impl fmt::Display for Leaf {
    /// Two leaves that ask the same read the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fold, by, measure, of, span, kept, .. } = self;
        write!(f, "{fold:?} by {by:?} of {measure:?} {of} {span:?} {kept:?}")
    }
}

/// The labels that every leaf of one place keeps: those of the scope and of the row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept<'a> {
    pub(super) scope: Option<&'a str>,
    pub(super) row: Option<&'a str>,
}

impl Leaf {
    /// `fold by (by) (of)`; `None` where `of` is grouped already, and so not innermost.
    pub(super) fn new(fold: Fold, by: &[&str], of: &Series, labels: Kept<'_>) -> Option<Self> {
        let mut kept = Vec::new();
        let mut inner = of;
        let (mut measure, of) = loop {
            match inner {
                Series::Values(of) => break (Measure::Values, of),
                Series::Rates(of) => break (Measure::Rates, of),
                Series::Increases(of) => break (Measure::Increases, of),
                Series::Kept { keep, bound, of } => {
                    kept.insert(0, (*keep, *bound));
                    inner = of;
                }
                Series::Grouped { .. } => return None,
            }
        };
        let per_second = measure == Measure::Rates && fold == Fold::Sum && kept.is_empty();
        if per_second {
            measure = Measure::Increases;
        }
        let mut all: Vec<String> = Vec::new();
        for label in labels.scope.into_iter().chain(labels.row).chain(by.iter().copied()) {
            if !all.iter().any(|known| known == label) {
                all.push(label.to_owned());
            }
        }
        Some(Self { fold, by: all, measure, of: of.clone(), span: None, kept, per_second })
    }

    /// What counters gained over a span of their own.
    pub(super) fn over(of: &Selector, span: Duration, labels: Kept<'_>) -> Option<Self> {
        let leaf = Self::new(Fold::Sum, &[], &Series::Increases(of.clone()), labels)?;
        Some(Self { span: Some(span), ..leaf })
    }

    /// What each bucket of a histogram gained.
    pub(super) fn buckets(histogram: &Selector, labels: Kept<'_>) -> Option<Self> {
        let metric = bucket_metric(&histogram.metric).into();
        let of = Selector { metric, matchers: histogram.matchers.clone() };
        Self::new(Fold::Sum, &[BOUND_LABEL], &Series::Increases(of), labels)
    }

    /// What series with each value of `by` gained.
    pub(super) fn gains(of: &Selector, by: &str, labels: Kept<'_>) -> Option<Self> {
        Self::new(Fold::Sum, &[by], &Series::Increases(of.clone()), labels)
    }

    /// The values of `label` that are on.
    pub(super) fn words(of: &Selector, label: &str, labels: Kept<'_>) -> Option<Self> {
        let of = Box::new(Series::Values(of.clone()));
        let on = Series::Kept { keep: Keep::Above, bound: 0.0, of };
        Self::new(Fold::Max, &[label], &on, labels)
    }

    /// What is asked, for a person.
    pub(super) fn asked(&self) -> String {
        let Self { fold, by, measure, of, span, kept, .. } = self;
        let mut series = match (measure, span) {
            (Measure::Values, _) => of.to_string(),
            (Measure::Rates, _) => format!("rate({of})"),
            (Measure::Increases, None) => format!("increase({of})"),
            (Measure::Increases, Some(span)) => format!("increase({of}, {}s)", span.as_secs()),
        };
        for (keep, bound) in kept {
            let sign = if *keep == Keep::Above { ">" } else { "==" };
            series = format!("{series} {sign} {bound}");
        }
        if by.is_empty() {
            format!("{fold}({series})")
        } else {
            format!("{fold} by ({}) ({series})", by.join(", "))
        }
    }

    /// Whether there is any number, those that are not kept included. `None` where it says so itself.
    pub(super) fn existence(&self) -> Option<Self> {
        let hides = self.measure == Measure::Values && !self.kept.is_empty();
        hides.then(|| Self { fold: Fold::Count, kept: Vec::new(), ..self.clone() })
    }
}

impl Adapter {
    /// Everything that its signals need, each once.
    #[must_use]
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Leaves {
            scope: self.scope.as_ref().map(|scope| scope.label.as_str()),
            found: BTreeMap::new(),
        };
        for entry in self.signals.values() {
            if let Entry::Readings(readings) = entry {
                for reading in readings {
                    leaves.reading(reading);
                }
            }
        }
        leaves.found.into_values().collect()
    }
}

/// Everything that one reading needs, each once.
pub(super) fn leaves_of(adapter: &Adapter, reading: &Reading) -> Vec<Leaf> {
    let scope = adapter.scope.as_ref().map(|scope| scope.label.as_str());
    let mut leaves = Leaves { scope, found: BTreeMap::new() };
    leaves.reading(reading);
    leaves.found.into_values().collect()
}

struct Leaves<'a> {
    scope: Option<&'a str>,
    found: BTreeMap<String, Leaf>,
}

impl<'a> Leaves<'a> {
    fn add(&mut self, leaf: Option<Leaf>) {
        for leaf in leaf.as_ref().and_then(Leaf::existence).into_iter().chain(leaf) {
            self.found.insert(leaf.to_string(), leaf);
        }
    }

    fn reading(&mut self, reading: &'a Reading) {
        let labels = Kept { scope: self.scope, row: None };
        let parts = reading.form.parts();
        let (rest, row) = match &reading.form {
            Form::Counts(counts) => {
                for count in counts {
                    self.add(Leaf::gains(&count.of, &count.by, labels));
                }
                (Vec::new(), None)
            }
            Form::Parts(_) => (Vec::new(), None),
            Form::Rows { by, of, .. } => {
                self.add(Leaf::gains(of, by, labels));
                (Vec::new(), Some(by.as_str()))
            }
            Form::Value(_) | Form::Least(_) => (reading.expressions(), None),
        };
        for expr in reading.age.iter().chain(rest) {
            self.expression(expr, labels);
        }
        let labels = Kept { row, ..labels };
        for (_, part) in parts {
            match part {
                Part::Number { value, .. } | Part::Word { value, .. } => {
                    self.expression(value, labels);
                }
                Part::Label { label, of } => self.add(Leaf::words(of, label, labels)),
            }
        }
    }

    fn expression(&mut self, expr: &'a Expr, labels: Kept<'_>) {
        expr.walk(&mut |node| match node {
            Expr::Fold { fold, of } => self.folds(*fold, &[], of, labels),
            Expr::Quantile { of, .. } => self.add(Leaf::buckets(of, labels)),
            Expr::Over { of, span } => self.add(Leaf::over(of, *span, labels)),
            _ => {}
        });
    }

    fn folds(&mut self, fold: Fold, by: &[&str], of: &'a Series, labels: Kept<'_>) {
        if let Some(leaf) = Leaf::new(fold, by, of, labels) {
            return self.add(Some(leaf));
        }
        let mut inner = of;
        loop {
            match inner {
                Series::Kept { of, .. } => inner = of,
                Series::Grouped { fold, by, of } => {
                    let by: Vec<&str> = by.iter().map(|label| &**label).collect();
                    return self.folds(*fold, &by, of, labels);
                }
                Series::Values(_) | Series::Rates(_) | Series::Increases(_) => return,
            }
        }
    }
}
