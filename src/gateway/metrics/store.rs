//! How a shared budget's store answers, as metrics. Where every instance has its own there are none.

use crate::admission::{Keeping, Scope, StoreCounters};
use crate::gateway::page::Page;
use crate::signal::Mono;

type KeeperGauge = fn(&Keeping, Mono) -> f64;

/// How far the shared state of each scope is shared: nothing where every instance has its own.
pub(super) fn write(page: &mut Page, scopes: &[Scope], store: Option<&StoreCounters>, now: Mono) {
    let kept: Vec<_> =
        scopes.iter().filter_map(|scope| Some((&**scope.name(), scope.keeping()?))).collect();
    if kept.is_empty() {
        return;
    }
    let families: [(&str, &str, KeeperGauge); 3] = [
        ("weir_store_up", "1 while the store of the shared budget answers.", |kept, _| {
            f64::from(u8::from(kept.lost_since().is_none()))
        }),
        (
            "weir_store_lost_seconds",
            "How long it has been silent; the gate works with a local share.",
            |kept, now| {
                kept.lost_since().map_or(0.0, |since| now.saturating_since(since).as_secs_f64())
            },
        ),
        (
            "weir_store_instances",
            "Instances that shared the budget when it last answered.",
            |kept, _| f64::from(kept.instances()),
        ),
    ];
    for (name, help, read) in families {
        page.family(name, "gauge", help);
        for (scope, kept) in &kept {
            page.sample(name, &[("scope", scope)], read(kept, now));
        }
    }
    let name = "weir_store_unanswered_total";
    page.family(name, "counter", "Decisions that the store did not give in time.");
    for (scope, kept) in &kept {
        page.count(name, &[("scope", scope)], kept.unanswered());
    }
    let Some(store) = store else { return };
    let name = "weir_store_decision_seconds";
    page.family(name, "histogram", "Decisions of the store, all scopes, given up ones too.");
    for (scope, _) in &kept {
        page.histogram(name, &[("scope", scope)], &store.took);
    }
    for (name, help, count) in [
        ("weir_store_timeouts_total", "Decisions that were given up, all scopes.", store.timeouts),
        ("weir_store_errors_total", "Decisions that failed, all scopes.", store.errors),
    ] {
        page.family(name, "counter", help);
        for (scope, _) in &kept {
            page.count(name, &[("scope", scope)], count);
        }
    }
}
