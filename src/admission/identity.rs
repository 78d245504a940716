//! Which requests are the same original, and how many originals had an attempt lately.
//!
//! A repeat of an original that has not succeeded within [`MEMORY`] is the same original and spends
//! its budget; after a success the same bytes are a new one. [`Originals::since`] counts originals
//! whose latest attempt lies in the window: an original that is tried nine times counts once.
//!
//! Arriving and forgetting cost two lookups each, whatever is remembered: originals lie in one
//! vector, and each is looked at again [`MEMORY`] after it came or was last looked at, not at every
//! sign of life. So one that has fallen silent is held for at most twice that time, but never *known*
//! for longer than [`MEMORY`].

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use self::index::Index;
use self::recent::Recent;
use crate::signal::Mono;

mod index;
mod recent;

/// How long an original that has not succeeded is remembered after its last sign of life.
pub const MEMORY: Duration = Duration::from_mins(2);
/// Originals that are remembered at most, those that run apart; the oldest are forgotten first.
pub const ORIGINALS_MAX: usize = 1_000_000;
/// Entries of one original's chain; later ones are counted but not kept.
pub const CHAIN_MAX: usize = 24;
/// Originals that one arrival looks at to see whether they can be forgotten. Each is looked at twice
/// at the most before it goes, so a backlog shrinks with every arrival.
const LOOKS_PER_ARRIVAL: usize = 16;

/// Entries that an original has without memory of their own: those of one refused at once.
const CHAIN_INLINE: usize = 2;

/// The fingerprint of an original: of its idempotency key, or of caller, path and body.
pub type Identity = u128;

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
    /// Its number in this instance.
    pub id: u64,
    /// When it was last heard of.
    pub touched: Mono,
    /// Requests that ask for it now and are not answered.
    pub running: u32,
    /// Requests that asked for it so far.
    pub requests: u32,
    /// Attempts so far.
    pub attempts: u32,
    /// Sum of backoff waits.
    pub waited: Duration,
    /// It was let through at least once.
    pub admitted: bool,
    /// It has been answered with success.
    pub served: bool,
    last_slot: Option<u32>,
    last_span: Option<u64>,
    /// Numbers of the requests that asked for it again, at most [`CHAIN_MAX`].
    repeats: Vec<u64>,
    /// What happened, oldest first, at most [`CHAIN_MAX`] entries.
    pub chain: SmallVec<[ChainEntry; CHAIN_INLINE]>,
}

impl Original {
    const fn new(id: u64, now: Mono) -> Self {
        Self {
            id,
            touched: now,
            running: 0,
            requests: 0,
            attempts: 0,
            waited: Duration::ZERO,
            admitted: false,
            served: false,
            last_slot: None,
            last_span: None,
            repeats: Vec::new(),
            chain: SmallVec::new_const(),
        }
    }

    /// Adds to the chain while there is room.
    pub fn log(&mut self, entry: ChainEntry) {
        if self.chain.len() < CHAIN_MAX {
            self.chain.push(entry);
        }
    }
}

/// An original in its place.
#[derive(Debug)]
struct Entry {
    identity: Identity,
    original: Original,
}

/// The originals of one scope.
#[derive(Debug, Default)]
pub struct Originals {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_identity: Index<Identity>,
    by_number: Index<u64>,
    /// Every original once, with the time of the last look at it, earliest first.
    looked_at: VecDeque<(Mono, u32)>,
    recent: Recent,
    /// Number of the span that [`Originals::mark`] has begun, and the originals attempted in it.
    span: u64,
    in_span: u64,
}

