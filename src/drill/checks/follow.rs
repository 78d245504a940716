//! Follows predicates and signals through a run: when each became true, since when it stayed so, and
//! what a signal was on average. Reads no clock; keeps what the last hour of a scope needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::diagnosis::{Predicate, Ring, Truth, Watch, complete};
use crate::signal::{Mono, Snapshot};

/// What became of one predicate.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Course {
    /// When it was first seen to be true, from the instant on that counts.
    pub first: Option<Mono>,
    /// Since when it has been true, if it is at the end.
    pub since: Option<Mono>,
    /// Whether it was true at the last look before the instant from which it counts.
    pub was: bool,
    /// What it read last, or why it could read nothing.
    pub last: String,
}

#[derive(Debug)]
struct Scope {
    ring: Ring,
    watch: Watch,
    courses: Vec<Course>,
}

/// The follower of one run, over all its quota scopes.
#[derive(Debug)]
pub(super) struct Follower {
    predicates: Watch,
    /// Where each predicate that was asked for stands in `predicates`, which holds each text once.
    places: Vec<usize>,
    paths: BTreeSet<String>,
    /// Before this instant nothing counts.
    from: Mono,
    scopes: BTreeMap<String, Scope>,
}

impl Follower {
    /// Follows these predicates, counting from `from`, and the signals at these paths.
    pub(super) fn new<'a>(
        predicates: impl IntoIterator<Item = &'a Predicate>,
        paths: impl IntoIterator<Item = &'a str>,
        from: Duration,
    ) -> Self {
        let mut watch = Watch::default();
        let places = predicates.into_iter().map(|predicate| watch.add(predicate)).collect();
        let mut kept = watch.paths();
        kept.extend(paths.into_iter().map(str::to_owned));
        Self {
            predicates: watch,
            places,
            paths: kept,
            from: Mono::from_start(from),
            scopes: BTreeMap::new(),
        }
    }

    /// Takes the next snapshot.
    pub(super) fn see(&mut self, snapshot: &Snapshot, at: Mono) {
        let scope = self.scopes.entry(snapshot.scope.clone()).or_insert_with(|| Scope {
            ring: Ring::new(self.paths.clone()).following(&self.predicates.movers()),
            watch: self.predicates.clone(),
            courses: vec![Course::default(); self.places.len()],
        });
        scope.ring.push(Arc::new(complete(snapshot)), at);
        let evidence = scope.watch.step(&scope.ring, at);
        for (course, place) in scope.courses.iter_mut().zip(&self.places) {
            let Some(seen) = evidence.get(*place) else { continue };
            if at < self.from {
                course.was = seen.state == Truth::True;
                continue;
            }
            if seen.state == Truth::True {
                course.first.get_or_insert(at);
                course.since.get_or_insert(at);
            } else {
                course.since = None;
            }
            course.last = match (seen.value, &seen.reason) {
                (Some(value), _) => format!("{value:.3}"),
                (None, Some(reason)) => reason.clone(),
                (None, None) => seen.state.word().to_owned(),
            };
        }
    }

    /// What became of each predicate, in the order in which they were given; of several scopes, in
    /// the first for which it came true.
    pub(super) fn courses(&self) -> Vec<Course> {
        let of = |place: usize| {
            let courses = self.scopes.values().filter_map(|scope| scope.courses.get(place));
            let key = |course: &&Course| {
                // What is true stands before what was, and that before what never was.
                let never = Mono::from_start(Duration::MAX);
                (course.since.is_none(), course.since.or(course.first).unwrap_or(never))
            };
            courses.min_by_key(key).cloned().unwrap_or_default()
        };
        (0..self.places.len()).map(of).collect()
    }

    /// The mean of a signal from one instant to another, in each scope that has it.
    pub(super) fn means(&self, path: &str, from: Duration, to: Duration) -> BTreeMap<&str, f64> {
        let span = Mono::from_start(from)..=Mono::from_start(to);
        let mean = |scope: &Scope| {
            let (mut sum, mut count) = (0.0, 0.0);
            for (_, value) in scope.ring.series(path).filter(|(at, _)| span.contains(at)) {
                sum += value;
                count += 1.0;
            }
            (count > 0.0).then_some(sum / count)
        };
        let each = self.scopes.iter();
        each.filter_map(|(name, scope)| Some((name.as_str(), mean(scope)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Value;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    /// Plays one value a second of `queue_depth`, in scope `a`; a gap is a page without it.
    fn play(follower: &mut Follower, values: &[Option<f64>]) {
        for (second, value) in (0..).zip(values) {
            let mut snapshot = Snapshot::new("a", 10.0);
            if let Some(value) = value {
                snapshot.set("queue_depth", Value::Number(*value), &Arc::from("test"));
            }
            follower.see(&snapshot, Mono::from_start(seconds(second)));
        }
    }

    fn course(from_s: u64, values: &[Option<f64>]) -> (Option<u64>, Option<u64>, String) {
        let predicate = Predicate::parse("queue_depth > 5").expect("valid");
        let mut follower = Follower::new([&predicate, &predicate], [], seconds(from_s));
        play(&mut follower, values);
        let [first, again] = &follower.courses()[..] else { panic!("two were asked for") };
        assert_eq!(first, again, "the same text twice");
        let second = |at: Option<Mono>| at.map(|at| at.since_start().as_secs());
        (second(first.first), second(first.since), first.last.clone())
    }

    #[test]
    fn the_first_time_and_the_time_since_are_told_apart() {
        let (high, low) = (Some(9.0), Some(1.0));
        let value = "9.000".to_owned();
        assert_eq!(course(0, &[low, high, low, high, high]), (Some(1), Some(3), value.clone()));
        assert_eq!(course(2, &[high, high, high]), (Some(2), Some(2), value), "from 2 s on");
        assert_eq!(course(0, &[high, low]), (Some(0), None, "1.000".to_owned()));
        assert_eq!(course(0, &[low, None]).0, None);
    }

    #[test]
    fn what_cannot_be_read_is_neither_true_nor_silent() {
        let (first, since, last) = course(0, &[None, None]);
        assert_eq!((first, since), (None, None));
        assert!(last.contains("no-data"), "{last}");
    }

    #[test]
    fn a_mean_is_of_the_span_and_of_what_is_known() {
        let mut follower = Follower::new([], ["queue_depth"], seconds(0));
        play(&mut follower, &[Some(100.0), Some(1.0), None, Some(3.0), Some(100.0)]);
        let means = follower.means("queue_depth", seconds(1), seconds(3));
        assert_eq!(means, BTreeMap::from([("a", 2.0)]));
        assert!(follower.means("reset_s", seconds(0), seconds(9)).is_empty());
    }
}
