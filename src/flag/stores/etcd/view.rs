//! What one read of a namespace shows: values, who set them, and what happened past weir.
//!
//! Pure: ranges in, a flag table out. The one thing that the keys do not tell is whether an override
//! that is gone was dropped by its timer or by a person; that is asked of its lease.

use std::collections::BTreeSet;

use crate::admission::{FLAGS, FlagDef, FlagValue, Settings};
use crate::flag::types::{FlagTable, OnExpire, Revision};

use super::super::json_value;
use super::super::layer::{self, Held};
use super::gateway::{KeyValue, Range};
use super::layout::{Layout, Meta, revision, revision_of_put};

/// Who changed a flag past weir: etcd does not say.
pub(super) const OUTSIDE: &str = "outside";
/// Who dropped an override whose lease ran out.
pub(super) const TIMER: &str = "timer";

/// A key that weir cannot read, and why.
#[derive(Debug)]
pub(super) struct BadKey {
    pub key: String,
    pub why: String,
}

/// One flag in etcd.
#[derive(Debug)]
pub(super) struct Slot {
    pub def: &'static FlagDef,
    /// The override in force.
    pub value: Option<FlagValue>,
    /// When etcd last saw the override put; 0 when there is none.
    pub value_put: u64,
    /// What weir wrote about the flag's last change.
    pub meta: Option<Meta>,
    /// When; 0 when there is none.
    pub meta_put: u64,
}

/// What a flag's meta is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It describes what is there.
    Told,
    /// Its lease has run out and taken the override along.
    Lapsed,
    /// Somebody put an override past weir.
    PutOutside,
    /// Somebody deleted the override past weir.
    DroppedOutside,
}

/// One read of the namespace.
#[derive(Debug)]
pub(super) struct View {
    /// In the order of the flag table.
    pub slots: Vec<Slot>,
    /// The newest event.
    pub seq: u64,
    /// When the head was put.
    pub head_put: u64,
    newest_put: u64,
    /// Leases that are gone.
    ended: BTreeSet<String>,
}

impl View {
    /// Reads the answers to [`Layout::reads`].
    pub(super) fn new(
        layout: &Layout,
        mut ranges: impl Iterator<Item = Range>,
    ) -> Result<Self, BadKey> {
        let mut next = || ranges.next().unwrap_or_default().kvs;
        let (flags, metas, newest, head) = (next(), next(), next(), next());
        let slots = FLAGS
            .iter()
            .map(|def| Slot::new(def, find(&flags, &layout.flag(def.key)), &metas, layout))
            .collect::<Result<Vec<_>, _>>()?;
        let newest_seq = match newest.first() {
            None => 0,
            Some(event) => layout.seq(&event.key).ok_or_else(|| BadKey {
                key: event.key.clone(),
                why: "the name is not that of an event".to_owned(),
            })?,
        };
        let head = head.first();
        let head_seq = match head {
            None => 0,
            Some(head) => head.value.trim().parse().map_err(|_| BadKey {
                key: head.key.clone(),
                why: format!("`{}` is not the number of the newest event", head.value),
            })?,
        };
        let head_put = head.map_or(0, |head| head.mod_revision);
        let event_put = newest.first().map_or(0, |event| event.mod_revision);
        let value_put = slots.iter().map(|slot| slot.value_put).max().unwrap_or_default();
        Ok(Self {
            slots,
            seq: head_seq.max(newest_seq),
            head_put,
            newest_put: head_put.max(event_put).max(value_put),
            ended: BTreeSet::new(),
        })
    }

    /// Leases of overrides that are gone: whether a lease still runs tells who dropped it.
    pub(super) fn leases_in_doubt(&self) -> BTreeSet<String> {
        let gone = self.slots.iter().filter(|slot| slot.is_gone());
        gone.filter_map(|slot| slot.meta.as_ref()?.lease.clone()).collect()
    }

    /// This lease is gone.
    pub(super) fn ended(&mut self, lease: String) {
        self.ended.insert(lease);
    }

    /// How many overrides are in force.
    pub(super) fn overrides(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.value.is_some())).sum()
    }

    pub(super) fn revision(&self) -> Revision {
        revision(self.newest_put, self.overrides())
    }

    /// What `slot`'s meta is worth.
    pub(super) fn standing(&self, slot: &Slot) -> Standing {
        let set = slot.meta.as_ref().is_some_and(|meta| meta.to.is_some());
        if slot.is_gone() {
            let lease = slot.meta.as_ref().and_then(|meta| meta.lease.as_ref());
            let lapsed = lease.is_some_and(|lease| self.ended.contains(lease));
            if lapsed { Standing::Lapsed } else { Standing::DroppedOutside }
        } else if slot.value.is_some() && (!set || slot.value_put > slot.meta_put) {
            Standing::PutOutside
        } else {
            Standing::Told
        }
    }

    /// The flag table over these base values.
    pub(super) fn table(&self, base: &Settings) -> FlagTable {
        layer::table(base, self.revision(), |key| {
            let slot = self.slots.iter().find(|slot| slot.def.key == key)?;
            Some(self.held(slot))
        })
    }

    fn held(&self, slot: &Slot) -> Held {
        let overridden = slot.value.clone();
        let by = |name: &str| Some(name.to_owned());
        let meta = slot.meta.as_ref();
        match self.standing(slot) {
            Standing::Told => Held {
                revision: revision_of_put(slot.meta_put.max(slot.value_put)),
                by: meta.map(|meta| meta.by.clone()),
                at: meta.and_then(|meta| meta.at),
                expires: meta.filter(|_| overridden.is_some()).and_then(|meta| meta.expires),
                on_expire: meta.and_then(|meta| meta.on_expire).map(OnExpire::from),
                overridden,
                ..Held::default()
            },
            Standing::PutOutside => Held {
                revision: revision_of_put(slot.value_put),
                by: by(OUTSIDE),
                overridden,
                ..Held::default()
            },
            // Since when it is gone cannot be told; after the table before it is certain.
            Standing::Lapsed => Held {
                revision: self.revision().0,
                by: by(TIMER),
                at: meta.and_then(|meta| meta.expires),
                ..Held::default()
            },
            Standing::DroppedOutside => {
                Held { revision: self.revision().0, by: by(OUTSIDE), ..Held::default() }
            }
        }
    }
}

impl Slot {
    fn new(
        def: &'static FlagDef,
        value: Option<&KeyValue>,
        metas: &[KeyValue],
        layout: &Layout,
    ) -> Result<Self, BadKey> {
        let stored = find(metas, &layout.meta(def.key));
        let meta = stored.map(|stored| {
            serde_json::from_str(&stored.value)
                .map_err(|error| BadKey { key: stored.key.clone(), why: error.to_string() })
        });
        Ok(Self {
            def,
            value: value.map(|stored| json_value::read(def, &stored.value)),
            value_put: value.map_or(0, |stored| stored.mod_revision),
            meta: meta.transpose()?,
            meta_put: stored.map_or(0, |stored| stored.mod_revision),
        })
    }

    /// An override was set, and is not there.
    fn is_gone(&self) -> bool {
        self.value.is_none() && self.meta.as_ref().is_some_and(|meta| meta.to.is_some())
    }
}

fn find<'a>(kvs: &'a [KeyValue], key: &str) -> Option<&'a KeyValue> {
    kvs.iter().find(|kv| kv.key == key)
}
