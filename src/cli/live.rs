//! Watches the sources of `weir.toml` for a while, for commands that print what came of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{Result, bail};
use tokio::sync::watch;
use tokio::time::Instant;

use super::config::{self, Loaded};
use super::out;
use crate::ingest::{Observation, Origins, PollConfig, Poller, SourceConfig};

/// Observations are made this often.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// How far back is asked for what was before the first poll.
pub const PAST: Duration = Duration::from_hours(1);

/// What to poll, by the file at `path`.
///
/// # Errors
/// When a source is wrong, or there is none.
pub fn sources(loaded: &Loaded, path: &Path) -> Result<Vec<SourceConfig>> {
    let count = loaded.toml.sources.len();
    if count == 0 {
        let remedy = "add [[source]] with `name`, `adapter` and `url`";
        return Err(loaded.wrong("source", "there is none, and nothing to show without", remedy));
    }
    let adapters = config::adapters(path);
    (0..count).map(|index| loaded.source(index, &adapters)).collect()
}

/// Polls the sources of the file at `path` for `span` and gives every observation to `see`; the
/// last one comes back. Sources that do not answer are named on standard error.
///
/// # Errors
/// When the configuration is wrong, or no source answered at all.
pub async fn look(
    path: &Path,
    span: Duration,
    see: impl FnMut(&Observation),
) -> Result<Arc<Observation>> {
    let loaded = config::load(path)?;
    look_from(sources(&loaded, path)?, Instant::now(), span, see).await
}

/// The zero of a run's clock: so early that as much of the past as is wanted lies after it.
pub fn origin(past: Option<Duration>) -> Instant {
    let now = Instant::now();
    past.and_then(|past| now.checked_sub(past)).unwrap_or(now)
}

/// As [`look`], for sources that are known already, on a clock that may have begun earlier.
///
/// # Errors
/// As [`look`].
pub async fn look_from(
    sources: Vec<SourceConfig>,
    origin: Instant,
    span: Duration,
    mut see: impl FnMut(&Observation),
) -> Result<Arc<Observation>> {
    let begun = Instant::now();
    let (sender, mut observations) = watch::channel(None);
    let poller = Poller::spawn(
        PollConfig { sources, interval: INTERVAL, origin, origins: Origins::default() },
        sender,
    )?;
    let mut newest: Option<Arc<Observation>> = None;
    while begun.elapsed() < span && observations.changed().await.is_ok() {
        if let Some(observation) = observations.borrow_and_update().clone() {
            see(&observation);
            newest = Some(observation);
        }
    }
    drop(poller);
    let Some(newest) = newest else { bail!("nothing was seen: watch for longer than a second") };
    for source in &newest.sources {
        for trouble in source.error.iter().chain(&source.warnings) {
            out::note(trouble);
        }
        for (line, reason) in &source.degraded {
            out::note(format_args!("{}: line {line}: {reason}", source.name));
        }
    }
    if newest.sources.iter().all(|source| source.last_good.is_none()) {
        bail!("no source answered");
    }
    Ok(newest)
}
