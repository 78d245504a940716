//! Which requests are the same original, and how many originals had an attempt lately.
//!
//! A repeat of an original that has not succeeded within [`MEMORY`] is the same original and spends
//! its budget; after a success the same bytes are a new one. `distinct_since` counts originals whose
//! latest attempt lies in the window: an original that is tried nine times counts once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::signal::Mono;

/// How long an original that has not succeeded is remembered after its last sign of life.
pub const MEMORY: Duration = Duration::from_mins(2);
/// Originals that are remembered at most; the oldest are forgotten first.
pub const ORIGINALS_MAX: usize = 1_000_000;
/// Entries of one original's chain; later ones are counted but not kept.
pub const CHAIN_MAX: usize = 24;
/// Width of the slots that attempts are counted in.
const SLOT: Duration = Duration::from_millis(50);
/// Slots kept: an hour.
const SLOTS_MAX: usize = 72_000;

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
    pub code: Option<String>,
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
    last_slot: Option<u64>,
    last_span: Option<u64>,
    /// Numbers of the requests that asked for it, its own first, at most [`CHAIN_MAX`].
    asked_by: Vec<u64>,
    /// What happened, oldest first, at most [`CHAIN_MAX`] entries.
    pub chain: Vec<ChainEntry>,
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
            asked_by: Vec::new(),
            chain: Vec::new(),
        }
    }

    /// Adds to the chain while there is room.
    pub fn log(&mut self, entry: ChainEntry) {
        if self.chain.len() < CHAIN_MAX {
            self.chain.push(entry);
        }
    }
}

/// The originals of one scope.
#[derive(Debug, Default)]
pub struct Originals {
    by_identity: BTreeMap<Identity, Original>,
    by_id: BTreeMap<u64, Identity>,
    touched: VecDeque<(Mono, Identity)>,
    recent: Recent,
    /// Number of the span that [`Originals::mark`] has begun, and the originals attempted in it.
    span: u64,
    in_span: u64,
}

impl Originals {
    /// The original that a request asks for; `true` when it is new. `id` is the request's number,
    /// and becomes that of a new original.
    pub fn arrive(&mut self, identity: Identity, id: u64, now: Mono) -> (&mut Original, bool) {
        self.forget(now);
        self.touched.push_back((now, identity));
        let known = self.by_identity.get(&identity).is_some_and(|original| {
            original.running > 0 || (!original.served && original.touched + MEMORY >= now)
        });
        if !known && let Some(old) = self.by_identity.remove(&identity) {
            self.forget_numbers(&old);
        }
        let original = self.by_identity.entry(identity).or_insert_with(|| Original::new(id, now));
        original.touched = now;
        if original.asked_by.len() < CHAIN_MAX {
            original.asked_by.push(id);
            self.by_id.insert(id, identity);
        }
        (original, !known)
    }

    /// The original with this fingerprint, if it is remembered.
    pub fn get_mut(&mut self, identity: Identity) -> Option<&mut Original> {
        self.by_identity.get_mut(&identity)
    }

    /// The original with this number, or the one that the request with this number asked for, if
    /// it is remembered.
    #[must_use]
    pub fn by_id(&self, id: u64) -> Option<&Original> {
        self.by_identity.get(self.by_id.get(&id)?)
    }

    /// Counts an attempt. True when it is the first of its original.
    pub fn attempted(&mut self, identity: Identity, now: Mono) -> bool {
        self.touched.push_back((now, identity));
        let slot = self.recent.slot(now);
        let Some(original) = self.by_identity.get_mut(&identity) else {
            self.recent.count(slot, None);
            return true;
        };
        original.touched = now;
        original.attempts = original.attempts.saturating_add(1);
        let before = original.last_slot.replace(slot);
        if original.last_span.replace(self.span) != Some(self.span) {
            self.in_span += 1;
        }
        let first = original.attempts == 1;
        self.recent.count(slot, before);
        first
    }

    /// Ends a span and begins the next: distinct originals with an attempt in the one that ended.
    /// Exact, where [`Self::since`] rounds; for whoever alone cuts the time into spans.
    pub fn mark(&mut self) -> u64 {
        self.span += 1;
        std::mem::take(&mut self.in_span)
    }

    /// Attempts, and distinct originals with at least one attempt, since `from`; exact to half a slot
    /// of 50 ms, and for at most the last hour.
    #[must_use]
    pub fn since(&self, from: Mono) -> (u64, u64) {
        self.recent.since(from)
    }

