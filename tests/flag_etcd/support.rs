//! Shorthands for stores, tables and changes.

use weir::admission::Settings;
use weir::flag::{Etcd, EtcdLogin, FlagEvent, FlagTable, Outcome, Plan, Revision, Store};

use crate::etcd_server::EtcdServer;
use crate::store_plans::author;

pub const KEY: &str = "retry.max_attempts";
pub const FLAG: &str = "/weir/prod/flag/retry.max_attempts";
pub const META: &str = "/weir/prod/meta/retry.max_attempts";

pub fn store(server: &EtcdServer) -> Etcd {
    Etcd::new(&server.url(), EtcdLogin::None, "prod", Settings::default()).expect("a good address")
}

pub async fn table(store: &Etcd) -> FlagTable {
    store.list().await.expect("etcd answers")
}

pub async fn events(store: &Etcd) -> Vec<FlagEvent> {
    store.events(0).await.expect("etcd answers")
}

pub async fn apply(store: &Etcd, plan: &Plan, actor: &str) -> Revision {
    match store.apply(plan, &author(actor)).await {
        Outcome::Applied { revision, beside: None } => revision,
        other => panic!("{other:?}"),
    }
}

/// Who changed a flag last.
pub fn by<'a>(table: &'a FlagTable, key: &str) -> Option<&'a str> {
    table.get(key).expect("flag of the table").by.as_deref()
}

/// The table of an empty namespace.
pub fn flag_table() -> FlagTable {
    let mut table = crate::flag_table::table(&Settings::default());
    table.revision = Revision(99);
    table.flags.iter_mut().for_each(|flag| flag.effective.clear());
    table
}
