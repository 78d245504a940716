//! The guided walk of one incident along the runbooks: where it stands, what was answered on which
//! evidence, and what comes next. A pure state machine: it flips nothing, reads no clock, and never
//! moves by itself under the reader.

use std::collections::BTreeSet;
use std::sync::Arc;

use thiserror::Error;

use crate::diagnosis::{
    Action, Book, Evidence, Expr, Facts, Goto, Library, Node, Outcome, Standing, Step, TRIAGE,
    Truth, UNDO, choose, decision, ranking,
};
use crate::signal::Mono;

/// Most steps of one walk.
const MAX_TRAIL: usize = 500;
/// Longest note or reason, in bytes.
const MAX_NOTE_BYTES: usize = 2_000;

/// A step that was passed, as it was when it was passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Frozen {
    /// The runbook.
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
    pub at: Mono,
    /// Who answered, `None` when the evidence did.
    pub by: Option<String>,
    /// Skipped by a person, with the reason as the answer.
    pub skipped: bool,
    /// Notes that people left there.
    pub notes: Vec<String>,
}

/// What the current node asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer<'a> {
    /// The evidence decides; [`Walk::advance`] goes there.
    Go {
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
    /// The guard of a flip does not hold.
    #[error("the guard of `{node}` is {guard}; {remedy}", guard = guard.word())]
    Guarded {
        /// The node.
        node: String,
        /// The guard's truth.
        guard: Truth,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The walk is too long.
    #[error("the walk has {MAX_TRAIL} steps; begin a new one")]
    TooLong,
}

/// The walk of one incident.
#[derive(Clone, Debug)]
pub struct Walk {
    library: Arc<Library>,
    book: String,
    node: String,
    trail: Vec<Frozen>,
    notes: Vec<String>,
}

impl Walk {
    /// Starts at the first question of the triage.
    #[must_use]
    pub fn start(library: Arc<Library>) -> Self {
        let node = library.triage().entry.clone();
        Self { library, book: TRIAGE.to_owned(), node, trail: Vec::new(), notes: Vec::new() }
    }

    /// Starts at the entry of one runbook.
    ///
    /// # Errors
    /// [`Stuck::NoTarget`] when it is not loaded.
    pub fn start_in(library: Arc<Library>, book: &str) -> Result<Self, Stuck> {
        let mut walk = Self::start(library);
        walk.go(&Goto::Runbook(book.to_owned()))?;
        Ok(walk)
    }

    /// The steps that were passed, oldest first.
    #[must_use]
    pub fn trail(&self) -> &[Frozen] {
        &self.trail
    }

    /// The runbook and node where the walk stands.
    #[must_use]
    pub fn position(&self) -> (&str, &str) {
        (&self.book, &self.node)
    }

    /// The current step on the evidence of now. `None` only when the library has lost the node.
    #[must_use]
    pub fn view(&self, facts: &Facts) -> Option<View<'_>> {
        let book = self.library.book(&self.book)?;
        let node = book.node(&self.node)?;
        let evidence = self.evidence_of(node, facts);
        Some(View { book, node, offer: self.offer(node, facts), evidence })
    }

    /// Takes the way that the evidence offers and freezes the step.
    ///
    /// # Errors
    /// [`Stuck`] when a person has to answer or to act here.
    pub fn advance(&mut self, facts: &Facts, at: Mono) -> Result<(), Stuck> {
        let Some(View { offer: Offer::Go { say, goto, .. }, .. }) = self.view(facts) else {
            return Err(self.wants("an answer or an action, or has ended"));
        };
        self.pass(say, &goto, facts, at, None, false)
    }

    /// Gives a person's answer by its place in the list.
    ///
    /// # Errors
    /// [`Stuck`] when the node asks nothing or there is no such answer.
    pub fn answer(&mut self, place: usize, by: &str, facts: &Facts, at: Mono) -> Result<(), Stuck> {
        let chosen = match self.view(facts).map(|view| view.offer) {
            Some(Offer::Ask { answers, .. }) => answers.get(place).cloned(),
            _ => None,
        };
        let Some((words, goto)) = chosen else { return Err(self.wants("one of its own answers")) };
        self.pass(words, &goto, facts, at, Some(by), false)
    }

    /// Says how a flip went: verified, not, or unknown.
    ///
    /// # Errors
    /// [`Stuck`] when the node is no action, or its guard refuses it.
    pub fn acted(&mut self, worked: Truth, by: &str, facts: &Facts, at: Mono) -> Result<(), Stuck> {
        let (goto, words) = match self.view(facts).map(|view| view.offer) {
            Some(Offer::Flip { action, guard, .. }) => {
                self.check_guard(action, guard)?;
                let (goto, how) = match worked {
                    Truth::True => (&action.verified, "verified"),
                    Truth::False => (&action.failed, "did not help"),
                    Truth::Unknown => (&action.unknown, "cannot be told"),
                };
                let goto = match (goto, &action.undo) {
                    (Goto::Node(target), Some(undo)) if target == UNDO => undo.goto.clone(),
                    _ => goto.clone(),
                };
                (goto, format!("{} = {}: {how}", action.flag, action.set))
            }
            _ => return Err(self.wants("no action")),
        };
        self.pass(words, &goto, facts, at, Some(by), false)
    }

    /// Goes elsewhere than the evidence says, for a reason that is kept.
    ///
    /// # Errors
    /// [`Stuck::NoTarget`] when there is no such place.
    pub fn skip(
        &mut self,
        goto: &Goto,
        reason: &str,
        by: &str,
        facts: &Facts,
        at: Mono,
    ) -> Result<(), Stuck> {
        self.pass(cut(reason), goto, facts, at, Some(by), true)
    }

    /// Goes back to the step before and forgets what was answered there. False at the start.
    pub fn back(&mut self) -> bool {
        let Some(last) = self.trail.pop() else { return false };
        self.book = last.book;
        self.node = last.node;
        self.notes = last.notes;
        true
    }

    /// Leaves a note at the current step.
    pub fn note(&mut self, text: &str, by: &str) {
        self.notes.push(format!("{by}: {}", cut(text)));
    }

    /// The names of the evidence of a passed step whose truth is another one now.
    #[must_use]
    pub fn changed(&self, place: usize, facts: &Facts) -> Vec<String> {
        let Some(step) = self.trail.get(place) else { return Vec::new() };
        step.evidence
            .iter()
            .filter(|old| facts.seen(&step.book, &old.name).state != old.state)
            .map(|old| old.name.clone())
            .collect()
    }

    fn offer<'a>(&'a self, node: &'a Node, facts: &Facts) -> Offer<'a> {
        match &node.step {
            Step::Decide { .. } => {
                let (goto, say, _) = decision(node, &|name| facts.seen(&self.book, name).state);
                Offer::Go { say, goto, ranking: Vec::new() }
            }
            Step::Rank { .. } => {
                let ranked = self
                    .library
                    .book(&self.book)
                    .map(|book| ranking(&self.library, book, node, facts))
                    .unwrap_or_default();
                let (goto, say) = choose(node, &ranked, facts);
                let told = |(id, standing, _): (String, Standing, Goto)| {
                    let standing = facts.told(&id, standing);
                    (id, standing)
                };
                let ranking = ranked.into_iter().map(told).collect();
                Offer::Go { say, goto, ranking }
            }
            Step::Human { ask, answers } => Offer::Ask { question: ask, answers },
            Step::Action(action) => Offer::Flip {
                action,
                guard: self.truth(&action.guard, facts),
                verified: self.truth(&action.verify, facts),
            },
            Step::End { outcome, say, cause } => {
                Offer::Ended { outcome: *outcome, say, cause: cause.as_deref() }
            }
        }
    }

    fn truth(&self, expr: &Expr, facts: &Facts) -> Truth {
        expr.eval(&mut |name| facts.seen(&self.book, name).state)
    }

    fn evidence_of(&self, node: &Node, facts: &Facts) -> Vec<Evidence> {
        let named = node.step.expressions().flat_map(Expr::names);
        let mut done = BTreeSet::new();
        let mut shown = Vec::new();
        for name in node.show.iter().map(String::as_str).chain(named) {
            if done.insert(name) {
                shown.extend(facts.get(&self.book, name));
            }
        }
        shown
    }

    fn check_guard(&self, action: &Action, guard: Truth) -> Result<(), Stuck> {
        let remedy = match guard {
            Truth::True => return Ok(()),
            Truth::Unknown if action.safe => return Ok(()),
            Truth::False => "there is no reason for this flip now",
            Truth::Unknown => "fetch the missing signal before a flip away from the safe end",
        };
        Err(Stuck::Guarded { node: self.node.clone(), guard, remedy })
    }

    fn wants(&self, wanted: &'static str) -> Stuck {
        Stuck::Wants { node: self.node.clone(), wanted }
    }

    fn pass(
        &mut self,
        answer: String,
        goto: &Goto,
        facts: &Facts,
        at: Mono,
        by: Option<&str>,
        skipped: bool,
    ) -> Result<(), Stuck> {
        if self.trail.len() >= MAX_TRAIL {
            return Err(Stuck::TooLong);
        }
        let Some(view) = self.view(facts) else { return Err(self.wants("to be loaded again")) };
        let frozen = Frozen {
            book: self.book.clone(),
            node: self.node.clone(),
            title: view.node.title.clone(),
            answer,
            evidence: view.evidence,
            at,
            by: by.map(str::to_owned),
            skipped,
            notes: self.notes.clone(),
        };
        self.go(goto)?;
        self.trail.push(frozen);
        self.notes.clear();
        Ok(())
    }

    fn go(&mut self, goto: &Goto) -> Result<(), Stuck> {
        let (book, node) = match goto {
            Goto::Node(id) => (self.library.book(&self.book), Some(id.as_str())),
            Goto::Runbook(id) => (self.library.book(id), None),
        };
        let (Goto::Node(target) | Goto::Runbook(target)) = goto;
        let lost = || Stuck::NoTarget { target: target.clone() };
        let book = book.ok_or_else(lost)?;
        let node = book.node(node.unwrap_or(&book.entry)).ok_or_else(lost)?;
        self.node = node.id.clone();
        self.book = book.id.clone();
        Ok(())
    }
}

fn cut(text: &str) -> String {
    let end = (0..=text.len().min(MAX_NOTE_BYTES))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    text[..end].to_owned()
}
