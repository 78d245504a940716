//! Flags in the runtime of real Envoys: two that agree, two that do not, and one that is gone.

mod server;
#[path = "../stepping_proxy/mod.rs"]
mod stepping_proxy;
#[path = "../store_plans/mod.rs"]
mod store_plans;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use server::{Envoy, LAYER};
use stepping_proxy::{Pass, Proxy};
use store_plans::{NoLog, author, plan, stored as shown};
use weir::admission::Settings;
use weir::flag::{
    self, Author, Change, EnvoyFlag, EnvoyRuntime, EnvoyValue, Evidence, FlagTable, Flip, FlipEnd,
    Outcome, Partly, Plan, Store, StoreError, Terms,
};

/// What both instances are configured with; the key of `retry.owner` is not among it.
const FIXED: &str = "llm.max_retries: 3, llm.budget_percent: 20";

fn store(urls: &[&str]) -> EnvoyRuntime {
    let own = |(value, text): (&str, &str)| (value.to_owned(), text.to_owned());
    let owner = EnvoyValue::Table([("gateway", "1"), ("client", "0")].map(own).into());
    let flags = [
        EnvoyFlag::new("retry.max_attempts", "llm.max_retries", EnvoyValue::Scale(1.0)),
        EnvoyFlag::new("retry.budget_ratio", "llm.budget_percent", EnvoyValue::Scale(100.0)),
        EnvoyFlag::new("retry.owner", "llm.retry_here", owner),
    ];
    let flags = flags.map(|flag| flag.expect("a good mapping"));
    EnvoyRuntime::new(urls, LAYER, flags.into(), Settings::default()).expect("loopback")
}

async fn two() -> (Envoy, Envoy, EnvoyRuntime) {
    let (one, two) = tokio::join!(Envoy::start(FIXED), Envoy::start(FIXED));
    let store = store(&[&one.url(), &two.url()]);
    (one, two, store)
}

fn terms() -> Terms {
    Terms { reason: Some("storm".to_owned()), ttl_s: None, request_id: "id-1".to_owned() }
}

fn dropping(table: &FlagTable, key: &str) -> Plan {
    let changes = [Change { key: key.to_owned(), to: None }];
    flag::plan("t", table, &changes, &Evidence::default(), terms()).expect("a plan")
}

fn alice() -> Author {
    author("alice")
}

async fn table(store: &dyn Store) -> FlagTable {
    store.list().await.unwrap_or_else(|error| panic!("{error}"))
}

/// What each instance uses, in the order of the given ones.
fn used<const N: usize>(table: &FlagTable, key: &str, instances: [&Envoy; N]) -> [String; N] {
    let flag = table.get(key).expect("in the table");
    instances.map(|instance| flag.effective[&instance.place()].to_string())
}

#[tokio::test]
async fn overrides_are_set_on_all_instances_and_dropped_again() {
    let (one, two, store) = two().await;
    let before = table(&store).await;
    let keys: Vec<_> = before.flags.iter().map(|flag| flag.key.as_str()).collect();
    assert_eq!(keys, ["retry.owner", "retry.max_attempts", "retry.budget_ratio"], "mapped ones");
    assert_eq!(shown(&before, "retry.max_attempts"), "3", "as Envoy is configured");
    assert_eq!(shown(&before, "retry.budget_ratio"), "0.2", "20 percent");
    assert_eq!(shown(&before, "retry.owner"), "gateway", "no layer says it");
    assert_eq!(table(&store).await, before, "nothing has changed");

    let words = ["retry.max_attempts=1", "retry.budget_ratio=0.07", "retry.owner=client"];
    let outcome = store.apply(&plan(&before, &words), &alice()).await;
    let during = table(&store).await;
    assert_eq!(outcome, Outcome::applied(during.revision));
    assert!(during.revision > before.revision);
    for (key, value) in keys.iter().zip(["client", "1", "0.07"]) {
        assert_eq!(shown(&during, key), value, "{key}");
        assert_eq!(used(&during, key, [&one, &two]), [value, value], "{key}");
    }

    let outcome = store.apply(&dropping(&during, "retry.max_attempts"), &alice()).await;
    let after = table(&store).await;
    assert_eq!(outcome, Outcome::applied(after.revision));
    assert_eq!(after.get("retry.max_attempts").expect("in the table").overridden, None);
    assert_eq!(used(&after, "retry.max_attempts", [&one, &two]), ["3", "3"]);
    assert_eq!(shown(&after, "retry.owner"), "client", "the others stay");
}

#[tokio::test]
async fn what_somebody_did_by_hand_is_a_conflict() {
    let (one, two, store) = two().await;
    let stale = plan(&table(&store).await, &["retry.max_attempts=1"]);
    one.modify("unrelated=1").await;
    assert_eq!(table(&store).await.revision, stale.revision, "no flag stands for it");
    tokio::join!(one.modify("llm.budget_percent=0"), two.modify("llm.budget_percent=0"));
    let outcome = store.apply(&stale, &alice()).await;
    let Outcome::Conflict { current } = outcome else { panic!("{outcome:?}") };
    assert_eq!(shown(&current, "retry.budget_ratio"), "0");
    let revision = |key: &str| current.get(key).expect("in the table").revision;
    assert_eq!(revision("retry.budget_ratio"), current.revision);
    assert!(revision("retry.max_attempts") < current.revision);
}

