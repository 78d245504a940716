//! Where things lie in etcd: the keys of one namespace, and what stands under them.
//!
//! ```text
//! /weir/NAMESPACE/flag/KEY     the override as plain JSON, for any service to read or watch
//! /weir/NAMESPACE/meta/KEY     who, when and why: written with the flag, outlives its lease
//! /weir/NAMESPACE/event/SEQ    one entry of the history
//! /weir/NAMESPACE/head         the newest SEQ
//! ```

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::flag::store::{EventKind, FlagEvent, Marks, StoreError};
use crate::flag::types::Revision;
use crate::flag::wire::{EventChangeRow, EventRow, WireOnExpire, WireValue};

use super::gateway::base64;

/// Digits of a SEQ: keys sort as text.
const SEQ_DIGITS: usize = 12;

/// Longest namespace.
const NAMESPACE_CHARS_MAX: usize = 64;

/// The keys of one namespace.
#[derive(Debug)]
pub(super) struct Layout {
    prefix: String,
}

impl Layout {
    /// The keys of `namespace`, which is one plain word: a slash would put one namespace into another.
    pub(super) fn new(namespace: &str) -> Result<Self, StoreError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let fits = (1..=NAMESPACE_CHARS_MAX).contains(&namespace.len());
        if fits && namespace.chars().all(plain) {
            return Ok(Self { prefix: format!("/weir/{namespace}/") });
        }
        Err(StoreError::Address {
            url: namespace.to_owned(),
            what: "a namespace of flags in etcd",
            why: format!("1 to {NAMESPACE_CHARS_MAX} of letters, digits, `.`, `_` and `-`"),
            example: "payments-prod",
        })
    }

    pub(super) fn flag(&self, key: &str) -> String {
        format!("{}flag/{key}", self.prefix)
    }

    pub(super) fn meta(&self, key: &str) -> String {
        format!("{}meta/{key}", self.prefix)
    }

    pub(super) fn event(&self, seq: u64) -> String {
        format!("{}event/{seq:0SEQ_DIGITS$}", self.prefix)
    }

    pub(super) fn head(&self) -> String {
        format!("{}head", self.prefix)
    }

    /// The SEQ of an event's key.
    pub(super) fn seq(&self, key: &str) -> Option<u64> {
        let digits = key.strip_prefix(&self.event_prefix())?;
        (digits.len() == SEQ_DIGITS).then(|| digits.parse().ok()).flatten()
    }

    fn event_prefix(&self) -> String {
        format!("{}event/", self.prefix)
    }

    /// Reads all that a table is made of, at one moment: flags, their meta, the newest event, the head.
    pub(super) fn reads(&self) -> Vec<Value> {
        let below = |folder: &str| {
            let from = format!("{}{folder}/", self.prefix);
            json!({ "request_range": { "key": base64(&from), "range_end": base64(&after(&from)) } })
        };
        let mut newest = self.events(0);
        newest["sort_order"] = "DESCEND".into();
        newest["sort_target"] = "KEY".into();
        newest["limit"] = "1".into();
        let head = json!({ "request_range": { "key": base64(&self.head()) } });
        vec![below("flag"), below("meta"), json!({ "request_range": newest }), head]
    }

    /// A range of the events after `since`.
    pub(super) fn events(&self, since: u64) -> Value {
        let from = self.event(since.saturating_add(1));
        json!({ "key": base64(&from), "range_end": base64(&after(&self.event_prefix())) })
    }
}

/// The first key behind all that begin with `prefix`, whose last character is a slash.
fn after(prefix: &str) -> String {
    format!("{}0", prefix.strip_suffix('/').unwrap_or(prefix))
}

/// What is known about a flag's last change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// The override that it set, null when it dropped one.
    pub to: Option<WireValue>,
    /// Who.
    pub by: String,
    /// When, where that is known.
    pub at: Option<DateTime<Utc>>,
    /// Why.
    pub reason: String,
    /// The incident that it belongs to.
    pub incident: Option<String>,
    /// The lease that drops the override.
    pub lease: Option<String>,
    /// When its timer runs out.
    pub expires: Option<DateTime<Utc>>,
    /// What the timer does then.
    pub on_expire: Option<WireOnExpire>,
}