impl Originals {
    /// The original that a request asks for; `true` when it is new. `id` is the request's number,
    /// and becomes that of a new original.
    ///
    /// # Panics
    /// Never: fewer than 2^32 originals are remembered.
    pub fn arrive(&mut self, identity: Identity, id: u64, now: Mono) -> (&mut Original, bool) {
        if self.looked_at.len() > ORIGINALS_MAX {
            self.forget(LOOKS_PER_ARRIVAL, now);
        }
        let Some(place) = self.by_identity.get(identity) else {
            let place = self.place(Entry { identity, original: Original::new(id, now) });
            self.by_identity.set(identity, place);
            self.by_number.set(id, place);
            self.looked_at.push_back((now, place));
            return (&mut self.entries[place as usize].original, true);
        };
        let original = &mut self.entries[place as usize].original;
        let known = original.running > 0 || (!original.served && original.touched + MEMORY >= now);
        if !known {
            let old = std::mem::replace(original, Original::new(id, now));
            self.forget_numbers(&old);
            self.by_number.set(id, place);
        } else if original.repeats.len() < CHAIN_MAX {
            original.repeats.push(id);
            self.by_number.set(id, place);
        }
        let original = &mut self.entries[place as usize].original;
        original.touched = now;
        (original, !known)
    }

    /// The original with this fingerprint, if it is remembered.
    pub fn get_mut(&mut self, identity: Identity) -> Option<&mut Original> {
        let place = self.by_identity.get(identity)?;
        Some(&mut self.entries[place as usize].original)
    }

    /// The original with this number, or the one that the request with this number asked for, if
    /// it is remembered.
    #[must_use]
    pub fn by_id(&self, id: u64) -> Option<&Original> {
        let place = self.by_number.get(id)?;
        Some(&self.entries[place as usize].original)
    }

    /// Counts an attempt. True when it is the first of its original.
    pub fn attempted(&mut self, identity: Identity, now: Mono) -> bool {
        let Some(place) = self.by_identity.get(identity) else {
            self.recent.count(None, now);
            return true;
        };
        let original = &mut self.entries[place as usize].original;
        original.touched = now;
        original.attempts = original.attempts.saturating_add(1);
        original.last_slot = Some(self.recent.count(original.last_slot, now));
        if original.last_span.replace(self.span) != Some(self.span) {
            self.in_span += 1;
        }
        original.attempts == 1
    }

    /// Ends a span and begins the next: distinct originals with an attempt in the one that ended.
    /// Exact, where [`Self::since`] rounds; for whoever alone cuts the time into spans.
    pub fn mark(&mut self) -> u64 {
        self.span += 1;
        std::mem::take(&mut self.in_span)
    }

    /// Attempts, and distinct originals with at least one attempt, since `from`; exact to half a slot
    /// of 50 ms, and for at most the last two minutes.
    #[must_use]
    pub fn since(&self, from: Mono) -> (u64, u64) {
        self.recent.since(from)
    }

    /// Forgets all that is due and gives its memory back. To be called now and then: arrivals forget
    /// only where there are too many.
    pub fn tidy(&mut self, now: Mono) {
        self.forget(self.looked_at.len(), now);
        self.recent.drop_old(now);
        self.recent.shrink();
        self.by_identity.shrink();
        self.by_number.shrink();
        if self.looked_at.is_empty() {
            // Places are numbers in `looked_at` and the indices, so they can go only when those are empty.
            (self.entries, self.free, self.looked_at) = Default::default();
        }
    }

    fn forget(&mut self, looks: usize, now: Mono) {
        for _ in 0..looks {
            let crowded = self.looked_at.len() > ORIGINALS_MAX;
            let due = |(at, _): &mut (Mono, u32)| crowded || *at + MEMORY < now;
            let Some((_, place)) = self.looked_at.pop_front_if(due) else { return };
            let original = &self.entries[place as usize].original;
            if original.running > 0 || (original.touched + MEMORY >= now && !crowded) {
                self.looked_at.push_back((now, place));
                continue;
            }
            let Entry { identity, original } = &mut self.entries[place as usize];
            self.by_identity.remove(*identity);
            let gone = std::mem::replace(original, Original::new(0, now));
            self.forget_numbers(&gone);
            self.free.push(place);
        }
    }

    fn place(&mut self, entry: Entry) -> u32 {
        if let Some(place) = self.free.pop() {
            self.entries[place as usize] = entry;
            return place;
        }
        self.entries.push(entry);
        u32::try_from(self.entries.len() - 1).expect("fewer originals than 2^32")
    }

    fn forget_numbers(&mut self, original: &Original) {
        self.by_number.remove(original.id);
        for id in &original.repeats {
            self.by_number.remove(*id);
        }
    }
}

#[cfg(test)]
mod tests;
