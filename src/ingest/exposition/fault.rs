//! What can be wrong with one line of an exposition, in words for the person who has to mend it.

use std::borrow::Cow;

use thiserror::Error;

use super::{LABELS_MAX, LINE_BYTES_MAX};

/// Characters of the offending text that an error shows.
const EXCERPT_CHARS_MAX: usize = 40;

/// Why a line was not read as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Over the limit of one line.
    #[error("{bytes} bytes are more than the {LINE_BYTES_MAX} that one line may have")]
    LineTooLong {
        /// Length of the line.
        bytes: usize,
    },
    /// Bytes that are no UTF-8.
    #[error("not valid UTF-8")]
    NotUtf8,
    /// The sample was kept.
    #[error("ends with a carriage return, which Prometheus takes for a part of the line")]
    CarriageReturn,
    /// Neither a name nor a comment.
    #[error("expected a metric name, a `{{` or a comment, got {0}")]
    Start(String),
    /// A blank line in `OpenMetrics`.
    #[error("a blank line, which OpenMetrics does not allow")]
    Blank,
    /// Braces without a name before or in them.
    #[error("no metric name")]
    NoName,
    /// A second name, in quotes.
    #[error("a second metric name, `{0}`")]
    SecondName(String),
    /// Not a label's name.
    #[error("expected a label name or `}}`, got {0}")]
    LabelName(String),
    /// No `=` after a label's name.
    #[error("expected `=` after label `{label}`, got {got}")]
    LabelEquals {
        /// The label.
        label: String,
        /// What stands there.
        got: String,
    },
    /// No quote after `=`.
    #[error("expected a quoted value for label `{0}`")]
    LabelQuote(String),
    /// Neither `,` nor `}` after a label.
    #[error("expected `,` or `}}` after label `{label}`, got {got}")]
    LabelEnd {
        /// The label.
        label: String,
        /// What stands there.
        got: String,
    },
    /// A quote that is not closed on its line.
    #[error("a quote is not closed on this line")]
    OpenQuote,
    /// Prometheus would drop the scrape: label names are unique.
    #[error("label `{0}` stands twice")]
    LabelTwice(String),
    /// The name of the series is no label of a line.
    #[error("`__name__` cannot be given as a label")]
    NameAsLabel,
    /// Over the limit of labels.
    #[error("more than {LABELS_MAX} labels")]
    TooManyLabels,
    /// Nothing after the series.
    #[error("no value")]
    NoValue,
    /// No blank between a bare name and what follows.
    #[error("expected a blank or `{{` after the metric name, got {0}")]
    NameEnd(String),
    /// Not a number.
    #[error("`{0}` is not a value: a decimal number, NaN, +Inf or -Inf")]
    Value(String),
    /// A finite number that no 64-bit float holds.
    #[error("`{0}` is out of range")]
    OutOfRange(String),
    /// Not a timestamp of this format.
    #[error("{got} is not a timestamp: {wanted}")]
    Timestamp {
        /// What stands there.
        got: String,
        /// What the format allows.
        wanted: &'static str,
    },
    /// Text after the end of the sample.
    #[error("unexpected `{0}` after the sample")]
    Trailing(String),
    /// An exemplar that cannot be read.
    #[error("bad exemplar: {0}")]
    Exemplar(Box<Fault>),
    /// No name in a `# TYPE`, `# HELP` or `# UNIT` line.
    #[error("expected a metric name after `# {0}`")]
    MetaName(&'static str),
    /// Nothing behind the name in a `# TYPE`, `# HELP` or `# UNIT` line of `OpenMetrics`; the text
    /// may be empty, the blank before it has to be there.
    #[error("expected a blank and text after the name in `# {0}`")]
    MetaText(&'static str),
    /// Not a type of this format. A type with blanks around it is applied all the same.
    #[error("`{0}` is not a metric type of this format")]
    Type(String),
    /// `# UNIT` that is not the end of the name.
    #[error("unit `{unit}` is not the suffix of `{family}`")]
    Unit {
        /// The unit.
        unit: String,
        /// The family.
        family: String,
    },
    /// `OpenMetrics` has no free comments.
    #[error("not a TYPE, HELP, UNIT or EOF line, and OpenMetrics has no other comments")]
    Comment,
    /// Text after `# EOF`.
    #[error("text after `# EOF`")]
    AfterEof,
    /// The end is missing.
    #[error("does not end with `# EOF`: the scrape may be cut")]
    NoEof,
}

/// The beginning of `text`, short enough for an error line and safe to show on a terminal.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", printable(&text[..end])),
        None => printable(text).into_owned(),
    }
}

/// What stands at a place of a line, in words.
pub(super) fn found(rest: &str) -> String {
    if rest.is_empty() { "the end of the line".to_owned() } else { format!("`{}`", excerpt(rest)) }
}

/// `text` with everything escaped that would steer a terminal or turn its text round.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let steers = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if steers(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}
