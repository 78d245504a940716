//! Several gates, scopes and faults around them: what reaches whom.

use super::*;
use crate::dialect::{Meter, MeterReading};
use crate::sim::provider::{CallId, Disguise, HintForm};

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn scope(name: &str) -> ScopeConfig {
    ScopeConfig { tpm: Some(60_000.0), ..ScopeConfig::named(name).with_buckets() }
}

fn gate(text: &str) -> GateConfig {
    let config: GateConfig = toml::from_str(text).expect("the text fits the types");
    config.check().expect("the values are in bounds");
    config
}

fn gated(text: &str) -> GatedWorld {
    let scopes = vec![scope("p/a/one"), scope("p/a/two")];
    GatedWorld::configured(scopes, &gate(text), Settings::default(), 1)
}

fn request(id: u64, scope: usize) -> OfferedRequest {
    OfferedRequest {
        id,
        identity: u128::from(id),
        scope,
        tokens: Tokens(100),
        output: Tokens(0),
        lane: Lane::Interactive,
        is_first: true,
        backfill: false,
        tenant: 0,
        retry_count: 0,
        deadline: None,
    }
}

fn good() -> Reply {
    Reply {
        call: CallId(0),
        latency: Duration::ZERO,
        outcome: Outcome::Ok { tokens: Tokens(100) },
        meters: [Meter::Requests, Meter::Tokens].map(|meter| MeterReading {
            limit: Some(50.0),
            remaining: Some(40.0),
            ..MeterReading::unknown(meter)
        }),
        hint_form: HintForm::Exact,
        disguise: Disguise::None,
    }
}

fn effects(world: &mut GatedWorld) -> Vec<GateEffect> {
    std::iter::from_fn(|| world.poll_effect()).collect()
}

/// Runs the gates' own time up to `until`.
fn run_until(world: &mut GatedWorld, until: Mono) {
    while let Some(next) = world.poll_timeout().filter(|next| *next <= until) {
        world.handle_timeout(next);
        assert!(world.poll_timeout().is_none_or(|again| again > next), "it spins");
    }
}

/// Answers every attempt that is asked for; how many there were.
fn answer_all(world: &mut GatedWorld, reply: &Reply, now: Mono) -> usize {
    let wanted = effects(world);
    let attempts = wanted.iter().filter_map(|effect| match effect {
        GateEffect::Attempt { attempt, .. } => Some(*attempt),
        GateEffect::Answer { .. } | GateEffect::HangUp { .. } => None,
    });
    attempts.map(|attempt| world.handle_reply(attempt, reply, now)).count()
}

/// Runs up to `until` before a provider that answers at once; the attempts that it got.
fn run_and_answer(world: &mut GatedWorld, until: Mono) -> usize {
    let mut answered = 0;
    while let Some(next) = world.poll_timeout().filter(|next| *next <= until) {
        world.handle_timeout(next);
        answered += answer_all(world, &good(), next);
    }
    answered
}

#[test]
fn a_request_is_counted_on_its_scope_at_its_instance() {
    let mut world = gated("instances = 2");
    for (id, scope) in [(0, 0), (1, 0), (2, 1), (4, 1)] {
        world.handle_request(&request(id, scope), at(1.0));
    }
    let offered: Vec<Vec<u64>> = world
        .gates()
        .map(|gate| gate.scopes().iter().map(|s| s.counters().offered.total()).collect())
        .collect();
    assert_eq!(offered, [[1, 2], [1, 0]]);
    assert_eq!((world.open_calls(0), world.open_calls(1)), (3, 1));
    assert_eq!(answer_all(&mut world, &good(), at(1.1)), 4);
    assert_eq!((world.open_calls(0), world.open_calls(1)), (0, 0));
    assert_eq!(effects(&mut world).len(), 4, "everybody is answered");
}

#[test]
fn leaked_permits_are_held_when_nothing_is_open_and_traffic_has_stopped() {
    let mut world = gated("faults = { leak = { ratio = 0.5, from_s = 1 } }");
    for id in 0..40 {
        let now = at(0.5 + 0.1 * f64::from(u32::try_from(id).expect("few")));
        world.handle_request(&request(id, 0), now);
        answer_all(&mut world, &good(), now);
    }
    run_and_answer(&mut world, at(60.0));
    let held = world.gate().scopes()[0].in_flight();
    assert!((8..30).contains(&held), "{held} of 35 since the fault began");
    assert_eq!(world.open_calls(0), 0);
}

#[test]
fn headers_that_are_not_read_leave_no_readings() {
    for (text, readings) in [("", 2), ("faults = { headers = false }", 0)] {
        let mut world = gated(text);
        world.handle_request(&request(1, 0), at(1.0));
        answer_all(&mut world, &good(), at(1.1));
        assert_eq!(world.gate().scopes()[0].readings().len(), readings, "{text}");
    }
}

