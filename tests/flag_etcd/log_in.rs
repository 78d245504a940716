//! Users, sessions that etcd forgets, and refusals.

use std::time::Duration;

use weir::admission::Settings;
use weir::flag::{Etcd, EtcdLogin, Outcome, Store, StoreError, Token};

use crate::etcd_server::EtcdServer;
use crate::store_plans::{author, plan, timed};
use crate::support::{apply, events, flag_table, store, table};

fn with_users(server: &EtcdServer) {
    for command in [
        "user add root:secret",
        "user grant-role root root",
        "role add weir",
        "role grant-permission weir --prefix=true readwrite /weir/prod/",
        "user add oncall:pager",
        "user grant-role oncall weir",
        "auth enable",
    ] {
        server.ctl(&command.split(' ').collect::<Vec<_>>());
    }
}

fn as_user(server: &EtcdServer, namespace: &str, password: &str) -> Etcd {
    let login = EtcdLogin::Password { user: "oncall".to_owned(), password: Token::new(password) };
    Etcd::new(&server.url(), login, namespace, Settings::default()).expect("a good address")
}

/// A new process. The pool sees that its connection is gone once it gets a turn.
async fn restart(server: &mut EtcdServer) {
    server.restart();
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::test]
async fn a_log_in_is_made_and_made_again_when_etcd_forgets_it() {
    let mut server = EtcdServer::start();
    with_users(&server);
    let store = as_user(&server, "prod", "pager");
    let seen = table(&store).await;
    let change = plan(&seen, &["retry.max_attempts=1"]);
    restart(&mut server).await;
    apply(&store, &change, "alice").await;
    let change = timed(&table(&store).await, &["queue.max_depth=1000"], Some(600));
    restart(&mut server).await;
    apply(&store, &change, "alice").await;
    restart(&mut server).await;
    assert_eq!(events(&store).await.len(), 2);
    // A change of users makes sessions old.
    server.ctl(&["--user", "root:secret", "user", "add", "carol:x"]);
    table(&store).await;
    assert!(!format!("{store:?}").contains("pager"), "a password never shows itself");
}

#[tokio::test]
async fn refusals_are_in_etcds_words_with_what_to_do() {
    let server = EtcdServer::start();
    with_users(&server);
    let check = async |store: Etcd, expected: &str| {
        let error = store.list().await.expect_err(expected);
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        let change = plan(&flag_table(), &["retry.max_attempts=1"]);
        let outcome = store.apply(&change, &author("alice")).await;
        let Outcome::Refused { why } = outcome else { panic!("{outcome:?}") };
        assert!(why.contains(expected), "{why}");
    };
    check(store(&server), "user name is empty; this etcd wants a log-in").await;
    check(as_user(&server, "prod", "wrong"), "invalid user ID or password").await;
    check(as_user(&server, "other", "pager"), "permission denied; the user needs `readwrite`")
        .await;
    let open = EtcdServer::start();
    check(as_user(&open, "prod", "pager"), "authentication is not enabled").await;
}
