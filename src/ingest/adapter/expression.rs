//! Reads the text of an adapter's expression into its tree. Evaluates nothing.
//!
//! The form, which `assets/adapters/README.md` explains with examples:
//!
//! ```text
//! number    = 1, 0.5, 1e3
//! selector  = metric  or  metric{label = "x", label != "x", label in ["a", "b"], label not in ["c*"]}
//! series    = selector | rate(selector) | increase(selector)
//!           | (sum|min|max|count) by (label, ...) (series) | series > number | series == number
//! value     = number | signal | rate(selector) | increase(selector) | increase(selector, 1h)
//!           | (sum|min|max|count)(series) | quantile(number, histogram) | clamp(value, number, number)
//!           | (value) | value + - * / value | value > number
//! ```
//!
//! `rate` and `increase` of several series are added up. In a label's value `*` stands for anything
//! and `?` for any one character; a missing label has the value `""`.

use std::time::Duration;

use thiserror::Error;

use crate::signal::{WATCHED, parse_duration};

use super::super::cursor::Cursor;
use super::ast::{Expr, Fold, Keep, Matcher, Op, Pattern, Selector, Series};

/// Longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 2_000;
/// Longest span of an increase: as long as anything is remembered.
const SPAN_MAX: Duration = WATCHED;
/// Deepest nesting.
const DEPTH_MAX: usize = 24;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message} at character {at}")]
pub struct ExpressionError {
    /// What is wrong.
    pub message: String,
    /// Where, from 1.
    pub at: usize,
}

/// Reads a value expression.
///
/// # Errors
///
/// With the place, when the text is none.
pub fn parse_expression(text: &str) -> Result<Expr, ExpressionError> {
    let mut parser = Parser::new(text)?;
    let expr = parser.filtered()?;
    parser.end()?;
    Ok(expr)
}

/// Reads a selector.
///
/// # Errors
///
/// With the place, when the text is none.
pub fn parse_selector(text: &str) -> Result<Selector, ExpressionError> {
    let mut parser = Parser::new(text)?;
    let selector = parser.selector()?;
    parser.end()?;
    Ok(selector)
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    depth: usize,
}

