//! The drill's callers behind real sockets: what the models of `sim` ask for, sent as HTTP.
//!
//! Open loops stay open: tasks begin on their own schedule, however slow the answers are. Nothing is
//! sent before `POST /start`, so that every process of a drill shares its t = 0; `POST /stop` ends new
//! work and pending waits and leaves requests in flight to finish, so that the ledgers on both sides can
//! be compared. A budget that is spent stops them in the same way.

mod call;
mod traffic;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{StatusCode, Uri, header};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::drill::budget::Budget;
use crate::drill::client_page::{self, ClientFacts, layer_calls};
use crate::drill::provider_http::since_epoch_s;
use crate::drill::scenario::Scenario;
use crate::drill::virtual_run::scope_name;
use crate::signal::Mono;
use crate::sim::app::App;
use crate::sim::app::tally::Tally;
use crate::sim::callers::{CallerConfig, People};

use wire::{HttpClient, http_client};

pub use wire::model_of;

/// How often the gate is asked for the flag of the cache.
const FLAG_EVERY: Duration = Duration::from_secs(1);

/// What the callers of one drill do.
#[derive(Clone, Debug)]
pub struct ClientsConfig {
    /// Callers, layers and application.
    pub scenario: Scenario,
    /// The gates, or whatever they talk to, scheme and authority each; requests go to one after the
    /// other, as a balancer would spread them.
    pub targets: Vec<Uri>,
    /// The gate's admin listener, whose page says whether the application may use its cache; without
    /// it, it may.
    pub admin: Option<Uri>,
    /// The seed of arrivals and jitter.
    pub seed: u64,
    /// How long work begins after the start.
    pub duration: Duration,
}

#[derive(Clone)]
struct Shared(Arc<Clients>);

struct Clients {
    config: ClientsConfig,
    callers: Vec<CallerConfig>,
    /// The names of the quota scopes, as callers have them.
    scopes: Vec<String>,
    http: HttpClient,
    /// Requests that were given a target so far.
    sent: AtomicUsize,
    counts: Mutex<Counts>,
    /// The drill's t = 0.
    zero: OnceLock<Instant>,
    may_cache: AtomicBool,
    stop: CancellationToken,
    started_epoch_s: f64,
}

struct Counts {
    /// What the callers of each scope counted.
    tallies: Vec<Tally>,
    app: App,
    people: People,
    budget: Budget,
    /// Number of the next call.
    next: u64,
}

