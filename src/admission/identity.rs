//! Which requests are the same original, and what has happened to it.
//!
//! A repeat of an original that has not succeeded within [`MEMORY`] is the same original and spends
//! its budget; after a success the same bytes are a new one. [`Attempted::since`] counts originals
//! whose latest attempt lies in the window: an original that is tried nine times counts once.
//!
//! One memory serves all scopes, so that it is one stretch of memory and no scope has an index of its
//! own. Arriving costs one lookup, whatever is remembered; each original is looked at again [`MEMORY`]
//! after it came or was last looked at, not at every sign of life. So one that has fallen silent is
//! held for at most twice that time, but never *known* for longer than [`MEMORY`].

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hint::black_box;
use std::ops;
use std::time::Duration;

use smallvec::SmallVec;

use self::index::{Half, Index};
use crate::signal::Mono;

mod attempted;
pub(super) mod index;
mod recent;

pub use attempted::Attempted;

/// How long an original that has not succeeded is remembered after its last sign of life.
pub const MEMORY: Duration = Duration::from_mins(2);
/// Originals of all scopes that are remembered at most, those that run apart; the oldest are forgotten
/// first.
pub const ORIGINALS_MAX: usize = 1_000_000;
/// Served originals of all scopes that are kept for whoever asks for their trace. A repeat of one is a new
/// original, so nothing else needs them, and at a thousand requests a second two minutes of them would
/// be a hundred megabytes.
pub const SERVED_MAX: usize = 10_000;
/// Entries of one original's chain; later ones are counted but not kept.
pub const CHAIN_MAX: usize = 24;
/// Requests whose original can be found by their number; older ones are not found any more.
const NUMBERS_MAX: usize = 4 * ORIGINALS_MAX;
/// Originals that one arrival looks at to see whether they can be forgotten. Each is looked at twice
/// at the most before it goes, so a backlog shrinks with every arrival.
const LOOKS_PER_ARRIVAL: usize = 16;

/// Entries that an original has without memory of their own: those of one refused at once.
const CHAIN_INLINE: usize = 2;

/// The fingerprint of an original: of its idempotency key, or of caller, path and body.
pub type Identity = u128;

/// What an original is found by. The same fingerprint in another scope is another original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub scope: usize,
    pub identity: Identity,
}

impl Key {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
    const fn half(self) -> Half {
        Half::of((self.identity >> 64) as u64 ^ self.identity as u64 ^ (self.scope as u64) << 1)
    }
}

/// Where an original lies; good for as long as a request for it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// One event in the life of an original, for the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainEntry {
    /// When.
    pub at: Mono,
    /// `request`, `attempt`, `answer`, `refused`, ...
    pub what: &'static str,
    /// HTTP status of an answer or refusal.
    pub status: Option<u16>,
    /// Code of an answer or refusal.
    pub code: Option<Cow<'static, str>>,
    /// The provider's hint.
    pub hint: Option<Duration>,
    /// Time waited before it.
    pub wait: Duration,
    /// Tokens billed.
    pub tokens: Option<f64>,
}

/// What is known of one original.
#[derive(Clone, Debug)]
pub struct Original {
    key: Key,
    /// Its number in this instance: that of the request that first asked for it.
    pub id: u64,
    /// When it was last heard of.
    pub touched: Mono,
    /// Requests that ask for it now and are not answered.
    pub running: u32,
    /// Requests that asked for it so far.
    pub requests: u32,
    /// Attempts so far.
    pub attempts: u32,
    /// When the wait ends that the last answer asked for.
    pub not_before: Mono,
    /// Sum of backoff waits.
    pub waited: Duration,
    /// It was let through at least once.
    pub admitted: bool,
    /// It has been answered with success.
    pub served: bool,
    last_slot: Option<u32>,
    last_span: Option<u64>,
    /// What happened, oldest first, at most [`CHAIN_MAX`] entries.
    pub chain: SmallVec<[ChainEntry; CHAIN_INLINE]>,
}

