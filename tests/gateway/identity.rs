//! What the gate reads from a request: which original it is, lane, tenant, deadline, retry marks.

use std::collections::BTreeMap;

use http::StatusCode;

use crate::support::{EMBEDDINGS, Gate, Hand, Sim, WIDE, input};

/// Repeats are the client's and are cheap here.
const CLIENT_OWNS: &str = "[flags]\n'retry.owner' = 'client'\n'retry.max_attempts' = 4\n\
                           'retry.budget_ratio' = 1.0\n'breaker.enabled' = false";

/// Headers, path and text of a request.
type Asked<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);

/// Sends two requests, after a success of the first or after its failure, and counts originals.
async fn originals(succeeds: bool, requests: [Asked<'_>; 2]) -> u64 {
    let sim = Sim::start("").await;
    if !succeeds {
        sim.script("server_error:10").await;
    }
    let gate = Gate::start(&sim.url(), CLIENT_OWNS, WIDE).await;
    for (headers, path, text) in requests {
        let reply = gate.post(path, headers, &input(text)).await;
        assert_eq!(reply.status.is_success(), succeeds && path == EMBEDDINGS, "{}", reply.text());
        gate.idle().await;
    }
    let tally = gate.ask(http::Method::GET, "/admin/v1/tally", &[], "").await.json();
    let metrics = gate.metrics().await.count("weir_originals_total", &[]);
    let counted = tally["originals"].as_u64().expect("a count");
    assert_eq!(metrics, counted);
    counted
}

#[tokio::test]
async fn the_same_bytes_are_one_original_until_they_succeed() {
    let same = [(&[][..], EMBEDDINGS, "a"); 2];
    assert_eq!(originals(false, same).await, 1);
    assert_eq!(originals(true, same).await, 2);
}

#[tokio::test]
async fn key_path_and_body_tell_originals_apart() {
    let key = |value| [("authorization", value)];
    let (one, two) = (key("Bearer one"), key("Bearer two"));
    for (first, second, expected) in [
        ((&[][..], EMBEDDINGS, "a"), (&[][..], EMBEDDINGS, "b"), 2),
        ((&one[..], EMBEDDINGS, "a"), (&two[..], EMBEDDINGS, "a"), 2),
        ((&one[..], EMBEDDINGS, "a"), (&one[..], EMBEDDINGS, "a"), 1),
        ((&[][..], EMBEDDINGS, "a"), (&[][..], "/v1/other", "a"), 2),
    ] {
        assert_eq!(originals(false, [first, second]).await, expected, "{first:?} {second:?}");
    }
}

#[tokio::test]
async fn an_idempotency_key_decides_before_the_body() {
    let (k1, k2) = ([("idempotency-key", "k1")], [("idempotency-key", "k2")]);
    let other_caller = [("idempotency-key", "k1"), ("authorization", "Bearer two")];
    for (succeeds, first, second, expected) in [
        (false, (&k1[..], EMBEDDINGS, "a"), (&k1[..], EMBEDDINGS, "b"), 1),
        (false, (&k1[..], EMBEDDINGS, "a"), (&k2[..], EMBEDDINGS, "a"), 2),
        (false, (&k1[..], EMBEDDINGS, "a"), (&[][..], EMBEDDINGS, "a"), 2),
        (false, (&k1[..], EMBEDDINGS, "a"), (&other_caller[..], EMBEDDINGS, "a"), 2),
        (true, (&k1[..], EMBEDDINGS, "a"), (&k1[..], EMBEDDINGS, "a"), 2),
    ] {
        assert_eq!(originals(succeeds, [first, second]).await, expected, "{first:?} {second:?}");
    }
}

#[tokio::test]
async fn request_ids_and_traces_label_and_never_split_or_merge() {
    for name in ["x-request-id", "traceparent", "x-stainless-retry-count"] {
        let (one, two) = ([(name, "1")], [(name, "2")]);
        let same_body = [(&one[..], EMBEDDINGS, "a"), (&two[..], EMBEDDINGS, "a")];
        assert_eq!(originals(false, same_body).await, 1, "{name}");
        let same_label = [(&one[..], EMBEDDINGS, "a"), (&one[..], EMBEDDINGS, "b")];
        assert_eq!(originals(false, same_label).await, 2, "{name}");
    }
}

#[tokio::test]
async fn the_lane_is_what_the_header_says() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    for (place, lane) in ["batch", "interactive", "nonsense"].into_iter().enumerate() {
        gate.embed_with(&[("x-weir-lane", lane)], &place.to_string()).await;
    }
    gate.embed("no header").await;
    let metrics = gate.metrics().await;
    for (lane, wanted) in [("batch", 1), ("interactive", 3)] {
        for name in ["weir_offered_total", "weir_admitted_total", "weir_originals_total"] {
            let sum = metrics.count(name, &[("lane", lane)]);
            assert_eq!(sum, wanted, "{name} {lane}: {sum}");
        }
    }
}

