//! Finds the place of an original by its fingerprint or number. A lookup and no more: it cannot be
//! walked through, so its order decides nothing.

use hashbrown::HashTable;

use super::Identity;

/// 2^64 over the golden ratio, odd: multiplying spreads keys that count up over all upper bits and
/// keeps their lower bits distinct (Knuth, The Art of Computer Programming, volume 3, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What an original is found by.
pub(super) trait Key: Copy + Eq {
    /// The same in every run. Fingerprints are digests already, so nothing needs to be keyed.
    fn hash(self) -> u64;
}

impl Key for u64 {
    fn hash(self) -> u64 {
        self.wrapping_mul(SPREAD)
    }
}

impl Key for Identity {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
    fn hash(self) -> u64 {
        ((self >> 64) as u64 ^ self as u64).wrapping_mul(SPREAD)
    }
}

/// Places by key.
#[derive(Debug)]
pub(super) struct Index<K> {
    places: HashTable<(K, u32)>,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self { places: HashTable::new() }
    }
}

impl<K: Key> Index<K> {
    pub(super) fn get(&self, key: K) -> Option<u32> {
        self.places.find(key.hash(), |(other, _)| *other == key).map(|(_, place)| *place)
    }

    /// Sets the place of a key.
    pub(super) fn set(&mut self, key: K, place: u32) {
        self.places
            .entry(key.hash(), |(other, _)| *other == key, |(other, _)| other.hash())
            .insert((key, place));
    }

    pub(super) fn remove(&mut self, key: K) {
        if let Ok(found) = self.places.find_entry(key.hash(), |(other, _)| *other == key) {
            found.remove();
        }
    }

    /// Gives back memory that is not needed any more.
    pub(super) fn shrink(&mut self) {
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to(self.places.len(), |(key, _)| key.hash());
        }
    }

    /// Keys that have room.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.places.capacity()
    }
}
