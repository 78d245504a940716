//! What it costs to fetch the pages of a fleet with weir's own scraper: over HTTP, loopback, kept-alive
//! connections. The server runs on a thread of its own, whose time is not counted.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use bytes::Bytes;
use weir::ingest::{Scraper, Target};

use crate::clock::thread_time;
use crate::support::Page;

const ROUNDS: u32 = 20;

/// Prints the share of one core that fetching takes at one round a second.
pub fn print(names: &Rc<[String]>, endpoints: usize) {
    let mut body = Vec::new();
    Page::new(Rc::clone(names), 1).write(&mut body);
    let bytes = body.len();
    let address = serve(Bytes::from(body));
    let runtime = runtime();
    let scraper = Scraper::new().expect("a client");
    let round = || {
        let begun = thread_time();
        runtime.block_on(async {
            for endpoint in 0..endpoints {
                let mut target = Target::new("bench", format!("http://{address}/{endpoint}"));
                target.timeout = Duration::from_secs(10);
                let (body, _) = scraper.fetch(&target).await.expect("an answer");
                assert_eq!(body.len(), bytes);
            }
        });
        thread_time().saturating_sub(begun)
    };
    round();
    let spent: Duration = (0..ROUNDS).map(|_| round()).sum();
    let share = spent.as_secs_f64() / f64::from(ROUNDS);
    println!("  fetching the same pages over loopback: {:.2} % of one core", share * 100.0);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn serve(page: Bytes) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    let answer = get(move || {
        let page = page.clone();
        async move { ([(CONTENT_TYPE, "text/plain; version=0.0.4")], page) }
    });
    std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            let pages = Router::new().route("/{endpoint}", answer);
            axum::serve(listener, pages).await.expect("the server runs on");
        });
    });
    address
}
