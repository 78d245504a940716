//! Spans of time as providers write them: Go durations (`1m2.5s`, `20ms`) and plain decimals.
//!
//! Read in integer nanoseconds, so that what is written reads back unchanged. Signs, exponents, NaN and
//! garbage are refused: unknown is better. A duration above a century is garbage too; a plain number
//! is kept as it is, since whoever obeys a hint caps it anyway.

use std::time::Duration;

/// Longest text that is looked at.
const TEXT_LEN_MAX: usize = 64;
/// Longest span that is believed: a century.
const SPAN_MAX: Duration = Duration::from_hours(100 * 365 * 24);

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a Go duration such as `1h2m3.5s`, `644ms` or `0s`; `None` for anything else.
#[must_use]
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    parse_units(text, &UNITS)
}

/// As [`parse_go_duration`], and with days, which some servers write in resets: `2d`.
pub(super) fn parse_lenient_duration(text: &str) -> Option<Duration> {
    parse_units(text, &UNITS_WITH_DAYS)
}

fn parse_units(text: &str, units: &[(&str, u64)]) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() || rest.len() > TEXT_LEN_MAX {
        return None;
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (number, after_number) = split_at_first(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after_unit) = split_at_first(after_number, |c| c.is_ascii_digit() || c == '.');
        let (_, unit_ns) = units.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(scaled(number, *unit_ns)?)?;
        rest = after_unit;
    }
    (total <= SPAN_MAX).then_some(total)
}

/// Reads plain digits with an optional fraction as that many units of `unit`, however many.
pub(super) fn parse_decimal(text: &str, unit: Duration) -> Option<Duration> {
    let text = text.trim();
    if text.len() > TEXT_LEN_MAX {
        return None;
    }
    let unit_ns = u64::try_from(unit.as_nanos()).ok()?;
    scaled(text, unit_ns).or_else(|| {
        // More than 64 bits hold is a number all the same: the longest span that there is.
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then_some(Duration::from_secs(u64::MAX))
    })
}

/// Writes a span as Go's `time.Duration` does, but `us` for microseconds: headers are ASCII.
#[must_use]
pub fn format_go_duration(span: Duration) -> String {
    let nanos = span.as_nanos();
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => with_fraction(nanos, 1_000) + "us",
        1_000_000..1_000_000_000 => with_fraction(nanos, 1_000_000) + "ms",
        _ => {
            let (minutes, below_ns) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = with_fraction(below_ns, 1_000_000_000) + "s";
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

const UNITS_WITH_DAYS: [(&str, u64); 9] = {
    let mut units = [("d", 86_400_000_000_000); 9];
    let mut index = 0;
    while index < UNITS.len() {
        units[index] = UNITS[index];
        index += 1;
    }
    units
};

fn split_at_first(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

/// `number` times `unit_ns`, exact down to a nanosecond; what is finer is cut off.
fn scaled(number: &str, unit_ns: u64) -> Option<Duration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = u128::from(whole) * u128::from(unit_ns);
    let mut place_ns = u128::from(unit_ns) * 1_000_000_000;
    for digit in fraction.bytes().take(18) {
        place_ns /= 10;
        nanos += (u128::from(digit - b'0') * place_ns) / 1_000_000_000;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    let below = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, below))
}

fn with_fraction(nanos: u128, unit_ns: u128) -> String {
    let (whole, below) = (nanos / unit_ns, nanos % unit_ns);
    if below == 0 {
        return whole.to_string();
    }
    let places = unit_ns.ilog10() as usize;
    let fraction = format!("{below:0places$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected_s: Option<f64>) {
        let read_s = parse_go_duration(text).map(|span| span.as_secs_f64());
        assert_eq!(read_s, expected_s, "{text}");
    }

    #[test]
    fn forms_seen_in_the_wild() {
        check("20ms", Some(0.020));
        check("644ms", Some(0.644));
        check("1s", Some(1.0));
        check("8.64s", Some(8.64));
        check("6m0s", Some(360.0));
        check("16m17.764s", Some(977.764));
        check("1h2m3.5s", Some(3_723.5));
        check("150µs", Some(0.000_15));
        check("0s", Some(0.0));
    }

    #[test]
    fn what_is_no_span_is_unknown() {
        for text in ["", "s", "5", "-1s", "+1s", "1e9s", "NaN", "inf", "1.2.3s", "1 s", ".s", "1d"]
        {
            check(text, None);
        }
        check("876000h", Some(3_153_600_000.0));
        check("876001h", None);
        check(&"9".repeat(80), None);
    }

    #[test]
    fn days_are_read_where_they_are_expected() {
        assert_eq!(parse_lenient_duration("2d"), Some(Duration::from_hours(48)));
        assert_eq!(parse_lenient_duration("1d1h"), Some(Duration::from_hours(25)));
        assert_eq!(parse_go_duration("2d"), None);
    }

    #[test]
    fn plain_decimals_have_no_sign_and_no_exponent() {
        let read = |text| parse_decimal(text, Duration::from_millis(1));
        assert_eq!(read("511"), Some(Duration::from_millis(511)));
        assert_eq!(read("0.5"), Some(Duration::from_micros(500)));
        assert_eq!(
            read("999999999999999999").map(|span| span.as_secs()),
            Some(999_999_999_999_999)
        );
        assert_eq!(read("99999999999999999999"), Some(Duration::from_secs(u64::MAX)));
        for text in ["-1", "1e3", "nan", "", "."] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_then_read_is_the_same(seconds in 0_u64..3_000_000_000, nanos in 0_u32..1_000_000_000) {
            let span = Duration::new(seconds, nanos);
            prop_assert_eq!(parse_go_duration(&format_go_duration(span)), Some(span));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse_go_duration(&text);
            let _ = parse_decimal(&text, Duration::from_secs(1));
        }
    }
}
