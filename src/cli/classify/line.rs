//! One answer of `weir classify`, as it is read and as its meaning is printed.
//!
//! Reads no file and prints nothing.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::dialect::{
    Answer, Class, Classified, Meter, MeterReading, Provider, class_without_answer, classify,
    tightest_requests, tightest_tokens,
};

/// An answer, or the end of a request that got none.
#[derive(Debug, Default, Deserialize)]
pub struct Line {
    /// Echoed.
    #[serde(default)]
    pub id: Json,
    /// Whose answer it is.
    #[serde(default)]
    pub provider: Option<String>,
    /// Its status; null for a request without an answer.
    #[serde(default)]
    status: Option<u16>,
    /// Name and value, or a list of values.
    #[serde(default)]
    headers: Map<String, Json>,
    /// JSON, text or nothing.
    #[serde(default)]
    body: Json,
    /// When it arrived, for resets that are instants.
    #[serde(default)]
    now: Option<DateTime<Utc>>,
    /// How a request without an answer ended.
    #[serde(default)]
    transport: Option<String>,
    /// Whether the stream had begun.
    #[serde(default)]
    mid_stream: bool,
}

impl Line {
    /// An HTTP answer as it went over the wire.
    ///
    /// # Errors
    /// What is wrong with its first line or a header.
    pub fn from_http(text: &str) -> Result<Self, String> {
        let (head, body) =
            text.split_once("\r\n\r\n").or_else(|| text.split_once("\n\n")).unwrap_or((text, ""));
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default();
        let status = first.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| format!("`{first}` has no status"))?;
        let mut headers = Map::new();
        for line in lines {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| format!("`{line}` is no header; write `name: value`"))?;
            let values = headers.entry(name.trim()).or_insert_with(|| json!([]));
            if let Json::Array(values) = values {
                values.push(json!(value.trim()));
            }
        }
        Ok(Self { status: Some(status), headers, body: json!(body), ..Self::default() })
    }

    /// What it means to `provider`.
    ///
    /// # Errors
    /// What is wrong with a header.
    pub fn classify(&self, provider: Provider) -> Result<Classified, String> {
        let headers = self.header_map()?;
        let body = match &self.body {
            Json::Null => String::new(),
            Json::String(text) => text.clone(),
            tree => tree.to_string(),
        };
        let status = self.status.unwrap_or_default();
        let answer = Answer { status, headers: &headers, body: body.as_bytes() };
        let mut classified = classify(&answer, provider, self.now);
        if self.status.is_none() {
            let ended = self.transport.as_deref().unwrap_or("no answer");
            classified.class = class_without_answer(ended);
            classified.why = format!("no answer: {ended}");
        } else if classified.class == Class::Success
            && (self.mid_stream || self.transport.is_some())
        {
            let ended = self.transport.as_deref().unwrap_or("the stream ended early");
            classified.class = class_without_answer(ended);
            classified.why = format!("broke off after status {status}: {ended}");
        }
        Ok(classified)
    }

    fn header_map(&self) -> Result<HeaderMap, String> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            // Events of AWS streams have `:exception-type` and the like.
            let name = HeaderName::from_bytes(name.trim_start_matches(':').as_bytes())
                .map_err(|_| format!("`{name}` is no name of a header"))?;
            let one = std::slice::from_ref(value);
            for value in value.as_array().map_or(one, Vec::as_slice) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let value = HeaderValue::from_bytes(text.trim().as_bytes())
                    .map_err(|_| format!("`{name}` has a value with control characters"))?;
                map.append(&name, value);
            }
        }
        Ok(map)
    }
}

/// The meaning as the contract's JSON: `id`, the fields, `why`.
pub fn in_json(id: &Json, seen: &Classified) -> Json {
    let requests = tightest_requests(&seen.meters);
    let tokens = tightest_tokens(&seen.meters);
    let limit = |reading: Option<&MeterReading>| count(reading.and_then(|one| one.limit));
    let remaining = |reading: Option<&MeterReading>| count(reading.and_then(|one| one.remaining));
    let reset = |reading: Option<&MeterReading>| seconds(reading.and_then(|one| one.reset));
    let window = |reading: Option<&MeterReading>| seconds(reading.and_then(|one| one.window));
    let (binding, binding_ext) = binding(seen.meter);
    let mut line = json!({
        "id": id,
        "class": seen.class.word(),
        "retry_after_s": seconds(seen.hint),
        "limit_requests": limit(requests),
        "remaining_requests": remaining(requests),
        "reset_requests_s": reset(requests),
        "limit_tokens": limit(tokens),
        "remaining_tokens": remaining(tokens),
        "reset_tokens_s": reset(tokens),
        "binding": binding,
        "hint_source": seen.hint_source.map(crate::dialect::HintSource::word),
        "binding_ext": binding_ext,
        "requests_window_s": window(requests),
        "tokens_window_s": window(tokens),
        "absurd": seen.absurd,
    });
    let mut raw = Map::new();
    for (meter, negative) in &seen.negative {
        let of = if meter.unit() == crate::dialect::Unit::Tokens { "tokens" } else { "requests" };
        raw.insert(format!("remaining_{of}"), count(Some(*negative)));
    }
    if !raw.is_empty() {
        line["raw"] = Json::Object(raw);
    }
    line["why"] = json!(seen.why);
    line
}

/// The contract has two fields for the meter: `binding` for the four that everybody has, and another
/// for the rest.
const fn binding(meter: Option<Meter>) -> (Option<&'static str>, Option<&'static str>) {
    match meter {
        None => (None, None),
        Some(Meter::Requests) => (Some("rpm"), None),
        Some(Meter::Tokens | Meter::InputTokens | Meter::OutputTokens) => (Some("tpm"), None),
        Some(Meter::RequestsPerDay) => (Some("rpd"), None),
        Some(Meter::Spend) => (Some("spend"), None),
        Some(Meter::RequestsPerSecond) => (None, Some("rps")),
        Some(Meter::RequestsPerHour) => (None, Some("rph")),
        Some(Meter::RequestsPerMonth) => (None, Some("rpmonth")),
        Some(Meter::TokensPerDay) => (None, Some("tpd")),
        Some(Meter::TokensPerMonth) => (None, Some("tpmonth")),
        Some(Meter::Concurrency) => (None, Some("concurrency")),
    }
}

/// A whole number without a fraction, as providers write it.
fn count(number: Option<f64>) -> Json {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match number {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact floats")]
        Some(whole) if whole.fract() == 0.0 && whole.abs() < EXACT_MAX => json!(whole as i64),
        number => json!(number),
    }
}

fn seconds(span: Option<Duration>) -> Json {
    count(span.map(|span| span.as_secs_f64()))
}
