//! The walk through a JSON document: which field of which name is which fact.

use std::fmt;

use http::{HeaderName, HeaderValue};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{QUOTA_OF_ZERO, Said, keep};
use crate::dialect::span::{parse_decimal, parse_go_duration};

/// How deep the walk goes; the deepest real error has six levels.
const DEPTH_MAX: usize = 12;
/// How many items of a list are looked at.
const ITEMS_MAX: usize = 16;
/// How many repeated headers are kept.
const HEADERS_MAX: usize = 16;

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// Holds others.
    Container,
    /// Holds others and makes the document an error; a text in it is a message.
    Error,
    Code,
    Kind,
    /// A number is the status, a word is a reason.
    Status,
    Reason,
    /// That there is one tells whose envelope it is.
    RequestId,
    Quota,
    QuotaValue,
    QuotaCurrent,
    Message,
    RetryDelay,
    QuotaResetDelay,
    EstimatedTime,
    Headers,
}

/// Every name that is known.
fn field(name: &str) -> Option<Field> {
    Some(match name {
        "error" | "errors" | "Error" => Field::Error,
        "detail" | "message" | "Message" | "msg" | "error_msg" | "error_message" | "title"
        | "description" | "raw" => Field::Message,
        "details" | "metadata" | "meta" | "violations" | "response" | "fault" => Field::Container,
        "code" | "error_code" | "errorCode" | "err_code" | "tag" | "__type" => Field::Code,
        "type" | "error_type" => Field::Kind,
        "status" | "statusCode" | "raw_status_code" | "originalStatusCode" => Field::Status,
        "reason" | "limit_source" => Field::Reason,
        "request_id" => Field::RequestId,
        "quotaId" | "quotaMetric" | "quota_metric" | "quota_limit" | "violated-policies" => {
            Field::Quota
        }
        "quotaValue" => Field::QuotaValue,
        "quota_current" => Field::QuotaCurrent,
        "retryDelay" => Field::RetryDelay,
        "quotaResetDelay" => Field::QuotaResetDelay,
        "estimated_time" => Field::EstimatedTime,
        "headers" => Field::Headers,
        // Streams of AWS name an error by its key.
        name if name.ends_with("Exception") => Field::Error,
        _ => return None,
    })
}

/// Walks `text`, as far as it is JSON.
pub(super) fn json(said: &mut Said, text: &[u8]) {
    let mut document = serde_json::Deserializer::from_slice(text);
    // A document that breaks off has said what came before.
    let _ = Node { said, field: Field::Container, depth: 0 }.deserialize(&mut document);
}

/// One value of the document.
struct Node<'a> {
    said: &'a mut Said,
    field: Field,
    depth: usize,
}

impl Node<'_> {
    fn text(self, text: &str) {
        let Self { said, field, depth } = self;
        match field {
            // Namespaces of AWS, and URIs of problem types, end in the name.
            Field::Code => keep(&mut said.codes, after_hash(text)),
            Field::Kind => {
                // A whole document, or event, that calls itself an error.
                said.is_error |= depth == 1 && text == "error";
                keep(&mut said.kinds, after_hash(text));
            }
            Field::RequestId => keep(&mut said.reasons, "request_id"),
            Field::Status | Field::Reason => keep(&mut said.reasons, text),
            Field::Quota => keep(&mut said.quotas, text),
            Field::QuotaValue if text == "0" => keep(&mut said.reasons, QUOTA_OF_ZERO),
            Field::RetryDelay => said.retry_delay = parse_go_duration(text).or(said.retry_delay),
            Field::QuotaResetDelay => {
                said.quota_reset_delay = parse_go_duration(text).or(said.quota_reset_delay);
            }
            Field::Error | Field::Message => {
                said.is_error |= field == Field::Error && !text.trim().is_empty();
                if text.trim_start().starts_with(['{', '[']) && depth < DEPTH_MAX {
                    let mut document = serde_json::Deserializer::from_str(text);
                    let inside = Node { said, field: Field::Container, depth: depth + 1 };
                    let _ = inside.deserialize(&mut document);
                } else {
                    said.message(text);
                }
            }
            _ => {}
        }
    }

    fn number(self, number: f64) {
        let Self { said, field, .. } = self;
        match field {
            Field::Code => {
                said.status = as_status(number).or(said.status);
                keep(&mut said.codes, &number.to_string());
            }
            Field::Status => said.status = as_status(number).or(said.status),
            Field::Quota => said.quota_limit = Some(number),
            Field::QuotaCurrent => said.quota_current = Some(number),
            Field::QuotaValue if number == 0.0 => keep(&mut said.reasons, QUOTA_OF_ZERO),
            Field::EstimatedTime => {
                said.estimated_time = std::time::Duration::try_from_secs_f64(number).ok();
            }
            Field::RetryDelay => {
                let second = std::time::Duration::from_secs(1);
                said.retry_delay = parse_decimal(&number.to_string(), second).or(said.retry_delay);
            }
            _ => {}
        }
    }
}

fn after_hash(text: &str) -> &str {
    text.rsplit('#').next().unwrap_or(text)
}

/// A status of an error.
fn as_status(number: f64) -> Option<u16> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounds checked")]
    (400.0..600.0).contains(&number).then_some(number as u16)
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.text(text);
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "codes and seconds are small")]
    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.number(number as f64);
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "codes and seconds are small")]
    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.number(number as f64);
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.number(number);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { said, field, depth } = self;
        for _ in 0..ITEMS_MAX {
            if depth >= DEPTH_MAX {
                break;
            }
            if items.next_element_seed(Node { said, field, depth: depth + 1 })?.is_none() {
                return Ok(());
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { said, field, depth } = self;
        said.is_error |= field == Field::Error;
        let mut seen = 0;
        while let Some(name) = entries.next_key_seed(Name)? {
            seen += 1;
            match name.1 {
                _ if field == Field::Headers && seen <= HEADERS_MAX => {
                    keep_header(said, &name.0, entries.next_value_seed(Scalar)?);
                }
                _ if field == Field::Headers => drop(entries.next_value::<IgnoredAny>()?),
                Some(field) if depth < DEPTH_MAX => {
                    if name.0.ends_with("Exception") {
                        keep(&mut said.codes, &name.0);
                    }
                    entries.next_value_seed(Node { said, field, depth: depth + 1 })?;
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

fn keep_header(said: &mut Said, name: &str, value: Option<String>) {
    let name = HeaderName::from_bytes(name.as_bytes());
    let value = value.and_then(|text| HeaderValue::from_str(&text).ok());
    if let (Ok(name), Some(value)) = (name, value) {
        said.headers.insert(name, value);
    }
}

/// A text or a number as text; whatever else there is, is nothing.
struct Scalar;

impl<'de> DeserializeSeed<'de> for Scalar {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scalar {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// A field's name, kept only if it is short, and what it stands for.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = (String, Option<Field>);

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = (String, Option<Field>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        const NAME_LEN_MAX: usize = 100;
        let name = if name.len() <= NAME_LEN_MAX { name } else { "" };
        Ok((name.to_owned(), field(name)))
    }
}
