//! What a diagnosis says: a cause, how sure it is, by which path, on what evidence, and what it lacks.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::onset::Onset;
use crate::signal::Quality;

/// How sure a verdict is. Ordered from weakest to strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Evidence it requires is false.
    RuledOut,
    /// Evidence it requires is unknown.
    CannotTell,
    /// Required evidence is true, and so is evidence against it. Offers no action.
    Contradicted,
    /// Required evidence is true; something that could refute it is unknown or not held long enough.
    Likely,
    /// All required evidence is true and nothing that could refute it is true or unknown.
    Confirmed,
}

impl Standing {
    /// The word used on screen and in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Likely => "likely",
            Self::Contradicted => "contradicted",
            Self::CannotTell => "cannot-tell",
            Self::RuledOut => "ruled-out",
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A truth value of Kleene's strong three-valued logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "`true`, `false` or `unknown`")]
pub enum Truth {
    /// Holds.
    True,
    /// Does not hold.
    False,
    /// Cannot be told; the evidence says why.
    Unknown,
}

impl Truth {
    /// The word used in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::False => "false",
            Self::Unknown => "unknown",
        }
    }

    /// The letter used on screens and in pages.
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Self::True => "T",
            Self::False => "F",
            Self::Unknown => "?",
        }
    }

    /// Both hold: false wins over unknown.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::True, Self::True) => Self::True,
            _ => Self::Unknown,
        }
    }

    /// At least one holds: true wins over unknown.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::True, _) | (_, Self::True) => Self::True,
            (Self::False, Self::False) => Self::False,
            _ => Self::Unknown,
        }
    }

    /// The opposite; what is unknown stays unknown.
    #[must_use]
    pub const fn negate(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
        }
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// One predicate as it was evaluated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "the object of a piece of evidence")]
pub struct Evidence {
    /// Its name in the runbook (`storm`).
    pub name: String,
    /// Its text, as the runbook has it and the screen shows it.
    pub predicate: String,
    /// The signal it reads, for the trend beside it.
    pub signal: String,
    /// What was read, if known.
    pub value: Option<f64>,
    /// What it was compared with, if known.
    pub threshold: Option<f64>,
    /// True, false or unknown.
    pub state: Truth,
    /// The comparison holds, but not yet for as long as the predicate asks.
    pub pending: bool,
    /// Why unknown (`no-data`, `stale`, `thin`, `no-baseline`, `source-error`, `warming-up`), or a remark.
    pub reason: Option<String>,
    /// Seconds that the comparison has held.
    pub held_s: f64,
    /// Source of the reading.
    pub source: Option<String>,
    /// Age of the reading in seconds.
    pub age_s: Option<f64>,
    /// Quality of the reading.
    pub quality: Option<Quality>,
}

/// One step of the walk.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStep {
    /// The node's id in the runbook.
    pub node: String,
    /// The node's title, a question.
    pub title: String,
    /// What was answered there, in words.
    pub branch: String,
}

/// How another cause relates to the one that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It stands, on evidence of its own, and the named cause does not produce it.
    Contributing,
    /// It stands, and what it rests on is what the named cause produces.
    Consequence,
    /// It does not stand, or shows nothing that the named cause does not show as well.
    Other,
}

impl Role {
    /// The word used on screen and in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Contributing => "contributing",
            Self::Consequence => "consequence",
            Self::Other => "other",
        }
    }
}

/// One cause in the ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The cause's id.
    pub cause: String,
    /// How sure.
    pub standing: Standing,
    /// Pieces of evidence for it.
    pub evidence_for: usize,
    /// Pieces of evidence against it.
    pub evidence_against: usize,
    /// Pieces of evidence that are unknown.
    pub evidence_unknown: usize,
    /// How it relates to the cause that is named.
    pub role: Role,
}

/// A signal that the diagnosis wanted and did not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The signal's name.
    pub signal: String,
    /// Why it is missing.
    pub reason: String,
    /// Where it can be had.
    pub fetch: &'static str,
}

/// How much a scope loses. Unknown is `None`, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Toll {
    /// Originals that were not served, per second.
    pub lost_originals_rps: Option<f64>,
    /// Refusals of the provider and of the gate, repeats included, per second.
    pub refused_rps: Option<f64>,
}

/// The outcome of one diagnosis of one scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The cause's id, one of the contract's list.
    pub cause: String,
    /// How sure.
    pub standing: Standing,
    /// The quota scope.
    pub scope: String,
    /// One sentence for a person.
    pub say: String,
    /// The walk, first question first.
    pub path: Vec<PathStep>,
    /// The predicates that were looked at, those on the path first.
    pub evidence: Vec<Evidence>,
    /// The other causes worth a look, best first; ruled-out ones last.
    pub also: Vec<Ranked>,
    /// The signals that were wanted and not there.
    pub missing: Vec<Missing>,
    /// How many of the wanted signals were there.
    pub used: usize,
    /// How many signals were wanted.
    pub of: usize,
    /// The runbook to follow, by id.
    pub runbook: Option<String>,
    /// Where that runbook needs a person first, on this evidence and with no flip made yet.
    pub first: Option<FirstStep>,
    /// The named plan to offer (`contain`): the runbook's own, or the one that its first flip is a part
    /// of and does little without.
    pub plan: Option<String>,
    /// The quota's owner is paged before anything else is done.
    pub pages_owner: bool,
    /// Remarks, such as a clamped value or `at-limit`.
    pub notes: Vec<String>,
    /// How much the scope loses, to order several by.
    pub toll: Toll,
    /// When the key signals moved, the first mover first; empty without a history.
    pub onsets: Vec<Onset>,
}

/// A step of a runbook at which a person acts, answers or has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstStep {
    /// The runbook's id.
    pub runbook: String,
    /// The node's id.
    pub node: String,
    /// What it is about.
    pub title: String,
}

#[cfg(test)]
impl Evidence {
    /// A piece of evidence that reads nothing, for tests to fill in.
    #[must_use]
    pub const fn empty(state: Truth) -> Self {
        Self {
            name: String::new(),
            predicate: String::new(),
            signal: String::new(),
            value: None,
            threshold: None,
            state,
            pending: false,
            reason: None,
            held_s: 0.0,
            source: None,
            age_s: None,
            quality: None,
        }
    }
}

#[cfg(test)]
impl Verdict {
    /// A verdict that says nothing, for tests to fill in.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            cause: String::new(),
            standing: Standing::CannotTell,
            scope: String::new(),
            say: String::new(),
            path: Vec::new(),
            evidence: Vec::new(),
            also: Vec::new(),
            missing: Vec::new(),
            used: 0,
            of: 0,
            runbook: None,
            first: None,
            plan: None,
            pages_owner: false,
            notes: Vec::new(),
            toll: Toll::default(),
            onsets: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Truth::{self, False, True, Unknown};

    #[test]
    fn the_tables_are_kleenes() {
        let and = [
            (True, True, True),
            (True, False, False),
            (True, Unknown, Unknown),
            (False, Unknown, False),
            (False, False, False),
            (Unknown, Unknown, Unknown),
        ];
        for (left, right, expected) in and {
            assert_eq!(left.and(right), expected, "{left:?} and {right:?}");
            assert_eq!(right.and(left), expected, "{right:?} and {left:?}");
            let dual = left.negate().or(right.negate()).negate();
            assert_eq!(dual, expected, "not (not {left:?} or not {right:?})");
        }
        assert_eq!(Truth::from(true).or(Unknown), True);
        assert_eq!(Truth::from(false).or(Unknown), Unknown);
    }
}
