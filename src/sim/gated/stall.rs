//! An event loop that is held up: requests wait for it one after the other, before the gate sees them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::signal::Mono;
use crate::sim::model::OfferedRequest;

/// Requests that wait for a stalled event loop, oldest first.
#[derive(Debug, Default)]
pub(super) struct Stalled {
    waiting: VecDeque<(Mono, OfferedRequest)>,
    busy_until: Mono,
}

impl Stalled {
    /// Takes a request that arrives at `now` and holds the loop up for `stall`.
    pub(super) fn push(&mut self, one: OfferedRequest, stall: Duration, now: Mono) {
        self.busy_until = self.busy_until.max(now) + stall;
        self.waiting.push_back((self.busy_until, one));
    }

    /// The next request that the loop has come to by `now`.
    pub(super) fn due(&mut self, now: Mono) -> Option<OfferedRequest> {
        self.waiting.front().filter(|(at, _)| *at <= now)?;
        self.waiting.pop_front().map(|(_, one)| one)
    }

    pub(super) fn next_due(&self) -> Option<Mono> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// Takes a request out that nobody waits for any more. Whether it was there.
    pub(super) fn remove(&mut self, is_it: impl Fn(&OfferedRequest) -> bool) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(_, one)| !is_it(one));
        self.waiting.len() < before
    }

    /// How late something is that the loop should do now.
    pub(super) const fn lag(&self, now: Mono) -> Duration {
        self.busy_until.saturating_since(now)
    }
}
