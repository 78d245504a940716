//! The keeper for several gates in one process: the state of every scope in this process's memory.
//!
//! Follows the rules themselves, [`Pool`]; sends nothing and never fails. What other processes do, it
//! does not see.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Keeper, KeeperError};
use crate::admission::{Claim, Mirror, Pool, Report, Verdict};
use crate::signal::Mono;

/// What the keepers of one process share.
#[derive(Debug)]
struct Pools {
    /// One a scope, of which a configuration names few.
    by_scope: Mutex<BTreeMap<String, Pool>>,
    started: Instant,
}

/// Keeps scopes for one instance, and for every other that [`MemoryKeeper::for_another`] makes.
#[derive(Debug)]
pub struct MemoryKeeper {
    pools: Arc<Pools>,
    instance: String,
}

impl MemoryKeeper {
    /// A keeper that has seen no scope yet, for the instance of this name.
    #[must_use]
    pub fn new(instance: &str) -> Self {
        let pools = Pools { by_scope: Mutex::new(BTreeMap::new()), started: Instant::now() };
        Self { pools: Arc::new(pools), instance: instance.to_owned() }
    }

    /// The keeper of another instance, for the same scopes.
    #[must_use]
    pub fn for_another(&self, instance: &str) -> Self {
        Self { pools: Arc::clone(&self.pools), instance: instance.to_owned() }
    }

    fn with<R>(&self, scope: &str, change: impl FnOnce(&mut Pool, Mono) -> R) -> R {
        let mut pools = self.pools.by_scope.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that no scope sees time run backwards.
        let now = Mono::from_start(self.pools.started.elapsed());
        if !pools.contains_key(scope) {
            pools.insert(scope.to_owned(), Pool::new(scope, now));
        }
        let pool = pools.get_mut(scope).expect("it is there by now");
        change(pool, now)
    }
}

impl Keeper for MemoryKeeper {
    fn claim<'a>(
        &'a self,
        scope: &'a str,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<(Verdict, Mirror), KeeperError>> {
        async move { Ok(self.with(scope, |pool, now| pool.claim(&self.instance, claim, now))) }
            .boxed()
    }

    fn report<'a>(
        &'a self,
        scope: &'a str,
        report: &'a Report,
    ) -> BoxFuture<'a, Result<Mirror, KeeperError>> {
        async move { Ok(self.with(scope, |pool, now| pool.report(&self.instance, report, now))) }
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admission::{Binding, Demand, Rules};
    use crate::dialect::Meter;

    #[tokio::test]
    async fn instances_of_one_process_see_each_others_calls_and_no_other_scopes() {
        let one = MemoryKeeper::new("one");
        let other = one.for_another("other");
        let lease = Duration::from_mins(1);
        let claim = Claim {
            demand: Demand::default(),
            limits: Vec::new(),
            in_flight: 0,
            in_flight_max: Some(1),
            rules: Rules { breaker: true, faults_in_row: 5, adaptive: true, lease },
        };
        let (verdict, _) = one.claim("a", &claim).await.expect("never fails");
        assert!(matches!(verdict, Verdict::Granted(_)), "{verdict:?}");
        let (verdict, mirror) = other.claim("a", &claim).await.expect("never fails");
        let why = Binding::Meter(Meter::Concurrency);
        assert!(matches!(verdict, Verdict::Wait { why: by, .. } if by == why), "{verdict:?}");
        assert_eq!((mirror.instances, mirror.in_flight), (2, 1));
        let (verdict, _) = other.claim("b", &claim).await.expect("never fails");
        assert!(matches!(verdict, Verdict::Granted(_)), "{verdict:?}");
    }
}
