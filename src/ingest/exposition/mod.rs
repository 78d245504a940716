//! Reads the Prometheus text format 0.0.4 and `OpenMetrics` 1.0, one sample at a time, without copying.
//!
//! A bad line costs that line and nothing else: its number and the reason stand in the [`Report`],
//! the good lines are kept. Prometheus itself drops the whole scrape at the first bad line, so the
//! report also says whether it would have ([`Report::prometheus_accepts`]). Knows no metric by name
//! and judges no semantics beyond a line: whether a histogram is complete is the reader's question.
//!
//! Stricter than Prometheus on purpose in four places, where it would read something nobody meant: a
//! label given twice, `__name__` as a label, a line feed inside a label value, and a value glued to a
//! bare name (`a-1`).

mod fault;
mod grammar;
mod meta;
mod number;
mod repeat;
mod text;

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::memchr;
use thiserror::Error;

pub use fault::{Fault, printable};
pub use number::open_metrics_float;
pub use repeat::Repeat;

/// Most bytes of one exposition, after decompression.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// Most bytes of one line.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Most labels of one sample.
pub const LABELS_MAX: usize = 128;
/// Most problems kept word for word; the rest are counted.
pub const PROBLEMS_KEPT_MAX: usize = 100;

/// What may stand between the parts of a line of the text format.
const BLANKS: [char; 2] = [' ', '\t'];

/// The dialect of an exposition. The response's `Content-Type` decides, never what was asked for:
/// servers may answer a request for `OpenMetrics` with the text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4: timestamps in milliseconds.
    Text,
    /// `OpenMetrics` 1.0: timestamps in seconds, ends with `# EOF`.
    OpenMetrics,
}

impl Format {
    /// The dialect that a `Content-Type` names: the text format, unless it says `OpenMetrics`.
    #[must_use]
    pub fn of_content_type(content_type: &str) -> Self {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }
}

/// What a `# TYPE` line says about a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until its process restarts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets with `le`.
    Histogram,
    /// Buckets that may shrink.
    GaugeHistogram,
    /// Quantiles computed by the exporter.
    Summary,
    /// Facts as labels, value 1.
    Info,
    /// One of several states, value 0 or 1.
    StateSet,
    /// Not declared.
    Unknown,
}

impl Kind {
    /// The word of the formats.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
            Self::Unknown => "unknown",
        }
    }
}

/// One sample. Borrows from the body wherever no escape had to be undone.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The series' name.
    pub name: Cow<'a, str>,
    /// Labels in the order of the line, values unescaped.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The value; may be NaN or infinite.
    pub value: f64,
    /// The exporter's own timestamp, in milliseconds since 1970, where it gives one.
    pub timestamp_ms: Option<i64>,
    /// The type of the family it belongs to.
    pub kind: Kind,
    /// Its line, from 1.
    pub line: usize,
}

impl Sample<'_> {
    /// The label's value in the form that Prometheus stores: `le` of a histogram and `quantile` of
    /// a summary are numbers there, so `1` becomes `1.0`.
    #[must_use]
    pub fn stored_value<'s>(&self, label: &str, value: &'s str) -> Cow<'s, str> {
        let is_number =
            matches!((self.kind, label), (Kind::Histogram, "le") | (Kind::Summary, "quantile"));
        match number::value(value) {
            Ok(number) if is_number => Cow::Owned(open_metrics_float(number)),
            _ => Cow::Borrowed(value),
        }
    }
}

/// One line that was not read as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub fault: Fault,
}

/// How the reading of one exposition went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Samples handed on.
    pub samples: usize,
    /// Lines in the body, blank ones and comments included.
    pub lines: usize,
    /// The first [`PROBLEMS_KEPT_MAX`] problems, in order of the lines.
    pub problems: Vec<Problem>,
    /// All problems, also those beyond the kept ones.
    pub problem_count: usize,
    /// The body ends inside a line, or without `# EOF` where the format asks for it: it may be cut.
    pub cut: bool,
}

impl Report {
    /// Whether Prometheus would take this scrape, rather than drop all of it at the first bad line.
    #[must_use]
    pub const fn prometheus_accepts(&self) -> bool {
        self.problem_count == 0
    }

    fn add(&mut self, line: usize, fault: Fault) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_KEPT_MAX {
            self.problems.push(Problem { line, fault });
        }
    }
}

/// The body is larger than weir reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{bytes} bytes are more than the {} MiB that one exposition may have", BODY_BYTES_MAX >> 20)]
pub struct TooLarge {
    /// Size of the body.
    pub bytes: usize,
}

