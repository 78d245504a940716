//! What callers get: a ticket at once, the answer later, and nothing of anybody else's.

use http::{Method, StatusCode};
use serde_json::json;

use crate::gateway::{
    EMBEDDINGS, Gate, LATER, Sim, WIDE, becomes, eventually, input, lane, page, ticket,
};

#[tokio::test]
async fn a_request_is_stored_answered_later_and_told_to_its_caller() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), &lane(folder.path(), "", ""), WIDE).await;
    let stored = gate.embed_with(&LATER, "later").await;
    assert_eq!(stored.header("preference-applied"), Some("respond-async"));
    assert_eq!(stored.header("x-weir-decision"), Some("deferred"));
    let place = ticket(&stored);
    let done = becomes(&gate, &place, "done").await;
    let inline = gate.embed("later").await.json();
    assert_eq!(done["response"]["status_code"], 200);
    assert_eq!(done["response"]["body"]["data"], inline["data"]);
    assert_eq!(done["response"]["headers"]["content-type"], "application/json");
    assert!(done["age_s"].is_number() && done["expires_s"].as_f64() > Some(80_000.0), "{done}");
    gate.reaches("weir_deferred_stored_total", &[], 1).await;
    gate.reaches("weir_deferred_completed_total", &[], 1).await;
    gate.reaches("weir_deferred_total", &[("lane", "batch")], 1).await;
}

#[tokio::test]
async fn a_preference_is_no_order_where_there_is_no_lane_and_batch_work_may_wait_inline() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let without = Gate::start(&sim.url(), "", WIDE).await;
    let inline = without.embed_with(&LATER, "a").await;
    assert_eq!(inline.status, StatusCode::OK);
    assert_eq!(inline.header("preference-applied"), None);
    let with = Gate::start(&sim.url(), &lane(folder.path(), "", ""), WIDE).await;
    assert_eq!(with.embed_with(&LATER[..1], "a").await.status, StatusCode::OK);
}

#[tokio::test]
async fn nobody_reads_what_another_key_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    // Any variable that is set will do for a key.
    let config = lane(folder.path(), "upstream_key_env = 'PATH'", "");
    let gate = Gate::start(&sim.url(), &config, WIDE).await;
    let mine = [LATER[0], LATER[1], ("authorization", "Bearer mine")];
    let place = ticket(&gate.embed_with(&mine, "a").await);
    for other in [&[][..], &[("authorization", "Bearer other")]] {
        let reply = page(&gate, &place, other).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (StatusCode::NOT_FOUND, "weir_deferred_unknown")
        );
    }
    assert_eq!(page(&gate, &place, &mine[2..]).await.status, StatusCode::OK);
    let guessed = page(&gate, "/v1/weir/deferred/1", &mine[2..]).await;
    assert_eq!(guessed.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_key_is_never_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), &lane(folder.path(), "", ""), WIDE).await;
    let keyed = [LATER[0], LATER[1], ("authorization", "Bearer secret-of-mine")];
    let refused = gate.embed_with(&keyed, "a").await;
    assert_eq!(refused.status, StatusCode::NOT_IMPLEMENTED);
    assert_eq!(refused.code(), "weir_deferred_key");
    assert!(refused.message().contains("upstream_key_env"), "{}", refused.message());
    let in_query = gate.post("/v1/embeddings?key=secret-of-mine", &LATER, &input("a")).await;
    assert_eq!(in_query.code(), "weir_deferred_key");

    let with_key = tempfile::tempdir().expect("a folder");
    let config = lane(with_key.path(), "upstream_key_env = 'PATH'", "");
    let gate = Gate::start(&sim.url(), &config, WIDE).await;
    let place = ticket(&gate.embed_with(&keyed, "a").await);
    eventually("done", async || {
        let page = page(&gate, &place, &keyed[2..]).await.json();
        (page["status"] == "done").then_some(())
    })
    .await;
    for folder in [folder, with_key] {
        for file in std::fs::read_dir(folder.path()).expect("a folder") {
            let bytes = std::fs::read(file.expect("readable").path()).expect("readable");
            assert!(memchr::memmem::find(&bytes, b"secret-of-mine").is_none());
        }
    }
}