    fn forget(&mut self, now: Mono) {
        while let Some((at, identity)) = self.touched.front().copied() {
            let crowded = self.by_identity.len() > ORIGINALS_MAX;
            if at + MEMORY >= now && !crowded {
                break;
            }
            self.touched.pop_front();
            let gone = self.by_identity.get(&identity).is_some_and(|original| {
                original.running == 0 && (original.touched <= at || crowded)
            });
            if gone && let Some(original) = self.by_identity.remove(&identity) {
                self.forget_numbers(&original);
            }
        }
    }

    fn forget_numbers(&mut self, original: &Original) {
        for id in &original.asked_by {
            self.by_id.remove(id);
        }
    }
}

/// Attempts by slot of time, and originals by the slot of their latest attempt.
#[derive(Debug, Default)]
struct Recent {
    first: u64,
    slots: VecDeque<(u32, u32)>,
}

impl Recent {
    #[expect(clippy::cast_possible_truncation, reason = "slots of one run fit 64 bits")]
    fn slot(&self, now: Mono) -> u64 {
        ((now.since_start().as_nanos() / SLOT.as_nanos()) as u64).max(self.first)
    }

    fn count(&mut self, slot: u64, before: Option<u64>) {
        if self.slots.is_empty() {
            self.first = slot;
        }
        while self.first + (self.slots.len() as u64) <= slot {
            self.slots.push_back((0, 0));
            if self.slots.len() > SLOTS_MAX {
                self.slots.pop_front();
                self.first += 1;
            }
        }
        if let Some(old) = before.and_then(|before| self.at(before)) {
            old.1 = old.1.saturating_sub(1);
        }
        if let Some(current) = self.at(slot) {
            current.0 += 1;
            current.1 += 1;
        }
    }

    fn at(&mut self, slot: u64) -> Option<&mut (u32, u32)> {
        let place = usize::try_from(slot.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(place)
    }

    fn since(&self, from: Mono) -> (u64, u64) {
        // The nearer border of two, so that windows which meet neither share nor lose a slot.
        let slot = self.slot(from + SLOT / 2);
        let skip = usize::try_from(slot.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.slots.iter().skip(skip).fold((0, 0), |(attempts, originals), slot| {
            (attempts + u64::from(slot.0), originals + u64::from(slot.1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn a_repeat_before_success_is_the_same_original_and_after_it_a_new_one() {
        let mut originals = Originals::default();
        assert!(originals.arrive(7, 1, at(0.0)).1);
        assert!(!originals.arrive(7, 2, at(119.0)).1);
        originals.get_mut(7).expect("known").served = true;
        assert_eq!(originals.by_id(2).map(|original| original.id), Some(1), "the repeat's number");
        let (original, new) = originals.arrive(7, 3, at(119.5));
        assert!(new);
        assert_eq!(original.id, 3);
        for id in [1, 2] {
            assert!(originals.by_id(id).is_none(), "the served one is replaced");
        }
    }

    #[test]
    fn memory_ends_exactly_after_two_minutes_of_silence() {
        let mut originals = Originals::default();
        originals.arrive(7, 1, at(0.0));
        assert!(!originals.arrive(7, 2, at(120.0)).1);
        assert!(originals.arrive(7, 3, at(240.001)).1);
    }

    #[test]
    fn nine_tries_of_one_original_count_once_in_a_window() {
        let mut originals = Originals::default();
        originals.arrive(1, 1, at(0.0));
        originals.arrive(2, 2, at(0.0));
        assert!(originals.attempted(1, at(0.0)));
        for n in 1..9 {
            assert!(!originals.attempted(1, at(f64::from(n))));
        }
        originals.attempted(2, at(8.5));
        assert_eq!(originals.since(at(0.0)), (10, 2));
        assert_eq!(originals.since(at(8.0)), (2, 2));
        assert_eq!(originals.since(at(8.4)), (1, 1));
        assert_eq!(originals.since(at(9.0)), (0, 0));
    }

    #[test]
    fn running_originals_are_never_forgotten() {
        let mut originals = Originals::default();
        originals.arrive(1, 1, at(0.0)).0.running = 1;
        originals.arrive(2, 2, at(500.0));
        assert!(!originals.arrive(1, 3, at(500.0)).1);
    }
}
