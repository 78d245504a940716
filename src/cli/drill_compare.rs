//! `weir drill --compare`: prints one storm under every control, as a table or as one document.

use std::fmt::Write as _;

use super::out::{self, OutputError};
use crate::drill::compare::{Comparison, Row};

/// What a figure is called that nobody has.
const UNKNOWN: &str = "unknown";

/// Heads of the columns, two lines each, and their widths.
const COLUMNS: [(&str, &str, usize); 10] = [
    ("goodput", "of quota", 9),
    ("attempts", "/orig.", 10),
    ("requests", "/orig.", 10),
    ("429s", "/s", 8),
    ("admitted", "p95", 10),
    ("offered", "p95", 9),
    ("shed", "share", 8),
    ("served", "share", 8),
    ("goodput", "swing", 10),
    ("recovery", "after surge", 18),
];
/// Width of the first column.
const NAME_WIDTH: usize = 18;

/// Prints it.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(comparison: &Comparison, as_json: bool) -> Result<(), OutputError> {
    if as_json {
        let document = serde_json::json!(comparison);
        out::line(format_args!("{document:#}"))
    } else {
        out::text(&table(comparison))
    }
}

fn table(comparison: &Comparison) -> String {
    let Comparison { scenario, seed, seconds, surge, binding_meter, .. } = comparison;
    let (from, to) = (surge.from.as_secs_f64(), surge.to.as_secs_f64());
    let steady = surge.steady_from.as_secs_f64();
    let mut text = format!(
        "{scenario} under five controls (seed {seed}, virtual, {seconds} s)\n\
         surge {from} s to {to} s, measured from {steady} s; quota: {binding_meter}\n\n"
    );
    for line in 0..2 {
        let _ = write!(text, "{:<NAME_WIDTH$}", ["control", ""][line]);
        for (upper, lower, width) in COLUMNS {
            let _ = write!(text, "{:>width$}", [upper, lower][line]);
        }
        text.push('\n');
    }
    for row in &comparison.controls {
        let _ = write!(text, "{:<NAME_WIDTH$}", row.control);
        for (cell, (_, _, width)) in cells(row, comparison).iter().zip(COLUMNS) {
            let _ = write!(text, "{cell:>width$}");
        }
        text.push('\n');
    }
    text.push('\n');
    for row in &comparison.controls {
        let _ = writeln!(text, "{:<NAME_WIDTH$}{}", row.control, row.meaning);
    }
    let workers = &comparison.four_workers;
    let _ = writeln!(
        text,
        "\nfour workers, one start per 0.25 s, base 0.5 s: {} requests, {} of them 429, last done at {:.1} s\n\
         without jitter; with full jitter {:.1} requests, {:.1} of them 429, last done at {:.2} s (mean)",
        workers.requests,
        workers.refused,
        workers.last_s,
        workers.jittered_requests,
        workers.jittered_refused,
        workers.jittered_last_s,
    );
    text
}

fn cells(row: &Row, comparison: &Comparison) -> [String; 10] {
    let percent = |share| known(share, |share| format!("{:.1} %", share * 100.0));
    let times = |factor| known(factor, |factor| format!("{factor:.2}"));
    let latency = |seconds| known(seconds, |seconds| format!("{seconds:.2} s"));
    [
        percent(row.goodput_share),
        times(row.amplification),
        times(row.client_multiplication),
        format!("{:.1}", row.provider_429_per_s),
        latency(row.latency_admitted_p95_s),
        latency(row.latency_offered_p95_s),
        percent(row.shed_share),
        percent(row.served_share),
        known(row.oscillation, |share| format!("±{:.1} %", share * 100.0)),
        row.recovery_s.map_or_else(
            || format!("not within {:.0} s", comparison.recovery_observed_s),
            |after_s| format!("{after_s:.0} s"),
        ),
    ]
}

fn known(value: Option<f64>, words: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::compare::{Surge, WorkersReport};
    use std::time::Duration;

    fn comparison() -> Comparison {
        let row = Row {
            control: "client-throttling",
            meaning: "the caller refuses for itself",
            goodput_share: Some(0.982),
            amplification: None,
            client_multiplication: Some(8.5),
            provider_429_per_s: 1_612.4,
            latency_admitted_p95_s: None,
            latency_offered_p95_s: Some(10.0),
            shed_share: Some(0.0),
            served_share: Some(0.37),
            oscillation: Some(0.012),
            recovery_s: None,
        };
        Comparison {
            scenario: "launch-0900".to_owned(),
            seed: 1,
            seconds: 180.0,
            surge: Surge {
                from: Duration::from_secs(10),
                steady_from: Duration::from_secs(25),
                to: Duration::from_secs(70),
                total: Duration::from_mins(3),
            },
            binding_meter: "tokens",
            recovery_observed_s: 110.0,
            controls: vec![row.clone(), Row { recovery_s: Some(5.0), ..row }],
            four_workers: WorkersReport {
                requests: 10,
                refused: 6,
                last_s: 3.5,
                jittered_requests: 9.0,
                jittered_refused: 5.0,
                jittered_last_s: 1.6,
            },
        }
    }

    #[test]
    fn the_table_fits_a_screen_of_120_columns() {
        let text = table(&comparison());
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= 120), "{widest:?}\n{text}");
    }

    #[test]
    fn unknown_is_said_and_never_zero() {
        let text = table(&comparison());
        assert!(text.contains("unknown"), "{text}");
        assert!(text.contains("not within 110 s"), "{text}");
        assert!(text.contains(" 5 s\n"), "{text}");
    }
}
