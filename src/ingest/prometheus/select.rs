//! The label matchers that say which series behind a query API belong to one source.
//!
//! Reads what a person writes in `select`, so that a slip is found where it was made and not as a
//! parse error of a query that nobody wrote. Asks nothing.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::promql;
use crate::ingest::cursor::Cursor;

/// Longest text, in bytes.
const SELECT_BYTES_MAX: usize = 1_000;
/// Most matchers of one source.
const MATCHERS_MAX: usize = 16;
/// The operators; those of two characters first.
const OPERATORS: &[&str] = &["=~", "!~", "!=", "="];

/// Matchers such as `job="litellm",env=~"prod|stage"`. The empty one selects every series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select(Vec<(String, &'static str, String)>);

/// Why a text holds no matchers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message} at character {at}: write matchers as in `job=\"litellm\",env=~\"prod|stage\"`")]
pub struct SelectError {
    message: String,
    /// Where, from 1.
    at: usize,
}

impl FromStr for Select {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let mut reader = Reader(Cursor::new(text));
        if text.len() > SELECT_BYTES_MAX {
            return Err(reader.error(format!("longer than {SELECT_BYTES_MAX} bytes")));
        }
        let in_braces = reader.eat("{");
        let mut matchers = Vec::new();
        while !reader.at_end(in_braces) {
            if matchers.len() == MATCHERS_MAX {
                return Err(reader.error(format!("more than {MATCHERS_MAX} matchers")));
            }
            matchers.push(reader.matcher()?);
            if !reader.eat(",") && !reader.at_end(in_braces) {
                return Err(reader.error("a `,` or the end is expected"));
            }
        }
        if in_braces && !reader.eat("}") {
            return Err(reader.error("`}` is expected"));
        }
        if !reader.rest().is_empty() {
            return Err(reader.error("the end is expected"));
        }
        Ok(Self(matchers))
    }
}

impl Select {
    /// The matchers in `PromQL`, to be put between braces.
    pub(super) fn matchers(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(label, operator, value)| {
            format!("{}{operator}{}", promql::label(label), promql::quoted(value))
        })
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.matchers().collect::<Vec<_>>().join(","))
    }
}

struct Reader<'a>(Cursor<'a>);

impl<'a> Reader<'a> {
    fn error(&self, message: impl Into<String>) -> SelectError {
        SelectError { message: message.into(), at: self.0.place() }
    }

    fn rest(&mut self) -> &'a str {
        self.0.rest()
    }

    fn eat(&mut self, token: &str) -> bool {
        self.0.eat(token)
    }

    fn at_end(&mut self, in_braces: bool) -> bool {
        let rest = self.rest();
        rest.is_empty() || (in_braces && rest.starts_with('}'))
    }

    fn label(&mut self) -> Result<String, SelectError> {
        let rest = self.rest();
        if rest.starts_with('"') {
            return self.value();
        }
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        let label = &rest[..end.unwrap_or(rest.len())];
        if label.is_empty() || label.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.error("the name of a label is expected"));
        }
        if label == "__name__" {
            return Err(self.error("`__name__` is chosen by the adapter, not here"));
        }
        self.0.at += label.len();
        Ok(label.to_owned())
    }

    fn matcher(&mut self) -> Result<(String, &'static str, String), SelectError> {
        let label = self.label()?;
        let Some(operator) = OPERATORS.iter().find(|operator| self.eat(operator)) else {
            return Err(self.error("`=`, `!=`, `=~` or `!~` is expected"));
        };
        Ok((label, operator, self.value()?))
    }

    /// A text in quotes, with `\"`, `\\` and `\n` as `PromQL` has them.
    fn value(&mut self) -> Result<String, SelectError> {
        let rest = self.rest();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return Err(self.error("a value in quotes is expected"));
        };
        let mut value = String::new();
        let mut characters = rest.char_indices().skip(1);
        while let Some((offset, c)) = characters.next() {
            match c {
                c if c == quote => {
                    self.0.at += offset + 1;
                    return Ok(value);
                }
                '\\' => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, escaped @ ('\\' | '"' | '\''))) => value.push(escaped),
                    _ => {
                        self.0.at += offset;
                        return Err(self.error("`\\` stands before none of `\\`, `\"`, `'`, `n`"));
                    }
                },
                c => value.push(c),
            }
        }
        Err(self.error("the value has no closing quote"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_come_out_as_promql() {
        for (text, expected) in [
            ("", "{}"),
            ("{}", "{}"),
            (r#"job="litellm""#, r#"{job="litellm"}"#),
            (r#" { job = "a" , env =~ "x|y" , } "#, r#"{job="a",env=~"x|y"}"#),
            (r#"a!="b",c!~'d"',e="""#, r#"{a!="b",c!~"d\"",e=""}"#),
            (r#"path=~"/v1/\\d+\n""#, r#"{path=~"/v1/\\d+\n"}"#),
            (r#"k8s.pod="a""#, r#"{"k8s.pod"="a"}"#),
        ] {
            let select: Select = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(select.to_string(), expected, "{text}");
            assert_eq!(select.to_string().parse(), Ok(select), "{text}");
        }
    }

    #[test]
    fn a_slip_has_a_place() {
        let long = format!("job=\"{}\"", "x".repeat(SELECT_BYTES_MAX));
        for (text, expected) in [
            ("litellm", "`=`, `!=`, `=~` or `!~` is expected at character 8"),
            ("job=litellm", "a value in quotes is expected at character 5"),
            ("job=\"a", "the value has no closing quote at character 5"),
            ("job=\"a\" env=\"b\"", "a `,` or the end is expected at character 9"),
            ("{job=\"a\"", "`}` is expected at character 9"),
            ("{job=\"a\"} or up", "the end is expected at character 11"),
            ("job=\"a\"}) or vector(1", "a `,` or the end is expected at character 8"),
            ("9=\"a\"", "the name of a label is expected at character 1"),
            ("__name__=\"a\"", "`__name__` is chosen by the adapter, not here at character 1"),
            ("job=\"\\d\"", "`\\` stands before none of"),
            (&long, "longer than 1000 bytes at character 1"),
        ] {
            let error = text.parse::<Select>().expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
