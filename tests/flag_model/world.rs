//! The store's side: the service's own flag table behind a network that loses, delays and doubles.
//!
//! Every change that is stored is held against rules that are written here once more, by other means
//! than the service's: what was in force before, whose intent it was, whether its interlock held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use weir::admission::{Direction, FlagValue, Settings, flag};
use weir::flag::wire::{
    ApplyBody, ChangeRow, ErrorBody, ErrorCode, EventChangeRow, EventRow, OverrideBy, OverrideRow,
    WireOnExpire,
};
use weir::flag::{EventKind, FlagEvent, FlagTable, Outcome, Revision};
use weir::gateway::{Known, Overrides};
use weir::signal::{Snapshot, Value};

use crate::plant::Plant;

/// The stored values of one revision.
type Values = BTreeMap<String, FlagValue>;

/// A request under way.
#[derive(Clone, Debug)]
pub struct Request {
    pub body: ApplyBody,
    pub seen: Revision,
    pub glass: bool,
}

pub struct World {
    /// The bug that is planted into what is tested, if any.
    pub plant: Option<Plant>,
    table: Overrides,
    base: Settings,
    pub now: DateTime<Utc>,
    /// Whether the signals are those of a calm service; if not, they are those of a storm.
    pub calm: bool,
    /// Requests that nobody waits for any more and that may still arrive.
    pub ghosts: Vec<Request>,
    /// What was in force before each event, by its number.
    before: BTreeMap<u64, Values>,
    /// When a step of the admission was stored last.
    stepped: Option<DateTime<Utc>>,
    /// Requests whose intent was written down, with the overrides that their author saw.
    pub intents: BTreeMap<String, BTreeMap<String, Option<FlagValue>>>,
    /// Requests that were made past weir.
    pub outside: BTreeSet<String>,
    /// Requests that weir has sent.
    sent: BTreeSet<String>,
    /// Requests that were stored.
    pub stored: BTreeSet<String>,
    /// Requests that somebody was told were not stored and never will be.
    pub denied: BTreeSet<String>,
    pub seen: Seen,
}

/// How often what matters has happened.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub stored: u64,
    pub risky: u64,
    pub undone: u64,
    pub overridden: u64,
    pub refused: u64,
    pub conflicts: u64,
    pub ghosts_landed: u64,
    pub repeats: u64,
    pub reverts: u64,
    pub lost: u64,
    pub crashes: u64,
    pub reconciled: u64,
    /// Without an answer, handed back as unsettled, and told later.
    pub told_late: u64,
    /// Landed, and told to have been overwritten.
    pub told_overwritten: u64,
}

/// Signals of a calm service, or of a storm.
pub fn scopes(calm: bool) -> Vec<Arc<Snapshot>> {
    let mut snapshot = Snapshot::new("openai/acct-1/embed", 10.0);
    let storm = if calm { 1.0 } else { 5.0 };
    for (name, number) in [
        ("amplification", storm),
        ("client_multiplication", storm),
        ("calm_s", if calm { 600.0 } else { 0.0 }),
        ("tpm_headroom", 0.5),
        ("rpm_headroom", 0.5),
        ("tpm_demand_ratio", 0.5),
        ("rpm_demand_ratio", 0.5),
        ("queue_oldest_age_s", 0.0),
    ] {
        snapshot.set(name, Value::Number(number), &Arc::from("gateway"));
    }
    vec![Arc::new(snapshot)]
}

impl World {
    pub fn new(base: Settings, plant: Option<Plant>) -> Self {
        Self {
            plant,
            table: Overrides::new("gw-1", base.clone()),
            base,
            now: DateTime::UNIX_EPOCH,
            calm: true,
            ghosts: Vec::new(),
            before: BTreeMap::new(),
            stepped: None,
            intents: BTreeMap::new(),
            outside: BTreeSet::new(),
            sent: BTreeSet::new(),
            stored: BTreeSet::new(),
            denied: BTreeSet::new(),
            seen: Seen::default(),
        }
    }

    pub fn read(&self) -> FlagTable {
        self.table.table(&self.table.settings()).into()
    }

    pub fn revision(&self) -> Revision {
        self.table.revision()
    }

    pub fn events(&self) -> Vec<FlagEvent> {
        self.table.events(0).into_iter().map(FlagEvent::from).collect()
    }

    /// The history as weir is told it.
    pub fn told(&self) -> Vec<FlagEvent> {
        let mut events = self.events();
        if self.plant == Some(Plant::HistoryIsCut) {
            events.pop();
        }
        events
    }

