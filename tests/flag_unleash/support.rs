//! One test's own features, and the words that tests share.

use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use weir::admission::Settings;
use weir::flag::{
    self, Author, Evidence, FlagTable, Outcome, Plan, Store, Terms, Token, Unleash, UnleashPlace,
};

use crate::server::{ENVIRONMENT, Server, server};
use crate::store_plans::author;
pub use crate::store_plans::{plan, stored as shown};

/// Held for reading by tests that need the server well, for writing by those that make it ill.
pub static WELL: RwLock<()> = RwLock::const_new(());

/// One test's own features.
pub struct World {
    pub server: &'static Server,
    pub prefix: String,
    _well: RwLockReadGuard<'static, ()>,
}

impl World {
    pub async fn new(name: &str, keys: &[&str]) -> Self {
        let well = WELL.read().await;
        let (server, prefix) = (server(), format!("{name}."));
        server.create(&prefix, keys).await;
        Self { server, prefix, _well: well }
    }

    pub fn store(&self, token: &str) -> Unleash {
        store(self.server.url(), &self.prefix, token, None)
    }

    pub fn feature(&self, key: &str) -> String {
        format!("projects/default/features/{}{key}", self.prefix)
    }

    pub fn in_environment(&self, key: &str) -> String {
        format!("{}/environments/{ENVIRONMENT}", self.feature(key))
    }

    /// A strategy that a person adds by hand.
    pub async fn strategy(&self, key: &str, rollout: &str, variants: Value) {
        let body = json!({ "name": "flexibleRollout", "variants": variants,
            "parameters": { "rollout": rollout, "stickiness": "default", "groupId": "x" } });
        let path = format!("{}/strategies", self.in_environment(key));
        self.server.send("POST", &path, Some(body)).await;
    }
}

/// Nobody else asks the server meanwhile.
pub async fn alone(name: &str, keys: &[&str]) -> (RwLockWriteGuard<'static, ()>, String) {
    let well = WELL.write().await;
    let prefix = format!("{name}.");
    server().create(&prefix, keys).await;
    (well, prefix)
}

pub fn store(url: &str, prefix: &str, token: &str, sdk: Option<&str>) -> Unleash {
    let place = UnleashPlace {
        environment: ENVIRONMENT.to_owned(),
        prefix: prefix.to_owned(),
        ..UnleashPlace::default()
    };
    let (token, sdk) = (Token::new(token), sdk.map(Token::new));
    Unleash::new(url, token, place, sdk, Settings::default()).expect("a loopback address")
}

pub fn dropping(table: &FlagTable, key: &str) -> Plan {
    let changes = [flag::Change { key: key.to_owned(), to: None }];
    let (reason, request_id) = (Some("calm".to_owned()), "id-2".to_owned());
    let terms = Terms { reason, ttl_s: None, request_id };
    flag::plan("t", table, &changes, &Evidence::default(), terms).expect("a plan")
}

pub fn alice() -> Author {
    author("alice")
}

pub async fn table(store: &dyn Store) -> FlagTable {
    store.list().await.unwrap_or_else(|error| panic!("{error}"))
}

/// Plans from the table as it is now, and applies it.
pub async fn set(store: &dyn Store, words: &[&str]) -> Outcome {
    let plan = plan(&table(store).await, words);
    store.apply(&plan, &alice()).await
}

#[track_caller]
pub fn assert_clean(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Applied { beside: None, .. }), "{outcome:?}");
}

#[track_caller]
pub fn refusal(outcome: Outcome) -> String {
    let Outcome::Refused { why } = outcome else { panic!("{outcome:?}") };
    why
}
