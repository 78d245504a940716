//! A keeper that is slow, fails, or holds breakers in one state: in front of a sound one, for drills.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Keeper, KeeperError};
use crate::admission::{Claim, Mirror, Report, Rules, Verdict};
use crate::signal::Mono;
use crate::sim::gate::{GateFaults, HELD_VERDICT};

/// What errors call it.
const SERVER: &str = "the drill's faulty store";

/// A keeper with faults.
pub struct FaultyKeeper {
    inner: Arc<dyn Keeper>,
    faults: GateFaults,
    /// Longest time of one decision.
    limit: Duration,
    started: Instant,
    random: Mutex<Pcg64Mcg>,
}

impl FaultyKeeper {
    /// Puts faults in front of `inner`; their times count from `started`.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Keeper>,
        faults: GateFaults,
        limit: Duration,
        seed: u64,
        started: Instant,
    ) -> Self {
        let random = Mutex::new(Pcg64Mcg::seed_from_u64(seed));
        Self { inner, faults, limit, started, random }
    }

    fn now(&self) -> Mono {
        Mono::from_start(self.started.elapsed())
    }

    /// Passes a question on, late or not at all.
    async fn pass<T>(
        &self,
        question: impl Future<Output = Result<T, KeeperError>> + Send,
    ) -> Result<T, KeeperError> {
        let Some(fault) = self.faults.store_now(self.now()) else { return question.await };
        let drawn: f64 = self.random.lock().unwrap_or_else(PoisonError::into_inner).random();
        if drawn < fault.error_ratio {
            let words = "a fault that the drill asked for".to_owned();
            return Err(KeeperError::Refused { server: Arc::from(SERVER), words });
        }
        let late = fault.latency() > self.limit;
        tokio::time::sleep(fault.latency().min(self.limit)).await;
        // What comes too late has reached the store all the same.
        let answer = question.await;
        if late {
            return Err(KeeperError::Timeout { server: Arc::from(SERVER), limit: self.limit });
        }
        answer
    }

    fn hold(&self, mirror: Mirror, rules: &Rules) -> Mirror {
        match self.faults.held_breaker(rules, self.now()) {
            None => mirror,
            Some((held, left)) => held.in_mirror(mirror, left),
        }
    }
}

impl Keeper for FaultyKeeper {
    fn claim<'a>(
        &'a self,
        scope: &'a str,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<(Verdict, Mirror), KeeperError>> {
        async move {
            // Whom the breaker holds back asks for nothing.
            if self.faults.held_breaker(&claim.rules, self.now()).is_some() {
                let idle = claim.idle_report();
                let mirror = self.pass(self.inner.report(scope, &idle)).await?;
                return Ok((HELD_VERDICT, self.hold(mirror, &claim.rules)));
            }
            self.pass(self.inner.claim(scope, claim)).await
        }
        .boxed()
    }

    fn report<'a>(
        &'a self,
        scope: &'a str,
        report: &'a Report,
    ) -> BoxFuture<'a, Result<Mirror, KeeperError>> {
        async move {
            let mirror = self.pass(self.inner.report(scope, report)).await?;
            Ok(self.hold(mirror, &report.rules))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Binding, Demand, SharedBreaker};
    use crate::gateway::store::MemoryKeeper;

    const LIMIT: Duration = Duration::from_millis(45);

    fn keeper(faults: &str) -> FaultyKeeper {
        let faults: GateFaults = toml::from_str(faults).expect("it fits the types");
        let inner = Arc::new(MemoryKeeper::new("one"));
        FaultyKeeper::new(inner, faults, LIMIT, 1, Instant::now())
    }

    async fn ask(keeper: &FaultyKeeper) -> Result<(Verdict, Mirror), KeeperError> {
        ask_with(keeper, true).await
    }

    async fn ask_with(
        keeper: &FaultyKeeper,
        breaker: bool,
    ) -> Result<(Verdict, Mirror), KeeperError> {
        let lease = Duration::from_mins(1);
        let claim = Claim {
            demand: Demand::default(),
            limits: Vec::new(),
            in_flight: 0,
            in_flight_max: None,
            rules: Rules { breaker, faults_in_row: 5, adaptive: true, lease },
        };
        keeper.claim("scope", &claim).await
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_late_fails_or_holds_the_breaker_as_it_is_told() {
        let sound = ask(&keeper("")).await.expect("nothing is wrong");
        assert!(matches!(sound.0, Verdict::Granted(_)), "{sound:?}");
        let slow = ask(&keeper("store = { latency_ms = 30 }")).await.expect("in time");
        assert!(matches!(slow.0, Verdict::Granted(_)), "{slow:?}");
        let late = ask(&keeper("store = { latency_ms = 80 }")).await.expect_err("too late");
        assert!(matches!(late, KeeperError::Timeout { limit: LIMIT, .. }), "{late}");
        let broken = ask(&keeper("store = { error_ratio = 1 }")).await.expect_err("it fails");
        assert!(matches!(broken, KeeperError::Refused { .. }), "{broken}");
        let over = ask(&keeper("store = { error_ratio = 1, to_s = 0 }")).await;
        assert!(over.is_ok(), "the fault is over: {over:?}");
        let held = keeper("breaker = { held = 'open' }");
        let (verdict, mirror) = ask(&held).await.expect("it says");
        assert!(matches!(verdict, Verdict::Wait { why: Binding::Breaker, .. }), "{verdict:?}");
        assert!(matches!(mirror.breaker, SharedBreaker::Open { .. }), "{mirror:?}");
        let (verdict, mirror) = ask_with(&held, false).await.expect("it says");
        assert!(matches!(verdict, Verdict::Granted(_)), "without a breaker: {verdict:?}");
        assert!(matches!(mirror.breaker, SharedBreaker::Closed), "{mirror:?}");
    }
}
