//! Flags in a real etcd: transactions, races, leases, log-in, and answers that do not come.
//!
//! Every test has a server of its own. Real time passes only where etcd's leases or weir's re-reads
//! need it.

#[path = "../etcd_server/mod.rs"]
mod etcd_server;
#[path = "../eventually/mod.rs"]
mod eventually;
#[path = "../flag_table/mod.rs"]
mod flag_table;
mod log_in;
mod past_weir;
mod silence;
#[path = "../store_plans/mod.rs"]
mod store_plans;
mod support;

use etcd_server::EtcdServer;
use store_plans::{author, plan, stored, timed};
use support::{FLAG, KEY, apply, by, events, store, table};
use weir::admission::{FLAGS, FlagValue, Settings};
use weir::flag::{
    self, Etcd, EtcdLogin, EventKind, Evidence, OnExpire, Outcome, Revision, Store, Terms,
};

#[tokio::test]
async fn an_empty_namespace_is_the_base() {
    let server = EtcdServer::start();
    let store = store(&server);
    let table = table(&store).await;
    assert_eq!(table.flags.len(), FLAGS.len());
    for flag in &table.flags {
        let base = Settings::default().get(&flag.key).expect("flag of the table");
        assert_eq!((&flag.overridden, &flag.base), (&None, &base), "{}", flag.key);
        assert_eq!((flag.revision, flag.by.as_deref()), (Revision(0), None));
    }
    assert!(events(&store).await.is_empty());
    assert_eq!(
        store.capabilities().lacks(),
        [
            "what the instances really use is not told",
            "a timer can only drop an override, not set the one before again",
        ]
    );
}

#[tokio::test]
async fn a_flip_and_its_event_are_one_transaction() {
    let server = EtcdServer::start();
    let store = store(&server);
    let before = table(&store).await;
    let words = ["retry.max_attempts=1", "admission.mode=shadow", "cache.enabled=true"];
    let change = plan(&before, &words);
    let revision = apply(&store, &change, "alice").await;

    let after = table(&store).await;
    assert_eq!(after.revision, revision);
    assert!(revision > before.revision);
    let flag = after.get(KEY).expect("flag of the table");
    assert_eq!((flag.by.as_deref(), flag.stored().to_string()), (Some("alice"), "1".to_owned()));
    assert!(flag.at.is_some() && flag.expires.is_some(), "a reminder: {flag:?}");
    assert!(flag.revision > before.revision && flag.revision <= revision);
    assert_eq!(server.ctl(&["get", FLAG, "--print-value-only"]).trim(), "1", "plain for anybody");
    let mode = server.ctl(&["get", "/weir/prod/flag/admission.mode", "--print-value-only"]);
    assert_eq!(mode.trim(), "\"shadow\"");

    let history = events(&store).await;
    assert_eq!(history.len(), 1);
    let event = &history[0];
    assert_eq!((event.seq, event.revision, event.kind), (1, revision, EventKind::Change));
    assert_eq!((event.actor.as_str(), event.reason.as_str()), ("alice", "storm"));
    assert_eq!(event.incident.as_deref(), Some("INC-42"));
    assert_eq!(event.request_id.as_ref(), Some(&change.request_id));
    assert_eq!(event.anchor.as_deref(), Some("journal of alice:7:hash"));
    assert_eq!(event.changes.len(), 3);
    // Everything was put by one and the same revision of etcd.
    let puts = server.ctl(&["get", "--prefix", "/weir/prod/", "-w", "fields"]);
    let puts: Vec<&str> = puts.lines().filter(|line| line.contains("ModRevision")).collect();
    assert_eq!(puts.len(), 8, "3 flags, 3 meta, an event, the head");
    assert!(puts.iter().all(|put| *put == puts[0]), "{puts:?}");

    let back = flag::undo(event, &after, &Evidence::default(), Terms::default());
    let mut back = back.expect("a plan");
    back.request_id = "undo".to_owned();
    apply(&store, &back, "bob").await;
    let last = table(&store).await;
    assert!(last.flags.iter().all(|flag| flag.overridden.is_none()), "the base holds again");
    assert_eq!(by(&last, KEY), Some("bob"));
    assert_eq!(store.events(1).await.expect("etcd answers").len(), 1);
}

#[tokio::test]
async fn one_of_two_racing_writers_wins_and_the_other_is_told() {
    const ROUNDS: usize = 30;
    let server = EtcdServer::start();
    let (one, two) = (store(&server), store(&server));
    let mut won = [0, 0];
    for round in 0..ROUNDS {
        let seen = table(&one).await;
        let tries = if stored(&seen, KEY) == "1" { 3 } else { 1 };
        // Different flags: the table is what is compared.
        let (first, second) = (format!("{KEY}={tries}"), format!("queue.max_depth={}", 9 + round));
        let (first, second) = (plan(&seen, &[&first]), plan(&seen, &[&second]));
        let (alice, bob) = (author("alice"), author("bob"));
        let outcomes = tokio::join!(one.apply(&first, &alice), two.apply(&second, &bob));
        let (winner, loser) = match outcomes {
            (Outcome::Applied { .. }, Outcome::Conflict { current }) => (0, current),
            (Outcome::Conflict { current }, Outcome::Applied { .. }) => (1, current),
            other => panic!("round {round}: {other:?}"),
        };
        won[winner] += 1;
        let (key, name) = [(KEY, "alice"), ("queue.max_depth", "bob")][winner];
        assert_eq!(by(&loser, key), Some(name), "the loser sees who won");
        assert_eq!(loser, table(&one).await);
    }
    assert_eq!((won[0] + won[1], events(&one).await.len()), (ROUNDS, ROUNDS));
}

