//! Servers in trouble. The real one can only be made to die; the others are made by hand: each answers
//! every request with the same bytes, or never.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use weir::ingest::Access;
use weir::ingest::prometheus::{PrometheusConfig, PrometheusSource};

use super::support::{Prometheus, shipped, source, told};

const LIMIT: Duration = Duration::from_millis(400);

/// Reads a request and then does as it is told; the first line of each is sent on.
fn server(
    answer: impl Fn(&str, TcpStream) + Send + Sync + 'static,
) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    let (lines, seen): (Sender<String>, _) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 8 * 1024];
            let mut text = String::new();
            // A form may come in several pieces; what is not read would reset the connection.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                text.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
            let line = text.lines().next().unwrap_or_default().to_owned();
            let _ = lines.send(line.clone());
            answer(&line, stream);
        }
    });
    (address, seen)
}

fn reply(mut stream: TcpStream, status: &str, body: &str) {
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
}

fn config_at(address: SocketAddr) -> PrometheusConfig {
    PrometheusConfig {
        name: "gateway".to_owned(),
        url: format!("http://{address}"),
        select: "job=\"envoy\"".parse().expect("matchers"),
        adapter: shipped("envoy"),
        access: Access::default(),
        timeout: LIMIT,
        window: None,
    }
}

fn envoy_at(address: SocketAddr) -> PrometheusSource {
    PrometheusSource::new(config_at(address)).expect("an address")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_is_named_with_a_remedy() {
    const EXECUTION: &str = r#"{"status":"error","errorType":"execution","error":"many-to-many"}"#;
    for (status, body, expected) in [
        (
            "401 Unauthorized",
            "",
            "gateway: Prometheus: answers 401: check the key, user or tenant header",
        ),
        ("403 Forbidden", "no", "gateway: Prometheus: answers 403: no: check the key"),
        (
            "404 Not Found",
            "404 page not found",
            "gateway: Prometheus: has no query API at http://127.0.0.1",
        ),
        (
            "400 Bad Request",
            r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
            "gateway: Prometheus: refuses the query (parse error): check the adapter's expressions",
        ),
        (
            "422 Unprocessable Entity",
            EXECUTION,
            "gateway: Prometheus: cannot execute the query (many-to-many)",
        ),
        (
            "422 Unprocessable Entity",
            r#"{"status":"error","errorType":"422","error":"cannot sum"}"#,
            "gateway: Prometheus: cannot execute the query (cannot sum)",
        ),
        (
            "503 Service Unavailable",
            r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#,
            "gateway: Prometheus: cannot answer now (503: query timed out)",
        ),
        (
            "503 Service Unavailable",
            "Service Unavailable",
            "gateway: Prometheus: cannot answer now (503: Serv",
        ),
        (
            "429 Too Many Requests",
            "slow down",
            "gateway: Prometheus: asks for fewer queries (429: slow down)",
        ),
        (
            "200 OK",
            "<html>log in</html>",
            "gateway: Prometheus: answers something that is not its API's JSON",
        ),
        (
            "200 OK",
            r#"{"status":"success"}"#,
            "gateway: Prometheus: answers something that is not its API's JS",
        ),
        (
            "200 OK",
            r#"{"status":"success","data":{"resultType":"streams","result":[]}}"#,
            "gateway: Prometheus: answers something that is not its API's JSON (unknown variant `streams`",
        ),
    ] {
        let (address, _) = server(move |_, stream| reply(stream, status, body));
        let error = envoy_at(address).poll().await.expect_err(status).to_string();
        assert!(error.starts_with(expected), "{status}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_costs_the_limit_and_no_more() {
    let (address, seen) = server(|_, stream| {
        std::thread::sleep(LIMIT * 4);
        drop(stream);
    });
    let begun = Instant::now();
    let error = envoy_at(address).poll().await.expect_err("no answer").to_string();
    assert!(error.starts_with("gateway: Prometheus: no whole answer within 400 ms"), "{error}");
    assert!(begun.elapsed() < LIMIT * 3, "{:?}", begun.elapsed());
    assert_eq!(seen.try_iter().count(), 1, "nothing is retried");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_refuses_a_form_gets_the_query_in_the_address() {
    const EMPTY: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let (address, seen) = server(|line, stream| {
        let is_form = line.starts_with("POST");
        let (status, body) =
            if is_form { ("405 Method Not Allowed", "") } else { ("200 OK", EMPTY) };
        reply(stream, status, body);
    });
    let config = PrometheusConfig { timeout: Duration::from_secs(5), ..config_at(address) };
    let answers = PrometheusSource::new(config).expect("an address").poll().await;
    let snapshot = told(answers.unwrap_or_else(|error| panic!("{error}")), "envoy");
    let why = &snapshot.absent["attempts_rps"];
    assert!(why.contains("Prometheus has none of the metrics of adapter envoy"), "{why}");
    let lines: Vec<String> = seen.try_iter().collect();
    assert!(lines.iter().any(|line| line.starts_with("GET /api/v1/query?query=")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prometheus_that_dies_is_named() {
    let mut prometheus = Prometheus::start(&[]).await;
    let source = source(&prometheus.url, "envoy", "envoy");
    source.poll().await.unwrap_or_else(|error| panic!("{error}"));
    prometheus.kill();
    // A connection that was kept may break first, which says so; a new one is refused.
    let first = source.poll().await.expect_err("it is dead").to_string();
    assert!(first.starts_with("gateway: Prometheus: "), "{first}");
    let error = source.poll().await.expect_err("it is dead").to_string();
    assert!(error.starts_with("gateway: Prometheus: nothing answers"), "{error}");
}
