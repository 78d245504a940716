//! Carries one plan out: journal, send once, read back, journal.
//!
//! [`Flip`] decides the order and does nothing itself; [`carry_out`] does what it asks for. The
//! intent is on disk before anything is sent, so that a crash leaves a question and never a secret.
//! Nothing is ever sent twice.
//!
//! ```text
//! ## Intent      => Sending | Done (the journal failed: nothing is sent)
//! ## Sending     => Confirming | Doubting | Concluding
//! ## Confirming  => Concluding
//! ## Doubting    => Doubting | Concluding
//! ## Concluding  => Done
//! ```

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::store::{Author, EventChange, Marks, Store, StoreError};
use super::trace::Past;
use super::types::{FlagTable, OnExpire, Outcome, Partly, Plan, Revision};
use super::unsettled::{Settled, Unsettled, author_since, last_author, overwrote};

/// Pause between two reads while it is unknown whether the flip was stored.
pub const REREAD_EVERY: Duration = Duration::from_secs(2);
/// Reads after which the flip is handed back as unsettled.
pub const REREADS_MAX: u32 = 30;

/// What is written before anything is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// Joins intent and conclusion.
    pub request_id: String,
    /// The plan's name.
    pub plan: String,
    /// The revision that was shown.
    pub revision: Revision,
    /// Who, and for which incident.
    pub author: Author,
    /// Why.
    pub reason: String,
    /// What will change.
    pub changes: Vec<EventChange>,
    /// Seconds until the timer.
    pub ttl_s: Option<u64>,
    /// What the timer does.
    pub on_expire: OnExpire,
    /// What will be verified, in words.
    pub verify: String,
    /// The store that it goes to, by name; [`carry_out`] fills it in.
    pub store: Option<String>,
    /// Which interlocks it is to pass, and why; the store has the last word.
    pub marks: Marks,
}

/// What is written when the flip is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// Joins intent and conclusion.
    pub request_id: String,
    /// The plan's name.
    pub plan: String,
    /// How it ended.
    pub end: FlipEnd,
}

/// How a flip ended.
#[derive(Clone, Debug, PartialEq)]
pub enum FlipEnd {
    /// Stored, and read back as wanted.
    Applied {
        /// The revision that holds it.
        revision: Revision,
        /// How many instances use it already; `None` where that could not be read.
        effective: Option<Effective>,
        /// What a person must hear beside it: what somebody else changed in the same moment, or how it
        /// was found although no answer came.
        beside: Option<String>,
    },
    /// Stored, and changed again by somebody before it was read back.
    Overwritten {
        /// The revision that it was stored at.
        landed: Revision,
        /// Who.
        by: String,
        /// The table's revision now.
        revision: Revision,
    },
    /// Somebody was faster; nothing was stored.
    Conflict {
        /// Who changed the table last, whichever of its flags.
        by: String,
        /// The table's revision now.
        revision: Revision,
        /// What was changed, flag by flag.
        moved: Vec<String>,
    },
    /// The store refused; nothing was stored.
    Refused {
        /// In the store's words.
        why: String,
    },
    /// There was no answer, and the store's history shows that nothing was stored nor can be any more.
    NotStored {
        /// How that is known.
        why: String,
    },
    /// Some flags were stored and some not.
    Partly(Partly),
    /// Nothing was sent, because the intent could not be written down.
    NotSent {
        /// What the journal said.
        why: String,
    },
    /// Still unknown. Keep it, show it, and feed it every table that is read.
    Unsettled(Unsettled),
}

impl FlipEnd {
    /// The word used in the journal and in JSON.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Applied { .. } => "applied",
            Self::Overwritten { .. } => "overwritten",
            Self::Conflict { .. } => "conflict",
            Self::Refused { .. } => "refused",
            Self::NotStored { .. } => "not-stored",
            Self::Partly(_) => "partly",
            Self::NotSent { .. } => "not-sent",
            Self::Unsettled(_) => "unsettled",
        }
    }

    /// One sentence for a person.
    #[must_use]
    pub fn say(&self) -> String {
        match self {
            Self::Applied { revision, effective, beside } => {
                let effective = effective.map_or_else(
                    || "effective: not known".to_owned(),
                    |Effective { on, of }| format!("effective on {on} of {of} instances"),
                );
                let beside = beside.as_ref().map_or_else(String::new, |who| format!("; {who}"));
                format!("stored at revision {revision}, {effective}{beside}")
            }
            Self::Overwritten { landed, by, revision } => overwrote(*landed, by, *revision),
            Self::Conflict { by, revision, moved } => {
                let moved = if moved.is_empty() {
                    String::new()
                } else {
                    format!(": {}", moved.join("; "))
                };
                format!(
                    "not stored: {by} has changed the table (revision {revision}){moved}; look at it \
                     and plan again"
                )
            }
            Self::Refused { why } => format!("refused, nothing was stored: {why}"),
            Self::NotStored { why } => format!("no answer came, and it was not stored: {why}"),
            Self::Partly(partly) => partly.to_string(),
            Self::NotSent { why } => format!("not sent, the journal cannot be written: {why}"),
            Self::Unsettled(unsettled) => unsettled.to_string(),
        }
    }
}

