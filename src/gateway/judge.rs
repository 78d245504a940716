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
