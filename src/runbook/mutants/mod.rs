//! What can be changed in a runbook so that its tests should notice: every mutant of one file, as data.
//! Runs nothing. What can be shown from the structure alone to change nothing is left out.
//!
//! `supports` is left out: it is counted beside a standing and changes none.

mod expr;
mod predicate;

use crate::diagnosis::{Action, Book, Expr, Goto, Grounds, Predicate, Step};

use self::expr::{same, variants};
use self::predicate::changed;
use super::sheet::Sheet;

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// The line of what is changed.
    pub(super) line: usize,
    /// What is changed and how, in words.
    pub(super) what: String,
    /// How a test would notice.
    pub(super) remedy: &'static str,
    pub(super) change: Change,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Another predicate under the same name.
    Predicate {
        /// The evidence.
        name: String,
        /// Whether the threshold is moved, or something else.
        threshold: bool,
        predicate: Box<Predicate>,
    },
    /// Another runbook under the same id.
    Book(Box<Book>),
}

/// Every mutant of a file, evidence first.
pub(super) fn mutants(sheet: &Sheet) -> Vec<Mutant> {
    let mut found = predicates(sheet);
    let book = &sheet.book;
    for (slot, expr) in slots(book) {
        let line = sheet.expr_line(&expr, slot.heading_line(book));
        let place = slot.place(book);
        for (how, changed) in variants(&expr) {
            if same(&expr, &changed) {
                continue;
            }
            let mut other = book.clone();
            if let Some(expr) = slot.of(&mut other) {
                *expr = changed;
            }
            found.push(mutant(line, format!("{place} `{expr}`: {how}"), slot.remedy(), other));
        }
        let mut other = book.clone();
        if let Some(how) = slot.take_out(&mut other) {
            found.push(mutant(line, format!("{place} `{expr}`: {how}"), slot.remedy(), other));
        }
    }
    found.extend(swaps(book));
    found
}

fn mutant(line: usize, what: String, remedy: &'static str, book: Book) -> Mutant {
    Mutant { line, what, remedy, change: Change::Book(Box::new(book)) }
}

fn predicates(sheet: &Sheet) -> Vec<Mutant> {
    let mut found = Vec::new();
    for (name, predicate) in &sheet.book.evidence {
        let line = sheet.evidence_lines.get(name).copied().unwrap_or(1);
        for (how, threshold, changed) in changed(predicate) {
            let what = format!("evidence {name} `{}`: {how}", predicate.text);
            // The text is what one predicate is told from another by.
            let text = format!("{} ({how})", predicate.text);
            let predicate = Box::new(Predicate { text, ..changed });
            let name = name.clone();
            let remedy = if threshold {
                "write a [[pin]] with `holds` and `fails` closer to it"
            } else {
                "write a [[pin]] with `after`, or `stays` and `clears`"
            };
            let change = Change::Predicate { name, threshold, predicate };
            found.push(Mutant { line, what, remedy, change });
        }
    }
    found
}

/// A list of a cause or hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Requires,
    Refutes,
    Unless,
    Tentative,
}

impl List {
    const ALL: [Self; 4] = [Self::Requires, Self::Refutes, Self::Unless, Self::Tentative];

    const fn word(self) -> &'static str {
        match self {
            Self::Requires => "requires",
            Self::Refutes => "refutes",
            Self::Unless => "unless",
            Self::Tentative => "tentative",
        }
    }

    const fn of(self, grounds: &mut Grounds) -> &mut Vec<Expr> {
        match self {
            Self::Requires => &mut grounds.requires,
            Self::Refutes => &mut grounds.refutes,
            Self::Unless => &mut grounds.unless,
            Self::Tentative => &mut grounds.tentative,
        }
    }
}

/// Where an expression stands.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Cause(List, usize),
    Branch { node: usize, branch: usize },
    Hypothesis { node: usize, hypothesis: usize, list: List, place: usize },
    Guard { node: usize },
    Verify { node: usize },
}

/// Every expression that decides something.
fn slots(book: &Book) -> Vec<(Slot, Expr)> {
    let mut found = Vec::new();
    let grounds = |grounds: &Grounds, slot: &dyn Fn(List, usize) -> Slot| {
        let mut grounds = grounds.clone();
        let lists = List::ALL.into_iter().flat_map(|list| {
            let exprs = std::mem::take(list.of(&mut grounds));
            exprs.into_iter().enumerate().map(move |(place, expr)| (list, place, expr))
        });
        lists.map(|(list, place, expr)| (slot(list, place), expr)).collect::<Vec<_>>()
    };
    if let Some(cause) = &book.cause {
        found.extend(grounds(&cause.grounds, &Slot::Cause));
    }
    for (node, step) in book.nodes.iter().map(|node| &node.step).enumerate() {
        match step {
            // Where every way leads to one place, no answer changes anything.
            Step::Decide { .. } if step.targets().windows(2).all(|pair| pair[0] == pair[1]) => {}
            Step::Decide { branches, .. } => {
                found.extend(
                    branches
                        .iter()
                        .enumerate()
                        .map(|(branch, taken)| (Slot::Branch { node, branch }, taken.when.clone())),
                );
            }
            Step::Rank { hypotheses, .. } => {
                for (hypothesis, own) in hypotheses.iter().enumerate() {
                    found.extend(grounds(&own.grounds, &|list, place| Slot::Hypothesis {
                        node,
                        hypothesis,
                        list,
                        place,
                    }));
                }
            }
            Step::Action(action) => {
                found.push((Slot::Guard { node }, action.guard.clone()));
                found.push((Slot::Verify { node }, action.verify.clone()));
            }
            Step::Human { .. } | Step::End { .. } => {}
        }
    }
    found
}