#[tokio::test]
async fn instances_that_differ_are_shown_one_by_one_and_can_be_made_equal() {
    let (one, two, store) = two().await;
    one.modify("llm.max_retries=1").await;
    two.modify("llm.budget_percent=250").await;
    let before = table(&store).await;
    assert_eq!(shown(&before, "retry.max_attempts"), "differs by instance");
    assert_eq!(used(&before, "retry.max_attempts", [&one, &two]), ["1", "3"]);
    assert_eq!(used(&before, "retry.budget_ratio", [&one, &two]), ["0.2", "250"], "as it stands");
    let outcome = store.apply(&plan(&before, &["retry.max_attempts=2"]), &alice()).await;
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    let equal = table(&store).await;
    assert_eq!(used(&equal, "retry.max_attempts", [&one, &two]), ["2", "2"]);
    let outcome = store.apply(&dropping(&equal, "retry.budget_ratio"), &alice()).await;
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    assert_eq!(shown(&table(&store).await, "retry.budget_ratio"), "0.2");
}

#[tokio::test]
async fn instances_that_are_configured_differently_have_no_one_base() {
    let (one, two) = tokio::join!(Envoy::start(FIXED), Envoy::start("llm.max_retries: 2"));
    let store = store(&[&one.url(), &two.url()]);
    let table = table(&store).await;
    let attempts = table.get("retry.max_attempts").expect("in the table");
    assert_eq!(attempts.base.to_string(), "differs by instance");
    assert_eq!(attempts.overridden, None);
    assert_eq!(used(&table, "retry.max_attempts", [&one, &two]), ["3", "2"]);
}

#[tokio::test]
async fn an_instance_that_is_gone_is_named_and_nothing_is_sent() {
    let (one, mut two, store) = two().await;
    let wanted = plan(&table(&store).await, &["retry.max_attempts=1"]);
    two.kill();
    let error = store.list().await.expect_err("one is gone");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    let words = error.to_string();
    assert!(words.contains(&two.place()) && words.contains("take it off the list"), "{words}");
    let outcome = store.apply(&wanted, &alice()).await;
    let Outcome::Refused { why } = outcome else { panic!("{outcome:?}") };
    assert!(why.starts_with("nothing was sent") && why.contains(&two.place()), "{why}");
    let alone = self::store(&[&one.url()]);
    assert_eq!(shown(&table(&alone).await, "retry.max_attempts"), "3");
}

#[tokio::test]
async fn an_instance_that_restarts_has_forgotten_its_overrides_and_it_shows() {
    let (one, mut two, store) = two().await;
    let wanted = plan(&table(&store).await, &["retry.max_attempts=1"]);
    assert!(matches!(store.apply(&wanted, &alice()).await, Outcome::Applied { .. }));
    let before = table(&store).await;
    two.restart().await;
    let after = table(&store).await;
    assert!(after.revision > before.revision);
    assert_eq!(shown(&after, "retry.max_attempts"), "differs by instance");
    assert_eq!(used(&after, "retry.max_attempts", [&one, &two]), ["1", "3"]);
}

#[tokio::test]
async fn an_instance_without_a_layer_for_overrides_says_how_to_add_one() {
    let envoy = Envoy::with_layers("[{name: fixed, static_layer: {llm.max_retries: 3}}]").await;
    let error = store(&[&envoy.url()]).list().await.expect_err("no such layer").to_string();
    assert!(error.contains("add {name: by_hand, admin_layer: {}}"), "{error}");
}

#[tokio::test]
async fn a_plan_that_only_one_instance_took_names_both() {
    let (one, two) = tokio::join!(Envoy::start(FIXED), Envoy::start(FIXED));
    let proxy = Proxy::start(&two.url(), |_| async { Pass::Refuse }.boxed()).await;
    let store = store(&[&one.url(), proxy.url()]);
    let wanted = plan(&table(&store).await, &["retry.max_attempts=1"]);
    let outcome = store.apply(&wanted, &alice()).await;
    let Outcome::Partly(Partly { stored, missing, why }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(stored, [format!("retry.max_attempts on {}", one.place())]);
    let second = proxy.url().trim_start_matches("http://");
    assert_eq!(missing, [format!("retry.max_attempts on {second}")]);
    assert!(why.contains("403"), "{why}");
    assert_eq!(shown(&table(&store).await, "retry.max_attempts"), "differs by instance");
}

#[tokio::test]
async fn a_frozen_instance_leaves_it_unknown_and_is_looked_up() {
    let (one, two) = tokio::join!(Envoy::start(FIXED), Envoy::start(FIXED));
    let (freeze, url) = (two.freezer(), two.url());
    let step = move |_| {
        freeze();
        async { Pass::On }.boxed()
    };
    let proxy = Proxy::start(&url, step).await;
    let store = Arc::new(store(&[&one.url(), proxy.url()]));
    let before = table(&*store).await;
    let wanted = plan(&before, &["retry.max_attempts=1"]);
    let flip = Flip::new(wanted, &before, alice(), &[]).expect("allowed");
    let thaw = async {
        tokio::time::sleep(flag::TIMEOUT + Duration::from_millis(500)).await;
        two.thaw();
    };
    let carried = flag::carry_out(flip, Arc::clone(&store) as Arc<dyn Store>, Arc::new(NoLog));
    let (report, ()) = tokio::join!(carried, thaw);
    assert!(matches!(report.end, FlipEnd::Applied { .. }), "it landed late: {:?}", report.end);
    assert_eq!(used(&table(&*store).await, "retry.max_attempts", [&one]), ["1"]);
}
