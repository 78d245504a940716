//! The deferred lane on the admin plane: how much waits, which letters are dead, and what becomes of
//! them. Shows nothing of what was asked or answered.

use axum::Json;
use axum::extract::{Path, State as Extract};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::admin::{Refused, Shared, read};
use super::admin_token::Role;
use super::deferred::{DeadLetter, DeferredLane, State, StoreError, UnixMs};
use crate::flag::wire::NoteBody;

/// The counts and the dead letters.
pub(super) const DEFERRED_PATH: &str = "/admin/v1/deferred";
/// Dead letters that are listed.
const LETTERS_MAX: usize = 200;

/// Who wants a dead letter away, and why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    reason: String,
    actor: String,
    request_id: String,
}

pub(super) async fn list(Extract(admin): Shared, headers: HeaderMap) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Read)?;
    let Some(lane) = &admin.lane else { return Ok(no_lane()) };
    let letters = match lane.dead_letters(LETTERS_MAX).await {
        Ok(letters) => letters,
        Err(error) => return Ok(out_of_order(&error)),
    };
    let now = UnixMs::now();
    let letters: Vec<Value> = letters.iter().map(|letter| row(letter, now)).collect();
    Ok(Json(json!({"scopes": scopes(lane, now), "dead": letters})).into_response())
}

/// Puts a dead letter back into the line (POST), or forgets it (DELETE).
pub(super) async fn change(
    Extract(admin): Shared,
    Path(item): Path<String>,
    method: Method,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refused> {
    let who = admin.authorize(&headers, Role::Flip)?;
    let wish: Wish = read(&body)?;
    let Some(lane) = &admin.lane else { return Ok(no_lane()) };
    let is_delete = method == Method::DELETE;
    let what = if is_delete { "deleted" } else { "requeued" };
    // The note stands before the deed: one without the other is a deed that was tried.
    let text = format!("dead letter {item} {what}: {}", wish.reason);
    let note = NoteBody { text, actor: wish.actor, incident: None, request_id: wish.request_id };
    admin.write_note(&note, &who)?;
    let done = if is_delete { lane.delete(&item).await } else { lane.requeue(&item).await };
    Ok(match done {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => {
            let message = "there is no such dead letter; GET lists those that there are";
            error(StatusCode::NOT_FOUND, "unknown_letter", message)
        }
        Err(fault) => out_of_order(&fault),
    })
}

fn scopes(lane: &DeferredLane, now: UnixMs) -> Vec<Value> {
    let one = |counts: &super::deferred::Counts| {
        let mut row = json!({
            "scope": counts.scope,
            "oldest_s": counts.oldest.map(|oldest| now.since(oldest).as_secs_f64()),
        });
        for (state, items) in State::ALL.into_iter().zip(counts.items) {
            row[state.word()] = json!(items);
        }
        row
    };
    lane.counted().iter().map(one).collect()
}

fn row(letter: &DeadLetter, now: UnixMs) -> Value {
    json!({
        "id": letter.item,
        "scope": letter.scope,
        "tenant": letter.tenant,
        "path": letter.path,
        "status": letter.status,
        "code": letter.code,
        "attempts": letter.attempts,
        "age_s": now.since(letter.stored).as_secs_f64(),
        "dead_for_s": now.since(letter.died).as_secs_f64(),
    })
}

fn no_lane() -> Response {
    let message = "this gateway has no deferred lane; see gateway.deferred";
    error(StatusCode::NOT_FOUND, "no_deferred_lane", message)
}

fn out_of_order(fault: &StoreError) -> Response {
    error(StatusCode::SERVICE_UNAVAILABLE, "deferred_store", &fault.to_string())
}

fn error(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({"error": {"code": code, "message": message}}))).into_response()
}
