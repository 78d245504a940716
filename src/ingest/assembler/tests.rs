//! Scrapes go in as text, signals come out; what cannot be said must say why.

use super::*;
use crate::signal::{Quality, Value};

/// An assembler whose sources are added with their first page.
#[derive(Default)]
struct Pages {
    assembler: Assembler,
    ids: BTreeMap<String, SourceId>,
}

impl Pages {
    fn accept(&mut self, source: &str, adapter: &Arc<Adapter>, page: &str, at: Mono) {
        let Self { assembler, ids } = self;
        let add = || assembler.add(source, SourceRules::new(Arc::clone(adapter)));
        let id = *ids.entry(source.to_owned()).or_insert_with(add);
        assembler.accept(id, ONLY, Page::text(page), at).expect("small");
    }

    fn snapshots(&self, at: Mono) -> Vec<Snapshot> {
        self.assembler.snapshots(at)
    }
}

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

/// A gateway's scrape after `n` rounds of the same traffic.
fn gateway(n: u32) -> String {
    format!(
        r#"process_start_time_seconds 1
weir_originals_total{{scope="s",lane="interactive"}} {originals}
weir_originals_attempted_total{{scope="s"}} {originals}
weir_originals_served_total{{scope="s"}} {served}
weir_offered_total{{scope="s",lane="interactive"}} {offered}
weir_admitted_total{{scope="s",lane="interactive"}} {offered}
weir_attempts_total{{scope="s",kind="first"}} {originals}
weir_attempts_total{{scope="s",kind="retry"}} {retries}
weir_attempt_results_total{{scope="s",class="SUCCESS",status="200"}} {served}
weir_attempt_results_total{{scope="s",class="TRANSIENT_RATE_LIMIT",status="429"}} {refused}
weir_provider_refusals_total{{scope="s",status="429",code="rate_limit_exceeded",meter="tokens"}} {refused}
weir_shed_total{{scope="s",lane="interactive",reason="queue_full",status="503"}} {shed}
weir_tokens_actual_total{{scope="s"}} {tokens}
weir_recent_attempts{{scope="s",window="10"}} 1680
weir_recent_attempts{{scope="s",window="60"}} 5
weir_recent_originals_attempted{{scope="s",window="10"}} 200
weir_quota_limit{{scope="s",meter="tokens",source="provider"}} 1200000
weir_quota_remaining{{scope="s",meter="tokens",source="provider"}} 300000
weir_quota_reading_age_seconds{{scope="s",meter="tokens",source="provider"}} 2
weir_quota_limit{{scope="s",meter="requests",source="provider"}} 6000
weir_quota_remaining{{scope="s",meter="requests",source="provider"}} 5000
weir_quota_reading_age_seconds{{scope="s",meter="requests",source="provider"}} 31
weir_quota_limit{{scope="s",meter="requests",source="own"}} 5900
weir_quota_limit{{scope="s",meter="tokens",source="own"}} 1200000
weir_quota_remaining{{scope="s",meter="tokens",source="own"}} 240000
weir_queue_depth{{scope="s",lane="interactive"}} 7
weir_queue_depth{{scope="s",lane="batch"}} 5
weir_queue_oldest_age_seconds{{scope="s",lane="interactive"}} 3
weir_queue_oldest_age_seconds{{scope="s",lane="batch"}} 9
weir_breaker_state{{scope="s",state="closed"}} 0
weir_breaker_state{{scope="s",state="open"}} 1
weir_breaker_since_seconds{{scope="s"}} 12
weir_admitted_latency_seconds_bucket{{scope="s",le="1"}} {originals}
weir_admitted_latency_seconds_bucket{{scope="s",le="2"}} {offered}
weir_admitted_latency_seconds_bucket{{scope="s",le="+Inf"}} {offered}
"#,
        originals = 180 * n,
        served = 66 * n,
        offered = 1680 * n,
        retries = 1500 * n,
        refused = 1614 * n,
        shed = 12 * n,
        tokens = 66 * 300 * n,
    )
}

fn close(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 1e-6)
}

