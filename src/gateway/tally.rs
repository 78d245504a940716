//! The running totals of one instance in one JSON object: what a drill takes differences of.

use serde::{Deserialize, Serialize};

use crate::admission::{Completion, Ending, Gate, Histogram};
use crate::signal::Mono;

/// Totals over all scopes since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Seconds since the start of the process.
    pub at_s: f64,
    /// Distinct originals that arrived.
    pub originals: u64,
    /// Originals answered with success.
    pub originals_served: u64,
    /// Requests that arrived.
    pub offered: u64,
    /// Requests let through.
    pub admitted: u64,
    /// Requests refused by the gate.
    pub shed: u64,
    /// Requests that became too late in the queue.
    pub expired: u64,
    /// Requests whose caller went away.
    pub cancelled: u64,
    /// Requests answered with success.
    pub completed: u64,
    /// Requests that reached the provider.
    pub attempts: u64,
    /// 429 answers of the provider.
    pub provider_429: u64,
    /// Tokens that the provider billed.
    pub tokens_sent: f64,
    /// Originals with an attempt since the last mark; only where a mark was made by this reading.
    pub originals_attempted: Option<u64>,
    /// Age of the oldest waiting request now.
    pub queue_oldest_age_s: f64,
    /// Requests that are not answered yet.
    pub open: u64,
    /// Latency of let-through requests, by bucket.
    pub latency_admitted: Vec<u64>,
    /// Latency of all requests, by bucket.
    pub latency_offered: Vec<u64>,
}

impl Tally {
    /// The totals of a gate, and a mark: the next reading with a mark counts from here.
    pub fn mark(gate: &mut Gate, now: Mono) -> Self {
        let originals_attempted = Some(gate.mark());
        Self { originals_attempted, ..Self::of(gate, now) }
    }

    /// The totals of a gate.
    #[must_use]
    pub fn of(gate: &Gate, now: Mono) -> Self {
        Self::of_all(std::iter::once(gate), now)
    }

    /// The totals of several gates that stand side by side, together. An original that reaches two of
    /// them counts twice.
    pub fn of_all<'a>(gates: impl Iterator<Item = &'a Gate> + Clone, now: Mono) -> Self {
        let mut tally = Self { at_s: now.as_secs_f64(), ..Self::default() };
        tally.open = gates.clone().map(|gate| gate.open_requests() as u64).sum();
        let (mut admitted, mut offered) = (Histogram::default(), Histogram::default());
        for scope in gates.flat_map(Gate::scopes) {
            let counters = scope.counters();
            tally.originals += counters.originals.total();
            tally.originals_served += counters.originals_served;
            tally.offered += counters.offered.total();
            tally.admitted += counters.admitted.total();
            tally.shed += counters.shed.total();
            tally.expired += counters.expired.total();
            tally.cancelled += counters.cancelled.total();
            tally.completed += counters.completed.of(Completion::Success);
            tally.attempts += counters.attempts();
            tally.provider_429 += counters
                .results
                .iter()
                .filter(|((_, ending), _)| *ending == Ending::Status(429))
                .map(|(_, count)| count)
                .sum::<u64>();
            tally.tokens_sent += counters.tokens_actual;
            for lane in crate::admission::Lane::ALL {
                let age = scope.queue().oldest_age(lane, now).unwrap_or_default();
                tally.queue_oldest_age_s = tally.queue_oldest_age_s.max(age.as_secs_f64());
            }
            for (sum, part) in [
                (&mut admitted, &counters.admitted_latency),
                (&mut offered, &counters.offered_latency),
            ] {
                for (sum, part) in sum.buckets.iter_mut().zip(part.buckets) {
                    *sum += part;
                }
            }
        }
        tally.latency_admitted = admitted.buckets.to_vec();
        tally.latency_offered = offered.buckets.to_vec();
        tally
    }

    /// The totals of processes that stand side by side, together, as [`Self::of_all`] has those of
    /// gates. Marks count only where all have made one.
    #[must_use]
    pub fn together(parts: &[Self]) -> Self {
        let mut sum = Self { originals_attempted: parts.first().map(|_| 0), ..Self::default() };
        for part in parts {
            sum.at_s = sum.at_s.max(part.at_s);
            sum.originals += part.originals;
            sum.originals_served += part.originals_served;
            sum.offered += part.offered;
            sum.admitted += part.admitted;
            sum.shed += part.shed;
            sum.expired += part.expired;
            sum.cancelled += part.cancelled;
            sum.completed += part.completed;
            sum.attempts += part.attempts;
            sum.provider_429 += part.provider_429;
            sum.tokens_sent += part.tokens_sent;
            let marks = sum.originals_attempted.zip(part.originals_attempted);
            sum.originals_attempted = marks.map(|(all, one)| all + one);
            sum.queue_oldest_age_s = sum.queue_oldest_age_s.max(part.queue_oldest_age_s);
            sum.open += part.open;
            add_buckets(&mut sum.latency_admitted, &part.latency_admitted);
            add_buckets(&mut sum.latency_offered, &part.latency_offered);
        }
        sum
    }
}

fn add_buckets(sum: &mut Vec<u64>, part: &[u64]) {
    sum.resize(sum.len().max(part.len()), 0);
    for (sum, part) in sum.iter_mut().zip(part) {
        *sum += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_side_by_side_adds_up() {
        let one = Tally {
            attempts: 3,
            queue_oldest_age_s: 2.0,
            originals_attempted: Some(2),
            latency_offered: vec![1, 2],
            ..Tally::default()
        };
        let other = Tally { attempts: 4, queue_oldest_age_s: 1.0, ..one.clone() };
        let sum = Tally::together(&[one.clone(), other]);
        assert_eq!((sum.attempts, sum.originals_attempted), (7, Some(4)));
        assert_eq!(sum.latency_offered, [2, 4]);
        assert!((sum.queue_oldest_age_s - 2.0).abs() < f64::EPSILON, "the oldest of all");
        let unmarked = Tally { originals_attempted: None, ..one.clone() };
        assert_eq!(Tally::together(&[one.clone(), unmarked]).originals_attempted, None);
        assert_eq!(Tally::together(std::slice::from_ref(&one)), one, "one alone is itself");
    }
}
