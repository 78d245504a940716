//! Tells what contributes beside the named cause from what merely follows from it. Scores nothing.
//!
//! What produces what is data: a cause's `feeds` names the causes whose evidence it brings about.

use std::collections::BTreeSet;

use super::engine::{Facts, HEALTHY, INSUFFICIENT, Scores};
use super::tree::{Cause, Library};
use super::verdict::{Role, Standing, Truth};

/// The roles of all causes beside the one that is named.
pub(super) struct Roles<'a> {
    library: &'a Library,
    facts: &'a Facts,
    scores: &'a Scores<'a>,
    named: &'a str,
    shown: BTreeSet<&'a str>,
}

impl<'a> Roles<'a> {
    pub(super) fn beside(
        named: &'a str,
        library: &'a Library,
        facts: &'a Facts,
        scores: &'a Scores<'a>,
    ) -> Self {
        let shown = library
            .cause(named)
            .map_or_else(BTreeSet::new, |cause| rests_on(library, facts, cause));
        Self { library, facts, scores, named, shown }
    }

    /// The role of another cause.
    pub(super) fn of(&self, cause: &Cause) -> Role {
        let is_incident = |id: &str| id != HEALTHY && id != INSUFFICIENT;
        let stands = self.standing(&cause.id) >= Some(Standing::Likely);
        if !stands || !is_incident(&cause.id) || !is_incident(self.named) {
            return Role::Other;
        }
        // Each produces the other in a loop: it is not merely a consequence then.
        if self.feeds(self.named, &cause.id) && !self.feeds(&cause.id, self.named) {
            return Role::Consequence;
        }
        let own = rests_on(self.library, self.facts, cause);
        if own.is_subset(&self.shown) { Role::Other } else { Role::Contributing }
    }

    /// Whether `from` produces `to`, directly or through causes whose required evidence is there.
    fn feeds(&self, from: &str, to: &str) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            let Some(cause) = self.library.cause(id).filter(|_| seen.insert(id)) else { continue };
            if cause.feeds.iter().any(|fed| fed == to) {
                return true;
            }
            let is_there = |fed: &&str| self.standing(fed) >= Some(Standing::Contradicted);
            open.extend(cause.feeds.iter().map(String::as_str).filter(is_there));
        }
        false
    }

    fn standing(&self, id: &str) -> Option<Standing> {
        self.scores.get(id).map(|score| score.standing)
    }
}

/// The predicates in what holds of a cause's required and supporting evidence.
fn rests_on<'a>(library: &'a Library, facts: &Facts, cause: &'a Cause) -> BTreeSet<&'a str> {
    let Some(book) = library.book(&cause.id) else { return BTreeSet::new() };
    let state = |name: &str| facts.seen(&book.id, name).state;
    let grounds = &cause.grounds;
    let holding = grounds
        .requires
        .iter()
        .chain(&grounds.supports)
        .filter(|expr| expr.eval(&mut |name| state(name)) == Truth::True);
    holding
        .flat_map(super::expr::Expr::names)
        .filter(|name| state(name) != Truth::Unknown)
        .filter_map(|name| library.predicate(book, name))
        .map(|predicate| predicate.text.as_str())
        .collect()
}
