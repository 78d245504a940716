//! Which meter a refusal names in words: "tokens per min (TPM)", "10 API calls / minute",
//! `GenerateRequestsPerDayPerProjectPerModel`.
//!
//! Reads prose and identifiers alike, as a sequence of words. It answers only when one meter is named:
//! a text that speaks of two does not say which of them refused.

use crate::dialect::meter::{Meter, Unit};

/// How many words of a text are looked at.
const WORDS_MAX: usize = 1_000;
/// How many words lie at the most between a unit and its window.
const REACH: usize = 8;

/// A span that quotas are counted over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Window {
    Second,
    Minute,
    Hour,
    Day,
    Month,
}

/// One meter that a text names.
struct Mention {
    meter: Meter,
    window: Window,
    /// Whether the text says that it is used up: "(actual/limit): 2/1".
    is_over: Option<bool>,
}

/// The one meter that prose names.
pub(super) fn in_prose(text: &str) -> Option<Meter> {
    let mut found = mentions(text);
    if found.iter().any(|mention| mention.is_over == Some(true)) {
        found.retain(|mention| mention.is_over == Some(true));
    }
    let first = found.first()?.meter;
    let same = |mention: &Mention| mention.meter == first || general(mention.meter) == first;
    found.iter().all(same).then_some(first)
}

/// The meter that identifiers of quotas name: of several the one over the longest window, which is
/// the last to clear.
pub(super) fn in_identifiers<'a>(names: impl Iterator<Item = &'a String>) -> Option<Meter> {
    let mut longest: Option<Mention> = None;
    for mention in names.flat_map(|name| mentions(name)) {
        if longest.as_ref().is_none_or(|kept| mention.window > kept.window) {
            longest = Some(mention);
        }
    }
    longest.map(|mention| mention.meter)
}

/// Tokens of either kind are tokens.
const fn general(meter: Meter) -> Meter {
    match meter {
        Meter::InputTokens | Meter::OutputTokens => Meter::Tokens,
        other => other,
    }
}

fn mentions(text: &str) -> Vec<Mention> {
    let words: Vec<String> = Words(text).take(WORDS_MAX).collect();
    let mut found = Vec::new();
    // The last unit that was named, and where.
    let mut unit: Option<(Meter, usize)> = None;
    for (place, word) in words.iter().enumerate() {
        if let Some((meter, window)) = abbreviation(word) {
            found.push(Mention { meter: over(meter, window), window, is_over: None });
        } else if word.starts_with("concurren") {
            found.push(Mention {
                meter: Meter::Concurrency,
                window: Window::Second,
                is_over: None,
            });
        } else if let Some(meter) = unit_word(word) {
            let kind = place.checked_sub(1).map_or("", |before| words[before].as_str());
            unit = Some((of_kind(meter, kind), place));
        }
        let is_per = place.checked_sub(1).is_some_and(|before| words[before] == "per");
        let Some(window) = window_word(word, is_per) else { continue };
        if let Some((meter, at)) = unit
            && place - at <= REACH
        {
            let is_over = actual_over_limit(&words[place + 1..]);
            found.push(Mention { meter: over(meter, window), window, is_over });
        }
    }
    found
}

/// "(actual/limit): 2/1", as words.
fn actual_over_limit(words: &[String]) -> Option<bool> {
    let [actual, _, limit, used, _, of, ..] = words else { return None };
    let number = |word: &String| word.parse::<f64>().ok();
    let is_pair = actual == "actual" && limit == "limit";
    is_pair.then_some(number(used)? >= number(of)?)
}

fn abbreviation(word: &str) -> Option<(Meter, Window)> {
    Some(match word {
        "rps" | "qps" => (Meter::Requests, Window::Second),
        "rpm" | "qpm" => (Meter::Requests, Window::Minute),
        "rph" => (Meter::Requests, Window::Hour),
        "rpd" => (Meter::Requests, Window::Day),
        "tpm" => (Meter::Tokens, Window::Minute),
        "itpm" => (Meter::InputTokens, Window::Minute),
        "otpm" => (Meter::OutputTokens, Window::Minute),
        "tpd" => (Meter::Tokens, Window::Day),
        _ => return None,
    })
}

fn unit_word(word: &str) -> Option<Meter> {
    match word {
        "token" | "tokens" => Some(Meter::Tokens),
        "requests" | "calls" | "queries" | "searches" | "models" => Some(Meter::Requests),
        _ => None,
    }
}