#[tokio::test]
async fn a_plan_that_lost_is_stored_in_no_part() {
    let server = EtcdServer::start();
    let store = store(&server);
    let seen = table(&store).await;
    let words = ["retry.max_attempts=1", "retry.owner=client", "queue.max_depth=9"];
    let late = plan(&seen, &words);
    apply(&store, &plan(&seen, &["cache.enabled=true"]), "alice").await;
    let outcome = store.apply(&late, &author("bob")).await;
    let Outcome::Conflict { current } = outcome else { panic!("{outcome:?}") };
    assert_eq!(current, table(&store).await);
    let overridden: Vec<_> =
        current.flags.iter().filter(|flag| flag.overridden.is_some()).collect();
    assert_eq!(overridden.len(), 1, "{overridden:?}");
    assert_eq!(events(&store).await.len(), 1);
}

#[tokio::test]
async fn a_plan_that_names_another_value_than_the_stored_one_conflicts() {
    let server = EtcdServer::start();
    let store = store(&server);
    let mut change = plan(&table(&store).await, &["retry.max_attempts=1"]);
    change.changes[0].from = FlagValue::Number(4.0);
    let outcome = store.apply(&change, &author("alice")).await;
    assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_timer_never_leads_away_from_safe() {
    let server = EtcdServer::start();
    let store = store(&server);
    let mut change = timed(&table(&store).await, &["retry.max_attempts=1"], Some(60));
    assert_eq!(change.on_expire, OnExpire::Remind);
    change.on_expire = OnExpire::Revert;
    let outcome = store.apply(&change, &author("alice")).await;
    let Outcome::Refused { why } = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("toward the safe end") && why.contains(KEY), "{why}");
    assert!(events(&store).await.is_empty());
}

#[tokio::test]
async fn a_timer_that_was_not_used_is_given_back() {
    let server = EtcdServer::start();
    let (one, two) = (store(&server), store(&server));
    for _ in 0..5 {
        let seen = table(&one).await;
        let key = if stored(&seen, KEY) == "3" { "4" } else { "3" };
        let change = timed(&seen, &[&format!("{KEY}={key}")], Some(600));
        let other = timed(&seen, &["queue.max_depth=1000"], Some(600));
        let (alice, bob) = (author("alice"), author("bob"));
        tokio::join!(one.apply(&change, &alice), two.apply(&other, &bob));
        let seen = table(&one).await;
        if seen.get("queue.max_depth").is_some_and(|flag| flag.overridden.is_some()) {
            apply(&one, &plan(&seen, &["queue.max_depth=base"]), "alice").await;
        }
    }
    let leases = server.ctl(&["lease", "list"]);
    let granted = leases.lines().filter(|line| !line.starts_with("found")).count();
    let timed = events(&one).await.iter().filter(|event| event.changes[0].to.is_some()).count();
    assert_eq!(granted, timed, "one lease for each flip that won: {leases}");
}

#[tokio::test]
async fn keys_outside_of_the_namespace_do_not_matter() {
    let server = EtcdServer::start();
    let store = store(&server);
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=1"]), "alice").await;
    let seen = table(&store).await;
    for key in ["/other", "/weir/prod2/flag/retry.owner", "/weir/prod/flags", "/weir/prod0"] {
        server.ctl(&["put", key, "\"client\""]);
    }
    let beside = Etcd::new(&server.url(), EtcdLogin::None, "prod2", Settings::default());
    let beside = beside.expect("a good address");
    let there = table(&beside).await;
    assert_eq!(stored(&there, "retry.owner"), "client", "another namespace is another table");
    apply(&beside, &plan(&there, &["queue.max_depth=9"]), "bob").await;
    assert_eq!(table(&store).await, seen);
    apply(&store, &plan(&seen, &["retry.owner=client"]), "alice").await;
    assert_eq!(events(&store).await.len(), 2);
}

#[tokio::test]
async fn a_repeat_of_the_same_request_changes_nothing() {
    let server = EtcdServer::start();
    let store = store(&server);
    let change = plan(&table(&store).await, &["retry.max_attempts=1"]);
    let revision = apply(&store, &change, "alice").await;
    assert_eq!(apply(&store, &change, "alice").await, revision);
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=3"]), "bob").await;
    assert_eq!(apply(&store, &change, "alice").await, revision, "also when it is over");
    assert_eq!(stored(&table(&store).await, KEY), "3");
    assert_eq!(events(&store).await.len(), 2);
}
