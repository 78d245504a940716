//! A forecast in words, and how it did once the time has come.

use chrono::{DateTime, Utc};

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

/// What came of one number that was foretold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Came {
    /// What.
    pub measure: Measure,
    /// Its bounds, as they were foretold with the flips.
    pub foretold: Range,
    /// What came.
    pub came: f64,
}

impl Came {
    /// By which share of what came the middle missed it; what is the same to anybody counts as that.
    #[must_use]
    pub fn off(&self) -> f64 {
        (self.foretold.middle - self.came).abs() / self.came.abs().max(self.measure.grain())
    }

    /// Whether it lay within its bounds.
    #[must_use]
    pub fn held(&self) -> bool {
        self.foretold.holds(self.came)
    }
}

/// What became of a forecast: the numbers that could be compared, one at least.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The numbers.
    pub rows: Vec<Came>,
}

/// From here on it no longer matters by how much something was missed.
const OFF_MAX: f64 = 9.99;

impl Record {
    /// Numbers that lay within their range.
    #[must_use]
    pub fn held(&self) -> usize {
        self.rows.iter().filter(|row| row.held()).count()
    }

    /// The number that was missed by most.
    #[must_use]
    pub fn worst(&self) -> Option<&Came> {
        self.rows.iter().max_by(|left, right| left.off().total_cmp(&right.off()))
    }

    /// `6 of 7 within their range; shed/s 25 foretold, 31 came: off by 19%`.
    #[must_use]
    pub fn words(&self) -> String {
        let worst = self.worst().map_or_else(String::new, |row| {
            let (foretold, came) =
                (row.measure.show(row.foretold.middle), row.measure.show(row.came));
            let off = if row.off() > OFF_MAX {
                format!("more than {:.0}%", OFF_MAX * 100.0)
            } else {
                format!("{:.0}%", row.off() * 100.0)
            };
            format!("; {} {foretold} foretold, {came} came: off by {off}", row.measure.label())
        });
        format!("{} of {} within their range{worst}", self.held(), self.rows.len())
    }
}

/// The forecast of one flip, looked back at once its time had come.
#[derive(Clone, Debug, PartialEq)]
pub struct Hindsight {
    /// When it was looked back at.
    pub at: DateTime<Utc>,
    /// The id of the flip's request.
    pub request_id: String,
    /// The flip's plan, by name.
    pub plan: String,
    /// The quota scope.
    pub scope: String,
    /// The store that the flip went to, by name.
    pub store: Option<String>,
    /// The environment.
    pub environment: Option<String>,
    /// How it did.
    pub record: Record,
}

/// Where a forecast is about to be looked at: what is known of another world says nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Where<'a> {
    /// The quota scope.
    pub scope: &'a str,
    /// The flag store, by name.
    pub store: Option<&'a str>,
    /// The environment, where it is known.
    pub environment: Option<&'a str>,
}

impl Hindsight {
    /// Whether it is of this place: the same scope, in the same store or the same environment.
    #[must_use]
    pub fn is_of(&self, place: &Where<'_>) -> bool {
        let same =
            |own: &Option<String>, asked: Option<&str>| own.is_some() && own.as_deref() == asked;
        self.scope == place.scope
            && (same(&self.store, place.store) || same(&self.environment, place.environment))
    }
}

impl Forecast {
    /// Holds it against the signals of [`HORIZON_S`] later; `None` where none of them is known.
    #[must_use]
    pub fn against(&self, later: &Snapshot) -> Option<Record> {
        let came = |row: &Row| {
            let came = later.number(row.measure.signal())?;
            Some(Came { measure: row.measure, foretold: row.with, came })
        };
        let rows: Vec<Came> = self.rows.iter().filter_map(came).collect();
        (!rows.is_empty()).then_some(Record { rows })
    }

    /// What was taken for granted, in one line.
    #[must_use]
    pub fn assumed(&self) -> String {
        format!("in {HORIZON_S:.0} s, if: {}", self.assumptions.join("; "))
    }
}
