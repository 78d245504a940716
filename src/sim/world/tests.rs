//! The default drill in the world of arithmetic, with gates that pass everything, or nothing.

use std::collections::VecDeque;

use super::*;
use crate::sim::layers::{AnswerSeen, LayersConfig, WrapperConfig};

/// The default drill of the design's section 7.
fn launch_config(seed: u64) -> WorldConfig {
    WorldConfig {
        provider: toml::from_str(
            "requests = { per_minute = 6000, start = 3000 }\n\
             tokens = { per_minute = 1_200_000, start = 36_000 }",
        )
        .expect("fits"),
        arrivals: toml::from_str(
            "tokens = { min = 300, max = 300 }\n\
             steps = [{ name = 'calm', at_s = 0, rate = 60 }, { name = 'storm', at_s = 10, rate = 180 }]",
        )
        .expect("fits"),
        layers: Stack::default(),
        patience: Patience::default(),
        seed,
    }
}

fn launch(seed: u64) -> World<PassThrough> {
    World::new(&launch_config(seed), PassThrough::default())
}

/// Counts from one second to another.
fn between(world: &mut World<PassThrough>, from_s: f64, to_s: f64) -> [f64; 4] {
    world.run_until(Mono::from_secs_f64(from_s));
    let before = world.counts();
    world.run_until(Mono::from_secs_f64(to_s));
    let after = world.counts();
    let rate =
        |count: u64| f64::from(u32::try_from(count).expect("a test is short")) / (to_s - from_s);
    [
        rate(after.attempts - before.attempts),
        rate(after.served - before.served),
        rate(after.originals_attempted - before.originals_attempted),
        rate(after.originals - before.originals),
    ]
}

#[test]
fn the_storm_has_the_numbers_of_the_design() {
    for seed in [1, 2, 3] {
        let mut world = launch(seed);
        let [calm_attempts, calm_served, _, calm_originals] = between(&mut world, 0.0, 10.0);
        assert!(calm_attempts <= calm_originals * 1.01, "the calm needs no retries");
        assert!((50.0..70.0).contains(&calm_served), "{calm_served} served/s in the calm");
        let [early, _, early_originals, _] = between(&mut world, 15.0, 17.0);
        assert!(early / early_originals > 3.3, "amplification six seconds after onset");
        let [attempts, served, originals, _] = between(&mut world, 30.0, 120.0);
        assert!((1_500.0..1_800.0).contains(&attempts), "{attempts} attempts/s");
        assert!((65.0..67.5).contains(&served), "{served} served/s");
        let amplification = attempts / originals;
        assert!((8.0..9.4).contains(&amplification), "amplification {amplification}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut world = launch(seed);
        let mut counts = Vec::new();
        for tenth in 1..=200_u32 {
            world.run_until(Mono::from_secs_f64(f64::from(tenth) / 10.0));
            counts.push(world.counts());
        }
        counts
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).last(), run(6).last());
}

#[test]
fn stop_and_drain_account_for_every_original() {
    let mut world = launch(4);
    world.run_until(Mono::from_secs_f64(25.0));
    world.stop();
    assert!(world.drain(Duration::from_secs(30)), "requests in flight end");
    let counts = world.counts();
    assert_eq!(counts.originals, counts.served + counts.failed);
    assert_eq!(counts.originals_attempted, world.provider().ledger().originals());
    assert_eq!((counts.offered, counts.calls.requests()), (counts.attempts, counts.attempts));
    assert_eq!(world.provider().in_flight(), 0);
}

/// A gate that refuses everything at once and tells the client to stop.
#[derive(Default)]
struct Closed(VecDeque<GateEffect>);

impl GateModel for Closed {
    fn handle_request(&mut self, request: &OfferedRequest, _now: Mono) {
        let answer = AnswerSeen { status: 429, should_retry: Some(false), ..AnswerSeen::default() };
        self.0.push_back(GateEffect::Answer { request: request.id, answer });
    }

    fn handle_reply(&mut self, _attempt: u64, _reply: &Reply, _now: Mono) {}

    fn handle_cancel(&mut self, _request: u64, _now: Mono) {}

    fn handle_timeout(&mut self, _now: Mono) {}

    fn poll_effect(&mut self) -> Option<GateEffect> {
        self.0.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }
}

#[test]
fn a_told_stop_leaves_only_people_and_deaf_wrappers_to_repeat() {
    let multiplication = |deaf| {
        let mut config = launch_config(1);
        let wrapper = WrapperConfig { deaf, ..WrapperConfig::default() };
        config.layers = Stack::from(&LayersConfig { wrapper, ..LayersConfig::default() });
        let mut world = World::new(&config, Closed::default());
        world.run_until(Mono::from_secs_f64(60.0));
        assert_eq!(world.counts().attempts, 0, "nothing reaches the provider");
        let offered = Tokens(world.counts().offered).as_f64();
        offered / Tokens(world.counts().originals).as_f64()
    };
    let (obeying, deaf) = (multiplication(false), multiplication(true));
    assert!((1.15..1.25).contains(&obeying), "one in five resubmits, not {obeying}");
    assert!((3.4..3.7).contains(&deaf), "three wrapper tries each time, not {deaf}");
}
