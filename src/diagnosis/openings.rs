//! How often a breaker opened, where a source gives its state and does not count.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::signal::{Mono, Quality, Reading, Snapshot, Value};

use super::derive::Completed;
use super::history::HOUR;

/// The signal that is given.
const COUNT: &str = "breaker_opens_per_hour";
/// Openings that are remembered; more in an hour is no other news.
const OPENINGS_MAX: usize = 1_000;

/// The breaker's openings, counted from its state where no source counts them.
#[derive(Clone, Debug, Default)]
pub(super) struct Openings {
    was_open: Option<bool>,
    at: VecDeque<Mono>,
}

impl Openings {
    /// Takes the next snapshot and says how often the breaker opened within the last hour. Less than
    /// the truth: between two looks it may have opened and closed, and what was before is not known.
    pub(super) fn step(&mut self, completed: &mut Arc<Completed>, at: Mono) {
        let snapshot = &completed.snapshot;
        if snapshot.get(COUNT).is_some() {
            *self = Self::default();
            return;
        }
        let state = snapshot.value("breaker.state").and_then(Value::as_text);
        let Some((state, of)) = state.zip(snapshot.get("breaker")) else { return };
        let is_open = state == "open";
        if is_open && self.was_open == Some(false) {
            self.at.push_back(at);
        }
        self.was_open = Some(is_open);
        while self.at.len() > OPENINGS_MAX
            || self.at.front().is_some_and(|opened| at.saturating_since(*opened) > HOUR)
        {
            self.at.pop_front();
        }
        let count = u32::try_from(self.at.len()).unwrap_or(u32::MAX);
        let reading = Reading {
            value: Value::Number(f64::from(count)),
            quality: Quality::LowerBound,
            source: Arc::clone(&of.source),
            age_s: of.age_s,
            note: Some(Arc::from("counted from breaker.state")),
        };
        let Snapshot { signals, absent, .. } = &mut Arc::make_mut(completed).snapshot;
        absent.remove(COUNT);
        signals.insert(COUNT.to_owned(), reading);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(openings: &mut Openings, state: &str, second: f64) -> (Option<f64>, Option<Quality>) {
        let mut done = Arc::new(Completed::default());
        let record = BTreeMap::from([("state".to_owned(), Value::Text(state.to_owned()))]);
        let snapshot = &mut Arc::make_mut(&mut done).snapshot;
        snapshot.set("breaker", Value::Map(record), &Arc::from("test"));
        openings.step(&mut done, Mono::from_secs_f64(second));
        (done.snapshot.number(COUNT), done.snapshot.get(COUNT).map(|reading| reading.quality))
    }

    #[test]
    fn openings_are_counted_over_an_hour_and_are_a_lower_bound() {
        let mut openings = Openings::default();
        let at_least = |count| (Some(count), Some(Quality::LowerBound));
        assert_eq!(read(&mut openings, "open", 0.0), at_least(0.0), "it was open before");
        assert_eq!(read(&mut openings, "half_open", 10.0), at_least(0.0));
        assert_eq!(read(&mut openings, "open", 20.0), at_least(1.0));
        assert_eq!(read(&mut openings, "open", 30.0), at_least(1.0));
        assert_eq!(read(&mut openings, "closed", 40.0), at_least(1.0));
        assert_eq!(read(&mut openings, "open", 3_000.0), at_least(2.0));
        assert_eq!(read(&mut openings, "closed", 3_621.0), at_least(1.0));
    }

    #[test]
    fn what_a_source_counts_is_left_alone() {
        let mut openings = Openings::default();
        let mut done = Arc::new(Completed::default());
        let snapshot = &mut Arc::make_mut(&mut done).snapshot;
        snapshot.set(COUNT, Value::Number(7.0), &Arc::from("gateway"));
        openings.step(&mut done, Mono::START);
        assert_eq!(done.snapshot.number(COUNT), Some(7.0));
        assert_eq!(done.snapshot.get(COUNT).map(|one| one.quality), Some(Quality::Exact));
    }

    #[test]
    fn without_a_state_there_is_no_count() {
        let mut done = Arc::new(Completed::default());
        Openings::default().step(&mut done, Mono::START);
        assert_eq!(done.snapshot.get(COUNT), None);
    }
}
