//! Stands before Unleash, and lets a test step in between when a change passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What happens before change number `n`, from 1, is passed on.
type Before = Arc<dyn Fn(usize) -> BoxFuture<'static, ()> + Send + Sync>;

pub struct Proxy {
    url: String,
}

impl Proxy {
    /// Listens on loopback for as long as the test's runtime lives.
    pub async fn start(
        upstream: &str,
        before: impl Fn(usize) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        let upstream = upstream.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (before, changes): (Before, _) = (Arc::new(before), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&upstream).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (before, changes) = (Arc::clone(&before), Arc::clone(&changes));
                tokio::spawn(requests(from_client, to_server, before, changes));
                tokio::spawn(answers(from_server, to_client));
            }
        });
        Self { url }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A request of weir's begins a read, since it waits for each answer.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    before: Before,
    changes: Arc<AtomicUsize>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if bytes.starts_with(b"POST ") || bytes.starts_with(b"PATCH ") {
            before(changes.fetch_add(1, Ordering::Relaxed) + 1).await;
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}
