//! What this instance's own signals say is wrong, kept up once a second: some interlocks depend on the
//! cause. Reads one instance's page and nothing else; what only other sources show is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnosis::{Diagnoser, Library, Verdict, worst_first};
use crate::runbook;
use crate::signal::{Mono, Snapshot};

/// The diagnosis of every scope, and the worst of them.
pub struct Judge {
    library: Arc<Library>,
    of_scopes: BTreeMap<String, Diagnoser>,
    verdict: Option<Verdict>,
}

impl Default for Judge {
    /// By the runbooks that ship: those of a dashboard's own folder are not known to a gateway.
    fn default() -> Self {
        Self { library: runbook::embedded(), of_scopes: BTreeMap::new(), verdict: None }
    }
}

impl Judge {
    /// Takes the newest signals; a scope that is gone is forgotten.
    pub fn look(&mut self, snapshots: &[Snapshot], at: Mono) {
        self.of_scopes.retain(|name, _| snapshots.iter().any(|scope| scope.scope == *name));
        let judged = snapshots.iter().map(|snapshot| {
            let new = || Diagnoser::new(Arc::clone(&self.library));
            self.of_scopes.entry(snapshot.scope.clone()).or_insert_with(new).step(snapshot, at)
        });
        self.verdict = judged.min_by(worst_first);
    }

    /// The worst verdict of the last look.
    #[must_use]
    pub const fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_scope_is_on_top_and_one_that_is_gone_is_forgotten() {
        let mut judge = Judge::default();
        assert_eq!(judge.verdict(), None, "nothing was looked at");
        let scopes = ["a/b/c", "a/b/d"].map(|name| Snapshot::new(name, 10.0));
        judge.look(&scopes, Mono::START);
        assert!(judge.verdict().is_some_and(|verdict| verdict.scope == "a/b/c"));
        judge.look(&scopes[1..], Mono::START);
        assert!(judge.verdict().is_some_and(|verdict| verdict.scope == "a/b/d"));
        assert_eq!(judge.of_scopes.len(), 1);
        judge.look(&[], Mono::START);
        assert_eq!(judge.verdict(), None);
    }
}
