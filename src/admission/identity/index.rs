//! Finds a place by what lies in it. A lookup and no more: it cannot be walked through, so its order
//! decides nothing.
//!
//! Only half a hash and the place are kept here, eight bytes, so that the whole index stays near the
//! processor; whoever asks compares the key with what lies in the place.

use hashbrown::HashTable;

/// 2^64 over the golden ratio, odd: multiplying spreads keys that count up over all upper bits and
/// keeps their lower bits distinct (Knuth, The Art of Computer Programming, volume 3, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Half a hash, the same in every run: what is hashed are digests and running numbers already, so
/// nothing needs to be keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admission) struct Half(u32);

impl Half {
    pub(in crate::admission) const fn of(word: u64) -> Self {
        Self((word.wrapping_mul(SPREAD) >> 32) as u32)
    }

    const fn whole(self) -> u64 {
        (self.0 as u64).wrapping_mul(SPREAD)
    }
}

/// Places by key.
#[derive(Debug, Default)]
pub(in crate::admission) struct Index {
    places: HashTable<(Half, u32)>,
}

impl Index {
    /// The place whose content is the key's, of those with its hash.
    pub(in crate::admission) fn get(&self, half: Half, is: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.places.find(half.whole(), |(other, at)| *other == half && is(*at));
        found.map(|(_, place)| *place)
    }

    /// Adds a key that is not there yet.
    pub(in crate::admission) fn insert(&mut self, half: Half, place: u32) {
        self.places.insert_unique(half.whole(), (half, place), |(other, _)| other.whole());
    }

    pub(in crate::admission) fn remove(&mut self, half: Half, place: u32) {
        if let Ok(found) = self.places.find_entry(half.whole(), |(_, other)| *other == place) {
            found.remove();
        }
    }

    /// Gives back memory that is not needed any more.
    pub(in crate::admission) fn shrink(&mut self) {
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to(self.places.len(), |(half, _)| half.whole());
        }
    }

    /// Keys that have room.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.places.capacity()
    }
}
