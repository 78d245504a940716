//! The store that is [etcd](https://etcd.io), 3.4 or newer, over its v3 JSON gateway.
//!
//! Overrides lie under plain keys as plain JSON, so that any service can watch them. One transaction
//! compares everything that was read and puts flags, bookkeeping and history together. A timer is a
//! [lease](https://etcd.io/docs/v3.4/learning/api/#lease-api): etcd drops the override with no weir
//! alive. Base values come from weir's own configuration.
//!
//! A transaction is sent once. It reads first, so that a session which etcd has forgotten is replaced
//! while nothing is at stake.

mod change;
mod gateway;
mod layout;
mod view;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::admission::Settings;
use crate::flag::store::{Author, Capabilities, FlagEvent, Store, StoreError};
use crate::flag::types::{FlagTable, Outcome, Plan};

use change::{Ground, Timer, has_reverting_timer, objection, transaction};
use gateway::{Failure, Gateway, Lease, Range, Transacted};
use layout::{Layout, Record, newest_put, revision};
use view::View;

pub use gateway::EtcdLogin;

const TABLE: &str = "its flags";
const EVENTS: &str = "its events";
const LEASE: &str = "a lease";

const TRANSACTION_PATH: &str = "/v3/kv/txn";

/// Events asked for at a time: a few hundred bytes each.
const PAGE_EVENTS: u64 = 1_000;
/// Pages after which the history is not read further.
const PAGES_MAX: usize = 100;

/// Flags in one namespace of an etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    name: String,
    gateway: Gateway,
    layout: Layout,
    base: Settings,
}

impl Etcd {
    /// A client of the etcd at `base_url` (`http://127.0.0.1:2379`) for the flags of `namespace`, one
    /// word, over the values of `base`. Sends nothing yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] when the URL or the namespace cannot be used.
    pub fn new(
        base_url: &str,
        login: EtcdLogin,
        namespace: &str,
        base: Settings,
    ) -> Result<Self, StoreError> {
        let layout = Layout::new(namespace)?;
        let gateway = Gateway::new(base_url, login)?;
        let name = format!("{}/{namespace}", gateway.name());
        Ok(Self { name, gateway, layout, base })
    }

    async fn read(&self) -> Result<View, StoreError> {
        let body = json!({ "success": self.layout.reads() });
        let read: Transacted = self.gateway.read(TABLE, TRANSACTION_PATH, &body).await?;
        self.view(read).await
    }

    async fn view(&self, read: Transacted) -> Result<View, StoreError> {
        let mut view = View::new(&self.layout, read.ranges())
            .map_err(|bad| self.gateway.malformed(TABLE, &bad.key, &bad.why))?;
        for lease in view.leases_in_doubt() {
            let body = json!({ "ID": lease });
            let now: Lease = self.gateway.read(LEASE, "/v3/lease/timetolive", &body).await?;
            if now.ttl_s <= 0 {
                view.ended(lease);
            }
        }
        Ok(view)
    }

    async fn change(&self, plan: &Plan, author: &Author) -> Outcome {
        let refused = |why| Outcome::Refused { why };
        if let Some(why) = objection(plan, &self.base) {
            return refused(why);
        }
        let view = match self.read().await {
            Ok(view) => view,
            Err(error) => return refused(format!("nothing was sent: {error}")),
        };
        let current = view.table(&self.base);
        if current.revision != plan.revision {
            return self.moved(plan, current).await;
        }
        let as_planned = plan.changes.iter().all(|change| {
            current.get(&change.key).is_some_and(|flag| *flag.stored() == change.from)
        });
        if !as_planned {
            return Outcome::Conflict { current };
        }
        let now = Utc::now();
        let timer = match self.timer(plan, now).await {
            Ok(timer) => timer,
            Err(error) => return refused(format!("no change was sent: {error}")),
        };
        let ground = Ground { layout: &self.layout, view: &view, base: &self.base, now };
        let transaction = transaction(ground, plan, author, &timer);
        match self.gateway.send::<Transacted>(TRANSACTION_PATH, &transaction.body).await {
            Ok(done) if done.succeeded && done.header.revision > 0 => {
                Outcome::applied(revision(done.header.revision, transaction.overrides))
            }
            Ok(done) if done.succeeded => {
                Outcome::Unknown { why: "etcd answered without a revision".to_owned() }
            }
            Ok(lost) => {
                self.give_back(&timer).await;
                match self.view(lost).await {
                    Ok(view) => Outcome::Conflict { current: view.table(&self.base) },
                    Err(error) => refused(format!("somebody was faster; the table now: {error}")),
                }
            }
            Err(failure) if failure.nothing_done() => {
                self.give_back(&timer).await;
                refused(failure.to_string())
            }
            Err(failure) => Outcome::Unknown { why: failure.to_string() },
        }
    }

