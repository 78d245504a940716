//! The one transaction that carries a plan out: what must still hold, and what is put then.
//!
//! Whatever happened past weir since the last change is written down in the same transaction, so that
//! the history is whole before it goes on.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};

use crate::admission::{Direction, FlagValue, Settings, flag};
use crate::flag::store::{Author, EventKind};
use crate::flag::types::{OnExpire, Plan};
use crate::flag::wire::{EventChangeRow, WireValue};

use super::gateway::base64;
use super::layout::{Layout, Meta, Record};
use super::view::{OUTSIDE, Slot, Standing, TIMER, View};

/// The timer of a change.
#[derive(Clone, Debug, Default)]
pub(super) struct Timer {
    /// When it runs out.
    pub expires: Option<DateTime<Utc>>,
    /// The lease that drops the overrides then; without one it only reminds.
    pub lease: Option<String>,
}

/// Why etcd must not be asked to carry the plan out. Others may have made it than [`crate::flag::plan`].
pub(super) fn objection(plan: &Plan, base: &Settings) -> Option<String> {
    for (index, change) in plan.changes.iter().enumerate() {
        let def = match flag(&change.key) {
            Ok(def) => def,
            Err(error) => return Some(error.to_string()),
        };
        if plan.changes.iter().take(index).any(|earlier| earlier.key == change.key) {
            return Some(format!("`{}` is named twice in one plan", change.key));
        }
        if change.drops_override {
            continue;
        }
        if let Err(error) = def.check(change.to.clone()) {
            return Some(error.to_string());
        }
        let Ok(base) = base.get(def.key) else { continue };
        let back = def.direction(&base, &change.to, &base);
        // A lease drops, and sets nothing again.
        if has_reverting_timer(plan) && back != Direction::Safer {
            return Some(format!(
                "a timer may only lead toward the safe end, and `{}` would go from {} back to {base}; \
                 let it remind instead",
                change.key, change.to
            ));
        }
    }
    None
}

/// Whether the plan's timer drops an override: that takes a lease.
pub(super) fn has_reverting_timer(plan: &Plan) -> bool {
    let sets = plan.changes.iter().any(|change| !change.drops_override);
    sets && plan.ttl_s.is_some() && plan.on_expire == OnExpire::Revert
}

/// A transaction, ready to be sent.
#[derive(Debug)]
pub(super) struct Transaction {
    pub body: Value,
    /// Overrides in force once it is carried out.
    pub overrides: u64,
}

/// What a transaction is made from.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub layout: &'a Layout,
    /// The namespace as it was read, and must still be.
    pub view: &'a View,
    pub base: &'a Settings,
    pub now: DateTime<Utc>,
}

/// Carries `plan` out if all is as in the view; otherwise reads how it is instead.
pub(super) fn transaction(
    ground: Ground,
    plan: &Plan,
    author: &Author,
    timer: &Timer,
) -> Transaction {
    let Ground { layout, view, now, .. } = ground;
    let is_set = |slot: &&Slot| match plan.changes.iter().find(|change| change.key == slot.def.key)
    {
        Some(change) => !change.drops_override,
        None => slot.value.is_some(),
    };
    let overrides = view.slots.iter().filter(is_set).map(|_| 1).sum();
    let mut writer = Writer { ground, overrides, seq: view.seq, puts: Vec::new() };
    let mut metas = BTreeMap::new();
    for slot in &view.slots {
        if let Some((kind, meta)) = unseen(view, slot) {
            writer.unseen(slot, kind, &meta);
            metas.insert(slot.def.key, meta);
        }
    }
    let mut changes = Vec::new();
    for change in &plan.changes {
        let Some(slot) = view.slots.iter().find(|slot| slot.def.key == change.key) else {
            continue;
        };
        let to = (!change.drops_override).then(|| WireValue::from(&change.to));
        let timer = if to.is_some() { timer.clone() } else { Timer::default() };
        match &to {
            Some(value) => writer.put(&layout.flag(&change.key), value, timer.lease.as_deref()),
            None => writer.delete(&layout.flag(&change.key)),
        }
        changes.push(writer.row(slot, slot.value.as_ref().map(WireValue::from), to.clone()));
        let meta = Meta {
            to,
            by: author.actor.clone(),
            at: Some(now),
            reason: plan.reason.clone(),
            incident: author.incident.clone(),
            on_expire: timer.expires.map(|_| plan.on_expire.into()),
            lease: timer.lease,
            expires: timer.expires,
        };
        metas.insert(slot.def.key, meta);
    }
    for (key, meta) in &metas {
        writer.put(&layout.meta(key), meta, None);
    }
    writer.event(&Record {
        at: now,
        actor: author.actor.clone(),
        reason: plan.reason.clone(),
        incident: author.incident.clone(),
        request_id: Some(plan.request_id.clone()),
        changes,
        kind: EventKind::Change,
        anchor: author.anchor.clone(),
        overrides,
    });
    writer.put(&layout.head(), &writer.seq.clone(), None);
    let body = json!({
        "compare": compares(layout, view),
        "success": writer.puts,
        "failure": layout.reads(),
    });
    Transaction { body, overrides }
}

