//! The admin plane: flags, events, originals, totals, health and metrics of one instance.
//!
//! Runs on a listener and a runtime of its own, so that it answers while the data plane is full.
//! `/metrics`, `/healthz` and `/readyz` are open; everything else asks for a bearer token whose role
//! allows it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use chrono::Utc;
use serde::Deserialize;
use serde_json::json;

use super::admin_deferred::{self, DEFERRED_PATH};
use super::admin_plan;
use super::admin_token::{Denied, Role, Tokens, Who};
use super::calm::Calm;
use super::deferred::DeferredLane;
use super::health::Health;
use super::judge::Judge;
use super::metrics::{self, Facts};
use super::overrides::{Expiry, Known, Overrides};
use super::shell::Shell;
use super::tally::Tally;
use super::upstream::Upstream;
use super::wire::Wire;
use crate::admission::{ChainEntry, Gate, Settings};
use crate::flag::wire::{
    APPLY_PATH, ApplyBody, BREAK_GLASS_HEADER, EVENTS_PATH, ErrorBody, ErrorCode, EventsBody,
    FLAGS_PATH, FlagBody, NOTES_PATH, NoteBody, PLAN_PATH, SNAPSHOT_PATH, SnapshotsBody, etag,
    parse_if_match,
};
use crate::ingest::{OnePage, Page};
use crate::signal::Mono;

/// What the admin plane serves from.
pub struct Admin {
    /// The gate.
    pub shell: Arc<Shell>,
    /// The provider's connections.
    pub upstream: Arc<Upstream>,
    /// The lane of what is done later.
    pub lane: Option<Arc<DeferredLane>>,
    /// What happened on the sockets.
    pub wire: Arc<Wire>,
    /// The flag table.
    pub flags: Mutex<Overrides>,
    /// Where overrides are kept over a restart.
    pub state_file: Option<std::path::PathBuf>,
    /// Who may do what.
    pub tokens: Tokens,
    /// Name of this instance.
    pub instance: String,
    /// What its shell measures of itself.
    pub health: Arc<Health>,
    /// What is wrong with it on purpose, in words.
    pub faults: Vec<&'static str>,
    /// Start of the process, Unix time in seconds.
    pub process_start_s: f64,
    /// Fingerprint of the configuration.
    pub config_revision: AtomicU64,
    /// The configuration was taken over when it was last read.
    pub config_taken: AtomicBool,
    /// The instance's own view of the catalogue.
    pub own: Mutex<OnePage>,
    /// For how long nothing has been repeated.
    pub calm: Mutex<Calm>,
    /// What its own signals say is wrong.
    pub judge: Mutex<Judge>,
    /// Held while a forecast is worked out.
    pub foretelling: Arc<tokio::sync::Mutex<()>>,
}

pub(super) type Shared = State<Arc<Admin>>;

/// The routes of the admin plane.
pub fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route(FLAGS_PATH, get(list))
        .route(&format!("{FLAGS_PATH}/{{key}}"), get(one).put(put).delete(put))
        .route(APPLY_PATH, post(apply))
        .route(PLAN_PATH, post(admin_plan::plan))
        .route(EVENTS_PATH, get(events))
        .route(NOTES_PATH, post(note))
        .route(SNAPSHOT_PATH, get(snapshot))
        .route("/admin/v1/originals/{id}", get(original))
        .route("/admin/v1/tally", get(tally).post(mark))
        .route("/admin/v1/drain", post(drain))
        .route(DEFERRED_PATH, get(admin_deferred::list))
        .route(
            &format!("{DEFERRED_PATH}/{{item}}"),
            post(admin_deferred::change).delete(admin_deferred::change),
        )
        .with_state(admin)
}

