//! The flag table of one instance: base values, overrides on top, their timers and history.
//!
//! Pure: the calendar is an argument. An override is a layer over the base, so that a revert drops
//! it and cannot miss. A timer only ever drops an override toward the safe end, sets the one before
//! again where that is the safe way, or reminds. Interlocks
//! hold here, whatever the tool that asks has checked; `guards` says how.

mod guards;

use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::admission::{Direction, FLAGS, FlagValue, Settings, flag};
use crate::flag::wire::{
    ApplyBody, ErrorBody, ErrorCode, EventChangeRow, EventRow, FlagRow, NoteBody, TableBody,
    WireKind, WireOnExpire, WireValue,
};
use crate::flag::{BROKE_GLASS, EventKind, Marks, Revision, TTL_S_MAX, WayBack};

pub use guards::Known;

/// Events that are kept.
const EVENTS_MAX: usize = 10_000;
/// Request ids that are remembered, so that a repeat is harmless.
const REQUEST_IDS_MAX: usize = 1_000;
/// Longest note: a paragraph.
const NOTE_BYTES_MAX: usize = 2_000;
/// Longest anchor: two hashes and a number are 150 bytes.
const ANCHOR_BYTES_MAX: usize = 200;

/// One override.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Override {
    value: WireValue,
    expires: Option<DateTime<Utc>>,
    on_expire: WireOnExpire,
    reminded: bool,
    /// The override that was in place before, or that a timer of that would have led back to.
    #[serde(default)]
    before: Option<WireValue>,
}

/// Who changed a flag last.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Last {
    revision: u64,
    by: String,
    at: DateTime<Utc>,
}

/// What survives a restart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    revision: u64,
    overrides: BTreeMap<String, Override>,
    last: BTreeMap<String, Last>,
    events: VecDeque<EventRow>,
    request_ids: VecDeque<String>,
}

/// What timers did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// None has run out.
    Nothing,
    /// One has, and only reminds: the history has grown.
    Reminded,
    /// An override was dropped: the settings have changed.
    Dropped,
}

/// The flag table of one instance.
#[derive(Clone, Debug)]
pub struct Overrides {
    instance: String,
    base: Settings,
    kept: Kept,
}

impl Overrides {
    /// A table without overrides.
    #[must_use]
    pub fn new(instance: impl Into<String>, base: Settings) -> Self {
        Self { instance: instance.into(), base, kept: Kept::default() }
    }

    /// Takes other base values. The revision moves when any differs: who has read the table must read it
    /// again.
    pub fn rebase(&mut self, base: Settings) {
        if self.base != base {
            self.base = base;
            self.kept.revision += 1;
        }
    }

    /// Takes up what an earlier run has kept. Overrides that no longer fit their flag are dropped
    /// and returned.
    ///
    /// # Errors
    /// When the text is not what [`Self::to_json`] writes.
    pub fn restore(&mut self, json: &str) -> Result<Vec<String>, serde_json::Error> {
        let mut kept: Kept = serde_json::from_str(json)?;
        let mut dropped = Vec::new();
        kept.overrides.retain(|key, entry| {
            let fits = flag(key).and_then(|def| def.check(entry.value.clone().into())).is_ok();
            if !fits {
                dropped.push(key.clone());
            }
            fits
        });
        self.kept = kept;
        Ok(dropped)
    }

