//! Lines that begin with `#`: types are applied, help and units are checked, the rest is skipped.

use std::borrow::Cow;

use super::fault::{Fault, excerpt};
use super::{BLANKS, Format, Kind, grammar};

/// Endings that a family's samples may have beside its name, and for which types.
pub(super) const SUFFIXES: &[(&str, &[Kind])] = &[
    ("_total", &[Kind::Counter]),
    ("_bucket", &[Kind::Histogram, Kind::GaugeHistogram]),
    ("_sum", &[Kind::Histogram, Kind::Summary]),
    ("_count", &[Kind::Histogram, Kind::Summary]),
    ("_created", &[Kind::Counter, Kind::Histogram, Kind::Summary]),
    ("_gsum", &[Kind::GaugeHistogram]),
    ("_gcount", &[Kind::GaugeHistogram]),
    ("_info", &[Kind::Info]),
];

/// What a `#` line says.
pub(super) enum Comment<'a> {
    /// The type of a family; with a fault when Prometheus would refuse the spelling.
    Type { family: Cow<'a, str>, kind: Kind, fault: Option<Fault> },
    /// The end of an `OpenMetrics` exposition.
    Eof,
    /// Nothing that matters here.
    Other,
}

/// Reads a line that begins with `#`.
pub(super) fn comment(line: &str, format: Format) -> Result<Comment<'_>, Fault> {
    if format == Format::OpenMetrics && line == "# EOF" {
        return Ok(Comment::Eof);
    }
    let Some((keyword, rest)) = keyword(line, format) else {
        return match format {
            Format::Text => Ok(Comment::Other),
            Format::OpenMetrics => Err(Fault::Comment),
        };
    };
    let (family, rest) = grammar::metric_name(rest, format)?;
    if family.is_empty() {
        return Err(Fault::MetaName(keyword));
    }
    // Exactly one blank stands between name and text; more belong to the text.
    let text = match format {
        Format::Text => rest.strip_prefix(BLANKS).unwrap_or(rest),
        Format::OpenMetrics => rest.strip_prefix(' ').ok_or(Fault::MetaText(keyword))?,
    };
    match keyword {
        "TYPE" => {
            let kind = kind(text.trim(), format).ok_or_else(|| Fault::Type(excerpt(text)))?;
            let fault = (text.trim() != text).then(|| Fault::Type(excerpt(text)));
            Ok(Comment::Type { family, kind, fault })
        }
        "UNIT" if !is_unit_of(text, &family) => {
            Err(Fault::Unit { unit: excerpt(text), family: excerpt(&family) })
        }
        _ => Ok(Comment::Other),
    }
}

/// Splits `# TYPE rest` where the format knows the keyword.
fn keyword(line: &str, format: Format) -> Option<(&'static str, &str)> {
    let after_hash = line.strip_prefix('#')?;
    let (words, body): (&[&'static str], _) = match format {
        Format::Text => {
            let body = after_hash.trim_start_matches(BLANKS);
            (&["TYPE", "HELP"], (body.len() < after_hash.len()).then_some(body)?)
        }
        Format::OpenMetrics => (&["TYPE", "HELP", "UNIT"], after_hash.strip_prefix(' ')?),
    };
    words.iter().find_map(|word| {
        let rest = body.strip_prefix(word)?;
        let rest = match format {
            Format::Text => rest.strip_prefix(BLANKS)?.trim_start_matches(BLANKS),
            Format::OpenMetrics => rest.strip_prefix(' ')?,
        };
        Some((*word, rest))
    })
}

fn kind(word: &str, format: Format) -> Option<Kind> {
    Some(match (word, format) {
        ("counter", _) => Kind::Counter,
        ("gauge", _) => Kind::Gauge,
        ("histogram", _) => Kind::Histogram,
        ("summary", _) => Kind::Summary,
        ("untyped", Format::Text) | ("unknown", Format::OpenMetrics) => Kind::Unknown,
        ("gaugehistogram", Format::OpenMetrics) => Kind::GaugeHistogram,
        ("info", Format::OpenMetrics) => Kind::Info,
        ("stateset", Format::OpenMetrics) => Kind::StateSet,
        _ => return None,
    })
}

fn is_unit_of(unit: &str, family: &str) -> bool {
    unit.is_empty() || family.strip_suffix(unit).is_some_and(|stem| stem.ends_with('_'))
}
