//! The guided walk of one incident along the runbooks: where it stands, what was answered on which
//! evidence, and what comes next. A pure state machine: it flips nothing, reads no clock, and never
//! moves by itself under the reader.
//!
//! `start`, then `view` and one of `advance`, `answer`, `acted` or `skip` until it has ended; `back`,
//! `note` and `hand_over` at any time; `observe` with every new look, so that a passed step says since
//! when it would be answered otherwise. Times are those of the run; `of` gives its zero on the calendar.

mod file;
mod reason;
mod step;

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::admission::FlagValue;
use crate::diagnosis::{
    Book, Evidence, Expr, Facts, Goto, Library, Node, Step, TRIAGE, TRIAGE_STEPS_MAX, Taken, Truth,
    Weighed, taken,
};
use crate::signal::Mono;

pub use file::{MAX_WALK_BYTES, WalkFileError};
pub use reason::{Fork, How, Why};
pub use step::{Frozen, HandOver, Offer, Stuck, View};

/// Most steps of one walk.
const MAX_TRAIL: usize = 500;
/// Longest note or reason, in bytes.
const MAX_NOTE_BYTES: usize = 2_000;
/// Most notes of one walk, and most hand-overs.
const MAX_NOTES: usize = 200;
const MAX_HAND_OVERS: usize = 50;
/// Most pieces of evidence that are frozen with a step.
const MAX_EVIDENCE: usize = 24;

/// The walk of one incident.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    library: Arc<Library>,
    scope: String,
    zero: DateTime<Utc>,
    book: String,
    node: String,
    trail: Vec<Frozen>,
    notes: Vec<String>,
    hand_overs: Vec<HandOver>,
    remarks: Vec<String>,
}

