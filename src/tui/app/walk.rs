//! The walk of one incident: answers given so far stay as they were given.
//!
//! A storm's evidence moves while a person reads. An answer keeps its moment and its words; when the
//! same question would be answered otherwise now, it is marked, never silently replaced.

use chrono::{DateTime, Utc};

use crate::diagnosis::{PathStep, Truth, Verdict};

/// Answers kept; a tree is far shallower.
pub const STEPS_MAX: usize = 64;

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// The question and what was answered.
    pub step: PathStep,
    /// When.
    pub at: DateTime<Utc>,
    /// What would be answered now, where that differs.
    pub changed: Option<String>,
    /// Since when it differs.
    pub changed_at: Option<DateTime<Utc>>,
}

impl Answered {
    /// Marks it with what would be answered now, and since when that is another answer.
    fn differs(&mut self, now: Option<String>, at: DateTime<Utc>) {
        self.changed_at = now.is_some().then(|| self.changed_at.unwrap_or(at));
        self.changed = now;
    }
}

/// The answers so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Walk {
    /// The quota scope.
    pub scope: String,
    /// The cause that the answers led to.
    pub cause: String,
    /// First question first.
    pub steps: Vec<Answered>,
    /// The state of each predicate when it was first seen, by name.
    pub first_seen: Vec<(String, Truth)>,
    /// Rows scrolled down.
    pub scroll: usize,
}

impl Walk {
    /// A walk that begins with a verdict.
    #[must_use]
    pub fn begin(verdict: Option<&Verdict>, at: DateTime<Utc>) -> Self {
        let mut walk = Self::default();
        if let Some(verdict) = verdict {
            walk.scope.clone_from(&verdict.scope);
            walk.follow(verdict, at);
        }
        walk
    }

    /// Takes a newer verdict: adds answers beyond the last one, marks those that differ.
    pub fn follow(&mut self, verdict: &Verdict, at: DateTime<Utc>) {
        if verdict.scope != self.scope {
            *self = Self { scope: verdict.scope.clone(), ..Self::default() };
        }
        let mut same_so_far = true;
        for (answered, live) in self.steps.iter_mut().zip(&verdict.path) {
            let same = answered.step.node == live.node && answered.step.branch == live.branch;
            answered.differs((!same).then(|| live.branch.clone()), at);
            same_so_far &= same;
        }
        for answered in self.steps.iter_mut().skip(verdict.path.len()) {
            answered.differs(Some("no longer asked".to_owned()), at);
            same_so_far = false;
        }
        if same_so_far {
            self.cause.clone_from(&verdict.cause);
            for live in verdict.path.iter().skip(self.steps.len()).take(STEPS_MAX) {
                self.steps.push(Answered {
                    step: live.clone(),
                    at,
                    changed: None,
                    changed_at: None,
                });
            }
        }
        for evidence in verdict.evidence.iter().take(STEPS_MAX) {
            if !self.first_seen.iter().any(|(name, _)| *name == evidence.name) {
                self.first_seen.push((evidence.name.clone(), evidence.state));
            }
        }
    }

    /// Whether it is still the path to what is named: not where it leads to another cause by now.
    #[must_use]
    pub fn is_of(&self, verdict: &Verdict) -> bool {
        self.scope == verdict.scope && self.cause == verdict.cause
    }

    /// Whether an answer would be another one now.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.steps.iter().any(|answered| answered.changed.is_some())
    }

    /// The state in which a predicate was first seen.
    #[must_use]
    pub fn first_state(&self, name: &str) -> Option<Truth> {
        self.first_seen.iter().find(|(known, _)| known == name).map(|(_, state)| *state)
    }
}
