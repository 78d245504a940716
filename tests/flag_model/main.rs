//! Two people flip the same flags over a network that loses, delays and doubles, and crash on the way.
//!
//! The store is the service's own table, the people's side the tool's own flip and its look-up after a
//! crash. Whatever order things happen in: no stored change overwrites one that its author has not seen,
//! none is without an intent in a journal, none leads away from safe without its interlock, no timer
//! does, and no flip is forgotten. `WEIR_FLAG_MODEL_CASES` makes more runs than the usual 300.

mod operator;
mod world;

use operator::{Fate, Operator, Want};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
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
const CHANGES: [&[&str]; 12] = [
    &["admission.mode=off"],
    &["admission.mode=shadow"],
    &["admission.mode=enforce"],
    &["admission.enforced_ratio=0.5"],
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
    let low = Settings { enforced_ratio: 0.25, ..Settings::default() };
    prop_oneof![3 => Just(Settings::default()), 1 => Just(storm), 1 => Just(low)]
}

fn land(world: &mut World, people: &[Operator; 2]) -> TestCaseResult {
    if world.ghosts.is_empty() {
        return Ok(());
    }
    let ghost = world.ghosts.remove(0);
    let id = ghost.body.request_id.clone();
    let was_stored = world.stored.contains(&id);
    world.deliver(&ghost)?;
    if !was_stored && world.stored.contains(&id) {
        world.seen.ghosts_landed += 1;
        let denied = people.iter().any(|person| person.said_not_stored(&id));
        world.seen.late_ghosts += u64::from(denied);
    }
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

fn play(base: Settings, acts: Vec<Act>) -> Result<Seen, TestCaseError> {
    let mut world = World::new(base);
    let mut people = [Operator::new("alice"), Operator::new("bob")];
    for act in acts {
        match act {
            Act::Refresh(who, good) => people[who].refresh(&world, good),
            Act::Begin(who, want, hopes) => people[who].begin(&world, &want, hopes),
            Act::Step(who, fate, good) => people[who].step(&mut world, fate, good)?,
            Act::Steps(who, fate) => {
                for _ in 0..6 {
                    people[who].step(&mut world, fate, true)?;
                }
            }
            Act::Crash(who) => people[who].crash(&mut world),
            Act::Restart(who) => people[who].restart(&mut world)?,
            Act::Land => land(&mut world, &people)?,
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
        land(&mut world, &people)?;
    }
    Ok(world.seen)
}

#[test]
fn no_flip_is_lost_forged_or_forgotten() {
    let cases = std::env::var("WEIR_FLAG_MODEL_CASES").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: cases.unwrap_or(300),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let all = std::cell::RefCell::new(Vec::new());
    let runs = (bases(), prop::collection::vec(acts(), 10..90));
    let run = TestRunner::new(config).run(&runs, |(base, acts)| {
        all.borrow_mut().push(play(base, acts)?);
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    let all = all.into_inner();
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
    ];
    let limits = (sum(|seen| seen.late_ghosts), sum(|seen| seen.denied));
    for (what, count) in reached {
        assert!(count > 0, "the runs never had: {what}; {reached:?}, limits of reading {limits:?}");
    }
}
