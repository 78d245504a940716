//! What one source said over the last hour: raw values of every series for five minutes, of watched
//! series for an hour.
//!
//! Values are kept as they were read, never as rates, so that any window can be computed afterwards.
//! A value that is missing is kept as missing: a gap is a stale marker, as in Prometheus, and no
//! value is ever invented for it. One time is kept per scrape, not per sample. Two layouts share the
//! work: scrapes as [`rows`], cheap to append and whole, and watched series as [`chunk`]s, a third
//! smaller and quick to read alone. Knows no metric by name: a series is its number.

mod bits;
mod chunk;
mod rows;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::promql::{Sample, is_stale_marker};
use super::{Mono, counter_increase};
use rows::Rows;

/// How long every series is kept.
pub const RECENT: Duration = Duration::from_mins(5);
/// How long a watched series is kept.
pub const WATCHED: Duration = Duration::from_hours(1);

/// Scrapes in one block of chunks. With more, a chunk's head weighs less, but scrapes stay longer in
/// the larger layout.
const BLOCK_SCRAPES: usize = 120;
/// Restarts of single series that one scrape may tell; more of them are a restart of the process.
const RESTARTS_PER_SCRAPE_MAX: usize = 64;

/// The number of a series within its source, dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

impl SeriesId {
    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What began to count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The whole process, by its `process_start_time_seconds`.
    Process,
    /// One series, by its `_created`.
    Series(SeriesId),
}

/// The values of one source over time. Feed it scrapes in order of time.
#[derive(Debug, Default)]
pub struct Memory {
    /// Times of the scrapes in `rows`, oldest first.
    times_ms: VecDeque<i64>,
    rows: Rows,
    /// Scrapes at the end of `rows` that are in no block yet.
    unsealed: usize,
    watched: BTreeSet<SeriesId>,
    blocks: VecDeque<Block>,
    restarts: VecDeque<(i64, Restart)>,
}

/// Watched series over [`BLOCK_SCRAPES`] scrapes.
#[derive(Debug)]
struct Block {
    /// Shared by all blocks since the watched series last changed.
    ids: Arc<[SeriesId]>,
    scrapes: usize,
    newest_ms: i64,
    /// Where the chunk of each series ends in `bytes`; the times stand before the first.
    ends: Box<[u32]>,
    bytes: Box<[u8]>,
}

impl Memory {
    /// An empty memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a series for an hour, from what is still there of it on.
    pub fn watch(&mut self, id: SeriesId) {
        self.watched.insert(id);
    }

    /// Keeps a series for five minutes only, from the next block on.
    pub fn unwatch(&mut self, id: SeriesId) {
        self.watched.remove(&id);
    }

    /// Takes in a scrape: the value of every series by its number, [`stale_marker`] where it was
    /// missing; `values` may grow from scrape to scrape. A scrape that failed is one without values.
    /// One that is not later than the newest is ignored.
    pub fn accept(&mut self, values: &[f64], restarts: &[Restart], at: Mono) {
        let at_ms = milliseconds(at);
        if self.times_ms.back().is_some_and(|newest| at_ms <= *newest) {
            return;
        }
        if restarts.len() > RESTARTS_PER_SCRAPE_MAX {
            self.restarts.push_back((at_ms, Restart::Process));
        } else {
            self.restarts.extend(restarts.iter().map(|restart| (at_ms, *restart)));
        }
        self.times_ms.push_back(at_ms);
        self.rows.push(values);
        self.unsealed += 1;
        self.forget(at_ms);
    }

    /// Makes the oldest scrapes that are in no block yet a block.
    fn seal(&mut self) {
        let first = self.times_ms.len() - self.unsealed;
        let sealed = first..first + BLOCK_SCRAPES;
        let times_ms: Vec<_> = self.times_ms.range(sealed.clone()).copied().collect();
        self.unsealed -= BLOCK_SCRAPES;
        if self.watched.is_empty() {
            return;
        }
        let ids = match self.blocks.back() {
            Some(block) if block.ids.iter().eq(&self.watched) => Arc::clone(&block.ids),
            _ => self.watched.iter().copied().collect(),
        };
        let mut bytes = Vec::new();
        chunk::encode(&times_ms.iter().map(|at_ms| as_f64(*at_ms)).collect::<Vec<_>>(), &mut bytes);
        let mut ends = vec![offset(&bytes)];
        for values in self.rows.columns(&ids, sealed) {
            chunk::encode(&values, &mut bytes);
            ends.push(offset(&bytes));
        }
        self.blocks.push_back(Block {
            ids,
            scrapes: times_ms.len(),
            newest_ms: times_ms.last().copied().unwrap_or_default(),
            ends: ends.into(),
            bytes: bytes.into(),
        });
    }

    fn forget(&mut self, at_ms: i64) {
        let before = |span: Duration| at_ms - milliseconds(Mono::from_start(span));
        let (recent_ms, watched_ms) = (before(RECENT), before(WATCHED));
        // Rows are in no block before they leave, so that little is held twice; and where scrapes
        // are far apart they wait until there are enough for one.
        let oldest_unsealed = self.times_ms.len() - self.unsealed;
        if self.unsealed >= BLOCK_SCRAPES
            && self.times_ms.get(oldest_unsealed).is_some_and(|oldest| *oldest < recent_ms)
        {
            self.seal();
        }
        while self.times_ms.len() > self.unsealed
            && self.times_ms.front().is_some_and(|oldest| *oldest < recent_ms)
        {
            self.times_ms.pop_front();
            self.rows.drop_oldest();
        }
        while self.blocks.front().is_some_and(|block| block.newest_ms < watched_ms) {
            self.blocks.pop_front();
        }
        while self.restarts.front().is_some_and(|(moment, _)| *moment < watched_ms) {
            self.restarts.pop_front();
        }
    }

