//! The service's history as JSON: `GET /admin/v1/events`, and what a gateway keeps over a restart.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::admission::FlagValue;

use super::store::{EventChange, EventKind, FlagEvent, Marks};
use super::types::Revision;
use super::wire::WireValue;

/// One flag of an [`EventRow`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventChangeRow {
    /// The flag.
    pub key: String,
    /// Its base value then.
    pub base: WireValue,
    /// The override before, null when the base held.
    pub from: Option<WireValue>,
    /// The override afterwards, null when the base holds.
    pub to: Option<WireValue>,
}

/// One entry of the service's audit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// Position in the audit, from 1.
    pub seq: u64,
    /// When.
    pub at: DateTime<Utc>,
    /// Who; `timer` for a timer.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The incident that it belongs to.
    pub incident: Option<String>,
    /// The id of the request, null for a timer.
    pub request_id: Option<String>,
    /// What changed; empty for a reminder.
    pub changes: Vec<EventChangeRow>,
    /// The table's revision afterwards.
    pub revision: u64,
    /// What kind of event.
    pub kind: EventKind,
    /// Where the author's journal stood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// What the service found about it.
    #[serde(flatten)]
    pub marks: Marks,
}

/// `POST notes`: something that everyone who works on the incident shall read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoteBody {
    /// What, in a line.
    pub text: String,
    /// Who.
    pub actor: String,
    /// The incident that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
    /// Makes a repeat harmless.
    pub request_id: String,
}

/// `GET events?since=`: events with a larger `seq`, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventsBody {
    /// The events.
    pub events: Vec<EventRow>,
}

impl From<&FlagEvent> for EventRow {
    fn from(event: &FlagEvent) -> Self {
        Self {
            seq: event.seq,
            at: event.at,
            actor: event.actor.clone(),
            reason: event.reason.clone(),
            incident: event.incident.clone(),
            request_id: event.request_id.clone(),
            changes: event.changes.iter().map(EventChangeRow::from).collect(),
            revision: event.revision.0,
            kind: event.kind,
            anchor: event.anchor.clone(),
            marks: event.marks.clone(),
        }
    }
}

impl From<EventRow> for FlagEvent {
    fn from(row: EventRow) -> Self {
        Self {
            seq: row.seq,
            at: row.at,
            actor: row.actor,
            reason: row.reason,
            incident: row.incident,
            request_id: row.request_id,
            revision: Revision(row.revision),
            kind: row.kind,
            changes: row.changes.into_iter().map(EventChange::from).collect(),
            anchor: row.anchor,
            marks: row.marks,
        }
    }
}

impl From<&EventChange> for EventChangeRow {
    fn from(change: &EventChange) -> Self {
        Self {
            key: change.key.clone(),
            base: (&change.base).into(),
            from: change.from.as_ref().map(WireValue::from),
            to: change.to.as_ref().map(WireValue::from),
        }
    }
}

impl From<EventChangeRow> for EventChange {
    fn from(row: EventChangeRow) -> Self {
        Self {
            key: row.key,
            base: row.base.into(),
            from: row.from.map(FlagValue::from),
            to: row.to.map(FlagValue::from),
        }
    }
}
