//! How soon a run's cause was told, and what was confirmed in it that is not so. Plays nothing.

use std::time::Duration;

use serde::Serialize;

use super::spec::Expect;
use crate::diagnosis::{HEALTHY, INSUFFICIENT, Standing};
use crate::drill::report::{Stood, Verdicts};

/// Within this long after the onset the cause stands on top, at least likely,
pub const NAMED_WITHIN: Duration = Duration::from_secs(15);
/// and within this long it is confirmed.
pub const CONFIRMED_WITHIN: Duration = Duration::from_secs(45);

/// How soon the cause was told in the incident that nobody ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// Seconds from the onset until the cause stood on top, at least likely.
    pub named_after_s: Option<f64>,
    /// Seconds from the onset until it was confirmed.
    pub confirmed_after_s: Option<f64>,
    /// What was confirmed that is not so.
    pub wrong: Vec<Wrongly>,
    /// In time, and nothing wrong was confirmed.
    pub passed: bool,
}

/// A cause that was confirmed and is not the incident's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wrongly {
    /// The cause.
    pub cause: String,
    /// Seconds after the onset; negative before it.
    pub after_s: f64,
    /// For so many seconds.
    pub for_s: f64,
}

/// Judges what was said of the incident.
pub(super) fn told(expect: &Expect, onset: Duration, verdicts: &Verdicts) -> Told {
    let since = |at: Duration| at.as_secs_f64() - onset.as_secs_f64();
    let first = |least: Standing| {
        let stood = verdicts.stood().iter().filter(|one| one.to >= onset);
        let right = |one: &&Stood| one.cause == expect.cause && one.standing >= least;
        stood.into_iter().find(right).map(|one| since(one.from.max(onset)))
    };
    let (named, confirmed) = (first(Standing::Likely), first(Standing::Confirmed));
    let wrong = wrongly(expect, onset, verdicts, false);
    // That all is well, or cannot be told, need not become so.
    let waits = ![HEALTHY, INSUFFICIENT].contains(&expect.cause.as_str());
    let within = |after: Option<f64>, bound: Duration| {
        !waits || after.is_some_and(|after_s| after_s <= bound.as_secs_f64())
    };
    let passed =
        within(named, NAMED_WITHIN) && within(confirmed, CONFIRMED_WITHIN) && wrong.is_empty();
    Told { named_after_s: named, confirmed_after_s: confirmed, wrong, passed }
}

/// What was confirmed in a run, one that a cure ends or not, that the file does not allow for.
pub(super) fn wrongly(
    expect: &Expect,
    onset: Duration,
    verdicts: &Verdicts,
    is_cured: bool,
) -> Vec<Wrongly> {
    let allowed = |one: &Stood| {
        let fits = |cause: &String| *cause == one.cause;
        // What was so is told until the incident is to be named.
        let is_before = one.from < onset + NAMED_WITHIN
            && (one.cause == HEALTHY || expect.before.iter().any(fits));
        let is_after = one.to >= onset && (fits(&expect.cause) || expect.beside.iter().any(fits));
        let is_cure = is_cured && (one.cause == HEALTHY || fits(&expect.after_cure));
        is_before || is_after || is_cure
    };
    let confirmed = verdicts.stood().iter().filter(|one| one.standing == Standing::Confirmed);
    let wrong = confirmed.filter(|one| one.cause != INSUFFICIENT && !allowed(one));
    let wrongly = |one: &Stood| Wrongly {
        cause: one.cause.clone(),
        after_s: one.from.as_secs_f64() - onset.as_secs_f64(),
        for_s: one.to.saturating_sub(one.from).as_secs_f64(),
    };
    wrong.map(wrongly).collect()
}
