//! The poller on paused time, with a fetch made of a closure: no sockets, no sleeping.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::exposition::Format;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn config(names: &[&str]) -> PollConfig {
    let source = |name: &&str| {
        let target = Target::new(*name, format!("http://{name}/metrics"));
        let adapter = if *name == "gateway" { Adapter::weir() } else { Adapter::simprov() };
        SourceConfig::page(target, adapter)
    };
    PollConfig {
        sources: names.iter().map(source).collect(),
        interval: SECOND,
        origin: Instant::now(),
        origins: Origins::default(),
    }
}

fn gateway(seconds: f64) -> (Vec<u8>, Format) {
    let body = format!(
        "weir_originals_total{{scope=\"s\"}} {}\nweir_permits_limit{{scope=\"s\"}} 4\n",
        (seconds * 100.0).round()
    );
    (body.into_bytes(), Format::Text)
}

fn refused(target: &Target) -> ScrapeError {
    ScrapeError::Connect {
        source_name: target.name.clone(),
        url: target.url.clone(),
        cause: "refused".to_owned(),
    }
}

async fn observe(receiver: &mut watch::Receiver<Option<Arc<Observation>>>) -> Arc<Observation> {
    receiver.changed().await.expect("the poller runs");
    receiver.borrow_and_update().clone().expect("published")
}

