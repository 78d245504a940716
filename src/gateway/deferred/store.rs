//! What a store of the lane must do, and why it may fail. At least once: an item is out of the store
//! only when its end is in it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use thiserror::Error;

use super::item::{Counts, DeadLetter, End, Item, ItemRef, NewItem, Print, Put, Seen, UnixMs};

/// Why a store did not do what it should. What it was asked to store is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// No room.
    #[error(
        "the store of the deferred lane is full: {0}; free space, or raise gateway.deferred.bytes_max"
    )]
    Full(String),
    /// As many requests wait as may.
    #[error(
        "{0} requests wait in the deferred lane, which is as many as may; come back later, or raise \
         gateway.deferred.items_max"
    )]
    TooMany(u64),
    /// It cannot be reached, or does not answer in time.
    #[error("the store of the deferred lane does not answer: {0}; nothing was stored for certain")]
    Down(String),
    /// It answered something else.
    #[error("the store of the deferred lane refuses: {0}")]
    Refused(String),
    /// It cannot be opened.
    #[error("{place}: {why}")]
    Open {
        /// Which, without a password.
        place: String,
        /// Why.
        why: String,
    },
}

/// The result of an exchange with a store.
pub type Exchange<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Keeps the items of the lane. Every method is one transaction: what it says is on disk.
pub trait Store: Send + Sync {
    /// Stores a request, or finds the ticket that its caller has already.
    fn put(&self, item: NewItem) -> Exchange<'_, Put>;

    /// What the holder of a ticket sees; `None` for a ticket of somebody else, or for none.
    fn look(&self, owner: Print, ticket: String) -> Exchange<'_, Option<Seen>>;

    /// Takes the oldest item of a scope that is due, and up to `companions` more, best such as may be
    /// sent with it.
    fn claim(&self, scope: String, companions: usize, now: UnixMs) -> Exchange<'_, Vec<Item>>;

    /// Says that these of a scope are still in hand.
    fn keep(&self, scope: String, items: Vec<ItemRef>) -> Exchange<'_, ()>;

    /// How claims ended; after an error the same may be said again. `kept_for` is how long a result can
    /// be asked for.
    fn end(&self, ends: Vec<(ItemRef, End)>, kept_for: Duration) -> Exchange<'_, ()>;

    /// How many there are of each state, by scope.
    fn counts(&self) -> Exchange<'_, Vec<Counts>>;

    /// The newest dead letters.
    fn dead_letters(&self, max: usize) -> Exchange<'_, Vec<DeadLetter>>;

    /// Puts a dead letter back into the line as if it had just come; false where there is none.
    fn requeue(&self, item: String) -> Exchange<'_, bool>;

    /// Forgets a dead letter; false where there is none.
    fn delete(&self, item: String) -> Exchange<'_, bool>;

    /// Forgets results whose time is over.
    fn tidy(&self, now: UnixMs) -> Exchange<'_, ()>;
}
