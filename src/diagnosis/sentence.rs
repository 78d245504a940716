//! Puts readings into the sentence of a cause. Knows no cause and judges nothing.

use crate::signal::{Snapshot, Value};

/// Puts readings into a sentence: `{amplification}` becomes `9.3`, or `?` when unknown.
pub(super) fn fill(say: &str, snapshot: &Snapshot) -> String {
    let mut filled = String::with_capacity(say.len());
    let mut rest = say;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            rest = after;
            break;
        };
        match snapshot.value(name) {
            Some(Value::Text(word)) => filled.push_str(word),
            _ => filled.push_str(&in_words(name, snapshot.number(name))),
        }
        rest = after;
    }
    filled.push_str(rest);
    filled
}

fn in_words(name: &str, number: Option<f64>) -> String {
    let share = ["share", "headroom", "_ratio"].iter().any(|part| name.contains(part));
    match number {
        None => "?".to_owned(),
        Some(number) if share => format!("{:.0}%", number * 100.0),
        Some(number) if number.fract() == 0.0 || number.abs() >= 100.0 => format!("{number:.0}"),
        Some(number) if number.abs() < 1.0 => format!("{number:.2}"),
        Some(number) => format!("{number:.1}"),
    }
}
