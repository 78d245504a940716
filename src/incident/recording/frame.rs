//! One frame of a recording: a head of fixed length that says what follows, then zstd-compressed lines.
//!
//! The head is a skippable frame of zstd, so that any tool for zstd reads the file. Knows no line.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | `57 2a 4d 18`: a skippable frame |
//! | 4 | 48: length of what follows |
//! | 4 | `weir` |
//! | 1, 1, 2 | version, kind, zero |
//! | 4, 4 | length compressed, length plain |
//! | 8, 8 | first and last moment, in nanoseconds since the start of the run |
//! | 8 | hash of the compressed bytes: the first of BLAKE3 |
//! | 8 | hash of the head so far |

use std::io::Read as _;
use std::time::Duration;

use crate::signal::Mono;

/// The format that this weir writes, and the newest that it reads.
pub const VERSION: u8 = 1;
/// Length of a head, its own eight bytes included.
pub const HEAD_BYTES: usize = 56;
/// Most bytes of the lines of one frame: every series that may be kept, named.
pub const PLAIN_BYTES_MAX: usize = 256 << 20;
/// Most bytes that one frame takes on disk.
pub const PACKED_BYTES_MAX: usize = 64 << 20;

const MAGIC: [u8; 4] = [0x57, 0x2a, 0x4d, 0x18];
const NAME: [u8; 4] = *b"weir";
/// Effort of compression. Level 3 is zstd's own default; more costs time on the recording machine.
const LEVEL: i32 = 3;
/// Largest window that a frame may ask memory for, as a power of two; [`LEVEL`] needs 21.
const WINDOW_LOG_MAX: u32 = 24;
const HASH_BYTES: usize = 8;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The first line of the file.
    Header,
    /// Everything that is known.
    Key,
    /// What changed since the frame before, up to a look.
    More,
    /// Signals as they were shown.
    Shown,
    /// What happened.
    Events,
    /// What changed since the frame before, more than can wait for a look.
    Part,
}

const KINDS: [FrameKind; 6] = [
    FrameKind::Header,
    FrameKind::Key,
    FrameKind::More,
    FrameKind::Shown,
    FrameKind::Events,
    FrameKind::Part,
];

