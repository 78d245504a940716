//! The timeline that writes itself: what changed between two looks, in order, bounded.
//!
//! Keeps changes only: a verdict that stays, or a source that stays down, is said once. Reads no
//! clock; both times come with each event.

use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};

use crate::diagnosis::{Standing, Verdict};
use crate::ingest::Observation;
use crate::signal::Mono;

use super::event::Event;

/// Most events that are kept. The oldest go first, and how many went is said.
pub const EVENTS_MAX: usize = 2_000;

/// An event and when it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamped {
    /// On the run's clock, for distances.
    pub mono: Mono,
    /// On the calendar, for people.
    pub at: DateTime<Utc>,
    /// What.
    pub event: Event,
}

/// The events of one run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    events: VecDeque<Stamped>,
    dropped: u64,
    sources_up: BTreeMap<String, bool>,
    verdicts: BTreeMap<String, (String, Standing)>,
}

impl Timeline {
    /// Adds one event.
    pub fn push(&mut self, event: Event, at: DateTime<Utc>, now: Mono) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(Stamped { mono: now, at, event });
    }

    /// Notes the sources that went down or came back. A source's first answer is no event; a
    /// source that was never up is.
    pub fn on_observation(&mut self, observation: &Observation) {
        for source in &observation.sources {
            let up = source.error.is_none();
            let before = self.sources_up.insert(source.name.clone(), up);
            if before.unwrap_or(true) != up {
                let event =
                    Event::Source { name: source.name.clone(), up, error: source.error.clone() };
                self.push(event, observation.wall, observation.at);
            }
        }
    }

    /// Notes a verdict whose cause or standing is another than before.
    pub fn on_verdict(&mut self, verdict: &Verdict, at: DateTime<Utc>, now: Mono) {
        let latest = (verdict.cause.clone(), verdict.standing);
        let before = self.verdicts.insert(verdict.scope.clone(), latest.clone());
        if before.as_ref() != Some(&latest) {
            let event = Event::Verdict {
                scope: verdict.scope.clone(),
                cause: latest.0,
                standing: latest.1.word().to_owned(),
            };
            self.push(event, at, now);
        }
    }

    /// The events, oldest first; `rev()` for the newest.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Stamped> {
        self.events.iter()
    }

    /// Events that were dropped to make room.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::SourceStatus;

    fn verdict(cause: &str, standing: Standing) -> Verdict {
        Verdict {
            cause: cause.to_owned(),
            standing,
            scope: "s".to_owned(),
            say: String::new(),
            path: Vec::new(),
            evidence: Vec::new(),
            also: Vec::new(),
            missing: Vec::new(),
            used: 0,
            of: 0,
            runbook: None,
            plan: None,
            notes: Vec::new(),
        }
    }

    fn observation(error: Option<&str>) -> Observation {
        let source = SourceStatus {
            name: "gateway".to_owned(),
            url: String::new(),
            via: None,
            last_good: None,
            stale_after_s: 3.0,
            error: error.map(str::to_owned),
            degraded: Vec::new(),
            warnings: Vec::new(),
            instances: (1, 1),
            took_s: 0.0,
            samples: 0,
            polls: 1,
            failures: 0,
        };
        Observation {
            at: Mono::START,
            wall: DateTime::UNIX_EPOCH,
            scopes: Vec::new(),
            sources: vec![source],
        }
    }

    fn lines(timeline: &Timeline) -> Vec<String> {
        timeline.iter().map(|stamped| stamped.event.line()).collect()
    }

    #[test]
    fn only_changes_are_said() {
        let mut timeline = Timeline::default();
        for (cause, standing) in [
            ("healthy", Standing::Confirmed),
            ("healthy", Standing::Confirmed),
            ("nested-retries", Standing::Likely),
            ("nested-retries", Standing::Confirmed),
            ("nested-retries", Standing::Confirmed),
        ] {
            timeline.on_verdict(&verdict(cause, standing), DateTime::UNIX_EPOCH, Mono::START);
        }
        assert_eq!(
            lines(&timeline),
            [
                "verdict healthy confirmed in s",
                "verdict nested-retries likely in s",
                "verdict nested-retries confirmed in s",
            ]
        );
    }

    #[test]
    fn a_source_is_said_when_it_goes_and_when_it_returns() {
        let mut timeline = Timeline::default();
        for error in [None, Some("timed out"), Some("refused"), None, None] {
            timeline.on_observation(&observation(error));
        }
        assert_eq!(
            lines(&timeline),
            ["source gateway is down: timed out", "source gateway answers again"]
        );
    }

    #[test]
    fn the_timeline_is_bounded_and_says_what_it_dropped() {
        let mut timeline = Timeline::default();
        for bytes in 0..=EVENTS_MAX as u64 {
            timeline.push(Event::Torn { bytes }, DateTime::UNIX_EPOCH, Mono::START);
        }
        assert_eq!((timeline.iter().count(), timeline.dropped()), (EVENTS_MAX, 1));
        assert_eq!(
            timeline.iter().next().map(|first| &first.event),
            Some(&Event::Torn { bytes: 1 })
        );
    }
}
