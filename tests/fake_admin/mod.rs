//! A fake of the gateway's admin API, for the client's tests only.
//!
//! It keeps the table in memory and knows no interlock but the one it is told. It speaks through
//! the wire structs that the real gateway uses, so that shapes cannot drift apart; what the real
//! one decides is tested with the real one.

#[path = "../flag_table/mod.rs"]
pub mod flag_table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::Utc;
use serde_json::json;
use weir::admission::{FlagValue, Settings};
use weir::flag::wire::{
    APPLY_PATH, ApplyBody, EVENTS_PATH, ErrorBody, ErrorCode, EventChangeRow, EventRow, EventsBody,
    FLAGS_PATH, ORIGINALS_PATH, SNAPSHOT_PATH, SnapshotsBody, TableBody, parse_if_match,
};
use weir::flag::{EventKind, FlagTable, Marks};
use weir::signal::{Snapshot, Value};

/// The only token that it accepts.
pub const TOKEN: &str = "secret-of-the-test";

/// The fake and its address.
pub struct Fake {
    pub url: String,
    state: Arc<Mutex<Inner>>,
}

struct Inner {
    table: FlagTable,
    events: Vec<EventRow>,
    seen: Vec<String>,
    interlock: Option<String>,
    signals: Snapshot,
}

type Shared = State<Arc<Mutex<Inner>>>;

impl Fake {
    /// Starts with the storm's flags: admission off, clients retry, three tries.
    pub async fn start() -> Self {
        let storm = Settings {
            mode: weir::admission::Mode::Off,
            retry_owner: weir::admission::RetryOwner::Client,
            retry_max_attempts: 3,
            ..Settings::default()
        };
        let table = flag_table::table(&storm);
        let state = Arc::new(Mutex::new(Inner {
            table,
            events: Vec::new(),
            seen: Vec::new(),
            interlock: None,
            signals: {
                let mut signals = Snapshot::new("openai/acct-1/embed", 10.0);
                signals.set("amplification", Value::Number(9.3), &Arc::from("gateway"));
                signals
            },
        }));
        let router = Router::new()
            .route(FLAGS_PATH, get(list))
            .route(APPLY_PATH, post(apply))
            .route(EVENTS_PATH, get(events))
            .route(SNAPSHOT_PATH, get(snapshot))
            .route(&format!("{ORIGINALS_PATH}/{{id}}"), get(original))
            .with_state(Arc::clone(&state));
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, state }
    }

    /// From now on every change is refused with this interlock.
    pub fn refuse(&self, interlock: &str) {
        self.state.lock().expect("unpoisoned").interlock = Some(interlock.to_owned());
    }

    /// Signals that it gives beside those it has.
    #[allow(dead_code, reason = "not every test that has the fake gives it signals")]
    pub fn give(&self, more: &Snapshot) {
        let more = more.signals.iter().map(|(name, reading)| (name.clone(), reading.clone()));
        self.state.lock().expect("unpoisoned").signals.signals.extend(more);
    }

    /// Changes made so far.
    pub fn changes(&self) -> usize {
        self.state.lock().expect("unpoisoned").events.len()
    }
}

fn error(code: ErrorCode, message: impl Into<String>) -> Response {
    refuse(code, &ErrorBody::new(code, message))
}

fn refuse(code: ErrorCode, body: &ErrorBody) -> Response {
    let status = StatusCode::from_u16(code.status()).expect("a status of the contract");
    (status, Json(body)).into_response()
}

fn authorized(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if sent == Some(&format!("Bearer {TOKEN}")) {
        return Ok(());
    }
    Err(Box::new(error(ErrorCode::Unauthorized, "no or wrong bearer token")))
}

async fn list(State(state): Shared, headers: HeaderMap) -> Response {
    if let Err(refusal) = authorized(&headers) {
        return *refusal;
    }
    Json(TableBody::from(&state.lock().expect("unpoisoned").table)).into_response()
}