    /// What to keep over a restart.
    ///
    /// # Errors
    /// Never in practice: every part has a JSON form.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&self.kept)
    }

    /// The revision of the table.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        Revision(self.kept.revision)
    }

    /// Keys with an override.
    #[must_use]
    pub fn overridden(&self) -> Vec<String> {
        self.kept.overrides.keys().cloned().collect()
    }

    /// The settings with every override applied.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let mut settings = self.base.clone();
        for (key, entry) in &self.kept.overrides {
            if let Err(error) = settings.set(key, entry.value.clone().into()) {
                tracing::error!(%error, "an override that was checked does not fit");
            }
        }
        settings
    }

    /// The whole table as the API shows it. `effective` are the settings that the gate really uses.
    #[must_use]
    pub fn table(&self, effective: &Settings) -> TableBody {
        let flags = FLAGS
            .iter()
            .filter_map(|def| {
                let base = self.base.get(def.key).ok()?;
                let entry = self.kept.overrides.get(def.key);
                let last = self.kept.last.get(def.key);
                let effective = WireValue::from(&effective.get(def.key).ok()?);
                Some(FlagRow {
                    key: def.key.to_owned(),
                    kind: WireKind::of(def.key),
                    base: WireValue::from(&base),
                    overridden: entry.map(|entry| entry.value.clone()),
                    effective: BTreeMap::from([(self.instance.clone(), effective)]),
                    revision: last.map_or(0, |last| last.revision),
                    safe: WireValue::from(&def.safe_value(&base)),
                    by: last.map(|last| last.by.clone()),
                    at: last.map(|last| last.at),
                    expires: entry.and_then(|entry| entry.expires),
                    on_expire: entry
                        .filter(|entry| entry.expires.is_some())
                        .map(|entry| self.does(def.key, entry)),
                    break_glass: last.is_some_and(|last| last.by.ends_with(BROKE_GLASS)),
                })
            })
            .collect();
        TableBody { revision: self.kept.revision, flags }
    }

    /// Events after `since`, oldest first.
    #[must_use]
    pub fn events(&self, since: u64) -> Vec<EventRow> {
        self.kept.events.iter().filter(|event| event.seq > since).cloned().collect()
    }

    /// Whether this request was carried out already.
    #[must_use]
    pub fn is_repeat(&self, request_id: &str) -> bool {
        self.kept.request_ids.iter().any(|known| known == request_id)
    }

    /// Stores several changes, all or none.
    ///
    /// # Errors
    /// An [`ErrorBody`] that says which change or interlock refused; nothing is stored then.
    pub fn apply(
        &mut self,
        body: &ApplyBody,
        seen: Revision,
        known: &Known<'_>,
        now: DateTime<Utc>,
    ) -> Result<(), Box<ErrorBody>> {
        if self.is_repeat(&body.request_id) {
            return Ok(());
        }
        if seen != self.revision() {
            return Err(Box::new(self.outdated(seen, now)));
        }
        let changes = checked(body)?;
        let token = known.token.map(str::to_owned);
        let marks = Marks { token, ..self.allow(body, &changes, known, now)? };
        let expires = body
            .ttl_s
            .and_then(|ttl| now.checked_add_signed(TimeDelta::seconds(i64::try_from(ttl).ok()?)));
        self.store(changes, body, marks, expires, now);
        Ok(())
    }

    fn store(
        &mut self,
        changes: Vec<(String, Option<FlagValue>)>,
        body: &ApplyBody,
        marks: Marks,
        expires: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) {
        self.kept.revision += 1;
        let revision = self.kept.revision;
        let mark = if marks.overridden.is_empty() { "" } else { BROKE_GLASS };
        let by = format!("{}{mark}", body.actor);
        let mut rows = Vec::new();
        for (key, value) in changes {
            let base = self.base.get(&key).ok();
            let to = value.map(|value| WireValue::from(&value));
            let from = self.kept.overrides.remove(&key);
            if let Some(value) = &to {
                let before = from.as_ref().and_then(|entry| self.lasting(&key, entry));
                let on_expire = body.on_expire;
                let entry =
                    Override { value: value.clone(), expires, on_expire, reminded: false, before };
                self.kept.overrides.insert(key.clone(), entry);
            }
            let last = Last { revision, by: by.clone(), at: now };
            self.kept.last.insert(key.clone(), last);
            if let Some(base) = base {
                let from = from.map(|entry| entry.value);
                rows.push(EventChangeRow { key, base: WireValue::from(&base), from, to });
            }
        }
        self.remember(&body.request_id);
        self.record(EventRow {
            seq: 0,
            at: now,
            actor: body.actor.clone(),
            reason: body.reason.clone(),
            incident: body.incident.clone(),
            request_id: Some(body.request_id.clone()),
            changes: rows,
            revision,
            kind: EventKind::Change,
            anchor: body.anchor.clone(),
            marks,
        });
    }

    /// Writes a note into the history. It changes no flag and no revision.
    ///
    /// # Errors
    /// An [`ErrorBody`] that names the field that does not do.
    pub fn note(
        &mut self,
        note: &NoteBody,
        token: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<(), Box<ErrorBody>> {
        if self.is_repeat(&note.request_id) {
            return Ok(());
        }
        let fields =
            [("text", &note.text), ("actor", &note.actor), ("request_id", &note.request_id)];
        for (field, text) in fields {
            if text.trim().is_empty() || text.len() > NOTE_BYTES_MAX {
                let message = format!("`{field}` must have 1 to {NOTE_BYTES_MAX} bytes");
                return Err(refuse(ErrorCode::Value, message));
            }
        }
        self.remember(&note.request_id);
        self.record(EventRow {
            seq: 0,
            at: now,
            actor: note.actor.clone(),
            reason: note.text.clone(),
            incident: note.incident.clone(),
            request_id: Some(note.request_id.clone()),
            changes: Vec::new(),
            revision: self.kept.revision,
            kind: EventKind::Note,
            anchor: None,
            marks: Marks { token: token.map(str::to_owned), ..Marks::default() },
        });
        Ok(())
    }

    fn remember(&mut self, request_id: &str) {
        self.kept.request_ids.push_back(request_id.to_owned());
        if self.kept.request_ids.len() > REQUEST_IDS_MAX {
            self.kept.request_ids.pop_front();
        }
    }

    /// Lets timers run out.
    pub fn expire(&mut self, now: DateTime<Utc>) -> Expiry {
        let mut dropped = Vec::new();
        let mut reminded = Vec::new();
        for (key, entry) in &self.kept.overrides {
            if entry.expires.is_none_or(|expires| expires > now) {
                continue;
            }
            if self.does(key, entry) == WireOnExpire::Revert {
                dropped.push(key.clone());
            } else if !entry.reminded {
                reminded.push(key.clone());
            }
        }
        for key in &reminded {
            if let Some(entry) = self.kept.overrides.get_mut(key) {
                entry.reminded = true;
            }
        }
        self.timer_event(&reminded, EventKind::Remind, now);
        if dropped.is_empty() {
            return if reminded.is_empty() { Expiry::Nothing } else { Expiry::Reminded };
        }
        self.kept.revision += 1;
        self.timer_event(&dropped, EventKind::Expire, now);
        for key in &dropped {
            if let Some(value) = self.back(key) {
                let entry = Override {
                    value,
                    expires: None,
                    on_expire: WireOnExpire::Remind,
                    reminded: false,
                    before: None,
                };
                self.kept.overrides.insert(key.clone(), entry);
            } else {
                self.kept.overrides.remove(key);
            }
            let last = Last { revision: self.kept.revision, by: "timer".to_owned(), at: now };
            self.kept.last.insert(key.clone(), last);
        }
        Expiry::Dropped
    }

    /// What its timer does: it never moves away from the safe end, whatever the request said.
    fn does(&self, key: &str, entry: &Override) -> WireOnExpire {
        if entry.on_expire == WireOnExpire::Revert && self.revert_is_safe(key, entry) {
            WireOnExpire::Revert
        } else {
            WireOnExpire::Remind
        }
    }

    fn revert_is_safe(&self, key: &str, entry: &Override) -> bool {
        let (Ok(def), Ok(base)) = (flag(key), self.base.get(key)) else { return false };
        self.way_back(key, entry).leads_back()
            || def.direction(&base, &entry.value.clone().into(), &base) == Direction::Same
    }

    fn way_back(&self, key: &str, entry: &Override) -> WayBack {
        let (Ok(def), Ok(base)) = (flag(key), self.base.get(key)) else { return WayBack::Nowhere };
        let before = entry.before.clone().map(FlagValue::from);
        WayBack::of(def, &base, before.as_ref(), &entry.value.clone().into())
    }

    /// The override that the timer of this flag sets again; `None` where it drops the one there is.
    fn back(&self, key: &str) -> Option<WireValue> {
        match self.way_back(key, self.kept.overrides.get(key)?) {
            WayBack::ToBefore(before) => Some(WireValue::from(&before)),
            WayBack::ToBase | WayBack::Nowhere => None,
        }
    }

    /// What an override leaves behind that another takes the place of: where its own timer would have
    /// led it back, that.
    fn lasting(&self, key: &str, entry: &Override) -> Option<WireValue> {
        match entry.expires.map(|_| self.does(key, entry)) {
            Some(WireOnExpire::Revert) => entry.before.clone(),
            Some(WireOnExpire::Remind) | None => Some(entry.value.clone()),
        }
    }

    fn timer_event(&mut self, keys: &[String], kind: EventKind, now: DateTime<Utc>) {
        if keys.is_empty() {
            return;
        }
        let changes = keys
            .iter()
            .filter_map(|key| {
                let base = WireValue::from(&self.base.get(key).ok()?);
                let from = self.kept.overrides.get(key).map(|entry| entry.value.clone());
                let to = match kind {
                    EventKind::Remind => from.clone(),
                    _ => self.back(key),
                };
                Some(EventChangeRow { key: key.clone(), base, from, to })
            })
            .collect();
        self.record(EventRow {
            seq: 0,
            at: now,
            actor: "timer".to_owned(),
            reason: "the time that was set has run out".to_owned(),
            incident: None,
            request_id: None,
            anchor: None,
            marks: Marks::default(),
            changes,
            revision: self.kept.revision,
            kind,
        });
    }

    fn record(&mut self, mut event: EventRow) {
        event.seq = self.kept.events.back().map_or(1, |last| last.seq + 1);
        self.kept.events.push_back(event);
        if self.kept.events.len() > EVENTS_MAX {
            self.kept.events.pop_front();
        }
    }

    fn outdated(&self, seen: Revision, now: DateTime<Utc>) -> ErrorBody {
        let last = self.kept.events.back().map_or_else(String::new, |event| {
            let keys: Vec<_> = event.changes.iter().map(|change| change.key.as_str()).collect();
            let ago = now.signed_duration_since(event.at).num_seconds().max(0);
            format!(": {} by {} {ago} s ago", keys.join(", "), event.actor)
        });
        let message = format!("the table is at {}, you saw {seen}{last}", self.kept.revision);
        ErrorBody::new(ErrorCode::Revision, message).with_current(self.table(&self.settings()))
    }
}