#[test]
fn estimates_stay_wrong_where_usage_is_not_read() {
    let reserved = |text: &str| {
        let mut world = gated(text);
        let mut before = 0.0;
        let mut last = 0.0;
        for id in 0..50 {
            let now = at(10.0 * f64::from(u32::try_from(id).expect("few")));
            world.handle_request(&request(id, 0), now);
            answer_all(&mut world, &good(), now);
            let total = world.gate().scopes()[0].counters().tokens_reserved;
            (last, before) = (total - before, total);
        }
        last
    };
    let (learned, wrong) = (reserved(""), reserved("faults = { estimate_factor = 4 }"));
    assert!((95.0..140.0).contains(&learned), "{learned} for 100 tokens");
    assert!(wrong > 3.0 * learned, "{wrong} for 100 tokens");
}

#[test]
fn a_sound_store_answers_within_a_millisecond_and_a_slow_one_is_given_up() {
    let ask = |text: &str| {
        let mut world = gated(text);
        for id in 0..20 {
            let now = at(1.0 + f64::from(u32::try_from(id).expect("few")));
            world.handle_request(&request(id, 0), now);
            run_until(&mut world, now + Duration::from_millis(500));
            answer_all(&mut world, &good(), now + Duration::from_millis(500));
        }
        let answered = effects(&mut world).len();
        (world.store_counters(0).cloned(), answered)
    };
    assert_eq!(ask("").0, None, "one gate keeps its own state");
    let (sound, answered) = ask("shared = true");
    let sound = sound.expect("there is a store");
    assert_eq!((sound.timeouts, sound.errors, answered), (0, 0, 1));
    assert_eq!(sound.took.count(), sound.took.buckets[0]);
    let (slow, _) = ask("shared = true\nfaults = { store = { latency_ms = 80 } }");
    assert!(slow.is_some_and(|slow| slow.timeouts > 5));
    let (broken, _) = ask("shared = true\nfaults = { store = { error_ratio = 1 } }");
    assert!(broken.is_some_and(|broken| broken.errors > 5 && broken.timeouts == 0));
}

#[test]
fn instances_that_share_stay_within_the_quota_and_others_use_it_several_times() {
    let attempts = |text: &str| {
        let mut world = gated(text);
        let mut attempts = 0;
        for id in 0..4_000 {
            let now = at(0.01 * f64::from(u32::try_from(id).expect("few")));
            run_until(&mut world, now);
            world.handle_request(&request(id, 0), now);
            attempts += answer_all(
                &mut world,
                &Reply {
                    meters: [Meter::Requests, Meter::Tokens].map(MeterReading::unknown),
                    ..good()
                },
                now,
            );
        }
        attempts
    };
    let (one, shared, apart) =
        (attempts(""), attempts("instances = 4\nshared = true"), attempts("instances = 4"));
    assert!((380..=430).contains(&one), "{one} of 100 tokens each, in 40 s at 1,000 a second");
    assert!((340..=430).contains(&shared), "{shared} together");
    assert!(apart > 3 * one, "{apart} side by side");
}

#[test]
fn a_stalled_loop_is_late_by_what_waits_for_it() {
    let mut world = gated("faults = { stall = { ms = 100, from_s = 1, to_s = 2 } }");
    for id in 0..10 {
        world.handle_request(&request(id, 0), at(1.0));
    }
    assert_eq!(world.loop_lag(at(1.0)), Duration::from_secs(1));
    world.handle_cancel(3, at(1.0));
    let seen = |world: &GatedWorld| world.gate().scopes()[0].counters().offered.total();
    run_and_answer(&mut world, at(1.5));
    assert_eq!(seen(&world), 4, "of the first five one has gone");
    run_and_answer(&mut world, at(3.0));
    assert_eq!((seen(&world), world.loop_lag(at(3.0))), (9, Duration::ZERO));
    world.handle_request(&request(99, 0), at(3.0));
    assert_eq!(seen(&world), 10, "the stall is over");
}

#[test]
fn a_held_breaker_does_not_come_back_before_the_fault_is_over() {
    for held in ["open", "half-open"] {
        let mut world = gated(&format!(
            "faults = {{ breaker = {{ held = '{held}', from_s = 5, to_s = 60 }} }}"
        ));
        let (mut during, mut after) = (0, 0);
        for id in 0..1_000 {
            let now = at(0.1 * f64::from(u32::try_from(id).expect("few")));
            run_until(&mut world, now);
            world.handle_request(&request(id, 0), now);
            let served = answer_all(&mut world, &good(), now);
            match now.as_secs_f64() {
                20.0..60.0 => during += served,
                95.0.. => after += served,
                _ => {}
            }
        }
        assert_eq!(during, 0, "{held}: nothing passes");
        assert!(after > 0, "{held}: it has come back");
    }
}
