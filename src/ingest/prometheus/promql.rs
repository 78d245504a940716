//! Writes `PromQL`: names, selectors and the leaves of an adapter. Asks nothing, evaluates nothing.

use std::time::Duration;

use crate::ingest::adapter::ast::{Fold, Keep, Matcher, Pattern, Selector};
use crate::ingest::adapter::{Adapter, Leaf, Measure};

use super::select::Select;

/// From here on a gauge stands for "no limit", or for an unsigned number below zero.
const PLACEHOLDER_MIN: &str = "9.223372036854775807e18";

/// A text in double quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The name of a label; quoted, as Prometheus 3 has it, where older versions could not have it.
pub(super) fn label(name: &str) -> String {
    if is_plain(name, false) { name.to_owned() } else { quoted(name) }
}

fn is_plain(name: &str, may_have_colons: bool) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || (may_have_colons && c == ':');
    name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// A duration that every version understands.
pub(super) fn duration(span: Duration) -> String {
    match (span.as_millis(), span.subsec_millis()) {
        (_, 0) => format!("{}s", span.as_secs().max(1)),
        (millis, _) => format!("{millis}ms"),
    }
}

/// What a query may be about: which adapter, which series, which window.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) adapter: &'a Adapter,
    pub(super) select: &'a Select,
    pub(super) window: Duration,
}

impl Writer<'_> {
    /// The matchers of every series of this source, in braces.
    pub(super) fn metric(self, metric: &str) -> String {
        named(metric, self.select.matchers().collect())
    }

    /// A selector with the matchers of the source. `None` where `PromQL` has no way to say it.
    pub(super) fn selector(self, of: &Selector) -> Option<String> {
        let mut matchers: Vec<String> = self.select.matchers().collect();
        for matcher in &of.matchers {
            matchers.extend(self.matcher(matcher)?);
        }
        Some(named(&of.metric, matchers))
    }

    /// `RANGE(selector[window])`.
    pub(super) fn over_window(self, function: &str, selector: &str) -> String {
        format!("{function}({selector}[{}])", duration(self.window))
    }

    /// A gauge's selector without its placeholders. Comparisons drop NaN.
    pub(super) fn numbers(self, selector: &str) -> String {
        let floor = if self.adapter.drop_negative {
            ">= 0".to_owned()
        } else {
            format!("> -{PLACEHOLDER_MIN}")
        };
        format!("({selector} {floor} < {PLACEHOLDER_MIN})")
    }

    /// The text of a leaf. `None` where `PromQL` has no way to say it.
    pub(super) fn leaf(self, leaf: &Leaf) -> Option<String> {
        let selector = self.selector(&leaf.of)?;
        let mut series = match leaf.measure {
            Measure::Values => self.numbers(&selector),
            Measure::Rates => self.over_window("rate", &selector),
            Measure::Increases => {
                let window = leaf.span.unwrap_or(self.window);
                format!("increase({selector}[{}])", duration(window))
            }
        };
        for (keep, bound) in &leaf.kept {
            series = kept(&series, *keep, *bound);
        }
        Some(folded(leaf.fold, &leaf.by, &series))
    }

    /// A label's demand. Words that stand for no value are empty in an adapter, not in Prometheus.
    fn matcher(self, matcher: &Matcher) -> Option<Vec<String>> {
        let Matcher { label: name, wanted, patterns } = matcher;
        let unset = &self.adapter.unset;
        // Such a word itself is never seen, so a pattern that is one fits nothing.
        let texts = patterns.iter().map(ToString::to_string);
        let mut alternatives: Vec<String> = texts.filter(|text| !unset.contains(text)).collect();
        let fits = |word: &str| alternatives.iter().any(|text| Pattern::new(text).matches(word));
        let fits_empty = fits("");
        let fits_unset = unset.iter().any(|word| fits(word));
        if fits_empty {
            alternatives.extend(unset.iter().cloned());
        }
        match (wanted, alternatives.is_empty()) {
            (true, true) => return None,
            (false, true) => return Some(Vec::new()),
            _ => {}
        }
        let mut demands = vec![one_of(name, *wanted, &alternatives)];
        if fits_unset && !fits_empty {
            if !wanted {
                return None;
            }
            demands.push(one_of(name, false, unset));
        }
        Some(demands)
    }
}

/// A demand on one label: to be, or not to be, one of these.
fn one_of(name: &str, wanted: bool, alternatives: &[String]) -> String {
    let name = label(name);
    if let [only] = alternatives
        && !only.contains(['*', '?'])
    {
        return format!("{name}{}{}", if wanted { "=" } else { "!=" }, quoted(only));
    }
    let regex: Vec<String> = alternatives.iter().map(|text| regex(text)).collect();
    format!("{name}{}{}", if wanted { "=~" } else { "!~" }, quoted(&regex.join("|")))
}

/// A glob as a regular expression, which Prometheus anchors at both ends.
fn regex(glob: &str) -> String {
    let mut regex = String::new();
    for c in glob.chars() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '.' | '+' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' | '\\' => {
                regex.extend(['\\', c]);
            }
            c => regex.push(c),
        }
    }
    regex
}

/// A metric with matchers. A name that older versions could not have is matched like a label.
fn named(metric: &str, mut matchers: Vec<String>) -> String {
    let is_plain = is_plain(metric, true);
    if !is_plain {
        matchers.insert(0, format!("__name__={}", quoted(metric)));
    }
    let name = if is_plain { metric } else { "" };
    if matchers.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", matchers.join(",")) }
}

/// Only the series whose value is kept.
pub(super) fn kept(series: &str, keep: Keep, bound: f64) -> String {
    let operator = match keep {
        Keep::Above => ">",
        Keep::Equal => "==",
    };
    format!("({series} {operator} {bound})")
}

/// `fold by (labels) (series)`.
pub(super) fn folded(fold: Fold, by: &[String], series: &str) -> String {
    let fold = match fold {
        Fold::Sum => "sum",
        Fold::Min => "min",
        Fold::Max => "max",
        Fold::Count => "count",
    };
    if by.is_empty() {
        return format!("{fold}({series})");
    }
    let by: Vec<String> = by.iter().map(|name| label(name)).collect();
    format!("{fold} by ({}) ({series})", by.join(", "))
}
