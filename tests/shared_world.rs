//! Four gates share a quota through one keeper, on a virtual clock: what must hold of them together.

mod shared_instances;

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use shared_instances::{Plan, World};
use weir::admission::{ScopeConfig, Semantics, Settings, WithoutStore};
use weir::signal::Mono;

/// Tokens a second that the provider allows: of requests of mean size, 20.
const QUOTA: f64 = 6_000.0;
const WINDOW: Duration = Duration::from_mins(1);
/// What two messages may overtake each other by, which moves a call across a window's edge.
const OVERTAKING: Duration = Duration::from_millis(10);
const SEMANTICS: [Semantics; 3] =
    [Semantics::TokenBucket, Semantics::SlidingWindow, Semantics::FixedWindow];

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

/// Four instances, each offered the whole quota, before a provider that holds two seconds' worth.
fn steady(semantics: Semantics) -> Plan {
    let scope = ScopeConfig {
        tpm: Some(60.0 * QUOTA),
        rpm: Some(3_600.0),
        semantics,
        slices: Vec::new(),
        ..ScopeConfig::named("sim/main/all")
    };
    let provider = format!(
        "requests = {{ per_minute = 3600 }}\n\
         tokens = {{ per_minute = {}, capacity = {}, start = 0 }}",
        60.0 * QUOTA,
        2.0 * QUOTA
    );
    Plan {
        instances: 4,
        scope,
        settings: Settings::default(),
        provider,
        offered: 20.0,
        tokens: 200..400,
        batch_ratio: 0.2,
        patience_s: 0.5..8.0,
        leaving_ratio: 0.1,
        silent_s: None,
        loss_ratio: 0.0,
        throttle: None,
        traffic_s: 130.0,
        seed: 1,
    }
}

/// Tokens that the provider served in this span.
fn served(world: &World, from: Mono, to: Mono) -> f64 {
    let within = world.served.iter().filter(|call| call.at >= from && call.at < to);
    within.map(|call| call.tokens).sum()
}

/// The most tokens in one window, in the scope's own way of counting.
fn most_in_a_window(world: &World, semantics: Semantics, until: Mono) -> f64 {
    let starts: Vec<Mono> = match semantics {
        Semantics::FixedWindow => (0..5_u32).map(|n| at(0.0) + WINDOW * n + OVERTAKING).collect(),
        _ => world.served.iter().map(|call| call.at).collect(),
    };
    let window = WINDOW.saturating_sub(OVERTAKING);
    let ends_in_time = starts.into_iter().filter(|start| *start + window <= until);
    ends_in_time.map(|start| served(world, start, start + window)).fold(0.0, f64::max)
}

/// Everything that was held is free again, at every gate and at the keeper.
fn leftovers(world: &mut World) -> Vec<String> {
    let mut left = Vec::new();
    for (number, gate) in world.gates.iter().enumerate() {
        let scope = &gate.scopes()[0];
        let held = (gate.open_requests(), scope.in_flight(), scope.queue().len());
        if held != (0, 0, 0) {
            left.push(format!("gate {number} holds {held:?}: requests, calls, queue"));
        }
        if scope.keeping().is_none_or(|keeping| keeping.lost_since().is_some()) {
            left.push(format!("gate {number} does not know that the keeper answers"));
        }
    }
    let limits = world.gates[0].scopes()[0].budget().meters().iter().map(|meter| *meter.limit());
    let limits: Vec<_> = limits.collect();
    let rest = world.at_rest();
    if rest.in_flight != 0 {
        left.push(format!("the keeper knows of {} open calls", rest.in_flight));
    }
    for (limit, rest) in limits.iter().zip(&rest.left) {
        if *rest < limit.amount * 0.999 {
            left.push(format!("{rest} of {limit:?} is left when nobody has it"));
        }
    }
    left
}

#[test]
fn four_use_the_quota_evenly_and_are_never_above_it() {
    for semantics in SEMANTICS {
        let plan = steady(semantics);
        let mut world = World::new(&plan).play();
        assert!(world.breaches.is_empty(), "{semantics:?}: {:?}", world.breaches);
        let end = at(plan.traffic_s);
        let most = most_in_a_window(&world, semantics, end) / (60.0 * QUOTA);
        let used = served(&world, at(10.0), end) / (QUOTA * 120.0);
        let bins = (2..26).map(|n| {
            let from = at(5.0 * f64::from(n));
            served(&world, from, from + Duration::from_secs(5)) / (5.0 * QUOTA * used)
        });
        let bins: Vec<f64> = bins.collect();
        let (low, high) = bins
            .iter()
            .fold((f64::MAX, 0.0_f64), |(low, high), bin| (low.min(*bin), high.max(*bin)));
        let mut each = [0.0; 4];
        for call in &world.served {
            each[call.instance] += call.tokens;
        }
        let least = each.into_iter().fold(f64::MAX, f64::min) / each.iter().sum::<f64>();
        #[expect(clippy::cast_precision_loss, reason = "counts of two minutes")]
        let exchanges = world.exchanges as f64 / world.served.len() as f64;
        println!(
            "{semantics:?}: {used:.3} used, {most:.3} in a window, bins {low:.3} to {high:.3}, \
             {} refused, least share {least:.3}, {exchanges:.1} exchanges a call",
            world.refused
        );
        assert!(used >= 0.95, "{semantics:?}: {used} of the quota");
        assert!(most <= 1.0, "{semantics:?}: {most} of the quota in a window");
        assert_eq!(world.refused, 0, "{semantics:?}");
        assert!(low >= 0.95 && high <= 1.05, "{semantics:?}: {bins:?}");
        assert!(least >= 0.1, "{semantics:?}: {each:?}");
        assert_eq!(leftovers(&mut world), Vec::<String>::new(), "{semantics:?}");
    }
}

