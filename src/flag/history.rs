//! Reads a store's history: which changes still stand, and which were undone. Changes nothing.

use super::store::{EventKind, FlagEvent};

/// How the reason of every undo begins. In the history of a store that marks none
/// ([`Marks::undoes`](super::Marks::undoes)) there is no other sign of one.
pub const UNDO_OF: &str = "undo of";

/// The newest change that is no undo and was not undone: what an undo takes back next.
#[must_use]
pub fn newest_in_force(events: &[FlagEvent]) -> Option<&FlagEvent> {
    let mut standing: Vec<&FlagEvent> = Vec::new();
    for event in events.iter().filter(|event| event.kind == EventKind::Change) {
        if let Some(undone) = event.marks.undoes {
            standing.retain(|earlier| earlier.seq != undone);
        } else if !event.reason.starts_with(UNDO_OF) {
            standing.push(event);
        } else if let Some(at) = standing.iter().rposition(|earlier| leads_back(event, earlier)) {
            standing.remove(at);
        }
    }
    standing.pop()
}

/// Whether `undo` restores what held before `event`, flag by flag.
fn leads_back(undo: &FlagEvent, event: &FlagEvent) -> bool {
    undo.changes.len() == event.changes.len()
        && undo.changes.iter().all(|back| {
            let mut changes = event.changes.iter();
            changes.any(|change| {
                change.key == back.key && change.from == back.to && change.to == back.from
            })
        })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::value;
    use super::super::store::{EventChange, Marks};
    use super::super::types::Revision;
    use super::*;

    /// A history of `from -> to` changes, each with its reason; event 1 comes first.
    fn history(rows: &[(&str, &str, &str)]) -> Vec<FlagEvent> {
        const KEY: &str = "retry.max_attempts";
        let event = |(seq, (from, to, reason)): (u64, &(&str, &str, &str))| FlagEvent {
            seq,
            at: chrono::DateTime::UNIX_EPOCH,
            actor: "bob".to_owned(),
            reason: (*reason).to_owned(),
            incident: None,
            request_id: None,
            anchor: None,
            marks: Marks::default(),
            revision: Revision(seq),
            kind: EventKind::Change,
            changes: vec![EventChange {
                key: KEY.to_owned(),
                base: value(KEY, "2"),
                from: Some(value(KEY, from)),
                to: Some(value(KEY, to)),
            }],
        };
        (1..).zip(rows).map(event).collect()
    }

    #[test]
    fn the_stores_own_mark_of_an_undo_counts_whatever_the_reason_says() {
        let mut events = history(&[("1", "2", "a"), ("2", "3", "b"), ("3", "2", "by hand")]);
        assert_eq!(newest_in_force(&events).map(|event| event.seq), Some(3));
        events[2].marks.undoes = Some(2);
        assert_eq!(newest_in_force(&events).map(|event| event.seq), Some(1));
    }

    #[test]
    fn an_undo_takes_its_change_out_of_force_and_never_comes_up_itself() {
        let (up, on) = (("1", "2", "more"), ("2", "3", "still more"));
        let undo_on = ("3", "2", "undo of event 2 by bob: still more");
        let undo_up = ("2", "1", "undo of contain: again");
        let by_hand = ("3", "2", "back by hand");
        for (rows, expected) in [
            (&[] as &[_], None),
            (&[up, on], Some(2)),
            (&[up, on, undo_on], Some(1)),
            (&[up, on, undo_on, undo_up], None),
            (&[up, on, undo_on, on], Some(4)),
            (&[up, on, by_hand], Some(3)),
            (&[undo_on], None),
        ] {
            let events = history(rows);
            assert_eq!(newest_in_force(&events).map(|event| event.seq), expected, "{rows:?}");
        }
    }
}
