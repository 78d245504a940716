//! The grammar of one sample line: name, labels, value, timestamp, exemplar.
//!
//! The text format allows blanks and tabs almost everywhere; `OpenMetrics` allows exactly one space
//! between the parts and none inside the braces. One cursor serves both.

use std::borrow::Cow;

use super::fault::{Fault, excerpt, found};
use super::{Format, LABELS_MAX, Sample, number};

type Label<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Reads `line` into `sample`, reusing its memory, and says where its value begins. On a fault
/// `sample` holds rubbish.
pub(super) fn sample<'a>(
    line: &'a str,
    format: Format,
    sample: &mut Sample<'a>,
) -> Result<usize, Fault> {
    let mut cursor = Cursor { line, at: 0, format };
    sample.labels.clear();
    sample.timestamp_ms = None;
    let bare = cursor.name();
    let mut name = (!bare.is_empty()).then_some(Cow::Borrowed(bare));
    let name_end = cursor.at;
    cursor.gap();
    if cursor.eat(b'{') {
        cursor.labels(&mut name, &mut sample.labels)?;
    } else if name.is_none() {
        return Err(match line {
            "" => Fault::Blank,
            _ => Fault::Start(found(line)),
        });
    } else if cursor.at == name_end && !cursor.rest().starts_with([' ', '\t']) {
        return Err(match cursor.rest() {
            "" => Fault::NoValue,
            rest => Fault::NameEnd(found(rest)),
        });
    }
    sample.name = name.ok_or(Fault::NoName)?;
    let (value, value_at) = cursor.value()?;
    sample.value = value;
    match format {
        Format::Text => cursor.text_tail(sample),
        Format::OpenMetrics => cursor.open_metrics_tail(sample),
    }?;
    Ok(value_at)
}

/// Whether a byte may stand in a bare metric name, or begin one.
const fn is_name_byte(byte: u8, first: bool) -> bool {
    byte == b':' || is_label_byte(byte, first)
}

/// Whether a byte may stand in a bare label name, or begin one.
const fn is_label_byte(byte: u8, first: bool) -> bool {
    byte == b'_' || byte.is_ascii_alphabetic() || (!first && byte.is_ascii_digit())
}

/// A bare or quoted metric name at the beginning of `text`, and what follows it.
pub(super) fn metric_name(text: &str, format: Format) -> Result<(Cow<'_, str>, &str), Fault> {
    let mut cursor = Cursor { line: text, at: 0, format };
    let name =
        if cursor.peek() == Some(b'"') { cursor.quoted()? } else { Cow::Borrowed(cursor.name()) };
    Ok((name, cursor.rest()))
}

