//! How long an answer asks its reader to wait, and where it says so.
//!
//! The literal hint, whatever the class and however long: capping it is a decision, and decisions are
//! not made here. Milliseconds come before seconds, a header before the body, and in the body a typed
//! field before prose. Of several valid members the longest counts: a proxy may have added its own.

use std::time::Duration;

use http::{HeaderMap, HeaderName, header};

use crate::dialect::class::HintSource;
use crate::dialect::moment::{Clock, parse_http_date};
use crate::dialect::said::Said;
use crate::dialect::span::{parse_decimal, parse_go_duration};

/// What is longer no limiter means: a day.
const SANE_MAX: Duration = Duration::from_hours(24);
/// How many members of a header are looked at.
const MEMBERS_MAX: usize = 32;
/// How many parts of a span in prose are added up: "1 hour 2 minutes 3 seconds".
const PARTS_MAX: usize = 4;

/// Headers in milliseconds, the most trusted first. Zero of them says nothing.
const IN_MS: [(&str, HintSource); 3] = [
    ("retry-after-ms", HintSource::RetryAfterMs),
    ("x-ms-retry-after-ms", HintSource::XMsRetryAfterMs),
    ("x-amz-retry-after", HintSource::XAmzRetryAfter),
];
/// What prose says before a span, in lower case.
const LEAD_INS: [&str; 7] = [
    "try again in ",
    "try again after ",
    "retry after ",
    "retry in ",
    "will reset after ",
    "replenished in ",
    "wait ",
];
/// What stands between it and the span: "in about 10 minutes".
const FILLERS: [&str; 6] = ["for", "about", "around", "approximately", "at", "least"];

/// A wait and where it was read.
pub(super) type Hint = (Duration, HintSource);

/// Whether a hint must be capped before anybody sleeps that long.
pub(super) fn is_absurd(hint: Duration) -> bool {
    hint > SANE_MAX
}

/// Reads the hint of an answer whose body says `said`.
pub(super) fn read_hint(headers: &HeaderMap, said: &Said, clock: Clock) -> Option<Hint> {
    from_headers(headers, clock)
        .or_else(|| said.retry_delay.map(|span| (span, HintSource::RetryDelay)))
        .or_else(|| said.quota_reset_delay.map(|span| (span, HintSource::QuotaResetDelay)))
        .or_else(|| {
            let span = said.messages.iter().find_map(|message| from_prose(message));
            span.map(|span| (span, HintSource::Message))
        })
        .or_else(|| said.estimated_time.map(|span| (span, HintSource::EstimatedTime)))
}

fn from_headers(headers: &HeaderMap, clock: Clock) -> Option<Hint> {
    let in_ms = IN_MS.iter().find_map(|(name, source)| {
        let name = HeaderName::from_static(name);
        let read = |member: &str| parse_decimal(member, Duration::from_millis(1));
        let longest = members(headers, &name).filter_map(read).max()?;
        (!longest.is_zero()).then_some((longest, *source))
    });
    in_ms.or_else(|| retry_after(headers, clock))
}

fn retry_after(headers: &HeaderMap, clock: Clock) -> Option<Hint> {
    let mut longest: Option<Hint> = None;
    let mut keep = |hint: Hint| {
        if longest.is_none_or(|kept| hint.0 > kept.0) {
            longest = Some(hint);
        }
    };
    // A date has a comma of its own: what follows a lone day of the week belongs to it.
    let mut day = None;
    for member in members(headers, &header::RETRY_AFTER) {
        let joined = day.take().map(|day| format!("{day}, {member}"));
        let text = joined.as_deref().unwrap_or(member);
        if let Some(span) = parse_decimal(text, Duration::from_secs(1)) {
            keep((span, HintSource::RetryAfter));
        } else if let Some(span) = parse_http_date(text).and_then(|at| clock.until(at)) {
            keep((span, HintSource::RetryAfterDate));
        } else if text.ends_with("day") || text.len() == 3 {
            day = Some(text.to_owned());
        }
    }
    longest
}

fn members<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).take(MEMBERS_MAX)
}

/// "Please try again in 7m12s.", "retry after 3 seconds", "wait 12 seconds" or "replenished in
/// 03:21:44"; `message` is in lower case.
fn from_prose(message: &str) -> Option<Duration> {
    let mut spans = LEAD_INS.iter().flat_map(|lead_in| message.split(lead_in).skip(1));
    spans.find_map(span_at_start)
}

fn span_at_start(text: &str) -> Option<Duration> {
    let words =
        text.split_ascii_whitespace().map(|word| word.trim_end_matches(['.', ',', ';', ')', '"']));
    let mut words = words.skip_while(|word| FILLERS.contains(word)).peekable();
    let mut total: Option<Duration> = None;
    for _ in 0..PARTS_MAX {
        if total.is_some() {
            let _ = words.next_if_eq(&"and");
        }
        let Some(word) = words.next() else { break };
        let part = parse_go_duration(word).or_else(|| clock_time(word)).or_else(|| {
            word.starts_with(|c: char| c.is_ascii_digit())
                .then(|| parse_decimal(word, unit_word(words.next()?)?))?
        });
        let Some(part) = part else { break };
        total = Some(total.unwrap_or_default().saturating_add(part));
    }
    total
}

