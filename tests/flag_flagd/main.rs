//! Flags in a file of flagd's format: what is kept, who else writes, and what a disk can do.

mod evaluator;
#[path = "../store_plans/mod.rs"]
mod store_plans;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use store_plans::{author, plan, stored, timed};
use tempfile::TempDir;
use weir::admission::{FLAGS, Settings};
use weir::flag::{FLAGD_PREFIX, FlagTable, FlagdFile, Outcome, Plan, Revision, Store, StoreError};

const KEY: &str = "retry.max_attempts";
const NAME: &str = "flags.json";

/// A team's file, in a layout and with numbers that a rewrite must not touch.
const TEAM: &str = r#"{
  "$schema": "https://flagd.dev/schema/v0/flags.json",
  "flags": {
    "new-checkout": { "state": "ENABLED",
        "variants": {"on": true,   "off": false}, "defaultVariant": "off",
        "targeting": {"if": [{"ends_with": [{"var": "email"}, "@example.org"]}, "on"]} },
    "price-factor": {"state":"ENABLED","variants":{"exact":0.10000000000000000001,"large":12345678901234567890123},"defaultVariant":"exact"},
    "weir.retry.max_attempts": {
      "state": "ENABLED",
      "variants": { "normal": 2, "none": 1 },
      "defaultVariant": "none",
      "description": "kept"
    }
  },
  "$evaluators": { "staff": {"in": ["@example.org", {"var": "email"}]} }
}
"#;

fn folder(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join(NAME);
    fs::write(&path, text).expect("the disk is there");
    (folder, path)
}

fn store(path: &Path) -> FlagdFile {
    FlagdFile::new(path, FLAGD_PREFIX, Settings::default())
}

async fn table(store: &FlagdFile) -> FlagTable {
    store.list().await.expect("a good file")
}

async fn apply(store: &FlagdFile, plan: &Plan, actor: &str) -> Revision {
    match store.apply(plan, &author(actor)).await {
        Outcome::Applied { revision, beside: None } => revision,
        other => panic!("{other:?}"),
    }
}

async fn refused(store: &FlagdFile, plan: &Plan) -> String {
    match store.apply(plan, &author("alice")).await {
        Outcome::Refused { why } => why,
        other => panic!("{other:?}"),
    }
}

fn by<'a>(table: &'a FlagTable, key: &str) -> Option<&'a str> {
    table.get(key).expect("flag of the table").by.as_deref()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("it is there")
}

fn value(path: &Path) -> Value {
    serde_json::from_str(&text(path)).expect("JSON")
}

#[tokio::test]
async fn what_is_written_is_read_back() {
    let (_folder, path) = folder("{\"flags\": {}}");
    let store = store(&path);
    let empty = table(&store).await;
    assert_eq!(empty.flags.len(), FLAGS.len());
    assert!(empty.flags.iter().all(|flag| flag.overridden.is_none() && flag.by.is_none()));

    let words = ["retry.max_attempts=3", "admission.mode=shadow", "cache.enabled=true"];
    let revision = apply(&store, &timed(&empty, &words, Some(600)), "alice").await;
    let set = table(&store).await;
    assert_eq!(set.revision, revision);
    assert!(revision > empty.revision);
    for (key, value) in [(KEY, "3"), ("admission.mode", "shadow"), ("cache.enabled", "true")] {
        let flag = set.get(key).expect("flag of the table");
        assert_eq!(
            (flag.stored().to_string().as_str(), flag.by.as_deref()),
            (value, Some("alice"))
        );
        assert!(flag.at.is_some() && flag.expires.is_some(), "{flag:?}");
        assert!(flag.revision > empty.revision && flag.revision <= revision);
    }
    let flag = &value(&path)["flags"]["weir.retry.max_attempts"];
    assert_eq!((&flag["state"], &flag["defaultVariant"]), (&json!("ENABLED"), &json!("override")));
    assert_eq!(flag["variants"], json!({"base": 2, "override": 3}));
    let metadata = flag["metadata"].as_object().expect("an object");
    assert!(metadata.values().all(|value| !value.is_object() && !value.is_null()), "{metadata:?}");
    assert_eq!(
        (&metadata["weir.reason"], &metadata["weir.incident"]),
        (&json!("storm"), &json!("INC-42"))
    );

    apply(&store, &plan(&set, &["retry.max_attempts=base"]), "bob").await;
    let dropped = table(&store).await;
    let flag = dropped.get(KEY).expect("flag of the table");
    assert_eq!((&flag.overridden, flag.by.as_deref()), (&None, Some("bob")));
    assert_eq!(stored(&dropped, "admission.mode"), "shadow");
    let flag = &value(&path)["flags"]["weir.retry.max_attempts"];
    assert_eq!(flag["variants"], json!({"base": 2}));
    assert!(store.events(0).await.expect("no history").is_empty());
    let lacks = store.capabilities().lacks();
    assert_eq!(lacks.len(), 4, "{lacks:?}");
}