impl Original {
    const fn new(key: Key, id: u64, now: Mono) -> Self {
        Self {
            key,
            id,
            touched: now,
            running: 0,
            requests: 0,
            attempts: 0,
            not_before: Mono::START,
            waited: Duration::ZERO,
            admitted: false,
            served: false,
            last_slot: None,
            last_span: None,
            chain: SmallVec::new_const(),
        }
    }

    /// Number of its scope.
    #[must_use]
    pub const fn scope(&self) -> usize {
        self.key.scope
    }

    /// Tells it from what else lies in its place before or after it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no place is used 2^32 times in two minutes"
    )]
    const fn mark(&self) -> u32 {
        self.id as u32
    }

    /// Nothing lies here.
    const fn is_gone(&self) -> bool {
        self.id == u64::MAX
    }

    /// Adds to the chain while there is room.
    pub fn log(&mut self, entry: ChainEntry) {
        if self.chain.len() < CHAIN_MAX {
            self.chain.push(entry);
        }
    }

    fn is_known(&self, now: Mono) -> bool {
        self.running > 0 || (!self.served && self.is_recent(now))
    }

    fn is_recent(&self, now: Mono) -> bool {
        self.touched + MEMORY >= now
    }
}

/// A look at what lies in a place, to come back to.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Mono,
    place: u32,
    /// [`Original::mark`] of what it was for.
    mark: u32,
}

/// The originals of all scopes.
#[derive(Debug, Default)]
pub(super) struct Originals {
    entries: Vec<Original>,
    free: Vec<u32>,
    by_key: Index,
    /// The place that each of the latest requests asked for, by its number, the first of which this is.
    numbers: VecDeque<u32>,
    first_number: u64,
    /// Every original once, with the time of the last look at it, earliest first; and what is left of
    /// those that have gone before their turn.
    looked_at: VecDeque<Look>,
    /// Served originals for which nothing runs, the first one served first.
    served: VecDeque<(u32, u32)>,
}

impl Originals {
    /// Looks at where an original may lie, so that [`Self::arrive`] need not wait for memory.
    pub fn touch(&self, key: Key) {
        black_box(self.place_of(key));
    }

    /// The original that a request asks for; `true` when it is new. `id` is the request's number,
    /// and becomes that of a new original; numbers count up.
    ///
    /// # Panics
    /// Never: fewer than 2^32 originals are remembered.
    pub fn arrive(&mut self, key: Key, id: u64, now: Mono) -> (Place, bool) {
        if self.len() > ORIGINALS_MAX {
            self.forget(LOOKS_PER_ARRIVAL, now);
        }
        let known = self.place_of(key);
        let place = known.unwrap_or_else(|| self.insert(key, id, now));
        self.number(id, place);
        let original = &mut self.entries[place as usize];
        let mut new = known.is_none();
        if !new && !original.is_known(now) {
            *original = Original::new(key, id, now);
            self.looked_at.push_back(Look { at: now, place, mark: original.mark() });
            new = true;
        }
        original.touched = now;
        (Place(place), new)
    }

    /// A request for the original has ended. One that is served and runs no more is kept among the latest
    /// `most` of its kind.
    pub fn rest(&mut self, place: Place, most: usize) {
        let original = &self[place];
        if !original.served || original.running > 0 {
            return;
        }
        let mark = original.mark();
        self.served.push_back((place.0, mark));
        while self.served.len() > most
            && let Some((place, mark)) = self.served.pop_front()
        {
            let has_rest = |original: &Original| original.served && original.running == 0;
            if lies(&self.entries, place, mark).is_some_and(has_rest) {
                self.release(place);
            }
        }
    }

