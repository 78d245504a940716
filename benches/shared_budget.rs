//! What a shared decision costs: claims and reports per second on a real Redis, with 1, 16 and 50
//! callers on one connection, beside PING and INCRBY by the same client in the same run.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../tests/redis_server/mod.rs"]
#[expect(dead_code, reason = "the server of a bench does not fail")]
mod redis_server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis_server::RedisServer;
use weir::admission::{Claim, Demand, Limit, Outcome, Receipt, Report, Rules, Semantics, Verdict};
use weir::dialect::Meter;
use weir::gateway::store::{DECISION_LIMIT_MAX, Keeper, RedisKeeper};

const CALLERS: [usize; 3] = [1, 16, 50];
const SPAN: Duration = Duration::from_secs(2);

/// What one caller does again and again.
#[derive(Clone, Copy, Debug)]
enum Call {
    Ping,
    IncrBy,
    Claim,
    ClaimAndReport,
}

struct Subject {
    keeper: RedisKeeper,
    connection: MultiplexedConnection,
    claim: Claim,
}

impl Subject {
    async fn call(&self, call: Call) {
        let mut connection = self.connection.clone();
        match call {
            Call::Ping => {
                let _: () = redis::cmd("PING").query_async(&mut connection).await.expect("answers");
            }
            Call::IncrBy => {
                let mut command = redis::cmd("INCRBY");
                let _: i64 =
                    command.arg("counter").arg(1).query_async(&mut connection).await.expect("adds");
            }
            Call::Claim => {
                self.claim().await;
            }
            Call::ClaimAndReport => {
                let receipt = self.claim().await;
                let report = Report {
                    receipt: Some(receipt),
                    reserved: self.claim.demand,
                    charged: Some(Demand { input: 250.0, output: 0.0 }),
                    outcome: Outcome::Good,
                    readings: Vec::new(),
                    limits: self.claim.limits.clone(),
                    in_flight: 0,
                    rules: self.claim.rules,
                };
                self.keeper.report("scope", &report).await.expect("is noted");
            }
        }
    }

    async fn claim(&self) -> Receipt {
        match self.keeper.claim("scope", &self.claim).await.expect("is decided").0 {
            Verdict::Granted(receipt) => receipt,
            waits @ Verdict::Wait { .. } => panic!("the quota is ample: {waits:?}"),
        }
    }
}

/// Calls per second of so many callers, and the median time of one.
async fn measure(subject: &Arc<Subject>, call: Call, callers: usize) -> (f64, Duration) {
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let subject = Arc::clone(subject);
        tasks.spawn(async move {
            let mut times = Vec::new();
            while begun.elapsed() < SPAN {
                let started = Instant::now();
                subject.call(call).await;
                times.push(started.elapsed());
            }
            times
        });
    }
    let mut times = tasks.join_all().await.concat();
    #[expect(clippy::cast_precision_loss, reason = "calls of two seconds")]
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    (rate, times[times.len() / 2])
}

/// Two meters of a minute, counted in a sliding window, of which there is always enough.
fn claim() -> Claim {
    let limit = |meter| Limit {
        meter,
        amount: 1e12,
        window: Duration::from_mins(1),
        semantics: Semantics::SlidingWindow,
        burst: Duration::from_secs(1),
    };
    let lease = Duration::from_secs(10);
    Claim {
        demand: Demand { input: 300.0, output: 0.0 },
        limits: vec![limit(Meter::Requests), limit(Meter::Tokens)],
        in_flight: 0,
        in_flight_max: None,
        rules: Rules { breaker: true, faults_in_row: 5, adaptive: true, lease },
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).expect("an address");
    let connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let keeper = RedisKeeper::open(&server.url(), "bench", DECISION_LIMIT_MAX).expect("an address");
    let subject = Arc::new(Subject { keeper, connection, claim: claim() });
    // Connected, and a second of quota has flowed in.
    while subject.keeper.claim("scope", &subject.claim).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{:<9}{:<16}{:>10}{:>12}{:>10}", "callers", "call", "per s", "median us", "of PING");
    for callers in CALLERS {
        let (ping, _) = measure(&subject, Call::Ping, callers).await;
        for call in [Call::Ping, Call::IncrBy, Call::Claim, Call::ClaimAndReport] {
            let (rate, median) = measure(&subject, call, callers).await;
            let (name, micros) = (format!("{call:?}"), median.as_micros());
            println!("{callers:<9}{name:<16}{rate:>10.0}{micros:>12}{:>10.2}", rate / ping);
        }
    }
}
