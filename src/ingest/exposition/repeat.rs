//! Reads the scrapes of one source one after the other, at the price of what changed.
//!
//! A source says the same lines every time, only with other numbers. So each line is predicted to be
//! the line that followed last time: if the bytes up to the value are the same, the value is all that
//! is left to read. A wrong guess costs a look-up of the line's series among the known ones, and only
//! an unknown line is parsed. What comes out is what [`parse`](super::parse) would have read: only
//! text that it has once accepted is ever skipped.
//!
//! Series are told apart by their text, so one whose labels change places is another one here. Its
//! type is that of its first appearance.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

use hashbrown::HashTable;
use memchr::{memchr, memrchr};

use super::text::{Place, Text};
use super::{BODY_BYTES_MAX, Format, Reader, Report, Sample, TooLarge, number};
use crate::ingest::page::SERIES_MAX;
use crate::signal::promql::{is_stale_marker, stale_marker};
use crate::signal::{Mono, SeriesId, WATCHED};

/// Lines that are known at most: the series, and as many comments.
const ENTRIES_MAX: usize = 2 * SERIES_MAX;
/// Longest value that is read without looking at the whole line.
const VALUE_BYTES_MAX: usize = 64;
/// A series that was away this long is a new one: by then no memory holds a value of it.
const FORGOTTEN_AFTER: Duration = WATCHED.saturating_mul(2);
/// The line of a text that the last scrape did not have.
const NOWHERE: u32 = u32::MAX;
/// The text is written anew when this part of it is dead or not shared yet.
const REPACK_PART: usize = 4;

/// What is known of the lines of one source. Feed it scrapes in order of time.
#[derive(Debug)]
pub struct Repeat {
    format: Format,
    hasher: RandomState,
    text: Text,
    /// Bytes of `text` that belong to no entry any more.
    dead_bytes: usize,
    entries: Vec<Entry>,
    free_entries: Vec<u32>,
    /// Entries by their text.
    by_text: HashTable<u32>,
    /// The lines of the last scrape, in order, and of the one that is being read, from where it
    /// went another way.
    order: Vec<u32>,
    new_order: Vec<u32>,
    is_diverted: bool,
    /// The line of `order` that is expected next.
    expected: usize,
    /// By series; a stale marker where this scrape has none.
    values: Vec<f64>,
    free_series: Vec<SeriesId>,
}

/// A line that was accepted before: a comment with its line feed, or a series up to its value.
#[derive(Clone, Copy, Debug)]
struct Entry {
    text: Place,
    /// The format it was accepted in; in the other it may be a bad line.
    format: Format,
    series: Option<SeriesId>,
    /// Its line in the last scrape, or [`NOWHERE`].
    line: u32,
    /// Since when it is nowhere, in seconds of the run.
    left_s: u32,
}

impl Default for Repeat {
    fn default() -> Self {
        Self::new()
    }
}

