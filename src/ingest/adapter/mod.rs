//! Turns the series of one source into signals of the catalogue, as its adapter file says.
//!
//! Adapters are data (`assets/adapters/*.toml`, explained in the README there) and so are their
//! expressions, which are kept as trees. A signal that cannot be said says why, and nothing here
//! turns that into zero.

mod aggregated;
mod answered;
pub(super) mod ast;
mod counted;
mod evaluate;
mod expression;
mod file;
mod leaf;
mod library;
mod model;
mod origin;
mod records;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::signal::{SeriesBook, Snapshot};

pub use aggregated::{Aggregates, Groups};
pub(super) use answered::{Answered, fill_answered};
pub(super) use ast::Pattern;
pub use expression::{EXPRESSION_BYTES_MAX, ExpressionError, parse_expression};
pub(super) use leaf::BOUND_LABEL;
pub use leaf::{Leaf, Measure};
pub use library::{AdapterError, Adapters, FOLDER, load as load_adapter};
pub(super) use model::Form;
pub use model::{Adapter, Entry, Role, Verified};

pub(super) use counted::Instance;
pub(super) use evaluate::Evaluation;
use evaluate::{Said, Unknown};
pub(super) use origin::{is_believed, readings};

/// Most quota scopes of one source; more are left out, in order of their names.
pub const SCOPES_MAX: usize = 64;

/// The quota scopes that the source tells apart; empty when it does not.
pub(super) fn scopes(adapter: &Adapter, book: &SeriesBook) -> BTreeSet<String> {
    let Some(scope) = &adapter.scope else { return BTreeSet::new() };
    let all: BTreeSet<_> = book.label_values(&scope.metrics, &scope.label).collect();
    all.into_iter().take(SCOPES_MAX).map(str::to_owned).collect()
}

/// One source as the assembler knows it.
pub(super) struct Source<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) adapter: &'a Adapter,
    /// Its instances that answer.
    pub(super) instances: &'a [Instance<'a>],
    /// How many it should have.
    pub(super) expected: usize,
    /// Seconds since the oldest of their newest scrapes; since the newest where all are silent.
    pub(super) age_s: f64,
}

/// Writes what `source` says about `scope` into `snapshot`, where nobody said it before.
pub(super) fn fill(snapshot: &mut Snapshot, source: &Source<'_>, scope: Option<&str>) {
    let Source { adapter, instances, expected, .. } = *source;
    // One that was scraped once is silent about rates, and where none has a rate that is the reason.
    let with_rates = instances.iter().filter(|instance| instance.window().is_some()).count();
    let counted = if with_rates == 0 { instances.len() } else { with_rates };
    let caveat = (counted < expected).then(|| format!("{counted} of {expected} instances"));
    let caveat = caveat.as_deref();
    let evaluation = Evaluation { caveat, ..Evaluation::of_pages(adapter, instances, scope) };
    // A lazy metric that is missing counts nothing, but only on the page that would have it.
    let is_its_page = adapter.metrics().any(|metric| evaluation.has(&metric));
    let foreign =
        Unknown::Missing(format!("none of the metrics of adapter {} is there", adapter.name));
    for (signal, entry) in &adapter.signals {
        let said = if is_its_page { evaluation.entry(entry) } else { Err(foreign.clone()) };
        put(snapshot, source, signal, said);
    }
}

fn put(snapshot: &mut Snapshot, source: &Source<'_>, signal: &str, said: Said) {
    if snapshot.signals.contains_key(signal) {
        return;
    }
    let said = said.and_then(|found| match found.value.as_number() {
        // A difference of counts that belong to different things; no rate of events is below zero.
        Some(number) if number < 0.0 && signal.ends_with("_rps") => {
            Err(Unknown::Nothing(format!("comes out below zero, at {number:.1}")))
        }
        _ => Ok(found),
    });
    match said {
        Ok(found) => {
            snapshot.absent.remove(signal);
            let reading = crate::signal::Reading {
                value: found.value,
                quality: found.quality,
                source: Arc::clone(source.name),
                age_s: source.age_s + found.extra_age_s,
                note: found.note.map(Into::into),
            };
            snapshot.signals.insert(signal.to_owned(), reading);
        }
        // The first source that should know gives the reason.
        Err(unknown) => {
            let why = format!("{}: {}", source.name, unknown.reason());
            snapshot.absent.entry(signal.to_owned()).or_insert(why);
        }
    }
}

/// Says for every signal of a source that has gone quiet that it is unknown.
pub(super) fn stale(snapshot: &mut Snapshot, source: &Source<'_>) {
    let why = format!("stale: {} last answered {:.0} s ago", source.name, source.age_s);
    for signal in source.adapter.signals.keys() {
        if !snapshot.signals.contains_key(signal) {
            snapshot.absent.entry(signal.clone()).or_insert_with(|| why.clone());
        }
    }
}
