//! Evaluates an adapter over the series of a source's own pages, instance by instance.
//!
//! What each instance counted is made per instance and then added up: a sum over processes that come
//! and go has resets that nobody can see, and no two are scraped at the same moment.

use std::time::Duration;

use crate::signal::{Bucket, SeriesBook, Window};

use super::ast::{Fold, Selector, Series, bucket_metric};
use super::evaluate::{Evaluation, Item, Scalar, Tags, Unknown, WARMING_UP, folded};

/// From here on a number stands for "no limit", or for an unsigned counter that fell below zero.
const PLACEHOLDER_MIN: f64 = 9_223_372_036_854_775_807.0;

/// The series of one instance, and the span that its increases are taken over.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'a> {
    pub(super) book: &'a SeriesBook,
    window: Option<Window>,
}

impl<'a> Instance<'a> {
    /// One instance with all that its book holds.
    #[must_use]
    pub fn new(book: &'a SeriesBook) -> Self {
        Self { book, window: book.window() }
    }

    /// Whether this is the instance that counted into `book`.
    pub(in crate::ingest) fn is(&self, book: &SeriesBook) -> bool {
        std::ptr::eq(self.book, book)
    }

    /// The span, once there are two scrapes.
    #[must_use]
    pub const fn window(&self) -> Option<Window> {
        self.window
    }
}

/// What one series gained.
struct Gain<'a> {
    /// Over so long.
    seconds: f64,
    item: Item<'a>,
}

impl<'a> Evaluation<'a> {
    /// One number out of `of`.
    pub(super) fn counted_fold(&self, fold: Fold, of: &'a Series) -> Result<f64, Unknown> {
        if let (Fold::Sum, Series::Rates(selector)) = (fold, of) {
            // One division per instance: the sum of counts is a whole number, and stays one.
            let mut gained: Vec<(f64, f64)> = Vec::new();
            for Gain { seconds, item } in self.gains(selector)? {
                match gained.last_mut() {
                    Some((of, sum)) if of.to_bits() == seconds.to_bits() => *sum += item.value,
                    _ => gained.push((seconds, item.value)),
                }
            }
            return Ok(gained.iter().fold(0.0, |rate, (seconds, sum)| rate + sum / seconds));
        }
        let items = self.series(of)?;
        let numbers = items.iter().map(|item| item.value);
        folded(fold, numbers).ok_or_else(|| Unknown::nothing(&of.selector().metric))
    }

