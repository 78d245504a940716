//! Counts by label. A label has few values, so they lie beside each other in their order, the first few
//! within the scope that counts them: a decision looks for none of them elsewhere in memory.

use smallvec::SmallVec;

/// Values that are counted without memory of their own.
const INLINE: usize = 4;

/// How often each value of a label was seen; those never seen have no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts<K>(SmallVec<[(K, u64); INLINE]>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<K: Copy + Ord> Counts<K> {
    /// One more of `key`.
    pub(super) fn add(&mut self, key: K) {
        match self.0.binary_search_by_key(&key, |(known, _)| *known) {
            Ok(place) => self.0[place].1 += 1,
            Err(place) => self.0.insert(place, (key, 1)),
        }
    }

    /// How often `key` was seen.
    #[must_use]
    pub fn of(&self, key: K) -> u64 {
        self.iter().find(|(known, _)| *known == key).map_or(0, |(_, count)| count)
    }

    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// What was seen, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_those_of_a_map(keys in prop::collection::vec(0u8..12, 0..80)) {
            let mut counts = Counts::default();
            let mut map = std::collections::BTreeMap::new();
            for key in &keys {
                counts.add(*key);
                *map.entry(*key).or_insert(0) += 1;
            }
            prop_assert_eq!(counts.iter().collect::<Vec<_>>(), map.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!(counts.total(), keys.len() as u64);
            prop_assert!((0..12).all(|key| counts.of(key) == map.get(&key).copied().unwrap_or(0)));
        }
    }
}
