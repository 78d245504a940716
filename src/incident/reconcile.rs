//! Finds out what became of flips whose outcome was never written down, after a crash.
//!
//! Two facts decide, both from the store: its history holds the request's id, or its table has
//! moved past the revision that the request named, so that it can no longer be carried out.
//! Where neither is so, the flip stays open and is shown again at the next start.

use chrono::Utc;

use crate::flag::{EventKind, Store};

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
    let mut still_open = Vec::new();
    for flip in open_flips {
        let Event::Flip { request_id, plan, revision, .. } = &flip else { continue };
        let stored = history.iter().find(|event| {
            event.kind == EventKind::Change && event.request_id.as_ref() == Some(request_id)
        });
        let (end, say) = match stored {
            Some(event) => ("applied", format!("found in the history, event {}", event.seq)),
            None if table.revision.0 > *revision => {
                ("not-stored", format!("the table is at {} without it", table.revision))
            }
            None => {
                still_open.push(flip);
                continue;
            }
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