/// What is wanted, flag by flag, or why it cannot be.
fn checked(body: &ApplyBody) -> Result<Vec<(String, Option<FlagValue>)>, Box<ErrorBody>> {
    let overriding = body.overriding.as_ref().map(|wish| ("override.reason", &wish.reason));
    let fields =
        [("reason", &body.reason), ("actor", &body.actor), ("request_id", &body.request_id)];
    for (field, text) in fields.into_iter().chain(overriding) {
        if text.trim().is_empty() {
            return Err(refuse(ErrorCode::Value, format!("`{field}` must not be empty")));
        }
    }
    if let Some(ttl) = body.ttl_s.filter(|ttl| !(1..=TTL_S_MAX).contains(ttl)) {
        let message = format!("`ttl_s` must be 1 to {TTL_S_MAX}, not {ttl}");
        return Err(refuse(ErrorCode::Value, message));
    }
    if body.anchor.as_ref().is_some_and(|anchor| anchor.len() > ANCHOR_BYTES_MAX) {
        let message = format!("`anchor` must be {ANCHOR_BYTES_MAX} bytes at most");
        return Err(refuse(ErrorCode::Value, message));
    }
    if body.changes.is_empty() {
        return Err(refuse(ErrorCode::Value, "`changes` must not be empty"));
    }
    let mut checked = BTreeMap::new();
    for change in &body.changes {
        let def = flag(&change.key).map_err(|error| refuse(ErrorCode::UnknownFlag, error))?;
        let value = match &change.value {
            None => None,
            Some(value) => Some(
                def.check(value.clone().into()).map_err(|error| refuse(ErrorCode::Value, error))?,
            ),
        };
        if checked.insert(change.key.clone(), value).is_some() {
            let message = format!("`{}` stands in `changes` twice", change.key);
            return Err(refuse(ErrorCode::Value, message));
        }
    }
    Ok(checked.into_iter().collect())
}

#[expect(
    clippy::unnecessary_box_returns,
    reason = "an error as large as a table must not travel by value"
)]
fn refuse(code: ErrorCode, message: impl std::fmt::Display) -> Box<ErrorBody> {
    Box::new(ErrorBody::new(code, message.to_string()))
}

#[cfg(test)]
mod tests;
