//! Says where a missing signal can be had: whose number it is, and which adapter reads it. Knows no
//! verdict and fetches nothing.
//!
//! The sentences are data (`assets/fetch.toml`) and the adapters are read from their own files, so
//! neither list can drift from what is shipped.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::ingest::Adapters;
use crate::signal::CATALOGUE;

use super::derive::parts_of;

const TEXT: &str = include_str!("../../assets/fetch.toml");
/// Adapters that are named; the others are counted.
const ADAPTERS_MAX: usize = 3;
/// Our own drill's: nobody has them in production.
const STAGED: [&str; 2] = ["simcli", "simprov"];
/// What is said of a signal of nobody's.
const UNKNOWN: &str = "no source is known; write it into the snapshot by hand";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    from: Vec<From>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    signals: Vec<String>,
    #[serde(rename = "where")]
    place: String,
}

static HINTS: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let from = toml::from_str::<File>(TEXT).map_or_else(|_| Vec::new(), |file| file.from);
    let givers = givers();
    let hint = |name: &'static str| (name, sentence(name, &from, &givers));
    CATALOGUE.iter().map(|definition| hint(definition.name)).collect()
});

/// How to fetch a signal: one sentence without a full stop.
#[must_use]
pub fn fetch(signal: &str) -> &'static str {
    HINTS.get(signal).map_or(UNKNOWN, String::as_str)
}

fn sentence(name: &str, from: &[From], givers: &BTreeMap<String, Vec<String>>) -> String {
    let fits = |from: &&From| from.signals.iter().any(|pattern| matches(pattern, name));
    let mut parts: Vec<String> =
        from.iter().find(fits).map(|from| from.place.clone()).into_iter().collect();
    if let Some(needed) = parts_of(name) {
        parts.push(format!("follows from {}", needed.join(" and ")));
    }
    if let Some(adapters) = givers.get(name) {
        let named = adapters.iter().take(ADAPTERS_MAX).map(String::as_str).collect::<Vec<_>>();
        let more = match adapters.len().saturating_sub(ADAPTERS_MAX) {
            0 => String::new(),
            1 => " or one other".to_owned(),
            more => format!(" or {more} others"),
        };
        let word = if adapters.len() == 1 { "adapter" } else { "adapters" };
        parts.push(format!("scrape it with {word} {}{more}", named.join(", ")));
    }
    if parts.is_empty() { UNKNOWN.to_owned() } else { parts.join("; ") }
}

/// The shipped adapters that give each signal, by signal; our own gateway first.
fn givers() -> BTreeMap<String, Vec<String>> {
    let shipped = Adapters::shipped();
    let mut names = shipped.names();
    names.retain(|name| !STAGED.contains(&name.as_str()));
    names.sort_by_key(|name| name != "weir");
    let mut givers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in names {
        let Ok(adapter) = shipped.get(&name) else { continue };
        for (signal, entry) in &adapter.signals {
            if entry.quality().is_some() {
                givers.entry(signal.clone()).or_default().push(name.clone());
            }
        }
    }
    givers
}

/// `*` at the beginning or the end stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_of_the_catalogue_says_where_it_comes_from() {
        let file: File = toml::from_str(TEXT).expect("assets/fetch.toml");
        for definition in CATALOGUE {
            let hint = fetch(definition.name);
            assert_ne!(hint, UNKNOWN, "{}", definition.name);
            assert!(hint.len() <= 240, "{}: {hint}", definition.name);
        }
        for from in &file.from {
            for pattern in &from.signals {
                let used = CATALOGUE.iter().any(|definition| matches(pattern, definition.name));
                assert!(used, "`{pattern}` fits no signal");
            }
        }
        assert_eq!(fetch("no_such_signal"), UNKNOWN);
    }

    #[test]
    fn the_adapters_are_those_that_give_it() {
        let hint = fetch("tpm_remaining");
        assert!(hint.starts_with("the provider's x-ratelimit headers"), "{hint}");
        assert!(hint.contains("scrape it with adapters weir, "), "{hint}");
        assert!(fetch("tpm_headroom").contains("follows from tpm_remaining and tpm_limit"));
        assert!(!fetch("attempts_rps").contains("simprov"), "{}", fetch("attempts_rps"));
    }
}