struct Cursor<'a> {
    line: &'a str,
    at: usize,
    format: Format,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes ASCII bytes while `accepts(byte, is_first)`.
    fn take(&mut self, accepts: impl Fn(u8, bool) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(|byte| accepts(byte, self.at == start)) {
            self.at += 1;
        }
        &self.line[start..self.at]
    }

    /// Takes everything up to a blank: a token of a value or timestamp.
    fn token(&mut self) -> &'a str {
        let start = self.at;
        let bytes = &self.line.as_bytes()[start..];
        let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
        self.at += bytes.iter().position(is_blank).unwrap_or(bytes.len());
        &self.line[start..self.at]
    }

    /// Skips blanks where the text format allows them; `OpenMetrics` allows none.
    fn gap(&mut self) {
        if self.format == Format::Text {
            self.take(|byte, _| byte == b' ' || byte == b'\t');
        }
    }

    fn name(&mut self) -> &'a str {
        self.take(is_name_byte)
    }

    /// Reads a quoted string, undoing `\"`, `\\` and `\n`; other escapes stay as they are.
    fn quoted(&mut self) -> Result<Cow<'a, str>, Fault> {
        self.at += 1;
        let start = self.at;
        let bytes = self.line.as_bytes();
        let mut unescaped: Option<String> = None;
        let mut copied = start;
        loop {
            let found = memchr::memchr2(b'"', b'\\', &bytes[self.at..]).ok_or(Fault::OpenQuote)?;
            self.at += found;
            if bytes[self.at] == b'"' {
                let tail = &self.line[copied..self.at];
                self.at += 1;
                return Ok(match unescaped {
                    None => Cow::Borrowed(tail),
                    Some(text) => Cow::Owned(text + tail),
                });
            }
            let escaped = *bytes.get(self.at + 1).ok_or(Fault::OpenQuote)?;
            let plain = match escaped {
                b'n' => Some('\n'),
                b'"' | b'\\' => Some(char::from(escaped)),
                _ => None,
            };
            if let Some(plain) = plain {
                let text = unescaped.get_or_insert_default();
                text.push_str(&self.line[copied..self.at]);
                text.push(plain);
                copied = self.at + 2;
            }
            // One byte past the backslash may lie inside a character; that one has no ASCII byte
            // in it, so the search goes on safely from there.
            self.at += if plain.is_some() { 2 } else { 1 + usize::from(escaped.is_ascii()) };
        }
    }

    /// Reads labels up to and with the closing brace. A quoted string alone is the metric's name.
    fn labels(
        &mut self,
        name: &mut Option<Cow<'a, str>>,
        labels: &mut Vec<Label<'a>>,
    ) -> Result<(), Fault> {
        loop {
            self.gap();
            if self.eat(b'}') {
                return Ok(());
            }
            let is_quoted = self.peek() == Some(b'"');
            let label =
                if is_quoted { self.quoted()? } else { Cow::Borrowed(self.take(is_label_byte)) };
            if label.is_empty() && !is_quoted {
                return Err(Fault::LabelName(found(self.rest())));
            }
            self.gap();
            if is_quoted && matches!(self.peek(), Some(b',' | b'}')) {
                if name.is_some() || label.is_empty() {
                    return Err(Fault::SecondName(excerpt(&label)));
                }
                *name = Some(label);
            } else {
                self.label_value(label, labels)?;
                self.gap();
            }
            // Prometheus' own lexer of the text format reads on without a comma, so weir does.
            let may_stand_alone = self.format == Format::Text || self.peek() == Some(b'}');
            if !self.eat(b',') && !may_stand_alone {
                let label = labels.last().map_or("", |(label, _)| label);
                return Err(Fault::LabelEnd { label: excerpt(label), got: found(self.rest()) });
            }
        }
    }

    fn label_value(
        &mut self,
        label: Cow<'a, str>,
        labels: &mut Vec<Label<'a>>,
    ) -> Result<(), Fault> {
        if !self.eat(b'=') {
            return Err(Fault::LabelEquals { label: excerpt(&label), got: found(self.rest()) });
        }
        self.gap();
        if self.peek() != Some(b'"') {
            return Err(Fault::LabelQuote(excerpt(&label)));
        }
        let value = self.quoted()?;
        if label == "__name__" {
            return Err(Fault::NameAsLabel);
        }
        if labels.iter().any(|(other, _)| *other == label) {
            return Err(Fault::LabelTwice(excerpt(&label)));
        }
        if labels.len() == LABELS_MAX {
            return Err(Fault::TooManyLabels);
        }
        labels.push((label, value));
        Ok(())
    }

    /// A value and where it begins.
    fn value(&mut self) -> Result<(f64, usize), Fault> {
        self.gap();
        if self.format == Format::OpenMetrics && !self.eat(b' ') {
            return Err(match self.rest() {
                "" => Fault::NoValue,
                rest => Fault::Value(excerpt(rest)),
            });
        }
        let value_at = self.at;
        match self.token() {
            "" => Err(Fault::NoValue),
            token => Ok((number::value(token)?, value_at)),
        }
    }

    fn text_tail(&mut self, sample: &mut Sample<'a>) -> Result<(), Fault> {
        self.gap();
        if self.peek().is_some() {
            sample.timestamp_ms = Some(number::timestamp_ms(self.token())?);
            self.gap();
        }
        self.end()
    }

    fn open_metrics_tail(&mut self, sample: &mut Sample<'a>) -> Result<(), Fault> {
        if self.peek() == Some(b' ') && !self.rest().starts_with(" # {") {
            self.at += 1;
            sample.timestamp_ms = Some(number::timestamp_s(self.token())?);
        }
        if let Some(exemplar) = self.rest().strip_prefix(" # {") {
            self.at = self.line.len() - exemplar.len();
            self.exemplar().map_err(|fault| Fault::Exemplar(Box::new(fault)))?;
        }
        self.end()
    }

    /// Checks an exemplar from behind its brace on. Nothing in weir uses it.
    fn exemplar(&mut self) -> Result<(), Fault> {
        self.labels(&mut Some(Cow::Borrowed("")), &mut Vec::new())?;
        self.value()?;
        if self.eat(b' ') {
            number::timestamp_s(self.token())?;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Fault> {
        match self.rest() {
            "" => Ok(()),
            rest => Err(Fault::Trailing(excerpt(rest))),
        }
    }
}
