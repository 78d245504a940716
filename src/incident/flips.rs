//! What a journal knows of the flips of one store: the history of a store that keeps none, and timers
//! that nobody but weir carries.
//!
//! Several dashboards may carry the timers of one journal. Each follows it, and before one leads a flip
//! back it claims that in the journal, under its lock: a claim is refused while another stands.

use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};

use crate::flag::{EventChange, EventKind, FlagEvent, Marks, OnExpire, Revision, TIMER, Timed};

use super::chain::Entry;
use super::event::Event;
use super::journal::{Anchor, Journal, JournalError, Reader, read};

/// Seconds for which a claim without an outcome stands: longer than a flip may take that gets no answer.
/// Whoever made it may have crashed.
pub const CLAIM_S: i64 = 120;

/// Who has made a change that weir has only seen.
pub const SOMEBODY: &str = "somebody";

/// One flip, and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) event: FlagEvent,
    plan: String,
    ttl_s: Option<u64>,
    on_expire: OnExpire,
    /// The flip whose timer this is, by its request.
    timer_of: Option<String>,
    /// `None` when nothing was written down afterwards.
    end: Option<String>,
}

impl Kept {
    /// Whether it has changed something.
    pub(super) fn has_changed(&self) -> bool {
        changed(self.end.as_deref()) == Some(true)
    }

    /// Whether it may have changed something, as far as was written down.
    pub(super) fn may_stand(&self) -> bool {
        changed(self.end.as_deref()) != Some(false)
    }

    /// A timer's flip that was begun and is not known to have led all of it back: the timer stays open, and
    /// the table will tell.
    fn is_open_claim(&self) -> bool {
        self.timer_of.is_some() && !matches!(self.end.as_deref(), Some("applied" | "overwritten"))
    }
}

/// Whether a flip that ended so has changed something; `None` where that is not known.
#[must_use]
pub fn changed(end: Option<&str>) -> Option<bool> {
    match end? {
        "applied" | "overwritten" | "partly" => Some(true),
        "conflict" | "refused" | "not-stored" | "not-sent" => Some(false),
        _ => None,
    }
}

/// Takes note of an entry, if it is about a flip of the store of this name.
fn note(flips: &mut Vec<Kept>, entry: Entry, store: &str) {
    match entry.event {
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
            notes,
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
                marks: notes.marks,
            },
            plan,
            ttl_s,
            on_expire: on_expire.into(),
            timer_of: notes.timer_of,
            end: None,
        }),
        Event::Seen { store: of, revision, since, changes } if of == store => flips.push(Kept {
            event: FlagEvent {
                seq: entry.seq,
                at: entry.at,
                kind: EventKind::Change,
                actor: SOMEBODY.to_owned(),
                reason: match since {
                    Some(since) => format!("made past weir after {}", since.format("%H:%M:%SZ")),
                    None => "made past weir while none was watching".to_owned(),
                },
                incident: None,
                request_id: None,
                revision: Revision(revision),
                changes: changes.into_iter().map(EventChange::from).collect(),
                anchor: None,
                marks: Marks::default(),
            },
            plan: String::new(),
            ttl_s: None,
            on_expire: OnExpire::Remind,
            timer_of: None,
            end: Some("applied".to_owned()),
        }),
        Event::Outcome { request_id, end, .. } => {
            let of = |flip: &&mut Kept| flip.event.request_id.as_ref() == Some(&request_id);
            if let Some(flip) = flips.iter_mut().rev().find(of) {
                flip.end = Some(end);
            }
        }
        _ => {}
    }
}

/// The flips of the store of this name, oldest first.
///
/// # Errors
/// [`JournalError::Broken`] names the first bad line.
pub(super) fn kept(path: &Path, store: &str) -> Result<Vec<Kept>, JournalError> {
    let mut flips: Vec<Kept> = Vec::new();
    read(path, |entry| note(&mut flips, entry, store))?;
    Ok(flips)
}

/// The changes that weir has made in the store of this name, or seen there, oldest first. The revision of
/// each is the one that it was made from, or seen at.
///
/// # Errors
/// As [`super::verify`].
pub fn history(path: &Path, store: &str) -> Result<Vec<FlagEvent>, JournalError> {
    let flips = kept(path, store)?;
    Ok(flips.into_iter().filter(Kept::has_changed).map(|flip| flip.event).collect())
}

