//! How often one scope has attempted, and how many originals: over a window, and from mark to mark.

use std::time::Duration;

use super::{Original, recent::Recent, recent::WINDOW_MAX};
use crate::signal::Mono;

/// The shortest span that [`Attempted::span`] returns.
const SPAN_MIN: Duration = Duration::from_secs(10);
/// Waits between two attempts of one original that such a span holds at least. Of a chain of nine
/// attempts one after the other it sees half; of a window as short as one wait it would see each
/// attempt alone, and tell a storm of slow retries for one attempt per original.
const SPAN_GAPS: u32 = 8;

/// The attempts of one scope.
#[derive(Debug, Default)]
pub struct Attempted {
    recent: Recent,
    /// Number of the span that [`Attempted::mark`] has begun, and the originals attempted in it.
    span: u64,
    in_span: u64,
}

impl Attempted {
    /// Counts an attempt. True when it is the first of its original.
    pub(in crate::admission) fn count(&mut self, original: &mut Original, now: Mono) -> bool {
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

    /// How long the window must be, back from `now`, that the attempts of one original fall into it
    /// together: 10 s, unless most attempts of the last 10 s were repeats (an original costs more
    /// than two). Then eight times the average wait before such a repeat, at most two minutes.
    #[must_use]
    pub fn span(&self, now: Mono) -> Duration {
        let gap = self.recent.gap_since(now - SPAN_MIN).unwrap_or_default();
        gap.saturating_mul(SPAN_GAPS).clamp(SPAN_MIN, WINDOW_MAX)
    }

    /// Forgets what no window can reach any more, and gives its memory back.
    pub(in crate::admission) fn tidy(&mut self, now: Mono) {
        self.recent.drop_old(now);
        self.recent.shrink();
    }
}
