//! Which of the instances that wait for one scope's meters is served first: who was told to wait first.
//!
//! Without a line, whoever asks for little and asks again at once takes every refill before a larger
//! request finds enough. An instance has few places, one for each size of request; a place is lost when
//! nobody asks for it any more. Knows no meter and takes nothing.

use std::time::Duration;

use crate::admission::shared::Demand;
use crate::signal::Mono;

/// Whoever waits for longer asks again within this time, as the gate does; a place is kept no longer
/// without being asked for.
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// So much later than it should have asked, an instance has died or given up.
const GRACE: Duration = Duration::from_millis(250);

/// Most places of one instance. Whatever else it asks for waits without one.
const PLACES_MAX: usize = 4;
/// Requests that differ by no more than this are of one size: what a request takes is an estimate that
/// may change while it waits.
const SAME_SIZE: f64 = 2.0;

/// A place in the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// What is waited for.
    pub(super) demand: Demand,
    /// Since when; the earliest is served first.
    pub(super) since: Mono,
    /// From then on it is lost.
    pub(super) until: Mono,
}

impl Place {
    /// Whether a claim of the same instance may use it.
    pub(super) fn is_for(&self, demand: &Demand) -> bool {
        let (own, other) = (self.demand.tokens(), demand.tokens());
        own <= SAME_SIZE * other && other <= SAME_SIZE * own
    }
}

/// The places of one instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Vec<Place>);

impl Places {
    /// Gives a claim that must wait for so long a place, or renews the one that it has.
    pub(super) fn keep(&mut self, demand: Demand, wait: Duration, now: Mono) {
        self.0.retain(|place| place.until > now);
        let until = now + wait.min(ASKED_EVERY) + GRACE;
        if let Some(place) = self.0.iter_mut().find(|place| place.is_for(&demand)) {
            place.until = until;
            if demand.tokens() > place.demand.tokens() {
                place.demand = demand;
            }
        } else if self.0.len() < PLACES_MAX {
            self.0.push(Place { demand, since: now, until });
        }
    }

    /// Ends the place of a claim that is served, or that waits for nothing that a line gives.
    pub(super) fn leave(&mut self, demand: &Demand, now: Mono) {
        self.0.retain(|place| place.until > now);
        if let Some(index) = self.0.iter().position(|place| place.is_for(demand)) {
            self.0.remove(index);
        }
    }

    /// Those that are still held.
    pub(super) fn held(&self, now: Mono) -> impl Iterator<Item = &Place> {
        self.0.iter().filter(move |place| place.until > now)
    }

    /// Time until the instance should ask for what is not of this size.
    pub(super) fn next_other(&self, demand: &Demand, now: Mono) -> Option<Duration> {
        let others = self.held(now).filter(|place| !place.is_for(demand));
        others.map(|place| place.until.saturating_since(now).saturating_sub(GRACE)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    fn tokens(input: f64) -> Demand {
        Demand { input, output: 0.0 }
    }

    #[test]
    fn a_place_is_kept_as_long_as_its_size_is_asked_for() {
        let wait = Duration::from_secs(5);
        let sizes_at = |asked: f64, now: f64| {
            let mut places = Places::default();
            places.keep(tokens(1_000.0), wait, at(1.0));
            places.keep(tokens(asked), wait, at(2.0));
            let sizes: Vec<f64> = places.held(at(now)).map(|place| place.demand.tokens()).collect();
            sizes
        };
        // Asked again after a second, of the same size or not, and what is held then and later.
        assert_eq!(sizes_at(1_100.0, 3.2), [1_100.0]);
        assert_eq!(sizes_at(600.0, 3.2), [1_000.0]);
        assert_eq!(sizes_at(400.0, 2.2), [1_000.0, 400.0]);
        assert_eq!(sizes_at(400.0, 2.25), [400.0]);
        assert!(sizes_at(400.0, 3.25).is_empty());
    }

    #[test]
    fn an_instance_has_few_places_and_leaves_them_one_by_one() {
        let mut places = Places::default();
        for size in [1.0, 10.0, 100.0, 1_000.0, 10_000.0] {
            places.keep(tokens(size), Duration::ZERO, at(1.0));
        }
        assert_eq!(places.held(at(1.0)).count(), PLACES_MAX);
        assert_eq!(places.next_other(&tokens(1.0), at(1.0)), Some(Duration::ZERO));
        places.leave(&tokens(90.0), at(1.0));
        places.leave(&tokens(90.0), at(1.0));
        assert_eq!(places.held(at(1.0)).count(), PLACES_MAX - 1);
    }
}
