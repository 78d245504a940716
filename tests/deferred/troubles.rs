//! What goes wrong: a request that can never succeed, a provider that refuses for a while, a store that
//! is full.

use std::process::Command;

use http::{Method, StatusCode};
use serde_json::json;

use crate::gateway::{
    EMBEDDINGS, Gate, Hand, Http, LATER, Sim, WIDE, answer, becomes, eventually, input, lane, page,
    ticket,
};
use crate::process::Process;

const DEFERRED: &str = "/admin/v1/deferred";

#[tokio::test]
async fn what_can_never_succeed_is_a_dead_letter_with_the_providers_words() {
    let folder = tempfile::tempdir().expect("a folder");
    for (status, code) in [
        ("400 Bad Request", "context_length_exceeded"),
        ("404 Not Found", "model_not_found"),
        ("413 Payload Too Large", "too_large"),
        ("422 Unprocessable Entity", "invalid"),
    ] {
        let body = json!({"error": {"message": format!("words about {code}"),
            "type": "invalid_request_error", "param": null, "code": code}});
        let json = "content-type: application/json\r\n";
        let provider = Hand::saying(answer(status, json, &body.to_string())).await;
        let folder = folder.path().join(code);
        let gate = Gate::start(&provider.url(), &lane(&folder, "", ""), WIDE).await;
        let place = ticket(&gate.embed_with(&LATER, "secret prompt").await);
        let dead = becomes(&gate, &place, "dead").await;
        assert_eq!(dead["response"]["body"], body, "{code}");
        assert_eq!(provider.heads().len(), 1, "{code}: it is not repeated");
        gate.reaches("weir_deferred_dead_total", &[], 1).await;
        gate.reaches("weir_deferred_items", &[("state", "dead")], 1).await;

        let page = gate.ask(Method::GET, DEFERRED, &[], "").await;
        assert!(!page.text().contains("secret prompt"), "{}", page.text());
        let letter = page.json()["dead"][0].clone();
        assert_eq!(letter["path"], EMBEDDINGS);
        assert!(letter["status"].as_u64().is_some_and(|status| status >= 400), "{letter}");
    }
}

#[tokio::test]
async fn an_operator_requeues_or_deletes_a_dead_letter_with_a_reason_that_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    sim.script("bad_request:2").await;
    let gate = Gate::start(&sim.url(), &lane(folder.path(), "", ""), WIDE).await;
    let places = [
        ticket(&gate.embed_with(&LATER, "one").await),
        ticket(&gate.embed_with(&LATER, "two").await),
    ];
    for place in &places {
        becomes(&gate, place, "dead").await;
    }
    let letters = gate.ask(Method::GET, DEFERRED, &[], "").await.json()["dead"].clone();
    let of = |place: usize| format!("{DEFERRED}/{}", letters[place]["id"].as_str().expect("an id"));
    let body = |number: u32| {
        json!({"reason": "the model is back", "actor": "eve", "request_id": number.to_string()})
            .to_string()
    };
    let refused = gate.ask(Method::POST, &of(0), &[], "{}").await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let url = format!("{}{}", gate.admin, of(0));
    let stranger = gate.http.send(Method::POST, &url, &[], &body(1)).await;
    assert_eq!(stranger.status, StatusCode::UNAUTHORIZED);
    // The newest first.
    let requeued = gate.ask(Method::POST, &of(0), &[], &body(2)).await;
    assert_eq!(requeued.status, StatusCode::NO_CONTENT, "{}", requeued.text());
    becomes(&gate, &places[1], "done").await;
    let deleted = gate.ask(Method::DELETE, &of(1), &[], &body(3)).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text());
    assert_eq!(page(&gate, &places[0], &[]).await.status, StatusCode::NOT_FOUND);
    let gone = gate.ask(Method::DELETE, &of(1), &[], &body(4)).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    let events = gate.ask(Method::GET, "/admin/v1/events?since=0", &[], "").await.text();
    assert!(events.contains("requeued: the model is back") && events.contains("eve"), "{events}");
    assert!(events.contains("deleted: the model is back"), "{events}");
}

#[tokio::test]
async fn a_refusal_of_the_provider_puts_the_item_back_for_as_long_as_it_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let limited = answer("429 Too Many Requests", "retry-after: 9\r\n", "{}");
    let good = answer("200 OK", "content-type: application/json\r\n", "{\"data\":[]}");
    let provider = Hand::start(move |number, mut stream| {
        let said = if number == 1 { limited.clone() } else { good.clone() };
        async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, said.as_bytes()).await;
        }
    })
    .await;
    let before = "[flags]\n'retry.max_attempts' = 1";
    let gate = Gate::start(&provider.url(), &lane(folder.path(), before, ""), WIDE).await;
    let began = std::time::Instant::now();
    let place = ticket(&gate.embed_with(&LATER, "a").await);
    let done = becomes(&gate, &place, "done").await;
    assert_eq!(done["attempts"], 2);
    assert!(began.elapsed().as_secs_f64() >= 9.0, "{:?}", began.elapsed());
    gate.reaches("weir_deferred_put_back_total", &[], 1).await;
}

