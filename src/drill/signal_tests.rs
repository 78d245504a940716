//! What the simulated parts do is seen in the signals: their pages are rendered once a second on the
//! virtual clock, read through their adapters and put together as in a live drill.

use std::collections::BTreeSet;

use super::provider_page::{self, PageFacts};
use crate::admission::{ScopeConfig, Settings, flag};
use crate::diagnosis::complete;
use crate::gateway::{Facts, render};
use crate::ingest::{Adapter, Assembler, Page, SourceRules};
use crate::signal::{Mono, Snapshot, Value};
use crate::sim::app::AppConfig;
use crate::sim::gate::GateConfig;
use crate::sim::gated::GatedWorld;
use crate::sim::layers::{LayersConfig, Stack};
use crate::sim::world::{ScopeProvider, World, WorldConfig};

/// Plain clients: whoever is refused is told so and goes.
const NO_RETRIES: &str =
    "sdk = { tries = 1 }\nwrapper = { tries = 1 }\nfrontend = { resubmits = 0 }";
/// The gate lets everything pass.
const OFF: &[(&str, &str)] = &[("admission.mode", "off")];
/// Room for 100 questions a second of 300 tokens.
const ROOMY: &str = "requests = { per_minute = 60_000 }\ntokens = { per_minute = 1_800_000 }\n";

/// One drill: what the files would say.
struct Drill<'a> {
    provider: &'a str,
    gate: &'a str,
    /// Flags that differ from their defaults.
    flags: &'a [(&'a str, &'a str)],
    rate: f64,
    seconds: u32,
}

const DRILL: Drill<'_> = Drill { provider: ROOMY, gate: "", flags: &[], rate: 20.0, seconds: 30 };

impl Drill<'_> {
    /// Plays it, and what a reader of all pages knows at its end.
    fn play(&self) -> Snapshot {
        let config = WorldConfig {
            providers: vec![ScopeProvider {
                name: "embed".to_owned(),
                provider: toml::from_str(self.provider).expect("a provider"),
            }],
            callers: vec![
                toml::from_str(&format!(
                    "tokens = {{ min = 300, max = 300 }}\n\
                     steps = [{{ name = 'all', at_s = 0, rate = {:?} }}]",
                    self.rate
                ))
                .expect("traffic"),
            ],
            layers: Stack::from(&toml::from_str::<LayersConfig>(NO_RETRIES).expect("layers")),
            app: AppConfig::default(),
            seed: 7,
        };
        config.providers[0].provider.check().expect("it is in bounds");
        let gate: GateConfig = toml::from_str(self.gate).expect("a gate");
        gate.check().expect("it is in bounds");
        let mut settings = Settings::default();
        for (key, value) in self.flags {
            let value = flag(key).and_then(|def| def.parse(value)).expect("a flag's value");
            settings.set(key, value).expect("a flag");
        }
        let scope = gate.believes(ScopeConfig {
            rpm: Some(60_000.0),
            tpm: Some(1_800_000.0),
            ..ScopeConfig::named("sim/drill/embed").with_buckets()
        });
        let gated = GatedWorld::configured(vec![scope], &gate, settings, 7);
        watch(World::new(&config, gated), self.seconds)
    }
}

fn watch(mut world: World<GatedWorld>, seconds: u32) -> Snapshot {
    let names: Vec<String> =
        (0..world.gate().gates().count()).map(|number| number.to_string()).collect();
    let mut all = Assembler::new();
    let gateways = all.add("gateway", SourceRules::new(Adapter::weir()));
    all.expect(gateways, names.iter().map(String::as_str));
    let provider = all.add("provider", SourceRules::new(Adapter::simprov()));
    let mut now = Mono::START;
    for second in 1..=seconds {
        now = Mono::from_secs_f64(second.into());
        world.run_until(now);
        for (place, gate) in world.gate().gates().enumerate() {
            let facts = Facts {
                instance: &names[place],
                upstream_open: world.gate().open_calls(place),
                loop_lag: Some(world.gate().loop_lag(now)),
                store: world.gate().store_counters(place),
                ..Facts::default()
            };
            let page = render(gate, &facts, now);
            all.accept(gateways, &names[place], Page::text(&page), now).expect("a small page");
        }
        let facts = PageFacts { process_start_s: 0.0, latency: None, scope: None };
        let page = provider_page::render(&mut world.providers_mut()[0], &facts, now);
        all.accept(provider, "", Page::text(&page), now).expect("a small page");
    }
    let snapshots = all.snapshots(now);
    assert_eq!(snapshots.len(), 1, "one scope");
    complete(&snapshots[0]).snapshot
}

