//! The drill's clients behind real sockets: each original walks its layers of `sim` and sends HTTP.
//!
//! An open loop: originals start on their own schedule, however slow the answers are. Nothing is sent
//! before `POST /start`, so that every process of a drill shares its t = 0; `POST /stop` ends new
//! originals and pending waits and leaves requests in flight to finish, so that the ledgers on both
//! sides can be compared. A budget that is spent stops them in the same way.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::drill::budget::{Budget, Reservation};
use crate::drill::metrics_text::{Histogram, MetricsText};
use crate::drill::provider_http::since_epoch_s;
use crate::drill::scenario::Scenario;
use crate::signal::{Mono, Tokens};
use crate::sim::arrivals::{Arrival, Arrivals, Lane};
use crate::sim::layers::{
    AnswerSeen, Code, Input, Journey, LayerCalls, Mark, Place, Step, Written,
};

/// How long a request may take whose client would wait for ever: as long as the OpenAI SDK waits.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_mins(10);
/// Longest error whose code is looked for.
const ERROR_LEN_MAX: usize = 64 * 1024;
/// Path and model at the simulated provider.
const SIM_PATH: &str = "/v1/embeddings";
const SIM_MODEL: &str = "sim-embedding";

/// What the clients of one drill do.
#[derive(Clone, Debug)]
pub struct ClientsConfig {
    /// Traffic and layers.
    pub scenario: Scenario,
    /// The gate, or whatever they talk to: scheme and authority.
    pub target: Uri,
    /// The seed of arrivals and jitter.
    pub seed: u64,
    /// How long originals arrive after the start.
    pub duration: Duration,
}

type HttpClient = Client<HttpConnector, Full<Bytes>>;

#[derive(Clone)]
struct Shared(Arc<Clients>);

struct Clients {
    config: ClientsConfig,
    endpoint: Uri,
    http: HttpClient,
    counts: Mutex<Counts>,
    stop: CancellationToken,
    started_epoch_s: f64,
}

#[derive(Default)]
struct Counts {
    started: bool,
    originals: u64,
    served: u64,
    failed: u64,
    in_flight: u64,
    waiting: u64,
    calls: LayerCalls,
    latency: Histogram,
    budget: Budget,
}

impl Clients {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the clients' control and metrics on `listener` until `shutdown` ends.
///
/// # Errors
/// The target is no URL with scheme and authority, or the listener fails.
pub async fn serve(
    listener: TcpListener,
    config: ClientsConfig,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let upstream = config.scenario.upstream.as_ref();
    let path = upstream.map_or(SIM_PATH, |upstream| &upstream.path);
    let counts = Counts { budget: Budget::of(upstream), ..Counts::default() };
    let clients = Clients {
        endpoint: endpoint(&config.target, path)?,
        config,
        http: http_client(),
        counts: Mutex::new(counts),
        stop: CancellationToken::new(),
        started_epoch_s: since_epoch_s(),
    };
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

fn endpoint(target: &Uri, path: &str) -> io::Result<Uri> {
    let fail = |error: http::Error| {
        let message =
            format!("target `{target}` with `{path}` is no http://HOST:PORT/PATH: {error}");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(|error| fail(http::Error::from(error)))?);
    Uri::from_parts(parts).map_err(|error| fail(error.into()))
}

fn http_client() -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(Duration::from_secs(5)));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(connector)
}

/// Lets originals arrive from this instant on. A second start is refused.
async fn start(State(Shared(clients)): State<Shared>) -> StatusCode {
    if std::mem::replace(&mut clients.counts().started, true) {
        return StatusCode::CONFLICT;
    }
    tokio::spawn(arrive(clients));
    StatusCode::NO_CONTENT
}

async fn stop(State(Shared(clients)): State<Shared>) -> StatusCode {
    clients.stop.cancel();
    StatusCode::NO_CONTENT
}

