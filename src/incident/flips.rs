//! What a journal knows of the flips of one store: the history of a store that keeps none, and timers
//! that nobody but weir carries.

use std::path::Path;

use crate::flag::{EventChange, EventKind, FlagEvent, Marks, OnExpire, Revision, TIMER, Timed};

use super::event::Event;
use super::journal::{JournalError, read};

/// One flip, and how it ended.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    event: FlagEvent,
    plan: String,
    ttl_s: Option<u64>,
    on_expire: OnExpire,
    /// `None` when nothing was written down afterwards.
    end: Option<String>,
}

impl Kept {
    /// Whether it may have changed something, as far as was written down.
    fn may_stand(&self) -> bool {
        !matches!(self.end.as_deref(), Some("conflict" | "refused" | "not-stored" | "not-sent"))
    }
}

/// The flips of the store of this name, oldest first.
///
/// # Errors
/// [`JournalError::Broken`] names the first bad line.
fn kept(path: &Path, store: &str) -> Result<Vec<Kept>, JournalError> {
    let mut flips: Vec<Kept> = Vec::new();
    read(path, |entry| match entry.event {
        Event::Flip {
            request_id,
            plan,
            revision,
            actor,
            incident,
            reason,
            changes,
            ttl_s,
            on_expire,
            store: Some(of),
            ..
        } if of == store => flips.push(Kept {
            event: FlagEvent {
                seq: entry.seq,
                at: entry.at,
                kind: if actor == TIMER { EventKind::Expire } else { EventKind::Change },
                actor,
                reason,
                incident,
                request_id: Some(request_id),
                revision: Revision(revision),
                changes: changes.into_iter().map(EventChange::from).collect(),
                anchor: None,
                marks: Marks::default(),
            },
            plan,
            ttl_s,
            on_expire: on_expire.into(),
            end: None,
        }),
        Event::Outcome { request_id, end, .. } => {
            let of = |flip: &&mut Kept| flip.event.request_id.as_ref() == Some(&request_id);
            if let Some(flip) = flips.iter_mut().rev().find(of) {
                flip.end = Some(end);
            }
        }
        _ => {}
    })?;
    Ok(flips)
}

/// The changes that weir has made in the store of this name, oldest first. The revision of each is the
/// one that it was made from.
///
/// # Errors
/// As [`super::verify`].
pub fn history(path: &Path, store: &str) -> Result<Vec<FlagEvent>, JournalError> {
    let stored =
        |flip: &Kept| matches!(flip.end.as_deref(), Some("applied" | "overwritten" | "partly"));
    let flips = kept(path, store)?;
    Ok(flips.into_iter().filter(stored).map(|flip| flip.event).collect())
}

/// The timers of the store of this name that may still have something to do: the newest flip of each
/// flag, where it set an override with a timer. Which of them still hold, the table tells.
///
/// # Errors
/// As [`super::verify`].
pub fn timers(path: &Path, store: &str) -> Result<Vec<Timed>, JournalError> {
    let mut open: Vec<Timed> = Vec::new();
    for flip in kept(path, store)?.into_iter().filter(Kept::may_stand) {
        Timed::supersede(&mut open, flip.event.changes.iter().map(|change| change.key.as_str()));
        let Kept { event, plan, ttl_s, on_expire, .. } = flip;
        open.extend(Timed::of_event(&event, &plan, ttl_s, on_expire));
    }
    Ok(open)
}