#[tokio::test(start_paused = true)]
async fn one_observation_per_interval_with_rates_from_the_second_on() {
    let config = config(&["gateway"]);
    let origin = config.origin;
    let (sender, mut receiver) = watch::channel(None);
    let fetch = move |_| async move { Ok(gateway(origin.elapsed().as_secs_f64())) };
    let _poller = Poller::spawn_with(config, fetch, sender);
    let first = observe(&mut receiver).await;
    assert_eq!(first.scopes[0].number("inflight_limit"), Some(4.0));
    assert!(first.scopes[0].get("originals_rps").is_none());
    let second = observe(&mut receiver).await;
    assert_eq!(second.at.saturating_since(first.at), SECOND);
    assert_eq!(second.scopes[0].number("originals_rps"), Some(100.0));
    assert_eq!(second.sources[0].polls, 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_polls_last_is_asked_where_numbers_come_from() {
    let origins = Origins::default();
    let ask = || origins.ask("s".to_owned(), "originals_rps".to_owned());
    assert_eq!(ask().await, Err("nothing is polled now".to_owned()));
    let poll = |factor: f64| {
        let config = PollConfig { origins: origins.clone(), ..config(&["gateway"]) };
        let origin = config.origin;
        let (sender, receiver) = watch::channel(None);
        let fetch = move |_| async move { Ok(gateway(factor * origin.elapsed().as_secs_f64())) };
        (Poller::spawn_with(config, fetch, sender), receiver)
    };
    for factor in [1.0, 3.0] {
        let (poller, mut receiver) = poll(factor);
        observe(&mut receiver).await;
        observe(&mut receiver).await;
        let told = ask().await.expect("it polls");
        let outcome = told.accounts[0].readings[0].outcome.clone();
        assert_eq!(outcome, Ok(crate::signal::Value::Number(100.0 * factor)));
        drop(poller);
        tokio::task::yield_now().await;
    }
    assert_eq!(ask().await, Err("nothing is polled now".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_source_says_how_long_its_numbers_count() {
    for (interval_s, expected_s) in [(15, 45.0), (60, 180.0)] {
        let mut config = config(&["gateway"]);
        config.sources[0].interval = Duration::from_secs(interval_s);
        let (sender, mut receiver) = watch::channel(None);
        let fetch = move |_| async move { Ok(gateway(1.0)) };
        let _poller = Poller::spawn_with(config, fetch, sender);
        let seen = observe(&mut receiver).await;
        let stale_after_s = seen.sources[0].stale_after_s;
        assert!((stale_after_s - expected_s).abs() < 1e-9, "{interval_s}: {stale_after_s}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_is_named_grows_old_and_comes_back() {
    let config = config(&["gateway", "provider"]);
    let origin = config.origin;
    let (sender, mut receiver) = watch::channel(None);
    let fetch = move |target: Arc<Target>| async move {
        let now = origin.elapsed().as_secs_f64();
        let is_down = target.name == "provider" || (5.0..15.0).contains(&now);
        if is_down { Err(refused(&target)) } else { Ok(gateway(now)) }
    };
    let _poller = Poller::spawn_with(config, fetch, sender);
    let mut rounds = Vec::new();
    for _ in 0..20 {
        rounds.push(observe(&mut receiver).await);
    }
    let gateway_at = |round: usize| (&rounds[round].sources[0], &rounds[round].scopes[0]);

    let (status, snapshot) = gateway_at(4);
    assert_eq!((status.error.as_deref(), status.failures), (None, 0));
    assert!(snapshot.get("inflight_limit").is_some());

    let (status, snapshot) = gateway_at(6);
    let error = status.error.as_deref().expect("down");
    assert!(error.starts_with("gateway: nothing answers"), "{error}");
    let kept = snapshot.get("inflight_limit").expect("kept while young");
    assert!(kept.age_s > 2.0, "with its age, got {}", kept.age_s);

    let (_, snapshot) = gateway_at(12);
    assert!(snapshot.get("inflight_limit").is_none());
    let why = &snapshot.absent["inflight_limit"];
    assert!(why.starts_with("stale: gateway last answered 8 s ago"), "{why}");

    let (status, snapshot) = gateway_at(19);
    assert_eq!((status.error.as_deref(), status.failures), (None, 10));
    assert_eq!(snapshot.number("inflight_limit"), Some(4.0));
    assert!((snapshot.number("originals_rps").expect("warm again") - 100.0).abs() < 1.0);

    let provider = &rounds[19].sources[1];
    assert_eq!((provider.failures, provider.last_good), (20, None));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_is_cut_off_and_never_asked_twice_at_once() {
    let mut config = config(&["gateway", "provider"]);
    // Longer than the interval: the next ticks are skipped, not queued.
    let Road::Pages { target, .. } = &mut config.sources[1].road else { panic!("pages") };
    target.timeout = Duration::from_millis(2500);
    let origin = config.origin;
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(Mutex::new(0));
    let (sender, mut receiver) = watch::channel(None);
    let fetch = {
        let most = Arc::clone(&most);
        move |target: Arc<Target>| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                if target.name == "gateway" {
                    return Ok(gateway(origin.elapsed().as_secs_f64()));
                }
                let guard = Running::enter(running, &most);
                std::future::pending::<()>().await;
                drop(guard);
                Err(refused(&target))
            }
        }
    };
    let _poller = Poller::spawn_with(config, fetch, sender);
    let mut last = observe(&mut receiver).await;
    for _ in 0..9 {
        last = observe(&mut receiver).await;
    }
    assert_eq!(last.sources[0].failures, 0, "the other source is not held up");
    assert_eq!(last.sources[0].polls, 10);
    let error = last.sources[1].error.as_deref().expect("hangs");
    assert_eq!(error, "provider: no whole answer within 2500 ms");
    assert_eq!(*most.lock().expect("not poisoned"), 1);
}

/// Counts how many fetches run at once, until dropped.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn enter(running: Arc<AtomicUsize>, most: &Mutex<usize>) -> Self {
        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
        let mut most = most.lock().expect("not poisoned");
        *most = (*most).max(now);
        Self(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_poller_stops_it() {
    let (sender, mut receiver) = watch::channel(None);
    let fetch = |_| async { Ok(gateway(0.0)) };
    let poller = Poller::spawn_with(config(&["gateway"]), fetch, sender);
    observe(&mut receiver).await;
    drop(poller);
    assert!(receiver.changed().await.is_err(), "the sender is gone");
}

#[test]
fn jitter_stays_within_its_share() {
    for name in ["gateway", "provider", "clients", "", "a"] {
        assert!(jitter(name, SECOND) <= SECOND.mul_f64(JITTER_SHARE), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_instance_of_several_that_is_down_is_named_and_the_rest_goes_on() {
    let mut config = config(&["gateway"]);
    let instances = ["a", "b"]
        .map(|name| Instance { name: name.to_owned(), url: format!("http://{name}/metrics") });
    let Road::Pages { instances: found, .. } = &mut config.sources[0].road else { panic!("pages") };
    *found = Discovery::Static(instances.into());
    let origin = config.origin;
    let (sender, mut receiver) = watch::channel(None);
    let fetch = move |target: Arc<Target>| async move {
        let now = origin.elapsed().as_secs_f64();
        let is_down = target.url == "http://b/metrics" && now > 3.0;
        if is_down { Err(refused(&target)) } else { Ok(gateway(now)) }
    };
    let _poller = Poller::spawn_with(config, fetch, sender);
    let mut rounds = Vec::new();
    for _ in 0..9 {
        rounds.push(observe(&mut receiver).await);
    }
    let (before, after) = (&rounds[2], &rounds[8]);
    assert_eq!((before.sources[0].instances, before.sources[0].samples), ((2, 2), 4));
    assert_eq!(before.scopes[0].number("inflight_limit"), Some(8.0));

    let status = &after.sources[0];
    assert_eq!((status.instances, status.error.as_deref()), ((1, 2), None));
    assert!(status.warnings[0].starts_with("gateway b: nothing answers"), "{status:?}");
    let reading = after.scopes[0].get("originals_rps").expect("one is left");
    assert_eq!(reading.note.as_deref(), Some("1 of 2 instances"));
}
