//! Runbooks in memory: steps, causes and what they rest on. Knows no file format.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::admission::FlagValue;

use super::expr::Expr;
use super::predicate::Predicate;
use super::verdict::Truth;

/// What a cause rests on. Each entry is an expression over evidence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grounds {
    /// All must be true; one that is false rules the cause out.
    pub requires: Vec<Expr>,
    /// Counted when true, never needed.
    pub supports: Vec<Expr>,
    /// True contradicts; unknown keeps the cause at likely.
    pub refutes: Vec<Expr>,
    /// True contradicts, because another cause explains it better; unknown does not matter.
    pub unless: Vec<Expr>,
    /// True or unknown keeps the cause at likely.
    pub tentative: Vec<Expr>,
}

impl Grounds {
    /// Every expression of every list.
    pub fn all(&self) -> impl Iterator<Item = &Expr> {
        [&self.requires, &self.supports, &self.refutes, &self.unless, &self.tentative]
            .into_iter()
            .flatten()
    }
}

/// One cause that the triage can name.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Its id, one of the contract's list or a team's own.
    pub id: String,
    /// One sentence for a person.
    pub say: String,
    /// What it rests on.
    pub grounds: Grounds,
    /// The named plan to offer.
    pub plan: Option<String>,
    /// Ids of the causes whose evidence this one produces.
    pub feeds: Vec<String>,
    /// Nodes of the triage that ask for it after what they ask for already: how a team's own cause is
    /// named without a triage of its own.
    pub asked_at: Vec<String>,
    /// The quota's owner is paged before anything else is done.
    pub pages_owner: bool,
    /// What ends it for good, for whoever has it under control; may be empty.
    pub lasting: String,
    /// What its flips cost callers and why that is worth it; empty where they cost nothing.
    pub price: String,
}

/// One branch of a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// When it is taken.
    pub when: Expr,
    /// The answer in words.
    pub say: String,
    /// Where it leads.
    pub goto: Goto,
}

/// Where a step leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goto {
    /// A node of the same runbook.
    Node(String),
    /// Another runbook, from its entry.
    Runbook(String),
}

impl Goto {
    /// Reads `node` or `runbook:id`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix("runbook:") {
            Some(id) => Self::Runbook(id.to_owned()),
            None => Self::Node(text.to_owned()),
        }
    }
}

/// One hypothesis of a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What it rests on.
    pub grounds: Grounds,
    /// Where it leads.
    pub goto: Goto,
}

/// A flip of one flag with all its guard rails.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The flag.
    pub flag: String,
    /// The value to set.
    pub set: FlagValue,
    /// Toward the flag's safe end.
    pub safe: bool,
    /// Other flags that must have these values.
    pub needs: BTreeMap<String, FlagValue>,
    /// Must be true; unknown refuses an unsafe flip.
    pub guard: Expr,
    /// The signals that the plan shows.
    pub preview: Vec<String>,
    /// The flag's name has to be typed.
    pub typed: bool,
    /// When a second person is needed, in words.
    pub second_person: Option<String>,
    /// How long the flip lasts.
    pub ttl: Duration,
    /// The timer drops the flip instead of reminding.
    pub reverts: bool,
    /// What shows that it worked.
    pub verify: Expr,
    /// By when.
    pub verify_within: Duration,
    /// Next when it worked.
    pub verified: Goto,
    /// Next when it did not.
    pub failed: Goto,
    /// Next when that cannot be told.
    pub unknown: Goto,
    /// How to take it back.
    pub undo: Option<Undo>,
}

impl Action {
    /// Where a way out leads: [`UNDO`] stands for where the undo does.
    #[must_use]
    pub fn resolve<'a>(&'a self, goto: &'a Goto) -> &'a Goto {
        match (goto, &self.undo) {
            (Goto::Node(target), Some(undo)) if target == UNDO => &undo.goto,
            _ => goto,
        }
    }

    /// Why the flip may not be made on this guard, with `has` for whether a flag has a value; `None`
    /// when it may. What is unknown refuses an unsafe flip only.
    #[must_use]
    pub fn refusal(
        &self,
        guard: Truth,
        mut has: impl FnMut(&str, &FlagValue) -> bool,
    ) -> Option<Refusal> {
        match guard {
            Truth::False => return Some(Refusal::GuardFalse),
            Truth::Unknown if !self.safe => return Some(Refusal::GuardUnknown),
            Truth::True | Truth::Unknown => {}
        }
        let missing = self.needs.iter().find(|(key, value)| !has(key, value));
        missing.map(|(key, value)| Refusal::Needs { key: key.clone(), value: value.clone() })
    }
}

/// Why a runbook's flip may not be made.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Refusal {
    /// There is no reason for it.
    #[error("its guard is false: there is no reason for this flip now")]
    GuardFalse,
    /// Nobody knows whether there is.
    #[error("its guard is unknown: fetch the missing signal first")]
    GuardUnknown,
    /// An interlock is open.
    #[error("it needs {key} = {value} first, stored and on every instance")]
    Needs {
        /// The flag.
        key: String,
        /// The value that it needs.
        value: FlagValue,
    },
}