#[test]
fn a_storm_comes_out_as_signals() {
    let mut pages = Pages::default();
    for n in 0..=12_u32 {
        pages.accept("gateway", &Adapter::weir(), &gateway(n + 1), at(f64::from(n)));
    }
    let snapshots = pages.snapshots(at(12.5));
    let [snapshot] = &snapshots[..] else { panic!("one scope, got {snapshots:?}") };
    assert_eq!((snapshot.scope.as_str(), snapshot.window_s), ("s", 10.0));
    for (path, expected) in [
        ("originals_rps", 180.0),
        ("offered_rps", 1680.0),
        ("attempts_rps", 1680.0),
        ("success_rps", 66.0),
        ("amplification", 8.4),
        ("client_multiplication", 1680.0 / 180.0),
        ("served_share", 66.0 / 180.0),
        ("retries_share", 1500.0 / 1680.0),
        ("retry_header_share", 0.0),
        ("provider_429_rps", 1614.0),
        ("provider_429_tokens_rps", 1614.0),
        ("provider_429_requests_rps", 0.0),
        ("provider_5xx_other_rps", 0.0),
        ("gate_503_rps", 12.0),
        ("gate_429_rps", 0.0),
        ("gate_403_rps", 0.0),
        ("shed_rps", 12.0),
        ("deferred_rps", 0.0),
        ("error_codes.rate_limit_exceeded", 16140.0),
        ("tokens_per_request", 300.0),
        ("queue_depth", 12.0),
        ("queue_oldest_age_s", 9.0),
        ("interactive_queue_oldest_age_s", 3.0),
        ("tpm_headroom", 0.25),
        ("own_tpm_headroom", 0.2),
        ("own_used_ratio", 0.8),
        ("provider_used_ratio", 0.75),
        ("rpm_limit", 5900.0),
        ("breaker.open_since_s", 12.0),
        ("latency_p50_s", 1.44),
    ] {
        let value = snapshot.number(path);
        assert!(close(value, expected), "{path}: {value:?}, expected {expected}");
        assert!(value.is_some_and(f64::is_sign_positive), "{path}: -0 is shown as such");
    }
    let codes = snapshot.value("error_codes");
    let Some(Value::Map(codes)) = codes else { panic!("a map, got {codes:?}") };
    assert_eq!(codes.get("gate:weir_queue_full"), Some(&Value::Number(120.0)));
    assert_eq!(snapshot.value("breaker.state").and_then(Value::as_text), Some("open"));
    let headroom = snapshot.get("tpm_headroom").expect("known");
    assert!(close(Some(headroom.age_s), 2.5), "scrape age and reading age add up");
    assert_eq!(snapshot.get("rpm_limit").expect("known").quality, Quality::Inferred);
    for (name, part) in [
        ("rpm_headroom", "31 s old"),
        ("retry_success_share", ""),
        ("retry_after_s", "no weir_retry_after_seconds_count"),
        ("inflight_actual", "does not export weir_upstream_open"),
        ("originals_rps_1h_ago", "history"),
    ] {
        if part.is_empty() {
            assert!(snapshot.get(name).is_some(), "{name}");
        } else {
            let why = snapshot.absent.get(name).map_or("", String::as_str);
            assert!(why.contains(part), "{name}: {why:?}");
        }
    }
}

#[test]
fn known_and_absent_do_not_overlap() {
    let mut pages = Pages::default();
    for n in 0..3_u32 {
        let now = at(f64::from(n));
        pages.accept("gateway", &Adapter::weir(), &gateway(n), now);
        let provider = format!("simprov_attempts_total{{path=\"/v1\"}} {}\n", 3 * n);
        pages.accept("provider", &Adapter::simprov(), &provider, now);
    }
    for moment in [2.0, 60.0] {
        for snapshot in pages.snapshots(at(moment)) {
            for name in snapshot.signals.keys() {
                assert!(!snapshot.absent.contains_key(name), "{name} is known and absent");
            }
        }
    }
}

