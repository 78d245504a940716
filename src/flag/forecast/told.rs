//! A forecast in words, and how it did once the time has come.

use crate::signal::Snapshot;

use super::{Forecast, HORIZON_S, Measure, Range, Row};

impl Measure {
    /// What a person calls it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Amplification => "attempts/original",
            Self::Admitted => "admitted/s",
            Self::Shed => "shed/s",
            Self::Served => "served",
            Self::QueueAge => "oldest wait",
            Self::TokenHeadroom => "TPM left",
            Self::RequestHeadroom => "RPM left",
        }
    }

    /// A value of it, in its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            _ if self.is_share() => format!("{:.0}%", value * 100.0),
            Self::QueueAge => format!("{value:.1}s"),
            Self::Amplification => format!("{value:.2}"),
            _ if value < 10.0 => format!("{value:.1}"),
            _ => format!("{value:.0}"),
        }
    }
}

impl Row {
    /// `served  36% as it is, 37% with it (5% to 100%)`.
    #[must_use]
    pub fn words(&self) -> String {
        let show = |value| self.measure.show(value);
        let Range { low, middle, high } = self.with;
        format!(
            "{:<18}{:>6} as it is, {:>6} with it ({} to {})",
            self.measure.label(),
            show(self.without.middle),
            show(middle),
            show(low),
            show(high)
        )
    }
}

/// What became of a forecast.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Numbers that lay within their range.
    pub held: usize,
    /// Numbers that could be compared.
    pub of: usize,
    /// The number that was missed by most, foretold and seen.
    pub worst: Option<(Measure, f64, f64)>,
}

impl Record {
    /// `6 of 7 within their range; shed/s 25 foretold, 31 came`.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { held, of, worst } = self;
        let worst = worst.map_or_else(String::new, |(measure, foretold, came)| {
            let (foretold, came) = (measure.show(foretold), measure.show(came));
            format!("; {} {foretold} foretold, {came} came", measure.label())
        });
        format!("{held} of {of} within their range{worst}")
    }
}

impl Forecast {
    /// Holds it against the signals of [`HORIZON_S`] later; `None` where none of them is known.
    #[must_use]
    pub fn against(&self, later: &Snapshot) -> Option<Record> {
        let seen: Vec<(&Row, f64)> = self
            .rows
            .iter()
            .filter_map(|row| Some((row, later.number(row.measure.signal())?)))
            .collect();
        let missed = |(row, came): &(&Row, f64)| {
            (row.with.middle - came).abs() / came.abs().max(row.measure.grain())
        };
        let worst = seen.iter().max_by(|left, right| missed(left).total_cmp(&missed(right)));
        Some(Record {
            held: seen.iter().filter(|(row, came)| row.with.holds(*came)).count(),
            of: seen.len(),
            worst: worst.map(|(row, came)| (row.measure, row.with.middle, *came)),
        })
        .filter(|record| record.of > 0)
    }

    /// What was taken for granted, in one line.
    #[must_use]
    pub fn assumed(&self) -> String {
        format!("in {HORIZON_S:.0} s, if: {}", self.assumptions.join("; "))
    }
}
