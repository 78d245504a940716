//! `weir doctor` as an operator runs it: on pages of real gateways, served on loopback.

mod pages;

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use serde_json::Value as Json;

/// A page of a real gateway.
fn page_of(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/captures").join(name);
    let mut body = Vec::new();
    let file = fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    GzDecoder::new(file).read_to_end(&mut body).expect("gzip");
    body
}

/// Serves a page of a real gateway.
fn serve(capture: &str) -> String {
    let page = page_of(capture);
    pages::serve(move || Some(page.clone()))
}

fn doctor(directory: &Path, config: &str, extra: &[&str]) -> Output {
    let file = directory.join("weir.toml");
    fs::write(&file, config).expect("written");
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("doctor")
        .arg("-c")
        .arg(&file)
        .args(extra)
        .env("XDG_STATE_HOME", directory.join("state"))
        .output()
        .expect("runs")
}

fn source(name: &str, adapter: &str, url: &str) -> String {
    format!("[[source]]\nname = \"{name}\"\nadapter = \"{adapter}\"\nurl = \"{url}\"\n")
}

fn check<'a>(report: &'a Json, what: &str) -> &'a Json {
    let checks = report["checks"].as_array().expect("a list");
    checks.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("no {what}"))
}

fn reach<'a>(report: &'a Json, cause: &str) -> &'a Json {
    let causes = report["causes"].as_array().expect("a list");
    causes.iter().find(|row| row["cause"] == cause).unwrap_or_else(|| panic!("no {cause}"))
}

#[test]
fn what_envoy_says_and_what_cannot_be_told_without_the_rest() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = source("edge", "envoy", &serve("envoy-storm-final.prom.gz"));
    let output = doctor(directory.path(), &config, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let edge = &report["sources"][0];
    assert_eq!(edge["signals"]["attempts_rps"]["quality"], "exact");
    assert_eq!(edge["signals"]["amplification"]["quality"], "lower-bound");
    assert_eq!(edge["scrape"]["prometheus_parse_loses"], 102);
    assert_eq!(edge["scrape"]["missing_metrics"], serde_json::json!([]));
    let absent = edge["absent"].as_array().expect("a list");
    assert!(absent.iter().any(|row| row["name"] == "tpm_headroom" && row["why"].is_string()));
    // Envoy knows neither tokens nor the provider's quota.
    let exhausted = reach(&report, "tpm-exhausted");
    assert_ne!(exhausted["at_most"], "confirmed", "{exhausted}");
    assert!(exhausted["needs"].as_array().is_some_and(|needs| !needs.is_empty()), "{exhausted}");
    let words = doctor(directory.path(), &config, &[]);
    let words = String::from_utf8(words.stdout).expect("text");
    for part in ["edge  adapter envoy", "loses 102 of your 1", "cannot be told:", "exact"] {
        assert!(words.contains(part), "{part}\n{words}");
    }
}

