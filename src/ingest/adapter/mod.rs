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
use evaluate::{Evaluation, Found, Said, Unknown};
pub(super) use origin::{readings, readings_of_answers};

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
    let caveat = source.caveat();
    let evaluation = source.evaluation(scope, caveat.as_deref());
    for (signal, entry) in &source.adapter.signals {
        // Why it is unknown stands there; that it still is can be told by what is on the page.
        if snapshot.absent.contains_key(signal)
            && let Ok(evaluation) = &evaluation
            && !source.adapter.may_say(signal, |metric| evaluation.has(metric))
        {
            continue;
        }
        put(snapshot, source, signal, || evaluation.clone()?.entry(entry));
    }
}

impl<'a> Source<'a> {
    /// What is missing from its numbers.
    fn caveat(&self) -> Option<String> {
        let Self { instances, expected, .. } = *self;
        // One that was scraped once is silent about rates, and where none has a rate that is the reason.
        let with_rates = instances.iter().filter(|instance| instance.window().is_some()).count();
        let counted = if with_rates == 0 { instances.len() } else { with_rates };
        (counted < expected).then(|| format!("{counted} of {expected} instances"))
    }

    /// Its pages, to be evaluated for a scope.
    ///
    /// # Errors
    ///
    /// On pages of something else: a lazy metric that is missing counts nothing, but only on the page
    /// that would have it.
    fn evaluation(
        &self,
        scope: Option<&'a str>,
        caveat: Option<&'a str>,
    ) -> Result<Evaluation<'a>, Unknown> {
        let Self { adapter, instances, .. } = *self;
        let evaluation = Evaluation { adapter, instances, caveat, answers: None, scope, row: None };
        if adapter.metrics().any(|metric| evaluation.has(&metric)) {
            return Ok(evaluation);
        }
        let why = format!("none of the metrics of adapter {} is there", adapter.name);
        Err(Unknown::Missing(why))
    }
}

/// What may be shown of what was found.
fn checked(signal: &str, found: Found) -> Said {
    match found.value.as_number() {
        // A difference of counts that belong to different things; no rate of events is below zero.
        Some(number) if number < 0.0 && signal.ends_with("_rps") => {
            Err(Unknown::Nothing(format!("comes out below zero, at {number:.1}")))
        }
        _ => Ok(found),
    }
}

/// Asks the source about a signal, unless another has said it before: instances of one gateway that are
/// sources of their own all know the same signals.
fn put(snapshot: &mut Snapshot, source: &Source<'_>, signal: &str, say: impl FnOnce() -> Said) {
    if snapshot.signals.contains_key(signal) {
        return;
    }
    match say().and_then(|found| checked(signal, found)) {
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
