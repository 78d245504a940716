//! The text of a page of metrics: families, samples, histograms. Knows no metric of its own.

use std::fmt::Write as _;

use crate::admission::{Histogram, LATENCY_BOUNDS, Scope};

#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
}

impl Page {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.series(name, labels);
        let _ = writeln!(self.text, " {value}");
    }

    pub(super) fn count(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.series(name, labels);
        let _ = writeln!(self.text, " {value}");
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.text.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            self.text.push(if place == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"");
            for character in value.chars() {
                match character {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
    }

    pub(super) fn per_scope(
        &mut self,
        scopes: &[Scope],
        name: &str,
        help: &str,
        read: fn(&Scope) -> u64,
    ) {
        self.family(name, "counter", help);
        for scope in scopes {
            self.count(name, &[("scope", &**scope.name())], read(scope));
        }
    }

    pub(super) fn gauge(
        &mut self,
        scopes: &[Scope],
        name: &str,
        help: &str,
        read: impl Fn(&Scope) -> f64,
    ) {
        self.family(name, "gauge", help);
        for scope in scopes {
            self.sample(name, &[("scope", &**scope.name())], read(scope));
        }
    }

    /// A counter with one more label than the scope.
    pub(super) fn by(
        &mut self,
        scopes: &[Scope],
        name: &str,
        help: &str,
        read: fn(&Scope) -> Vec<(&'static str, &'static str, u64)>,
    ) {
        self.family(name, "counter", help);
        for scope in scopes {
            for (label, value, count) in read(scope) {
                self.count(name, &[("scope", &**scope.name()), (label, value)], count);
            }
        }
    }

    pub(super) fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (place, count) in histogram.buckets.iter().enumerate() {
            below += count;
            let bound = LATENCY_BOUNDS.get(place).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.count(&bucket, &labels, below);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum);
        self.count(&format!("{name}_count"), labels, below);
    }
}
