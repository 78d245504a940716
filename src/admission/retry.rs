//! Whether a failed attempt is repeated, when, and whether its scope can afford it.
//!
//! Three parts that know nothing of each other's state: [`backoff`] says how long to wait,
//! [`RetryBudget`] what the scope has left, and [`judge_retry`] decides. None of them waits, and none
//! holds a permit while somebody does.

mod backoff;
mod budget;
mod judge;

pub use backoff::backoff;
pub use budget::{Allowance, Cost, RetryBudget, WINDOW};
pub use judge::{Attempted, Fate, NextTry, judge_retry};
