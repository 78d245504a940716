//! Stands before a store's server, and lets a test step in between when a change passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// What becomes of a change.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each test file uses its part")]
pub enum Pass {
    On,
    /// Answered here with 403, as by a login page in between.
    Refuse,
}

/// What happens before change number `n`, from 1, is passed on.
type Before = Arc<dyn Fn(usize) -> BoxFuture<'static, Pass> + Send + Sync>;

pub struct Proxy {
    url: String,
}

impl Proxy {
    /// Listens on loopback for as long as the test's runtime lives.
    pub async fn start(
        upstream: &str,
        before: impl Fn(usize) -> BoxFuture<'static, Pass> + Send + Sync + 'static,
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
                let to_client = Arc::new(Mutex::new(to_client));
                tokio::spawn(answers(from_server, Arc::clone(&to_client)));
                let (before, changes) = (Arc::clone(&before), Arc::clone(&changes));
                tokio::spawn(requests(from_client, to_server, to_client, before, changes));
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
    back: Arc<Mutex<OwnedWriteHalf>>,
    before: Before,
    changes: Arc<AtomicUsize>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        let is_change = bytes.starts_with(b"POST ") || bytes.starts_with(b"PATCH ");
        let pass = if is_change {
            before(changes.fetch_add(1, Ordering::Relaxed) + 1).await
        } else {
            Pass::On
        };
        let written = match pass {
            Pass::On => to.write_all(&bytes[..length]).await,
            Pass::Refuse => {
                let refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
                back.lock().await.write_all(refusal).await
            }
        };
        if written.is_err() {
            return;
        }
    }
}

async fn answers(mut from: OwnedReadHalf, to: Arc<Mutex<OwnedWriteHalf>>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if to.lock().await.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
