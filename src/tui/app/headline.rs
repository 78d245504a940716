//! What the first line says: the verdict, unless a source or a number forbids to believe it.
//!
//! The diagnosis judges what it was given. This is the belt to its braces: no green line while nothing
//! is served, while the breaker is open, or while a source that was there is down.

use crate::diagnosis::Verdict;
use crate::ingest::SourceStatus;
use crate::tui::app::flip::Flip;
use crate::tui::app::settled::Remembered;
use crate::tui::app::sources::is_down;
use crate::tui::app::{Model, State, UNOBSERVED_AFTER_S};

/// The first line, without its wording.
#[derive(Clone, Copy, Debug)]
pub enum Headline<'a> {
    /// Nothing has come yet.
    Connecting,
    /// There are numbers and no verdict, and why.
    Undiagnosed(&'static str),
    /// The newest numbers are too old.
    NoData {
        /// Their age.
        age_s: f64,
        /// What was said of them.
        was: &'a Verdict,
    },
    /// A source is down without which nothing can be said.
    Down {
        /// The source.
        source: &'a SourceStatus,
        /// What was said last.
        was: Option<&'a Verdict>,
    },
    /// The verdict says OK and a number denies it.
    Denied {
        /// The number.
        why: &'static str,
        /// The verdict.
        was: &'a Verdict,
    },
    /// A flip was just made, and the signals are of both before and after it.
    Settling {
        /// The flip.
        flip: &'a Flip,
        /// The incident before it.
        was: &'a Remembered,
    },
    /// Flips hold an incident down.
    Held {
        /// The incident.
        was: &'a Remembered,
        /// What the signals of now say.
        verdict: &'a Verdict,
    },
    /// The verdict stands.
    Verdict(&'a Verdict),
}

impl Headline<'_> {
    /// The state that it means.
    #[must_use]
    pub fn state(&self) -> State {
        match self {
            Self::Connecting | Self::Undiagnosed(_) | Self::NoData { .. } | Self::Down { .. } => {
                State::Unknown
            }
            Self::Denied { .. } | Self::Settling { .. } => State::Incident,
            Self::Held { .. } => State::Contained,
            Self::Verdict(verdict) => State::of(verdict),
        }
    }
}

impl Model {
    /// What the first line says.
    #[must_use]
    pub fn headline(&self) -> Headline<'_> {
        let Some(age_s) = self.observation_age_s() else { return Headline::Connecting };
        let verdict = self.verdict().map(AsRef::as_ref);
        if let Some(source) = self.gateway().filter(|source| is_down(source)) {
            return Headline::Down { source, was: verdict };
        }
        let Some(verdict) = verdict else {
            let is_empty = self.scopes().is_empty();
            let why = match (is_empty, self.is_rewound()) {
                (_, true) => "no diagnosis by then",
                (true, false) => "no scope has data",
                (false, false) => "no diagnosis yet",
            };
            return Headline::Undiagnosed(why);
        };
        if age_s > UNOBSERVED_AFTER_S {
            return Headline::NoData { age_s, was: verdict };
        }
        // What flips do is of now.
        if self.is_rewound() {
            return Headline::Verdict(verdict);
        }
        if let Some((flip, was)) = self.settling(verdict) {
            return Headline::Settling { flip, was };
        }
        if State::of(verdict) != State::Ok {
            return self.standing(verdict);
        }
        if self.word("breaker.state") == Some("open") {
            return Headline::Denied { why: "the breaker is open", was: verdict };
        }
        let is_asked = ["offered_rps", "originals_rps"]
            .iter()
            .any(|signal| self.number(signal).is_some_and(|rate| rate > 0.0));
        if is_asked && self.number("served_share").is_some_and(|share| share <= 0.0) {
            return Headline::Denied { why: "nothing is served", was: verdict };
        }
        let sources = self.shown().map_or(&[][..], |update| &update.observation.sources);
        match sources.iter().find(|source| is_down(source) && source.last_good.is_some()) {
            Some(source) => Headline::Down { source, was: Some(verdict) },
            None => self.standing(verdict),
        }
    }

    fn standing<'a>(&'a self, verdict: &'a Verdict) -> Headline<'a> {
        self.held(verdict).map_or(Headline::Verdict(verdict), |was| Headline::Held { was, verdict })
    }
}
