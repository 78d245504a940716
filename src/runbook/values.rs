//! Values of signals as test files write them, and where they go in a snapshot. Knows no catalogue.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::signal::{Snapshot, Value};

/// Deepest nesting of tables and arrays.
const MAX_DEPTH: usize = 8;

/// A TOML value as a signal holds it; `None` for dates, for numbers that are none, and too deep ones.
pub(super) fn value_of(value: &toml::Value) -> Option<Value> {
    at_depth(value, 0)
}

fn at_depth(value: &toml::Value, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match value {
        #[expect(clippy::cast_precision_loss, reason = "readings stay far below 2^53")]
        toml::Value::Integer(number) => Value::Number(*number as f64),
        toml::Value::Float(number) if number.is_finite() => Value::Number(*number),
        toml::Value::String(word) => Value::Text(word.clone()),
        toml::Value::Boolean(yes) => Value::Bool(*yes),
        toml::Value::Table(table) => {
            let parts = table
                .iter()
                .map(|(name, part)| at_depth(part, depth + 1).map(|value| (name.clone(), value)));
            Value::Map(parts.collect::<Option<_>>()?)
        }
        toml::Value::Array(list) => {
            let parts = list.iter().map(|part| at_depth(part, depth + 1));
            Value::List(parts.collect::<Option<_>>()?)
        }
        toml::Value::Float(_) | toml::Value::Datetime(_) => return None,
    })
}

/// Sets the value at a dotted path; the record around it is kept or made.
pub(super) fn put(snapshot: &mut Snapshot, path: &str, value: Value, source: &Arc<str>) {
    let Some((root, rest)) = path.split_once('.') else {
        snapshot.set(path, value, source);
        return;
    };
    let mut record = match snapshot.signals.remove(root).map(|reading| reading.value) {
        Some(Value::Map(record)) => record,
        _ => BTreeMap::new(),
    };
    put_in(&mut record, rest, value);
    snapshot.set(root, Value::Map(record), source);
}

fn put_in(record: &mut BTreeMap<String, Value>, path: &str, value: Value) {
    let Some((name, rest)) = path.split_once('.') else {
        record.insert(path.to_owned(), value);
        return;
    };
    let mut inner = match record.remove(name) {
        Some(Value::Map(inner)) => inner,
        _ => BTreeMap::new(),
    };
    put_in(&mut inner, rest, value);
    record.insert(name.to_owned(), Value::Map(inner));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_names_are_parts_of_records() {
        let mut snapshot = Snapshot::new("x", 5.0);
        let source = Arc::from("test");
        put(&mut snapshot, "breaker.state", Value::Text("open".to_owned()), &source);
        put(&mut snapshot, "breaker.open_since_s", Value::Number(9.0), &source);
        put(&mut snapshot, "limiter_store.redis.p95_s", Value::Number(0.1), &source);
        assert_eq!(snapshot.value("breaker.state").and_then(Value::as_text), Some("open"));
        assert_eq!(snapshot.number("breaker.open_since_s"), Some(9.0));
        assert_eq!(snapshot.number("limiter_store.redis.p95_s"), Some(0.1));
    }

    #[test]
    fn tables_arrays_and_words_are_values() {
        let table: toml::Table =
            toml::from_str("a = [{ id = \"t1\", share = 0.8, on = true }]\nb = 1979-01-01")
                .expect("TOML");
        let Some(Value::List(list)) = value_of(&table["a"]) else { panic!("a list") };
        let Value::Map(first) = &list[0] else { panic!("a record") };
        assert_eq!(first["share"], Value::Number(0.8));
        assert_eq!(first["on"], Value::Bool(true));
        assert_eq!(value_of(&table["b"]), None);
        let deep =
            (0..20).fold(toml::Value::Integer(1), |inner, _| toml::Value::Array(vec![inner]));
        assert_eq!(value_of(&deep), None);
    }
}
