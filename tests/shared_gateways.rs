//! Four gateways, processes of their own, share one quota through a real Redis.
//!
//! Each is offered more than the whole quota; the simulated provider holds little in its bucket, so
//! that whoever is above the quota for half a second is refused, and its ledger counts.

mod eventually;
mod fleet;
mod process;
mod redis_server;

use std::time::{Duration, Instant};

use eventually::eventually;
use fleet::{Fleet, Load, Offered, Seen};
use redis_server::RedisServer;
use tokio::sync::Mutex;

/// Requests a second that the provider allows.
const QUOTA: f64 = 40.0;
/// What a gateway uses of a quota unless told otherwise (`admission.rate_factor`).
const USED: f64 = 0.95;
const GATEWAYS: usize = 4;
/// An instance that is silent for longer is gone.
const LEASE: Duration = Duration::from_secs(2);
/// The longest that a decision may take.
const DECISION: Duration = Duration::from_millis(45);
/// Beyond the time limit: what a busy machine may add to it.
const MARGIN: Duration = Duration::from_millis(250);
/// How soon after the store's return all is shared again: it is asked once a second at least.
const BACK_MAX: Duration = Duration::from_secs(4);
/// Spans that are looked at.
const SPANS_MAX: usize = 10;
/// Refusals that are none of the budget's fault: requests that a busy machine held up on their way and
/// let go all at once. Without a budget it would be five of six.
const REFUSED_MAX: f64 = 12.0;

const TIGHT: &str = "sim/main/tight";
const WIDE: &str = "sim/main/wide";

/// Every gateway alone has more than the whole quota to do.
const OVERLOAD: Load = Load { lane: "interactive", per_second: 1.6 * QUOTA };

/// Fleets would take each other's processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn fleet(server: &RedisServer, count: usize, requests: &str, scope: &str) -> Fleet {
    let latency = "latency = { base_ms = 5, spread_ms = 5, per_open_call_ms = 0 }";
    let tokens = "tokens = { per_minute = 600_000_000 }";
    let provider = format!("{latency}\n{tokens}\nrequests = {{ {requests} }}");
    let store = format!(
        "[gateway.flags]\n'queue.max_age_s' = 1.0\n[gateway.store]\nurl = '{}'\n\
         decision_ms = {}\nlease_s = {}",
        server.url(),
        DECISION.as_millis(),
        LEASE.as_secs()
    );
    let scope = format!("[[scope]]\nsemantics = 'token-bucket'\n{scope}");
    Fleet::start(count, &provider, &store, &scope)
}

/// One scope whose quota is the provider's, which holds half a second's worth and begins with nothing.
fn tight_fleet(server: &RedisServer) -> Fleet {
    let per_minute = 60.0 * QUOTA;
    let requests = format!("per_minute = {per_minute}, capacity = {}, start = 0", QUOTA / 2.0);
    let scope = format!("name = '{TIGHT}'\nrpm = {per_minute}\nburst_s = 0.2");
    fleet(server, GATEWAYS, &requests, &scope)
}

/// One gateway with quota enough, where nobody waits for anything but a decision.
fn wide_fleet(server: &RedisServer) -> Fleet {
    let scope = format!("name = '{WIDE}'\nrpm = 600_000");
    fleet(server, 1, "per_minute = 600_000", &scope)
}

/// The quota is used, and nobody is above it. A machine that has other work may keep everybody from
/// using it, so a span may be looked at again; but in none is anybody above it and refused.
#[expect(clippy::print_stdout, reason = "figures, for a person who reads them")]
async fn assert_used(what: &str, fleet: &Fleet, span: Duration) {
    for _ in 0..SPANS_MAX {
        let counted = fleet.watch(span).await;
        let share = counted.per_second() / QUOTA;
        println!("{what}: {:.1} % of the quota, {} refused", 100.0 * share, counted.refused);
        assert!(counted.refused <= REFUSED_MAX, "{what}: {counted:?}");
        if share >= USED {
            return;
        }
    }
    panic!("{what}: less than {USED} of the quota in {SPANS_MAX} spans");
}

/// Requests that each gateway served of what was asked in this span.
fn served(offered: &Offered, from: Instant, to: Instant) -> [f64; GATEWAYS] {
    let mut served = [0.0; GATEWAYS];
    for seen in offered.between(from, to).iter().filter(|seen| seen.status == 200) {
        served[seen.gateway] += 1.0;
    }
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_use_the_quota_and_three_do_when_one_is_killed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let server = RedisServer::start();
    let mut fleet = tight_fleet(&server);
    let offered = fleet.offer(&OVERLOAD);
    tokio::time::sleep(Duration::from_secs(2)).await;

    let begun = Instant::now();
    assert_used("four", &fleet, Duration::from_secs(10)).await;
    let each = served(&offered, begun, Instant::now());
    println!("served by each: {each:?}");
    let all: f64 = each.iter().sum();
    assert!(each.iter().all(|served| *served >= 0.1 * all), "{each:?}");
    assert!(fleet.all_say("weir_store_instances", TIGHT, 4.0).await);

    fleet.kill(GATEWAYS - 1);
    tokio::time::sleep(LEASE + Duration::from_millis(500)).await;
    eventually("three instances", async || {
        fleet.all_say("weir_store_instances", TIGHT, 3.0).await.then_some(())
    })
    .await;
    assert_used("three", &fleet, Duration::from_secs(5)).await;
}

