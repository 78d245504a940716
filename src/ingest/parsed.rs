//! One scrape as owned series, for what looks at a page once: `weir doctor`, by way of `read_page`.
//!
//! Keeps nothing between scrapes and counts no increase; polled pages go through `Intake`, which
//! keeps to the same bounds.

use crate::signal::Point;

use super::exposition::{self, Format, Report, TooLarge};

/// Most series of one scrape that are kept; more are counted in the report and dropped.
pub const SERIES_MAX: usize = 500_000;

/// A parsed scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedScrape {
    /// Its series, in the order of the body.
    pub points: Vec<Point>,
    /// When the process behind it started, in seconds since 1970, if it says so.
    pub process_start_s: Option<f64>,
    /// How the reading went.
    pub report: Report,
}

impl ParsedScrape {
    /// Parses a body. Samples on good lines are kept, bad lines stand in the report.
    ///
    /// A last line without its line feed is dropped: `12` may be the beginning of `123`.
    ///
    /// # Errors
    ///
    /// When the body is over [`exposition::BODY_BYTES_MAX`].
    pub fn parse(body: &[u8], format: Format) -> Result<Self, TooLarge> {
        let mut points = Vec::new();
        let mut process_start_s = None;
        let mut last_line = 0;
        let report = exposition::parse(body, format, |sample| {
            if points.len() == SERIES_MAX {
                return;
            }
            if sample.name == "process_start_time_seconds" && sample.labels.is_empty() {
                process_start_s = Some(sample.value);
            }
            last_line = sample.line;
            points.push(Point {
                name: sample.name.as_ref().into(),
                labels: sample.labels.iter().map(|(n, v)| (n.as_ref(), v.as_ref())).collect(),
                value: sample.value,
            });
        })?;
        if report.cut && last_line == report.lines && !body.ends_with(b"\n") {
            points.pop();
        }
        Ok(Self { points, process_start_s, report })
    }

    /// Whether every line was read and kept, so that a missing series is really missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.report.problem_count == 0 && !self.report.cut && self.points.len() < SERIES_MAX
    }

    /// See [`degraded`].
    #[must_use]
    pub fn degraded(&self) -> Vec<(usize, String)> {
        degraded(&self.report)
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
        for (body, points, complete) in [
            ("a 1\nb 123\n", 2, true),
            ("a 1\nb 12", 1, false),
            ("a 1\n# HELP b", 1, false),
            ("a 1\nb{x=\"", 1, false),
            ("a", 0, false),
        ] {
            let scrape = ParsedScrape::parse(body.as_bytes(), Format::Text).expect("small");
            assert_eq!(scrape.points.len(), points, "{body:?}");
            assert_eq!(scrape.is_complete(), complete, "{body:?}");
            assert_eq!(degraded(&scrape.report).is_empty(), complete, "{body:?}");
        }
    }

    #[test]
    fn the_process_start_is_found() {
        let body = b"process_start_time_seconds 1.7e9\n";
        let scrape = ParsedScrape::parse(body, Format::Text).expect("small");
        assert_eq!(scrape.process_start_s, Some(1.7e9));
    }
}