impl Walk {
    /// Starts at the first question of the triage.
    #[must_use]
    pub fn start(library: Arc<Library>) -> Self {
        let node = library.triage().entry.clone();
        Self {
            library,
            scope: String::new(),
            zero: DateTime::UNIX_EPOCH,
            book: TRIAGE.to_owned(),
            node,
            trail: Vec::new(),
            notes: Vec::new(),
            hand_overs: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// The same walk for a quota scope, with the calendar's time at the run's zero.
    #[must_use]
    pub fn of(self, scope: &str, zero: DateTime<Utc>) -> Self {
        Self { scope: scope.to_owned(), zero, ..self }
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

    /// The quota scope; empty when it was not said.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// What was noticed when the walk was opened from a file.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// From whom to whom it went, oldest first.
    #[must_use]
    pub fn hand_overs(&self) -> &[HandOver] {
        &self.hand_overs
    }

    /// The notes at the current step.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
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
        Some(View { book, node, offer: self.offer(book, node, facts)?, evidence })
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

    /// Takes every step of the triage that the evidence decides, to where a cause's own runbook begins:
    /// the way that the diagnosis has just gone.
    pub fn follow_triage(&mut self, facts: &Facts, at: Mono) {
        while self.book == TRIAGE && self.trail.len() < TRIAGE_STEPS_MAX {
            if self.advance(facts, at).is_err() {
                return;
            }
        }
    }

    /// Takes every step that the evidence decides, and every flip that `is_so` says is made already, to
    /// the first one that needs somebody.
    pub fn follow_to_person(
        &mut self,
        facts: &Facts,
        at: Mono,
        is_so: impl Fn(&str, &FlagValue) -> bool,
    ) {
        for _ in 0..TRIAGE_STEPS_MAX {
            let is_decided =
                matches!(self.view(facts).map(|view| view.offer), Some(Offer::Go { .. }));
            let went = if is_decided {
                self.advance(facts, at)
            } else {
                self.pass_what_is_so(facts, at, &is_so)
            };
            if went.is_err() {
                return;
            }
        }
    }

    /// Passes one flip that is made already, by what its check says now.
    ///
    /// # Errors
    /// [`Stuck`] when the node is no flip, or one that would change something.
    pub fn pass_what_is_so(
        &mut self,
        facts: &Facts,
        at: Mono,
        is_so: impl Fn(&str, &FlagValue) -> bool,
    ) -> Result<(), Stuck> {
        let (goto, words) = match self.view(facts).map(|view| view.offer) {
            Some(Offer::Flip { action, verified, .. }) if is_so(&action.flag, &action.set) => {
                let goto = match verified {
                    Truth::True => &action.verified,
                    Truth::False => &action.failed,
                    Truth::Unknown => &action.unknown,
                };
                let words = format!("{} = {}: so already", action.flag, action.set);
                (action.resolve(goto).clone(), words)
            }
            _ => return Err(self.wants("no flip that is made already")),
        };
        self.pass(words, &goto, facts, at, None, false)
    }

    /// Whether nobody has answered, skipped, noted or handed over anything: the evidence alone went here.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        let untouched = |step: &Frozen| step.by.is_none() && step.notes.is_empty();
        self.trail.iter().all(untouched) && self.notes.is_empty() && self.hand_overs.is_empty()
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

    /// Says how a flip went: verified, not, or unknown. Its guard was asked when it was made; a flip that
    /// worked has often taken away what its guard asks for.
    ///
    /// # Errors
    /// [`Stuck`] when the node is no action.
    pub fn acted(&mut self, worked: Truth, by: &str, facts: &Facts, at: Mono) -> Result<(), Stuck> {
        let (goto, words) = match self.view(facts).map(|view| view.offer) {
            Some(Offer::Flip { action, .. }) => {
                let (goto, how) = match worked {
                    Truth::True => (&action.verified, "verified"),
                    Truth::False => (&action.failed, "did not help"),
                    Truth::Unknown => (&action.unknown, "cannot be told"),
                };
                let words = format!("{} = {}: {how}", action.flag, action.set);
                (action.resolve(goto).clone(), words)
            }
            _ => return Err(self.wants("no action")),
        };
        self.pass(words, &goto, facts, at, Some(by), false)
    }

    /// Goes on from an action that nobody carried out.
    ///
    /// # Errors
    /// [`Stuck`] when the node is no action.
    pub fn without(&mut self, by: &str, facts: &Facts, at: Mono) -> Result<(), Stuck> {
        let Some(View { offer: Offer::Flip { action, .. }, .. }) = self.view(facts) else {
            return Err(self.wants("no action"));
        };
        let words = format!("{} = {}: not made", action.flag, action.set);
        let goto = action.resolve(&action.failed).clone();
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

    /// Goes back to the step before and forgets what the evidence answered there; what a person answered
    /// stays there as a note. A step that the library has lost is passed over. False, and nothing
    /// changes, when there is none.
    pub fn back(&mut self) -> bool {
        let known = |step: &Frozen| self.knows(&step.book, &step.node);
        let Some(place) = self.trail.iter().rposition(known) else { return false };
        let gone = self.trail.split_off(place);
        let said = |step: &Frozen| {
            let what = if step.skipped { "skipped" } else { "answered" };
            Some(format!("{} {what}, and it was taken back: {}", step.by.as_ref()?, step.answer))
        };
        let said: Vec<String> = gone.iter().filter_map(said).collect();
        if let Some(last) = gone.into_iter().next() {
            self.book = last.book;
            self.node = last.node;
            self.notes = last.notes;
        }
        let room = MAX_NOTES.saturating_sub(self.notes_so_far());
        self.notes.extend(said.into_iter().take(room));
        true
    }

    /// Leaves a note at the current step.
    ///
    /// # Errors
    /// [`Stuck::Full`] when the walk holds no more.
    pub fn note(&mut self, text: &str, by: &str) -> Result<(), Stuck> {
        if self.notes_so_far() >= MAX_NOTES {
            return Err(Stuck::Full { what: "notes", max: MAX_NOTES });
        }
        self.notes.push(format!("{by}: {}", cut(text)));
        Ok(())
    }

    fn notes_so_far(&self) -> usize {
        self.notes.len() + self.trail.iter().map(|step| step.notes.len()).sum::<usize>()
    }

    /// Writes down that the walk goes from one person to the next.
    ///
    /// # Errors
    /// [`Stuck::Full`] when the walk holds no more.
    pub fn hand_over(&mut self, from: &str, to: &str, text: &str, at: Mono) -> Result<(), Stuck> {
        if self.hand_overs.len() >= MAX_HAND_OVERS {
            return Err(Stuck::Full { what: "hand-overs", max: MAX_HAND_OVERS });
        }
        let (from, to, at) = (cut(from), cut(to), self.wall(at));
        self.hand_overs.push(HandOver { from, to, at, text: cut(text) });
        Ok(())
    }

    /// Takes a new look in: a passed step says since when its evidence says otherwise. Moves nothing.
    pub fn observe(&mut self, facts: &Facts, at: Mono) {
        let now = self.wall(at);
        for place in 0..self.trail.len() {
            let same = self.changed(place, facts).is_empty();
            let step = &mut self.trail[place];
            step.changed_at = if same { None } else { step.changed_at.or(Some(now)) };
        }
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

    /// The calendar's time at an instant of the run.
    fn wall(&self, at: Mono) -> DateTime<Utc> {
        let span = TimeDelta::from_std(at.since_start()).ok();
        span.and_then(|span| self.zero.checked_add_signed(span)).unwrap_or(self.zero)
    }

    fn knows(&self, book: &str, node: &str) -> bool {
        self.library.book(book).is_some_and(|book| book.node(node).is_some())
    }

    fn offer<'a>(&'a self, book: &Book, node: &'a Node, facts: &Facts) -> Option<Offer<'a>> {
        Some(match &node.step {
            Step::Decide { .. } | Step::Rank { .. } => {
                let Taken { place, goto, say, ranked, .. } =
                    taken(&self.library, book, node, facts)?;
                let told = |(id, standing, _): Weighed| {
                    let standing = facts.told(&id, standing);
                    (id, standing)
                };
                Offer::Go { place, say, goto, ranking: ranked.into_iter().map(told).collect() }
            }
            Step::Human { ask, answers } => Offer::Ask { question: ask, answers },
            Step::Action(action) => Offer::Flip {
                action,
                guard: facts.truth(&self.book, &action.guard),
                verified: facts.truth(&self.book, &action.verify),
            },
            Step::End { outcome, say, cause } => {
                Offer::Ended { outcome: *outcome, say, cause: cause.as_deref() }
            }
        })
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
        let passed = Frozen {
            book: self.book.clone(),
            node: self.node.clone(),
            title: view.node.title.clone(),
            answer,
            evidence: view.evidence.iter().take(MAX_EVIDENCE).map(frozen).collect(),
            at: self.wall(at),
            by: by.map(str::to_owned),
            skipped,
            notes: self.notes.clone(),
            changed_at: None,
        };
        self.go(goto)?;
        self.trail.push(passed);
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

/// Evidence as a walk keeps it: numbers to twelve digits, which a file can hold exactly, and none
/// that is not finite.
fn frozen(evidence: &Evidence) -> Evidence {
    let round = |number: f64| format!("{number:.11e}").parse::<f64>().unwrap_or(number);
    let kept = |number: Option<f64>| number.filter(|number| number.is_finite()).map(round);
    Evidence {
        value: kept(evidence.value),
        threshold: kept(evidence.threshold),
        held_s: kept(Some(evidence.held_s)).unwrap_or(0.0),
        age_s: kept(evidence.age_s),
        ..evidence.clone()
    }
}
