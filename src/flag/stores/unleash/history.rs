//! Unleash's event log, read as changes of flags.
//!
//! An event tells what one call did to one strategy or switch. What was in force before and after
//! is found by taking the events back from the present state, newest first.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use crate::admission::{Settings, flag};

use super::super::super::store::{EventChange, EventKind, FlagEvent, Marks};
use super::super::super::types::Revision;
use super::feature::{Environment, Strategy};

/// Events that can change a value, or whether the flag is there. Links, tags and the like cannot.
pub(super) const TYPES: &str = "feature-created,feature-archived,feature-revived,feature-deleted,\
    feature-project-change,feature-dependency-added,feature-dependency-removed,\
    feature-dependencies-removed,feature-strategy-add,feature-strategy-update,\
    feature-strategy-remove,feature-environment-enabled,feature-environment-disabled";

/// One page of the event log, newest first.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub events: Vec<Event>,
}

/// One event.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub id: u64,
    #[serde(rename = "type")]
    pub kind: String,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
    pub feature_name: String,
    environment: Option<String>,
    data: Option<Value>,
    pre_data: Option<Value>,
}

impl Event {
    /// Whether it may concern this environment; what happens to a whole feature has none.
    pub(super) fn within(&self, environment: &str) -> bool {
        self.environment.as_deref().is_none_or(|own| own == environment)
    }

    /// Whether it switched the feature or changed its strategy, here and not as a whole.
    pub(super) fn sets(&self, environment: &str) -> bool {
        self.environment.as_deref() == Some(environment)
    }

    /// The variants of the strategy that it left behind.
    pub(super) fn variants(&self) -> Option<&Value> {
        self.data.as_ref()?.get("variants")
    }

    /// The id of the request of weir's that wrote it. Whoever changes a strategy by hand leaves its title as
    /// it was, mark and all: only a new mark is one.
    pub(super) fn request_id(&self) -> Option<String> {
        let of = |data: Option<&Value>| Self::strategy(data)?.request_id().map(str::to_owned);
        let (before, after) = (of(self.pre_data.as_ref()), of(self.data.as_ref()));
        if before == after { None } else { after }
    }

    fn strategy(data: Option<&Value>) -> Option<Strategy> {
        serde_json::from_value(data?.clone()).ok()
    }

    /// The state before, from the state after.
    fn take_back(&self, state: &mut Environment) {
        match self.kind.as_str() {
            "feature-environment-enabled" => state.enabled = false,
            "feature-environment-disabled" => state.enabled = true,
            _ => self.replace(state, self.data.as_ref(), self.pre_data.as_ref()),
        }
    }

    /// The state after, from the state before.
    fn repeat(&self, state: &mut Environment) {
        match self.kind.as_str() {
            "feature-environment-enabled" => state.enabled = true,
            "feature-environment-disabled" => state.enabled = false,
            _ => self.replace(state, self.pre_data.as_ref(), self.data.as_ref()),
        }
    }

    fn replace(&self, state: &mut Environment, old: Option<&Value>, new: Option<&Value>) {
        if !self.kind.starts_with("feature-strategy-") {
            return;
        }
        let (old, new) = (Self::strategy(old), Self::strategy(new));
        let known = old.as_ref().or(new.as_ref()).map(|strategy| strategy.id.clone());
        state.strategies.retain(|strategy| Some(&strategy.id) != known.as_ref());
        state.strategies.extend(new);
    }
}