#[test]
fn more_sources_reach_further_and_one_that_is_down_is_a_finding() {
    let directory = tempfile::tempdir().expect("a directory");
    // Port 9 answers nobody on loopback.
    let down = source("gateway", "weir", "http://127.0.0.1:9/metrics");
    let config = source("proxy", "litellm", &serve("litellm-storm-t2.prom.gz")) + &down;
    let output = doctor(directory.path(), &config, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert!(report["sources"][1]["error"].as_str().is_some_and(|e| e.starts_with("gateway")));
    assert_eq!(report["sources"][0]["scrape"]["prometheus_parse_loses"], 0);
    assert_ne!(reach(&report, "nested-retries")["at_most"], "cannot-tell");
}

#[test]
fn a_users_adapter_is_read_and_a_wrong_one_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let adapters = directory.path().join("adapters");
    fs::create_dir(&adapters).expect("created");
    let head = "[adapter]\ntitle = \"ours\"\nabout = \"a\"\nrole = \"gateway\"\n\
                verified = \"run\"\n[signals.offered_rps]\nquality = \"exact\"\n";
    let config = source("edge", "ours", &serve("smg-storm-t2.prom.gz"));
    fs::write(
        adapters.join("ours.toml"),
        format!("{head}value = 'rate(smg_http_requests_total)'\n"),
    )
    .expect("written");
    let output = doctor(directory.path(), &config, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    fs::write(adapters.join("ours.toml"), format!("{head}valeu = 'rate(a)'\n")).expect("written");
    let output = doctor(directory.path(), &config, &[]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("ours.toml:8:1: `signals.offered_rps.valeu`"), "{error}");
}

#[test]
fn each_instance_is_asked_and_the_ones_that_are_down_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = serve("envoy-storm-final.prom.gz");
    let address = page.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let targets = format!("[{{\"targets\": [\"{}\", \"127.0.0.1:9\"]}}]", address.expect("ours"));
    fs::create_dir(directory.path().join("targets")).expect("created");
    fs::write(directory.path().join("targets/eu.json"), targets).expect("written");
    let config =
        "[[source]]\nname = \"edge\"\nadapter = \"envoy\"\nfile_sd = [\"targets/*.json\"]\n";
    let output = doctor(directory.path(), config, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let edge = &report["sources"][0];
    let instances = edge["instances"].as_array().expect("a list");
    assert_eq!(instances.len(), 2);
    let down = instances.iter().find(|one| one["name"] == "127.0.0.1:9").expect("named by address");
    assert!(down["error"].as_str().is_some_and(|e| e.starts_with("edge 127.0.0.1:9: ")), "{down}");
    assert_eq!(edge["scrape"]["prometheus_parse_loses"], 102, "of the one that answers");
    let words = String::from_utf8(doctor(directory.path(), config, &[]).stdout).expect("text");
    for part in ["1 of 2 instances answer", "does not answer: edge 127.0.0.1:9: nothing answers"] {
        assert!(words.contains(part), "{part}\n{words}");
    }
    fs::write(directory.path().join("targets/eu.json"), "[\n{}]").expect("written");
    let words = String::from_utf8(doctor(directory.path(), config, &[]).stdout).expect("text");
    assert!(words.contains("eu.json:2:2: missing field `targets`"), "{words}");
}

#[test]
fn what_an_incident_needs_beside_its_sources() {
    let directory = tempfile::tempdir().expect("a directory");
    let scopes = "[[scope]]\nname = \"a\"\nowner = \"x\"\nrpm = 60\n[[scope]]\nname = \"b\"\n";
    let rest = "[flags]\nurl = \"http://127.0.0.1:9\"\ntoken_file = \"token\"\n\
                [alertmanager]\nurl = \"http://127.0.0.1:9\"\n";
    fs::write(directory.path().join("token"), "t\n").expect("written");
    let config = source("edge", "envoy", &serve("envoy-storm-final.prom.gz")) + scopes + rest;
    let output = doctor(directory.path(), &config, &["--json"]);
    assert_eq!(output.status.code(), Some(1), "flags and alerts cannot be read");
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
    for (what, standing, part) in [
        ("flags", "wrong", "did not answer"),
        ("alertmanager", "wrong", "nothing answers"),
        ("scopes", "note", "without a limit: b"),
        ("journal", "ok", "can be written at"),
        ("adapters", "ok", "ship with weir"),
        ("terminal", "note", "no terminal"),
    ] {
        let row = check(&report, what);
        assert_eq!(row["standing"], standing, "{row}");
        assert!(row["said"].as_str().is_some_and(|said| said.contains(part)), "{row}");
        assert!(standing == "ok" || row["next"].is_string(), "a next step: {row}");
    }
    fs::remove_dir_all(directory.path().join("state")).expect("made by the first run");
    fs::write(directory.path().join("state"), "in the way").expect("written");
    let output = doctor(directory.path(), &config, &["--json"]);
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(check(&report, "journal")["standing"], "wrong");
}

/// The schema that `weir doctor --schema` prints.
fn schema() -> Json {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["doctor", "--schema"])
        .output()
        .expect("weir starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// The tables that a part of the schema may be: references followed, alternatives spread.
fn tables<'a>(schema: &'a Json, part: &'a Json) -> Vec<&'a Json> {
    if let Some(name) = part["$ref"].as_str() {
        let definition = schema.pointer(name.trim_start_matches('#')).expect("defined");
        return tables(schema, definition);
    }
    match part["anyOf"].as_array() {
        Some(parts) => parts.iter().flat_map(|part| tables(schema, part)).collect(),
        None => vec![part],
    }
}

/// What the schema has against a value, at the dotted key where it is.
fn against(schema: &Json, part: &Json, value: &toml::Value, key: &str) -> Option<String> {
    let complaints = tables(schema, part).into_iter().map(|part| match value {
        toml::Value::Table(table) => table.iter().find_map(|(name, value)| {
            let place = format!("{key}.{name}");
            let known = [&part["properties"][name], &part["additionalProperties"]];
            match known.into_iter().find(|known| known.is_object()) {
                Some(known) => against(schema, known, value, &place),
                None => Some(format!("{place} is not in the schema")),
            }
        }),
        toml::Value::Array(items) => {
            items.iter().find_map(|item| against(schema, &part["items"], item, key))
        }
        scalar => {
            let word = match scalar {
                toml::Value::String(_) => "string",
                toml::Value::Boolean(_) => "boolean",
                toml::Value::Integer(_) => "integer",
                _ => "number",
            };
            let types = &part["type"];
            let is = |word: &str| {
                *types == *word || types.as_array().is_some_and(|all| all.contains(&word.into()))
            };
            let fits = is(word) || word == "integer" && is("number") || part["oneOf"].is_array();
            (!fits).then(|| format!("{key} is no {types}"))
        }
    });
    let complaints: Vec<_> = complaints.collect();
    if complaints.iter().any(Option::is_none) { None } else { complaints.into_iter().next()? }
}

#[test]
fn the_schema_takes_the_example_of_the_readme_and_a_file_with_everything() {
    let schema = schema();
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"));
    let readme = readme.expect("there");
    let examples: Vec<&str> = readme
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|text| text.contains("[[source]]"))
        .collect();
    assert!(!examples.is_empty());
    let everything = "read_only = true\n[[source]]\nname = 'a'\nadapter = 'x'\ntimeout_s = 15\n\
        interval_s = 1.5\nurls = ['http://a/']\nbasic = { user = 'u', password_file = 'f' }\n\
        headers = { X-Scope-OrgID = 'a', X-Key = { env = 'K' } }\n\
        tls = { ca_file = 'a', cert_file = 'b', key_file = 'c', server_name = 'd' }\n\
        [[source]]\nname = 'b'\nadapter = 'x'\nfile_sd = ['a/*.json']\nscheme = 'https'\n\
        path = '/m'\n[[source]]\nname = 'c'\nadapter = 'x'\nprometheus = 'http://p'\nselect = ''\n\
        [alertmanager]\nurl = 'http://a'\ntoken_file = 't'\n";
    for text in examples.into_iter().chain([everything]) {
        let file: toml::Value = toml::from_str(text).expect("TOML");
        assert_eq!(against(&schema, &schema, &file, "weir.toml"), None, "{text}");
    }
    for (wrong, place) in [
        ("sources = []", "weir.toml.sources is not"),
        ("[[source]]\nurll = 'x'", "weir.toml.source.urll is not"),
        ("[[source]]\nname = 7", "weir.toml.source.name is no"),
        ("[flags]\ntoken = 'x'", "weir.toml.flags.token is not"),
    ] {
        let file: toml::Value = toml::from_str(wrong).expect("TOML");
        let complaint = against(&schema, &schema, &file, "weir.toml").expect(wrong);
        assert!(complaint.starts_with(place), "{complaint}");
    }
}

#[test]
fn the_schema_has_the_keys_that_the_reader_takes_and_describes_each() {
    let schema = schema();
    let directory = tempfile::tempdir().expect("a directory");
    for (table, path) in [
        ("", ""),
        ("[[source]]", "source"),
        ("[[source]]\n[source.basic]", "source.basic"),
        ("[[source]]\n[source.tls]", "source.tls"),
        ("[[scope]]", "scope"),
        ("[flags]", "flags"),
        ("[alertmanager]", "alertmanager"),
        ("[gateway]", "gateway"),
        ("[[gateway.key]]", "gateway.key"),
    ] {
        let output = doctor(directory.path(), &format!("{table}\nno_such_key = 1\n"), &[]);
        let error = String::from_utf8(output.stderr).expect("text");
        let (_, expected) =
            error.split_once("expected one of ").unwrap_or_else(|| panic!("{error}"));
        let taken: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        let mut part = &schema;
        for key in path.split('.').filter(|key| !key.is_empty()) {
            let inner = &part["properties"][key];
            let inner = if inner["items"].is_object() { &inner["items"] } else { inner };
            let all = tables(&schema, inner);
            part = all.into_iter().find(|part| part["properties"].is_object()).expect(path);
        }
        let properties = part["properties"].as_object().expect("a table");
        let mut known: Vec<&str> = properties.keys().map(String::as_str).collect();
        let mut taken: Vec<&str> = taken.into_iter().filter(|key| !key.is_empty()).collect();
        known.sort_unstable();
        taken.sort_unstable();
        assert_eq!(known, taken, "{path}");
        for (key, property) in properties {
            assert!(property["description"].is_string(), "{path}.{key} has no description");
        }
    }
}

#[test]
fn what_a_page_does_not_have_is_not_promised() {
    let directory = tempfile::tempdir().expect("a directory");
    // An Envoy that is read as LiteLLM, and a LiteLLM without the metric of its requests.
    let mut page = String::from_utf8(page_of("litellm-storm-t2.prom.gz")).expect("text");
    page = page.replace("litellm_admission_queued_requests", "other_name");
    page.push_str("litellm x\n");
    let cut = pages::serve(move || Some(page.clone().into_bytes()));
    let config = source("wrong", "litellm", &serve("envoy-storm-final.prom.gz"))
        + &source("cut", "litellm", &cut);
    let output = doctor(directory.path(), &config, &["--json"]);
    let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let (wrong, cut) = (&report["sources"][0], &report["sources"][1]);
    assert_eq!(wrong["signals"], serde_json::json!({}));
    let absent = wrong["absent"].as_array().expect("a list");
    let why = absent.iter().find(|row| row["name"] == "offered_rps").expect("said");
    assert_eq!(why["why"], "none of the metrics of adapter litellm is there");
    assert_eq!(cut["signals"]["offered_rps"]["quality"], "exact");
    assert!(cut["signals"]["queue_depth"].is_null(), "{}", cut["signals"]);
    assert_eq!(cut["scrape"]["missing_metrics"][0], "litellm_admission_queued_requests");
    assert_eq!(cut["scrape"]["bad_lines"], 1);
    let words = String::from_utf8(doctor(directory.path(), &config, &[]).stdout).expect("text");
    for part in ["1 bad lines: Prometheus would reject this target", "    line "] {
        assert!(words.contains(part), "{part}\n{words}");
    }
}
