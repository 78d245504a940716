//! Inline requests whose callers take "later" for an answer once they have waited.

use std::time::{Duration, Instant};

use http::StatusCode;

use crate::gateway::{EMBEDDINGS, Gate, Hand, Sim, WIDE, answer, becomes, input, lane, ticket};

#[tokio::test]
async fn a_good_answer_within_the_wait_is_an_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), &lane(folder.path(), "", ""), WIDE).await;
    let reply = gate.embed_with(&[("prefer", "respond-async, wait=10")], "a").await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.header("x-weir-attempts"), Some("1"));
}

#[tokio::test]
async fn a_wait_that_ends_is_a_ticket() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = answer("200 OK", "content-type: application/json\r\n", "{\"data\":[]}");
    let provider = Hand::start(move |number, mut stream| {
        let good = good.clone();
        async move {
            if number == 1 {
                tokio::time::sleep(Duration::from_secs(30)).await;
            }
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, good.as_bytes()).await;
        }
    })
    .await;
    let gate = Gate::start(&provider.url(), &lane(folder.path(), "", ""), WIDE).await;
    let began = Instant::now();
    let reply = gate.embed_with(&[("prefer", "respond-async, wait=1")], "a").await;
    let place = ticket(&reply);
    let took = began.elapsed().as_secs_f64();
    assert!((0.9..3.0).contains(&took), "{took}");
    becomes(&gate, &place, "done").await;
}

#[tokio::test]
async fn attempts_that_end_are_a_ticket_where_it_was_asked_for_and_the_answer_where_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let limited = answer("429 Too Many Requests", "", "{}");
    let good = answer("200 OK", "content-type: application/json\r\n", "{\"data\":[]}");
    let provider = Hand::start(move |number, mut stream| {
        let said = if number <= 2 { limited.clone() } else { good.clone() };
        async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, said.as_bytes()).await;
        }
    })
    .await;
    let before = "[flags]\n'retry.max_attempts' = 1";
    let gate = Gate::start(&provider.url(), &lane(folder.path(), before, ""), WIDE).await;
    assert_eq!(gate.embed("a").await.status, StatusCode::TOO_MANY_REQUESTS);
    let reply = gate.post(EMBEDDINGS, &[("prefer", "respond-async")], &input("b")).await;
    let place = ticket(&reply);
    gate.reaches("weir_deferred_total", &[("lane", "interactive")], 1).await;
    becomes(&gate, &place, "done").await;
}