/// "03:21:44", or "2.03:21:44" with days, as Azure's API management writes it.
fn clock_time(word: &str) -> Option<Duration> {
    let (days, word) = word.split_once('.').unwrap_or(("0", word));
    let days: u32 = days.parse().ok()?;
    let mut parts = word.split(':').map(|part| part.parse::<u32>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let of = |count: u32, unit_s: u64| u64::from(count) * unit_s;
    parts
        .next()
        .is_none()
        .then(|| of(days, 86_400) + of(hours, 3_600) + of(minutes, 60) + of(seconds, 1))
        .map(Duration::from_secs)
}

fn unit_word(word: &str) -> Option<Duration> {
    match word {
        "ms" | "milliseconds" => Some(Duration::from_millis(1)),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(Duration::from_secs(1)),
        "min" | "mins" | "minute" | "minutes" => Some(Duration::from_mins(1)),
        "hr" | "hrs" | "hour" | "hours" => Some(Duration::from_hours(1)),
        "day" | "days" => Some(Duration::from_hours(24)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(headers: &[(&str, &str)], message: &str, expected: Option<(f64, HintSource)>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            map.append(name, HeaderValue::from_str(value).expect("a header value"));
        }
        let now = "2026-11-29T12:00:00Z".parse().ok();
        let said = Said { messages: vec![message.to_ascii_lowercase()], ..Said::default() };
        let read = read_hint(&map, &said, Clock::of(&map, now));
        let read = read.map(|(span, source)| (span.as_secs_f64(), source));
        assert_eq!(read, expected, "{headers:?} {message}");
    }

    #[test]
    fn milliseconds_come_before_seconds_and_headers_before_prose() {
        use HintSource::{Message, RetryAfter, RetryAfterMs, XMsRetryAfterMs};
        let both = [("retry-after", "30"), ("retry-after-ms", "511")];
        check(&both, "", Some((0.511, RetryAfterMs)));
        check(&[("retry-after", "5")], "Please try again in 20s.", Some((5.0, RetryAfter)));
        check(&[], "Please try again in 20s.", Some((20.0, Message)));
        check(&[("retry-after", "2.5")], "", Some((2.5, RetryAfter)));
        check(&[("retry-after", "3, 7")], "", Some((7.0, RetryAfter)));
        check(&[("retry-after-ms", "0"), ("retry-after", "1")], "", Some((1.0, RetryAfter)));
        check(&[("x-ms-retry-after-ms", "2500")], "", Some((2.5, XMsRetryAfterMs)));
    }

    #[test]
    fn dates_count_from_the_answers_own_date() {
        use HintSource::{RetryAfter, RetryAfterDate};
        let until = ("retry-after", "Sun, 29 Nov 2026 12:00:30 GMT");
        let date = ("date", "Sun, 29 Nov 2026 12:00:10 GMT");
        check(&[until, date], "", Some((20.0, RetryAfterDate)));
        check(&[until], "", Some((30.0, RetryAfterDate)));
        check(&[("retry-after", "Sun, 29 Nov 2026 11:00:00 GMT")], "", Some((0.0, RetryAfterDate)));
        let old = ("retry-after", "Sunday, 29-Nov-26 12:00:07 GMT");
        check(&[old], "", Some((7.0, RetryAfterDate)));
        let both = ("retry-after", "120, Sun, 29 Nov 2026 12:00:05 GMT");
        check(&[both], "", Some((120.0, RetryAfter)));
        check(&[("retry-after", "2"), until], "", Some((30.0, RetryAfterDate)));
    }

    #[test]
    fn garbage_is_no_hint_and_the_literal_is_kept() {
        for value in ["-5", "soon", "1e9", "NaN", "inf", "5s", "", "+30", "0x1e", "Mon", ","] {
            check(&[("retry-after", value)], "", None);
        }
        check(&[], "Please try again in a moment", None);
        check(&[("retry-after", "1000000000")], "", Some((1e9, HintSource::RetryAfter)));
        let digits = [("retry-after", "99999999999999999999999")];
        let longest_s = Duration::from_secs(u64::MAX).as_secs_f64();
        check(&digits, "", Some((longest_s, HintSource::RetryAfter)));
        assert!(is_absurd(Duration::from_secs(86_401)) && !is_absurd(Duration::from_hours(24)));
    }

    #[test]
    fn prose_in_several_forms() {
        let message = |text, seconds| check(&[], text, Some((seconds, HintSource::Message)));
        message("Requested 385. Please try again in 644ms. Visit", 0.644);
        message("Please try again in 7m12s.", 432.0);
        message("Please retry after 3 seconds.", 3.0);
        message("Please retry in 20.5s.", 20.5);
        message("try again in 2 minutes", 120.0);
        message("Please wait 12 seconds before retrying.", 12.0);
        message("You must wait for at least 2 hours", 7_200.0);
        message("retry in 5 secs", 5.0);
        message("Please wait, or better: wait 5 s", 5.0);
        message("Please try again in about 10 minutes.", 600.0);
        message("Try again in 2 minutes and 5 seconds.", 125.0);
        message("quota will be replenished in 2.03:21:44.", 184_904.0);
        message("please try again after 1 seconds", 1.0);
        message("retry after 1 minute 30 seconds, or later", 90.0);
        message("Out of call volume quota. Quota will be replenished in 03:21:44.", 12_104.0);
    }

    #[test]
    fn members_beyond_the_most_are_not_looked_at() {
        let list = |before: usize| format!("{}7", "x,".repeat(before));
        let read = |before: usize, expected| check(&[("retry-after", &list(before))], "", expected);
        read(MEMBERS_MAX - 1, Some((7.0, HintSource::RetryAfter)));
        read(MEMBERS_MAX, None);
    }
}