#[test]
fn one_scrape_gives_gauges_and_says_why_no_rates() {
    let mut pages = Pages::default();
    pages.accept("gateway", &Adapter::weir(), &gateway(1), at(0.0));
    let snapshot = &pages.snapshots(at(0.0))[0];
    assert!(snapshot.get("queue_depth").is_some());
    assert!(snapshot.get("shed_rps").is_none(), "a lazy counter is no zero before a second look");
    assert!(snapshot.absent["originals_rps"].contains("warming up"));
    assert_eq!(Some(snapshot.window_s), Some(10.0));
}

#[test]
fn a_quiet_source_is_replaced_where_another_knows_and_absent_elsewhere() {
    let mut pages = Pages::default();
    for n in 0..=14_u32 {
        let now = at(f64::from(n));
        if n <= 2 {
            pages.accept("gateway", &Adapter::weir(), &gateway(n), now);
        }
        let provider = format!(
            "simprov_attempts_total{{path=\"/v1\"}} {}\nsimprov_originals_total {}\n\
             simprov_meter_limit{{meter=\"tokens\"}} 100\n\
             simprov_meter_remaining{{meter=\"tokens\"}} 40\n",
            90 * n,
            10 * n
        );
        pages.accept("provider", &Adapter::simprov(), &provider, now);
    }
    let before = &pages.snapshots(at(2.5))[0];
    assert_eq!(&*before.get("attempts_rps").expect("gateway first").source, "gateway");
    let after = &pages.snapshots(at(14.0))[0];
    assert_eq!(after.scope, "s", "the scope stays on screen");
    let attempts = after.get("attempts_rps").expect("the provider knows");
    assert_eq!((&*attempts.source, &attempts.value), ("provider", &Value::Number(90.0)));
    assert_eq!(after.number("amplification"), Some(9.0));
    assert_eq!(after.number("provider_used_ratio"), Some(0.6));
    assert_eq!(after.absent["queue_depth"], "stale: gateway last answered 12 s ago");
}

#[test]
fn a_restarted_gateway_loses_nothing_that_it_counted() {
    let mut pages = Pages::default();
    pages.accept("gateway", &Adapter::weir(), &gateway(5), at(0.0));
    let restarted =
        gateway(6).replace("process_start_time_seconds 1", "process_start_time_seconds 9");
    pages.accept("gateway", &Adapter::weir(), &restarted, at(1.0));
    let snapshot = &pages.snapshots(at(1.0))[0];
    assert_eq!(snapshot.number("originals_rps"), Some(6.0 * 180.0));
}

#[test]
fn several_scopes_get_a_snapshot_each_and_no_guesses() {
    let mut pages = Pages::default();
    let provider = "simprov_in_flight 3\n";
    pages.accept("provider", &Adapter::simprov(), provider, at(0.0));
    let alone = &pages.snapshots(at(0.0))[0];
    assert_eq!((alone.scope.as_str(), alone.number("inflight_actual")), ("", Some(3.0)));

    let two = "weir_permits_limit{scope=\"a\"} 1\nweir_permits_limit{scope=\"b\"} 2\n";
    pages.accept("gateway", &Adapter::weir(), two, at(0.0));
    let snapshots = pages.snapshots(at(0.0));
    let limits: Vec<_> =
        snapshots.iter().map(|s| (s.scope.as_str(), s.number("inflight_limit"))).collect();
    assert_eq!(limits, [("a", Some(1.0)), ("b", Some(2.0))]);
    assert!(snapshots.iter().all(|snapshot| snapshot.get("inflight_actual").is_none()));
}

