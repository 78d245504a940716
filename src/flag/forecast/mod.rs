//! What a plan would do: the simulator run forward from the snapshot of now, with the flips and without.
//!
//! Knows the snapshot, the flag table and the configured limits, and nothing else; what is not known is
//! assumed both ways, and the answer is a range. Where the demand or the quota is unknown there is none.
//! Pure: the same snapshot and flips give the same numbers.

mod assume;
mod demand;
mod play;
mod told;
pub(super) mod wire;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::admission::Settings;
use crate::signal::Snapshot;

use super::types::{Change, FlagTable};

pub use assume::NoForecast;
pub use demand::Demand;
pub use told::{Came, Hindsight, Record, Where};

use assume::Assumed;
use play::{Numbers, play};

/// How far ahead it looks.
pub const HORIZON_S: f64 = 60.0;
/// Seeds per way of assuming.
const SEEDS: u64 = 2;
/// A share by which the present may be missed, beside chance.
const UNLIKE: f64 = 0.25;

/// A number that is foretold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Attempts per original.
    Amplification,
    /// Requests let through, per second.
    Admitted,
    /// Requests refused by the gate, per second.
    Shed,
    /// Share of originals that are served.
    Served,
    /// Age of the oldest in the queue, in seconds.
    QueueAge,
    /// Share of the token meter that is left.
    TokenHeadroom,
    /// Share of the request meter that is left.
    RequestHeadroom,
}

impl Measure {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Served,
        Self::Amplification,
        Self::Admitted,
        Self::Shed,
        Self::QueueAge,
        Self::TokenHeadroom,
        Self::RequestHeadroom,
    ];

    /// The signal that tells what became of it.
    #[must_use]
    pub const fn signal(self) -> &'static str {
        match self {
            Self::Amplification => "amplification",
            Self::Admitted => "admitted_rps",
            Self::Shed => "shed_rps",
            Self::Served => "served_share",
            Self::QueueAge => "queue_oldest_age_s",
            Self::TokenHeadroom => "tpm_headroom",
            Self::RequestHeadroom => "rpm_headroom",
        }
    }

    /// Whether it is a share, 0 to 1.
    #[must_use]
    pub const fn is_share(self) -> bool {
        matches!(self, Self::Served | Self::TokenHeadroom | Self::RequestHeadroom)
    }

    /// Below this, two values of it are the same to anybody.
    const fn grain(self) -> f64 {
        match self {
            Self::Admitted | Self::Shed => 1.0,
            Self::QueueAge => 2.0,
            Self::Amplification | Self::Served | Self::TokenHeadroom | Self::RequestHeadroom => {
                0.05
            }
        }
    }
}

/// A number with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// Hardly less.
    pub low: f64,
    /// What is most likely.
    pub middle: f64,
    /// Hardly more.
    pub high: f64,
}

impl Range {
    /// Whether what happened lies within.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// One line of a forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// What.
    pub measure: Measure,
    /// Now.
    pub now: Option<f64>,
    /// After [`HORIZON_S`] if nothing is flipped.
    pub without: Range,
    /// After [`HORIZON_S`] with the flips.
    pub with: Range,
}

/// What a plan would do to one quota scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// The scope.
    pub scope: String,
    /// The numbers.
    pub rows: Vec<Row>,
    /// What was taken for granted, in words.
    pub assumptions: Vec<String>,
}

impl Forecast {
    /// The line of a number.
    #[must_use]
    pub fn row(&self, measure: Measure) -> Option<&Row> {
        self.rows.iter().find(|row| row.measure == measure)
    }

    /// Whether clearly fewer are served with the flips than without.
    #[must_use]
    pub fn serves_fewer(&self) -> bool {
        self.row(Measure::Served)
            .is_some_and(|row| row.with.middle < row.without.middle - Measure::Served.grain())
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.signal())
    }
}

