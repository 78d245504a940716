//! Keeps a scope's budgets, pause, rate and breaker where several instances of the gate share them.
//!
//! Decides nothing of its own: the rules are those of `admission`, carried out where the state is.
//! A keeper answers within its time limit or says why not; what the gate does then is the gate's
//! decision. One decision is one round trip.

mod faulty;
mod link;
mod memory;
mod redis_keeper;
mod script;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use thiserror::Error;

use crate::admission::{Claim, Mirror, Report, Verdict};

pub use faulty::FaultyKeeper;
pub use memory::MemoryKeeper;
pub use redis_keeper::{DECISION_LIMIT, DECISION_LIMIT_MAX, RedisKeeper};

/// Why there is no decision. The gate goes on without the keeper; none of these is a refusal of
/// the request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeeperError {
    /// Nothing came back in time. Whether the claim was granted is not known: if it was, what it
    /// reserved leaves the window by itself.
    #[error(
        "the shared budget at {server} did not answer within {} ms; look at its latency (SLOWLOG \
         GET) and at the network on the way to it",
        limit.as_millis()
    )]
    Timeout {
        /// Host and port.
        server: Arc<str>,
        /// How long a decision may take.
        limit: Duration,
    },
    /// There is no connection; one is being sought. Said at once, without waiting for it.
    #[error("the shared budget at {server} is out of reach: {why}; start it, or correct its URL")]
    Unreachable {
        /// Host and port.
        server: Arc<str>,
        /// What the last try said.
        why: Arc<str>,
    },
    /// The server answered with an error of its own.
    #[error(
        "the shared budget at {server} refuses: {words}; it must be a writable Redis 7 or later, \
         or one that speaks as it does, with scripts allowed"
    )]
    Refused {
        /// Host and port.
        server: Arc<str>,
        /// Its words.
        words: String,
    },
    /// The keeper cannot be set up: its URL names no server. The URL itself is not repeated, it may
    /// hold a password.
    #[error(
        "the URL of the shared budget is not one: {0}; write redis://[:PASSWORD@]HOST:PORT[/DB]"
    )]
    Address(String),
}

/// Where the shared state of scopes is kept. One per instance; it knows the instance's name.
pub trait Keeper: Send + Sync {
    /// Asks to start one attempt for `scope`.
    ///
    /// # Errors
    /// When there is no decision; the caller decides what that means.
    fn claim<'a>(
        &'a self,
        scope: &'a str,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<(Verdict, Mirror), KeeperError>>;

    /// Tells how an attempt ended.
    ///
    /// A report that moves nothing (no receipt, nothing charged, [`Outcome::Neither`]) renews the
    /// instance's lease; send one well within the lease while calls are open.
    ///
    /// # Errors
    /// When it was not noted, or it is not known whether it was. Do not repeat it: what was reserved
    /// leaves the window by itself.
    ///
    /// [`Outcome::Neither`]: crate::admission::Outcome::Neither
    fn report<'a>(
        &'a self,
        scope: &'a str,
        report: &'a Report,
    ) -> BoxFuture<'a, Result<Mirror, KeeperError>>;
}
