//! Numbers of the exposition formats: which spellings count, and how Prometheus writes them back.

use super::fault::{Fault, excerpt, found};

/// Decimal digits that a float holds exactly, so that one division rounds correctly.
const EXACT_DIGITS_MAX: usize = 15;
/// The powers of ten up to that many digits.
const POWERS_OF_TEN: [f64; EXACT_DIGITS_MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// A number of at most 15 plain digits at the beginning of `bytes`, and its length: what nearly all
/// values are, read several times as fast as any float. `None` says nothing about other spellings.
pub(super) fn leading_plain(bytes: &[u8]) -> Option<(f64, usize)> {
    let is_negative = bytes.first() == Some(&b'-');
    let start = usize::from(is_negative);
    let mut at = start;
    let mut digits: u64 = 0;
    let mut point = None;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'0'..=b'9' => digits = digits.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')),
            b'.' if point.is_none() => point = Some(at + 1),
            _ => break,
        }
        at += 1;
    }
    let count = at - start - usize::from(point.is_some());
    if count == 0 || count > EXACT_DIGITS_MAX {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 15 digits")]
    let whole = digits as f64 / POWERS_OF_TEN[point.map_or(0, |point| at - point)];
    Some((if is_negative { -whole } else { whole }, at))
}

/// A sample's value: what Go's `ParseFloat` takes, without hexadecimal and `_`.
pub(super) fn value(token: &str) -> Result<f64, Fault> {
    if let Some((number, length)) = leading_plain(token.as_bytes())
        && length == token.len()
    {
        return Ok(number);
    }
    let bad = || Fault::Value(excerpt(token));
    let number: f64 = token.parse().map_err(|_| bad())?;
    let unsigned = token.trim_start_matches(['+', '-']);
    let is_word = unsigned.starts_with(|c: char| c.is_ascii_alphabetic());
    if number.is_nan() {
        // Rust reads a signed NaN, Go does not. Prometheus keeps one bit pattern for all of them.
        return if unsigned.len() == token.len() { Ok(f64::NAN) } else { Err(bad()) };
    }
    if number.is_infinite() && !is_word {
        return Err(Fault::OutOfRange(excerpt(token)));
    }
    Ok(number)
}

/// A timestamp of the text format: whole milliseconds, no sign.
pub(super) fn timestamp_ms(token: &str) -> Result<i64, Fault> {
    let is_digits = token.bytes().all(|byte| byte.is_ascii_digit());
    token.parse().ok().filter(|_| is_digits).ok_or_else(|| Fault::Timestamp {
        got: found(token),
        wanted: "whole milliseconds since 1970",
    })
}

/// A timestamp of `OpenMetrics`: seconds, fractions allowed, cut to milliseconds.
pub(super) fn timestamp_s(token: &str) -> Result<i64, Fault> {
    let seconds = value(token).ok().filter(|seconds| seconds.is_finite()).ok_or_else(|| {
        Fault::Timestamp { got: found(token), wanted: "seconds since 1970, finite" }
    })?;
    #[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
    Ok((seconds * 1000.0) as i64)
}

/// `number` as Prometheus stores the numbers of `le` and `quantile`: shortest form, always with a
/// point or an exponent, the exponent with a sign and two digits (`1.0`, `0.25`, `1e+06`, `+Inf`).
#[must_use]
pub fn open_metrics_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go's `%g` in its shortest form turns to an exponent below 1e-4 and from 1e6 on.
    if (-4..6).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_prometheus() {
        for (token, expected) in [
            ("1", 1.0),
            ("+1.5E-3", 0.0015),
            (".5", 0.5),
            ("5.", 5.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("1e-400", 0.0),
        ] {
            assert_eq!(value(token), Ok(expected), "{token}");
        }
        assert!(value("nan").is_ok_and(f64::is_nan));
        for token in ["", "x", "0x10", "0x1p-2", "1_000", "-NaN", "1e400", "1,5", "١"] {
            assert!(value(token).is_err(), "{token} must not be a value");
        }
    }

    #[test]
    fn plain_numbers_are_read_as_any_float_is() {
        for text in [
            "0",
            "-0",
            "7",
            "-7",
            "1700000000.123",
            ".5",
            "5.",
            "-.25",
            "0.1",
            "0.30000000000000",
            "999999999999999",
            "0.000000000000001",
            "123456789012345",
            "0000000000000012",
        ] {
            let read = leading_plain(text.as_bytes());
            let bits = read.map(|(number, length)| (number.to_bits(), length));
            let expected = text.parse::<f64>().expect("a float");
            let is_exact = text.bytes().filter(u8::is_ascii_digit).count() <= EXACT_DIGITS_MAX;
            assert_eq!(bits, is_exact.then_some((expected.to_bits(), text.len())), "{text}");
        }
        for (text, expected) in [
            ("", None),
            ("-", None),
            (".", None),
            ("NaN", None),
            ("1.2.3", Some(3)),
            ("1e5", Some(1)),
        ] {
            assert_eq!(
                leading_plain(text.as_bytes()).map(|(_, length)| length),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn bucket_bounds_are_written_as_prometheus_does() {
        for (number, expected) in [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (0.25, "0.25"),
            (100_000.0, "100000.0"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(open_metrics_float(number), expected);
        }
    }
}
