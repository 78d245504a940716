//! The simulated provider behind real sockets: HTTP in, the model of `sim` in the middle, HTTP out.
//!
//! Several quota scopes are several models in one process, told apart by the model that a request names.
//! Decides nothing itself. Everything under `/v1/` is a call and is counted; what a test or a drill
//! needs besides (`/metrics`, `/ledger`, `/script`, `/start`, `/healthz`) is free. A request with
//! `x-simulate: rate_limit:2` brings a script for its own original.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use chrono::Utc;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, sleep_until};

use crate::dialect::{Dialect, write_error, write_headers};
use crate::drill::clients_http::model_of;
use crate::drill::metrics_text::Histogram;
use crate::drill::provider_page::{self, PageFacts};
use crate::drill::provider_wire::WireRequest;
use crate::drill::report::LedgerReport;
use crate::drill::scenario::FIRST_SCOPE;
use crate::drill::virtual_run::scope_name;
use crate::signal::Mono;
use crate::sim::config::ProviderConfig;
use crate::sim::ledger::ResponseKey;
use crate::sim::provider::{Call, CallId, CallKind, Outcome, Provider, Reply};
use crate::sim::world::ScopeProvider;

/// Largest request body.
const BODY_LEN_MAX: usize = 8 * 1024 * 1024;
/// A wait that is neither a number nor a date.
const MALFORMED_HINT: &str = "a moment";

/// The quota scopes behind the server, the first first.
#[derive(Clone)]
struct Scopes(Arc<Vec<Scope>>);

/// One quota scope: whose requests it takes, and what its samples name it where there are several.
struct Scope {
    model: String,
    name: Option<String>,
    shared: Shared,
}

impl Scopes {
    fn new(scopes: Vec<ScopeProvider>, seed: u64) -> Self {
        let several = scopes.len() > 1;
        let scope = |(place, scope): (usize, ScopeProvider)| Scope {
            model: model_of(place, &scope.name),
            name: several.then(|| scope_name(&scope.name)),
            shared: Shared::new(scope.provider, seed.wrapping_add(place as u64)),
        };
        Self(Arc::new(scopes.into_iter().enumerate().map(scope).collect()))
    }

    fn first(&self) -> &Shared {
        &self.0[0].shared
    }

    /// The scope of the model that a request names; the first for models that none has.
    fn of(&self, body: &[u8]) -> &Shared {
        #[derive(Deserialize)]
        struct Named {
            model: String,
        }
        if self.0.len() == 1 {
            return self.first();
        }
        let named = serde_json::from_slice::<Named>(body).ok();
        let is_named = |scope: &&Scope| named.as_ref().is_some_and(|n| n.model == scope.model);
        self.0.iter().find(is_named).map_or(self.first(), |scope| &scope.shared)
    }
}

/// The model of `sim` behind one scope, shared by its connections.
#[derive(Clone)]
struct Shared(Arc<Mutex<Inner>>);

struct Inner {
    config: ProviderConfig,
    seed: u64,
    provider: Provider,
    started: Instant,
    /// The same instant on the calendar, for `process_start_time_seconds`.
    started_epoch_s: f64,
    latency: Histogram,
}

impl Inner {
    fn new(config: ProviderConfig, seed: u64) -> Self {
        let provider = Provider::new(&config, seed, Mono::START);
        Self {
            config,
            seed,
            provider,
            started: Instant::now(),
            started_epoch_s: since_epoch_s(),
            latency: Histogram::default(),
        }
    }

    fn now(&self) -> Mono {
        Mono::from_start(self.started.elapsed())
    }
}

impl Shared {
    fn new(config: ProviderConfig, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner::new(config, seed))))
    }

    /// A panic of another handler cannot leave the model half changed in a way that matters here.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is open until this is dropped, also when its caller goes away.
struct OpenCall {
    shared: Shared,
    call: CallId,
    since: Instant,
    latency: Duration,
    is_answered: bool,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.latency.observe(self.since.elapsed());
        if self.is_answered {
            inner.provider.finish(self.call);
        } else if inner.provider.hang_up(self.call) {
            // Nobody reads what it works on from here.
            let (shared, call) = (self.shared.clone(), self.call);
            let end = self.since + self.latency;
            tokio::spawn(async move {
                sleep_until(end).await;
                shared.lock().provider.finish(call);
            });
        }
    }
}

