//! Errors in the words of a provider, so that a reader of its dialect sees what they mean.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Dialect, whole_seconds};
use crate::dialect::meter::Meter;
use crate::dialect::span::format_go_duration;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<'a> {
    /// A meter has too little left.
    RateLimited {
        /// Requests or tokens, of the minute or of the day.
        meter: Meter,
        /// Its limit per window.
        limit: u64,
        /// What is used of it.
        used: u64,
        /// What the call asked for.
        requested: u64,
        /// Time until this very call fits, where the words say it.
        wait: Option<Duration>,
    },
    /// Demand grew too fast, inside every limit.
    SlowDown,
    /// The call is larger than the meter.
    TooLarge {
        /// The meter's limit per minute.
        limit: u64,
        /// What the call asked for.
        requested: u64,
    },
    /// The call is larger than the model takes.
    TooLong {
        /// The most tokens that one call may have.
        limit: u64,
        /// What the call asked for.
        requested: u64,
    },
    /// The account has no money.
    AccountExhausted,
    /// Too many calls are open.
    TooManyOpen {
        /// How many may be.
        cap: u32,
    },
    /// The provider has too much to do.
    Overloaded,
    /// The provider failed.
    Failed,
    /// The provider took too long.
    TimedOut,
    /// The request is not understood.
    Rejected {
        /// 400 or 404.
        status: u16,
        /// What is wrong with it.
        complaint: &'a str,
    },
}

/// An error as it goes over the wire, without its headers.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Value,
}

/// Writes a fault of a call for `model`.
#[must_use]
pub fn write_error(dialect: Dialect, fault: &Fault<'_>, model: &str) -> ErrorAnswer {
    let (status, body) = match dialect {
        Dialect::OpenAi => openai(fault, model),
        Dialect::Azure => azure(fault, model),
        Dialect::Anthropic => anthropic(fault),
        Dialect::Gemini => gemini(fault, model),
        Dialect::Ietf | Dialect::IetfFields => problem(fault),
    };
    let is_problem = matches!(dialect, Dialect::Ietf | Dialect::IetfFields);
    let content_type = if is_problem { "application/problem+json" } else { "application/json" };
    ErrorAnswer { status, content_type, body }
}

/// The status that most providers give it.
const fn usual_status(fault: &Fault<'_>) -> u16 {
    match fault {
        Fault::RateLimited { .. }
        | Fault::SlowDown
        | Fault::TooLarge { .. }
        | Fault::AccountExhausted
        | Fault::TooManyOpen { .. } => 429,
        Fault::TooLong { .. } => 400,
        Fault::Overloaded => 503,
        Fault::Failed => 500,
        Fault::TimedOut => 504,
        Fault::Rejected { status, .. } => *status,
    }
}

fn openai(fault: &Fault<'_>, model: &str) -> (u16, Value) {
    let organization = "in organization org-simulated";
    let message = match fault {
        Fault::RateLimited { meter, limit, used, requested, wait } => {
            let (window, short) = match meter {
                Meter::Requests => ("min", "RPM"),
                Meter::RequestsPerDay => ("day", "RPD"),
                Meter::TokensPerDay => ("day", "TPD"),
                _ => ("min", "TPM"),
            };
            let again = |wait| format!(" Please try again in {}.", format_go_duration(wait));
            format!(
                "Rate limit reached for {model} {organization} on {} per {window} ({short}): \
                 Limit {limit}, Used {used}, Requested {requested}.{}",
                unit(*meter),
                wait.map_or_else(String::new, again),
            )
        }
        Fault::SlowDown => {
            "Slow down: your traffic grew too quickly. Bring the rate back and raise it in steps."
                .to_owned()
        }
        Fault::TooLarge { limit, requested } => format!(
            "Request too large for {model} {organization} on tokens per min (TPM): Limit {limit}, \
             Requested {requested}. The input or output tokens must be reduced."
        ),
        Fault::TooLong { limit, requested } => format!(
            "This model's maximum context length is {limit} tokens, however you requested \
             {requested} tokens. Please reduce the length of the messages."
        ),
        Fault::AccountExhausted => {
            "You exceeded your current quota, please check your plan and billing details."
                .to_owned()
        }
        Fault::TooManyOpen { cap } => {
            format!("Your request reached max organization concurrency: {cap}.")
        }
        Fault::Overloaded => {
            "The server is currently overloaded with other requests. Sorry about that!".to_owned()
        }
        Fault::Failed => "The server had an error while processing your request.".to_owned(),
        Fault::TimedOut => "The request timed out.".to_owned(),
        Fault::Rejected { complaint, .. } => (*complaint).to_owned(),
    };
    let (code, kind) = match fault {
        Fault::RateLimited { meter, .. } => (Some("rate_limit_exceeded"), unit(*meter)),
        Fault::SlowDown => (Some("slow_down"), "slow_down"),
        Fault::TooLarge { .. } => (Some("rate_limit_exceeded"), "tokens"),
        Fault::TooLong { .. } => (Some("context_length_exceeded"), "invalid_request_error"),
        Fault::AccountExhausted => (Some("insufficient_quota"), "insufficient_quota"),
        Fault::TooManyOpen { .. } => (Some("concurrency_limit_exceeded"), "concurrency"),
        Fault::Overloaded => (Some("server_is_overloaded"), "server_error"),
        Fault::Failed | Fault::TimedOut => (None, "server_error"),
        Fault::Rejected { .. } => (None, "invalid_request_error"),
    };
    let error = json!({ "message": message, "type": kind, "param": null, "code": code });
    (usual_status(fault), json!({ "error": error }))
}

