//! What any flag store can be asked: its table, a change, its history, and what it cannot do.
//!
//! A store never retries and never panics. A change without an answer is [`Outcome::Unknown`].

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::admission::FlagValue;

use super::event_wire::NoteBody;
use super::original::Original;
use super::types::{FlagTable, OnExpire, Outcome, Plan, Revision};

/// How a store keeps two writers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareAndSet {
    /// One of two racing writers wins, the other is told.
    Atomic,
    /// The check narrows the window and does not close it.
    Advisory,
    /// The last writer wins.
    None,
}

const HALF_WAY: &str = "several flags are written one by one: a plan can stop half-way";
const NO_TIMER: &str = "no timer: reverts only while weir runs";
const DROPS_ONLY: &str = "a timer can only drop an override, not set the one before again";

/// What a store can do. The screen shows what it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent abilities, each shown by name")]
pub struct Capabilities {
    /// How two writers are kept apart.
    pub compare_and_set: CompareAndSet,
    /// Several flags of one plan are stored together or not at all.
    pub all_or_none: bool,
    /// Timers run in the store, also when weir does not.
    pub timer: bool,
    /// A timer can set the override again that was there before: the store's own, or the one that weir
    /// carries.
    pub restores: bool,
    /// The store keeps its own history.
    pub audit: bool,
    /// It tells what each instance really uses.
    pub effective: bool,
    /// A change carries a reason.
    pub comment: bool,
}

impl Capabilities {
    /// Those of a store that can do it all.
    pub const FULL: Self = Self {
        compare_and_set: CompareAndSet::Atomic,
        all_or_none: true,
        timer: true,
        restores: true,
        audit: true,
        effective: true,
        comment: true,
    };

    /// What a person must know before they rely on it: each thing that the store cannot do, and what
    /// follows. Empty for a store that can do it all.
    #[must_use]
    pub fn lacks(self) -> Vec<&'static str> {
        let rest = [
            (self.all_or_none, HALF_WAY),
            (self.timer, NO_TIMER),
            (self.audit, "no history: only weir's journal knows who changed what"),
            (self.effective, "what the instances really use is not told"),
            (self.comment, "the reason is kept in weir's journal only"),
            (self.restores, DROPS_ONLY),
        ];
        let lacking = rest.into_iter().filter(|(can, _)| !can).map(|(_, words)| words);
        self.writers().into_iter().chain(lacking).collect()
    }

    /// The part of [`Self::lacks`] that may go wrong with this plan: no lock, half of it, its timer.
    #[must_use]
    pub fn lacks_for(self, plan: &Plan) -> Vec<&'static str> {
        let half_way = (!self.all_or_none && plan.changes.len() > 1).then_some(HALF_WAY);
        let reverts = plan.ttl_s.is_some() && plan.on_expire == OnExpire::Revert;
        let timer = (!self.timer && reverts).then_some(NO_TIMER);
        self.writers().into_iter().chain(half_way).chain(timer).collect()
    }

    /// The plan as this store can carry it out: a timer that would have to set an override again, where
    /// none can, reminds instead.
    #[must_use]
    pub fn fitted(self, plan: Plan) -> Plan {
        if self.restores || plan.restores().next().is_none() {
            return plan;
        }
        Plan { on_expire: OnExpire::Remind, ..plan }
    }

    const fn writers(self) -> Option<&'static str> {
        match self.compare_and_set {
            CompareAndSet::Atomic => None,
            CompareAndSet::Advisory => {
                Some("two writers at once may both win: weir looks afterwards")
            }
            CompareAndSet::None => Some("no lock: another writer can overwrite you"),
        }
    }
}

/// In whose name a change is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The person.
    pub actor: String,
    /// The incident that it belongs to.
    pub incident: Option<String>,
    /// Where the author's own journal stood when the change was sent, for the store to keep: it shows
    /// later whether that journal was cut.
    pub anchor: Option<String>,
}

/// What kind of event the store's history holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// Somebody changed flags.
    Change,
    /// A timer ran out and dropped overrides.
    Expire,
    /// A timer ran out and only reminds.
    Remind,
    /// Somebody wrote something down; the reason is the text.
    Note,
    /// Of a newer server.
    #[serde(other)]
    Other,
}

