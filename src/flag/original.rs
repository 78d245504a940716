//! One original as the gateway has seen it: every request, attempt and answer, oldest first.
//!
//! Only read; a gateway forgets an original two minutes after its last event, and sooner one that
//! was served when many others have been since.

use serde::Deserialize;

/// What is known of one original.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Original {
    /// Its number in its gateway: that of the request that first asked for it.
    pub id: u64,
    /// Its quota scope.
    pub scope: String,
    /// Requests that asked for it.
    pub requests: u64,
    /// Attempts at the provider.
    pub attempts: u64,
    /// A caller has its answer.
    pub served: bool,
    /// What happened, oldest first.
    #[serde(default)]
    pub chain: Vec<Link>,
}

/// Something that happened to an original.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Link {
    /// Seconds before it was told.
    pub ago_s: f64,
    /// `request`, `attempt`, `answer`, `backoff`, `refused`, `served`, ...
    pub what: String,
    /// HTTP status of an answer or refusal.
    pub status: Option<u16>,
    /// Code of an answer or refusal.
    pub code: Option<String>,
    /// The provider's hint, in seconds.
    pub hint_s: Option<f64>,
    /// Seconds waited before it.
    #[serde(default)]
    pub wait_s: f64,
    /// Tokens billed.
    pub tokens: Option<f64>,
}
