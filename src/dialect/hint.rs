//! How long an answer asks its reader to wait, and where it says so.
//!
//! The literal hint, whatever the class and however long: capping it is a decision, and decisions are
//! not made here. `retry-after-ms` comes before `retry-after`, a header before the message's prose.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{HeaderMap, header};

use crate::dialect::class::HintSource;
use crate::dialect::span::{parse_decimal, parse_go_duration};

/// What prose says before a span.
const LEAD_INS: [&str; 3] = ["try again in ", "retry after ", "retry in "];

/// Reads the hint of an answer whose error message is `message`.
pub(super) fn read_hint(
    headers: &HeaderMap,
    message: &str,
    now: Option<DateTime<Utc>>,
) -> Option<(Duration, HintSource)> {
    let from_ms = longest(headers, "retry-after-ms", |member| {
        parse_decimal(member, Duration::from_millis(1)).filter(|span| !span.is_zero())
    });
    from_ms
        .map(|span| (span, HintSource::RetryAfterMs))
        .or_else(|| {
            longest(headers, "retry-after", |member| parse_decimal(member, Duration::from_secs(1)))
                .map(|span| (span, HintSource::RetryAfter))
        })
        .or_else(|| from_date(headers, now).map(|span| (span, HintSource::RetryAfterDate)))
        .or_else(|| from_prose(message).map(|span| (span, HintSource::Message)))
}

/// The longest valid member: a proxy may have added its own hint to the provider's.
fn longest(
    headers: &HeaderMap,
    name: &str,
    parse: impl Fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    let lines = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).filter_map(parse).max()
}

/// An HTTP date, counted from the answer's own `Date` so that a skewed clock does not matter. The
/// past is a wait of zero.
fn from_date(headers: &HeaderMap, now: Option<DateTime<Utc>>) -> Option<Duration> {
    let date = |name| {
        let text = headers.get(name)?.to_str().ok()?;
        DateTime::parse_from_rfc2822(text.trim()).ok().map(|at| at.with_timezone(&Utc))
    };
    let until = date(header::RETRY_AFTER)?;
    let from = date(header::DATE).or(now)?;
    Some((until - from).to_std().unwrap_or(Duration::ZERO))
}

/// "Please try again in 7m12s." or "Please retry after 3 seconds".
fn from_prose(message: &str) -> Option<Duration> {
    let lower = message.to_ascii_lowercase();
    LEAD_INS.iter().find_map(|lead_in| {
        let after = lower.split_once(lead_in)?.1;
        let end = after.find(|c: char| c.is_whitespace() || ",;)".contains(c));
        let (span, rest) = after.split_at(end.unwrap_or(after.len()));
        let span = span.trim_end_matches('.');
        parse_go_duration(span).or_else(|| parse_decimal(span, unit_word(rest)?))
    })
}

fn unit_word(text: &str) -> Option<Duration> {
    let word: String = text.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    match word.as_str() {
        "ms" | "milliseconds" => Some(Duration::from_millis(1)),
        "s" | "second" | "seconds" => Some(Duration::from_secs(1)),
        "minute" | "minutes" => Some(Duration::from_mins(1)),
        "hour" | "hours" => Some(Duration::from_hours(1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn check(headers: &[(&str, &str)], message: &str, expected: Option<(f64, HintSource)>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            map.append(name, HeaderValue::from_str(value).expect("a header value"));
        }
        let now = "2026-11-29T12:00:00Z".parse().expect("an instant");
        let read = read_hint(&map, message, Some(now));
        let read = read.map(|(span, source)| (span.as_secs_f64(), source));
        assert_eq!(read, expected, "{headers:?} {message}");
    }

    #[test]
    fn milliseconds_come_before_seconds_and_headers_before_prose() {
        use HintSource::{Message, RetryAfter, RetryAfterMs};
        let both = [("retry-after", "30"), ("retry-after-ms", "511")];
        check(&both, "", Some((0.511, RetryAfterMs)));
        check(&[("retry-after", "5")], "Please try again in 20s.", Some((5.0, RetryAfter)));
        check(&[], "Please try again in 20s.", Some((20.0, Message)));
        check(&[("retry-after", "2.5")], "", Some((2.5, RetryAfter)));
        check(&[("retry-after", "3, 7")], "", Some((7.0, RetryAfter)));
        check(&[("retry-after-ms", "0"), ("retry-after", "1")], "", Some((1.0, RetryAfter)));
    }

    #[test]
    fn dates_count_from_the_answers_own_date() {
        let until = ("retry-after", "Sun, 29 Nov 2026 12:00:30 GMT");
        let date = ("date", "Sun, 29 Nov 2026 12:00:10 GMT");
        check(&[until, date], "", Some((20.0, HintSource::RetryAfterDate)));
        check(&[until], "", Some((30.0, HintSource::RetryAfterDate)));
        let past = ("retry-after", "Sun, 29 Nov 2026 11:00:00 GMT");
        check(&[past], "", Some((0.0, HintSource::RetryAfterDate)));
    }

    #[test]
    fn garbage_is_no_hint() {
        for value in ["-5", "soon", "1e9", "NaN", "inf", "5s", ""] {
            check(&[("retry-after", value)], "", None);
        }
        check(&[], "Please try again in a moment", None);
    }

    #[test]
    fn prose_in_several_forms() {
        let message = |text, seconds| check(&[], text, Some((seconds, HintSource::Message)));
        message("Requested 385. Please try again in 644ms. Visit", 0.644);
        message("Please try again in 7m12s.", 432.0);
        message("Please retry after 3 seconds.", 3.0);
        message("Please retry in 20.5s.", 20.5);
        message("try again in 2 minutes", 120.0);
    }
}
