//! Counted things as types, so that tokens are not added to requests.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

macro_rules! counted {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The count as a float, for rates and ratios.
            #[must_use]
            #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
            pub const fn as_f64(self) -> f64 {
                self.0 as f64
            }
        }

        impl Add for $name {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::default(), Add::add)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counted!(
    /// A number of language-model tokens. What a rate limiter's bucket holds is called permits.
    Tokens
);
counted!(
    /// A number of requests.
    Requests
);

/// A share between 0 and 1, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Ratio(f64);

impl Ratio {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);

    /// A checked ratio: `None` outside 0..=1 and for NaN.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}