#[test]
fn a_limit_that_the_provider_has_not_told_stays_unknown() {
    let page = "weir_quota_remaining{scope=\"s\",meter=\"requests\",source=\"provider\"} 40\n\
         weir_quota_reading_age_seconds{scope=\"s\",meter=\"requests\",source=\"provider\"} 3\n\
         weir_quota_reset_seconds{scope=\"s\",meter=\"requests\",source=\"provider\"} 7\n\
         weir_quota_limit{scope=\"s\",meter=\"tokens\",source=\"provider\"} 100\n";
    let mut pages = Pages::default();
    pages.accept("gateway", &Adapter::weir(), page, at(0.0));
    let snapshot = &pages.snapshots(at(1.0))[0];
    let remaining = snapshot.get("rpm_remaining").expect("told");
    assert_eq!(remaining.value, Value::Number(40.0));
    assert!(close(Some(remaining.age_s), 4.0), "reading and scrape age add up");
    for signal in ["rpm_limit", "rpm_headroom", "tpm_remaining", "tpm_headroom"] {
        assert!(snapshot.get(signal).is_none(), "{signal}");
        assert!(snapshot.absent.contains_key(signal), "{signal}");
    }
    assert!(snapshot.absent["rpm_limit"].contains("shows no weir_quota_limit{meter in"));
}

#[test]
fn rare_events_are_counted_over_an_hour() {
    let mut pages = Pages::default();
    let opens = |second: u32| match second {
        0..600 => 7,
        600..4_500 => 9,
        _ => 12,
    };
    for second in (0..=5_000_u32).step_by(10) {
        let page = format!(
            "weir_breaker_transitions_total{{scope=\"s\",to=\"open\"}} {}\n",
            opens(second)
        );
        pages.accept("gateway", &Adapter::weir(), &page, at(f64::from(second)));
        let snapshot = &pages.snapshots(at(f64::from(second)))[0];
        let Some(reading) = snapshot.get("breaker_opens_per_hour") else {
            assert_eq!(second, 0, "{:?}", snapshot.absent);
            continue;
        };
        let (expected, quality) = match second {
            ..600 => (0.0, Quality::LowerBound),
            600..3_600 => (2.0, Quality::LowerBound),
            3_600..4_200 => (2.0, Quality::Exact),
            4_200..4_500 => (0.0, Quality::Exact),
            4_500.. => (3.0, Quality::Exact),
        };
        assert_eq!(reading.value, Value::Number(expected), "{second}");
        assert_eq!(reading.quality, quality, "{second}");
        let note = reading.note.as_deref().unwrap_or_default();
        assert_eq!(note.contains("min since weir looks"), second < 3_600, "{second}: {note}");
    }
}

#[test]
fn tenants_come_as_rows_with_shares() {
    let page = |n: f64| {
        format!(
            "weir_tenant_offered_total{{scope=\"s\",tenant=\"a\"}} {}\n\
             weir_tenant_offered_total{{scope=\"s\",tenant=\"b\"}} {}\n\
             weir_tenant_refused_total{{scope=\"s\",tenant=\"b\"}} {}\n\
             weir_tenant_failed_total{{scope=\"s\",tenant=\"a\"}} {}\n\
             weir_tenant_failed_total{{scope=\"s\",tenant=\"b\"}} {}\n\
             weir_tenant_tokens_total{{scope=\"s\",tenant=\"a\"}} {}\n",
            n * 30.0,
            n * 10.0,
            n * 5.0,
            n,
            n * 3.0,
            n * 900.0
        )
    };
    let mut pages = Pages::default();
    for second in [0.0, 1.0] {
        pages.accept("gateway", &Adapter::weir(), &page(second), at(second));
    }
    let snapshot = &pages.snapshots(at(1.0))[0];
    let Some(Value::List(rows)) = snapshot.value("tenants") else { panic!("{snapshot:?}") };
    let part = |row: &Value, name: &str| {
        let Value::Map(parts) = row else { panic!("{row:?}") };
        parts.get(name).cloned()
    };
    assert_eq!(part(&rows[0], "id"), Some(Value::Text("a".to_owned())));
    for (row, name, expected) in [
        (0, "share_requests", Some(0.75)),
        (0, "share_tokens", Some(1.0)),
        (0, "refused_share", Some(0.0)),
        (0, "share_failed", Some(0.25)),
        (1, "share_failed", Some(0.75)),
        (1, "share_requests", Some(0.25)),
        (1, "refused_share", Some(0.5)),
        (1, "share_tokens", Some(0.0)),
    ] {
        assert_eq!(part(&rows[row], name), expected.map(Value::Number), "{row} {name}");
    }
}

