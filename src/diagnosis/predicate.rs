//! The predicate language: one line that a runbook states, the screen shows and the engine evaluates.
//!
//! ```text
//! predicate  = test ["for" duration] ["clear" number]
//! test       = operand ("<" | ">") (number ["%"] | operand ["*" number])
//!            | path "is" ["not"] word
//!            | "error_codes" "matching" "/" pattern "|" pattern ... "/" ("<" | ">") number ["%"]
//! operand    = path ["[" (duration | "fast") "]"] ["@" duration]
//! ```
//!
//! `[1m]` is the mean of the last minute, `[fast]` (also when nothing is written) the shortest
//! window that the sources allow, `@1h` the same reading one hour ago. `for` is how long the
//! comparison must hold before it counts, `clear` the bound at which it stops counting. A pattern
//! names a code, or one `:`-part of a code, with `*` for anything; the number is the share among
//! the provider's codes, or among our gate's when the patterns begin with `gate:`.
//!
//! Only text and structure here: what a signal reads is `evaluate`'s business.

use std::fmt;
use std::time::Duration;

use crate::signal::parse_duration;

use thiserror::Error;

use super::codes::CodePatterns;

/// Longest predicate text in bytes.
pub const MAX_PREDICATE_BYTES: usize = 400;
/// Longest window, `for` and `@`: one day.
const MAX_SPAN: Duration = Duration::from_hours(24);

/// Which way a comparison goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `<`
    Below,
    /// `>`
    Above,
}

impl Op {
    /// Whether `left` stands to `right` as the operator says.
    #[must_use]
    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Below => left < right,
            Self::Above => left > right,
        }
    }
}

/// What a number is averaged over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The shortest window that the sources allow: the newest snapshot.
    Fast,
    /// The mean over this long.
    Span(Duration),
}

/// A signal as a predicate reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The signal, or a dotted path into a record (`limiter_store.p95_s`).
    pub signal: String,
    /// What it is averaged over.
    pub window: Window,
    /// How long ago, `None` for now.
    pub ago: Option<Duration>,
}

/// The right side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// A fixed number.
    Fixed(f64),
    /// Another reading times a factor.
    Scaled {
        /// What is read.
        operand: Operand,
        /// Its factor.
        times: f64,
    },
}

/// What is asked of the readings.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A number against a bound.
    Compare {
        /// The left side.
        left: Operand,
        /// Which way.
        op: Op,
        /// The right side.
        bound: Bound,
    },
    /// A word against a word.
    Is {
        /// Path of the word.
        path: String,
        /// What it should be.
        word: String,
        /// `is not`.
        negated: bool,
    },
    /// The share of refusals whose code matches.
    Codes {
        /// The patterns.
        patterns: CodePatterns,
        /// Which way.
        op: Op,
        /// The share.
        share: f64,
    },
}

/// One parsed predicate. Its text is what the screen shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicate {
    /// As written.
    pub text: String,
    /// What is asked.
    pub test: Test,
    /// How long it must hold.
    pub hold: Duration,
    /// Where it stops counting once it has counted.
    pub clear: Option<f64>,
}

/// Why a predicate text was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("column {column}: {problem}; {remedy}")]
pub struct PredicateError {
    /// Column of the offending character, from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub remedy: &'static str,
}

impl Predicate {
    /// Parses one line.
    ///
    /// # Errors
    /// [`PredicateError`] with the column and a remedy.
    pub fn parse(text: &str) -> Result<Self, PredicateError> {
        let mut parser = Parser { text, at: 0 };
        if text.len() > MAX_PREDICATE_BYTES {
            return parser.fail("the predicate is too long", "keep it within 400 bytes");
        }
        let left = parser.operand()?;
        let asked = match parser.peek_word() {
            "is" => parser.text_test(left)?,
            "matching" => parser.codes_test(&left)?,
            _ => {
                let op = parser.op()?;
                let bound = parser.bound()?;
                Test::Compare { left, op, bound }
            }
        };
        let mut hold = Duration::ZERO;
        if parser.take_word("for") {
            hold = parser.duration()?;
        }
        let mut clear = None;
        if parser.take_word("clear") {
            clear = Some(parser.number()?);
        }
        parser.end()?;
        Ok(Self { text: text.trim().to_owned(), test: asked, hold, clear })
    }

