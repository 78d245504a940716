//! One series over one block of scrapes, in the smallest of four forms: constant, whole numbers,
//! differences of whole numbers, or changes of bits.
//!
//! Most series of a metrics page stand still, most of the rest count. Only sums and ratios need their
//! bits kept, and those take most of the room. Any value survives bit by bit.

use super::bits::{BitReader, BitWriter};
use super::{as_f64, as_integer, is_same, unzigzag, zigzag};
use crate::signal::promql::{is_stale_marker, stale_marker};

/// Set in the first byte when a map of the values that are there follows; the rest are gaps.
const HAS_GAPS: u8 = 0x80;

const EMPTY: u8 = 0;
const CONSTANT: u8 = 1;
const WHOLE: u8 = 2;
const DIFFERENCES: u8 = 3;
const BITS: u8 = 4;

/// Widths of the fields that say where the changed bits of a value lie.
const LEADING_WIDTH: u32 = 5;
const LENGTH_WIDTH: u32 = 6;
/// Most leading zeros that the field can say.
const LEADING_MAX: u32 = (1 << LEADING_WIDTH) - 1;

/// Appends `values` to `bytes`. Read it back with the same number of values.
pub(super) fn encode(values: &[f64], bytes: &mut Vec<u8>) {
    let tag = bytes.len();
    bytes.push(EMPTY);
    let present: Vec<f64> =
        values.iter().copied().filter(|value| !is_stale_marker(*value)).collect();
    if present.len() < values.len() {
        bytes[tag] |= HAS_GAPS;
        let mut writer = BitWriter::new(bytes);
        for value in values {
            writer.write(u64::from(!is_stale_marker(*value)), 1);
        }
    }
    let Some(first) = present.first().copied() else { return };
    bytes[tag] |= if present.iter().all(|value| is_same(*value, first)) {
        bytes.extend(first.to_le_bytes());
        CONSTANT
    } else if let Some(integers) = present.iter().map(|value| as_integer(*value)).collect() {
        encode_integers(integers, bytes)
    } else {
        encode_bits(&present, bytes);
        BITS
    };
}

/// The values that [`encode`] made `bytes` of, `count` of them.
pub(super) fn decode(bytes: &[u8], count: usize) -> Vec<f64> {
    let Some((tag, mut bytes)) = bytes.split_first() else { return Vec::new() };
    let mut is_present = vec![true; count];
    if tag & HAS_GAPS != 0 {
        let mut reader = BitReader::new(bytes);
        is_present.fill_with(|| reader.read(1) == 1);
        bytes = bytes.get(count.div_ceil(8)..).unwrap_or_default();
    }
    let present = is_present.iter().filter(|is_present| **is_present).count();
    let mut values = match tag & !HAS_GAPS {
        CONSTANT => vec![f64::from_bits(take_u64(&mut bytes)); present],
        BITS => decode_bits(bytes, present),
        form @ (WHOLE | DIFFERENCES) => decode_integers(form, bytes, present),
        _ => Vec::new(),
    }
    .into_iter();
    let value = |is_present| if is_present { values.next() } else { None };
    is_present.into_iter().map(value).map(|value| value.unwrap_or(stale_marker())).collect()
}

/// Packs each number, or each difference to the one before, above the smallest of them.
fn encode_integers(integers: Vec<i64>, bytes: &mut Vec<u8>) -> u8 {
    let differences: Vec<_> = integers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (form, first, packed) = if width(&differences) <= width(&integers) {
        (DIFFERENCES, integers.first().copied(), differences)
    } else {
        (WHOLE, None, integers)
    };
    bytes.extend(first.into_iter().flat_map(i64::to_le_bytes));
    let least = packed.iter().min().copied().unwrap_or_default();
    put_varint(zigzag(least), bytes);
    let width = width(&packed);
    bytes.push(u8::try_from(width).unwrap_or_default());
    let mut writer = BitWriter::new(bytes);
    for integer in packed {
        writer.write((integer - least).cast_unsigned(), width);
    }
    form
}

/// Bits that hold every number above the smallest.
fn width(integers: &[i64]) -> u32 {
    let (Some(least), Some(most)) = (integers.iter().min(), integers.iter().max()) else {
        return 0;
    };
    u64::BITS - (most - least).cast_unsigned().leading_zeros()
}

fn decode_integers(form: u8, mut bytes: &[u8], count: usize) -> Vec<f64> {
    let first = (form == DIFFERENCES).then(|| take_u64(&mut bytes).cast_signed());
    let least = unzigzag(take_varint(&mut bytes));
    let Some((width, packed)) = bytes.split_first() else { return Vec::new() };
    let mut reader = BitReader::new(packed);
    let packed = std::iter::from_fn(|| {
        Some(least.wrapping_add(reader.read(u32::from(*width).min(u64::BITS)).cast_signed()))
    });
    let integers: Vec<_> = match first {
        None => packed.take(count).collect(),
        Some(first) => {
            let mut sum = first;
            let later = packed.take(count.saturating_sub(1)).map(|difference| {
                sum = sum.wrapping_add(difference);
                sum
            });
            std::iter::once(first).chain(later).collect()
        }
    };
    integers.into_iter().map(as_f64).collect()
}