    /// The original with this number, or the one that the request with this number asked for, if
    /// it is remembered.
    #[must_use]
    pub fn by_id(&self, id: u64) -> Option<&Original> {
        let place = *self.numbers.get(usize::try_from(id.checked_sub(self.first_number)?).ok()?)?;
        // What has been put into the place since then came after this request.
        self.entries.get(place as usize).filter(|original| original.id <= id)
    }

    /// Forgets all that is due and gives its memory back. To be called now and then: arrivals forget
    /// only where there are too many.
    pub fn tidy(&mut self, now: Mono) {
        self.forget(self.looked_at.len(), now);
        if self.looked_at.len() > 2 * self.len() + SERVED_MAX {
            let entries = &self.entries;
            self.looked_at.retain(|look| lies(entries, look.place, look.mark).is_some());
            self.looked_at.shrink_to_fit();
        }
        while let Some(place) = self.numbers.front()
            && self.entries[*place as usize].id > self.first_number
        {
            self.forget_first_number();
        }
        self.by_key.shrink();
        if self.numbers.len() < self.numbers.capacity() / 4 {
            self.numbers.shrink_to_fit();
        }
        if self.len() == 0 {
            // Places are numbers elsewhere, so they can go only when those are gone.
            (self.entries, self.free, self.looked_at) = Default::default();
            (self.numbers, self.first_number, self.served) = Default::default();
        }
    }

    fn place_of(&self, key: Key) -> Option<u32> {
        self.by_key.get(key.half(), |place| self.entries[place as usize].key == key)
    }

    fn insert(&mut self, key: Key, id: u64, now: Mono) -> u32 {
        let original = Original::new(key, id, now);
        let place = if let Some(place) = self.free.pop() {
            self.entries[place as usize] = original;
            place
        } else {
            self.entries.push(original);
            u32::try_from(self.entries.len() - 1).expect("fewer originals than 2^32")
        };
        self.by_key.insert(key.half(), place);
        let mark = self.entries[place as usize].mark();
        self.looked_at.push_back(Look { at: now, place, mark });
        place
    }

    fn number(&mut self, id: u64, place: u32) {
        if self.numbers.is_empty() {
            self.first_number = id;
        }
        debug_assert_eq!(self.first_number + self.numbers.len() as u64, id, "numbers count up");
        self.numbers.push_back(place);
        if self.numbers.len() > NUMBERS_MAX {
            self.forget_first_number();
        }
    }

    fn forget_first_number(&mut self) {
        self.numbers.pop_front();
        self.first_number += 1;
    }

    /// Originals that are remembered.
    fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn forget(&mut self, looks: usize, now: Mono) {
        for _ in 0..looks {
            let crowded = self.len() > ORIGINALS_MAX;
            let due = |look: &mut Look| crowded || look.at + MEMORY < now;
            let Some(look) = self.looked_at.pop_front_if(due) else { return };
            let Some(original) = lies(&self.entries, look.place, look.mark) else { continue };
            if original.running > 0 || (original.is_recent(now) && !crowded) {
                self.looked_at.push_back(Look { at: now, ..look });
                continue;
            }
            self.release(look.place);
        }
    }

    fn release(&mut self, place: u32) {
        let original = &mut self.entries[place as usize];
        self.by_key.remove(original.key.half(), place);
        // No request has this number: nothing is found in a place that is free.
        *original = Original::new(original.key, u64::MAX, original.touched);
        self.free.push(place);
    }
}

/// What lies in a place, if it is still what it was when it had this mark.
fn lies(entries: &[Original], place: u32, mark: u32) -> Option<&Original> {
    entries.get(place as usize).filter(|original| !original.is_gone() && original.mark() == mark)
}

impl ops::Index<Place> for Originals {
    type Output = Original;

    fn index(&self, place: Place) -> &Original {
        &self.entries[place.0 as usize]
    }
}

impl ops::IndexMut<Place> for Originals {
    fn index_mut(&mut self, place: Place) -> &mut Original {
        &mut self.entries[place.0 as usize]
    }
}

#[cfg(test)]
mod tests;
