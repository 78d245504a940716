//! Maps, records and lists: the signals that are more than one number.

use std::collections::{BTreeMap, BTreeSet};

use crate::signal::{Quality, Value};

use super::ast::Selector;
use super::evaluate::{Evaluation, Found, Said, Unknown};
use super::model::{Count, Part, RowParts, VALUE};

type Record = BTreeMap<String, Value>;

/// The part of a record that holds the label's value.
const ID: &str = "id";
/// Most rows of a list; more are left out, in order of their names.
const ROWS_MAX: usize = 64;

impl<'a> Evaluation<'a> {
    /// Increases in the window by a label's values. Keys that counted nothing are left out.
    pub(super) fn counts(&self, counts: &'a [Count]) -> Said {
        let mut map: BTreeMap<String, f64> = BTreeMap::new();
        for count in counts {
            for (key, gained) in self.increases_by(&count.of, &count.by)? {
                let key = if key.is_empty() { "none" } else { key };
                *map.entry(format!("{}{key}", count.prefix)).or_default() += gained;
            }
        }
        let counted = map.into_iter().filter(|(_, count)| *count > 0.0);
        Ok(exact(Value::Map(counted.map(|(key, n)| (key, Value::Number(n))).collect())))
    }

    /// The known parts of a record; unknown when none is. A dot in a part's name is a record within.
    pub(super) fn parts(&self, parts: &'a [(String, Part)]) -> Said {
        let mut known = BTreeMap::new();
        let mut first: Option<Unknown> = None;
        for (name, part) in parts {
            match self.part(part) {
                Ok(value) => {
                    insert_part(&mut known, name, value);
                }
                Err(unknown) => {
                    first.get_or_insert(unknown);
                }
            }
        }
        match first {
            Some(unknown) if known.is_empty() => Err(unknown),
            _ => Ok(exact(Value::Map(known))),
        }
    }

    fn part(&self, part: &'a Part) -> Result<Value, Unknown> {
        match part {
            Part::Number { value, .. } => Ok(Value::Number(self.scalar(value)?.value)),
            Part::Word { value, words } => {
                let number = self.scalar(value)?.value;
                let word = words.iter().find(|(known, _)| known.total_cmp(&number).is_eq());
                word.map(|(_, word)| Value::Text(word.clone()))
                    .ok_or_else(|| Unknown::Nothing(format!("no word stands for {number}")))
            }
            Part::Label { label, of } => {
                if let Some(answers) = self.answers {
                    let word = self.aggregated_word(answers, of, label);
                    let word = word.map(|word| Value::Text(word.to_owned()));
                    return word.ok_or_else(|| Unknown::missing(&of.metric));
                }
                let instances = self.instances.iter();
                let mut on = instances
                    .flat_map(|one| one.book.values(&of.metric))
                    .filter(|(labels, value)| self.selects(of, labels) && *value > 0.0);
                let word = on.find_map(|(labels, _)| labels.get(label));
                word.map(|word| Value::Text(word.to_owned()))
                    .ok_or_else(|| Unknown::Missing(format!("does not export {}", of.metric)))
            }
        }
    }

    /// One record per value of a label, with shares of the whole where asked for.
    pub(super) fn rows(&self, by: &'a str, of: &'a Selector, parts: &'a RowParts) -> Said {
        match parts {
            RowParts::Records(parts) => {
                let rows = self.records(by, of, parts)?.into_iter();
                Ok(exact(Value::List(rows.map(Value::Map).collect())))
            }
            RowParts::Numbers(part) => {
                let named = |mut row: Record| match (row.remove(ID), row.remove(VALUE)) {
                    (Some(Value::Text(id)), Some(value)) => Some((id, value)),
                    _ => None,
                };
                let rows = self.records(by, of, part)?.into_iter();
                Ok(exact(Value::Map(rows.filter_map(named).collect())))
            }
        }
    }

    fn records(
        &self,
        by: &'a str,
        of: &'a Selector,
        parts: &'a [(String, Part)],
    ) -> Result<Vec<Record>, Unknown> {
        let ids: BTreeSet<&str> = self
            .increases_by(of, by)?
            .into_iter()
            .filter(|(id, gained)| !id.is_empty() && *gained > 0.0)
            .map(|(id, _)| id)
            .collect();
        if ids.is_empty() {
            return Err(Unknown::Nothing(format!("no {} in the window", of.metric)));
        }
        let mut rows: Vec<Record> = Vec::new();
        for id in ids.into_iter().take(ROWS_MAX) {
            let row = Evaluation { row: Some((by, id)), ..*self };
            let known =
                parts.iter().filter_map(|(name, part)| Some((name.clone(), row.part(part).ok()?)));
            let id = (ID.to_owned(), Value::Text(id.to_owned()));
            rows.push(known.chain([id]).collect());
        }
        for (name, part) in parts {
            if let Part::Number { share: true, .. } = part {
                as_shares(&mut rows, name);
            }
        }
        Ok(rows)
    }
}

fn insert_part(record: &mut BTreeMap<String, Value>, name: &str, value: Value) {
    let Some((outer, inner)) = name.split_once('.') else {
        record.insert(name.to_owned(), value);
        return;
    };
    let within = record.entry(outer.to_owned()).or_insert_with(|| Value::Map(BTreeMap::new()));
    if let Value::Map(within) = within {
        insert_part(within, inner, value);
    }
}

/// Divides a part by its sum over all rows; a sum of nothing has no shares.
fn as_shares(rows: &mut [BTreeMap<String, Value>], name: &str) {
    let number = |row: &BTreeMap<String, Value>| row.get(name).and_then(Value::as_number);
    let whole: f64 = rows.iter().filter_map(number).sum();
    for row in rows {
        match number(row) {
            Some(part) if whole > 0.0 => row.insert(name.to_owned(), Value::Number(part / whole)),
            _ => row.remove(name),
        };
    }
}

const fn exact(value: Value) -> Found {
    Found { value, quality: Quality::Exact, note: None, extra_age_s: 0.0, is_floor: false }
}
