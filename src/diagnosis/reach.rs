//! Which causes can be told from a set of signals, and what the others need. Reads no values.
//!
//! A record counts as known when any of it is: what its parts are is the source's business.

use std::collections::BTreeSet;

use super::derive;
use super::expr::Expr;
use super::tree::{Book, Cause, Library};

/// How far a cause can get with the signals that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Within {
    /// It can be confirmed.
    Confirmed,
    /// What would contradict it cannot be seen: likely at most.
    Likely,
    /// What it requires cannot be seen.
    CannotTell,
}

/// One cause and what would take it further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The cause's id.
    pub cause: String,
    /// How far it can get.
    pub within: Within,
    /// Signals that would take it further, any that helps.
    pub needs: Vec<String>,
}

/// How far every cause of `library` gets with the signals in `given` and what follows from them.
#[must_use]
pub fn reach(library: &Library, given: &BTreeSet<String>) -> Vec<Reach> {
    let known = derive::derivable(given);
    let causes = library.books().filter_map(|book| Some((book, book.cause.as_ref()?)));
    causes.map(|(book, cause)| one(library, book, cause, &known)).collect()
}

fn one(library: &Library, book: &Book, cause: &Cause, known: &BTreeSet<String>) -> Reach {
    let missing = |name: &str| {
        let read = library.predicate(book, name).into_iter().flat_map(|p| p.signals());
        read.filter(|signal| !known.contains(*signal)).map(str::to_owned).collect::<Vec<_>>()
    };
    let needs = |lists: &[&Vec<Expr>]| {
        let unseen = lists.iter().copied().flatten().filter_map(|expr| unseen(expr, &missing));
        unseen.flatten().collect::<BTreeSet<_>>()
    };
    let grounds = &cause.grounds;
    let required = needs(&[&grounds.requires]);
    let (within, needs) = if required.is_empty() {
        let further = needs(&[&grounds.refutes, &grounds.tentative]);
        let within = if further.is_empty() { Within::Confirmed } else { Within::Likely };
        (within, further)
    } else {
        (Within::CannotTell, required)
    };
    Reach { cause: cause.id.clone(), within, needs: needs.into_iter().collect() }
}

/// The signals without which an expression can never be true or false; `None` when it can.
fn unseen(expr: &Expr, missing: &impl Fn(&str) -> Vec<String>) -> Option<Vec<String>> {
    let parts = |parts: &[Expr]| -> Vec<_> { parts.iter().map(|p| unseen(p, missing)).collect() };
    match expr {
        Expr::Name(name) => Some(missing(name)).filter(|signals| !signals.is_empty()),
        Expr::Not(inner) => unseen(inner, missing),
        Expr::All(all) => {
            let unseen: Vec<_> = parts(all).into_iter().flatten().flatten().collect();
            Some(unseen).filter(|signals| !signals.is_empty())
        }
        // One that can be seen is enough.
        Expr::Any(any) => {
            let unseen: Option<Vec<_>> = parts(any).into_iter().collect();
            unseen.map(|signals| signals.into_iter().flatten().collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternative_that_can_be_seen_is_enough() {
        let missing = |name: &str| match name {
            "seen" => Vec::new(),
            name => vec![name.to_owned()],
        };
        let check = |text: &str, expected: Option<&[&str]>| {
            let expr = Expr::parse(text).expect(text);
            let expected = expected.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
            assert_eq!(unseen(&expr, &missing), expected, "{text}");
        };
        check("seen", None);
        check("a", Some(&["a"]));
        check("not a", Some(&["a"]));
        check("seen and a and b", Some(&["a", "b"]));
        check("seen or a", None);
        check("a or b", Some(&["a", "b"]));
        check("seen and (a or seen)", None);
    }
}
