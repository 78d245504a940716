//! A server that is dead, and what can happen in the middle of a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir::admission::Settings;
use weir::flag::{
    self, Etcd, EtcdLogin, Flip, Outcome, Past, Settled, Store, StoreError, Unsettled,
};

use crate::etcd_server::EtcdServer;
use crate::eventually::eventually;
use crate::store_plans::{Heard, NoLog, author, plan, timed};
use crate::support::{apply, by, events, store, table};

#[tokio::test]
async fn a_dead_server_is_unreachable_and_nothing_was_sent() {
    let mut server = EtcdServer::start();
    let store = store(&server);
    let change = plan(&table(&store).await, &["retry.max_attempts=1"]);
    server.kill();
    let error = store.list().await.expect_err("dead");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    let outcome = store.apply(&change, &author("alice")).await;
    let Outcome::Refused { why } = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("nothing was sent"), "{why}");
    server.restart();
    apply(&store, &change, "alice").await;
}

/// What happens between weir's read and its change.
type Between = Arc<dyn Fn(&EtcdServer) + Send + Sync>;

/// Stands before etcd. When the first change comes, `between` happens, and then it is delivered.
async fn at_a_change(server: &Arc<EtcdServer>, between: Between) -> Etcd {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (address, server) = (server.address(), Arc::clone(server));
    let armed = Arc::new(AtomicBool::new(true));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, armed, between) =
                (Arc::clone(&server), Arc::clone(&armed), Arc::clone(&between));
            let at_once = move || {
                if armed.swap(false, Ordering::SeqCst) {
                    between(&server);
                }
            };
            let Ok(etcd) = TcpStream::connect(&address).await else { return };
            tokio::spawn(relay(client, etcd, at_once));
        }
    });
    Etcd::new(&url, EtcdLogin::None, "prod", Settings::default()).expect("a good address")
}

async fn relay(client: TcpStream, etcd: TcpStream, at_a_change: impl Fn()) {
    let ((mut from_client, mut to_client), (mut from_etcd, mut to_etcd)) =
        (client.into_split(), etcd.into_split());
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_etcd, &mut to_client).await;
    });
    let mut request = vec![0; 1 << 16];
    let mut sent = Vec::new();
    while let Ok(length @ 1..) = from_client.read(&mut request).await {
        sent.extend_from_slice(&request[..length]);
        if sent.windows(11).any(|part| part == b"request_put") {
            at_a_change();
        }
        if to_etcd.write_all(&request[..length]).await.is_err() {
            return;
        }
    }
    // The client has given up. The way to etcd stays open: what is under way arrives.
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn an_edit_between_read_and_change_is_a_conflict() {
    let server = Arc::new(EtcdServer::start());
    let between: Between = Arc::new(|server| {
        server.ctl(&["put", "/weir/prod/flag/queue.max_depth", "9"]);
    });
    let store = at_a_change(&server, between).await;
    let seen = table(&store).await;
    let change = timed(&seen, &["retry.max_attempts=3"], Some(600));
    let outcome = store.apply(&change, &author("alice")).await;
    let Outcome::Conflict { current } = outcome else { panic!("{outcome:?}") };
    assert_eq!(by(&current, "queue.max_depth"), Some("outside"));
    assert_eq!(current, table(&store).await);
    assert!(events(&store).await.is_empty(), "nothing was stored");
    assert_eq!(server.ctl(&["lease", "list"]).trim(), "found 0 leases", "its timer is given back");
}

/// What the store's own history says of a flip without an answer.
async fn told(store: &Etcd, lost: &Unsettled) -> Option<Settled> {
    let table = table(store).await;
    let events = events(store).await;
    lost.judge(&table, Past::of(store.capabilities(), Some(&events)))
}

