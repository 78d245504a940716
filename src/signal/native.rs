//! Quantiles of native histograms, whose bucket bounds follow from a schema instead of `le` labels.
//!
//! By the rules of Prometheus 3. They never come in text expositions, only through a query API.

/// The schema that says that the bounds are listed one by one.
const CUSTOM_BOUNDS_SCHEMA: i32 = -53;

/// The populated buckets on one side of zero, nearest to zero first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Index of the first bucket: its outer bound is `2^(offset / 2^schema)`.
    pub offset: i32,
    /// Observations per bucket, not cumulative.
    pub counts: Vec<f64>,
}

/// One native histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeHistogram {
    /// Buckets per doubling are `2^schema`.
    pub schema: i32,
    /// Observations in all.
    pub count: f64,
    /// Sum of what was observed; NaN as soon as a NaN was observed.
    pub sum: f64,
    /// Half the width of the bucket around zero.
    pub zero_width: f64,
    /// Observations in the bucket around zero.
    pub zero_count: f64,
    /// Buckets above zero.
    pub positive: Side,
    /// Buckets below zero.
    pub negative: Side,
    /// Upper bounds but the last, `+Inf`, where the schema says that they are listed.
    pub custom_bounds: Vec<f64>,
}

#[derive(Clone, Copy)]
struct Span {
    lower: f64,
    upper: f64,
    count: f64,
}

impl NativeHistogram {
    /// The `q`-quantile; NaN when nothing was observed.
    ///
    /// Exponential inside a bucket; linear in the one around zero and between listed bounds.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        if q < 0.0 {
            return f64::NEG_INFINITY;
        }
        if q > 1.0 {
            return f64::INFINITY;
        }
        if q.is_nan() || self.count.is_nan() || self.count <= 0.0 {
            return f64::NAN;
        }
        // The half with fewer buckets to walk is also the one with the smaller rounding. A NaN
        // observation is in no bucket, and counts as larger than all.
        let from_below = q < 0.5 || self.sum.is_nan();
        let mut spans = self.spans();
        if !from_below {
            spans.reverse();
        }
        let rank = if from_below { q } else { 1.0 - q } * self.count;
        let mut walked = 0.0;
        let Some(span) = spans.iter().filter(|span| span.count > 0.0).find(|span| {
            walked += span.count;
            walked >= rank
        }) else {
            return f64::NAN;
        };
        let below = if from_below { rank - (walked - span.count) } else { walked - rank };
        self.interpolated(*span, below / span.count)
    }

    fn interpolated(&self, span: Span, fraction: f64) -> f64 {
        let Span { mut lower, mut upper, .. } = span;
        if self.schema == CUSTOM_BOUNDS_SCHEMA {
            match (lower.is_infinite(), upper.is_infinite()) {
                (true, _) if upper <= 0.0 => return upper,
                (true, _) => lower = 0.0,
                (_, true) => return lower,
                _ => {}
            }
            return lower + (upper - lower) * fraction;
        }
        if lower < 0.0 && upper > 0.0 {
            // Around zero: nothing lies on a side without buckets.
            match (self.negative.counts.is_empty(), self.positive.counts.is_empty()) {
                (true, false) => lower = 0.0,
                (false, true) => upper = 0.0,
                _ => {}
            }
        }
        if lower <= 0.0 && upper >= 0.0 {
            return lower + (upper - lower) * fraction;
        }
        let (log_lower, log_upper) = (lower.abs().log2(), upper.abs().log2());
        if lower > 0.0 {
            (log_lower + (log_upper - log_lower) * fraction).exp2()
        } else {
            -(log_upper + (log_lower - log_upper) * (1.0 - fraction)).exp2()
        }
    }

    /// All buckets in order of their bounds.
    fn spans(&self) -> Vec<Span> {
        if self.schema == CUSTOM_BOUNDS_SCHEMA {
            let lowers = std::iter::once(f64::NEG_INFINITY).chain(self.custom_bounds.clone());
            let uppers = self.custom_bounds.iter().copied().chain([f64::INFINITY]);
            let listed: Vec<_> = lowers.zip(uppers).collect();
            let offset = usize::try_from(self.positive.offset).unwrap_or_default();
            let counts = self.positive.counts.iter();
            return listed
                .into_iter()
                .skip(offset)
                .zip(counts)
                .map(|((lower, upper), count)| Span { lower, upper, count: *count })
                .collect();
        }
        let bound = |index: i32| (f64::from(index) * f64::from(-self.schema).exp2()).exp2();
        let outer = |side: &Side| -> Vec<Span> {
            let span = |(index, count): (i32, &f64)| Span {
                lower: bound(index.saturating_sub(1)),
                upper: bound(index),
                count: *count,
            };
            (side.offset..).zip(&side.counts).map(span).collect()
        };
        let zero = Span { lower: -self.zero_width, upper: self.zero_width, count: self.zero_count };
        let mirrored = |span: Span| Span { lower: -span.upper, upper: -span.lower, ..span };
        let mut spans: Vec<_> = outer(&self.negative).into_iter().rev().map(mirrored).collect();
        spans.push(zero);
        spans.extend(outer(&self.positive));
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(counts: &[f64]) -> Side {
        Side { offset: 0, counts: counts.to_vec() }
    }

    fn check(histogram: &NativeHistogram, q: f64, expected: f64) {
        let got = histogram.quantile(q);
        let same =
            got.total_cmp(&expected).is_eq() || (got - expected).abs() <= 1e-9 * expected.abs();
        assert!(same, "{q}: got {got}, expected {expected}");
    }

    #[test]
    fn exponential_between_bounds_and_linear_around_zero() {
        let counts = &[2.0, 3.0, 0.0, 1.0, 4.0];
        let plain = NativeHistogram {
            count: 12.0,
            zero_width: 0.001,
            zero_count: 2.0,
            ..Default::default()
        };
        let positive = NativeHistogram { positive: side(counts), ..plain.clone() };
        check(&positive, 1.0, 16.0);
        check(&positive, 0.1, 0.0006);
        check(&positive, 0.0, 0.0);
        check(&positive, f64::NAN, f64::NAN);
        check(&positive, 1.5, f64::INFINITY);
        check(&positive, -0.5, f64::NEG_INFINITY);
        let negative = NativeHistogram { negative: side(counts), ..plain };
        check(&negative, 0.9, -0.0006);
        check(&negative, 0.0, -16.0);
        check(&NativeHistogram::default(), 0.5, f64::NAN);
    }

    #[test]
    fn linear_between_listed_bounds() {
        let listed = NativeHistogram {
            schema: CUSTOM_BOUNDS_SCHEMA,
            count: 10.0,
            positive: side(&[2.0, 4.0, 4.0]),
            custom_bounds: vec![1.0, 2.0],
            ..Default::default()
        };
        check(&listed, 0.1, 0.5);
        check(&listed, 0.4, 1.5);
        check(&listed, 0.9, 2.0);
    }
}