impl Admin {
    /// The exposition of now.
    #[must_use]
    pub fn exposition(&self) -> String {
        let (overridden, revision) = {
            let flags = self.flags();
            (flags.overridden(), flags.revision())
        };
        let store = self.health.store().clone();
        let calm = self.calm();
        let facts = Facts {
            instance: &self.instance,
            process_start_s: self.process_start_s,
            upstream_open: self.upstream.open(),
            flags_revision: revision.0,
            config_revision: Some(self.config_revision.load(Ordering::Relaxed)),
            config_taken: Some(self.config_taken.load(Ordering::Relaxed)),
            overridden: &overridden,
            loop_lag: Some(self.health.loop_lag()),
            store: Some(&store),
            faults: &self.faults,
            calm: Some(&calm),
            admin_refused: Some(self.tokens.refused().read()),
            lane: self.lane.as_deref(),
            wire: Some(&self.wire),
        };
        self.shell.read(|gate, now| metrics::render(gate, &facts, now))
    }

    /// Once a second: lets timers run out and reads the instance's own metrics.
    pub fn tick(&self) {
        let (expiry, settings) = {
            let mut flags = self.flags();
            (flags.expire(Utc::now()), flags.settings())
        };
        if expiry == Expiry::Dropped {
            self.shell.with(|gate, now| gate.apply(settings, now));
        }
        if expiry != Expiry::Nothing {
            self.keep();
        }
        let page = self.exposition();
        let at = self.shell.now();
        if let Err(error) = self.own().accept(Page::text(&page), at) {
            tracing::warn!(%error, "cannot read the instance's own metrics");
        }
        let snapshots = self.own().snapshots(at);
        self.calm().look(&snapshots, at);
        self.judge().look(&snapshots, at);
    }

    pub(super) fn flags(&self) -> std::sync::MutexGuard<'_, Overrides> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calm(&self) -> std::sync::MutexGuard<'_, Calm> {
        self.calm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self) -> std::sync::MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> std::sync::MutexGuard<'_, OnePage> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the overrides beside the old ones and moves them over, so that a crash leaves either.
    fn keep(&self) {
        let Some(path) = &self.state_file else { return };
        let kept = self.flags().to_json().map_err(std::io::Error::other);
        let new = path.with_extension("new");
        let written = kept
            .and_then(|json| std::fs::write(&new, json))
            .and_then(|()| std::fs::rename(&new, path));
        if let Err(error) = written {
            tracing::error!(%error, path = %path.display(), "overrides could not be kept");
        }
    }

    /// Takes other base values of flags; returns the settings with the overrides that there are.
    pub(super) fn rebase(&self, base: Settings) -> Settings {
        let settings = {
            let mut flags = self.flags();
            flags.rebase(base);
            flags.settings()
        };
        self.keep();
        settings
    }

    /// Writes a note into the history.
    pub(super) fn write_note(&self, note: &NoteBody, who: &Who) -> Result<(), Refused> {
        let written = self.flags().note(note, Some(&who.name), Utc::now());
        written.map_err(|refusal| Refused(*refusal))?;
        self.keep();
        Ok(())
    }

    fn change(
        &self,
        who: &Who,
        headers: &HeaderMap,
        body: &ApplyBody,
    ) -> Result<Response, Refused> {
        // A repeat of a request that was carried out is answered before its revision is looked at.
        let seen = if self.flags().is_repeat(&body.request_id) {
            self.flags().revision()
        } else {
            let header = headers.get(IF_MATCH).and_then(|value| value.to_str().ok());
            let missing = "send `If-Match` with the revision that you saw, as \"41\"";
            header
                .and_then(parse_if_match)
                .ok_or(Refused(ErrorBody::new(ErrorCode::IfMatchRequired, missing)))?
        };
        let glass = match &body.overriding {
            Some(_) => self.authorize_breaking_glass(who, headers)?,
            None => false,
        };
        let settings = self.known(glass, |known| {
            let known = &Known { token: Some(&who.name), ..*known };
            let mut flags = self.flags();
            flags.apply(body, seen, known, Utc::now()).map_err(|error| Refused(*error))?;
            Ok(flags.settings())
        })?;
        let overridden = body.overriding.as_ref().map(|wish| wish.reason.as_str());
        let token = &*who.name;
        tracing::info!(
            actor = body.actor,
            token,
            reason = body.reason,
            overridden,
            "flags changed"
        );
        self.shell.with(|gate, now| gate.apply(settings, now));
        self.keep();
        Ok(self.table())
    }

