//! What a series is called on a metrics page, as text that the reader of pages reads back.

use std::borrow::Cow;

/// The name of a series with its labels, as Prometheus' text format writes them, without the value.
pub fn text_of<L: AsRef<str>, V: AsRef<str>>(
    name: &str,
    labels: impl IntoIterator<Item = (L, V)>,
) -> String {
    let is_plain = is_plain_name(name, ":");
    let mut text = String::new();
    let mut parts: Vec<String> = Vec::new();
    if is_plain {
        text.push_str(name);
    } else {
        parts.push(format!("\"{}\"", escaped(name)));
    }
    for (label, value) in labels {
        let (label, value) = (label.as_ref(), escaped(value.as_ref()));
        if is_plain_name(label, "") {
            parts.push(format!("{label}=\"{value}\""));
        } else {
            parts.push(format!("\"{}\"=\"{value}\"", escaped(label)));
        }
    }
    if !parts.is_empty() {
        text.push('{');
        text.push_str(&parts.join(","));
        text.push('}');
    }
    text
}

/// The metric's name in such a text; of one in quotes, what stands in them.
pub fn metric_of(text: &str) -> &str {
    match text.strip_prefix("{\"") {
        Some(rest) => rest.split('"').next().unwrap_or(rest),
        None => text.split('{').next().unwrap_or(text),
    }
}

fn is_plain_name(name: &str, also: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_' || also.contains(c);
    name.starts_with(begins) && name.chars().all(|c| begins(c) || c.is_ascii_digit())
}

fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '"', '\n']) {
        Cow::Owned(text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ingest::exposition::{Format, parse};

    proptest! {
        #[test]
        fn a_name_reads_back_as_it_was(
            name in "[a-z_:][a-z0-9_:]{0,9}|[a-z .é]{1,9}",
            labels in proptest::collection::btree_map("[a-z_][a-z0-9_]{0,5}|[a-z .]{1,5}", "\\PC{0,8}", 0..4),
        ) {
            let line = format!("{} 1\n", text_of(&name, &labels));
            let mut found = Vec::new();
            let report = parse(line.as_bytes(), Format::Text, |sample| {
                let labels: std::collections::BTreeMap<_, _> =
                    sample.labels.iter().map(|(l, v)| (l.to_string(), v.to_string())).collect();
                found.push((sample.name.to_string(), labels));
            });
            prop_assert_eq!(report.expect("small").problem_count, 0, "{}", line);
            prop_assert_eq!(found, vec![(name.clone(), labels)]);
        }
    }

    #[test]
    fn the_metric_is_told_from_its_labels() {
        for (text, expected) in
            [("a_total", "a_total"), ("a{b=\"c\"}", "a"), ("{\"a.b\",c=\"d\"}", "a.b"), ("", "")]
        {
            assert_eq!(metric_of(text), expected);
        }
    }
}
