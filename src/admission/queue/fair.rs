//! One line of waiting requests, shared among tenants by tokens and weight.
//!
//! Self-clocked fair queuing (Golestani, "A self-clocked fair queueing scheme for broadband
//! applications", INFOCOM 1994). Each tenant that waits has a *start*: the tokens that it was charged over
//! its weight. Its *finish* is where the start will be once its head has been served; the smallest finish
//! goes next, and becomes the line's clock. Who begins to wait starts at the clock, so an idle tenant
//! saves nothing up, owes nothing and leaves no trace. Start-time fair queuing (Goyal, Vin and
//! Cheng, SIGCOMM 1996) has the same bound on fairness, but must remember a tenant that has just left until
//! its clock has caught up with it. Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) would need a
//! quantum as large as the largest request, some hundred thousand tokens, where most have some hundreds.
//!
//! What it guarantees, `size` being the largest charge of a tenant's single request that waited:
//!
//! - *Fairness*: the start of a tenant that waits is never above the clock and never below it by more than
//!   size/weight. So over any interval in which two tenants both wait, their charges over their weights
//!   differ by at most size/weight of the one plus size/weight of the other, whatever else comes,
//!   leaves or is removed.
//! - *No starvation*: before the head of a tenant that begins to wait, another is charged at most
//!   its own weight times size/weight, and one request of its own. What is not charged are repeats; each
//!   was charged once, so there are only as many as an original has attempts.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::tenant::TenantId;
use super::ticket::{Ahead, Ticket};
use crate::admission::events::RequestId;

/// Tenants that [`Fair::before`] looks at one by one. The others are estimated together, as if each had
/// enough work to use its weight; where some have less, that is too much.
const LOOKED_AT_MAX: usize = 64;

/// Tokens charged over weight: the line's own time. Never negative and always a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Virtual(f64);

impl Eq for Virtual {}

impl PartialOrd for Virtual {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Virtual {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// How a ticket stands among those of its tenant. Repeats go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It was let through and charged before.
    Repeat,
    /// It was not.
    Newcomer,
}

/// Where a ticket stands in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub tenant: TenantId,
    pub standing: Standing,
    /// Grows with every push.
    pub number: u64,
}

/// What a ticket does in the line.
#[derive(Clone, Copy, Debug)]
struct Standby {
    request: RequestId,
    tokens: f64,
}

/// By finish, then by who has had this head for longer.
type Turn = (Virtual, u64);

/// A tenant that waits.
#[derive(Clone, Copy, Debug)]
struct Flow {
    tenant: TenantId,
    start: f64,
    weight: f64,
    load: Ahead,
    head: Place,
    request: RequestId,
}

/// Requests that wait in one line.
#[derive(Debug, Default)]
pub(super) struct Fair {
    /// All tickets; those of one tenant stand together, in the order of their arrival.
    standby: BTreeMap<Place, Standby>,
    flows: BTreeMap<Turn, Flow>,
    turns: BTreeMap<TenantId, Turn>,
    turn: u64,
    clock: f64,
    load: Ahead,
    weight: f64,
}

/// Which of a tenant's newcomers is its next head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    Oldest,
    Newest,
}

impl Fair {
    pub(super) fn push(&mut self, ticket: &Ticket, place: Place, pick: Pick) {
        let Ticket { request, tokens, weight, .. } = *ticket;
        let one = Ahead { requests: 1.0, tokens };
        self.standby.insert(place, Standby { request, tokens });
        self.load = self.load.plus(one);
        let known = self.turns.get(&place.tenant).copied();
        if let Some(flow) = known.and_then(|turn| self.flows.get_mut(&turn))
            && (pick, place.standing) == (Pick::Oldest, Standing::Newcomer)
            && flow.weight.total_cmp(&weight).is_eq()
        {
            // The head is the same, and so is all that follows from it: the usual case, and the cheapest.
            flow.load = flow.load.plus(one);
            return;
        }
        let flow = known.and_then(|turn| self.flows.remove(&turn));
        let mut flow = flow.unwrap_or(Flow {
            tenant: place.tenant,
            start: self.clock,
            weight: 0.0,
            load: Ahead::default(),
            head: place,
            request,
        });
        flow.load = flow.load.plus(one);
        self.weight += weight - flow.weight;
        flow.weight = weight;
        self.settle(flow, known, 0.0, pick);
    }

