//! Rate-limit headers, read and written: for each meter the names of its limit, what remains and reset.
//!
//! What is missing, negative without a limit, or not a number is unknown. Names are matched whole, so
//! that twins such as `*-tokens_usage_based` do not get in the way. The names are one table: a
//! provider that spells them differently is one more row.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, header};

use crate::dialect::class::{Meter, MeterReading};
use crate::dialect::span::{format_go_duration, parse_decimal, parse_go_duration};

/// Largest count that is believed; above it a float no longer holds every whole number.
const COUNT_MAX: f64 = 9_007_199_254_740_992.0;
/// Longest reset that is believed; what is longer is a time of the calendar, not a span.
const RESET_MAX: Duration = Duration::from_hours(40 * 24);
/// Longest reset that may be a far shorter one, rounded up to a whole second: no window is computed
/// from it.
const ROUNDED_RESET_MAX: Duration = Duration::from_secs(1);
/// A request meter whose window comes out between these, in seconds, counts the day.
const DAY_S: std::ops::Range<f64> = 43_200.0..108_000.0;

/// What one provider calls the parts of one meter.
struct Names {
    meter: Meter,
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
}

const fn names(
    meter: Meter,
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
) -> Names {
    Names { meter, limit, remaining, reset }
}

/// Every spelling that is read; the first row of a meter is the one that is written.
#[rustfmt::skip]
const NAMES: &[Names] = &[
    // OpenAI, and most that copy it: Azure, Groq, xAI. Their reference pages, and public issues.
    names(Meter::Requests, "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    names(Meter::Tokens, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    // Cerebras, its rate-limit page; tokens of a day by the same rule.
    names(Meter::RequestsPerDay, "x-ratelimit-limit-requests-day", "x-ratelimit-remaining-requests-day", "x-ratelimit-reset-requests-day"),
    names(Meter::TokensPerDay, "x-ratelimit-limit-tokens-day", "x-ratelimit-remaining-tokens-day", "x-ratelimit-reset-tokens-day"),
    names(Meter::Tokens, "x-ratelimit-limit-tokens-minute", "x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
    // Mistral, answers in public issues.
    names(Meter::Requests, "x-ratelimit-limit-req-minute", "x-ratelimit-remaining-req-minute", "x-ratelimit-reset-req-minute"),
    // Anthropic, its rate-limit page; resets are instants.
    names(Meter::Requests, "anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    names(Meter::Tokens, "anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    names(Meter::InputTokens, "anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    names(Meter::OutputTokens, "anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    // Fireworks, its page on adaptive limits; no resets.
    names(Meter::InputTokens, "x-ratelimit-limit-tokens-prompt", "x-ratelimit-remaining-tokens-prompt", "x-ratelimit-reset-tokens-prompt"),
    names(Meter::OutputTokens, "x-ratelimit-limit-tokens-generated", "x-ratelimit-remaining-tokens-generated", "x-ratelimit-reset-tokens-generated"),
];

/// The meters that the headers show, each once, in the order of the table. `now` is for resets that
/// are instants, in an answer without a `Date` of its own.
pub(super) fn read_ratelimit_headers(
    headers: &HeaderMap,
    now: Option<DateTime<Utc>>,
) -> Vec<MeterReading> {
    let mut found: Vec<MeterReading> = Vec::new();
    for reading in NAMES.iter().filter_map(|names| read_meter(headers, names, now)) {
        if found.iter().all(|known| known.meter != reading.meter) {
            found.push(reading);
        }
    }
    found
}

fn read_meter(
    headers: &HeaderMap,
    names: &Names,
    now: Option<DateTime<Utc>>,
) -> Option<MeterReading> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let count = |name: &str| text(name).and_then(read_count);
    // A limit of -1 or 0 is how some servers say that they do not know it.
    let limit = count(names.limit).filter(|limit| *limit > 0.0);
    let remaining = match count(names.remaining) {
        // Overdrawn: nothing is left. Without a limit a negative number is a placeholder.
        Some(remaining) if remaining < 0.0 => limit.map(|_| 0.0),
        remaining => remaining,
    };
    let exact = text(names.reset).and_then(parse_go_duration);
    let reset = exact
        .or_else(|| parse_decimal(text(names.reset)?, Duration::from_secs(1)))
        .or_else(|| until(headers, text(names.reset)?, now))
        .filter(|reset| *reset <= RESET_MAX);
    let mut reading = MeterReading { meter: names.meter, limit, remaining, reset };
    if reading.meter == Meter::Requests
        && exact.is_some_and(|reset| counts_the_day(&reading, reset))
    {
        reading.meter = Meter::RequestsPerDay;
    }
    let known = limit.is_some() || remaining.is_some() || reset.is_some();
    known.then_some(reading)
}

/// An instant as a span from the answer's own `Date`, so that a skewed clock does not matter. The
/// past is full already.
fn until(headers: &HeaderMap, text: &str, now: Option<DateTime<Utc>>) -> Option<Duration> {
    let until = DateTime::parse_from_rfc3339(text.trim()).ok()?;
    let date = headers.get(header::DATE).and_then(|value| value.to_str().ok());
    let from = date.and_then(|date| DateTime::parse_from_rfc2822(date.trim()).ok());
    let from = from.map(|at| at.with_timezone(&Utc)).or(now)?;
    Some((until.with_timezone(&Utc) - from).to_std().unwrap_or(Duration::ZERO))
}

/// Whether a request meter is that of a day, which some plans (OpenAI's free ones, Groq) send under
/// the name of the minute. Where the reset is the time until the meter is full, the window is
/// `reset * limit / used`; only Go durations are that.
fn counts_the_day(reading: &MeterReading, reset: Duration) -> bool {
    let (Some(limit), Some(remaining)) = (reading.limit, reading.remaining) else { return false };
    let used = limit - remaining;
    used > 0.0 && reset > ROUNDED_RESET_MAX && DAY_S.contains(&(reset.as_secs_f64() * limit / used))
}

fn read_count(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|count: &f64| plain && count.abs() < COUNT_MAX)
}

/// Writes meters as headers; unknown parts, and meters that have no such header, are left out.
#[must_use]
pub fn write_ratelimit_headers(meters: &[MeterReading]) -> Vec<(HeaderName, String)> {
    let mut headers = Vec::with_capacity(3 * meters.len());
    for reading in meters {
        let Some(names) = NAMES.iter().find(|names| names.meter == reading.meter) else { continue };
        let count = |count: f64| format!("{count:.0}");
        let parts = [
            (names.limit, reading.limit.map(count)),
            (names.remaining, reading.remaining.map(count)),
            (names.reset, reading.reset.map(format_go_duration)),
        ];
        for (name, value) in parts {
            headers.extend(value.map(|value| (HeaderName::from_static(name), value)));
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn map(headers: &[(HeaderName, String)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).expect("visible text");
        headers.iter().map(|(name, text)| (name.clone(), value(text))).collect()
    }

    fn read(headers: &[(&'static str, &str)]) -> Vec<MeterReading> {
        let pairs: Vec<_> = headers
            .iter()
            .map(|(name, text)| (HeaderName::from_static(name), (*text).to_owned()))
            .collect();
        read_ratelimit_headers(&map(&pairs), None)
    }

    #[test]
    fn placeholders_are_unknown_and_overdrawn_is_empty() {
        let limit = "x-ratelimit-limit-tokens";
        let remaining = "x-ratelimit-remaining-tokens";
        assert_eq!(read(&[(limit, "-1"), (remaining, "-1")]), []);
        let overdrawn = read(&[(limit, "1000"), (remaining, "-853")]);
        assert_eq!((overdrawn[0].limit, overdrawn[0].remaining), (Some(1_000.0), Some(0.0)));
        let no_limit = read(&[(limit, "0"), (remaining, "12")]);
        assert_eq!((no_limit[0].limit, no_limit[0].remaining), (None, Some(12.0)));
        assert_eq!(read(&[(limit, "1e5")]), []);
        assert_eq!(read(&[("x-ratelimit-limit-tokens_usage_based", "160000")]), []);
    }

    #[test]
    fn a_bare_number_is_seconds() {
        let read = read(&[("x-ratelimit-reset-requests", "10")]);
        assert_eq!(read[0].reset, Some(Duration::from_secs(10)));
    }

    #[test]
    fn a_request_meter_that_fills_in_a_day_is_the_days() {
        let check = |limit: &str, remaining: &str, reset: &str, expected: Meter| {
            let read = read(&[
                ("x-ratelimit-limit-requests", limit),
                ("x-ratelimit-remaining-requests", remaining),
                ("x-ratelimit-reset-requests", reset),
            ]);
            assert_eq!(read[0].meter, expected, "{limit} {remaining} {reset}");
        };
        check("200", "197", "16m17.764s", Meter::RequestsPerDay);
        check("14400", "14370", "2m59.56s", Meter::RequestsPerDay);
        check("14400", "14399", "6s", Meter::RequestsPerDay);
        // One millisecond of a minute's meter, rounded up.
        check("60000", "59999", "1s", Meter::Requests);
        check("3000", "2999", "20ms", Meter::Requests);
        check("6000", "0", "1m0s", Meter::Requests);
        // A bare number is the end of a fixed window and says nothing about its length.
        check("1000", "999", "60", Meter::Requests);
        check("200", "200", "0s", Meter::Requests);
    }

    #[test]
    fn every_spelling_leads_to_its_meter() {
        for names in NAMES {
            let read = read(&[(names.limit, "50"), (names.remaining, "0"), (names.reset, "1s")]);
            let second = Some(Duration::from_secs(1));
            let (meter, limit, remaining) = (names.meter, Some(50.0), Some(0.0));
            assert_eq!(read, [MeterReading { meter, limit, remaining, reset: second }]);
        }
        let both =
            read(&[("anthropic-ratelimit-tokens-limit", "8"), ("x-ratelimit-limit-tokens", "9")]);
        assert_eq!(both.iter().map(|one| one.limit).collect::<Vec<_>>(), [Some(9.0)]);
    }

    #[test]
    fn an_instant_counts_from_the_answers_own_date() {
        let reset = "anthropic-ratelimit-requests-reset";
        let read = |headers: &[(&'static str, &str)], now: Option<&str>| {
            let pairs: Vec<_> = headers
                .iter()
                .map(|(name, text)| (HeaderName::from_static(name), (*text).to_owned()))
                .collect();
            let now = now.map(|text| text.parse().expect("an instant"));
            read_ratelimit_headers(&map(&pairs), now).first().and_then(|one| one.reset)
        };
        let date = ("date", "Sun, 29 Nov 2026 12:00:00 GMT");
        let later = (reset, "2026-11-29T12:00:08Z");
        let eight = Some(Duration::from_secs(8));
        assert_eq!(read(&[date, later], Some("2030-01-01T00:00:00Z")), eight);
        assert_eq!(read(&[later], Some("2026-11-29T12:00:00Z")), eight);
        assert_eq!(read(&[later], None), None);
        assert_eq!(read(&[date, (reset, "2026-11-29T11:59:58Z")], None), Some(Duration::ZERO));
        assert_eq!(read(&[("x-ratelimit-reset-requests", "1796000000")], None), None);
    }

    fn reading(meter: Meter) -> impl Strategy<Value = Option<MeterReading>> {
        let count = 1..(1_u32 << 31);
        let parts = (
            prop::option::of(count),
            prop::option::of(0..(1_u32 << 31)),
            prop::option::of((0_u64..10, 0_u32..1_000_000_000)),
        );
        parts.prop_map(move |(limit, remaining, reset)| {
            let reset = reset.map(|(seconds, nanos)| Duration::new(seconds, nanos));
            let (limit, remaining) = (limit.map(f64::from), remaining.map(f64::from));
            let known = limit.is_some() || remaining.is_some() || reset.is_some();
            let reading = MeterReading { meter, limit, remaining, reset };
            // What fills in a day comes back as the day's, whatever its name.
            let is_days = reset.is_some_and(|reset| counts_the_day(&reading, reset));
            (known && !is_days).then_some(reading)
        })
    }

    proptest! {
        #[test]
        fn written_then_read_is_the_same(
            requests in reading(Meter::Requests),
            tokens in reading(Meter::Tokens),
        ) {
            let meters: Vec<_> = requests.into_iter().chain(tokens).collect();
            let headers = map(&write_ratelimit_headers(&meters));
            prop_assert_eq!(read_ratelimit_headers(&headers, None), meters);
        }
    }
}
