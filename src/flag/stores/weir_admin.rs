//! The store that is weir's own admission service, over its admin API.
//!
//! One request per call, [`TIMEOUT`](super::TIMEOUT) each, no retry and no redirect. An answer that cannot be
//! understood after a change was sent is `Unknown`: the service may have stored it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;

use crate::signal::Snapshot;

use super::super::original::Original;
use super::super::store::{Author, Capabilities, FlagEvent, Store, StoreError};
use super::super::types::{FlagTable, Outcome, Plan, Revision};
use super::super::wire::{
    APPLY_PATH, ApplyBody, BREAK_GLASS_HEADER, ChangeRow, EVENTS_PATH, ErrorBody, EventsBody,
    FLAGS_PATH, NOTES_PATH, NoteBody, ORIGINALS_PATH, OverrideBy, OverrideRow, SNAPSHOT_PATH,
    SnapshotsBody, TableBody, WireValue, etag,
};

use super::http::{Answer, Client, Token, answer};

/// Client of one admission service.
#[derive(Clone, Debug)]
pub struct WeirAdmin {
    name: String,
    token: Token,
    glass: Option<Glass>,
    client: Client,
}

/// What every change of this client passes interlocks with.
#[derive(Clone, Debug)]
struct Glass {
    token: Token,
    reason: String,
}

impl WeirAdmin {
    /// A client of the admin API at `base_url` (`http://127.0.0.1:9901`). Sends nothing yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] when the URL or the token cannot be used.
    pub fn new(base_url: &str, token: Token) -> Result<Self, StoreError> {
        let client = Client::new(base_url, "an admin API", "http://127.0.0.1:9901", &token)?;
        Ok(Self { name: format!("weir admin {}", client.place()), token, glass: None, client })
    }

    /// The same, whose every change passes interlocks with the second token, for this reason. What it
    /// passes stands in the service's history.
    #[must_use]
    pub fn breaking_glass(mut self, token: Token, reason: impl Into<String>) -> Self {
        self.glass = Some(Glass { token, reason: reason.into() });
        self
    }

    /// The signals as the service itself sees them, one snapshot per scope: evidence for guards.
    ///
    /// # Errors
    /// [`StoreError`] when there is no usable answer in time.
    pub async fn snapshots(&self) -> Result<Vec<Arc<Snapshot>>, StoreError> {
        let body: SnapshotsBody = self.read("the signals", SNAPSHOT_PATH).await?;
        Ok(body.into_snapshots().into_iter().map(Arc::new).collect())
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, path).bearer_auth(self.token.text())
    }

    async fn read<T: DeserializeOwned>(
        &self,
        what: &'static str,
        path: &str,
    ) -> Result<T, StoreError> {
        let store = || self.name.clone();
        let (status, body) = answer(self.request(Method::GET, path))
            .await
            .map_err(|why| StoreError::Unreachable { store: store(), why })?;
        if status != StatusCode::OK {
            let why = refusal(status, &body);
            return Err(StoreError::Refused { store: store(), status: status.as_u16(), why });
        }
        serde_json::from_slice(&body).map_err(|error| StoreError::Malformed {
            store: store(),
            what,
            why: error.to_string(),
        })
    }

    async fn send(&self, plan: &Plan, author: &Author) -> Outcome {
        let mut body = apply_body(plan, author);
        let mut request = self
            .request(Method::POST, APPLY_PATH)
            .header(http::header::IF_MATCH, etag(plan.revision));
        if let Some(Glass { token, reason }) = &self.glass {
            let by = OverrideBy::BreakGlass;
            body.overriding = Some(OverrideRow { by, reason: reason.clone() });
            request = request.header(BREAK_GLASS_HEADER, token.text());
        }
        outcome(answer(request.json(&body)).await)
    }
}

