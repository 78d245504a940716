//! What happens in etcd with no weir there: timers, `etcdctl`, and values that do not fit.

use weir::flag::{EventKind, OnExpire, Outcome, Store, StoreError};

use crate::etcd_server::EtcdServer;
use crate::eventually::eventually;
use crate::store_plans::{author, plan, stored, timed};
use crate::support::{FLAG, KEY, META, apply, by, events, flag_table, store, table};

#[tokio::test]
async fn a_timer_runs_out_in_the_store_with_no_weir_alive() {
    let server = EtcdServer::start();
    let during = {
        let store = store(&server);
        let seen = table(&store).await;
        let change = timed(&seen, &["retry.max_attempts=3", "queue.max_age_s=20"], Some(1));
        assert_eq!(change.on_expire, OnExpire::Revert);
        apply(&store, &change, "alice").await;
        // Another flip leaves the timer alone.
        let seen = table(&store).await;
        assert!(seen.get(KEY).expect("flag of the table").expires.is_some());
        apply(&store, &plan(&seen, &["cache.enabled=true"]), "bob").await;
        table(&store).await
    };
    // No client of weir: etcdctl looks whether etcd has dropped it.
    eventually("the lease runs out", async || {
        server.ctl(&["get", "--prefix", "/weir/prod/flag/retry"]).is_empty().then_some(())
    })
    .await;
    let store = store(&server);
    let after = table(&store).await;
    assert!(after.revision > during.revision);
    for key in [KEY, "queue.max_age_s"] {
        let flag = after.get(key).expect("flag of the table");
        assert_eq!((&flag.overridden, flag.by.as_deref()), (&None, Some("timer")), "{key}");
        assert!(flag.at.is_some() && flag.expires.is_none(), "{flag:?}");
        assert!(flag.revision > during.revision, "the change is newer than the table before");
    }
    // A plan of before is too late, and is told.
    let late = store.apply(&plan(&during, &["retry.owner=client"]), &author("carol")).await;
    assert!(matches!(late, Outcome::Conflict { .. }), "{late:?}");

    apply(&store, &plan(&after, &["retry.owner=client"]), "carol").await;
    let history = events(&store).await;
    let kinds: Vec<_> = history.iter().map(|event| (event.kind, event.actor.as_str())).collect();
    let expired = (EventKind::Expire, "timer");
    let expected = ["alice", "bob"].map(|name| (EventKind::Change, name));
    assert_eq!(kinds[..2], expected);
    assert_eq!(kinds[2..], [expired, expired, (EventKind::Change, "carol")]);
    let change = &history[2..4].iter().find(|event| event.changes[0].key == KEY).expect("told");
    let change = &change.changes[0];
    let shown = |value: &Option<_>| value.as_ref().map(ToString::to_string);
    assert_eq!((shown(&change.from), shown(&change.to)), (Some("3".to_owned()), None));
    assert_eq!(by(&table(&store).await, KEY), Some("timer"), "and it stays told");
    apply(&store, &plan(&table(&store).await, &["retry.owner=base"]), "carol").await;
    assert_eq!(events(&store).await.len(), 6, "an expiry is told once");
}

#[tokio::test]
async fn what_is_done_past_weir_is_seen_and_written_down() {
    let server = EtcdServer::start();
    let store = store(&server);
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=1"]), "alice").await;
    let seen = table(&store).await;

    server.ctl(&["put", FLAG, "3"]);
    let edited = table(&store).await;
    let flag = edited.get(KEY).expect("flag of the table");
    assert_eq!((flag.by.as_deref(), flag.at), (Some("outside"), None));
    assert_eq!(stored(&edited, KEY), "3");
    assert!(edited.revision > seen.revision && flag.revision > seen.revision);
    let late = store.apply(&plan(&seen, &["retry.owner=client"]), &author("bob")).await;
    assert_eq!(late, Outcome::Conflict { current: edited.clone() });

    server.ctl(&["del", FLAG]);
    let deleted = table(&store).await;
    assert_eq!((by(&deleted, KEY), stored(&deleted, KEY)), (Some("outside"), "2".to_owned()));
    assert_ne!(deleted.revision, edited.revision);
    assert!(deleted.revision > seen.revision, "an override that is gone is a newer table");

    apply(&store, &plan(&deleted, &["retry.owner=client"]), "bob").await;
    let history = events(&store).await;
    let told: Vec<_> =
        history.iter().map(|event| (event.seq, event.kind, event.actor.as_str())).collect();
    let kind = EventKind::Change;
    assert_eq!(told, [(1, kind, "alice"), (2, kind, "outside"), (3, kind, "bob")]);
    let shown = |value: &Option<_>| value.as_ref().map(ToString::to_string);
    let change = &history[1].changes[0];
    assert_eq!((shown(&change.from), shown(&change.to)), (Some("1".to_owned()), None));
    let calm = table(&store).await;
    assert_eq!(by(&calm, KEY), Some("outside"), "and it stays told");
    apply(&store, &plan(&calm, &["retry.owner=base"]), "bob").await;
    assert_eq!(events(&store).await.len(), 4, "once");
}