    /// Takes a ticket out. `is_served`: it is let through, and charged unless it was before.
    pub(super) fn remove(&mut self, ticket: &Ticket, place: Place, is_served: bool, pick: Pick) {
        let Some(gone) = self.standby.remove(&place) else { return };
        let Some(turn) = self.turns.get(&place.tenant).copied() else { return };
        let first = self.flows.first_key_value().map_or(0.0, |((finish, _), _)| finish.0);
        let Some(mut flow) = self.flows.remove(&turn) else { return };
        let less = Ahead { requests: -1.0, tokens: -gone.tokens };
        (self.load, flow.load) = (self.load.plus(less), flow.load.plus(less));
        if is_served {
            flow.start += charge(place, ticket.tokens) / flow.weight;
            self.clock = self.clock.max(flow.start.min(first));
        }
        // Half a request is none: the sums are of floating point.
        if flow.load.requests < 0.5 {
            self.turns.remove(&place.tenant);
            self.weight -= flow.weight;
        } else if !is_served && place != flow.head {
            self.flows.insert(turn, flow);
        } else {
            // A smaller request that moves up must not overtake the line's head, which others have seen.
            let least = if is_served { 0.0 } else { turn.0.0 };
            self.settle(flow, Some(turn), least, pick);
        }
        if self.standby.is_empty() {
            *self = Self::default();
        }
    }

    /// Puts a tenant back with the head that it has now and a finish of at least `least`. A head stays
    /// until it leaves, its tenant is served or a push goes before it, even if `pick` has changed meanwhile.
    fn settle(&mut self, mut flow: Flow, known: Option<Turn>, least: f64, pick: Pick) {
        let Some((head, standby)) = self.head_of(flow.tenant, pick) else { return };
        let is_same = known.is_some() && head == flow.head;
        (flow.head, flow.request) = (head, standby.request);
        let finish = flow.start + charge(head, standby.tokens) / flow.weight;
        let finish = Virtual(finish.max(least));
        let number = if let Some((_, number)) = known.filter(|_| is_same) {
            number
        } else {
            self.turn += 1;
            self.turn
        };
        self.turns.insert(flow.tenant, (finish, number));
        self.flows.insert((finish, number), flow);
    }

    fn head_of(&self, tenant: TenantId, pick: Pick) -> Option<(Place, Standby)> {
        let place = |standing, number| Place { tenant, standing, number };
        let all = place(Standing::Repeat, 0)..=place(Standing::Newcomer, u64::MAX);
        let mut range = self.standby.range(all);
        let (first, standby) = range.next()?;
        if pick == Pick::Newest && first.standing == Standing::Newcomer {
            return Some(range.next_back().map_or((*first, *standby), |(last, of)| (*last, *of)));
        }
        Some((*first, *standby))
    }

    /// The next to be served.
    pub(super) fn head(&self) -> Option<RequestId> {
        self.flows.first_key_value().map(|(_, flow)| flow.request)
    }

    /// All that waits.
    pub(super) const fn load(&self) -> Ahead {
        self.load
    }

    pub(super) fn is_empty(&self) -> bool {
        self.standby.is_empty()
    }

    /// Tenants that wait, in every place where they are kept.
    #[cfg(test)]
    pub(super) fn tenants(&self) -> usize {
        assert_eq!(self.turns.len(), self.flows.len());
        self.turns.len()
    }

    /// What will be served before a newcomer that is not in the line yet, if nobody else comes.
    pub(super) fn before(&self, newcomer: &Ticket, pick: Pick) -> Ahead {
        let own = self.turns.get(&newcomer.tenant).and_then(|turn| self.flows.get(turn));
        let (start, own_load) = match own {
            Some(flow) if pick == Pick::Oldest => (flow.start, flow.load),
            Some(flow) => (flow.start, Ahead::default()),
            None => (self.clock, Ahead::default()),
        };
        let finish = start + (own_load.tokens + newcomer.tokens) / newcomer.weight;
        let of = |load: Ahead, start: f64, weight: f64| load.at_most((finish - start) * weight);
        let mut sum = own_load;
        let mut rest = self.load;
        let mut rest_weight = self.weight;
        if let Some(flow) = own {
            rest = rest.plus(Ahead { requests: -flow.load.requests, tokens: -flow.load.tokens });
            rest_weight -= flow.weight;
        }
        for (looked_at, ((first, _), flow)) in self.flows.iter().enumerate() {
            if first.0 > finish {
                return sum;
            }
            if looked_at == LOOKED_AT_MAX {
                return sum.plus(of(rest, self.clock, rest_weight));
            }
            if flow.tenant == newcomer.tenant {
                continue;
            }
            sum = sum.plus(of(flow.load, flow.start, flow.weight));
            rest = rest.plus(Ahead { requests: -flow.load.requests, tokens: -flow.load.tokens });
            rest_weight -= flow.weight;
        }
        sum
    }
}

/// What a ticket is charged when it is served.
fn charge(place: Place, tokens: f64) -> f64 {
    match place.standing {
        Standing::Repeat => 0.0,
        Standing::Newcomer => tokens,
    }
}