/// How to take an action back.
#[derive(Clone, Debug, PartialEq)]
pub struct Undo {
    /// The value to set.
    pub set: FlagValue,
    /// Where that leads.
    pub goto: Goto,
}

/// How a runbook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The incident is over.
    Resolved,
    /// Another runbook is the right one.
    NotApplicable,
    /// Cannot be told.
    Inconclusive,
    /// Somebody else has to go on.
    Unresolved,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Takes the first branch that is true.
    Decide {
        /// In order.
        branches: Vec<Branch>,
        /// When every branch is false.
        otherwise: Goto,
        /// When a branch is unknown before any is true.
        unknown: Goto,
    },
    /// Takes the best of several hypotheses, or of several causes.
    Rank {
        /// Hypotheses of its own.
        hypotheses: Vec<Hypothesis>,
        /// Ids of causes, best guess first.
        among: Vec<String>,
        /// When all are ruled out or contradicted.
        none: Goto,
        /// When none stands and some cannot be told.
        unknown: Goto,
    },
    /// Asks a person.
    Human {
        /// The question.
        ask: String,
        /// Answer and where it leads.
        answers: Vec<(String, Goto)>,
    },
    /// Flips a flag.
    Action(Box<Action>),
    /// Ends the walk.
    End {
        /// How.
        outcome: Outcome,
        /// What to do now, in words.
        say: String,
        /// The cause that is named by ending here; only a triage has these.
        cause: Option<String>,
    },
}

/// One node of a runbook.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its id.
    pub id: String,
    /// Its title, a question or an order.
    pub title: String,
    /// The text under it, Markdown.
    pub prose: String,
    /// The evidence to show, by name.
    pub show: Vec<String>,
    /// What it does.
    pub step: Step,
    /// Line of its heading in the file.
    pub line: usize,
}

/// One runbook.
#[derive(Clone, Debug, PartialEq)]
pub struct Book {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Who owns it.
    pub owner: String,
    /// The node where it starts.
    pub entry: String,
    /// Evidence by name.
    pub evidence: BTreeMap<String, Predicate>,
    /// The cause that it treats, if it is a cause's runbook.
    pub cause: Option<Cause>,
    /// Its nodes in the order of the file.
    pub nodes: Vec<Node>,
    /// Tells the text that it was read from: its hash, empty where there is none.
    pub digest: String,
}

impl Book {
    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }
}

/// Why runbooks do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LibraryError {
    /// No triage.
    #[error(
        "there is no runbook `triage`; add triage.runbook.md or leave the built-in one in place"
    )]
    NoTriage,
    /// Two files with one id.
    #[error("the runbook `{id}` is there twice; give one of them another id")]
    Twice {
        /// The id.
        id: String,
    },
    /// A name that stands for nothing.
    #[error(
        "runbook `{book}`: evidence `{name}` is defined neither there nor in triage; add it under [evidence]"
    )]
    NoEvidence {
        /// The runbook.
        book: String,
        /// The name.
        name: String,
    },
    /// A target that is not there.
    #[error("runbook `{book}`: `{target}` is neither a node nor a runbook; check the spelling")]
    NoTarget {
        /// The runbook.
        book: String,
        /// The target.
        target: String,
    },
    /// A cause is to be asked for where nothing is ranked.
    #[error(
        "runbook `{book}`: asked_at: `{node}` is no rank node of the triage; name one, such as `pressure`"
    )]
    NoRank {
        /// The runbook.
        book: String,
        /// The node.
        node: String,
    },
}

/// Puts the causes that say where they are asked for into the triage.
fn ask_for_all(books: &mut BTreeMap<String, Arc<Book>>) -> Result<(), LibraryError> {
    let asked: Vec<(String, String)> = books
        .values()
        .filter_map(|book| book.cause.as_ref())
        .flat_map(|cause| cause.asked_at.iter().map(|node| (cause.id.clone(), node.clone())))
        .collect();
    let triage = Arc::make_mut(books.get_mut(TRIAGE).ok_or(LibraryError::NoTriage)?);
    for (cause, at) in asked {
        let step = triage.nodes.iter_mut().find(|node| node.id == at).map(|node| &mut node.step);
        let Some(Step::Rank { among, .. }) = step else {
            return Err(LibraryError::NoRank { book: cause, node: at });
        };
        if !among.contains(&cause) {
            among.push(cause);
        }
    }
    Ok(())
}

/// All runbooks, with the triage that leads to them. Checked as a whole when it is built.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    books: BTreeMap<String, Arc<Book>>,
}

/// Id of the root-cause decision tree.
pub const TRIAGE: &str = "triage";

