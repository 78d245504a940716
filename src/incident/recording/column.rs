//! Numbers of series in columns: which changed, by the distances between them, and to what.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ingest::SERIES_MAX;

/// Longest column: the series of one instance, and as many that left.
pub const COLUMN_MAX: usize = 2 * SERIES_MAX;

/// What a series changed to.
///
/// On the line an integer is added to the last value, which is an integer too; a string replaces it
/// (the shortest decimal that reads back to the same bits); null is a series that left.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// So much more.
    More(i64),
    /// This.
    Is(f64),
    /// The series is not there.
    Gone,
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::More(a), Self::More(b)) => a == b,
            (Self::Is(a), Self::Is(b)) => a.to_bits() == b.to_bits(),
            (Self::Gone, Self::Gone) => true,
            _ => false,
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::More(more) => to.serialize_i64(*more),
            Self::Is(value) => to.collect_str(value),
            Self::Gone => to.serialize_unit(),
        }
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl Visitor<'_> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer, a number in quotes, or null")
    }

    fn visit_i64<E: serde::de::Error>(self, more: i64) -> Result<Cell, E> {
        Ok(Cell::More(more))
    }

    fn visit_u64<E: serde::de::Error>(self, more: u64) -> Result<Cell, E> {
        let signed = i64::try_from(more);
        signed.map(Cell::More).map_err(|_| E::invalid_value(Unexpected::Unsigned(more), &self))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Cell, E> {
        let value = text.parse();
        value.map(Cell::Is).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Cell, E> {
        Ok(Cell::Gone)
    }
}

/// Reads a column, and no farther than the longest that there is.
pub fn column<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(Column(PhantomData))
}

struct Column<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Column<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {COLUMN_MAX} of a column")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = from.next_element()? {
            if all.len() == COLUMN_MAX {
                return Err(serde::de::Error::invalid_length(COLUMN_MAX + 1, &self));
            }
            all.push(one);
        }
        Ok(all)
    }
}

/// Turns numbers in order into the distances between them.
#[derive(Debug, Default)]
pub struct Distances {
    next: u32,
    /// So far.
    pub all: Vec<u32>,
}

impl Distances {
    /// Takes the next number.
    pub fn push(&mut self, number: u32) {
        self.all.push(number - self.next);
        self.next = number + 1;
    }
}

/// The numbers that these distances tell; `None` for one beyond any that there is.
pub fn numbers(distances: &[u32]) -> impl Iterator<Item = Option<u32>> {
    distances.iter().scan(Some(0_u32), |next, distance| {
        let number = next.and_then(|next| next.checked_add(*distance));
        *next = number.and_then(|number| number.checked_add(1));
        Some(number)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cells_come_back_to_the_bit(bits in any::<u64>(), more in any::<i64>()) {
            for cell in [Cell::Is(f64::from_bits(bits)), Cell::More(more), Cell::Gone] {
                let text = serde_json::to_string(&cell).expect("plain");
                let back: Cell = serde_json::from_str(&text).expect("own output");
                let is_nan = matches!(cell, Cell::Is(value) if value.is_nan());
                prop_assert!(back == cell || is_nan, "{text}");
            }
        }

        #[test]
        fn distances_come_back(numbers_in in proptest::collection::btree_set(any::<u32>(), 0..9)) {
            let mut distances = Distances::default();
            let wanted: Vec<u32> =
                numbers_in.into_iter().filter(|number| *number < u32::MAX).collect();
            for number in &wanted {
                distances.push(*number);
            }
            let back: Option<Vec<u32>> = numbers(&distances.all).collect();
            prop_assert_eq!(back, Some(wanted));
        }
    }
}
