//! The circuit breaker of one quota scope: stops calls to a provider that fails.
//!
//! A throttle never counts as a failure here: the provider is healthy, we are early. Faults (5xx,
//! timeouts, broken connections) count; an exhausted account opens the breaker at once; what we
//! refuse ourselves, bad requests and callers that left say nothing.
//!
//! ```text
//!            faults                      wait over, one probe
//! closed ------------> open ----------------------------------> half-open
//!    ^                  ^                                          |   |
//!    |                  +------------ probe failed ----------------+   |
//!    +------------------------------- probe succeeded -----------------+
//! ```
//!
//! A probe without an answer is lost and its place is free again. An outcome of a call that started
//! before the breaker last opened is stale: sixty calls that hang when the provider fails must not
//! fail the probe, or open the breaker again, when they time out half a minute later.
//!
//! The state is plain numbers without a list of outcomes, so that several instances can hold it in
//! one place.

use std::time::Duration;

use super::shared::{Outcome, SharedBreaker};
use crate::signal::Mono;

mod reopening;
#[cfg(test)]
mod tests;

pub use reopening::{Reopening, Spread};

/// Length of one slice; the current and the one before it are looked at.
const SLICE: Duration = Duration::from_secs(10);
/// First time spent open; doubles with every failed probe.
const OPEN_FIRST: Duration = Duration::from_secs(2);
/// Longest time spent open, before it is spread.
const OPEN_MAX: Duration = Duration::from_secs(30);
/// Time spent open for an exhausted account, which only a person can refill.
const OPEN_DEAD: Duration = Duration::from_secs(30);
/// A row of faults that is likelier than this, by the share of faults around it, is chance.
const CHANCE_MAX: f64 = 1e-6;
/// Below this share faults are not usual, and what is pending is no excuse: it may hang.
const RARE: f64 = 0.05;
/// Above it the share of faults opens the breaker anyway.
const USUAL_MAX: f64 = 0.5;
/// Weight of the newest outcome in what is usual.
const GAIN: f64 = 0.01;
/// By so many times the root of the outcomes must faults be above their share: one chance in twenty
/// (1.64 standard deviations of one half). Five of ten failing says little; fifty-nine of a hundred do.
const MARGIN: f64 = 0.82;
/// A probe without an answer for so long is lost.
const PROBE_LOST: Duration = Duration::from_secs(30);

/// What opens a breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Faults one after the other.
    pub faults_in_row: u32,
    /// Fewer outcomes than this never open it by their share of faults.
    pub outcomes_min: u32,
    /// Share of faults among the outcomes of two slices of 10 s, beyond what chance explains.
    pub fault_share: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { faults_in_row: 5, outcomes_min: 10, fault_share: 0.5 }
    }
}

/// The state, with what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Calls pass.
    Closed,
    /// Calls are refused until this instant.
    Open {
        /// When one probe may pass.
        until: Mono,
    },
    /// One probe is on its way, or may start.
    HalfOpen {
        /// When the probe started, if one has.
        probe: Option<Mono>,
    },
}

impl State {
    /// The state's word on screen, in labels and in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half_open",
        }
    }
}

/// Why a breaker opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenReason {
    /// So many faults one after the other.
    FaultsInRow,
    /// Too large a share of faults.
    FaultShare,
    /// The probe failed.
    ProbeFailed,
    /// The account is exhausted.
    AccountDead,
}

impl OpenReason {
    /// The reason's word on screen, in labels and in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::FaultsInRow => "faults_in_row",
            Self::FaultShare => "fault_share",
            Self::ProbeFailed => "probe_failed",
            Self::AccountDead => "account_dead",
        }
    }
}

/// Outcomes of the current slice and of the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slices {
    number: u64,
    good: u32,
    bad: u32,
    good_before: u32,
    bad_before: u32,
    faults_in_row: u32,
    /// Share of faults among the last hundred outcomes or so; a row counts once it has ended.
    usual: f64,
}

impl Slices {
    fn count(&mut self, good: bool, now: Mono) {
        let number = now.since_start().as_secs() / SLICE.as_secs();
        if number > self.number {
            let next = number == self.number + 1;
            let before = if next { (self.good, self.bad) } else { (0, 0) };
            (self.good_before, self.bad_before) = before;
            (self.number, self.good, self.bad) = (number, 0, 0);
        }
        self.good = self.good.saturating_add(good.into());
        self.bad = self.bad.saturating_add((!good).into());
        if good {
            let row = i32::try_from(self.faults_in_row).unwrap_or(i32::MAX);
            let with_row = 1.0 - (1.0 - self.usual) * (1.0 - GAIN).powi(row);
            (self.usual, self.faults_in_row) = (with_row * (1.0 - GAIN), 0);
        } else {
            self.faults_in_row = self.faults_in_row.saturating_add(1);
        }
    }