/// How far a stored value has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Instances that use every value of the flip.
    pub on: usize,
    /// Instances there are.
    pub of: usize,
}

/// Why a plan may not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlipError {
    /// A guard is false, or unknown while a change leads away from safe.
    #[error("the plan is refused; this does not hold or cannot be told: {guard}")]
    Guard {
        /// The guard's text.
        guard: String,
    },
    /// An earlier flip of the same flag got no answer yet.
    #[error("the plan must wait: {what}")]
    Blocked {
        /// What is unsettled.
        what: String,
    },
    /// No reason was given.
    #[error("a flip needs a reason; the next person on call will read it")]
    NoReason,
    /// Interlocks are to be passed, and nobody says why.
    #[error("passing interlocks needs a reason of its own; it stands in the history for good")]
    NoOverrideReason,
    /// Nobody's name was given.
    #[error("a flip needs a name to stand under; set WEIR_ACTOR or USER")]
    NoActor,
    /// The plan belongs to another table.
    #[error("the plan was made for revision {plan}, the table shown is at {shown}; plan again")]
    OtherRevision {
        /// The plan's.
        plan: Revision,
        /// The table's.
        shown: Revision,
    },
}

/// What has to be done next.
#[derive(Debug)]
pub enum Step<'a> {
    /// Write this down and make it durable, then call [`Flip::on_intent_written`].
    WriteIntent(&'a Intent),
    /// Send this once, then call [`Flip::on_outcome`].
    Send(&'a Plan, &'a Author),
    /// Wait, read the table, then call [`Flip::on_table`].
    Read {
        /// How long to wait first.
        after: Duration,
    },
    /// Wait, read the table and then the history, where there is one, then call [`Flip::on_look`].
    LookUp {
        /// How long to wait first.
        after: Duration,
    },
    /// Write this down, then call [`Flip::on_conclusion_written`].
    WriteConclusion(&'a Conclusion),
    /// Over, and how.
    Done(&'a FlipEnd),
}

#[derive(Debug)]
enum State {
    Intent,
    Sending,
    Confirming { revision: Revision, beside: Option<String> },
    Doubting { unsettled: Unsettled, reads: u32 },
    Concluding(Conclusion),
    Done(FlipEnd),
}

/// One plan being carried out. Ask [`Flip::next`], do it, report it; an answer that does not
/// belong to the step that was asked for changes nothing.
#[derive(Debug)]
pub struct Flip {
    plan: Plan,
    author: Author,
    intent: Intent,
    state: State,
    table: Option<FlagTable>,
    log_error: Option<String>,
}

impl Flip {
    /// Takes a confirmed plan, the table that was shown with it, and the flips still unsettled.
    ///
    /// # Errors
    /// [`FlipError`] when the plan may not be carried out.
    pub fn new(
        plan: Plan,
        shown: &FlagTable,
        author: Author,
        unsettled: &[Unsettled],
    ) -> Result<Self, FlipError> {
        if let Some(guard) = plan.refused() {
            return Err(FlipError::Guard { guard: guard.text.clone() });
        }
        if let Some(guard) = unsettled.iter().find_map(|earlier| earlier.blocks(&plan)) {
            return Err(FlipError::Blocked { what: guard.text });
        }
        if plan.reason.trim().is_empty() {
            return Err(FlipError::NoReason);
        }
        if plan.glass.as_ref().is_some_and(|why| why.trim().is_empty()) {
            return Err(FlipError::NoOverrideReason);
        }
        if author.actor.trim().is_empty() {
            return Err(FlipError::NoActor);
        }
        if plan.revision != shown.revision {
            return Err(FlipError::OtherRevision { plan: plan.revision, shown: shown.revision });
        }
        let intent = Intent {
            request_id: plan.request_id.clone(),
            plan: plan.name.clone(),
            revision: plan.revision,
            author: author.clone(),
            reason: plan.reason.clone(),
            changes: event_changes(&plan, shown),
            ttl_s: plan.ttl_s,
            on_expire: plan.on_expire,
            verify: plan.verify.clone(),
            store: None,
            marks: Marks {
                undoes: None,
                overridden: match plan.glass {
                    Some(_) => plan.overridable().map(|guard| guard.text.clone()).collect(),
                    None => Vec::new(),
                },
                override_reason: plan.glass.clone(),
                token: None,
            },
        };
        Ok(Self { plan, author, intent, state: State::Intent, table: None, log_error: None })
    }

    /// What has to be done now.
    #[must_use]
    pub fn next(&self) -> Step<'_> {
        match &self.state {
            State::Intent => Step::WriteIntent(&self.intent),
            State::Sending => Step::Send(&self.plan, &self.author),
            State::Confirming { .. } => Step::Read { after: Duration::ZERO },
            State::Doubting { reads: 0, .. } => Step::LookUp { after: Duration::ZERO },
            State::Doubting { .. } => Step::LookUp { after: REREAD_EVERY },
            State::Concluding(conclusion) => Step::WriteConclusion(conclusion),
            State::Done(end) => Step::Done(end),
        }
    }

    /// The intent was made durable, or could not be.
    pub fn on_intent_written(&mut self, written: Result<Option<String>, String>) {
        if matches!(self.state, State::Intent) {
            self.state = match written {
                Ok(anchor) => {
                    self.author.anchor = anchor;
                    State::Sending
                }
                Err(why) => State::Done(FlipEnd::NotSent { why }),
            };
        }
    }

    /// The store's answer.
    pub fn on_outcome(&mut self, outcome: Outcome) {
        if !matches!(self.state, State::Sending) {
            return;
        }
        match outcome {
            Outcome::Applied { revision, beside } => {
                self.state = State::Confirming { revision, beside };
            }
            Outcome::Conflict { current } => {
                let by = author_since(&current, self.plan.revision);
                let (revision, moved) = (current.revision, self.plan.moved_since(&current));
                self.table = Some(current);
                self.conclude(FlipEnd::Conflict { by, revision, moved });
            }
            Outcome::Refused { why } => self.conclude(FlipEnd::Refused { why }),
            Outcome::Partly(partly) => self.conclude(FlipEnd::Partly(partly)),
            Outcome::Unknown { why } => {
                let unsettled = Unsettled::new(&self.plan, why);
                self.state = State::Doubting { unsettled, reads: 0 };
            }
        }
    }

    /// The table as it was read after an answer, or why not.
    pub fn on_table(&mut self, read: Result<FlagTable, StoreError>) {
        let State::Confirming { revision, beside } = &mut self.state else { return };
        let (revision, beside) = (*revision, beside.take());
        let end = match &read {
            Ok(table) => self.compare(table, revision, beside),
            Err(_) => FlipEnd::Applied { revision, effective: None, beside },
        };
        self.conclude(end);
        self.table = read.ok().or(self.table.take());
    }

    /// The table as it was read after no answer, and what of the history was read after it.
    pub fn on_look(&mut self, read: Result<FlagTable, StoreError>, past: Past<'_>) {
        let State::Doubting { unsettled, reads } = &mut self.state else { return };
        *reads += 1;
        let settled = if let Ok(table) = &read {
            unsettled.on_read(table, past)
        } else {
            unsettled.on_failed_read();
            None
        };
        // It has landed between the two reads: the next table has it.
        let is_ahead = |table: &FlagTable| match &settled {
            Some(Settled::Stored { revision, .. } | Settled::Overwritten { revision, .. }) => {
                table.revision < *revision
            }
            _ => false,
        };
        if read.as_ref().is_ok_and(is_ahead) && *reads < REREADS_MAX {
            return;
        }
        // Once nothing moves, whoever waits learns it now: a late one is told when it comes.
        let open = (unsettled.is_quiet() || *reads >= REREADS_MAX).then(|| unsettled.clone());
        let end = settled
            .map(|settled| self.end(settled, read.as_ref().ok()))
            .or_else(|| open.map(FlipEnd::Unsettled));
        if let Some(end) = end {
            self.conclude(end);
        }
        self.table = read.ok().or(self.table.take());
    }

    fn end(&self, settled: Settled, table: Option<&FlagTable>) -> FlipEnd {
        match settled {
            Settled::Stored { revision, how } => FlipEnd::Applied {
                revision,
                effective: table.and_then(|table| effective(&self.plan, table)),
                beside: Some(format!("no answer came: {how}")),
            },
            Settled::Overwritten { landed, by, revision } => {
                FlipEnd::Overwritten { landed, by, revision }
            }
            Settled::NotStored { why } => FlipEnd::NotStored { why },
            Settled::Partly(partly) => FlipEnd::Partly(partly),
        }
    }

    /// The conclusion was written, or could not be; the flip is over either way.
    pub fn on_conclusion_written(&mut self, written: Result<(), String>) {
        if let State::Concluding(conclusion) = &self.state {
            self.log_error = written.err();
            self.state = State::Done(conclusion.end.clone());
        }
    }

    fn conclude(&mut self, end: FlipEnd) {
        self.state = State::Concluding(Conclusion {
            request_id: self.plan.request_id.clone(),
            plan: self.plan.name.clone(),
            end,
        });
    }

    fn compare(&self, table: &FlagTable, revision: Revision, beside: Option<String>) -> FlipEnd {
        let as_wanted =
            self.plan.changes.iter().all(|change| {
                table.get(&change.key).is_some_and(|flag| *flag.stored() == change.to)
            });
        if as_wanted {
            return FlipEnd::Applied { revision, effective: effective(&self.plan, table), beside };
        }
        let keys = self.plan.changes.iter().map(|change| change.key.as_str());
        let by = last_author(table, keys);
        FlipEnd::Overwritten { landed: revision, by, revision: table.revision }
    }
}

/// Where flips are written down. Both calls return once the entry is on disk.
pub trait FlipLog: Send + Sync {
    /// Before anything is sent. Says where the log stands with it, in a form that shows later whether it
    /// was cut, for the store to keep; `None` when it has none.
    ///
    /// # Errors
    /// Why it could not be written; the flip is then not sent.
    fn intent(&self, intent: &Intent) -> Result<Option<String>, String>;

    /// When it is over.
    ///
    /// # Errors
    /// Why it could not be written; the flip has happened all the same.
    fn conclusion(&self, conclusion: &Conclusion) -> Result<(), String>;
}

/// What a flip leaves behind.
#[derive(Clone, Debug, PartialEq)]
pub struct FlipReport {
    /// How it ended.
    pub end: FlipEnd,
    /// The last table that was read on the way.
    pub table: Option<FlagTable>,
    /// Why the end could not be written down, if so.
    pub log_error: Option<String>,
}

/// Does what `flip` asks for until it is over. Takes at most [`REREADS_MAX`] reads.
pub async fn carry_out(mut flip: Flip, store: Arc<dyn Store>, log: Arc<dyn FlipLog>) -> FlipReport {
    loop {
        match flip.next() {
            Step::WriteIntent(intent) => {
                let store = Some(store.name().to_owned());
                let (log, intent) = (Arc::clone(&log), Intent { store, ..intent.clone() });
                flip.on_intent_written(on_disk(move || log.intent(&intent)).await);
            }
            Step::Send(plan, author) => {
                let outcome = store.apply(plan, author).await;
                flip.on_outcome(outcome);
            }
            Step::Read { after } => {
                tokio::time::sleep(after).await;
                flip.on_table(store.list().await);
            }
            Step::LookUp { after } => {
                tokio::time::sleep(after).await;
                let able = store.capabilities();
                let read = store.list().await;
                // The table first: what changes between the two then stands in the history.
                let events = match &read {
                    Ok(_) if able.audit => store.events(0).await.ok(),
                    _ => None,
                };
                flip.on_look(read, Past::of(able, events.as_deref()));
            }
            Step::WriteConclusion(conclusion) => {
                let (log, conclusion) = (Arc::clone(&log), conclusion.clone());
                flip.on_conclusion_written(on_disk(move || log.conclusion(&conclusion)).await);
            }
            Step::Done(end) => {
                let end = end.clone();
                return FlipReport { end, table: flip.table, log_error: flip.log_error };
            }
        }
    }
}

/// Runs a write that waits for the disk where it does not hold up the screen.
///
/// # Errors
/// The write's own, or that its thread stopped.
pub async fn on_disk<T: Send + 'static>(
    write: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(write)
        .await
        .unwrap_or_else(|error| Err(format!("the writer to the disk stopped: {error}")))
}

fn event_changes(plan: &Plan, shown: &FlagTable) -> Vec<EventChange> {
    let change = |planned: &super::PlannedChange| {
        let state = shown.get(&planned.key);
        EventChange {
            key: planned.key.clone(),
            base: state.map_or_else(|| planned.from.clone(), |state| state.base.clone()),
            from: state.and_then(|state| state.overridden.clone()),
            to: (!planned.drops_override).then(|| planned.to.clone()),
        }
    };
    plan.changes.iter().map(change).collect()
}

/// Counts the instances that use every value of the plan.
fn effective(plan: &Plan, table: &FlagTable) -> Option<Effective> {
    let uses = |instance: &String| {
        plan.changes.iter().all(|change| {
            let flag = table.get(&change.key);
            flag.and_then(|flag| flag.effective.get(instance)) == Some(&change.to)
        })
    };
    let first = plan.changes.first().and_then(|change| table.get(&change.key))?;
    let of = first.effective.len();
    (of > 0).then(|| Effective { on: first.effective.keys().filter(|name| uses(name)).count(), of })
}
