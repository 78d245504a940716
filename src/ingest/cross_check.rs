//! Reads a scrape a second time with the `prometheus-parse` crate, and counts what it makes of it.
//!
//! That crate, and parsers written like it, stand in many tools. They lose or change some samples
//! without a word, and `weir doctor` says how many of a target's. No number on the screen comes from
//! here.

use std::collections::BTreeMap;
use std::fmt;

use chrono::DateTime;
use prometheus_parse::{Scrape, Value};

use super::exposition::{Format, Kind, Sample, TooLarge, parse};

/// Lines that are named at most.
const LINES_MAX: usize = 10;

/// How two readings of one scrape compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrossCheck {
    /// Samples that weir read.
    pub samples: usize,
    /// Those that the other parser does not give as they stand.
    pub lost: usize,
    /// Samples that the other parser gives and that are not there.
    pub made_up: usize,
    /// The lines of the first lost ones, from 1.
    pub lines: Vec<usize>,
}

impl fmt::Display for CrossCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, lost, made_up, lines } = self;
        let Some(first) = lines.first() else {
            return write!(
                f,
                "parsers like prometheus-parse read all {samples} samples as they are"
            );
        };
        write!(f, "parsers like prometheus-parse lose {lost} of {samples} samples, ")?;
        write!(f, "the first on line {first}, and make up {made_up}")
    }
}

/// One sample, comparable between the two. Bounds and values are compared as numbers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flat {
    name: String,
    labels: Vec<(String, String)>,
    bound: Option<u64>,
    value: u64,
    timestamp_ms: Option<i64>,
}

/// Compares what the two parsers make of `body`.
///
/// # Errors
///
/// When `body` is larger than an exposition may be.
pub fn cross_check(body: &[u8], format: Format) -> Result<CrossCheck, TooLarge> {
    let mut lines_of: BTreeMap<Flat, Vec<usize>> = BTreeMap::new();
    let report = parse(body, format, |sample| {
        lines_of.entry(ours(sample)).or_default().push(sample.line);
    })?;
    let mut check = CrossCheck { samples: report.samples, ..CrossCheck::default() };
    for sample in theirs(body) {
        match lines_of.get_mut(&sample) {
            Some(lines) if !lines.is_empty() => drop(lines.remove(0)),
            _ => check.made_up += 1,
        }
    }
    check.lines = lines_of.into_values().flatten().collect();
    check.lines.sort_unstable();
    check.lost = check.lines.len();
    check.lines.truncate(LINES_MAX);
    Ok(check)
}

fn ours(sample: &Sample<'_>) -> Flat {
    let bound_label = match sample.kind {
        Kind::Histogram => "le",
        Kind::Summary => "quantile",
        _ => "",
    };
    let mut flat = Flat {
        name: sample.name.to_string(),
        labels: Vec::new(),
        bound: None,
        value: bits(sample.value),
        timestamp_ms: sample.timestamp_ms,
    };
    for (name, value) in &sample.labels {
        match value.parse() {
            Ok(bound) if *name == bound_label => flat.bound = Some(bits(bound)),
            _ => flat.labels.push((name.to_string(), value.to_string())),
        }
    }
    flat.labels.sort();
    flat
}

/// What the other parser reads: nothing at all when a single byte is no UTF-8.
fn theirs(body: &[u8]) -> Vec<Flat> {
    // Where a line has no timestamp it puts the one it is given.
    let untimed = DateTime::UNIX_EPOCH - chrono::TimeDelta::milliseconds(1);
    let lines = std::str::from_utf8(body).unwrap_or_default().lines();
    let scrape = Scrape::parse_at(lines.map(|line| Ok(line.to_owned())), untimed);
    let mut samples = Vec::new();
    for sample in scrape.map(|scrape| scrape.samples).unwrap_or_default() {
        let mut labels: Vec<_> =
            sample.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        labels.sort();
        let timestamp_ms =
            (sample.timestamp != untimed).then(|| sample.timestamp.timestamp_millis());
        let mut add = |suffix: &str, bound: Option<f64>, value: f64| {
            samples.push(Flat {
                name: format!("{}{suffix}", sample.metric),
                labels: labels.clone(),
                bound: bound.map(bits),
                value: bits(value),
                timestamp_ms,
            });
        };
        match &sample.value {
            Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => {
                add("", None, *value);
            }
            Value::Histogram(buckets) => {
                for bucket in buckets {
                    add("_bucket", Some(bucket.less_than), bucket.count);
                }
            }
            Value::Summary(parts) => {
                for part in parts {
                    add("", Some(part.quantile), part.count);
                }
            }
        }
    }
    samples
}

/// Bits by which equal numbers are equal: one NaN, one zero.
fn bits(number: f64) -> u64 {
    if number.is_nan() { f64::NAN.to_bits() } else { (number + 0.0).to_bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_and_their_lines_named() {
        let safe = "# TYPE h histogram\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\n\
                    h_count 2\n# TYPE s summary\ns{quantile=\"0.5\"} NaN\na{x=\"1\"} 1 1000\n";
        for (body, samples, lost, made_up, lines) in [
            (safe, 6, 0, 0, &[][..]),
            ("", 0, 0, 0, &[]),
            // A name with a colon and a label-less metric with braces vanish.
            ("vllm:a 1\nb{} 2\nc 3\n", 3, 2, 0, &[1, 2]),
            // A comma or an equals sign in a value makes another series of it.
            ("a{x=\"p,team=red\"} 1\n", 1, 1, 1, &[1]),
            // A route template vanishes.
            ("a{route=\"/v1/{model}\"} 1\nb 1\n", 2, 1, 0, &[1]),
            // Equal samples are counted one by one.
            ("a 1\na 1\n", 2, 0, 0, &[]),
        ] {
            let check = cross_check(body.as_bytes(), Format::Text).expect("small");
            let expected = CrossCheck { samples, lost, made_up, lines: lines.to_vec() };
            assert_eq!(check, expected, "{body}");
        }
        let bad = cross_check(b"a 1\nb{x=\"\xff\"} 1\n", Format::Text).expect("small");
        assert_eq!((bad.samples, bad.lost), (1, 1), "one bad byte loses the whole scrape");
    }

    #[test]
    fn it_speaks_in_one_line() {
        let check = CrossCheck { samples: 1590, lost: 102, made_up: 0, lines: vec![7, 9] };
        assert_eq!(
            check.to_string(),
            "parsers like prometheus-parse lose 102 of 1590 samples, the first on line 7, and make up 0",
        );
    }
}
