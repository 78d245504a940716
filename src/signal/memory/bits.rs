//! Writes and reads runs of bits, most significant first.

/// Appends bits to a buffer of bytes.
pub(super) struct BitWriter<'a> {
    bytes: &'a mut Vec<u8>,
    /// Bits of the last byte that are taken, 0 when a new one is needed.
    taken: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) const fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, taken: 0 }
    }

    /// Appends the lowest `width` bits of `bits`.
    pub(super) fn write(&mut self, bits: u64, width: u32) {
        let mut left = width;
        while left > 0 {
            if self.taken == 0 {
                self.bytes.push(0);
            }
            let room = 8 - self.taken;
            let count = room.min(left);
            let part = (bits >> (left - count)) & low_mask(count);
            if let Some(last) = self.bytes.last_mut() {
                // `part` has at most the 8 bits that there is room for.
                *last |= u8::try_from(part << (room - count)).unwrap_or_default();
            }
            self.taken = (self.taken + count) % 8;
            left -= count;
        }
    }
}

/// Reads what a [`BitWriter`] wrote; zeros after the end.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next `width` bits, at most 64.
    pub(super) fn read(&mut self, width: u32) -> u64 {
        let mut bits = 0;
        let mut left = width;
        while left > 0 {
            let byte = u64::from(self.bytes.get(self.at / 8).copied().unwrap_or_default());
            let taken = u32::try_from(self.at % 8).unwrap_or_default();
            let room = 8 - taken;
            let count = room.min(left);
            bits = (bits << count) | ((byte >> (room - count)) & low_mask(count));
            self.at += count as usize;
            left -= count;
        }
        bits
    }
}

/// The lowest `width` bits set.
const fn low_mask(width: u32) -> u64 {
    if width >= u64::BITS { u64::MAX } else { (1 << width) - 1 }
}
