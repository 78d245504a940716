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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flag::fixture::table;
    use crate::flag::{Author, EventChange, Intent, Marks, OnExpire};

    const STORE: &str = "flagd";

    struct Desk {
        _folder: tempfile::TempDir,
        journal: Journal,
    }

    impl Desk {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let journal = Journal::open(&folder.path().join("journal.jsonl")).expect("a journal").0;
            Self { _folder: folder, journal }
        }

        /// Notes down that a flip of ours to what `after` holds was sent, and how it ended.
        fn flipped(&self, after: &FlagTable, end: Option<&str>) {
            let flag = after.get("retry.max_attempts").expect("a flag");
            let change = EventChange {
                key: flag.key.clone(),
                base: flag.base.clone(),
                from: None,
                to: flag.overridden.clone(),
            };
            let intent = Intent {
                request_id: "id".to_owned(),
                plan: "t".to_owned(),
                revision: after.revision,
                author: Author { actor: "alice".to_owned(), incident: None, anchor: None },
                reason: "r".to_owned(),
                changes: vec![change],
                ttl_s: None,
                on_expire: OnExpire::Remind,
                verify: String::new(),
                store: Some(STORE.to_owned()),
                marks: Marks::default(),
            };
            self.keep(&Event::from(&intent));
            if let Some(end) = end {
                self.keep(&Event::Outcome {
                    request_id: "id".to_owned(),
                    plan: "t".to_owned(),
                    end: end.to_owned(),
                    say: String::new(),
                });
            }
        }

        fn keep(&self, event: &Event) {
            self.journal.append(event, DateTime::UNIX_EPOCH).expect("the disk is there");
        }

        fn looks(&self, before: Option<&FlagTable>, now: &FlagTable) -> bool {
            let at = DateTime::UNIX_EPOCH;
            let before = before.map(|before| (before, at));
            keep_elsewhere(&self.journal, STORE, before, now, at)
                .expect("the disk is there")
                .is_some()
        }
    }

    const ONE: &[(&str, &str)] = &[("retry.max_attempts", "1")];
    const FOUR: &[(&str, &str)] = &[("retry.max_attempts", "4")];

    #[test]
    fn what_the_journal_does_not_explain_is_kept_once_whoever_looks() {
        let desk = Desk::new();
        desk.flipped(&table(ONE), Some("applied"));
        assert!(!desk.looks(None, &table(ONE)), "it is ours");
        let (other, _) = Journal::open(desk.journal.path()).expect("a second one");
        assert!(desk.looks(None, &table(FOUR)));
        let again = keep_elsewhere(&other, STORE, None, &table(FOUR), DateTime::UNIX_EPOCH);
        assert!(again.expect("the disk is there").is_none(), "the other one has heard of it");
        let history = super::super::history(desk.journal.path(), STORE).expect("whole");
        let [_, seen] = history.as_slice() else { panic!("{history:?}") };
        assert_eq!(seen.actor, super::super::SOMEBODY);
        assert_eq!(
            seen.changes[0].from,
            table(ONE).get("retry.max_attempts").expect("a flag").overridden
        );
        assert_eq!(super::super::history(desk.journal.path(), "envoy").expect("whole"), []);
        assert!(desk.looks(None, &table(&[])), "and back to the base");
    }

    #[test]
    fn a_flag_that_the_journal_has_never_heard_of_is_told_by_two_readings() {
        let desk = Desk::new();
        assert!(!desk.looks(None, &table(FOUR)), "nothing tells what was there before");
        assert!(!desk.looks(Some(&table(FOUR)), &table(FOUR)));
        assert!(desk.looks(Some(&table(&[])), &table(FOUR)));
        assert!(!desk.looks(Some(&table(&[])), &table(FOUR)), "it is in the journal now");
    }

    #[test]
    fn a_flip_that_is_on_its_way_explains_what_it_sets_and_nothing_else() {
        let desk = Desk::new();
        desk.flipped(&table(ONE), None);
        assert!(!desk.looks(Some(&table(&[])), &table(ONE)));
        assert!(desk.looks(Some(&table(&[])), &table(FOUR)));
    }
}