type Parsed<T> = Result<T, ExpressionError>;

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parsed<Self> {
        let parser = Self { cursor: Cursor::new(text), depth: 0 };
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(parser.error(format!("longer than {EXPRESSION_BYTES_MAX} bytes")));
        }
        Ok(parser)
    }

    fn error(&self, message: impl Into<String>) -> ExpressionError {
        ExpressionError { message: message.into(), at: self.cursor.place() }
    }

    fn rest(&mut self) -> &'a str {
        self.cursor.rest()
    }

    fn eat(&mut self, token: &str) -> bool {
        self.cursor.eat(token)
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("`{token}` is expected"))) }
    }

    fn end(&mut self) -> Parsed<()> {
        let rest = self.rest();
        if rest.is_empty() { Ok(()) } else { Err(self.error("an operator or the end is expected")) }
    }

    /// The next word, without taking it. Metric names may hold colons and dots.
    fn peek_word(&mut self) -> &'a str {
        let rest = self.rest();
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if rest.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &rest[..end] }
    }

    fn word(&mut self, what: &str) -> Parsed<&'a str> {
        let word = self.peek_word();
        if word.is_empty() {
            return Err(self.error(format!("{what} is expected")));
        }
        self.cursor.at += word.len();
        Ok(word)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.cursor.at += word.len();
        }
        found
    }

    fn number(&mut self) -> Parsed<f64> {
        let rest = self.rest();
        let mut end = 0;
        for (offset, c) in rest.char_indices() {
            let after_exponent = offset > 0 && matches!(rest.as_bytes()[offset - 1], b'e' | b'E');
            let is_sign = matches!(c, '-' | '+') && (offset == 0 || after_exponent);
            if !(is_sign || c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E')) {
                break;
            }
            end = offset + 1;
        }
        let number: f64 = rest[..end].parse().map_err(|_| self.error("a number is expected"))?;
        if !number.is_finite() {
            return Err(self.error("the number is too large"));
        }
        self.cursor.at += end;
        Ok(number)
    }

    fn text(&mut self) -> Parsed<&'a str> {
        let Some(inside) = self.rest().strip_prefix('"') else {
            return Err(self.error("a text in double quotes is expected"));
        };
        let end = inside.find('"').ok_or_else(|| self.error("the text has no closing quote"))?;
        self.cursor.at += end + 2;
        Ok(&inside[..end])
    }

    /// One level deeper, bounded so that no text can exhaust the stack.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(format!("nested deeper than {DEPTH_MAX}")));
        }
        let read = read(self)?;
        self.depth -= 1;
        Ok(read)
    }

    fn filtered(&mut self) -> Parsed<Expr> {
        let of = self.sum()?;
        if self.eat(">") {
            let bound = self.number()?;
            return Ok(Expr::Above { of: Box::new(of), bound });
        }
        Ok(of)
    }

    fn sum(&mut self) -> Parsed<Expr> {
        let mut left = self.product()?;
        loop {
            let op = match self.rest().as_bytes().first() {
                Some(b'+') => Op::Add,
                Some(b'-') => Op::Subtract,
                _ => return Ok(left),
            };
            self.cursor.at += 1;
            left = binary(op, left, self.product()?);
        }
    }

    fn product(&mut self) -> Parsed<Expr> {
        let mut left = self.atom()?;
        loop {
            let op = match self.rest().as_bytes().first() {
                Some(b'*') => Op::Multiply,
                Some(b'/') => Op::Divide,
                _ => return Ok(left),
            };
            self.cursor.at += 1;
            left = binary(op, left, self.atom()?);
        }
    }

    fn atom(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            if parser.eat("(") {
                let inside = parser.filtered()?;
                parser.expect(")")?;
                return Ok(inside);
            }
            let word = parser.peek_word();
            match word {
                "" => Ok(Expr::Number(parser.number()?)),
                "rate" => Ok(Expr::Fold { fold: Fold::Sum, of: parser.series()? }),
                "increase" => parser.increase(),
                "quantile" => parser.quantile(),
                "clamp" => parser.clamp(),
                _ if fold(word).is_some() => parser.fold(),
                _ => parser.signal(),
            }
        })
    }

    fn signal(&mut self) -> Parsed<Expr> {
        let word = self.word("a value")?;
        if matches!(self.rest().as_bytes().first(), Some(b'{' | b'(')) {
            return Err(self.error(format!(
                "`{word}` names series here; say which number they make, as in `sum({word})` or \
                 `rate({word})`,"
            )));
        }
        Ok(Expr::Signal(word.into()))
    }

    fn fold(&mut self) -> Parsed<Expr> {
        let start = self.cursor.at;
        let Some(fold) = fold(self.word("a fold")?) else {
            return Err(self.error("`sum`, `min`, `max` or `count` is expected"));
        };
        if self.peek_word() == "by" {
            self.cursor.at = start;
            return Err(self.error("groups are several numbers; put `sum(...)` or the like around"));
        }
        self.expect("(")?;
        let of = self.kept_series()?;
        self.expect(")")?;
        Ok(Expr::Fold { fold, of })
    }

    fn increase(&mut self) -> Parsed<Expr> {
        self.word("`increase`")?;
        self.expect("(")?;
        let of = self.selector()?;
        if !self.eat(",") {
            self.expect(")")?;
            return Ok(Expr::Fold { fold: Fold::Sum, of: Series::Increases(of) });
        }
        let rest = self.rest();
        let text = rest[..rest.find(')').unwrap_or(rest.len())].trim_end();
        let Some(span) = parse_duration(text).filter(|span| *span <= SPAN_MAX) else {
            return Err(self.error("a span is expected, such as 15m, 1h at most,"));
        };
        self.cursor.at += text.len();
        self.expect(")")?;
        Ok(Expr::Over { of, span })
    }

    fn quantile(&mut self) -> Parsed<Expr> {
        self.word("`quantile`")?;
        self.expect("(")?;
        let q = self.number()?;
        if !(0.0..=1.0).contains(&q) {
            return Err(self.error("a quantile lies in 0..=1"));
        }
        self.expect(",")?;
        let of = self.selector()?;
        self.expect(")")?;
        Ok(Expr::Quantile { q, of })
    }

    fn clamp(&mut self) -> Parsed<Expr> {
        self.word("`clamp`")?;
        self.expect("(")?;
        let of = Box::new(self.filtered()?);
        self.expect(",")?;
        let min = self.number()?;
        self.expect(",")?;
        let max = self.number()?;
        if min > max {
            return Err(self.error("the lower bound is above the upper one"));
        }
        self.expect(")")?;
        Ok(Expr::Clamp { of, min, max })
    }

    fn kept_series(&mut self) -> Parsed<Series> {
        let mut series = self.nested(Self::series)?;
        loop {
            let keep = match self.rest() {
                rest if rest.starts_with("==") => Keep::Equal,
                rest if rest.starts_with('>') => Keep::Above,
                _ => return Ok(series),
            };
            self.cursor.at += if keep == Keep::Equal { 2 } else { 1 };
            let bound = self.number()?;
            series = Series::Kept { keep, bound, of: Box::new(series) };
        }
    }

    fn series(&mut self) -> Parsed<Series> {
        let word = self.peek_word();
        if let "rate" | "increase" = word {
            self.word("`rate`")?;
            self.expect("(")?;
            let selector = self.selector()?;
            self.expect(")")?;
            let is_rate = word == "rate";
            return Ok(if is_rate { Series::Rates(selector) } else { Series::Increases(selector) });
        }
        let Some(fold) = fold(word) else { return Ok(Series::Values(self.selector()?)) };
        self.word("a fold")?;
        if !self.eat_word("by") {
            return Err(self.error("`by` and labels are expected"));
        }
        self.expect("(")?;
        let mut by = vec![self.word("a label")?.into()];
        while self.eat(",") {
            by.push(self.word("a label")?.into());
        }
        self.expect(")")?;
        self.expect("(")?;
        let of = Box::new(self.kept_series()?);
        self.expect(")")?;
        Ok(Series::Grouped { fold, by, of })
    }

    fn selector(&mut self) -> Parsed<Selector> {
        let metric = self.word("the name of a metric")?.into();
        let mut matchers = Vec::new();
        if self.eat("{") {
            while !self.eat("}") {
                matchers.push(self.matcher()?);
                if !self.eat(",") {
                    self.expect("}")?;
                    break;
                }
            }
        }
        Ok(Selector { metric, matchers })
    }

    fn matcher(&mut self) -> Parsed<Matcher> {
        let label = self.word("a label")?.into();
        let one = |wanted, text| Matcher { label, wanted, patterns: vec![Pattern::new(text)] };
        if self.eat("!=") {
            return Ok(one(false, self.text()?));
        }
        if self.eat("=") {
            return Ok(one(true, self.text()?));
        }
        let wanted = !self.eat_word("not");
        if !self.eat_word("in") {
            return Err(self.error("`=`, `!=`, `in` or `not in` is expected"));
        }
        self.expect("[")?;
        let mut patterns = vec![Pattern::new(self.text()?)];
        while self.eat(",") {
            patterns.push(Pattern::new(self.text()?));
        }
        self.expect("]")?;
        let Matcher { label, .. } = one(wanted, "");
        Ok(Matcher { label, wanted, patterns })
    }
}

