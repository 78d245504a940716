//! Looks for a request in a store's own history: whether it has landed, and who has overwritten it since.
//!
//! Pure: a table and the events that were read after it in, a finding out. Values alone never tell whose
//! change they are, and a table without them never tells that none will come: only a history does.

use crate::admission::FlagValue;

use super::store::{Capabilities, CompareAndSet, EventKind, FlagEvent};
use super::types::{FlagState, FlagTable, PlannedChange, Revision};

/// What of a store's history was read with a table.
#[derive(Clone, Copy, Debug)]
pub enum Past<'a> {
    /// The store keeps none, so that the values are all there is.
    NotKept,
    /// It keeps one, and it was not read this time.
    Unread,
    /// All of it, read after the table.
    Told {
        /// Oldest first.
        events: &'a [FlagEvent],
        /// A request that names another revision than the table's is refused, so that a table that has
        /// moved on rules it out.
        is_fenced: bool,
    },
}

impl<'a> Past<'a> {
    /// What was read from a store that can do this; `None` when it could not be read.
    #[must_use]
    pub fn of(able: Capabilities, events: Option<&'a [FlagEvent]>) -> Self {
        match events {
            _ if !able.audit => Self::NotKept,
            None => Self::Unread,
            Some(events) => {
                let is_fenced = able.compare_and_set == CompareAndSet::Atomic;
                Self::Told { events, is_fenced }
            }
        }
    }
}

/// What a request was to make of one flag.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub key: String,
    /// The stored value afterwards.
    pub to: FlagValue,
}

impl From<&PlannedChange> for Target {
    fn from(change: &PlannedChange) -> Self {
        Self { key: change.key.clone(), to: change.to.clone() }
    }
}

/// A request as it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent<'a> {
    pub request_id: &'a str,
    pub at_revision: Revision,
    pub targets: &'a [Target],
}

/// What a history says about a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trace {
    /// All of it has landed.
    Landed {
        /// The table's revision with it.
        revision: Revision,
        /// Which events say so, in words.
        how: String,
        /// Who has changed one of its flags to something else since, if somebody has.
        overwritten: Option<Overwritten>,
    },
    /// It is not there, and can no longer land.
    RuledOut,
    /// Not all of it is there, and the rest may come.
    Open,
}

/// A change of somebody else's on top.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overwritten {
    pub by: String,
    pub revision: Revision,
}

/// The event that made one flag what the request wanted.
struct Landing<'a> {
    event: &'a FlagEvent,
    target: &'a Target,
    is_named: bool,
}

/// Looks for the request in `events`, which were read after `table`.
pub(super) fn trace(
    sent: Sent<'_>,
    table: &FlagTable,
    events: &[FlagEvent],
    is_fenced: bool,
) -> Trace {
    let is_named = |event: &&FlagEvent| event.request_id.as_deref() == Some(sent.request_id);
    let named = events.iter().rev().find(is_named);
    let landings: Option<Vec<Landing<'_>>> =
        sent.targets.iter().map(|target| landing(sent, target, events, is_fenced)).collect();
    let newest = landings.iter().flatten().map(|landing| landing.event).chain(named);
    let newest = newest.max_by_key(|event| event.seq);
    let (Some(landings), Some(newest)) = (landings, newest) else {
        let is_past = is_fenced && named.is_none() && table.revision > sent.at_revision;
        return if is_past { Trace::RuledOut } else { Trace::Open };
    };
    let overwritten = landings
        .iter()
        .find_map(|landing| later(landing, events))
        .or_else(|| past_the_history(&landings, table, newest.revision));
    Trace::Landed { revision: newest.revision, how: how(&landings, newest), overwritten }
}

fn is_of(event: &FlagEvent, target: &Target) -> bool {
    event.changes.iter().any(|change| change.key == target.key)
}

fn leads_to(event: &FlagEvent, target: &Target) -> bool {
    let mut changes = event.changes.iter();
    changes.any(|change| change.key == target.key && *change.value_after() == target.to)
}

fn landing<'a>(
    sent: Sent<'_>,
    target: &'a Target,
    events: &'a [FlagEvent],
    is_fenced: bool,
) -> Option<Landing<'a>> {
    let changes = || events.iter().filter(|event| event.kind == EventKind::Change);
    let named = changes().find(|event| {
        event.request_id.as_deref() == Some(sent.request_id) && (is_fenced || is_of(event, target))
    });
    if let Some(event) = named {
        return Some(Landing { event, target, is_named: true });
    }
    // A store that cannot keep writers apart cannot put an id on everything either. What carries the
    // id of another request is somebody else's all the same.
    let unnamed = changes().find(|event| {
        !is_fenced
            && event.request_id.is_none()
            && event.revision > sent.at_revision
            && leads_to(event, target)
    })?;
    Some(Landing { event: unnamed, target, is_named: false })
}

/// Who changed the flag to something else afterwards, if it has stayed so.
fn later(landing: &Landing<'_>, events: &[FlagEvent]) -> Option<Overwritten> {
    let after = || {
        let of = |event: &&FlagEvent| event.seq > landing.event.seq && is_of(event, landing.target);
        events.iter().filter(of)
    };
    after().next_back().filter(|event| !leads_to(event, landing.target))?;
    let first = after().find(|event| !leads_to(event, landing.target))?;
    Some(Overwritten { by: first.actor.clone(), revision: first.revision })
}

/// A table of after the landing that shows another value: changed past the history.
fn past_the_history(
    landings: &[Landing<'_>],
    table: &FlagTable,
    landed: Revision,
) -> Option<Overwritten> {
    if table.revision < landed {
        return None;
    }
    let moved = |landing: &&Landing<'_>| {
        table.get(&landing.target.key).filter(|flag| *flag.stored() != landing.target.to)
    };
    let flag: &FlagState = landings.iter().find_map(|landing| moved(&landing))?;
    let by = flag.by.clone().unwrap_or_else(|| "somebody".to_owned());
    Some(Overwritten { by, revision: table.revision })
}

fn how(landings: &[Landing<'_>], newest: &FlagEvent) -> String {
    let unnamed: Vec<String> = landings
        .iter()
        .filter(|landing| !landing.is_named)
        .map(|landing| {
            let FlagEvent { seq, actor, .. } = landing.event;
            format!("{} by event {seq} of {actor}", landing.target.key)
        })
        .collect();
    if unnamed.is_empty() {
        return format!("event {} of the store's history has its id", newest.seq);
    }
    format!("told by flag, value and time, for the store keeps no id there: {}", unnamed.join(", "))
}
