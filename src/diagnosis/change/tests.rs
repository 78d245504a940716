//! Changes over virtual time: what is one, what is noise, and which baselines it voids.

use super::*;
use crate::diagnosis::STALE_AFTER_S;
use crate::signal::Quality;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn snapshot(numbers: &[(&str, f64)]) -> Snapshot {
    let mut snapshot = Snapshot::new("s", 10.0);
    for (name, number) in numbers {
        snapshot.set(name, Value::Number(*number), &Arc::from("gateway"));
    }
    snapshot
}

fn with_models(ids: &[&str]) -> Snapshot {
    let mut snapshot = snapshot(&[]);
    let row =
        |id: &&str| Value::Map(BTreeMap::from([("id".to_owned(), Value::Text((*id).to_owned()))]));
    snapshot.set("models", Value::List(ids.iter().map(row).collect()), &Arc::from("gateway"));
    snapshot
}

/// What a watch says of these snapshots, one a second, as `what from -> to @second`.
fn said(snapshots: &[Snapshot]) -> Vec<String> {
    said_every(1.0, snapshots)
}

fn said_every(step_s: f64, snapshots: &[Snapshot]) -> Vec<String> {
    let mut watch = ChangeWatch::default();
    let mut second = 0.0;
    for snapshot in snapshots {
        watch.step(snapshot, at(second));
        second += step_s;
    }
    let line = |change: &Arc<Change>| {
        let from = change.from.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
        let second = change.at.as_secs_f64();
        format!("{} {from} -> {} @{second:.0}", change.what.name(), change.to)
    };
    watch.recent().map(line).collect()
}

#[test]
fn a_limit_has_to_be_seen_twice() {
    let limits = |values: &[f64]| -> Vec<Snapshot> {
        values.iter().map(|value| snapshot(&[("tpm_limit", *value)])).collect()
    };
    assert_eq!(said(&limits(&[9.0, 9.0, 4.0, 4.0, 4.0])), ["tpm_limit 9 -> 4 @2"]);
    assert!(said(&limits(&[9.0, 9.0, 4.0, 9.0, 4.0, 9.0])).is_empty());
    assert!(said(&limits(&[9.0, 4.0, 5.0, 6.0])).is_empty(), "no value came twice");
    let back = said(&limits(&[9.0, 4.0, 4.0, 9.0, 9.0]));
    assert_eq!(back, ["tpm_limit 9 -> 4 @1", "tpm_limit 4 -> 9 @3"]);
}

/// The same snapshots once a second, each read `period_s` apart and growing older in between.
fn told_again(period_s: u32, snapshots: &[Snapshot]) -> Vec<Snapshot> {
    let aged = |(snapshot, age_s): (&Snapshot, u32)| {
        let mut aged = snapshot.clone();
        aged.signals.values_mut().for_each(|reading| reading.age_s = f64::from(age_s));
        aged
    };
    let told = snapshots.iter().flat_map(|one| (0..period_s).map(move |age_s| (one, age_s)));
    told.map(aged).collect()
}

#[test]
fn a_reading_that_is_told_again_confirms_nothing() {
    let limits = |values: &[f64]| -> Vec<Snapshot> {
        values.iter().map(|value| snapshot(&[("tpm_limit", *value)])).collect()
    };
    for period_s in [5, 15, 60] {
        let once = told_again(period_s, &limits(&[9.0, 4.0, 9.0, 9.0]));
        assert!(said(&once).is_empty(), "one reading every {period_s} s");
        let twice = told_again(period_s, &limits(&[9.0, 4.0, 4.0]));
        assert_eq!(said(&twice), [format!("tpm_limit 9 -> 4 @{period_s}")]);
    }
    let prompts = |values: &[f64]| -> Vec<Snapshot> {
        values.iter().map(|value| snapshot(&[("tokens_per_request", *value)])).collect()
    };
    let burst = told_again(60, &prompts(&[300.0, 300.0, 300.0, 900.0, 300.0]));
    assert!(said(&burst).is_empty(), "one reading of large prompts");
    let models = [with_models(&["a"]), with_models(&["a", "b"]), with_models(&["a"])];
    let mut rounds = vec![models[0].clone(); 7];
    rounds.extend_from_slice(&models[1..]);
    assert!(said(&told_again(60, &rounds)).is_empty(), "one reading of another model");
}