async fn apply(State(state): Shared, headers: HeaderMap, body: String) -> Response {
    if let Err(refusal) = authorized(&headers) {
        return *refusal;
    }
    let body: ApplyBody = match serde_json::from_str(&body) {
        Ok(body) => body,
        Err(wrong) => return error(ErrorCode::Value, wrong.to_string()),
    };
    let mut inner = state.lock().expect("unpoisoned");
    if inner.seen.contains(&body.request_id) {
        return Json(TableBody::from(&inner.table)).into_response();
    }
    let Some(sent) = headers.get(header::IF_MATCH) else {
        return error(ErrorCode::IfMatchRequired, "send If-Match with the revision that you saw");
    };
    if sent.to_str().ok().and_then(parse_if_match) != Some(inner.table.revision) {
        let body = ErrorBody::new(ErrorCode::Revision, "the table has moved on")
            .with_current(TableBody::from(&inner.table));
        return refuse(ErrorCode::Revision, &body);
    }
    if let Some(interlock) = &inner.interlock {
        return error(ErrorCode::Interlock, interlock.clone());
    }
    inner.store(body);
    Json(TableBody::from(&inner.table)).into_response()
}

impl Inner {
    fn store(&mut self, body: ApplyBody) {
        self.table.revision.0 += 1;
        let revision = self.table.revision;
        let mut changes = Vec::new();
        for change in body.changes {
            let flag = self.table.flags.iter_mut().find(|flag| flag.key == change.key);
            let flag = flag.expect("the client checks keys before it sends");
            changes.push(EventChangeRow {
                key: change.key,
                base: (&flag.base).into(),
                from: flag.overridden.as_ref().map(Into::into),
                to: change.value.clone(),
            });
            flag.overridden = change.value.map(FlagValue::from);
            let stored = flag.stored().clone();
            flag.effective.insert("gw-1".to_owned(), stored);
            flag.revision = revision;
            flag.by = Some(body.actor.clone());
            flag.at = Some(Utc::now());
        }
        self.seen.push(body.request_id.clone());
        self.events.push(EventRow {
            seq: self.events.len() as u64 + 1,
            at: Utc::now(),
            actor: body.actor,
            reason: body.reason,
            incident: body.incident,
            request_id: Some(body.request_id),
            changes,
            revision: revision.0,
            kind: EventKind::Change,
            anchor: body.anchor,
            marks: Marks::default(),
        });
    }
}

async fn events(
    State(state): Shared,
    headers: HeaderMap,
    Query(query): Query<BTreeMap<String, u64>>,
) -> Response {
    if let Err(refusal) = authorized(&headers) {
        return *refusal;
    }
    let since = query.get("since").copied().unwrap_or(0);
    let inner = state.lock().expect("unpoisoned");
    let events = inner.events.iter().filter(|event| event.seq > since).cloned().collect();
    Json(EventsBody { events }).into_response()
}

/// It knows one original, and refuses others in the words of the real one.
async fn original(Path(id): Path<u64>, headers: HeaderMap) -> Response {
    if let Err(refusal) = authorized(&headers) {
        return *refusal;
    }
    if id != 7 {
        let body = json!({"error": {"code": "unknown_original", "message": "no such original"}});
        return (StatusCode::NOT_FOUND, Json(body)).into_response();
    }
    let link = json!({"ago_s": 1.5, "what": "refused", "status": 503, "code": "weir_queue_full",
        "hint_s": null, "wait_s": 0.0, "tokens": null});
    let body = json!({"id": 7, "scope": "embed", "requests": 1, "attempts": 0, "served": false,
        "chain": [link]});
    Json(body).into_response()
}

async fn snapshot(State(state): Shared, headers: HeaderMap) -> Response {
    if let Err(refusal) = authorized(&headers) {
        return *refusal;
    }
    let inner = state.lock().expect("unpoisoned");
    Json(SnapshotsBody::from_iter([&inner.signals])).into_response()
}