/// Writes what changed between neighbours: a 0 for nothing, `10` and the bits where they lie within
/// those of the last change, else `11`, where they lie, and the bits. The scheme is known from the
/// Gorilla paper (VLDB 2015, section 4.1.2).
fn encode_bits(values: &[f64], bytes: &mut Vec<u8>) {
    let mut before = values[0].to_bits();
    bytes.extend(before.to_le_bytes());
    let mut writer = BitWriter::new(bytes);
    let mut held: Option<(u32, u32)> = None;
    for value in &values[1..] {
        let changed = value.to_bits() ^ before;
        before = value.to_bits();
        if changed == 0 {
            writer.write(0, 1);
            continue;
        }
        let leading = changed.leading_zeros().min(LEADING_MAX);
        let trailing = changed.trailing_zeros();
        match held {
            Some((lead, trail)) if leading >= lead && trailing >= trail => {
                writer.write(0b10, 2);
                writer.write(changed >> trail, u64::BITS - lead - trail);
            }
            _ => {
                let length = u64::BITS - leading - trailing;
                writer.write(0b11, 2);
                writer.write(u64::from(leading), LEADING_WIDTH);
                writer.write(u64::from(length - 1), LENGTH_WIDTH);
                writer.write(changed >> trailing, length);
                held = Some((leading, trailing));
            }
        }
    }
}

fn decode_bits(mut bytes: &[u8], count: usize) -> Vec<f64> {
    let mut bits = take_u64(&mut bytes);
    let mut reader = BitReader::new(bytes);
    let (mut lead, mut trail) = (0, 0);
    let mut values = Vec::with_capacity(count);
    values.extend((count > 0).then_some(f64::from_bits(bits)));
    while values.len() < count {
        if reader.read(1) == 1 {
            if reader.read(1) == 1 {
                lead = u32::try_from(reader.read(LEADING_WIDTH)).unwrap_or_default();
                let length = u32::try_from(reader.read(LENGTH_WIDTH)).unwrap_or_default() + 1;
                trail = u64::BITS.saturating_sub(lead + length);
            }
            bits ^= reader.read(u64::BITS - lead - trail) << trail;
        }
        values.push(f64::from_bits(bits));
    }
    values
}

fn take_u64(bytes: &mut &[u8]) -> u64 {
    let Some((head, rest)) = bytes.split_first_chunk() else { return 0 };
    *bytes = rest;
    u64::from_le_bytes(*head)
}

fn put_varint(mut code: u64, bytes: &mut Vec<u8>) {
    while code >= 0x80 {
        bytes.push(0x80 | u8::try_from(code & 0x7f).unwrap_or_default());
        code >>= 7;
    }
    bytes.push(u8::try_from(code).unwrap_or_default());
}

fn take_varint(bytes: &mut &[u8]) -> u64 {
    let mut code = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else { break };
        *bytes = rest;
        code |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(values: &[f64]) -> usize {
        let mut bytes = vec![7];
        encode(values, &mut bytes);
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&decode(&bytes[1..], values.len())), bits(values));
        bytes.len() - 1
    }

    #[test]
    fn each_form_is_small_where_it_is_meant_to_be() {
        let gap = stale_marker();
        let counting: Vec<f64> = (0..120_u32).map(|n| 1e9 + f64::from(n * 7)).collect();
        let with_gap: Vec<f64> = [gap].into_iter().chain(counting.clone()).collect();
        let sums: Vec<f64> = (0..120_u32).map(|n| f64::from(n) * 0.37).collect();
        for (what, values, bytes_max) in [
            ("nothing", vec![], 1),
            ("gaps only", vec![gap; 16], 3),
            ("one value", vec![0.5], 9),
            ("a constant", vec![1e300; 120], 9),
            ("NaN is a constant", vec![f64::NAN; 120], 9),
            ("zeros of both signs", vec![0.0, -0.0], 14),
            ("a steady counter", counting, 12),
            ("the same with a gap", with_gap, 28),
            ("a gauge of small numbers", vec![3.0, 1.0, 2.0, 0.0, 3.0, 3.0, 1.0, 2.0], 5),
            ("sums", sums, 120 * 8),
            ("infinities", vec![f64::INFINITY, f64::NEG_INFINITY, 1.0], 30),
            ("huge", vec![1e18, 1.0, f64::MAX], 30),
        ] {
            let bytes = round_trip(&values);
            assert!(bytes <= bytes_max, "{what}: {bytes} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_values_survive(values in proptest::collection::vec(
            prop_oneof![
                any::<u64>().prop_map(f64::from_bits),
                (-1000_i32..1000).prop_map(f64::from),
                Just(stale_marker()),
            ],
            0..200,
        )) {
            round_trip(&values);
        }

        #[test]
        fn any_bytes_decode_to_something(
            bytes in proptest::collection::vec(any::<u8>(), 0..64), count in 0_usize..200,
        ) {
            decode(&bytes, count);
        }
    }
}