#[tokio::test]
async fn an_exhausted_account_pauses_and_kills_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let body = json!({"error": {"message": "You exceeded your current quota",
        "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}});
    let provider = Hand::saying(answer("429 Too Many Requests", "", &body.to_string())).await;
    let gate =
        Gate::start(&provider.url(), &lane(folder.path(), "", "attempts_max = 1"), WIDE).await;
    let mut places = Vec::new();
    for number in 0..4 {
        places.push(ticket(
            &gate.post("/v1/chat/completions", &LATER, &input(&number.to_string())).await,
        ));
    }
    gate.reaches("weir_deferred_put_back_total", &[], 1).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    for place in &places {
        assert_eq!(page(&gate, place, &[]).await.json()["status"], "queued");
    }
    assert!(provider.heads().len() <= 8, "{}", provider.heads().len());
    assert_eq!(gate.metrics().await.count("weir_deferred_dead_total", &[]), 0);
}

#[tokio::test]
async fn a_full_store_is_said_so_and_inline_traffic_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let off = "[flags]\n'lane.batch.enabled' = false";
    let config = lane(folder.path(), off, "bytes_max = 300_000");
    let gate = Gate::start(&sim.url(), &config, WIDE).await;
    let mut places = Vec::new();
    let refused = loop {
        let text = format!("{} {}", places.len(), "x".repeat(20_000));
        let reply = gate.embed_with(&LATER, &text).await;
        if reply.status != StatusCode::ACCEPTED {
            break reply;
        }
        places.push(ticket(&reply));
        assert!(places.len() < 100, "the store takes more than it may");
    };
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "weir_deferred_store")
    );
    assert!(refused.message().contains("full"), "{}", refused.message());
    assert!(places.len() > 3, "{}", places.len());
    assert_eq!(gate.embed("inline").await.status, StatusCode::OK);
    gate.reaches("weir_deferred_not_stored_total", &[], 1).await;
    for place in &places {
        assert_eq!(page(&gate, place, &[]).await.json()["status"], "queued");
    }
    drop(gate);
    // With room again everything that was said to be stored is done, and nothing else.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let gate = Gate::start(&sim.url(), &lane(folder.path(), "", "coalesce_inputs = 1"), WIDE).await;
    for place in &places {
        becomes(&gate, place, "done").await;
    }
    gate.reaches("weir_deferred_completed_total", &[], places.len() as u64).await;
    assert_eq!(sim.attempts().await, places.len() as u64 + 1);
}

#[tokio::test]
async fn results_are_forgotten_when_their_time_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), &lane(folder.path(), "", "result_ttl_s = 2.0"), WIDE).await;
    let place = ticket(&gate.embed_with(&LATER, "a").await);
    becomes(&gate, &place, "done").await;
    eventually("it is forgotten", async || {
        (page(&gate, &place, &[]).await.status == StatusCode::NOT_FOUND).then_some(())
    })
    .await;
}

/// A gateway whose files may not grow beyond so many KiB: to it the disk is full.
fn with_small_files(folder: &std::path::Path, config: &str, kib: u32) -> Process {
    let file = folder.join("weir.toml");
    std::fs::write(&file, config).expect("writable");
    let script =
        format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" gateway -c \"$1\" --exit-on-stdin-eof");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).arg(&file);
    Process::of(&mut bash, folder)
}

#[tokio::test]
async fn a_disk_that_takes_no_more_is_said_so_and_what_was_stored_is_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let path = folder.path().join("deferred.db");
    let flags = "[gateway.flags]\n'lane.batch.enabled' = false\n";
    let config = |flags: &str| {
        format!(
            "[gateway]\nlisten = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\nupstream = '{}'\n\
             {flags}[gateway.deferred]\npath = '{}'\n[[scope]]\n{WIDE}",
            sim.url(),
            path.display()
        )
    };
    let gateway = with_small_files(folder.path(), &config(flags), 400);
    let http = Http::new();
    let url = format!("http://{}{EMBEDDINGS}", gateway.address("data"));
    let mut places = Vec::new();
    let refused = loop {
        let body = input(&format!("{} {}", places.len(), "x".repeat(20_000)));
        let reply = http.send(Method::POST, &url, &LATER, &body).await;
        if reply.status != StatusCode::ACCEPTED {
            break reply;
        }
        places.push(ticket(&reply));
        assert!(places.len() < 200, "the file grows beyond its limit");
    };
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert_eq!(refused.code(), "weir_deferred_store");
    let inline = http.send(Method::POST, &url, &[], &input("inline")).await;
    assert_eq!(inline.status, StatusCode::OK, "{}", inline.text());
    drop(gateway);
    assert!(places.len() > 3, "{}", places.len());
    let gate = Gate::start(&sim.url(), &lane(folder.path(), "", ""), WIDE).await;
    for place in &places {
        becomes(&gate, place, "done").await;
    }
    gate.reaches("weir_deferred_completed_total", &[], places.len() as u64).await;
}
