//! Changes that were made past weir in a store without a history: what a reading shows and the journal does
//! not explain is kept there, once, as somebody's change. Knows flags and the journal, and no store.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::{DateTime, Utc};

use crate::admission::FlagValue;
use crate::flag::FlagTable;
use crate::flag::wire::EventChangeRow;

use super::event::Event;
use super::flips::{Kept, kept};
use super::journal::{Anchor, Journal, JournalError};

/// Writes down what somebody has changed past weir in the store of this name. `before` is the table that
/// this process read last, and when: it tells of flags that the journal has never heard of.
///
/// # Errors
/// As [`Journal::append`].
pub fn keep_elsewhere(
    journal: &Journal,
    store: &str,
    before: Option<(&FlagTable, DateTime<Utc>)>,
    table: &FlagTable,
    now: DateTime<Utc>,
) -> Result<Option<Anchor>, JournalError> {
    let unexplained = |path: &Path| -> Result<_, JournalError> {
        Ok(changes(&kept(path, store)?, before.map(|(before, _)| before), table))
    };
    let changed = unexplained(journal.path())?;
    if changed.is_empty() {
        return Ok(None);
    }
    let event = Event::Seen {
        store: store.to_owned(),
        revision: table.revision.0,
        since: before.map(|(_, at)| at),
        changes: changed.clone(),
    };
    // Another weir may have been faster.
    let why_not = |path: &Path| Ok((unexplained(path)? != changed).then_some(()));
    Ok(journal.append_unless(&event, now, why_not)?.ok())
}

fn changes(flips: &[Kept], before: Option<&FlagTable>, table: &FlagTable) -> Vec<EventChangeRow> {
    let mut known: BTreeMap<&str, Option<&FlagValue>> = BTreeMap::new();
    for flip in flips.iter().filter(|flip| flip.has_changed()) {
        known.extend(flip.event.changes.iter().map(|one| (one.key.as_str(), one.to.as_ref())));
    }
    let on_its_way: Vec<_> =
        flips.iter().filter(|flip| flip.may_stand() && !flip.has_changed()).collect();
    let mut found = Vec::new();
    for flag in &table.flags {
        let last =
            before.and_then(|before| before.get(&flag.key)).map(|was| was.overridden.as_ref());
        let Some(from) = known.get(flag.key.as_str()).copied().or(last) else { continue };
        let stored = flag.stored();
        let is_explained = |to: Option<&FlagValue>| to.unwrap_or(&flag.base) == stored;
        let may_be_ours = on_its_way
            .iter()
            .flat_map(|flip| &flip.event.changes)
            .any(|one| one.key == flag.key && is_explained(one.to.as_ref()));
        if !is_explained(from) && !may_be_ours {
            found.push(EventChangeRow {
                key: flag.key.clone(),
                base: (&flag.base).into(),
                from: from.map(Into::into),
                to: flag.overridden.as_ref().map(Into::into),
            });
        }
    }
    found
}