/// The timers of the store of this name that may still have something to do: the newest flip of each
/// flag, where it set an override with a timer. Which of them still hold, the table tells.
///
/// # Errors
/// As [`super::verify`].
pub fn timers(path: &Path, store: &str) -> Result<Vec<Timed>, JournalError> {
    Ok(open(&kept(path, store)?))
}

fn open(flips: &[Kept]) -> Vec<Timed> {
    let mut open: Vec<Timed> = Vec::new();
    for flip in flips.iter().filter(|flip| flip.may_stand() && !flip.is_open_claim()) {
        let keys = flip.event.changes.iter().map(|change| change.key.as_str());
        let next = Timed::of_event(&flip.event, &flip.plan, flip.ttl_s, flip.on_expire);
        Timed::supersede(&mut open, keys, next);
    }
    open
}

/// The flips of one store, as the journal grows: also by what other processes write into it.
#[derive(Debug)]
pub struct Follow {
    reader: Reader,
    store: String,
    flips: Vec<Kept>,
}

impl Follow {
    /// From the first entry on.
    #[must_use]
    pub fn new(journal: &Path, store: &str) -> Self {
        Self { reader: Reader::new(journal), store: store.to_owned(), flips: Vec::new() }
    }

    /// The timers that may still have something to do, if the journal has grown since the last look; a
    /// look at one that has not costs nothing but asking for its length.
    ///
    /// # Errors
    /// As [`super::verify`].
    pub fn look(&mut self) -> Result<Option<Vec<Timed>>, JournalError> {
        let Self { reader, store, flips } = self;
        let has_grown = reader.read_on(|entry| note(flips, entry, store))?;
        Ok(has_grown.then(|| open(flips)))
    }
}

/// What became of a wish to lead a flip back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is written down, and nobody else will do it.
    Ours(Anchor),
    /// Nothing was written: another has done it, is doing it, or has changed the flag since. In words.
    Others(String),
}

/// Claims in the journal what `event` says, made by [`Event::timer`]: writes it down, unless another process
/// was faster.
///
/// # Errors
/// As [`Journal::append`].
pub fn claim(journal: &Journal, event: &Event, now: DateTime<Utc>) -> Result<Claim, JournalError> {
    let Event::Flip { store: Some(store), notes, changes, .. } = event else {
        return journal.append(event, now).map(Claim::Ours);
    };
    let Some(of) = &notes.timer_of else { return journal.append(event, now).map(Claim::Ours) };
    let keys: Vec<&str> = changes.iter().map(|change| change.key.as_str()).collect();
    // Timers run out rarely, so all of the journal may be read while nobody else writes.
    let why_not = |path: &Path| Ok(taken(&kept(path, store)?, of, &keys, now));
    Ok(match journal.append_unless(event, now, why_not)? {
        Ok(anchor) => Claim::Ours(anchor),
        Err(why) => Claim::Others(why),
    })
}

/// Why these flags are not to be led back any more, if so.
fn taken(flips: &[Kept], of: &str, keys: &[&str], now: DateTime<Utc>) -> Option<String> {
    let is_it = |flip: &Kept| flip.event.request_id.as_deref() == Some(of);
    let since = flips.iter().rposition(is_it).map_or(flips.len(), |at| at + 1);
    let later = flips[since..].iter().filter(|flip| flip.may_stand());
    let touches =
        |flip: &&Kept| flip.event.changes.iter().any(|change| keys.contains(&change.key.as_str()));
    later.filter(touches).find_map(|flip| match &flip.timer_of {
        Some(timer) if timer != of => None,
        Some(_) => match flip.end.as_deref() {
            None | Some("unsettled") => {
                let age = now.signed_duration_since(flip.event.at);
                (age < TimeDelta::seconds(CLAIM_S))
                    .then(|| "another weir is leading it back".to_owned())
            }
            Some("partly") => None,
            Some(_) => Some("another weir has led it back".to_owned()),
        },
        None => Some(format!("{} has changed it since", flip.event.actor)),
    })
}
