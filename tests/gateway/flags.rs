//! The admin plane through the real client: reading, flipping, the audit, and what is refused.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use weir::admission::{FLAGS, FlagValue};
use weir::flag::wire::NoteBody;
use weir::flag::{
    self, Author, EventKind, Evidence, FlagTable, Outcome, Plan, Revision, Store, StoreError,
    Terms, Token, WeirAdmin,
};

use crate::interlocks::{GLASS, breaking, put_with};
use crate::support::{Gate, Hand, Reply, Sim, WIDE, eventually};

pub const FLAGS_PATH: &str = "/admin/v1/flags";
pub const STORM: &str = "[flags]\n'admission.mode' = 'off'\n'retry.owner' = 'client'\n\
                     'retry.max_attempts' = 3";

/// A gateway whose provider nobody calls.
pub async fn idle_gate(config: &str) -> Gate {
    Gate::start("http://127.0.0.1:9", config, WIDE).await
}

pub fn client(gate: &Gate) -> WeirAdmin {
    WeirAdmin::new(&gate.admin, Token::new(&gate.token)).expect("a loopback address")
}

pub fn alice() -> Author {
    Author { actor: "alice".to_owned(), incident: Some("INC-42".to_owned()), anchor: None }
}

pub fn terms(request_id: &str) -> Terms {
    Terms { reason: Some("storm".to_owned()), ttl_s: None, request_id: request_id.to_owned() }
}

pub fn contain(table: &FlagTable, request_id: &str) -> Plan {
    flag::named("contain", table, &Evidence::default(), terms(request_id)).expect("a plan")
}

pub fn body(value: &Value, request_id: &str) -> Value {
    json!({
        "value": value, "on_expire": "remind", "reason": "test", "actor": "bob",
        "request_id": request_id,
    })
}

pub async fn put(gate: &Gate, key: &str, revision: &str, body: &Value) -> Reply {
    let path = format!("{FLAGS_PATH}/{key}");
    gate.ask(Method::PUT, &path, &[("if-match", revision)], &body.to_string()).await
}

#[tokio::test]
async fn a_note_is_there_for_everyone_and_changes_nothing() {
    let gate = idle_gate(STORM).await;
    let store = client(&gate);
    let note = |text: &str| NoteBody {
        text: text.to_owned(),
        actor: "bob".to_owned(),
        incident: Some("INC-42".to_owned()),
        request_id: text.to_owned(),
    };
    let called = note("called the provider");
    for _ in 0..2 {
        store.note(&called).expect("it keeps notes").await.expect("it answers");
    }
    let events = store.events(0).await.expect("it answers");
    let [only] = events.as_slice() else { panic!("one event: {events:?}") };
    assert_eq!((only.kind, only.actor.as_str()), (EventKind::Note, "bob"));
    assert_eq!((only.reason.as_str(), only.revision), (called.text.as_str(), Revision(0)));
    assert_eq!(flag::newest_in_force(&events), None, "there is nothing to take back");
    let refused = store.note(&note(" ")).expect("it keeps notes").await;
    assert!(matches!(refused, Err(StoreError::Refused { status: 422, .. })), "{refused:?}");
}