/// A fleet of gateways that counts `per_second` each; `a` restarts at second 3 and `b` at second 4.
#[test]
fn instances_are_counted_apart_and_added_up() {
    let mut assembler = Assembler::new();
    let id = assembler.add("gateway", SourceRules::new(Adapter::weir()));
    assembler.expect(id, ["a", "b"]);
    let page = |since: u32, second: u32| {
        format!(
            "process_start_time_seconds {since}\n\
             weir_originals_total{{scope=\"s\",lane=\"interactive\"}} {}\n\
             weir_queue_depth{{scope=\"s\",lane=\"interactive\"}} 4\n",
            100 * (second - since)
        )
    };
    for second in 1..=6_u32 {
        for (instance, restart) in [("a", 3), ("b", 4)] {
            let since = if second < restart { 1 } else { restart };
            // No two instances are scraped at the same moment.
            let moment = f64::from(second) + if instance == "b" { 0.3 } else { 0.0 };
            let page = page(since, second);
            assembler.accept(id, instance, Page::text(&page), at(moment)).expect("small");
        }
    }
    let snapshot = &assembler.snapshots(at(6.3))[0];
    let originals = snapshot.get("originals_rps").expect("two scrapes");
    // Five seconds each, of which the second before the restart is lost with the process.
    assert!(close(snapshot.number("originals_rps"), 160.0), "{originals:?}");
    assert_eq!((originals.quality, &originals.note), (Quality::Exact, &None));
    assert_eq!(snapshot.number("queue_depth"), Some(8.0));
}

#[test]
fn a_silent_instance_makes_sums_lower_bounds_and_the_rest_inferred() {
    let mut assembler = Assembler::new();
    let id = assembler.add("gateway", SourceRules::new(Adapter::weir()));
    assembler.expect(id, ["a", "b", "c"]);
    for n in 0..=6_u32 {
        for instance in ["a", "b", "c"] {
            if instance == "a" || n == 0 {
                let page = gateway(n + 1);
                assembler.accept(id, instance, Page::text(&page), at(f64::from(n))).expect("small");
            }
        }
    }
    let partly = &assembler.snapshots(at(6.0))[0];
    for (signal, quality) in [
        ("originals_rps", Quality::LowerBound),
        ("shed_rps", Quality::LowerBound),
        ("error_codes", Quality::LowerBound),
        ("served_share", Quality::Inferred),
        ("tpm_headroom", Quality::Inferred),
        ("latency_p95_s", Quality::Inferred),
    ] {
        let reading = partly.get(signal).expect("one instance answers");
        assert_eq!(reading.quality, quality, "{signal}");
        let note = reading.note.as_deref().unwrap_or_default();
        assert!(note.ends_with("1 of 3 instances"), "{signal}: {note}");
    }
    // An instance that is gone for good is not missed.
    assembler.expect(id, ["a"]);
    let whole = &assembler.snapshots(at(6.0))[0];
    assert_eq!(whole.get("originals_rps").expect("known").quality, Quality::Exact);
    assert_eq!(whole.number("originals_rps"), partly.number("originals_rps"));
}

/// The gateway of the other tests, and clients that count originals too.
fn two_sources() -> Pages {
    let mut pages = Pages::default();
    for n in 1..=3 {
        let clients = format!("simcli_originals_total {}\n", 170 * n);
        pages.accept("clients", &Adapter::simcli(), &clients, at(f64::from(n)));
        pages.accept("gateway", &Adapter::weir(), &gateway(n), at(f64::from(n)));
    }
    pages
}

