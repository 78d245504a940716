//! `weir flag` and `weir doctor` on the stores that `[flags]` names: a real etcd, and a flagd file.

mod etcd_server;

use std::path::Path;
use std::process::{Command, Output};

use etcd_server::EtcdServer;
use serde_json::Value as Json;

/// A folder with a `weir.toml`, where everything runs.
struct Shell {
    home: tempfile::TempDir,
}

impl Shell {
    fn new(config: &str) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::write(home.path().join("weir.toml"), config).expect("the disk is there");
        Self { home }
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    fn weir(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .env("HOME", self.path())
            .env("USER", "alice")
            .stdin(std::process::Stdio::null())
            .output()
            .expect("the binary runs")
    }

    /// What it says on stdout; it must succeed.
    fn said(&self, args: &[&str]) -> String {
        let ran = self.weir(args);
        let out = String::from_utf8(ran.stdout).expect("UTF-8");
        assert!(ran.status.success(), "{args:?}: {out}{}", String::from_utf8_lossy(&ran.stderr));
        out
    }

    fn json(&self, args: &[&str]) -> Json {
        let out = self.said(args);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

fn flag<'a>(list: &'a Json, key: &str) -> &'a Json {
    let flags = list["flags"].as_array().expect("a list");
    flags.iter().find(|flag| flag["key"] == key).expect("a flag")
}

#[test]
fn flags_in_etcd_from_set_to_undo() {
    let server = EtcdServer::start();
    let config = format!(
        "[flags]\nkind = 'etcd'\nurl = '{}'\nnamespace = 'prod'\n\
         [flags.base]\n'retry.max_attempts' = 3\n",
        server.url()
    );
    let shell = Shell::new(&config);
    let change = ["flag", "set", "retry.max_attempts=1", "--reason", "storm", "--yes"];
    let set = shell.json(&[&change[..], &["-c", "weir.toml", "--json"]].concat());
    assert_eq!((&set["end"], &set["plan"]["changes"][0]["from"]), (&"applied".into(), &3.into()));
    let raw = server.ctl(&["get", "/weir/prod/flag/retry.max_attempts", "--print-value-only"]);
    assert_eq!(raw.trim(), "1");

    // As `weir watch` does, `weir.toml` in the folder is taken unasked.
    let list = shell.json(&["flag", "list", "--json"]);
    let attempts = flag(&list, "retry.max_attempts");
    assert_eq!((&attempts["override"], &attempts["base"]), (&1.into(), &3.into()), "{attempts}");
    assert_eq!(list["store"]["lacks"][0], "what the instances really use is not told");
    assert_eq!(list["store"]["name"], format!("etcd {}/prod", server.address()));
    let text = shell.said(&["flag", "list"]);
    assert!(text.contains("not told") && text.contains("\nlacks: what the instances"), "{text}");
    let plan = shell.said(&["flag", "plan", "cache.enabled=true", "--reason", "x"]);
    assert!(plan.contains("/prod") && plan.contains("\n  lacks    what the instances"), "{plan}");
    assert!(plan.contains("reverts to the base value after 900 s\n"), "etcd's own lease: {plan}");

    let undo = shell.json(&["flag", "undo", "--yes", "--json"]);
    assert_eq!(undo["end"], "applied", "{undo}");
    assert_eq!(server.ctl(&["get", "/weir/prod/flag/", "--prefix"]).trim(), "");
    let events = shell.json(&["flag", "events", "--json"]);
    assert_eq!(events["events"].as_array().map(Vec::len), Some(2), "{events}");

    let report = shell.weir(&["doctor", "--json"]);
    let report: Json = serde_json::from_slice(&report.stdout).expect("a document");
    let checks = report["checks"].as_array().expect("a list");
    let flags: Vec<&Json> = checks.iter().filter(|check| check["what"] == "flags").collect();
    assert_eq!((&flags[0]["standing"], flags.len()), (&"ok".into(), 2), "{flags:?}");
    let said = flags[1]["said"].as_str().expect("a text");
    assert!(said.contains("lacks: what the instances really use"), "{said}");
}

