//! `weir rate` against two oracles: a table of what Prometheus 3 answers, and `promtool`, the checker
//! that Prometheus ships, where its version 2 has the same rules.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const VECTORS: &str = include_str!("data/rate_vectors.json");

/// Largest relative difference that counts as equal.
const TOLERANCE: f64 = 1e-9;

/// The vectors; the file writes NaN as a bare word, which is no JSON.
fn vectors() -> Vec<Value> {
    let strict = VECTORS.replace(" NaN\n", " \"NaN\"\n").replace(" NaN,\n", " \"NaN\",\n");
    let file: Value = serde_json::from_str(&strict).expect("the fixture is JSON but for NaN");
    file["vectors"].as_array().expect("a list").clone()
}

fn weir_rate(input: &str) -> (bool, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["rate", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("weir reads it");
    let output = child.wait_with_output().expect("weir ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn as_number(value: &Value) -> f64 {
    let word = value.as_str().and_then(|word| word.parse().ok());
    word.or_else(|| value.as_f64()).unwrap_or_else(|| panic!("{value} is no number"))
}

fn is_close(got: f64, expected: f64) -> bool {
    got.total_cmp(&expected).is_eq()
        || (got.is_nan() && expected.is_nan())
        || (got - expected).abs() <= TOLERANCE * expected.abs()
}

/// Whether two lists of labels and value agree, in any order.
fn agree(got: &Value, expected: &Value) -> bool {
    let pairs = |list: &Value| -> Vec<(String, f64)> {
        let pair = |pair: &Value| (pair[0].to_string(), as_number(&pair[1]));
        let mut pairs: Vec<_> = list.as_array().expect("pairs").iter().map(pair).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs
    };
    let (got, expected) = (pairs(got), pairs(expected));
    got.len() == expected.len()
        && got
            .iter()
            .zip(&expected)
            .all(|(got, expected)| got.0 == expected.0 && is_close(got.1, expected.1))
}

#[test]
fn agrees_with_prometheus_3_on_every_vector() {
    let (is_ok, stdout, stderr) = weir_rate(VECTORS);
    assert!(is_ok, "{stderr}");
    let answers: Vec<Value> = serde_json::from_str(&stdout).expect("one JSON document");
    let vectors = vectors();
    assert_eq!((answers.len(), vectors.len()), (49, 49), "one answer per vector");
    for (vector, answer) in vectors.iter().zip(&answers) {
        assert_eq!(answer["id"], vector["id"]);
        let expected = &vector["expect_prom3"];
        assert!(agree(&answer["result"], expected), "{answer}, expected {expected}");
    }
}

#[test]
fn the_answer_has_the_form_of_the_input() {
    let vector = json!({
        "id": "v", "fn": "increase", "range_s": 60, "eval_s": 45.5,
        "series": [{ "labels": { "pod": "a" }, "samples": [[0.5, 0], [15.5, 10], [45.5, 30]] }],
    });
    let answer = "{\"id\":\"v\",\"result\":[[{\"pod\":\"a\"},30.0]]}";
    for (input, expected) in [
        (vector.to_string(), format!("{answer}\n")),
        (format!("{vector}\n{vector}\n"), format!("{answer}\n{answer}\n")),
        (json!([vector, vector]).to_string(), format!("[{answer},{answer}]\n")),
        (json!({ "vectors": [vector] }).to_string(), format!("[{answer}]\n")),
    ] {
        let (is_ok, stdout, stderr) = weir_rate(&input);
        assert!(is_ok, "{stderr}");
        assert_eq!(stdout, expected, "{input}");
    }
}

#[test]
fn what_cannot_be_computed_is_said() {
    for (input, part) in [
        ("{", "not JSON"),
        ("5", "neither a vector nor a list"),
        (r#"{"vectors": 5}"#, "`vectors` is not a list"),
        (r#"{"id": 1, "fn": "rate"}"#, "`rate` needs `range_s`"),
        (r#"{"id": 1, "fn": "deriv", "range_s": 5}"#, "`fn` is `deriv`"),
        (r#"{"id": 1, "fn": "histogram_quantile"}"#, "needs `q`"),
        (r#"{"id": 1, "fn": "rate", "series": [{"samples": [[0, {}]]}]}"#, "expected a number"),
    ] {
        let (is_ok, stdout, stderr) = weir_rate(input);
        assert!(!is_ok && stdout.is_empty(), "{input}: {stdout}");
        assert!(stderr.contains(part), "{input}: {stderr}");
    }
}

/// What weir answers, vector by vector.
fn weir_answers(vectors: &[Value]) -> Vec<Value> {
    let lines: Vec<_> = vectors.iter().map(Value::to_string).collect();
    let (is_ok, stdout, stderr) = weir_rate(&lines.join("\n"));
    assert!(is_ok, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// A vector's query in `PromQL`, over a metric called `m`.
fn promql(vector: &Value) -> String {
    let name = vector["fn"].as_str().expect("a name");
    let (is_quantile, inner) = match name.strip_prefix("histogram_quantile") {
        Some(rest) => (true, rest.strip_prefix("_of_").unwrap_or("instant")),
        None => (false, name),
    };
    let (is_sum, function) = match inner.strip_prefix("sum_") {
        Some(rest) => (true, rest),
        None => (false, inner),
    };
    let mut query = match function {
        "instant" => "m".to_owned(),
        _ => format!("{function}(m[{}s])", vector["range_s"]),
    };
    if is_sum {
        let by = vector["by"].as_array().expect("labels").iter().map(|l| l.as_str().expect("text"));
        let by: Vec<_> = by.chain(is_quantile.then_some("le")).collect();
        query = format!("sum by ({}) ({query})", by.join(", "));
    }
    if is_quantile {
        query = format!("histogram_quantile({}, {query})", as_number(&vector["q"]));
    }
    query
}

/// A vector as a case of `promtool test rules`. It expects nonsense, so that what the tool got is
/// printed whatever it is.
fn promtool_case(vector: &Value) -> Value {
    let series = vector["series"].as_array().expect("series");
    let step = &series[0]["step_s"];
    let input: Vec<_> = series
        .iter()
        .map(|series| {
            assert_eq!(&series["step_s"], step, "one step per vector");
            let labels = series["labels"].as_object().expect("labels").iter();
            let labels: Vec<_> = labels.map(|(name, value)| format!("{name}={value}")).collect();
            let mut values = Vec::new();
            for sample in series["samples"].as_array().expect("samples") {
                let index = as_number(&sample[0]) / as_number(step);
                while as_number(&values.len().into()) < index {
                    values.push("_".to_owned());
                }
                let value = &sample[1];
                values.push(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
            json!({ "series": format!("m{{{}}}", labels.join(",")), "values": values.join(" ") })
        })
        .collect();
    let nonsense = json!({ "labels": "{nonsense=\"yes\"}", "value": 1 });
    json!({
        "interval": format!("{step}s"),
        "input_series": input,
        "promql_expr_test": [{
            "expr": promql(vector),
            "eval_time": format!("{}s", vector["eval_s"]),
            "exp_samples": [nonsense],
        }],
    })
}

/// The pairs in a line such as `got: {pod="a"} 5.0E-01, {pod="b"} NaN`, without the metric's name.
fn promtool_pairs(line: &str) -> Value {
    if line == "nil" {
        return json!([]);
    }
    let pair = |text: &str| {
        let (labels, value) = text.rsplit_once("} ").expect("labels, then a value");
        let labels = labels.trim_start_matches('{').split(", ").filter_map(|label| {
            let (name, value) = label.split_once('=')?;
            (name != "__name__").then(|| (name.to_owned(), Value::from(value.trim_matches('"'))))
        });
        json!([labels.collect::<serde_json::Map<_, _>>(), value])
    };
    line.split(", {").map(pair).collect()
}

#[test]
fn agrees_with_promtool_where_version_2_has_the_same_rules() {
    let vectors: Vec<_> =
        vectors().into_iter().filter(|vector| vector["v2_differs"] == Value::Bool(false)).collect();
    assert_eq!(vectors.len(), 32, "vectors that both versions answer alike");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vectors.yml");
    // Every JSON document is a YAML document.
    let cases: Vec<_> = vectors.iter().map(promtool_case).collect();
    let file = json!({ "rule_files": [], "evaluation_interval": "1s", "tests": cases });
    std::fs::write(&path, file.to_string()).expect("the file is written");
    let output = Command::new("promtool").args(["test", "rules"]).arg(&path).output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "this test asks promtool, which cannot be run: {error}; install the prometheus package"
        )
    });
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let got: Vec<_> = said.lines().filter_map(|line| line.trim().strip_prefix("got: ")).collect();
    assert_eq!(got.len(), vectors.len(), "one answer per vector:\n{said}");
    for ((vector, answer), got) in vectors.iter().zip(weir_answers(&vectors)).zip(got) {
        let promtool = promtool_pairs(got);
        assert!(agree(&answer["result"], &promtool), "{}: {answer}, promtool {got}", vector["id"]);
    }
}
