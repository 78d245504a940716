//! Flags in the runtime of one or several Envoys, over their admin ports.
//!
//! The admin layer is an override over the layers below it: writing takes effect at once, and an empty
//! value drops it. That is all there is: no lock, no author, no history, no reason, and an Envoy that
//! restarts has forgotten it. The runtime also takes values that the filter behind the key ignores, so
//! `effective` tells what the runtime holds, not what a filter made of it.
//!
//! Each instance is written on its own. Where they differ, the flag's value is the words `differs by
//! instance`, and each one's own is in `effective`: to show one of them would be a guess.
//!
//! Requests: <https://www.envoyproxy.io/docs/envoy/latest/operations/admin#get--runtime>.

mod map;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures_util::future::{BoxFuture, try_join_all};
use http::{Method, StatusCode};
use serde::Deserialize;

use crate::admission::{FlagValue, Settings};

use super::super::store::{Author, Capabilities, CompareAndSet, FlagEvent, Store, StoreError};
use super::super::types::{FlagTable, Outcome, Partly, Plan, PlannedChange, Revision};
use super::http::{Client, Token, answer};
use super::layer::{Held, table};

pub use map::{EnvoyFlag, EnvoyFlagError, EnvoyValue};

/// The value of a flag whose instances do not agree.
const DIFFERS: &str = "differs by instance";
/// What an address looks like.
const EXAMPLE: &str = "http://127.0.0.1:9901";

/// Client of the admin ports of one or several Envoys that are meant to be the same.
#[derive(Debug)]
pub struct EnvoyRuntime {
    name: String,
    instances: Vec<Client>,
    flags: Vec<EnvoyFlag>,
    admin_layer: String,
    base: Settings,
    seen: Mutex<Seen>,
}

/// Envoy counts no changes, so they are counted here: each read that differs from the last one.
#[derive(Debug, Default)]
struct Seen {
    revision: u64,
    flags: BTreeMap<&'static str, (Vec<Layers>, u64)>,
}

/// One runtime key of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layers {
    /// What the layers below the admin layer say.
    below: Option<String>,
    /// The override.
    admin: Option<String>,
    /// What is in force.
    last: Option<String>,
}

/// `GET /runtime`.
#[derive(Debug, Deserialize)]
struct Runtime {
    layers: Vec<String>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    layer_values: Vec<String>,
    final_value: String,
}

impl EnvoyRuntime {
    /// A client of the Envoys whose admin ports are at `urls`. `admin_layer` is the name that their
    /// `layered_runtime` gives to the layer `admin_layer: {}`, and `base` is what holds where no layer
    /// says anything. Sends nothing yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] when there is no URL, one cannot be used, or one is there twice.
    pub fn new(
        urls: &[&str],
        admin_layer: impl Into<String>,
        flags: Vec<EnvoyFlag>,
        base: Settings,
    ) -> Result<Self, StoreError> {
        let what = "an Envoy's admin port";
        let bad = |url: &str, why: &str| StoreError::Address {
            url: url.to_owned(),
            what,
            why: why.to_owned(),
            example: EXAMPLE,
        };
        let mut instances: Vec<Client> = Vec::new();
        for url in urls {
            let client = Client::new(url, what, EXAMPLE, &Token::new(""))?;
            if instances.iter().any(|known| known.place() == client.place()) {
                return Err(bad(url, "it is listed twice"));
            }
            instances.push(client);
        }
        let name = match instances.as_slice() {
            [] => return Err(bad("", "no instance is listed")),
            [only] => format!("Envoy {}", only.place()),
            [first, rest @ ..] => format!("Envoy {} and {} more", first.place(), rest.len()),
        };
        let seen = Mutex::default();
        Ok(Self { name, instances, flags, admin_layer: admin_layer.into(), base, seen })
    }

    async fn runtime(&self, instance: &Client) -> Result<Runtime, StoreError> {
        let store = || format!("Envoy {}", instance.place());
        let (status, body) =
            answer(instance.request(Method::GET, "/runtime")).await.map_err(|why| {
                let why = format!("{why} (to go on without it, take it off the list)");
                StoreError::Unreachable { store: store(), why }
            })?;
        if status != StatusCode::OK {
            let why = refusal(status, &body);
            return Err(StoreError::Refused { store: store(), status: status.as_u16(), why });
        }
        let what = "its runtime";
        let malformed = |why: String| StoreError::Malformed { store: store(), what, why };
        let runtime: Runtime =
            serde_json::from_slice(&body).map_err(|error| malformed(error.to_string()))?;
        if !runtime.layers.contains(&self.admin_layer) {
            let (layer, layers) = (&self.admin_layer, runtime.layers.join(", "));
            let why = format!(
                "its layered_runtime has no layer `{layer}`, only {layers}; add \
                 {{name: {layer}, admin_layer: {{}}}} as the last one"
            );
            return Err(StoreError::Refused { store: store(), status: status.as_u16(), why });
        }
        Ok(runtime)
    }

