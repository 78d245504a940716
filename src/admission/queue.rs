//! The bounded two-lane queue of one scope: first in, first out within a lane, interactive first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::events::RequestId;
use crate::signal::Mono;

/// Priority class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A person waits for it.
    Interactive,
    /// Nobody does.
    Batch,
}

impl Lane {
    /// Both lanes, first served first.
    pub const ALL: [Self; 2] = [Self::Interactive, Self::Batch];

    /// The lane's word in headers, labels and on screen.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    lane: Lane,
    arrived: Mono,
    deadline: Mono,
    tokens: f64,
    /// Place in the lane; front-pushed ones are negative.
    place: i64,
}

/// Requests that wait for quota.
#[derive(Debug, Default)]
pub struct Queue {
    lanes: BTreeMap<Lane, VecDeque<RequestId>>,
    waiting: BTreeMap<RequestId, Waiting>,
    deadlines: BTreeSet<(Mono, RequestId)>,
    tokens: BTreeMap<Lane, f64>,
    placed: i64,
}

/// What a request brings into the queue.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// Who waits.
    pub request: RequestId,
    /// In which lane.
    pub lane: Lane,
    /// When it arrived at the gate.
    pub arrived: Mono,
    /// When it is too late to start.
    pub deadline: Mono,
    /// What it will reserve.
    pub tokens: f64,
}

impl Queue {
    /// Puts a request at the end of its lane.
    pub fn push_back(&mut self, ticket: Ticket) {
        self.placed += 1;
        let place = self.placed;
        self.insert(ticket, place);
        self.lanes.entry(ticket.lane).or_default().push_back(ticket.request);
    }

    /// Puts a request that was already let through once at the head of its lane.
    pub fn push_front(&mut self, ticket: Ticket) {
        self.placed += 1;
        let place = -self.placed;
        self.insert(ticket, place);
        self.lanes.entry(ticket.lane).or_default().push_front(ticket.request);
    }

    fn insert(&mut self, ticket: Ticket, place: i64) {
        let Ticket { request, lane, arrived, deadline, tokens } = ticket;
        self.waiting.insert(request, Waiting { lane, arrived, deadline, tokens, place });
        self.deadlines.insert((deadline, request));
        *self.tokens.entry(lane).or_default() += tokens;
    }

    /// The next request of a lane, without taking it.
    #[must_use]
    pub fn head(&self, lane: Lane) -> Option<RequestId> {
        self.lanes.get(&lane)?.front().copied()
    }

    /// Takes a request out, wherever it stands. Returns when it arrived.
    pub fn remove(&mut self, request: RequestId) -> Option<Mono> {
        let waiting = self.waiting.remove(&request)?;
        self.deadlines.remove(&(waiting.deadline, request));
        let tokens = self.tokens.entry(waiting.lane).or_default();
        *tokens = (*tokens - waiting.tokens).max(0.0);
        if let Some(lane) = self.lanes.get_mut(&waiting.lane) {
            // Most leave from the head; the rest are found by their place, which is sorted.
            if lane.front() == Some(&request) {
                lane.pop_front();
            } else {
                let places = &self.waiting;
                let found = lane.partition_point(|other| {
                    places.get(other).is_some_and(|other| other.place < waiting.place)
                });
                if lane.get(found) == Some(&request) {
                    lane.remove(found);
                } else if let Some(found) = lane.iter().position(|other| *other == request) {
                    lane.remove(found);
                }
            }
        }
        Some(waiting.arrived)
    }

