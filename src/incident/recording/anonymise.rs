//! Writes a recording anew without the names of tenants, keys, hosts and people.
//!
//! Each name becomes a word with a number, the same one wherever it stands (`tenant-1`). What a label
//! says is kept only where the label is on the list of those whose values come out of programs
//! (`status`, `lane`, `le`), and on no alert; every other value is a name, and so is every instance. Texts that a person typed are taken out, and
//! what stands in quotes in a text of a program. What is not promised is said: names of metrics and
//! labels stay, and so does an adapter's own file, because nothing could be read without it; amounts
//! and times stay as they were, and may tell who it was to somebody who knows them.

mod labels;
mod mask;
mod texts;

use std::path::Path;

use super::error::RecordingError;
use super::frame::{self, FrameKind};
use super::line::Line;
use super::reader::Reader;
use super::recorder::{Taken, put};
use super::writer::FileWriter;
use mask::Mask;

/// What became of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anonymised {
    /// The new file.
    pub taken: Taken,
    /// How many names of each kind were replaced, and what was not looked at, in words.
    pub said: Vec<String>,
}

/// Writes the recording `from_path` to a new file without names.
///
/// # Errors
/// When it is no whole recording, or the new file cannot be written.
pub fn anonymise(from_path: &Path, to_path: &Path) -> Result<Anonymised, RecordingError> {
    let reader = Reader::open(from_path)?;
    reader.whole()?;
    let (first, last) = reader.span()?;
    let mut mask = Mask::new(reader.header());
    // Names first: one that a later line tells may stand in an earlier text.
    for place in 0..reader.entries().len() {
        for line in reader.lines(place)? {
            mask.learn(&line?);
        }
    }
    let mut file = FileWriter::create(to_path)?;
    let written = write(&reader, &mut mask, &mut file);
    if written.is_err() {
        // Half a file without names is no use. That it cannot be removed is not what went wrong.
        let _ = std::fs::remove_file(to_path);
    }
    written?;
    let span = last.saturating_since(first);
    let taken = Taken { path: to_path.to_owned(), bytes: file.bytes(), span };
    file.close()?;
    Ok(Anonymised { taken, said: mask.said() })
}

fn write(reader: &Reader, mask: &mut Mask, file: &mut FileWriter) -> Result<(), RecordingError> {
    let said = mask.said().join("; ");
    for (place, entry) in reader.entries().iter().enumerate() {
        let mut lines = Vec::new();
        for line in reader.lines(place)? {
            let line = match mask.line(line?) {
                Line::Recording(mut header) => {
                    header.anonymised = Some(said.clone());
                    Line::Recording(header)
                }
                other => other,
            };
            put(&mut lines, &line);
        }
        let mut frame = Vec::new();
        let (kind, span) = (entry.head.kind, (entry.head.from, entry.head.to));
        frame::write(kind, span, &lines, &mut frame)
            .ok_or_else(|| reader.damaged(entry.offset, "a frame larger than any"))?;
        debug_assert!(kind != FrameKind::Header || place == 0);
        file.append(&frame)?;
    }
    Ok(())
}
