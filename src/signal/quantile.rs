//! Quantiles out of cumulative histogram buckets, by the rules of Prometheus' `histogram_quantile`.

/// A bucket: how many observations were at most `le`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Upper bound, `+Inf` for the last.
    pub le: f64,
    /// Observations up to the bound, smaller buckets included.
    pub count: f64,
}

/// A quantile with what it is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value. NaN where the buckets cannot say: none observed, no `+Inf` bucket, one bucket only.
    pub value: f64,
    /// The quantile lies in the `+Inf` bucket: the truth is `value` or more.
    pub beyond_last: bool,
}

/// Largest difference between the counts of two buckets, relative to their sum, that is rounding.
const ROUNDING_MAX: f64 = 1e-12;

/// The `q`-quantile of `buckets`, which may come in any order and repeat a bound.
///
/// Linear inside a bucket, whose lower bound is 0 for the first. Feed it increases of one window,
/// summed by `le`: quantiles of quantiles mean nothing.
#[must_use]
pub fn histogram_quantile(q: f64, buckets: Vec<Bucket>) -> Estimate {
    let exactly = |value| Estimate { value, beyond_last: false };
    if q.is_nan() {
        return exactly(f64::NAN);
    }
    if q < 0.0 {
        return exactly(f64::NEG_INFINITY);
    }
    if q > 1.0 {
        return exactly(f64::INFINITY);
    }
    let buckets = merged(buckets);
    let (Some(last), true) = (buckets.last(), buckets.len() >= 2) else {
        return exactly(f64::NAN);
    };
    if last.le != f64::INFINITY || last.count.is_nan() || last.count <= 0.0 {
        return exactly(f64::NAN);
    }
    let rank = q * last.count;
    let below_last = &buckets[..buckets.len() - 1];
    let Some(index) = below_last.iter().position(|bucket| bucket.count >= rank) else {
        return Estimate { value: below_last[below_last.len() - 1].le, beyond_last: true };
    };
    let bucket = below_last[index];
    let (lower, counted) = match index.checked_sub(1) {
        Some(before) => (below_last[before].le, below_last[before].count),
        None if bucket.le <= 0.0 => return exactly(bucket.le),
        None => (0.0, 0.0),
    };
    exactly(lower + (bucket.le - lower) * ((rank - counted) / (bucket.count - counted)))
}

/// Sorted by bound, equal bounds added up, counts never falling.
fn merged(mut buckets: Vec<Bucket>) -> Vec<Bucket> {
    buckets.retain(|bucket| !bucket.le.is_nan());
    buckets.sort_by(|a, b| a.le.total_cmp(&b.le));
    let mut merged: Vec<Bucket> = Vec::with_capacity(buckets.len());
    for bucket in buckets {
        match merged.last_mut() {
            // `0.2` and `2e-1` are one bound; sorted, so not below means equal.
            Some(last) if last.le >= bucket.le => {
                last.count += bucket.count;
            }
            _ => merged.push(bucket),
        }
    }
    for index in 1..merged.len() {
        let before = merged[index - 1].count;
        let count = &mut merged[index].count;
        let is_rounding = (*count - before).abs() < (*count + before).abs() * ROUNDING_MAX;
        if *count < before || is_rounding {
            *count = before;
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(q: f64, buckets: &[(f64, f64)], expected: f64, beyond_last: bool) {
        let buckets = buckets.iter().map(|(le, count)| Bucket { le: *le, count: *count }).collect();
        let estimate = histogram_quantile(q, buckets);
        let same = estimate.value.total_cmp(&expected).is_eq()
            || (estimate.value - expected).abs() <= 1e-9 * expected.abs();
        assert!(same, "{q}: got {}, expected {expected}", estimate.value);
        assert_eq!(estimate.beyond_last, beyond_last, "{q}");
    }

    #[test]
    fn follows_prometheus() {
        const INF: f64 = f64::INFINITY;
        let plain = [(0.1, 10.0), (0.2, 20.0), (INF, 20.0)];
        check(0.5, &plain, 0.1, false);
        check(0.75, &plain, 0.15, false);
        check(0.25, &plain, 0.05, false);
        check(0.0, &plain, 0.0, false);
        check(1.0, &plain, 0.2, false);
        check(f64::NAN, &plain, f64::NAN, false);
        check(-0.1, &plain, f64::NEG_INFINITY, false);
        check(1.1, &plain, INF, false);
        // In the last bucket only a lower bound is known.
        check(0.95, &[(1.0, 1.0), (INF, 10.0)], 1.0, true);
        // Order and repeated bounds do not matter.
        check(0.75, &[(INF, 20.0), (0.2, 15.0), (0.1, 10.0), (2e-1, 5.0)], 0.15, false);
        // A first bucket at or below zero has no lower bound.
        check(0.5, &[(-1.0, 10.0), (INF, 10.0)], -1.0, false);
        // Counts that fall are lifted.
        check(0.5, &[(1.0, 10.0), (2.0, 5.0), (INF, 10.0)], 0.5, false);
        // Nothing to say.
        check(0.5, &[], f64::NAN, false);
        check(0.5, &[(INF, 10.0)], f64::NAN, false);
        check(0.5, &[(1.0, 10.0), (2.0, 10.0)], f64::NAN, false);
        check(0.5, &[(1.0, 0.0), (INF, 0.0)], f64::NAN, false);
        check(0.5, &[(1.0, f64::NAN), (INF, f64::NAN)], f64::NAN, false);
    }
}
