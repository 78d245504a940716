//! The lane in a Redis does what the lane in a file does.

use http::{Method, StatusCode};
use serde_json::json;

use crate::gateway::{EMBEDDINGS, Gate, LATER, Sim, WIDE, becomes, input, page, ticket};
use crate::redis_server::RedisServer;

fn lane(server: &RedisServer, more: &str) -> String {
    format!("[deferred]\nredis = '{}'\n{more}", server.url())
}

#[tokio::test]
async fn two_instances_share_what_is_stored() {
    let server = RedisServer::start();
    let sim = Sim::start("").await;
    let one = Gate::start(&sim.url(), &lane(&server, ""), WIDE).await;
    let two = Gate::start(&sim.url(), &lane(&server, ""), WIDE).await;
    let keyed = [LATER[0], LATER[1], ("idempotency-key", "k")];
    let place = ticket(&one.embed_with(&keyed, "a").await);
    assert_eq!(ticket(&two.embed_with(&keyed, "a").await), place);
    let other = two.embed_with(&keyed, "b").await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", other.text());
    let done = becomes(&two, &place, "done").await;
    assert_eq!(done["response"]["body"]["data"], one.embed("a").await.json()["data"]);
    assert!(done["expires_s"].as_f64() > Some(80_000.0), "{done}");
    // The same text again is there already.
    let again = ticket(&two.embed_with(&LATER, "a").await);
    assert_ne!(again, place);
    becomes(&one, &again, "done").await;
    assert_eq!(sim.attempts().await, 2);
    let stranger = page(&one, &place, &[("authorization", "Bearer other")]).await;
    assert_eq!(stranger.status, StatusCode::NOT_FOUND);
    one.reaches("weir_deferred_items", &[("state", "done")], 1).await;
}

#[tokio::test]
async fn small_requests_go_together_and_letters_are_requeued_and_deleted() {
    let server = RedisServer::start();
    let sim = Sim::start("").await;
    sim.script("bad_request:2").await;
    let gate = Gate::start(&sim.url(), &lane(&server, "coalesce_inputs = 1"), WIDE).await;
    let first = ticket(&gate.embed_with(&LATER, "one").await);
    let second = ticket(&gate.embed_with(&LATER, "two").await);
    for place in [&first, &second] {
        assert_eq!(becomes(&gate, place, "dead").await["response"]["status_code"], 400);
    }
    let path = "/admin/v1/deferred";
    let list = gate.ask(Method::GET, path, &[], "").await.json();
    let letters = list["dead"].as_array().expect("letters").clone();
    assert_eq!(letters.len(), 2, "{list}");
    let of = |place: usize| format!("{path}/{}", letters[place]["id"].as_str().expect("an id"));
    let body = |id: &str| json!({"reason": "r", "actor": "a", "request_id": id}).to_string();
    let done = gate.ask(Method::POST, &of(0), &[], &body("1")).await;
    assert_eq!(done.status, StatusCode::NO_CONTENT, "{}", done.text());
    let done = gate.ask(Method::DELETE, &of(1), &[], &body("2")).await;
    assert_eq!(done.status, StatusCode::NO_CONTENT, "{}", done.text());
    // Which of the two died last is not said.
    let mut ends = Vec::new();
    for place in [&first, &second] {
        let page = page(&gate, place, &[]).await;
        ends.push((page.status, place));
    }
    let gone = ends.iter().filter(|(status, _)| *status == StatusCode::NOT_FOUND).count();
    assert_eq!(gone, 1, "{ends:?}");
    let (_, left) = ends.iter().find(|(status, _)| *status == StatusCode::OK).expect("one");
    becomes(&gate, left, "done").await;
    drop(gate);

    let off = "[flags]\n'lane.batch.enabled' = false\n";
    let gate = Gate::start(&sim.url(), &format!("{off}{}", lane(&server, "")), WIDE).await;
    let mut places = Vec::new();
    for number in 0..20 {
        places.push(ticket(&gate.post(EMBEDDINGS, &LATER, &input(&format!("n {number}"))).await));
    }
    drop(gate);
    let before = sim.attempts().await;
    let gate = Gate::start(&sim.url(), &lane(&server, ""), WIDE).await;
    for place in &places {
        becomes(&gate, place, "done").await;
    }
    let attempts = sim.attempts().await - before;
    assert!(attempts <= 3, "{attempts} requests for 20");
}

#[tokio::test]
async fn a_server_that_is_gone_is_said_so_and_comes_back() {
    let mut server = RedisServer::start();
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), &lane(&server, ""), WIDE).await;
    becomes(&gate, &ticket(&gate.embed_with(&LATER, "a").await), "done").await;
    server.kill();
    let refused = gate.embed_with(&LATER, "b").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert_eq!(refused.code(), "weir_deferred_store");
    assert_eq!(gate.embed("inline").await.status, StatusCode::OK);
    assert_eq!(gate.metrics().await.count("weir_deferred_store_up", &[]), 0);
    server.restart();
    crate::gateway::eventually("the store is back", async || {
        let reply = gate.embed_with(&LATER, "c").await;
        (reply.status == StatusCode::ACCEPTED).then_some(())
    })
    .await;
    gate.reaches("weir_deferred_store_up", &[], 1).await;
}

#[tokio::test]
async fn requests_that_do_not_go_together_do_not_wait_for_each_other() {
    let server = RedisServer::start();
    let slow = "latency = { base_ms = 300, spread_ms = 0, per_open_call_ms = 0 }";
    let sim = Sim::start(slow).await;
    let gate = Gate::start(&sim.url(), &lane(&server, ""), WIDE).await;
    let began = std::time::Instant::now();
    let mut places = Vec::new();
    for number in 0..24 {
        let body = json!({"model": format!("m{number}"), "input": "a"}).to_string();
        places.push(ticket(&gate.post(EMBEDDINGS, &LATER, &body).await));
    }
    for place in &places {
        becomes(&gate, place, "done").await;
    }
    let took = began.elapsed().as_secs_f64();
    assert!(took < 24.0 * 0.3 / 2.0, "{took} s: one after the other");
    assert_eq!(sim.attempts().await, 24);
}