#[tokio::test]
async fn only_a_trusted_key_may_name_another_tenant() {
    // The keys of callers come from the environment: any two values that a header can carry will do.
    let mut variables = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else { continue };
        if value.bytes().all(|byte| byte.is_ascii_graphic()) && !value.is_empty() {
            variables.insert(value, name);
        }
    }
    let mut variables = variables.into_iter();
    let mut key = || variables.next().expect("the environment is not empty");
    let ((trusted, trusted_env), (other, other_env)) = (key(), key());
    let (trusted, other) = (format!("Bearer {trusted}"), format!("Bearer {other}"));
    let config = format!(
        "[[key]]\nkey_env = '{trusted_env}'\ntenant = 'front'\ntrusted = true\n\
         [[key]]\nkey_env = '{other_env}'\ntenant = 'front'\n\
         [flags]\n'tenant.cap_ratio' = 0.0001\n'queue.max_age_s' = 60"
    );
    let sim = Sim::start("").await;
    let scope = "name = 's'\ntpm = 6_000_000\n";
    let gate = Gate::start(&sim.url(), &config, scope).await;
    let number = std::cell::Cell::new(0);
    let send = async |key: &str, tenant: Option<&str>| {
        number.set(number.get() + 1);
        let mut headers = vec![("authorization", key)];
        headers.extend(tenant.map(|tenant| ("x-weir-tenant", tenant)));
        let text = format!("{} {}", number.get(), "w ".repeat(300));
        let reply = gate.embed_with(&headers, &text).await;
        if reply.status.is_success() { "ok".to_owned() } else { reply.code() }
    };
    // Both keys are of one tenant; its share is spent after a few.
    let mut spent = String::new();
    for _ in 0..10 {
        spent = send(&other, None).await;
        if spent != "ok" {
            break;
        }
    }
    assert_eq!(spent, "weir_tenant_cap");
    assert_eq!(send(&trusted, None).await, "weir_tenant_cap");
    assert_eq!(send(&other, Some("back")).await, "weir_tenant_cap", "not its to say");
    assert_eq!(send(&trusted, Some("back")).await, "ok");
    assert_eq!(send("Bearer stranger", None).await, "ok", "an unknown key is a tenant of its own");
}

#[tokio::test]
async fn the_first_deadline_of_the_contracts_order_counts() {
    let weir = ("x-weir-deadline-ms", "300");
    let envoy = ("x-envoy-expected-rq-timeout-ms", "600");
    let total = ("x-stainless-timeout", "0.9");
    let read = ("x-stainless-read-timeout", "1.2");
    let cases: [(&[(&str, &str)], &str); 9] = [
        (&[read, total, envoy, weir], "0.3"),
        (&[read, total, envoy], "0.6"),
        (&[read, total], "0.9"),
        (&[read], "1.2"),
        (&[], "1.5"),
        (&[("x-weir-deadline-ms", "soon"), envoy], "0.6"),
        (&[("x-weir-deadline-ms", "-5")], "1.5"),
        (&[("x-weir-deadline-ms", "NaN")], "1.5"),
        (&[("x-weir-deadline-ms", "1e40")], "1.5"),
    ];
    let hand = Hand::silent().await;
    // All of them at once, and none of the faults that this makes opens the breaker.
    let config = "default_deadline_s = 1.5\n[flags]\n'breaker.enabled' = false";
    let gate = Gate::start(&hand.url(), config, &format!("{WIDE}\npermits = 'fixed'")).await;
    let one = async |place: usize| {
        let (headers, seconds) = cases[place];
        let reply = gate.embed_with(headers, &place.to_string()).await;
        assert_eq!(reply.status, StatusCode::GATEWAY_TIMEOUT, "{headers:?}");
        let message = reply.message();
        assert!(message.contains(&format!("within {seconds} s")), "{headers:?}: {message}");
    };
    futures_util::future::join_all((0..cases.len()).map(one)).await;
    assert_eq!(hand.heads().len(), cases.len(), "no time is left for a second try");
}

#[tokio::test]
async fn a_deadline_far_beyond_every_clock_is_harmless() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "default_deadline_s = 1e300", WIDE).await;
    for (place, value) in ["1e21", "1e22", "18446744073709551615"].into_iter().enumerate() {
        let headers = [("x-weir-deadline-ms", value)];
        let reply = gate.embed_with(&headers, &place.to_string()).await;
        assert_eq!(reply.status, StatusCode::OK, "{value}");
    }
    assert_eq!(gate.embed("without a header").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_deadline_ends_the_wait_in_the_queue() {
    let hand = Hand::silent().await;
    let gate = Gate::start(&hand.url(), "[flags]\n'admission.max_in_flight' = 1", WIDE).await;
    let (http, url) = (gate.http.clone(), format!("{}{EMBEDDINGS}", gate.data));
    let holder =
        tokio::spawn(async move { http.send(http::Method::POST, &url, &[], &input("held")).await });
    gate.reaches("weir_upstream_open", &[], 1).await;
    let reply = gate.embed_with(&[("x-weir-deadline-ms", "100")], "waits").await;
    assert_eq!(reply.code(), "weir_queue_expired");
    holder.abort();
}

#[tokio::test]
async fn retry_marks_are_counted_from_what_sdks_say() {
    let cases: [(&[(&str, &str)], bool); 8] = [
        (&[], false),
        (&[("x-stainless-retry-count", "0")], false),
        (&[("x-stainless-retry-count", "1")], true),
        (&[("x-stainless-retry-count", "-1")], false),
        (&[("amz-sdk-request", "attempt=1; max=3")], false),
        (&[("amz-sdk-request", "attempt=2; max=3")], true),
        (&[("amz-sdk-request", "ttl=20260101T000000Z; attempt=3; max=3")], true),
        (&[("amz-sdk-request", "garbage")], false),
    ];
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let mut wanted = 0;
    for (place, (headers, marked)) in cases.into_iter().enumerate() {
        gate.embed_with(headers, &place.to_string()).await;
        wanted += u64::from(marked);
        let metrics = gate.metrics().await;
        let evidence = [("evidence", "header")];
        for sum in [
            metrics.count("weir_retry_marked_total", &[]),
            metrics.count("weir_client_retries_total", &evidence),
        ] {
            assert_eq!(sum, wanted, "{headers:?}: {sum}");
        }
    }
}
