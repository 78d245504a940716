//! Crowds of callers come and go: permits, descriptors and memory are what they were before.
//! `tests/bench/crowd.py` does the same with thousands.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::binary::Binary;
use crate::eventually::eventually;
use crate::support::{Hand, input};

const IDLE: usize = 300;
const STREAMS: usize = 100;
/// What may stay of a crowd: buffers that the allocator keeps, and pooled connections do not.
const MEMORY_MB: f64 = 24.0;

async fn ask(gateway: &Binary, text: &str) -> TcpStream {
    let body = input(text);
    let mut stream = TcpStream::connect(gateway.data()).await.expect("it listens");
    let length = body.len();
    let head =
        format!("POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("it reads");
    stream
}

#[tokio::test]
async fn a_crowd_leaves_nothing_behind() {
    let hand = Hand::start(|_, mut stream| async move {
        let begin = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let _ = stream.write_all(begin.as_bytes()).await;
        // Until the gateway closes its side.
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await;
    let gateway = Binary::start(&hand.url(), "[gateway.flags]\n'admission.max_in_flight' = 200");
    drop(ask(&gateway, "the first of all").await);
    gateway.settles("weir_client_connections", 0).await;
    let (descriptors, memory) = (gateway.descriptors(), gateway.resident_mb());
    for round in 0..2 {
        let mut idle = Vec::new();
        for _ in 0..IDLE {
            idle.push(TcpStream::connect(gateway.data()).await.expect("it listens"));
        }
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            streams.push(ask(&gateway, &format!("{round} {number}")).await);
        }
        gateway.settles("weir_upstream_open", STREAMS as u64).await;
        gateway.settles("weir_client_connections", (IDLE + STREAMS) as u64).await;
        assert_eq!(gateway.metrics().await.count("weir_permits_in_use", &[]), STREAMS as u64);
        assert!(gateway.descriptors() >= descriptors + IDLE + 2 * STREAMS);
        drop((idle, streams));
        for name in ["weir_client_connections", "weir_upstream_open", "weir_permits_in_use"] {
            gateway.settles(name, 0).await;
        }
        gateway.settles("weir_upstream_connections", 0).await;
    }
    eventually("the descriptors of the beginning", async || {
        (gateway.descriptors() <= descriptors).then_some(())
    })
    .await;
    let grown = gateway.resident_mb() - memory;
    assert!(grown < MEMORY_MB, "{grown} MB stay");
}
