//! Decides who of those that wait in one scope starts next. It starts nobody, refuses nobody and reads no
//! clock: whoever pushes checks the length first, and asks for the overdue.
//!
//! - Interactive work goes before batch, and in the batch lane production ingest before backfill,
//!   except for the shares that a [`Policy`] lets trickle through.
//! - Among the tenants of a line, tokens are shared by weight; the rule and its bounds are in `fair`.
//! - A tenant's own requests go in the order of their arrival or, as an option, newest first while
//!   the lane is more than half full: those that have waited longest will be given up first (adaptive LIFO;
//!   Maurer, "Fail at Scale", ACM Queue 13(8), 2015).
//! - A repeat goes before its tenant's newcomers and is not charged again.
//!
//! Every change costs a few steps in sorted trees, O(log n); a head is only looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::fair::{Fair, Pick, Place, Standing};
use self::trickle::Trickle;
use super::events::RequestId;
use crate::signal::Mono;

mod fair;
mod lane;
mod tenant;
mod ticket;
mod trickle;

pub use lane::Lane;
pub use tenant::TenantId;
pub use ticket::{Ahead, Ticket};

/// Which of a tenant's own requests goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    #[default]
    OldestFirst,
    /// The newest while the lane is more than half full, else the oldest.
    NewestWhenHalfFull {
        /// When a lane is full.
        depth_max: usize,
    },
}

/// How a scope's queue is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Policy {
    /// Share of the tokens started that batch work gets while it waits, 0..0.5.
    pub batch_share: f64,
    /// Share of the batch lane's tokens started that backfill gets while it waits, 0..0.5.
    pub backfill_share: f64,
    /// Within a tenant.
    pub order: Order,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    place: Place,
}

/// Requests that wait for quota.
#[derive(Debug, Default)]
pub struct Queue {
    order: Order,
    /// By lane; a lane's oldest has its smallest number.
    waiting: [BTreeMap<RequestId, Waiting>; 2],
    deadlines: BTreeSet<(Mono, RequestId)>,
    interactive: Fair,
    production: Fair,
    backfill: Fair,
    /// Of batch work, beside interactive.
    batch_trickle: Trickle,
    /// Of backfill, beside production.
    backfill_trickle: Trickle,
    pushed: u64,
}

impl Queue {
    /// Takes effect with the next choice of a head.
    pub fn set_policy(&mut self, policy: Policy) {
        self.order = policy.order;
        self.batch_trickle.set_share(policy.batch_share);
        self.backfill_trickle.set_share(policy.backfill_share);
    }

    /// Puts a newcomer behind what its tenant has waiting.
    pub fn push_back(&mut self, ticket: Ticket) {
        self.push(ticket, Standing::Newcomer);
    }

    /// Puts a request that was already let through once before its tenant's newcomers, free of charge.
    pub fn push_front(&mut self, ticket: Ticket) {
        self.push(ticket, Standing::Repeat);
    }

    fn push(&mut self, ticket: Ticket, standing: Standing) {
        let ticket = ticket.within_bounds();
        let Ticket { request, lane, tenant, deadline, .. } = ticket;
        self.pushed += 1;
        let place = Place { tenant, standing, number: self.pushed };
        let before = self.waiting[lane as usize].insert(request, Waiting { ticket, place });
        debug_assert!(before.is_none(), "a request waits once");
        self.deadlines.insert((deadline, request));
        let pick = self.pick(lane);
        self.line_mut(&ticket).push(&ticket, place, pick);
    }

    /// The next to start. It stays the next until it leaves, or something is pushed or taken; where a
    /// share is configured, also until a smaller head of the lower line makes that one's share due.
    #[must_use]
    pub fn head(&self) -> Option<Ticket> {
        let lanes = Lane::ALL.map(|lane| self.head_of(lane));
        lanes[1].filter(|batch| self.batch_trickle.is_due(batch.tokens)).or(lanes[0]).or(lanes[1])
    }

    /// The next to start of one lane: for a lane that may start when the next of all may not.
    #[must_use]
    pub fn head_of(&self, lane: Lane) -> Option<Ticket> {
        let request = match lane {
            Lane::Interactive => self.interactive.head(),
            Lane::Batch => {
                let backfill = self.backfill.head().filter(|backfill| {
                    let ticket = self.ticket(lane, *backfill);
                    ticket.is_some_and(|it| self.backfill_trickle.is_due(it.tokens))
                });
                backfill.or(self.production.head()).or(self.backfill.head())
            }
        };
        self.ticket(lane, request?)
    }