#[test]
fn a_list_of_instances_that_grows_voids_what_instances_move() {
    let mut watch = ChangeWatch::default();
    let look = |watch: &mut ChangeWatch, second: u32, source, all, read_s: u32| {
        let told = InstanceCount { source, all, read_at: at(f64::from(read_s)) };
        watch.instances("s", &told, at(f64::from(second)));
    };
    let said = |watch: &ChangeWatch| -> Vec<String> {
        let line = |one: &Arc<Change>| {
            let from = one.from.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{} {from} -> {} @{:.0}", one.what.name(), one.to, one.at.as_secs_f64())
        };
        watch.recent().map(line).collect()
    };
    look(&mut watch, 0, "gateway", 2, 0);
    look(&mut watch, 1, "clients", 9, 1);
    look(&mut watch, 15, "gateway", 3, 15);
    look(&mut watch, 16, "gateway", 3, 15);
    assert!(said(&watch).is_empty(), "another source, and one answer told twice");
    look(&mut watch, 30, "gateway", 3, 30);
    assert_eq!(said(&watch), ["replicas 2 -> 3 @15"]);
    assert!(watch.voiding("queue_depth", at(0.0)).is_some());
    // The gate's own word on it is the same event.
    for (second, replicas) in [(31.0, 2.0), (32.0, 3.0), (33.0, 3.0)] {
        watch.step(&snapshot(&[("replicas", replicas)]), at(second));
    }
    assert_eq!(said(&watch).len(), 1);
}

#[test]
fn our_own_limit_in_place_of_the_providers_is_no_change() {
    let told = snapshot(&[("tpm_limit", 9.0)]);
    let mut own = snapshot(&[("tpm_limit", 4.0)]);
    own.signals.get_mut("tpm_limit").expect("set").quality = Quality::Inferred;
    let mut old = snapshot(&[("tpm_limit", 4.0)]);
    old.signals.get_mut("tpm_limit").expect("set").age_s = STALE_AFTER_S + 1.0;
    let gone = snapshot(&[]);
    let rounds = [&told, &own, &own, &old, &old, &gone, &gone, &told, &told].map(Clone::clone);
    assert!(said(&rounds).is_empty());
}

#[test]
fn all_limits_at_once_are_a_tier() {
    let both = |rpm, tpm| snapshot(&[("rpm_limit", rpm), ("tpm_limit", tpm)]);
    let rounds = [both(60.0, 900.0), both(30.0, 450.0), both(30.0, 450.0)];
    assert_eq!(said(&rounds), ["tier rpm 60, tpm 900 -> rpm 30, tpm 450 @1"]);
    let rounds = [both(60.0, 900.0), both(60.0, 450.0), both(60.0, 450.0)];
    assert_eq!(said(&rounds), ["tpm_limit 900 -> 450 @1"]);
}

#[test]
fn the_day_meter_that_binds_may_be_another_without_a_change() {
    let day = |day, rpd| snapshot(&[("day_limit", day), ("rpd_limit", rpd)]);
    assert!(said(&[day(9.0, 9.0), day(70.0, 9.0), day(70.0, 9.0)]).is_empty());
}

#[test]
fn models_are_learned_first_and_then_news() {
    let minutes = |ids: &[&str], count: usize| vec![with_models(ids); count];
    let mut rounds = minutes(&["a"], 2);
    rounds.extend(minutes(&["b"], 3));
    assert!(said_every(60.0, &rounds).is_empty(), "within the first minutes both are known");
    rounds.extend(minutes(&["a", "b"], 2));
    rounds.extend(minutes(&["a", "b", "c"], 1));
    assert!(said_every(60.0, &rounds).is_empty(), "seen once");
    rounds.extend(minutes(&["a", "b", "c"], 1));
    assert_eq!(said_every(60.0, &rounds), ["models a, b -> a, b, c @480"]);
    rounds.extend(minutes(&["a", "c"], 9));
    assert_eq!(said_every(60.0, &rounds).len(), 1, "quiet for nine minutes is not gone");
    rounds.extend(minutes(&["a", "c"], 1));
    assert_eq!(said_every(60.0, &rounds)[1], "models a, b, c -> a, c @1080");
    rounds.extend(vec![snapshot(&[]); 30]);
    assert_eq!(said_every(60.0, &rounds).len(), 2, "no traffic is no change");
}

