//! The predicate language: one line that a runbook states, the screen shows and the engine evaluates.
//!
//! ```text
//! predicate  = test ["for" duration] ["clear" number]
//! test       = operand ("<" | ">") (number ["%"] | operand ["*" number])
//!            | path "is" ["not"] word
//!            | path "is" "known"
//!            | "error_codes" "matching" "/" pattern "|" pattern ... "/" ("<" | ">") number ["%"]
//!            | path ("rising" | "falling") duration
//!            | path ("rose" | "fell") "before" path ["rose" | "fell"]
//! operand    = path ["[" (duration | "fast") "]"] ["@" duration]
//! ```
//!
//! `[1m]` is the mean of the last minute, `[fast]` (also when nothing is written) the shortest
//! window that the sources allow, `@1h` the same reading one hour ago. `for` is how long the
//! comparison must hold before it counts, `clear` the bound at which it stops counting. A pattern
//! names a code, or one `:`-part of a code, with `*` for anything; the number is the share among
//! the provider's codes, or among our gate's when the patterns begin with `gate:`. A trend and an
//! order of onset have no bound, so `for` may follow but `clear` may not; the second signal of an
//! order `rose` when nothing else is written. `is known` is true or unknown, never false: for what
//! may only be concluded where a source counts a signal at all.
//!
//! Only text and structure here: what a signal reads is `evaluate`'s business.

mod parse;

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::codes::CodePatterns;

use self::parse::Parser;

/// Longest predicate text in bytes.
pub const MAX_PREDICATE_BYTES: usize = 400;
/// Longest `for`: one day.
const MAX_HOLD: Duration = Duration::from_hours(24);
/// Longest window, `@` and trend: no more is kept.
const MAX_SPAN: Duration = Duration::from_hours(1);
/// Farthest back that a window reaches: an hour, and a minute more for `[1m]@1h`.
pub(super) const MAX_PAST: Duration = Duration::from_mins(61);
/// Shortest window and `@`: nothing is looked at more often.
const MIN_SPAN: Duration = Duration::from_secs(1);

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

/// Which way a signal goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heading {
    /// It grows.
    Up,
    /// It shrinks.
    Down,
}

impl Heading {
    /// The word for a move that is over, in predicates and in JSON.
    #[must_use]
    pub const fn moved(self) -> &'static str {
        match self {
            Self::Up => "rose",
            Self::Down => "fell",
        }
    }

    /// The word for a move that goes on.
    #[must_use]
    pub const fn moving(self) -> &'static str {
        match self {
            Self::Up => "rising",
            Self::Down => "falling",
        }
    }
}

/// A move of a signal: one side of an order of onset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The signal, or a dotted path into a record.
    pub signal: String,
    /// Which way it went.
    pub way: Heading,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.signal, self.way.moved())
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
    /// A source gives the signal, whatever it reads.
    Known {
        /// Its path.
        path: String,
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
    /// A signal that goes one way all through a span.
    Trend {
        /// The signal.
        signal: String,
        /// Which way.
        way: Heading,
        /// For how long.
        span: Duration,
    },
    /// A signal that moved before another.
    Order {
        /// The one that should have been first.
        first: Moved,
        /// The one after it.
        then: Moved,
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
            "matching" => parser.codes_test(left)?,
            "rising" | "falling" => parser.trend_test(left)?,
            "rose" | "fell" => parser.order_test(left)?,
            _ => {
                let op = parser.op()?;
                let bound = parser.bound()?;
                Test::Compare { left, op, bound }
            }
        };
        let mut hold = Duration::ZERO;
        if parser.take_word("for") {
            hold = parser.duration(Duration::ZERO..=MAX_HOLD, "stay within a day")?;
        }
        let mut clear = None;
        if !matches!(asked, Test::Trend { .. } | Test::Order { .. }) && parser.take_word("clear") {
            clear = Some(parser.number()?);
        }
        parser.end()?;
        Ok(Self { text: text.trim().to_owned(), test: asked, hold, clear })
    }

    /// The signals that it reads, without the paths inside records; the one on the left first.
    #[must_use]
    pub fn signals(&self) -> Vec<&str> {
        let root = |path: &'_ str| path.split('.').next().map_or(0, str::len);
        let mut names: Vec<&str> = match &self.test {
            Test::Codes { .. } => vec!["error_codes"],
            _ => self.paths().map(|path| &path[..root(path)]).collect(),
        };
        names.dedup();
        names
    }

    /// The paths of what it reads, the one on the left first; none when it reads codes.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let (left, right) = match &self.test {
            Test::Compare { left, bound: Bound::Scaled { operand, .. }, .. } => {
                (Some(&left.signal), Some(&operand.signal))
            }
            Test::Compare { left: Operand { signal, .. }, .. }
            | Test::Is { path: signal, .. }
            | Test::Known { path: signal }
            | Test::Trend { signal, .. } => (Some(signal), None),
            Test::Order { first, then } => (Some(&first.signal), Some(&then.signal)),
            Test::Codes { .. } => (None, None),
        };
        left.into_iter().chain(right).map(String::as_str)
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
            Test::Is { .. } | Test::Known { .. } | Test::Trend { .. } | Test::Order { .. } => false,
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
