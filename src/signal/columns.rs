//! Fits a series into the columns of a chart, without hiding a spike.
//!
//! A mean over a column hides a one-sample spike always, and picking single points hides one of two
//! neighbours; the least and the most of a column hide neither.

use super::promql::{Sample, is_stale_marker};

/// What one column of a chart shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// The least value.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The newest.
    pub last: f64,
}

/// The samples of `(start_ms, end_ms]`, oldest first, in `count` columns of the same span. `None` is
/// a column without a value: a gap, to be left empty. NaN is no value here: it has no height.
#[must_use]
pub fn columns(
    samples: &[Sample],
    start_ms: i64,
    end_ms: i64,
    count: usize,
) -> Vec<Option<Column>> {
    let mut columns = vec![None; count];
    let span = i128::from(end_ms) - i128::from(start_ms);
    let inside = samples.iter().filter(|sample| {
        sample.at_ms > start_ms && sample.at_ms <= end_ms && !sample.value.is_nan()
    });
    for Sample { at_ms, value } in inside.copied() {
        debug_assert!(!is_stale_marker(value), "a stale marker is a NaN");
        // Left-open like the window, so a sample on a boundary ends the column before it.
        let passed = i128::from(at_ms) - i128::from(start_ms) - 1;
        let index = passed * i128::try_from(count).unwrap_or_default() / span;
        let Some(column) = usize::try_from(index).ok().and_then(|index| columns.get_mut(index))
        else {
            continue;
        };
        let Column { min, max, .. } =
            column.unwrap_or(Column { min: value, max: value, last: value });
        *column = Some(Column { min: min.min(value), max: max.max(value), last: value });
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::promql::stale_marker;

    fn series(values: &[f64]) -> Vec<Sample> {
        let times = (1..).map(|n| n * 1000);
        times.zip(values).map(|(at_ms, value)| Sample { at_ms, value: *value }).collect()
    }

    #[test]
    fn spikes_of_both_kinds_stay_and_gaps_stay_empty() {
        let gap = stale_marker();
        let samples = series(&[5.0, 90.0, -90.0, 5.0, gap, gap, 6.0, f64::NAN]);
        let column = |min, max, last| Some(Column { min, max, last });
        assert_eq!(
            columns(&samples, 0, 8000, 2),
            [column(-90.0, 90.0, 5.0), column(6.0, 6.0, 6.0)]
        );
        assert_eq!(
            columns(&samples, 0, 8000, 4),
            [column(5.0, 90.0, 90.0), column(-90.0, 5.0, 5.0), None, column(6.0, 6.0, 6.0)],
        );
        assert_eq!(columns(&samples, 0, 0, 3), [None; 3]);
        assert_eq!(columns(&samples, 0, 8000, 0), []);
        assert_eq!(columns(&samples, 0, 8000, 80).iter().flatten().count(), 5);
    }
}
