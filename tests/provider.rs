//! The simulated provider over real sockets: what an SDK, a gate and a scraper get from it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir::dialect::{Answer, Class, Meter, Provider, classify, usage_from_tail};
use weir::drill::{provider_http, scenario};
use weir::signal::Tokens;

const QUICK: &str = "latency = { base_ms = 0, spread_ms = 0, per_open_call_ms = 0 }\n";
const LAUNCH: &str = "requests = { per_minute = 6000, start = 3000 }\n\
                      tokens = { per_minute = 1_200_000, start = 36_000 }\n";

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("visible text"))
    }

    fn class(&self) -> weir::dialect::Classified {
        let status = self.status.as_u16();
        let answer = Answer { status, headers: &self.headers, body: &self.body };
        classify(&answer, Provider::GENERIC, None)
    }
}

struct Server {
    address: SocketAddr,
    client: Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>,
}

impl Server {
    async fn start(config: &str) -> Self {
        let config = scenario::parse_provider("provider.toml", config).expect("it is right");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(provider_http::serve(listener, config, 1, std::future::pending()));
        Self { address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request =
            Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_owned()));
        let response = self.client.request(request.body(body).expect("a request")).await;
        let (parts, body) = response.expect("an answer").into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    async fn embed(&self, input: &str) -> Reply {
        let body = json!({ "model": "m", "input": input }).to_string();
        self.send(Method::POST, "/v1/embeddings", &[], &body).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }
}

#[tokio::test]
async fn embeddings_come_as_floats_and_as_base64() {
    let server = Server::start(&format!("{QUICK}{LAUNCH}")).await;
    let floats = server.embed("one two three").await;
    assert_eq!(floats.status, StatusCode::OK);
    assert_eq!(floats.json()["data"][0]["embedding"].as_array().map(Vec::len), Some(8));
    assert_eq!(floats.json()["usage"], json!({ "prompt_tokens": 3, "total_tokens": 3 }));
    assert_eq!(usage_from_tail(&floats.body).expect("usage").total_tokens, Tokens(3));
    assert_eq!(floats.header("x-ratelimit-limit-tokens"), Some("1200000"));
    assert!(floats.header("x-request-id").is_some());
    let body = r#"{"model":"m","input":["one two three","x"],"encoding_format":"base64"}"#;
    let base64 = server.send(Method::POST, "/v1/embeddings", &[], body).await.json();
    let text = base64["data"][1]["embedding"].as_str().expect("base64 is text");
    assert_eq!(text.len(), 44, "8 floats of 4 bytes");
}

#[tokio::test]
async fn a_full_meter_is_told_in_headers_and_body() {
    let config = "requests = { per_minute = 600 }\ntokens = { per_minute = 60, start = 2 }\n";
    let server = Server::start(&format!("{QUICK}{config}")).await;
    let refused = server.embed("one two three four five").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let class = refused.class();
    assert_eq!((class.class, class.meter), (Class::TransientRateLimit, Some(Meter::Tokens)));
    assert_eq!(class.code.as_deref(), Some("rate_limit_exceeded"));
    let hint = class.hint.expect("a hint");
    assert!(hint <= Duration::from_secs(3) && hint > Duration::from_secs(2), "{hint:?}");
    assert_eq!(refused.header("retry-after"), Some("3"));
    let too_large = server.embed(&"w ".repeat(61)).await.class();
    assert_eq!(too_large.class, Class::BadRequest, "{}", too_large.why);
    let ledger = server.get("/ledger").await.json();
    assert_eq!(ledger["originals"], 2);
    assert_eq!(ledger["provider_429"], 2);
    assert_eq!(ledger["tokens_sent"], 0, "refusals charge nothing");
}

#[tokio::test]
async fn the_script_comes_first() {
    let server = Server::start(&format!("{QUICK}script = 'server_error'\n{LAUNCH}")).await;
    assert_eq!(server.embed("a").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    let set = server.send(Method::POST, "/script", &[], "rate_limit:2,ok").await;
    assert_eq!(set.status, StatusCode::NO_CONTENT);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(server.embed("a").await.status.as_u16());
    }
    assert_eq!(statuses, [429, 429, 200, 200]);
    let bad = server.send(Method::POST, "/script", &[], "explode").await;
    assert_eq!(bad.status, StatusCode::UNPROCESSABLE_ENTITY);
    let words = String::from_utf8_lossy(&bad.body).into_owned();
    assert!(words.contains("`explode`") && words.contains("rate_limit"), "{words}");
}

