//! `weir gateway` as a process: what its ready line says, where token and overrides are kept.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

const TOKEN: &str = "secret-of-the-test";
const CONFIG: &str = "\
[[scope]]
name = 'openai/acct-1/embed'
tpm = 1000

[gateway]
listen = '127.0.0.1:0'
admin_listen = '127.0.0.1:0'
upstream = 'http://127.0.0.1:9'
";

/// A gateway that has said its addresses; it ends with this value.
struct Running {
    child: Child,
    ready: Value,
    line: String,
}

impl Running {
    fn start(home: &Path, extra: &str, args: &[&str]) -> Self {
        let mut child = command(home, extra, args).spawn().expect("weir starts");
        let stdout = child.stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("UTF-8");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut said = String::new();
            let _ = child.stderr.take().expect("a pipe").read_to_string(&mut said);
            panic!("{error}: {line}{said}")
        });
        Self { child, ready, line }
    }

    fn admin(&self) -> String {
        format!("http://{}", self.ready["admin"].as_str().expect("an address"))
    }

    fn token_file(&self) -> PathBuf {
        PathBuf::from(self.ready["token_file"].as_str().expect("a path"))
    }

    /// Ends it and returns its log.
    fn log(mut self) -> String {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut log).expect("UTF-8");
        log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(home: &Path, extra: &str, args: &[&str]) -> Command {
    let file = home.join("weir.toml");
    std::fs::write(&file, format!("{CONFIG}{extra}")).expect("the folder can be written to");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["gateway", "-c"]).arg(file).args(args);
    command.env("XDG_STATE_HOME", home.join("state")).env("WEIR_TEST_TOKEN", TOKEN);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code and output of `weir flag` on this gateway.
fn flag(gateway: &Running, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["flag", "--url", &gateway.admin(), "--token-file"])
        .arg(gateway.token_file())
        .args(args)
        .env("XDG_STATE_HOME", gateway.token_file().parent().expect("a folder"))
        .env("WEIR_ACTOR", "alice")
        .output()
        .expect("weir starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_token_from_the_environment_is_never_printed() {
    let home = tempfile::tempdir().expect("a folder");
    for args in [&[] as &[_], &["--exit-on-stdin-eof"]] {
        let gateway = Running::start(home.path(), "admin_token_env = 'WEIR_TEST_TOKEN'", args);
        assert!(!gateway.line.contains("token"), "{}", gateway.line);
    }
    let made = Running::start(home.path(), "", &["--exit-on-stdin-eof"]);
    assert!(made.ready["token"].is_string() && made.ready["token_file"].is_null(), "a parent's");
}

#[test]
fn a_token_that_weir_made_goes_to_a_file_of_its_owner_and_overrides_survive() {
    let home = tempfile::tempdir().expect("a folder");
    let first = Running::start(home.path(), "instance = 'gw/1'", &[]);
    assert_eq!(first.ready["token"], Value::Null, "{}", first.line);
    let file = first.token_file();
    assert_eq!(file, home.path().join("state/weir/gateway-gw_1.token"));
    let mode = std::fs::metadata(&file).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let change = ["set", "queue.max_depth=10", "--reason", "test", "--yes"];
    let (code, said) = flag(&first, &change);
    assert_eq!(code, Some(0), "{said}");
    drop(first);
    let named = home.path().join("named").display().to_string();
    let again = Running::start(home.path(), "instance = 'gw/1'", &["--token-file", &named]);
    assert_eq!(again.ready["token_file"], json!(named));
    let (code, said) = flag(&again, &["get", "queue.max_depth"]);
    assert!(code == Some(0) && said.contains("override  10"), "{said}");
}

