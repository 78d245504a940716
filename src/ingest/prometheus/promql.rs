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
    ///
    /// Where the counters did not restart, what they gained is the difference between two scrapes, a
    /// whole number. `increase` undoes restarts, and stretches what it finds to the ends of the window.
    pub(super) fn leaf(self, leaf: &Leaf, restarted: bool) -> Option<String> {
        let selector = self.selector(&leaf.of)?;
        let window = duration(leaf.span.unwrap_or(self.window));
        let mut series = match leaf.measure {
            Measure::Values => self.numbers(&selector),
            Measure::Rates => format!("rate({selector}[{window}])"),
            Measure::Increases if restarted || leaf.span.is_some() => {
                format!("increase({selector}[{window}])")
            }
            Measure::Increases => format!("{selector} - {selector} offset {window}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An adapter with one signal, `offered_rps`, and words that stand for no value.
    fn adapter(value: &str, header: &str) -> Adapter {
        let text = format!(
            "[adapter]\ntitle = 'x'\nabout = 'x'\nrole = 'gateway'\nverified = 'run'\n{header}\n\
             [signals.offered_rps]\nvalue = '{value}'\nquality = 'exact'\n"
        );
        Adapter::parse("x", "x.toml", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn texts(value: &str, header: &str) -> Vec<Option<String>> {
        let adapter = adapter(value, header);
        let select = r#"job="g""#.parse().expect("matchers");
        let writer = Writer { adapter: &adapter, select: &select, window: Duration::from_mins(1) };
        adapter.leaves().iter().map(|leaf| writer.leaf(leaf, true)).collect()
    }

    fn check(value: &str, header: &str, expected: &[&str]) {
        let got = texts(value, header);
        let got: Vec<&str> = got.iter().map(|text| text.as_deref().expect("sayable")).collect();
        assert_eq!(got, expected, "{value}");
    }

    #[test]
    fn every_form_of_expression_has_its_text() {
        let increase = r#"sum(increase(a{job="g"}[60s]))"#;
        for (value, expected) in [
            // A sum of rates is a sum of increases over the window, and shares its text.
            ("rate(a)", vec![increase]),
            ("rate(a) / increase(a) > 0", vec![increase]),
            ("clamp(increase(a) - 1, 0, 1)", vec![increase]),
            ("max(rate(a))", vec![r#"max(rate(a{job="g"}[60s]))"#]),
            (
                "sum(a) + min(a)",
                vec![
                    r#"min((a{job="g"} > -9.223372036854775807e18 < 9.223372036854775807e18))"#,
                    r#"sum((a{job="g"} > -9.223372036854775807e18 < 9.223372036854775807e18))"#,
                ],
            ),
            (
                "count(a == 2)",
                vec![
                    r#"count(((a{job="g"} > -9.223372036854775807e18 < 9.223372036854775807e18) == 2))"#,
                    // How many there are at all, to tell none of them from none that are 2.
                    r#"count((a{job="g"} > -9.223372036854775807e18 < 9.223372036854775807e18))"#,
                ],
            ),
            (
                "max(sum by (tenant) (rate(a)))",
                vec![r#"sum by (tenant) (increase(a{job="g"}[60s]))"#],
            ),
            ("quantile(0.5, h)", vec![r#"sum by (le) (increase(h_bucket{job="g"}[60s]))"#]),
            ("1 + 2", vec![]),
        ] {
            check(value, "", &expected);
        }
    }

    #[test]
    fn matchers_and_globs_become_matchers() {
        for (matcher, expected) in [
            (r#"x = "1""#, r#"x="1""#),
            (r#"x != """#, r#"x!="""#),
            (r#"x = "5??", x != "503""#, r#"x=~"5..",x!="503""#),
            (r#"x in ["a", "b.c"]"#, r#"x=~"a|b\\.c""#),
            (r#"x not in ["a", "*z"]"#, r#"x!~"a|.*z""#),
            (r#"x = "/v1/*""#, r#"x=~"/v1/.*""#),
            (r#"x = "a\b""#, r#"x="a\\b""#),
            (r#"k8s.pod = "a""#, r#""k8s.pod"="a""#),
        ] {
            let text = format!("sum(increase(a{{job=\"g\",{expected}}}[60s]))");
            check(&format!("rate(a{{{matcher}}})"), "", &[&text]);
        }
    }

    #[test]
    fn words_for_no_value_are_no_values() {
        let unset = "unset = ['None', 'n.a.']";
        for (matcher, expected) in [
            (r#"x = "1""#, r#","job="g",x="1""#),
            (r#"x != """#, r#","job="g",x!~"|None|n\\.a\\.""#),
            (r#"x = """#, r#","job="g",x=~"|None|n\\.a\\.""#),
            (r#"x != "None""#, r#","job="g""#),
            (r#"x = "N*""#, r#","job="g",x=~"N.*",x!~"None|n\\.a\\.""#),
            (r#"x = "*""#, r#","job="g",x=~".*|None|n\\.a\\.""#),
        ] {
            let text = format!("sum(increase(a{{{}}}[60s]))", &expected[2..]);
            check(&format!("rate(a{{{matcher}}})"), unset, &[&text]);
        }
        // What PromQL cannot say stays unknown: here a word counts as empty, and is matched by a glob.
        assert_eq!(texts(r#"rate(a{x != "N*"})"#, unset), [None]);
        assert_eq!(texts(r#"rate(a{x = "None"})"#, unset), [None]);
    }

    #[test]
    fn scopes_and_odd_names() {
        let scope = "scope = { label = 'scope', metrics = 'a' }\ndrop_negative = true";
        check("rate(a)", scope, &[r#"sum by (scope) (increase(a{job="g"}[60s]))"#]);
        check(
            "max(a)",
            scope,
            &[r#"max by (scope) ((a{job="g"} >= 0 < 9.223372036854775807e18))"#],
        );
        check("rate(a:b)", "", &[r#"sum(increase(a:b{job="g"}[60s]))"#]);
        check("rate(a.b)", "", &[r#"sum(increase({__name__="a.b",job="g"}[60s]))"#]);
    }

    #[test]
    fn windows_are_whole_units() {
        for (millis, expected) in [(10_000, "10s"), (1_500, "1500ms"), (0, "1s")] {
            assert_eq!(duration(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn every_shipped_adapter_can_be_asked_for() {
        let shipped = crate::ingest::Adapters::shipped();
        for name in shipped.names() {
            let adapter = shipped.get(&name).expect("listed");
            let select = Select::default();
            let writer =
                Writer { adapter: &adapter, select: &select, window: Duration::from_mins(1) };
            for leaf in adapter.leaves() {
                assert!(writer.leaf(&leaf, false).is_some(), "{name}: {leaf}");
            }
        }
    }
}