#[track_caller]
fn number(snapshot: &Snapshot, name: &str) -> f64 {
    let why = snapshot.absent.get(name);
    snapshot.number(name).unwrap_or_else(|| panic!("{name} is unknown: {why:?}"))
}

fn codes(snapshot: &Snapshot) -> BTreeSet<String> {
    match snapshot.value("error_codes") {
        Some(Value::Map(counts)) => counts
            .iter()
            .filter(|(_, count)| count.as_number().is_some_and(|count| count > 0.0))
            .map(|(code, _)| code.clone())
            .collect(),
        _ => BTreeSet::new(),
    }
}

#[test]
fn a_sound_drill_shows_nothing() {
    let seen = DRILL.play();
    for (name, expected) in [
        ("provider_refused_share", 0.0),
        ("gate_refused_share", 0.0),
        ("disguised_share", 0.0),
        ("other_keys_share", 0.0),
        ("loop_lag_s", 0.0),
        ("quota_units_per_request", 1.0),
        ("actual_tokens_per_request", 300.0),
        ("requested_tokens_max", 300.0),
    ] {
        assert!((number(&seen, name) - expected).abs() < 1e-9, "{name} is {}", number(&seen, name));
    }
    for unknown in [
        "day_headroom",
        "spend_remaining_usd",
        "provider_concurrency_limit",
        "deployments",
        "limiter_store",
        "same_fingerprint_share",
    ] {
        assert_eq!(seen.value(unknown), None, "{unknown} does not apply");
    }
}

#[test]
fn each_limit_of_the_provider_refuses_in_words_of_its_own() {
    let play = |more: &str| {
        let provider = format!("{ROOMY}{more}");
        Drill { provider: &provider, flags: OFF, ..DRILL }.play()
    };
    let day = play("day = { tokens = 100_000, resets_in_s = 36000 }");
    assert!(number(&day, "day_headroom") < 0.01 && number(&day, "tpm_headroom") > 0.9);
    assert!(number(&day, "retry_after_s") > 3_600.0 && number(&day, "day_reset_s") > 35_000.0);
    assert!(number(&day, "provider_429_share") > 0.99);
    let ramp = play("ramp = { tokens_per_minute = 60_000, growth = 1.5, per_s = 60 }");
    assert_eq!(codes(&ramp), BTreeSet::from(["slow_down".to_owned()]));
    assert!(number(&ramp, "tpm_headroom") > 0.9 && number(&ramp, "rpm_headroom") > 0.9);
    let money = play("spend = { usd = 0.01, usd_per_million_tokens = 0.1 }");
    assert_eq!(codes(&money), BTreeSet::from(["insufficient_quota".to_owned()]));
    assert!(number(&money, "spend_remaining_usd") < 0.01);
    let overload = play("steps = [{ at_s = 5, error_ratio = 0.5 }]");
    assert_eq!(codes(&overload), BTreeSet::from(["server_is_overloaded".to_owned()]));
    assert!((0.3..0.7).contains(&number(&overload, "provider_503_share")));
    let capped = play("concurrency_cap = 1");
    assert_eq!(codes(&capped), BTreeSet::from(["concurrency_limit_exceeded".to_owned()]));
    assert!((number(&capped, "provider_concurrency_limit") - 1.0).abs() < 1e-9);
    let long = play("max_request_tokens = 299");
    assert!(number(&long, "provider_4xx_share") > 0.99);
    let absurd = play("steps = [{ at_s = 0, slow_down_ratio = 1, hint = 'absurd' }]");
    assert!(number(&absurd, "retry_after_s") > 86_400.0);
}

