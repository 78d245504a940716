//! The file form of an adapter: strict TOML, checked against the catalogue, into [`Adapter`].
//!
//! Every complaint names file, line, key and remedy. `assets/adapters/README.md` explains the form.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::signal::{Quality, TomlError, definition, toml_error};

use super::ast::{Expr, Pattern, Selector};
use super::expression::{ExpressionError, parse_expression, parse_selector};
use super::model::{
    Adapter, Case, Count, Entry, Form, Part, Reading, Role, RowParts, ScopeLabel, VALUE, Verified,
};

/// Largest adapter file, in bytes.
pub const FILE_BYTES_MAX: usize = 256 * 1024;
/// Longest chain of signals that refer to one another.
const REFERENCES_MAX: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    adapter: Header,
    signals: BTreeMap<String, SignalTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    title: String,
    about: String,
    role: RoleWord,
    verified: VerifiedWord,
    scope: Option<ScopeTable>,
    #[serde(default)]
    lazy: Vec<String>,
    #[serde(default)]
    unset: Vec<String>,
    #[serde(default)]
    drop_negative: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RoleWord {
    Gateway,
    Provider,
    Clients,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VerifiedWord {
    Run,
    Documents,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeTable {
    label: String,
    metrics: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum QualityWord {
    Exact,
    LowerBound,
    Inferred,
}

impl From<QualityWord> for Quality {
    fn from(word: QualityWord) -> Self {
        match word {
            QualityWord::Exact => Self::Exact,
            QualityWord::LowerBound => Self::LowerBound,
            QualityWord::Inferred => Self::Inferred,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignalTable {
    absent: Option<String>,
    value: Option<String>,
    counts: Option<Vec<CountTable>>,
    parts: Option<BTreeMap<String, PartTable>>,
    rows: Option<RowsTable>,
    least: Option<Vec<CaseTable>>,
    quality: Option<QualityWord>,
    note: Option<String>,
    age: Option<String>,
    max_age_s: Option<f64>,
    #[serde(default)]
    or: Vec<SignalTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountTable {
    of: String,
    by: String,
    #[serde(default)]
    prefix: String,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "an expression, or a table with `value` (and `words` or `share`) or `label` and `of`"
)]
enum PartTable {
    Expression(String),
    Table(PartKeys),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartKeys {
    value: Option<String>,
    words: Option<BTreeMap<String, String>>,
    #[serde(default)]
    share: bool,
    label: Option<String>,
    of: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowsTable {
    by: String,
    of: String,
    parts: Option<BTreeMap<String, PartTable>>,
    value: Option<PartTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseTable {
    by: String,
    value: String,
    note: Option<String>,
    age: Option<String>,
}

impl Adapter {
    /// Reads the text of an adapter file; `file` is named in errors, `name` is the adapter's.
    ///
    /// # Errors
    ///
    /// With file, line, key and remedy.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Self, TomlError> {
        let place = Place { file, text };
        if text.len() > FILE_BYTES_MAX {
            let message = format!("longer than {FILE_BYTES_MAX} bytes");
            return Err(place.error("adapter", &message, "an adapter is a page or two of text"));
        }
        let read: File = toml::from_str(text).map_err(|error| toml_error(file, text, &error))?;
        let mut signals = BTreeMap::new();
        for (signal, table) in read.signals {
            let key = format!("signals.{signal}");
            if definition(&signal).is_none() {
                let remedy = "use a name of the signal catalogue";
                return Err(place.error(&key, "there is no signal of this name", remedy));
            }
            signals.insert(signal, place.entry(&key, table)?);
        }
        let mut adapter = Self {
            name: name.to_owned(),
            title: read.adapter.title,
            about: read.adapter.about,
            role: match read.adapter.role {
                RoleWord::Gateway => Role::Gateway,
                RoleWord::Provider => Role::Provider,
                RoleWord::Clients => Role::Clients,
            },
            verified: match read.adapter.verified {
                VerifiedWord::Run => Verified::Run,
                VerifiedWord::Documents => Verified::Documents,
            },
            scope: read
                .adapter
                .scope
                .map(|scope| ScopeLabel { label: scope.label, metrics: scope.metrics }),
            lazy: read.adapter.lazy.iter().map(|text| Pattern::new(text)).collect(),
            unset: read.adapter.unset,
            drop_negative: read.adapter.drop_negative,
            signals,
            needs: BTreeMap::new(),
        };
        for signal in adapter.signals.keys() {
            place.references(&adapter, signal, REFERENCES_MAX)?;
        }
        // Signals refer to each other without a circle, as was just seen.
        adapter.needs = adapter.needs();
        Ok(adapter)
    }
}

/// The text that complaints point into.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn error(self, key: &str, message: &str, remedy: &str) -> TomlError {
        TomlError::at_key(self.file, self.text, key, message, remedy)
    }

    fn syntax(self, key: &str, error: &ExpressionError) -> TomlError {
        self.error(key, &error.to_string(), "the form stands in assets/adapters/README.md")
    }

    fn expression(self, key: &str, text: &str) -> Result<Expr, TomlError> {
        parse_expression(text).map_err(|error| self.syntax(key, &error))
    }

    fn selector(self, key: &str, text: &str) -> Result<Selector, TomlError> {
        parse_selector(text).map_err(|error| self.syntax(key, &error))
    }

    fn optional(self, key: &str, text: Option<&String>) -> Result<Option<Expr>, TomlError> {
        text.map(|text| self.expression(key, text)).transpose()
    }

    fn entry(self, key: &str, mut table: SignalTable) -> Result<Entry, TomlError> {
        if let Some(why) = table.absent.take() {
            let is_bare = table.forms() == 0 && table.quality.is_none() && table.or.is_empty();
            if !is_bare {
                let remedy = "remove `absent`, or everything else";
                return Err(self.error(key, "says that it is absent and how it is read", remedy));
            }
            return Ok(Entry::Absent(why));
        }
        let or = std::mem::take(&mut table.or);
        let mut readings = vec![self.reading(key, table)?];
        for (index, table) in or.into_iter().enumerate() {
            let key = format!("{key}.or[{index}]");
            if !table.or.is_empty() || table.absent.is_some() {
                let remedy = "write every alternative into the one list";
                return Err(self.error(&key, "an alternative has no `or` and no `absent`", remedy));
            }
            readings.push(self.reading(&key, table)?);
        }
        Ok(Entry::Readings(readings))
    }

    fn reading(self, key: &str, table: SignalTable) -> Result<Reading, TomlError> {
        if table.forms() != 1 {
            let remedy = "write one of `value`, `counts`, `parts`, `rows`, `least`, `absent`";
            return Err(self.error(key, "needs exactly one way to read it", remedy));
        }
        let Some(quality) = table.quality else {
            let remedy = "add `quality`: \"exact\", \"lower-bound\" or \"inferred\"";
            return Err(self.error(key, "does not say how far it can be trusted", remedy));
        };
        let age = self.optional(&format!("{key}.age"), table.age.as_ref())?;
        if table.max_age_s.is_some() && age.is_none() {
            return Err(self.error(key, "`max_age_s` without `age`", "add `age` or remove it"));
        }
        Ok(Reading {
            quality: quality.into(),
            note: table.note.clone(),
            age,
            max_age_s: table.max_age_s,
            form: self.form(key, table)?,
        })
    }

    fn form(self, key: &str, table: SignalTable) -> Result<Form, TomlError> {
        if let Some(value) = table.value {
            return Ok(Form::Value(self.expression(&format!("{key}.value"), &value)?));
        }
        if let Some(counts) = table.counts {
            let count = |(index, count): (usize, CountTable)| {
                let of = self.selector(&format!("{key}.counts[{index}].of"), &count.of)?;
                Ok(Count { of, by: count.by, prefix: count.prefix })
            };
            return Ok(Form::Counts(
                counts.into_iter().enumerate().map(count).collect::<Result<_, _>>()?,
            ));
        }
        if let Some(parts) = table.parts {
            return Ok(Form::Parts(self.parts(&format!("{key}.parts"), parts)?));
        }
        if let Some(rows) = table.rows {
            let of = self.selector(&format!("{key}.rows.of"), &rows.of)?;
            let parts = match (rows.parts, rows.value) {
                (Some(parts), None) => {
                    RowParts::Records(self.parts(&format!("{key}.rows.parts"), parts)?)
                }
                (None, Some(value)) => {
                    let part = self.part(&format!("{key}.rows.value"), value)?;
                    RowParts::Numbers([(VALUE.to_owned(), part)])
                }
                _ => {
                    let remedy = "write `parts` for a list of records, or `value` for a map";
                    return Err(self.error(&format!("{key}.rows"), "needs one of both", remedy));
                }
            };
            return Ok(Form::Rows { by: rows.by, of, parts });
        }
        let case = |(index, case): (usize, CaseTable)| {
            let key = format!("{key}.least[{index}]");
            let value = self.expression(&format!("{key}.value"), &case.value)?;
            let age = self.optional(&format!("{key}.age"), case.age.as_ref())?;
            Ok(Case { by: case.by, value, note: case.note, age })
        };
        let cases = table.least.unwrap_or_default();
        Ok(Form::Least(cases.into_iter().enumerate().map(case).collect::<Result<_, _>>()?))
    }

    fn parts(
        self,
        key: &str,
        parts: BTreeMap<String, PartTable>,
    ) -> Result<Vec<(String, Part)>, TomlError> {
        let part = |(name, table): (String, PartTable)| {
            let part = self.part(&format!("{key}.{name}"), table)?;
            Ok((name, part))
        };
        parts.into_iter().map(part).collect()
    }

    fn part(self, key: &str, table: PartTable) -> Result<Part, TomlError> {
        let keys = match table {
            PartTable::Expression(text) => {
                return Ok(Part::Number { value: self.expression(key, &text)?, share: false });
            }
            PartTable::Table(keys) => keys,
        };
        let value = self.optional(&format!("{key}.value"), keys.value.as_ref())?;
        match (value, keys.words, keys.label, keys.of) {
            (Some(value), Some(words), None, None) if !keys.share => {
                Ok(Part::Word { value, words: self.words(key, words)? })
            }
            (Some(value), None, None, None) => Ok(Part::Number { value, share: keys.share }),
            (None, None, Some(label), Some(of)) if !keys.share => {
                Ok(Part::Label { label, of: self.selector(&format!("{key}.of"), &of)? })
            }
            _ => {
                let remedy = "write `value`, `value` with `words` or `share`, or `label` with `of`";
                Err(self.error(key, "these keys make no part", remedy))
            }
        }
    }

    fn words(
        self,
        key: &str,
        words: BTreeMap<String, String>,
    ) -> Result<Vec<(f64, String)>, TomlError> {
        let pair = |(number, word): (String, String)| {
            let Ok(known) = number.parse() else {
                let message = format!("`{number}` is not a number");
                let remedy = "write `\"0\" = \"closed\"`";
                return Err(self.error(&format!("{key}.words"), &message, remedy));
            };
            Ok((known, word))
        };
        words.into_iter().map(pair).collect()
    }

    /// Refuses references to signals that are not there, or that lead round in a circle.
    fn references(self, adapter: &Adapter, signal: &str, left: usize) -> Result<(), TomlError> {
        let Some(Entry::Readings(readings)) = adapter.signals.get(signal) else { return Ok(()) };
        let key = format!("signals.{signal}");
        for reference in readings.iter().flat_map(Reading::signals) {
            if !adapter.signals.contains_key(reference) {
                let message = format!("`{reference}` is no signal of this adapter");
                let remedy = format!("define it, or say `sum({reference})` if it is a metric");
                return Err(self.error(&key, &message, &remedy));
            }
            if left == 0 {
                let message = "refers to itself, or through too many others";
                return Err(self.error(&key, message, "write the expression out"));
            }
            self.references(adapter, reference, left - 1)?;
        }
        Ok(())
    }
}

impl SignalTable {
    /// How many ways to read it are written down.
    fn forms(&self) -> usize {
        let written = [
            self.value.is_some(),
            self.counts.is_some(),
            self.parts.is_some(),
            self.rows.is_some(),
            self.least.is_some(),
        ];
        written.into_iter().filter(|is| *is).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "[adapter]\ntitle = \"x\"\nabout = \"x\"\nrole = \"gateway\"\nverified = \"run\"\n";

    fn check(signals: &str, expected: &str) {
        let text = format!("{HEAD}{signals}");
        let error = Adapter::parse("x", "x.toml", &text).expect_err(signals).to_string();
        assert!(error.starts_with(expected), "{signals}\n{error}\nexpected {expected}");
    }

    #[test]
    fn every_complaint_names_line_and_key() {
        check("lazzy = []\n[signals]\n", "x.toml:6:1: `adapter.lazzy`: unknown field `lazzy`");
        check(
            "[signals.offered_rsp]\nvalue = \"1\"\nquality = \"exact\"\n",
            "x.toml:6:10: `signals.offered_rsp`: there is no signal of this name",
        );
        check(
            "[signals.offered_rps]\nvalue = \"rate(a\"\nquality = \"exact\"\n",
            "x.toml:7:1: `signals.offered_rps.value`: `)` is expected at character 7; the form",
        );
        check(
            "[signals.offered_rps]\nvalue = \"rate(a)\"\n",
            "x.toml:6:10: `signals.offered_rps`: does not say how far it can be trusted",
        );
        check(
            "[signals.offered_rps]\nquality = \"exact\"\n",
            "x.toml:6:10: `signals.offered_rps`: needs exactly one way",
        );
        check(
            "[signals.offered_rps]\nabsent = \"why\"\nvalue = \"rate(a)\"\n",
            "x.toml:6:10: `signals.offered_rps`: says that it is absent and how",
        );
        check(
            "[signals.offered_rps]\nvalue = \"1 - shed_rps\"\nquality = \"exact\"\n",
            "x.toml:6:10: `signals.offered_rps`: `shed_rps` is no signal of this adapter",
        );
        check(
            "[signals.offered_rps]\nvalue = \"1 - offered_rps\"\nquality = \"exact\"\n",
            "x.toml:6:10: `signals.offered_rps`: refers to itself",
        );
        check(
            "[signals.tenants]\nquality = \"exact\"\nrows = { by = \"a\", of = \"b\" }\n",
            "x.toml:8:1: `signals.tenants.rows`: needs one of both",
        );
        check(
            "[signals.breaker]\nquality = \"exact\"\nparts = { state = { label = \"a\" } }\n",
            "x.toml:8:11: `signals.breaker.parts.state`: these keys make no part",
        );
    }
}
