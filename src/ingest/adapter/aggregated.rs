//! Evaluates an adapter over numbers that the source itself has added up, as a query API gives them.
//!
//! The same rules as over series, and the same reasons: a selection without series counts nothing
//! where the metric is known, a lazy metric counts nothing where others of the adapter are there, and
//! everything else that is missing is unknown. Knows no query language.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::signal::{Bucket, Labels};

use super::SCOPES_MAX;
use super::ast::{Fold, Selector, Series, bucket_metric};
use super::evaluate::{Evaluation, Item, Scalar, Tags, Unknown, WARMING_UP, folded};
use super::leaf::{BOUND_LABEL, Kept, Leaf, Measure};
use super::model::Adapter;

/// Numbers with the labels that tell them apart.
pub type Groups = Vec<(Labels, f64)>;

/// What a source answered to the leaves of an adapter at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aggregates {
    /// What increases are taken over, in seconds; `None` while nothing was seen twice in it.
    pub window_s: Option<f64>,
    /// Every metric that is there, with one group per scope.
    pub present: BTreeMap<String, Groups>,
    /// Metrics whose increases are estimates: the source could not count them from scrape to scrape.
    pub extrapolated: BTreeSet<String>,
    /// The answer to each leaf.
    pub groups: BTreeMap<String, Groups>,
    /// By metric: series born inside the window, with their first value, which they counted from 0.
    pub newborn: BTreeMap<String, Groups>,
}

impl Aggregates {
    /// The quota scopes that the source tells apart; empty when it does not.
    pub(in crate::ingest) fn scopes(&self, adapter: &Adapter) -> BTreeSet<String> {
        let Some(scope) = &adapter.scope else { return BTreeSet::new() };
        let groups = self.present.iter().filter(|(metric, _)| metric.starts_with(&scope.metrics));
        let labels = groups.flat_map(|(_, groups)| groups).map(|(labels, _)| labels);
        let all: BTreeSet<_> = labels.filter_map(|labels| labels.get(&scope.label)).collect();
        all.into_iter().take(SCOPES_MAX).map(str::to_owned).collect()
    }

    /// Whether the source has this metric.
    pub(super) fn has(&self, metric: &str) -> bool {
        self.present.contains_key(metric)
    }

    fn of(&self, leaf: &Leaf) -> &[(Labels, f64)] {
        self.groups.get(&leaf.to_string()).map_or(&[], Vec::as_slice)
    }
}

impl<'a> Evaluation<'a> {
    /// One number out of `of`.
    pub(super) fn aggregated_fold(
        &self,
        from: &'a Aggregates,
        fold: Fold,
        of: &'a Series,
    ) -> Result<f64, Unknown> {
        let (fold, items) = match Leaf::new(fold, &[], of, self.labels()) {
            Some(leaf) => (merging(fold), self.leaf(from, &leaf)?),
            None => (fold, self.aggregated_series(from, of)?),
        };
        let numbers = items.iter().map(|item| item.value);
        folded(fold, numbers).ok_or_else(|| Unknown::nothing(&of.selector().metric))
    }

