//! Counts attempts by slot of time, and originals by the slot of their latest attempt; and how long
//! after the attempt before a later one came.
//!
//! Only slots in which something happened are kept, so an idle scope keeps none.

use std::collections::VecDeque;
use std::time::Duration;

use crate::signal::Mono;

/// Width of a slot.
const SLOT: Duration = Duration::from_millis(50);
/// Longest window that can be asked for.
pub const WINDOW_MAX: Duration = Duration::from_mins(2);
/// Slots in the longest window: the most that are kept.
#[expect(clippy::cast_possible_truncation, reason = "a constant of 2,400")]
const SLOTS_MAX: u32 = (WINDOW_MAX.as_millis() / SLOT.as_millis()) as u32;

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u32,
    attempts: u32,
    originals: u32,
    /// Attempts that were not the first of their original, and how many slots after the one before
    /// they came, in all.
    later: u32,
    gaps: u32,
}

/// What happened in the last two minutes, oldest slot first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    slots: VecDeque<Slot>,
}

impl Recent {
    /// Counts an attempt and returns the number of its slot. `before`: the slot of the original's
    /// previous attempt, in which it is not counted any more.
    pub(super) fn count(&mut self, before: Option<u32>, now: Mono) -> u32 {
        self.drop_old(now);
        if let Some(before) = before
            && let Ok(found) = self.slots.binary_search_by_key(&before, |slot| slot.number)
        {
            self.slots[found].originals = self.slots[found].originals.saturating_sub(1);
        }
        let number = number(now);
        let gap = before.map(|before| number.saturating_sub(before));
        let (later, gaps) = (u32::from(gap.is_some()), gap.unwrap_or(0));
        match self.slots.back_mut() {
            // `>`: a clock that ran backwards. The order of the slots must not suffer from it.
            Some(last) if last.number >= number => {
                last.attempts += 1;
                last.originals += 1;
                last.later += later;
                last.gaps = last.gaps.saturating_add(gaps);
                last.number
            }
            _ => {
                self.slots.push_back(Slot { number, attempts: 1, originals: 1, later, gaps });
                number
            }
        }
    }

    /// How long after the one before it a later attempt since `from` came, on average; `None` when
    /// most attempts since then were the first of their original.
    pub(super) fn gap_since(&self, from: Mono) -> Option<Duration> {
        let sums = |(attempts, later, gaps), slot: &Slot| {
            (attempts + slot.attempts, later + slot.later, gaps + u64::from(slot.gaps))
        };
        let (attempts, later, gaps) = self.slots_since(from).fold((0_u32, 0_u32, 0), sums);
        if later <= attempts / 2 {
            return None;
        }
        let slots = u32::try_from(gaps / u64::from(later)).unwrap_or(SLOTS_MAX);
        Some(SLOT.saturating_mul(slots))
    }

    /// Slots since `from`, to the nearer border of two, so that windows which meet neither share nor
    /// lose one.
    fn slots_since(&self, from: Mono) -> impl Iterator<Item = &Slot> {
        let first = number(from + SLOT / 2);
        let skip = self.slots.partition_point(|slot| slot.number < first);
        self.slots.iter().skip(skip)
    }

    /// Attempts and distinct originals since `from`.
    pub(super) fn since(&self, from: Mono) -> (u64, u64) {
        self.slots_since(from).fold((0, 0), |(attempts, originals), slot| {
            (attempts + u64::from(slot.attempts), originals + u64::from(slot.originals))
        })
    }

    /// Forgets what no window can reach any more.
    pub(super) fn drop_old(&mut self, now: Mono) {
        let oldest = number(now).saturating_sub(SLOTS_MAX);
        while self.slots.front().is_some_and(|slot| slot.number < oldest) {
            self.slots.pop_front();
        }
    }

    /// Gives back memory that is not needed any more.
    pub(super) fn shrink(&mut self) {
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to_fit();
        }
    }
}

/// The slot of an instant; 32 bits last for six years.
fn number(at: Mono) -> u32 {
    u32::try_from(at.since_start().as_millis() / SLOT.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn the_longest_window_is_kept_whole_and_nothing_beyond_it() {
        let mut recent = Recent::default();
        for second in 0..=130 {
            recent.count(None, at(f64::from(second)));
        }
        assert_eq!(recent.since(at(130.0) - WINDOW_MAX), (121, 121), "both ends counted");
        assert_eq!(recent.since(at(0.0)), (121, 121), "older ones are forgotten");
    }

    #[test]
    fn a_busy_scope_keeps_a_bounded_number_of_slots_and_an_idle_one_none() {
        let mut recent = Recent::default();
        for millis in (0..600_000).step_by(10) {
            recent.count(None, Mono::from_start(Duration::from_millis(millis)));
        }
        assert!(recent.slots.len() <= SLOTS_MAX as usize + 1, "{}", recent.slots.len());
        recent.drop_old(at(1_000.0));
        recent.shrink();
        assert_eq!((recent.slots.len(), recent.slots.capacity()), (0, 0));
    }
}
