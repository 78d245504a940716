//! One original's way from scope to scope: how often it moved on, over how many, what the first cost.

use std::time::Duration;

use crate::signal::Mono;

/// Scopes that are told apart.
const SCOPES_MAX: usize = 64;

/// The way so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    first: Option<(usize, Mono)>,
    last: usize,
    /// A bit for each scope that was asked.
    seen: u64,
    hops: u32,
    wasted: Duration,
}

impl Walk {
    /// A request goes to this scope.
    pub const fn sent(&mut self, scope: usize, now: Mono) {
        if scope < SCOPES_MAX {
            self.seen |= 1 << scope;
        }
        match self.first {
            None => self.first = Some((scope, now)),
            Some((first, since)) if scope != self.last => {
                self.hops += 1;
                // What was spent on the first before anything else was tried.
                if self.hops == 1 && self.last == first {
                    self.wasted = now.saturating_since(since);
                }
            }
            Some(_) => {}
        }
        self.last = scope;
    }

    /// How often it went to another scope than before.
    #[must_use]
    pub const fn hops(&self) -> u32 {
        self.hops
    }

    /// How many scopes it asked.
    #[must_use]
    pub const fn distinct(&self) -> u32 {
        self.seen.count_ones()
    }

    /// How long it tried the first before it moved on; zero if it never did.
    #[must_use]
    pub const fn wasted(&self) -> Duration {
        self.wasted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_scopes_and_what_the_first_cost() {
        let mut walk = Walk::default();
        for (scope, at_s) in [(0, 1.0), (0, 3.0), (1, 12.0), (2, 13.0), (1, 14.0)] {
            walk.sent(scope, Mono::from_secs_f64(at_s));
        }
        assert_eq!((walk.hops(), walk.distinct()), (3, 3));
        assert_eq!(walk.wasted(), Duration::from_secs(11));
        let mut straight = Walk::default();
        straight.sent(0, Mono::START);
        assert_eq!((straight.hops(), straight.distinct()), (0, 1));
        assert_eq!(straight.wasted(), Duration::ZERO);
    }
}
