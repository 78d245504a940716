//! Verdicts and snapshots as JSON: the fields that programs outside rely on. Text in, text out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::signal::{Quality, Snapshot, Value, definition};

use super::explain::{Explanation, Lever, Way};
use super::verdict::{Evidence, Standing, Verdict};

/// Window of a snapshot that does not say `window_s`.
const DEFAULT_WINDOW_S: f64 = 60.0;
/// Deepest nesting that is kept of a record.
const MAX_DEPTH: usize = 8;

/// The verdict with the fields of `weir diagnose --json`.
#[must_use]
pub fn verdict_to_json(verdict: &Verdict) -> Json {
    let path: Vec<Json> =
        verdict.path.iter().map(|step| json!({"node": step.node, "branch": step.branch})).collect();
    let evidence: Vec<Json> = verdict
        .evidence
        .iter()
        .map(|evidence| {
            json!({
                "predicate": evidence.predicate,
                "value": evidence.value,
                "threshold": evidence.threshold,
                "state": evidence.state.word(),
                "reason": evidence.reason,
            })
        })
        .collect();
    let also: Vec<Json> = verdict
        .also
        .iter()
        .filter(|ranked| ranked.standing > Standing::RuledOut)
        .map(|ranked| {
            json!({
                "cause": ranked.cause,
                "standing": ranked.standing.word(),
                "role": ranked.role.word(),
                "for": ranked.evidence_for,
                "against": ranked.evidence_against,
                "unknown": ranked.evidence_unknown,
            })
        })
        .collect();
    let missing: Vec<Json> = verdict
        .missing
        .iter()
        .map(|missing| {
            let (signal, reason) = (&missing.signal, &missing.reason);
            json!({"signal": signal, "reason": reason, "fetch": missing.fetch})
        })
        .collect();
    let onsets: Vec<Json> = verdict
        .onsets
        .iter()
        .map(|onset| {
            json!({
                "signal": &*onset.signal,
                "moved": onset.way.moved(),
                "ago_s": onset.ago_s,
                "from": onset.from,
                "to": onset.to,
            })
        })
        .collect();
    json!({
        "cause": verdict.cause,
        "standing": verdict.standing.word(),
        "scope": verdict.scope,
        "say": verdict.say,
        "path": path,
        "evidence": evidence,
        "also": also,
        "missing": missing,
        "used": verdict.used,
        "of": verdict.of,
        "runbook": verdict.runbook,
        "first": verdict.first.as_ref().map(|first| {
            json!({"runbook": first.runbook, "node": first.node, "title": first.title})
        }),
        "plan": verdict.plan,
        "notes": verdict.notes,
        "pages_owner": verdict.pages_owner,
        "lost_originals_rps": verdict.toll.lost_originals_rps,
        "onsets": onsets,
    })
}

/// One entry of `explain[]`.
#[must_use]
pub fn explanation_to_json(explanation: &Explanation) -> Json {
    let grounds: Vec<Json> = explanation
        .grounds
        .iter()
        .map(|ground| {
            let evidence: Vec<Json> = ground.evidence.iter().map(evidence_to_json).collect();
            json!({
                "kind": ground.kind.word(),
                "text": ground.text,
                "state": ground.state.word(),
                "evidence": evidence,
            })
        })
        .collect();
    let lever = |lever: &Lever| {
        json!({
            "evidence": evidence_to_json(&lever.evidence),
            "wanted": lever.wanted.word(),
            "alone": lever.alone,
        })
    };
    let turns: Vec<Json> = explanation
        .turns
        .iter()
        .map(|turn| {
            let levers: Vec<Json> = turn.levers.iter().map(lever).collect();
            json!({
                "kind": turn.kind.word(),
                "text": turn.text,
                "state": turn.state.word(),
                "wanted": turn.wanted.word(),
                "levers": levers,
            })
        })
        .collect();
    json!({
        "cause": explanation.cause,
        "standing": explanation.standing.word(),
        "settling": explanation.is_settling,
        "role": explanation.role.map_or("primary", super::verdict::Role::word),
        "for": explanation.evidence_for,
        "against": explanation.evidence_against,
        "unknown": explanation.evidence_unknown,
        "way": way_to_json(&explanation.way),
        "grounds": grounds,
        "turns": turns,
    })
}

fn way_to_json(way: &Way) -> Json {
    match way {
        Way::Named => json!({"is": "named"}),
        Way::Nowhere => json!({"is": "nowhere"}),
        Way::Weighed { node, title, answer } => {
            json!({"is": "weighed", "node": node, "title": title, "answer": answer})
        }
        Way::Left { node, title, answer, wanted } => {
            let wanted: Vec<Json> = wanted
                .iter()
                .map(|one| json!({"say": one.say, "when": one.when, "state": one.state.word()}))
                .collect();
            json!({"is": "left", "node": node, "title": title, "answer": answer, "wanted": wanted})
        }
    }
}

/// A piece of evidence with all that is known of it.
fn evidence_to_json(evidence: &Evidence) -> Json {
    json!({
        "name": evidence.name,
        "predicate": evidence.predicate,
        "value": evidence.value,
        "threshold": evidence.threshold,
        "state": evidence.state.word(),
        "reason": evidence.reason,
        "pending": evidence.pending,
        "held_s": evidence.held_s,
        "source": evidence.source,
        "age_s": evidence.age_s,
        "quality": evidence.quality.map(Quality::word),
    })
}

/// A snapshot from an object with the keys of the catalogue. A null is as good as absent; a key
/// that is not in the catalogue is left out and named in the second part of the result.
#[must_use]
pub fn snapshot_from_json(object: &Map<String, Json>, source: &str) -> (Snapshot, Vec<String>) {
    let window_s = object
        .get("window_s")
        .and_then(Json::as_f64)
        .filter(|window| *window > 0.0)
        .unwrap_or(DEFAULT_WINDOW_S);
    let scope = object.get("scope").and_then(Json::as_str).unwrap_or_default();
    let mut snapshot = Snapshot::new(scope, window_s);
    let source: Arc<str> = Arc::from(source);
    let mut strangers = Vec::new();
    for (name, value) in object {
        if name == "scope" {
            continue;
        }
        if definition(name).is_none() {
            strangers.push(name.clone());
        } else if let Some(value) = value_from_json(value, MAX_DEPTH) {
            snapshot.set(name, value, &source);
        }
    }
    (snapshot, strangers)
}

fn value_from_json(json: &Json, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    Some(match json {
        Json::Null => return None,
        Json::Bool(yes) => Value::Bool(*yes),
        Json::Number(number) => Value::Number(number.as_f64()?),
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => {
            Value::List(items.iter().filter_map(|item| value_from_json(item, depth)).collect())
        }
        Json::Object(parts) => Value::Map(
            parts
                .iter()
                .filter_map(|(name, part)| Some((name.clone(), value_from_json(part, depth)?)))
                .collect::<BTreeMap<_, _>>(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_absent_and_strangers_are_named() {
        let json = json!({
            "window_s": 60, "attempts_rps": 3, "reset_s": null, "nonsense": 1,
            "breaker": {"state": "open", "open_since_s": null},
        });
        let object = json.as_object().expect("an object");
        let (snapshot, strangers) = snapshot_from_json(object, "file");
        assert_eq!(snapshot.number("attempts_rps"), Some(3.0));
        assert!(snapshot.get("reset_s").is_none());
        assert_eq!(snapshot.value("breaker.state").and_then(Value::as_text), Some("open"));
        assert!(snapshot.value("breaker.open_since_s").is_none());
        assert_eq!(strangers, ["nonsense"]);
    }
}
