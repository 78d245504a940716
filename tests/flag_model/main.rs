//! Two people flip the same flags over a network that loses, delays and doubles, and crash on the way.
//!
//! The store is the service's own table, the people's side the tool's own flip and its look-up after a
//! crash. Whatever order things happen in: no stored change overwrites one that its author has not seen,
//! none is without an intent in a journal, none leads away from safe without its interlock, no timer
//! does, no flip is forgotten, and what is said of one that got no answer stays so. Bugs that are planted are
//! found: a model that cannot fail proves nothing. `WEIR_FLAG_MODEL_CASES` makes more runs than the usual 300.

mod operator;
mod plant;
mod world;

use std::cell::RefCell;

use operator::{Fate, Operator, Want};
use plant::{PLANTS, Plant};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseResult, TestRng, TestRunner};
use weir::admission::{Mode, RetryOwner, Settings, flag};
use weir::flag::wire::{ApplyBody, ChangeRow, OverrideBy, OverrideRow, WireOnExpire, WireValue};
use world::{Request, Seen, World};

#[derive(Clone, Debug)]
enum Act {
    Refresh(usize, bool),
    Begin(usize, Want, bool),
    Step(usize, Fate, bool),
    Steps(usize, Fate),
    Crash(usize),
    Restart(usize),
    Land,
    Wait(i64),
    Calm(bool),
    Outside { change: (&'static str, Option<&'static str>), revert: bool, glass: bool },
    StoreRestarts,
}

/// Changes in both directions, alone and together.
const CHANGES: [&[&str]; 15] = [
    &["admission.mode=off"],
    &["admission.mode=shadow"],
    &["admission.mode=enforce"],
    &["admission.enforced_ratio=0.5"],
    &["adaptive.enabled=false", "admission.enforced_ratio=0.5"],
    &["adaptive.enabled=false"],
    &["adaptive.enabled=true"],
    &["admission.enforced_ratio=0.25"],
    &["admission.enforced_ratio=1"],
    &["retry.max_attempts=1"],
    &["retry.max_attempts=3"],
    &["retry.max_attempts=4"],
    &["retry.owner=client"],
    &["queue.max_depth=600"],
    &["admission.mode=enforce", "retry.max_attempts=base", "queue.max_age_s=5"],
];

const OUTSIDE: [(&str, Option<&str>); 8] = [
    ("admission.mode", Some("off")),
    ("admission.mode", Some("enforce")),
    ("admission.mode", None),
    ("admission.enforced_ratio", Some("0.25")),
    ("retry.max_attempts", Some("1")),
    ("retry.max_attempts", Some("3")),
    ("queue.max_depth", Some("300")),
    ("queue.max_age_s", None),
];

fn acts() -> impl Strategy<Value = Act> {
    let who = || 0_usize..2;
    let fate = || {
        prop_oneof![
            4 => Just(Fate::Answer),
            2 => Just(Fate::LoseAnswer),
            1 => Just(Fate::LoseRequest),
            2 => Just(Fate::Delay),
            1 => Just(Fate::Double),
        ]
    };
    let want = prop_oneof![
        6 => prop::sample::select(CHANGES.to_vec()).prop_map(Want::Change),
        2 => Just(Want::Contain),
        1 => Just(Want::Safe),
        3 => Just(Want::Undo),
    ];
    let good = || prop::bool::weighted(0.85);
    prop_oneof![
        5 => (who(), good()).prop_map(|(who, good)| Act::Refresh(who, good)),
        6 => (who(), want, any::<bool>()).prop_map(|(who, want, hopes)| Act::Begin(who, want, hopes)),
        8 => (who(), fate(), good()).prop_map(|(who, fate, good)| Act::Step(who, fate, good)),
        5 => (who(), fate()).prop_map(|(who, fate)| Act::Steps(who, fate)),
        1 => who().prop_map(Act::Crash),
        2 => who().prop_map(Act::Restart),
        2 => Just(Act::Land),
        3 => prop_oneof![0_i64..10, 290_i64..310, 800_i64..2_000].prop_map(Act::Wait),
        2 => prop::bool::weighted(0.6).prop_map(Act::Calm),
        2 => (prop::sample::select(OUTSIDE.to_vec()), any::<bool>(), any::<bool>())
            .prop_map(|(change, revert, glass)| Act::Outside { change, revert, glass }),
        1 => Just(Act::StoreRestarts),
    ]
}

/// Settings that a service may be configured with.
fn bases() -> impl Strategy<Value = Settings> {
    let storm = Settings {
        mode: Mode::Off,
        retry_owner: RetryOwner::Client,
        retry_max_attempts: 3,
        ..Settings::default()
    };
    let low = Settings { enforced_ratio: 0.25, adaptive: false, ..Settings::default() };
    prop_oneof![3 => Just(Settings::default()), 1 => Just(storm), 1 => Just(low)]
}

fn land(world: &mut World) -> TestCaseResult {
    if world.ghosts.is_empty() {
        return Ok(());
    }
    let ghost = world.ghosts.remove(0);
    let id = ghost.body.request_id.clone();
    let was_stored = world.stored.contains(&id);
    world.deliver(&ghost)?;
    world.seen.ghosts_landed += u64::from(!was_stored && world.stored.contains(&id));
    Ok(())
}