    /// Forgets what the breaker has opened for; what is usual stays.
    fn cleared(self) -> Self {
        Self { usual: self.usual, ..Self::default() }
    }

    /// The shortest row of faults that chance does not explain: where two of five calls fail anyway,
    /// five in a row come by every few seconds at a hundred calls, and say nothing new.
    fn row_beyond_chance(&self) -> f64 {
        CHANCE_MAX.ln() / self.usual.clamp(f64::MIN_POSITIVE, USUAL_MAX).ln()
    }

    /// `pending` calls have no outcome yet. A refusal takes milliseconds and an answer a second: after a
    /// burst the refusals are heard first, and what is pending may be all good.
    fn opens(&self, thresholds: &Thresholds, pending: u32) -> Option<OpenReason> {
        let faults = f64::from(self.bad) + f64::from(self.bad_before);
        let all = faults + f64::from(self.good) + f64::from(self.good_before);
        let row = f64::from(self.faults_in_row);
        let pending = f64::from(pending);
        let usual = if self.usual < RARE { 0.0 } else { self.row_beyond_chance() + pending };
        if row >= usual.max(thresholds.faults_in_row.into()) {
            Some(OpenReason::FaultsInRow)
        } else if all >= f64::from(thresholds.outcomes_min)
            && faults >= thresholds.fault_share * (all + pending) + MARGIN * all.sqrt()
        {
            Some(OpenReason::FaultShare)
        } else {
            None
        }
    }
}

/// The breaker of one scope.
#[derive(Clone, Debug)]
pub struct Breaker {
    thresholds: Thresholds,
    spread: Spread,
    state: State,
    since: Mono,
    slices: Slices,
    open_for: Duration,
    /// When it last opened; outcomes of earlier calls are stale.
    opened_at: Mono,
    reason: Option<OpenReason>,
    last_success: Option<Mono>,
    transitions: [u64; 3],
}

impl Breaker {
    /// A closed breaker with the default thresholds, not staggered.
    #[must_use]
    pub fn new(now: Mono) -> Self {
        Self::configured(Thresholds::default(), Spread::default(), now)
    }

    /// A closed breaker with thresholds and a place among the scopes that reopen.
    #[must_use]
    pub fn configured(thresholds: Thresholds, spread: Spread, now: Mono) -> Self {
        Self {
            thresholds,
            spread,
            state: State::Closed,
            since: now,
            slices: Slices::default(),
            open_for: OPEN_FIRST,
            opened_at: Mono::START,
            reason: None,
            last_success: None,
            transitions: [0; 3],
        }
    }

    /// Nothing has happened that it would have to stop, or all of it is over.
    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Another number of faults in a row that opens it.
    pub const fn set_faults_in_row(&mut self, faults: u32) {
        self.thresholds.faults_in_row = faults;
    }

    /// The state now. An open breaker whose wait is over is half-open, and so is one whose probe is
    /// lost.
    #[must_use]
    pub fn state(&self, now: Mono) -> State {
        match self.state {
            State::Open { until } if now >= until => State::HalfOpen { probe: None },
            State::HalfOpen { probe: Some(started) } if now >= started + PROBE_LOST => {
                State::HalfOpen { probe: None }
            }
            state => state,
        }
    }

    /// Since when a probe is due, if one is due now.
    #[must_use]
    pub fn probe_due(&self, now: Mono) -> Option<Mono> {
        match self.state {
            State::Open { until } => (now >= until).then_some(until),
            State::HalfOpen { probe: None } => Some(self.since),
            State::HalfOpen { probe: Some(started) } => {
                let lost = started + PROBE_LOST;
                (now >= lost).then_some(lost)
            }
            State::Closed => None,
        }
    }

    /// How long it stays open when it opens next, before that is spread.
    #[must_use]
    pub const fn open_for(&self) -> Duration {
        self.open_for
    }

    /// Whether it is open now and was when a call `started`: the call went past it.
    pub(super) fn is_parked_since(&self, started: Mono, now: Mono) -> bool {
        matches!(self.state(now), State::Open { .. }) && started >= self.since
    }

    /// Since when it is in this state.
    #[must_use]
    pub const fn since(&self) -> Mono {
        self.since
    }

    /// Why it last opened; `None` when it never did.
    #[must_use]
    pub const fn reason(&self) -> Option<OpenReason> {
        self.reason
    }

    /// The last success that was seen while it was not closed: a sign that it is open for too long,
    /// or for the wrong scope.
    #[must_use]
    pub const fn last_success(&self) -> Option<Mono> {
        self.last_success
    }