    /// Asks with what this instance knows of itself.
    pub(super) fn known<T>(&self, glass: bool, ask: impl FnOnce(&Known<'_>) -> T) -> T {
        let effective = self.shell.read(|gate, _| gate.settings().clone());
        let now = self.shell.now();
        let scopes: Vec<_> = self.own().snapshots(now).into_iter().map(Arc::new).collect();
        let verdict = self.judge().verdict().cloned();
        ask(&Known {
            effective: &effective,
            scopes: &scopes,
            verdict: verdict.as_ref(),
            glass,
            token: None,
        })
    }

    fn table(&self) -> Response {
        let effective = self.shell.read(|gate, _| gate.settings().clone());
        let flags = self.flags();
        let tag = etag(flags.revision());
        ([(ETAG, tag)], Json(flags.table(&effective))).into_response()
    }

    /// Whose request it is, when its token allows what `needs` says.
    pub(super) fn authorize(&self, headers: &HeaderMap, needs: Role) -> Result<Who, Refused> {
        let given = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .unwrap_or_default();
        self.tokens.who(given, needs, self.shell.now()).map_err(|denied| match denied {
            Denied::Unknown => {
                let message = "send the admin token as `Authorization: Bearer ...`";
                Refused(ErrorBody::new(ErrorCode::Unauthorized, message))
            }
            Denied::Role { who, needs } => {
                let Who { name, role } = who;
                let message = format!("the token `{name}` may {role}, and this takes {needs}");
                Refused(ErrorBody::new(ErrorCode::Forbidden, message))
            }
            Denied::TooOften { name, wait } => {
                let whose = name.map_or_else(
                    || "there are too many requests without a known token".to_owned(),
                    |name| format!("the token `{name}` asks too often"),
                );
                let message = format!(
                    "{whose}; again in {:.1} s, or raise gateway.admin_requests_per_s",
                    wait.as_secs_f64()
                );
                Refused(ErrorBody::new(ErrorCode::RateLimited, message))
            }
        })
    }

    /// Whether the request may pass interlocks; always true, or refused.
    fn authorize_breaking_glass(&self, who: &Who, headers: &HeaderMap) -> Result<bool, Refused> {
        if who.role >= Role::BreakGlass {
            return Ok(true);
        }
        let given = headers.get(BREAK_GLASS_HEADER).and_then(|value| value.to_str().ok());
        let message = match self.tokens.is_second(given.unwrap_or_default()) {
            Some(true) => return Ok(true),
            Some(false) => format!(
                "`override` needs the second token; send it as `{BREAK_GLASS_HEADER}: ...` beside \
                 the admin token"
            ),
            None => "`override` needs a second token, and this gateway has none; set \
                     `gateway.break_glass_token_env` or `gateway.break_glass_token_file`, and \
                     restart it"
                .to_owned(),
        };
        Err(Refused(ErrorBody::new(ErrorCode::Forbidden, message)))
    }
}

/// An answer that refuses.
pub(super) struct Refused(pub(super) ErrorBody);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.error.code.status())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.0)).into_response();
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

async fn metrics_page(State(admin): Shared) -> Response {
    let text = admin.exposition();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn ready(State(admin): Shared) -> Response {
    if admin.health.is_leaving() || admin.shell.read(|gate, _| gate.is_draining()) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    "ready\n".into_response()
}

async fn list(State(admin): Shared, headers: HeaderMap) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Read)?;
    Ok(admin.table())
}

