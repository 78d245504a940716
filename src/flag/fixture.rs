//! Tables and signals for the tests of this room and of those above it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::admission::{FLAGS, FlagValue, Settings, flag};
use crate::signal::{Snapshot, Value};

use super::types::{FlagState, FlagTable, Revision};

/// A value as typed.
pub(super) fn value(key: &str, text: &str) -> FlagValue {
    flag(key).and_then(|def| def.parse(text)).expect("a test names real flags and values")
}

/// The default table at revision 41 with these overrides, effective on two instances.
pub(crate) fn table(overrides: &[(&str, &str)]) -> FlagTable {
    let flags = FLAGS.iter().map(|def| {
        let base = Settings::default().get(def.key).expect("flag of the table");
        let overridden =
            overrides.iter().find(|(key, _)| *key == def.key).map(|(key, text)| value(key, text));
        let stored = overridden.clone().unwrap_or_else(|| base.clone());
        FlagState {
            key: def.key.to_owned(),
            safe: def.safe_value(&base),
            base,
            effective: ["gw-1", "gw-2"].map(|name| (name.to_owned(), stored.clone())).into(),
            revision: Revision(if overridden.is_some() { 41 } else { 0 }),
            by: overridden.is_some().then(|| "bob".to_owned()),
            at: None,
            expires: None,
            on_expire: None,
            overridden,
        }
    });
    FlagTable { revision: Revision(41), flags: flags.collect() }
}

/// One scope with these numbers.
pub(super) fn scope(signals: &[(&str, f64)]) -> Arc<Snapshot> {
    let mut snapshot = Snapshot::new("openai/acct-1/embed", 10.0);
    let source = Arc::from("gateway");
    for (name, number) in signals {
        snapshot.set(name, Value::Number(*number), &source);
    }
    Arc::new(snapshot)
}

/// A calm scope, in which every interlock holds.
pub(super) fn calm() -> BTreeMap<&'static str, f64> {
    BTreeMap::from([
        ("amplification", 1.0),
        ("client_multiplication", 1.0),
        ("tpm_headroom", 0.5),
        ("rpm_headroom", 0.5),
        ("calm_s", 600.0),
        ("tpm_demand_ratio", 0.5),
        ("rpm_demand_ratio", 0.5),
        ("queue_oldest_age_s", 0.0),
    ])
}

/// The calm scope with one signal changed, or taken away.
pub(super) fn calm_but(name: &'static str, number: Option<f64>) -> Arc<Snapshot> {
    let mut signals = calm();
    match number {
        Some(number) => signals.insert(name, number),
        None => signals.remove(name),
    };
    scope(&signals.into_iter().collect::<Vec<_>>())
}
