//! Recordings: what every source said during an incident, so that it can be looked at again.
//!
//! A recording holds the *inputs* (each scrape, answer and failure, the looks at them, and events),
//! never signals alone: what they mean is computed again by whoever reads it. Only the distant past
//! is kept as it was shown then, for comparisons over minutes and hours; see [`Replay`].
//!
//! ## The file
//!
//! zstd frames one after the other; `zstd -dc FILE` prints JSON Lines, the header first. Before each
//! frame stands a skippable frame of 48 bytes ([`frame`]) with its kind, length, time range and hash, so
//! that an index is made by hopping, and a frame that was not written to its end is told from one that
//! was changed. Nothing at the end of the file is needed.
//!
//! Once a minute a *key* frame holds everything that is known; the frames between hold what changed,
//! one per look (a second). Numbers stand in columns: `n` are the distances between the numbers of
//! the series, `v` integers that are added to the last value, or strings that replace it; null is a
//! series that left. A series that stands still costs nothing.
//! Beside the signals as they were shown stand *marks*: counters of rare events, which are counted over
//! an hour and would otherwise need an hour of scrapes to be read.
//!
//! ## Promises
//!
//! * One `write` per look, and no rewriting: kill -9 loses the look that was under way. Nothing is
//!   synced to the disk before the end, so a power cut may lose what the kernel still held.
//! * At most [`BYTES_MAX`] and [`SPAN_MAX`]: then recording stops and says so. It does not drop the
//!   oldest instead, because the oldest is how the incident began.
//! * One writer: an existing file is never written to.
//! * No key, no password, no request: sources are recorded by what their metrics pages say, addresses
//!   without user and query.

mod anonymise;
mod column;
mod cut;
mod decode;
mod error;
mod frame;
mod line;
mod names;
mod reader;
mod recorder;
mod replay;
mod shorthand;
mod thread;
mod writer;

use std::time::Duration;

use crate::ingest::SERIES_MAX;
use crate::signal::Mono;
use frame::FrameKind;

pub use anonymise::{Anonymised, anonymise};
pub use cut::cut;
pub use error::RecordingError;
pub use line::{Header, SourceLine, Told, bare_url};
pub use reader::{Damage, EventAt, Info, Reader};
pub use recorder::{Recorder, Taken};
pub use replay::{Arrival, LEAD, Moment, Replay, Trends};
pub use thread::{RecordingThread, Tape};

/// Largest recording. An hour of 20,000 series takes less than 60 MB.
pub const BYTES_MAX: u64 = 1 << 30;
/// Longest recording.
pub const SPAN_MAX: Duration = Duration::from_hours(24);
/// From key frame to key frame: what has to be read again, at most, to know everything at a moment.
pub const KEY_EVERY: Duration = Duration::from_mins(1);
/// From one picture of the signals as they are shown to the next.
pub const SHOWN_EVERY: Duration = Duration::from_secs(15);
/// Most sources of one recording.
pub const SOURCES_MAX: usize = 256;
/// Most series of one recording at a time, all instances together.
pub const SERIES_TOTAL_MAX: usize = 4 * SERIES_MAX;

/// A file with one source and these lines in one good frame, whatever they are: so a test or a fuzzer
/// gets at the reader of lines.
#[must_use]
pub fn framed(lines: &[u8]) -> Vec<u8> {
    let source = SourceLine {
        name: "gateway".to_owned(),
        url: String::new(),
        via: None,
        adapter: "weir".to_owned(),
        adapter_file: None,
        interval_s: 1.0,
        timeout_s: 1.0,
    };
    let header = Header { sources: vec![source], ..Header::default() };
    let (mut first, mut file) = (Vec::new(), Vec::new());
    recorder::put(&mut first, &line::Line::Recording(Box::new(header)));
    let start = (Mono::START, Mono::START);
    for (kind, lines) in [(FrameKind::Header, first.as_slice()), (FrameKind::More, lines)] {
        // What does not fit into a frame is left out.
        let _ = frame::write(kind, start, lines, &mut file);
    }
    file
}

#[cfg(test)]
mod tests;
