//! A world's page read back through the adapter: every behaviour shows in the signal that tells it.

use super::*;
use crate::ingest::{Adapter, OnePage, Page, SourceRules};
use crate::signal::{Snapshot, Value};
use crate::sim::app::AppConfig;
use crate::sim::world::{PassThrough, ScopeProvider, World, WorldConfig};

const WIDE: &str = "requests = { per_minute = 600_000 }\ntokens = { per_minute = 600_000_000 }";
const SCARCE: &str =
    "requests = { per_minute = 600_000 }\ntokens = { per_minute = 60_000, start = 1 }";
const SIZE: &str = "tokens = { min = 100, max = 100 }\n";

/// A minute of these callers, scraped once a second: what the page says in the end, by scope.
fn minute(callers: &[String], app: &str, providers: &[(&str, &str)]) -> Vec<Snapshot> {
    let mut callers: Vec<CallerConfig> =
        callers.iter().map(|text| toml::from_str(text).expect("fits")).collect();
    for caller in &mut callers {
        caller.check().expect("in bounds");
        caller.stack_layers("callers", &|path| Err(path.to_owned())).expect("layers");
    }
    let app: AppConfig = toml::from_str(app).expect("fits");
    app.check().expect("in bounds");
    let provider = |(name, text): &(&str, &str)| ScopeProvider {
        name: (*name).to_owned(),
        provider: toml::from_str(text).expect("fits"),
    };
    let config = WorldConfig {
        providers: providers.iter().map(provider).collect(),
        callers,
        layers: Stack::default(),
        app,
        seed: 1,
    };
    let scopes: Vec<_> = providers.iter().map(|(name, _)| format!("sim/drill/{name}")).collect();
    let facts = ClientFacts {
        started_epoch_s: 0.0,
        deployed: None,
        scopes: &scopes,
        callers: &config.callers,
        layers: &config.layers,
    };
    let mut world = World::new(&config, PassThrough::default());
    let mut source = OnePage::new("clients", SourceRules::new(Adapter::simcli()));
    for second in 0..=60 {
        let now = Mono::from_secs_f64(f64::from(second));
        world.run_until(now);
        let page = render(world.tallies(), world.app(), &facts, now);
        source.accept(Page::text(&page), now).expect("it can be read");
    }
    source.snapshots(Mono::from_secs_f64(60.0))
}

fn only(callers: &[String], app: &str, provider: &str) -> Snapshot {
    minute(callers, app, &[("embed", provider)]).remove(0)
}

/// The signal lies between the two, the higher one not included.
fn check(snapshot: &Snapshot, signal: &str, from: f64, to: f64) {
    let number = snapshot.number(signal);
    let why = snapshot.absent.get(signal);
    assert!(number.is_some_and(|n| (from..to).contains(&n)), "{signal}: {number:?} {why:?}");
}

fn steady(rate: f64, more: &str) -> String {
    format!("{SIZE}{more}\nsteps = [{{ at_s = 0, rate = {rate} }}]")
}

#[test]
fn ordinary_traffic_shows_nothing_out_of_the_ordinary() {
    let seen = only(&[steady(20.0, "")], "", WIDE);
    for (signal, from, to) in [
        ("originals_rps", 15.0, 25.0),
        ("calls_per_original", 0.9, 1.1),
        ("fallback_hops_per_original", 0.0, 0.01),
        ("distinct_models_per_original", 1.0, 1.01),
        ("probe_tokens_share", 0.0, 0.01),
        ("new_source_share", 0.0, 0.01),
        ("client_abort_share", 0.0, 0.01),
        ("primary_dead_s", 0.0, 0.01),
        ("lanes.interactive.share_tokens", 1.0, 1.01),
        ("lanes.interactive.refused_share", 0.0, 0.01),
    ] {
        check(&seen, signal, from, to);
    }
    for unknown in ["cache", "stages_p95_s", "progress_items_per_min", "citation_valid_share"] {
        assert!(seen.value(unknown).is_none(), "{unknown}: nobody has it");
    }
}

#[test]
fn agents_probes_extras_and_strangers_are_told_apart() {
    let agent = steady(1.0, "name = 'agent'\nkind = 'agent'\ncalls_per_task = 40");
    let seen = only(&[agent], "", WIDE);
    check(&seen, "calls_per_original", 5.0, 60.0);
    check(&seen, "final_answer_share", 0.0, 0.2);
    let of_kind = |kind: &str| steady(20.0, &format!("name = '{kind}'\nkind = '{kind}'"));
    let seen = only(&[steady(10.0, ""), of_kind("probe"), of_kind("extra")], "", WIDE);
    check(&seen, "probe_tokens_share", 0.3, 0.5);
    check(&seen, "aux_share", 0.3, 0.5);
    check(&seen, "aux_refused_share", 0.0, 0.01);
    let seen = only(&[steady(2.0, ""), of_kind("stranger")], "", WIDE);
    check(&seen, "new_source_share", 0.8, 1.0);
    check(&seen, "top_caller_share", 0.8, 1.0);
    check(&seen, "own_client_counted_rps", 1.0, 3.0);
}