    /// Transitions into closed, open and half-open.
    #[must_use]
    pub const fn transitions(&self) -> [u64; 3] {
        self.transitions
    }

    /// Whether a call may start now; the instant to ask again at otherwise.
    ///
    /// # Errors
    /// The earliest time at which a call may pass.
    pub fn permits(&self, now: Mono) -> Result<(), Mono> {
        match self.state(now) {
            State::Closed | State::HalfOpen { probe: None } => Ok(()),
            State::Open { until } => Err(until),
            State::HalfOpen { probe: Some(started) } => Err(started + PROBE_LOST),
        }
    }

    /// A call starts. In half-open it is the probe.
    pub fn started(&mut self, now: Mono) {
        if let State::HalfOpen { .. } = self.state(now) {
            self.enter(State::HalfOpen { probe: Some(now) }, now);
        }
    }

    /// A call that `started` then has ended so, while `pending` others have not.
    pub fn ended(&mut self, outcome: Outcome, started: Mono, pending: u32, now: Mono) {
        let stale = started < self.opened_at;
        match outcome {
            Outcome::Exhausted => self.exhausted(now),
            Outcome::Good | Outcome::Throttled { .. } if !stale => self.succeeded(now),
            Outcome::Good => self.seen_success(now),
            Outcome::Fault { .. } if !stale => self.failed(pending, now),
            // A call that lost its probe's place must not free that of the next.
            Outcome::Neither if self.is_probe(started) => self.abandoned(now),
            Outcome::Throttled { .. } | Outcome::Fault { .. } | Outcome::Neither => {}
        }
    }

    /// A call that is not stale was answered, with a result or with a throttle.
    ///
    /// `## HalfOpen => Closed`, `## Closed => Closed`
    pub fn succeeded(&mut self, now: Mono) {
        self.seen_success(now);
        if let State::HalfOpen { .. } = self.state(now) {
            self.slices = self.slices.cleared();
            self.open_for = OPEN_FIRST;
            self.enter(State::Closed, now);
        }
        if self.state == State::Closed {
            self.slices.count(true, now);
        }
    }

    /// A call that is not stale failed by the provider's fault, while `pending` others have no outcome.
    ///
    /// `## HalfOpen => Open`, `## Closed => (Closed | Open)`
    pub fn failed(&mut self, pending: u32, now: Mono) {
        match self.state(now) {
            State::HalfOpen { .. } => {
                self.open(OpenReason::ProbeFailed, (self.open_for * 2).min(OPEN_MAX), now);
            }
            State::Closed => {
                self.slices.count(false, now);
                if let Some(reason) = self.slices.opens(&self.thresholds, pending) {
                    self.open(reason, self.open_for, now);
                }
            }
            State::Open { .. } => {}
        }
    }

    /// The account is exhausted: nothing will succeed until a person acts.
    ///
    /// `## (Closed | Open | HalfOpen) => Open`
    pub fn exhausted(&mut self, now: Mono) {
        self.open(OpenReason::AccountDead, OPEN_DEAD, now);
    }

    /// A probe ended without an answer of the provider's (the caller went away): its place is free.
    fn abandoned(&mut self, now: Mono) {
        if let State::HalfOpen { probe: Some(_) } = self.state {
            self.state = State::HalfOpen { probe: None };
            self.since = now;
        }
    }

    /// The state as the keeper has it, where several instances share it.
    pub fn reflect(&mut self, shared: SharedBreaker, now: Mono) {
        let state = match shared {
            SharedBreaker::Closed => State::Closed,
            SharedBreaker::Open { left } => State::Open { until: now + left },
            SharedBreaker::HalfOpen { probing } => {
                State::HalfOpen { probe: probing.then_some(now) }
            }
        };
        self.enter(state, now);
    }

    fn is_probe(&self, started: Mono) -> bool {
        matches!(self.state, State::HalfOpen { probe: Some(probe) } if started >= probe)
    }

    fn seen_success(&mut self, now: Mono) {
        if self.state != State::Closed {
            self.last_success = Some(now);
        }
    }

    fn open(&mut self, reason: OpenReason, open_for: Duration, now: Mono) {
        self.open_for = open_for;
        self.reason = Some(reason);
        if !matches!(self.state(now), State::Open { .. }) {
            (self.opened_at, self.last_success) = (now, None);
        }
        self.enter(State::Open { until: now + self.spread.of(open_for) }, now);
    }

    fn enter(&mut self, state: State, now: Mono) {
        let place = |state: State| match state {
            State::Closed => 0,
            State::Open { .. } => 1,
            State::HalfOpen { .. } => 2,
        };
        if place(self.state) != place(state) {
            self.transitions[place(state)] += 1;
            self.since = now;
        }
        self.state = state;
    }
}