#[test]
fn what_others_take_and_deployments_hold_is_the_providers_to_tell() {
    let shared = Drill {
        provider: "requests = { per_minute = 60_000 }\n\
                   tokens = { per_minute = 600_000, start = 0 }\n\
                   steps = [{ at_s = 0, others_tokens_per_minute = 540_000 }]",
        flags: OFF,
        ..DRILL
    }
    .play();
    assert!(number(&shared, "other_keys_share") > 0.5);
    assert!(number(&shared, "own_tokens_per_minute") < 120_000.0);
    assert!(number(&shared, "provider_429_share") > 0.5);
    let three = "deployments = [{ name = 'a', share = 8 }, { name = 'b' }, { name = 'c' }]";
    let provider = format!(
        "requests = {{ per_minute = 60_000 }}\n\
         tokens = {{ per_minute = 450_000, start = 30_000 }}\n{three}"
    );
    let seen = Drill { provider: &provider, flags: OFF, ..DRILL }.play();
    assert!(number(&seen, "deployment_headroom_min") < 0.05);
    assert!(number(&seen, "deployment_headroom_max") > 0.3);
    let Some(Value::List(rows)) = seen.value("deployments") else { panic!("a list") };
    let Value::Map(first) = &rows[0] else { panic!("a row") };
    assert_eq!(first["id"], Value::Text("a".to_owned()));
    assert_eq!(first["state"], Value::Text("refuses".to_owned()));
    assert!(first["share"].as_number().is_some_and(|share| share > 0.7), "{first:?}");
}

#[test]
fn disguised_refusals_are_seen_as_what_they_are() {
    for (disguise, status_share) in
        [("200", None), ("403", Some("provider_4xx_share")), ("500", Some("provider_5xx_share"))]
    {
        let provider =
            format!("{ROOMY}steps = [{{ at_s = 0, hard_quota = true, disguise = '{disguise}' }}]");
        let seen = Drill { provider: &provider, flags: OFF, ..DRILL }.play();
        assert!(number(&seen, "disguised_share") > 0.99, "{disguise}");
        assert!(number(&seen, "provider_429_share") < 1e-9, "{disguise}");
        if let Some(name) = status_share {
            assert!(number(&seen, name) > 0.99, "{disguise}");
        } else {
            assert!(number(&seen, "error_body_share") > 0.99);
        }
    }
}

#[test]
fn leaked_permits_fill_the_gauge_and_not_the_connections() {
    let gate = "faults = { leak = { ratio = 0.2, from_s = 2 } }";
    let seen = Drill { gate, rate: 80.0, ..DRILL }.play();
    assert!(number(&seen, "inflight_gauge") > 0.8 * number(&seen, "inflight_limit"));
    assert!(number(&seen, "inflight_actual") < 0.3 * number(&seen, "inflight_gauge"));
    assert!(number(&seen, "gate_refused_share") > 0.3);
    assert!(number(&seen, "provider_refused_share") < 0.01);
}

#[test]
fn who_waits_until_it_is_too_late_is_refused_by_the_gate() {
    let gate = "faults = { leak = { ratio = 1.0 } }";
    let seen = Drill { gate, flags: &[("queue.max_age_s", "1")], ..DRILL }.play();
    let expired = number(&seen, "expired_rps");
    assert!(expired > 10.0 && number(&seen, "gate_503_rps") >= expired, "{expired}");
    assert!(codes(&seen).contains("gate:weir_expired_in_queue"), "{:?}", codes(&seen));
    let passed = number(&seen, "admitted_rps") + number(&seen, "gate_refused_rps");
    assert!((0.9..1.1).contains(&(passed / number(&seen, "offered_rps"))), "{passed}");
}

#[test]
fn a_gate_that_believes_too_little_or_estimates_too_much_refuses_while_there_is_room() {
    let believes = Drill { gate: "tpm = 60_000", ..DRILL }.play();
    let estimates =
        Drill { gate: "faults = { estimate_factor = 20, headers = false }", rate: 60.0, ..DRILL }
            .play();
    for seen in [&believes, &estimates] {
        assert!(number(seen, "gate_refused_share") > 0.3);
        assert!(number(seen, "provider_refused_share") < 0.01);
        assert!(number(seen, "tpm_headroom") > 0.3 && number(seen, "rpm_headroom") > 0.3);
    }
    let guessed = number(&estimates, "est_tokens_per_request");
    assert!(guessed > 3.0 * number(&estimates, "actual_tokens_per_request"));
}