async fn one(
    State(admin): Shared,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Read)?;
    crate::admission::flag(&key).map_err(|error| unknown(&error.to_string()))?;
    let effective = admin.shell.read(|gate, _| gate.settings().clone());
    let flags = admin.flags();
    let tag = etag(flags.revision());
    let row = flags.table(&effective).flags.into_iter().find(|row| row.key == key);
    Ok(([(ETAG, tag)], Json(row)).into_response())
}

async fn put(
    State(admin): Shared,
    Path(key): Path<String>,
    method: axum::http::Method,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refused> {
    let who = admin.authorize(&headers, Role::Flip)?;
    crate::admission::flag(&key).map_err(|error| unknown(&error.to_string()))?;
    let mut body: FlagBody = read(&body)?;
    if method == axum::http::Method::DELETE {
        body.value = None;
    }
    admin.change(&who, &headers, &body.into_apply(key))
}

async fn apply(
    State(admin): Shared,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refused> {
    let who = admin.authorize(&headers, Role::Flip)?;
    let body: ApplyBody = read(&body)?;
    admin.change(&who, &headers, &body)
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    since: u64,
}

async fn events(
    State(admin): Shared,
    Query(query): Query<Since>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Read)?;
    let events = admin.flags().events(query.since);
    Ok(Json(EventsBody { events }).into_response())
}

async fn note(State(admin): Shared, headers: HeaderMap, body: String) -> Result<Response, Refused> {
    let who = admin.authorize(&headers, Role::Flip)?;
    admin.write_note(&read(&body)?, &who)?;
    Ok(StatusCode::CREATED.into_response())
}

async fn snapshot(State(admin): Shared, headers: HeaderMap) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Read)?;
    let now = admin.shell.now();
    let snapshots = admin.own().snapshots(now);
    Ok(Json(snapshots.iter().collect::<SnapshotsBody>()).into_response())
}

async fn original(
    State(admin): Shared,
    Path(id): Path<u64>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Read)?;
    let found = admin.shell.read(|gate, now| trace(gate, id, now));
    Ok(found.map_or_else(
        || {
            let message = "no such original, or it is forgotten (two minutes after its last event; of those served, the latest 10,000 are kept)";
            (
                StatusCode::NOT_FOUND,
                Json(json!({"error": {"code": "unknown_original", "message": message}})),
            )
                .into_response()
        },
        |chain| Json(chain).into_response(),
    ))
}

fn trace(gate: &Gate, id: u64, now: Mono) -> Option<serde_json::Value> {
    let original = gate.original(id)?;
    let scope = gate.scopes().get(original.scope())?;
    let ago = |at: Mono| now.saturating_since(at).as_secs_f64();
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
    let entry = |entry: &ChainEntry| {
        json!({
            "ago_s": ago(entry.at),
            "what": entry.what,
            "status": entry.status,
            "code": entry.code,
            "hint_s": seconds(entry.hint),
            "wait_s": entry.wait.as_secs_f64(),
            "tokens": entry.tokens,
        })
    };
    Some(json!({
        "id": original.id,
        "scope": &**scope.name(),
        "requests": original.requests,
        "attempts": original.attempts,
        "served": original.served,
        "chain": original.chain.iter().map(entry).collect::<Vec<_>>(),
    }))
}

async fn tally(State(admin): Shared, headers: HeaderMap) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Read)?;
    let tally = admin.shell.read(Tally::of);
    Ok(Json(tally).into_response())
}

async fn mark(State(admin): Shared, headers: HeaderMap) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Flip)?;
    let tally = admin.shell.with(Tally::mark);
    Ok(Json(tally).into_response())
}

async fn drain(State(admin): Shared, headers: HeaderMap) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Flip)?;
    admin.shell.with(Gate::drain);
    Ok(StatusCode::ACCEPTED.into_response())
}

pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, Refused> {
    serde_json::from_str(body)
        .map_err(|error| Refused(ErrorBody::new(ErrorCode::Value, format!("the body: {error}"))))
}

fn unknown(message: &str) -> Refused {
    Refused(ErrorBody::new(ErrorCode::UnknownFlag, message))
}