#[tokio::test]
async fn a_ghost_that_bob_overwrites_at_once_is_told_as_exactly_that() {
    let server = Arc::new(EtcdServer::start());
    let between: Between = Arc::new(|server| {
        server.freeze();
        tokio::time::pause();
    });
    let behind_the_relay = at_a_change(&server, between).await;
    let change = plan(&table(&behind_the_relay).await, &["retry.max_attempts=1"]);
    let outcome = behind_the_relay.apply(&change, &author("alice")).await;
    let Outcome::Unknown { why } = outcome else { panic!("{outcome:?}") };
    let lost = Unsettled::new(&change, why);
    server.thaw();
    tokio::time::resume();
    let direct = store(&server);
    let seen = eventually("the ghost lands", async || {
        let seen = table(&direct).await;
        (seen.revision > change.revision).then_some(seen)
    })
    .await;
    let landed = seen.revision;
    let bobs = apply(&direct, &plan(&seen, &["retry.max_attempts=4"]), "bob").await;
    let settled = told(&direct, &lost).await.expect("its id is in the history");
    let words = format!("landed at revision {landed}, then bob overwrote it (revision {bobs})");
    assert_eq!(settled.say(), words);
    // Past weir, there is no event; the table tells.
    let back = plan(&table(&direct).await, &["retry.max_attempts=1"]);
    apply(&direct, &back, "carol").await;
    assert_eq!(told(&direct, &lost).await.map(|settled| settled.word()), Some("applied"));
    server.ctl(&["put", "/weir/prod/flag/retry.max_attempts", "3"]);
    let settled = told(&direct, &lost).await.expect("its id is in the history");
    assert!(settled.say().contains("then outside overwrote it"), "{}", settled.say());
}

#[tokio::test]
async fn a_lost_request_is_open_until_the_table_has_moved_and_then_it_can_no_longer_land() {
    let server = EtcdServer::start();
    let store = store(&server);
    let change = plan(&table(&store).await, &["retry.max_attempts=1"]);
    let lost = Unsettled::new(&change, "it was never sent");
    assert_eq!(told(&store, &lost).await, None, "it may still come");
    apply(&store, &plan(&table(&store).await, &["queue.max_depth=9"]), "bob").await;
    let settled = told(&store, &lost).await.expect("it names a revision that has passed");
    assert_eq!(settled.word(), "not-stored", "{}", settled.say());
    let late = store.apply(&change, &author("alice")).await;
    assert!(matches!(late, Outcome::Conflict { .. }), "so it is: {late:?}");
}

#[tokio::test]
async fn a_ghost_write_is_unknown_until_two_reads_agree() {
    let server = Arc::new(EtcdServer::start());
    let between: Between = Arc::new(|server| {
        server.freeze();
        // Nobody has to wait for a time-out that will certainly come.
        tokio::time::pause();
    });
    let store = at_a_change(&server, between).await;
    let shown = table(&store).await;
    // Somebody watches: etcd thaws after the first read that failed.
    let heard = Arc::new(Heard::new(store, move || {
        server.thaw();
        tokio::time::resume();
    }));
    let change = plan(&shown, &["retry.max_attempts=1"]);
    let request_id = change.request_id.clone();
    let flip = Flip::new(change, &shown, author("alice"), &[]).expect("allowed");
    let report = flag::carry_out(flip, Arc::clone(&heard) as Arc<dyn Store>, Arc::new(NoLog)).await;
    let outcomes = heard.outcomes.lock().expect("unpoisoned").clone();
    assert!(matches!(outcomes.as_slice(), [Outcome::Unknown { .. }]), "the answer was lost");
    assert_eq!(heard.failed_reads.load(Ordering::SeqCst), 1);
    assert_eq!(report.end.word(), "applied", "{}", report.end.say());
    let found = "no answer came: event 1 of the store's history has its id";
    assert!(report.end.say().ends_with(found), "{}", report.end.say());
    let history = events(&heard.store).await;
    assert_eq!(history.len(), 1, "sent once");
    assert_eq!(history[0].request_id, Some(request_id));
    assert_eq!(history[0].anchor.as_deref(), Some("journal:1:hash"));
}
