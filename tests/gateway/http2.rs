//! HTTP/2 without TLS on both sides: streams, their limits, and what is dropped.

use tokio::net::TcpStream;

use crate::eventually::eventually;
use crate::served::{Manner, Served, asking, http2_on};
use crate::support::{Gate, Hand, Sim, WIDE, answer, input};

const PRIOR_KNOWLEDGE: &str = "[upstream]\nurl = 'UPSTREAM'\nhttp2 = true";

fn url(served: &Served) -> String {
    format!("http://{}", served.address)
}

#[tokio::test]
async fn callers_share_a_connection_and_so_do_calls() {
    let served = Served::start(Manner { http2: true, ..Manner::default() }).await;
    let gate = Gate::start(&url(&served), PRIOR_KNOWLEDGE, WIDE).await;
    let host = gate.data_host();
    let sender = http2_on(TcpStream::connect(host).await.expect("it listens")).await;
    let calls = (0..40).map(|number| {
        let mut sender = sender.clone();
        async move {
            let answer = sender.send_request(asking(host, &number.to_string())).await;
            answer.expect("an answer").status().as_u16()
        }
    });
    let statuses = futures_util::future::join_all(calls).await;
    assert_eq!(statuses, [200; 40]);
    assert_eq!(served.connections(), 1, "those who come together wait for one connection");
    let reply = gate.embed("over HTTP/1.1").await;
    let said = reply.json();
    assert_eq!(
        (&said["version"], &said["has_host"]),
        (&"HTTP/2.0".into(), &false.into()),
        "{said}"
    );
    gate.idle().await;
    let metrics = gate.metrics().await;
    for (name, protocol, wanted) in [
        ("weir_client_connections", "http2", 1),
        ("weir_client_connections_total", "http2", 1),
        ("weir_upstream_connections", "http2", 1),
        ("weir_upstream_connections_total", "http1", 0),
    ] {
        assert_eq!(metrics.count(name, &[("protocol", protocol)]), wanted, "{name} {protocol}");
    }
    drop(sender);
    eventually("a client less", async || {
        let labels = [("protocol", "http2")];
        (gate.metrics().await.count("weir_client_connections", &labels) == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_caller_who_drops_its_stream_ends_the_call_and_no_connection() {
    let served = Served::start(Manner { http2: true, hangs: true, ..Manner::default() }).await;
    let gate = Gate::start(&url(&served), PRIOR_KNOWLEDGE, WIDE).await;
    let host = gate.data_host();
    let sender = http2_on(TcpStream::connect(host).await.expect("it listens")).await;
    let ask = |text: &str| {
        let (mut sender, request) = (sender.clone(), asking(host, text));
        tokio::spawn(async move { sender.send_request(request).await.map(drop) })
    };
    let (gone, stays) = (ask("gone"), ask("stays"));
    eventually("two calls", async || (served.open() == 2).then_some(())).await;
    assert_eq!(gate.metrics().await.count("weir_upstream_open", &[]), 2);
    gone.abort();
    gate.reaches("weir_cancelled_total", &[("stage", "upstream")], 1).await;
    eventually("one call", async || (served.open() == 1).then_some(())).await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_upstream_open", &[]), 1);
    assert_eq!(metrics.count("weir_upstream_connections", &[]), 1, "the others are on it");
    assert_eq!(metrics.count("weir_client_connections", &[("protocol", "http2")]), 1);
    stays.abort();
    gate.idle().await;
    assert_eq!(served.connections(), 1);
}

#[tokio::test]
async fn no_call_waits_inside_a_connection_that_is_full() {
    let served =
        Served::start(Manner { http2: true, hangs: true, streams_max: 2, ..Manner::default() })
            .await;
    let scope = format!("{WIDE}permits = 'fixed'");
    let gate = Gate::start(&url(&served), PRIOR_KNOWLEDGE, &scope).await;
    let post = |text: String| {
        let (http, url) = (gate.http.clone(), format!("{}/v1/embeddings", gate.data));
        tokio::spawn(async move { http.send(http::Method::POST, &url, &[], &input(&text)).await })
    };
    // The first call makes the peer's limit known.
    let mut calls = vec![post("first".to_owned())];
    eventually("a call", async || (served.open() == 1).then_some(())).await;
    calls.extend((0..5).map(|number| post(number.to_string())));
    eventually("six calls", async || (served.open() == 6).then_some(())).await;
    assert!(served.seen.crowd.load(std::sync::atomic::Ordering::Relaxed) <= 2);
    assert!(served.connections() >= 3, "{}", served.connections());
    assert_eq!(gate.metrics().await.count("weir_upstream_open", &[]), 6);
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    gate.idle().await;
}

#[tokio::test]
async fn a_connection_that_has_ended_is_not_used_again() {
    let served = Served::start(Manner { http2: true, ..Manner::default() }).await;
    let gate = Gate::start(&url(&served), PRIOR_KNOWLEDGE, WIDE).await;
    for round in 1..=3 {
        let reply = gate.embed(&round.to_string()).await;
        assert_eq!((reply.status.as_u16(), reply.header("x-weir-attempts")), (200, Some("1")));
        assert_eq!(served.connections(), round);
        served.cut();
        eventually("no connection", async || {
            let open = gate.metrics().await.count("weir_upstream_connections", &[]);
            (open == 0).then_some(())
        })
        .await;
    }
    gate.idle().await;
}

#[tokio::test]
async fn a_provider_without_http2_is_told_so_at_once() {
    let hand = Hand::saying(answer("400 Bad Request", "", "")).await;
    let gate = Gate::start(&hand.url(), PRIOR_KNOWLEDGE, WIDE).await;
    let reply = gate.embed("a").await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (502, "weir_upstream_unreachable"));
    assert!(reply.message().contains("it does not speak HTTP/2"), "{}", reply.message());
    gate.idle().await;
}

#[tokio::test]
async fn a_head_beyond_its_bounds_is_refused_on_its_stream_alone() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "[transport]\nhead_max = 8192", WIDE).await;
    let host = gate.data_host();
    let mut sender = http2_on(TcpStream::connect(host).await.expect("it listens")).await;
    let mut large = asking(host, "large");
    let value = http::HeaderValue::from_str(&"x".repeat(16_000)).expect("visible");
    large.headers_mut().insert("x-large", value);
    let answer = sender.send_request(large).await;
    assert!(answer.is_ok_and(|answer| answer.status() == 431));
    let answer = sender.send_request(asking(host, "small")).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    gate.idle().await;
}