#[tokio::test]
async fn an_exhausted_account_is_permanent_until_the_step_that_ends_it() {
    let steps = "steps = [{ at_s = 0, hard_quota = true }]\n";
    let server = Server::start(&format!("{QUICK}{steps}{LAUNCH}")).await;
    let refused = server.embed("a").await;
    assert_eq!(refused.class().class, Class::PermanentQuota);
    assert_eq!(refused.header("retry-after"), None);
}

#[tokio::test]
async fn chat_streams_and_ends_with_usage() {
    let server = Server::start(&format!("{QUICK}{LAUNCH}")).await;
    let mut body = json!({
        "model": "m", "messages": [{ "role": "user", "content": "hello there" }],
        "stream": true, "stream_options": { "include_usage": true },
    });
    let path = "/v1/chat/completions";
    let stream = server.send(Method::POST, path, &[], &body.to_string()).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert!(stream.body.ends_with(b"data: [DONE]\n\n"));
    assert_eq!(usage_from_tail(&stream.body).expect("usage").total_tokens, Tokens(10));
    body["stream"] = json!(false);
    let whole = server.send(Method::POST, path, &[], &body.to_string()).await.json();
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(whole["usage"]["total_tokens"], 10);
}

#[tokio::test]
async fn originals_are_told_apart_by_key_or_by_who_asked_what() {
    let server = Server::start(&format!("{QUICK}{LAUNCH}")).await;
    let same_key = [("idempotency-key", "k")];
    for (headers, input) in [
        (&same_key[..], "a"),
        (&same_key[..], "b"),
        (&[][..], "a"),
        (&[][..], "a"),
        (&[("authorization", "Bearer other")][..], "a"),
    ] {
        let body = json!({ "model": "m", "input": input }).to_string();
        server.send(Method::POST, "/v1/embeddings", headers, &body).await;
    }
    let ledger = server.get("/ledger").await.json();
    assert_eq!((&ledger["originals"], &ledger["attempts"]), (&json!(3), &json!(5)));
}

#[tokio::test]
async fn what_is_not_understood_is_counted_and_costs_nothing() {
    let server = Server::start(&format!("{QUICK}{LAUNCH}")).await;
    let bad = server.send(Method::POST, "/v1/embeddings", &[], "{").await;
    assert_eq!((bad.status, bad.class().class), (StatusCode::BAD_REQUEST, Class::BadRequest));
    assert_eq!(server.get("/v1/unheard-of").await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.get("/v1/models").await.json()["object"], "list");
    let ledger = server.get("/ledger").await.json();
    assert_eq!((&ledger["attempts"], &ledger["tokens_sent"]), (&json!(3), &json!(0)));
}

#[tokio::test]
async fn metrics_agree_with_the_ledger_and_start_begins_anew() {
    let server = Server::start(&format!("{QUICK}{LAUNCH}")).await;
    for _ in 0..3 {
        server.embed("a b").await;
    }
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4"));
    let text = String::from_utf8(metrics.body.to_vec()).expect("text");
    for line in [
        "simprov_attempts_total{path=\"/v1/embeddings\"} 3",
        "simprov_originals_total 1",
        "simprov_responses_total{status=\"200\",code=\"none\",type=\"none\"} 3",
        "simprov_tokens_total 6",
        "simprov_meter_limit{meter=\"tokens\"} 1200000",
        "simprov_in_flight 0",
        "simprov_latency_seconds_count 3",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} in {text}");
    }
    server.send(Method::POST, "/start", &[], "").await;
    assert_eq!(server.get("/ledger").await.json()["attempts"], 0);
}

