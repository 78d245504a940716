//! What is read, set, dropped and told, while nothing goes wrong.

use std::time::{Duration, Instant};

use serde_json::json;
use weir::flag::{Author, FlagTable, Outcome, Store as _};

use crate::server::{ADMIN, SDK};
use crate::support::{
    World, alice, assert_clean, dropping, plan, refusal, set, shown, store, table,
};

#[tokio::test]
async fn the_base_holds_where_nothing_is_on() {
    let world = World::new("base", &["retry.owner", "breaker.enabled"]).await;
    let table = table(&world.store(ADMIN)).await;
    let keys: Vec<_> = table.flags.iter().map(|flag| flag.key.as_str()).collect();
    assert_eq!(keys, ["retry.owner", "breaker.enabled"], "the rest has no feature");
    let flag = table.get("retry.owner").expect("in the table");
    assert_eq!((flag.overridden.as_ref(), flag.by.as_deref()), (None, None));
    assert_eq!(shown(&table, "breaker.enabled"), "true");
}

#[tokio::test]
async fn values_are_set_and_dropped_and_the_history_says_by_whom() {
    let keys = ["retry.max_attempts", "retry.owner", "cache.enabled", "retry.budget_ratio"];
    let world = World::new("values", &keys).await;
    let (admin, bob) = (world.store(ADMIN), world.store(world.server.bob()));
    let begin = table(&admin).await.revision;
    assert_clean(&set(&admin, &["retry.max_attempts=3", "retry.owner=client"]).await);
    assert_clean(&set(&bob, &["retry.max_attempts=4", "cache.enabled=true"]).await);
    assert_clean(&set(&bob, &["retry.budget_ratio=0.05"]).await);
    let during = table(&admin).await;
    for (key, value) in keys.iter().zip(["4", "client", "true", "0.05"]) {
        assert_eq!(shown(&during, key), value, "{key}");
    }
    let attempts = during.get("retry.max_attempts").expect("in the table");
    assert_eq!(attempts.by.as_deref(), Some("bob"));
    assert!(attempts.revision > begin && attempts.revision < during.revision);

    let drop = dropping(&during, "retry.max_attempts");
    assert_clean(&bob.apply(&drop, &alice()).await);
    let after = table(&admin).await;
    assert_eq!(after.get("retry.max_attempts").expect("in the table").overridden, None);

    let events = admin.events(begin.0).await.expect("an answer");
    let told: Vec<_> = events
        .iter()
        .flat_map(|event| event.changes.iter().map(|change| (event.actor.as_str(), change)))
        .filter(|(_, change)| change.key == "retry.max_attempts")
        .map(|(actor, change)| {
            format!("{actor}: {} -> {}", change.value_before(), change.value_after())
        })
        .collect();
    assert_eq!(told, ["admin: 2 -> 3", "bob: 3 -> 4", "bob: 4 -> 2"]);
    assert!(events.is_sorted_by_key(|event| event.seq));
    let last = events.last().expect("there are some").seq;
    assert_eq!(after.revision.0, last, "the newest event is the revision");
    assert_eq!(admin.events(last).await.expect("an answer"), []);

    // What was prepared is replaced before it is switched on again.
    assert_clean(&set(&admin, &["retry.max_attempts=1"]).await);
    let last = admin.events(last).await.expect("an answer");
    let last: Vec<_> = last.iter().flat_map(|event| &event.changes).collect();
    assert_eq!(last.len(), 1, "4 was never in force again: {last:?}");
    assert_eq!(last[0].value_after().to_string(), "1");
}

#[tokio::test]
async fn a_repeat_of_the_same_values_writes_nothing() {
    let world = World::new("repeat", &["retry.max_attempts", "breaker.enabled"]).await;
    let store = world.store(ADMIN);
    let mut plan = plan(&table(&store).await, &["retry.max_attempts=1", "breaker.enabled=false"]);
    assert_clean(&store.apply(&plan, &alice()).await);
    let once = table(&store).await;
    plan.revision = once.revision;
    for change in &mut plan.changes {
        change.from = change.to.clone();
    }
    assert_eq!(store.apply(&plan, &alice()).await, Outcome::applied(once.revision));
    assert_eq!(table(&store).await, once);
}

#[tokio::test]
async fn features_that_weir_did_not_make_are_shown_as_what_they_are() {
    let keys = ["breaker.enabled", "retry.owner", "queue.max_depth", "retry.max_attempts"];
    let world = World::new("foreign", &keys).await;
    let on = |key: &str| format!("{}/on", world.in_environment(key));
    world.strategy("retry.owner", "100", json!([])).await;
    world.strategy("retry.owner", "100", json!([])).await;
    world.strategy("queue.max_depth", "20", json!([])).await;
    for key in keys {
        world.server.send("POST", &on(key), None).await;
    }
    let store = world.store(ADMIN);
    let before = table(&store).await;
    assert_eq!(shown(&before, "breaker.enabled"), "true", "a plain toggle");
    assert_eq!(shown(&before, "retry.owner"), "several strategies");
    assert_eq!(shown(&before, "queue.max_depth"), "a partial rollout");
    assert_eq!(shown(&before, "retry.max_attempts"), "on without a value");
    for words in ["retry.owner=client", "queue.max_depth=8"] {
        let why = refusal(set(&store, &[words, "retry.max_attempts=1"]).await);
        assert!(why.contains("leave it one strategy"), "{why}");
    }
    assert_eq!(table(&store).await, before, "nothing was written before the refusal");
    assert_clean(&set(&store, &["retry.max_attempts=1"]).await);
    assert_eq!(shown(&table(&store).await, "retry.max_attempts"), "1");
}

#[tokio::test]
async fn what_sdks_are_served_stands_apart_until_it_is_the_same() {
    let world = World::new("served", &["retry.max_attempts"]).await;
    let store = store(world.server.url(), &world.prefix, ADMIN, Some(SDK));
    assert!(store.capabilities().effective && !world.store(ADMIN).capabilities().effective);
    let served = |table: &FlagTable| {
        let flag = table.get("retry.max_attempts").expect("in the table");
        flag.effective.get("sdk").map(ToString::to_string)
    };
    while served(&table(&store).await).is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Unleash looks for news each second; the flip must not fall just before that.
    for value in ["1", "3", "1", "3", "1", "3"] {
        assert_clean(&set(&store, &[&format!("retry.max_attempts={value}")]).await);
        let (begun, mut lagged) = (Instant::now(), false);
        loop {
            let now = table(&store).await;
            assert_eq!(shown(&now, "retry.max_attempts"), value);
            if served(&now).as_deref() == Some(value) {
                break;
            }
            lagged = true;
            assert!(begun.elapsed() < Duration::from_secs(20), "never served");
        }
        if lagged {
            println!("stored at once, served after {:?}", begun.elapsed());
            return;
        }
    }
    panic!("what is served was never behind what is stored");
}

#[tokio::test]
async fn an_incident_that_is_a_page_is_linked_to_the_feature() {
    let world = World::new("link", &["retry.max_attempts"]).await;
    let store = world.store(ADMIN);
    let incident = Some("https://incidents.example.org/INC-42".to_owned());
    let author = Author { incident, ..alice() };
    let plan = plan(&table(&store).await, &["retry.max_attempts=1"]);
    assert_clean(&store.apply(&plan, &author).await);
    let feature = world.server.send("GET", &world.feature("retry.max_attempts"), None).await;
    let link = &feature["links"][0];
    assert_eq!(link["url"], "https://incidents.example.org/INC-42");
    assert_eq!(link["title"], "storm", "the reason");
}
