//! Which ways out of a runbook's nodes its tests have walked. Counts ways, not nodes: the way that is
//! taken when something is unknown, or a flip did not help, is the one that nobody tries by hand.

use std::collections::BTreeSet;

use crate::diagnosis::{Book, Goto, Node, Step};

use super::trace::Way;

/// One way out of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The node.
    pub node: String,
    /// Its line in the runbook.
    pub line: usize,
    /// Which way.
    pub way: Way,
    /// What it asks for, where that tells more than the way's name.
    pub when: Option<String>,
    /// Where it leads: a node, `runbook:ID`, or nowhere for a flip that is refused.
    pub target: Option<String>,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.node, self.way)?;
        if let Some(when) = &self.when {
            write!(f, " ({when})")?;
        }
        match &self.target {
            Some(target) => write!(f, " -> {target}"),
            None => Ok(()),
        }
    }
}

/// The ways out of one runbook, and those that were walked.
#[derive(Clone, Debug)]
pub struct Coverage {
    exits: Vec<Exit>,
    walked: BTreeSet<(String, Way)>,
}

impl Coverage {
    /// Every way out of every node, none of them walked.
    #[must_use]
    pub fn of(book: &Book) -> Self {
        Self { exits: book.nodes.iter().flat_map(exits).collect(), walked: BTreeSet::new() }
    }

    /// Notes ways that an expectation walked.
    pub(super) fn walked(&mut self, left: impl IntoIterator<Item = (String, Way)>) {
        self.walked.extend(left);
    }

    /// The ways that no expectation walked, in the order of the file.
    pub fn uncovered(&self) -> impl Iterator<Item = &Exit> {
        self.exits
            .iter()
            .filter(|exit| !self.walked.contains(&(exit.node.clone(), exit.way.clone())))
    }

    /// How many ways out there are.
    #[must_use]
    pub const fn of_all(&self) -> usize {
        self.exits.len()
    }

    /// How many of them were walked.
    #[must_use]
    pub fn covered(&self) -> usize {
        self.exits.len() - self.uncovered().count()
    }
}

/// Every way out of one node.
fn exits(node: &Node) -> Vec<Exit> {
    let exit = |way: Way, when: Option<String>, goto: Option<&Goto>| Exit {
        node: node.id.clone(),
        line: node.line,
        way,
        when,
        target: goto.map(|goto| match goto {
            Goto::Node(id) => id.clone(),
            Goto::Runbook(id) => format!("runbook:{id}"),
        }),
    };
    match &node.step {
        Step::Decide { branches, otherwise, unknown } => {
            let ways = branches.iter().enumerate().map(|(place, branch)| {
                exit(Way::Branch(place), Some(branch.when.to_string()), Some(&branch.goto))
            });
            let mut ways: Vec<Exit> = ways.collect();
            ways.push(exit(Way::Otherwise, None, Some(otherwise)));
            // Without a branch nothing is asked, so nothing can be unknown.
            if !branches.is_empty() {
                ways.push(exit(Way::Unknown, None, Some(unknown)));
            }
            ways
        }
        Step::Rank { hypotheses, among, none, unknown } => {
            let own = hypotheses.iter().map(|hypothesis| {
                exit(Way::Hypothesis(hypothesis.id.clone()), None, Some(&hypothesis.goto))
            });
            let causes = among
                .iter()
                .map(|id| exit(Way::Among(id.clone()), None, Some(&Goto::Runbook(id.clone()))));
            let rest = [(Way::None, none), (Way::Unknown, unknown)];
            let rest = rest.into_iter().map(|(way, goto)| exit(way, None, Some(goto)));
            own.chain(causes).chain(rest).collect()
        }
        Step::Human { answers, .. } => answers
            .iter()
            .map(|(words, goto)| exit(Way::Answer(words.clone()), None, Some(goto)))
            .collect(),
        Step::Action(action) => {
            let mut ways = vec![
                exit(Way::Verified, None, Some(action.resolve(&action.verified))),
                exit(Way::Failed, None, Some(action.resolve(&action.failed))),
                exit(Way::Unknown, None, Some(action.resolve(&action.unknown))),
            ];
            ways.extend(action.undo.iter().map(|undo| exit(Way::Undo, None, Some(&undo.goto))));
            ways.push(exit(Way::Refused, Some(action.guard.to_string()), None));
            ways
        }
        Step::End { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runbook::embedded;

    #[test]
    fn every_way_out_is_there_and_walking_covers_it() {
        let library = embedded();
        let mut coverage = Coverage::of(library.book("tpm-exhausted").expect("shipped"));
        let words: Vec<String> = coverage.uncovered().map(ToString::to_string).collect();
        assert_eq!(words.len(), coverage.of_all());
        for wanted in ["otherwise -> ", "unknown -> ", "failed -> ", "guard refuses ("] {
            assert!(words.iter().any(|word| word.contains(wanted)), "{wanted}: {words:?}");
        }
        let first = coverage.exits[0].clone();
        coverage.walked([(first.node, first.way), ("nowhere".to_owned(), Way::Failed)]);
        assert_eq!(coverage.covered(), 1);
    }

    #[test]
    fn a_cause_of_the_triage_is_a_way_out() {
        let library = embedded();
        let coverage = Coverage::of(library.triage());
        let among = coverage.exits.iter().filter(|exit| matches!(exit.way, Way::Among(_)));
        assert!(among.count() > 50);
        assert!(
            coverage.exits.iter().all(|exit| exit.target.is_some()),
            "the triage flips nothing"
        );
    }
}
