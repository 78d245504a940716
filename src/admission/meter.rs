//! One meter of a quota scope: whether an amount may be taken now, and when it may.
//!
//! A *pace* spreads what is taken within the window, since providers judge in slices of seconds too; a
//! *window* holds the sum to the limit in the provider's own way of counting. Decides nothing else.

use std::time::Duration;

use super::bucket::Bucket;
use super::limit::{Limit, Semantics};
use super::window::{Fixed, Sliding, WIDENING};
use crate::dialect::MeterReading;
use crate::signal::Mono;

/// Meters with a window of this length or more are not paced: a day's work may be done in an hour.
const UNPACED: Duration = Duration::from_hours(1);
/// A wait of more windows than this is as good as for ever.
const WINDOWS_MAX: f64 = 1e6;
/// Rounding that is no excess.
const SLACK: f64 = 1e-6;

#[derive(Clone, Debug)]
enum Window {
    /// The pace alone counts.
    None,
    Sliding(Sliding),
    Fixed(Fixed),
}

/// One meter as this gate counts it.
#[derive(Clone, Debug)]
pub struct Metered {
    limit: Limit,
    pace: Option<Bucket>,
    window: Window,
    /// What the provider should have left of the whole quota, where it refills continuously.
    view: Option<Bucket>,
    quota: f64,
    /// Taken and not settled.
    reserved: f64,
    read: bool,
    drift: Option<f64>,
}

impl Metered {
    /// A meter of which nothing is taken, at `factor` of its rate. `quota` is the provider's whole
    /// limit, of which `limit` is our share.
    #[must_use]
    pub fn new(limit: Limit, quota: f64, factor: f64, now: Mono) -> Self {
        let unpaced = limit.window >= UNPACED;
        let pace = match (unpaced, limit.semantics) {
            (false, _) => Some(Bucket::new(pace_of(&limit) * factor, limit.burst, now)),
            (true, Semantics::TokenBucket) => {
                Some(Bucket::full(limit.per_second(), limit.window, now))
            }
            (true, _) => None,
        };
        let window = match limit.semantics {
            Semantics::TokenBucket => Window::None,
            Semantics::SlidingWindow => Window::Sliding(Sliding::new(limit.window)),
            Semantics::FixedWindow => Window::Fixed(Fixed::new(limit.window)),
        };
        let view = matches!(window, Window::None)
            .then(|| Bucket::full(quota / limit.window.as_secs_f64(), limit.window, now));
        Self { limit, pace, window, view, quota, reserved: 0.0, read: false, drift: None }
    }

    /// Another limit of the same meter from now on, at `factor` of its rate.
    pub fn set(&mut self, limit: Limit, quota: f64, factor: f64, now: Mono) {
        if limit.semantics != self.limit.semantics || limit.window != self.limit.window {
            *self = Self { reserved: self.reserved, ..Self::new(limit, quota, factor, now) };
            return;
        }
        if let Some(view) = &mut self.view {
            view.set_rate(quota / limit.window.as_secs_f64(), limit.window, now);
        }
        self.quota = quota;
        let unpaced = limit.window >= UNPACED;
        if let Some(pace) = &mut self.pace {
            let (factor, burst) = if unpaced { (1.0, limit.window) } else { (factor, limit.burst) };
            pace.set_rate(pace_of(&limit) * factor, burst, now);
        }
        self.limit = limit;
    }

