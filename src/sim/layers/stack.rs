//! A checked stack of layers, and how a scenario writes one.
//!
//! Either as a list, outermost first, of clients by name or path with keys changed; or as the three
//! tables of `classic`. Reads no file itself: whoever builds a stack hands over how to.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::sim::config::ConfigError;
use crate::sim::layers::classic::{LayersConfig, SdkConfig};
use crate::sim::layers::clients;
use crate::sim::layers::policy::{Fallback, Policy, Wait};
use crate::sim::layers::table::LayerTable;

/// Most layers of one stack.
pub const LAYERS_MAX: usize = 8;
/// How deep clients may build on each other.
const USE_DEPTH_MAX: usize = 4;

/// Reads the file at a path, or says why not.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// The layers of a scenario as they are written.
#[derive(Clone, Debug, PartialEq)]
pub enum Layers {
    /// `[layers.sdk]`, `[layers.wrapper]`, `[layers.frontend]`
    Classic(LayersConfig),
    /// `[[layers]]`, outermost first.
    Listed(Vec<LayerTable>),
}

impl Default for Layers {
    fn default() -> Self {
        Self::Classic(LayersConfig::default())
    }
}

impl<'de> Deserialize<'de> for Layers {
    fn deserialize<D: Deserializer<'de>>(layers: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Layers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of layers, or the tables sdk, wrapper and frontend")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Layers, A::Error> {
                LayersConfig::deserialize(MapAccessDeserializer::new(map)).map(Layers::Classic)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Layers, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Layers::Listed)
            }
        }
        layers.deserialize_any(Either)
    }
}

impl Layers {
    /// Checks the layers, which stand at `key` of their file, and makes them a stack. Clients that are
    /// named by a path are read with `read`.
    ///
    /// # Errors
    /// The first key that is wrong, from the top of the file.
    pub fn stack(&self, key: &str, read: &ReadFile<'_>) -> Result<Stack, ConfigError> {
        match self {
            Self::Classic(config) => {
                let under = |error: ConfigError| ConfigError {
                    key: format!("{key}.{}", error.key),
                    ..error
                };
                config.check().map_err(under)?;
                Ok(Stack::from(config))
            }
            Self::Listed(tables) => {
                let written = resolve(tables, key, None, read, 0)?;
                Stack::of(written, key)
            }
        }
    }
}

/// A layer whose client has been looked up, before it is checked.
struct Written {
    name: String,
    table: LayerTable,
    /// Where the scenario writes it.
    key: String,
}

/// Looks up the clients that `tables` use. `client` names the client whose file they are from.
fn resolve(
    tables: &[LayerTable],
    key: &str,
    client: Option<&str>,
    read: &ReadFile<'_>,
    depth: usize,
) -> Result<Vec<Written>, ConfigError> {
    let mut layers = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let key = if client.is_some() { key.to_owned() } else { format!("{key}[{index}]") };
        match &table.client {
            Some(name) if depth < USE_DEPTH_MAX => {
                let file = clients::find(name, &key, read)?;
                let used = resolve(&file.layers, &key, Some(&file.name), read, depth + 1)?;
                layers.extend(changed(used, table, &key)?);
            }
            Some(_) => {
                let allowed =
                    "let clients build on each other 4 deep at most, and never on themselves";
                return Err(wrong(&format!("{key}.use"), "goes round or too deep", allowed));
            }
            None => {
                let name = table.name.as_deref().or(client.filter(|_| index == 0));
                let allowed = "name the layer, or say whose policy it `use`s";
                let missing = || wrong(&format!("{key}.name"), "missing", allowed);
                let name = name.ok_or_else(missing)?.to_owned();
                layers.push(Written { name, table: table.clone(), key });
            }
        }
    }
    Ok(layers)
}

/// The layers of a client with the changes of the table that uses it.
fn changed(
    mut used: Vec<Written>,
    table: &LayerTable,
    key: &str,
) -> Result<Vec<Written>, ConfigError> {
    for (name, changes) in &table.with {
        let Some(layer) = used.iter_mut().find(|layer| layer.name == *name) else {
            let names: Vec<_> = used.iter().map(|layer| layer.name.as_str()).collect();
            let problem = format!("the client has no layer `{name}`");
            let problem = format!("{problem}, only {}", names.join(", "));
            return Err(wrong(&format!("{key}.with.{name}"), &problem, "name one of its layers"));
        };
        layer.table = changes.over(&layer.table);
    }
    if let Some(outermost) = used.first_mut() {
        outermost.table = table.over(&outermost.table);
        if let Some(name) = &table.name {
            outermost.name.clone_from(name);
        }
    }
    Ok(used)
}

