//! `PromQL`'s functions over counters and classic histograms, by the rules of Prometheus 3.
//!
//! Answers what a Prometheus server answers for the same samples: it guesses the ends of a window,
//! which [`counter_increase`](super::counter_increase) never does. So a number from here can be held
//! against a Grafana panel, and one from there against a ledger; weir shows which of both it is.
//! Windows are left-open, stale markers are no samples, and too few samples give no result: never 0.
//! Parses no `PromQL`.

use std::collections::BTreeMap;

use super::{Bucket, Labels, histogram_quantile};

/// Bits of the NaN that ends a series. Only these: any other NaN is a value that was measured.
const STALE_MARKER_BITS: u64 = 0x7ff0_0000_0000_0002;

/// How far an instant selector looks back, as in Prometheus unless set otherwise.
const LOOKBACK_MS: i64 = 300_000;

/// Share of the mean distance between samples from which on the end of a window counts as a gap.
const EXTRAPOLATION_THRESHOLD: f64 = 1.1;

/// The label that holds a metric's name.
const NAME_LABEL: &str = "__name__";

/// The label that holds a bucket's bound.
const BOUND_LABEL: &str = "le";

/// The value that marks the end of a series.
#[must_use]
pub const fn stale_marker() -> f64 {
    f64::from_bits(STALE_MARKER_BITS)
}

/// Whether `value` marks the end of a series. Compares bits, since no NaN equals another.
#[must_use]
pub const fn is_stale_marker(value: f64) -> bool {
    value.to_bits() == STALE_MARKER_BITS
}

/// A value and when it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Milliseconds, from any fixed moment.
    pub at_ms: i64,
    /// The value as it was read, or [`stale_marker`].
    pub value: f64,
}

/// The samples of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// Its samples, oldest first.
    pub samples: Vec<Sample>,
}

/// What is computed per series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The newest value within the lookback of five minutes; takes no range.
    Newest,
    /// Growth of a counter per second, extrapolated to the whole window.
    Rate,
    /// Growth of a counter, extrapolated to the whole window.
    Increase,
    /// Difference of a gauge, extrapolated to the whole window.
    Delta,
    /// Growth of a counter per second between the last two samples.
    Irate,
    /// Difference between the last two samples.
    Idelta,
    /// How often a counter fell.
    Resets,
    /// How often the value changed.
    Changes,
    /// How many samples there are.
    CountOverTime,
}

impl Function {
    /// The function of this name, `instant` for none.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "instant" => Self::Newest,
            "rate" => Self::Rate,
            "increase" => Self::Increase,
            "delta" => Self::Delta,
            "irate" => Self::Irate,
            "idelta" => Self::Idelta,
            "resets" => Self::Resets,
            "changes" => Self::Changes,
            "count_over_time" => Self::CountOverTime,
            _ => return None,
        })
    }
}

/// One query: a function per series, then a sum, then a quantile, the last two if wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// What is computed per series.
    pub function: Function,
    /// The moment it is asked for.
    pub eval_ms: i64,
    /// How far before `eval_ms` it looks (`offset`), negative for after.
    pub offset_ms: i64,
    /// Length of the window, above zero. [`Function::Newest`] does not use it.
    pub range_ms: i64,
    /// Labels to keep when series are summed; `None` sums nothing.
    pub sum_by: Option<Vec<String>>,
    /// The quantile of the histograms that the results are the buckets of.
    pub quantile: Option<f64>,
}

/// The result of `query` over `series`: one value per label set, none where Prometheus has none.
#[must_use]
pub fn evaluate(query: &Query, series: &[Series]) -> Vec<(Labels, f64)> {
    let mut result: Vec<_> = series
        .iter()
        .filter_map(|series| {
            let value = per_series(query, &series.samples)?;
            let keeps_name = query.function == Function::Newest;
            let kept = |label: &str| keeps_name || label != NAME_LABEL;
            Some((series.labels.filtered(kept), value))
        })
        .collect();
    if let Some(by) = &query.sum_by {
        // A quantile needs its bounds, so a sum under one always keeps them.
        let needs_bound = query.quantile.is_some();
        result = sum(&result, |label| {
            by.iter().any(|kept| kept == label) || (needs_bound && label == BOUND_LABEL)
        });
    }
    if let Some(q) = query.quantile {
        result = quantiles(q, &result);
    }
    result
}

