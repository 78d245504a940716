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
    let has = |metric: &str| evaluation.has(metric);
    for (signal, entry) in &adapter.signals {
        // Why it is unknown stands there; that it still is can be told by what is on the page.
        if snapshot.absent.contains_key(signal) && !adapter.may_say(signal, has) {
            continue;
        }
        let say = || if is_its_page { evaluation.entry(entry) } else { Err(foreign.clone()) };
        put(snapshot, source, signal, say);
    }
}

/// Asks the source about a signal, unless another has said it before: instances of one gateway that are
/// sources of their own all know the same signals.
fn put(snapshot: &mut Snapshot, source: &Source<'_>, signal: &str, say: impl FnOnce() -> Said) {
    if snapshot.signals.contains_key(signal) {
        return;
    }
    let said = say().and_then(|found| match found.value.as_number() {
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
            if !snapshot.absent.contains_key(signal) {
                let why = format!("{}: {}", source.name, unknown.reason());
                snapshot.absent.insert(signal.to_owned(), why);
            }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ingest::exposition::Format;
    use crate::ingest::intake::Intake;
    use crate::signal::Mono;

    #[test]
    fn what_may_not_be_said_is_not_said_whichever_metric_is_there() {
        for (name, text) in library::SHIPPED {
            let adapter = Adapter::parse(name, name, text).expect(name);
            let mut passed_over = 0;
            for metric in adapter.metrics().collect::<BTreeSet<_>>() {
                let mut intake = Intake::new(Duration::from_secs(10), adapter.metrics());
                for second in 1..=2_u32 {
                    let at = Mono::from_secs_f64(second.into());
                    let page = format!("{metric} {}\n", 5 * second);
                    intake.accept(page.as_bytes(), Format::Text, at).expect("small");
                }
                let instances = [Instance::new(intake.book())];
                let evaluation = Evaluation {
                    adapter: &adapter,
                    instances: &instances,
                    caveat: None,
                    answers: None,
                    scope: None,
                    row: None,
                };
                for (signal, entry) in &adapter.signals {
                    if !adapter.may_say(signal, |metric| evaluation.has(metric)) {
                        passed_over += 1;
                        assert!(evaluation.entry(entry).is_err(), "{name}: {signal} by {metric}");
                    }
                }
            }
            assert!(passed_over > 0, "{name}");
        }
    }
}
