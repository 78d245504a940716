//! Speaks to the processes of a stage: starts and drains them, flips flags, reads what each counted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::LiveError;
use super::sources::Losing;
use crate::admission::flag;
use crate::drill::fleet::Fleet;
use crate::drill::phases::TimedFlip;
use crate::drill::report::LedgerReport;
use crate::drill::stage::{Addresses, GatewayAddress, Stage};
use crate::flag::{
    Author, FlagTable, OnExpire, Outcome, Plan, PlannedChange, Store, Token, WayBack, WeirAdmin,
};
use crate::gateway::Tally;

/// Longest drain.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the drill's own flips pass interlocks, as the gateways' histories show it.
const HARM: &str = "a drill does its harm on purpose";

const TALLY_PATH: &str = "/admin/v1/tally";
const DRAIN_PATH: &str = "/admin/v1/drain";

/// Speaks to the processes of a stage.
#[derive(Clone)]
pub struct Control {
    http: reqwest::Client,
    addresses: Addresses,
    token: String,
    /// What people flip: interlocks hold for them.
    flags: Arc<dyn Store>,
    /// What the drill flips, harms and all.
    harms: Arc<dyn Store>,
    losing: Losing,
}

/// What the clients have counted by themselves.
#[derive(Clone, Debug, Deserialize)]
pub struct ClientLedger {
    /// Originals that arrived.
    pub originals: u64,
    /// Originals that were served.
    pub served: u64,
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
    ///
    /// # Errors
    /// When no client of the admin API can be made.
    pub fn new(http: reqwest::Client, stage: &Stage) -> Result<Self, LiveError> {
        let (addresses, token) = (stage.addresses().clone(), stage.token().to_owned());
        let (mut flags, mut harms) = (Vec::new(), Vec::new());
        for gateway in &addresses.gateways {
            let url = format!("http://{}", gateway.admin);
            let admin = || WeirAdmin::new(&url, Token::new(&token));
            flags.push(Arc::new(admin()?) as Arc<dyn Store>);
            let harm = admin()?.breaking_glass(Token::new(stage.glass()), HARM);
            harms.push(Arc::new(harm) as Arc<dyn Store>);
        }
        let fleet = |mut stores: Vec<Arc<dyn Store>>| -> Arc<dyn Store> {
            let first = stores.remove(0);
            Arc::new(Fleet::new(first, stores))
        };
        let losing = Losing::new(stage.scenario().lost);
        Ok(Self { http, addresses, token, flags: fleet(flags), harms: fleet(harms), losing })
    }

    /// Where everything listens.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The flags of all gateways, as one store.
    #[must_use]
    pub fn flags(&self) -> Arc<dyn Store> {
        Arc::clone(&self.flags)
    }

    /// What cannot be read when.
    pub(super) const fn losing(&self) -> &Losing {
        &self.losing
    }

    /// Starts a simulated provider's meters and the clients: this is the run's zero.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn start(&self) -> Result<Instant, LiveError> {
        if let Some(provider) = self.addresses.provider {
            self.post("start", &format!("http://{provider}/start")).await?;
        }
        self.start_clients().await?;
        Ok(self.losing.begin())
    }

    /// Starts the clients alone: their traffic begins anew.
    ///
    /// # Errors
    /// When they do not answer.
    pub async fn start_clients(&self) -> Result<(), LiveError> {
        self.post("start", &format!("http://{}/start", self.addresses.clients)).await
    }

    /// Sets flags on every gateway, all or none, at the revisions that their tables have now. Interlocks
    /// are passed with the second token: harm is what a drill is for.
    ///
    /// # Errors
    /// In a gateway's words.
    pub async fn flip(&self, flips: &[&TimedFlip]) -> Result<(), LiveError> {
        let plan = plan_of(flips, &self.harms.list().await?)?;
        let author = Author { actor: "drill".to_owned(), incident: None, anchor: None };
        match self.harms.apply(&plan, &author).await {
            Outcome::Applied { .. } => Ok(()),
            Outcome::Refused { why } | Outcome::Unknown { why } => Err(LiveError::Flip { why }),
            Outcome::Partly(partly) => Err(LiveError::Flip { why: partly.to_string() }),
            Outcome::Conflict { .. } => {
                Err(LiveError::Flip { why: "somebody else has set flags meanwhile".to_owned() })
            }
        }
    }

    /// The gateways' totals.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn tally(&self) -> Result<Tally, LiveError> {
        self.tallies(reqwest::Method::GET).await
    }

    /// The gateways' totals, and a mark for the next reading to count from.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn mark(&self) -> Result<Tally, LiveError> {
        self.tallies(reqwest::Method::POST).await
    }

    async fn tallies(&self, method: reqwest::Method) -> Result<Tally, LiveError> {
        let read = |response: reqwest::Response| response.json();
        let tallies: Vec<Tally> =
            self.of_gateways("read totals", &method, TALLY_PATH, read).await?;
        Ok(Tally::together(&tallies))
    }

    /// Stops the clients and the gates' queues, and waits until nothing is under way.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn drain(&self) -> Result<bool, LiveError> {
        self.post("stop", &format!("http://{}/stop", self.addresses.clients)).await?;
        let ignore = |response: reqwest::Response| async { response.bytes().await.map(drop) };
        self.of_gateways("drain", &reqwest::Method::POST, DRAIN_PATH, ignore).await?;
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

    /// The same question to the admin planes of all gateways.
    async fn of_gateways<T, R: Future<Output = reqwest::Result<T>>>(
        &self,
        what: &'static str,
        method: &reqwest::Method,
        path: &str,
        read: impl Fn(reqwest::Response) -> R,
    ) -> Result<Vec<T>, LiveError> {
        let read = &read;
        let ask = |gateway: &GatewayAddress| {
            let url = format!("http://{}{path}", gateway.admin);
            let call = self.http.request(method.clone(), &url).bearer_auth(&self.token);
            async move {
                let response = answered(what, &url, call.timeout(CALL_TIMEOUT)).await?;
                read(response).await.map_err(|error| failed(what, &url, &error))
            }
        };
        try_join_all(self.addresses.gateways.iter().map(ask)).await
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

/// The plan that sets these flags, whatever they are now.
fn plan_of(flips: &[&TimedFlip], table: &FlagTable) -> Result<Plan, LiveError> {
    let change = |flip: &&TimedFlip| {
        let unknown = || LiveError::Flip { why: format!("the gateway has no flag `{}`", flip.key) };
        let state = table.get(&flip.key).ok_or_else(unknown)?;
        let def = flag(&flip.key).map_err(|_| unknown())?;
        Ok(PlannedChange {
            key: flip.key.clone(),
            from: state.stored().clone(),
            to: flip.value.clone(),
            drops_override: false,
            direction: def.direction(&state.base, state.stored(), &flip.value),
            way_back: WayBack::Nowhere,
            last: None,
        })
    };
    Ok(Plan {
        name: "drill".to_owned(),
        changes: flips.iter().map(change).collect::<Result<_, LiveError>>()?,
        revision: table.revision,
        guards: Vec::new(),
        reach: String::new(),
        reason: "drill --set".to_owned(),
        verify: String::new(),
        ttl_s: None,
        on_expire: OnExpire::Remind,
        request_id: uuid::Uuid::now_v7().to_string(),
        undo: false,
        glass: None,
    })
}