/// Serves a simulated provider of one quota scope on `listener` until `shutdown` ends.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    config: ProviderConfig,
    seed: u64,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let only = ScopeProvider { name: FIRST_SCOPE.to_owned(), provider: config };
    serve_scopes(listener, vec![only], seed, shutdown).await
}

/// Serves the simulated providers of these quota scopes, at least one, on one `listener`.
///
/// # Errors
/// The listener fails.
pub async fn serve_scopes(
    listener: TcpListener,
    scopes: Vec<ScopeProvider>,
    seed: u64,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = listener.tap_io(|stream| {
        // Answers are small; waiting to fill a segment would add 40 ms. Failing here is harmless.
        let _ = stream.set_nodelay(true);
    });
    tokio::select! {
        result = axum::serve(listener, router(Scopes::new(scopes, seed))) => result,
        () = shutdown => Ok(()),
    }
}

/// The line that a parent process waits for.
#[must_use]
pub fn ready_line(address: SocketAddr) -> String {
    json!({ "listening": address.to_string() }).to_string()
}

fn router(scopes: Scopes) -> Router {
    Router::new()
        .route("/v1/embeddings", post(call))
        .route("/v1/chat/completions", post(call))
        .route("/v1/models", get(call))
        .route("/v1/{*path}", axum::routing::any(call))
        .route("/metrics", get(metrics))
        .route("/ledger", get(ledger))
        .route("/script", post(set_script))
        .route("/start", post(start))
        .route("/healthz", get(|| async { "ok" }))
        .layer(DefaultBodyLimit::max(BODY_LEN_MAX))
        .with_state(scopes)
}

async fn call(
    State(scopes): State<Scopes>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let since = Instant::now();
    let shared = scopes.of(&body).clone();
    let path = uri.path();
    let kind = match path {
        "/v1/embeddings" => CallKind::Embeddings,
        "/v1/chat/completions" => CallKind::ChatCompletions,
        _ => CallKind::Other,
    };
    let identity = identity(&headers, path, &body);
    let request = match (&method, kind, path) {
        (&Method::POST, CallKind::Embeddings, _) => {
            WireRequest::embeddings(&body).map_err(|complaint| (400, complaint))
        }
        (&Method::POST, CallKind::ChatCompletions, _) => {
            WireRequest::chat(&body).map_err(|complaint| (400, complaint))
        }
        (&Method::GET, _, "/v1/models") => Ok(WireRequest::Models),
        _ => Err((404, format!("Unknown request URL: {method} {path}."))),
    };
    let request = match headers.get("x-simulate").and_then(|value| value.to_str().ok()) {
        Some(script) => {
            let brought = shared.lock().provider.bring_script(identity, script);
            request.and_then(|request| match brought {
                Ok(()) => Ok(request),
                Err(error) => Err((400, error.to_string())),
            })
        }
        None => request,
    };
    let (reply, dialect) = {
        let mut inner = shared.lock();
        let now = inner.now();
        let reply = match &request {
            Ok(request) => {
                let call =
                    Call { items: request.items(), ..Call::new(identity, request.tokens(), kind) };
                inner.provider.handle_request(&call, now)
            }
            Err((status, _)) => inner.provider.reject(identity, kind, *status, now),
        };
        (reply, inner.config.dialect)
    };
    let open =
        OpenCall { shared, call: reply.call, since, latency: reply.latency, is_answered: false };
    respond(request, &reply, open, dialect).await
}

async fn respond(
    request: Result<WireRequest, (u16, String)>,
    reply: &Reply,
    mut open: OpenCall,
    dialect: Dialect,
) -> Response {
    let id = format!("req_sim{}", reply.call.0);
    let error = |model: &str, complaint: Option<&str>| {
        let error = write_error(dialect, &reply.fault(complaint), model);
        let status = if reply.is_disguised() { reply.status() } else { error.status };
        (status, error.content_type, error.body)
    };
    let (status, content_type, body) = match (&request, reply.outcome) {
        (Ok(request), Outcome::Ok { .. }) => match request.events(&id) {
            Some(events) => {
                let pause = reply.latency / u32::try_from(events.len() + 1).unwrap_or(u32::MAX);
                sleep(pause).await;
                let response = typed(stream(events, pause, open), 200, "text/event-stream");
                return with_headers(response, reply, &id, dialect);
            }
            None => (200, "application/json", request.answer(&id)),
        },
        (Ok(request), _) => error(request.model(), None),
        (Err((_, complaint)), _) => error("none", Some(complaint)),
    };
    if !reply.latency.is_zero() {
        sleep(reply.latency).await;
    }
    open.is_answered = true;
    let response = typed(Body::from(body.to_string()), status, content_type);
    with_headers(response, reply, &id, dialect)
}

