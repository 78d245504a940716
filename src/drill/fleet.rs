//! The flags of gateways that stand side by side, as one store: a flip goes to all of them or to none.
//!
//! What the table says is the first one's word; each of them has its own. Where one refuses, those
//! that have stored already are put back.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};

use crate::flag::wire::NoteBody;
use crate::flag::{
    Author, Capabilities, FlagEvent, FlagTable, Original, Outcome, Plan, PlannedChange, Revision,
    Store, StoreError,
};

/// Several stores that are to say the same.
pub struct Fleet {
    first: Arc<dyn Store>,
    others: Vec<Arc<dyn Store>>,
}

impl Fleet {
    /// A fleet of these, the first at their head.
    #[must_use]
    pub fn new(first: Arc<dyn Store>, others: Vec<Arc<dyn Store>>) -> Self {
        Self { first, others }
    }

    async fn table(&self) -> Result<FlagTable, StoreError> {
        let (first, others) = self.tables().await;
        let mut first = first?;
        // What each instance uses; of one that does not answer it is not known.
        for table in others.iter().flatten() {
            for flag in &mut first.flags {
                let effective = table.get(&flag.key).map(|flag| flag.effective.clone());
                flag.effective.extend(effective.unwrap_or_default());
            }
        }
        Ok(first)
    }

    async fn tables(&self) -> (Result<FlagTable, StoreError>, Vec<Result<FlagTable, StoreError>>) {
        let others = join_all(self.others.iter().map(|store| store.list()));
        tokio::join!(self.first.list(), others)
    }

    /// Everybody is asked before anything is changed, the first is changed first.
    async fn carry_out(&self, plan: &Plan, author: &Author) -> Outcome {
        let refused = |error: StoreError| Outcome::Refused { why: error.to_string() };
        let (first, others) = self.tables().await;
        let all = [first].into_iter().chain(others);
        let tables = match all.collect::<Result<Vec<_>, _>>() {
            Ok(tables) => tables,
            Err(error) => return refused(error),
        };
        let stores = [&self.first].into_iter().chain(&self.others);
        let mut applied = Vec::new();
        for (number, (store, table)) in stores.zip(&tables).enumerate() {
            // The plan was made from the first one's table; the others have revisions of their own.
            let revision = if number == 0 { plan.revision } else { table.revision };
            let outcome = store.apply(&Plan { revision, ..plan.clone() }, author).await;
            let Outcome::Applied { revision, .. } = outcome else {
                return match (put_back(&applied, plan, author).await, outcome) {
                    (Some(why), _) => Outcome::Unknown { why },
                    // Its table is not the one that was shown.
                    (None, Outcome::Conflict { .. }) if number > 0 => Outcome::Refused {
                        why: format!("somebody changed the flags of {} meanwhile", store.name()),
                    },
                    (None, outcome) => outcome,
                };
            };
            applied.push((store, table, revision));
        }
        let revision = applied.first().map_or(plan.revision, |(.., revision)| *revision);
        Outcome::applied(revision)
    }
}

/// Takes a plan back where it was stored; why one could not be put back, where that is so.
async fn put_back(
    stored: &[(&Arc<dyn Store>, &FlagTable, Revision)],
    plan: &Plan,
    author: &Author,
) -> Option<String> {
    let mut left = None;
    for (store, table, revision) in stored {
        let back = Plan {
            changes: plan.changes.iter().map(|change| undone(change, table)).collect(),
            revision: *revision,
            ttl_s: None,
            request_id: uuid::Uuid::now_v7().to_string(),
            undo: true,
            ..plan.clone()
        };
        let outcome = store.apply(&back, author).await;
        if !matches!(outcome, Outcome::Applied { .. }) {
            left = Some(format!(
                "not every gateway took it, and {} could not be put back: {outcome:?}",
                store.name()
            ));
        }
    }
    left
}

/// The change that leads back to what the table said.
fn undone(change: &PlannedChange, table: &FlagTable) -> PlannedChange {
    let before = table.get(&change.key);
    PlannedChange {
        from: change.to.clone(),
        to: before.map_or_else(|| change.from.clone(), |flag| flag.stored().clone()),
        drops_override: before.is_none_or(|flag| flag.overridden.is_none()),
        ..change.clone()
    }
}

impl Store for Fleet {
    fn name(&self) -> &str {
        self.first.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.first.capabilities()
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        Box::pin(self.table())
    }

    fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome> {
        Box::pin(self.carry_out(plan, author))
    }

    /// Each has numbers of its own; the first in line that knows this one tells.
    fn keeps_notes(&self) -> bool {
        self.first.keeps_notes()
    }

    fn note<'a>(&'a self, note: &'a NoteBody) -> Option<BoxFuture<'a, Result<(), StoreError>>> {
        self.first.note(note)
    }

    fn original(&self, id: u64) -> Option<BoxFuture<'_, Result<Original, StoreError>>> {
        let all: Vec<_> = [&self.first]
            .into_iter()
            .chain(&self.others)
            .filter_map(|store| store.original(id))
            .collect();
        if all.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            let mut told = join_all(all).await;
            let known = told.iter().position(Result::is_ok).unwrap_or(0);
            told.swap_remove(known)
        }))
    }

    fn events(&self, since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        self.first.events(since)
    }
}

#[cfg(test)]
mod tests;