#[tokio::test]
async fn the_table_shows_every_flag_with_its_ends() {
    let gate = idle_gate(&format!("instance = 'gw-7'\n{STORM}")).await;
    let table = client(&gate).list().await.expect("it answers");
    assert_eq!(table.revision, Revision(0));
    let keys: Vec<_> = table.flags.iter().map(|flag| flag.key.as_str()).collect();
    assert_eq!(keys, FLAGS.iter().map(|def| def.key).collect::<Vec<_>>());
    let mode = table.get("admission.mode").expect("a flag");
    let word = |text: &str| FlagValue::Word(text.to_owned());
    assert_eq!((&mode.base, &mode.safe), (&word("off"), &word("enforce")));
    assert_eq!(mode.effective.get("gw-7"), Some(&word("off")));
    assert_eq!((&mode.overridden, &mode.by, &mode.expires), (&None, &None, &None));
    let depth = table.get("queue.max_depth").expect("a flag");
    assert_eq!((&depth.base, &depth.safe), (&FlagValue::Number(512.0), &FlagValue::Number(256.0)));

    let raw = gate.ask(Method::GET, FLAGS_PATH, &[], "").await;
    assert_eq!(raw.header("etag"), Some("\"0\""));
    let one = gate.ask(Method::GET, &format!("{FLAGS_PATH}/retry.owner"), &[], "").await;
    assert_eq!((one.header("etag"), &one.json()["base"]), (Some("\"0\""), &json!("client")));
    let unknown = gate.ask(Method::GET, &format!("{FLAGS_PATH}/no.such"), &[], "").await;
    assert_eq!(
        (unknown.status.as_u16(), &unknown.json()["error"]["code"]),
        (404, &json!("unknown_flag"))
    );
}

#[tokio::test]
async fn contain_is_stored_as_one_and_works_at_once() {
    let sim = Sim::start("script = 'server_error:1'").await;
    let gate = Gate::start(&sim.url(), STORM, WIDE).await;
    assert_eq!(gate.embed("a").await.status.as_u16(), 500, "passed through");
    let store: Arc<dyn Store> = Arc::new(client(&gate));
    let before = store.list().await.expect("it answers");
    let plan = contain(&before, "id-1");
    assert_eq!(store.apply(&plan, &alice()).await, Outcome::applied(Revision(1)));
    // A repeat of the same request changes nothing, whatever revision it says.
    assert_eq!(store.apply(&plan, &alice()).await, Outcome::applied(Revision(1)));

    let after = store.list().await.expect("it answers");
    for (key, value) in
        [("admission.mode", "enforce"), ("retry.owner", "gateway"), ("retry.max_attempts", "2")]
    {
        let flag = after.get(key).expect("a flag");
        assert_eq!(flag.stored().to_string(), value);
        assert_eq!(flag.effective["weir-1"].to_string(), value, "in force, not only stored");
        assert_eq!((flag.by.as_deref(), flag.revision), (Some("alice"), Revision(1)));
    }
    let events = store.events(0).await.expect("it answers");
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].seq, events[0].kind, events[0].changes.len()), (1, EventKind::Change, 3));
    assert_eq!(events[0].incident.as_deref(), Some("INC-42"));
    assert!(store.events(1).await.expect("it answers").is_empty());

    sim.script("server_error:1").await;
    let reply = gate.embed("b").await;
    assert_eq!((reply.status.as_u16(), reply.header("x-weir-attempts")), (200, Some("2")));
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_flags_revision", &[]), 1);
    let shown = [("key", "admission.mode"), ("value", "enforce"), ("overridden", "true")];
    assert_eq!(metrics.count("weir_flag_info", &shown), 1);
}

#[tokio::test]
async fn several_changes_are_stored_all_or_none() {
    let gate = idle_gate("").await;
    let changes = json!([
        { "key": "retry.max_attempts", "value": 1 },
        { "key": "queue.max_depth", "value": -1 },
    ]);
    let body = json!({
        "changes": changes, "on_expire": "remind", "reason": "r", "actor": "a", "request_id": "1",
    });
    let path = "/admin/v1/flags:apply";
    let reply = gate.ask(Method::POST, path, &[("if-match", "\"0\"")], &body.to_string()).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["code"]), (422, &json!("value")));
    assert!(reply.message().contains("queue.max_depth"), "{}", reply.text());
    let table = client(&gate).list().await.expect("it answers");
    assert_eq!(table.revision, Revision(0));
    assert!(table.flags.iter().all(|flag| flag.overridden.is_none()));
}

