//! A moment of the last hour, put together again from what the trends hold: numbers, the breaker's state,
//! verdicts. Words, lists and the state of sources are not kept, and are unknown there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chrono::TimeDelta;

use crate::diagnosis::Verdict;
use crate::ingest::Observation;
use crate::signal::{Mono, Quality, Reading, Snapshot, Value};
use crate::tui::app::history::{History, breaker_word};
use crate::tui::app::{Model, SCOPES_MAX};
use crate::tui::session::Update;

/// Verdicts kept for each scope; one is kept when another cause or standing takes its place.
const VERDICTS_MAX: usize = 300;
const NOT_KEPT: &str = "the trends do not hold it";

/// The verdicts of the last hour, as each was when it was first said.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    scopes: BTreeMap<String, VecDeque<(Mono, Arc<Verdict>)>>,
}

impl Judged {
    /// Takes note of a round.
    pub fn follow(&mut self, verdicts: &[Arc<Verdict>], at: Mono) {
        for verdict in verdicts {
            if self.scopes.len() >= SCOPES_MAX && !self.scopes.contains_key(&verdict.scope) {
                continue;
            }
            let said = self.scopes.entry(verdict.scope.clone()).or_default();
            let is_news = said.back().is_none_or(|(_, last)| {
                (&last.cause, last.standing) != (&verdict.cause, verdict.standing)
            });
            if is_news {
                said.push_back((at, Arc::clone(verdict)));
            }
            if said.len() > VERDICTS_MAX {
                said.pop_front();
            }
        }
    }

    /// What was said of every scope at a moment.
    fn at(&self, at: Mono) -> Vec<Arc<Verdict>> {
        let standing = |said: &VecDeque<(Mono, Arc<Verdict>)>| {
            said.iter().rev().find(|(since, _)| *since <= at).map(|(_, verdict)| verdict.clone())
        };
        self.scopes.values().filter_map(standing).collect()
    }

    /// Since when the verdict that stood at a moment had stood.
    #[must_use]
    pub fn since(&self, scope: &str, at: Mono) -> Option<Mono> {
        let said = self.scopes.get(scope)?;
        said.iter().rev().find(|(since, _)| *since <= at).map(|(since, _)| *since)
    }
}

impl Model {
    /// The first second that any trend holds.
    #[must_use]
    pub fn oldest_second(&self) -> Option<u64> {
        self.history.values().filter_map(History::oldest).min()
    }

    /// The screen's own past at a second; `None` before anything was seen.
    #[must_use]
    pub fn moment(&self, second: u64) -> Option<Update> {
        let latest = &self.latest.as_ref()?.observation;
        let at = Mono::from_start(std::time::Duration::from_secs(second));
        let ago = latest.at.saturating_since(at);
        let wall = latest.wall - TimeDelta::from_std(ago).unwrap_or_default();
        let known = |name: &str| latest.scopes.iter().find(|snapshot| snapshot.scope == name);
        let scopes = self
            .history
            .iter()
            .map(|(name, trends)| {
                Arc::new(rebuilt(name, trends, second, known(name).map(AsRef::as_ref)))
            })
            .collect();
        let observation = Observation { at, wall, scopes, sources: Vec::new() };
        Some(Update::new(Arc::new(observation), self.judged.at(at)))
    }
}

/// One scope at a second. Where a signal came from and how good it was is taken from `now`.
fn rebuilt(scope: &str, trends: &History, second: u64, now: Option<&Snapshot>) -> Snapshot {
    let mut snapshot = Snapshot::new(scope, now.map_or(10.0, |now| now.window_s));
    let unknown: Arc<str> = Arc::from("trends");
    for (path, number) in trends.moment(second) {
        let (name, part) =
            path.split_once('.').map_or((path, None), |(name, part)| (name, Some(part)));
        let like = now.and_then(|now| now.signals.get(name));
        let reading = snapshot.signals.entry(name.to_owned()).or_insert_with(|| Reading {
            value: Value::Map(BTreeMap::new()),
            quality: like.map_or(Quality::Inferred, |like| like.quality),
            source: like.map_or_else(|| Arc::clone(&unknown), |like| Arc::clone(&like.source)),
            age_s: 0.0,
            note: None,
        });
        match (part, &mut reading.value) {
            (Some(part), Value::Map(map)) => {
                let word = (path == "breaker.state").then(|| breaker_word(number)).flatten();
                let value = word.map_or(Value::Number(number), |word| Value::Text(word.to_owned()));
                map.insert(part.to_owned(), value);
            }
            (_, value) => *value = Value::Number(number),
        }
    }
    let missing = now.iter().flat_map(|now| now.signals.keys());
    let missing = missing.filter(|name| !snapshot.signals.contains_key(*name));
    let missing: Vec<String> = missing.cloned().collect();
    snapshot.absent.extend(missing.into_iter().map(|name| (name, NOT_KEPT.to_owned())));
    snapshot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parts_and_the_breaker_come_back_and_the_rest_is_unknown() {
        let source: Arc<str> = Arc::from("gateway");
        let mut then = Snapshot::new("s", 10.0);
        let breaker = [
            ("state".to_owned(), Value::Text("open".to_owned())),
            ("open_since_s".to_owned(), Value::Number(4.0)),
        ];
        then.set("breaker", Value::Map(breaker.into()), &source);
        then.set("offered_rps", Value::Number(7.5), &source);
        then.set("gate_mode", Value::Text("enforce".to_owned()), &source);
        let mut trends = History::default();
        trends.push(&then, Mono::from_secs_f64(3.0));
        let back = rebuilt("s", &trends, 3, Some(&then));
        assert_eq!(back.signals.get("breaker"), then.signals.get("breaker"));
        assert_eq!(back.signals.get("offered_rps"), then.signals.get("offered_rps"));
        assert_eq!(back.get("gate_mode"), None);
        assert_eq!(back.absent.get("gate_mode").map(String::as_str), Some(NOT_KEPT));
        let nothing = rebuilt("s", &trends, 2, Some(&then));
        assert!(nothing.signals.is_empty() && nothing.absent.len() == 3);
    }
}