#[test]
fn flags_in_a_flagd_file_are_undone_by_the_journal() {
    let shell = Shell::new("[flags]\nkind = 'flagd'\nfile = 'flags.json'\n");
    let missing = shell.weir(&["doctor"]);
    let words = String::from_utf8_lossy(&missing.stdout).into_owned();
    assert!(words.contains("wrong  flags") && words.contains("`flags.file`"), "{words}");

    let file = shell.path().join("flags.json");
    std::fs::write(&file, "{\"flags\": {}}").expect("the disk is there");
    let set = ["flag", "set", "retry.max_attempts=3", "--reason", "trying", "--yes"];
    let refused = shell.weir(&set);
    let err = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(err.contains("guards cannot be told") && err.contains("no [[source]]"), "{err}");
    assert!(!err.contains("--break-glass"), "no way past it here: {err}");
    let glass = shell.weir(&[&set[..], &["--break-glass", "cure"]].concat());
    let err = String::from_utf8_lossy(&glass.stderr).into_owned();
    assert!(err.contains("--break-glass needs weir's own admin API"), "{err}");
    let set = ["flag", "set", "retry.max_attempts=1", "--reason", "storm", "--yes"];
    let text = shell.said(&set);
    for part in ["no timer: reverts only while weir runs", "only while a `weir watch` runs"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let list = shell.json(&["flag", "list", "--json"]);
    assert_eq!(flag(&list, "retry.max_attempts")["override"], 1, "{list}");
    let events = shell.json(&["flag", "events", "--json"]);
    assert_eq!(events["events"][0]["reason"], "storm", "from the journal: {events}");
    let undone = shell.weir(&["flag", "undo", "--yes", "--json"]);
    let end: Json = serde_json::from_slice(&undone.stdout).expect("a document");
    assert_eq!(end["end"], "applied", "{end}");
    let err = String::from_utf8_lossy(&undone.stderr).into_owned();
    assert!(err.contains("of weir's own journal is taken back, a change that weir made"), "{err}");
    let list = shell.json(&["flag", "list", "--json"]);
    assert!(flag(&list, "retry.max_attempts")["override"].is_null(), "{list}");
    let again = shell.said(&["flag", "undo", "--yes"]);
    assert!(again.contains("nothing to change"), "{again}");

    // Somebody edits the file by hand: what the journal does not explain is kept once, and taken back.
    shell.said(&["flag", "set", "retry.max_attempts=1", "--reason", "storm", "--yes"]);
    let ours = std::fs::read_to_string(&file).expect("the file");
    let by_hand = ours.replace("\"override\": 1", "\"override\": 4");
    assert_ne!(by_hand, ours, "{ours}");
    std::fs::write(&file, by_hand).expect("the disk is there");
    for _ in 0..2 {
        let events = shell.json(&["flag", "events", "--json"]);
        let events = events["events"].as_array().expect("a list");
        let seen: Vec<_> = events.iter().filter(|event| event["actor"] == "somebody").collect();
        let [seen] = seen.as_slice() else { panic!("{events:?}") };
        let change = &seen["changes"][0];
        assert_eq!(
            (&change["key"], &change["from"], &change["to"]),
            (&Json::from("retry.max_attempts"), &Json::from(1), &Json::from(4))
        );
    }
    let undone = shell.weir(&["flag", "undo", "--yes", "--json"]);
    let err = String::from_utf8_lossy(&undone.stderr).into_owned();
    assert!(err.contains("a change that was made past weir, and seen"), "{err}");
    let list = shell.json(&["flag", "list", "--json"]);
    assert_eq!(flag(&list, "retry.max_attempts")["override"], 1, "{list}");
    let verified = shell.said(&["audit", "verify"]);
    assert!(verified.contains("the chain holds"), "{verified}");
}

#[test]
fn a_litellm_says_why_it_holds_no_flags_and_what_does() {
    let config = "[flags]\nkind = 'litellm'\nurl = 'http://127.0.0.1:1'\n";
    let shell = Shell::new(config);
    let ran = shell.weir(&["flag", "list", "-c", "weir.toml"]);
    assert!(!ran.status.success());
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    for part in [
        "weir.toml:2",
        "flags.kind",
        "\"No DB Connected\"",
        "no revision",
        "`kind = \"weir\"`",
        "`num_retries` to 0",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
}

#[test]
fn one_store_at_a_time() {
    let shell = Shell::new("environment = 'x'\n");
    let both = shell.weir(&["flag", "list", "-c", "weir.toml", "--url", "http://127.0.0.1:1"]);
    let err = String::from_utf8_lossy(&both.stderr).into_owned();
    assert!(err.contains("give one of them"), "{err}");
    let none = shell.weir(&["flag", "list", "-c", "weir.toml"]);
    let err = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(err.contains("weir.toml: `flags`: there is none") && err.contains("--url"), "{err}");
    // A file without [flags] that is only there leaves the admin API as it was.
    let usual = shell.weir(&["flag", "list"]);
    let err = String::from_utf8_lossy(&usual.stderr).into_owned();
    assert!(err.contains("WEIR_ADMIN_TOKEN is not set"), "{err}");
}
