//! What goes wrong on sockets, on either side: a clear answer, a count, nothing held, others unharmed.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::eventually::PATIENCE;
use crate::support::{EMBEDDINGS, Gate, Hand, Http, Sim, WIDE, answer, input};

/// What a gateway says to these bytes, until it closes.
async fn said(gate: &Gate, bytes: &[u8]) -> String {
    let stream = TcpStream::connect(gate.data_host()).await.expect("it listens");
    let (mut read, mut write) = stream.into_split();
    let mut said = Vec::new();
    let talk = async {
        // Who is refused early may be cut short while it still writes.
        tokio::join!(write.write_all(bytes), read.read_to_end(&mut said))
    };
    tokio::time::timeout(PATIENCE, talk).await.expect("it closes").1.expect("no reset");
    String::from_utf8_lossy(&said).into_owned()
}

fn head(more: &str) -> String {
    format!("POST {EMBEDDINGS} HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n{more}")
}

async fn faults_of_clients(gate: &Gate, reason: &str) -> u64 {
    gate.metrics().await.count("weir_client_faults_total", &[("reason", reason)])
}

#[tokio::test]
async fn a_head_of_a_megabyte_and_one_of_too_many_fields_are_answered_with_431() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let large = head(&format!("x-large: {}\r\n\r\n", "x".repeat(1024 * 1024)));
    let many = head(&format!("{}\r\n", "x-more: 1\r\n".repeat(200)));
    for (number, text) in (1..).zip([large, many]) {
        let said = said(&gate, text.as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
        gate.reaches("weir_client_faults_total", &[("reason", "head_too_large")], number).await;
    }
    assert_eq!(gate.metrics().await.count("weir_offered_total", &[]), 0);
    assert_eq!(gate.embed("others").await.status, 200);
}

#[tokio::test]
async fn a_head_within_its_bound_is_read_and_one_beyond_is_not() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "[transport]\nhead_max = 16384", WIDE).await;
    let body = input("a");
    for (bytes, status) in [(14_000, "200"), (18_000, "431")] {
        let (large, length) = ("x".repeat(bytes), body.len());
        let text = head(&format!("x-large: {large}\r\ncontent-length: {length}\r\n\r\n{body}"));
        let said = said(&gate, text.as_bytes()).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}: {said}");
    }
    gate.idle().await;
}

#[tokio::test]
async fn a_client_that_dribbles_its_head_is_cut_off_and_one_that_idles_is_no_fault() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "[transport]\nhead_timeout_s = 0.3", WIDE).await;
    let mut dribbles = TcpStream::connect(gate.data_host()).await.expect("it listens");
    let dribble = async {
        for byte in head("x-slow: ").bytes().cycle() {
            if dribbles.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, dribble).await.expect("it is cut off");
    // The beginning of what might be HTTP/2, and no more of it.
    let mut begins = TcpStream::connect(gate.data_host()).await.expect("it listens");
    begins.write_all(b"PR").await.expect("it reads");
    assert_eq!(begins.read(&mut [0; 16]).await.unwrap_or(0), 0);
    gate.reaches("weir_client_faults_total", &[("reason", "head_slow")], 2).await;
    let mut idles = TcpStream::connect(gate.data_host()).await.expect("it listens");
    let body = input("a");
    let whole = head(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    let whole = whole.replace("connection: close\r\n", "");
    idles.write_all(whole.as_bytes()).await.expect("it reads");
    let mut said = String::new();
    idles.read_to_string(&mut said).await.expect("an answer, and later the end");
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    assert_eq!(faults_of_clients(&gate, "head_slow").await, 2);
    gate.idle().await;
}

#[tokio::test]
async fn whoever_finds_no_room_waits_for_it() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "[transport]\nconnections_max = 2", WIDE).await;
    let connect = || TcpStream::connect(gate.data_host());
    let first = connect().await.expect("it listens");
    let second = connect().await.expect("it listens");
    gate.reaches("weir_client_connections", &[], 2).await;
    let mut third = connect().await.expect("the system takes it meanwhile");
    let body = input("a");
    let request = head(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    third.write_all(request.as_bytes()).await.expect("it is kept for later");
    let early = tokio::time::timeout(Duration::from_millis(50), third.read(&mut [0; 1])).await;
    assert!(early.is_err(), "there is no room: {early:?}");
    drop(first);
    let mut said = String::new();
    third.read_to_string(&mut said).await.expect("an answer");
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    drop(second);
}

#[tokio::test]
async fn what_is_no_http_is_told_apart() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let said = said(&gate, b"\x16\x03\x01 this is TLS, say\r\n\r\n").await;
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{said}");
    gate.reaches("weir_client_faults_total", &[("reason", "not_http")], 1).await;
    assert_eq!(gate.embed("others").await.status, 200);
}

