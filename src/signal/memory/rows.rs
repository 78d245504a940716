//! Scrapes one after the other, each as its difference to the one before.
//!
//! Appending costs a comparison per series and a byte or two per change; nothing is kept raw but the
//! oldest and the newest scrape. The price: one series is read by walking over all the others.
//!
//! A row is a map of the series that changed, one bit each, then one code per change: a whole number
//! as its difference (1 or 2 bytes when small), any other value as the bits that changed.

use std::collections::VecDeque;
use std::ops::Range;

use super::{SeriesId, as_f64, as_integer, is_same, unzigzag, zigzag};
use crate::signal::promql::{is_stale_marker, stale_marker};

/// First byte of a code. Below [`TWO_BYTES`] it is the difference itself, above [`LEAST`].
const TWO_BYTES: u8 = 0xa0;
/// The upper four of the changed bits, then 5 bytes of them, 6 or 7 bytes sixteen codes later.
const UPPER_BITS: u8 = 0xc0;
/// The difference follows in 3 bytes, up to 8 five codes later.
const LONG: u8 = 0xf0;
/// The changed bits follow in 1 byte, up to 8 seven codes later.
const CHANGED_BITS: u8 = 0xf6;
/// A gap.
const GAP: u8 = 0xff;

/// The difference that the first code stands for: counters rise, gauges fall as often.
const LEAST: i64 = -40;
/// Differences less this far above [`LEAST`] are one byte long.
const ONE_BYTE_LIMIT: i64 = TWO_BYTES as i64;
/// Zigzag codes below are two bytes long.
const TWO_BYTES_LIMIT: u64 = (UPPER_BITS as u64 - TWO_BYTES as u64) * 256;
const LONG_BYTES_MIN: usize = 3;
const UPPER_BITS_BYTES: std::ops::RangeInclusive<usize> = 5..=7;

/// The rows of one source.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Values before the oldest row; shorter than a row where series were new.
    before: Vec<f64>,
    /// Values of the newest row.
    newest: Vec<f64>,
    /// Oldest first.
    changes: VecDeque<Row>,
    /// Where a row is made, so that its own memory is as long as it is.
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Row {
    series: u32,
    bytes: Box<[u8]>,
}

impl Rows {
    /// Appends a row. Series that `values` does not reach are gaps.
    pub(super) fn push(&mut self, values: &[f64]) {
        let series = values.len().max(self.newest.len());
        self.newest.resize(series, stale_marker());
        let bytes = &mut self.scratch;
        bytes.clear();
        bytes.resize(series.div_ceil(8), 0);
        for (index, before) in self.newest.iter_mut().enumerate() {
            let value = values.get(index).copied().unwrap_or(stale_marker());
            if !is_same(*before, value) {
                bytes[index / 8] |= 1 << (index % 8);
                encode(*before, value, bytes);
                *before = value;
            }
        }
        let series = u32::try_from(series).unwrap_or(u32::MAX);
        self.changes.push_back(Row { series, bytes: bytes.as_slice().into() });
    }

    /// Forgets the oldest row.
    pub(super) fn drop_oldest(&mut self) {
        if let Some(row) = self.changes.pop_front() {
            row.apply(&mut self.before);
        }
    }

    /// The values of one series, a gap for every row without it.
    pub(super) fn column(&self, id: SeriesId) -> impl Iterator<Item = f64> {
        let mut value = self.before.get(id.index()).copied().unwrap_or(stale_marker());
        self.changes.iter().map(move |row| {
            if let Some(code) = row.code(id.index()) {
                value = decode(value, code).0;
            }
            value
        })
    }