impl FrameKind {
    const fn code(self) -> u8 {
        match self {
            Self::Header => 0,
            Self::Key => 1,
            Self::More => 2,
            Self::Shown => 3,
            Self::Events => 4,
            Self::Part => 5,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the frame holds.
    pub kind: FrameKind,
    /// Length of what follows the head.
    pub packed_bytes: usize,
    /// Length of its lines.
    pub plain_bytes: usize,
    /// The first moment that it speaks of.
    pub from: Mono,
    /// The last one.
    pub to: Mono,
    hash: [u8; HASH_BYTES],
}

/// Why a head cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// It is not one of ours.
    Foreign,
    /// Its format is newer.
    Newer(u8),
    /// It was ours once.
    Damaged(&'static str),
}

impl Head {
    /// Reads a head.
    ///
    /// # Errors
    /// [`BadHead`] tells something else from something newer and from something that was changed.
    pub fn read(bytes: &[u8; HEAD_BYTES]) -> Result<Self, BadHead> {
        let length = u32::try_from(HEAD_BYTES - 8).unwrap_or_default();
        if bytes[..4] != MAGIC || bytes[4..8] != length.to_le_bytes() || bytes[8..12] != NAME {
            return Err(BadHead::Foreign);
        }
        let (told, hash) = bytes.split_at(HEAD_BYTES - HASH_BYTES);
        if hash_of(told) != hash {
            return Err(BadHead::Damaged("the head of a frame is not what was written"));
        }
        if bytes[12] > VERSION {
            return Err(BadHead::Newer(bytes[12]));
        }
        let kind = KINDS.into_iter().find(|kind| kind.code() == bytes[13]);
        let kind = kind.ok_or(BadHead::Damaged("a frame of a kind that there is not"))?;
        let head = Self {
            kind,
            packed_bytes: number(&bytes[16..20]),
            plain_bytes: number(&bytes[20..24]),
            from: moment(&bytes[24..32]),
            to: moment(&bytes[32..40]),
            hash: bytes[40..48].try_into().unwrap_or_default(),
        };
        let is_bounded =
            head.packed_bytes <= PACKED_BYTES_MAX && head.plain_bytes <= PLAIN_BYTES_MAX;
        is_bounded.then_some(head).ok_or(BadHead::Damaged("a frame larger than any"))
    }

    /// The lines of the frame, from what follows its head.
    ///
    /// # Errors
    /// In words, when the bytes are not those that were written.
    pub fn unpack(&self, packed: &[u8]) -> Result<Vec<u8>, &'static str> {
        if hash_of(packed) != self.hash {
            return Err("a frame is not what was written");
        }
        let limit = self.plain_bytes as u64 + 1;
        let mut lines = Vec::new();
        let unpacked = zstd::stream::read::Decoder::with_buffer(packed).and_then(|mut decoder| {
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            decoder.single_frame().take(limit).read_to_end(&mut lines)
        });
        match unpacked {
            Ok(length) if length == self.plain_bytes => Ok(lines),
            _ => Err("a frame cannot be decompressed to what its head says"),
        }
    }
}

/// Appends a frame with these lines to `file`. `None` when they are more than a frame may hold.
pub fn write(
    kind: FrameKind,
    (from, to): (Mono, Mono),
    lines: &[u8],
    file: &mut Vec<u8>,
) -> Option<()> {
    let packed = zstd::bulk::compress(lines, LEVEL).ok()?;
    if lines.len() > PLAIN_BYTES_MAX || packed.len() > PACKED_BYTES_MAX {
        return None;
    }
    let begin = file.len();
    file.extend(MAGIC);
    file.extend(u32::try_from(HEAD_BYTES - 8).ok()?.to_le_bytes());
    file.extend(NAME);
    file.extend([VERSION, kind.code(), 0, 0]);
    file.extend(u32::try_from(packed.len()).ok()?.to_le_bytes());
    file.extend(u32::try_from(lines.len()).ok()?.to_le_bytes());
    file.extend(nanoseconds(from).to_le_bytes());
    file.extend(nanoseconds(to).to_le_bytes());
    file.extend(hash_of(&packed));
    let hash = hash_of(&file[begin..]);
    file.extend(hash);
    file.extend(packed);
    Some(())
}

/// A moment as files keep it. A run lasts less than the 584 years that fit.
pub fn nanoseconds(at: Mono) -> u64 {
    u64::try_from(at.since_start().as_nanos()).unwrap_or(u64::MAX)
}

/// The other way round.
pub const fn from_nanoseconds(at_ns: u64) -> Mono {
    Mono::from_start(Duration::from_nanos(at_ns))
}

fn number(bytes: &[u8]) -> usize {
    let number = bytes.try_into().map_or(u32::MAX, u32::from_le_bytes);
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn moment(bytes: &[u8]) -> Mono {
    from_nanoseconds(bytes.try_into().map_or(0, u64::from_le_bytes))
}

fn hash_of(bytes: &[u8]) -> [u8; HASH_BYTES] {
    let hash = blake3::hash(bytes);
    let mut short = [0; HASH_BYTES];
    short.copy_from_slice(&hash.as_bytes()[..HASH_BYTES]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(lines: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let span = (Mono::from_secs_f64(1.0), Mono::from_secs_f64(2.0));
        write(FrameKind::More, span, lines, &mut file).expect("small");
        file
    }

    fn read(file: &[u8]) -> Result<Vec<u8>, String> {
        let head = file.get(..HEAD_BYTES).and_then(|head| head.try_into().ok()).ok_or("short")?;
        let head = Head::read(head).map_err(|bad| format!("{bad:?}"))?;
        head.unpack(&file[HEAD_BYTES..]).map_err(str::to_owned)
    }

    #[test]
    fn a_frame_comes_back_and_zstd_alone_reads_it_too() {
        let file = one(b"{\"a\":1}\n");
        assert_eq!(read(&file).as_deref(), Ok(&b"{\"a\":1}\n"[..]));
        let two = [file.clone(), file].concat();
        let plain = zstd::stream::decode_all(&two[..]).expect("frames of zstd");
        assert_eq!(plain, b"{\"a\":1}\n{\"a\":1}\n");
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let good = one(b"{\"a\":1}\n");
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(read(&bad).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_frame_that_lies_about_its_length_is_not_unpacked_beyond_it() {
        let zeros = vec![0_u8; 1 << 20];
        let mut file = Vec::new();
        write(FrameKind::More, (Mono::START, Mono::START), &zeros, &mut file).expect("small");
        let head: &[u8; HEAD_BYTES] = file[..HEAD_BYTES].try_into().expect("a head");
        let head = Head { plain_bytes: 10, ..Head::read(head).expect("ours") };
        assert!(head.unpack(&file[HEAD_BYTES..]).is_err());
    }
}
