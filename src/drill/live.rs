//! Plays a drill on its stage in real time: starts everything at one instant, flips flags through the
//! real admin API when told to, reads the counters where phases begin and end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use super::observed::Totals;
use super::phases::TimedFlip;
use super::report::{LedgerReport, PhaseReport, Report, Span, Verdicts, gravest};
use super::stage::{Addresses, Stage};
use super::virtual_run::phases_of;
use crate::diagnosis::{Diagnoser, Library};
use crate::flag::wire::{
    APPLY_PATH, ApplyBody, ChangeRow, FLAGS_PATH, TableBody, WireOnExpire, WireValue,
};
use crate::gateway::Tally;
use crate::incident::recording::{Tape, Told};
use crate::ingest::{
    Adapter, Observation, PollConfig, Poller, ScrapeError, SourceConfig, Target, Witness,
};

/// How often the age of the queue is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Longest drain.
const DRAIN_MAX: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const SCRAPE_TIMEOUT: Duration = Duration::from_millis(800);
const SCRAPE_BYTES_MAX: usize = 8 * 1024 * 1024;

const TALLY_PATH: &str = "/admin/v1/tally";

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
    /// The pollers.
    #[error(transparent)]
    Poll(#[from] ScrapeError),
}

/// What the pollers publish, newest only.
pub type Observations = watch::Receiver<Option<Arc<Observation>>>;

/// Speaks to the processes of a stage.
#[derive(Clone)]
pub struct Control {
    http: reqwest::Client,
    addresses: Addresses,
    token: String,
}

/// What the clients have counted by themselves.
#[derive(Clone, Debug, Deserialize)]
pub struct ClientLedger {
    /// Requests without an answer yet.
    pub in_flight: u64,
    /// What their requests may have cost.
    pub spent: SpentReport,
    /// Whether they have stopped because the budget is spent.
    pub budget_ended: bool,
}

/// What the clients' requests may have cost so far.
#[derive(Clone, Debug, Deserialize)]
pub struct SpentReport {
    /// Requests that reached the provider, or may have.
    pub requests: u64,
    /// Dollars by their tokens; `None` without a price.
    pub usd: Option<f64>,
}

impl ClientLedger {
    /// That the budget has ended the traffic, in words; `None` while it has not.
    #[must_use]
    pub fn ended_by_budget(&self) -> Option<String> {
        let SpentReport { requests, usd } = &self.spent;
        let cost = usd.map_or_else(String::new, |usd| format!(" and {usd:.6} USD"));
        let words = format!(
            "the budget ended the traffic: {requests} requests{cost} are spent, and one more, with \
             every retry that the gate may add, could exceed it"
        );
        self.budget_ended.then_some(words)
    }
}

impl Control {
    /// For a stage. `http` must be able to speak to loopback.
    #[must_use]
    pub fn new(http: reqwest::Client, stage: &Stage) -> Self {
        let token = stage.token().to_owned();
        Self { http, addresses: stage.addresses().clone(), token }
    }

    /// Starts a simulated provider's meters and the clients: this is the run's zero.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn start(&self) -> Result<(), LiveError> {
        if let Some(provider) = self.addresses.provider {
            self.post("start", &format!("http://{provider}/start")).await?;
        }
        self.start_clients().await
    }

    /// Starts the clients alone: their traffic begins anew.
    ///
    /// # Errors
    /// When they do not answer.
    pub async fn start_clients(&self) -> Result<(), LiveError> {
        self.post("start", &format!("http://{}/start", self.addresses.clients)).await
    }

    /// Sets flags, all or none, at the revision that the table has now.
    ///
    /// # Errors
    /// In the gateway's words.
    pub async fn flip(&self, flips: &[&TimedFlip]) -> Result<(), LiveError> {
        let table: TableBody = self.admin("read flags", FLAGS_PATH).await?;
        let changes = flips
            .iter()
            .map(|flip| ChangeRow {
                key: flip.key.clone(),
                value: Some(WireValue::from(&flip.value)),
            })
            .collect();
        let body = ApplyBody {
            changes,
            ttl_s: None,
            on_expire: WireOnExpire::Remind,
            reason: "drill --set".to_owned(),
            actor: "drill".to_owned(),
            incident: None,
            request_id: uuid::Uuid::now_v7().to_string(),
        };
        let url = format!("http://{}{APPLY_PATH}", self.addresses.admin);
        let call = self
            .http
            .post(&url)
            .bearer_auth(&self.token)
            .header("if-match", format!("\"{}\"", table.revision))
            .timeout(CALL_TIMEOUT)
            .json(&body);
        answered("set flags", &url, call).await.map(drop)
    }

    /// The gateway's totals.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub async fn tally(&self) -> Result<Tally, LiveError> {
        self.admin("read totals", TALLY_PATH).await
    }

    /// The gateway's totals, and a mark for the next reading to count from.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub async fn mark(&self) -> Result<Tally, LiveError> {
        let url = format!("http://{}{TALLY_PATH}", self.addresses.admin);
        let call = self.http.post(&url).bearer_auth(&self.token).timeout(CALL_TIMEOUT);
        let response = answered("read totals", &url, call).await?;
        response.json().await.map_err(|error| failed("read totals", &url, &error))
    }

    /// Stops the clients and the gate's queue, and waits until nothing is under way.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn drain(&self) -> Result<bool, LiveError> {
        self.post("stop", &format!("http://{}/stop", self.addresses.clients)).await?;
        let url = format!("http://{}/admin/v1/drain", self.addresses.admin);
        let call = self.http.post(&url).bearer_auth(&self.token).timeout(CALL_TIMEOUT);
        answered("drain", &url, call).await?;
        let end = Instant::now() + DRAIN_MAX;
        while Instant::now() < end {
            let open = self.tally().await?.open;
            if open == 0 && self.clients().await?.in_flight == 0 {
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(false)
    }

    /// What the clients have counted by themselves.
    ///
    /// # Errors
    /// When they do not answer.
    pub async fn clients(&self) -> Result<ClientLedger, LiveError> {
        self.get("read clients", &format!("http://{}/ledger", self.addresses.clients)).await
    }

    /// What the simulated provider has counted by itself; `None` for another, which cannot be asked.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ledger(&self) -> Result<Option<LedgerReport>, LiveError> {
        let Some(provider) = self.addresses.provider else { return Ok(None) };
        let url = format!("http://{provider}/ledger");
        self.get("read the ledger", &url).await.map(Some)
    }

    async fn post(&self, what: &'static str, url: &str) -> Result<(), LiveError> {
        answered(what, url, self.http.post(url).timeout(CALL_TIMEOUT)).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(
        &self,
        what: &'static str,
        url: &str,
    ) -> Result<T, LiveError> {
        let response = answered(what, url, self.http.get(url).timeout(CALL_TIMEOUT)).await?;
        response.json().await.map_err(|error| failed(what, url, &error))
    }

    async fn admin<T: DeserializeOwned>(
        &self,
        what: &'static str,
        path: &str,
    ) -> Result<T, LiveError> {
        let url = format!("http://{}{path}", self.addresses.admin);
        let call = self.http.get(&url).bearer_auth(&self.token).timeout(CALL_TIMEOUT);
        let response = answered(what, &url, call).await?;
        response.json().await.map_err(|error| failed(what, &url, &error))
    }
}