    /// The values of a series in `(from, to]`, oldest first, with a stale marker for each scrape
    /// that did not have it. Fit for [`promql::evaluate`](super::promql::evaluate).
    #[must_use]
    pub fn samples(&self, id: SeriesId, from: Mono, to: Mono) -> Vec<Sample> {
        let (from_ms, to_ms) = (milliseconds(from), milliseconds(to));
        let wanted = |at_ms: i64| at_ms > from_ms && at_ms <= to_ms;
        let rows_from_ms = self.times_ms.front().copied().unwrap_or(i64::MAX);
        let mut samples = Vec::new();
        for block in self.blocks.iter().filter(|block| block.newest_ms > from_ms) {
            let Ok(place) = block.ids.binary_search(&id) else { continue };
            // The newest blocks overlap with the rows, which every series has.
            let pairs = block.times_ms().zip(block.values(place));
            let pairs = pairs.filter(|(at_ms, _)| wanted(*at_ms) && *at_ms < rows_from_ms);
            samples.extend(pairs.map(|(at_ms, value)| Sample { at_ms, value }));
        }
        let pairs = self.times_ms.iter().copied().zip(self.rows.column(id));
        let pairs = pairs.filter(|(at_ms, _)| wanted(*at_ms));
        samples.extend(pairs.map(|(at_ms, value)| Sample { at_ms, value }));
        samples
    }

    /// What a counter gained between its first and its last value in `(from, to]`: counted, not
    /// extrapolated, restarts undone. `None` with fewer than two values.
    #[must_use]
    pub fn gain(&self, id: SeriesId, from: Mono, to: Mono) -> Option<f64> {
        let samples = self.samples(id, from, to);
        let mut values = samples.iter().filter(|sample| !is_stale_marker(sample.value));
        let mut before = values.next()?;
        let mut gained = None;
        for sample in values {
            let restarted = self.restarted(id, before.at_ms, sample.at_ms);
            let step = counter_increase(before.value, sample.value, restarted);
            *gained.get_or_insert(0.0) += step;
            before = sample;
        }
        gained
    }

    /// Whether the series began anew in `(after_ms, until_ms]`.
    fn restarted(&self, id: SeriesId, after_ms: i64, until_ms: i64) -> bool {
        let begin = self.restarts.partition_point(|(moment, _)| *moment <= after_ms);
        self.restarts.range(begin..).take_while(|(moment, _)| *moment <= until_ms).any(
            |(_, restart)| matches!(restart, Restart::Process) || *restart == Restart::Series(id),
        )
    }

    /// Bytes held on the heap, reserved ones included.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(Block::held_bytes).sum();
        let mut shared: Vec<&Arc<[SeriesId]>> =
            self.blocks.iter().map(|block| &block.ids).collect();
        shared.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let ids: usize = shared.iter().map(|ids| ids.len() * size_of::<SeriesId>()).sum();
        self.rows.held_bytes()
            + blocks
            + ids
            + self.blocks.capacity() * size_of::<Block>()
            + self.times_ms.capacity() * size_of::<i64>()
            + self.restarts.capacity() * size_of::<(i64, Restart)>()
            + self.watched.len() * size_of::<SeriesId>() * 2
    }
}

impl Block {
    fn times_ms(&self) -> impl Iterator<Item = i64> {
        let end = self.ends.first().map_or(0, |end| *end as usize);
        #[expect(clippy::cast_possible_truncation, reason = "whole milliseconds went in")]
        chunk::decode(&self.bytes[..end], self.scrapes).into_iter().map(|at_ms| at_ms as i64)
    }

    fn values(&self, place: usize) -> impl Iterator<Item = f64> {
        let (begin, end) = (self.ends[place] as usize, self.ends[place + 1] as usize);
        chunk::decode(&self.bytes[begin..end], self.scrapes).into_iter()
    }

    fn held_bytes(&self) -> usize {
        self.bytes.len() + size_of_val::<[u32]>(&self.ends)
    }
}

fn milliseconds(at: Mono) -> i64 {
    i64::try_from(at.since_start().as_millis()).unwrap_or(i64::MAX)
}

/// A block's length so far. A block is bounded by its series and scrapes, far below 4 GiB.
fn offset(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a run lasts less than 2^53 ms")]
const fn as_f64(at_ms: i64) -> f64 {
    at_ms as f64
}

/// Whether two values are the same to a memory: bit by bit, for no NaN equals another.
const fn is_same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits()
}

/// `value` as an integer that a float holds exactly, if it is one and not a negative zero. Sums and
/// differences of two are exact as well.
#[must_use]
pub fn as_integer(value: f64) -> Option<i64> {
    /// Below it every integer is a float, and so are differences of two.
    const LIMIT: f64 = 4_503_599_627_370_496.0;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
    let integer = (value.abs() < LIMIT).then_some(value as i64)?;
    is_same(as_f64(integer), value).then_some(integer)
}

/// Small for integers near zero on both sides.
const fn zigzag(integer: i64) -> u64 {
    ((integer << 1) ^ (integer >> 63)).cast_unsigned()
}

const fn unzigzag(code: u64) -> i64 {
    (code >> 1).cast_signed() ^ -(code & 1).cast_signed()
}

#[cfg(test)]
mod tests;