#[tokio::test]
async fn what_belongs_to_others_keeps_its_text() {
    let (_folder, path) = folder(TEAM);
    let store = store(&path);
    let before = table(&store).await;
    assert_eq!(stored(&before, KEY), "1", "a team's own variant is read");
    assert_eq!(by(&before, KEY), Some("outside"));
    apply(&store, &plan(&before, &["retry.max_attempts=3", "queue.max_age_s=20"]), "alice").await;
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=4"]), "alice").await;
    let after = text(&path);
    let kept = |from: &str, to: &str| {
        let from = TEAM.find(from).expect("in the file");
        let to = from + TEAM[from..].find(to).expect("in the file") + to.len();
        assert!(after.contains(&TEAM[from..to]), "{}\n{after}", &TEAM[from..to]);
    };
    kept("\"$schema\"", "json\"");
    kept("{ \"state\": \"ENABLED\",", "\"on\"]} }");
    kept("\"price-factor\"", "\"exact\"}");
    kept("\"$evaluators\"", "]} }");
    let order: Vec<usize> =
        ["$schema", "new-checkout", "price-factor", "weir.retry", "$evaluators"]
            .iter()
            .map(|name| after.find(name).expect("kept"))
            .collect();
    assert!(order.is_sorted(), "{after}");
    let flag = &value(&path)["flags"]["weir.retry.max_attempts"];
    assert_eq!(flag["variants"], json!({"normal": 2, "none": 1, "base": 2, "override": 4}));
    assert_eq!(flag["description"], "kept");
}

