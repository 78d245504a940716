//! What happened, gathered look by look: when the incident began, the numbers then and at their worst,
//! and everything that belongs on a timeline. Reads nothing itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::diagnosis::Verdict;
use crate::incident::Diagnoses;
use crate::ingest::Observation;
use crate::signal::{Mono, Snapshot};
use crate::tui::Update;
use crate::tui::app::State;
use crate::tui::app::events::{EVENTS_MAX, Timeline};

/// A scope that is healthy for so long has its incident behind it.
const CALM: Duration = Duration::from_secs(30);
/// Looks that are kept, to find the last one before anything moved.
const RECENT: Duration = Duration::from_mins(5);
/// What moved longer before the onset than this has nothing to do with it.
const LEAD: Duration = Duration::from_mins(2);
/// What the timeline compares a surge with.
const SURGE: Duration = Duration::from_secs(10);

/// The end of a number that is the bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The more, the worse.
    High,
    /// The less, the worse.
    Low,
}

/// The numbers of a report: signal, name, and which end is the bad one.
#[rustfmt::skip]
pub const NUMBERS: &[(&str, &str, Bad)] = &[
    ("amplification", "amplification (attempts per original)", Bad::High),
    ("client_multiplication", "client multiplication (offered per original)", Bad::High),
    ("originals_rps", "originals", Bad::High),
    ("offered_rps", "offered", Bad::High),
    ("admitted_rps", "admitted", Bad::High),
    ("shed_rps", "shed by the gate", Bad::High),
    ("provider_429_rps", "429 of the provider", Bad::High),
    ("served_share", "served share (of originals)", Bad::Low),
    ("tpm_headroom", "TPM headroom", Bad::Low),
    ("rpm_headroom", "RPM headroom", Bad::Low),
    ("queue_oldest_age_s", "oldest in the queue", Bad::High),
    ("latency_p95_s", "latency p95 of the admitted", Bad::High),
    ("latency_offered_p95_s", "latency p95 of everything offered", Bad::High),
];

/// One moment of one scope.
#[derive(Clone, Debug)]
pub struct Look {
    /// On the run's clock.
    pub at: Mono,
    /// On the calendar.
    pub wall: DateTime<Utc>,
    /// The signals.
    pub snapshot: Arc<Snapshot>,
}

/// One incident of one scope.
#[derive(Clone, Debug)]
pub struct Incident {
    /// The last look before anything moved, where one was seen.
    pub before: Option<Look>,
    /// When a cause was first named.
    pub onset: Look,
    /// Since when the scope is healthy again.
    pub over: Option<DateTime<Utc>>,
    /// The verdict at its height: the first confirmed one, else the first.
    pub height: (DateTime<Utc>, Arc<Verdict>),
    /// The worst value of each number since the onset, and when.
    pub worst: BTreeMap<&'static str, (f64, DateTime<Utc>)>,
}

/// One scope's part of the story.
#[derive(Clone, Debug, Default)]
pub struct Part {
    recent: VecDeque<Look>,
    /// The newest verdict.
    pub verdict: Option<Arc<Verdict>>,
    /// The newest incident.
    pub incident: Option<Incident>,
    /// Incidents before it.
    pub earlier: usize,
    /// Since when it is healthy, while it is.
    healthy: Option<(Mono, DateTime<Utc>)>,
}

impl Part {
    /// The newest look.
    #[must_use]
    pub fn now(&self) -> Option<&Look> {
        self.recent.back()
    }

    fn see(&mut self, look: Look, verdict: &Arc<Verdict>) {
        let (at, wall) = (look.at, look.wall);
        match State::of(verdict) {
            State::Ok => {
                let since = self.healthy.get_or_insert((at, wall));
                if let Some(incident) = self.incident.as_mut().filter(|one| one.over.is_none())
                    && at.saturating_since(since.0) >= CALM
                {
                    incident.over = Some(since.1);
                }
            }
            State::Unknown => self.healthy = None,
            State::Incident | State::Contained => {
                self.healthy = None;
                self.suffer(&look, verdict);
            }
        }
        if let Some(incident) = self.incident.as_mut().filter(|one| one.over.is_none()) {
            for (signal, _, bad) in NUMBERS {
                let Some(value) = look.snapshot.number(signal) else { continue };
                let worst = incident.worst.entry(signal).or_insert((value, wall));
                let is_worse = match bad {
                    Bad::High => value > worst.0,
                    Bad::Low => value < worst.0,
                };
                if is_worse {
                    *worst = (value, wall);
                }
            }
        }
        self.verdict = Some(Arc::clone(verdict));
        self.recent.push_back(look);
        while self.recent.front().is_some_and(|first| first.at + RECENT < at) {
            self.recent.pop_front();
        }
    }

    /// An incident begins with this look, or goes on.
    fn suffer(&mut self, look: &Look, verdict: &Arc<Verdict>) {
        let named = || (look.wall, Arc::clone(verdict));
        // Who moved first is known some seconds after the cause is named.
        let moved_before = |onset: Mono| {
            let first = verdict.onsets.iter().map(|one| one.at).find(|at| *at + LEAD >= onset);
            first.filter(|at| *at <= onset).unwrap_or(onset)
        };
        let last_before = |moved: Mono| {
            let before = self.recent.iter().rev().find(|one| one.at < moved);
            before.or(self.recent.front()).cloned()
        };
        match &mut self.incident {
            Some(incident) if incident.over.is_none() => {
                let moved = moved_before(incident.onset.at);
                if incident.before.as_ref().is_some_and(|look| look.at >= moved) {
                    incident.before = last_before(moved);
                }
                if verdict.standing > incident.height.1.standing {
                    incident.height = named();
                }
            }
            known => {
                self.earlier += usize::from(known.is_some());
                *known = Some(Incident {
                    before: last_before(moved_before(look.at)),
                    onset: look.clone(),
                    over: None,
                    height: named(),
                    worst: BTreeMap::new(),
                });
            }
        }
    }

