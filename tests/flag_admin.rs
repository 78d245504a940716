//! The client of weir's admin API against a fake server on loopback (`fake_admin` says how fake).

mod fake_admin;

use std::sync::Arc;

use fake_admin::{Fake, TOKEN, flag_table};
use weir::flag::wire::WireOnExpire;
use weir::flag::{
    self, Author, EventKind, Evidence, FlagTable, Outcome, Plan, Revision, Store, StoreError,
    Terms, Token, WeirAdmin,
};
use weir::incident::{Event, Journal, reconcile};

fn client(fake: &Fake) -> WeirAdmin {
    WeirAdmin::new(&fake.url, Token::new(TOKEN)).expect("a loopback address")
}

fn alice() -> Author {
    Author { actor: "alice".to_owned(), incident: Some("INC-42".to_owned()), anchor: None }
}

fn terms(request_id: &str) -> Terms {
    Terms { reason: Some("storm".to_owned()), ttl_s: None, request_id: request_id.to_owned() }
}

fn contain(table: &FlagTable) -> Plan {
    flag::named("contain", table, &Evidence::default(), terms("id-1")).expect("a plan")
}

#[tokio::test]
async fn contain_is_stored_at_once_and_can_be_taken_back() {
    let fake = Fake::start().await;
    let store: Arc<dyn Store> = Arc::new(client(&fake));
    let before = store.list().await.expect("the fake answers");
    assert_eq!(before.revision, Revision(41));

    let outcome = store.apply(&contain(&before), &alice()).await;
    assert_eq!(outcome, Outcome::applied(Revision(42)));
    let during = store.list().await.expect("the fake answers");
    let mode = during.get("admission.mode").expect("in the table");
    assert_eq!(mode.stored().to_string(), "enforce");
    assert_eq!(mode.by.as_deref(), Some("alice"));

    let events = store.events(0).await.expect("the fake answers");
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].kind, events[0].incident.as_deref()),
        (EventKind::Change, Some("INC-42"))
    );
    assert_eq!(events[0].changes.len(), 3);
    assert!(store.events(1).await.expect("the fake answers").is_empty());

    let evidence = Evidence::default();
    let back = flag::undo(&events[0], &during, &evidence, terms("id-2")).expect("a plan");
    assert!(back.guards.iter().any(|guard| guard.holds != Some(true)), "it warns");
    assert_eq!(back.refused(), None, "and leaves the decision to the person");
    // The fake has no interlocks; the client sends what it is told to.
    store.apply(&back, &alice()).await;
    let after = store.list().await.expect("the fake answers");
    assert!(after.flags.iter().all(|flag| flag.overridden.is_none()), "the base holds again");
}

#[tokio::test]
async fn a_repeat_of_the_same_request_changes_nothing() {
    let fake = Fake::start().await;
    let store = client(&fake);
    let plan = contain(&store.list().await.expect("the fake answers"));
    store.apply(&plan, &alice()).await;
    let again = store.apply(&plan, &alice()).await;
    assert_eq!(again, Outcome::applied(Revision(42)));
    assert_eq!(fake.changes(), 1);
}

#[tokio::test]
async fn the_slower_of_two_gets_the_table_as_it_is_now() {
    let fake = Fake::start().await;
    let store = client(&fake);
    let table = store.list().await.expect("the fake answers");
    let mut slower = contain(&table);
    slower.request_id = "id-2".to_owned();
    store.apply(&contain(&table), &alice()).await;
    let outcome = store.apply(&slower, &alice()).await;
    let Outcome::Conflict { current } = outcome else { panic!("{outcome:?}") };
    assert_eq!(current, store.list().await.expect("the fake answers"));
}

#[tokio::test]
async fn an_interlock_is_told_in_the_services_words() {
    let fake = Fake::start().await;
    fake.refuse("amplification is 9.3");
    let store = client(&fake);
    let table = store.list().await.expect("the fake answers");
    let outcome = store.apply(&contain(&table), &alice()).await;
    assert_eq!(outcome, Outcome::Refused { why: "amplification is 9.3".to_owned() });
}

#[tokio::test]
async fn a_wrong_token_is_a_refusal_and_not_an_outage() {
    let fake = Fake::start().await;
    let store = WeirAdmin::new(&fake.url, Token::new("wrong")).expect("a loopback address");
    let error = store.list().await.expect_err("wrong token");
    assert!(matches!(error, StoreError::Refused { status: 401, .. }), "{error}");
}