#[tokio::test]
async fn refusals_have_their_status_and_say_what_would_be_right() {
    let gate = idle_gate(STORM).await;
    let good = body(&json!(1), "1");
    let path = format!("{FLAGS_PATH}/retry.max_attempts");
    let without = gate.ask(Method::PUT, &path, &[], &good.to_string()).await;
    assert_eq!(
        (without.status.as_u16(), &without.json()["error"]["code"]),
        (428, &json!("if_match_required"))
    );
    for any in ["*", "0", "W/\"0\""] {
        assert_eq!(
            put(&gate, "retry.max_attempts", any, &good).await.status.as_u16(),
            428,
            "{any}"
        );
    }
    let stale = put(&gate, "retry.max_attempts", "\"7\"", &good).await;
    assert_eq!(stale.status.as_u16(), 412);
    let current = &stale.json()["error"]["current"];
    assert_eq!(current["revision"], 0);
    assert_eq!(current["flags"].as_array().map(Vec::len), Some(FLAGS.len()));

    for (key, value, status, words) in [
        ("retry.max_attempts", json!(9), 422, "from 1 to 4"),
        ("retry.max_attempts", json!("two"), 422, "from 1 to 4"),
        ("retry.max_attempts", json!(1.5), 422, "from 1 to 4"),
        ("admission.mode", json!("on"), 422, "enforce"),
        ("no.such", json!(1), 404, "no.such"),
        ("retry.max_attempts", json!(4), 409, "admission.mode"),
        ("cache.enabled", json!(true), 409, "cache"),
    ] {
        let reply = put(&gate, key, "\"0\"", &body(&value, "2")).await;
        assert_eq!(reply.status.as_u16(), status, "{key}={value}: {}", reply.text());
        assert!(reply.message().contains(words), "{key}={value}: {}", reply.text());
    }
    for wrong in ["", "{", "{\"value\":1}", "[]"] {
        let reply = gate.ask(Method::PUT, &path, &[("if-match", "\"0\"")], wrong).await;
        assert_eq!(reply.status.as_u16(), 422, "{wrong}");
    }
    let mut nobody = good.clone();
    nobody["actor"] = json!(" ");
    assert_eq!(put(&gate, "retry.max_attempts", "\"0\"", &nobody).await.status.as_u16(), 422);
    assert_eq!(client(&gate).list().await.expect("it answers").revision, Revision(0));
}

#[tokio::test]
async fn the_slower_of_two_gets_the_table_as_it_is_now() {
    let gate = idle_gate(STORM).await;
    let store = client(&gate);
    let table = store.list().await.expect("it answers");
    store.apply(&contain(&table, "id-1"), &alice()).await;
    let outcome = store.apply(&contain(&table, "id-2"), &alice()).await;
    let Outcome::Conflict { current } = outcome else { panic!("{outcome:?}") };
    assert_eq!(current, store.list().await.expect("it answers"));
}

#[tokio::test]
async fn an_override_can_be_dropped() {
    let gate = idle_gate("").await;
    assert_eq!(
        put(&gate, "queue.max_depth", "\"0\"", &body(&json!(100), "1")).await.status,
        StatusCode::OK
    );
    let path = format!("{FLAGS_PATH}/queue.max_depth");
    let drop =
        json!({ "on_expire": "remind", "reason": "over", "actor": "bob", "request_id": "2" });
    let headers = [("if-match", "\"1\"")];
    let reply = gate.ask(Method::DELETE, &path, &headers, &drop.to_string()).await;
    assert_eq!((reply.status.as_u16(), reply.header("etag")), (200, Some("\"2\"")));
    let again = gate.ask(Method::DELETE, &path, &headers, &drop.to_string()).await;
    assert_eq!((again.status.as_u16(), again.header("etag")), (200, Some("\"2\"")), "a repeat");
    let table = client(&gate).list().await.expect("it answers");
    let flag = table.get("queue.max_depth").expect("a flag");
    assert_eq!((&flag.overridden, flag.stored()), (&None, &FlagValue::Number(512.0)));
    let events = client(&gate).events(1).await.expect("it answers");
    assert_eq!((events.len(), &events[0].changes[0].to), (1, &None));
    assert_eq!(events[0].changes[0].from, Some(FlagValue::Number(100.0)));
}