/// Runs the scope of `snapshot` forward, with `changes` and without. Where no `demand` of the last
/// minutes is known, it stays as it is.
///
/// # Errors
/// [`NoForecast`] says what is not known.
pub fn forecast(
    snapshot: &Snapshot,
    demand: Option<Demand>,
    table: &FlagTable,
    changes: &[Change],
) -> Result<Forecast, NoForecast> {
    let before = settings(table);
    let mut after = before.clone();
    for change in changes {
        let base = table.get(&change.key).map(|flag| &flag.base);
        if let Some(value) = change.to.as_ref().or(base) {
            // A flag that this weir does not know changes nothing here.
            let _ = after.set(&change.key, value.clone());
        }
    }
    if let Some(change) = changes.iter().find(|change| assume::is_about_who(&change.key)) {
        let why = format!("who asks for how much is not known, and {} is about that", change.key);
        return Err(NoForecast::Unlike(why));
    }
    let ways = Assumed::ways(snapshot, demand, &before)?;
    check(snapshot, &ways, &before)?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for way in &ways {
        for seed in 1..=if way.is_likely { SEEDS } else { 1 } {
            without.push((way.is_likely, play(way, &before, &before, seed, HORIZON_S)));
            with.push((way.is_likely, play(way, &before, &after, seed, HORIZON_S)));
        }
    }
    let asked = snapshot.number("originals_rps").unwrap_or(1.0);
    let rows = Measure::ALL.map(|measure| Row {
        measure,
        now: snapshot.number(measure.signal()),
        without: range(measure, &without, asked),
        with: range(measure, &with, asked),
    });
    Ok(Forecast {
        scope: snapshot.scope.clone(),
        rows: rows.into_iter().filter(|row| row.with.middle.is_finite()).collect(),
        assumptions: ways.first().map_or_else(Vec::new, |way| way.words.clone()),
    })
}

/// The settings that the instances use, as far as they agree; else the stored ones.
fn settings(table: &FlagTable) -> Settings {
    let mut settings = Settings::default();
    for flag in &table.flags {
        let mut used = flag.effective.values();
        let agreed = used.next().filter(|first| used.all(|other| other == *first));
        let _ = settings.set(&flag.key, agreed.unwrap_or_else(|| flag.stored()).clone());
    }
    settings
}

/// Whether a world like the snapshot's does what the snapshot says: one that does not explain the present
/// says nothing of what comes.
fn check(snapshot: &Snapshot, ways: &[Assumed], before: &Settings) -> Result<(), NoForecast> {
    let asked = snapshot.number("originals_rps").unwrap_or(1.0);
    let modelled: Vec<Numbers> = ways.iter().map(|way| play(way, before, before, 1, 0.0)).collect();
    for measure in [Measure::Admitted, Measure::Shed, Measure::Amplification, Measure::Served] {
        let Some(seen) = snapshot.number(measure.signal()) else { continue };
        let is_near = |numbers: &Numbers| {
            let value = numbers.of(measure);
            let most = seen.abs().max(value.abs());
            (seen - value).abs() <= measure.grain() * 2.0 + most * (UNLIKE + noise(asked))
        };
        if !modelled.iter().any(is_near) {
            let value = modelled.first().map_or(f64::NAN, |numbers| numbers.of(measure));
            let why = format!(
                "the model does not explain the present ({measure} {seen:.2} seen, {value:.2} computed)"
            );
            return Err(NoForecast::Unlike(why));
        }
    }
    Ok(())
}

/// How far a count of one window of ten seconds is off, as a share: two standard deviations, of the window
/// that the demand was read from and of the one that is foretold.
fn noise(asked: f64) -> f64 {
    2.0 * (2.0 / (asked * play::WINDOW_S).max(1.0)).sqrt()
}

/// The bounds of all runs, wider by what one window of ten seconds may be off; the middle of the likely.
fn range(measure: Measure, runs: &[(bool, Numbers)], asked: f64) -> Range {
    let values = || runs.iter().map(|(_, numbers)| numbers.of(measure));
    let likely: Vec<f64> =
        runs.iter().filter(|(is_likely, _)| *is_likely).map(|(_, one)| one.of(measure)).collect();
    #[expect(clippy::cast_precision_loss, reason = "a handful of runs")]
    let middle = likely.iter().sum::<f64>() / likely.len() as f64;
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(f64::NEG_INFINITY, f64::max);
    let slack = |value: f64| measure.grain() + (0.15 + noise(asked)) * value.abs();
    let low = (low - slack(low)).max(0.0);
    let high = high + slack(high);
    Range { low, middle, high: if measure.is_share() { high.min(1.0) } else { high } }
}