fn per_series(query: &Query, samples: &[Sample]) -> Option<f64> {
    let end_ms = query.eval_ms.saturating_sub(query.offset_ms);
    let range_ms =
        if query.function == Function::Newest { LOOKBACK_MS } else { query.range_ms.max(1) };
    let start_ms = end_ms.saturating_sub(range_ms);
    let inside = |sample: &&Sample| sample.at_ms > start_ms && sample.at_ms <= end_ms;
    let mut within = samples.iter().filter(inside);
    if query.function == Function::Newest {
        return within.next_back().map(|last| last.value).filter(|value| !is_stale_marker(*value));
    }
    let window = Window {
        start_ms,
        end_ms,
        samples: within.filter(|sample| !is_stale_marker(sample.value)).copied().collect(),
    };
    match query.function {
        Function::Newest => None,
        Function::Rate => Some(window.extrapolated(true)? / seconds(range_ms)),
        Function::Increase => window.extrapolated(true),
        Function::Delta => window.extrapolated(false),
        Function::Irate => window.last_step(true),
        Function::Idelta => window.last_step(false),
        Function::Resets => window.count_steps(|before, after| after < before),
        Function::Changes => window.count_steps(|before, after| {
            // Every pair with a NaN is unequal; two of them are no change all the same.
            !(before.is_nan() && after.is_nan())
                && before.partial_cmp(&after) != Some(std::cmp::Ordering::Equal)
        }),
        Function::CountOverTime => match window.samples.len() {
            0 => None,
            count => Some(as_f64(count)),
        },
    }
}

/// The samples within `(start_ms, end_ms]`.
struct Window {
    start_ms: i64,
    end_ms: i64,
    samples: Vec<Sample>,
}

impl Window {
    /// What the series gained, as if it had gone on evenly to both ends of the window.
    ///
    /// An end is a gap when it is longer than usual: then half a usual step is guessed. A counter is
    /// never extrapolated to before it was zero.
    fn extrapolated(&self, is_counter: bool) -> Option<f64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        let steps = self.samples.len() - 1;
        if steps == 0 {
            return None;
        }
        let mut gained = last.value - first.value;
        if is_counter {
            let falls = self.steps().filter(|(before, after)| after < before);
            gained += falls.map(|(before, _)| before).sum::<f64>();
        }
        let sampled_s = seconds(last.at_ms - first.at_ms);
        let usual_s = sampled_s / as_f64(steps);
        let guess_s = |gap_ms: i64| match seconds(gap_ms) {
            gap_s if gap_s >= usual_s * EXTRAPOLATION_THRESHOLD => usual_s / 2.0,
            gap_s => gap_s,
        };
        let mut before_s = guess_s(first.at_ms - self.start_ms);
        if is_counter && gained > 0.0 && first.value >= 0.0 {
            before_s = before_s.min(sampled_s * (first.value / gained));
        }
        let after_s = guess_s(self.end_ms - last.at_ms);
        Some(gained * ((sampled_s + before_s + after_s) / sampled_s))
    }

    /// Difference of the last two samples; per second, with resets undone, for a counter.
    fn last_step(&self, is_counter: bool) -> Option<f64> {
        let [.., before, last] = self.samples.as_slice() else { return None };
        let span_s = seconds(last.at_ms - before.at_ms);
        if !is_counter {
            return Some(last.value - before.value);
        }
        let gained = if last.value < before.value { last.value } else { last.value - before.value };
        (span_s > 0.0).then(|| gained / span_s)
    }

    fn count_steps(&self, counts: impl Fn(f64, f64) -> bool) -> Option<f64> {
        self.samples.first()?;
        Some(as_f64(self.steps().filter(|(before, after)| counts(*before, *after)).count()))
    }

    fn steps(&self) -> impl Iterator<Item = (f64, f64)> {
        self.samples.windows(2).map(|pair| (pair[0].value, pair[1].value))
    }
}

