//! What a provider says about its own future in the headers of any answer: deprecation and sunset.
//!
//! `Deprecation` (RFC 9745) is an instant as a structured-field date, `@1688169599`; the drafts before it
//! had `true` or an HTTP date, which providers still send. `Sunset` (RFC 8594) is an HTTP date.

use chrono::{DateTime, Utc};
use http::HeaderMap;
use memchr::memmem;

/// Longest name of a model that is kept.
const MODEL_LEN_MAX: usize = 100;
/// How many `"model"` keys of a part of an answer are tried.
const KEYS_MAX: usize = 8;

/// From when on something is deprecated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// From this instant on; it may lie ahead.
    At(DateTime<Utc>),
    /// The provider does not say since when.
    Undated,
}

/// The notices of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// What was asked for is deprecated, and since when.
    pub deprecated: Option<Since>,
    /// When it stops answering.
    pub sunset: Option<DateTime<Utc>>,
}

/// Reads the notices of an answer. What is no date says nothing.
#[must_use]
pub fn read_notices(headers: &HeaderMap) -> Notices {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    Notices {
        deprecated: text("deprecation").and_then(read_since),
        sunset: text("sunset").and_then(read_http_date),
    }
}

fn read_since(text: &str) -> Option<Since> {
    if let Some(seconds) = text.strip_prefix('@') {
        return DateTime::from_timestamp(seconds.parse().ok()?, 0).map(Since::At);
    }
    // `?1` is a structured field's true.
    if matches!(text, "true" | "?1") {
        return Some(Since::Undated);
    }
    read_http_date(text).map(Since::At)
}

fn read_http_date(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc2822(text).ok().map(|at| at.with_timezone(&Utc))
}

/// The model that an answer names, from the beginning of its body or, where that is only data, from
/// its end. Inside a JSON string a quote is escaped, so the bytes `"model"` are always a key.
#[must_use]
pub fn answered_model(part: &[u8]) -> Option<&str> {
    let key = br#""model""#;
    let mut places = memmem::find_iter(part, key).take(KEYS_MAX);
    places.find_map(|at| model_after(&part[at + key.len()..]))
}

fn model_after(rest: &[u8]) -> Option<&str> {
    let value =
        rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    let name = &value[..memchr::memchr(b'"', value)?];
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'\\';
    let fits = !name.is_empty() && name.len() <= MODEL_LEN_MAX && name.iter().all(is_plain);
    std::str::from_utf8(name).ok().filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    fn read(name: &'static str, text: &str) -> Notices {
        let value = HeaderValue::from_str(text).expect("visible text");
        read_notices(&HeaderMap::from_iter([(HeaderName::from_static(name), value)]))
    }

    #[test]
    fn both_generations_of_deprecation_are_read() {
        let at = |text: &str| Some(Since::At(text.parse().expect("an instant")));
        let check =
            |text: &str, expected| assert_eq!(read("deprecation", text).deprecated, expected);
        check("@1688169599", at("2023-06-30T23:59:59Z"));
        check("Sun, 11 Nov 2018 23:59:59 GMT", at("2018-11-11T23:59:59Z"));
        check("true", Some(Since::Undated));
        for nothing in ["", "false", "@", "@soon", "@99999999999999999", "version=2"] {
            check(nothing, None);
        }
        let sunset = read("sunset", "Wed, 11 Nov 2026 11:11:11 GMT").sunset;
        assert_eq!(sunset, Some("2026-11-11T11:11:11Z".parse().expect("an instant")));
        assert_eq!(read("sunset", "2026-11-11").sunset, None);
    }

    #[test]
    fn the_model_is_a_key_and_never_what_a_model_wrote() {
        let check = |body: &str, expected: Option<&str>| {
            assert_eq!(answered_model(body.as_bytes()), expected, "{body}");
        };
        check(
            r#"{"object":"list","data":[],"model" : "gpt-x-2026-05-01"}"#,
            Some("gpt-x-2026-05-01"),
        );
        check("data: {\"id\":\"1\",\"model\":\"a/b:free\",\"choices\":[]}", Some("a/b:free"));
        check(r#"{"choices":[{"text":"say \"model\":\"x\""}]}"#, None);
        check(r#"{"model":null,"x":{"model":"late"}}"#, Some("late"));
        check(r#"{"model":"cut"#, None);
        check(r#"{"model":"two words"}"#, None);
        check(&format!(r#"{{"model":"{}"}}"#, "m".repeat(MODEL_LEN_MAX + 1)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[ -~]*") {
            let _ = answered_model(&bytes);
            let _ = read("deprecation", &text);
        }
    }
}
