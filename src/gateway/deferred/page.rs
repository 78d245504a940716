//! What the holder of a ticket reads: where its request stands, and the answer once there is one.

use serde_json::{Value, json};

use super::item::{Answer, Seen, State, UnixMs};

/// Tickets are below this path of the data plane.
pub const STATUS_PATH: &str = "/v1/weir/deferred/";

/// The status of a ticket. `before` is the number of requests that are ahead in its scope's line.
pub fn status(ticket: &str, seen: &Seen, now: UnixMs) -> Value {
    let seconds = |later: UnixMs| later.since(now).as_secs_f64();
    let mut page = json!({
        "id": ticket,
        "object": "weir.deferred",
        "status": seen.state.word(),
        "age_s": now.since(seen.stored).as_secs_f64(),
        "attempts": seen.attempts,
    });
    if seen.state == State::Queued {
        page["before"] = json!(seen.before);
        page["not_before_s"] = json!(seconds(seen.not_before));
    }
    if let Some(expires) = seen.expires {
        page["expires_s"] = json!(seconds(expires));
    }
    if let Some(answer) = &seen.answer {
        page["response"] = response(answer);
    }
    page
}

/// As in the output of OpenAI's batches: the status, and the body as JSON where it is some.
fn response(answer: &Answer) -> Value {
    let body = serde_json::from_slice(&answer.body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&answer.body).into_owned()));
    let headers: serde_json::Map<String, Value> =
        answer.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({ "status_code": answer.status, "headers": headers, "body": body })
}
