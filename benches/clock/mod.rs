//! Processor time, for benches that share their machine with others.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What the processor spent on this thread so far: other threads and processes do not count.
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a clock does not go below 0")
}
