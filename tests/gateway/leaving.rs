//! Callers that go away: whatever they held is free again, in the queue, in a backoff, upstream.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Gate, Hand, WIDE, answer, input};

/// Sends a request over a connection of its own; dropping it is what a caller does that gives up.
async fn ask(gate: &Gate, text: &str) -> TcpStream {
    let body = input(text);
    let mut stream = TcpStream::connect(gate.data_host()).await.expect("it listens");
    let head = format!(
        "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream
}

#[tokio::test]
async fn from_upstream_and_from_the_queue() {
    let hand = Hand::silent().await;
    let gate = Gate::start(&hand.url(), "[flags]\n'admission.max_in_flight' = 1", WIDE).await;
    let held = ask(&gate, "held").await;
    gate.reaches("weir_upstream_open", &[], 1).await;
    let (first, second) = (ask(&gate, "first").await, ask(&gate, "second").await);
    gate.reaches("weir_queue_depth", &[], 2).await;

    drop(first);
    gate.reaches("weir_cancelled_total", &[("stage", "queue")], 1).await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_queue_depth", &[]), 1);
    assert_eq!(metrics.count("weir_permits_in_use", &[]), 1);

    // The permit goes to the one that still waits.
    drop(held);
    gate.reaches("weir_cancelled_total", &[("stage", "upstream")], 1).await;
    gate.reaches("weir_attempts_total", &[], 2).await;
    assert_eq!(hand.heads().len(), 2);
    drop(second);
    gate.reaches("weir_cancelled_total", &[("stage", "upstream")], 2).await;
    gate.idle().await;
}

#[tokio::test]
async fn from_a_backoff() {
    let hinted = answer("429 Too Many Requests", "retry-after: 5\r\n", "{}");
    let hand = Hand::saying(hinted).await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let caller = ask(&gate, "a").await;
    gate.reaches("weir_attempt_results_total", &[("status", "429")], 1).await;
    drop(caller);
    gate.reaches("weir_cancelled_total", &[("stage", "backoff")], 1).await;
    gate.idle().await;
    assert_eq!(hand.heads().len(), 1, "nobody waits for the second try");
}

#[tokio::test]
async fn from_the_middle_of_an_answer() {
    let hand = Hand::start(|_, mut stream| async move {
        let part = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let _ = stream.write_all(part.as_bytes()).await;
        // The gateway closes its side when the caller has gone.
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let mut caller = ask(&gate, "a").await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"hello\r\n") {
        let mut byte = [0; 256];
        let read = caller.read(&mut byte).await.expect("it answers");
        assert!(read > 0, "the answer goes on");
        seen.extend_from_slice(&byte[..read]);
    }
    drop(caller);
    gate.reaches("weir_cancelled_total", &[("stage", "upstream")], 1).await;
    gate.idle().await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_completed_total", &[]), 0);
}

#[tokio::test]
async fn all_at_once_leave_nothing_behind() {
    let hand = Hand::silent().await;
    let scope = format!("{WIDE}\npermits = 'fixed'");
    let gate = Gate::start(&hand.url(), "[flags]\n'admission.max_in_flight' = 8", &scope).await;
    let mut callers = Vec::new();
    for number in 0..40 {
        callers.push(ask(&gate, &number.to_string()).await);
    }
    gate.reaches("weir_offered_total", &[], 40).await;
    gate.reaches("weir_upstream_open", &[], 8).await;
    drop(callers);
    gate.reaches("weir_cancelled_total", &[], 40).await;
    gate.idle().await;
}