impl Slot {
    const fn node(self) -> Option<usize> {
        match self {
            Self::Cause(..) => None,
            Self::Branch { node, .. }
            | Self::Hypothesis { node, .. }
            | Self::Guard { node }
            | Self::Verify { node } => Some(node),
        }
    }

    fn heading_line(self, book: &Book) -> usize {
        self.node().and_then(|node| book.nodes.get(node)).map_or(1, |node| node.line)
    }

    fn place(self, book: &Book) -> String {
        let id = self.node().and_then(|node| book.nodes.get(node)).map_or("", |node| &node.id);
        match self {
            Self::Cause(list, _) => format!("cause, {}", list.word()),
            Self::Branch { branch, .. } => format!("{id}, branch {}", branch + 1),
            Self::Hypothesis { hypothesis, list, .. } => {
                format!("{id}, hypothesis {}, {}", hypothesis + 1, list.word())
            }
            Self::Guard { .. } => format!("{id}, guard"),
            Self::Verify { .. } => format!("{id}, verify"),
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Cause(..) => "expect its `standing` where this alone makes the difference",
            Self::Branch { .. } => "expect the `path` where this alone makes the difference",
            Self::Hypothesis { .. } => "expect its `rank` where this alone makes the difference",
            Self::Guard { .. } => "expect `allow` and `refuse` where this makes the difference",
            Self::Verify { .. } => "expect `verify = { NODE = \"false\" }`, and \"true\" elsewhere",
        }
    }

    fn action(self, book: &mut Book) -> Option<&mut Action> {
        match &mut book.nodes.get_mut(self.node()?)?.step {
            Step::Action(action) => Some(action),
            _ => None,
        }
    }

    fn list(self, book: &mut Book) -> Option<(&mut Vec<Expr>, usize)> {
        match self {
            Self::Cause(list, place) => Some((list.of(&mut book.cause.as_mut()?.grounds), place)),
            Self::Hypothesis { node, hypothesis, list, place } => {
                let Step::Rank { hypotheses, .. } = &mut book.nodes.get_mut(node)?.step else {
                    return None;
                };
                Some((list.of(&mut hypotheses.get_mut(hypothesis)?.grounds), place))
            }
            Self::Branch { .. } | Self::Guard { .. } | Self::Verify { .. } => None,
        }
    }

    /// The expression that stands there.
    fn of(self, book: &mut Book) -> Option<&mut Expr> {
        match self {
            Self::Cause(..) | Self::Hypothesis { .. } => {
                let (list, place) = self.list(book)?;
                list.get_mut(place)
            }
            Self::Branch { node, branch } => {
                let Step::Decide { branches, .. } = &mut book.nodes.get_mut(node)?.step else {
                    return None;
                };
                branches.get_mut(branch).map(|branch| &mut branch.when)
            }
            Self::Guard { .. } => self.action(book).map(|action| &mut action.guard),
            Self::Verify { .. } => self.action(book).map(|action| &mut action.verify),
        }
    }

    /// Takes it out as a whole and says so; `None` where that would change nothing.
    fn take_out(self, book: &mut Book) -> Option<&'static str> {
        match self {
            Self::Cause(..) | Self::Hypothesis { .. } => {
                let (list, place) = self.list(book)?;
                (place < list.len()).then(|| list.remove(place))?;
                Some("removed")
            }
            Self::Branch { node, branch } => {
                let Step::Decide { branches, otherwise, unknown } =
                    &mut book.nodes.get_mut(node)?.step
                else {
                    return None;
                };
                let taken = branches.get(branch)?;
                let idle = branch + 1 == branches.len()
                    && taken.goto == *otherwise
                    && taken.goto == *unknown;
                (!idle).then(|| branches.remove(branch))?;
                Some("branch removed")
            }
            Self::Guard { .. } | Self::Verify { .. } => {
                *self.of(book)? = Expr::All(Vec::new());
                Some("replaced by true")
            }
        }
    }
}

/// Actions whose `verified` and `failed` are exchanged.
fn swaps(book: &Book) -> Vec<Mutant> {
    let mut found = Vec::new();
    for (place, node) in book.nodes.iter().enumerate() {
        let Step::Action(action) = &node.step else { continue };
        if action.verified == action.failed {
            continue;
        }
        let mut other = book.clone();
        if let Some(Step::Action(action)) = other.nodes.get_mut(place).map(|node| &mut node.step) {
            let Action { verified, failed, .. } = &mut **action;
            std::mem::swap::<Goto>(verified, failed);
        }
        let what = format!("{}: `verified` and `failed` exchanged", node.id);
        let remedy = "expect a `path` with `acted = { NODE = \"verified\" }`";
        found.push(mutant(node.line, what, remedy, other));
    }
    found
}