#[tokio::test]
async fn a_body_of_a_hundred_megabytes_is_refused_while_it_comes() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let size = 100 * 1024 * 1024;
    let declared = format!("content-length: {size}\r\n\r\n");
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{size:x}\r\n");
    for (number, (framing, end)) in (1..).zip([(declared, ""), (chunked, "\r\n0\r\n\r\n")]) {
        let mut bytes = head(&framing).into_bytes();
        bytes.resize(bytes.len() + size, b' ');
        bytes.extend_from_slice(end.as_bytes());
        let said = said(&gate, &bytes).await;
        assert!(
            said.starts_with("HTTP/1.1 413 ") && said.contains("weir_body_too_large"),
            "{said}"
        );
        assert!(said.contains("gateway.body_max"), "{said}");
        assert_eq!(faults_of_clients(&gate, "body_too_large").await, number);
    }
    assert_eq!(gate.metrics().await.count("weir_offered_total", &[]), 0);
    assert_eq!(gate.embed("others").await.status, 200);
}

#[tokio::test]
async fn who_asks_before_a_large_body_is_refused_before_it_is_sent() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let said =
        said(&gate, head("expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n").as_bytes())
            .await;
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
}

#[tokio::test]
async fn a_body_that_says_it_is_json_and_is_none_costs_no_quota() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    for headers in [&[("content-type", "application/json; charset=utf-8")][..], &[]] {
        let reply = gate.post(EMBEDDINGS, headers, "{\"model\": \"m\", \"input\": ").await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (400, "weir_body_not_json"));
        assert!(reply.message().contains("line 1 column"), "{}", reply.message());
    }
    assert_eq!(sim.attempts().await, 0);
    assert_eq!(faults_of_clients(&gate, "body_not_json").await, 2);
    // JSON of another form, and what says that it is none, are the provider's to judge.
    for (kind, body) in [("application/json", "[1]"), ("multipart/form-data; boundary=x", "--x")] {
        let reply = gate.post("/v1/files", &[("content-type", kind)], body).await;
        assert!(reply.header("x-weir-attempts").is_some(), "{kind}: {}", reply.text());
    }
    gate.idle().await;
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_told_apart() {
    let gate = Gate::start("http://no-such-host.invalid", "", WIDE).await;
    let reply = gate.embed("a").await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (502, "weir_upstream_dns"));
    assert!(reply.message().contains("no-such-host.invalid"), "{}", reply.message());
    assert_eq!(reply.header("x-weir-attempts"), Some("0"));
    gate.idle().await;
    let metrics = gate.metrics().await;
    assert!(metrics.count("weir_upstream_faults_total", &[("reason", "dns")]) >= 1);
    assert_eq!(metrics.count("weir_attempts_total", &[]), 0);
}

/// A provider that begins an answer and then does as it is told with the connection.
async fn begins<F>(then: fn(TcpStream) -> F) -> Hand
where
    F: Future<Output = ()> + Send + 'static,
{
    Hand::start(move |_, mut stream| async move {
        let begin = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let _ = stream.write_all(begin.as_bytes()).await;
        then(stream).await;
    })
    .await
}

/// An answer that must not look whole.
async fn is_cut(gate: &Gate) {
    let url = format!("{}{EMBEDDINGS}", gate.data);
    let response = Http::new().open(Method::POST, &url, &[], &input("a")).await;
    assert_eq!(response.status(), 200);
    let body = http_body_util::BodyExt::collect(response.into_body());
    let body = tokio::time::timeout(PATIENCE, body).await.expect("it ends");
    assert!(body.is_err(), "the caller must not take a part for the whole");
}

#[tokio::test]
async fn a_provider_that_resets_in_the_middle_of_an_answer_is_noticed_by_the_caller() {
    let hand = begins(|stream| async move {
        // What is unread when a socket closes is answered with a reset; so is this.
        let _ = stream.set_zero_linger();
    })
    .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    is_cut(&gate).await;
    gate.reaches("weir_completed_total", &[("outcome", "error")], 1).await;
    gate.idle().await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_upstream_faults_total", &[("reason", "broken")]), 1);
    assert_eq!(metrics.count("weir_cancelled_total", &[]), 0);
}

