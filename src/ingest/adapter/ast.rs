//! What an adapter's expression is, once read: a tree that is evaluated over one source's series.
//!
//! Every node has a counterpart in `PromQL`, so the tree can be translated for a source that is
//! reached through Prometheus. Holds no values and knows no gateway.

use std::fmt;
use std::time::Duration;

/// A text in which `*` stands for anything and `?` for any one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    shape: Shape,
}

/// Nearly all patterns are a word with at most one star at an end, and those need no search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A word.
    Word,
    /// `word*`.
    Begins,
    /// `*word`.
    Ends,
    /// Anything else.
    Other,
}

impl Pattern {
    /// The pattern as it was written.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let is_word = |text: &str| !text.contains(['*', '?']);
        let shape = match (text.strip_suffix('*'), text.strip_prefix('*')) {
            _ if is_word(text) => Shape::Word,
            (Some(word), _) if is_word(word) => Shape::Begins,
            (_, Some(word)) if is_word(word) => Shape::Ends,
            _ => Shape::Other,
        };
        Self { text: text.into(), shape }
    }

    /// Whether the whole of `text` fits.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.text.as_bytes(), text.as_bytes());
        match self.shape {
            Shape::Word => pattern == text,
            Shape::Begins => text.starts_with(&pattern[..pattern.len() - 1]),
            Shape::Ends => text.ends_with(&pattern[1..]),
            Shape::Other => glob(pattern, text),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Linear in practice: only the last star is ever taken back. Bytes will do, `?` is for digits.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => match &mut retry {
                Some((star, from)) => {
                    *from += 1;
                    (at, read) = (*star + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// A demand on one label. A missing label is an empty one, as in Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// The label.
    pub label: Box<str>,
    /// Whether it has to fit one of the patterns, or none.
    pub wanted: bool,
    /// What it is held against.
    pub patterns: Vec<Pattern>,
}

impl Matcher {
    /// Whether a series with this value of the label is selected.
    #[must_use]
    pub fn accepts(&self, value: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(value)) == self.wanted
    }
}

/// Some of the series of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Name of the metric; of the histogram in a quantile.
    pub metric: Box<str>,
    /// All have to accept.
    pub matchers: Vec<Matcher>,
}

/// The words of a fold, as an expression has them.
impl fmt::Display for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
        })
    }
}

/// As an adapter file has it.
impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(of) => of.fmt(f),
            Self::Rates(of) => write!(f, "rate({of})"),
            Self::Increases(of) => write!(f, "increase({of})"),
            Self::Grouped { fold, by, of } => write!(f, "{fold} by ({}) ({of})", by.join(", ")),
            Self::Kept { keep: Keep::Above, bound, of } => write!(f, "{of} > {bound}"),
            Self::Kept { keep: Keep::Equal, bound, of } => write!(f, "{of} == {bound}"),
        }
    }
}

/// As an adapter file has it, so that reading it gives the same tree.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Signal(name) => f.write_str(name),
            Self::Fold { fold: Fold::Sum, of: of @ (Series::Rates(_) | Series::Increases(_)) } => {
                of.fmt(f)
            }
            Self::Fold { fold, of } => write!(f, "{fold}({of})"),
            Self::Quantile { q, of } => write!(f, "quantile({q}, {of})"),
            Self::Over { of, span } => write!(f, "increase({of}, {}s)", span.as_secs()),
            Self::Binary { op, left, right } => {
                left.within(f, op.rank())?;
                write!(f, " {} ", op.sign())?;
                // Operators of one rank are taken from the left.
                right.within(f, op.rank() + 1)
            }
            Self::Clamp { of, min, max } => write!(f, "clamp({of}, {min}, {max})"),
            Self::Above { of, bound } => write!(f, "{of} > {bound}"),
        }
    }
}

impl Expr {
    /// Writes it where it stands under an operator of this rank: in brackets if it binds less.
    fn within(&self, f: &mut fmt::Formatter<'_>, rank: u8) -> fmt::Result {
        let own = match self {
            Self::Above { .. } => 0,
            Self::Binary { op, .. } => op.rank(),
            _ => u8::MAX,
        };
        if own < rank { write!(f, "({self})") } else { write!(f, "{self}") }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.metric)?;
        for (index, Matcher { label, wanted, patterns }) in self.matchers.iter().enumerate() {
            let start = if index == 0 { "{" } else { ", " };
            let not = if *wanted { "" } else { "not " };
            let values: Vec<_> = patterns.iter().map(|pattern| format!("\"{pattern}\"")).collect();
            write!(f, "{start}{label} {not}in [{}]", values.join(", "))?;
        }
        f.write_str(if self.matchers.is_empty() { "" } else { "}" })
    }
}

/// How several numbers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// All together.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// How many there are.
    Count,
}

/// Which numbers a comparison keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those above the bound.
    Above,
    /// Those equal to it.
    Equal,
}

impl Keep {
    /// Whether `value` is kept.
    #[must_use]
    #[expect(clippy::float_cmp, reason = "states are small whole numbers, as in PromQL's `==`")]
    pub fn keeps(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Above => value > bound,
            Self::Equal => value == bound,
        }
    }
}

/// Numbers, one per series or group of series.
#[derive(Clone, Debug, PartialEq)]
pub enum Series {
    /// What a gauge says now.
    Values(Selector),
    /// What a counter gained per second of the window.
    Rates(Selector),
    /// What a counter gained in the window.
    Increases(Selector),
    /// One number per combination of labels.
    Grouped {
        /// How a group becomes one number.
        fold: Fold,
        /// The labels that tell groups apart.
        by: Vec<Box<str>>,
        /// What is grouped.
        of: Box<Series>,
    },
    /// Those that a comparison keeps.
    Kept {
        /// Which.
        keep: Keep,
        /// The number to compare with.
        bound: f64,
        /// What is compared.
        of: Box<Series>,
    },
}