impl Repeat {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            format: Format::Text,
            hasher: RandomState::new(),
            text: Text::default(),
            dead_bytes: 0,
            entries: Vec::new(),
            free_entries: Vec::new(),
            by_text: HashTable::new(),
            order: Vec::new(),
            new_order: Vec::new(),
            is_diverted: false,
            expected: 0,
            values: Vec::new(),
            free_series: Vec::new(),
        }
    }

    /// Reads the next scrape. `on_new` is told every series that has no number yet, or whose number
    /// belonged to one that has been gone for hours; of equal series in one scrape the first counts,
    /// and a last line that may be cut is dropped.
    ///
    /// # Errors
    ///
    /// When `body` is longer than [`BODY_BYTES_MAX`]. Bad lines are no error: see [`Report`].
    pub fn read(
        &mut self,
        body: &[u8],
        format: Format,
        mut on_new: impl FnMut(SeriesId, &Sample<'_>),
        at: Mono,
    ) -> Result<Report, TooLarge> {
        if body.len() > BODY_BYTES_MAX {
            return Err(TooLarge { bytes: body.len() });
        }
        if self.format != format {
            // Nothing of what came last is expected now.
            self.format = format;
            self.settle(at);
        }
        self.values.fill(stale_marker());
        self.expected = 0;
        let mut reader = Reader::new(format);
        let (mut offset, mut learned) = (0, 0);
        while offset < body.len() && !reader.after_end {
            let rest = &body[offset..];
            let known = if reader.at_end { None } else { self.known(rest) };
            if let Some((length, is_sample)) = known {
                reader.report.lines += 1;
                reader.report.samples += usize::from(is_sample);
                reader.report.cut = false;
                offset += length;
                continue;
            }
            reader.learn(&body[learned..offset]);
            let end = memchr(b'\n', rest);
            let line = &rest[..end.unwrap_or(rest.len())];
            self.unknown(&mut reader, line, end.is_some(), &mut on_new);
            reader.report.cut = end.is_none();
            offset += line.len() + 1;
            learned = offset;
        }
        if self.is_diverted || self.expected < self.order.len() {
            self.divert();
            self.settle(at);
        }
        Ok(reader.finish())
    }

    /// The values of the last scrape by series, a stale marker for each that it did not have.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Bytes held on the heap, reserved ones included.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let numbers = self.order.capacity() + self.new_order.capacity();
        let numbers = numbers + self.free_entries.capacity() + self.free_series.capacity();
        self.text.held_bytes()
            + self.entries.capacity() * size_of::<Entry>()
            + self.by_text.allocation_size()
            + numbers * size_of::<u32>()
            + self.values.capacity() * size_of::<f64>()
    }

    /// Takes a line that was accepted before: its length with the line feed, and whether it is a
    /// sample. First the expected one, then any.
    fn known(&mut self, rest: &[u8]) -> Option<(usize, bool)> {
        if let Some(index) = self.order.get(self.expected).copied() {
            let entry = self.entries[index as usize];
            if let Some(after) = rest.strip_prefix(self.text.line(entry.text)) {
                let text_length = entry.text.length();
                let Some(id) = entry.series else {
                    self.advance(index);
                    return Some((text_length, false));
                };
                if let Some((value, length)) = value_line(after) {
                    self.advance(index);
                    self.set(id, value);
                    return Some((text_length + length, true));
                }
            }
        }
        let end = memchr(b'\n', rest)?;
        let value_at = memrchr(b' ', &rest[..end])? + 1;
        let index = self.find(&rest[..value_at])?;
        let id = self.entries[index as usize].series?;
        let (value, length) = value_line(&rest[value_at..])?;
        self.jump(index);
        self.set(id, value);
        Some((value_at + length, true))
    }

    /// Parses a line that was not accepted before in this form, and remembers it.
    fn unknown<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        line: &'a [u8],
        is_whole: bool,
        on_new: &mut impl FnMut(SeriesId, &Sample<'_>),
    ) {
        let mut is_sample = false;
        let is_good = reader.line(line, |sample, value_at| {
            is_sample = true;
            // The number at the end of a cut line may be the beginning of another.
            if is_whole && let Some(index) = self.sample_entry(&line[..value_at]) {
                let id = self.series_of(index, sample, on_new);
                self.jump(index);
                self.set(id, sample.value);
            }
        });
        let is_plain = is_good && !is_sample && !reader.at_end && !line.ends_with(b"\r");
        if is_whole && is_plain {
            let text: Vec<u8> = line.iter().copied().chain([b'\n']).collect();
            if let Some(index) = self.entry(&text) {
                self.jump(index);
            }
        }
    }

    fn sample_entry(&mut self, text: &[u8]) -> Option<u32> {
        let series = self.values.len() - self.free_series.len();
        if series < SERIES_MAX { self.entry(text) } else { self.find(text) }
    }

    /// The number of an entry's series, a new one if it has none.
    fn series_of(
        &mut self,
        index: u32,
        sample: &Sample<'_>,
        on_new: &mut impl FnMut(SeriesId, &Sample<'_>),
    ) -> SeriesId {
        if let Some(id) = self.entries[index as usize].series {
            return id;
        }
        let id = self.free_series.pop().unwrap_or_else(|| {
            self.values.push(stale_marker());
            SeriesId(as_u32(self.values.len() - 1))
        });
        self.entries[index as usize].series = Some(id);
        on_new(id, sample);
        id
    }

    fn set(&mut self, id: SeriesId, value: f64) {
        let slot = &mut self.values[id.index()];
        if is_stale_marker(*slot) {
            *slot = value;
        }
    }

    fn find(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        let is_it = |index: &u32| {
            let entry = self.entries[*index as usize];
            entry.format == self.format && self.text.line(entry.text) == text
        };
        self.by_text.find(hash, is_it).copied()
    }

    /// The entry of `text`, made if there is room.
    fn entry(&mut self, text: &[u8]) -> Option<u32> {
        if let Some(index) = self.find(text) {
            return Some(index);
        }
        if self.free_entries.is_empty() && self.entries.len() == ENTRIES_MAX {
            return None;
        }
        let place = self.text.push(text)?;
        let entry =
            Entry { text: place, format: self.format, series: None, line: NOWHERE, left_s: 0 };
        let index = self.free_entries.pop().unwrap_or_else(|| {
            self.entries.push(entry);
            as_u32(self.entries.len() - 1)
        });
        self.entries[index as usize] = entry;
        let (hasher, entries, texts) = (&self.hasher, &self.entries, &self.text);
        let hash_of = |index: &u32| hasher.hash_one(texts.line(entries[*index as usize].text));
        self.by_text.insert_unique(hasher.hash_one(text), index, hash_of);
        Some(index)
    }

    /// The expected line came.
    fn advance(&mut self, index: u32) {
        self.expected += 1;
        if self.is_diverted {
            self.new_order.push(index);
        }
    }

    /// Another line came than was expected. If it is one of the last scrape, what followed it then
    /// is expected next; if it is new, still the same.
    fn jump(&mut self, index: u32) {
        self.divert();
        self.new_order.push(index);
        let line = self.entries[index as usize].line;
        if line != NOWHERE {
            self.expected = line as usize + 1;
        }
    }

    fn divert(&mut self) {
        if !self.is_diverted {
            self.is_diverted = true;
            self.new_order.extend(&self.order[..self.expected.min(self.order.len())]);
        }
    }

    /// Makes the lines that were read the ones that are expected next time.
    fn settle(&mut self, at: Mono) {
        let now_s = u32::try_from(at.since_start().as_secs()).unwrap_or(u32::MAX);
        for index in self.order.drain(..) {
            let entry = &mut self.entries[index as usize];
            entry.line = NOWHERE;
            entry.left_s = now_s;
        }
        std::mem::swap(&mut self.order, &mut self.new_order);
        for (line, index) in self.order.iter().enumerate() {
            self.entries[*index as usize].line = as_u32(line);
        }
        self.is_diverted = false;
        self.forget(now_s);
        if self.text.open_bytes() + self.dead_bytes > self.text.bytes() / REPACK_PART {
            self.repack();
        }
        self.new_order = Vec::new();
    }

    /// Drops lines that were away for long, so that a source whose series come and go stays small.
    fn forget(&mut self, now_s: u32) {
        for index in 0..self.entries.len() {
            let entry = self.entries[index];
            let away = Duration::from_secs(now_s.saturating_sub(entry.left_s).into());
            if entry.line != NOWHERE || entry.text.length() == 0 || away < FORGOTTEN_AFTER {
                continue;
            }
            let hash = self.hasher.hash_one(self.text.line(entry.text));
            if let Ok(known) = self.by_text.find_entry(hash, |other| *other as usize == index) {
                known.remove();
            }
            self.dead_bytes += entry.text.length();
            self.free_series.extend(entry.series);
            self.free_entries.push(as_u32(index));
            self.entries[index] = Entry { text: Place::default(), series: None, ..entry };
        }
    }

    /// Writes the text anew in the order of the lines, without what is dead: so sources with the
    /// same lines come to the same pages.
    fn repack(&mut self) {
        let mut living: Vec<_> =
            self.entries.iter_mut().filter(|entry| entry.text.length() > 0).collect();
        living.sort_unstable_by_key(|entry| entry.line);
        let mut text = Text::default();
        for entry in living {
            // There is room: it is no more than there was.
            entry.text = text.pack(self.text.line(entry.text)).unwrap_or_default();
        }
        text.close();
        text.shrink();
        self.text = text;
        self.dead_bytes = 0;
    }
}

/// The value that stands alone on the rest of a line, and its length with the line feed. `None` for
/// anything else, such as a timestamp behind it.
fn value_line(rest: &[u8]) -> Option<(f64, usize)> {
    if let Some((value, length)) = number::leading_plain(rest)
        && rest.get(length) == Some(&b'\n')
    {
        return Some((value, length + 1));
    }
    let end = memchr(b'\n', &rest[..rest.len().min(VALUE_BYTES_MAX)])?;
    let token = std::str::from_utf8(&rest[..end]).ok()?;
    Some((number::value(token).ok()?, end + 1))
}

/// Counts of entries, series and lines are bounded far below 2^32.
fn as_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "repeat_tests.rs"]
mod tests;