/// An entry of the history as it is stored: an [`EventRow`] without its revision, which etcd gives to a
/// transaction only when it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub at: DateTime<Utc>,
    pub actor: String,
    pub reason: String,
    pub incident: Option<String>,
    pub request_id: Option<String>,
    pub changes: Vec<EventChangeRow>,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// Overrides in force afterwards, for the table's revision then.
    pub overrides: u64,
}

impl Record {
    /// The event of this record, found under `seq` and put at `mod_revision`.
    pub(super) fn into_event(self, seq: u64, mod_revision: u64) -> FlagEvent {
        FlagEvent::from(EventRow {
            seq,
            at: self.at,
            actor: self.actor,
            reason: self.reason,
            incident: self.incident,
            request_id: self.request_id,
            changes: self.changes,
            revision: revision(mod_revision, self.overrides).0,
            kind: self.kind,
            anchor: self.anchor,
            marks: Marks::default(),
        })
    }
}

/// How many table revisions one revision of etcd has room for: more than there are flags.
const STEPS: u64 = 100;
const _: () = assert!((crate::admission::FLAGS.len() as u64) < STEPS);

/// The table's revision, from the newest put of the namespace and the number of overrides.
///
/// etcd numbers every put, and keeps no trace of a key that was deleted or whose lease ran out. As long
/// as there is no newer put, though, overrides can only become fewer: so the last two digits count how
/// many are not there. Equal revisions are equal tables, a later table has a larger revision, and keys
/// outside of the namespace do not matter. One way leads back: an override that was put past weir, and
/// deleted past weir before anything else was put, leaves the table and the revision of before.
pub(super) fn revision(newest: u64, overrides: u64) -> Revision {
    let missing = (STEPS - 1).saturating_sub(overrides);
    Revision(newest.saturating_mul(STEPS).saturating_add(missing))
}

/// The revision of a flag that was put at `mod_revision`: the smallest that a table of then can have.
pub(super) fn revision_of_put(mod_revision: u64) -> u64 {
    mod_revision.saturating_mul(STEPS)
}

/// The newest put that a table of this revision has seen.
pub(super) fn newest_put(revision: Revision) -> u64 {
    revision.0 / STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_one_plain_word() {
        for bad in ["", "a/b", "a b", "ü", "../x", &"x".repeat(65)] {
            let error = Layout::new(bad).expect_err(bad).to_string();
            assert!(error.contains("payments-prod"), "{error}");
        }
        let layout = Layout::new("payments-prod").expect("plain");
        assert_eq!(layout.flag("retry.owner"), "/weir/payments-prod/flag/retry.owner");
        assert_eq!(layout.seq(&layout.event(42)), Some(42));
        assert_eq!(layout.seq("/weir/payments-prod/event/42"), None);
        assert_eq!(layout.seq("/weir/payments-prod2/event/000000000042"), None);
    }

    #[test]
    fn a_range_ends_behind_its_prefix_and_before_a_longer_name() {
        assert_eq!(after("/weir/a/flag/"), "/weir/a/flag0");
        assert!("/weir/a/flag/zzz" < after("/weir/a/flag/").as_str());
        assert!("/weir/a/flags/x" > after("/weir/a/flag/").as_str());
    }

    #[test]
    fn revisions_rise_with_every_put_and_every_loss() {
        assert!(revision(41, 3) < revision(41, 2));
        assert!(revision(41, 0) < revision(42, 16));
        // Bob's flag is newer than all tables before his put, and not newer than his own.
        assert!(revision_of_put(42) > revision(41, 0).0);
        assert!(revision_of_put(42) <= revision(42, 16).0);
        assert_eq!(newest_put(revision(42, 16)), 42);
    }
}