impl Series {
    /// The selection at the bottom.
    #[must_use]
    pub fn selector(&self) -> &Selector {
        match self {
            Self::Values(selector) | Self::Rates(selector) | Self::Increases(selector) => selector,
            Self::Grouped { of, .. } | Self::Kept { of, .. } => of.selector(),
        }
    }

    /// Whether it is about a span of time and not about now.
    #[must_use]
    pub fn needs_window(&self) -> bool {
        match self {
            Self::Values(_) => false,
            Self::Rates(_) | Self::Increases(_) => true,
            Self::Grouped { of, .. } | Self::Kept { of, .. } => of.needs_window(),
        }
    }
}

/// An arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

impl Op {
    const fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
        }
    }

    /// How tightly it binds.
    const fn rank(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 1,
            Self::Multiply | Self::Divide => 2,
        }
    }
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A constant.
    Number(f64),
    /// Another signal of the same adapter.
    Signal(Box<str>),
    /// Several numbers made one.
    Fold {
        /// How.
        fold: Fold,
        /// Of what.
        of: Series,
    },
    /// A quantile of a histogram over the window.
    Quantile {
        /// Which, 0..=1.
        q: f64,
        /// The histogram, without `_bucket`.
        of: Selector,
    },
    /// What counters gained over a span of their own, longer than the window, added up.
    Over {
        /// The counters.
        of: Selector,
        /// The span.
        span: Duration,
    },
    /// Two numbers made one.
    Binary {
        /// How.
        op: Op,
        /// The left one.
        left: Box<Expr>,
        /// The right one.
        right: Box<Expr>,
    },
    /// Held within bounds.
    Clamp {
        /// What.
        of: Box<Expr>,
        /// The lower bound.
        min: f64,
        /// The upper bound.
        max: f64,
    },
    /// Unknown unless above a bound.
    Above {
        /// What.
        of: Box<Expr>,
        /// The bound.
        bound: f64,
    },
}

impl Expr {
    /// Calls `visit` for this node and all below it, left to right.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        visit(self);
        match self {
            Self::Binary { left, right, .. } => {
                left.walk(visit);
                right.walk(visit);
            }
            Self::Clamp { of, .. } | Self::Above { of, .. } => of.walk(visit),
            Self::Number(_)
            | Self::Signal(_)
            | Self::Fold { .. }
            | Self::Quantile { .. }
            | Self::Over { .. } => {}
        }
    }

    /// The names of the metrics that it reads.
    #[must_use]
    pub fn metrics(&self) -> Vec<String> {
        let mut metrics = Vec::new();
        self.walk(&mut |node| match node {
            Self::Fold { of, .. } => metrics.push(of.selector().metric.to_string()),
            Self::Quantile { of, .. } => metrics.push(bucket_metric(&of.metric)),
            Self::Over { of, .. } => metrics.push(of.metric.to_string()),
            _ => {}
        });
        metrics
    }

    /// Whether it is made of sums alone, so that it can only grow when another instance is added.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        match self {
            Self::Number(number) => *number >= 0.0,
            // The other signal has been judged by its own expression.
            Self::Signal(_)
            | Self::Over { .. }
            | Self::Fold { fold: Fold::Sum | Fold::Count, .. } => true,
            Self::Binary { op: Op::Add, left, right } => left.adds_up() && right.adds_up(),
            Self::Binary { op: Op::Multiply, left, right } => match (&**left, &**right) {
                (Self::Number(by), of) | (of, Self::Number(by)) => *by >= 0.0 && of.adds_up(),
                _ => false,
            },
            Self::Fold { .. }
            | Self::Quantile { .. }
            | Self::Binary { .. }
            | Self::Clamp { .. }
            | Self::Above { .. } => false,
        }
    }

    /// The metrics that are counted over a span of their own.
    #[must_use]
    pub fn spans(&self) -> Vec<(&str, Duration)> {
        let mut spans = Vec::new();
        self.walk(&mut |node| {
            if let Self::Over { of, span } = node {
                spans.push((&*of.metric, *span));
            }
        });
        spans
    }

    /// The signals that it refers to.
    #[must_use]
    pub fn signals(&self) -> Vec<&str> {
        let mut signals = Vec::new();
        self.walk(&mut |node| {
            if let Self::Signal(name) = node {
                signals.push(&**name);
            }
        });
        signals
    }
}

/// Where the buckets of a histogram stand.
pub(in crate::ingest) fn bucket_metric(histogram: &str) -> String {
    format!("{histogram}_bucket")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        let check = |pattern: &str, text: &str, expected: bool| {
            assert_eq!(Pattern::new(pattern).matches(text), expected, "{pattern} {text}");
        };
        for (pattern, text, expected) in [
            ("429", "429", true),
            ("429", "4290", false),
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
            ("5??", "503", true),
            ("5??", "50", false),
            ("5??", "5033", false),
            ("/v1/*", "/v1/chat", true),
            ("/v1/*", "/v2/chat", false),
            ("*a*b", "xaaxb", true),
            ("*a*b", "xaaxbc", false),
        ] {
            check(pattern, text, expected);
        }
        let long = "a".repeat(10_000);
        check("*a*a*a*a*a*b", &long, false);
    }
}