/// Starts each original at its instant.
async fn arrive(clients: Arc<Clients>) {
    let start = Instant::now();
    let config = &clients.config;
    let arrivals = Arrivals::new(config.scenario.traffic.clone(), config.seed);
    let in_time = |arrival: &Arrival| arrival.at.since_start() < config.duration;
    for arrival in arrivals.take_while(in_time) {
        let at = start + arrival.at.since_start();
        tokio::select! {
            biased;
            () = clients.stop.cancelled() => return,
            () = sleep_until(at) => {}
        }
        clients.counts().originals += 1;
        tokio::spawn(walk(Arc::clone(&clients), arrival));
    }
}

/// Walks one original through its layers, to its end.
async fn walk(clients: Arc<Clients>, arrival: Arrival) {
    let config = &clients.config;
    let mut journey = Journey::new(&config.scenario.layers, config.seed, arrival.index);
    let original = Original::new(config, &arrival);
    let began = Instant::now();
    let mut step = journey.next(Input::Start, Mono::START);
    let served = loop {
        let input = match step {
            Step::Send(place) => match clients.send(&original, place).await {
                Some(input) => input,
                None => break false,
            },
            Step::Wait(wait) => {
                if !clients.wait(wait).await {
                    break false;
                }
                Input::TimerDone
            }
            Step::Served => break true,
            Step::Failed => break false,
        };
        step = journey.next(input, since(began));
    };
    let mut counts = clients.counts();
    counts.latency.observe(began.elapsed());
    counts.served += u64::from(served);
    counts.failed += u64::from(!served);
}

/// What every request of one original has in common.
struct Original {
    body: Bytes,
    authorization: HeaderValue,
    lane: Lane,
    /// What a provider may charge for it.
    tokens: Tokens,
}

impl Original {
    fn new(config: &ClientsConfig, arrival: &Arrival) -> Self {
        let tenant = config.scenario.traffic.tenant_name(arrival.tenant);
        let authorization = HeaderValue::from_str(&format!("Bearer sk-drill-{tenant}"));
        let model = config.scenario.upstream.as_ref().map_or(SIM_MODEL, |upstream| &upstream.model);
        let name = format!("q{}-{}", config.seed, arrival.index);
        Self {
            // Every word more is one token; of the first, a byte is one at most.
            tokens: Tokens(name.len() as u64 + arrival.tokens.0.saturating_sub(1)),
            body: body(&name, arrival.tokens, model),
            authorization: authorization
                .unwrap_or_else(|_| HeaderValue::from_static("Bearer sk-drill")),
            lane: arrival.lane,
        }
    }

    fn request(&self, endpoint: &Uri, place: Place) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = endpoint.clone();
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match place.mark {
            Mark::None => {}
            Mark::Stainless(count) => {
                headers.insert("x-stainless-retry-count", HeaderValue::from(count));
            }
            Mark::Amz { attempt, max } => {
                let mark = HeaderValue::try_from(format!("attempt={attempt}; max={max}"));
                headers.insert("amz-sdk-request", mark.expect("digits are legal in a header"));
            }
        }
        if self.lane == Lane::Batch {
            headers.insert("x-weir-lane", HeaderValue::from_static("batch"));
        }
        request
    }
}

/// A body whose input has exactly as many words as the original has tokens, and no other original's:
/// `name` is the first.
fn body(name: &str, tokens: Tokens, model: &str) -> Bytes {
    let mut input = name.to_owned();
    for _ in 1..tokens.0 {
        input.push_str(" w");
    }
    Bytes::from(json!({ "model": model, "input": input }).to_string())
}

impl Clients {
    /// `None` when the request did not fit into the budget any more and was not sent.
    async fn send(&self, original: &Original, place: Place) -> Option<Input> {
        let reservation = self.permit(original, place)?;
        let request = original.request(&self.endpoint, place);
        let patience = self.config.scenario.layers.request_timeout();
        let patience =
            patience.map_or(REQUEST_TIMEOUT_MAX, |timeout| timeout.min(REQUEST_TIMEOUT_MAX));
        let (input, attempts) = match timeout(patience, self.exchange(request)).await {
            Ok(Some((seen, attempts))) => (Input::Answer(seen), attempts),
            Ok(None) => (Input::TransportError, None),
            Err(_) => (Input::TimedOut, None),
        };
        let mut counts = self.counts();
        counts.in_flight -= 1;
        counts.budget.settle(reservation, attempts);
        Some(input)
    }