#[tokio::test]
async fn a_provider_that_falls_silent_in_the_middle_of_an_answer_is_left() {
    let hand = begins(|mut stream| async move {
        // Until the gateway closes its side.
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await;
    let gate = Gate::start(&hand.url(), "[transport]\nstream_idle_timeout_s = 0.2", WIDE).await;
    is_cut(&gate).await;
    gate.reaches("weir_upstream_faults_total", &[("reason", "silent")], 1).await;
    gate.reaches("weir_completed_total", &[("outcome", "error")], 1).await;
    gate.idle().await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_upstream_connections", &[]), 0, "nobody knows what comes on it");
    assert_eq!(metrics.count("weir_cancelled_total", &[]), 0);
}

#[tokio::test]
async fn a_slow_stream_that_never_falls_silent_is_left_alone() {
    let hand = begins(|mut stream| async move {
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let _ = stream.write_all(b"1\r\n.\r\n").await;
        }
        let _ = stream.write_all(b"0\r\n\r\n").await;
    })
    .await;
    let gate = Gate::start(&hand.url(), "[transport]\nstream_idle_timeout_s = 0.6", WIDE).await;
    let reply = gate.embed("a").await;
    assert_eq!((reply.status.as_u16(), reply.text().as_str()), (200, "hello........"));
    gate.idle().await;
}

#[tokio::test]
async fn a_caller_that_takes_nothing_of_its_answer_does_not_keep_its_permit() {
    let hand = Hand::start(|_, mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let part = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while stream.write_all(part.as_bytes()).await.is_ok() {}
    })
    .await;
    let gate = Gate::start(&hand.url(), "[transport]\nwrite_timeout_s = 0.3", WIDE).await;
    let mut stalls = TcpStream::connect(gate.data_host()).await.expect("it listens");
    let body = input("a");
    let request = head(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stalls.write_all(request.as_bytes()).await.expect("it reads");
    gate.reaches("weir_client_faults_total", &[("reason", "answer_not_taken")], 1).await;
    gate.reaches("weir_cancelled_total", &[("stage", "upstream")], 1).await;
    gate.idle().await;
    drop(stalls);
}

#[tokio::test]
async fn a_client_that_closes_its_half_has_gone() {
    let hand = Hand::silent().await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let mut half = TcpStream::connect(gate.data_host()).await.expect("it listens");
    let body = input("a");
    let request = head(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    half.write_all(request.as_bytes()).await.expect("it reads");
    gate.reaches("weir_upstream_open", &[], 1).await;
    half.shutdown().await.expect("it is open");
    gate.reaches("weir_cancelled_total", &[("stage", "upstream")], 1).await;
    gate.idle().await;
}

#[tokio::test]
async fn a_provider_that_closes_its_half_after_an_answer_is_not_asked_on_it_again() {
    let hand = Hand::start(|_, mut stream| async move {
        let kept = answer("200 OK", "", "{}").replace("connection: close\r\n", "");
        let _ = stream.write_all(kept.as_bytes()).await;
        let _ = stream.shutdown().await;
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    for text in ["a", "b", "c"] {
        let reply = gate.embed(text).await;
        assert_eq!((reply.status.as_u16(), reply.header("x-weir-attempts")), (200, Some("1")));
    }
    gate.idle().await;
    assert_eq!(gate.metrics().await.count("weir_upstream_connections", &[]), 0);
}

#[tokio::test]
async fn idle_connections_to_the_provider_end_when_nobody_needs_them() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "[transport]\nupstream_idle_s = 0.2", WIDE).await;
    assert_eq!(gate.embed("a").await.status, 200);
    crate::eventually::eventually("no connection", async || {
        let open = gate.metrics().await.count("weir_upstream_connections", &[]);
        (open == 0).then_some(())
    })
    .await;
    assert_eq!(gate.metrics().await.count("weir_upstream_connections_total", &[]), 1);
}

#[tokio::test]
async fn what_belongs_to_one_connection_stays_on_it() {
    let headers = "x-own: 1\r\nx-passed: 1\r\nkeep-alive: timeout=5\r\nproxy-connection: close\r\n";
    let said = answer("200 OK", headers, "{}");
    let hand =
        Hand::saying(said.replace("connection: close\r\n\r\n", "connection: close, X-Own\r\n\r\n"))
            .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let theirs = [
        ("connection", "x-mine, keep-alive"),
        ("x-mine", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers"),
        ("x-theirs", "1"),
    ];
    let reply = gate.embed_with(&theirs, "a").await;
    assert_eq!((reply.header("x-own"), reply.header("x-passed")), (None, Some("1")));
    for name in ["connection", "keep-alive", "proxy-connection"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    let head = hand.heads().remove(0);
    assert!(head.contains("x-theirs: 1"), "{head}");
    for name in ["x-mine", "keep-alive", "proxy-connection", "te"] {
        assert!(!head.lines().any(|line| line.starts_with(&format!("{name}:"))), "{name}: {head}");
    }
}

#[tokio::test]
async fn what_comes_after_a_body_reaches_those_who_ask_for_it() {
    let hand = Hand::saying(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\nconnection: close\r\n\r\n\
         2\r\n{}\r\n0\r\nx-sum: 42\r\n\r\n"
            .to_owned(),
    )
    .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let body = json!({ "model": "m", "input": "a" }).to_string();
    let request = head(&format!("te: trailers\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let said = said(&gate, request.as_bytes()).await;
    assert!(said.ends_with("0\r\nx-sum: 42\r\n\r\n"), "{said}");
    gate.idle().await;
}
