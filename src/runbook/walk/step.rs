//! The parts of a walk: a passed step, what the current one asks for, and why it cannot be taken.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::MAX_TRAIL;
use crate::diagnosis::{Action, Book, Evidence, Goto, Node, Outcome, Standing, Truth};

/// A step that was passed, as it was when it was passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "the object of a step")]
pub struct Frozen {
    /// The runbook.
    #[serde(rename = "runbook")]
    pub book: String,
    /// The node.
    pub node: String,
    /// Its title.
    pub title: String,
    /// What was answered, in words.
    pub answer: String,
    /// The evidence that the node shows, frozen.
    pub evidence: Vec<Evidence>,
    /// When.
    pub at: DateTime<Utc>,
    /// Who answered, `None` when the evidence did.
    pub by: Option<String>,
    /// Skipped by a person, with the reason as the answer.
    pub skipped: bool,
    /// Notes that people left there.
    pub notes: Vec<String>,
    /// Since when its evidence says otherwise than it did.
    pub changed_at: Option<DateTime<Utc>>,
}

/// The walk went from one person to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with from, to, at and text")]
pub struct HandOver {
    /// Who had it.
    pub from: String,
    /// Who takes it.
    pub to: String,
    /// When.
    pub at: DateTime<Utc>,
    /// What the next one has to know.
    pub text: String,
}

/// What the current node asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer<'a> {
    /// The evidence decides; [`Walk::advance`] goes there.
    Go {
        /// Its place among the forks of [`super::Why`].
        place: usize,
        /// The answer, in words.
        say: String,
        /// Where it leads.
        goto: Goto,
        /// How each hypothesis or cause of a ranking stands; empty for a decision.
        ranking: Vec<(String, Standing)>,
    },
    /// A person decides; [`Walk::answer`] takes the place of the answer.
    Ask {
        /// The question.
        question: &'a str,
        /// The answers, in the order of the file.
        answers: &'a [(String, Goto)],
    },
    /// A flip is on offer; [`Walk::acted`] says how it went.
    Flip {
        /// The flip.
        action: &'a Action,
        /// Its guard now; unknown refuses an unsafe flip.
        guard: Truth,
        /// What would show that it worked, now.
        verified: Truth,
    },
    /// The walk has ended.
    Ended {
        /// How.
        outcome: Outcome,
        /// What to do now.
        say: &'a str,
        /// The cause that is named by ending here.
        cause: Option<&'a str>,
    },
}

/// The current step for the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct View<'a> {
    /// The runbook.
    pub book: &'a Book,
    /// The node.
    pub node: &'a Node,
    /// What it asks for.
    pub offer: Offer<'a>,
    /// Its evidence now.
    pub evidence: Vec<Evidence>,
}

/// Why a step could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Stuck {
    /// The node wants something else.
    #[error("step `{node}` wants {wanted}")]
    Wants {
        /// The node.
        node: String,
        /// What it wants.
        wanted: &'static str,
    },
    /// No such target.
    #[error("`{target}` is not loaded; add that runbook or go back")]
    NoTarget {
        /// The target.
        target: String,
    },
    /// The walk is too long.
    #[error("the walk has {MAX_TRAIL} steps; begin a new one")]
    TooLong,
    /// There are too many of something.
    #[error("the walk holds {max} {what} already; begin a new one")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
}
