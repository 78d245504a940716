//! Two writers at once: who is told, and what stands there afterwards.

use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::json;
use weir::flag::{Outcome, Store as _, Unleash};

use crate::server::ADMIN;
use crate::stepping_proxy::{Pass, Proxy};
use crate::support::{World, alice, assert_clean, dropping, plan, set, shown, store, table};

#[tokio::test]
async fn who_was_faster_is_a_conflict() {
    let world = World::new("conflict", &["retry.max_attempts", "retry.owner"]).await;
    let (admin, bob) = (world.store(ADMIN), world.store(world.server.bob()));
    let stale = plan(&table(&admin).await, &["retry.max_attempts=1"]);
    assert_clean(&set(&bob, &["retry.owner=client"]).await);
    let Outcome::Conflict { current } = admin.apply(&stale, &alice()).await else {
        panic!("bob moved the table");
    };
    assert_eq!(shown(&current, "retry.owner"), "client");
    assert_eq!(shown(&current, "retry.max_attempts"), "2", "nothing was stored");
    assert_eq!(current.get("retry.owner").and_then(|flag| flag.by.as_deref()), Some("bob"));
}

#[tokio::test]
async fn who_is_faster_between_read_and_write_is_a_conflict_too() {
    let world = World::new("between", &["retry.max_attempts"]).await;
    let store_of_bob = Arc::new(world.store(world.server.bob()));
    assert_clean(&set(&*store_of_bob, &["retry.max_attempts=3"]).await);
    let other = Arc::clone(&store_of_bob);
    let proxy = Proxy::start(world.server.url(), move |_| {
        let other = Arc::clone(&other);
        async move {
            assert_clean(&set(&*other, &["retry.max_attempts=4"]).await);
            Pass::On
        }
        .boxed()
    });
    let proxy = proxy.await;
    let admin = store(proxy.url(), &world.prefix, ADMIN, None);
    let outcome = set(&admin, &["retry.max_attempts=1"]).await;
    let Outcome::Conflict { current } = outcome else { panic!("{outcome:?}") };
    assert_eq!(shown(&current, "retry.max_attempts"), "4");
}

/// Lets two people plan from the same table and write at once. Whether both stored; that at least one
/// of them is told is asserted here.
async fn race(admin: &Unleash, bob: &Unleash, values: [&str; 2]) -> bool {
    let before = table(admin).await;
    let [one, two] = values.map(|value| plan(&before, &[&format!("retry.max_attempts={value}")]));
    let alice = alice();
    let (first, second) = tokio::join!(admin.apply(&one, &alice), bob.apply(&two, &alice));
    let mut told = 0;
    for (outcome, other) in [(&first, "bob"), (&second, "admin")] {
        match outcome {
            Outcome::Conflict { .. } => told += 1,
            Outcome::Applied { beside: Some(words), .. } => {
                let expected = format!("{other} changed retry.max_attempts at the same time");
                assert!(words.starts_with(&expected), "{words}");
                told += 1;
            }
            Outcome::Applied { beside: None, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(told > 0, "a silent loss: {first:?} {second:?}");
    let stored = |outcome: &Outcome| matches!(outcome, Outcome::Applied { .. });
    stored(&first) && stored(&second)
}

#[tokio::test]
async fn of_two_racing_writers_at_least_one_is_told() {
    let world = World::new("race", &["retry.max_attempts"]).await;
    let (admin, bob) = (world.store(ADMIN), world.store(world.server.bob()));
    world.strategy("retry.max_attempts", "100", json!([])).await;
    let mut both_stored = 0;
    for round in 0..20 {
        let values = if round % 2 == 0 { ["1", "3"] } else { ["2", "4"] };
        both_stored += usize::from(race(&admin, &bob, values).await);
        let now = shown(&table(&admin).await, "retry.max_attempts");
        assert!(values.contains(&now.as_str()), "{now}");
    }
    println!("both writers stored in {both_stored} of 20 rounds");
}

#[tokio::test]
async fn two_racing_first_overrides_can_leave_no_one_value_and_the_way_back_is_open() {
    let world = World::new("first", &["retry.max_attempts"]).await;
    let (admin, bob) = (world.store(ADMIN), world.store(world.server.bob()));
    race(&admin, &bob, ["1", "3"]).await;
    let during = table(&admin).await;
    let now = shown(&during, "retry.max_attempts");
    assert!(["1", "3", "several strategies"].contains(&now.as_str()), "{now}");
    let drop = dropping(&during, "retry.max_attempts");
    assert_clean(&admin.apply(&drop, &alice()).await);
    assert_eq!(shown(&table(&admin).await, "retry.max_attempts"), "2");
}