#[tokio::test]
async fn the_same_idempotency_key_is_the_same_request_and_goes_on_to_the_provider() {
    let folder = tempfile::tempdir().expect("a folder");
    let provider = crate::gateway::Hand::saying(crate::gateway::answer("200 OK", "", "{}")).await;
    let gate = Gate::start(&provider.url(), &lane(folder.path(), "", ""), WIDE).await;
    let keyed = [LATER[0], LATER[1], ("idempotency-key", "order-7")];
    let chat = "/v1/chat/completions";
    let first = ticket(&gate.post(chat, &keyed, &input("a")).await);
    let again = ticket(&gate.post(chat, &keyed, &input("a")).await);
    assert_eq!(first, again);
    let other = gate.post(chat, &keyed, &input("b")).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(other.code(), "weir_idempotency_mismatch");
    becomes(&gate, &first, "done").await;
    let derived = ticket(&gate.post(chat, &LATER, &input("c")).await);
    becomes(&gate, &derived, "done").await;
    let heads = provider.heads();
    assert_eq!(heads.len(), 2, "{heads:?}");
    assert!(heads[0].contains("idempotency-key: order-7"), "{}", heads[0]);
    assert!(heads[1].contains("idempotency-key: weir-"), "{}", heads[1]);
}

#[tokio::test]
async fn the_same_text_is_embedded_once_for_all_that_ask() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), &lane(folder.path(), "", ""), WIDE).await;
    let mut places = Vec::new();
    for _ in 0..5 {
        places.push(ticket(&gate.embed_with(&LATER, "same").await));
    }
    let mut answers = Vec::new();
    for place in &places {
        answers.push(becomes(&gate, place, "done").await["response"]["body"].clone());
    }
    places.dedup();
    assert_eq!(places.len(), 5, "each has a ticket of its own");
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(sim.attempts().await, 1);
    gate.reaches("weir_deferred_merged_total", &[], 4).await;
}

#[tokio::test]
async fn the_lane_rests_while_batch_work_is_switched_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let before = "[flags]\n'lane.batch.enabled' = false";
    let gate = Gate::start(&sim.url(), &lane(folder.path(), before, ""), WIDE).await;
    let place = ticket(&gate.embed_with(&LATER, "a").await);
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(page(&gate, &place, &[]).await.json()["status"], "queued");
    assert_eq!(sim.attempts().await, 0);
    gate.reaches("weir_deferred_items", &[("state", "queued")], 1).await;
    let change = json!({
        "value": true, "reason": "test", "actor": "test", "request_id": "1", "on_expire": "remind",
    });
    let on = gate
        .ask(
            Method::PUT,
            "/admin/v1/flags/lane.batch.enabled",
            &[("if-match", "\"0\"")],
            &change.to_string(),
        )
        .await;
    assert_eq!(on.status, StatusCode::OK, "{}", on.text());
    becomes(&gate, &place, "done").await;
}

#[tokio::test]
async fn what_is_stored_is_done_by_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let off = "[flags]\n'lane.batch.enabled' = false";
    let gate = Gate::start(&sim.url(), &lane(folder.path(), off, ""), WIDE).await;
    let place = ticket(&gate.post(EMBEDDINGS, &LATER, &input("a")).await);
    drop(gate);
    let config = lane(folder.path(), "", "");
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let gate = Gate::start(&sim.url(), &config, WIDE).await;
    becomes(&gate, &place, "done").await;
}

#[tokio::test]
async fn no_more_is_stored_than_may_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let off = "[flags]\n'lane.batch.enabled' = false";
    let gate = Gate::start(&sim.url(), &lane(folder.path(), off, "items_max = 1"), WIDE).await;
    ticket(&gate.embed_with(&LATER, "a").await);
    gate.reaches("weir_deferred_items", &[("state", "queued")], 1).await;
    let refused = gate.embed_with(&LATER, "b").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.code(), "weir_deferred_store");
    assert!(refused.message().contains("items_max"), "{}", refused.message());
}

#[tokio::test]
async fn stored_work_leaves_interactive_work_what_it_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    // Ten requests a second; the lane has far more to do than that.
    let scope = "name = 'sim/main/all'\nrpm = 600\nburst_s = 0.5";
    let config = lane(folder.path(), "", "coalesce_inputs = 1");
    let gate = Gate::start(&sim.url(), &config, scope).await;
    for number in 0..60 {
        ticket(&gate.embed_with(&LATER, &format!("later {number}")).await);
    }
    for number in 0..15 {
        let reply = gate.embed(&format!("now {number}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{number}: {}", reply.text());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let metrics = gate.metrics().await;
    let shed = metrics.count("weir_shed_total", &[("lane", "interactive")]);
    let attempts = sim.attempts().await;
    assert_eq!(shed, 0);
    assert!(attempts < 60, "{attempts}: the lane keeps to the quota");
    gate.reaches("weir_deferred_completed_total", &[], 60).await;
    assert_eq!(sim.attempts().await, 75, "nothing is sent twice");
}
