//! Fetches a page so many times each second and throws it away: what HTTP alone costs a program that
//! watches so many sources. `tests/bench/screen.sh` measures it beside the dashboard.
//!
//! The first argument is the way: `client` asks with the HTTP client that weir has, all at once;
//! `sockets` with one blocking socket after the other and nothing around it. Then come the number of
//! sources and the address, `http://HOST:PORT/PATH`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use weir::ingest::Access;

/// From round to round.
const SECOND: Duration = Duration::from_secs(1);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [way, count, url] = words.as_slice() else { panic!("fetching client|sockets COUNT URL") };
    let count: usize = count.parse().expect("a number of sources");
    match way.as_str() {
        "client" => client(count, url),
        "sockets" => sockets(count, url),
        other => panic!("`{other}` is neither client nor sockets"),
    }
}

fn client(count: usize, url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = Access::default().client().expect("a client");
        let mut second = interval(SECOND);
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            second.tick().await;
            let mut round = JoinSet::new();
            for _ in 0..count {
                let answer = client.get(url).send();
                round.spawn(async move { answer.await?.bytes().await });
            }
            for page in round.join_all().await {
                assert!(!page.expect("an answer").is_empty(), "an empty page");
            }
        }
    });
}

fn sockets(count: usize, url: &str) {
    let rest = url.strip_prefix("http://").expect("http");
    let (host, path) = rest.split_once('/').expect("a path");
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let connect = |_| TcpStream::connect(host).expect("somebody listens");
    let mut sources: Vec<TcpStream> = (0..count).map(connect).collect();
    let mut answer = vec![0; 1 << 20];
    loop {
        let begun = Instant::now();
        for source in &mut sources {
            source.write_all(request.as_bytes()).expect("sent");
            read_answer(source, &mut answer);
        }
        std::thread::sleep(SECOND.saturating_sub(begun.elapsed()));
    }
}

/// Reads one answer of a length that its head tells.
fn read_answer(source: &mut TcpStream, answer: &mut [u8]) {
    let mut read = 0;
    let whole = loop {
        read += source.read(&mut answer[read..]).expect("an answer");
        let text = String::from_utf8_lossy(&answer[..read.min(1_024)]);
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let (_, length) = lengths.next().expect("a length");
            break head.len() + 4 + length.parse::<usize>().expect("a length");
        }
    };
    while read < whole {
        read += source.read(&mut answer[read..]).expect("the rest");
    }
}
