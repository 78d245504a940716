//! `weir classify` against two tables: answers collected from providers and public reports, and more
//! that were composed from what providers document. Every field of every line is compared; lines
//! whose `why` says that the choice is free are scored apart.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Map, Value};

const OBSERVED: &str = include_str!("data/provider_responses.jsonl");
const COMPOSED: &str = include_str!("data/provider_responses_composed.jsonl");

/// Largest relative difference that counts as equal.
const TOLERANCE: f64 = 1e-9;

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn weir_classify(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["classify", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    child.stdin.take().expect("piped").write_all(input).expect("weir reads it");
    let output = child.wait_with_output().expect("weir ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    Output { code: output.status.code(), stdout, stderr }
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn is_same(got: &Value, expected: &Value) -> bool {
    match (got.as_f64(), expected.as_f64()) {
        (Some(got), Some(expected)) => {
            (got - expected).abs() <= TOLERANCE * expected.abs().max(1.0)
        }
        _ => got == expected,
    }
}

/// The fields in which an answer differs. A field that `expected` does not name is null.
fn differences(got: &Value, expected: &Map<String, Value>) -> Vec<String> {
    let got = got.as_object().expect("an object");
    let names = got.keys().chain(expected.keys().filter(|name| !got.contains_key(*name)));
    let names = names.filter(|name| !["id", "why"].contains(&name.as_str()));
    // What a negative count was is told where it was asked for.
    let names = names.filter(|name| *name != "raw" || expected.contains_key("raw"));
    let unnamed = |name: &str| if name == "absurd" { Value::Bool(false) } else { Value::Null };
    names
        .filter_map(|name| {
            let got = got.get(name).unwrap_or(&Value::Null);
            let expected = expected.get(name).cloned().unwrap_or_else(|| unnamed(name));
            let is_same = is_same(got, &expected);
            (!is_same).then(|| format!("{name}: {expected} expected, {got} got"))
        })
        .collect()
}

/// What is wrong in a table, and how many of its lines are right, for the clear lines and the free.
fn check(table: &str) -> [(usize, usize, String); 2] {
    let output = weir_classify(&["--json"], table.as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let (lines, answers) = (objects(table), objects(&output.stdout));
    assert_eq!(lines.len(), answers.len());
    let mut scores = [(0, 0, String::new()), (0, 0, String::new())];
    for (line, answer) in lines.iter().zip(&answers) {
        assert_eq!(line["id"], answer["id"]);
        let is_free = line["why"].as_str().is_some_and(|why| why.contains("AMBIGUOUS"));
        let (right, of, wrong) = &mut scores[usize::from(is_free)];
        let differences = differences(answer, line["expect"].as_object().expect("an object"));
        *of += 1;
        if differences.is_empty() {
            *right += 1;
        } else {
            let (id, why) = (&line["id"], &answer["why"]);
            let _ = write!(wrong, "\n{id}: {}\n    by {why}", differences.join("; "));
        }
    }
    scores
}

#[test]
fn every_collected_answer_is_understood() {
    let [(right, of, wrong), _] = check(OBSERVED);
    assert_eq!(right, of, "{right} of {of} are right{wrong}");
}

#[test]
fn answers_with_a_free_choice_are_chosen_as_written() {
    let [_, (right, of, wrong)] = check(OBSERVED);
    assert_eq!(right, of, "{right} of {of} are right{wrong}");
}

#[test]
fn every_composed_answer_is_understood() {
    let [(right, of, wrong), _] = check(COMPOSED);
    assert_eq!(right, of, "{right} of {of} are right{wrong}");
}

#[test]
fn a_raw_answer_is_read_as_it_went_over_the_wire() {
    let raw = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n\
               retry-after: 3\r\nretry-after: 7\r\n\r\n\
               {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"x\"}}";
    let answer = &objects(&weir_classify(&["--json"], raw.as_bytes()).stdout)[0];
    assert_eq!(answer["class"], "TRANSIENT_RATE_LIMIT");
    assert_eq!((&answer["retry_after_s"], &answer["id"]), (&Value::from(7), &Value::Null));
    let words = weir_classify(&["--provider", "anthropic"], raw.as_bytes()).stdout;
    assert!(words.starts_with("TRANSIENT_RATE_LIMIT  wait 7 s (retry-after)\n"), "{words}");
    assert!(words.contains("anthropic/rate-limit-type: status 429"), "{words}");
}

#[test]
fn the_option_names_the_provider_of_lines_that_do_not() {
    let line = r#"{"status":429,"body":{"error":{"code":"1113","message":"x"}}}"#;
    let class = |arguments: &[&str]| {
        let output = weir_classify(arguments, line.as_bytes());
        objects(&output.stdout)[0]["class"].clone()
    };
    assert_eq!(class(&["--json"]), "TRANSIENT_RATE_LIMIT");
    assert_eq!(class(&["--json", "--provider", "z.ai"]), "PERMANENT_QUOTA");
    let stranger = weir_classify(&["--json", "--provider", "acme"], line.as_bytes());
    assert_eq!(stranger.code, Some(0));
    assert!(stranger.stderr.contains("`acme` is read as a stranger; known are"));
}

#[test]
fn bad_lines_are_named_and_the_others_are_answered() {
    let input = "{\"id\":1,\"status\":200}\n\nnot json\n{\"id\":2,\"status\":\"many\"}\n\
                 {\"id\":3,\"status\":429,\"headers\":{\"a b\":\"c\"}}\n{\"id\":4,\"status\":500}\n";
    let output = weir_classify(&["--json"], input.as_bytes());
    assert_eq!(output.code, Some(1));
    // One line for each of the input, so that both can be read side by side.
    let answers = objects(&output.stdout);
    let ids: Vec<_> = answers.iter().map(|line| line["id"].clone()).collect();
    assert_eq!(ids, [1.into(), Value::Null, 2.into(), 3.into(), 4.into()]);
    let is_error: Vec<_> = answers.iter().map(|line| line["error"].is_string()).collect();
    assert_eq!(is_error, [false, true, true, true, false]);
    for expected in
        ["-:3: expected", "-:4: `many` is no status", "-:5: `a b` is no name of a header"]
    {
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
    assert!(output.stderr.lines().all(|line| line.contains("; ")), "{}", output.stderr);
    let nothing = weir_classify(&["--json"], b"\n \n");
    assert_eq!(nothing.code, Some(1));
    assert!(nothing.stderr.contains("there is no answer in it"), "{}", nothing.stderr);
}

#[test]
fn what_says_no_status_is_refused() {
    for (input, why) in [
        ("{}", "-:1: the object is empty; write"),
        (
            "{\"error\":{\"code\":\"x\"}}\n",
            "-:1: it has no `status`, as if it were a body alone; write",
        ),
        ("[1]", "-:1: it is no object; write"),
    ] {
        let output = weir_classify(&[], input.as_bytes());
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{input}");
        assert!(output.stderr.contains(why), "{input}: {}", output.stderr);
    }
}

#[test]
fn a_raw_answer_may_have_chunks_and_others_before_it() {
    let body = "{\"error\":{\"code\":\"insufficient_quota\",\"message\":\"x\"}}";
    let (first, second) = body.split_at(26);
    let chunked =
        format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    for raw in [
        format!("HTTP/1.1 429 x\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 x\r\n\r\n{body}"),
        format!("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 429 x\r\n\r\n{body}"),
        format!("\u{feff}HTTP/1.1 429 x\r\n\r\n{body}"),
    ] {
        let answers = objects(&weir_classify(&["--json"], raw.as_bytes()).stdout);
        assert_eq!(answers[0]["class"], "PERMANENT_QUOTA", "{raw}");
    }
}

#[test]
fn a_line_may_be_written_in_several_forms() {
    let check = |line: &str| {
        let output = weir_classify(&["--json", "--provider", "Claude"], line.as_bytes());
        let answer = &objects(&output.stdout)[0];
        assert_eq!(answer["class"], "TRANSIENT_RATE_LIMIT", "{line}");
        assert_eq!(answer["retry_after_s"], 7, "{line}");
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{line}");
    };
    check(r#"{"status":"429","headers":{"retry-after":7}}"#);
    check(r#"{"status":429,"headers":[["Retry-After","3"],["retry-after",7]]}"#);
    check(r#"{"status":429,"headers":[{"name":"Retry-After","value":"7"}]}"#);
    check("\u{feff}{\"status\":429,\"headers\":{\"retry-after\":[\"7\"]}}");
}

#[test]
fn an_instant_counts_from_this_clock_where_nothing_else_is_known() {
    let line = r#"{"status":429,"headers":{"retry-after":"Fri, 01 Jan 2100 00:00:00 GMT"}}"#;
    let output = weir_classify(&["--json"], line.as_bytes());
    assert!(objects(&output.stdout)[0]["retry_after_s"].as_f64().is_some_and(|wait| wait > 0.0));
}

#[test]
fn text_from_outside_neither_steers_the_terminal_nor_breaks_a_line() {
    let line = r#"{"id":"\u001b[2Ja\nb","status":429,"provider":"openai",
        "body":{"error":{"code":"\u001b[31mx\n","type":"insufficient_quota","message":"x"}}}"#;
    let output = weir_classify(&[], line.as_bytes());
    assert!(output.stdout.starts_with(r"\u{1b}[2Ja\nb  PERMANENT_QUOTA"), "{}", output.stdout);
    assert_eq!(output.stdout.lines().count(), 2, "{}", output.stdout);
    assert!(!output.stdout.contains('\u{1b}'));
}

#[test]
fn any_number_of_headers_is_survived() {
    let mut raw = "HTTP/1.1 429 x\r\nretry-after: 7\r\n".to_owned();
    for number in 0..25_000 {
        let _ = write!(raw, "x-h{number}: 1\r\n");
    }
    let output = weir_classify(&["--json"], raw.as_bytes());
    assert_eq!(output.code, Some(0));
    assert_eq!(objects(&output.stdout)[0]["retry_after_s"], 7);
}
