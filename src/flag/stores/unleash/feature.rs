//! What one Unleash feature says about a flag, if it says one thing.
//!
//! Unleash can serve different values to different people: several strategies, a partial rollout,
//! constraints. A flag has one value, so such a feature is shown as what it is and left alone.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::admission::{FlagDef, FlagValue, Kind};

/// A feature as `GET .../projects/{project}/features/{feature}` shows it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Feature {
    pub environments: Vec<Environment>,
    #[serde(default)]
    dependencies: Value,
}

/// A feature in one environment; in the SDK's view, the feature itself.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Environment {
    pub name: String,
    pub enabled: bool,
    #[serde(default)]
    pub strategies: Vec<Strategy>,
    /// Of the feature, in the SDK's view; the admin API has them one level up.
    #[serde(default)]
    dependencies: Value,
}

/// For whom a feature is on, and with which value. The SDK's view has no id.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Strategy {
    #[serde(default)]
    pub id: String,
    pub name: String,
    #[serde(default)]
    parameters: Value,
    #[serde(default)]
    constraints: Value,
    #[serde(default)]
    segments: Value,
    #[serde(default)]
    pub variants: Value,
    title: Option<String>,
    disabled: Option<bool>,
}

/// How a mark begins and ends in a strategy's title.
const MARK: (&str, char) = ("[weir ", ']');

impl Strategy {
    /// The id of the request that wrote it last, from its title.
    pub(super) fn request_id(&self) -> Option<&str> {
        let (_, rest) = self.title.as_deref()?.rsplit_once(MARK.0)?;
        rest.strip_suffix(MARK.1)
    }
}

/// The title of a strategy that this request writes: a person's own words stay, the mark comes behind.
pub(super) fn marked(strategy: Option<&Strategy>, request_id: &str) -> String {
    let title = strategy.and_then(|strategy| strategy.title.as_deref()).unwrap_or_default();
    let own = title.rsplit_once(MARK.0).map_or(title, |(own, _)| own).trim_end();
    format!("{own} {}{request_id}{}", MARK.0, MARK.1).trim_start().to_owned()
}

impl Feature {
    /// The feature in this environment.
    pub(super) fn within(&self, environment: &str) -> Option<Environment> {
        let found = self.environments.iter().find(|known| known.name == environment)?;
        Some(Environment { dependencies: self.dependencies.clone(), ..found.clone() })
    }
}

impl Environment {
    /// Nothing in force and nothing prepared.
    pub(super) fn empty() -> Self {
        Self {
            name: String::new(),
            enabled: false,
            strategies: Vec::new(),
            dependencies: Value::Null,
        }
    }

    /// The override in force: a value, or a word that says why there is no one value.
    pub(super) fn overridden(&self, def: &FlagDef) -> Option<FlagValue> {
        if !self.enabled {
            return None;
        }
        if let Some(obstacle) = self.obstacle() {
            return Some(FlagValue::Word(obstacle.to_owned()));
        }
        let variant = self.strategies.first().and_then(|strategy| strategy.variants.get(0));
        Some(match (variant.map(payload), def.kind) {
            (Some(Some(text)), _) => {
                def.parse(text).unwrap_or_else(|_| FlagValue::Word(text.to_owned()))
            }
            // A plain toggle.
            (None, Kind::Bool) => FlagValue::Bool(true),
            _ => FlagValue::Word("on without a value".to_owned()),
        })
    }

    /// Why this feature has no one value, or would have none once it is on.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        let any = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        if any(&self.dependencies) {
            return Some("depends on another feature");
        }
        let strategy = match self.strategies.as_slice() {
            [] => return None,
            [strategy] => strategy,
            _ => return Some("several strategies"),
        };
        let rollout = strategy.parameters.get("rollout");
        let to_all = match strategy.name.as_str() {
            "default" => true,
            "flexibleRollout" => {
                rollout.is_some_and(|share| share.as_str() == Some("100") || *share == 100)
            }
            _ => return Some("a strategy of its own kind"),
        };
        if strategy.disabled == Some(true) {
            Some("a disabled strategy")
        } else if !to_all {
            Some("a partial rollout")
        } else if any(&strategy.constraints) {
            Some("constraints")
        } else if any(&strategy.segments) {
            Some("segments")
        } else if strategy.variants.as_array().is_some_and(|variants| variants.len() > 1) {
            Some("several variants")
        } else {
            None
        }
    }
}

fn payload(variant: &Value) -> Option<&str> {
    variant.get("payload")?.get("value")?.as_str()
}