#[test]
fn an_original_that_is_not_served_is_a_line_in_the_log_with_neither_prompt_nor_key() {
    let home = tempfile::tempdir().expect("a folder");
    let gateway = Running::start(home.path(), "admin_token_env = 'WEIR_TEST_TOKEN'", &[]);
    let data = gateway.ready["data"].as_str().expect("an address");
    let mut stream = std::net::TcpStream::connect(data).expect("it listens");
    let ask = |stream: &mut std::net::TcpStream, more: &str| {
        let body = format!(r#"{{"model":"m","input":"a secret prompt"{more}}}"#);
        write!(
            stream,
            "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-secret-key\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("it reads");
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).expect("an answer");
        String::from_utf8_lossy(&chunk[..read]).into_owned()
    };
    let refused = ask(&mut stream, r#","max_tokens":1000000"#);
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    let failed = ask(&mut stream, "");
    assert!(failed.starts_with("HTTP/1.1 502"), "{failed}");
    drop(stream);
    let log = gateway.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("not served")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    for (line, parts) in lines.iter().zip([
        ["request=1", "status=429", "refused; reason="],
        ["request=2", "status=502", "scope=\"openai/acct-1/embed\""],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert!(!log.contains("secret prompt") && !log.contains("sk-secret-key"), "{log}");
}

#[test]
fn a_changed_file_is_taken_over_at_sighup_and_a_wrong_one_is_not() {
    let home = tempfile::tempdir().expect("a folder");
    let gateway =
        Running::start(home.path(), "body_max = 10\nadmin_token_env = 'WEIR_TEST_TOKEN'", &[]);
    let file = home.path().join("weir.toml");
    let metrics = || http(gateway.ready["admin"].as_str().expect("an address"), "GET /metrics", "");
    let hang_up = || {
        let process = rustix::process::Pid::from_child(&gateway.child);
        rustix::process::kill_process(process, rustix::process::Signal::HUP).expect("it runs");
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(20), "never: {what}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let data = gateway.ready["data"].as_str().expect("an address");
    let status = || http(data, "POST /v1/embeddings", r#"{"model":"m","input":"longer"}"#);
    assert!(status().starts_with("HTTP/1.1 413"), "{}", status());
    let limit = |n: &str| {
        let page = metrics();
        page.lines().any(|line| line.starts_with("weir_quota_limit") && line.ends_with(n))
    };
    assert!(limit(" 1000"), "{}", metrics());

    let raised =
        CONFIG.replace("tpm = 1000", "tpm = 5000").replace("127.0.0.1:9'", "127.0.0.1:10'");
    let rest = "admin_token_env = 'WEIR_TEST_TOKEN'\n[gateway.flags]\n'queue.max_depth' = 77";
    std::fs::write(&file, format!("{raised}{rest}")).expect("it can be written to");
    hang_up();
    until("the new quota", &|| limit(" 5000"));
    until("the new body_max", &|| status().starts_with("HTTP/1.1 502"));
    let base = |line: &str| line.contains("\"queue.max_depth\"") && line.contains("\"77\"");
    assert!(metrics().lines().any(base), "{}", metrics());

    // Neither nonsense nor other scopes: what runs goes on.
    let taken = |n: &str| metrics().contains(&format!("weir_config_last_reload_successful {n}"));
    for wrong in [format!("{CONFIG}body_max = 'x'"), CONFIG.replace("acct-1", "acct-2")] {
        assert!(taken("1"));
        std::fs::write(&file, wrong).expect("it can be written to");
        hang_up();
        until("that it is refused", &|| taken("0"));
        assert!(limit(" 5000") && status().starts_with("HTTP/1.1 502"));
        std::fs::write(&file, format!("{raised}{rest}")).expect("it can be written to");
        hang_up();
        until("the right one again", &|| taken("1"));
    }
    let log = gateway.log();
    for words in ["stays=\"gateway.upstream\"", "weir.toml:9:12", "restart the gateway to add"] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

/// One request over a connection of its own, and all that is said to it.
fn http(address: &str, line: &str, body: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}");
    write!(stream, "{head}\r\n\r\n{body}").expect("it reads");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("UTF-8");
    said
}

#[test]
fn two_gateways_of_one_name_do_not_share_their_files() {
    let home = tempfile::tempdir().expect("a folder");
    let first = Running::start(home.path(), "", &[]);
    let second = command(home.path(), "", &[]).output().expect("weir starts");
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another gateway `weir-1` runs") && said.contains("gateway.instance"));
    drop(first);
    Running::start(home.path(), "", &[]);
}

#[test]
fn without_a_state_directory_it_serves_and_says_what_is_lost() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join("state"), "").expect("the folder can be written to");
    let gateway = Running::start(home.path(), "admin_token_env = 'WEIR_TEST_TOKEN'", &[]);
    let log = gateway.log();
    assert!(log.contains("WILL NOT SURVIVE A RESTART") && log.contains("state_file"), "{log}");
    let refused = command(home.path(), "", &[]).output().expect("weir starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("--token-file"), "{said}");
}

/// The words that pass interlocks with the token of this file.
fn token(file: &str) -> [&str; 4] {
    ["--break-glass", "the cure is behind it", "--break-glass-token-file", file]
}

/// What is kept in a safe.
const GLASS: &str = "the second token of the test";

#[test]
fn interlocks_are_passed_from_the_command_line_with_the_second_token_and_a_reason() {
    let home = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).expect("the folder can be written to");
        path.display().to_string()
    };
    let glass = file("glass", GLASS);
    let extra = format!("break_glass_token_file = '{glass}'");
    let gateway = Running::start(home.path(), &extra, &[]);
    let off = ["set", "admission.mode=off", "--reason", "the gate is ill", "--yes"];
    let ask = |more: &[&str]| flag(&gateway, &[&off[..], more].concat());
    let json = |args: &[&str]| {
        let (code, said) = flag(&gateway, &[args, &["--json"]].concat());
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str::<Value>(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    };

    // Refused, and the refusal names the way past it and what that would override.
    let (code, said) = ask(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("REFUSED: ") && said.contains("the way past it is --break-glass"),
        "{said}"
    );
    let (code, said) = flag(&gateway, &["plan", "admission.mode=off", "--reason", "r"]);
    assert!(code == Some(1) && said.contains("it would override:\n"), "{said}");
    assert!(said.contains("           amplification < 1.1: "), "{said}");

    // Not without a reason, a token, and somebody's word.
    let why = ["--break-glass", "the cure is behind it"];
    let (code, said) = ask(&["--break-glass", " ", "--break-glass-token-file", &glass]);
    assert!(code == Some(1) && said.contains("needs a reason"), "{said}");
    let (code, said) = ask(&why);
    assert!(code == Some(1) && said.contains("WEIR_BREAK_GLASS_TOKEN"), "{said}");
    let (code, said) = flag(&gateway, &[&off[..4], &token(&glass)[..]].concat());
    assert!(code == Some(2) && said.contains("nobody is there to confirm"), "{said}");
    let (code, said) = ask(&["--break-glass-token-file", &glass]);
    assert_eq!(code, Some(2), "a token alone is no wish: {said}");
    // The admin token is not the second one, nor is a guess; nor is the second one the admin's.
    for wrong in [gateway.token_file().display().to_string(), file("guess", "guessed")] {
        let (code, said) = ask(&token(&wrong));
        assert!(code == Some(1) && said.contains("needs the second token"), "{said}");
        assert!(said.contains("refused, nothing was stored"), "{said}");
    }
    let swapped = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["flag", "--url", &gateway.admin(), "--token-file", &glass, "list"])
        .output()
        .expect("weir starts");
    assert_eq!(swapped.status.code(), Some(1), "{swapped:?}");
    assert_eq!(json(&["list"])["revision"], 0, "nothing was stored");

    // A look says what would be overridden, and changes nothing.
    let plan = json(&[&["plan", "admission.mode=off", "--reason", "r"], &why[..]].concat());
    assert_eq!((&plan["refused"], &plan["break_glass"]), (&Value::Null, &json!(why[1])), "{plan}");
    let overrides = plan["overrides"].as_array().expect("a list");
    let first = overrides.first().and_then(Value::as_str).expect("a guard");
    assert!(first.contains("amplification"), "{plan}");

    let (code, said) = ask(&token(&glass));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("BREAK-GLASS (the cure is behind it) OVERRIDES: amplification"),
        "{said}"
    );
    let (_, list) = flag(&gateway, &["list"]);
    let row = list.lines().find(|row| row.starts_with("admission.mode ")).expect("a row");
    assert!(row.contains("alice (break-glass)") && row.ends_with(", PAST THE INTERLOCKS"), "{row}");
    let flags = json(&["list"]);
    let marked = flags["flags"].as_array().expect("a list").iter();
    let marked: Vec<_> = marked.filter(|flag| flag["break_glass"] == true).collect();
    assert_eq!(marked.len(), 1, "{flags}");
    let (_, events) = flag(&gateway, &["events"]);
    assert!(events.contains("BREAK-GLASS (the cure is behind it) past: amplification"), "{events}");
    let journal = gateway.token_file().parent().expect("a folder").join("weir/journal.jsonl");
    let text = std::fs::read_to_string(&journal).expect("it was written");
    assert!(text.contains("\"override_reason\":\"the cure is behind it\""), "{text}");
    assert!(text.contains("\"overridden\":[\"amplification") && !text.contains(GLASS), "{text}");

    // Where nothing stands in the way it is an ordinary flip, and marked as none.
    let calm = ["set", "admission.mode=enforce", "--reason", "well again", "--yes"];
    let (code, said) = flag(&gateway, &[&calm[..], &token(&glass)[..]].concat());
    assert!(code == Some(0) && said.contains("nothing refuses as far as is known"), "{said}");
    let (_, list) = flag(&gateway, &["list"]);
    assert!(!list.contains("PAST THE INTERLOCKS"), "{list}");
}

#[test]
fn a_gateway_without_a_second_token_says_how_to_have_one() {
    let home = tempfile::tempdir().expect("a folder");
    let gateway = Running::start(home.path(), "", &[]);
    let glass = home.path().join("glass");
    std::fs::write(&glass, GLASS).expect("the folder can be written to");
    let glass = glass.display().to_string();
    let off = ["set", "admission.mode=off", "--reason", "r", "--yes", "--break-glass", "cure"];
    let (code, said) = flag(&gateway, &[&off[..], &["--break-glass-token-file", &glass]].concat());
    assert!(code == Some(1) && said.contains("gateway.break_glass_token_env"), "{said}");
}
