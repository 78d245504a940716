//! The way out of a node that the evidence takes, and the cause that the triage names that way: one
//! answer for the verdict, the guided walk and the tests of runbooks.

use crate::admission::FlagValue;

use super::engine::{Facts, INSUFFICIENT};
use super::tree::{Book, Branch, Goto, Library, Node, Step};
use super::verdict::{Standing, Truth};

/// Most steps of one triage; one that is longer goes round in circles.
pub const TRIAGE_STEPS_MAX: usize = 32;

/// A hypothesis or cause of a rank node: its id, how it stands, and where it leads.
pub type Weighed = (String, Standing, Goto);

/// The way out of a decide or rank node.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Its place among the ways out: the branches, or the hypotheses and then the causes, in the order
    /// of the file; after them "none of these", and last "cannot be told".
    pub place: usize,
    /// Where it leads.
    pub goto: Goto,
    /// The answer in words.
    pub say: String,
    /// The evidence that a decision looked at, by name.
    pub names: Vec<String>,
    /// How everything that a rank node weighs stands.
    pub ranked: Vec<Weighed>,
}

/// The way that the evidence takes; `None` where a person decides, acts, or has arrived.
#[must_use]
pub fn taken(library: &Library, book: &Book, node: &Node, facts: &Facts) -> Option<Taken> {
    match &node.step {
        Step::Decide { branches, otherwise, unknown } => {
            Some(decided(book, branches, (otherwise, unknown), facts))
        }
        Step::Rank { none, unknown, .. } => {
            let ranked = ranking(library, book, node, facts);
            let (place, goto, say) = if let Some(place) = best(&ranked) {
                let (id, standing, goto) = &ranked[place];
                (place, goto, format!("{id} is {}", facts.told(id, *standing)))
            } else {
                match ranked.iter().filter(|one| one.1 == Standing::CannotTell).count() {
                    0 => (ranked.len(), none, "none of these".to_owned()),
                    open => {
                        let say = format!("none stands, {open} cannot be told");
                        (ranked.len() + 1, unknown, say)
                    }
                }
            };
            Some(Taken { place, goto: goto.clone(), say, names: Vec::new(), ranked })
        }
        Step::Human { .. } | Step::Action(_) | Step::End { .. } => None,
    }
}

fn decided(
    book: &Book,
    branches: &[Branch],
    (otherwise, unknown): (&Goto, &Goto),
    facts: &Facts,
) -> Taken {
    let mut names: Vec<String> = Vec::new();
    let last = branches.len();
    let mut found = (last, otherwise, "none of these".to_owned());
    for (place, branch) in branches.iter().enumerate() {
        names.extend(branch.when.names().into_iter().map(str::to_owned));
        match facts.truth(&book.id, &branch.when) {
            Truth::False => continue,
            Truth::True => found = (place, &branch.goto, branch.say.clone()),
            Truth::Unknown => {
                found = (last + 1, unknown, format!("cannot tell whether: {}", branch.say));
            }
        }
        break;
    }
    let (place, goto, say) = found;
    Taken { place, goto: goto.clone(), say, names, ranked: Vec::new() }
}

/// How each hypothesis and cause of a rank node stands, in the order of the file, and where it leads.
#[must_use]
pub fn ranking(library: &Library, book: &Book, node: &Node, facts: &Facts) -> Vec<Weighed> {
    let Step::Rank { hypotheses, among, .. } = &node.step else { return Vec::new() };
    let own = hypotheses.iter().map(|hypothesis| {
        let found = facts.score(&book.id, &hypothesis.grounds);
        (hypothesis.id.clone(), found.standing, hypothesis.goto.clone())
    });
    let causes = among.iter().filter_map(|id| {
        let found = facts.score(id, &library.cause(id)?.grounds);
        Some((id.clone(), found.standing, Goto::Runbook(id.clone())))
    });
    own.chain(causes).collect()
}

/// The place of the first of the best that stand, so that the order of the file decides between equals.
fn best(ranked: &[Weighed]) -> Option<usize> {
    (0..ranked.len())
        .filter(|place| ranked[*place].1 >= Standing::Likely)
        .reduce(|best, next| if ranked[next].1 > ranked[best].1 { next } else { best })
}

/// The first step of a runbook at which a person acts, answers or has arrived: what is decided by the
/// evidence is passed, and so are flips that `is_so` says nothing of the kind is left to change.
#[must_use]
pub fn first_step<'a>(
    library: &'a Library,
    cause: &str,
    facts: &Facts,
    mut is_so: impl FnMut(&str, &FlagValue) -> bool,
) -> Option<(&'a Book, &'a Node)> {
    let mut book = library.book(cause)?;
    let mut node = book.node(&book.entry)?;
    for _ in 0..TRIAGE_STEPS_MAX {
        let goto = match &node.step {
            Step::Human { .. } | Step::End { .. } => return Some((book, node)),
            Step::Action(action) if !is_so(&action.flag, &action.set) => return Some((book, node)),
            Step::Action(action) => match facts.truth(&book.id, &action.verify) {
                Truth::True => action.resolve(&action.verified).clone(),
                Truth::False => action.resolve(&action.failed).clone(),
                Truth::Unknown => action.resolve(&action.unknown).clone(),
            },
            Step::Decide { .. } | Step::Rank { .. } => taken(library, book, node, facts)?.goto,
        };
        match goto {
            Goto::Node(next) => node = book.node(&next)?,
            Goto::Runbook(next) => {
                book = library.book(&next)?;
                node = book.node(&book.entry)?;
            }
        }
    }
    None
}

/// The cause that the triage names, and the steps that lead there.
#[must_use]
pub fn triaged<'a>(library: &'a Library, facts: &Facts) -> (String, Vec<(&'a Node, Taken)>) {
    let triage = library.triage();
    let mut steps = Vec::new();
    let mut at = triage.node(&triage.entry);
    while let Some(node) = at.filter(|_| steps.len() < TRIAGE_STEPS_MAX) {
        if let Step::End { cause: Some(cause), .. } = &node.step {
            return (cause.clone(), steps);
        }
        let Some(taken) = taken(library, triage, node, facts) else { break };
        let goto = taken.goto.clone();
        steps.push((node, taken));
        match goto {
            Goto::Node(next) => at = triage.node(&next),
            Goto::Runbook(cause) => return (cause, steps),
        }
    }
    (INSUFFICIENT.to_owned(), steps)
}
