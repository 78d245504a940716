//! One page, looked at once: for `weir doctor`, which asks each source a single time.
//!
//! Reads with what reads polled pages, and keeps nothing.

use std::collections::BTreeSet;

use crate::signal::Mono;
use crate::signal::promql::is_stale_marker;

use super::exposition::{BODY_BYTES_MAX, Format, Repeat, Report};
use super::scrape::{ScrapeError, no_sample};

/// Most series of one scrape that are kept; more are counted in the report and dropped.
pub const SERIES_MAX: usize = 500_000;

/// What stands on a page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageRead {
    /// Names of its metrics.
    pub metrics: BTreeSet<String>,
    /// Series that were kept.
    pub series: usize,
    /// How the reading went.
    pub report: Report,
}

/// Reads a body that was fetched from the source of this name, where at least one sample must come
/// out.
///
/// # Errors
///
/// When none does, or the body is too large.
pub fn read_page(source_name: &str, body: &[u8], format: Format) -> Result<PageRead, ScrapeError> {
    let mut metrics = BTreeSet::new();
    let mut page = Repeat::new();
    let note = |_, sample: &super::exposition::Sample<'_>| {
        if !metrics.contains(sample.name.as_ref()) {
            metrics.insert(sample.name.as_ref().to_owned());
        }
    };
    let report = page.read(body, format, note, Mono::START).map_err(|_| ScrapeError::TooLarge {
        source_name: source_name.to_owned(),
        limit: BODY_BYTES_MAX,
    })?;
    let series = page.values().iter().filter(|value| !is_stale_marker(**value)).count();
    match no_sample(source_name, series, &report) {
        Some(error) => Err(error),
        None => Ok(PageRead { metrics, series, report }),
    }
}

/// The bad lines of a page with their reasons, and its cut end if there is one, for the source's
/// status.
#[must_use]
pub fn degraded(report: &Report) -> Vec<(usize, String)> {
    let mut lines: Vec<_> =
        report.problems.iter().map(|problem| (problem.line, problem.fault.to_string())).collect();
    if report.cut && report.problem_count == 0 {
        let reason = "ends in the middle of a line, which was dropped: it may be cut";
        lines.push((report.lines, reason.to_owned()));
    }
    if report.samples > SERIES_MAX {
        let reason = format!("{} series, the first {SERIES_MAX} are kept", report.samples);
        lines.push((report.lines, reason));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_number_at_the_end_is_not_taken_for_a_number() {
        for (body, series, complete) in [
            ("a 1\nb 123\n", 2, true),
            ("a 1\nb 12", 1, false),
            ("a 1\n# HELP b", 1, false),
            ("a 1\nb{x=\"", 1, false),
        ] {
            let page = read_page("gateway", body.as_bytes(), Format::Text).expect("a sample");
            assert_eq!(page.series, series, "{body:?}");
            assert_eq!(degraded(&page.report).is_empty(), complete, "{body:?}");
        }
        for body in ["a", "b 12"] {
            let error = read_page("gateway", body.as_bytes(), Format::Text).expect_err(body);
            assert!(error.to_string().contains("no line of the answer is a metric"), "{error}");
        }
    }
}