impl Library {
    /// Puts runbooks together.
    ///
    /// # Errors
    /// [`LibraryError`] when one is missing, doubled, or names evidence or a target that is not there.
    pub fn new(books: impl IntoIterator<Item = Book>) -> Result<Self, LibraryError> {
        let mut by_id = BTreeMap::new();
        for book in books {
            let id = book.id.clone();
            if by_id.insert(id.clone(), Arc::new(book)).is_some() {
                return Err(LibraryError::Twice { id });
            }
        }
        ask_for_all(&mut by_id)?;
        let library = Self { books: by_id };
        library.books.values().try_for_each(|book| library.check(book))?;
        Ok(library)
    }

    /// The same runbooks with one of them put in, in place of the one of its id.
    ///
    /// # Errors
    /// [`LibraryError`] when it names evidence or a target that is not there.
    pub fn with(&self, book: Book) -> Result<Self, LibraryError> {
        let mut library = self.clone();
        let book = Arc::new(book);
        library.books.insert(book.id.clone(), Arc::clone(&book));
        ask_for_all(&mut library.books)?;
        library.check(&book)?;
        Ok(library)
    }

    /// The root-cause decision tree.
    ///
    /// # Panics
    /// Never: [`Library::new`] refuses to build one without.
    #[must_use]
    pub fn triage(&self) -> &Book {
        self.books.get(TRIAGE).expect("a library is built with a triage")
    }

    /// The runbook with this id.
    #[must_use]
    pub fn book(&self, id: &str) -> Option<&Book> {
        self.books.get(id).map(Arc::as_ref)
    }

    /// Every runbook, by id.
    pub fn books(&self) -> impl Iterator<Item = &Book> {
        self.books.values().map(Arc::as_ref)
    }

    /// The cause with this id.
    #[must_use]
    pub fn cause(&self, id: &str) -> Option<&Cause> {
        self.book(id)?.cause.as_ref()
    }

    /// The predicate that a name stands for in a runbook: its own, else the triage's.
    #[must_use]
    pub fn predicate<'a>(&'a self, book: &'a Book, name: &str) -> Option<&'a Predicate> {
        book.evidence.get(name).or_else(|| self.triage().evidence.get(name))
    }

    fn check(&self, book: &Book) -> Result<(), LibraryError> {
        for name in evidence_names(book) {
            if self.predicate(book, name).is_none() {
                let (book, name) = (book.id.clone(), name.to_owned());
                return Err(LibraryError::NoEvidence { book, name });
            }
        }
        let found = |goto: &Goto| match goto {
            Goto::Node(id) => book.node(id).is_some(),
            // Other runbooks may come from elsewhere; the linter warns of them.
            Goto::Runbook(id) => book.id != TRIAGE || self.books.contains_key(id),
        };
        let lost = |target: &str| LibraryError::NoTarget {
            book: book.id.clone(),
            target: target.to_owned(),
        };
        if book.node(&book.entry).is_none() {
            return Err(lost(&book.entry));
        }
        for node in &book.nodes {
            for goto in node.step.targets() {
                if !found(goto) {
                    let (Goto::Node(target) | Goto::Runbook(target)) = goto;
                    return Err(lost(target));
                }
            }
            if let Step::Rank { among, .. } = &node.step
                && let Some(target) = among.iter().find(|id| self.cause(id).is_none())
            {
                return Err(lost(target));
            }
        }
        Ok(())
    }
}

/// The evidence that a runbook names anywhere, repeats included.
pub fn evidence_names(book: &Book) -> impl Iterator<Item = &str> {
    let cause = book.cause.iter().flat_map(|cause| cause.grounds.all()).flat_map(Expr::names);
    let nodes = book.nodes.iter().flat_map(|node| {
        node.show.iter().map(String::as_str).chain(node.step.expressions().flat_map(Expr::names))
    });
    cause.chain(nodes)
}

impl Step {
    /// Every way out.
    #[must_use]
    pub fn targets(&self) -> Vec<&Goto> {
        match self {
            Self::Decide { branches, otherwise, unknown } => {
                branches.iter().map(|branch| &branch.goto).chain([otherwise, unknown]).collect()
            }
            Self::Rank { hypotheses, none, unknown, .. } => hypotheses
                .iter()
                .map(|hypothesis| &hypothesis.goto)
                .chain([none, unknown])
                .collect(),
            Self::Human { answers, .. } => answers.iter().map(|(_, goto)| goto).collect(),
            Self::Action(action) => [&action.verified, &action.failed, &action.unknown]
                .into_iter()
                .chain(action.undo.iter().map(|undo| &undo.goto))
                .filter(|goto| **goto != Goto::Node(UNDO.to_owned()))
                .collect(),
            Self::End { .. } => Vec::new(),
        }
    }

    /// Every expression over evidence.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let found: Vec<&Expr> = match self {
            Self::Decide { branches, .. } => branches.iter().map(|branch| &branch.when).collect(),
            Self::Rank { hypotheses, .. } => {
                hypotheses.iter().flat_map(|hypothesis| hypothesis.grounds.all()).collect()
            }
            Self::Action(action) => vec![&action.guard, &action.verify],
            Self::Human { .. } | Self::End { .. } => Vec::new(),
        };
        found.into_iter()
    }
}

/// The target that stands for an action's own undo.
pub const UNDO: &str = "undo";