    /// The values of several series in the rows of these numbers.
    pub(super) fn columns(&self, ids: &[SeriesId], rows: Range<usize>) -> Vec<Vec<f64>> {
        let mut values = self.before.clone();
        let mut columns = vec![Vec::with_capacity(rows.len()); ids.len()];
        for (index, row) in self.changes.range(..rows.end).enumerate() {
            row.apply(&mut values);
            if index >= rows.start {
                for (column, id) in columns.iter_mut().zip(ids) {
                    column.push(values.get(id.index()).copied().unwrap_or(stale_marker()));
                }
            }
        }
        columns
    }

    pub(super) fn held_bytes(&self) -> usize {
        let raw = (self.before.capacity() + self.newest.capacity()) * size_of::<f64>();
        let rows: usize = self.changes.iter().map(|row| row.bytes.len()).sum();
        raw + rows + self.changes.capacity() * size_of::<Row>() + self.scratch.capacity()
    }
}

impl Row {
    /// The series that changed, and the codes of their changes.
    fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at((self.series as usize).div_ceil(8))
    }

    /// Turns the values of the row before into those of this one.
    fn apply(&self, values: &mut Vec<f64>) {
        values.resize(self.series as usize, stale_marker());
        let (changed, mut codes) = self.parts();
        for (index, value) in values.iter_mut().enumerate() {
            if changed[index / 8] & (1 << (index % 8)) != 0 {
                let (new, length) = decode(*value, codes);
                *value = new;
                codes = &codes[length..];
            }
        }
    }

    /// The code of one series' change, if it changed.
    fn code(&self, index: usize) -> Option<&[u8]> {
        let (changed, mut codes) = self.parts();
        let own = changed.get(index / 8)? & (1 << (index % 8));
        if own == 0 {
            return None;
        }
        let lower = changed[..index / 8].iter().map(|byte| byte.count_ones()).sum::<u32>();
        let below = (changed[index / 8] & (own - 1)).count_ones();
        for _ in 0..lower + below {
            codes = &codes[length(codes[0])..];
        }
        Some(codes)
    }
}

/// Appends the code of the change from `before` to `value`.
fn encode(before: f64, value: f64, bytes: &mut Vec<u8>) {
    if is_stale_marker(value) {
        bytes.push(GAP);
        return;
    }
    let before = after_gap(before);
    let low = |code: u64| code.to_le_bytes()[0];
    if let (Some(from), Some(to)) = (as_integer(before), as_integer(value)) {
        let difference = to - from;
        let (above, code) = (difference - LEAST, zigzag(difference));
        if (0..ONE_BYTE_LIMIT).contains(&above) {
            bytes.push(low(above.cast_unsigned()));
        } else if code < TWO_BYTES_LIMIT {
            bytes.extend([TWO_BYTES + low(code >> 8), low(code)]);
        } else {
            put_bytes(LONG, LONG_BYTES_MIN, code, bytes);
        }
        return;
    }
    let changed = before.to_bits() ^ value.to_bits();
    // A sum of seconds changes in some 44 bits and a ratio in some 60: half a byte saves a whole one.
    let whole = (u64::BITS - changed.leading_zeros()).saturating_sub(4).div_ceil(8) as usize;
    if UPPER_BITS_BYTES.contains(&whole) {
        let group = low(whole as u64 - *UPPER_BITS_BYTES.start() as u64) * 16;
        bytes.push(UPPER_BITS + group + low(changed >> (8 * whole)));
        bytes.extend(&changed.to_le_bytes()[..whole]);
    } else {
        put_bytes(CHANGED_BITS, 1, changed, bytes);
    }
}

/// The value that `code` makes of `before`, and the length of the code.
fn decode(before: f64, code: &[u8]) -> (f64, usize) {
    let (before, first) = (after_gap(before), code[0]);
    let length = length(first);
    let rest = get_bytes(&code[1..length]);
    let moved = |difference| as_f64(as_integer(before).unwrap_or_default() + difference);
    let changed = |bits| f64::from_bits(before.to_bits() ^ bits);
    let value = match first {
        GAP => stale_marker(),
        CHANGED_BITS.. => changed(rest),
        LONG.. => moved(unzigzag(rest)),
        UPPER_BITS.. => {
            let upper = u64::from((first - UPPER_BITS) % 16);
            changed(upper << (8 * (length - 1)) | rest)
        }
        TWO_BYTES.. => moved(unzigzag(u64::from(first - TWO_BYTES) << 8 | rest)),
        _ => moved(i64::from(first) + LEAST),
    };
    (value, length)
}

