//! How a gateway leaves: it says so first, serves whoever still comes, finishes what is under way, and ends.

use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::binary::Binary;
use crate::eventually::eventually;
use crate::served::{asking, http2_on};
use crate::support::{EMBEDDINGS, Hand, Http, answer, input};

/// A provider that begins to answer, and goes on once it is told to.
async fn held() -> (Hand, watch::Sender<bool>) {
    let (go, told) = watch::channel(false);
    let hand = Hand::start(move |_, mut stream| {
        let mut told = told.clone();
        async move {
            let begin = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
            let _ = stream.write_all(begin.as_bytes()).await;
            let _ = told.wait_for(|go| *go).await;
            let _ = stream.write_all(b"3\r\nend\r\n0\r\n\r\n").await;
        }
    })
    .await;
    (hand, go)
}

fn post(gateway: &Binary, text: &str) -> tokio::task::JoinHandle<Result<String, String>> {
    let (url, body) = (format!("http://{}{EMBEDDINGS}", gateway.data()), input(text));
    tokio::spawn(async move {
        let response = Http::new().open(Method::POST, &url, &[], &body).await;
        let whole = http_body_util::BodyExt::collect(response.into_body()).await;
        let whole = whole.map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&whole.to_bytes()).into_owned())
    })
}

#[tokio::test]
async fn what_is_under_way_finishes_and_the_process_ends_well() {
    let (hand, go) = held().await;
    let mut gateway = Binary::start(&hand.url(), "");
    // One that idles, as pools of clients do.
    let mut idle = TcpStream::connect(gateway.data()).await.expect("it listens");
    let under_way = post(&gateway, "under way");
    gateway.settles("weir_upstream_open", 1).await;
    assert_eq!(gateway.readiness().await, StatusCode::OK);
    gateway.terminate();
    eventually("a word to load balancers", async || {
        (gateway.readiness().await == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    eventually("a closed listener", async || {
        TcpStream::connect(gateway.data()).await.is_err().then_some(())
    })
    .await;
    assert_eq!(idle.read(&mut [0; 16]).await.unwrap_or(0), 0, "idle connections end");
    assert!(gateway.is_running() && !under_way.is_finished());
    go.send_replace(true);
    assert_eq!(under_way.await.expect("it ran"), Ok("helloend".to_owned()));
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn who_comes_before_load_balancers_know_is_served_and_asked_to_go_elsewhere() {
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let mut gateway = Binary::start(&hand.url(), "[gateway.transport]\nnotice_s = 4");
    let host = gateway.data().to_string();
    let mut old = http2_on(TcpStream::connect(&host).await.expect("it listens")).await;
    assert_eq!(old.send_request(asking(&host, "a")).await.expect("an answer").status(), 200);
    gateway.terminate();
    eventually("a word to load balancers", async || {
        (gateway.readiness().await == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    eventually("a word to clients of HTTP/2", async || old.is_closed().then_some(())).await;
    let mut new = http2_on(TcpStream::connect(&host).await.expect("it still listens")).await;
    assert_eq!(new.send_request(asking(&host, "b")).await.expect("an answer").status(), 200);
    let url = format!("http://{host}{EMBEDDINGS}");
    let reply = Http::new().send(Method::POST, &url, &[], &input("c")).await;
    assert_eq!((reply.status.as_u16(), reply.header("connection")), (200, Some("close")));
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn what_does_not_finish_is_cut_when_the_time_is_over() {
    let (hand, _go) = held().await;
    let mut gateway = Binary::start(&hand.url(), "[gateway.transport]\ndrain_s = 0.3");
    let under_way = post(&gateway, "for ever");
    gateway.settles("weir_upstream_open", 1).await;
    gateway.terminate();
    assert_eq!(gateway.ended().await.code(), Some(0));
    let cut = under_way.await.expect("it ran");
    assert!(cut.is_err(), "nobody takes a part for the whole: {cut:?}");
}
