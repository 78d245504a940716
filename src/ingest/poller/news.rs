//! What a poller hears of its sources, and who else is told: the seam that a recording is made at.

use std::sync::Arc;
use std::time::Duration;

use super::{Road, SourceConfig, WINDOW_INTERVALS};
use crate::ingest::adapter::Adapter;
use crate::ingest::assembler::WINDOW;
use crate::ingest::exposition::Format;
use crate::ingest::observation::Observation;
use crate::ingest::prometheus::Answers;
use crate::signal::Mono;

/// What a source was heard to say, or why nothing.
#[derive(Clone, Debug)]
pub enum News {
    /// These are the instances now.
    Instances(Vec<String>),
    /// Nobody knows the instances; those that were known stay.
    Undiscovered(String),
    /// What one try of an instance came to.
    Polled {
        /// Its name; [`ONLY`](crate::ingest::ONLY) for the only one.
        instance: Arc<str>,
        /// How long it took.
        took: Duration,
        /// Its page, or why there is none, in words that name the source.
        outcome: Result<(Vec<u8>, Format), String>,
    },
    /// What a query API answered, or why it did not.
    Answered(Result<Arc<Answers>, String>),
}

/// Somebody who is told everything that a poller hears, in order, and every look at it. Both are
/// called on the way to the screen and must not wait.
pub trait Witness: Send {
    /// A source, by its place in the configuration, was heard at `at`, before anybody acts on it.
    fn heard(&mut self, source: usize, news: &News, at: Mono);
    /// What is known was put together, for the screen and the diagnosis.
    fn observed(&mut self, observation: &Arc<Observation>);
}

/// A source without the way to it: what is needed to understand what was heard of it.
#[derive(Clone, Debug)]
pub struct SourceFacts {
    /// Its name on screen and in errors.
    pub name: String,
    /// Its address as it is shown.
    pub url: String,
    /// Host and port of the Prometheus that is asked in its place.
    pub via: Option<String>,
    /// How it is read.
    pub adapter: Arc<Adapter>,
    /// From one time that it is asked to the next.
    pub interval: Duration,
    /// How long one answer may take.
    pub timeout: Duration,
}

impl SourceFacts {
    /// What its rates are taken over, by how often it is asked.
    #[must_use]
    pub fn window(&self) -> Duration {
        WINDOW.max(self.interval.saturating_mul(WINDOW_INTERVALS))
    }
}

impl From<&SourceConfig> for SourceFacts {
    fn from(source: &SourceConfig) -> Self {
        let SourceConfig { name, url, adapter, interval, timeout, .. } = source.clone();
        Self { via: via(source), name, url, adapter, interval, timeout }
    }
}

/// Host and port of the server that is asked in a source's place.
fn via(source: &SourceConfig) -> Option<String> {
    let Road::Queries(_) = source.road else { return None };
    let url = reqwest::Url::parse(&source.url).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}
