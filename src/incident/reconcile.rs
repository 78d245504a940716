//! Finds out what became of flips whose outcome was never written down, after a crash.
//!
//! Two facts decide, both from the store: its history holds the request's id, or its table has
//! moved past the revision that the request named, so that it can no longer be carried out.
//! Where neither is so, the flip stays open and is shown again at the next start.
//!
//! A store without a lock or a history of its own tells neither: a flip moves its table without leaving
//! an id, and one that is late is carried out all the same. There the values decide.

use chrono::Utc;

use crate::admission::FlagValue;
use crate::flag::wire::EventChangeRow;
use crate::flag::{CompareAndSet, EventKind, FlagTable, Store};

use super::event::Event;
use super::journal::Journal;

/// Settles what can be settled, writes it down, and returns the flips that stay open.
///
/// # Errors
/// In words: the store cannot be read, or the journal cannot be written.
pub async fn reconcile(
    journal: &Journal,
    open_flips: Vec<Event>,
    store: &dyn Store,
) -> Result<Vec<Event>, String> {
    if open_flips.is_empty() {
        return Ok(open_flips);
    }
    // The table first: a change between the two reads then shows in the history.
    let table = store.list().await.map_err(|error| error.to_string())?;
    let history = store.events(0).await.map_err(|error| error.to_string())?;
    let able = store.capabilities();
    let keeps_ids = able.audit && able.compare_and_set == CompareAndSet::Atomic;
    let mut still_open = Vec::new();
    for flip in open_flips {
        let Event::Flip { request_id, plan, revision, changes, store: of, .. } = &flip else {
            continue;
        };
        // Another store's table says nothing about it.
        if of.as_deref().is_some_and(|of| of != store.name()) {
            still_open.push(flip);
            continue;
        }
        let stored = history.iter().find(|event| {
            event.kind == EventKind::Change && event.request_id.as_ref() == Some(request_id)
        });
        let settled = match stored {
            Some(event) => Some(("applied", format!("found in the history, event {}", event.seq))),
            None if !keeps_ids => by_values(changes, &table),
            None => (table.revision.0 > *revision)
                .then(|| ("not-stored", format!("the table is at {} without it", table.revision))),
        };
        let Some((end, say)) = settled else {
            still_open.push(flip);
            continue;
        };
        let outcome = Event::Outcome {
            request_id: request_id.clone(),
            plan: plan.clone(),
            end: end.to_owned(),
            say,
        };
        journal.append(&outcome, Utc::now()).map_err(|error| error.to_string())?;
    }
    Ok(still_open)
}

/// How a flip ended, as far as the table tells: whose change it shows is not known.
fn by_values(changes: &[EventChangeRow], table: &FlagTable) -> Option<(&'static str, String)> {
    let as_wanted = |change: &&EventChangeRow| {
        let to = FlagValue::from(change.to.clone().unwrap_or_else(|| change.base.clone()));
        table.get(&change.key).is_some_and(|flag| *flag.stored() == to)
    };
    let (stored, missing): (Vec<_>, Vec<_>) = changes.iter().partition(as_wanted);
    let keys = |changes: &[&EventChangeRow]| {
        changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (stored, missing) = (keys(&stored), keys(&missing));
    match (stored.is_empty(), missing.is_empty()) {
        (true, true) => None,
        (_, true) => Some(("applied", format!("the table at {} has its values", table.revision))),
        (true, _) => {
            let say = format!("the table at {} does not have its values", table.revision);
            Some(("not-stored", say))
        }
        _ => Some(("partly", format!("the table has its values for {stored}, not for {missing}"))),
    }
}