    /// weir sends a request. The network may double it; weir may not.
    pub fn sent(&mut self, request: &Request) -> TestCaseResult {
        let id = &request.body.request_id;
        prop_assert!(self.sent.insert(id.clone()), "{} was sent twice", id);
        Ok(())
    }

    fn values(&self) -> Values {
        self.read().flags.iter().map(|flag| (flag.key.clone(), flag.stored().clone())).collect()
    }

    fn overrides(&self) -> BTreeMap<String, Option<FlagValue>> {
        let flags = self.read().flags;
        flags.into_iter().map(|flag| (flag.key, flag.overridden)).collect()
    }

    /// The service is stopped and started again with what it kept.
    pub fn restart(&mut self) {
        let kept = self.table.to_json().expect("has a JSON form");
        self.table = Overrides::new("gw-1", self.base.clone());
        assert!(self.table.restore(&kept).expect("its own").is_empty());
    }

    /// Time passes; timers run out.
    pub fn wait(&mut self, seconds: i64) -> TestCaseResult {
        self.now += TimeDelta::seconds(seconds);
        let (before, revision) = (self.values(), self.revision());
        let last = self.last_seq();
        self.table.expire(self.now);
        if self.plant == Some(Plant::TimerLeavesSafe) {
            self.drop_reminded(last);
        }
        let after = self.values();
        for (key, from) in &before {
            let to = &after[key];
            let way = self.direction(key, from, to);
            prop_assert_ne!(way, Direction::Riskier, "a timer moved {} to {}", key, to);
            self.seen.reverts += u64::from(from != to);
        }
        prop_assert!(before == after || revision < self.revision(), "a change has its revision");
        for event in self.table.events(last) {
            prop_assert!(event.kind != EventKind::Change, "a timer's event says so");
            self.note_step(&event);
        }
        Ok(())
    }

    /// The bug: what should only remind drops its override.
    fn drop_reminded(&mut self, last: u64) {
        let settings = self.table.settings();
        for event in self.table.events(last) {
            let is_reminder = event.kind == EventKind::Remind;
            let changes = event.changes.iter().filter(|row| {
                let [from, to] =
                    [&row.to, &row.from].map(|value| value.clone().map(FlagValue::from));
                let base = self.base.get(&row.key).expect("flag of the table");
                let held = to.or(from).unwrap_or_else(|| base.clone());
                is_reminder && self.direction(&row.key, &held, &base) == Direction::Riskier
            });
            let drop = |row: &EventChangeRow| ChangeRow { key: row.key.clone(), value: None };
            let body = ApplyBody {
                changes: changes.map(drop).collect(),
                ttl_s: None,
                on_expire: WireOnExpire::Remind,
                reason: "a timer".to_owned(),
                actor: "timer".to_owned(),
                incident: None,
                request_id: format!("timer-{}", event.seq),
                anchor: None,
                overriding: Some(OverrideRow {
                    by: OverrideBy::BreakGlass,
                    reason: "now".to_owned(),
                }),
            };
            let known = Known {
                effective: &settings,
                scopes: &[],
                verdict: None,
                glass: true,
                token: None,
            };
            let _ = self.table.apply(&body, self.revision(), &known, self.now);
        }
    }

    /// A request arrives. What it does is what the service does; then it is held against the rules.
    pub fn deliver(&mut self, request: &Request) -> Result<Outcome, TestCaseError> {
        let Request { body, seen, glass } = request;
        let (values, overrides) = (self.values(), self.overrides());
        let (revision, last) = (self.revision(), self.last_seq());
        let settings = self.table.settings();
        let is_calm = self.calm || self.plant == Some(Plant::SkipsInterlock);
        let scopes = scopes(is_calm);
        let known = Known {
            effective: &settings,
            scopes: &scopes,
            verdict: None,
            glass: *glass,
            token: None,
        };
        let is_blind = self.plant == Some(Plant::IgnoresIfMatch);
        let if_match = if is_blind { revision } else { *seen };
        let answer = self.table.apply(body, if_match, &known, self.now);
        let events = self.table.events(last);
        if let Err(error) = answer {
            prop_assert!(events.is_empty() && self.values() == values, "a refusal stores nothing");
            prop_assert_eq!(self.revision(), revision);
            return Ok(self.refused(*error));
        }
        let [event] = events.as_slice() else {
            prop_assert!(events.is_empty(), "one request, one event");
            prop_assert!(self.stored.contains(&body.request_id), "only a repeat stores nothing");
            prop_assert_eq!(self.values(), values);
            self.seen.repeats += 1;
            return Ok(Outcome::applied(self.revision()));
        };
        prop_assert!(self.stored.insert(body.request_id.clone()), "stored twice");
        let is_denied = self.denied.contains(&body.request_id);
        prop_assert!(!is_denied, "{} lands, and was said never to", body.request_id);
        prop_assert_eq!(*seen, revision, "a lost update: stored against another table");
        prop_assert_eq!(self.revision(), Revision(revision.0 + 1));
        if !self.outside.contains(&body.request_id) {
            let intent = self.intents.get(&body.request_id);
            let intent = intent
                .ok_or_else(|| TestCaseError::fail("stored, and no journal has the intent"))?;
            for (key, from) in intent {
                prop_assert_eq!(from, &overrides[key], "its author saw another {}", key);
            }
        }
        self.interlock(event, &values, request)?;
        self.before.insert(event.seq, values);
        self.note_step(event);
        self.seen.stored += 1;
        Ok(Outcome::applied(self.revision()))
    }