    /// Something of each part, only to have looked at it.
    pub(super) const fn touched(&self) -> impl Copy + use<> {
        (self.pace.is_some(), self.view.is_some(), self.reserved, self.quota, self.limit.amount)
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Time until `amount` may be taken after `ahead` has been; `None` when never.
    #[must_use]
    pub fn wait(&self, amount: f64, ahead: f64, now: Mono) -> Option<Duration> {
        let paced = self
            .pace
            .as_ref()
            .map_or(Some(Duration::ZERO), |pace| pace.wait(amount, ahead, now))?;
        let limit = self.limit.amount;
        let windowed = match &self.window {
            Window::None => Duration::ZERO,
            _ if limit <= 0.0 => return None,
            Window::Sliding(window) => {
                let sum = window.sum(now);
                let excess = sum + ahead + amount - limit;
                if excess <= SLACK || sum + ahead <= SLACK {
                    Duration::ZERO
                } else {
                    // What is larger than a window passes when the window is empty. Behind others
                    // the wait is an estimate, and need not look at every cell.
                    let must_leave = excess.min(sum + ahead);
                    let exact = if ahead > 0.0 { None } else { window.until_left(must_leave, now) };
                    exact.unwrap_or_else(|| {
                        self.limit.window.mul_f64((must_leave / limit).min(WINDOWS_MAX))
                    })
                }
            }
            Window::Fixed(window) => {
                let sum = window.sum(now);
                if sum + ahead + amount <= limit + SLACK || sum + ahead <= SLACK {
                    Duration::ZERO
                } else {
                    let whole = ((ahead + amount) / limit - SLACK).floor().max(0.0);
                    window.until_next(now) + self.limit.window.mul_f64(whole.min(WINDOWS_MAX))
                }
            }
        };
        Some(paced.max(windowed))
    }

    /// Reserves `amount`.
    pub fn take(&mut self, amount: f64, now: Mono) {
        self.reserved += amount;
        for bucket in self.pace.iter_mut().chain(&mut self.view) {
            bucket.take(amount, now);
        }
        match &mut self.window {
            Window::None => {}
            Window::Sliding(window) => window.add(amount, now),
            Window::Fixed(window) => window.add(amount, now),
        }
    }

    /// Replaces what was reserved at `at` by what was charged.
    pub fn settle(&mut self, at: Mono, reserved: f64, charged: f64, now: Mono) {
        self.reserved = (self.reserved - reserved).max(0.0);
        let back = reserved - charged;
        for bucket in self.pace.iter_mut().chain(&mut self.view) {
            bucket.give(back, now);
        }
        match &mut self.window {
            Window::None => {}
            Window::Sliding(window) => window.give(back, at, now),
            Window::Fixed(window) => window.give(back, at, now),
        }
    }

    /// The provider says what it has left: never believe that it is more, less what is under way
    /// and may not be in its count yet.
    pub fn believe(&mut self, reading: &MeterReading, now: Mono) {
        let Some(remaining) = reading.remaining else { return };
        self.compare(remaining, now);
        let left = remaining - self.reserved;
        if let Some(pace) = &mut self.pace {
            pace.cap(left, now);
        }
        match &mut self.window {
            Window::Fixed(window) => {
                let limit = reading.limit.unwrap_or(0.0).max(self.limit.amount);
                window.believe(limit - left, reading.reset, now);
            }
            // A long window has no pace that could hold back what others have taken.
            Window::Sliding(window) if self.pace.is_none() => {
                let limit = reading.limit.unwrap_or(0.0).max(self.limit.amount);
                let unseen = limit - left - window.sum(now);
                if unseen > 0.0 {
                    window.add(unseen, now);
                }
            }
            Window::None | Window::Sliding(_) => {}
        }
    }

    /// Holds the provider's view against ours. What is under way may or may not be in its count yet.
    fn compare(&mut self, remaining: f64, now: Mono) {
        let own = self.own_left(now);
        let seen = own.clamp(remaining - self.reserved, remaining);
        if self.read && self.quota > 0.0 {
            self.drift = Some((own - seen) / self.quota);
        }
        self.read = true;
        if let Some(view) = &mut self.view {
            view.set_level(seen, now);
        }
    }

    /// What the provider should have left of its whole quota, by our own count.
    #[must_use]
    pub fn own_left(&self, now: Mono) -> f64 {
        let used = match &self.window {
            Window::None => return self.view.as_ref().map_or(self.quota, |view| view.level(now)),
            Window::Sliding(window) => window.sum(now),
            Window::Fixed(window) => window.sum(now),
        };
        (self.quota - used).max(0.0)
    }

    /// How far our count stood from the provider's at its last reading, as a share of the quota:
    /// above zero where we thought that more was left. Unknown before the second reading.
    #[must_use]
    pub const fn drift(&self) -> Option<f64> {
        self.drift
    }

    /// The provider's whole limit.
    #[must_use]
    pub const fn quota(&self) -> f64 {
        self.quota
    }

    /// Nothing leaves until `until`, and then at the pace, never all at once.
    pub fn hold(&mut self, until: Mono, now: Mono) {
        if self.limit.window < UNPACED
            && let Some(pace) = &mut self.pace
        {
            pace.hold(until, now);
        }
    }

    /// What could be taken in this window, 0 to the limit; of a pace alone, its own level.
    #[must_use]
    pub fn left(&self, now: Mono) -> f64 {
        let limit = self.limit.amount;
        match (&self.window, &self.pace) {
            (Window::Sliding(window), _) => (limit - window.sum(now)).clamp(0.0, limit),
            (Window::Fixed(window), _) => (limit - window.sum(now)).clamp(0.0, limit),
            (Window::None, Some(pace)) => limit * pace.headroom(now),
            (Window::None, None) => limit,
        }
    }

    /// Gives memory up that an idle meter does not need.
    pub fn tidy(&mut self, now: Mono) {
        if let Window::Sliding(window) = &mut self.window {
            window.tidy(now);
        }
    }
}

/// The rate of a pace. A sliding window is counted a cell too wide: at the full rate it would be full
/// a cell before its oldest amount leaves, and everybody would stand still for so long once a window.
fn pace_of(limit: &Limit) -> f64 {
    match limit.semantics {
        Semantics::SlidingWindow => limit.per_second() / WIDENING,
        Semantics::TokenBucket | Semantics::FixedWindow => limit.per_second(),
    }
}
