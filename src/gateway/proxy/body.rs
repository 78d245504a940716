//! The body of a request: read whole, within its bounds of size and time, or told why not.
//!
//! Knows no quota: what is refused here never was a request to the gate.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, EXPECT};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::ProxyBody;
use super::answer::{Shape, error};
use crate::gateway::wire::ClientFault;

/// How long, and how much of it, a body that is too large is read on and thrown away. A client that
/// still writes would lose the answer to a reset of its connection.
const DISCARD: Duration = Duration::from_secs(5);
const DISCARD_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// What is set aside for a body of a declared length before it comes.
const AHEAD_MAX: u64 = 1024 * 1024;

/// Why there is no body to go on with.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It did not come in the time that its caller waits.
    Slow,
    /// It has more bytes than this.
    TooLarge(usize),
    /// It ended early.
    Broken,
    /// It says that it is JSON.
    NotJson(serde_json::Error),
}

impl Unreadable {
    pub(super) const fn fault(&self) -> ClientFault {
        match self {
            Self::Slow => ClientFault::BodySlow,
            Self::TooLarge(_) => ClientFault::BodyTooLarge,
            Self::Broken => ClientFault::BodyBroken,
            Self::NotJson(_) => ClientFault::BodyNotJson,
        }
    }

    pub(super) fn answer(&self, shape: Shape) -> Response<ProxyBody> {
        let (status, code, message) = match self {
            Self::Slow => (
                StatusCode::REQUEST_TIMEOUT,
                "weir_body_slow",
                "the body did not come within the time that its caller waits".to_owned(),
            ),
            Self::TooLarge(most) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "weir_body_too_large",
                format!("the body is larger than {most} bytes; see gateway.body_max"),
            ),
            Self::Broken => {
                (StatusCode::BAD_REQUEST, "weir_body_broken", "the body ended early".to_owned())
            }
            Self::NotJson(why) => (
                StatusCode::BAD_REQUEST,
                "weir_body_not_json",
                format!("the body is no JSON: {why}; nothing was sent to the provider"),
            ),
        };
        error(shape, status, code, &message)
    }
}

/// The whole body, of at most `most` bytes, if it comes in time.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Incoming,
    most: usize,
    patience: Duration,
) -> Result<Bytes, Unreadable> {
    // Who sends slower than it waits for an answer holds nothing but its own connection, and not for
    // ever.
    let awaits_consent = headers.contains_key(EXPECT);
    tokio::time::timeout(patience, whole(body, most, awaits_consent))
        .await
        .unwrap_or(Err(Unreadable::Slow))
}

async fn whole(mut body: Incoming, most: usize, awaits_consent: bool) -> Result<Bytes, Unreadable> {
    let declared = body.size_hint().lower();
    let fits = |length: u64| usize::try_from(length).is_ok_and(|length| length <= most);
    if !fits(declared) {
        // Who has asked first sends nothing once it has been refused.
        if !awaits_consent {
            tokio::spawn(discard(body));
        }
        return Err(Unreadable::TooLarge(most));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Unreadable::Broken)?.into_data() else { continue };
        if first.len().max(all.len()) + data.len() > most {
            tokio::spawn(discard(body));
            return Err(Unreadable::TooLarge(most));
        }
        if first.is_empty() && all.is_empty() {
            // Most bodies come in one piece, and are not copied.
            first = data;
            continue;
        }
        if all.is_empty() {
            let ahead = usize::try_from(declared.min(AHEAD_MAX)).unwrap_or(0);
            all.reserve(ahead.max(first.len() + data.len()));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Reads on for nothing, so that the client gets to reading its answer.
async fn discard(mut body: Incoming) {
    let mut left = DISCARD_BYTES_MAX;
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD, read).await;
}

/// Whether a body is said to be JSON: where nobody says what it is, the APIs of models take nothing else.
pub(super) fn is_said_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_none_or(|kind| {
        kind.to_str().is_ok_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
        })
    })
}
