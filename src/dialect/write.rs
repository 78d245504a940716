//! The same dialects in the other direction: meters and errors in the words of a provider.
//!
//! For the simulated provider. What is written here is read back by [`crate::dialect::classify`] as what it
//! was, as far as the form can carry it: Azure, Anthropic and the IETF's fields have whole seconds,
//! Gemini has no headers at all, and the older fields of the IETF have room for one meter.

mod error;

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use http::HeaderName;
use serde::Deserialize;

use crate::dialect::meter::{Meter, MeterReading, tightest_requests};
use crate::dialect::provider::Provider;
use crate::dialect::span::format_go_duration;
use crate::dialect::table::{ResetForm, Row};

pub use error::{ErrorAnswer, Fault, write_error};

/// A dialect that can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// OpenAI, and most that copy it.
    #[default]
    #[serde(rename = "openai")]
    OpenAi,
    /// Azure OpenAI: whole seconds, and the status as code.
    Azure,
    /// Anthropic: resets are instants.
    Anthropic,
    /// Google's Gemini API: everything is in the body.
    Gemini,
    /// `RateLimit` and `RateLimit-Policy` of the drafts 08 to 10, problem details.
    Ietf,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset` of the drafts 00 to 06.
    IetfFields,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 6] =
        [Self::OpenAi, Self::Azure, Self::Anthropic, Self::Gemini, Self::Ietf, Self::IetfFields];

    /// The provider that reads it.
    ///
    /// # Panics
    /// Never: every dialect that is written has a table.
    #[must_use]
    pub fn provider(self) -> Provider {
        let name = match self {
            Self::OpenAi => "openai",
            Self::Azure => "azure-openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ietf | Self::IetfFields => "ietf",
        };
        Provider::named(name).expect("every dialect that is written has a table")
    }
}

/// Writes meters and a hint as headers. Unknown parts, and meters that the dialect has no header for,
/// are left out; a reset is rounded up, so that nobody comes early. `now` is for resets that are
/// instants.
#[must_use]
pub fn write_headers(
    dialect: Dialect,
    meters: &[MeterReading],
    hint: Option<Duration>,
    now: DateTime<Utc>,
) -> Vec<(HeaderName, String)> {
    let mut headers = match dialect {
        Dialect::Gemini => return Vec::new(),
        Dialect::OpenAi | Dialect::Azure | Dialect::Anthropic => {
            let rows = dialect.provider().own_rows();
            meters.iter().flat_map(|reading| by_row(rows, reading, now)).collect()
        }
        Dialect::Ietf => items(meters),
        Dialect::IetfFields => fields(meters),
    };
    if let Some(hint) = hint {
        if matches!(dialect, Dialect::OpenAi | Dialect::Azure) {
            let ms = hint.as_nanos().div_ceil(1_000_000);
            headers.push((HeaderName::from_static("retry-after-ms"), ms.to_string()));
        }
        headers.push((http::header::RETRY_AFTER, whole_seconds(hint).to_string()));
    }
    headers
}

fn by_row(rows: &[Row], reading: &MeterReading, now: DateTime<Utc>) -> Vec<(HeaderName, String)> {
    let Some(row) = rows.iter().find(|row| row.meter == reading.meter) else { return Vec::new() };
    let reset = reading.reset.map(|reset| match row.form {
        ResetForm::Go => format_go_duration(reset),
        ResetForm::Seconds => whole_seconds(reset).to_string(),
        ResetForm::Rfc3339 => {
            let at = chrono::TimeDelta::try_seconds(whole_seconds(reset).try_into().unwrap_or(0));
            let at = at.and_then(|span| now.checked_add_signed(span)).unwrap_or(now);
            at.to_rfc3339_opts(SecondsFormat::Secs, true)
        }
    });
    let parts = [
        (&row.limit, reading.limit.map(count)),
        (&row.remaining, reading.remaining.map(count)),
        (&row.reset, reset),
    ];
    parts.into_iter().filter_map(|(name, value)| Some((name.clone()?, value?))).collect()
}

/// `RateLimit: "requests";r=50;t=30` with `RateLimit-Policy: "requests";q=100;w=60`.
fn items(meters: &[MeterReading]) -> Vec<(HeaderName, String)> {
    let mut states = Vec::new();
    let mut policies = Vec::new();
    for reading in meters {
        let unit = match reading.meter.unit() {
            crate::dialect::Unit::Requests => "",
            crate::dialect::Unit::Tokens => ";qu=\"tokens\"",
            crate::dialect::Unit::Other if reading.meter == Meter::Concurrency => {
                ";qu=\"concurrent-requests\""
            }
            crate::dialect::Unit::Other => continue,
        };
        let name = reading.meter.word();
        let part = |key: &str, value: Option<String>| {
            value.map_or_else(String::new, |value| format!(";{key}={value}"))
        };
        let reset = reading.reset.map(|reset| whole_seconds(reset).to_string());
        let window = reading.window.map(|window| window.as_secs().to_string());
        let left = part("r", reading.remaining.map(count));
        states.push(format!("\"{name}\"{left}{}", part("t", reset)));
        let limit = part("q", reading.limit.map(count));
        policies.push(format!("\"{name}\"{limit}{unit}{}", part("w", window)));
    }
    if states.is_empty() {
        return Vec::new();
    }
    vec![
        (HeaderName::from_static("ratelimit"), states.join(", ")),
        (HeaderName::from_static("ratelimit-policy"), policies.join(", ")),
    ]
}

/// `RateLimit-Limit: 100, 100;w=60` and two more, for the request meter that matters most.
fn fields(meters: &[MeterReading]) -> Vec<(HeaderName, String)> {
    let Some(reading) = tightest_requests(meters) else { return Vec::new() };
    let limit = reading.limit.map(|limit| {
        let limit = count(limit);
        let policy = reading.window.map(|window| format!(", {limit};w={}", window.as_secs()));
        limit + &policy.unwrap_or_default()
    });
    let reset = reading.reset.map(|reset| whole_seconds(reset).to_string());
    let parts = [
        ("ratelimit-limit", limit),
        ("ratelimit-remaining", reading.remaining.map(count)),
        ("ratelimit-reset", reset),
    ];
    let written = |(name, value): (&'static str, Option<String>)| {
        Some((HeaderName::from_static(name), value?))
    };
    parts.into_iter().filter_map(written).collect()
}

fn count(count: f64) -> String {
    format!("{count:.0}")
}

/// Rounded up: who comes early is refused again.
fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests;
