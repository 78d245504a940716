//! The deferred lane: requests that are stored, done when the quota has room, and asked for later.
//!
//! The lane decides nothing about quota: it offers what it stores to the gate as batch work, like any
//! caller, and waits where the gate says so. It holds no key of anybody.
//!
//! ```text
//!                 +---- refused, throttled, unreachable ----+
//!                 v                                         |
//! 202 --> queued ----> running (at the gate, at the provider) ----> done
//!                 ^                                         |
//!                 +---- requeued by an operator ---- dead <-+
//! ```
//!
//! At least once: an item leaves `running` only with its end on disk. What was in hand when an instance
//! died is the only work that is done twice.

mod coalesce;
mod config;
mod drain;
mod embedded;
mod item;
mod page;
mod prefer;
mod redis;
mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use coalesce::Limits;
use config::Place;

use super::config::ConfigError;

use self::redis::RedisStore;
pub(super) use coalesce::print as together_print;
pub use config::DeferredConfig;
pub use drain::Drainer;
pub(super) use drain::{Later, Ran, Runs};
use embedded::EmbeddedStore;
pub(super) use item::{Answer, Counts, DeadLetter, NewItem, Print, Put, State, UnixMs, Work};
pub(super) use page::{STATUS_PATH, status};
pub(super) use prefer::Wish;
use store::Store;
pub use store::StoreError;

/// What the lane did for one scope since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Did {
    /// Requests stored.
    pub(super) stored: u64,
    /// Requests that brought work which was there already.
    pub(super) merged: u64,
    /// Items answered well.
    pub(super) completed: u64,
    /// Items that became dead letters.
    pub(super) dead: u64,
    /// Items that went back into the line.
    pub(super) put_back: u64,
    /// Items that were sent in another's request.
    pub(super) joined: u64,
    /// Items that were in an instance's hand when it went away.
    pub(super) second_runs: u64,
    /// Requests that could not be stored.
    pub(super) not_stored: u64,
}

/// The lane of one instance: its store, its bounds and what is known of it.
pub struct DeferredLane {
    store: Arc<dyn Store>,
    limits: Limits,
    result_ttl: Duration,
    items_max: u64,
    attempts_max: u32,
    keep_every: Duration,
    /// What may be open at once, of each scope.
    concurrency: usize,
    /// Something came.
    came: Notify,
    did: Mutex<BTreeMap<String, Did>>,
    /// As last counted, and the last complaint of the store.
    counted: ArcSwap<Vec<Counts>>,
    trouble: ArcSwap<Option<StoreError>>,
}

impl DeferredLane {
    /// Opens the store of the configuration.
    ///
    /// # Errors
    /// [`ConfigError`] when there is no place, or it cannot be opened.
    pub(super) fn open(config: &DeferredConfig, instance: &str) -> Result<Arc<Self>, ConfigError> {
        let store: Arc<dyn Store> = match config.place()? {
            Place::File(path) => Arc::new(
                EmbeddedStore::open(&path, config.bytes_max)
                    .map_err(|error| refused("gateway.deferred.path", &error))?,
            ),
            Place::Redis(url) => Arc::new(
                RedisStore::open(&url, instance, config.lease())
                    .map_err(|error| refused("gateway.deferred.redis", &error))?,
            ),
        };
        Ok(Arc::new(Self {
            store,
            limits: Limits { inputs: config.coalesce_inputs, tokens: config.coalesce_tokens },
            result_ttl: config.result_ttl(),
            items_max: config.items_max,
            attempts_max: config.attempts_max,
            keep_every: config.lease() / 3,
            concurrency: config.concurrency,
            came: Notify::new(),
            did: Mutex::default(),
            counted: ArcSwap::default(),
            trouble: ArcSwap::default(),
        }))
    }

    /// Stores a request.
    ///
    /// # Errors
    /// [`StoreError`] when it is not stored.
    pub(super) async fn put(&self, item: NewItem) -> Result<Put, StoreError> {
        let scope = item.work.scope.clone();
        if self.waiting() >= self.items_max {
            self.did(&scope, |did| did.not_stored += 1);
            return Err(StoreError::TooMany(self.items_max));
        }
        let put = self.heard(self.store.put(item).await);
        self.did(&scope, |did| match &put {
            Ok(Put::Stored { is_merged: true, .. }) => did.merged += 1,
            Ok(Put::Stored { .. }) => did.stored += 1,
            Ok(Put::Mismatch) => {}
            Err(_) => did.not_stored += 1,
        });
        self.came.notify_waiters();
        put
    }

    /// The status of a ticket, as its page shows it; `None` where its holder has none.
    ///
    /// # Errors
    /// [`StoreError`] when nobody can say.
    pub(super) async fn look(
        &self,
        owner: Print,
        ticket: &str,
    ) -> Result<Option<item::Seen>, StoreError> {
        self.heard(self.store.look(owner, ticket.to_owned()).await)
    }

    /// The newest dead letters.
    ///
    /// # Errors
    /// [`StoreError`] when the store does not say.
    pub(super) async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.heard(self.store.dead_letters(max).await)
    }

    /// Puts a dead letter back into the line; false where there is none.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not.
    pub(super) async fn requeue(&self, item: &str) -> Result<bool, StoreError> {
        let done = self.heard(self.store.requeue(item.to_owned()).await);
        self.came.notify_waiters();
        done
    }

    /// Forgets a dead letter; false where there is none.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not.
    pub(super) async fn delete(&self, item: &str) -> Result<bool, StoreError> {
        self.heard(self.store.delete(item.to_owned()).await)
    }

    /// The counts of every scope that has items, as last looked at.
    pub(super) fn counted(&self) -> Arc<Vec<Counts>> {
        self.counted.load_full()
    }

    /// What was done, by scope.
    pub(super) fn done_so_far(&self) -> BTreeMap<String, Did> {
        self.all_did().clone()
    }

    /// What the store complained of last; `None` while it works.
    pub(super) fn trouble(&self) -> Option<StoreError> {
        (**self.trouble.load()).clone()
    }

    /// Items that are not done yet, as last counted.
    fn waiting(&self) -> u64 {
        self.counted.load().iter().map(|one| one.items[0] + one.items[1]).sum()
    }

    fn did(&self, scope: &str, change: impl FnOnce(&mut Did)) {
        change(self.all_did().entry(scope.to_owned()).or_default());
    }

    fn all_did(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Did>> {
        self.did.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers how the store does.
    fn heard<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        let trouble = answer.as_ref().err().cloned();
        if self.trouble.load().is_some() != trouble.is_some() {
            if let Some(error) = &trouble {
                tracing::error!(%error, "the store of the deferred lane is in trouble");
            } else {
                tracing::info!("the store of the deferred lane works again");
            }
            self.trouble.store(Arc::new(trouble));
        }
        answer
    }
}

fn refused(key: &str, error: &StoreError) -> ConfigError {
    ConfigError::new(key, error.to_string(), "correct it")
}
