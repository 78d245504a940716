//! Finds out what became of flips whose outcome was never written down, after a crash.
//!
//! The store's history decides: it holds the request, or the table has moved past the revision that the
//! request named, so that it can no longer be carried out. Where neither is so, or where a late one is
//! carried out all the same, the flip stays open and is shown again at the next start.
//!
//! A store that keeps no history has only its values: those that are there are there, and whose change
//! they are is not known.

use chrono::Utc;

use crate::flag::{EventChange, Past, Revision, Settled, Store, Unsettled};

use super::event::Event;
use super::journal::Journal;

/// A flip of the journal as one whose answer was lost; `None` for any other event, and for a flip of
/// another store: this one's table says nothing about it.
#[must_use]
pub fn unsettled(flip: &Event, store: &str) -> Option<Unsettled> {
    let Event::Flip { request_id, plan, revision, changes, store: of, .. } = flip else {
        return None;
    };
    if of.as_deref().is_some_and(|of| of != store) {
        return None;
    }
    let changes = changes.iter().cloned().map(EventChange::from);
    Some(Unsettled::of_intent(request_id, plan, Revision(*revision), changes))
}

/// What is written down once it is known what became of a flip.
#[must_use]
pub fn settled(flip: &Unsettled, settled: &Settled) -> Event {
    Event::Outcome {
        request_id: flip.request_id().to_owned(),
        plan: flip.plan().to_owned(),
        end: settled.word().to_owned(),
        say: settled.say(),
    }
}

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
    let past = Past::of(store.capabilities(), Some(&history));
    let mut still_open = Vec::new();
    for flip in open_flips {
        let lost = unsettled(&flip, store.name());
        let found = lost.and_then(|lost| Some((lost.judge(&table, past)?, lost)));
        let Some((end, lost)) = found else {
            still_open.push(flip);
            continue;
        };
        journal.append(&settled(&lost, &end), Utc::now()).map_err(|error| error.to_string())?;
    }
    Ok(still_open)
}
