//! The changes of flags that a report tells of: from journal entries, and from what the store remembers.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::flag::wire::EventChangeRow;
use crate::flag::{FlagEvent, UNDO_OF};
use crate::incident::{Event, changed};

/// One change of flags, as far as it was written down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flip {
    /// When it was begun.
    pub at: DateTime<Utc>,
    /// Who.
    pub by: String,
    /// The plan's name; empty where only the store tells of it.
    pub plan: String,
    /// Why.
    pub reason: String,
    /// Key, override before and afterwards; `None` is none.
    pub changes: Vec<(String, Option<String>, Option<String>)>,
    /// Whether it has changed something; `None` where its end is not known.
    pub has_changed: Option<bool>,
    /// What became of it, in words.
    pub outcome: Option<String>,
    /// Whether its effect showed, in words.
    pub effect: Option<String>,
    /// It leads back what an earlier one did.
    pub is_undo: bool,
    request_id: Option<String>,
}

/// Every flip of these entries, oldest first.
#[must_use]
pub fn from_journal(entries: &[(DateTime<Utc>, Event)]) -> Vec<Flip> {
    let mut flips: Vec<Flip> = Vec::new();
    for (at, event) in entries {
        let of = |flips: &mut Vec<Flip>, id: &str| {
            flips.iter().rposition(|flip| flip.request_id.as_deref() == Some(id))
        };
        match event {
            Event::Flip { request_id, plan, actor, reason, changes, notes, .. } => {
                let glass = notes.marks.broken_glass();
                let reason =
                    glass.map_or_else(|| reason.clone(), |said| format!("{reason}; {said}"));
                flips.push(Flip {
                    at: *at,
                    by: actor.clone(),
                    plan: plan.clone(),
                    is_undo: plan.starts_with("undo ") || reason.starts_with(UNDO_OF),
                    reason,
                    changes: changes.iter().map(row).collect(),
                    request_id: Some(request_id.clone()),
                    ..Flip::default()
                });
            }
            Event::Outcome { request_id, end, say, .. } => {
                if let Some(place) = of(&mut flips, request_id) {
                    let flip = &mut flips[place];
                    flip.has_changed = changed(Some(end));
                    flip.outcome = Some(format!("{end}: {say}"));
                }
            }
            Event::Verify { request_id, state, why, .. } => {
                if let Some(place) = of(&mut flips, request_id) {
                    let why = why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                    flips[place].effect = Some(format!("{state}{why}"));
                }
            }
            Event::Seen { changes, .. } => flips.push(Flip {
                at: *at,
                by: "somebody, past weir".to_owned(),
                changes: changes.iter().map(row).collect(),
                has_changed: Some(true),
                ..Flip::default()
            }),
            Event::Plan { .. } | Event::Note { .. } | Event::Torn { .. } | Event::Other => {}
        }
    }
    flips
}

/// Adds what the store remembers and the journal does not: changes that others made.
pub fn add_from_store(flips: &mut Vec<Flip>, events: &[FlagEvent]) {
    for event in events {
        let known = |flip: &Flip| event.request_id.is_some() && flip.request_id == event.request_id;
        if flips.iter().any(known) {
            continue;
        }
        let change = |change: &crate::flag::EventChange| {
            let word = |value: &Option<_>| value.as_ref().map(ToString::to_string);
            (change.key.clone(), word(&change.from), word(&change.to))
        };
        flips.push(Flip {
            at: event.at,
            by: event.actor.clone(),
            reason: event.reason.clone(),
            changes: event.changes.iter().map(change).collect(),
            has_changed: Some(true),
            outcome: Some("as the store remembers".to_owned()),
            is_undo: event.reason.starts_with(UNDO_OF),
            request_id: event.request_id.clone(),
            ..Flip::default()
        });
    }
    flips.sort_by_key(|flip| flip.at);
}

fn row(change: &EventChangeRow) -> (String, Option<String>, Option<String>) {
    let word = |value: &Option<_>| {
        value.clone().map(|value| crate::admission::FlagValue::from(value).to_string())
    };
    (change.key.clone(), word(&change.from), word(&change.to))
}

/// The flip by which this one was taken back whole, if it was.
#[must_use]
pub fn taken_back(flips: &[Flip], place: usize) -> Option<&Flip> {
    let flip = &flips[place];
    let undone_by = |later: &&Flip| {
        later.has_changed == Some(true)
            && flip.changes.iter().all(|(key, from, _)| {
                later.changes.iter().any(|(other, _, to)| other == key && to == from)
            })
    };
    flips[place + 1..].iter().find(undone_by).filter(|_| flip.has_changed == Some(true))
}

/// What these flips have left overridden: key, value, and who set it when.
#[must_use]
pub fn left_over(flips: &[Flip]) -> Vec<(String, String, &Flip)> {
    let mut standing: BTreeMap<&str, (&str, &Flip)> = BTreeMap::new();
    for flip in flips.iter().filter(|flip| flip.has_changed != Some(false)) {
        for (key, _, to) in &flip.changes {
            match to {
                Some(to) => standing.insert(key, (to, flip)),
                None => standing.remove(key.as_str()),
            };
        }
    }
    standing.into_iter().map(|(key, (to, flip))| (key.to_owned(), to.to_owned(), flip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flip(second: i64, key: &str, from: Option<&str>, to: Option<&str>) -> Flip {
        Flip {
            at: DateTime::from_timestamp(second, 0).expect("a time"),
            changes: vec![(key.to_owned(), from.map(str::to_owned), to.map(str::to_owned))],
            has_changed: Some(true),
            ..Flip::default()
        }
    }

    #[test]
    fn what_was_taken_back_is_not_left_over() {
        let mut flips = vec![
            flip(1, "retry.owner", None, Some("gateway")),
            flip(2, "admission.mode", None, Some("enforce")),
            flip(3, "retry.owner", Some("gateway"), None),
        ];
        assert_eq!(taken_back(&flips, 0).map(|one| one.at.timestamp()), Some(3));
        assert_eq!(taken_back(&flips, 1), None);
        let left: Vec<_> = left_over(&flips).into_iter().map(|(key, to, _)| (key, to)).collect();
        assert_eq!(left, [("admission.mode".to_owned(), "enforce".to_owned())]);
        // What was refused has taken nothing back.
        flips[2].has_changed = Some(false);
        assert_eq!(taken_back(&flips, 0), None);
        assert_eq!(left_over(&flips).len(), 2);
    }

    #[test]
    fn an_outcome_belongs_to_its_flip_and_a_store_adds_only_what_is_new() {
        let text = |end: &str| {
            format!(
                r#"{{"kind":"outcome","request_id":"r","plan":"contain","end":"{end}","say":"x"}}"#
            )
        };
        let begun = r#"{"kind":"flip","request_id":"r","plan":"contain","revision":4,"actor":"ann",
            "incident":null,"reason":"storm","changes":[{"key":"admission.mode","base":"enforce",
            "from":"off","to":null}],"ttl_s":null,"on_expire":"remind","verify":""}"#;
        let event = |text: &str| serde_json::from_str::<Event>(text).expect("an event");
        for (end, has_changed) in
            [("applied", Some(true)), ("refused", Some(false)), ("unsettled", None)]
        {
            let entries = [event(begun), event(&text(end))].map(|one| (DateTime::UNIX_EPOCH, one));
            let flips = from_journal(&entries);
            assert_eq!((flips.len(), flips[0].has_changed), (1, has_changed), "{end}");
            assert_eq!(flips[0].changes, [("admission.mode".into(), Some("off".into()), None)]);
        }
    }
}
