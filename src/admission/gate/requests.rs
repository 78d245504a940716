//! The open requests of a gate, each found by its number in one lookup.

use std::ops::{Index as At, IndexMut as AtMut};

use super::Request;
use crate::admission::events::RequestId;
use crate::admission::identity::index::{Half, Index};

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
