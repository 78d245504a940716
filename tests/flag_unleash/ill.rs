//! A store that refuses, stops half-way or falls silent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use weir::admission::{self, Settings};
use weir::flag::wire::{EventChangeRow, WireOnExpire};
use weir::flag::{
    self, EventChange, Flip, FlipEnd, Outcome, Partly, Past, Settled, Store, StoreError, Token,
    Unleash, UnleashPlace, Unsettled,
};
use weir::incident::{Event, Journal, reconcile};

use crate::eventually::eventually;
use crate::server::{ADMIN, ENVIRONMENT, SDK, server};
use crate::stepping_proxy::{Pass, Proxy};
use crate::store_plans::{Heard, NoLog};
use crate::support::{World, alice, alone, assert_clean, plan, refusal, set, shown, store, table};

#[tokio::test]
async fn a_plan_that_stops_half_way_says_where() {
    let world = World::new("partly", &["retry.max_attempts", "retry.owner"]).await;
    let (server, archived) = (world.server, world.feature("retry.owner"));
    let proxy = Proxy::start(server.url(), move |change| {
        let archived = archived.clone();
        async move {
            // A new override takes two calls: prepare, and switch on.
            if change == 3 {
                server.send("DELETE", &archived, None).await;
            }
            Pass::On
        }
        .boxed()
    });
    let proxy = proxy.await;
    let admin = store(proxy.url(), &world.prefix, ADMIN, None);
    let outcome = set(&admin, &["retry.owner=client", "retry.max_attempts=1"]).await;
    let Outcome::Partly(Partly { stored, missing, why }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(stored, ["retry.max_attempts"], "the safer one goes first");
    assert_eq!(missing, ["retry.owner"]);
    assert!(why.contains("archived"), "{why}");
}

#[tokio::test]
async fn tokens_and_places_that_do_not_fit_say_what_would() {
    let world = World::new("tokens", &["retry.max_attempts"]).await;
    let url = world.server.url();
    let check = async |store: Unleash, expected: &str| {
        let error = store.list().await.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(world.store("nonsense"), "give a personal or admin token").await;
    check(world.store(SDK), "this is an SDK's token").await;
    let swapped = store(url, &world.prefix, ADMIN, Some("unknown"));
    check(swapped, "about the SDK token").await;
    check(store(url, "nowhere.", ADMIN, None), "no feature `nowhere.retry.owner`; create it").await;
    let at = |project: &str, environment: &str| {
        let [project, environment] = [project, environment].map(str::to_owned);
        let place = UnleashPlace { project, environment, prefix: world.prefix.clone() };
        Unleash::new(url, Token::new(ADMIN), place, None, Settings::default()).expect("valid")
    };
    check(at("other", ENVIRONMENT), "in project \"default\"").await;
    check(at("default", "moon"), "it has development, production").await;
    check(store("http://127.0.0.1:1", "weir.", ADMIN, None), "is it up").await;

    let viewer = world.store(world.server.viewer());
    let why = refusal(set(&viewer, &["retry.max_attempts=1"]).await);
    assert!(why.contains("permission") && why.contains("ask an admin"), "{why}");
}

#[tokio::test]
async fn maintenance_is_a_refusal_and_no_riddle() {
    let (_alone, prefix) = alone("closed", &["retry.max_attempts"]).await;
    let store = store(server().url(), &prefix, ADMIN, None);
    let maintenance = |on: bool| json!({ "enabled": on });
    server().send("POST", "maintenance", Some(maintenance(true))).await;
    let outcome = set(&store, &["retry.max_attempts=1"]).await;
    server().send("POST", "maintenance", Some(maintenance(false))).await;
    let why = refusal(outcome);
    assert!(why.contains("maintenance mode") && why.contains("until an admin ends it"), "{why}");
    assert_eq!(shown(&table(&store).await, "retry.max_attempts"), "2");
}

#[tokio::test]
async fn a_write_that_lands_after_it_was_given_up_is_found() {
    let keys = ["retry.max_attempts", "admission.rate_factor"];
    let (_alone, prefix) = alone("ghost", &keys).await;
    let plain = store(server().url(), &prefix, ADMIN, None);
    assert_clean(&set(&plain, &["retry.max_attempts=3", "admission.rate_factor=0.9"]).await);
    // The database stops answering when the second flag is written, and comes back a little after
    // weir has given up.
    let proxy = Proxy::start(server().url(), |change| {
        async move {
            if change == 2 {
                server().freeze();
                tokio::spawn(async {
                    tokio::time::sleep(flag::TIMEOUT + Duration::from_millis(500)).await;
                    server().thaw();
                });
            }
            Pass::On
        }
        .boxed()
    });
    let proxy = proxy.await;
    let client = store(proxy.url(), &prefix, ADMIN, None);
    let heard = Arc::new(Heard::new(client, || {}));
    let before = table(&*heard).await;
    let wanted = plan(&before, &["retry.max_attempts=1", "admission.rate_factor=0.5"]);
    let flip = Flip::new(wanted, &before, alice(), &[]).expect("allowed");
    let report = flag::carry_out(flip, Arc::clone(&heard) as Arc<dyn Store>, Arc::new(NoLog)).await;
    let outcomes = heard.outcomes.lock().expect("unpoisoned");
    let [Outcome::Unknown { why }] = outcomes.as_slice() else { panic!("{outcomes:?}") };
    assert!(why.contains("stored before it: retry.max_attempts"), "{why}");
    assert!(why.contains("no usable answer for admission.rate_factor"), "{why}");
    let FlipEnd::Applied { beside: Some(how), .. } = &report.end else { panic!("{report:?}") };
    assert!(how.starts_with("no answer came: event "), "{how}");
    assert!(how.ends_with("of the store's history has its id"), "{how}");
    let after = report.table.expect("it was read");
    assert_eq!(shown(&after, "admission.rate_factor"), "0.5", "the ghost has landed");
}

/// What Unleash's own history says of a flip without an answer.
async fn told(store: &Unleash, lost: &mut Unsettled) -> Option<Settled> {
    let table = table(store).await;
    let events = store.events(0).await.expect("it answers");
    lost.on_read(&table, Past::of(store.capabilities(), Some(&events)))
}

#[tokio::test]
async fn a_ghost_that_bob_overwrites_at_once_is_told_as_exactly_that() {
    let (_alone, prefix) = alone("overwritten", &["retry.max_attempts"]).await;
    let plain = store(server().url(), &prefix, ADMIN, None);
    assert_clean(&set(&plain, &["retry.max_attempts=3"]).await);
    let proxy = Proxy::start(server().url(), |_| {
        async move {
            server().freeze();
            Pass::On
        }
        .boxed()
    });
    let proxy = proxy.await;
    let client = store(proxy.url(), &prefix, ADMIN, None);
    let before = table(&client).await;
    let wanted = plan(&before, &["retry.max_attempts=1"]);
    let outcome = client.apply(&wanted, &alice()).await;
    server().thaw();
    let Outcome::Unknown { why } = outcome else { panic!("{outcome:?}") };
    let mut lost = Unsettled::new(&wanted, why);
    let landed = eventually("the ghost lands", async || {
        let now = table(&plain).await;
        (now.revision > before.revision).then_some(now.revision)
    })
    .await;
    assert_clean(
        &set(&store(server().url(), &prefix, server().bob(), None), &["retry.max_attempts=4"])
            .await,
    );
    let bobs = table(&plain).await.revision;
    let settled = told(&plain, &mut lost).await.expect("its mark is in the history");
    let words = format!("landed at revision {landed}, then bob overwrote it (revision {bobs})");
    assert_eq!(settled.say(), words);
}

#[tokio::test]
async fn a_write_that_lands_long_after_everybody_has_gone_on_is_found_then() {
    let (_alone, prefix) = alone("late", &["retry.max_attempts", "retry.owner"]).await;
    let plain = store(server().url(), &prefix, ADMIN, None);
    assert_clean(&set(&plain, &["retry.max_attempts=3"]).await);
    let held = Arc::new(Notify::new());
    let until = Arc::clone(&held);
    let proxy = Proxy::start(server().url(), move |_| {
        let until = Arc::clone(&until);
        async move {
            until.notified().await;
            Pass::On
        }
        .boxed()
    });
    let proxy = proxy.await;
    let client: Arc<dyn Store> = Arc::new(store(proxy.url(), &prefix, ADMIN, None));
    let before = table(&*client).await;
    let flip = Flip::new(plan(&before, &["retry.max_attempts=1"]), &before, alice(), &[]);
    let report = flag::carry_out(flip.expect("allowed"), client, Arc::new(NoLog)).await;
    let FlipEnd::Unsettled(mut lost) = report.end else { panic!("{:?}", report.end) };
    assert!(lost.is_quiet(), "nobody waits for it any more: {lost}");
    // The way is open for others, which rules nothing out here.
    assert_clean(&set(&plain, &["retry.owner=client"]).await);
    assert_eq!(told(&plain, &mut lost).await, None, "it may still come: {lost}");
    held.notify_one();
    let settled = eventually("it is found", async || told(&plain, &mut lost).await).await;
    assert_eq!(settled.word(), "applied");
    assert!(settled.say().ends_with("of the store's history has its id)"), "{}", settled.say());
    assert_eq!(shown(&table(&plain).await, "retry.max_attempts"), "1");
}

#[tokio::test]
async fn a_table_that_cannot_be_read_is_said_and_nothing_is_sent() {
    let (_alone, prefix) = alone("frozen", &["retry.max_attempts"]).await;
    let store = store(server().url(), &prefix, ADMIN, None);
    let before = table(&store).await;
    let wanted = plan(&before, &["retry.max_attempts=1"]);
    server().freeze();
    let alice = alice();
    let (read, sent) = tokio::join!(store.list(), store.apply(&wanted, &alice));
    let health = reqwest::get(format!("{}/health", server().url())).await;
    server().thaw();
    assert!(health.expect("an answer").status().is_success(), "it says that it is well");
    assert!(matches!(read, Err(StoreError::Unreachable { .. })), "{read:?}");
    let why = refusal(sent);
    assert!(why.starts_with("nothing was sent"), "{why}");
    assert_eq!(table(&store).await, before);
}

#[tokio::test]
async fn flips_that_a_crash_left_open_are_told_by_their_marks_in_the_history() {
    let world = World::new("crash", &["retry.max_attempts", "retry.owner"]).await;
    let store = world.store(ADMIN);
    let before = table(&store).await;
    let begin = |words: &[&str]| Event::Flip {
        request_id: words.join(" "),
        plan: "t".to_owned(),
        revision: before.revision.0,
        actor: "alice".to_owned(),
        incident: None,
        reason: "storm".to_owned(),
        changes: words.iter().map(|word| changed(word)).collect(),
        ttl_s: None,
        on_expire: WireOnExpire::Remind,
        verify: String::new(),
        store: None,
        notes: Box::default(),
    };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("journal.jsonl");
    let (journal, _) = Journal::open(&path).expect("a new file");
    let flips = [
        begin(&["retry.max_attempts=1"]),
        begin(&["retry.owner=client"]),
        begin(&["retry.max_attempts=1", "retry.owner=client"]),
    ];
    for flip in &flips {
        journal.append(flip, chrono::Utc::now()).expect("the disk is there");
    }
    // Of these, only the first has been stored. Another request's value is nobody's proof, and without a
    // lock a table that has moved rules nothing out: the others may still come.
    let mut first = plan(&before, &["retry.max_attempts=1"]);
    first.request_id = "retry.max_attempts=1".to_owned();
    assert_clean(&store.apply(&first, &alice()).await);
    let (journal, found) = Journal::open(&path).expect("whole");
    let open = reconcile(&journal, found.open_flips, &store).await.expect("an answer");
    assert_eq!(open.len(), 2);
    assert!(flips[1..].iter().all(|flip| open.contains(flip)), "{open:?}");
    let text = std::fs::read_to_string(&path).expect("it was written");
    let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ends: BTreeMap<String, String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["event"].clone())
        .filter(|event| event["kind"] == "outcome")
        .map(|event| (text_of(&event["request_id"]), text_of(&event["end"])))
        .collect();
    let ends: Vec<_> = ends.values().map(String::as_str).collect();
    assert_eq!(ends, ["applied"]);
}

/// A new override, as the journal keeps it.
fn changed(word: &str) -> EventChangeRow {
    let (key, text) = word.split_once('=').expect("flag=value");
    let to = admission::flag(key).and_then(|def| def.parse(text)).expect("a real flag");
    let base = Settings::default().get(key).expect("a real flag");
    let change = EventChange { key: key.to_owned(), base, from: None, to: Some(to) };
    EventChangeRow::from(&change)
}
