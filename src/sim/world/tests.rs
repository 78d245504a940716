//! The default drill in the world of arithmetic, with gates that pass everything, or nothing.

use std::collections::VecDeque;

use super::*;
use crate::sim::layers::{AnswerSeen, LayersConfig, WrapperConfig};

fn scope(name: &str, provider: &str) -> ScopeProvider {
    let provider: ProviderConfig = toml::from_str(provider).expect("fits");
    provider.check().expect("in bounds");
    ScopeProvider { name: name.to_owned(), provider }
}

fn caller(text: &str) -> CallerConfig {
    let mut caller: CallerConfig = toml::from_str(text).expect("fits");
    caller.check().expect("in bounds");
    caller.stack_layers("callers", &|path| Err(path.to_owned())).expect("layers");
    caller
}

/// The default drill of the design's section 7.
fn launch_config(seed: u64) -> WorldConfig {
    WorldConfig {
        providers: vec![scope(
            "embed",
            "requests = { per_minute = 6000, start = 3000 }\n\
             tokens = { per_minute = 1_200_000, start = 36_000 }",
        )],
        callers: vec![caller(
            "tokens = { min = 300, max = 300 }\n\
             steps = [{ name = 'calm', at_s = 0, rate = 60 }, { name = 'storm', at_s = 10, rate = 180 }]",
        )],
        layers: Stack::default(),
        app: AppConfig::default(),
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
    assert_eq!(
        (counts.offered, world.tallies()[0].calls[0].requests()),
        (counts.attempts, counts.attempts)
    );
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

/// A world in which nothing is scarce, with these callers.
fn plenty(callers: &[&str], more_scopes: &[(&str, &str)], seed: u64) -> World<PassThrough> {
    let wide = "requests = { per_minute = 600_000 }\ntokens = { per_minute = 600_000_000 }";
    let further = more_scopes.iter().map(|(name, text)| scope(name, text));
    let config = WorldConfig {
        providers: [scope("embed", wide)].into_iter().chain(further).collect(),
        callers: callers.iter().map(|text| caller(text)).collect(),
        layers: Stack::default(),
        app: AppConfig::default(),
        seed,
    };
    World::new(&config, PassThrough::default())
}

fn to_its_end(world: &mut World<PassThrough>, seconds: f64) -> WorldCounts {
    world.run_until(Mono::from_secs_f64(seconds));
    world.stop();
    assert!(world.drain(Duration::from_mins(1)), "everything ends");
    world.counts()
}

const SIZE: &str = "tokens = { min = 10, max = 10 }\n";

#[test]
fn callers_call_their_own_scopes_and_each_has_its_own_chance() {
    let main = format!("{SIZE}steps = [{{ at_s = 0, rate = 50 }}]");
    let other = format!(
        "name = 'chat'\nto = 'chat'\n{SIZE}output_tokens = {{ min = 5, max = 5 }}\n\
         steps = [{{ at_s = 0, rate = 50 }}]"
    );
    let scarce = "requests = { per_minute = 60 }\ntokens = { per_minute = 600 }";
    let mut alone = plenty(&[&main], &[], 3);
    let mut both = plenty(&[&main, &other], &[("chat", scarce)], 3);
    let alone = to_its_end(&mut alone, 60.0);
    to_its_end(&mut both, 60.0);
    let [embed, chat] = both.tallies() else { panic!("two scopes") };
    assert_eq!(embed.totals.originals, alone.originals, "the other caller changes nothing for it");
    assert_eq!((embed.totals.failed, embed.totals.failures), (0, 0), "nor does its storm");
    assert!(chat.totals.failures > 1_000, "{:?}", chat.totals);
    let charged = both.providers()[1].ledger().tokens();
    assert_eq!(charged, Tokens(15 * chat.totals.served), "answers are charged too");
}

#[test]
fn a_request_counts_in_the_scope_that_it_goes_to_and_its_call_in_its_own() {
    let main = format!(
        "{SIZE}steps = [{{ at_s = 0, rate = 20 }}]\n\
         layers = [{{ use = 'fallback', to = ['dead', 'embed'] }}, {{ use = 'httpx' }}]"
    );
    let dead = "requests = { per_minute = 1 }\ntokens = { per_minute = 1 }";
    let mut world = plenty(&[&main], &[("dead", dead)], 1);
    let counts = to_its_end(&mut world, 30.0);
    let [own, dead] = world.tallies() else { panic!("two scopes") };
    assert_eq!((own.totals.originals, own.totals.served), (counts.originals, counts.served));
    assert_eq!((dead.totals.originals, own.totals.failures), (0, 0));
    assert_eq!(dead.totals.failures, counts.originals);
    for tally in [own, dead] {
        let calls: u64 = tally.kinds().map(|(_, counts)| counts.calls).sum();
        assert_eq!((calls, tally.in_flight), (counts.originals, 0));
    }
    let now = world.now();
    assert!(own.dead_for(now).is_zero() && dead.dead_for(now) > Duration::from_secs(25));
}

#[test]
fn a_job_ends_when_its_items_do_and_a_cron_is_in_step() {
    let job =
        format!("name = 'job'\nkind = 'job'\n{SIZE}job = {{ items = 40, at_s = 5, workers = 4 }}");
    let cron = format!("name = 'cron'\n{SIZE}fan_out = 20\ncron = {{ every_s = 10, at_s = 1 }}");
    let mut world = plenty(&[&job, &cron], &[], 1);
    world.run_until(Mono::from_secs_f64(4.9));
    assert_eq!(world.counts().originals, 20, "one task of the cron");
    world.run_until(Mono::from_secs_f64(5.0));
    assert_eq!(world.counts().originals, 24, "one item for each worker");
    let counts = to_its_end(&mut world, 45.0);
    assert_eq!(counts.originals, 40 + 5 * 20);
    let items = world.tallies()[0].items().expect("there is a job");
    assert_eq!((items.listed, items.done, items.duplicates), (40, 40, 0));
    assert_eq!(world.tallies()[0].totals.tasks_done, 5);
}

#[test]
fn an_agent_that_goes_round_makes_many_successful_calls_of_one_original() {
    let agent = format!(
        "name = 'agent'\nkind = 'agent'\n{SIZE}calls_per_task = 8\nsteps = [{{ at_s = 0, rate = 2 }}]"
    );
    let mut world = plenty(&[&agent], &[], 1);
    to_its_end(&mut world, 60.0);
    let Totals { chains, served, final_answers, .. } = world.tallies()[0].totals;
    assert!(served > chains * 7 && served <= chains * 8, "{served} of {chains}");
    assert!(final_answers > 80 && final_answers <= chains, "{final_answers} of {chains}");
}

#[test]
fn a_poisoned_item_fails_the_same_way_every_time() {
    let job = format!(
        "name = 'job'\n{SIZE}poisoned_ratio = 0.2\n\
         job = {{ items = 50, workers = 2, requeues = 20, requeue_after_s = 1 }}"
    );
    let mut world = plenty(&[&job], &[], 1);
    let counts = to_its_end(&mut world, 120.0);
    let tally = &world.tallies()[0];
    let items = tally.items().expect("there is a job");
    assert_eq!(items.done + items.given_up, 50);
    assert!((4..20).contains(&items.given_up), "{items:?}");
    assert_eq!(items.begun, items.done + 21 * items.given_up);
    assert_eq!(counts.failed, 21 * items.given_up);
    assert!(tally.totals.failures_of_few * 10 > tally.totals.failures * 9, "{:?}", tally.totals);
}

#[test]
fn people_who_leave_unnoticed_leave_work_behind() {
    let leaving = |noticed| {
        let text = format!(
            "{SIZE}steps = [{{ at_s = 0, rate = 50 }}]\n\
             leaves = {{ ratio = 1, within_s = 0.1, noticed = {noticed} }}"
        );
        let mut world = plenty(&[&text], &[], 1);
        world.run_until(Mono::from_secs_f64(30.0));
        let (open, orphans) = (world.tallies()[0].open, world.tallies()[0].orphans);
        to_its_end(&mut world, 31.0);
        (world.tallies()[0].totals, open, orphans)
    };
    let (seen, _, orphans) = leaving(true);
    assert_eq!((orphans, seen.undelivered), (0, 0));
    assert!(seen.hung_up > 1_000 && seen.hung_up == seen.left, "{seen:?}");
    let (unseen, open, orphans) = leaving(false);
    assert!(orphans * 2 > open, "{orphans} of {open}");
    assert_eq!(unseen.hung_up, 0);
    assert!(unseen.undelivered > 1_000, "{unseen:?}");
    assert_eq!(unseen.originals, unseen.served + unseen.failed);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(24))]
    #[test]
    fn every_call_and_every_item_is_accounted_for(
        seed in proptest::prelude::any::<u64>(),
        (rate, fan_out, rounds) in (1_u32..30, 1_u32..5, 1_u32..4),
        (items, workers, requeues) in (1_u32..60, 1_u32..9, 0_u32..3),
        (poisoned, leaving) in (0.0..0.5, 0.0..0.5),
        noticed in proptest::prelude::any::<bool>(),
        rpm in 60_u32..6_000,
    ) {
        let open_loop = format!(
            "{SIZE}steps = [{{ at_s = 0, rate = {rate}, ramp_s = 5 }}]\nfan_out = {fan_out}\n\
             calls_per_task = {rounds}\npoisoned_ratio = {poisoned}\ndeadline_s = 3\n\
             leaves = {{ ratio = {leaving}, within_s = 2, noticed = {noticed} }}"
        );
        let job = format!(
            "name = 'job'\n{SIZE}poisoned_ratio = {poisoned}\njob = {{ items = {items}, workers = {workers},\
             requeues = {requeues}, requeue_after_s = 1, every_s = 8, redeliver_s = 2 }}"
        );
        let tight = format!("requests = {{ per_minute = {rpm}, start = 10 }}\ntokens = {{ per_minute = 600_000 }}");
        let mut config = launch_config(seed);
        config.providers = vec![scope("embed", &tight)];
        config.callers = vec![caller(&open_loop), caller(&job)];
        let mut world = World::new(&config, PassThrough::default());
        let counts = to_its_end(&mut world, 20.0);
        let tally = &world.tallies()[0];
        proptest::prop_assert_eq!(counts.originals, counts.served + counts.failed);
        proptest::prop_assert_eq!((tally.open, tally.orphans, tally.in_flight, tally.waiting), (0, 0, 0, 0));
        proptest::prop_assert_eq!(counts.attempts, counts.offered);
        proptest::prop_assert_eq!(counts.originals_attempted, world.provider().ledger().originals());
        let mut again = World::new(&config, PassThrough::default());
        proptest::prop_assert_eq!(to_its_end(&mut again, 20.0), counts, "the same seed, the same run");
    }
}