#[tokio::test]
async fn every_change_past_weir_has_a_revision_of_its_own() {
    let server = EtcdServer::start();
    let store = store(&server);
    let mut seen = vec![table(&store).await.revision];
    let words = ["retry.max_attempts=1", "queue.max_depth=9", "cache.enabled=true"];
    apply(&store, &plan(&table(&store).await, &words), "alice").await;
    seen.push(table(&store).await.revision);
    // Two in one transaction, then one, all without a trace in etcd.
    server.ctl(&["del", "--prefix", "/weir/prod/flag/retry"]);
    seen.push(table(&store).await.revision);
    server.ctl(&["del", "--prefix", "/weir/prod/flag/"]);
    seen.push(table(&store).await.revision);
    for key in ["retry.max_attempts", "queue.max_depth", "admission.mode"] {
        server.ctl(&["put", &format!("/weir/prod/flag/{key}"), "1"]);
        seen.push(table(&store).await.revision);
    }
    server.ctl(&["del", FLAG]);
    seen.push(table(&store).await.revision);
    apply(&store, &plan(&table(&store).await, &["retry.owner=client"]), "alice").await;
    seen.push(table(&store).await.revision);
    assert!(seen.is_sorted_by(|earlier, later| earlier < later), "{seen:?}");
}

#[tokio::test]
async fn a_value_that_does_not_fit_is_shown_as_it_stands() {
    let server = EtcdServer::start();
    let store = store(&server);
    for (text, shown) in [("9", "9"), ("\"2\"", "\"2\""), ("two", "two (not JSON)")] {
        server.ctl(&["put", FLAG, text]);
        let table = table(&store).await;
        assert_eq!(stored(&table, KEY), shown, "never taken for the base");
        assert!(table.get(KEY).is_some_and(|flag| flag.overridden.is_some()));
    }
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=1"]), "alice").await;
    assert_eq!(stored(&table(&store).await, KEY), "1", "and it can be put right");
}

#[tokio::test]
async fn bookkeeping_that_cannot_be_read_is_named_with_a_remedy() {
    let server = EtcdServer::start();
    let store = store(&server);
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=1"]), "alice").await;
    for (key, text) in [(META, "{"), ("/weir/prod/head", "many"), ("/weir/prod/event/zzz", "{}")] {
        let before = server.ctl(&["get", key, "--print-value-only"]);
        server.ctl(&["put", key, text]);
        let error = store.list().await.expect_err(key);
        assert!(matches!(error, StoreError::Malformed { .. }), "{error}");
        let words = error.to_string();
        assert!(words.contains(&format!("etcdctl del {key}")), "{words}");
        let change = plan(&flag_table(), &["retry.owner=client"]);
        let outcome = store.apply(&change, &author("bob")).await;
        let Outcome::Refused { why } = outcome else { panic!("{key}: {outcome:?}") };
        assert!(why.contains(key), "{why}");
        match before.trim() {
            "" => server.ctl(&["del", key]),
            before => server.ctl(&["put", key, before]),
        };
    }
    server.ctl(&["put", "/weir/prod/event/000000000001", "[]"]);
    let error = store.events(0).await.expect_err("no event").to_string();
    assert!(error.contains("event/000000000001"), "{error}");
}

#[tokio::test]
async fn a_lost_head_does_not_overwrite_the_history() {
    let server = EtcdServer::start();
    let store = store(&server);
    for value in ["1", "3"] {
        let change = plan(&table(&store).await, &[&format!("{KEY}={value}")]);
        apply(&store, &change, "alice").await;
    }
    server.ctl(&["del", "/weir/prod/head"]);
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=1"]), "bob").await;
    let seqs: Vec<u64> = events(&store).await.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
}