    /// The table is not the plan's any more. A repeat of a request that was carried out finds itself in
    /// the history since.
    async fn moved(&self, plan: &Plan, current: FlagTable) -> Outcome {
        match self.events_since(0, newest_put(plan.revision)).await {
            Ok(events) => events
                .into_iter()
                .find(|event| event.request_id.as_deref() == Some(&plan.request_id))
                .map_or(Outcome::Conflict { current }, |event| Outcome::applied(event.revision)),
            Err(error) => Outcome::Unknown { why: format!("the table has moved, and: {error}") },
        }
    }

    /// Starts the plan's timer. A lease is granted before it is used, and drops nothing until then.
    async fn timer(&self, plan: &Plan, now: DateTime<Utc>) -> Result<Timer, StoreError> {
        let Some(ttl_s) = plan.ttl_s else { return Ok(Timer::default()) };
        if !has_reverting_timer(plan) {
            return Ok(Timer { expires: after(now, ttl_s), lease: None });
        }
        let body = json!({ "TTL": ttl_s.to_string() });
        let lease: Lease = self.gateway.read(LEASE, "/v3/lease/grant", &body).await?;
        // etcd prolongs what is too short for it.
        let ttl_s = u64::try_from(lease.ttl_s).unwrap_or(ttl_s);
        Ok(Timer { expires: after(now, ttl_s), lease: Some(lease.id) })
    }

    /// Gives a lease back that was not used. If that fails it ends by itself, and holds nothing.
    async fn give_back(&self, timer: &Timer) {
        if let Some(lease) = &timer.lease {
            let body = json!({ "ID": lease });
            let _: Result<serde_json::Value, Failure> =
                self.gateway.send("/v3/lease/revoke", &body).await;
        }
    }

    /// Events after `since` that were put after etcd's revision `put`.
    async fn events_since(&self, since: u64, put: u64) -> Result<Vec<FlagEvent>, StoreError> {
        let mut events: Vec<FlagEvent> = Vec::new();
        for _ in 0..PAGES_MAX {
            let last = events.last().map_or(since, |event| event.seq);
            let mut body = self.layout.events(last);
            body["limit"] = PAGE_EVENTS.to_string().into();
            body["min_create_revision"] = put.saturating_add(1).to_string().into();
            let page: Range = self.gateway.read(EVENTS, "/v3/kv/range", &body).await?;
            for kv in &page.kvs {
                let bad = |why: &str| self.gateway.malformed(EVENTS, &kv.key, why);
                let seq =
                    self.layout.seq(&kv.key).ok_or_else(|| bad("not the name of an event"))?;
                let record: Record =
                    serde_json::from_str(&kv.value).map_err(|error| bad(&error.to_string()))?;
                events.push(record.into_event(seq, kv.mod_revision));
            }
            if !page.more {
                break;
            }
        }
        Ok(events)
    }
}

fn after(now: DateTime<Utc>, ttl_s: u64) -> Option<DateTime<Utc>> {
    let span = TimeDelta::try_seconds(i64::try_from(ttl_s).ok()?)?;
    now.checked_add_signed(span)
}

impl Store for Etcd {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { restores: false, effective: false, ..Capabilities::FULL }
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        Box::pin(async move { Ok(self.read().await?.table(&self.base)) })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome> {
        Box::pin(self.change(plan, author))
    }

    fn events(&self, since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        Box::pin(self.events_since(since, 0))
    }
}