    /// The runtime key in each instance, in their order.
    fn layers(&self, flag: &EnvoyFlag, runtimes: &[Runtime]) -> Vec<Layers> {
        let one = |runtime: &Runtime| {
            let entry = runtime.entries.get(flag.runtime_key());
            let said = |text: &String| (!text.is_empty()).then(|| text.clone());
            let values = entry.map(|entry| entry.layer_values.as_slice()).unwrap_or_default();
            let layers = runtime.layers.iter().zip(values);
            let (admin, below): (Vec<_>, Vec<_>) =
                layers.partition(|(layer, _)| **layer == self.admin_layer);
            Layers {
                below: below.iter().rev().find_map(|(_, text)| said(text)),
                admin: admin.iter().find_map(|(_, text)| said(text)),
                last: entry.and_then(|entry| said(&entry.final_value)),
            }
        };
        runtimes.iter().map(one).collect()
    }

    async fn read(&self) -> Result<FlagTable, StoreError> {
        let each = self.instances.iter().map(|instance| self.runtime(instance));
        let runtimes = try_join_all(each).await?;
        let now: BTreeMap<_, _> =
            self.flags.iter().map(|flag| (flag.key(), self.layers(flag, &runtimes))).collect();
        let (revision, revisions) = self.count(&now);
        let mut base = BTreeMap::new();
        let held = |key: &str| {
            let flag = self.flags.iter().find(|flag| flag.key() == key)?;
            let instances = now.get(key)?;
            let default = self.base.get(key).ok()?;
            let read = |text: &Option<String>| text.as_deref().map(|text| flag.read(text));
            let bases = instances.iter().map(|layers| read(&layers.below));
            let bases = bases.map(|said| said.unwrap_or_else(|| default.clone()));
            base.insert(flag.key(), agreed(bases).unwrap_or_else(differs));
            let overrides = instances.iter().map(|layers| read(&layers.admin));
            let effective = self.instances.iter().zip(instances).map(|(instance, layers)| {
                let value = read(&layers.last).unwrap_or_else(|| default.clone());
                (instance.place().to_owned(), value)
            });
            Some(Held {
                overridden: agreed(overrides).unwrap_or_else(|| Some(differs())),
                effective: effective.collect(),
                revision: revisions.get(key).copied().unwrap_or_default(),
                ..Held::default()
            })
        };
        let mut table = table(&self.base, Revision(revision), held);
        for state in &mut table.flags {
            // The instances know better than weir's configuration.
            if let (Some(base), Ok(def)) =
                (base.remove(state.key.as_str()), crate::admission::flag(&state.key))
            {
                state.safe = def.safe_value(&base);
                state.base = base;
            }
        }
        Ok(table)
    }

    /// The revision of the table and of each flag, one higher where something differs from the last read.
    fn count(
        &self,
        now: &BTreeMap<&'static str, Vec<Layers>>,
    ) -> (u64, BTreeMap<&'static str, u64>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |key| seen.flags.get(key).map(|(layers, _)| layers);
        if seen.revision == 0 || now.iter().any(|(key, layers)| known(key) != Some(layers)) {
            let (first, next) = (seen.revision == 0, seen.revision + 1);
            seen.revision = next;
            for (key, layers) in now {
                let entry = seen.flags.entry(key).or_insert_with(|| (layers.clone(), 0));
                if !first && entry.0 != *layers {
                    *entry = (layers.clone(), next);
                }
            }
        }
        let revisions = seen.flags.iter().map(|(key, (_, revision))| (*key, *revision));
        (seen.revision, revisions.collect())
    }

    async fn carry(&self, plan: &Plan) -> Outcome {
        let before = match self.read().await {
            Ok(table) => table,
            Err(error) => {
                let why = format!("nothing was sent, since it cannot be read first: {error}");
                return Outcome::Refused { why };
            }
        };
        let differs = |change: &PlannedChange| {
            before.get(&change.key).is_some_and(|state| *state.stored() != change.from)
        };
        if before.revision != plan.revision || plan.changes.iter().any(differs) {
            return Outcome::Conflict { current: before };
        }
        let parameters = match self.parameters(plan) {
            Ok(parameters) => parameters,
            Err(why) => return Outcome::Refused { why },
        };
        for (place, instance) in self.instances.iter().enumerate() {
            let request = instance.request(Method::POST, "/runtime_modify").query(&parameters);
            let (written, rest) = self.instances.split_at(place);
            match answer(request).await {
                Ok((status, _)) if status.is_success() => {}
                Ok((status, body)) if is_refusal(status, &body) => {
                    let why = format!("Envoy {}: {}", instance.place(), refusal(status, &body));
                    return if written.is_empty() {
                        Outcome::Refused { why }
                    } else {
                        let (stored, missing) = (on(plan, written), on(plan, rest));
                        Outcome::Partly(Partly { stored, missing, why })
                    };
                }
                Ok((status, body)) => return unknown(&refusal(status, &body), written, rest),
                Err(why) => return unknown(&why, written, rest),
            }
        }
        match self.read().await {
            Ok(table) => Outcome::applied(table.revision),
            Err(error) => {
                let beside = Some(format!("it could not be read again: {error}"));
                Outcome::Applied { revision: plan.revision, beside }
            }
        }
    }