fn azure(fault: &Fault<'_>, model: &str) -> (u16, Value) {
    let Fault::RateLimited { meter, wait, .. } = fault else {
        let (status, mut body) = openai(fault, model);
        if matches!(fault, Fault::TooLarge { .. } | Fault::Overloaded | Fault::Failed) {
            body["error"]["code"] = json!(status.to_string());
        }
        return (status, body);
    };
    let kind = if unit(*meter) == "requests" { "call" } else { "token" };
    let again = |wait| format!(" Please retry after {} seconds.", whole_seconds(wait));
    let message = format!(
        "Requests to {model} have exceeded {kind} rate limit of your current simulated pricing \
         tier.{}",
        wait.map_or_else(String::new, again)
    );
    (429, json!({ "error": { "code": "429", "message": message } }))
}

fn anthropic(fault: &Fault<'_>) -> (u16, Value) {
    let (status, kind, message) = match fault {
        Fault::RateLimited { meter, limit, .. } => {
            let message = format!(
                "This request would exceed your organization's rate limit of {limit} {} per {}.",
                unit(*meter),
                window(*meter)
            );
            (429, "rate_limit_error", message)
        }
        Fault::SlowDown => {
            let message = "This request would exceed the acceleration limit: scale up gradually.";
            (429, "rate_limit_error", message.to_owned())
        }
        Fault::TooLarge { limit, requested } | Fault::TooLong { limit, requested } => {
            let message = format!("prompt is too long: {requested} tokens > {limit} maximum");
            (400, "invalid_request_error", message)
        }
        Fault::AccountExhausted => {
            (429, "rate_limit_error", "This organization has reached its spend limit.".to_owned())
        }
        Fault::TooManyOpen { .. } => {
            let message = "Number of concurrent connections has exceeded your rate limit.";
            (429, "rate_limit_error", message.to_owned())
        }
        Fault::Overloaded => (529, "overloaded_error", "Overloaded".to_owned()),
        Fault::Failed => (500, "api_error", "Internal server error".to_owned()),
        Fault::TimedOut => (504, "timeout_error", "Request timed out.".to_owned()),
        Fault::Rejected { status, complaint } => {
            let kind = if *status == 404 { "not_found_error" } else { "invalid_request_error" };
            (*status, kind, (*complaint).to_owned())
        }
    };
    let mut error = json!({ "type": kind, "message": message });
    if *fault == Fault::AccountExhausted {
        error["details"] = json!({ "error_code": "enforced_spend_limit_reached" });
    }
    (status, json!({ "type": "error", "error": error }))
}

