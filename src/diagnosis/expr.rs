//! `and or not ( )` over the names of evidence, three-valued. Knows no signal and no number.

use std::fmt;

use thiserror::Error;

use super::verdict::Truth;

/// Longest text in bytes: mutation tries an expression once for every part of it.
const MAX_BYTES: usize = 2_000;
/// Deepest nesting of parentheses and `not`.
const MAX_DEPTH: usize = 32;

/// A parsed expression. `and` binds tighter than `or`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// The evidence of this name.
    Name(String),
    /// The opposite.
    Not(Box<Expr>),
    /// All of them.
    All(Vec<Expr>),
    /// At least one.
    Any(Vec<Expr>),
}

/// Why an expression was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "column {column}: {problem}; combine names of `[evidence]` with `and`, `or`, `not` and `( )`"
)]
pub struct ExprError {
    /// Column of the offending character, from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
}

impl Expr {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`ExprError`] with the column.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        if text.len() > MAX_BYTES {
            return parser.fail(format!("longer than {MAX_BYTES} bytes"));
        }
        let expr = parser.any()?;
        match parser.peek() {
            "" => Ok(expr),
            token => parser.fail(format!("`{token}` does not belong here")),
        }
    }

    /// Its value, given the value of each name.
    pub fn eval(&self, truth: &mut impl FnMut(&str) -> Truth) -> Truth {
        match self {
            Self::Name(name) => truth(name),
            Self::Not(inner) => inner.eval(truth).negate(),
            Self::All(parts) => {
                parts.iter().fold(Truth::True, |value, part| value.and(part.eval(truth)))
            }
            Self::Any(parts) => {
                parts.iter().fold(Truth::False, |value, part| value.or(part.eval(truth)))
            }
        }
    }

    /// The names that it uses, in order, repeats included.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Name(name) => vec![name],
            Self::Not(inner) => inner.names(),
            Self::All(parts) | Self::Any(parts) => parts.iter().flat_map(Self::names).collect(),
        }
    }
}

/// As a runbook writes it, with the parentheses that it needs and no others.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Not(inner) => match **inner {
                Self::Name(_) | Self::Not(_) => write!(f, "not {inner}"),
                Self::All(_) | Self::Any(_) => write!(f, "not ({inner})"),
            },
            Self::All(parts) => joined(f, parts, " and "),
            Self::Any(parts) => joined(f, parts, " or "),
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Expr], word: &str) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(word)?;
        }
        match part {
            Expr::Name(_) | Expr::Not(_) => write!(f, "{part}")?,
            // `and` binds tighter than `or`.
            Expr::All(_) if word == " or " => write!(f, "{part}")?,
            Expr::All(_) | Expr::Any(_) => write!(f, "({part})")?,
        }
    }
    Ok(())
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn fail<T>(&self, problem: impl Into<String>) -> Result<T, ExprError> {
        let column = self.text[..self.at].chars().count() + 1;
        Err(ExprError { column, problem: problem.into() })
    }

    /// The next token, `""` at the end.
    fn peek(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        let rest = &self.text[self.at..];
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        match rest.find(|c: char| !named(c)) {
            Some(0) => &rest[..rest.chars().next().map_or(0, char::len_utf8)],
            Some(end) => &rest[..end],
            None => rest,
        }
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        if found {
            self.at += token.len();
        }
        found
    }

    fn any(&mut self) -> Result<Expr, ExprError> {
        let mut parts = vec![self.all()?];
        while self.take("or") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Any(parts) })
    }

    fn all(&mut self) -> Result<Expr, ExprError> {
        let mut parts = vec![self.one()?];
        while self.take("and") {
            parts.push(self.one()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::All(parts) })
    }

    fn one(&mut self) -> Result<Expr, ExprError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail("too deep");
        }
        let expr = if self.take("not") {
            Expr::Not(Box::new(self.one()?))
        } else if self.take("(") {
            let inner = self.any()?;
            if !self.take(")") {
                return self.fail("`)` is missing");
            }
            inner
        } else {
            let name = self.peek();
            let word = name.starts_with(|c: char| c.is_ascii_alphanumeric());
            if !word || matches!(name, "and" | "or") {
                return self.fail("the name of a piece of evidence is missing");
            }
            self.at += name.len();
            Expr::Name(name.to_owned())
        };
        self.depth -= 1;
        Ok(expr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_follow_precedence_and_kleene() {
        let mut truth = |name: &str| match name {
            "t" => Truth::True,
            "f" => Truth::False,
            _ => Truth::Unknown,
        };
        let mut check = |text: &str, expected: Truth| {
            let expr = Expr::parse(text).expect(text);
            assert_eq!(expr.eval(&mut truth), expected, "{text}");
        };
        check("t", Truth::True);
        check("not t", Truth::False);
        check("t or f and f", Truth::True);
        check("(t or f) and f", Truth::False);
        check("u and f", Truth::False);
        check("u or t", Truth::True);
        check("not u or f", Truth::Unknown);
        check("t and not (f or u)", Truth::Unknown);
    }

    #[test]
    fn errors_name_the_column() {
        let check = |text: &str, column: usize| {
            assert_eq!(Expr::parse(text).expect_err(text).column, column, "{text}");
        };
        check("", 1);
        check("a and", 6);
        check("a b", 3);
        check("(a or b", 8);
        check("a & b", 3);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ab()notrd -]{0,60}|\\PC{0,30}") {
            if let Ok(expr) = Expr::parse(&text) {
                prop_assert_eq!(Expr::parse(&expr.to_string()), Ok(expr));
            }
        }
    }
}
