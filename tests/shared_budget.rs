//! Several instances, each with a keeper of its own, work for one scope on a real Redis.
//!
//! Time is the wall clock here: what is tested is the server, the network and the scripts. The rules
//! themselves are tested under virtual time, beside the code.

mod redis_server;

use std::time::{Duration, Instant};

use redis_server::RedisServer;
use weir::admission::{
    Binding, Claim, Demand, Limit, Mirror, Outcome, Report, Rules, Semantics, Verdict,
};
use weir::dialect::Meter;
use weir::gateway::store::{DECISION_LIMIT, DECISION_LIMIT_MAX, Keeper, KeeperError, RedisKeeper};

/// Beyond the time limit: what a busy machine may add to it.
const MARGIN: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(1);
/// Who is told to wait for longer asks again after so long, as the gate does.
const ASK_EVERY: Duration = Duration::from_secs(1);

fn limit(meter: Meter, semantics: Semantics, amount: f64) -> Limit {
    // Longer than a busy machine keeps everybody from asking.
    let burst = Duration::from_millis(500);
    Limit { meter, amount, window: Duration::from_secs(1), semantics, burst }
}

const RULES: Rules = Rules { breaker: true, faults_in_row: 5, adaptive: true, lease: LEASE };

fn claim(limits: &[Limit], tokens: f64) -> Claim {
    Claim {
        demand: Demand { input: tokens, output: 0.0 },
        limits: limits.to_vec(),
        in_flight: 0,
        in_flight_max: None,
        rules: RULES,
    }
}

/// How a granted claim went well.
fn served(claim: &Claim, verdict: Verdict) -> Report {
    let Verdict::Granted(receipt) = verdict else { panic!("{verdict:?}") };
    Report {
        receipt: Some(receipt),
        reserved: claim.demand,
        charged: Some(claim.demand),
        outcome: Outcome::Good,
        readings: Vec::new(),
        limits: claim.limits.clone(),
        in_flight: 0,
        rules: RULES,
    }
}

fn open(server: &RedisServer, instance: &str) -> RedisKeeper {
    RedisKeeper::open(&server.url(), instance, DECISION_LIMIT).expect("an address")
}