    fn refused(&mut self, body: ErrorBody) -> Outcome {
        if let (ErrorCode::Revision, Some(current)) = (body.error.code, body.error.current) {
            self.seen.conflicts += 1;
            return Outcome::Conflict { current: current.into() };
        }
        self.seen.refused += 1;
        Outcome::Refused { why: body.error.message }
    }

    /// Whatever leads away from the safe end was allowed to when it was stored.
    fn interlock(
        &mut self,
        event: &EventRow,
        before: &Values,
        request: &Request,
    ) -> TestCaseResult {
        let after = self.values();
        let risky: Vec<&str> = event
            .changes
            .iter()
            .map(|row| row.key.as_str())
            .filter(|key| self.direction(key, &before[*key], &after[*key]) == Direction::Riskier)
            .collect();
        self.seen.risky += u64::from(!risky.is_empty());
        if !event.marks.overridden.is_empty() {
            self.seen.overridden += 1;
            prop_assert!(request.glass, "interlocks were passed without the second token");
            prop_assert!(request.body.overriding.is_some());
            return Ok(());
        }
        if let Some(undone) = event.marks.undoes {
            self.seen.undone += 1;
            let held = self.before.get(&undone);
            let held = held.ok_or_else(|| TestCaseError::fail("undoes what never was"))?;
            for row in &event.changes {
                prop_assert_eq!(&held[&row.key], &after[&row.key], "no state that held before");
            }
            return Ok(());
        }
        for key in risky {
            self.may_be_risky(key, before, &after)?;
        }
        Ok(())
    }

    fn may_be_risky(&self, key: &str, before: &Values, after: &Values) -> TestCaseResult {
        let number = |values: &Values, key: &str| match &values[key] {
            FlagValue::Number(number) => *number,
            other => panic!("{key} is {other}"),
        };
        let is = |key: &str, word: &str| after[key] == FlagValue::Word(word.to_owned());
        let attempts = number(after, "retry.max_attempts");
        match key {
            "admission.mode" | "admission.enforced_ratio" => {
                prop_assert!(self.calm, "{} went down in a storm", key);
                prop_assert!(attempts <= 2.0 && is("retry.owner", "gateway"), "{}: retries", key);
                let adapts = after["adaptive.enabled"] != FlagValue::Bool(false);
                prop_assert!(!adapts, "{} went down while the rate adapts", key);
                let age = self.stepped.map(|at| (self.now - at).num_seconds());
                prop_assert!(age.is_none_or(|age| age >= 300), "{}: {:?} s after a step", key, age);
                let [from, to] = [before, after].map(|of| number(of, "admission.enforced_ratio"));
                let fits = if key == "admission.mode" {
                    to <= 0.25
                } else {
                    to * 2.0 >= from || from <= 0.25
                };
                prop_assert!(fits, "{} leapt, {} to {}", key, from, to);
            }
            _ if key.starts_with("retry.") => {
                prop_assert!(
                    is("admission.mode", "enforce"),
                    "{} rose with nobody to hold it",
                    key
                );
                let step = attempts - number(before, "retry.max_attempts");
                prop_assert!(step <= 1.0, "{} rose by {}", key, step);
            }
            _ => {}
        }
        Ok(())
    }

    fn note_step(&mut self, event: &EventRow) {
        let steps = |key: &str| matches!(key, "admission.mode" | "admission.enforced_ratio");
        let stores = event.kind != EventKind::Remind;
        if stores && event.changes.iter().any(|row| steps(&row.key)) {
            self.stepped = Some(self.now);
        }
    }

    fn last_seq(&self) -> u64 {
        self.table.events(0).last().map_or(0, |event| event.seq)
    }

    fn direction(&self, key: &str, from: &FlagValue, to: &FlagValue) -> Direction {
        let base = self.base.get(key).expect("flag of the table");
        flag(key).expect("flag of the table").direction(&base, from, to)
    }
}