#[test]
fn a_number_is_told_down_to_its_series() {
    let pages = two_sources();
    let origin = pages.assembler.origin("s", "originals_rps", at(3.0));
    let sources: Vec<(&str, bool)> =
        origin.accounts.iter().map(|one| (&*one.source, one.is_believed)).collect();
    assert_eq!(sources, [("gateway", true), ("clients", false)]);
    let [reading] = &origin.accounts[0].readings[..] else { panic!("{origin:?}") };
    assert_eq!(reading.expressions, [(String::new(), "rate(weir_originals_total)".to_owned())]);
    assert_eq!(reading.outcome, Ok(Value::Number(180.0)));
    let [series] = &reading.series[..] else { panic!("{reading:?}") };
    assert_eq!((series.value, series.gained), (Some(540.0), Some((360.0, 2.0))));
    assert_eq!(series.labels.get("lane"), Some("interactive"));
    assert_eq!(series.recent, [180.0, 360.0, 540.0].map(Some));
    let clients = &origin.accounts[1].readings[0];
    assert_eq!(clients.outcome, Ok(Value::Number(170.0)));
}

#[test]
fn of_several_ways_the_one_that_is_gone_by_is_told() {
    let pages = two_sources();
    let taken = |signal: &str| {
        let origin = pages.assembler.origin("s", signal, at(3.0));
        let gateway = origin.accounts.into_iter().next().expect("the gateway speaks of it");
        gateway.readings.into_iter().map(|one| (one.is_taken, one.series.len())).collect::<Vec<_>>()
    };
    // This gateway is of a version without the span. Both windows of the counter are there, and only one
    // is selected.
    assert_eq!(taken("amplification"), [(false, 0), (true, 2), (false, 0)]);
    let shown = &pages.snapshots(at(3.0))[0];
    for signal in shown.signals.keys() {
        let origin = pages.assembler.origin("s", signal, at(3.0));
        let believed: Vec<_> = origin.accounts.iter().filter(|one| one.is_believed).collect();
        let [account] = &believed[..] else { panic!("{signal}: {origin:?}") };
        let taken: Vec<_> = account.readings.iter().filter(|one| one.is_taken).collect();
        let [reading] = &taken[..] else { panic!("{signal}: {account:?}") };
        let seen = &shown.signals[signal];
        assert_eq!(reading.outcome.as_ref(), Ok(&seen.value), "{signal}");
        assert_eq!(
            (reading.quality, reading.note.as_deref()),
            (seen.quality, seen.note.as_deref())
        );
    }
}

#[test]
fn what_is_not_said_has_a_reason_instead_of_series() {
    let pages = two_sources();
    let silent = pages.assembler.origin("s", "originals_rps", at(60.0));
    let whys: Vec<_> = silent.accounts.iter().filter_map(|one| one.silent.as_deref()).collect();
    assert_eq!(whys, ["last answered 57 s ago"; 2]);
    assert!(silent.accounts.iter().all(|one| one.readings.is_empty() && !one.is_believed));
    let never = pages.assembler.origin("s", "no_such_signal", at(3.0));
    assert_eq!(never.accounts, []);
    let elsewhere = pages.assembler.origin("another scope", "queue_depth", at(3.0));
    assert!(elsewhere.accounts.is_empty(), "{elsewhere:?}");
}

#[test]
fn an_origin_has_the_doubts_of_the_number() {
    let mut assembler = Assembler::new();
    let id = assembler.add("gateway", SourceRules::new(Adapter::weir()));
    assembler.expect(id, ["a", "b"]);
    for n in 1..=3 {
        let page = gateway(n);
        assembler.accept(id, "a", Page::text(&page), at(f64::from(n))).expect("small");
    }
    let reading = |assembler: &Assembler| {
        let origin = assembler.origin("s", "originals_rps", at(3.0));
        origin.accounts[0].readings[0].clone()
    };
    let half = reading(&assembler);
    assert_eq!(
        (half.quality, half.note.as_deref()),
        (Quality::LowerBound, Some("1 of 2 instances"))
    );
    assert_eq!(half.series[0].instance, "a");

    let mut pages = Pages::default();
    for n in 1..=2 {
        pages.accept("gateway", &Adapter::weir(), "something_else 1\n", at(f64::from(n)));
    }
    let foreign = pages.assembler.origin("", "shed_rps", at(2.0));
    assert_eq!(foreign.accounts[0].readings, [], "a lazy count of another page is no zero");
    let why = foreign.accounts[0].silent.as_deref();
    assert_eq!(why, Some("none of the metrics of adapter weir is there"));
}
