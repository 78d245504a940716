//! Scrapes of things that are no metrics: each gives an error with the source's name, within its time
//! and memory, and never a panic. A small TCP server on loopback plays the bad peer.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir::ingest::{PageRead, ScrapeError, Scraper, Target, degraded, read_page};

const MEBIBYTE: usize = 1 << 20;

/// Serves every connection with `answer` on a port of its own; `{port}` in it becomes the port.
async fn serve(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let port = address.port().to_string();
    let answer = match String::from_utf8(answer) {
        Ok(text) => text.replace("{port}", &port).into_bytes(),
        Err(binary) => binary.into_bytes(),
    };
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                read_head(&mut stream).await;
                // The scraper may hang up in the middle, which is its right.
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    format!("http://{address}/metrics")
}

async fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(count) => head.extend_from_slice(&chunk[..count]),
        }
    }
}

fn ok(content_type: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn target(url: String) -> Target {
    let timeout = Duration::from_secs(20);
    Target { timeout, body_max: 50 * MEBIBYTE, ..Target::new("gateway", url) }
}

async fn scrape(url: String) -> Result<PageRead, ScrapeError> {
    let (body, format) = Scraper::new().expect("a client").fetch(&target(url)).await?;
    read_page("gateway", &body, format)
}

/// The error that an answer gives.
async fn error(answer: Vec<u8>) -> String {
    let error = scrape(serve(answer).await).await.expect_err("no metrics").to_string();
    assert!(error.starts_with("gateway: "), "the source is named: {error}");
    error
}

const TEXT: &str = "text/plain; version=0.0.4";

#[tokio::test]
async fn metrics_are_read() {
    let scrape = scrape(serve(ok(TEXT, "a 1\nb{x=\"1\"} 2\n")).await).await.expect("metrics");
    assert_eq!(scrape.series, 2);
    assert_eq!(degraded(&scrape.report), []);
}

#[tokio::test]
async fn the_answer_says_the_dialect() {
    let body = "a_total 1 1.5\n# EOF\n";
    let open = ok("application/openmetrics-text; version=1.0.0; charset=utf-8", body);
    let open = scrape(serve(open).await).await.expect("metrics");
    assert_eq!(degraded(&open.report), []);
    let text = scrape(serve(ok(TEXT, "a 1\na_total 1 1.5\n")).await).await.expect("one good line");
    assert_eq!(text.series, 1);
    assert_eq!(degraded(&text.report).len(), 1);
}

#[tokio::test]
async fn other_answers_than_metrics_are_told_apart() {
    let html = format!("<html>{}</html>", "x".repeat(1187));
    for (content_type, body, expected) in [
        (
            "text/html",
            html.as_str(),
            "answered HTML, not metrics (text/html, 1.2 kB): is that the metrics port?",
        ),
        (
            TEXT,
            "  <!DOCTYPE html>\n",
            "answered HTML, not metrics (text/plain; version=0.0.4, 18 B)",
        ),
        ("application/json", "{}", "answered JSON, not metrics (application/json, 2 B)"),
        (TEXT, "{\"error\": \"x\"}", "answered JSON, not metrics"),
        (TEXT, "", "answered with an empty body"),
        (TEXT, " \n\n", "answered with an empty body"),
        (
            TEXT,
            "hello there\n",
            "no line of the answer is a metric (line 1: `there` is not a value",
        ),
        (TEXT, "weir_originals_to", "no line of the answer is a metric (line 1: no value)"),
        (TEXT, "weir_originals_total 12", "no line of the answer is a metric (line 1: ends in the"),
    ] {
        let error = error(ok(content_type, body)).await;
        assert!(error.contains(expected), "{body:?}: {error}");
    }
}

#[tokio::test]
async fn half_a_line_costs_that_line() {
    let half = ok(TEXT, "a 1\nb{x=\"1\"} 12");
    let scrape = scrape(serve(half).await).await.expect("one whole line");
    assert_eq!(scrape.series, 1);
    assert!(degraded(&scrape.report)[0].1.contains("may be cut"), "{:?}", degraded(&scrape.report));
}

#[tokio::test]
async fn bad_statuses_are_told_with_a_hint() {
    for (status, body, expected) in [
        ("401 Unauthorized", "\"no key\"", "answered HTTP 401 (\"no key\"): does it need a key?"),
        ("404 Not Found", "", "answered HTTP 404: is the path right?"),
        ("503 Service Unavailable", "busy\n\u{1b}[31m", "answered HTTP 503 (busy [31m)"),
        ("204 No Content", "", "answered HTTP 204"),
    ] {
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        let error = error(answer.into_bytes()).await;
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_cut_answer_and_a_broken_one() {
    let cut =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {TEXT}\r\ncontent-length: 900\r\n\r\na 1\n");
    assert!(error(cut.into_bytes()).await.contains("was cut after"), "cut");
    assert!(error(b"\x16\x03\x01 this is TLS".to_vec()).await.contains("cannot scrape"), "no HTTP");
    assert!(error(Vec::new()).await.contains("cannot scrape"), "closed at once");
}

#[tokio::test]
async fn more_than_the_limit_is_refused_without_keeping_it() {
    let body = "a 1\n".repeat(51 * MEBIBYTE / 4);
    let error = error(ok(TEXT, &body)).await;
    assert!(error.contains("over 52.4 MB, the limit"), "{error}");
}

/// A whole answer with a body that is compressed already.
fn encoded(encoding: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {TEXT}\r\ncontent-encoding: {encoding}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_bomb_is_counted_after_decompression() {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).expect("memory");
    for _ in 0..51 {
        let blank = vec![b'\n'; MEBIBYTE];
        gzip.write_all(&blank).and_then(|()| zstd.write_all(&blank)).expect("memory");
    }
    for (encoding, bomb) in [("gzip", gzip.finish()), ("zstd", zstd.finish())] {
        let bomb = bomb.expect("memory");
        assert!(bomb.len() < MEBIBYTE, "{}", bomb.len());
        let error = error(encoded(encoding, &bomb)).await;
        assert!(error.contains("the limit for one scrape"), "{error}");
    }
}

#[tokio::test]
async fn a_zstd_frame_that_wants_a_huge_window_is_refused() {
    // A frame header that asks for 2 GiB: magic, no content size, window exponent 21, then a raw block.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x21, 0x00, 0x00, b'a', b' ', b'1', b'\n'];
    let error = error(encoded("zstd", &frame)).await;
    assert!(error.contains("was cut after"), "{error}");
}

#[tokio::test]
async fn gzip_is_read() {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"a 1\n").expect("memory");
    let answer = encoded("gzip", &encoder.finish().expect("memory"));
    assert_eq!(scrape(serve(answer).await).await.expect("metrics").series, 1);
}

#[tokio::test]
async fn redirects_end() {
    let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{port}/metrics/\r\n\
                  content-length: 0\r\n\r\n";
    let error = error(answer.as_bytes().to_vec()).await;
    assert!(error.contains("more than 3 redirects"), "{error}");
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    let answer = "HTTP/1.1 302 Found\r\nlocation: http://localhost:{port}/metrics\r\n\
                  content-length: 0\r\n\r\n";
    let error = error(answer.as_bytes().to_vec()).await;
    assert!(error.contains("to `localhost`, which is not followed"), "{error}");
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let error = scrape(format!("http://{address}/metrics")).await.expect_err("closed").to_string();
    assert!(error.starts_with("gateway: nothing answers at http://127.0.0.1:"), "{error}");
    assert!(error.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_peer_that_hangs_is_cut_off_wherever_it_hangs() {
    // The whole limit is waited for here, on a real clock: the socket is real.
    let limit = Duration::from_millis(150);
    let half = format!("HTTP/1.1 200 OK\r\ncontent-type: {TEXT}\r\ncontent-length: 9\r\n\r\na 1\n");
    for said in ["", "HTTP/1.1 200 OK\r\n", half.as_str()] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let said = said.to_owned();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a scrape");
            read_head(&mut stream).await;
            stream.write_all(said.as_bytes()).await.expect("open");
            std::future::pending::<()>().await;
            drop(stream);
        });
        let target = Target { timeout: limit, ..target(format!("http://{address}/metrics")) };
        let begun = Instant::now();
        let error = Scraper::new().expect("a client").fetch(&target).await.expect_err("hangs");
        assert_eq!(error.to_string(), "gateway: no whole answer within 150 ms");
        assert!(begun.elapsed() < Duration::from_secs(5), "cut off soon");
    }
}

#[tokio::test]
async fn addresses_that_are_none() {
    for url in ["", "metrics", "http://", "ftp://127.0.0.1/metrics", "http://127.0.0.1:99999/"] {
        let error = scrape(url.to_owned()).await.expect_err("no address").to_string();
        assert!(error.starts_with("gateway: "), "{url}: {error}");
    }
}
