//! Writes the drill's own counters as Prometheus text.

use std::fmt::{Display, Write as _};
use std::time::Duration;

/// Upper bounds of the latency buckets, in seconds.
const BOUNDS_S: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// A histogram of durations.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    buckets: [u64; BOUNDS_S.len()],
    count: u64,
    sum_s: f64,
}

impl Histogram {
    /// Counts one duration.
    pub(super) fn observe(&mut self, span: Duration) {
        let span_s = span.as_secs_f64();
        if let Some(index) = BOUNDS_S.iter().position(|bound_s| span_s <= *bound_s) {
            self.buckets[index] += 1;
        }
        self.count += 1;
        self.sum_s += span_s;
    }
}

/// One exposition under construction.
#[derive(Debug, Default)]
pub(super) struct MetricsText {
    text: String,
    /// The quota scope that every sample names, if the page tells scopes apart.
    scope: Option<String>,
}

impl MetricsText {
    /// A page whose samples all carry the label `scope`, unless it is `None`.
    pub(super) fn of_scope(scope: Option<&str>) -> Self {
        Self { text: String::new(), scope: scope.map(str::to_owned) }
    }

    /// Starts a metric family of this type.
    pub(super) fn family(&mut self, name: &str, kind: &str) {
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// One sample; `labels` are written as they are and must need no escaping.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let scope = self.scope.as_deref().map(|scope| ("scope", scope));
        let labels = scope.iter().chain(labels);
        let pairs: Vec<String> =
            labels.map(|(label, text)| format!("{label}=\"{text}\"")).collect();
        if pairs.is_empty() {
            return self.line(format_args!("{name} {value}"));
        }
        self.line(format_args!("{name}{{{}}} {value}", pairs.join(",")));
    }

    /// A family of one sample without labels.
    pub(super) fn single(&mut self, name: &str, kind: &str, value: impl Display) {
        self.family(name, kind);
        self.sample(name, &[], value);
    }

    /// A whole histogram.
    pub(super) fn histogram(&mut self, name: &str, histogram: &Histogram) {
        self.family(name, "histogram");
        let mut below = 0;
        for (bound_s, count) in BOUNDS_S.iter().zip(histogram.buckets) {
            below += count;
            self.sample(&format!("{name}_bucket"), &[("le", &bound_s.to_string())], below);
        }
        self.sample(&format!("{name}_bucket"), &[("le", "+Inf")], histogram.count);
        self.sample(&format!("{name}_sum"), &[], histogram.sum_s);
        self.sample(&format!("{name}_count"), &[], histogram.count);
    }

    /// The text.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut histogram = Histogram::default();
        for ms in [1, 2, 60_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let mut text = MetricsText::default();
        text.histogram("x_seconds", &histogram);
        let text = text.into_text();
        for line in [
            "x_seconds_bucket{le=\"0.001\"} 1",
            "x_seconds_bucket{le=\"0.0025\"} 2",
            "x_seconds_bucket{le=\"30\"} 2",
            "x_seconds_bucket{le=\"+Inf\"} 3",
            "x_seconds_count 3",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} in {text}");
        }
    }
}
