//! What these tests share: the gateway's own support, with a lane in a folder of the test.

#[path = "../gateway/support.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::path::Path;

use http::{Method, StatusCode};
use serde_json::Value;

pub use support::{EMBEDDINGS, Gate, Hand, Http, Reply, Sim, WIDE, answer, input};

pub use crate::eventually::eventually;

/// What a caller says that wants its answer later.
pub const LATER: [(&str, &str); 2] = [("x-weir-lane", "batch"), ("prefer", "respond-async")];

/// The lane's table, with more of it in `more` and of `[gateway]` before it.
pub fn lane(folder: &Path, before: &str, more: &str) -> String {
    let path = folder.join("deferred.db");
    format!("{before}\n[deferred]\npath = '{}'\n{more}", path.display())
}

/// The status page of what a 202 says; it must be one.
pub fn ticket(reply: &Reply) -> String {
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
    reply.header("location").expect("a place").to_owned()
}

pub async fn page(gate: &Gate, place: &str, headers: &[(&str, &str)]) -> Reply {
    gate.http.send(Method::GET, &format!("{}{place}", gate.data), headers, "").await
}

/// The status page once it says `wanted`.
pub async fn becomes(gate: &Gate, place: &str, wanted: &str) -> Value {
    eventually(&format!("{place} {wanted}"), async || {
        let page = page(gate, place, &[]).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text());
        let page = page.json();
        (page["status"] == wanted).then_some(page)
    })
    .await
}
