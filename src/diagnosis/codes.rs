//! Which refusal codes a pattern means. Decides matching only; never what a code stands for.

use std::collections::BTreeMap;

use crate::signal::Value;

/// Prefix of the codes that our own gate gave.
pub const GATE_PREFIX: &str = "gate:";
/// Most alternatives in one predicate.
const MAX_PATTERNS: usize = 40;

/// Alternatives such as `insufficient_quota|billing*`, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePatterns {
    alternatives: Vec<String>,
    gate: bool,
}

impl CodePatterns {
    /// Reads alternatives separated by `|`; `None` when empty, too many, or gate and provider mixed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let alternatives: Vec<String> =
            text.split('|').map(|part| part.trim().to_ascii_lowercase()).collect();
        let usable = alternatives.len() <= MAX_PATTERNS
            && alternatives.iter().all(|part| !part.trim_start_matches(GATE_PREFIX).is_empty());
        let gate = alternatives.first()?.starts_with(GATE_PREFIX);
        let alike = alternatives.iter().all(|part| part.starts_with(GATE_PREFIX) == gate);
        let alternatives = alternatives
            .into_iter()
            .map(|part| part.trim_start_matches(GATE_PREFIX).to_owned())
            .collect();
        (usable && alike).then_some(Self { alternatives, gate })
    }

    /// The share of matching refusals among the provider's (or the gate's) codes; 0 when there are
    /// none. Negative and non-finite counts are taken as none.
    #[must_use]
    pub fn share(&self, codes: &BTreeMap<String, Value>) -> f64 {
        let (mut all, mut matching) = (0.0, 0.0);
        for (code, count) in codes {
            let own = code.strip_prefix(GATE_PREFIX);
            let code = match (self.gate, own) {
                (true, Some(code)) => code,
                (false, None) => code.as_str(),
                _ => continue,
            };
            let count = count.as_number().filter(|n| n.is_finite()).unwrap_or(0.0).max(0.0);
            all += count;
            if self.matches(code) {
                matching += count;
            }
        }
        if all > 0.0 { matching / all } else { 0.0 }
    }

    fn matches(&self, code: &str) -> bool {
        let code = code.to_ascii_lowercase();
        self.alternatives
            .iter()
            .any(|pattern| glob(pattern, &code) || code.split(':').any(|part| glob(pattern, part)))
    }
}

/// Whether `text` is `pattern`, where `*` stands for anything.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    let mut rest = rest;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_a_code_or_a_part_of_it() {
        let check = |pattern: &str, code: &str, expected: bool| {
            let patterns = CodePatterns::parse(pattern).expect(pattern);
            assert_eq!(patterns.matches(code), expected, "/{pattern}/ on {code}");
        };
        check("tokens", "rate_limit_exceeded:tokens", true);
        check("rate_limit_exceeded", "rate_limit_exceeded:tokens", true);
        check("rate_limit_exceeded:tokens", "rate_limit_exceeded:tokens", true);
        check("usage_limit*", "rate_limited:not_usage_limit", false);
        check("usage_limit*", "usage_limit_reached", true);
        check("*per_day*", "RESOURCE_EXHAUSTED:per_day", true);
        check("*a*b*", "xxbxxa", false);
        check("quota", "per_minute_quota", false);
        check("aba*a", "aba", false);
    }

    #[test]
    fn shares_keep_gate_and_provider_apart() {
        let number = |n: f64| Value::Number(n);
        let codes = BTreeMap::from([
            ("gate:rpm".to_owned(), number(30.0)),
            ("gate:other".to_owned(), number(10.0)),
            ("429".to_owned(), number(5.0)),
            ("broken".to_owned(), number(f64::NAN)),
        ]);
        let share = |text: &str| CodePatterns::parse(text).expect(text).share(&codes);
        assert!((share("gate:rpm") - 0.75).abs() < 1e-9);
        assert!((share("429") - 1.0).abs() < 1e-9);
        assert!(share("insufficient_quota") < 1e-9);
    }
}
