//! One connection to a Redis server that never keeps a decision waiting.
//!
//! Many commands share the connection (they are pipelined on it). A task of its own looks after it:
//! it connects, checks, and connects anew with a backoff. While it has none, or the one it has is
//! silent, a command is answered at once with the reason. The crate's own `ConnectionManager` lets
//! commands wait for its reconnection instead, each for its whole time limit.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, ScriptInvocation, Value};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::KeeperError;

/// A connection that works is looked at this often, so that an idle one is known to be dead before
/// a decision needs it.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A connection that is silent for longer is given up.
const SILENCE_MAX: Duration = Duration::from_millis(500);
/// The longest that connecting may take, greeting included.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// From one try to connect to the next: doubled from the first to the last, each with a jitter.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Commands that wait to be written; far more than are open within one time limit.
const UNWRITTEN_MAX: usize = 1024;

enum Line {
    Up(MultiplexedConnection),
    /// With the reason.
    Down(Arc<str>),
}

struct Shared {
    client: Client,
    server: Arc<str>,
    line: ArcSwap<Line>,
    /// Somebody found the line silent or broken.
    trouble: Notify,
}

/// The connection, and who looks after it until it is dropped.
pub(super) struct Link {
    shared: Arc<Shared>,
    limit: Duration,
    _tender: AbortOnDropHandle<()>,
}

impl Link {
    /// Begins to connect; commands may take up to `limit`. Must be called within a Tokio runtime.
    pub(super) fn open(url: &str, limit: Duration) -> Result<Self, KeeperError> {
        let address = |error: RedisError| KeeperError::Address(error.to_string());
        let client = Client::open(url).map_err(address)?;
        let server = client.get_connection_info().addr().to_string();
        let shared = Arc::new(Shared {
            client,
            server: Arc::from(server),
            line: ArcSwap::from_pointee(Line::Down(Arc::from("not connected yet"))),
            trouble: Notify::new(),
        });
        let tender = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&shared).tend()));
        Ok(Self { shared, limit, _tender: tender })
    }

    /// Runs a script: one round trip, three when the server does not know the script yet.
    pub(super) async fn run(&self, script: ScriptInvocation<'_>) -> Result<Value, KeeperError> {
        let server = || Arc::clone(&self.shared.server);
        let mut connection = match &**self.shared.line.load() {
            Line::Up(connection) => connection.clone(),
            Line::Down(why) => {
                return Err(KeeperError::Unreachable { server: server(), why: Arc::clone(why) });
            }
        };
        match timeout(self.limit, script.invoke_async::<Value>(&mut connection)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if is_of_the_line(&error) => {
                let why: Arc<str> = Arc::from(error.to_string());
                self.shared.doubt(Arc::clone(&why));
                Err(KeeperError::Unreachable { server: server(), why })
            }
            Ok(Err(error)) => Err(self.refused(error.to_string())),
            Err(_) => {
                self.shared.doubt(Arc::from("it was silent for a whole decision"));
                Err(KeeperError::Timeout { server: server(), limit: self.limit })
            }
        }
    }

    /// The server, or what stands in its place, said this instead of an answer.
    pub(super) fn refused(&self, words: String) -> KeeperError {
        KeeperError::Refused { server: Arc::clone(&self.shared.server), words }
    }
}

impl Shared {
    /// Connects, looks after the connection, and begins again, until the link is dropped.
    async fn tend(self: Arc<Self>) {
        let mut random = Pcg64Mcg::seed_from_u64(uuid::Uuid::new_v4().as_u64_pair().0);
        let mut backoff = BACKOFF_FIRST;
        loop {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(CONNECT_MAX))
                .set_response_timeout(None)
                .set_pipeline_buffer_size(UNWRITTEN_MAX);
            // The crate's limit covers the socket; the greeting of a server that hangs is ours.
            let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
            let why: Arc<str> = match timeout(CONNECT_MAX, connecting).await {
                Ok(Ok(connection)) => {
                    tracing::info!(server = %self.server, "the shared budget answers");
                    backoff = BACKOFF_FIRST;
                    self.watch(connection).await
                }
                Ok(Err(error)) => Arc::from(error.to_string()),
                Err(_) => Arc::from("no greeting within a second"),
            };
            tracing::warn!(server = %self.server, %why, "the shared budget is out of reach");
            self.line.store(Arc::new(Line::Down(why)));
            tokio::time::sleep(backoff.mul_f64(0.5 + random.random::<f64>())).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Serves with this connection until it breaks or stays silent; returns why.
    async fn watch(&self, mut connection: MultiplexedConnection) -> Arc<str> {
        loop {
            self.line.store(Arc::new(Line::Up(connection.clone())));
            tokio::select! {
                () = self.trouble.notified() => {}
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
            let ping = redis::cmd("PING");
            match timeout(SILENCE_MAX, ping.query_async::<Value>(&mut connection)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) if !is_of_the_line(&error) => {}
                Ok(Err(error)) => return Arc::from(error.to_string()),
                Err(_) => return Arc::from("it does not answer PING"),
            }
        }
    }

    /// Takes the line out of use until it has been looked at. A healthy one is back after a round
    /// trip, so that no second decision waits for a server that stands still.
    fn doubt(&self, why: Arc<str>) {
        self.line.store(Arc::new(Line::Down(why)));
        self.trouble.notify_one();
    }
}

/// Whether the connection broke; what the server itself said is not that.
fn is_of_the_line(error: &RedisError) -> bool {
    !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}
