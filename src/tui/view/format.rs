//! Numbers as a person reads them. What is not known is `?`, never a zero.

use std::time::Duration;

use chrono::{DateTime, FixedOffset, Utc};

/// Rates: `1,680/s`, `66.7/s`, and `0/s` only for none at all.
#[must_use]
pub fn rate(value: f64) -> String {
    if value == 0.0 { "0/s".to_owned() } else { format!("{}/s", short(value)) }
}

/// A plain number with the digits that matter: `1,680`, `66.7`, `0.4`.
#[must_use]
pub fn short(value: f64) -> String {
    if value.abs() >= 99.95 { count(value) } else { format!("{value:.1}") }
}

/// A whole number with thousands set off.
#[must_use]
pub fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value <= -0.5 {
        text.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A limit: `1.20M`, `6,000`.
#[must_use]
pub fn limit(value: f64) -> String {
    if value >= 1e6 { format!("{:.2}M", value / 1e6) } else { count(value) }
}

/// A share: `37%`, `4.2%`, `0%`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent != 0.0 && percent.abs() < 9.95 {
        format!("{percent:.1}%")
    } else {
        format!("{percent:.0}%")
    }
}

/// A factor: `9.3x`, `1.03x`.
#[must_use]
pub fn factor(value: f64) -> String {
    if value < 1.995 { format!("{value:.2}x") } else { format!("{value:.1}x") }
}

/// A duration that is measured: `4ms`, `0.42s`, `9.8s`, `98s`, `4m01s`.
#[must_use]
pub fn seconds(value: f64) -> String {
    if value > 0.0 && value < 0.095 {
        format!("{:.0}ms", (value * 1_000.0).max(1.0))
    } else if value < 0.995 {
        format!("{value:.2}s")
    } else if value < 59.95 {
        format!("{value:.1}s")
    } else {
        span(value)
    }
}

/// A duration in whole seconds: `1s`, `4m01s`, `2h04m`.
#[must_use]
pub fn span(value: f64) -> String {
    let whole = value.max(0.0).round();
    let (hours, minutes, seconds) =
        ((whole / 3_600.0).floor(), (whole % 3_600.0 / 60.0).floor(), whole % 60.0);
    if hours >= 1.0 {
        format!("{hours:.0}h{minutes:02.0}m")
    } else if minutes >= 1.0 {
        format!("{minutes:.0}m{seconds:02.0}s")
    } else {
        format!("{seconds:.0}s")
    }
}

/// A duration of whole seconds.
#[must_use]
pub fn whole_span(seconds: u64) -> String {
    span(Duration::from_secs(seconds).as_secs_f64())
}

/// Local time of day.
#[must_use]
pub fn clock(at: DateTime<Utc>, zone: FixedOffset) -> String {
    at.with_timezone(&zone).format("%H:%M:%S").to_string()
}

/// Local time with its offset, and UTC.
#[must_use]
pub fn clocks(at: DateTime<Utc>, zone: FixedOffset) -> String {
    if zone.local_minus_utc() == 0 {
        return at.format("%H:%M:%SZ").to_string();
    }
    let local = at.with_timezone(&zone);
    format!("{} {}", local.format("%H:%M:%S%:::z"), at.format("%H:%MZ"))
}

/// Text cut to a number of cells.
#[must_use]
pub fn cut(text: &str, width: usize, ellipsis: &str) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push_str(ellipsis);
    }
    cut
}

/// Text of which the end is kept, padded to a number of cells: names of scopes differ at their end.
#[must_use]
pub fn tail(text: &str, width: usize, ellipsis: &str) -> String {
    let count = text.chars().count();
    if count <= width {
        return format!("{text:<width$}");
    }
    let kept: String = text.chars().skip(count + 1 - width.max(1)).collect();
    if width == 0 { String::new() } else { format!("{ellipsis}{kept}") }
}

