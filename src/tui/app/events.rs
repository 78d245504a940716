//! The timeline: who moved first. Made from what changes between two updates.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::diagnosis::{Change, Level, Standing, What};
use crate::ingest::{Observation, SourceStatus};
use crate::signal::Snapshot;
use crate::tui::app::alerts::AlertLog;
use crate::tui::app::sources::short_error;
use crate::tui::session::Update;
use crate::tui::theme::Role;
use crate::tui::view::format::count;

/// Events kept; the oldest go first.
pub const EVENTS_MAX: usize = 500;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub wall: DateTime<Utc>,
    /// How it weighs.
    pub role: Role,
    /// What, in a few words.
    pub text: String,
}

/// A threshold whose crossing is an event.
struct Crossing {
    signal: &'static str,
    /// True beyond this ...
    enter: f64,
    /// ... and false again only on the other side of this.
    leave: f64,
    begins: &'static str,
    ends: &'static str,
}

#[rustfmt::skip]
const CROSSINGS: &[Crossing] = &[
    Crossing { signal: "client_multiplication", enter: 1.5, leave: 1.2, begins: "clients repeat", ends: "clients stopped repeating" },
    Crossing { signal: "provider_429_rps", enter: 0.5, leave: 0.1, begins: "provider 429s", ends: "provider 429s over" },
    Crossing { signal: "provider_503_rps", enter: 0.5, leave: 0.1, begins: "provider 503s", ends: "provider 503s over" },
    Crossing { signal: "tpm_headroom", enter: 0.05, leave: 0.15, begins: "TPM empty", ends: "TPM free" },
    Crossing { signal: "rpm_headroom", enter: 0.05, leave: 0.15, begins: "RPM empty", ends: "RPM free" },
    Crossing { signal: "amplification", enter: 1.5, leave: 1.1, begins: "amplification up", ends: "amplification down" },
    Crossing { signal: "shed_rps", enter: 0.5, leave: 0.1, begins: "gate sheds", ends: "gate sheds no more" },
    Crossing { signal: "latency_p95_s", enter: 8.0, leave: 4.0, begins: "p95 above 8s", ends: "p95 below 4s" },
];

/// A limit on open calls below this part of its last high is an event.
const PERMITS_CUT: f64 = 0.6;
/// The growth of offered requests within ten seconds that is an event.
const SURGE: f64 = 1.8;

/// What happened, newest last.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    events: VecDeque<Event>,
    beyond: BTreeMap<(String, &'static str), bool>,
    verdicts: BTreeMap<String, (String, Standing)>,
    breakers: BTreeMap<String, String>,
    sources: BTreeMap<String, bool>,
    instances: BTreeMap<String, (usize, usize)>,
    changes: Vec<Arc<Change>>,
    alerts: AlertLog,
    surged: BTreeMap<String, bool>,
    /// The last high of the limit on open calls.
    permits: BTreeMap<String, f64>,
    /// The next look is the first one, and not the beginning.
    is_amid: bool,
}

impl Timeline {
    /// One that begins amid what happens: what stands at its first look is known, and no event.
    #[must_use]
    pub fn from_amid() -> Self {
        Self { is_amid: true, ..Self::default() }
    }