/// The longest that anybody waited for an answer of this load.
fn longest(seen: &[Seen]) -> Duration {
    seen.iter().map(|seen| seen.took).max().expect("somebody asked")
}

/// What happens while the store is out of reach, and after it has come back.
async fn ride_out(mut server: RedisServer, stop: fn(&mut RedisServer), back: fn(&mut RedisServer)) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (tight, wide) = (tight_fleet(&server), wide_fleet(&server));
    let overload = tight.offer(&OVERLOAD);
    let interactive = wide.offer(&Load { lane: "interactive", per_second: 30.0 });
    let batch = wide.offer(&Load { lane: "batch", per_second: 10.0 });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_served(&batch).await;
    let healthy_from = Instant::now();
    assert_used("healthy", &tight, Duration::from_secs(4)).await;

    let stopped = Instant::now();
    let healthy = interactive.between(healthy_from, stopped);
    stop(&mut server);
    let first = tight.watch(Duration::from_secs(1)).await;
    assert!(first.refused <= REFUSED_MAX, "the first second without it: {first:?}");
    let begun = Instant::now();
    assert_used("without the store", &tight, Duration::from_secs(5)).await;
    let ended = Instant::now();
    assert!(tight.all_say("weir_store_up", TIGHT, 0.0).await);
    assert!(wide.all_say("weir_store_up", WIDE, 0.0).await);
    assert_nobody_hangs(&healthy, &interactive.between(stopped, ended));
    assert_said(&overload.between(begun, ended), "local-share; instances=4");
    assert_said(&interactive.between(begun, ended), "local-share; instances=1");
    assert_refused(&batch.between(begun, ended));

    back(&mut server);
    assert_shared_again(&[(&tight, TIGHT, 4.0), (&wide, WIDE, 1.0)]).await;
    let first = tight.watch(Duration::from_secs(1)).await;
    assert!(first.refused <= REFUSED_MAX, "the first second with it again: {first:?}");
    assert_used("with the store again", &tight, Duration::from_secs(5)).await;
    assert_served(&batch).await;
}

#[expect(clippy::print_stdout, reason = "figures, for a person who reads them")]
fn assert_nobody_hangs(healthy: &[Seen], without: &[Seen]) {
    let (with, longest_without) = (longest(healthy), longest(without));
    println!("longest answer: {with:?} with the store, {longest_without:?} without");
    assert!(longest_without <= with + DECISION + MARGIN, "{longest_without:?}");
    assert!(without.iter().all(|seen| seen.status == 200), "{without:?}");
}

/// Every answer says by what it was decided.
fn assert_said(answers: &[Seen], budget: &str) {
    assert!(!answers.is_empty());
    for seen in answers {
        assert_eq!(seen.budget.as_deref(), Some(budget), "{seen:?}");
    }
}

/// Batch work is served: all of a second's, sooner or later, as a busy machine may make an answer of the
/// store late.
async fn assert_served(batch: &Offered) {
    eventually("batch work is served", async || {
        let now = Instant::now();
        let last = batch.between(now.checked_sub(Duration::from_secs(1))?, now);
        (last.len() >= 5 && last.iter().all(|seen| seen.status == 200)).then_some(())
    })
    .await;
}

/// What the default policy says of batch work without the store.
fn assert_refused(batch: &[Seen]) {
    assert!(!batch.is_empty());
    for seen in batch {
        assert_eq!((seen.status, seen.code.as_deref()), (503, Some("weir_store_lost")), "{seen:?}");
    }
}

#[expect(clippy::print_stdout, reason = "figures, for a person who reads them")]
async fn assert_shared_again(fleets: &[(&Fleet, &str, f64)]) {
    let returned = Instant::now();
    for (fleet, scope, instances) in fleets {
        eventually("all is shared again", async || {
            let up = fleet.all_say("weir_store_up", scope, 1.0).await;
            let all = fleet.all_say("weir_store_instances", scope, *instances).await;
            (up && all).then_some(())
        })
        .await;
    }
    println!("shared again after {:?}", returned.elapsed());
    assert!(returned.elapsed() <= BACK_MAX, "{:?}", returned.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hangs_leaves_each_its_share_until_it_answers() {
    ride_out(RedisServer::start(), |server| server.freeze(), |server| server.thaw()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_dies_leaves_each_its_share_until_one_is_there() {
    ride_out(RedisServer::start(), RedisServer::kill, RedisServer::restart).await;
}
