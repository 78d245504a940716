//! How often one scope has attempted, and how many originals: over a window, and from mark to mark.

use super::{Original, recent::Recent};
use crate::signal::Mono;

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

    /// Forgets what no window can reach any more, and gives its memory back.
    pub(in crate::admission) fn tidy(&mut self, now: Mono) {
        self.recent.drop_old(now);
        self.recent.shrink();
    }
}
