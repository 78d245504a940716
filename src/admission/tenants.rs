//! Gives the tenants that are about small numbers, and forgets those that have been idle.
//!
//! Everything else of the gate knows a tenant by its number. A table of hashes finds the number; nothing
//! goes through it in its order. Names of up to 24 bytes lie in the slots themselves, so that finding one
//! looks at one place less.

use std::hash::BuildHasher as _;
use std::time::Duration;

use compact_str::CompactString;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::queue::TenantId;
use crate::signal::Mono;

/// Tenants that are told apart at a time; those beyond share one number until others are forgotten.
const TENANTS_MAX: usize = 1_000_000;
/// A tenant without a request for so long is forgotten.
const IDLE: Duration = Duration::from_mins(10);
/// The name that tenants beyond the bound share.
const OTHER: &str = "other";

#[derive(Debug)]
struct Slot {
    name: CompactString,
    /// Requests of it that are open.
    open: u32,
    /// Somebody counts it by its number, for good.
    kept: bool,
    seen: Mono,
}

/// The tenants of one gate.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    by_name: HashTable<u32>,
    /// Seeded anew in every process, so that callers cannot choose names that collide.
    hasher: RandomState,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    hand: usize,
}

impl Tenants {
    /// The number of a tenant that sends a request now. Give it back with [`Self::leave`].
    pub fn enter(&mut self, name: &str, now: Mono) -> TenantId {
        let slots = &self.slots;
        let hash = self.hasher.hash_one(name);
        let found = self.by_name.find(hash, |number| named(slots, *number, name)).copied();
        let number = found.unwrap_or_else(|| self.insert(name, hash, now));
        let slot = self.slots[number as usize].as_mut().expect("a number of the table is taken");
        slot.open += 1;
        slot.seen = now;
        TenantId(number)
    }

    /// The name of a tenant that is about. It keeps its number from now on.
    ///
    /// # Panics
    /// When there is no such tenant.
    pub fn keep(&mut self, TenantId(number): TenantId) -> &str {
        let slot = self.slots[number as usize].as_mut().expect("the tenant is about");
        slot.kept = true;
        &slot.name
    }

    /// A request of this tenant has ended.
    pub fn leave(&mut self, TenantId(number): TenantId, now: Mono) {
        if let Some(Some(slot)) = self.slots.get_mut(number as usize) {
            slot.open = slot.open.saturating_sub(1);
            slot.seen = now;
        }
    }

    /// Numbers, those that are free among them.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Looks at so many numbers, in turn, for tenants that are idle.
    pub fn sweep(&mut self, numbers: usize, now: Mono) {
        for _ in 0..numbers {
            self.sweep_one(now);
        }
    }

    fn insert(&mut self, name: &str, hash: u64, now: Mono) -> u32 {
        let full = self.free.is_empty() && self.slots.len() >= TENANTS_MAX;
        if full && name != OTHER {
            let hash = self.hasher.hash_one(OTHER);
            let slots = &self.slots;
            let found = self.by_name.find(hash, |number| named(slots, *number, OTHER)).copied();
            return found.unwrap_or_else(|| self.insert(OTHER, hash, now));
        }
        let slot = Some(Slot { name: name.into(), open: 0, kept: false, seen: now });
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("bounded by TENANTS_MAX")
        });
        self.slots[number as usize] = slot;
        let (slots, hasher) = (&self.slots, &self.hasher);
        let rehash = |number: &u32| {
            let slot = slots[*number as usize].as_ref();
            hasher.hash_one(&*slot.expect("a number of the table is taken").name)
        };
        self.by_name.insert_unique(hash, number, rehash);
        number
    }

    /// Forgets the tenant under the hand if it is idle, and moves the hand on.
    fn sweep_one(&mut self, now: Mono) {
        self.hand = (self.hand + 1) % self.slots.len();
        let number = self.hand;
        let idle = self.slots[number]
            .take_if(|slot| slot.open == 0 && !slot.kept && now.saturating_since(slot.seen) > IDLE);
        let Some(slot) = idle else { return };
        let number = u32::try_from(number).expect("bounded by TENANTS_MAX");
        let hash = self.hasher.hash_one(&*slot.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.free.push(number);
    }
}

fn named(slots: &[Option<Slot>], number: u32, name: &str) -> bool {
    slots[number as usize].as_ref().is_some_and(|slot| slot.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_keeps_its_number_while_it_is_about() {
        let mut tenants = Tenants::default();
        let a = tenants.enter("a", Mono::START);
        let long = "a name that is longer than twenty-four bytes";
        let b = tenants.enter(long, Mono::START);
        assert_ne!(a, b);
        assert_eq!(tenants.enter("a", Mono::START + IDLE * 3), a);
        assert_eq!(tenants.keep(b), long);
    }

    #[test]
    fn the_idle_are_forgotten_and_the_open_and_the_kept_are_not() {
        let mut tenants = Tenants::default();
        for n in 0..100 {
            let id = tenants.enter(&format!("idle-{n}"), Mono::START);
            tenants.leave(id, Mono::START);
        }
        let open = tenants.enter("open", Mono::START);
        let kept = tenants.enter("kept", Mono::START);
        tenants.keep(kept);
        tenants.leave(kept, Mono::START);
        let later = Mono::START + IDLE + Duration::from_secs(1);
        tenants.sweep(tenants.slots(), later);
        assert_eq!(tenants.slots.len() - tenants.free.len(), 2);
        assert_eq!([tenants.enter("open", later), tenants.enter("kept", later)], [open, kept]);
    }
}