async fn answered(
    what: &'static str,
    url: &str,
    call: reqwest::RequestBuilder,
) -> Result<reqwest::Response, LiveError> {
    let response = call.send().await.map_err(|error| failed(what, url, &error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    let error = format!("{status}: {}", text.trim());
    Err(LiveError::Call { what, url: url.to_owned(), error })
}

fn failed(what: &'static str, url: &str, error: &reqwest::Error) -> LiveError {
    LiveError::Call { what, url: url.to_owned(), error: error.to_string() }
}

/// What there is to poll on a stage.
#[must_use]
pub fn sources(addresses: &Addresses) -> Vec<SourceConfig> {
    let source = |name: &str, address, adapter| {
        let target = Target {
            timeout: SCRAPE_TIMEOUT,
            body_max: SCRAPE_BYTES_MAX,
            ..Target::new(name, format!("http://{address}/metrics"))
        };
        SourceConfig::page(target, adapter)
    };
    let mut sources = vec![source("gateway", addresses.admin, Adapter::weir())];
    let simulated = addresses.provider;
    sources.extend(simulated.map(|address| source("provider", address, Adapter::simprov())));
    sources.push(source("clients", addresses.clients, Adapter::simcli()));
    sources
}

/// Polls the processes of a stage once a second. A tape has everything that is heard.
///
/// # Errors
/// When no HTTP client can be made.
pub fn poll(
    addresses: &Addresses,
    origin: Instant,
    tape: Option<Tape>,
) -> Result<(Poller, Observations), ScrapeError> {
    let (sender, receiver) = watch::channel(None);
    let sources = sources(addresses);
    let config = PollConfig { sources, interval: Duration::from_secs(1), origin };
    let witness = tape.map(|tape| Box::new(tape) as Box<dyn Witness>);
    Ok((Poller::spawn_witnessed(config, sender, witness)?, receiver))
}

/// Plays the whole run without a screen.
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
) -> Result<Report, LiveError> {
    let scenario = stage.scenario();
    let origin = Instant::now();
    let (poller, observations) = poll(stage.addresses(), origin, tape.clone())?;
    let diagnosing = tokio::spawn(diagnose(observations, Arc::clone(library), tape.clone()));
    control.start().await?;
    // Zero is when the clients were told, not when the pollers were.
    let zero = Instant::now();
    let offset = zero - origin;

    let cut = phases_of(scenario, flips, total);
    let last = cut.len().saturating_sub(1);
    let mut reports = Vec::new();
    let mut set = Vec::new();
    let mut remarks = Vec::new();
    let mut after = control.mark().await?;
    for (place, phase) in cut.into_iter().enumerate() {
        let now: Vec<_> = flips.iter().filter(|flip| flip.at == phase.from).collect();
        if !now.is_empty() {
            control.flip(&now).await?;
            for flip in &now {
                let told = Told::Notice(format!("set {} = {}", flip.key, flip.value));
                if let Some(tape) = &tape {
                    tape.tell(told, Utc::now());
                }
            }
            set.extend(now.iter().map(|f| (f.at, f.key.clone(), f.value.to_string())));
        }
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
                remarks.push(format!(
                    "work was still under way {} s after the clients had stopped: the counts are not final",
                    DRAIN_MAX.as_secs()
                ));
            }
            ended = zero.elapsed();
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
    remarks.extend(control.clients().await?.ended_by_budget());
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
        totals: Totals::from(&after),
        verdicts,
        flags: set,
        ledger,
        virtual_clock: false,
        remarks,
    })
}

/// The gravest verdict of every look, with its instant on the pollers' clock. Ends with the pollers.
async fn diagnose(
    mut observations: watch::Receiver<Option<Arc<Observation>>>,
    library: Arc<Library>,
    tape: Option<Tape>,
) -> Vec<(Duration, crate::diagnosis::Verdict)> {
    let mut diagnosers: BTreeMap<String, Diagnoser> = BTreeMap::new();
    let mut verdicts = Vec::new();
    while observations.changed().await.is_ok() {
        let observation = observations.borrow_and_update().clone();
        let Some(observation) = observation else { continue };
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