    /// Takes a request out to start it: its tenant is charged, unless it was before.
    pub fn take(&mut self, request: RequestId) -> Option<Ticket> {
        let ticket = self.leave(request, true)?;
        let Ticket { lane, tokens, .. } = ticket;
        if lane == Lane::Interactive {
            if let Some(batch) = self.head_of(Lane::Batch) {
                self.batch_trickle.upper_started(tokens, batch.tokens);
            }
            return Some(ticket);
        }
        self.batch_trickle.lower_started(tokens);
        if ticket.backfill {
            self.backfill_trickle.lower_started(tokens);
        } else if let Some(waiting) = self.backfill.head().and_then(|id| self.ticket(lane, id)) {
            self.backfill_trickle.upper_started(tokens, waiting.tokens);
        }
        Some(ticket)
    }

    /// Takes a request out that will not start, wherever it stands. Nobody is charged.
    pub fn remove(&mut self, request: RequestId) -> Option<Ticket> {
        self.leave(request, false)
    }

    fn leave(&mut self, request: RequestId, is_served: bool) -> Option<Ticket> {
        let Waiting { ticket, place } =
            self.waiting.iter_mut().find_map(|lane| lane.remove(&request))?;
        self.deadlines.remove(&(ticket.deadline, request));
        let pick = self.pick(ticket.lane);
        self.line_mut(&ticket).remove(&ticket, place, is_served, pick);
        if self.backfill.is_empty() {
            self.backfill_trickle.lower_is_empty();
        }
        if self.depth(Lane::Batch) == 0 {
            self.batch_trickle.lower_is_empty();
        }
        Some(ticket)
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
        for (request, Waiting { ticket, .. }) in self.waiting.iter_mut().flatten() {
            ticket.deadline = deadline(*request, ticket.arrived);
            self.deadlines.insert((ticket.deadline, *request));
        }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }

    /// Requests that wait in a lane.
    #[must_use]
    pub fn depth(&self, lane: Lane) -> usize {
        self.waiting[lane as usize].len()
    }

    /// Tokens that wait in a lane.
    #[must_use]
    pub fn tokens(&self, lane: Lane) -> f64 {
        self.load(lane).tokens
    }

    fn load(&self, lane: Lane) -> Ahead {
        match lane {
            Lane::Interactive => self.interactive.load(),
            Lane::Batch => self.production.load().plus(self.backfill.load()),
        }
    }

    /// About what will start before a newcomer that is not in the queue yet, if nobody else comes.
    #[must_use]
    pub fn ahead(&self, newcomer: &Ticket) -> Ahead {
        let newcomer = newcomer.within_bounds();
        let own = newcomer.tokens;
        let pick = self.pick(newcomer.lane);
        let ahead = self.line(&newcomer).before(&newcomer, pick);
        if newcomer.lane == Lane::Interactive {
            let trickled = self.batch_trickle.before_upper(ahead.tokens + own);
            return ahead.plus(self.load(Lane::Batch).at_most(trickled));
        }
        let trickle = &self.backfill_trickle;
        let ahead = ahead.plus(if newcomer.backfill {
            self.production.load().at_most(trickle.before_lower(ahead.tokens + own))
        } else {
            self.backfill.load().at_most(trickle.before_upper(ahead.tokens + own))
        });
        let before = self.batch_trickle.before_lower(ahead.tokens + own);
        ahead.plus(self.load(Lane::Interactive).at_most(before))
    }

    /// Age of the oldest request of a lane.
    #[must_use]
    pub fn oldest_age(&self, lane: Lane, now: Mono) -> Option<Duration> {
        let (_, oldest) = self.waiting[lane as usize].first_key_value()?;
        Some(now.saturating_since(oldest.ticket.arrived))
    }

    /// All that wait, each lane's oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<RequestId> {
        self.waiting.iter().flat_map(BTreeMap::keys).copied().collect()
    }

    fn ticket(&self, lane: Lane, request: RequestId) -> Option<Ticket> {
        self.waiting[lane as usize].get(&request).map(|waiting| waiting.ticket)
    }

    fn pick(&self, lane: Lane) -> Pick {
        match self.order {
            Order::NewestWhenHalfFull { depth_max } if self.depth(lane) > depth_max / 2 => {
                Pick::Newest
            }
            _ => Pick::Oldest,
        }
    }

    const fn line(&self, ticket: &Ticket) -> &Fair {
        match (ticket.lane, ticket.backfill) {
            (Lane::Interactive, _) => &self.interactive,
            (Lane::Batch, false) => &self.production,
            (Lane::Batch, true) => &self.backfill,
        }
    }

    const fn line_mut(&mut self, ticket: &Ticket) -> &mut Fair {
        match (ticket.lane, ticket.backfill) {
            (Lane::Interactive, _) => &mut self.interactive,
            (Lane::Batch, false) => &mut self.production,
            (Lane::Batch, true) => &mut self.backfill,
        }
    }
}

#[cfg(test)]
mod tests;