/// The events that changed what is in force, oldest first.
///
/// `newest_first` are events of this environment, `now` is the present state by flag.
pub(super) fn changes(
    newest_first: &[Event],
    key_of: impl Fn(&Event) -> Option<String>,
    mut state: BTreeMap<String, Environment>,
    base: &Settings,
) -> Vec<FlagEvent> {
    for event in newest_first {
        if let Some(key) = key_of(event) {
            event.take_back(state.entry(key).or_insert_with(Environment::empty));
        }
    }
    let mut told = Vec::new();
    // Values that are prepared and not in force yet, by flag: whose they are, and who wrote them.
    let mut prepared: BTreeMap<String, (String, &str)> = BTreeMap::new();
    for event in newest_first.iter().rev() {
        let Some(key) = key_of(event) else { continue };
        let (Ok(def), Ok(base)) = (flag(&key), base.get(&key)) else { continue };
        let state = state.entry(key.clone()).or_insert_with(Environment::empty);
        let from = state.overridden(def);
        event.repeat(state);
        let to = state.overridden(def);
        let own = event.request_id();
        if from == to {
            match own {
                Some(id) => drop(prepared.insert(key, (id, &event.created_by))),
                None => drop(prepared.remove(&key)),
            }
            continue;
        }
        // Switching on carries no mark: it is of whoever has just prepared the value.
        let switched = prepared.remove(&key).filter(|(_, by)| *by == event.created_by);
        let request_id = own.or(switched.filter(|_| to.is_some()).map(|(id, _)| id));
        told.push(FlagEvent {
            seq: event.id,
            at: event.created_at,
            actor: event.created_by.clone(),
            // Unleash keeps no reason.
            reason: String::new(),
            incident: None,
            request_id,
            revision: Revision(event.id),
            kind: EventKind::Change,
            changes: vec![EventChange { key, base, from, to }],
            anchor: None,
            marks: Marks::default(),
        });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whose_request_it_was_is_told_by_its_mark() {
        let event = |id: u64, kind: &str, by: &str, titles: [&str; 2]| {
            let with = |title: &str| match title {
                "" => Value::Null,
                title => json!({"id": "s", "name": "flexibleRollout", "title": title,
                    "parameters": {"rollout": "100"}, "variants": [{"payload": {"value": id.to_string()}}]}),
            };
            serde_json::from_value::<Event>(json!({
                "id": id, "type": kind, "createdBy": by, "createdAt": "2026-11-29T10:00:00Z",
                "featureName": "queue.max_depth", "environment": "e",
                "preData": with(titles[0]), "data": with(titles[1]),
            }))
            .expect("well-formed")
        };
        let (update, on, off) = (
            "feature-strategy-update",
            "feature-environment-enabled",
            "feature-environment-disabled",
        );
        let [a, b, c] = ["[weir a]", "[weir b]", "[weir c]"];
        let told = [
            event(1, "feature-strategy-add", "admin", ["", a]),
            event(2, on, "admin", ["", ""]),
            event(3, update, "admin", [a, b]),
            // By hand: the title stays as it was.
            event(4, update, "bob", [b, b]),
            event(5, off, "admin", ["", ""]),
            // Prepared by weir and switched on by somebody else.
            event(6, update, "admin", [b, c]),
            event(7, on, "bob", ["", ""]),
        ];
        let newest_first: Vec<Event> = told.into_iter().rev().collect();
        let now = json!({"name": "e", "enabled": true, "strategies": [newest_first[1].data]});
        let now = serde_json::from_value(now).expect("well-formed");
        let state = BTreeMap::from([("queue.max_depth".to_owned(), now)]);
        let key = |event: &Event| Some(event.feature_name.clone());
        let told = changes(&newest_first, key, state, &Settings::default());
        let told: Vec<_> =
            told.iter().map(|event| (event.seq, event.request_id.as_deref())).collect();
        assert_eq!(told, [(2, Some("a")), (3, Some("b")), (4, None), (5, None), (7, None)]);
    }

    #[test]
    fn what_was_in_force_is_found_from_the_present_state() {
        let with = |value: &str| {
            json!({"id": "s", "name": "flexibleRollout", "parameters": {"rollout": "100"},
                "variants": [{"payload": {"value": value}}]})
        };
        let event = |id: u64, kind: &str, before: Value, after: Value| {
            serde_json::from_value::<Event>(json!({
                "id": id, "type": kind, "createdBy": "bob", "createdAt": "2026-11-29T10:00:00Z",
                "featureName": "retry.owner", "environment": "e", "data": after,
                "preData": before,
            }))
            .expect("well-formed")
        };
        let newest_first = [
            event(9, "feature-environment-disabled", Value::Null, Value::Null),
            event(8, "feature-strategy-update", with("client"), with("gateway")),
            event(7, "feature-environment-enabled", Value::Null, Value::Null),
            event(6, "feature-strategy-add", Value::Null, with("client")),
        ];
        let now = json!({"name": "e", "enabled": false, "strategies": [with("gateway")]});
        let now = serde_json::from_value(now).expect("well-formed");
        let state = BTreeMap::from([("retry.owner".to_owned(), now)]);
        let key = |event: &Event| Some(event.feature_name.clone());
        let told = changes(&newest_first, key, state, &Settings::default());
        let told: Vec<_> = told
            .iter()
            .map(|event| {
                let word = |value: &Option<crate::admission::FlagValue>| {
                    value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
                };
                let change = &event.changes[0];
                (event.seq, word(&change.from), word(&change.to))
            })
            .collect();
        let told: Vec<_> =
            told.iter().map(|(seq, from, to)| (*seq, from.as_str(), to.as_str())).collect();
        // The strategy of event 6 was not in force yet.
        assert_eq!(told, [(7, "-", "client"), (8, "client", "gateway"), (9, "gateway", "-")]);
    }
}