#[tokio::test]
async fn a_caller_that_goes_away_occupies_nothing() {
    let slow = "latency = { base_ms = 600000 }\n";
    let server = Server::start(&format!("{slow}{LAUNCH}")).await;
    let in_flight = async || server.get("/ledger").await.json()["in_flight"].clone();
    {
        let call = server.embed("a");
        let mut call = std::pin::pin!(call);
        let arrived = async {
            while in_flight().await != json!(1) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut call => panic!("the answer takes ten minutes"),
            () = arrived => {}
        }
    }
    let gone = async {
        while in_flight().await != json!(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the call is freed");
}

#[tokio::test]
async fn refusals_are_read_as_what_they_are_in_every_form() {
    let empty = "requests = { per_minute = 6000 }\n\
                 tokens = { per_minute = 6000, start = 0 }\n";
    for (more, status, class, meter, hint) in [
        ("hint = 'exact'", 429, Class::TransientRateLimit, Some(Meter::Tokens), true),
        ("hint = 'none'", 429, Class::TransientRateLimit, Some(Meter::Tokens), false),
        ("hint = 'malformed'", 429, Class::TransientRateLimit, Some(Meter::Tokens), false),
        ("hint = 'absurd'", 429, Class::TransientRateLimit, Some(Meter::Tokens), true),
        ("hint = 'too-early'", 429, Class::TransientRateLimit, Some(Meter::Tokens), true),
        ("disguise = '200'", 200, Class::TransientRateLimit, Some(Meter::Tokens), false),
        ("disguise = '403'", 403, Class::AuthOrPermission, None, false),
        ("disguise = '500'", 500, Class::TemporaryOverload, None, false),
        ("slow_down_ratio = 1", 429, Class::TransientRateLimit, None, true),
        ("hard_quota = true", 429, Class::PermanentQuota, Some(Meter::Spend), false),
        ("error_ratio = 1", 503, Class::TemporaryOverload, None, false),
        ("error_ratio = 1, error_hint_s = 2", 503, Class::TemporaryOverload, None, true),
        ("error_ratio = 1, error_kind = 'failed'", 500, Class::TemporaryOverload, None, false),
        ("max_request_tokens = 1", 400, Class::BadRequest, None, false),
    ] {
        let steps = format!("steps = [{{ at_s = 0, {more} }}]\n");
        let server = Server::start(&format!("{steps}{QUICK}{empty}")).await;
        let reply = server.embed("two words").await;
        let seen = reply.class();
        let of = format!("{more}: {}", seen.why);
        assert_eq!((reply.status.as_u16(), seen.class, seen.meter), (status, class, meter), "{of}");
        assert_eq!(seen.hint.is_some(), hint, "{of}: {:?}", reply.headers);
        assert_eq!(seen.absurd, more.contains("absurd"), "{of}");
        let ledger = server.get("/ledger").await.json();
        assert_eq!(ledger["tokens_sent"], 0, "{of}: refusals charge nothing");
    }
}

#[tokio::test]
async fn a_batch_counts_by_its_inputs_and_a_day_by_its_hours() {
    let by_item = "counts_items = true\n";
    let server = Server::start(&format!("{by_item}{QUICK}{LAUNCH}")).await;
    let batch = json!({ "model": "m", "input": ["a", "b", "c"] }).to_string();
    server.send(Method::POST, "/v1/embeddings", &[], &batch).await;
    let text = server.get("/metrics").await.body;
    let text = String::from_utf8(text.to_vec()).expect("text");
    for line in ["simprov_charged_requests_total 3", "simprov_items_total 3"] {
        assert!(text.lines().any(|written| written == line), "{line} in {text}");
    }
    let day = "day = { requests = 10, used_ratio = 1, resets_in_s = 7200 }\n";
    let server = Server::start(&format!("{day}{QUICK}{LAUNCH}")).await;
    let seen = server.embed("a").await.class();
    assert_eq!(seen.meter, Some(Meter::RequestsPerDay), "{}", seen.why);
    assert!(seen.hint.is_some_and(|hint| hint > Duration::from_hours(1)), "{:?}", seen.hint);
}

#[tokio::test]
async fn a_caller_that_hangs_up_may_be_finished_all_the_same() {
    let slow = "completes_after_hangup = true\n\
                latency = { base_ms = 300, spread_ms = 0, per_open_call_ms = 0 }\n";
    let server = Server::start(&format!("{slow}{LAUNCH}")).await;
    let left = tokio::time::timeout(Duration::from_millis(100), server.embed("a")).await;
    assert!(left.is_err(), "the answer takes longer");
    let page = async || {
        let body = server.get("/metrics").await.body;
        String::from_utf8(body.to_vec()).expect("text")
    };
    let has = |text: &str, line: &str| text.lines().any(|written| written == line);
    let text = page().await;
    assert!(has(&text, "simprov_completed_total 0"), "{text}");
    assert!(has(&text, "simprov_in_flight 1"), "it goes on: {text}");
    let done = async {
        while !has(&page().await, "simprov_completed_total 1") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), done).await.expect("it is finished");
}