    /// Adds one event at its place in time: some are told late.
    pub fn push(&mut self, wall: DateTime<Utc>, role: Role, text: impl Into<String>) {
        let later = self.events.iter().rev().take_while(|event| event.wall > wall).count();
        self.events.insert(self.events.len() - later, Event { wall, role, text: text.into() });
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// The events, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().rev()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing has happened yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Looks for what has changed. `offered_before` gives the requests that were offered
    /// to a scope ten seconds ago, a second.
    pub fn follow(&mut self, update: &Update, offered_before: impl Fn(&str) -> Option<f64>) {
        let known = std::mem::take(&mut self.is_amid).then(|| self.events.clone());
        self.compare(update, offered_before);
        if let Some(known) = known {
            self.events = known;
            // These alone say when they were.
            self.changes.clear();
            self.follow_changes(&update.changes, &update.observation);
        }
    }

    fn compare(&mut self, update: &Update, offered_before: impl Fn(&str) -> Option<f64>) {
        let wall = update.observation.wall;
        for source in &update.observation.sources {
            let good = source.error.is_none();
            let was = self.sources.insert(source.name.clone(), good);
            match (was, short_error(source)) {
                (Some(true) | None, Some(error)) => {
                    let never = source.last_good.is_none();
                    let how = if never { "never answered" } else { "down" };
                    self.push(wall, Role::Crit, format!("{} {how}: {error}", source.name));
                }
                (Some(false), None) if source.last_good.is_some() => {
                    self.push(wall, Role::Ok, format!("{} answers", source.name));
                }
                _ => {}
            }
            self.follow_instances(source, wall);
        }
        self.follow_changes(&update.changes, &update.observation);
        for (role, text) in
            update.alerts.iter().flat_map(|alerts| self.alerts.follow(alerts)).collect::<Vec<_>>()
        {
            self.push(wall, role, text);
        }
        for snapshot in &update.observation.scopes {
            self.follow_crossings(snapshot, wall);
            self.follow_surge(snapshot, offered_before(&snapshot.scope), wall);
            self.follow_breaker(snapshot, wall);
            self.follow_permits(snapshot, wall);
        }
        for verdict in &update.verdicts {
            let now = (verdict.cause.clone(), verdict.standing);
            let was = self.verdicts.insert(verdict.scope.clone(), now.clone());
            if was.as_ref() != Some(&now) {
                let role = if verdict.cause == "healthy" { Role::Ok } else { Role::Warn };
                self.push(wall, role, format!("{} {}", verdict.cause, verdict.standing));
            }
        }
    }

    /// How many instances a source has and how many of them answer. The first count is no event.
    fn follow_instances(&mut self, source: &SourceStatus, wall: DateTime<Utc>) {
        let (up, all) = source.instances;
        // A source that is down altogether is an event of its own.
        if all == 0 || source.error.is_some() && up == 0 {
            return;
        }
        let was = self.instances.insert(source.name.clone(), (up, all));
        if was.is_some_and(|was| was != (up, all)) {
            let role = if up < all { Role::Warn } else { Role::Ok };
            self.push(wall, role, format!("{}: {up} of {all} instances", source.name));
        }
    }

    /// What changed beside the load. The list is cumulative: what stood in it before was said.
    fn follow_changes(&mut self, changes: &[Arc<Change>], now: &Observation) {
        for change in changes {
            if self.changes.iter().any(|known| Arc::ptr_eq(known, change)) {
                continue;
            }
            let side = |level: &Level| match level {
                Level::Number(number) => count(*number),
                Level::Numbers(numbers) => {
                    let named = |(name, number): &(&str, f64)| format!("{name} {}", count(*number));
                    numbers.iter().map(named).collect::<Vec<_>>().join(", ")
                }
                Level::Words(words) => words.clone(),
            };
            let to = side(&change.to);
            let text = match (&change.from, change.what) {
                (_, What::Deploy) => format!("deploy {to}"),
                (Some(from), what) => format!("{} {} -> {to}", what.name(), side(from)),
                (None, what) => format!("{} {to}", what.name()),
            };
            self.push(now.wall - now.at.saturating_since(change.at), Role::Accent, text);
        }
        self.changes = changes.to_vec();
    }

    fn follow_crossings(&mut self, snapshot: &Snapshot, wall: DateTime<Utc>) {
        for crossing in CROSSINGS {
            let Some(value) = snapshot.number(crossing.signal) else { continue };
            let falls = crossing.enter < crossing.leave;
            let past = |limit: f64| if falls { value < limit } else { value > limit };
            let key = (snapshot.scope.clone(), crossing.signal);
            let was = self.beyond.get(&key).copied().unwrap_or(false);
            let is = if was { past(crossing.leave) } else { past(crossing.enter) };
            self.beyond.insert(key, is);
            match (was, is) {
                (false, true) => self.push(wall, Role::Warn, crossing.begins),
                (true, false) => self.push(wall, Role::Ok, crossing.ends),
                _ => {}
            }
        }
    }

    fn follow_surge(&mut self, snapshot: &Snapshot, before: Option<f64>, wall: DateTime<Utc>) {
        let Some(growth) = snapshot
            .number("offered_rps")
            .zip(before)
            .filter(|(now, before)| *before > 1.0 && *now > 1.0)
            .map(|(now, before)| now / before)
        else {
            return;
        };
        let was = self.surged.insert(snapshot.scope.clone(), growth > SURGE).unwrap_or(false);
        if growth > SURGE && !was {
            self.push(wall, Role::Warn, format!("offered x{growth:.1}"));
        }
    }

    /// A provider that refuses for too many calls lowers their number, and who waits wants to know why.
    fn follow_permits(&mut self, snapshot: &Snapshot, wall: DateTime<Utc>) {
        let Some(limit) = snapshot.number("inflight_limit") else { return };
        let high = self.permits.entry(snapshot.scope.clone()).or_insert(limit);
        let was = *high;
        *high = if limit < was * PERMITS_CUT { limit } else { was.max(limit) };
        if limit < was * PERMITS_CUT {
            let text = format!("calls at once cut {} to {}", count(was), count(limit));
            self.push(wall, Role::Warn, text);
        }
    }

    fn follow_breaker(&mut self, snapshot: &Snapshot, wall: DateTime<Utc>) {
        let Some(state) = snapshot.value("breaker.state").and_then(|value| value.as_text()) else {
            return;
        };
        let was = self.breakers.insert(snapshot.scope.clone(), state.to_owned());
        if was.is_some_and(|was| was != state) {
            let role = if state == "closed" { Role::Ok } else { Role::Crit };
            self.push(wall, role, format!("breaker {state}"));
        }
    }
}
