//! Carries a plan out in Unleash, flag by flag, and looks afterwards whether anybody else did too.
//!
//! Whatever leads to the safe end goes first, so that a plan that stops half-way has done that much. A
//! value is prepared before the feature is switched on: never the other way round, or the old value
//! would be in force in between. Nothing is sent twice, and nothing is taken back.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::admission::{Direction, flag};

use super::super::super::store::Author;
use super::super::super::types::{Outcome, Partly, Plan, PlannedChange, Revision};
use super::super::http::answer;
use super::feature::{Environment, marked, strategy, variants};
use super::history::Event;
use super::{Look, Unleash, message};

/// What became of one call.
enum Sent {
    Stored,
    /// The value was not the expected one any more.
    Moved,
    Refused(String),
    Unknown(String),
}

/// An event that a call of ours leaves behind.
#[derive(Debug)]
struct Own {
    feature: String,
    kind: &'static str,
    variants: Option<Value>,
    /// The request, where the event has a place for it.
    request_id: Option<String>,
}

impl Own {
    const fn switch(feature: String, kind: &'static str) -> Self {
        Self { feature, kind, variants: None, request_id: None }
    }

    fn is(&self, event: &Event) -> bool {
        self.feature == event.feature_name
            && self.kind == event.kind
            && self.variants.as_ref().is_none_or(|own| event.variants() == Some(own))
            && (self.request_id.is_none() || self.request_id == event.request_id())
    }
}

impl Unleash {
    pub(super) async fn carry(&self, plan: &Plan, author: &Author) -> Outcome {
        let before = match self.look().await {
            Ok(look) => look,
            Err(error) => {
                let why = format!("nothing was sent, since it cannot be read first: {error}");
                return Outcome::Refused { why };
            }
        };
        if moved(&before, plan) {
            return Outcome::Conflict { current: before.table };
        }
        if let Some(why) = plan.changes.iter().find_map(|change| self.obstacle(&before, change)) {
            return Outcome::Refused { why };
        }
        let mut changes: Vec<&PlannedChange> = plan.changes.iter().collect();
        changes.sort_by_key(|change| change.direction == Direction::Riskier);
        let mut own = Vec::new();
        for (place, change) in changes.iter().enumerate() {
            let sent = match before.features.get(change.key.as_str()) {
                Some(state) => self.change(state, change, &plan.request_id, &mut own).await,
                None => Sent::Refused(self.missing(&change.key)),
            };
            if !matches!(sent, Sent::Stored) {
                let (stored, missing) = changes.split_at(place);
                return self.stopped(sent, &keys(stored), &keys(missing)).await;
            }
        }
        let outcome = self.look_beside(&before, own, plan.revision).await;
        self.link(plan, author).await;
        outcome
    }

    /// Why this flag cannot be written, before anything is. Switching off needs no one value: the base
    /// then holds for everybody, and it is the only way back.
    fn obstacle(&self, before: &Look, change: &PlannedChange) -> Option<String> {
        let Some(state) = before.features.get(change.key.as_str()) else {
            return Some(self.missing(&change.key));
        };
        let obstacle = state.obstacle().filter(|_| !change.drops_override)?;
        Some(format!(
            "`{}{}` has no one value in `{}` ({obstacle}), so weir does not set it; leave it one \
             strategy, flexibleRollout at 100 % without constraints, segments or a parent, or drop \
             the override",
            self.place.prefix, change.key, self.place.environment
        ))
    }

    /// How a plan ends that a call stopped. `missing` begins with the flag that stopped it.
    async fn stopped(&self, sent: Sent, stored: &[String], missing: &[String]) -> Outcome {
        let key = missing.first().map(String::as_str).unwrap_or_default();
        let was_moved = matches!(sent, Sent::Moved);
        let why = match sent {
            Sent::Unknown(why) => {
                let also = |words: &str, keys: &[String]| match keys {
                    [] => String::new(),
                    keys => format!("; {words}: {}", keys.join(", ")),
                };
                let (stored, not_sent) = (
                    also("stored before it", stored),
                    also("not sent", missing.get(1..).unwrap_or_default()),
                );
                let why = format!("no usable answer for {key}: {why}{stored}{not_sent}");
                return Outcome::Unknown { why };
            }
            Sent::Refused(why) => format!("{key}: {why}"),
            Sent::Moved | Sent::Stored => format!("{key}: somebody changed it in the same moment"),
        };
        if !stored.is_empty() {
            let (stored, missing) = (stored.to_vec(), missing.to_vec());
            return Outcome::Partly(Partly { stored, missing, why });
        }
        if !was_moved {
            return Outcome::Refused { why };
        }
        match self.look().await {
            Ok(look) => Outcome::Conflict { current: look.table },
            Err(_) => Outcome::Refused { why },
        }
    }

