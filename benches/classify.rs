//! What it takes to understand an answer: the answers of providers that the tests hold, and bodies of
//! 64 kB made to take long, each as a known provider's and as a stranger's. The bound is 1 ms, of this
//! thread's own time: what else the machine does is no part of an answer.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use weir::dialect::{Answer, Provider, classify};

const OBSERVED: &str = include_str!("../tests/data/provider_responses.jsonl");
const BOUND: Duration = Duration::from_millis(1);
const BODY_LEN: usize = 64 * 1024;
const RUNS: usize = 200;

/// One answer.
struct Sample {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    provider: Provider,
}

impl Sample {
    /// The times of so many runs, shortest first.
    fn times(&self) -> Vec<Duration> {
        let answer = Answer { status: self.status, headers: &self.headers, body: &self.body };
        let time = |_| {
            let begun = own_time();
            black_box(classify(black_box(&answer), self.provider, None));
            own_time().saturating_sub(begun)
        };
        let mut times: Vec<Duration> = (0..RUNS).map(time).collect();
        times.sort_unstable();
        times
    }
}

/// What this thread has worked so far.
fn own_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("it only grows")
}

/// Every answer of the tests' table.
fn observed() -> Vec<Sample> {
    let lines = OBSERVED.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let sample = |line: Value| {
        let mut headers = HeaderMap::new();
        for (name, value) in line["headers"].as_object().into_iter().flatten() {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = value.as_str().map(HeaderValue::from_str);
            if let (Ok(name), Some(Ok(value))) = (name, value) {
                headers.append(name, value);
            }
        }
        let body = match &line["body"] {
            Value::Null => Vec::new(),
            Value::String(text) => text.clone().into_bytes(),
            other => other.to_string().into_bytes(),
        };
        let status = line["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let provider = line["provider"].as_str().and_then(Provider::named);
        Some(Sample { status: status?, headers, body, provider: provider.unwrap_or_default() })
    };
    lines.filter_map(sample).collect()
}

/// `part` again and again between `begin` and `end`, 64 kB in all.
fn filled(begin: &str, part: impl Fn(usize) -> String, end: &str) -> String {
    let mut body = begin.to_owned();
    for number in 0.. {
        let part = part(number);
        if body.len() + part.len() + end.len() > BODY_LEN {
            break;
        }
        body += &part;
    }
    body + end
}

/// Bodies of 64 kB that give a reader as much to do as they can.
fn hostile() -> Vec<(&'static str, String)> {
    let words = |number: usize| {
        ["requests per minute ", "limit 10 tokens per day ", "a quota exceeded "][number % 3]
            .to_owned()
    };
    let messages = |number: usize| {
        let text: String = (0..200).map(words).collect();
        format!(
            "{}{{\"message\":\"{text}\",\"type\":\"t{number}\"}}",
            if number > 0 { "," } else { "" }
        )
    };
    let mut in_strings = "\"x\"".to_owned();
    while in_strings.len() < BODY_LEN / 2 {
        in_strings = format!("{{\"message\":{}}}", Value::String(in_strings));
    }
    let mut headers = "{\"error\":{\"headers\":{".to_owned();
    while headers.len() < BODY_LEN - 100 {
        let _ = write!(headers, "\"x-ratelimit-reset-tokens\":\"6m0s\",\"retry-after\":\"9\",");
    }
    headers += "\"a\":1}}}";
    vec![
        ("deep objects", filled("", |_| "{\"error\":".to_owned(), "1")),
        ("deep lists", filled("", |_| "[".to_owned(), "")),
        ("JSON in JSON", in_strings),
        ("one key repeated", filled("{", |_| "\"code\":\"rate_limit\",".to_owned(), "\"x\":1}")),
        ("messages", filled("{\"errors\":[", messages, "]}")),
        ("long prose", filled("", words, "")),
        ("prose in a field", filled("{\"error\":{\"message\":\"", words, "\"}}")),
        ("capitals", filled("{\"error\":{\"message\":\"", |_| "\u{130}A/".to_owned(), "\"}}")),
        ("header names", headers),
        ("numbers", filled("{\"error\":[", |number| format!("{number}e-{},", number % 300), "1]}")),
        ("fields", filled("{", |number| format!("\"f{number}\":{{\"code\":1}},"), "\"x\":1}")),
        ("events", filled("", |_| "data: {\"error\":{\"code\":\"x\"}}\n".to_owned(), "")),
    ]
}

fn main() {
    println!("{:<22}{:>12}{:>12}{:>12}", "answer", "median us", "worst us", "of 1 ms");
    let print = |name: &str, times: &[Duration]| {
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        let share = worst.as_secs_f64() / BOUND.as_secs_f64() * 100.0;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        println!("{name:<22}{:>12.1}{:>12.1}{share:>11.1}%", micros(median), micros(worst));
    };
    // The time of one answer is the median of its runs.
    let observed = observed();
    let mut times: Vec<Duration> = observed.iter().map(|sample| sample.times()[RUNS / 2]).collect();
    times.sort_unstable();
    print(&format!("{} of providers", observed.len()), &times);
    let openai = Provider::named("openai").expect("it is known");
    for (name, body) in hostile() {
        for (provider, mark) in [(openai, ""), (Provider::GENERIC, " *")] {
            let (headers, body) = (HeaderMap::new(), body.clone().into_bytes());
            let sample = Sample { status: 429, headers, body, provider };
            print(&format!("{name}{mark}"), &sample.times());
        }
    }
    println!("* as a stranger's");
}