#[test]
fn a_throttle_of_one_pauses_all_and_they_come_back_at_the_pace() {
    let pause = Duration::from_secs(3);
    for semantics in SEMANTICS {
        let throttle = Some((at(30.0), pause));
        let plan = Plan { throttle, traffic_s: 60.0, ..steady(semantics) };
        let world = World::new(&plan).play();
        let throttled = world.throttled.expect("it came");
        // What was granted is on its way.
        let (from, to) = (throttled + OVERTAKING, throttled + pause);
        let within = world.sent.iter().filter(|sent| **sent > from && **sent < to).count();
        assert_eq!(within, 0, "{semantics:?}: attempts while the provider wants none");
        assert_eq!(world.refused, 0, "{semantics:?}");
        let back = served(&world, to, to + Duration::from_secs(5)) / (5.0 * QUOTA);
        println!("{semantics:?}: {back:.3} of the quota in the five seconds after the pause");
        assert!((0.7..=1.0).contains(&back), "{semantics:?}: {back} of the quota after the pause");
    }
}

#[test]
fn a_silent_keeper_leaves_each_its_share_and_is_found_again_though_no_lane_works_without_it() {
    for lanes in [WithoutStore::Open, WithoutStore::Closed] {
        let mut plan = Plan { silent_s: Some(30.0..45.0), ..steady(Semantics::TokenBucket) };
        plan.scope.policy.interactive_without_store = lanes;
        plan.scope.policy.batch_without_store = WithoutStore::Closed;
        let mut world = World::new(&plan).play();
        assert!(world.breaches.is_empty(), "{lanes:?}: {:?}", world.breaches);
        let silent = served(&world, at(31.0), at(45.0)) / (14.0 * QUOTA);
        let after = served(&world, at(47.0), at(127.0)) / (80.0 * QUOTA);
        let refused = world.refused;
        println!("{lanes:?}: {silent:.3} meanwhile, {after:.3} afterwards, {refused} refused");
        match lanes {
            WithoutStore::Open => assert!((0.9..=1.0).contains(&silent), "{silent}"),
            WithoutStore::Closed => assert!(silent < 0.01, "{silent}"),
        }
        assert!(after >= 0.95, "{lanes:?}: {after} of the quota");
        assert_eq!(leftovers(&mut world), Vec::<String>::new(), "{lanes:?}");
    }
}

#[test]
fn a_keeper_that_answers_now_and_then_is_told_what_began_without_it() {
    for semantics in SEMANTICS {
        let plan = Plan { loss_ratio: 0.1, ..steady(semantics) };
        let mut world = World::new(&plan).play();
        let used = served(&world, at(10.0), at(130.0)) / (120.0 * QUOTA);
        println!("{semantics:?}: {used:.3} used, {} refused", world.refused);
        assert!((0.8..=0.98).contains(&used), "{semantics:?}: {used} of the quota");
        // Until it is told, one instance's share comes on top of what the others take.
        assert!(world.refused <= 10, "{semantics:?}: {}", world.refused);
        assert_eq!(leftovers(&mut world), Vec::<String>::new(), "{semantics:?}");
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let silent = prop::option::of((5.0..40.0, 0.1..15.0));
    let silent = silent.prop_map(|silent| silent.map(|(from, length)| from..from + length));
    let keeper = (silent, prop_oneof![2 => Just(0.0), 1 => 0.0..0.05]);
    let leaving = prop_oneof![Just(0.0), 0.0..0.5];
    let traffic = (2.0..25.0, leaving, 0.0..0.5, 0.1..3.0);
    let limits = (0..SEMANTICS.len(), any::<bool>(), prop::option::of(2_u32..20), 1_u32..64);
    (keeper, traffic, limits, any::<u64>()).prop_map(|(keeper, traffic, limits, seed)| {
        let (silent_s, loss_ratio): (Option<Range<f64>>, f64) = keeper;
        let (offered, leaving_ratio, batch_ratio, patience) = traffic;
        let mut plan = steady(SEMANTICS[limits.0]);
        plan.settings.max_in_flight = limits.3;
        plan.scope.concurrency = limits.2;
        if limits.1 {
            plan.scope.slices = vec![Duration::from_secs(1), Duration::from_secs(10)];
        }
        Plan {
            offered,
            leaving_ratio,
            batch_ratio,
            patience_s: 0.02..patience,
            silent_s,
            loss_ratio,
            traffic_s: 70.0,
            seed,
            ..plan
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn all_that_is_held_comes_back_and_nobody_is_above_the_quota_while_the_keeper_answers(
        plan in plans(),
    ) {
        let mut world = World::new(&plan).play();
        prop_assert!(world.breaches.is_empty(), "{:?}", world.breaches);
        let answers_until = plan.silent_s.as_ref().map_or(plan.traffic_s, |silent| silent.start);
        let most = most_in_a_window(&world, plan.scope.semantics, at(answers_until));
        prop_assert!(most <= 60.0 * QUOTA, "{most} tokens in a window");
        if plan.silent_s.is_none() && plan.loss_ratio <= 0.0 {
            prop_assert_eq!(world.refused, 0);
            // Whose caller leaves is still open at the provider.
            if let Some(most) = plan.scope.concurrency.filter(|_| plan.leaving_ratio <= 0.0) {
                prop_assert!(world.open_max <= most, "{} calls open, {most} allowed", world.open_max);
            }
        }
        if let Some(silent) = &plan.silent_s {
            // Beside the rate the second's worth that a share may have saved up.
            let most = QUOTA * (silent.end - silent.start + 1.0);
            prop_assert!(served(&world, at(silent.start), at(silent.end)) <= most);
        }
        prop_assert_eq!(leftovers(&mut world), Vec::<String>::new());
    }
}