/// Somebody who goes past weir: with the right revision, and no journal.
fn outside(
    world: &mut World,
    (key, value): (&str, Option<&str>),
    revert: bool,
    glass: bool,
) -> TestCaseResult {
    let request_id = format!("outside-{}", world.outside.len());
    world.outside.insert(request_id.clone());
    let value = value.map(|text| {
        WireValue::from(&flag(key).and_then(|def| def.parse(text)).expect("a real value"))
    });
    let body = ApplyBody {
        changes: vec![ChangeRow { key: key.to_owned(), value }],
        ttl_s: Some(900),
        on_expire: if revert { WireOnExpire::Revert } else { WireOnExpire::Remind },
        reason: "past weir".to_owned(),
        actor: "carol".to_owned(),
        incident: None,
        request_id,
        anchor: None,
        overriding: glass
            .then(|| OverrideRow { by: OverrideBy::BreakGlass, reason: "now".to_owned() }),
    };
    let seen = world.revision();
    world.deliver(&Request { body, seen, glass }).map(drop)
}

fn play(base: Settings, acts: Vec<Act>, plant: Option<Plant>) -> Result<Seen, TestCaseError> {
    let mut world = World::new(base, plant);
    let mut people = [Operator::new("alice"), Operator::new("bob")];
    for act in acts {
        match act {
            Act::Refresh(who, good) => people[who].refresh(&mut world, good)?,
            Act::Begin(who, want, hopes) => people[who].begin(&world, &want, hopes),
            Act::Step(who, fate, good) => people[who].step(&mut world, fate, good)?,
            Act::Steps(who, fate) => {
                for _ in 0..6 {
                    people[who].step(&mut world, fate, true)?;
                }
            }
            Act::Crash(who) => people[who].crash(&mut world),
            Act::Restart(who) => people[who].restart(&mut world)?,
            Act::Land => land(&mut world)?,
            Act::Wait(seconds) => world.wait(seconds)?,
            Act::Calm(calm) => world.calm = calm,
            Act::Outside { change, revert, glass } => outside(&mut world, change, revert, glass)?,
            Act::StoreRestarts => world.restart(),
        }
    }
    for person in &mut people {
        person.finish(&mut world)?;
        person.accounts_for()?;
    }
    while !world.ghosts.is_empty() {
        land(&mut world)?;
    }
    for person in &mut people {
        // Late ones are told too.
        person.refresh(&mut world, true)?;
        person.accounts_for()?;
    }
    Ok(world.seen)
}

/// Plays so many runs. The answer is what was seen, or how it failed.
fn runs(mut runner: TestRunner, plant: Option<Plant>) -> Result<Vec<Seen>, String> {
    let all = RefCell::new(Vec::new());
    let runs = (bases(), prop::collection::vec(acts(), 10..90));
    let run = runner.run(&runs, |(base, acts)| {
        let seen = play(base, acts, plant)?;
        all.borrow_mut().push(seen);
        Ok(())
    });
    run.map_err(|error| error.to_string())?;
    Ok(all.into_inner())
}

#[test]
fn no_flip_is_lost_forged_or_forgotten() {
    let cases = std::env::var("WEIR_FLAG_MODEL_CASES").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: cases.unwrap_or(300),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let all = runs(TestRunner::new(config), None).unwrap_or_else(|error| panic!("{error}"));
    let sum = |count: fn(&Seen) -> u64| all.iter().map(count).sum::<u64>();
    let reached = [
        ("stored", sum(|seen| seen.stored)),
        ("risky", sum(|seen| seen.risky)),
        ("undone", sum(|seen| seen.undone)),
        ("overridden", sum(|seen| seen.overridden)),
        ("refused", sum(|seen| seen.refused)),
        ("conflicts", sum(|seen| seen.conflicts)),
        ("ghosts landed", sum(|seen| seen.ghosts_landed)),
        ("repeats", sum(|seen| seen.repeats)),
        ("reverts", sum(|seen| seen.reverts)),
        ("answers lost", sum(|seen| seen.lost)),
        ("crashes", sum(|seen| seen.crashes)),
        ("looked up after a crash", sum(|seen| seen.reconciled)),
        ("told late", sum(|seen| seen.told_late)),
    ];
    let overwritten = sum(|seen| seen.told_overwritten);
    for (what, count) in reached {
        assert!(count > 0, "the runs never had: {what}; {reached:?}");
    }
    println!("{reached:?}, told to be overwritten {overwritten}");
}

#[test]
fn every_bug_that_is_planted_is_found() {
    for (plant, words) in PLANTS {
        let config = ProptestConfig {
            cases: 3_000,
            failure_persistence: None,
            // That it is found is what is asked, and not by how little.
            max_shrink_iters: 0,
            ..ProptestConfig::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let found = runs(TestRunner::new_with_rng(config, rng), Some(plant));
        let error = found.err().unwrap_or_else(|| panic!("{plant:?} is not found"));
        let is_it = words.iter().any(|words| error.contains(words));
        assert!(is_it, "{plant:?} is found as something else: {error}");
    }
}