    fn aggregated_series(
        &self,
        from: &'a Aggregates,
        series: &'a Series,
    ) -> Result<Vec<Item<'a>>, Unknown> {
        match series {
            Series::Kept { keep, bound, of } => {
                let mut items = self.aggregated_series(from, of)?;
                items.retain(|item| keep.keeps(item.value, *bound));
                Ok(items)
            }
            Series::Grouped { fold, by, of } => {
                let labels: Vec<&str> = by.iter().map(|label| &**label).collect();
                Ok(match Leaf::new(*fold, &labels, of, self.labels()) {
                    Some(leaf) => self.grouped(merging(*fold), by, self.leaf(from, &leaf)?),
                    None => self.grouped(*fold, by, self.aggregated_series(from, of)?),
                })
            }
            // Series by themselves never come here: what is not grouped is a leaf of its fold.
            Series::Values(_) | Series::Rates(_) | Series::Increases(_) => Ok(Vec::new()),
        }
    }

    /// What each bucket of a histogram gained.
    pub(super) fn aggregated_buckets(
        &self,
        from: &'a Aggregates,
        of: &Selector,
    ) -> Result<Vec<Bucket>, Unknown> {
        if !from.has(&bucket_metric(&of.metric)) {
            return Err(Unknown::missing(&of.metric));
        }
        let Some(leaf) = Leaf::buckets(of, self.labels()) else { return Ok(Vec::new()) };
        let items = self.leaf(from, &leaf)?;
        let bucket = |item: &Item<'_>| {
            let le = self.tag(&item.tags, BOUND_LABEL).parse().ok()?;
            Some(Bucket { le, count: item.value })
        };
        Ok(items.iter().filter_map(bucket).collect())
    }

    /// What the selected series gained in `span`.
    pub(super) fn aggregated_over(
        &self,
        from: &'a Aggregates,
        of: &Selector,
        span: Duration,
    ) -> Result<Scalar, Unknown> {
        let leaf = Leaf::over(of, span, self.labels());
        let items = leaf.map_or_else(|| Ok(Vec::new()), |leaf| self.leaf(from, &leaf))?;
        let gained = items.iter().fold(0.0, |sum, item| sum + item.value);
        // Prometheus does not count what a new series began with.
        Ok(Scalar::at_least(gained, None))
    }

    /// What the selected series gained, with the value of one label.
    pub(super) fn aggregated_gains(
        &self,
        from: &'a Aggregates,
        of: &Selector,
        label: &str,
    ) -> Result<Vec<(&'a str, f64)>, Unknown> {
        let Some(leaf) = Leaf::gains(of, label, self.labels()) else { return Ok(Vec::new()) };
        let items = self.leaf(from, &leaf)?;
        Ok(items.iter().map(|item| (self.tag(&item.tags, label), item.value)).collect())
    }

    /// The first value of `label` that is on.
    pub(super) fn aggregated_word(
        &self,
        from: &'a Aggregates,
        of: &Selector,
        label: &str,
    ) -> Option<&'a str> {
        let leaf = Leaf::words(of, label, self.labels())?;
        let mut seen = from.of(&leaf).iter().filter(|(labels, _)| self.is_in_view(labels));
        seen.find_map(|(labels, _)| labels.get(label))
    }

    fn labels(&self) -> Kept<'a> {
        Kept {
            scope: self.adapter.scope.as_ref().map(|scope| scope.label.as_str()),
            row: self.row.map(|(label, _)| label),
        }
    }

    /// The groups of a leaf that this scope and row see. Empty is zero or nothing, never unknown.
    fn leaf(&self, from: &'a Aggregates, leaf: &Leaf) -> Result<Vec<Item<'a>>, Unknown> {
        let metric = &leaf.of.metric;
        let seen = |leaf: &Leaf| {
            let seen = from.of(leaf).iter().filter(|(labels, _)| self.is_in_view(labels));
            seen.map(|(labels, value)| Item { tags: Tags::Series(labels), value: *value })
                .collect::<Vec<_>>()
        };
        let mut items = seen(leaf);
        if leaf.measure == Measure::Values {
            let counts_nothing = || leaf.existence().is_some_and(|leaf| !seen(&leaf).is_empty());
            return match items.is_empty() {
                true if self.adapter.is_lazy(metric) || counts_nothing() => Ok(items),
                true if from.has(metric) => {
                    let why = format!("shows no {}, or placeholders only", leaf.of);
                    Err(Unknown::Missing(why))
                }
                true => Err(Unknown::missing(metric)),
                false => Ok(items),
            };
        }
        let window_s = from.window_s.ok_or_else(|| Unknown::Nothing(WARMING_UP.to_owned()))?;
        // A group's sum can be added to; its largest or their number cannot be made good.
        let is_window = leaf.measure == Measure::Increases && leaf.span.is_none();
        if is_window && leaf.fold == Fold::Sum && leaf.kept.is_empty() {
            let newborn = from.newborn.get(&**metric).into_iter().flatten();
            let newborn = newborn.filter(|(labels, _)| self.selects(&leaf.of, labels));
            items.extend(
                newborn.map(|(labels, first)| Item { tags: Tags::Series(labels), value: *first }),
            );
        }
        if leaf.per_second {
            for item in &mut items {
                item.value /= window_s;
            }
        }
        if items.is_empty() && !from.has(metric) && !self.adapter.is_lazy(metric) {
            return Err(Unknown::missing(metric));
        }
        Ok(items)
    }
}

/// How parts of one group become the whole. A group has parts where several values of a label stand
/// for the same, or several scopes are seen as one.
const fn merging(fold: Fold) -> Fold {
    match fold {
        Fold::Count => Fold::Sum,
        fold => fold,
    }
}
