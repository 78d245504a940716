//! Plays a drill on its stage in real time: starts everything at one instant, flips flags through the
//! real admin API when told to, reads the counters where phases begin and end.

mod control;
mod sources;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use super::observed::Totals;
use super::phases::TimedFlip;
use super::report::{PhaseReport, Report, Span, Verdicts, gravest, side_by_side, unfinished};
use super::stage::Stage;
use super::virtual_run::phases_of;
use crate::diagnosis::{Diagnoser, Library};
use crate::flag::StoreError;
use crate::incident::recording::{Tape, Told};
use crate::ingest::{Observation, Origins, ScrapeError};
use crate::signal::Snapshot;

use control::DRAIN_MAX;
pub use control::{ClientLedger, Control, SpentReport};
pub use sources::{poll, sources};

/// How often the age of the queue is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Why a drill could not be played.
#[derive(Debug, Error)]
pub enum LiveError {
    /// A call to one of the processes.
    #[error("{what} at {url}: {error}")]
    Call {
        /// What was asked.
        what: &'static str,
        /// Of whom.
        url: String,
        /// What went wrong.
        error: String,
    },
    /// The flags cannot be read.
    #[error(transparent)]
    Flags(#[from] StoreError),
    /// Flags were not set.
    #[error("set flags: {why}")]
    Flip {
        /// In a gateway's words, or what is to be done.
        why: String,
    },
    /// The pollers.
    #[error(transparent)]
    Poll(#[from] ScrapeError),
}

/// What the pollers publish, newest only.
pub type Observations = watch::Receiver<Option<Arc<Observation>>>;

/// Plays the whole run without a screen, and shows every snapshot to `see`.
///
/// # Errors
/// When one of the processes stops answering.
pub async fn run(
    stage: &Stage,
    control: &Control,
    library: &Arc<Library>,
    total: Duration,
    flips: &[TimedFlip],
    tape: Option<Tape>,
    see: impl FnMut(&Snapshot) + Send + 'static,
) -> Result<Report, LiveError> {
    let scenario = stage.scenario();
    let origin = Instant::now();
    let (poller, observations) = poll(control, origin, Origins::default(), tape.clone())?;
    let diagnosing = tokio::spawn(diagnose(observations, Arc::clone(library), tape.clone(), see));
    // Zero is when the clients were told, not when the pollers were.
    let zero = control.start().await?;
    let offset = zero - origin;

    let cut = phases_of(scenario, flips, total);
    let last = cut.len().saturating_sub(1);
    let mut reports = Vec::new();
    let mut set = Vec::new();
    let mut remarks = Vec::new();
    set.extend(flip_at(Duration::ZERO, flips, control, tape.as_ref()).await?);
    let mut after = control.mark().await?;
    for (place, phase) in cut.into_iter().enumerate() {
        let before = after;
        let mut oldest_age_max_s = before.queue_oldest_age_s;
        let end = zero + phase.to;
        while Instant::now() + LOOK < end {
            tokio::time::sleep(LOOK).await;
            let seen = control.tally().await?;
            oldest_age_max_s = oldest_age_max_s.max(seen.queue_oldest_age_s);
        }
        tokio::time::sleep_until(end).await;
        let mut ended = phase.to;
        if place == last {
            if !control.drain().await? {
                remarks.push(unfinished(DRAIN_MAX));
            }
            ended = zero.elapsed();
        } else {
            // What is sent while a flip is on its way is of the time before it.
            set.extend(flip_at(phase.to, flips, control, tape.as_ref()).await?);
        }
        after = control.mark().await?;
        let span = Span { phase, ended, before, after: after.clone(), oldest_age_max_s };
        reports.push(PhaseReport::of(&span));
    }
    let ledger = control.ledger().await?;
    if let (Some(upstream), None) = (&scenario.upstream, &ledger) {
        let host = upstream.host();
        remarks.push(format!("{host} cannot be asked what it counted: the ledger is unknown"));
    }
    let clients = control.clients().await?;
    remarks.extend(clients.ended_by_budget());
    remarks.extend(side_by_side(scenario.gate.instances));
    drop(poller);
    let mut verdicts = Verdicts::default();
    for (at, verdict) in diagnosing.await.unwrap_or_default() {
        verdicts.see(&verdict, at.saturating_sub(offset));
    }
    Ok(Report {
        scenario: scenario.name.clone(),
        seed: stage.seed(),
        total,
        onset: scenario.onset,
        phases: reports,
        totals: Totals {
            originals: clients.originals,
            served: clients.served,
            ..Totals::from(&after)
        },
        verdicts,
        flags: set,
        ledger,
        virtual_clock: false,
        remarks,
    })
}

/// Makes the flips of one instant, and says which they were.
async fn flip_at(
    at: Duration,
    flips: &[TimedFlip],
    control: &Control,
    tape: Option<&Tape>,
) -> Result<Vec<(Duration, String, String)>, LiveError> {
    let now: Vec<_> = flips.iter().filter(|flip| flip.at == at).collect();
    if now.is_empty() {
        return Ok(Vec::new());
    }
    control.flip(&now).await?;
    let made = now.iter().map(|flip| {
        if let Some(tape) = tape {
            tape.tell(Told::Notice(format!("set {} = {}", flip.key, flip.value)), Utc::now());
        }
        (flip.at, flip.key.clone(), flip.value.to_string())
    });
    Ok(made.collect())
}

/// The gravest verdict of every look, with its instant on the pollers' clock. Ends with the pollers.
async fn diagnose(
    mut observations: watch::Receiver<Option<Arc<Observation>>>,
    library: Arc<Library>,
    tape: Option<Tape>,
    mut see: impl FnMut(&Snapshot),
) -> Vec<(Duration, crate::diagnosis::Verdict)> {
    let mut diagnosers: BTreeMap<String, Diagnoser> = BTreeMap::new();
    let mut verdicts = Vec::new();
    while observations.changed().await.is_ok() {
        let observation = observations.borrow_and_update().clone();
        let Some(observation) = observation else { continue };
        observation.scopes.iter().for_each(|snapshot| see(snapshot));
        let of_scopes = observation.scopes.iter().map(|snapshot| {
            let diagnoser = diagnosers
                .entry(snapshot.scope.clone())
                .or_insert_with(|| Diagnoser::new(Arc::clone(&library)));
            diagnoser.step(snapshot, observation.at)
        });
        let of_scopes: Vec<_> = of_scopes.collect();
        if let Some(tape) = &tape {
            let told: Vec<_> = of_scopes.iter().cloned().map(Arc::new).collect();
            tape.judge(&told, observation.at, observation.wall);
        }
        let gravest = gravest(of_scopes);
        verdicts.extend(gravest.map(|verdict| (observation.at.since_start(), verdict)));
    }
    verdicts
}
