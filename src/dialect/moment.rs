//! Instants as providers write them, read as a span from the answer's own clock.
//!
//! The answer's `Date` comes before our clock, so that a skewed one does not matter. The past is zero,
//! never negative. What is no instant of a known form is unknown.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use http::{HeaderMap, header};

use crate::dialect::span::{parse_decimal, parse_lenient_duration};

/// Longest reset that is believed; what is longer is noise.
const RESET_MAX: Duration = Duration::from_hours(40 * 24);
/// Digits of the seconds since 1970, from 2001 on. A smaller number is a span.
const EPOCH_S_DIGITS: usize = 10;
/// Digits of the milliseconds since 1970.
const EPOCH_MS_DIGITS: usize = 13;

/// The instant that spans are counted from: the answer's own date, else `now`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Option<DateTime<Utc>>);

impl Clock {
    /// The clock of an answer with these headers.
    pub(super) fn of(headers: &HeaderMap, now: Option<DateTime<Utc>>) -> Self {
        let own = headers.get(header::DATE).and_then(|value| parse_http_date(value.to_str().ok()?));
        Self(own.or(now))
    }

    /// From this clock until `at`.
    pub(super) fn until(self, at: DateTime<Utc>) -> Option<Duration> {
        Some((at - self.0?).to_std().unwrap_or(Duration::ZERO))
    }

    /// A reset in any of its forms: a duration, seconds, an instant as RFC 3339, HTTP date, seconds or
    /// milliseconds since 1970. A negative span is over.
    pub(super) fn read_reset(self, text: &str) -> Option<Duration> {
        let text = text.trim();
        if let Some(positive) = text.strip_prefix('-') {
            let is_number = positive.starts_with(|c: char| c.is_ascii_digit());
            return self.read_reset(positive).filter(|_| is_number).map(|_| Duration::ZERO);
        }
        let span = parse_lenient_duration(text).or_else(|| self.read_number(text)).or_else(|| {
            let at = DateTime::parse_from_rfc3339(text).ok().map(|at| at.with_timezone(&Utc));
            self.until(at.or_else(|| parse_http_date(text))?)
        });
        span.filter(|span| *span <= RESET_MAX)
    }

    fn read_number(self, text: &str) -> Option<Duration> {
        let digits = text.split('.').next().unwrap_or_default().len();
        let unit = match digits {
            EPOCH_S_DIGITS => Duration::from_secs(1),
            EPOCH_MS_DIGITS => Duration::from_millis(1),
            0..EPOCH_S_DIGITS => return parse_decimal(text, Duration::from_secs(1)),
            _ => return None,
        };
        let since = parse_decimal(text, unit)?;
        let seconds = i64::try_from(since.as_secs()).ok()?;
        self.until(DateTime::from_timestamp(seconds, since.subsec_nanos())?)
    }
}

/// An HTTP date in its three forms (RFC 9110, section 5.6.7); a numeric zone is taken too.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    let fixed = || DateTime::parse_from_rfc2822(text).ok().map(|at| at.with_timezone(&Utc));
    let asctime = || NaiveDateTime::parse_from_str(text, "%a %b %e %H:%M:%S %Y").ok();
    fixed().or_else(|| rfc850(text)).or_else(|| asctime().map(|at| at.and_utc()))
}

/// "Sunday, 06-Nov-94 08:49:37 GMT"; a year of two digits means this century or the last.
fn rfc850(text: &str) -> Option<DateTime<Utc>> {
    let (_, rest) = text.split_once(", ")?;
    let (date, time) = rest.strip_suffix(" GMT")?.split_once(' ')?;
    let date = NaiveDate::parse_from_str(date, "%d-%b-%y").ok()?;
    let time = chrono::NaiveTime::parse_from_str(time, "%H:%M:%S").ok()?;
    Some(date.and_time(time).and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const NOW: &str = "2026-11-29T12:00:00Z";

    #[test]
    fn a_reset_has_many_forms() {
        let clock = Clock(NOW.parse().ok());
        let check = |text: &str, expected_s: Option<f64>| {
            let read_s = clock.read_reset(text).map(|span| span.as_secs_f64());
            assert_eq!(read_s, expected_s, "{text}");
        };
        check("1h2m3.5s", Some(3_723.5));
        check("500µs", Some(0.000_5));
        check("2d", Some(172_800.0));
        check("10", Some(10.0));
        check("11.382867", Some(11.382_867));
        check("1795953633", Some(33.0));
        check("1795953633.5", Some(33.5));
        check("1795953633500", Some(33.5));
        check("1795953500", Some(0.0));
        check("2026-11-29T12:00:08Z", Some(8.0));
        check("Sun, 29 Nov 2026 12:00:05 GMT", Some(5.0));
        check("-1s", Some(0.0));
        let nothing = [
            "",
            "-",
            "--5",
            "SECRET",
            "NaN",
            "12345678901",
            "99999999",
            "1e3",
            "Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)",
        ];
        for text in nothing {
            check(text, None);
        }
    }

    #[test]
    fn the_answers_own_date_comes_before_ours() {
        let mut headers = HeaderMap::new();
        let later = "2026-11-29T12:00:08Z";
        assert_eq!(Clock::of(&headers, None).read_reset(later), None);
        headers.insert(header::DATE, HeaderValue::from_static("Sun, 29 Nov 2026 12:00:00 GMT"));
        let clock = Clock::of(&headers, "2030-01-01T00:00:00Z".parse().ok());
        assert_eq!(clock.read_reset(later), Some(Duration::from_secs(8)));
    }

    #[test]
    fn http_dates_come_in_three_forms() {
        let expected = "1994-11-06T08:49:37Z".parse().ok();
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse_http_date(text), expected, "{text}");
        }
        assert_eq!(parse_http_date("soon"), None);
    }
}