#[tokio::test]
async fn only_health_and_metrics_are_open() {
    let gate = idle_gate("").await;
    for path in ["/metrics", "/healthz", "/readyz"] {
        let url = format!("{}{path}", gate.admin);
        assert_eq!(
            gate.http.send(Method::GET, &url, &[], "").await.status,
            StatusCode::OK,
            "{path}"
        );
    }
    for (method, path) in [
        (Method::GET, "/admin/v1/flags"),
        (Method::GET, "/admin/v1/flags/retry.owner"),
        (Method::PUT, "/admin/v1/flags/retry.owner"),
        (Method::DELETE, "/admin/v1/flags/retry.owner"),
        (Method::POST, "/admin/v1/flags:apply"),
        (Method::POST, "/admin/v1/flags:plan"),
        (Method::GET, "/admin/v1/events"),
        (Method::POST, "/admin/v1/notes"),
        (Method::GET, "/admin/v1/originals/1"),
        (Method::GET, "/admin/v1/snapshot"),
        (Method::GET, "/admin/v1/tally"),
        (Method::POST, "/admin/v1/drain"),
    ] {
        let url = format!("{}{path}", gate.admin);
        let token = gate.token.as_str();
        for wrong in [None, Some("Bearer wrong"), Some("Bearer "), Some(token)] {
            let headers: Vec<_> = wrong.map(|text| ("authorization", text)).into_iter().collect();
            let reply = gate.http.send(method.clone(), &url, &headers, "").await;
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{method} {path} {wrong:?}");
        }
    }
    let wrong = WeirAdmin::new(&gate.admin, Token::new("wrong")).expect("a loopback address");
    let error = wrong.list().await.expect_err("a wrong token");
    assert!(matches!(error, StoreError::Refused { status: 401, .. }), "{error}");
    assert_eq!(client(&gate).list().await.expect("not drained, not changed").revision, Revision(0));
}

#[tokio::test]
async fn a_plan_foretells_one_scope_that_is_named() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    gate.embed("one two").await;
    let scopes = gate.ask(Method::GET, "/admin/v1/snapshot", &[], "").await.json();
    let scope = scopes["scopes"][0]["scope"].as_str().unwrap_or_default().to_owned();
    assert!(!scope.is_empty(), "{scopes}");
    let says = json!({ "changes": [{ "key": "retry.max_attempts", "value": 1 }],
        "on_expire": "remind", "reason": "r", "actor": "a", "request_id": "1" });
    let plan = |query: String| {
        let (gate, says) = (&gate, says.to_string());
        async move {
            let path = format!("/admin/v1/flags:plan{query}");
            gate.ask(Method::POST, &path, &[], &says).await
        }
    };
    let untold = plan(String::new()).await.json();
    assert_eq!(
        (&untold["name"], &untold["forecast"]),
        (&json!("retry.max_attempts"), &Value::Null)
    );
    let told = plan(format!("?forecast={scope}")).await.json();
    let row = &told["forecast"]["scopes"][0];
    assert_eq!(
        (&row["scope"], told["forecast"]["horizon_s"].as_f64()),
        (&json!(scope), Some(60.0))
    );
    let measures = row["measures"].as_array().expect("a list");
    assert_ne!(
        row["refused"].is_null(),
        measures.is_empty(),
        "numbers, or why there are none: {row}"
    );
    let nobody = plan("?forecast=nobody".to_owned()).await;
    assert_eq!(nobody.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(nobody.message().contains("no scope `nobody` has had a request"), "{}", nobody.text());
}

