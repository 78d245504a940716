//! Forecasts, and how earlier ones did, as JSON: what `weir flag plan --json` prints, and a line of the
//! file that keeps them. Knows shapes and units, and neither files nor clocks.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::signal::definition;

use super::{Came, Forecast, HORIZON_S, Hindsight, Measure, NoForecast, Range, Record, Row, Where};

/// Forecasts of the past that stand beside a new one.
pub const EARLIER_MAX: usize = 10;

/// One number that is foretold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasureRow {
    /// The signal that will tell what became of it.
    pub measure: &'static str,
    /// Its unit, as in the catalogue of signals.
    pub unit: &'static str,
    /// Now; null when it is not known.
    pub now: Option<f64>,
    /// After the horizon if nothing is flipped.
    pub without: Range,
    /// After the horizon with the flips.
    pub with: Range,
}

/// What a plan would do to one scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScopeRow {
    /// The scope.
    pub scope: String,
    /// Why nothing is foretold, null when something is.
    pub refused: Option<String>,
    /// The numbers; none when it is refused.
    pub measures: Vec<MeasureRow>,
    /// What was taken for granted, in words.
    pub assumptions: Vec<String>,
    /// How earlier forecasts of this scope did, newest first.
    pub earlier: Vec<EarlierRow>,
}

/// What a plan would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForecastBody {
    /// How far ahead it looks.
    pub horizon_s: f64,
    /// By quota scope.
    pub scopes: Vec<ScopeRow>,
    /// What is wrong with the file of earlier forecasts, null when nothing is.
    pub earlier_trouble: Option<String>,
}

/// How an earlier forecast did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlierRow {
    /// When that was looked at.
    pub at: DateTime<Utc>,
    /// The flip's plan.
    pub plan: String,
    /// Numbers within their range.
    pub held: usize,
    /// Numbers that could be compared.
    pub of: usize,
    /// By which share of what came the worst was missed.
    pub off: Option<f64>,
    /// The numbers.
    pub measures: Vec<CameRow>,
}

/// What came of one number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CameRow {
    /// The signal.
    pub measure: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What was foretold.
    pub foretold: Range,
    /// What came.
    pub came: f64,
    /// Whether it lay within its range.
    pub held: bool,
    /// By which share of what came it was missed.
    pub off: f64,
}

fn unit(measure: Measure) -> &'static str {
    definition(measure.signal()).map_or("", |def| def.unit.word())
}

impl From<&Row> for MeasureRow {
    fn from(row: &Row) -> Self {
        Self {
            measure: row.measure.signal(),
            unit: unit(row.measure),
            now: row.now,
            without: row.without,
            with: row.with,
        }
    }
}

impl From<&Hindsight> for EarlierRow {
    fn from(one: &Hindsight) -> Self {
        let came = |row: &Came| CameRow {
            measure: row.measure.signal(),
            unit: unit(row.measure),
            foretold: row.foretold,
            came: row.came,
            held: row.held(),
            off: row.off(),
        };
        Self {
            at: one.at,
            plan: one.plan.clone(),
            held: one.record.held(),
            of: one.record.rows.len(),
            off: one.record.worst().map(Came::off),
            measures: one.record.rows.iter().map(came).collect(),
        }
    }
}

impl ScopeRow {
    /// What is foretold at a place, with what is known of earlier forecasts there, oldest first.
    #[must_use]
    pub fn new(
        place: &Where<'_>,
        forecast: &Result<Forecast, NoForecast>,
        earlier: &[Hindsight],
    ) -> Self {
        let here = earlier.iter().rev().filter(|one| one.is_of(place));
        let scope = place.scope.to_owned();
        let earlier = here.take(EARLIER_MAX).map(EarlierRow::from).collect();
        match forecast {
            Ok(forecast) => Self {
                scope,
                refused: None,
                measures: forecast.rows.iter().map(MeasureRow::from).collect(),
                assumptions: forecast.assumptions.clone(),
                earlier,
            },
            Err(why) => Self {
                scope,
                refused: Some(why.to_string()),
                measures: Vec::new(),
                assumptions: Vec::new(),
                earlier,
            },
        }
    }
}

impl ForecastBody {
    /// Of these scopes, and what is wrong with the file of earlier ones.
    #[must_use]
    pub const fn new(scopes: Vec<ScopeRow>, earlier_trouble: Option<String>) -> Self {
        Self { horizon_s: HORIZON_S, scopes, earlier_trouble }
    }
}

/// A [`Hindsight`] as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HindsightRow {
    /// The form of this line.
    v: u32,
    at: DateTime<Utc>,
    request_id: String,
    plan: String,
    scope: String,
    store: Option<String>,
    environment: Option<String>,
    measures: Vec<KeptRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct KeptRow {
    measure: String,
    #[serde(flatten)]
    foretold: Range,
    came: f64,
}

/// The form that is written.
const FORM: u32 = 1;

impl From<&Hindsight> for HindsightRow {
    fn from(one: &Hindsight) -> Self {
        let kept = |row: &Came| KeptRow {
            measure: row.measure.signal().to_owned(),
            foretold: row.foretold,
            came: row.came,
        };
        // JSON has no other numbers, and a line that cannot be read back is none.
        let is_plain = |row: &&Came| {
            let Range { low, middle, high } = row.foretold;
            [low, middle, high, row.came].into_iter().all(f64::is_finite)
        };
        Self {
            v: FORM,
            at: one.at,
            request_id: one.request_id.clone(),
            plan: one.plan.clone(),
            scope: one.scope.clone(),
            store: one.store.clone(),
            environment: one.environment.clone(),
            measures: one.record.rows.iter().filter(is_plain).map(kept).collect(),
        }
    }
}

impl HindsightRow {
    /// What it says, as far as this weir knows the numbers; `None` when it knows none of them.
    #[must_use]
    pub fn known(self) -> Option<Hindsight> {
        let came = |row: KeptRow| {
            let known = Measure::ALL.into_iter().find(|one| one.signal() == row.measure);
            known.map(|measure| Came { measure, foretold: row.foretold, came: row.came })
        };
        let rows: Vec<Came> = self.measures.into_iter().filter_map(came).collect();
        (!rows.is_empty()).then_some(Hindsight {
            at: self.at,
            request_id: self.request_id,
            plan: self.plan,
            scope: self.scope,
            store: self.store,
            environment: self.environment,
            record: Record { rows },
        })
    }
}
