//! Monotonic time as a value: an instant of one run, counted from its start.

use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant on the monotonic clock of one run, as the time since that run's start.
///
/// Cores take it as an argument and never read a clock, so the same code runs behind sockets and
/// under a virtual clock. Calendar time is `chrono::DateTime` and never mixes with this type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(Duration);

impl Mono {
    /// The start of the run.
    pub const START: Self = Self(Duration::ZERO);

    /// The instant `since_start` after the start of the run.
    #[must_use]
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// The instant `seconds` after the start; negative and non-finite input is the start itself.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO))
    }

    /// Time since the start of the run.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Seconds since the start of the run.
    #[must_use]
    pub const fn as_secs_f64(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// Time from `earlier` to `self`, zero when `earlier` is in fact later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Sub<Duration> for Mono {
    type Output = Self;

    /// Earlier by `span`, clamped at the start of the run.
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}