#[tokio::test]
async fn the_chain_of_an_original_tells_every_try() {
    let sim = Sim::start("script = 'rate_limit:1'").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let reply = gate.embed("one two").await;
    let id = reply.header("x-weir-request-id").expect("a number").to_owned();
    let chain = gate.ask(Method::GET, &format!("/admin/v1/originals/{id}"), &[], "").await.json();
    let steps: Vec<_> = chain["chain"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| step["what"].as_str().expect("a word"))
        .collect();
    let wanted = ["request", "attempt", "answer", "backoff", "attempt", "answer", "served"];
    assert_eq!(steps, wanted, "{chain}");
    let refused = &chain["chain"][2];
    assert_eq!(
        (&refused["status"], &refused["code"]),
        (&json!(429), &json!("rate_limit_exceeded"))
    );
    assert!(refused["hint_s"].as_f64().is_some_and(|hint| hint > 0.0), "{refused}");
    assert!(chain["chain"][3]["wait_s"].as_f64().is_some_and(|wait| wait > 0.0), "{chain}");
    assert_eq!((&chain["chain"][6]["tokens"], &chain["served"]), (&json!(2.0), &json!(true)));
    assert_eq!((&chain["requests"], &chain["attempts"]), (&json!(1), &json!(2)));
    let asked = client(&gate);
    let told = asked.original(id.parse().expect("a number")).expect("a gateway keeps originals");
    let told = told.await.expect("it knows this one");
    assert_eq!((told.attempts, told.served, told.chain.len()), (2, true, wanted.len()));
    assert_eq!(told.chain[2].code.as_deref(), Some("rate_limit_exceeded"));
    let unknown = gate.ask(Method::GET, "/admin/v1/originals/999", &[], "").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_number_of_a_repeat_leads_to_its_original() {
    let sim = Sim::start("script = 'server_error:1'").await;
    let gate = Gate::start(&sim.url(), "[flags]\n'retry.owner' = 'client'", WIDE).await;
    gate.embed("a").await;
    let repeat = gate.embed("a").await;
    let id = repeat.header("x-weir-request-id").expect("a number").to_owned();
    let found = gate.ask(Method::GET, &format!("/admin/v1/originals/{id}"), &[], "").await;
    assert_eq!(found.status, StatusCode::OK, "{id}: {}", found.text());
    assert_eq!(found.json()["requests"], 2);
}

#[tokio::test]
async fn the_snapshot_has_signals_after_two_ticks() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let store = client(&gate);
    let (offered, success) = eventually("two ticks with traffic between them", async || {
        gate.embed("a").await;
        let scopes = store.snapshots().await.expect("it answers");
        let scope = scopes.first()?;
        Some((scope.number("offered_rps")?, scope.number("success_rps")?))
            .filter(|(offered, _)| *offered > 0.0)
    })
    .await;
    assert!(success > 0.0, "{success} of {offered}");
    let scopes = store.snapshots().await.expect("it answers");
    assert_eq!(scopes[0].number("amplification"), Some(1.0));
    assert_eq!(scopes[0].number("rpm_limit"), Some(600_000.0));
    eventually("it counts for how long nothing is repeated", async || {
        let scopes = store.snapshots().await.expect("it answers");
        scopes.first()?.number("calm_s").filter(|calm_s| *calm_s > 0.0)
    })
    .await;
}

#[tokio::test]
async fn overrides_and_their_history_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config =
        format!("state_file = '{}'\n{STORM}", directory.path().join("flags.json").display());
    let first = idle_gate(&config).await;
    let store = client(&first);
    let plan = contain(&store.list().await.expect("it answers"), "id-1");
    store.apply(&plan, &alice()).await;
    let before = store.list().await.expect("it answers");
    let history = store.events(0).await.expect("it answers");
    drop(first);

    let second = idle_gate(&config).await;
    let store = client(&second);
    assert_eq!(store.list().await.expect("it answers"), before, "effective values too");
    assert_eq!(store.events(0).await.expect("it answers"), history);
    let repeat = store.apply(&plan, &alice()).await;
    assert_eq!(repeat, Outcome::applied(Revision(1)), "known after the restart too");
}

