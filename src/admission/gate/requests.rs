//! The open requests of a gate: what each asks for and where in its life it stands, found by its number
//! in one lookup.

use std::ops::{Index as At, IndexMut as AtMut};
use std::time::Duration;

use crate::admission::budget::Reservation;
use crate::admission::events::RequestId;
use crate::admission::identity::Place;
use crate::admission::identity::index::{Half, Index};
use crate::admission::queue::{Lane, TenantId};
use crate::admission::shared::{Demand, Receipt};
use crate::signal::Mono;

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Queued,
    /// The keeper of the scope's state is asked.
    Claiming,
    Backoff {
        until: Mono,
    },
    Upstream {
        started: Mono,
        held: Option<Held>,
        sent: bool,
    },
    Streaming {
        started: Mono,
        held: Option<Held>,
    },
    /// The final answer is the caller's to read; nothing is held.
    Answered,
}

/// What an attempt holds until it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) reservation: Reservation,
    /// The keeper's, where it was asked.
    pub(super) receipt: Option<Receipt>,
}

/// What a request asks for, as it arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) lane: Lane,
    pub(super) backfill: bool,
    pub(super) weight: f64,
    pub(super) guess: Demand,
    pub(super) repeatable: bool,
    pub(super) deferrable: bool,
    pub(super) deadline: Option<Mono>,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) scope: usize,
    pub(super) original: Place,
    pub(super) tenant: TenantId,
    pub(super) terms: Terms,
    pub(super) arrived: Mono,
    pub(super) queued_since: Mono,
    pub(super) queued: Duration,
    pub(super) enforced: bool,
    pub(super) admitted: bool,
    /// Tries, those included that found no connection.
    pub(super) attempts: u32,
    /// Tries that reached the provider.
    pub(super) reached: u32,
    pub(super) phase: Phase,
}

impl Request {
    /// How long it has waited in the queue so far.
    pub(super) fn waited(&self, now: Mono) -> Duration {
        match self.phase {
            Phase::Queued | Phase::Claiming => {
                self.queued + now.saturating_since(self.queued_since)
            }
            _ => self.queued,
        }
    }
}

/// How a request came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// With a result.
    Served,
    /// With a refusal, ours or the provider's, or a fault.
    Refused,
    /// It was put off.
    Deferred,
    /// Its caller did not wait.
    Gone,
}

/// Open requests. They lie in one vector whose order is that of the places that became free.
#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<Option<(RequestId, Request)>>,
    free: Vec<u32>,
    by_id: Index,
}

impl Requests {
    /// Adds a request that is not there yet.
    pub fn insert(&mut self, id: RequestId, request: Request) {
        let slot = Some((id, request));
        let place = if let Some(place) = self.free.pop() {
            self.slots[place as usize] = slot;
            place
        } else {
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("fewer open requests than 2^32")
        };
        self.by_id.insert(Half::of(id.0), place);
    }

    pub fn get(&self, id: RequestId) -> Option<&Request> {
        let slot = self.slots[self.place(id)?].as_ref();
        slot.map(|(_, request)| request)
    }

    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        let place = self.place(id)?;
        self.slots[place].as_mut().map(|(_, request)| request)
    }

    pub fn remove(&mut self, id: RequestId) -> Option<Request> {
        let place = self.place(id)?;
        let (_, request) = self.slots[place].take()?;
        let place = u32::try_from(place).expect("places are numbers of 32 bits");
        self.by_id.remove(Half::of(id.0), place);
        self.free.push(place);
        Some(request)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.slots.iter().flatten().map(|(_, request)| request)
    }

    fn place(&self, id: RequestId) -> Option<usize> {
        let is = |place: u32| self.slots[place as usize].as_ref().is_some_and(|(at, _)| *at == id);
        self.by_id.get(Half::of(id.0), is).map(|place| place as usize)
    }
}

impl At<RequestId> for Requests {
    type Output = Request;

    fn index(&self, id: RequestId) -> &Request {
        self.get(id).expect("looked up in this call")
    }
}

impl AtMut<RequestId> for Requests {
    fn index_mut(&mut self, id: RequestId) -> &mut Request {
        self.get_mut(id).expect("looked up in this call")
    }
}