/// Reads `body`, handing every good sample to `on_sample` in order.
///
/// # Errors
///
/// When `body` is longer than [`BODY_BYTES_MAX`]. Bad lines are no error: see [`Report`].
pub fn parse<'a>(
    body: &'a [u8],
    format: Format,
    mut on_sample: impl FnMut(&Sample<'a>),
) -> Result<Report, TooLarge> {
    if body.len() > BODY_BYTES_MAX {
        return Err(TooLarge { bytes: body.len() });
    }
    let mut reader = Reader::new(format);
    let mut rest = body;
    while !rest.is_empty() && !reader.after_end {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        reader.line(&rest[..end], |sample, _| on_sample(sample));
        reader.report.cut = end == rest.len();
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Ok(reader.finish())
}

struct Reader<'a> {
    format: Format,
    families: HashMap<Cow<'a, str>, Kind>,
    sample: Sample<'a>,
    report: Report,
    /// `# EOF` was read.
    at_end: bool,
    /// Something follows `# EOF`; reading stops there.
    after_end: bool,
    carriage_return_told: bool,
}

impl<'a> Reader<'a> {
    fn new(format: Format) -> Self {
        Self {
            format,
            families: HashMap::new(),
            sample: Sample {
                name: Cow::Borrowed(""),
                labels: Vec::new(),
                value: 0.0,
                timestamp_ms: None,
                kind: Kind::Unknown,
                line: 0,
            },
            report: Report::default(),
            at_end: false,
            after_end: false,
            carriage_return_told: false,
        }
    }

    /// Reads one line, without its end, and hands on its sample with where its value begins.
    /// Says whether all is well with the line.
    fn line(&mut self, bytes: &'a [u8], on_sample: impl FnOnce(&Sample<'a>, usize)) -> bool {
        self.report.lines += 1;
        let number = self.report.lines;
        if self.at_end {
            self.after_end = true;
            self.report.add(number, Fault::AfterEof);
            return false;
        }
        match self.read(bytes) {
            Ok(Some(value_at)) => {
                self.sample.line = number;
                self.report.samples += 1;
                on_sample(&self.sample, value_at);
                true
            }
            Ok(None) => true,
            Err(fault) => {
                self.report.add(number, fault);
                false
            }
        }
    }

    /// Reads one line; where its value begins when it left a sample.
    fn read(&mut self, bytes: &'a [u8]) -> Result<Option<usize>, Fault> {
        if bytes.len() > LINE_BYTES_MAX {
            return Err(Fault::LineTooLong { bytes: bytes.len() });
        }
        let mut line = std::str::from_utf8(bytes).map_err(|_| Fault::NotUtf8)?;
        if let Some(stripped) = line.strip_suffix('\r') {
            // Read on, but Prometheus takes the carriage return for a part of the value. Told once.
            line = stripped;
            if !self.carriage_return_told {
                self.carriage_return_told = true;
                self.report.add(self.report.lines, Fault::CarriageReturn);
            }
        }
        let mut indent = 0;
        if self.format == Format::Text {
            let untrimmed = line.len();
            line = line.trim_start_matches(BLANKS);
            indent = untrimmed - line.len();
            if line.is_empty() {
                return Ok(None);
            }
        }
        if line.starts_with('#') {
            return self.comment(line).map(|()| None);
        }
        let value_at = grammar::sample(line, self.format, &mut self.sample)?;
        self.sample.kind = self.kind_of(&self.sample.name);
        Ok(Some(indent + value_at))
    }

    /// Learns the types of lines that are known to be good and were not read by this reader.
    fn learn(&mut self, lines: &'a [u8]) {
        for line in lines.split(|byte| *byte == b'\n') {
            let comment = std::str::from_utf8(line).unwrap_or_default().trim_start_matches(BLANKS);
            if comment.starts_with('#')
                && let Ok(meta::Comment::Type { family, kind, .. }) =
                    meta::comment(comment, self.format)
            {
                self.families.insert(family, kind);
            }
        }
    }

    fn comment(&mut self, line: &'a str) -> Result<(), Fault> {
        match meta::comment(line, self.format) {
            Ok(meta::Comment::Type { family, kind, fault }) => {
                self.families.insert(family, kind);
                fault.map_or(Ok(()), Err)
            }
            Ok(meta::Comment::Eof) => {
                self.at_end = true;
                Ok(())
            }
            Ok(meta::Comment::Other) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    fn kind_of(&self, name: &str) -> Kind {
        if let Some(kind) = self.families.get(name) {
            return *kind;
        }
        meta::SUFFIXES
            .iter()
            .find_map(|(suffix, kinds)| {
                let kind = self.families.get(name.strip_suffix(suffix)?)?;
                kinds.contains(kind).then_some(*kind)
            })
            .unwrap_or(Kind::Unknown)
    }

    fn finish(mut self) -> Report {
        if self.format == Format::OpenMetrics {
            self.report.cut = !self.at_end;
            if !self.at_end {
                self.report.add(self.report.lines, Fault::NoEof);
            }
        }
        self.report
    }
}

#[cfg(test)]
mod tests;
