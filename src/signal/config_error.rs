//! Where a configuration file is wrong: file, line, key, what is the matter and what to do.
//!
//! Reads no file itself. One form serves every TOML file of weir, whether the parser complains (wrong
//! type, unknown key) or a check of ours (out of bounds).

use std::ops::Range;

use thiserror::Error;
use toml::de::{DeTable, DeValue};

/// One complaint about one place of a TOML file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {}{message}; {remedy}", self.place(), self.quoted_key())]
pub struct TomlError {
    /// The file, as the user named it.
    pub file: String,
    /// Line and column from 1, if the place is known.
    pub at: Option<(usize, usize)>,
    /// The dotted key, if the place lies in one.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What is allowed, or what to do.
    pub remedy: String,
}

impl TomlError {
    fn place(&self) -> String {
        match self.at {
            Some((line, column)) => format!("{}:{line}:{column}", self.file),
            None => self.file.clone(),
        }
    }

    fn quoted_key(&self) -> String {
        self.key.as_ref().map_or_else(String::new, |key| format!("`{key}`: "))
    }

    /// A complaint about the value of a dotted key (`traffic.steps[1].rate`) in `source`. If the key
    /// is not written there, the place is that of the nearest table around it.
    #[must_use]
    pub fn at_key(file: &str, source: &str, key: &str, message: &str, remedy: &str) -> Self {
        let entries = entries(source);
        let inside = |outer: &str| {
            key.strip_prefix(outer).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('.') || rest.starts_with('[')
            })
        };
        let nearest = entries.iter().filter(|entry| inside(&entry.path));
        let nearest = nearest.max_by_key(|entry| entry.path.len());
        Self {
            file: file.to_owned(),
            at: nearest.map(|entry| line_and_column(source, entry.start)),
            key: Some(key.to_owned()),
            message: message.to_owned(),
            remedy: remedy.to_owned(),
        }
    }
}

/// Turns the parser's complaint about `source` into file, line, key and remedy.
#[must_use]
pub fn toml_error(file: &str, source: &str, error: &toml::de::Error) -> TomlError {
    let span = error.span();
    let key = span.clone().and_then(|span| key_around(source, &span));
    let message = in_words(error.message().trim());
    TomlError {
        file: file.to_owned(),
        at: span.map(|span| line_and_column(source, span.start)),
        key,
        remedy: remedy(&message).to_owned(),
        message,
    }
}

/// The parser's message with the names of Rust's types replaced by what a person writes.
fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 16] = [
        ("f64", "a number"),
        ("f32", "a number"),
        ("u8", WHOLE),
        ("u16", WHOLE),
        ("u32", WHOLE),
        ("u64", WHOLE),
        ("usize", WHOLE),
        ("i32", "a whole number"),
        ("i64", "a whole number"),
        ("a boolean", "true or false"),
        ("a sequence", LIST),
        ("a map", "a table"),
        ("socket address", ADDRESS),
        ("path string", "a path in quotes"),
        ("a string", "a text in quotes"),
        ("string", "a text in quotes"),
    ];
    if message.starts_with("invalid socket address") {
        return format!("is no address, expected {ADDRESS}");
    }
    let Some((before, expected)) = message.rsplit_once("expected ") else {
        return message.to_owned();
    };
    if expected.starts_with("struct ") {
        return format!("{before}expected a table");
    }
    match WORDS.iter().find(|(word, _)| *word == expected) {
        Some((_, words)) => format!("{before}expected {words}"),
        None => message.to_owned(),
    }
}

const WHOLE: &str = "a whole number, not negative";
const LIST: &str = "a list (of tables: [[name]], with two brackets)";
const ADDRESS: &str = "IP:PORT such as 127.0.0.1:8080";

fn remedy(message: &str) -> &'static str {
    const REMEDIES: [(&str, &str); 6] = [
        ("is no address", "write the IP, not a name, and the port"),
        ("unknown field", "correct the key or remove it"),
        ("unknown variant", "use one of the words named"),
        ("missing field", "add the key"),
        ("invalid type", "write the value in the type that is expected"),
        ("invalid value", "write a value that is expected"),
    ];
    let known = REMEDIES.iter().find(|(start, _)| message.starts_with(start));
    known.map_or("see https://toml.io for the syntax", |(_, remedy)| remedy)
}

/// A key of the document: its dotted path, and the bytes of key and value.
struct Entry {
    path: String,
    start: usize,
    end: usize,
}

/// The deepest key that the span lies in.
fn key_around(source: &str, span: &Range<usize>) -> Option<String> {
    let entries = entries(source);
    let around =
        entries.into_iter().filter(|entry| entry.start <= span.start && span.start < entry.end);
    around.max_by_key(|entry| entry.path.len()).map(|entry| entry.path)
}

fn entries(source: &str) -> Vec<Entry> {
    let (table, _) = DeTable::parse_recoverable(source);
    let mut entries = Vec::new();
    collect_table(table.get_ref(), "", &mut entries);
    entries
}

fn collect_table(table: &DeTable<'_>, prefix: &str, entries: &mut Vec<Entry>) {
    for (key, value) in table {
        let dot = if prefix.is_empty() { "" } else { "." };
        let path = format!("{prefix}{dot}{}", key.get_ref());
        let (key_span, value_span) = (key.span(), value.span());
        entries.push(Entry {
            path: path.clone(),
            start: key_span.start,
            end: key_span.end.max(value_span.end),
        });
        collect_value(value.get_ref(), &path, entries);
    }
}

fn collect_value(value: &DeValue<'_>, path: &str, entries: &mut Vec<Entry>) {
    match value {
        DeValue::Table(table) => collect_table(table, path, entries),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                let Range { start, end } = item.span();
                entries.push(Entry { path: path.clone(), start, end });
                collect_value(item.get_ref(), &path, entries);
            }
        }
        _ => {}
    }
}

fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "only its parsing matters")]
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only its parsing matters")]
        rate: f64,
    }

    fn check(source: &str, expected: &str) {
        let error = toml::from_str::<Outer>(source).expect_err("the text is wrong");
        assert_eq!(toml_error("weir.toml", source, &error).to_string(), expected);
    }

    #[test]
    fn the_parsers_complaints_have_place_key_and_remedy() {
        check(
            "[[inner]]\nrate = 1\n[[inner]]\n  rate = 'fast'\n",
            "weir.toml:4:10: `inner[1].rate`: invalid type: string \"fast\", expected a number; \
             write the value in the type that is expected",
        );
        check(
            "[[inner]]\nrate = 1\nrat = 2\n",
            "weir.toml:3:1: `inner[0].rat`: unknown field `rat`, expected `rate`; \
             correct the key or remove it",
        );
        check("[[inner]]\n", "weir.toml:1:1: `inner[0]`: missing field `rate`; add the key");
    }

    #[test]
    fn our_own_checks_point_at_the_key_or_the_table_around_it() {
        let source = "[a]\nb = 1\n[[c]]\nd = 2\n[[c]]\nd = 3\n";
        let line = |key| TomlError::at_key("f", source, key, "m", "r").at.map(|(line, _)| line);
        assert_eq!(line("a.b"), Some(2));
        assert_eq!(line("c[1].d"), Some(6));
        assert_eq!(line("a.missing"), Some(1));
        assert_eq!(line("nowhere"), None);
        let error = TomlError::at_key("f", source, "nowhere", "is missing", "add it");
        assert_eq!(error.to_string(), "f: `nowhere`: is missing; add it");
    }
}