#[tokio::test]
async fn a_timer_goes_back_toward_safe_and_only_reminds_otherwise() {
    let gate = idle_gate("").await;
    let timed = |value: Value, id: &str| {
        let mut body = body(&value, id);
        body["ttl_s"] = json!(1);
        body["on_expire"] = json!("revert");
        body
    };
    let risky = put(&gate, "retry.max_attempts", "\"0\"", &timed(json!(3), "1")).await;
    assert_eq!(risky.status, StatusCode::OK, "{}", risky.text());
    let safer = put(&gate, "queue.max_depth", "\"1\"", &timed(json!(300), "2")).await;
    assert_eq!(safer.status, StatusCode::OK, "{}", safer.text());
    let store = client(&gate);
    let set = store.list().await.expect("it answers");
    assert!(set.get("retry.max_attempts").expect("a flag").expires.is_some());

    let events = eventually("both timers", async || {
        let events = store.events(2).await.expect("it answers");
        (events.len() >= 2).then_some(events)
    })
    .await;
    let told: Vec<_> = events
        .iter()
        .map(|event| (event.kind, event.actor.as_str(), event.changes[0].key.as_str()))
        .collect();
    assert!(told.contains(&(EventKind::Expire, "timer", "retry.max_attempts")), "{told:?}");
    assert!(told.contains(&(EventKind::Remind, "timer", "queue.max_depth")), "{told:?}");
    let after = store.list().await.expect("it answers");
    let tries = after.get("retry.max_attempts").expect("a flag");
    assert_eq!((tries.stored().to_string(), tries.by.as_deref()), ("2".to_owned(), Some("timer")));
    assert_eq!(tries.effective["weir-1"].to_string(), "2", "in force again");
    let depth = after.get("queue.max_depth").expect("a flag").stored().to_string();
    assert_eq!(depth, "300", "not back to the less safe base");
}

#[tokio::test]
async fn a_flip_reaches_those_who_wait_already() {
    let hand = Hand::silent().await;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("glass");
    std::fs::write(&file, GLASS).expect("it can be written to");
    let config = format!(
        "break_glass_token_file = '{}'\n[flags]\n'admission.max_in_flight' = 1",
        file.display()
    );
    let gate = Gate::start(&hand.url(), &config, WIDE).await;
    let ask = |text: &str| {
        let (http, url) = (gate.http.clone(), format!("{}/v1/embeddings", gate.data));
        let body = crate::support::input(text);
        tokio::spawn(async move { http.send(Method::POST, &url, &[], &body).await })
    };
    let holder = ask("held");
    gate.reaches("weir_upstream_open", &[], 1).await;
    let waiter = ask("waits");
    gate.reaches("weir_queue_depth", &[], 1).await;
    let shorter = put(&gate, "queue.max_age_s", "\"0\"", &body(&json!(0.01), "1")).await;
    assert_eq!(shorter.status, StatusCode::OK);
    assert_eq!(waiter.await.expect("it ends").code(), "weir_queue_expired");
    let patient = put(&gate, "queue.max_age_s", "\"1\"", &body(&json!(60), "2")).await;
    assert_eq!(patient.status, StatusCode::OK);
    let waiter = ask("passes");
    gate.reaches("weir_queue_depth", &[], 1).await;
    let both = [("if-match", "\"2\""), ("x-weir-break-glass", GLASS)];
    let off = breaking(body(&json!("off"), "3"));
    let off = put_with(&gate, "admission.mode", &both, &off).await;
    assert_eq!(off.status, StatusCode::OK, "{}", off.text());
    gate.reaches("weir_upstream_open", &[], 2).await;
    holder.abort();
    waiter.abort();
    gate.idle().await;
}
