//! Rate-limit headers of OpenAI's form, read and written: `x-ratelimit-{limit,remaining,reset}-{meter}`.
//!
//! What is missing, negative without a limit, or not a number is unknown. Names are matched whole, so
//! that twins such as `*-tokens_usage_based` do not get in the way.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use crate::dialect::class::{Meter, MeterReading};
use crate::dialect::span::{format_go_duration, parse_decimal, parse_go_duration};

/// Largest count that is believed; above it a float no longer holds every whole number.
const COUNT_MAX: f64 = 9_007_199_254_740_992.0;

struct Names {
    meter: Meter,
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

const fn names() -> [Names; 2] {
    [
        Names {
            meter: Meter::Requests,
            limit: HeaderName::from_static("x-ratelimit-limit-requests"),
            remaining: HeaderName::from_static("x-ratelimit-remaining-requests"),
            reset: HeaderName::from_static("x-ratelimit-reset-requests"),
        },
        Names {
            meter: Meter::Tokens,
            limit: HeaderName::from_static("x-ratelimit-limit-tokens"),
            remaining: HeaderName::from_static("x-ratelimit-remaining-tokens"),
            reset: HeaderName::from_static("x-ratelimit-reset-tokens"),
        },
    ]
}

/// The meters that the headers show, requests before tokens.
pub(super) fn read_ratelimit_headers(headers: &HeaderMap) -> Vec<MeterReading> {
    names().iter().filter_map(|names| read_meter(headers, names)).collect()
}

fn read_meter(headers: &HeaderMap, names: &Names) -> Option<MeterReading> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let count = |name: &HeaderName| text(name).and_then(read_count);
    // A limit of -1 or 0 is how some servers say that they do not know it.
    let limit = count(&names.limit).filter(|limit| *limit > 0.0);
    let remaining = match count(&names.remaining) {
        // Overdrawn: nothing is left. Without a limit a negative number is a placeholder.
        Some(remaining) if remaining < 0.0 => limit.map(|_| 0.0),
        remaining => remaining,
    };
    let reset = text(&names.reset).and_then(|text| {
        parse_go_duration(text).or_else(|| parse_decimal(text, Duration::from_secs(1)))
    });
    let known = limit.is_some() || remaining.is_some() || reset.is_some();
    known.then_some(MeterReading { meter: names.meter, limit, remaining, reset })
}

fn read_count(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|count: &f64| plain && count.abs() < COUNT_MAX)
}

/// Writes request and token meters as headers; unknown parts, and meters that have no such header,
/// are left out.
#[must_use]
pub fn write_ratelimit_headers(meters: &[MeterReading]) -> Vec<(HeaderName, String)> {
    let mut headers = Vec::with_capacity(3 * meters.len());
    for names in names() {
        for reading in meters.iter().filter(|reading| reading.meter == names.meter) {
            let count = |count: f64| format!("{count:.0}");
            headers.extend(reading.limit.map(|limit| (names.limit.clone(), count(limit))));
            headers.extend(reading.remaining.map(|left| (names.remaining.clone(), count(left))));
            headers.extend(
                reading.reset.map(|reset| (names.reset.clone(), format_go_duration(reset))),
            );
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
        read_ratelimit_headers(&map(&pairs))
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

    fn reading(meter: Meter) -> impl Strategy<Value = Option<MeterReading>> {
        let count = 1..(1_u32 << 31);
        let parts = (
            prop::option::of(count),
            prop::option::of(0..(1_u32 << 31)),
            prop::option::of((0_u64..1_000_000, 0_u32..1_000_000_000)),
        );
        parts.prop_map(move |(limit, remaining, reset)| {
            let reset = reset.map(|(seconds, nanos)| Duration::new(seconds, nanos));
            let (limit, remaining) = (limit.map(f64::from), remaining.map(f64::from));
            let known = limit.is_some() || remaining.is_some() || reset.is_some();
            known.then_some(MeterReading { meter, limit, remaining, reset })
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
            prop_assert_eq!(read_ratelimit_headers(&headers), meters);
        }
    }
}
