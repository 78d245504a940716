//! One answer of `weir classify`, as it is read and as its meaning is printed.
//!
//! Reads no file and prints nothing.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value as Json, json};

use super::wire::{self, Raw};
use crate::dialect::{
    Answer, Class, Classified, Meter, MeterReading, Provider, Unit, class_without_answer, classify,
    tightest_requests, tightest_tokens,
};

/// How many headers of an answer are looked at; servers stop at 100 or so.
const HEADERS_MAX: usize = 1_000;

/// An answer, or the end of a request that got none.
#[derive(Debug, Default, Deserialize)]
pub struct Line {
    /// Echoed.
    #[serde(default)]
    pub id: Json,
    /// Whose answer it is.
    #[serde(default)]
    pub provider: Option<String>,
    /// Its status, as a number or text; null for a request without an answer.
    #[serde(default, deserialize_with = "status")]
    status: Option<u16>,
    /// Each name with its value.
    #[serde(default, deserialize_with = "headers")]
    headers: Vec<(String, Json)>,
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
    pub fn from_http(text: &[u8]) -> Result<Self, String> {
        let Raw { status, headers, body } = wire::parse(text)?;
        let headers = headers.into_iter().map(|(name, value)| (name, json!(value))).collect();
        let body = json!(String::from_utf8_lossy(&body));
        Ok(Self { status: Some(status), headers, body, ..Self::default() })
    }

    /// An object with the fields of a line.
    ///
    /// # Errors
    /// What is wrong with a field, or that there is nothing that says how the request ended.
    pub fn from_json(line: &Json) -> Result<Self, String> {
        if ["status", "transport"].iter().all(|name| line.get(name).is_none()) {
            let what = match line {
                Json::Object(fields) if fields.is_empty() => "the object is empty",
                Json::Object(_) => "it has no `status`, as if it were a body alone",
                _ => "it is no object",
            };
            return Err(what.to_owned());
        }
        Self::deserialize(line).map_err(|error| error.to_string())
    }

    /// What it means to `provider`; `now` is for instants in an answer that names no clock of its own.
    ///
    /// # Errors
    /// What is wrong with a header.
    pub fn classify(&self, provider: Provider, now: DateTime<Utc>) -> Result<Classified, String> {
        let headers = self.header_map()?;
        let body = match &self.body {
            Json::Null => String::new(),
            Json::String(text) => text.clone(),
            tree => tree.to_string(),
        };
        let status = self.status.unwrap_or_default();
        let answer = Answer { status, headers: &headers, body: body.as_bytes() };
        let mut classified = classify(&answer, provider, self.now.or(Some(now)));
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
        for (name, value) in self.headers.iter().take(HEADERS_MAX) {
            // Events of AWS streams have `:exception-type` and the like.
            let name = HeaderName::from_bytes(name.trim_start_matches(':').as_bytes())
                .map_err(|_| format!("`{name}` is no name of a header"))?;
            let one = std::slice::from_ref(value);
            for value in value.as_array().map_or(one, Vec::as_slice) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let value = HeaderValue::from_bytes(text.trim().as_bytes())
                    .map_err(|_| format!("`{name}` has a value with control characters"))?;
                map.try_append(&name, value).map_err(|_| "there are too many headers")?;
            }
        }
        Ok(map)
    }
}

/// 429, or "429".
fn status<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u16>, D::Error> {
    match Json::deserialize(value)? {
        Json::String(text) => {
            let wrong = |_| D::Error::custom(format!("`{text}` is no status"));
            text.trim().parse().map(Some).map_err(wrong)
        }
        value => Option::deserialize(value).map_err(D::Error::custom),
    }
}

/// An object of names, each with a value or a list of them; a list of pairs; or one of objects with
/// `name` and `value`, as HTTP archives have.
fn headers<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<(String, Json)>, D::Error> {
    let pair = |item: Json| match &item {
        Json::Array(pair) => match pair.as_slice() {
            [Json::String(name), value] => Some((name.clone(), value.clone())),
            _ => None,
        },
        item => Some((item.get("name")?.as_str()?.to_owned(), item.get("value")?.clone())),
    };
    let pairs = match Json::deserialize(value)? {
        Json::Null => Some(Vec::new()),
        Json::Object(fields) => Some(fields.into_iter().collect()),
        Json::Array(items) => items.into_iter().map(pair).collect(),
        _ => None,
    };
    pairs.ok_or_else(|| D::Error::custom("`headers` is no object and no list of name and value"))
}

/// The meaning as the contract's JSON: `id`, the fields, `why`.
pub fn in_json(id: &Json, seen: &Classified) -> Json {
    let requests = refusing(seen, Unit::Requests).or_else(|| tightest_requests(&seen.meters));
    let tokens = refusing(seen, Unit::Tokens).or_else(|| tightest_tokens(&seen.meters));
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
        let of = if meter.unit() == Unit::Tokens { "tokens" } else { "requests" };
        raw.insert(format!("remaining_{of}"), count(Some(*negative)));
    }
    if !raw.is_empty() {
        line["raw"] = Json::Object(raw);
    }
    line["why"] = json!(seen.why);
    line
}

/// The empty meter of this unit that the verdict names; another may be empty too.
fn refusing(seen: &Classified, unit: Unit) -> Option<&MeterReading> {
    let is_it = |one: &&MeterReading| Some(one.meter) == seen.meter && one.is_empty();
    seen.meters.iter().filter(|one| one.meter.unit() == unit).find(is_it)
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