/// Length of the code that begins with `first`.
const fn length(first: u8) -> usize {
    match first {
        GAP => 1,
        CHANGED_BITS.. => (first - CHANGED_BITS) as usize + 2,
        LONG.. => (first - LONG) as usize + LONG_BYTES_MIN + 1,
        UPPER_BITS.. => ((first - UPPER_BITS) / 16) as usize + *UPPER_BITS_BYTES.start() + 1,
        TWO_BYTES.. => 2,
        _ => 1,
    }
}

/// What a change is counted from: zero, after a gap.
const fn after_gap(before: f64) -> f64 {
    if is_stale_marker(before) { 0.0 } else { before }
}

/// Appends the lower bytes of `code`, as many as it has but at least `least`, their number in the
/// first byte above `tag`.
fn put_bytes(tag: u8, least: usize, code: u64, bytes: &mut Vec<u8>) {
    let all = code.to_le_bytes();
    let count = (8 - code.leading_zeros() as usize / 8).max(least);
    bytes.push(tag + u8::try_from(count - least).unwrap_or_default());
    bytes.extend(&all[..count]);
}

fn get_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |code, byte| (code << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn changes_are_as_long_as_they_are_large() {
        for (before, value, bytes) in [
            (5.0, 6.0, 1),
            (5.0, 5.0 - 40.0, 1),
            (5.0, 5.0 - 41.0, 2),
            (5.0, 5.0 + 119.0, 1),
            (5.0, 5.0 + 120.0, 2),
            (0.0, 4095.0, 2),
            (0.0, 4096.0, 4),
            (0.0, 4e15, 8),
            (0.5, 0.75, 7),
            (1000.1, 1000.2, 6),
            (0.1, 0.7, 8),
            (1.0, stale_marker(), 1),
            (stale_marker(), 0.0, 1),
            (stale_marker(), 3.0, 1),
            (f64::NAN, 3.0, 9),
            (0.0, -0.0, 9),
        ] {
            let mut code = Vec::new();
            encode(before, value, &mut code);
            assert_eq!(code.len(), bytes, "{before} to {value}");
            let (decoded, length) = decode(before, &code);
            assert!(is_same(decoded, value) && length == bytes, "{before} to {value}: {decoded}");
        }
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            (-20_000_i32..20_000).prop_map(f64::from),
            Just(stale_marker()),
            Just(0.0),
        ]
    }

    proptest! {
        #[test]
        fn every_series_comes_back_as_it_went_in(
            rows in proptest::collection::vec(proptest::collection::vec(value(), 0..20), 1..12),
            dropped in 0_usize..12,
        ) {
            let mut memory = Rows::default();
            for row in &rows {
                memory.push(row);
            }
            let dropped = dropped.min(rows.len() - 1);
            for _ in 0..dropped {
                memory.drop_oldest();
            }
            let ids: Vec<_> = (0..20).map(SeriesId).collect();
            let together = memory.columns(&ids, 0..rows.len() - dropped);
            for (id, column) in ids.iter().zip(together) {
                let expected: Vec<_> = rows[dropped..]
                    .iter()
                    .map(|row| row.get(id.index()).copied().unwrap_or(stale_marker()).to_bits())
                    .collect();
                let alone: Vec<_> = memory.column(*id).map(f64::to_bits).collect();
                prop_assert_eq!(&alone, &expected);
                let bits: Vec<_> = column.iter().map(|value| value.to_bits()).collect();
                prop_assert_eq!(&bits, &expected);
            }
        }
    }
}