fn wrong(key: &str, problem: &str, allowed: &'static str) -> ConfigError {
    ConfigError { key: key.to_owned(), problem: problem.to_owned(), allowed }
}

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) policy: Policy,
}

/// Layers above the gate, outermost first, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    layers: Arc<[Layer]>,
    scopes: Arc<[String]>,
}

impl Default for Stack {
    /// Those of the default drill.
    fn default() -> Self {
        Self::from(&LayersConfig::default())
    }
}

impl From<&LayersConfig> for Stack {
    /// From a configuration that has been checked.
    fn from(config: &LayersConfig) -> Self {
        let layers =
            config.policies().map(|(name, policy)| Layer { name: name.to_owned(), policy });
        Self { layers: layers.into(), scopes: Arc::new([]) }
    }
}

impl Stack {
    fn of(written: Vec<Written>, key: &str) -> Result<Self, ConfigError> {
        if written.is_empty() || written.len() > LAYERS_MAX {
            let problem = format!("{} layers", written.len());
            return Err(wrong(key, &problem, "stack 1 to 8 layers"));
        }
        let mut names = BTreeSet::new();
        let mut scopes: Vec<String> = Vec::new();
        let mut layers = Vec::new();
        let innermost = written.len() - 1;
        for (index, Written { name, table, key }) in written.into_iter().enumerate() {
            let under =
                |error: ConfigError| ConfigError { key: format!("{key}.{}", error.key), ..error };
            if !names.insert(name.clone()) {
                let problem = format!("two layers are called `{name}`");
                return Err(wrong(
                    &format!("{key}.name"),
                    &problem,
                    "give one of them another name",
                ));
            }
            if table.timeout_s.is_some() && index < innermost {
                let allowed = "give it to the innermost layer, which makes the requests";
                return Err(wrong(&format!("{key}.timeout_s"), "no request is made here", allowed));
            }
            let mut policy = table.policy().map_err(under)?;
            policy.fallback = (!table.to().is_empty()).then(|| Fallback {
                to: table.to().iter().map(|scope| place_of(scope, &mut scopes)).collect(),
                sticky: table.is_sticky(),
            });
            layers.push(Layer { name, policy });
        }
        Ok(Self { layers: layers.into(), scopes: scopes.into() })
    }

    /// The names of the layers, outermost first; no two are alike.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|layer| layer.name.as_str())
    }

    /// The quota scopes that fallbacks name; [`Place::scope`](super::Place) points into them.
    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// How long the innermost layer gives one request; `None` if it waits for ever.
    #[must_use]
    pub fn request_timeout(&self) -> Option<Duration> {
        self.layers.last()?.policy.timeout
    }

    /// The same stack when only the innermost layer retries, as `sdk` says. A person and a queue stay
    /// as they are: to ask once more is demand, not a policy that one can configure away.
    #[must_use]
    pub fn with_one_retrying(&self, sdk: &SdkConfig) -> Self {
        let mut layers = self.layers.to_vec();
        let innermost = layers.len().saturating_sub(1);
        for layer in &mut layers[..innermost] {
            let asks_again = layer.policy.probability.is_some()
                || matches!(layer.policy.wait, Wait::Visibility(_));
            if !asks_again {
                layer.policy.tries = 1;
            }
        }
        if let Some(layer) = layers.last_mut() {
            // What it does beside retrying stays.
            let Policy { timeout, fallback, .. } = layer.policy.clone();
            layer.policy = Policy { timeout, fallback, ..sdk.policy() };
        }
        Self { layers: layers.into(), scopes: Arc::clone(&self.scopes) }
    }

    pub(super) fn layers(&self) -> &[Layer] {
        &self.layers
    }
}

/// Where `scope` stands in `scopes`, in which it is put if it is not there yet.
fn place_of(scope: &str, scopes: &mut Vec<String>) -> usize {
    let known = scopes.iter().position(|known| known == scope);
    known.unwrap_or_else(|| {
        scopes.push(scope.to_owned());
        scopes.len() - 1
    })
}
