//! Puts readings into the sentence of a cause. Knows no cause and judges nothing.

use crate::signal::{Snapshot, Value};

/// Puts readings into a sentence: `{amplification}` becomes `9.3`, or `?` when unknown. What stands in
/// `[ ]` is left out when a reading in it is unknown.
pub(super) fn fill(say: &str, snapshot: &Snapshot) -> String {
    let mut filled = String::with_capacity(say.len());
    let mut rest = say;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((inside, after)) = after.split_once(']') else { break };
        filled.push_str(&readings(before, snapshot).0);
        if let (inside, true) = readings(inside, snapshot) {
            filled.push_str(&inside);
        }
        rest = after;
    }
    filled.push_str(&readings(rest, snapshot).0);
    filled
}

/// The text with its readings, and whether all of them are known.
fn readings(say: &str, snapshot: &Snapshot) -> (String, bool) {
    let mut filled = String::with_capacity(say.len());
    let mut all_known = true;
    let mut rest = say;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            rest = after;
            break;
        };
        let word = match snapshot.value(name) {
            Some(Value::Text(word)) => Some(word.clone()),
            _ => snapshot.number(name).map(|number| in_words(name, number)),
        };
        all_known &= word.is_some();
        filled.push_str(word.as_deref().unwrap_or("?"));
        rest = after;
    }
    filled.push_str(rest);
    (filled, all_known)
}

fn in_words(name: &str, number: f64) -> String {
    let share = ["share", "headroom", "_ratio"].iter().any(|part| name.contains(part));
    if share {
        format!("{:.0}%", number * 100.0)
    } else if number.fract() == 0.0 || number.abs() >= 100.0 {
        format!("{number:.0}")
    } else if number.abs() < 1.0 {
        format!("{number:.2}")
    } else {
        format!("{number:.1}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_unknown_is_a_question_mark_or_left_out() {
        let mut snapshot = Snapshot::new("s", 10.0);
        let source = Arc::from("gateway");
        for (name, number) in [("amplification", 9.27), ("served_share", 0.36), ("reset_s", 0.25)] {
            snapshot.set(name, Value::Number(number), &source);
        }
        snapshot.set("top_tenant", Value::Text("acme".to_owned()), &source);
        let check = |say: &str, filled: &str| assert_eq!(fill(say, &snapshot), filled, "{say}");
        check("{amplification} for {top_tenant}, {served_share}", "9.3 for acme, 36%");
        check("{reset_s} s, {tpm_limit}", "0.25 s, ?");
        check("A[ with {reset_s}][ of {tpm_limit}].", "A with 0.25.");
        check("open [ and {amplification", "open [ and amplification");
        check("{", "");
    }
}