    /// The earliest deadline of all that wait.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A request whose deadline has come, if there is one. It stays until it is removed.
    #[must_use]
    pub fn overdue(&self, now: Mono) -> Option<RequestId> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, request)| *request)
    }

    /// Gives every waiting request a new deadline: the queue's greatest age has changed.
    pub fn redate(&mut self, deadline: impl Fn(RequestId, Mono) -> Mono) {
        self.deadlines.clear();
        for (request, waiting) in &mut self.waiting {
            waiting.deadline = deadline(*request, waiting.arrived);
            self.deadlines.insert((waiting.deadline, *request));
        }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Requests that wait in a lane.
    #[must_use]
    pub fn depth(&self, lane: Lane) -> usize {
        self.lanes.get(&lane).map_or(0, VecDeque::len)
    }

    /// Requests and tokens that go before a newcomer of this lane.
    #[must_use]
    pub fn ahead(&self, lane: Lane) -> (usize, f64) {
        Lane::ALL.iter().filter(|other| **other <= lane).fold((0, 0.0), |(depth, tokens), other| {
            let more = self.tokens.get(other).copied().unwrap_or(0.0);
            (depth + self.depth(*other), tokens + more)
        })
    }

    /// Age of the oldest request of a lane.
    #[must_use]
    pub fn oldest_age(&self, lane: Lane, now: Mono) -> Option<Duration> {
        // Those at the head have waited longest: newcomers go to the end, repeats keep their time.
        let head = self.head(lane)?;
        let arrived = self.waiting.get(&head)?.arrived;
        Some(now.saturating_since(arrived))
    }

    /// All that wait, in no useful order.
    #[must_use]
    pub fn all(&self) -> Vec<RequestId> {
        self.waiting.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticket(number: u64, lane: Lane) -> Ticket {
        Ticket {
            request: RequestId::from_number(number),
            lane,
            arrived: Mono::START,
            deadline: Mono::from_secs_f64(10.0),
            tokens: 2.0,
        }
    }

    #[test]
    fn repeats_go_first_and_interactive_goes_before_batch() {
        let mut queue = Queue::default();
        queue.push_back(ticket(1, Lane::Batch));
        queue.push_back(ticket(2, Lane::Interactive));
        queue.push_back(ticket(3, Lane::Interactive));
        queue.push_front(ticket(4, Lane::Interactive));
        assert_eq!(queue.head(Lane::Interactive), Some(RequestId::from_number(4)));
        assert_eq!(queue.ahead(Lane::Interactive), (3, 6.0));
        assert_eq!(queue.ahead(Lane::Batch), (4, 8.0));
    }

    #[test]
    fn a_deadline_is_over_at_its_instant_and_not_before() {
        let mut queue = Queue::default();
        queue.push_back(ticket(1, Lane::Batch));
        assert_eq!(queue.overdue(Mono::from_secs_f64(9.999)), None);
        assert_eq!(queue.overdue(Mono::from_secs_f64(10.0)), Some(RequestId::from_number(1)));
    }

    proptest! {
        #[test]
        fn order_and_sums_survive_any_removal(
            pushes in prop::collection::vec((0u64..200, any::<bool>(), any::<bool>()), 1..80),
            removals in prop::collection::vec(0u64..200, 0..80),
        ) {
            let mut queue = Queue::default();
            let mut model: VecDeque<u64> = VecDeque::new();
            let mut seen = BTreeSet::new();
            for (number, front, batch) in pushes {
                if !seen.insert(number) { continue; }
                let lane = if batch { Lane::Batch } else { Lane::Interactive };
                if front { queue.push_front(ticket(number, lane)) } else { queue.push_back(ticket(number, lane)) }
                if !batch {
                    if front { model.push_front(number) } else { model.push_back(number) }
                }
            }
            for number in removals {
                queue.remove(RequestId::from_number(number));
                model.retain(|other| *other != number);
            }
            prop_assert_eq!(queue.depth(Lane::Interactive), model.len());
            let (_, tokens) = queue.ahead(Lane::Interactive);
            prop_assert!((tokens - 2.0 * f64::from(u32::try_from(model.len()).expect("small"))).abs() < 1e-9);
            while let Some(head) = queue.head(Lane::Interactive) {
                prop_assert_eq!(Some(head), model.pop_front().map(RequestId::from_number));
                queue.remove(head);
            }
        }
    }
}