#[test]
fn layers_show_by_name_from_the_outside_inward() {
    let named = "layers = [{ use = 'tenacity' }, { use = 'openai-python' }]";
    let seen = only(&[steady(20.0, named)], "", SCARCE);
    let Some(Value::Map(layers)) = seen.value("layer_multiplication") else {
        panic!("{:?}", seen.absent.get("layer_multiplication"));
    };
    let shown: Vec<_> = layers.keys().map(String::as_str).collect();
    assert_eq!(shown, ["1. tenacity", "2. openai-python"]);
    let product: f64 = layers.values().filter_map(Value::as_number).product();
    let multiplication = seen.number("client_multiplication").expect("it is known");
    assert!(multiplication > 1.5 && (product / multiplication - 1.0).abs() < 1e-9, "{product}");
}

#[test]
fn failures_jobs_and_people_who_leave_show() {
    let job = format!(
        "name = 'job'\nkind = 'job'\nlane = 'batch'\n{SIZE}poisoned_ratio = 0.3\n\
         job = {{ items = 20, workers = 2, requeues = 1000, requeue_after_s = 0.5 }}"
    );
    let seen = only(&[job, steady(10.0, "name = 'people'")], "", WIDE);
    check(&seen, "same_fingerprint_share", 0.7, 1.01);
    check(&seen, "progress_items_per_min", 0.0, 1.0);
    let twice = format!("name = 'job'\n{SIZE}job = {{ items = 800, workers = 4, every_s = 20 }}");
    check(&only(&[twice], "", WIDE), "duplicate_job_id_share", 0.3, 1.01);
    let impatient = steady(20.0, "leaves = { ratio = 0.9, within_s = 0.2, noticed = false }");
    check(
        &only(&[impatient.replace("false", "true")], "", SCARCE),
        "client_abort_share",
        0.15,
        1.0,
    );
    check(&only(&[impatient], "", SCARCE), "abandoned_share", 0.5, 1.01);
}

#[test]
fn the_retry_clock_is_told_by_waits_and_by_step() {
    let none = "sdk = { tries = 9, jitter_ratio = 0, base_s = 8, cap_s = 8, hint_max_s = 0 },\
         wrapper = { tries = 1 }, frontend = { resubmits = 0 }";
    let cron = format!("{SIZE}fan_out = 200\ncron = {{ every_s = 100 }}\nlayers = {{ {none} }}");
    let seen = only(
        &[cron],
        "",
        "requests = { per_minute = 60 }\ntokens = { per_minute = 6_000, start = 1 }",
    );
    check(&seen, "retry_sync_share", 0.9, 1.01);
    let storm = only(&[steady(100.0, "")], "", SCARCE);
    check(&storm, "retry_sync_share", 0.08, 0.3);
    check(&storm, "retry_wait_p50_s", 0.0, 1.0);
    check(&storm, "give_up_share", 0.3, 1.0);
    check(&storm, "retry_budget_s", 1.0, 10.0);
}

#[test]
fn the_application_shows_its_cache_its_stages_and_its_answers() {
    let tenants = "tenants = [{ name = 'a', weight = 1 }, { name = 'b', weight = 1 }]";
    let app = "cache = { keys = 50, repeat_ratio = 0.6, fault = 'tenant-blind', wrong_from_s = 20 }\n\
         quality = { citation_valid = 0.98, grounded = 0.95 }\n\
         [[stages]]\nname = 'retrieval'\nlatency = { base_ms = 40, spread_ms = 40 }\n\
         sources = ['vectors', 'words']\nslow = { source = 'words', from_s = 30, factor = 40 }";
    let seen = only(&[steady(40.0, tenants)], app, WIDE);
    for (signal, from, to) in [
        ("cache.hit_ratio", 0.4, 0.7),
        ("cache.wrong_share", 0.3, 0.7),
        ("cache.cross_tenant_hit_share", 0.3, 0.7),
        ("cache.corpus_version_mismatch_share", 0.0, 0.01),
        ("cache.fast_share", 0.3, 0.7),
        ("stages_p95_s.retrieval", 2.0, 4.0),
        ("stages_p95_s.llm", 0.1, 0.3),
        ("stages_p95_baseline_s.retrieval", 0.06, 0.09),
        ("slowest_source_share", 0.99, 1.01),
        ("citation_valid_share", 0.4, 0.9),
        ("retrieval_coverage", 0.99, 1.01),
    ] {
        check(&seen, signal, from, to);
    }
    let Some(Value::List(sources)) = seen.value("sources") else { panic!("a list of sources") };
    assert_eq!(sources.len(), 1, "one source was the slowest all the time");
}

#[test]
fn scopes_are_told_apart_where_there_are_several() {
    let chat = steady(100.0, "name = 'chat'\nto = 'chat'");
    let seen = minute(&[steady(10.0, ""), chat], "", &[("embed", WIDE), ("chat", SCARCE)]);
    let [chat, embed] = &seen[..] else { panic!("two scopes") };
    assert_eq!((&*chat.scope, &*embed.scope), ("sim/drill/chat", "sim/drill/embed"));
    check(embed, "served_share", 0.9, 1.01);
    check(chat, "served_share", 0.0, 0.3);
}

#[test]
fn names_cannot_break_a_line() {
    assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
}