fn binary(op: Op, left: Expr, right: Expr) -> Expr {
    Expr::Binary { op, left: Box::new(left), right: Box::new(right) }
}

fn fold(word: &str) -> Option<Fold> {
    match word {
        "sum" => Some(Fold::Sum),
        "min" => Some(Fold::Min),
        "max" => Some(Fold::Max),
        "count" => Some(Fold::Count),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(metric: &str) -> Selector {
        Selector { metric: metric.into(), matchers: Vec::new() }
    }

    fn rate(metric: &str) -> Expr {
        Expr::Fold { fold: Fold::Sum, of: Series::Rates(selector(metric)) }
    }

    fn check(text: &str, expected: &Expr) {
        assert_eq!(&parse_expression(text).expect(text), expected, "{text}");
    }

    #[test]
    fn texts_become_trees() {
        check("1e3", &Expr::Number(1e3));
        check(" -2.5", &Expr::Number(-2.5));
        check("rate(a:b)", &rate("a:b"));
        check("rate(a) - rate(b) * 2", &{
            let product = binary(Op::Multiply, rate("b"), Expr::Number(2.0));
            binary(Op::Subtract, rate("a"), product)
        });
        check("1 - own_rpm_headroom", &{
            binary(Op::Subtract, Expr::Number(1.0), Expr::Signal("own_rpm_headroom".into()))
        });
        check(
            "(rate(a)) / rate(b) > 0",
            &Expr::Above { of: Box::new(binary(Op::Divide, rate("a"), rate("b"))), bound: 0.0 },
        );
        let span = Duration::from_mins(15);
        check("increase(a, 15m)", &Expr::Over { of: selector("a"), span });
        check("quantile(0.95, h)", &Expr::Quantile { q: 0.95, of: selector("h") });
        check(
            "count(min by (id, x) (g) == 2)",
            &Expr::Fold {
                fold: Fold::Count,
                of: Series::Kept {
                    keep: Keep::Equal,
                    bound: 2.0,
                    of: Box::new(Series::Grouped {
                        fold: Fold::Min,
                        by: vec!["id".into(), "x".into()],
                        of: Box::new(Series::Values(selector("g"))),
                    }),
                },
            },
        );
    }

    #[test]
    fn a_tree_is_written_as_it_was_read() {
        let mut texts: Vec<String> = [
            "1 - (2 - 3) * rate(a) / (rate(b) / 2)",
            "clamp(1 - sum(a > 0 == 3), 0, 1) > 2",
            "count(min by (id, x) (g == 2) > 1)",
            "(rate(a) > 0) + increase(b{c not in [\"x\", \"5*\"]}, 15m)",
        ]
        .map(str::to_owned)
        .into();
        let adapters = crate::ingest::adapter::Adapters::shipped();
        for name in adapters.names() {
            let adapter = adapters.get(&name).expect("it was named");
            let readings = adapter.signals.values().filter_map(|entry| match entry {
                super::super::model::Entry::Readings(readings) => Some(readings),
                super::super::model::Entry::Absent(_) => None,
            });
            let read = readings.flatten().flat_map(super::super::model::Reading::expressions);
            texts.extend(read.map(ToString::to_string));
        }
        assert!(texts.len() > 200, "{} expressions", texts.len());
        for text in texts {
            let tree = parse_expression(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let again = parse_expression(&tree.to_string()).expect("it was written by weir");
            assert_eq!(again, tree, "{text}");
        }
    }

    #[test]
    fn labels_are_matched_in_four_ways() {
        let matcher = |label: &str, wanted, patterns: &[&str]| Matcher {
            label: label.into(),
            wanted,
            patterns: patterns.iter().map(|text| Pattern::new(text)).collect(),
        };
        let text = r#"m{a="1", b != "", c in ["x", "5??"], d not in ["*y"],}"#;
        let expected = vec![
            matcher("a", true, &["1"]),
            matcher("b", false, &[""]),
            matcher("c", true, &["x", "5??"]),
            matcher("d", false, &["*y"]),
        ];
        assert_eq!(parse_selector(text).expect(text).matchers, expected);
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        let deep = format!("{}1{}", "(".repeat(40), ")".repeat(40));
        for (text, expected) in [
            ("", "a number is expected at character 1"),
            ("rate(a", "`)` is expected at character 7"),
            ("rate(a) rate(b)", "an operator or the end is expected at character 9"),
            ("a{x=\"1\"}", "`a` names series here"),
            ("sum by (x) (a)", "groups are several numbers"),
            ("rate(a{x=1})", "a text in double quotes is expected at character 10"),
            ("rate(a{x=\"1})", "the text has no closing quote"),
            ("rate(a{x ~ \"1\"})", "`=`, `!=`, `in` or `not in` is expected"),
            ("quantile(95, a)", "a quantile lies in 0..=1"),
            ("clamp(1, 2, 1)", "the lower bound is above"),
            ("1e999", "the number is too large"),
            ("increase(a, 2h)", "a span is expected, such as 15m, 1h at most, at character 13"),
            ("increase(a, b)", "a span is expected"),
            ("rate(a, 1h)", "`)` is expected at character 7"),
            (deep.as_str(), "nested deeper than 24"),
        ] {
            let error = parse_expression(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let long = "1+".repeat(EXPRESSION_BYTES_MAX);
        assert!(parse_expression(&long).is_err());
    }
}