    /// Runtime keys and values; an empty value drops the override.
    fn parameters(&self, plan: &Plan) -> Result<Vec<(&str, String)>, String> {
        let parameter = |change: &PlannedChange| {
            let flag =
                self.flags.iter().find(|flag| flag.key() == change.key).ok_or_else(|| {
                    format!("`{}` stands for no runtime key here; map it first", change.key)
                })?;
            let text = if change.drops_override { String::new() } else { flag.write(&change.to)? };
            Ok((flag.runtime_key(), text))
        };
        plan.changes.iter().map(parameter).collect()
    }
}

/// The value that all share; `None` when they do not.
fn agreed<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

fn differs() -> FlagValue {
    FlagValue::Word(DIFFERS.to_owned())
}

fn places(instances: &[Client]) -> String {
    instances.iter().map(Client::place).collect::<Vec<_>>().join(", ")
}

/// The plan's flags on these instances, by name.
fn on(plan: &Plan, instances: &[Client]) -> Vec<String> {
    let keys = |instance: &Client| {
        let place = instance.place().to_owned();
        plan.changes.iter().map(move |change| format!("{} on {place}", change.key))
    };
    instances.iter().flat_map(keys).collect()
}

/// `rest` begins with the instance that gave no usable answer.
fn unknown(why: &str, written: &[Client], rest: &[Client]) -> Outcome {
    let place = rest.first().map(Client::place).unwrap_or_default();
    let also = |words: &str, instances: &[Client]| match instances {
        [] => String::new(),
        instances => format!("; {words}: {}", places(instances)),
    };
    let written = also("stored before it on", written);
    let not_sent = also("not sent to", rest.get(1..).unwrap_or_default());
    Outcome::Unknown {
        why: format!("no usable answer from Envoy {place}: {why}{written}{not_sent}"),
    }
}

/// Whether Envoy itself has said that it did nothing.
fn is_refusal(status: StatusCode, body: &[u8]) -> bool {
    let no_layer = || String::from_utf8_lossy(body).contains("No admin layer");
    matches!(status.as_u16(), 400 | 401 | 403 | 404 | 405) || (status.as_u16() == 503 && no_layer())
}

/// Envoy's words, one line of them, and what to do.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let said: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
    match status.as_u16() {
        404 => "nothing at this address; is it the admin port, and not a listener?".to_owned(),
        401 | 403 => format!("HTTP {status}: something before the admin port asks for a login"),
        _ => format!("HTTP {status}: {said}"),
    }
}

impl Store for EnvoyRuntime {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            compare_and_set: CompareAndSet::None,
            // One instance takes all of a plan or nothing; several do not.
            all_or_none: self.instances.len() == 1,
            timer: false,
            restores: true,
            audit: false,
            effective: true,
            comment: false,
        }
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        Box::pin(self.read())
    }

    fn apply<'a>(&'a self, plan: &'a Plan, _author: &'a Author) -> BoxFuture<'a, Outcome> {
        Box::pin(self.carry(plan))
    }

    /// None: Envoy keeps no history.
    fn events(&self, _since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_work_are_named() {
        let check = |urls: &[&str], expected: &str| {
            let error = EnvoyRuntime::new(urls, "admin", Vec::new(), Settings::default());
            let error = error.expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(&[], "no instance is listed");
        check(&["127.0.0.1:9901"], EXAMPLE);
        check(&["http://127.0.0.1:1", "http://127.0.0.1:1/"], "listed twice");
    }

    #[test]
    fn only_a_refusal_of_envoys_own_means_not_stored() {
        let check = |status: u16, body: &str, expected: bool| {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_refusal(status, body.as_bytes()), expected, "{status} {body}");
        };
        check(400, "usage: /runtime_modify?key1=value1", true);
        check(405, "", true);
        check(503, "No admin layer specified", true);
        check(503, "upstream connect error", false);
        check(500, "", false);
        check(302, "", false);
    }
}