#[test]
fn a_gate_that_reads_no_headers_counts_less_than_the_provider() {
    let seen = Drill {
        provider: "requests = { per_minute = 60_000 }\ntokens = { per_minute = 180_000 }",
        gate: "tpm = 1_800_000\nfaults = { headers = false }",
        rate: 40.0,
        seconds: 40,
        ..DRILL
    }
    .play();
    let (own, theirs) = (number(&seen, "own_used_ratio"), number(&seen, "provider_used_ratio"));
    assert!(own < 0.67 * theirs, "{own} by our own count, {theirs} by the provider's");
    assert!(number(&seen, "provider_429_share") > 0.03);
}

#[test]
fn instances_with_counters_of_their_own_add_up_to_more_than_there_is() {
    let provider =
        "requests = { per_minute = 60_000 }\ntokens = { per_minute = 600_000, start = 0 }";
    let flags = &[("adaptive.enabled", "false")];
    let play = |gate| Drill { provider, gate, flags, rate: 120.0, seconds: 40 }.play();
    let apart = play("tpm = 600_000\ninstances = 4\nfaults = { headers = false }");
    assert!((number(&apart, "replicas") - 4.0).abs() < 1e-9);
    assert!(number(&apart, "provider_429_share") > 0.3);
    let (own, theirs) = (number(&apart, "own_used_ratio"), number(&apart, "provider_used_ratio"));
    assert!(own < 0.67 * theirs, "{own} by each one's count, {theirs} by the provider's");
    let shared = play("tpm = 600_000\ninstances = 4\nshared = true");
    assert!(number(&shared, "provider_429_share") < 0.02);
}

#[test]
fn a_store_that_is_slow_or_fails_is_told_by_its_decisions() {
    let play = |fault: &str| {
        let gate = format!("instances = 2\nshared = true\nfaults = {{ {fault} }}");
        Drill { gate: &gate, ..DRILL }.play()
    };
    let sound = play("");
    assert!(number(&sound, "limiter_store.p95_s") < 0.01);
    assert!(number(&sound, "limiter_store.timeouts_rps") < 1e-9);
    let slow = play("store = { latency_ms = 35, from_s = 5 }");
    assert!((0.03..0.05).contains(&number(&slow, "limiter_store.p95_s")));
    let late = play("store = { latency_ms = 200, from_s = 5 }");
    assert!(number(&late, "limiter_store.timeouts_rps") > 0.5);
    let broken = play("store = { error_ratio = 1, from_s = 5 }");
    assert!(number(&broken, "limiter_store.error_rps") > 0.5);
    for seen in [&slow, &late, &broken] {
        assert!(number(seen, "provider_refused_share") < 0.01);
    }
}

#[test]
fn a_held_breaker_shows_for_how_long_and_in_which_words() {
    let gate = "faults = { breaker = { held = 'open', from_s = 2 } }";
    let seen = Drill { gate, seconds: 60, ..DRILL }.play();
    assert_eq!(seen.value("breaker.state"), Some(&Value::Text("open".to_owned())));
    let timeout = number(&seen, "breaker.reset_timeout_s");
    assert!(number(&seen, "breaker.open_since_s") > 20.0 * timeout, "{timeout}");
    assert_eq!(codes(&seen), BTreeSet::from(["gate:weir_breaker_open".to_owned()]));
    assert!(number(&seen, "gate_refused_share") > 0.99);
}

#[test]
fn a_stalled_loop_lags() {
    let gate = "faults = { stall = { ms = 80, from_s = 5 } }";
    let seen = Drill { gate, ..DRILL }.play();
    assert!(number(&seen, "loop_lag_s") > 1.0);
    assert!(number(&seen, "provider_refused_share") < 0.01);
    assert!(number(&seen, "gate_refused_share") < 0.01);
}
