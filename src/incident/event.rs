//! What can happen in an incident, as the journal keeps it and the screen and report show it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::flag::wire::{EventChangeRow, WireOnExpire};
use crate::flag::{Conclusion, FlipEnd, Intent, Marks, Plan, Progress};

/// One thing that happened. The journal's `event`, told apart by `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// A plan was opened.
    Plan {
        /// Its name.
        name: String,
        /// `key from -> to`, one per change.
        changes: Vec<String>,
        /// The guard that refuses it.
        refused: Option<String>,
    },
    /// A flip is about to be sent. Written before anything leaves.
    Flip {
        /// Joins flip, outcome and verification.
        request_id: String,
        /// The plan's name.
        plan: String,
        /// The revision that was shown.
        revision: u64,
        /// Who.
        actor: String,
        /// The incident that it belongs to.
        incident: Option<String>,
        /// Why.
        reason: String,
        /// What will change.
        changes: Vec<EventChangeRow>,
        /// Seconds until the timer.
        ttl_s: Option<u64>,
        /// What the timer does.
        on_expire: WireOnExpire,
        /// What will be verified.
        verify: String,
        /// The store that it goes to, by name; older entries do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        store: Option<String>,
        /// What few flips have.
        #[serde(flatten)]
        notes: Box<FlipNotes>,
    },
    /// How the flip ended.
    Outcome {
        /// Joins flip, outcome and verification.
        request_id: String,
        /// The plan's name.
        plan: String,
        /// `applied`, `conflict`, `refused`, `unsettled`, ...
        end: String,
        /// One sentence.
        say: String,
    },
    /// Whether its effect showed.
    Verify {
        /// Joins flip, outcome and verification.
        request_id: String,
        /// The plan's name.
        plan: String,
        /// `verified`, `effect-seen`, `failed` or `unknown`.
        state: String,
        /// What is known, unless verified.
        why: Option<String>,
    },
    /// In a store without a history, somebody has changed flags past weir.
    Seen {
        /// The store, by name.
        store: String,
        /// The revision that was read.
        revision: u64,
        /// When it was not so yet; null when only the journal tells what was before.
        since: Option<DateTime<Utc>>,
        /// What has changed.
        changes: Vec<EventChangeRow>,
    },
    /// A person wrote something down.
    Note {
        /// Who.
        actor: String,
        /// What.
        text: String,
    },
    /// The journal's last line was incomplete, after a crash, and was cut off.
    Torn {
        /// How much was cut.
        bytes: u64,
    },
    /// Written by a newer weir.
    #[serde(other)]
    Other,
}

/// What is kept of some flips beside what all have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlipNotes {
    /// The flip whose timer this is, by its request; absent for what a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_of: Option<String>,
    /// Which interlocks it was to pass, and why.
    #[serde(flatten)]
    pub marks: Marks,
}

impl Event {
    /// A plan as it was shown.
    #[must_use]
    pub fn plan(plan: &Plan) -> Self {
        let change = |change: &crate::flag::PlannedChange| {
            format!("{} {} -> {}", change.key, change.from, change.to)
        };
        Self::Plan {
            name: plan.name.clone(),
            changes: plan.changes.iter().map(change).collect(),
            refused: plan.refused().map(|guard| guard.text.clone()),
        }
    }

    /// The end of a verification; `None` while it is pending.
    #[must_use]
    pub fn verify(plan: &Plan, progress: &Progress) -> Option<Self> {
        let why = match progress {
            Progress::Pending { .. } => return None,
            Progress::Verified => None,
            Progress::EffectSeen { known: why }
            | Progress::Failed { why }
            | Progress::Unknown { why } => Some(why.clone()),
        };
        Some(Self::Verify {
            request_id: plan.request_id.clone(),
            plan: plan.name.clone(),
            state: progress.word().to_owned(),
            why,
        })
    }

    /// The flip by which a timer leads back: that of the flip whose request had this id.
    #[must_use]
    pub fn timer(intent: &Intent, of: &str) -> Self {
        let mut event = Self::from(intent);
        if let Self::Flip { notes, .. } = &mut event {
            notes.timer_of = Some(of.to_owned());
        }
        event
    }

    /// One line for screen and report.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Plan { name, changes, refused } => {
                let refused = refused
                    .as_ref()
                    .map_or_else(String::new, |guard| format!(", refused by: {guard}"));
                format!("plan {name}: {}{refused}", changes.join(", "))
            }
            Self::Flip { plan, actor, reason, revision, notes, .. } => {
                let glass =
                    notes.marks.broken_glass().map_or_else(String::new, |said| format!("; {said}"));
                format!("flip {plan} by {actor} at revision {revision}: {reason}{glass}")
            }
            Self::Outcome { plan, say, .. } => format!("flip {plan}: {say}"),
            Self::Verify { plan, state, why, .. } => {
                let why = why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                format!("effect of {plan} {state}{why}")
            }
            Self::Seen { changes, .. } => {
                let keys: Vec<&str> = changes.iter().map(|change| change.key.as_str()).collect();
                format!("changed past weir by somebody: {}", keys.join(", "))
            }
            Self::Note { actor, text } => format!("note by {actor}: {text}"),
            Self::Torn { bytes } => {
                format!("journal: {bytes} bytes of an unfinished line were cut")
            }
            Self::Other => "an event of a newer weir".to_owned(),
        }
    }

    /// Whether it must be on disk before work goes on.
    pub(super) const fn is_durable(&self) -> bool {
        matches!(self, Self::Flip { .. } | Self::Outcome { .. } | Self::Torn { .. })
    }
}

impl From<&Intent> for Event {
    fn from(intent: &Intent) -> Self {
        Self::Flip {
            request_id: intent.request_id.clone(),
            plan: intent.plan.clone(),
            revision: intent.revision.0,
            actor: intent.author.actor.clone(),
            incident: intent.author.incident.clone(),
            reason: intent.reason.clone(),
            changes: intent.changes.iter().map(EventChangeRow::from).collect(),
            ttl_s: intent.ttl_s,
            on_expire: intent.on_expire.into(),
            verify: intent.verify.clone(),
            store: intent.store.clone(),
            notes: Box::new(FlipNotes { timer_of: None, marks: intent.marks.clone() }),
        }
    }
}

impl From<&Conclusion> for Event {
    fn from(conclusion: &Conclusion) -> Self {
        let end: &FlipEnd = &conclusion.end;
        Self::Outcome {
            request_id: conclusion.request_id.clone(),
            plan: conclusion.plan.clone(),
            end: end.word().to_owned(),
            say: end.say(),
        }
    }
}
