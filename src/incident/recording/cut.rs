//! Cuts a part out of a recording. Frames are copied as they are, so the part says what the whole says.
//!
//! Beside the part goes what leads up to it: the frames that a reader begins with, and the signals of
//! the hour before as they were shown. They are read, and not shown.

use std::path::Path;
use std::time::Duration;

use crate::signal::Mono;

use super::error::RecordingError;
use super::frame::{self, FrameKind, nanoseconds};
use super::line::{Header, Line};
use super::reader::Reader;
use super::recorder::{Taken, put};
use super::replay::{LEAD, PAST, reach, sources_of, start_before};
use super::writer::FileWriter;

/// Copies what is between two moments of the recording `from_path`, since its zero, to a new file. Without the one it
/// begins where the recording does, without the other it ends there.
///
/// # Errors
/// When there is no look in between, a frame in between was changed, what is read ends at a fault
/// before the part does, or the new file cannot be written. A fault behind the part is none.
pub fn cut(
    from_path: &Path,
    (from, to): (Option<Duration>, Option<Duration>),
    to_path: &Path,
) -> Result<Taken, RecordingError> {
    let reader = Reader::open(from_path)?;
    let (first, last) = reader.span()?;
    let (wanted_from, wanted_to) =
        (from.map_or(first, |at| reader.moment(at)), to.map_or(last, |at| reader.moment(at)));
    let within = |look: &Mono| (wanted_from..=wanted_to).contains(look);
    let begin = reader.looks().find(|look| *look >= first && within(look));
    let begin = begin.ok_or_else(|| reader.outside(wanted_from))?;
    let end = reader.looks().filter(within).last().unwrap_or(begin);
    if to.is_none() || wanted_to > last {
        reader.whole()?;
    }
    let header = Header { from_ns: nanoseconds(begin), ..reader.header().clone() };
    let mut file = FileWriter::create(to_path)?;
    let copied = copy(&reader, header, (begin, end), &mut file);
    if copied.is_err() {
        // Half a part is none. That it cannot be removed is not what went wrong.
        let _ = std::fs::remove_file(to_path);
    }
    copied?;
    let taken =
        Taken { path: to_path.to_owned(), bytes: file.bytes(), span: end.saturating_since(begin) };
    file.close()?;
    Ok(taken)
}

fn copy(
    reader: &Reader,
    header: Header,
    (begin, end): (Mono, Mono),
    file: &mut FileWriter,
) -> Result<(), RecordingError> {
    let entries = reader.entries();
    let start = start_before(entries, begin - LEAD - reach(&sources_of(reader)?));
    let (mut lines, mut first) = (Vec::new(), Vec::new());
    put(&mut lines, &Line::Recording(Box::new(header)));
    frame::write(FrameKind::Header, (Mono::START, Mono::START), &lines, &mut first)
        .ok_or_else(|| reader.damaged(0, "the header is larger than any"))?;
    file.append(&first)?;
    for (place, entry) in entries.iter().enumerate().skip(1) {
        let to = entry.head.to;
        let is_led_by = match entry.head.kind {
            FrameKind::Shown | FrameKind::Events => to >= begin - PAST,
            FrameKind::Key | FrameKind::More | FrameKind::Part => place >= start,
            FrameKind::Header => false,
        };
        if to <= end && is_led_by {
            reader.check(entry)?;
            file.append(&reader.raw(entry)?)?;
        }
    }
    Ok(())
}