/// Text cut to a number of cells between two words, unless that would leave less than half of it.
#[must_use]
pub fn cut_words(text: &str, width: usize, ellipsis: &str) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    let ends_in_word =
        text.chars().nth(width.saturating_sub(1)).is_some_and(|next| !" ,;:)".contains(next));
    let words =
        if ends_in_word { kept.rsplit_once(' ').map_or("", |(words, _)| words) } else { &kept };
    let words = words.trim_end_matches([' ', ',', ':', ';', '(']);
    if words.chars().count() * 2 <= width {
        return cut(text, width, ellipsis);
    }
    format!("{words}{ellipsis}")
}

/// As many names as fit whole, and how many more there are.
#[must_use]
pub fn listed(names: &[String], width: usize, ellipsis: &str) -> String {
    let with_rest = |shown: usize| {
        let text = names[..shown].join(", ");
        if shown == names.len() { text } else { format!("{text} +{} more", names.len() - shown) }
    };
    let fits = |shown: &usize| with_rest(*shown).chars().count() <= width;
    match (1..=names.len()).rev().find(fits) {
        Some(shown) => with_rest(shown),
        None => cut_words(&names.join(", "), width, ellipsis),
    }
}

/// A number with the digits that it has, four at most: `3.3`, `0.05`, `600`.
#[must_use]
pub fn exact(value: f64) -> String {
    if value.abs() >= 99.95 {
        return count(value);
    }
    let digits = if value.abs() < 0.1 { 4 } else { 2 };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(rate(1_680.4), "1,680/s");
        assert_eq!(rate(66.66), "66.7/s");
        assert_eq!(rate(0.0), "0/s");
        assert_eq!(rate(0.04), "0.0/s");
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(count(999.6), "1,000");
        assert_eq!(limit(1_200_000.0), "1.20M");
        assert_eq!(limit(6_000.0), "6,000");
        assert_eq!(percent(0.374), "37%");
        assert_eq!(percent(0.042), "4.2%");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(factor(9.31), "9.3x");
        assert_eq!(factor(1.033), "1.03x");
        assert_eq!(seconds(0.42), "0.42s");
        assert_eq!(seconds(14.13), "14.1s");
        assert_eq!(span(241.0), "4m01s");
        assert_eq!(span(59.6), "1m00s");
        assert_eq!(span(7_440.0), "2h04m");
    }

    #[test]
    fn long_text_is_cut_at_the_cell() {
        assert_eq!(cut("nested-retries", 14, "…"), "nested-retries");
        assert_eq!(cut("nested-retries", 7, "…"), "nested…");
        assert_eq!(cut("nested", 0, "…"), "");
    }

    #[test]
    fn the_end_of_a_name_is_kept() {
        assert_eq!(tail("openai/acct-1/embed", 8, "…"), "…1/embed");
        assert_eq!(tail("embed", 8, "…"), "embed   ");
        assert_eq!((tail("embed", 1, "…"), tail("embed", 0, "…")), ("…".to_owned(), String::new()));
    }

    #[test]
    fn words_are_kept_whole() {
        let check = |width: usize, expected: &str| {
            assert_eq!(cut_words("one retry owner, and admission", width, "…"), expected);
        };
        check(30, "one retry owner, and admission");
        check(29, "one retry owner, and…");
        check(20, "one retry owner…");
        check(16, "one retry owner…");
        check(4, "one…");
        check(2, "o…");
        check(0, "");
    }

    #[test]
    fn lists_say_how_much_they_leave_out() {
        let names = ["reset_s", "pool_wait_s", "x"].map(str::to_owned);
        let check = |width, expected: &str| assert_eq!(listed(&names, width, "…"), expected);
        check(23, "reset_s, pool_wait_s, x");
        check(22, "reset_s +2 more");
        check(15, "reset_s +2 more");
        check(10, "reset_s…");
    }

    #[test]
    fn thresholds_have_no_idle_digits() {
        let check = |value, expected: &str| assert_eq!(exact(value), expected);
        check(3.3, "3.3");
        check(2.0, "2");
        check(0.05, "0.05");
        check(0.0, "0");
        check(1_320.0, "1,320");
    }
}
