//! The circuit breaker of one quota scope: stops calls to a provider that fails.
//!
//! A throttle never counts as a failure here: the provider is healthy, we are early. Faults (5xx,
//! timeouts, broken connections) count; an exhausted account opens the breaker at once.
//!
//! ```text
//!            faults                      wait over, one probe
//! closed ------------> open ----------------------------------> half-open
//!    ^                  ^                                          |   |
//!    |                  +------------ probe failed or lost --------+   |
//!    +------------------------------- probe succeeded -----------------+
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use crate::signal::Mono;

/// Outcomes that are looked back on.
const WINDOW: Duration = Duration::from_secs(10);
/// Fewer outcomes than this in the window never open the breaker.
const OUTCOMES_MIN: usize = 10;
/// Outcomes that are remembered at most.
const OUTCOMES_MAX: usize = 1_000;
/// Share of faults in the window that opens the breaker.
const FAULT_SHARE: f64 = 0.5;
/// First time spent open; doubles with every failed probe.
const OPEN_FIRST: Duration = Duration::from_secs(2);
/// Longest time spent open.
const OPEN_MAX: Duration = Duration::from_secs(30);
/// Time spent open for an exhausted account, which only a person can refill.
const OPEN_QUOTA: Duration = Duration::from_secs(30);
/// A probe without an answer for so long is lost; its slot comes back.
const PROBE_LOST: Duration = Duration::from_secs(30);

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

/// The breaker of one scope.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    since: Mono,
    open_for: Duration,
    outcomes: VecDeque<(Mono, bool)>,
    transitions: [u64; 3],
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub const fn new(now: Mono) -> Self {
        Self {
            state: State::Closed,
            since: now,
            open_for: OPEN_FIRST,
            outcomes: VecDeque::new(),
            transitions: [0; 3],
        }
    }

    /// The state now. An open breaker whose wait is over is half-open.
    #[must_use]
    pub fn state(&self, now: Mono) -> State {
        match self.state {
            State::Open { until } if now >= until => State::HalfOpen { probe: None },
            state => state,
        }
    }

    /// Since when it is in this state.
    #[must_use]
    pub const fn since(&self) -> Mono {
        self.since
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
            State::HalfOpen { probe: Some(started) } if now >= started + PROBE_LOST => Ok(()),
            State::HalfOpen { probe: Some(started) } => Err(started + PROBE_LOST),
        }
    }

    /// A call starts. In half-open it is the probe.
    pub fn started(&mut self, now: Mono) {
        if let State::HalfOpen { .. } = self.state(now) {
            self.enter(State::HalfOpen { probe: Some(now) }, now);
        }
    }

    /// A call was answered, with a result or with a throttle.
    ///
    /// `## HalfOpen => Closed`, `## Closed => Closed`
    pub fn succeeded(&mut self, now: Mono) {
        if let State::HalfOpen { .. } = self.state {
            self.outcomes.clear();
            self.open_for = OPEN_FIRST;
            self.enter(State::Closed, now);
        }
        self.note(true, now);
    }

    /// A call failed by the provider's fault.
    ///
    /// `## HalfOpen => Open`, `## Closed => (Closed | Open)`
    pub fn failed(&mut self, now: Mono) {
        self.note(false, now);
        match self.state {
            State::HalfOpen { .. } => {
                self.open_for = (self.open_for * 2).min(OPEN_MAX);
                self.enter(State::Open { until: now + self.open_for }, now);
            }
            State::Closed => {
                let faults = self.outcomes.iter().filter(|(_, good)| !good).count();
                let all = self.outcomes.len();
                #[expect(clippy::cast_precision_loss, reason = "bounded by OUTCOMES_MAX")]
                let share = faults as f64 / all.max(1) as f64;
                if all >= OUTCOMES_MIN && share >= FAULT_SHARE {
                    self.enter(State::Open { until: now + self.open_for }, now);
                }
            }
            State::Open { .. } => {}
        }
    }

    /// The account is exhausted: nothing will succeed until a person acts.
    ///
    /// `## Closed => Open`, `## HalfOpen => Open`
    pub fn exhausted(&mut self, now: Mono) {
        self.enter(State::Open { until: now + OPEN_QUOTA }, now);
    }

    /// A call ended without an answer of the provider's (the caller went away): its probe slot
    /// comes back.
    pub fn abandoned(&mut self, now: Mono) {
        if let State::HalfOpen { probe: Some(_) } = self.state {
            self.state = State::HalfOpen { probe: None };
            self.since = now;
        }
    }

    fn note(&mut self, good: bool, now: Mono) {
        while self.outcomes.front().is_some_and(|(at, _)| *at + WINDOW < now)
            || self.outcomes.len() >= OUTCOMES_MAX
        {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back((now, good));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::new(Mono::START);
        for _ in 0..OUTCOMES_MIN {
            breaker.failed(at(1.0));
        }
        breaker
    }

    #[test]
    fn opens_at_the_least_number_of_outcomes_and_not_below() {
        let mut breaker = Breaker::new(Mono::START);
        for _ in 1..OUTCOMES_MIN {
            breaker.failed(at(1.0));
            assert_eq!(breaker.state(at(1.0)), State::Closed);
        }
        breaker.failed(at(1.0));
        assert_eq!(breaker.state(at(1.0)), State::Open { until: at(3.0) });
    }

    #[test]
    fn successes_keep_it_closed() {
        let mut breaker = Breaker::new(Mono::START);
        for _ in 0..100 {
            breaker.succeeded(at(1.0));
            breaker.failed(at(1.0));
        }
        // Exactly half are faults only after the last failure of each pair.
        assert_eq!(breaker.state(at(1.0)).word(), "open");
        let mut breaker = Breaker::new(Mono::START);
        for _ in 0..100 {
            breaker.succeeded(at(1.0));
            breaker.succeeded(at(1.0));
            breaker.failed(at(1.0));
        }
        assert_eq!(breaker.state(at(1.0)), State::Closed);
    }

    #[test]
    fn one_probe_passes_exactly_when_the_wait_is_over() {
        let mut breaker = opened();
        assert_eq!(breaker.permits(at(2.999)), Err(at(3.0)));
        assert_eq!(breaker.permits(at(3.0)), Ok(()));
        breaker.started(at(3.0));
        assert!(breaker.permits(at(3.1)).is_err(), "the probe is under way");
        breaker.succeeded(at(3.5));
        assert_eq!(breaker.permits(at(3.5)), Ok(()));
    }

    #[test]
    fn a_failed_probe_doubles_the_wait() {
        let mut breaker = opened();
        breaker.started(at(3.0));
        breaker.failed(at(3.5));
        assert_eq!(breaker.permits(at(7.4)), Err(at(7.5)));
    }

    #[test]
    fn a_lost_probe_gives_its_slot_back() {
        let mut breaker = opened();
        breaker.started(at(3.0));
        assert!(breaker.permits(at(32.9)).is_err());
        assert_eq!(breaker.permits(at(33.0)), Ok(()));
        breaker.abandoned(at(10.0));
        assert_eq!(breaker.permits(at(10.0)), Ok(()));
    }
}