fn sum(result: &[(Labels, f64)], kept: impl Fn(&str) -> bool) -> Vec<(Labels, f64)> {
    let mut sums: BTreeMap<Labels, f64> = BTreeMap::new();
    for (labels, value) in result {
        *sums.entry(labels.filtered(&kept)).or_default() += value;
    }
    sums.into_iter().collect()
}

fn quantiles(q: f64, result: &[(Labels, f64)]) -> Vec<(Labels, f64)> {
    let mut histograms: BTreeMap<Labels, Vec<Bucket>> = BTreeMap::new();
    for (labels, count) in result {
        let Some(Ok(le)) = labels.get(BOUND_LABEL).map(str::parse) else { continue };
        let labels = labels.filtered(|label| label != BOUND_LABEL && label != NAME_LABEL);
        histograms.entry(labels).or_default().push(Bucket { le, count: *count });
    }
    let estimate = |buckets| histogram_quantile(q, buckets).value;
    histograms.into_iter().map(|(labels, buckets)| (labels, estimate(buckets))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "spans stay far below 2^53 ms")]
fn seconds(span_ms: i64) -> f64 {
    span_ms as f64 / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "counts of samples stay far below 2^53")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for one series without labels, sampled every 10 s from 0 on.
    fn result(function: Function, values: &[f64], eval_s: i64, offset_s: i64) -> Option<f64> {
        let samples = (0..).step_by(10_000).zip(values);
        let series = Series {
            labels: Labels::default(),
            samples: samples.map(|(at_ms, value)| Sample { at_ms, value: *value }).collect(),
        };
        let query = Query {
            function,
            eval_ms: eval_s * 1000,
            offset_ms: offset_s * 1000,
            range_ms: 30_000,
            sum_by: None,
            quantile: None,
        };
        evaluate(&query, &[series]).first().map(|(_, value)| *value)
    }

    #[test]
    fn windows_and_functions() {
        let up = &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0][..];
        let fall = &[0.0, 10.0, 20.0, 5.0, 15.0][..];
        for (function, values, eval_s, offset_s, expected) in [
            // Left-open: of the samples at 10, 20, 30 and 40 s the first is out.
            (Function::CountOverTime, up, 40, 0, Some(3.0)),
            (Function::CountOverTime, up, 39, 0, Some(3.0)),
            (Function::CountOverTime, up, 200, 0, None),
            (Function::CountOverTime, up, 50, 10, Some(3.0)),
            (Function::CountOverTime, up, 0, -20, Some(3.0)),
            (Function::Increase, up, 40, 0, Some(30.0)),
            (Function::Increase, up, 0, 0, None),
            (Function::Rate, up, 50, 10, Some(1.0)),
            (Function::Delta, fall, 40, 0, Some(-7.5)),
            (Function::Irate, fall, 30, 0, Some(0.5)),
            (Function::Idelta, fall, 30, 0, Some(-15.0)),
            (Function::Irate, up, 0, 0, None),
            (Function::Resets, fall, 40, 0, Some(1.0)),
            (Function::Changes, fall, 40, 0, Some(2.0)),
            (Function::Newest, up, 349, 0, Some(50.0)),
            (Function::Newest, up, 350, 0, None),
        ] {
            let got = result(function, values, eval_s, offset_s);
            assert_eq!(got, expected, "{function:?} at {eval_s} s, offset {offset_s} s");
        }
    }

    #[test]
    fn a_stale_marker_is_no_sample_and_ends_the_series() {
        let ended = &[1.0, 2.0, stale_marker()][..];
        assert_eq!(result(Function::Newest, ended, 25, 0), None);
        assert_eq!(result(Function::Newest, ended, 19, 0), Some(2.0));
        assert_eq!(result(Function::CountOverTime, ended, 25, 0), Some(2.0));
        let measured = &[1.0, f64::NAN][..];
        assert!(result(Function::Newest, measured, 15, 0).is_some_and(f64::is_nan));
    }
}
