//! What a person has to know after a flip: the cause that was confirmed before it, what people get now
//! against then, and whether the signals have had time to follow.
//!
//! The diagnosis judges the signals of now. A flip that lets the traffic past an ill gate takes the
//! evidence away and not the illness; here is remembered what it was.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::diagnosis::{Standing, Verdict};
use crate::signal::Mono;
use crate::tui::app::flip::Flip;
use crate::tui::app::{Model, State};
use crate::tui::session::Update;

/// Rates are means of ten seconds and counters are read once a second: before that, the signals are of
/// both before and after a flip.
pub const SETTLING: Duration = Duration::from_secs(15);
/// A share of people served below this part of what it was is a loss,
const LOSS: f64 = 0.8;
/// and one until it is above this part again.
const NO_LOSS: f64 = 0.92;

/// The incident of a scope, as it was last confirmed.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// Its cause.
    pub cause: String,
    /// The sentence about it.
    pub say: String,
    /// Since when.
    pub wall: DateTime<Utc>,
}

/// What people get.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// Share of originals that are served.
    pub share: Option<f64>,
    /// p95 of what is admitted, in seconds.
    pub p95_s: Option<f64>,
}

impl Served {
    /// Whether clearly fewer are served than `before`.
    #[must_use]
    pub fn is_less_than(&self, before: &Self) -> bool {
        self.share.zip(before.share).is_some_and(|(now, then)| now < then * LOSS)
    }

    /// Whether about as many are served as `before`; not where that is unknown.
    #[must_use]
    pub fn is_as_good_as(&self, before: &Self) -> bool {
        self.share.zip(before.share).is_some_and(|(now, then)| now >= then * NO_LOSS)
    }
}

/// Whether the runbook of one cause names the other as what it brings about.
fn feeds(update: &Update, cause: &str, other: &str) -> bool {
    let library = update.guide.as_ref().map(|guide| &guide.library);
    let cause = library.and_then(|library| library.cause(cause));
    cause.is_some_and(|cause| cause.feeds.iter().any(|fed| fed == other))
}

impl Model {
    /// What people get now, in the scope on the screen.
    #[must_use]
    pub fn served(&self) -> Served {
        Served { share: self.number("served_share"), p95_s: self.number("latency_p95_s") }
    }

    /// Takes the newest verdicts in.
    pub(super) fn remember(&mut self) {
        let Some(update) = self.latest.clone() else { return };
        for verdict in &update.verdicts {
            match State::of(verdict) {
                State::Incident
                    if verdict.standing == Standing::Confirmed && !self.is_settling() =>
                {
                    let known = self.incidents.get(&verdict.scope);
                    // What the cause that is held down brings about is no other incident.
                    let is_of_it = self.has_overrides()
                        && known.is_some_and(|known| feeds(&update, &known.cause, &verdict.cause));
                    if known.is_none_or(|known| known.cause != verdict.cause) && !is_of_it {
                        let remembered = Remembered {
                            cause: verdict.cause.clone(),
                            say: verdict.say.clone(),
                            wall: self.wall,
                        };
                        self.incidents.insert(verdict.scope.clone(), remembered);
                    }
                }
                State::Ok if !self.has_overrides() => {
                    self.incidents.remove(&verdict.scope);
                }
                _ => {}
            }
        }
    }

    /// The incident that flips hold down while the verdict speaks of another state.
    #[must_use]
    pub fn held(&self, verdict: &Verdict) -> Option<&Remembered> {
        let remembered = self.incidents.get(&verdict.scope)?;
        let is_over = matches!(State::of(verdict), State::Ok | State::Contained);
        (is_over && self.has_overrides() && remembered.cause != verdict.cause).then_some(remembered)
    }

    /// The flip whose effect the signals do not show yet, and the cause before it, while the verdict is
    /// about the turmoil in between.
    #[must_use]
    pub fn settling(&self, verdict: &Verdict) -> Option<(&Flip, &Remembered)> {
        let flip = self.settling_flip()?;
        let remembered = self.incidents.get(&verdict.scope)?;
        let is_turmoil = match State::of(verdict) {
            State::Unknown => true,
            State::Incident => {
                verdict.cause != remembered.cause && verdict.standing < Standing::Confirmed
            }
            State::Ok | State::Contained => false,
        };
        is_turmoil.then_some((flip, remembered))
    }

    /// The newest flip, while the signals are of both before and after it.
    #[must_use]
    pub fn settling_flip(&self) -> Option<&Flip> {
        let newest = self.flips.last()?;
        (self.now.saturating_since(newest.since) < SETTLING).then_some(newest)
    }

    fn is_settling(&self) -> bool {
        self.settling_flip().is_some()
    }

    /// Whether any flag is not at its base, as last read.
    #[must_use]
    pub fn has_overrides(&self) -> bool {
        let table = self.flags.table.as_ref();
        table.is_some_and(|table| table.flags.iter().any(|flag| flag.stored() != &flag.base))
    }

    /// Time until the signals can be believed again after a flip.
    #[must_use]
    pub fn settles_in(&self, flip: &Flip) -> Duration {
        let at: Mono = flip.since + SETTLING;
        at.saturating_since(self.now)
    }
}
