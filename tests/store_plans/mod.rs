//! Plans, people and a store that is listened to, for the tests of flag stores.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::BoxFuture;
use weir::flag::{
    self, Author, Capabilities, Conclusion, Evidence, FlagEvent, FlagTable, FlipLog, Intent,
    Outcome, Plan, Store, StoreError, Terms,
};

pub fn author(actor: &str) -> Author {
    Author {
        actor: actor.to_owned(),
        incident: Some("INC-42".to_owned()),
        anchor: Some(format!("journal of {actor}:7:hash")),
    }
}

/// A plan of these changes, under a new request id.
pub fn plan(table: &FlagTable, words: &[&str]) -> Plan {
    timed(table, words, None)
}

/// The same with a timer of so many seconds.
pub fn timed(table: &FlagTable, words: &[&str], ttl_s: Option<u64>) -> Plan {
    let request_id = uuid::Uuid::new_v4().to_string();
    let terms = Terms { reason: Some("storm".to_owned()), ttl_s, request_id };
    let changes = flag::wanted(words).expect("a test names real flags");
    flag::plan("t", table, &changes, &Evidence::default(), terms).expect("a plan")
}

/// The stored value of a flag, as shown.
pub fn stored(table: &FlagTable, key: &str) -> String {
    table.get(key).expect("flag of the table").stored().to_string()
}

/// A journal that forgets.
pub struct NoLog;

impl FlipLog for NoLog {
    fn intent(&self, _: &Intent) -> Result<Option<String>, String> {
        Ok(Some("journal:1:hash".to_owned()))
    }

    fn conclusion(&self, _: &Conclusion) -> Result<(), String> {
        Ok(())
    }
}

/// A store of which it is kept what it answered, and that has something done after a read that failed.
pub struct Heard<S> {
    pub store: S,
    pub outcomes: Mutex<Vec<Outcome>>,
    pub failed_reads: AtomicU32,
    pub on_failed_read: Box<dyn Fn() + Send + Sync>,
}

impl<S: Store> Heard<S> {
    pub fn new(store: S, on_failed_read: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            store,
            outcomes: Mutex::default(),
            failed_reads: AtomicU32::new(0),
            on_failed_read: Box::new(on_failed_read),
        }
    }
}

impl<S: Store> Store for Heard<S> {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        Box::pin(async move {
            let read = self.store.list().await;
            if read.is_err() {
                self.failed_reads.fetch_add(1, Ordering::SeqCst);
                (self.on_failed_read)();
            }
            read
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let outcome = self.store.apply(plan, author).await;
            self.outcomes.lock().expect("unpoisoned").push(outcome.clone());
            outcome
        })
    }

    fn events(&self, since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        self.store.events(since)
    }
}