#[tokio::test]
async fn values_are_read_as_flagd_reads_them() {
    let check = async |flag: &str, shown: &str, overridden: bool| {
        let (_folder, path) = folder(&format!("{{\"flags\": {{\"weir.{KEY}\": {flag}}}}}"));
        let table = table(&store(&path)).await;
        let state = table.get(KEY).expect("flag of the table");
        let found = (state.stored().to_string(), state.overridden.is_some());
        assert_eq!(found, (shown.to_owned(), overridden), "{flag}");
    };
    let on = r#""state": "ENABLED", "variants": {"base": 2, "a": 4, "odd": 9, "true": 1}"#;
    check(&format!(r#"{{{on}, "defaultVariant": "base"}}"#), "2", false).await;
    check(&format!(r#"{{{on}, "defaultVariant": "a"}}"#), "4", true).await;
    check(&format!(r#"{{{on}, "defaultVariant": "odd"}}"#), "9", true).await;
    check(&format!(r#"{{{on}, "defaultVariant": true}}"#), "1", true).await;
    check(&format!(r#"{{{on}, "defaultVariant": null}}"#), "2", false).await;
    check(&format!("{{{on}}}"), "2", false).await;
    let off = on.replace("ENABLED", "DISABLED");
    check(&format!(r#"{{{off}, "defaultVariant": "a"}}"#), "2", false).await;
    // The file's base is what services get, whatever weir's configuration says.
    let other = on.replace("\"base\": 2", "\"base\": 3");
    check(&format!(r#"{{{other}, "defaultVariant": "base"}}"#), "3", true).await;
}

#[tokio::test]
async fn one_of_two_weirs_wins_and_the_other_is_told() {
    const ROUNDS: u64 = 30;
    let (_folder, path) = folder("{\"flags\": {}}");
    let (one, two) = (store(&path), store(&path));
    for round in 0..ROUNDS {
        let seen = table(&one).await;
        let tries = if stored(&seen, KEY) == "1" { 3 } else { 1 };
        let (first, second) = (format!("{KEY}={tries}"), format!("queue.max_depth={}", 9 + round));
        let (first, second) = (plan(&seen, &[&first]), plan(&seen, &[&second]));
        let (alice, bob) = (author("alice"), author("bob"));
        let outcomes = tokio::join!(one.apply(&first, &alice), two.apply(&second, &bob));
        let current = match outcomes {
            (Outcome::Applied { .. }, Outcome::Conflict { current })
            | (Outcome::Conflict { current }, Outcome::Applied { .. }) => current,
            other => panic!("round {round}: {other:?}"),
        };
        assert_eq!(current, table(&one).await);
    }
    let number = &value(&path)["metadata"]["weir.revision"];
    assert_eq!(*number, json!(ROUNDS), "each change counts one");
}

#[tokio::test]
async fn an_edit_past_weir_conflicts_and_is_shown() {
    let (_folder, path) = folder("{\"flags\": {}}");
    let store = store(&path);
    let words = ["retry.max_attempts=3", "queue.max_depth=9"];
    apply(&store, &plan(&table(&store).await, &words), "alice").await;
    let seen = table(&store).await;
    let late = plan(&seen, &["retry.owner=client"]);

    let edit = |from: &str, to: &str| {
        let before = text(&path);
        assert!(before.contains(from), "{before}");
        fs::write(&path, before.replace(from, to)).expect("the disk is there");
    };
    edit("\"override\": 3", "\"override\": 4");
    let edited = table(&store).await;
    assert!(edited.revision > seen.revision);
    assert_eq!((stored(&edited, KEY), by(&edited, KEY)), ("4".to_owned(), Some("outside")));
    assert_eq!(edited.get(KEY).and_then(|flag| flag.at), None);
    assert_eq!(by(&edited, "queue.max_depth"), Some("alice"), "hers is as she left it");
    let outcome = store.apply(&late, &author("bob")).await;
    assert_eq!(outcome, Outcome::Conflict { current: edited.clone() });

    edit("\"override\": 4", "\"override\": 1");
    let again = table(&store).await;
    assert_ne!(again.revision, edited.revision, "a second edit is another table");
    let revision = apply(&store, &plan(&again, &["retry.owner=client"]), "bob").await;
    assert!(revision > again.revision && revision > edited.revision);
    assert_eq!(by(&table(&store).await, KEY), Some("outside"));

    for depth in 20..30 {
        let before = table(&store).await.get("queue.max_depth").map(|flag| flag.stored().clone());
        let before = before.expect("flag of the table");
        edit(&format!("\"override\": {before}"), &format!("\"override\": {depth}"));
        assert!(table(&store).await.revision > revision, "larger than what weir wrote");
    }
    let last = table(&store).await;
    assert_eq!(by(&last, "queue.max_depth"), Some("outside"));
    let later = apply(&store, &plan(&last, &["retry.owner=base"]), "bob").await;
    assert!(later > last.revision, "and smaller than what it writes next");

    // Layout, and flags of others, are no change of these.
    let compact = value(&path).to_string().replacen('{', "{\"x\": 1,", 1);
    fs::write(&path, compact).expect("the disk is there");
    assert_eq!(table(&store).await.revision, later);
}

#[tokio::test]
async fn a_repeat_of_the_same_request_changes_nothing() {
    let (_folder, path) = folder("{\"flags\": {}}");
    let store = store(&path);
    let change = plan(&table(&store).await, &["retry.max_attempts=3"]);
    let revision = apply(&store, &change, "alice").await;
    let before = text(&path);
    assert_eq!(apply(&store, &change, "alice").await, revision);
    assert_eq!(text(&path), before);
}

#[tokio::test]
async fn what_a_crash_left_behind_is_in_nobodys_way() {
    let (folder, path) = folder("{\"flags\": {}}");
    fs::write(folder.path().join(".flags.json.weir-new"), "{\"fla").expect("the disk is there");
    fs::write(folder.path().join(".flags.json.weir-lock"), "").expect("the disk is there");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("our own file");
    let store = store(&path);
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=3"]), "alice").await;
    assert_eq!(stored(&table(&store).await, KEY), "3");
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "who may read it stays");
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .expect("a directory")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    names.sort();
    assert_eq!(names, [".flags.json.weir-lock", "flags.json"]);
}

#[tokio::test]
async fn a_mounted_link_is_written_through() {
    let folder = tempfile::tempdir().expect("a directory");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("..2026_01")).expect("a new directory");
    fs::write(at("..2026_01/flags.json"), "{\"flags\": {}}").expect("the disk is there");
    symlink("..2026_01", at("..data")).expect("a new link");
    symlink("..data/flags.json", at(NAME)).expect("a new link");
    let store = store(&at(NAME));
    apply(&store, &plan(&table(&store).await, &["retry.max_attempts=3"]), "alice").await;
    assert!(at(NAME).is_symlink() && at("..data").is_symlink(), "the mount is as it was");
    assert_eq!(
        value(&at("..2026_01/flags.json"))["flags"]["weir.retry.max_attempts"]["defaultVariant"],
        "override"
    );

    // Kubernetes swaps the folder: another file is there from one moment to the next.
    let late = plan(&table(&store).await, &["retry.owner=client"]);
    fs::create_dir(at("..2026_02")).expect("a new directory");
    fs::write(at("..2026_02/flags.json"), "{\"flags\": {}}").expect("the disk is there");
    symlink("..2026_02", at("..new")).expect("a new link");
    fs::rename(at("..new"), at("..data")).expect("a swap");
    assert_eq!(stored(&table(&store).await, KEY), "2");
    let outcome = store.apply(&late, &author("alice")).await;
    assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");

    let read_only = Permissions::from_mode(0o444);
    fs::set_permissions(at("..2026_02/flags.json"), read_only).expect("our own file");
    let why = refused(&store, &plan(&table(&store).await, &["retry.owner=client"])).await;
    assert!(why.contains("read-only") && why.contains("ConfigMap"), "{why}");
}

#[tokio::test]
async fn what_the_disk_refuses_is_a_refusal() {
    for blocked in [".flags.json.weir-new", ".flags.json.weir-lock"] {
        let (folder, path) = folder(TEAM);
        fs::create_dir(folder.path().join(blocked)).expect("a new directory");
        let store = store(&path);
        let why = refused(&store, &plan(&table(&store).await, &["retry.owner=client"])).await;
        assert!(why.contains("flags.json") && why.contains("change it there"), "{why}");
        assert_eq!(text(&path), TEAM, "nothing was stored");
    }
}

#[tokio::test]
async fn another_weir_that_holds_the_lock_is_waited_for_and_not_for_ever() {
    let (folder, path) = folder(TEAM);
    let store = store(&path);
    let change = plan(&table(&store).await, &["retry.owner=client"]);
    let lock = fs::File::create(folder.path().join(".flags.json.weir-lock")).expect("a new file");
    lock.lock().expect("nobody else has it");
    let why = refused(&store, &change).await;
    assert!(why.contains("another weir"), "{why}");
    drop(lock);
    apply(&store, &change, "alice").await;
}

#[tokio::test]
async fn a_missing_file_is_not_made() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join(NAME);
    let store = store(&path);
    let error = store.list().await.expect_err("missing");
    assert!(matches!(error, StoreError::File { .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains(NAME) && words.contains("does not exist; correct the path"), "{words}");
    let (_folder, other) = self::folder(TEAM);
    let change = plan(&table(&self::store(&other)).await, &["retry.owner=client"]);
    assert!(refused(&store, &change).await.contains("does not exist"));
    assert_eq!(fs::read_dir(folder.path()).expect("a directory").count(), 0);
}

#[tokio::test]
async fn a_bad_file_is_named_with_place_and_remedy() {
    let flag = |flag: &str| format!("{{\"flags\": {{\"weir.{KEY}\": {flag}}}}}");
    for (text, words) in [
        ("{\n  \"flags\": {,}\n}".to_owned(), "line 2 column 13"),
        (String::new(), "line 1 column 0"),
        ("{\"flag\": {}}".to_owned(), "no `flags`; is it a file of flagd?"),
        ("{\n\n\"flags\": []}".to_owned(), "bad `flags` at line 3"),
        ("{\"flags\":\n {\"a\": 1,\n \"a\": 2}}".to_owned(), "line 3: `a` stands there twice"),
        ("{\"flags\": {}, \"metadata\": 3}".to_owned(), "bad `metadata` at line 1"),
        (flag("3"), "`weir.retry.max_attempts` that is not as flagd wants it"),
        (flag("{\"state\": \"on\"}"), "a `state` other than ENABLED or DISABLED"),
        (
            flag(r#"{"state": "ENABLED", "variants": {}, "defaultVariant": "x"}"#),
            "names the variant `x`, which it does not have; put it right",
        ),
        (flag(r#"{"state": "ENABLED", "variants": 3, "defaultVariant": "x"}"#), "bad `variants`"),
    ] {
        let (_folder, path) = folder(&text);
        let error = store(&path).list().await.expect_err(&text).to_string();
        assert!(error.contains(NAME) && error.contains(words), "{text}: {error}");
    }
}

#[tokio::test]
async fn a_flag_with_targeting_is_left_to_its_owner() {
    let rules = r#""targeting": {"if": [true, "base"]}"#;
    let flag = format!(r#"{{"state": "ENABLED", "variants": {{"base": 2}}, {rules}}}"#);
    let (_folder, path) = folder(&format!("{{\"flags\": {{\"weir.{KEY}\": {flag}}}}}"));
    let store = store(&path);
    let why = refused(&store, &plan(&table(&store).await, &["retry.max_attempts=1"])).await;
    assert!(why.contains("`targeting` rules"), "{why}");
}