fn of_kind(meter: Meter, before: &str) -> Meter {
    match (meter, before) {
        (Meter::Tokens, "input" | "prompt") => Meter::InputTokens,
        (Meter::Tokens, "output" | "completion") => Meter::OutputTokens,
        (same, _) => same,
    }
}

fn window_word(word: &str, is_per: bool) -> Option<Window> {
    Some(match word {
        "daily" => Window::Day,
        "hourly" => Window::Hour,
        "monthly" => Window::Month,
        "second" | "sec" if is_per => Window::Second,
        "minute" | "min" if is_per => Window::Minute,
        "hour" if is_per => Window::Hour,
        "day" if is_per => Window::Day,
        "month" if is_per => Window::Month,
        _ => return None,
    })
}

fn over(meter: Meter, window: Window) -> Meter {
    match (meter.unit(), window) {
        (Unit::Requests, Window::Second) => Meter::RequestsPerSecond,
        (Unit::Requests, Window::Hour) => Meter::RequestsPerHour,
        (Unit::Requests, Window::Day) => Meter::RequestsPerDay,
        (Unit::Requests, Window::Month) => Meter::RequestsPerMonth,
        (Unit::Tokens, Window::Day) => Meter::TokensPerDay,
        (Unit::Tokens, Window::Month) => Meter::TokensPerMonth,
        _ => meter,
    }
}

/// The words of a text in lower case: split where they are no letters or digits and before each
/// capital of a camel-cased name; a slash reads as "per".
struct Words<'a>(&'a str);

impl Iterator for Words<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let start = self.0.find(|c: char| c.is_alphanumeric() || c == '/')?;
        let rest = &self.0[start..];
        if let Some(after) = rest.strip_prefix('/') {
            self.0 = after;
            return Some("per".to_owned());
        }
        let mut was_small = false;
        let end = rest.find(|c: char| {
            let ends = !c.is_alphanumeric() || (was_small && c.is_uppercase());
            was_small = !c.is_uppercase();
            ends
        });
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        self.0 = after;
        Some(word.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Option<Meter>) {
        assert_eq!(in_prose(text), expected, "{text}");
    }

    #[test]
    fn prose_names_a_meter() {
        check("on tokens per min (tpm): limit 30000", Some(Meter::Tokens));
        check("on tokens per min. limit: 60000 / min. please", Some(Meter::Tokens));
        check("on requests per day (rpd): limit 200", Some(Meter::RequestsPerDay));
        check("limited to 10 api calls / minute.", Some(Meter::Requests));
        check("limited to 1000 api calls / month", Some(Meter::RequestsPerMonth));
        check("rate limit of 200,000 input tokens per minute", Some(Meter::InputTokens));
        check("number of requests has exceeded your per-minute rate limit", Some(Meter::Requests));
        check("number of request tokens has exceeded your per-minute", Some(Meter::Tokens));
        check("number of request tokens has exceeded your daily limit", Some(Meter::TokensPerDay));
        check("max organization concurrency: 1", Some(Meter::Concurrency));
        check("reached organization max rpm: 3", Some(Meter::Requests));
    }

    #[test]
    fn two_meters_do_not_say_which() {
        check("reduced rate limits of 3 rpm and 10k tpm", None);
        let pairs = |second: &str, minute: &str| {
            format!(
                "requests per second (actual/limit): {second}, requests per minute (actual/limit): {minute}"
            )
        };
        check(&pairs("2/1", "20/60"), Some(Meter::RequestsPerSecond));
        check(&pairs("1/2", "60/60"), Some(Meter::Requests));
    }

    #[test]
    fn other_words_name_none() {
        check("max_tokens: 200001 > 64000, which is the maximum allowed number", None);
        check("too many requests", None);
        check("come back in a minute", None);
        check(&format!("tokens {} per minute", "x ".repeat(REACH)), None);
    }

    #[test]
    fn identifiers_name_a_meter() {
        let check = |names: &[&str], expected| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(in_identifiers(names.iter()), expected, "{names:?}");
        };
        let minute = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier";
        let day = "GenerateRequestsPerDayPerProjectPerModel";
        check(&[minute], Some(Meter::Requests));
        check(&[minute, day], Some(Meter::RequestsPerDay));
        check(&["GenerateContentPaidTierInputTokensPerModelPerMinute"], Some(Meter::InputTokens));
        check(&["x/generate_content_requests_per_minute_per_project"], Some(Meter::Requests));
        check(&["Gemini25ProRequestsPerDay"], Some(Meter::RequestsPerDay));
        check(&["rpm_rate_limit_exceeded"], Some(Meter::Requests));
        check(&["daily", "bandwidth"], None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = in_prose(&text);
        }
    }
}