/// One flag of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventChange {
    /// The flag.
    pub key: String,
    /// Its base value then.
    pub base: FlagValue,
    /// The override before, `None` when the base held.
    pub from: Option<FlagValue>,
    /// The override afterwards, `None` when the base holds.
    pub to: Option<FlagValue>,
}

impl EventChange {
    /// The stored value before.
    #[must_use]
    pub fn value_before(&self) -> &FlagValue {
        self.from.as_ref().unwrap_or(&self.base)
    }

    /// The stored value afterwards.
    #[must_use]
    pub fn value_after(&self) -> &FlagValue {
        self.to.as_ref().unwrap_or(&self.base)
    }
}

/// One entry of the store's history.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagEvent {
    /// Position in the history, from 1.
    pub seq: u64,
    /// When.
    pub at: DateTime<Utc>,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The incident that it belongs to.
    pub incident: Option<String>,
    /// The id of the request that made it.
    pub request_id: Option<String>,
    /// The table's revision afterwards.
    pub revision: Revision,
    /// What kind.
    pub kind: EventKind,
    /// What changed.
    pub changes: Vec<EventChange>,
    /// Where the author's journal stood.
    pub anchor: Option<String>,
    /// What the store found about it.
    pub marks: Marks,
}

/// What the store itself has found about an event; a client cannot say it. Empty where a store finds
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// The event that this one took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// The interlocks that refused it and were passed with the second token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<String>,
    /// Why they were passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_reason: Option<String>,
    /// Name of the token that it came with; the actor is what its author says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl Marks {
    /// That interlocks were passed, in words; `None` where none were.
    #[must_use]
    pub fn broken_glass(&self) -> Option<String> {
        let why = self.override_reason.as_deref().unwrap_or("no reason kept");
        let passed = self.overridden.join("; ");
        (!self.overridden.is_empty()).then(|| format!("BREAK-GLASS ({why}) past: {passed}"))
    }
}

/// Why a store could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The address does not work at all.
    #[error("`{url}` is not the address of {what}: {why}; it looks like {example}")]
    Address {
        /// What was given.
        url: String,
        /// What should be there.
        what: &'static str,
        /// What is wrong with it.
        why: String,
        /// What a good one looks like.
        example: &'static str,
    },
    /// Nobody answered in time, or the connection broke.
    #[error("{store} did not answer: {why}; is it up, and is this its address?")]
    Unreachable {
        /// The store.
        store: String,
        /// What happened.
        why: String,
    },
    /// The store answered with a refusal.
    #[error("{store} refused with {status}: {why}")]
    Refused {
        /// The store.
        store: String,
        /// HTTP status.
        status: u16,
        /// In the store's words, or what to do.
        why: String,
    },
    /// A file that holds flags is not there, or not readable.
    #[error("the flag file `{path}` {why}")]
    File {
        /// As it was given.
        path: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The answer is not what the API promises.
    #[error("{store} answered {what} in a form that this weir does not know: {why}")]
    Malformed {
        /// The store.
        store: String,
        /// What was asked.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// A place where flags live. Used as `Arc<dyn Store>`; the futures borrow the store.
pub trait Store: Send + Sync {
    /// Its name on screen, in errors and in the journal: address and environment, so that two are told
    /// apart.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Reads the whole table.
    ///
    /// # Errors
    /// [`StoreError`] when there is no usable answer in time.
    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>>;

    /// Sends the plan once, at the plan's revision. Everything is stored or nothing where
    /// [`Capabilities::all_or_none`] says so; a store that stopped half-way answers
    /// [`Outcome::Partly`], or [`Outcome::Unknown`] where it cannot tell, and names what it wrote.
    fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome>;

    /// What happened to one original, where the store is a gateway that keeps it; `None` where it is
    /// not one.
    fn original(&self, _id: u64) -> Option<BoxFuture<'_, Result<Original, StoreError>>> {
        None
    }

    /// Whether it keeps notes among its events, for everyone who reads them.
    fn keeps_notes(&self) -> bool {
        false
    }

    /// Writes a note among the events; `None` where it keeps none.
    fn note<'a>(&'a self, _note: &'a NoteBody) -> Option<BoxFuture<'a, Result<(), StoreError>>> {
        None
    }

    /// The history after event `since`, oldest first; 0 for all of it.
    ///
    /// # Errors
    /// [`StoreError`] when there is no usable answer in time.
    fn events(&self, since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>>;
}
