//! What happens next in the world: a heap of events by instant and by order of creation.
//!
//! Two events of one instant always come in the order in which they were scheduled. Events are small,
//! because the heap moves them often; what belongs to them lies in tables.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::signal::Mono;
use crate::sim::callers::job::{Delivery, Item};

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next task of a caller begins.
    Begin { caller: u32 },
    /// The stages before a call are through.
    Start { original: u64 },
    /// The wait before a try is over.
    Timer { original: u64 },
    /// The person behind an original stops waiting.
    Leave { original: u64 },
    /// The client of a request has waited for as long as it waits.
    GiveUp { request: u64 },
    /// The provider answers.
    Reply { slot: usize },
    /// A run of a caller's job begins.
    Run { caller: u32, run: u32 },
    /// The wait before an item's repeat is over.
    PutBack { caller: u32, item: Item },
    /// The visibility timeout of an item is over.
    Redeliver { caller: u32, delivery: Delivery },
}

struct Scheduled {
    at: Mono,
    order: u64,
    event: Event,
}

impl Scheduled {
    const fn key(&self) -> (Mono, u64) {
        (self.at, self.order)
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The events to come.
#[derive(Default)]
pub(super) struct Agenda {
    events: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
}

impl Agenda {
    pub(super) fn schedule(&mut self, at: Mono, event: Event) {
        self.events.push(Reverse(Scheduled { at, order: self.scheduled, event }));
        self.scheduled += 1;
    }

    pub(super) fn next_at(&self) -> Option<Mono> {
        self.events.peek().map(|Reverse(scheduled)| scheduled.at)
    }

    /// The earliest event if it is due.
    pub(super) fn pop_due(&mut self, now: Mono) -> Option<Event> {
        let is_due = self.next_at().is_some_and(|at| at <= now);
        is_due.then(|| self.events.pop()).flatten().map(|Reverse(scheduled)| scheduled.event)
    }

    /// Keeps the events that `keeps` wants; the others in the order of the heap, which repeats.
    pub(super) fn split(&mut self, keeps: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut dropped = Vec::new();
        for Reverse(scheduled) in std::mem::take(&mut self.events).into_vec() {
            if keeps(&scheduled.event) {
                self.events.push(Reverse(scheduled));
            } else {
                dropped.push(scheduled.event);
            }
        }
        dropped
    }
}

/// Things by a number that counts up and is never used again, most of them short-lived.
///
/// A window over the numbers from the oldest thing that is left to the newest.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    first: u64,
    window: VecDeque<Option<T>>,
    len: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { first: 0, window: VecDeque::new(), len: 0 }
    }
}

impl<T> Numbered<T> {
    /// The number that the next thing gets.
    pub(super) fn next(&self) -> u64 {
        self.first + self.window.len() as u64
    }

    pub(super) fn push(&mut self, thing: T) -> u64 {
        let number = self.next();
        self.window.push_back(Some(thing));
        self.len += 1;
        number
    }

    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number)?;
        self.window.get_mut(place)?.as_mut()
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        let thing = self.window.get_mut(place)?.take()?;
        self.len -= 1;
        while matches!(self.window.front(), Some(None)) {
            self.window.pop_front();
            self.first += 1;
        }
        Some(thing)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Things by a slot that is used again.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn put(&mut self, thing: T) -> usize {
        if let Some(slot) = self.free.pop() {
            self.slots[slot] = Some(thing);
            return slot;
        }
        self.slots.push(Some(thing));
        self.slots.len() - 1
    }

    pub(super) fn take(&mut self, slot: usize) -> Option<T> {
        let thing = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(thing)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbered_things_are_found_as_in_a_map(moves in prop::collection::vec((any::<bool>(), 0_u64..40), 0..200)) {
            let (mut numbered, mut map) = (Numbered::default(), BTreeMap::new());
            for (adds, number) in moves {
                if adds {
                    map.insert(numbered.next(), number);
                    numbered.push(number);
                } else {
                    prop_assert_eq!(numbered.remove(number), map.remove(&number));
                }
                for number in 0..50 {
                    prop_assert_eq!(numbered.get_mut(number).copied(), map.get(&number).copied());
                }
                prop_assert_eq!(numbered.is_empty(), map.is_empty());
            }
        }

        #[test]
        fn slots_hold_what_was_put(moves in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
            let (mut slots, mut held) = (Slots::default(), Vec::new());
            for (n, (puts, place)) in moves.into_iter().enumerate() {
                if puts || held.is_empty() {
                    held.push((slots.put(n), n));
                } else {
                    let (slot, n) = held.swap_remove(place.index(held.len()));
                    prop_assert_eq!(slots.take(slot), Some(n));
                    prop_assert_eq!(slots.take(slot), None);
                }
                prop_assert_eq!(slots.iter_mut().count(), held.len());
            }
        }
    }
}
