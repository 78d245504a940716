//! Durations as people type them, on the command line, in configuration and in predicates.

use std::time::Duration;

/// Reads `30s`, `5m`, `1h`, `250ms`, `2d`, decimals allowed; `None` for anything else.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_typed() {
        let cases = [
            ("90s", Some(90_000)),
            ("5m", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("15.242s", Some(15_242)),
            ("250ms", Some(250)),
            ("90", None),
            ("s", None),
            ("-3s", None),
            ("3 parsecs", None),
            ("1.2.3s", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text}");
        }
    }
}
