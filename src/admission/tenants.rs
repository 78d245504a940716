//! Gives the tenants that are about small numbers, and forgets those that have been idle.
//!
//! Everything else of the gate knows a tenant by its number. A table of hashes finds the number; nothing
//! goes through it in its order. Names of up to 24 bytes lie in the table itself, so that finding one
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
struct Tenant {
    name: CompactString,
    number: u32,
    /// Requests of it that are open.
    open: u32,
    seen: Mono,
    /// Somebody counts it by its number, for good.
    kept: bool,
}

/// The tenants of one gate.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    table: HashTable<Tenant>,
    /// Seeded anew in every process, so that callers cannot choose names that collide.
    hasher: RandomState,
    /// Hash of the name by number; of one that is free, the last one's.
    hashes: Vec<u64>,
    free: Vec<u32>,
    hand: usize,
}

impl Tenants {
    /// The number of a tenant that sends a request now. Give it back with [`Self::leave`].
    pub fn enter(&mut self, name: &str, now: Mono) -> TenantId {
        let hash = self.hasher.hash_one(name);
        let tenant = match self.table.find_mut(hash, |tenant| tenant.name == name) {
            Some(tenant) => tenant,
            None => self.insert(name, hash, now),
        };
        tenant.open += 1;
        tenant.seen = now;
        TenantId(tenant.number)
    }

    /// The name of a tenant that is about. It keeps its number from now on.
    ///
    /// # Panics
    /// When there is no such tenant.
    pub fn keep(&mut self, id: TenantId) -> &str {
        let tenant = self.get_mut(id).expect("the tenant is about");
        tenant.kept = true;
        &tenant.name
    }

    /// A request of this tenant has ended.
    pub fn leave(&mut self, id: TenantId, now: Mono) {
        if let Some(tenant) = self.get_mut(id) {
            tenant.open = tenant.open.saturating_sub(1);
            tenant.seen = now;
        }
    }

    /// Numbers, those that are free among them.
    pub fn numbers(&self) -> usize {
        self.hashes.len()
    }

    /// Looks at so many numbers, in turn, for tenants that are idle.
    pub fn sweep(&mut self, numbers: usize, now: Mono) {
        for _ in 0..numbers {
            self.sweep_one(now);
        }
    }

    fn get_mut(&mut self, TenantId(number): TenantId) -> Option<&mut Tenant> {
        let hash = *self.hashes.get(number as usize)?;
        self.table.find_mut(hash, |tenant| tenant.number == number)
    }

    fn insert(&mut self, name: &str, hash: u64, now: Mono) -> &mut Tenant {
        let full = self.free.is_empty() && self.hashes.len() >= TENANTS_MAX;
        let (name, hash) = if full { (OTHER, self.hasher.hash_one(OTHER)) } else { (name, hash) };
        let known = full && self.table.find(hash, |tenant| tenant.name == OTHER).is_some();
        if !known {
            let number = self.free.pop().unwrap_or_else(|| {
                self.hashes.push(hash);
                u32::try_from(self.hashes.len() - 1).expect("bounded by TENANTS_MAX")
            });
            self.hashes[number as usize] = hash;
            let tenant = Tenant { name: name.into(), number, open: 0, seen: now, kept: false };
            let hashes = &self.hashes;
            let rehash = |tenant: &Tenant| hashes[tenant.number as usize];
            self.table.insert_unique(hash, tenant, rehash);
        }
        let found = self.table.find_mut(hash, |tenant| tenant.name == name);
        found.expect("it was there, or was put there")
    }

    /// Forgets the tenant under the hand if it is idle, and moves the hand on.
    fn sweep_one(&mut self, now: Mono) {
        self.hand = (self.hand + 1) % self.hashes.len();
        let Ok(number) = u32::try_from(self.hand) else { return };
        let same = |tenant: &Tenant| tenant.number == number;
        let Ok(entry) = self.table.find_entry(self.hashes[self.hand], same) else { return };
        let &Tenant { open, kept, seen, .. } = entry.get();
        if open == 0 && !kept && now.saturating_since(seen) > IDLE {
            entry.remove();
            self.free.push(number);
        }
    }
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
        tenants.sweep(tenants.numbers(), later);
        assert_eq!(tenants.hashes.len() - tenants.free.len(), 2);
        assert_eq!([tenants.enter("open", later), tenants.enter("kept", later)], [open, kept]);
    }
}