    fn permit(&self, original: &Original, place: Place) -> Option<Reservation> {
        let mut counts = self.counts();
        let Some(reservation) = counts.budget.reserve(original.tokens) else {
            self.stop.cancel();
            return None;
        };
        counts.calls.count(&place);
        counts.in_flight += 1;
        Some(reservation)
    }

    /// One request and its whole answer, with the attempts that the gate made of it if it says so;
    /// `None` when there was no answer.
    async fn exchange(&self, request: Request<Full<Bytes>>) -> Option<(AnswerSeen, Option<u64>)> {
        let response = self.http.request(request).await.ok()?;
        let (parts, body) = response.into_parts();
        // The body is read to its end, else the connection cannot be used again.
        let body = body.collect().await.ok()?.to_bytes();
        let code = if parts.status.is_success() { None } else { code(&body) };
        let seen = AnswerSeen { code, ..seen(parts.status, &parts.headers, Utc::now()) };
        Some((seen, parsed(&parts.headers, "x-weir-attempts")))
    }

    /// Whether the wait ended before the clients were stopped.
    async fn wait(&self, wait: Duration) -> bool {
        self.counts().waiting += 1;
        let done = tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = sleep(wait) => true,
        };
        self.counts().waiting -= 1;
        done
    }
}

fn parsed<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

fn seen(status: StatusCode, headers: &HeaderMap, now: DateTime<Utc>) -> AnswerSeen {
    let written = |name| {
        // What is no text is nothing that a client could read, but it is there.
        let text = |value: &HeaderValue| value.to_str().map_or(String::new(), str::to_owned);
        headers.get(name).map(|value| Written::parse(&text(value), now))
    };
    let reset_ms =
        |epoch_s: i64| epoch_s.saturating_mul(1_000).saturating_sub(now.timestamp_millis());
    AnswerSeen {
        status: status.as_u16(),
        should_retry: parsed(headers, "x-should-retry"),
        retry_after_ms: written("retry-after-ms"),
        retry_after: written("retry-after"),
        reset_in_ms: parsed(headers, "x-ratelimit-reset").map(reset_ms),
        code: None,
    }
}

/// The code of an error in the form of `OpenAI`, if a policy reads it.
fn code(body: &[u8]) -> Option<Code> {
    if body.len() > ERROR_LEN_MAX {
        return None;
    }
    let error: serde_json::Value = serde_json::from_slice(body).ok()?;
    Code::read(error.pointer("/error/code")?.as_str()?)
}

/// The layers' clock, which starts with their original.
fn since(began: Instant) -> Mono {
    Mono::from_start(began.elapsed())
}

async fn ledger(State(Shared(clients)): State<Shared>) -> Response {
    let counts = clients.counts();
    let body = json!({
        "originals": counts.originals,
        "served": counts.served,
        "failed": counts.failed,
        "in_flight": counts.in_flight,
        "waiting": counts.waiting,
        "calls": counts.calls.by_layer(&clients.config.scenario.layers).collect::<BTreeMap<_, _>>(),
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
    let counts = clients.counts();
    let mut text = MetricsText::default();
    text.single("process_start_time_seconds", "gauge", clients.started_epoch_s);
    text.single("simcli_originals_total", "counter", counts.originals);
    text.single("simcli_served_total", "counter", counts.served);
    text.single("simcli_failed_total", "counter", counts.failed);
    text.family("simcli_layer_calls_total", "counter");
    for (layer, calls) in counts.calls.by_layer(&clients.config.scenario.layers) {
        text.sample("simcli_layer_calls_total", &[("layer", layer)], calls);
    }
    text.single("simcli_in_flight", "gauge", counts.in_flight);
    text.single("simcli_waiting", "gauge", counts.waiting);
    text.histogram("simcli_latency_seconds", &counts.latency);
    drop(counts);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text.into_text()).into_response()
}