/// Asks again until there is a decision.
async fn decided(keeper: &RedisKeeper, scope: &str, claim: &Claim) -> (Verdict, Mirror) {
    let begun = Instant::now();
    loop {
        match keeper.claim(scope, claim).await {
            Ok(decision) => return decision,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asks again, when it is worth it, until the claim is granted.
async fn granted(keeper: &RedisKeeper, scope: &str, claim: &Claim) -> (Verdict, Mirror) {
    let begun = Instant::now();
    loop {
        let (verdict, mirror) = decided(keeper, scope, claim).await;
        let Verdict::Wait { at_least, why } = verdict else { return (verdict, mirror) };
        assert!(begun.elapsed() < PATIENCE, "{why:?} for {at_least:?}");
        tokio::time::sleep(at_least.clamp(Duration::from_millis(1), ASK_EVERY)).await;
    }
}

/// What was granted: by the keeper's clock, in microseconds, and how many tokens.
type Grant = (u64, f64);

/// One caller takes what it gets for so long.
async fn wants_everything(keeper: &RedisKeeper, scope: &str, claim: &Claim) -> Vec<Grant> {
    let (begun, mut grants) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(4) {
        let (verdict, _) = granted(keeper, scope, claim).await;
        let report = served(claim, verdict);
        grants.extend(report.receipt.map(|receipt| (receipt.0, claim.demand.tokens())));
        // One that is lost changes nothing: all that was reserved was charged.
        let _ = keeper.report(scope, &report).await;
    }
    grants
}

/// Four instances, one for each of these sizes of claims, with two callers each; what each was granted.
async fn everybody_wants_everything(
    server: &RedisServer,
    scope: &str,
    limits: &[Limit],
    sizes: [f64; 4],
) -> [Vec<Grant>; 4] {
    let mut callers = Vec::new();
    for (instance, tokens) in sizes.into_iter().enumerate() {
        let keeper = std::sync::Arc::new(open(server, &format!("i{instance}")));
        for _ in 0..2 {
            let (keeper, claim, scope) = (keeper.clone(), claim(limits, tokens), scope.to_owned());
            let caller = async move { wants_everything(&keeper, &scope, &claim).await };
            callers.push((instance, tokio::spawn(caller)));
        }
    }
    let mut grants = [const { Vec::new() }; 4];
    for (instance, caller) in callers {
        grants[instance].extend(caller.await.expect("it ends well"));
    }
    grants
}

/// The most tokens granted in any span of this many microseconds.
fn most_within(grants: &[Grant], span: u64) -> f64 {
    let sum = |from: usize| {
        let until = grants[from].0 + span;
        grants[from..].iter().take_while(|(at, _)| *at < until).map(|(_, tokens)| tokens).sum()
    };
    (0..grants.len()).map(sum).fold(0.0, f64::max)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_instances_together_use_the_quota_and_never_more() {
    let server = RedisServer::start();
    // 50,000 tokens a second, for which there are requests enough.
    let equal = [500.0; 4];
    let mixed = [2_500.0, 100.0, 100.0, 500.0];
    let cases = [
        (Semantics::TokenBucket, equal),
        (Semantics::SlidingWindow, equal),
        (Semantics::FixedWindow, equal),
        (Semantics::TokenBucket, mixed),
        (Semantics::SlidingWindow, mixed),
    ];
    let runs = cases.map(|(semantics, sizes)| {
        let tokens = limit(Meter::Tokens, semantics, 50_000.0);
        let limits = [limit(Meter::Requests, semantics, 150.0), tokens];
        let server = &server;
        async move {
            let scope = format!("{semantics:?} {sizes:?}");
            let grants = everybody_wants_everything(server, &scope, &limits, sizes).await;
            (semantics, scope, grants)
        }
    });
    for (semantics, scope, grants) in futures_util::future::join_all(runs).await {
        let sum = |grants: &[Grant]| grants.iter().map(|(_, tokens)| tokens).sum::<f64>();
        let own = grants.each_ref().map(|own| sum(own));
        let mut grants = grants.concat();
        grants.sort_by_key(|(at, _)| *at);
        let most = match semantics {
            Semantics::TokenBucket => most_within(&grants, 1_000_000) - 25_000.0,
            Semantics::SlidingWindow => most_within(&grants, 1_000_000),
            Semantics::FixedWindow => grants
                .chunk_by(|(a, _), (b, _)| a / 1_000_000 == b / 1_000_000)
                .map(sum)
                .fold(0.0, f64::max),
        };
        let ((last, _), before) = grants.split_last().expect("something is granted");
        let span = last - grants[0].0;
        #[expect(clippy::cast_precision_loss, reason = "seconds of one test")]
        let used = sum(before) / (span as f64 / 1e6 * 50_000.0);
        println!("{scope}: {own:?}, {:.1} % of the quota, {most} in a window", used * 100.0);
        assert!(most <= 50_000.0, "{scope}: {most} tokens in one window");
        assert!(used >= 0.95, "{scope}: {used} of the quota");
        // Large ones have their turn.
        assert!(own[0] >= 30_000.0, "{scope}: {own:?}");
    }
}

#[tokio::test]
async fn what_a_dead_instance_had_open_is_back_within_its_lease() {
    let server = RedisServer::start();
    let (one, other) = (open(&server, "one"), open(&server, "other"));
    let limits = [limit(Meter::Requests, Semantics::TokenBucket, 1_000.0)];
    let full = Claim { in_flight: 4, in_flight_max: Some(5), ..claim(&limits, 0.0) };
    let (_, mirror) = granted(&one, "s", &full).await;
    assert_eq!((mirror.in_flight, mirror.instances), (5, 1));
    let died = Instant::now();
    drop(one);
    let next = Claim { in_flight: 0, ..full };
    let (verdict, mirror) = decided(&other, "s", &next).await;
    let concurrency = Binding::Meter(Meter::Concurrency);
    assert!(matches!(verdict, Verdict::Wait { why, .. } if why == concurrency), "{verdict:?}");
    assert_eq!((mirror.in_flight, mirror.instances), (5, 2));
    let (_, mirror) = granted(&other, "s", &next).await;
    assert!(died.elapsed() < LEASE + Duration::from_secs(1), "{:?}", died.elapsed());
    assert_eq!((mirror.in_flight, mirror.instances), (1, 1));
}

/// One decision, however it ends, and that it did not hang.
async fn prompt(keeper: &RedisKeeper) -> Result<(Verdict, Mirror), KeeperError> {
    let limits = [limit(Meter::Requests, Semantics::SlidingWindow, 1_000.0)];
    let begun = Instant::now();
    let decision = keeper.claim("s", &claim(&limits, 0.0)).await;
    let took = begun.elapsed();
    assert!(took < DECISION_LIMIT_MAX + MARGIN, "{took:?}: {decision:?}");
    decision
}

#[tokio::test]
async fn a_server_that_stands_still_or_is_gone_keeps_nobody_waiting() {
    let mut server = RedisServer::start();
    let keeper = open(&server, "one");
    let limits = [limit(Meter::Requests, Semantics::SlidingWindow, 1_000.0)];
    granted(&keeper, "s", &claim(&limits, 0.0)).await;

    server.freeze();
    let error = prompt(&keeper).await.expect_err("nobody answers");
    assert!(matches!(error, KeeperError::Timeout { .. }), "{error}");
    for _ in 0..100 {
        let error = prompt(&keeper).await.expect_err("nobody answers");
        assert!(matches!(error, KeeperError::Unreachable { .. }), "at once: {error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.thaw();
    granted(&keeper, "s", &claim(&limits, 0.0)).await;

    server.kill();
    for _ in 0..100 {
        let error = prompt(&keeper).await.expect_err("nobody is there");
        assert!(matches!(error, KeeperError::Unreachable { .. }), "{error}");
    }
    // The new server has never seen the scripts.
    server.restart();
    granted(&keeper, "s", &claim(&limits, 0.0)).await;
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_told_them_again() {
    let server = RedisServer::start();
    let keeper = open(&server, "one");
    let claim = claim(&[limit(Meter::Requests, Semantics::TokenBucket, 1_000.0)], 0.0);
    let (verdict, _) = granted(&keeper, "s", &claim).await;
    assert!(server.ask("SCRIPT FLUSH").is_ok_and(|answer| answer.starts_with("+OK")));
    keeper.report("s", &served(&claim, verdict)).await.expect("reloaded");
    keeper.claim("s", &claim).await.expect("reloaded");
}

#[tokio::test]
async fn what_the_server_says_is_passed_on() {
    let server = RedisServer::start();
    let keeper = open(&server, "one");
    let claim = claim(&[limit(Meter::Requests, Semantics::TokenBucket, 1_000.0)], 0.0);
    decided(&keeper, "s", &claim).await;
    assert!(server.ask("CONFIG SET maxmemory 1").is_ok_and(|answer| answer.starts_with("+OK")));
    let error = keeper.claim("s", &claim).await.expect_err("there is no room");
    assert!(matches!(error, KeeperError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("OOM"), "{error}");
}