#[test]
fn a_deploy_is_when_it_was_and_counting_on_is_none() {
    let since = |minutes| snapshot(&[("minutes_since_deploy", minutes)]);
    let rounds = [since(4_000.0), since(4_001.0), since(4_000.8), since(0.0), since(1.0)];
    assert_eq!(said_every(60.0, &rounds), ["deploy 4001 min ago -> 0 min ago @180"]);
}

#[test]
fn prompts_have_another_size_only_when_it_lasts() {
    let prompts = |values: &[(usize, f64)]| -> Vec<Snapshot> {
        let round = |(count, tokens): &(usize, f64)| {
            vec![snapshot(&[("tokens_per_request", *tokens)]); *count]
        };
        values.iter().flat_map(round).collect()
    };
    assert!(said(&prompts(&[(90, 300.0), (59, 900.0), (90, 300.0)])).is_empty(), "a burst");
    assert!(said(&prompts(&[(90, 300.0), (300, 400.0)])).is_empty(), "a little larger");
    assert_eq!(said(&prompts(&[(90, 300.0), (90, 900.0)])), ["prompt size 300 -> 900 @90"]);
    assert_eq!(said(&prompts(&[(90, 300.0), (90, 100.0)])), ["prompt size 300 -> 100 @90"]);
    assert!(said(&prompts(&[(10, 300.0), (90, 900.0)])).is_empty(), "the first was no level");
}

#[test]
fn a_status_must_change_and_an_announcement_need_not() {
    let status = |words: &str| {
        let mut snapshot = snapshot(&[]);
        let notices = BTreeMap::from([("sunset_on".to_owned(), Value::Text(words.to_owned()))]);
        snapshot.set("provider_notices", Value::Map(notices), &Arc::from("gateway"));
        snapshot.set("provider_status", Value::Text(words.to_owned()), &Arc::from("gateway"));
        snapshot
    };
    let rounds = [status("ok"), status("ok"), status("degraded"), status("degraded")];
    let expected = [
        "provider: sunset on ? -> ok @0",
        "provider status ok -> degraded @2",
        "provider: sunset on ok -> degraded @2",
    ];
    assert_eq!(said(&rounds), expected);
}

#[test]
fn a_change_voids_what_it_touches_and_nothing_else() {
    let mut watch = ChangeWatch::default();
    for (second, limit) in [(0.0, 9.0), (10.0, 4.0), (11.0, 4.0)] {
        watch.step(&snapshot(&[("tpm_limit", limit)]), at(second));
    }
    for (path, since, voided) in [
        ("tpm_headroom", 0.0, true),
        ("served_share", 9.9, true),
        ("tpm_headroom", 10.0, false),
        ("rpm_headroom", 0.0, false),
        ("originals_rps", 0.0, false),
        ("amplification", 0.0, false),
    ] {
        assert_eq!(watch.voiding(path, at(since)).is_some(), voided, "{path} since {since}");
    }
}

#[test]
fn every_touched_signal_is_in_the_catalogue() {
    let kinds = [What::Tier, What::Models, What::Instances, What::Deploy, What::PromptSize];
    let limits = LIMITS.iter().map(|signal| What::Limit(signal));
    for what in kinds.into_iter().chain(limits) {
        for signal in touches(what).iter().copied().flatten() {
            assert!(crate::signal::definition(signal).is_some(), "{what:?}: {signal}");
        }
    }
}

#[test]
fn changes_are_bounded() {
    let mut watch = ChangeWatch::default();
    let mut second = 0.0;
    for round in 0..400_u32 {
        for _ in 0..2 {
            watch.step(&snapshot(&[("tpm_limit", f64::from(round))]), at(second));
            second += 1.0;
        }
    }
    assert_eq!(watch.recent().count(), CHANGES_MAX);
}