    /// The signals that it reads, without the paths inside records; the one on the left first.
    #[must_use]
    pub fn signals(&self) -> Vec<&str> {
        let root = |path: &'_ str| path.split('.').next().map_or(0, str::len);
        match &self.test {
            Test::Compare { left, bound, .. } => {
                let mut names = vec![&left.signal[..root(&left.signal)]];
                if let Bound::Scaled { operand, .. } = bound {
                    names.push(&operand.signal[..root(&operand.signal)]);
                }
                names.dedup();
                names
            }
            Test::Is { path, .. } => vec![&path[..root(path)]],
            Test::Codes { .. } => vec!["error_codes"],
        }
    }

    /// Whether `clear` lies on the far side of the threshold, as far as a fixed number can tell.
    #[must_use]
    pub fn clear_is_sane(&self) -> bool {
        let Some(clear) = self.clear else { return true };
        match &self.test {
            Test::Compare { op, bound: Bound::Fixed(bound), .. }
            | Test::Codes { op, share: bound, .. } => match op {
                Op::Below => clear >= *bound,
                Op::Above => clear <= *bound,
            },
            Test::Compare { .. } => true,
            Test::Is { .. } => false,
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn fail<T>(
        &self,
        problem: impl Into<String>,
        remedy: &'static str,
    ) -> Result<T, PredicateError> {
        let column = self.text[..self.at].chars().count() + 1;
        Err(PredicateError { column, problem: problem.into(), remedy })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn take(&mut self, token: char) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len_utf8();
        }
        found
    }

    fn peek_word(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        &rest[..rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len())]
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.at += word.len();
        }
        found
    }

    fn expect(&mut self, token: char, remedy: &'static str) -> Result<(), PredicateError> {
        if self.take(token) { Ok(()) } else { self.fail(format!("`{token}` is missing"), remedy) }
    }

    fn operand(&mut self) -> Result<Operand, PredicateError> {
        self.skip_space();
        let start = self.at;
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.ends_with('.') {
            self.at = start;
            return self.fail("a signal is missing", "write a name of the signal catalogue");
        }
        let window = if self.rest().starts_with('[') { self.window()? } else { Window::Fast };
        let mut ago = None;
        if self.rest().starts_with('@') {
            self.at += 1;
            ago = Some(self.duration()?);
        }
        Ok(Operand { signal: name.to_owned(), window, ago })
    }

    fn window(&mut self) -> Result<Window, PredicateError> {
        self.at += 1;
        let window =
            if self.take_word("fast") { Window::Fast } else { Window::Span(self.duration()?) };
        self.expect(']', "close the window, as in `[1m]` or `[fast]`")?;
        Ok(window)
    }

    fn duration(&mut self) -> Result<Duration, PredicateError> {
        self.skip_space();
        let start = self.at;
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '.');
        match parse_duration(word) {
            Some(span) if span <= MAX_SPAN => Ok(span),
            Some(_) => {
                self.at = start;
                self.fail(format!("`{word}` is too long"), "stay within a day")
            }
            None => {
                self.at = start;
                self.fail(format!("`{word}` is no duration"), "write `30s`, `5m` or `1h`")
            }
        }
    }

    fn op(&mut self) -> Result<Op, PredicateError> {
        if self.take('<') {
            Ok(Op::Below)
        } else if self.take('>') {
            Ok(Op::Above)
        } else {
            self.fail("a comparison is missing", "write `<`, `>`, `is WORD` or `matching /CODE/`")
        }
    }

    fn number(&mut self) -> Result<f64, PredicateError> {
        self.skip_space();
        let start = self.at;
        let word = self.take_while(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
        match word.parse::<f64>() {
            Ok(number) if number.is_finite() => {
                let percent = self.take('%');
                Ok(if percent { number / 100.0 } else { number })
            }
            _ => {
                self.at = start;
                self.fail("a number is missing", "write a number such as `0.05`, `5%` or `30`")
            }
        }
    }

    fn bound(&mut self) -> Result<Bound, PredicateError> {
        self.skip_space();
        if self.rest().starts_with('=') {
            return self.fail("`=` is not part of the language", "use `<` or `>` alone");
        }
        if self.rest().starts_with(|c: char| c.is_ascii_lowercase()) {
            let operand = self.operand()?;
            let times = if self.take('*') { self.number()? } else { 1.0 };
            return Ok(Bound::Scaled { operand, times });
        }
        Ok(Bound::Fixed(self.number()?))
    }

    fn text_test(&mut self, left: Operand) -> Result<Test, PredicateError> {
        self.take_word("is");
        let negated = self.take_word("not");
        self.skip_space();
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'));
        if word.is_empty() {
            return self.fail("a word is missing", "write what it should be, as in `is open`");
        }
        Ok(Test::Is { path: left.signal, word: word.to_owned(), negated })
    }

    fn codes_test(&mut self, left: &Operand) -> Result<Test, PredicateError> {
        if left.signal != "error_codes" {
            return self.fail(
                format!("`{}` has no codes", left.signal),
                "`matching` reads `error_codes` only",
            );
        }
        self.take_word("matching");
        self.expect('/', "write the codes as `/first|second*/`")?;
        let inside = self.take_while(|c| c != '/');
        let Some(patterns) = CodePatterns::parse(inside) else {
            return self.fail(
                "the codes cannot be used",
                "write `/first|second*/`, 1 to 40 of them; either all begin with `gate:` or none",
            );
        };
        self.expect('/', "close the codes with `/`")?;
        let op = self.op()?;
        let share = self.number()?;
        Ok(Test::Codes { patterns, op, share })
    }

    fn end(&mut self) -> Result<(), PredicateError> {
        self.skip_space();
        if self.rest().is_empty() {
            return Ok(());
        }
        let word = self.rest().split_whitespace().next().unwrap_or_default();
        self.fail(
            format!("`{word}` does not belong here"),
            "after the comparison only `for DURATION` and then `clear NUMBER` may follow",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Predicate {
        Predicate::parse(text).expect(text)
    }

    #[test]
    fn the_whole_line_is_read() {
        let predicate = parse("tpm_headroom[1m] < 5% for 30s clear 0.15");
        assert_eq!(predicate.hold, Duration::from_secs(30));
        assert_eq!(predicate.clear, Some(0.15));
        let Test::Compare { left, op, bound } = predicate.test else { panic!("a comparison") };
        assert_eq!(left.signal, "tpm_headroom");
        assert_eq!(left.window, Window::Span(Duration::from_mins(1)));
        assert_eq!(op, Op::Below);
        assert_eq!(bound, Bound::Fixed(0.05));
    }

    #[test]
    fn the_right_side_may_be_a_reading() {
        let predicate = parse("tokens_per_request[2m] > tokens_per_request@1h * 1.5 for 60s");
        let Test::Compare { bound: Bound::Scaled { operand, times }, .. } = predicate.test else {
            panic!("a scaled bound")
        };
        assert_eq!(operand.ago, Some(Duration::from_hours(1)));
        assert!((times - 1.5).abs() < f64::EPSILON);
        assert_eq!(
            parse("amplification[fast] > max_attempts_configured * 1.1").signals(),
            ["amplification", "max_attempts_configured"]
        );
    }

    #[test]
    fn words_and_codes_are_read() {
        let is = parse("breaker.state is not half_open");
        assert_eq!(is.signals(), ["breaker"]);
        assert!(matches!(is.test, Test::Is { negated: true, .. }));
        let codes = parse("error_codes matching /insufficient_quota|billing*/ > 50% for 3s");
        assert!(matches!(codes.test, Test::Codes { share, .. } if (share - 0.5).abs() < 1e-9));
    }

    #[test]
    fn errors_name_the_column_and_the_remedy() {
        let check = |text: &str, column: usize, remedy: &str| {
            let error = Predicate::parse(text).expect_err(text);
            assert_eq!(error.column, column, "{text}: {error}");
            assert!(error.remedy.contains(remedy), "{text}: {error}");
        };
        check("", 1, "catalogue");
        check("amplification", 14, "`<`, `>`");
        check("amplification >", 16, "number");
        check("amplification >= 3", 16, "alone");
        check("amplification[1q] > 3", 15, "30s");
        check("amplification[1m > 3", 18, "close the window");
        check("amplification > 3 for 9d", 23, "within a day");
        check("amplification > 3 clear 1 for 3s", 27, "may follow");
        check("amplification matching /a/ > 1", 15, "error_codes");
        check("error_codes matching /gate:a|b/ > 1", 31, "all begin with");
    }

    #[test]
    fn clear_must_lie_beyond_the_threshold() {
        assert!(parse("tpm_headroom < 0.05 clear 0.15").clear_is_sane());
        assert!(!parse("tpm_headroom < 0.05 clear 0.01").clear_is_sane());
        assert!(!parse("amplification > 3 clear 4").clear_is_sane());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = Predicate::parse(&text);
        }

        #[test]
        fn near_misses_do_not_panic(
            text in "(amplification|error_codes)(\\[1m)?\\]? ?(<|>|is|matching)? ?/?[a-z0-9*|:.%@]{0,9}/? (for )?[0-9a-z]{0,3}"
        ) {
            let _ = Predicate::parse(&text);
        }
    }
}