    fn offered_before(&self, at: Mono) -> Option<f64> {
        let then = self.recent.iter().rev().find(|look| look.at + SURGE <= at)?;
        then.snapshot.number("offered_rps")
    }
}

/// All of it.
#[derive(Debug, Default)]
pub struct Story {
    /// What belongs on a timeline.
    pub timeline: Timeline,
    /// By quota scope.
    pub parts: BTreeMap<String, Part>,
    /// The first and the last look.
    pub span: Option<(DateTime<Utc>, DateTime<Utc>)>,
    /// The newest look.
    pub newest: Option<Arc<Observation>>,
}

impl Story {
    /// Takes the next look in.
    pub fn see(&mut self, update: &Update) {
        let observation = &update.observation;
        let parts = &self.parts;
        self.timeline.follow(update, |scope| parts.get(scope)?.offered_before(observation.at));
        for (snapshot, verdict) in observation.scopes.iter().zip(&update.verdicts) {
            let look =
                Look { at: observation.at, wall: observation.wall, snapshot: Arc::clone(snapshot) };
            self.parts.entry(snapshot.scope.clone()).or_default().see(look, verdict);
        }
        let first = self.span.map_or(observation.wall, |(first, _)| first);
        self.span = Some((first, observation.wall));
        self.newest = Some(Arc::clone(observation));
    }

    /// Takes the time before the first poll in, as a server that watched before has kept it.
    pub fn see_past(
        &mut self,
        scopes: &BTreeMap<String, Vec<(Mono, Arc<Snapshot>)>>,
        diagnoses: &mut Diagnoses,
        wall_of: impl Fn(Mono) -> DateTime<Utc>,
    ) {
        let mut moments: BTreeMap<Mono, Vec<Arc<Snapshot>>> = BTreeMap::new();
        for (at, snapshot) in scopes.values().flatten() {
            moments.entry(*at).or_default().push(Arc::clone(snapshot));
        }
        for (at, scopes) in moments {
            let observation = Observation { at, wall: wall_of(at), scopes, sources: Vec::new() };
            let (verdicts, changes) = diagnoses.step(&observation);
            let update = Update::new(Arc::new(observation), verdicts);
            self.see(&Update { changes, ..update });
        }
    }

    /// Whether the timeline may have lost its oldest events.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.timeline.len() >= EVENTS_MAX
    }

    /// When the first incident that is told of began; `None` where there is none.
    #[must_use]
    pub fn began(&self) -> Option<DateTime<Utc>> {
        let onset = |part: &Part| part.incident.as_ref().map(|one| one.onset.wall);
        self.parts.values().filter_map(onset).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::{Standing, diagnose_once};
    use crate::runbook;
    use crate::signal::Value;

    /// Looks, one a second: the cause that is named then, and amplification.
    fn told(looks: &[(u64, &str, f64)]) -> Part {
        let library = runbook::embedded();
        let open = diagnose_once(&library, &Snapshot::new("s", 10.0));
        let mut part = Part::default();
        for (second, cause, amplification) in looks {
            let mut snapshot = Snapshot::new("s", 10.0);
            snapshot.set("amplification", Value::Number(*amplification), &Arc::from("gateway"));
            let since_start = Duration::from_secs(*second);
            let look = Look {
                at: Mono::from_start(since_start),
                wall: DateTime::UNIX_EPOCH + since_start,
                snapshot: Arc::new(snapshot),
            };
            let cause = (*cause).to_owned();
            let verdict = Verdict { cause, standing: Standing::Likely, ..open.clone() };
            part.see(look, &Arc::new(verdict));
        }
        part
    }

    fn second(at: Option<DateTime<Utc>>) -> Option<i64> {
        at.map(|at| at.timestamp())
    }

    #[test]
    fn an_incident_begins_where_a_cause_is_named_and_ends_where_calm_lasts() {
        let calm = ("healthy", 1.0);
        let part = told(&[
            (0, calm.0, calm.1),
            (1, "nested-retries", 2.0),
            (2, "nested-retries", 9.0),
            (3, calm.0, calm.1),
            (20, "nested-retries", 4.0),
            (30, calm.0, calm.1),
        ]);
        let incident = part.incident.expect("one");
        assert_eq!((incident.onset.wall.timestamp(), second(incident.over)), (1, None));
        assert_eq!(second(incident.before.map(|look| look.wall)), Some(0));
        assert_eq!(incident.worst["amplification"].0.to_string(), "9");
        let part = told(&[(1, "nested-retries", 2.0), (3, calm.0, 1.0), (33, calm.0, 1.0)]);
        assert_eq!(second(part.incident.and_then(|one| one.over)), Some(3));
        let part = told(&[
            (1, "nested-retries", 2.0),
            (3, calm.0, 1.0),
            (33, calm.0, 1.0),
            (50, "hard-quota", 1.0),
        ]);
        assert_eq!((part.earlier, second(part.incident.map(|one| one.onset.wall))), (1, Some(50)));
    }

    #[test]
    fn what_cannot_be_told_neither_begins_nor_ends_an_incident() {
        let part = told(&[(1, "insufficient-evidence", 1.0)]);
        assert!(part.incident.is_none());
        let part = told(&[
            (1, "nested-retries", 2.0),
            (2, "healthy", 1.0),
            (40, "insufficient-evidence", 1.0),
            (50, "healthy", 1.0),
        ]);
        assert!(part.incident.is_some_and(|one| one.over.is_none()));
    }
}
