//! The deferred lane as metrics: what waits, for how long, and what came of it. Without a lane there are
//! none.

use std::collections::BTreeMap;

use crate::admission::Scope;
use crate::gateway::deferred::{Counts, DeferredLane, Did, State, UnixMs};
use crate::gateway::page::Page;

type DidCount = fn(&Did) -> u64;

/// What was done, by family.
const DONE: [(&str, &str, DidCount); 8] = [
    ("weir_deferred_stored_total", "Requests stored for later.", |did| did.stored),
    ("weir_deferred_merged_total", "Requests that brought work that was stored already.", |did| {
        did.merged
    }),
    ("weir_deferred_completed_total", "Stored requests answered well.", |did| did.completed),
    ("weir_deferred_dead_total", "Stored requests that became dead letters.", |did| did.dead),
    ("weir_deferred_put_back_total", "Tries that ended in a later one.", |did| did.put_back),
    ("weir_deferred_joined_total", "Stored requests sent in another's request.", |did| did.joined),
    (
        "weir_deferred_duplicates_total",
        "Stored requests taken over from an instance that went away; they may run twice.",
        |did| did.second_runs,
    ),
    (
        "weir_deferred_not_stored_total",
        "Requests refused because they could not be stored.",
        |did| did.not_stored,
    ),
];

pub(super) fn write(page: &mut Page, scopes: &[Scope], lane: Option<&DeferredLane>) {
    let Some(lane) = lane else { return };
    let name = "weir_deferred_store_up";
    page.family(name, "gauge", "1 while the store of the deferred lane works.");
    page.count(name, &[], u64::from(lane.trouble().is_none()));
    let counted: BTreeMap<String, Counts> =
        lane.counted().iter().map(|one| (one.scope.clone(), one.clone())).collect();
    let did = lane.done_so_far();
    // Scopes of the configuration from the start; others that still have work too.
    let mut names: Vec<&str> = scopes.iter().map(|scope| &**scope.name()).collect();
    let others = counted.keys().map(String::as_str).filter(|name| !names.contains(name));
    names.extend(others.collect::<Vec<_>>());
    let none = Counts::default();
    let name = "weir_deferred_items";
    page.family(name, "gauge", "Stored requests by state.");
    for scope in &names {
        let counts = counted.get(*scope).unwrap_or(&none);
        for (state, items) in State::ALL.into_iter().zip(counts.items) {
            page.count(name, &[("scope", scope), ("state", state.word())], items);
        }
    }
    let name = "weir_deferred_oldest_seconds";
    page.family(name, "gauge", "Age of the oldest stored request that is not done.");
    let now = UnixMs::now();
    for scope in &names {
        let oldest = counted.get(*scope).and_then(|counts| counts.oldest);
        let age = oldest.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
        page.sample(name, &[("scope", scope)], age);
    }
    for (name, help, read) in DONE {
        page.family(name, "counter", help);
        for scope in &names {
            let count = did.get(*scope).map_or(0, read);
            page.count(name, &[("scope", scope)], count);
        }
    }
}