impl Store for WeirAdmin {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::FULL
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        Box::pin(async move {
            let body: TableBody = self.read("the flag table", FLAGS_PATH).await?;
            Ok(body.into())
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome> {
        Box::pin(self.send(plan, author))
    }

    fn keeps_notes(&self) -> bool {
        true
    }

    fn note<'a>(&'a self, note: &'a NoteBody) -> Option<BoxFuture<'a, Result<(), StoreError>>> {
        Some(Box::pin(async move {
            let store = || self.name.clone();
            let (status, body) = answer(self.request(Method::POST, NOTES_PATH).json(note))
                .await
                .map_err(|why| StoreError::Unreachable { store: store(), why })?;
            if status.is_success() {
                return Ok(());
            }
            let why = refusal(status, &body);
            Err(StoreError::Refused { store: store(), status: status.as_u16(), why })
        }))
    }

    fn original(&self, id: u64) -> Option<BoxFuture<'_, Result<Original, StoreError>>> {
        let path = format!("{ORIGINALS_PATH}/{id}");
        Some(Box::pin(async move { self.read("an original", &path).await }))
    }

    fn events(&self, since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        Box::pin(async move {
            let path = format!("{EVENTS_PATH}?since={since}");
            let body: EventsBody = self.read("its events", &path).await?;
            Ok(body.events.into_iter().map(FlagEvent::from).collect())
        })
    }
}

/// The request that carries a plan out.
#[must_use]
pub fn apply_body(plan: &Plan, author: &Author) -> ApplyBody {
    let row = |change: &super::super::PlannedChange| ChangeRow {
        key: change.key.clone(),
        value: (!change.drops_override).then(|| WireValue::from(&change.to)),
    };
    ApplyBody {
        changes: plan.changes.iter().map(row).collect(),
        ttl_s: plan.ttl_s,
        on_expire: plan.on_expire.into(),
        reason: plan.reason.clone(),
        actor: author.actor.clone(),
        incident: author.incident.clone(),
        request_id: plan.request_id.clone(),
        anchor: author.anchor.clone(),
        overriding: None,
    }
}

/// What an answer to a change means. Only a status that the API promises counts as "not stored":
/// a 5xx, or a page of some proxy in between, leaves it open.
fn outcome(answer: Answer) -> Outcome {
    let (status, body) = match answer {
        Ok(answer) => answer,
        Err(why) => return Outcome::Unknown { why },
    };
    match status.as_u16() {
        200 => match serde_json::from_slice::<TableBody>(&body) {
            Ok(table) => Outcome::applied(Revision(table.revision)),
            Err(error) => Outcome::Unknown { why: format!("a 200 that is no flag table: {error}") },
        },
        412 => match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(ErrorBody { error }) if error.current.is_some() => {
                Outcome::Conflict { current: error.current.expect("looked at in the guard").into() }
            }
            _ => Outcome::Refused { why: refusal(status, &body) },
        },
        400 | 401 | 403 | 404 | 405 | 409 | 413 | 422 | 428 => {
            Outcome::Refused { why: refusal(status, &body) }
        }
        _ => Outcome::Unknown { why: refusal(status, &body) },
    }
}

/// A refusal in the service's words, or what the status says where it has none.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    if let Ok(ErrorBody { error }) = serde_json::from_slice::<ErrorBody>(body) {
        return error.message;
    }
    // Not every refusal is about a flag, and has a code of the flags' contract.
    if let Ok(other) = serde_json::from_slice::<serde_json::Value>(body)
        && let Some(message) = other.pointer("/error/message").and_then(|one| one.as_str())
    {
        return message.to_owned();
    }
    match status.as_u16() {
        401 | 403 => {
            "the token is missing, wrong or has no right to this; set WEIR_ADMIN_TOKEN".to_owned()
        }
        404 => {
            "nothing at this address; is it the admin listener and not the data plane?".to_owned()
        }
        _ => format!("HTTP {status} without an explanation"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_prints_itself() {
        let admin = WeirAdmin::new("http://127.0.0.1:1", Token::new("hunter2\n")).expect("valid");
        let shown = format!("{admin:?}");
        assert!(shown.contains("***") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn addresses_that_cannot_work_are_named() {
        for url in ["", "127.0.0.1:9901", "ftp://host", "http://"] {
            let error = WeirAdmin::new(url, Token::new("t")).expect_err(url).to_string();
            assert!(error.contains(url) && error.contains("http://127.0.0.1:9901"), "{error}");
        }
    }

    #[test]
    fn only_a_promised_refusal_means_not_stored() {
        let check = |status: u16, body: &str, expected: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            let name = match outcome(Ok((status, body.as_bytes().to_vec()))) {
                Outcome::Applied { .. } => "applied",
                Outcome::Conflict { .. } => "conflict",
                Outcome::Refused { .. } => "refused",
                Outcome::Partly(_) => "partly",
                Outcome::Unknown { .. } => "unknown",
            };
            assert_eq!(name, expected, "{status} {body}");
        };
        check(200, r#"{"revision":3,"flags":[]}"#, "applied");
        check(200, "<html>", "unknown");
        check(409, r#"{"error":{"code":"interlock","message":"m"}}"#, "refused");
        check(
            412,
            r#"{"error":{"code":"revision","message":"m","current":{"revision":3,"flags":[]}}}"#,
            "conflict",
        );
        check(412, "", "refused");
        check(422, "", "refused");
        check(428, "", "refused");
        check(302, "", "unknown");
        check(500, "", "unknown");
        check(502, "<html>", "unknown");
        check(504, "", "unknown");
        assert!(matches!(outcome(Err("timed out".to_owned())), Outcome::Unknown { .. }));
    }
}