    /// Makes one flag what the plan says.
    async fn change(
        &self,
        state: &Environment,
        change: &PlannedChange,
        request_id: &str,
        own: &mut Vec<Own>,
    ) -> Sent {
        let feature = format!("{}{}", self.place.prefix, change.key);
        let path =
            format!("{}/environments/{}", self.feature_path(&change.key), self.place.environment);
        if change.drops_override {
            if !state.enabled {
                return Sent::Stored;
            }
            own.push(Own::switch(feature, "feature-environment-disabled"));
            return self.call(Method::POST, &format!("{path}/off"), None).await;
        }
        let in_force = flag(&change.key).ok().and_then(|def| state.overridden(def));
        if in_force.as_ref() == Some(&change.to) {
            return Sent::Stored;
        }
        let wanted = variants(&change.to);
        let (kind, method, path_of_value, body) = match state.strategies.first() {
            None => {
                let body = strategy(&feature, &change.to, request_id);
                ("feature-strategy-add", Method::POST, format!("{path}/strategies"), body)
            }
            Some(old) => {
                let body = json!([
                    { "op": "test", "path": "/variants", "value": old.variants },
                    { "op": "replace", "path": "/variants", "value": wanted },
                    // Adding what is there replaces it.
                    { "op": "add", "path": "/title", "value": marked(Some(old), request_id) },
                ]);
                let at = format!("{path}/strategies/{}", old.id);
                ("feature-strategy-update", Method::PATCH, at, body)
            }
        };
        let (feature_of, request_id) = (feature.clone(), Some(request_id.to_owned()));
        own.push(Own { feature: feature_of, kind, variants: Some(wanted), request_id });
        let sent = self.call(method, &path_of_value, Some(body)).await;
        if !matches!(sent, Sent::Stored) || state.enabled {
            return sent;
        }
        own.push(Own::switch(feature, "feature-environment-enabled"));
        self.call(Method::POST, &format!("{path}/on"), None).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Sent {
        let request = self.admin(method, path);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let (status, body) = match answer(request).await {
            Ok(answer) => answer,
            Err(why) => return Sent::Unknown(why),
        };
        self.sent(status, &body)
    }

    /// What an answer means. Only a refusal that Unleash is known to give counts as "not stored".
    fn sent(&self, status: StatusCode, body: &[u8]) -> Sent {
        match status.as_u16() {
            200..=299 => Sent::Stored,
            // A stale `test` is an internal error to Unleash.
            500 if message(status, body).contains("TEST_OPERATION_FAILED") => Sent::Moved,
            503 if message(status, body).contains("maintenance mode") => {
                Sent::Refused(self.words(status, body))
            }
            400 | 401 | 403 | 404 | 405 | 409 | 413 | 415 | 422 | 429 => {
                Sent::Refused(self.words(status, body))
            }
            _ => Sent::Unknown(message(status, body)),
        }
    }

    /// Everything is stored; looks who else wrote at the same time.
    async fn look_beside(&self, before: &Look, mut own: Vec<Own>, sent_at: Revision) -> Outcome {
        let known: BTreeSet<u64> = before.recent.iter().map(|event| event.id).collect();
        // A transaction that ends late shows an event with a smaller number than one already seen.
        let oldest = known.first().copied().unwrap_or_default();
        let after = match self.newest(known.last().copied().unwrap_or_default()).await {
            Ok(events) => events,
            Err(error) => {
                let beside =
                    format!("whether anybody else wrote at the same time is not known: {error}");
                return Outcome::Applied { revision: sent_at, beside: Some(beside) };
            }
        };
        let environment = &self.place.environment;
        let after: Vec<_> = after.into_iter().filter(|event| event.within(environment)).collect();
        let newest = after.first().map_or(sent_at, |event| Revision(event.id));
        let news =
            after.iter().rev().filter(|event| event.id > oldest && !known.contains(&event.id));
        let mut others = Vec::new();
        for event in news {
            if let Some(place) = own.iter().position(|own| own.is(event)) {
                own.remove(place);
                continue;
            }
            let key = self.key(&event.feature_name).unwrap_or(&event.feature_name);
            others.push(format!(
                "{} changed {key} at the same time (event {})",
                event.created_by, event.id
            ));
        }
        let beside = (!others.is_empty()).then(|| others.join(", "));
        Outcome::Applied { revision: newest.max(sent_at), beside }
    }

    /// Leaves the incident with the features, where Unleash has a place for it. That it did not work is
    /// not worth an alarm: weir's journal has it.
    async fn link(&self, plan: &Plan, author: &Author) {
        let web = |url: &&str| url.starts_with("https://") || url.starts_with("http://");
        let Some(url) = author.incident.as_deref().filter(web) else { return };
        let body = json!({ "url": url, "title": plan.reason });
        join_all(plan.changes.iter().map(|change| {
            let path = format!("{}/link", self.feature_path(&change.key));
            answer(self.admin(Method::POST, &path).json(&body))
        }))
        .await;
    }
}

/// Whether the table is not the one that the plan was made from.
fn moved(before: &Look, plan: &Plan) -> bool {
    let differs = |change: &PlannedChange| {
        let state = before.table.get(&change.key);
        state.is_some_and(|state| *state.stored() != change.from)
    };
    before.table.revision != plan.revision || plan.changes.iter().any(differs)
}

fn keys(changes: &[&PlannedChange]) -> Vec<String> {
    changes.iter().map(|change| change.key.clone()).collect()
}
