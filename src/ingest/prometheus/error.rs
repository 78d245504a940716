//! Why a query API gave nothing: every message names the source, what came instead, and a remedy.

use std::time::Duration;

use thiserror::Error;

use crate::ingest::transport::TransportError;

/// Why there is no answer. None of these is retried here: the source is asked again at its next turn.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{source_name}: Prometheus: {kind}")]
pub struct PrometheusError {
    /// The source.
    pub source_name: String,
    /// What happened.
    pub kind: PrometheusErrorKind,
}

/// What can go wrong with a query.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrometheusErrorKind {
    /// The address is no HTTP address.
    #[error("`{0}` is no address of an HTTP API: write one such as http://prometheus:9090")]
    Address(String),
    /// The HTTP client cannot be made.
    #[error("{0}")]
    Client(String),
    /// No whole answer came.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No whole answer in time.
    #[error(
        "no whole answer within {} ms: ask less often or raise `timeout_s`",
        .0.as_millis()
    )]
    Timeout(Duration),
    /// 400: the query is wrong. weir made it, from the adapter and `select`.
    #[error("refuses the query ({0}): check the adapter's expressions and `select`")]
    BadQuery(String),
    /// 401 or 403.
    #[error("answers {status}{}: check the key, user or tenant header of this source", also(.said))]
    Unauthorized {
        /// The status.
        status: u16,
        /// The beginning of the body.
        said: String,
    },
    /// 404, or a page that is not the API's.
    #[error("has no query API at {url}{}: is the path prefix right?", also(.said))]
    NotFound {
        /// The address.
        url: String,
        /// The beginning of the body.
        said: String,
    },
    /// 422: the query cannot be executed on this data.
    #[error(
        "cannot execute the query ({0}): narrow `select`, or look for series that are there twice"
    )]
    Execution(String),
    /// 429.
    #[error("asks for fewer queries (429{}): raise `interval_s`", also(.0))]
    TooMany(String),
    /// 502, 503, 504: it is there, but cannot answer now.
    #[error("cannot answer now ({status}{}): it is starting, overloaded, or the query took too long", also(.said))]
    Unavailable {
        /// The status.
        status: u16,
        /// What it says.
        said: String,
    },
    /// Another refusal.
    #[error("answers {status}{}", also(.said))]
    Status {
        /// The status.
        status: u16,
        /// What it says.
        said: String,
    },
    /// An answer that is not the API's JSON.
    #[error(
        "answers something that is not its API's JSON ({cause}): does the address lead to a login page?"
    )]
    Unreadable {
        /// What is wrong with it.
        cause: String,
    },
}

fn also(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
