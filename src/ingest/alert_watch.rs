//! Looks at alerts again and again, at a pace.
//!
//! A failure costs one round: what was known stays, with its age and the reason. Nothing else waits
//! for it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::alertmanager::Alertmanager;
use super::alerts::Alerts;
use super::prometheus::PrometheusSource;
use crate::signal::Mono;

/// From one look to the next, unless set otherwise.
pub const ALERT_INTERVAL: Duration = Duration::from_secs(15);

/// Whose alerts are looked at.
#[derive(Clone, Debug)]
pub enum AlertSource {
    /// An Alertmanager's, with its silences.
    Alertmanager(Box<Alertmanager>),
    /// A Prometheus' own, which knows no silences.
    Prometheus(Arc<PrometheusSource>),
}

impl AlertSource {
    fn name(&self) -> Arc<str> {
        match self {
            Self::Alertmanager(alertmanager) => Arc::clone(alertmanager.name()),
            Self::Prometheus(prometheus) => prometheus.name().into(),
        }
    }

    /// The alerts as of `now`, which is asked for when the answer is there; else why there are none.
    async fn look(&self, now: impl Fn() -> Mono) -> Result<Alerts, String> {
        match self {
            Self::Alertmanager(alertmanager) => {
                alertmanager.look(now).await.map_err(|error| error.to_string())
            }
            Self::Prometheus(prometheus) => {
                let alerts = prometheus.alerts().await.map_err(|error| error.to_string())?;
                Ok(Alerts::new(&self.name(), alerts, Vec::new(), 0, now()))
            }
        }
    }
}

/// Looks again and again. Dropping it stops that.
#[derive(Debug)]
pub struct AlertWatch(JoinHandle<()>);

impl AlertWatch {
    /// Starts looking every `interval`, the first time within a tenth of it, so that many screens do not
    /// ask at once. `origin` is the moment that is [`Mono::START`]. Needs a tokio runtime.
    #[must_use]
    pub fn spawn(
        source: AlertSource,
        interval: Duration,
        origin: Instant,
        sender: watch::Sender<Option<Arc<Alerts>>>,
    ) -> Self {
        let share = f64::from(u8::try_from(RandomState::new().hash_one(0) % 256).unwrap_or(0));
        let start = Instant::now() + interval.mul_f64(share / 2_560.0);
        Self(tokio::spawn(async move {
            let mut ticks = interval_at(start, interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let now = || Mono::from_start(Instant::now().saturating_duration_since(origin));
            let mut last = Alerts { source: source.name(), ..Alerts::default() };
            loop {
                ticks.tick().await;
                last = match source.look(now).await {
                    Ok(alerts) => alerts,
                    Err(error) => last.failed(error),
                };
                if sender.send(Some(Arc::new(last.clone()))).is_err() {
                    return;
                }
            }
        }))
    }
}

impl Drop for AlertWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