/// What must still be as it was read: every flag, what is known about it, and the end of the history.
fn compares(layout: &Layout, view: &View) -> Vec<Value> {
    let unmoved = |key: &str, put: u64| {
        json!({
            "key": base64(key), "target": "MOD", "result": "EQUAL", "mod_revision": put.to_string(),
        })
    };
    let of_slot = |slot: &Slot| {
        [
            unmoved(&layout.flag(slot.def.key), slot.value_put),
            unmoved(&layout.meta(slot.def.key), slot.meta_put),
        ]
    };
    let mut all: Vec<Value> = view.slots.iter().flat_map(of_slot).collect();
    all.push(unmoved(&layout.head(), view.head_put));
    // A head that was deleted must not let an event be overwritten.
    all.push(unmoved(&layout.event(view.seq.saturating_add(1)), 0));
    all
}

/// What happened to `slot` past weir, as its meta says it from now on.
fn unseen(view: &View, slot: &Slot) -> Option<(EventKind, Meta)> {
    let was = slot.meta.as_ref();
    let outside = |what: &str| Meta {
        to: slot.value.as_ref().map(WireValue::from),
        by: OUTSIDE.to_owned(),
        at: None,
        reason: format!("{what} in etcd past weir, seen at the next change"),
        incident: None,
        lease: None,
        expires: None,
        on_expire: None,
    };
    match view.standing(slot) {
        Standing::Told => None,
        Standing::PutOutside => Some((EventKind::Change, outside("put"))),
        Standing::DroppedOutside => Some((EventKind::Change, outside("deleted"))),
        Standing::Lapsed => {
            let meta = Meta {
                by: TIMER.to_owned(),
                at: was.and_then(|was| was.expires),
                reason: format!("the timer ran out: {}", was.map_or("", |was| &was.reason)),
                incident: was.and_then(|was| was.incident.clone()),
                ..outside("")
            };
            Some((EventKind::Expire, meta))
        }
    }
}

/// Collects what a transaction puts.
struct Writer<'a> {
    ground: Ground<'a>,
    overrides: u64,
    seq: u64,
    puts: Vec<Value>,
}

impl Writer<'_> {
    fn put(&mut self, key: &str, value: &impl Serialize, lease: Option<&str>) {
        // Strings, numbers and rows of them always serialize.
        let value = serde_json::to_string(value).unwrap_or_default();
        let mut put = json!({ "key": base64(key), "value": base64(&value) });
        if let Some(lease) = lease {
            put["lease"] = lease.into();
        }
        self.puts.push(json!({ "request_put": put }));
    }

    fn delete(&mut self, key: &str) {
        self.puts.push(json!({ "request_delete_range": { "key": base64(key) } }));
    }

    fn event(&mut self, record: &Record) {
        self.seq = self.seq.saturating_add(1);
        let key = self.ground.layout.event(self.seq);
        self.put(&key, record, None);
    }

    /// The entry of the history for what happened past weir.
    fn unseen(&mut self, slot: &Slot, kind: EventKind, meta: &Meta) {
        let from = slot.meta.as_ref().and_then(|was| was.to.clone());
        let record = Record {
            at: meta.at.unwrap_or(self.ground.now),
            actor: meta.by.clone(),
            reason: meta.reason.clone(),
            incident: meta.incident.clone(),
            request_id: None,
            changes: vec![self.row(slot, from, meta.to.clone())],
            kind,
            anchor: None,
            overrides: self.overrides,
        };
        self.event(&record);
    }

    fn row(&self, slot: &Slot, from: Option<WireValue>, to: Option<WireValue>) -> EventChangeRow {
        let base = self.ground.base.get(slot.def.key);
        let base = base.unwrap_or_else(|error| FlagValue::Word(error.to_string()));
        EventChangeRow { key: slot.def.key.to_owned(), base: WireValue::from(&base), from, to }
    }
}
