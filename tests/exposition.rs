//! The exposition parser against two oracles: a table of what Prometheus' own parser makes of awkward
//! input, and the `prometheus-parse` crate on the subset of the format where that crate is right.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::Value;
use weir::ingest::exposition::{Format, Sample, parse};

/// Standard base64, which the fixture uses because some of its inputs are no UTF-8.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = 0_u32;
    let mut width = 0;
    let mut bytes = Vec::new();
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = ALPHABET.iter().position(|letter| *letter == byte).expect("base64");
        bits = (bits << 6) | u32::try_from(digit).expect("below 64");
        width += 6;
        if width >= 8 {
            width -= 8;
            bytes.push(u8::try_from((bits >> width) & 0xff).expect("masked"));
        }
    }
    bytes
}

fn shown(value: f64) -> Value {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else {
        value.into()
    }
}

fn as_fixture(sample: &Sample<'_>) -> Value {
    let mut labels = serde_json::Map::new();
    labels.insert("__name__".into(), sample.name.as_ref().into());
    for (name, value) in &sample.labels {
        labels.insert(name.to_string(), sample.stored_value(name, value).as_ref().into());
    }
    serde_json::json!({ "labels": labels, "value": shown(sample.value), "ts_ms": sample.timestamp_ms })
}

#[test]
fn agrees_with_prometheus_on_every_case() {
    let fixture: Value =
        serde_json::from_str(include_str!("data/exposition.json")).expect("fixture is JSON");
    let cases = fixture["cases"].as_array().expect("cases");
    assert!(cases.len() >= 54, "the fixture is whole");
    for case in cases {
        let name = &case["name"];
        let body = base64(case["input_b64"].as_str().expect("input"));
        let format = if case["format"] == "om" { Format::OpenMetrics } else { Format::Text };
        let mut samples = Vec::new();
        let report = parse(&body, format, |sample| samples.push((sample.line, as_fixture(sample))))
            .expect("small");
        let accepted = case["prometheus_error"].is_null();
        assert_eq!(report.prometheus_accepts(), accepted, "{name}: {:?}", report.problems);
        // Prometheus stops at the first bad line; weir goes on, so compare what stands before it.
        let first_bad = report.problems.first().map_or(usize::MAX, |problem| problem.line);
        let before: Vec<_> =
            samples.into_iter().filter(|(line, _)| *line < first_bad).map(|(_, s)| s).collect();
        assert_eq!(Value::from(before), case["samples"], "{name}: {:?}", report.problems);
    }
}

/// One flat sample, comparable between the two parsers.
type Flat = (String, Vec<(String, String)>, String, Option<i64>);

fn flat(name: &str, mut labels: Vec<(String, String)>, value: f64, ts: Option<i64>) -> Flat {
    labels.sort();
    (name.to_owned(), labels, shown(value).to_string(), ts)
}

fn with_weir(body: &str) -> Vec<Flat> {
    let mut samples = Vec::new();
    let report = parse(body.as_bytes(), Format::Text, |sample| {
        let labels = sample.labels.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        samples.push(flat(&sample.name, labels, sample.value, sample.timestamp_ms));
    })
    .expect("small");
    assert!(report.prometheus_accepts(), "{body}: {:?}", report.problems);
    samples.sort();
    samples
}

fn with_oracle(body: &str) -> Vec<Flat> {
    use prometheus_parse::Value as Parsed;
    let now = chrono::DateTime::from_timestamp_millis(-1).expect("valid");
    let lines = body.lines().map(|line| Ok(line.to_owned()));
    let scrape = prometheus_parse::Scrape::parse_at(lines, now).expect("never an error");
    let mut samples = Vec::new();
    for sample in scrape.samples {
        let labels: Vec<_> = sample.labels.iter().map(|(n, v)| (n.clone(), v.clone())).collect();
        let ts = (sample.timestamp != now).then(|| sample.timestamp.timestamp_millis());
        let with = |extra: &str, bound: f64, count: f64, name: &str| {
            let mut labels = labels.clone();
            labels.push((extra.to_owned(), bound.to_string()));
            flat(name, labels, count, ts)
        };
        match &sample.value {
            Parsed::Counter(value) | Parsed::Gauge(value) | Parsed::Untyped(value) => {
                samples.push(flat(&sample.metric, labels.clone(), *value, ts));
            }
            Parsed::Histogram(buckets) => samples.extend(buckets.iter().map(|bucket| {
                with("le", bucket.less_than, bucket.count, &format!("{}_bucket", sample.metric))
            })),
            Parsed::Summary(quantiles) => samples.extend(
                quantiles.iter().map(|q| with("quantile", q.quantile, q.count, &sample.metric)),
            ),
        }
    }
    samples.sort();
    samples
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i32>().prop_map(|number| number.to_string()),
        (-1e12..1e12_f64).prop_map(|number| number.to_string()),
        (-1e300..1e300_f64).prop_map(|number| format!("{number:e}")),
        Just("NaN".to_owned()),
        Just("+Inf".to_owned()),
        Just("-Inf".to_owned()),
    ]
}

fn labels() -> impl Strategy<Value = Vec<(String, String)>> {
    proptest::collection::btree_map("[a-d][a-z0-9_]{0,5}", "[A-Za-z0-9_/.: é-]{0,8}", 0..4)
        .prop_map(|map| map.into_iter().filter(|(name, _)| name != "le").collect())
}

fn braces(labels: &[(String, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let parts: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{{{}}}", parts.join(","))
}

/// A family of the subset on which `prometheus-parse` is right: ASCII names without `:`, label values
/// without `" \ , = }`, single blanks, decimal values, whole timestamps.
fn family() -> impl Strategy<Value = String> {
    let simple = (
        prop_oneof![Just("counter"), Just("gauge"), Just("untyped")],
        proptest::collection::btree_map(
            labels(),
            (value(), proptest::option::of(0..1_i64 << 40)),
            1..4,
        ),
    )
        .prop_map(|(kind, samples)| {
            let mut text = format!("# HELP NAME some help\n# TYPE NAME {kind}\n");
            for (labels, (value, ts)) in samples {
                let ts = ts.map_or_else(String::new, |ts| format!(" {ts}"));
                writeln!(text, "NAME{} {value}{ts}", braces(&labels)).expect("a string");
            }
            text
        });
    let histogram =
        (labels(), proptest::collection::vec(0..1000_u32, 1..5)).prop_map(|(labels, counts)| {
            let mut text = "# TYPE NAME histogram\n".to_owned();
            for (index, count) in counts.iter().enumerate() {
                let mut labels = labels.clone();
                labels.push(("le".to_owned(), (index + 1).to_string()));
                writeln!(text, "NAME_bucket{} {count}", braces(&labels)).expect("a string");
            }
            text + &format!("NAME_sum{0} 1.5\nNAME_count{0} 3\n", braces(&labels))
        });
    let summary = (labels(), value()).prop_map(|(mut labels, value)| {
        labels.push(("quantile".to_owned(), "0.5".to_owned()));
        format!("# TYPE NAME summary\nNAME{} {value}\n", braces(&labels))
    });
    prop_oneof![simple, histogram, summary]
}

proptest! {
    #[test]
    fn equals_prometheus_parse_on_its_safe_subset(families in proptest::collection::vec(family(), 1..5)) {
        let body: String = families
            .iter()
            .enumerate()
            .map(|(index, family)| family.replace("NAME", &format!("m{index}")))
            .collect();
        prop_assert_eq!(with_weir(&body), with_oracle(&body), "{}", body);
    }
}
