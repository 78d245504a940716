//! What one instance knows of its own shell: whether it leaves, how late its event loop is, how its store
//! answers.
//!
//! Nothing is decided here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, interval_at};

use crate::admission::StoreCounters;

/// How often the event loop is asked whether it is on time.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// The measurements, shared by who takes and who shows them.
#[derive(Debug, Default)]
pub(super) struct Health {
    is_leaving: AtomicBool,
    lag_ns: AtomicU64,
    store: Mutex<StoreCounters>,
}

impl Health {
    /// From now on this instance takes its leave: load balancers shall send nobody here.
    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// How late the event loop was when it was last asked.
    pub(super) fn loop_lag(&self) -> Duration {
        Duration::from_nanos(self.lag_ns.load(Ordering::Relaxed))
    }

    /// How the store answered so far.
    pub(super) fn store(&self) -> MutexGuard<'_, StoreCounters> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the event loop that runs this until it is dropped.
    pub(super) async fn watch_loop(&self) {
        let mut due = Instant::now() + PROBE_EVERY;
        let mut ticks = interval_at(due, PROBE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            let late = u64::try_from(now.saturating_duration_since(due).as_nanos());
            self.lag_ns.store(late.unwrap_or(u64::MAX), Ordering::Relaxed);
            due = now + PROBE_EVERY;
        }
    }
}