/// Sends the events one by one; the call stays open until the last or until the reader leaves.
fn stream(events: Vec<String>, pause: Duration, open: OpenCall) -> Body {
    let state = (events.into_iter(), open);
    Body::from_stream(futures_util::stream::unfold(
        state,
        move |(mut events, mut open)| async move {
            let event = events.next()?;
            sleep(pause).await;
            open.is_answered = events.len() == 0;
            Some((Ok::<_, io::Error>(Bytes::from(event)), (events, open)))
        },
    ))
}

fn typed(body: Body, status: u16, content_type: &'static str) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn with_headers(mut response: Response, reply: &Reply, id: &str, dialect: Dialect) -> Response {
    let headers = response.headers_mut();
    insert(headers, HeaderName::from_static("x-request-id"), id);
    let meters = if shows_meters(reply) { &reply.meters[..] } else { &[] };
    let hint = reply.retry_after_ms().map(Duration::from_millis);
    for (name, text) in write_headers(dialect, meters, hint, Utc::now()) {
        insert(headers, name, &text);
    }
    if reply.has_malformed_hint() {
        insert(headers, header::RETRY_AFTER, MALFORMED_HINT);
    }
    response
}

/// Only answers of the limiter and successes carry the meters, as at the real provider.
const fn shows_meters(reply: &Reply) -> bool {
    let of_limiter =
        matches!(reply.outcome, Outcome::RateLimited { .. } | Outcome::TooLarge { .. });
    matches!(reply.outcome, Outcome::Ok { .. }) || (of_limiter && !reply.is_disguised())
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// Which original a request belongs to: its idempotency key, else who asked what.
fn identity(headers: &HeaderMap, path: &str, body: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    if let Some(key) = headers.get("idempotency-key") {
        hasher.update(b"key\0").update(key.as_bytes());
    } else {
        let key = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        hasher.update(b"body\0").update(key).update(b"\0");
        hasher.update(path.as_bytes()).update(b"\0").update(body);
    }
    let mut head = [0; 16];
    hasher.finalize_xof().fill(&mut head);
    u128::from_le_bytes(head)
}

/// Begins the drill anew: levels, steps and ledger start at this instant.
async fn start(State(scopes): State<Scopes>) -> StatusCode {
    for scope in scopes.0.iter() {
        let mut inner = scope.shared.lock();
        *inner = Inner::new(inner.config.clone(), inner.seed);
    }
    StatusCode::NO_CONTENT
}

/// The script of the first scope.
async fn set_script(State(scopes): State<Scopes>, script: String) -> Response {
    match scopes.first().lock().provider.set_script(&script) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response(),
    }
}

/// What all scopes counted.
async fn ledger(State(scopes): State<Scopes>) -> Response {
    let mut sum = LedgerReport::NOTHING;
    let mut in_flight = 0;
    let mut responses: BTreeMap<ResponseKey, u64> = BTreeMap::new();
    for scope in scopes.0.iter() {
        let inner = scope.shared.lock();
        let ledger = inner.provider.ledger();
        sum.add(ledger);
        in_flight += inner.provider.in_flight();
        for (key, count) in ledger.responses() {
            *responses.entry(*key).or_default() += count;
        }
    }
    let refusals: Vec<_> = responses
        .iter()
        .filter(|(key, _)| key.status >= 400)
        .map(|(key, count)| {
            json!({ "status": key.status, "code": key.code, "type": key.kind, "count": count })
        })
        .collect();
    let mut body = json!(sum);
    body["in_flight"] = json!(in_flight);
    body["refusals"] = json!(refusals);
    axum::Json(body).into_response()
}

/// The pages of all scopes as one.
async fn metrics(State(scopes): State<Scopes>) -> Response {
    let pages = scopes.0.iter();
    let text = provider_page::as_one(
        pages.map(|scope| metrics_text(&mut scope.shared.lock(), scope.name.as_deref())),
    );
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

fn metrics_text(inner: &mut Inner, scope: Option<&str>) -> String {
    let now = inner.now();
    let Inner { provider, latency, started_epoch_s, .. } = inner;
    let facts = PageFacts { process_start_s: *started_epoch_s, latency: Some(latency), scope };
    provider_page::render(provider, &facts, now)
}

/// Calendar time for `process_start_time_seconds`.
pub(super) fn since_epoch_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