#[tokio::test]
async fn signals_for_the_guards_come_over_the_same_way() {
    let fake = Fake::start().await;
    let scopes = client(&fake).snapshots().await.expect("the fake answers");
    assert_eq!(scopes[0].number("amplification"), Some(9.3));
}

#[tokio::test]
async fn an_original_is_told_or_refused_in_the_words_of_the_gateway() {
    let fake = Fake::start().await;
    let store = client(&fake);
    let told = store.original(7).expect("a gateway keeps originals").await.expect("it knows 7");
    assert_eq!((told.id, told.attempts, told.served), (7, 0, false));
    assert_eq!(told.chain[0].code.as_deref(), Some("weir_queue_full"));
    let refused = store.original(8).expect("a gateway").await.expect_err("it does not know 8");
    assert!(refused.to_string().ends_with("404: no such original"), "{refused}");
}

#[tokio::test]
async fn flips_that_a_crash_left_open_are_looked_up() {
    let fake = Fake::start().await;
    let store = client(&fake);
    let shown = store.list().await.expect("the fake answers");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("journal.jsonl");
    let (journal, _) = Journal::open(&path).expect("a new file");
    let begin = |request_id: &str, revision: u64| Event::Flip {
        request_id: request_id.to_owned(),
        plan: "contain".to_owned(),
        revision,
        actor: "alice".to_owned(),
        incident: None,
        reason: "storm".to_owned(),
        changes: Vec::new(),
        ttl_s: None,
        on_expire: WireOnExpire::Remind,
        verify: String::new(),
        store: None,
        notes: Box::default(),
    };
    // Sent and stored; never sent and too late now; never sent and still possible.
    let (stored, late, possible) = (begin("id-1", 41), begin("id-2", 41), begin("id-3", 42));
    for flip in [&stored, &late, &possible] {
        journal.append(flip, chrono::Utc::now()).expect("the disk is there");
    }
    store.apply(&contain(&shown), &alice()).await;

    let (journal, found) = Journal::open(&path).expect("whole");
    assert_eq!(found.open_flips.len(), 3);
    let open = reconcile(&journal, found.open_flips, &store).await.expect("the fake answers");
    assert_eq!(open, [possible]);
    let text = std::fs::read_to_string(&path).expect("it was written");
    let ends: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["event"].clone())
        .filter(|event| event["kind"] == "outcome")
        .collect();
    assert_eq!((&ends[0]["request_id"], &ends[0]["end"]), (&"id-1".into(), &"applied".into()));
    assert_eq!((&ends[1]["request_id"], &ends[1]["end"]), (&"id-2".into(), &"not-stored".into()));
}

/// A peer that takes the connection and does with it what `then` says.
async fn peer<F>(then: impl Fn(tokio::net::TcpStream) -> F + Send + 'static) -> WeirAdmin
where
    F: Future<Output = ()> + Send,
{
    let listener =
        tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            then(stream).await;
        }
    });
    WeirAdmin::new(&url, Token::new(TOKEN)).expect("a loopback address")
}

fn some_plan() -> Plan {
    let table = flag_table::table(&weir::admission::Settings::default());
    flag::all_safe(&table, &Evidence::default(), terms("id-1")).expect("a plan")
}

// The clock is paused: it jumps to the client's time-out as soon as nothing else can happen.
#[tokio::test(start_paused = true)]
async fn no_answer_in_time_is_unknown() {
    let store = peer(|stream| async move {
        std::mem::forget(stream.into_std());
    })
    .await;
    let outcome = store.apply(&some_plan(), &alice()).await;
    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
    let error = store.list().await.expect_err("no answer");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_is_unknown() {
    let store = peer(|stream| async move { drop(stream) }).await;
    let outcome = store.apply(&some_plan(), &alice()).await;
    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_page_instead_of_a_table_is_named() {
    let store = peer(|mut stream| async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut head = [0; 1024];
        let _ = stream.read(&mut head).await;
        let page = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>";
        let _ = stream.write_all(page.as_bytes()).await;
    })
    .await;
    let error = store.list().await.expect_err("no table").to_string();
    assert!(error.contains("the flag table in a form"), "{error}");
}