    fn series(&self, series: &'a Series) -> Result<Vec<Item<'a>>, Unknown> {
        match series {
            Series::Values(selector) => self.values(selector),
            Series::Increases(selector) => self.increases(selector),
            Series::Rates(selector) => {
                let rate =
                    |gain: Gain<'a>| Item { value: gain.item.value / gain.seconds, ..gain.item };
                Ok(self.gains(selector)?.into_iter().map(rate).collect())
            }
            Series::Grouped { fold, by, of } => Ok(self.grouped(*fold, by, self.series(of)?)),
            Series::Kept { keep, bound, of } => {
                let mut items = self.series(of)?;
                items.retain(|item| keep.keeps(item.value, *bound));
                Ok(items)
            }
        }
    }

    /// Whether any instance has the metric.
    pub(super) fn has(&self, metric: &str) -> bool {
        self.instances.iter().any(|instance| instance.book.has(metric))
    }

    /// The instances of which increases are known.
    fn windows(&self) -> Result<impl Iterator<Item = (&'a SeriesBook, Window)>, Unknown> {
        let with_window =
            |instance: &Instance<'a>| instance.window.map(|window| (instance.book, window));
        if !self.instances.iter().any(|instance| instance.window.is_some()) {
            return Err(Unknown::Nothing(WARMING_UP.to_owned()));
        }
        Ok(self.instances.iter().filter_map(with_window))
    }

    /// The increase of every selected series.
    fn increases(&self, selector: &'a Selector) -> Result<Vec<Item<'a>>, Unknown> {
        Ok(self.gains(selector)?.into_iter().map(|gain| gain.item).collect())
    }

    /// The increase of every selected series, with the span that it was counted over.
    ///
    /// A metric of which there are other series but none that matches is a count of nothing: the
    /// exporter knows the metric. A metric without any series counts nothing where it is lazy.
    fn gains(&self, selector: &'a Selector) -> Result<Vec<Gain<'a>>, Unknown> {
        let mut selected = Vec::new();
        for (book, window) in self.windows()? {
            let seconds = window.seconds();
            let gains = book
                .increases(&selector.metric, window)
                .filter(|(labels, _)| self.selects(selector, labels))
                .map(|(labels, value)| Item { tags: Tags::Series(labels), value })
                .map(|item| Gain { seconds, item });
            selected.extend(gains);
        }
        let is_known = || self.has(&selector.metric) || self.adapter.is_lazy(&selector.metric);
        if selected.is_empty() && !is_known() {
            return Err(Unknown::missing(&selector.metric));
        }
        if selected.is_empty()
            && let Some(label) = self.unheard_of(selector)
        {
            return Err(Unknown::Missing(format!(
                "no series of {} has a label {label}",
                selector.metric
            )));
        }
        Ok(selected)
    }

    /// A label that the selector demands and no series of its metric carries: then none that matches
    /// is no count of nothing, for the exporter writes something else.
    fn unheard_of(&self, selector: &'a Selector) -> Option<&'a str> {
        let series = || {
            let windows = self.windows().into_iter().flatten();
            windows.flat_map(|(book, window)| book.increases(&selector.metric, window))
        };
        series().next()?;
        let demanded = selector.matchers.iter().filter(|matcher| !matcher.accepts(""));
        let mut labels = demanded.map(|matcher| &*matcher.label);
        labels.find(|label| !series().any(|(labels, _)| labels.get(label).is_some()))
    }

    /// What the selected series gained in `span`; a lower bound while they were not seen for that long.
    pub(super) fn counted_over(
        &self,
        selector: &'a Selector,
        span: Duration,
    ) -> Result<Scalar, Unknown> {
        if !self.has(&selector.metric) && !self.adapter.is_lazy(&selector.metric) {
            return Err(Unknown::missing(&selector.metric));
        }
        let mut gained = 0.0;
        let mut seen: Option<Duration> = None;
        for (book, _) in self.windows()? {
            let gains = book.increases_over(&selector.metric, span);
            let selected = gains.filter(|(labels, _)| self.selects(selector, labels));
            gained += selected.fold(0.0, |sum, (_, gained)| sum + gained);
            let own = book.seen_for();
            seen = Some(seen.map_or(own, |shortest| shortest.min(own)));
        }
        Ok(match seen.filter(|seen| *seen < span) {
            None => Scalar::exact(gained),
            Some(seen) => {
                let note = format!("in the {} min since weir looks", seen.as_secs() / 60);
                Scalar::at_least(gained, Some(note))
            }
        })
    }

    /// The increases of the selected series with the value of one label.
    pub(super) fn counted_gains(
        &self,
        selector: &'a Selector,
        label: &str,
    ) -> Result<Vec<(&'a str, f64)>, Unknown> {
        let items = self.increases(selector)?;
        Ok(items.iter().map(|item| (self.tag(&item.tags, label), item.value)).collect())
    }

    fn values(&self, selector: &'a Selector) -> Result<Vec<Item<'a>>, Unknown> {
        let mut placeholders = 0_usize;
        let mut items = Vec::new();
        let instances = self.instances.iter();
        for (labels, value) in instances.flat_map(|one| one.book.values(&selector.metric)) {
            if !self.selects(selector, labels) {
                continue;
            }
            if self.is_placeholder(value) {
                placeholders += 1;
            } else {
                items.push(Item { tags: Tags::Series(labels), value });
            }
        }
        match (items.is_empty(), placeholders) {
            (false, _) => Ok(items),
            (true, 0) if self.adapter.is_lazy(&selector.metric) => Ok(items),
            (true, 0) if self.has(&selector.metric) => {
                Err(Unknown::Missing(format!("shows no {selector}")))
            }
            (true, 0) => Err(Unknown::missing(&selector.metric)),
            (true, _) => {
                let why = format!("{} holds only placeholders, no number", selector.metric);
                Err(Unknown::Missing(why))
            }
        }
    }

    fn is_placeholder(&self, value: f64) -> bool {
        !value.is_finite()
            || value.abs() >= PLACEHOLDER_MIN
            || (self.adapter.drop_negative && value < 0.0)
    }

    /// What each bucket of a histogram gained.
    pub(super) fn counted_buckets(&self, of: &'a Selector) -> Result<Vec<Bucket>, Unknown> {
        let windows = self.windows()?;
        let name = bucket_metric(&of.metric);
        if !self.has(&name) {
            return Err(Unknown::missing(&of.metric));
        }
        let mut buckets = Vec::new();
        for (labels, count) in windows.flat_map(|(book, window)| book.increases(&name, window)) {
            let le = labels.get("le").and_then(|le| le.parse().ok());
            if let Some(le) = le.filter(|_| self.selects(of, labels)) {
                buckets.push(Bucket { le, count });
            }
        }
        Ok(buckets)
    }
}