fn gemini(fault: &Fault<'_>, model: &str) -> (u16, Value) {
    const QUOTA: &str =
        "You exceeded your current quota, please check your plan and billing details.";
    let violation = |id: &str, limit: u64| {
        json!({
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{
                "quotaId": id, "quotaValue": limit.to_string(), "quotaDimensions": { "model": model },
            }],
        })
    };
    let (word, message, details) = match fault {
        Fault::RateLimited { meter, limit, wait, .. } => {
            let id = match meter {
                Meter::Requests => "GenerateRequestsPerMinutePerProjectPerModel",
                Meter::RequestsPerDay => "GenerateRequestsPerDayPerProjectPerModel",
                Meter::TokensPerDay => "GenerateContentTokensPerModelPerDay",
                _ => "GenerateContentTokensPerModelPerMinute",
            };
            let violated = std::iter::once(violation(id, *limit));
            let details = violated.chain(wait.map(retry_info)).collect();
            ("RESOURCE_EXHAUSTED", QUOTA, details)
        }
        Fault::SlowDown => {
            ("RESOURCE_EXHAUSTED", "Resource exhausted. Please try again later.", Vec::new())
        }
        Fault::AccountExhausted => {
            let id = "GenerateRequestsPerMinutePerProjectPerModel";
            ("RESOURCE_EXHAUSTED", QUOTA, vec![violation(id, 0)])
        }
        Fault::TooManyOpen { cap } => {
            let id = "ConcurrentRequestsPerProjectPerModel";
            ("RESOURCE_EXHAUSTED", QUOTA, vec![violation(id, u64::from(*cap))])
        }
        Fault::TooLarge { .. } | Fault::TooLong { .. } => {
            let message = "The input token count exceeds the maximum number of tokens allowed.";
            ("INVALID_ARGUMENT", message, Vec::new())
        }
        Fault::Overloaded => ("UNAVAILABLE", "The model is overloaded.", Vec::new()),
        Fault::Failed => ("INTERNAL", "An internal error has occurred.", Vec::new()),
        Fault::TimedOut => ("DEADLINE_EXCEEDED", "Deadline expired.", Vec::new()),
        Fault::Rejected { status: 404, complaint } => ("NOT_FOUND", *complaint, Vec::new()),
        Fault::Rejected { complaint, .. } => ("INVALID_ARGUMENT", *complaint, Vec::new()),
    };
    let is_too_large = matches!(fault, Fault::TooLarge { .. });
    let status = if is_too_large { 400 } else { usual_status(fault) };
    let error = json!({ "code": status, "message": message, "status": word, "details": details });
    (status, json!({ "error": error }))
}

fn retry_info(wait: Duration) -> Value {
    // As protobuf writes a duration: seconds with a fraction of nine digits.
    let delay = format!("{}.{:09}s", wait.as_secs(), wait.subsec_nanos());
    json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay })
}

/// Problem details (RFC 9457) with the types of the draft, where it has one.
fn problem(fault: &Fault<'_>) -> (u16, Value) {
    let of_draft = |name: &str| format!("https://iana.org/assignments/http-problem-types#{name}");
    let (status, kind, policy) = match fault {
        Fault::RateLimited { meter, .. } => {
            let policy = format!("{}-per-{}", unit(*meter), window(*meter));
            (429, of_draft("quota-exceeded"), Some(policy))
        }
        Fault::SlowDown => (429, of_draft("abnormal-usage-detected"), None),
        Fault::TooManyOpen { .. } => {
            (429, of_draft("quota-exceeded"), Some("concurrency".to_owned()))
        }
        Fault::Overloaded => (503, of_draft("temporary-reduced-capacity"), None),
        Fault::TooLarge { .. } => (413, "about:blank".to_owned(), None),
        Fault::AccountExhausted => (402, "about:blank".to_owned(), None),
        other => (usual_status(other), "about:blank".to_owned(), None),
    };
    let mut body = json!({ "type": kind, "status": status });
    if let Some(policy) = policy {
        body["violated-policies"] = json!([policy]);
    }
    if let Fault::Rejected { complaint, .. } = fault {
        body["detail"] = json!(complaint);
    }
    (status, body)
}

const fn unit(meter: Meter) -> &'static str {
    match meter {
        Meter::Requests | Meter::RequestsPerDay => "requests",
        _ => "tokens",
    }
}

const fn window(meter: Meter) -> &'static str {
    match meter {
        Meter::RequestsPerDay | Meter::TokensPerDay => "day",
        _ => "minute",
    }
}