impl Clients {
    fn new(config: ClientsConfig) -> io::Result<Self> {
        let scenario = &config.scenario;
        let scopes: Vec<_> = scenario.scopes().into_iter().map(|scope| scope.name).collect();
        wire::check_targets(&config.targets, scenario.upstream.as_ref())?;
        let counts = Counts {
            tallies: vec![Tally::default(); scopes.len()],
            app: App::new(&scenario.app, config.seed),
            people: People::new(config.seed),
            budget: Budget::of(scenario.upstream.as_ref()),
            next: 0,
        };
        Ok(Self {
            callers: scenario.all_callers(),
            scopes,
            http: http_client(),
            sent: AtomicUsize::new(0),
            counts: Mutex::new(counts),
            zero: OnceLock::new(),
            may_cache: AtomicBool::new(true),
            stop: CancellationToken::new(),
            started_epoch_s: since_epoch_s(),
            config,
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target of the next request.
    fn next_target(&self) -> &Uri {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        &self.config.targets[number % self.config.targets.len()]
    }

    /// Time since the start; the start itself before it.
    fn now(&self) -> Mono {
        Mono::from_start(self.zero.get().map_or(Duration::ZERO, Instant::elapsed))
    }

    /// The instant on the machine's clock.
    fn instant(&self, at: Mono) -> Instant {
        *self.zero.get_or_init(Instant::now) + at.since_start()
    }

    /// Whether the time of new work is over.
    fn is_over(&self) -> bool {
        self.stop.is_cancelled() || self.now().since_start() >= self.config.duration
    }

    /// What the page says beside the counters.
    fn facts<'a>(&'a self, scopes: &'a [String]) -> ClientFacts<'a> {
        ClientFacts {
            started_epoch_s: self.started_epoch_s,
            deployed: self.config.scenario.deployed,
            scopes,
            callers: &self.callers,
            layers: &self.config.scenario.layers,
        }
    }

    fn scope_named(&self, name: &str) -> Option<usize> {
        self.scopes.iter().position(|scope| scope == name)
    }

    /// The place of a caller's scope.
    fn scope_of(&self, caller: &CallerConfig) -> usize {
        let to = caller.to.as_deref();
        self.scopes.iter().position(|scope| Some(scope.as_str()) == to).unwrap_or(0)
    }
}

/// Serves the callers' control and metrics on `listener` until `shutdown` ends.
///
/// # Errors
/// There is no target, one is no URL with scheme and authority, or the listener fails.
pub async fn serve(
    listener: TcpListener,
    config: ClientsConfig,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let clients = Clients::new(config)?;
    let router = Router::new()
        .route("/start", post(start))
        .route("/stop", post(stop))
        .route("/ledger", get(ledger))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .with_state(Shared(Arc::new(clients)));
    tokio::select! {
        result = axum::serve(listener, router) => result,
        () = shutdown => Ok(()),
    }
}

/// Lets work begin from this instant on. A second start is refused.
async fn start(State(Shared(clients)): State<Shared>) -> StatusCode {
    if clients.zero.set(Instant::now()).is_err() {
        return StatusCode::CONFLICT;
    }
    if clients.config.scenario.app.cache.is_some() {
        tokio::spawn(follow_flag(Arc::clone(&clients)));
    }
    for caller in 0..clients.callers.len() {
        tokio::spawn(traffic::run(Arc::clone(&clients), caller));
    }
    StatusCode::NO_CONTENT
}

async fn stop(State(Shared(clients)): State<Shared>) -> StatusCode {
    clients.stop.cancel();
    StatusCode::NO_CONTENT
}

/// Keeps the application's cache as the gate's flag says.
async fn follow_flag(clients: Arc<Clients>) {
    let Some(admin) = &clients.config.admin else { return };
    while !clients.stop.is_cancelled() {
        if let Some(page) = wire::page(&clients.http, admin).await {
            clients.may_cache.store(says_may_cache(&page), Ordering::Relaxed);
        }
        sleep(FLAG_EVERY).await;
    }
}

/// What the gate's page says of `cache.enabled`.
fn says_may_cache(page: &str) -> bool {
    let mut of_flags = page.lines().filter(|line| line.starts_with("weir_flag_info{"));
    let line = of_flags.find(|line| line.contains("key=\"cache.enabled\""));
    line.is_some_and(|line| line.contains("value=\"true\""))
}

async fn ledger(State(Shared(clients)): State<Shared>) -> Response {
    let counts = clients.counts();
    let sum = |read: fn(&Tally) -> u64| counts.tallies.iter().map(read).sum::<u64>();
    let facts = clients.facts(&[]);
    let mut calls = BTreeMap::<_, u64>::new();
    for (layer, own, _) in counts.tallies.iter().flat_map(|tally| layer_calls(tally, &facts)) {
        *calls.entry(layer).or_default() += own;
    }
    let body = json!({
        "originals": sum(|tally| tally.totals.originals),
        "served": sum(|tally| tally.totals.served),
        "failed": sum(|tally| tally.totals.failed),
        "in_flight": sum(|tally| tally.in_flight),
        "waiting": sum(|tally| tally.waiting),
        "calls": calls,
        "spent": {
            "requests": counts.budget.spent().requests,
            "tokens": counts.budget.spent().tokens.0,
            "usd": counts.budget.spent_usd(),
        },
        "budget_ended": counts.budget.has_ended(),
    });
    axum::Json(body).into_response()
}

async fn metrics(State(Shared(clients)): State<Shared>) -> Response {
    let scopes: Vec<_> = clients.scopes.iter().map(|scope| scope_name(scope)).collect();
    let facts = clients.facts(&scopes);
    let now = clients.now();
    let counts = clients.counts();
    let text = client_page::render(&counts.tallies, &counts.app, &facts, now);
    drop(counts);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_of_the_cache_is_read_from_the_gates_page() {
        let page = |value: &str| {
            let flag = |key: &str, value: &str| {
                format!("weir_flag_info{{key=\"{key}\",value=\"{value}\",overridden=\"true\"}} 1\n")
            };
            flag("adaptive.enabled", "true") + &flag("cache.enabled", value)
        };
        assert!(says_may_cache(&page("true")));
        assert!(!says_may_cache(&page("false")));
        assert!(!says_may_cache(""));
    }
}
