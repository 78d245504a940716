//! The diagnosis of every quota scope of what is watched, stepped together with each observation.
//!
//! Used wherever observations come from: the pollers of the dashboard, or a recording.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnosis::{Change, Diagnoser, Facts, InstanceCount, Library, Verdict};
use crate::ingest::{Observation, SourceStatus};
use crate::signal::{Mono, Snapshot};

/// The diagnoses of every scope.
#[derive(Debug)]
pub struct Diagnoses {
    library: Arc<Library>,
    diagnosers: BTreeMap<String, Diagnoser>,
}

impl Diagnoses {
    /// Has seen nothing yet.
    #[must_use]
    pub const fn new(library: Arc<Library>) -> Self {
        Self { library, diagnosers: BTreeMap::new() }
    }

    /// Begins anew with what was before, oldest first, as the past to compare with. What was seen
    /// since is seen again within seconds; a past that came later could not be put under it.
    pub fn begin_earlier(&mut self, scopes: &BTreeMap<String, Vec<(Mono, Arc<Snapshot>)>>) {
        self.diagnosers.clear();
        for (scope, samples) in scopes {
            self.of(scope).backfill(samples);
        }
    }

    /// The verdict on every scope of an observation, and what changed beside the load so far.
    pub fn step(&mut self, observation: &Observation) -> (Vec<Arc<Verdict>>, Vec<Arc<Change>>) {
        let mut verdicts = Vec::with_capacity(observation.scopes.len());
        let mut changes = Vec::new();
        for snapshot in &observation.scopes {
            let told = instances(observation, snapshot);
            let diagnoser = self.of(&snapshot.scope);
            let verdict = diagnoser.step_with(snapshot, told.as_ref(), observation.at);
            verdicts.push(Arc::new(verdict));
            changes.extend(diagnoser.changes().cloned());
        }
        (verdicts, changes)
    }

    /// The evidence of every scope as of its last step, cheap to keep.
    #[must_use]
    pub fn facts(&self) -> BTreeMap<String, Facts> {
        let of = |(scope, one): (&String, &Diagnoser)| (scope.clone(), one.facts().clone());
        self.diagnosers.iter().map(of).collect()
    }

    /// Takes an observation in without judging it: for what leads up to a moment that is.
    pub fn see(&mut self, observation: &Observation) {
        for snapshot in &observation.scopes {
            let told = instances(observation, snapshot);
            self.of(&snapshot.scope).see(snapshot, told.as_ref(), observation.at);
        }
    }

    /// The diagnosis of one scope, a new one where there is none.
    ///
    /// # Panics
    /// Never: it is made before it is looked for.
    pub fn of(&mut self, scope: &str) -> &mut Diagnoser {
        if !self.diagnosers.contains_key(scope) {
            let diagnoser = Diagnoser::new(Arc::clone(&self.library));
            self.diagnosers.insert(scope.to_owned(), diagnoser);
        }
        self.diagnosers.get_mut(scope).expect("it was put there")
    }
}

/// How many instances there are behind the source that gives most numbers of a snapshot. Unknown
/// while it does not answer, and before it first did.
fn instances<'a>(observation: &'a Observation, snapshot: &Snapshot) -> Option<InstanceCount<'a>> {
    let given = |source: &SourceStatus| {
        snapshot.signals.values().filter(|reading| *reading.source == *source.name).count()
    };
    let source = observation.sources.iter().max_by_key(|source| given(source))?;
    let is_known = source.error.is_none() && source.instances.1 > 0 && given(source) > 0;
    let read_at = source.last_good.filter(|_| is_known)?;
    Some(InstanceCount { source: &source.name, all: source.instances.1, read_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Value;

    fn source(name: &str, all: usize, error: Option<&str>) -> SourceStatus {
        SourceStatus {
            name: name.to_owned(),
            url: String::new(),
            via: None,
            last_good: Some(Mono::START),
            stale_after_s: 3.0,
            error: error.map(str::to_owned),
            degraded: Vec::new(),
            warnings: Vec::new(),
            instances: (1, all),
            took_s: 0.0,
            samples: 0,
            polls: 1,
            failures: 0,
        }
    }

    #[test]
    fn instances_are_those_of_the_source_that_gives_most_numbers_while_it_answers() {
        let mut snapshot = Snapshot::new("s", 10.0);
        for (signal, source) in [("a", "gateway"), ("b", "gateway"), ("c", "clients")] {
            snapshot.set(signal, Value::Number(1.0), &Arc::from(source));
        }
        let count = |sources: Vec<SourceStatus>| {
            let (at, wall) = (Mono::START, chrono::DateTime::UNIX_EPOCH);
            let observation = Observation { at, wall, scopes: Vec::new(), sources };
            instances(&observation, &snapshot).map(|told| (told.source.to_owned(), told.all))
        };
        let clients = || source("clients", 9, None);
        let gateway = |all, error| source("gateway", all, error);
        let of_gateway = Some(("gateway".to_owned(), 3));
        assert_eq!(count(vec![gateway(3, None), clients()]), of_gateway);
        assert_eq!(count(vec![gateway(3, Some("refused")), clients()]), None);
        assert_eq!(count(vec![gateway(0, None), clients()]), None);
        assert_eq!(count(vec![source("other", 2, None)]), None);
    }
}