/// The one variant that carries this value.
pub(super) fn variants(value: &FlagValue) -> Value {
    let kind = if matches!(value, FlagValue::Number(_)) { "number" } else { "string" };
    json!([{
        "name": "weir",
        "weight": 1000,
        "weightType": "variable",
        "stickiness": "default",
        "payload": { "type": kind, "value": value.to_string() },
    }])
}

/// A strategy that serves this value to everybody.
pub(super) fn strategy(feature: &str, value: &FlagValue, request_id: &str) -> Value {
    json!({
        "name": "flexibleRollout",
        "title": marked(None, request_id),
        "parameters": { "rollout": "100", "stickiness": "default", "groupId": feature },
        "variants": variants(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::flag;

    fn shown(key: &str, strategies: &Value) -> String {
        let environment = json!({"name": "e", "enabled": true, "strategies": strategies});
        let environment: Environment = serde_json::from_value(environment).expect("well-formed");
        let value = environment.overridden(flag(key).expect("a real flag")).expect("it is on");
        value.to_string()
    }

    #[test]
    fn a_value_reads_back_as_it_was_written() {
        for (key, value) in [
            ("retry.max_attempts", FlagValue::Number(3.0)),
            ("retry.budget_ratio", FlagValue::Number(0.05)),
            ("retry.owner", FlagValue::Word("client".to_owned())),
            ("breaker.enabled", FlagValue::Bool(false)),
        ] {
            let strategies = json!([strategy("weir.x", &value, "id-1")]);
            assert_eq!(shown(key, &strategies), value.to_string(), "{key}");
        }
    }

    #[test]
    fn a_mark_stands_behind_a_persons_own_title_and_replaces_the_last_one() {
        let titled = |title: &str| {
            let strategy = json!({"name": "default", "title": title});
            serde_json::from_value::<Strategy>(strategy).expect("well-formed")
        };
        assert_eq!(marked(None, "id-1"), "[weir id-1]");
        for (title, id, expected) in [
            ("", None, "[weir id-2]"),
            ("[weir id-1]", Some("id-1"), "[weir id-2]"),
            ("for all", None, "for all [weir id-2]"),
            ("for all [weir id-1]", Some("id-1"), "for all [weir id-2]"),
            ("see [weir", None, "see [weir [weir id-2]"),
        ] {
            let strategy = titled(title);
            assert_eq!(strategy.request_id(), id, "{title}");
            let title = marked(Some(&strategy), "id-2");
            assert_eq!(title, expected);
            assert_eq!(titled(&title).request_id(), Some("id-2"));
        }
    }

    #[test]
    fn what_has_no_one_value_says_why() {
        let all = json!({"rollout": "100"});
        let check = |strategies: Value, expected: &str| {
            assert_eq!(shown("retry.owner", &strategies), expected, "{strategies}");
        };
        let plain = json!({"name": "flexibleRollout", "parameters": all});
        let with = |key: &str, value: Value| {
            let mut strategy = plain.clone();
            strategy[key] = value;
            json!([strategy])
        };
        check(json!([]), "on without a value");
        check(json!([plain]), "on without a value");
        check(json!([plain, plain]), "several strategies");
        check(with("parameters", json!({"rollout": "20"})), "a partial rollout");
        check(with("parameters", json!({})), "a partial rollout");
        check(with("parameters", Value::Null), "a partial rollout");
        check(with("constraints", json!([{"contextName": "userId"}])), "constraints");
        check(with("segments", json!([1])), "segments");
        check(with("disabled", json!(true)), "a disabled strategy");
        check(with("variants", json!([{"name": "a"}, {"name": "b"}])), "several variants");
        check(with("variants", json!([{"name": "a"}])), "on without a value");
        check(with("name", json!("userWithId")), "a strategy of its own kind");
        let strange = json!([{"payload": {"type": "string", "value": "nobody"}}]);
        check(with("variants", strange), "nobody");
    }

    #[test]
    fn a_plain_toggle_is_true() {
        let default = json!([{"name": "default", "parameters": {}, "constraints": []}]);
        assert_eq!(shown("breaker.enabled", &default), "true");
        assert_eq!(shown("breaker.enabled", &json!([])), "true");
    }

    #[test]
    fn a_feature_that_needs_another_one_has_no_value_of_its_own() {
        let feature: Feature = serde_json::from_value(json!({
            "environments": [{"name": "e", "enabled": true}],
            "dependencies": [{"feature": "parent"}],
        }))
        .expect("well-formed");
        let environment = feature.within("e").expect("there");
        let value = environment.overridden(flag("breaker.enabled").expect("a real flag"));
        assert_eq!(value, Some(FlagValue::Word("depends on another feature".to_owned())));
        assert!(feature.within("other").is_none());
    }
}
