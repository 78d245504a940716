//! A wrong `weir.toml` is refused with file, line, key and what is allowed, before anything starts.

use std::path::{Path, PathBuf};
use std::process::Command;

const GATEWAY: &str = "\
[[scope]]
name = 'openai/acct-1/embed'
tpm = 1000

[gateway]
listen = '127.0.0.1:0'
admin_listen = '127.0.0.1:0'
upstream = 'http://127.0.0.1:9'
";

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the target folder can be written to");
    path
}

/// Runs `weir COMMAND -c FILE` and checks the words of its refusal.
fn refused(command: &str, name: &str, text: &str, words: &[&str]) {
    let path = file(name, text);
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args([command, "-c"])
        .arg(&path)
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("weir starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{name}: {errors}");
    assert!(output.stdout.is_empty(), "{name} prints nothing else");
    assert!(!errors.contains('\u{1b}') && !errors.contains("caused by"), "{name}: {errors}");
    for word in [name].iter().chain(words) {
        assert!(errors.contains(word), "{name}: no `{word}` in: {errors}");
    }
}

#[test]
fn the_gateway_names_file_line_key_and_what_is_allowed() {
    let with = |extra: &str| format!("{GATEWAY}{extra}");
    let flag = |line: &str| format!("{GATEWAY}[gateway.flags]\n{line}");
    let cases: [(&str, String, &[&str]); 19] = [
        ("key.toml", with("lisen = '127.0.0.1:1'"), &[":9:", "lisen", "listen"]),
        ("type.toml", with("attempt_timeout_s = 'long'"), &[":9:", "attempt_timeout_s"]),
        ("flag.toml", flag("'retry.max_attempts' = 9"), &[":10:1: `gateway.flags", "from 1 to 4"]),
        ("flags.toml", flag("'retry.maximum' = 1"), &[":10:1: ", "flags are: admission"]),
        ("quotes.toml", flag("retry.owner = 'client'"), &[":10:1: ", "\"retry.owner\" = ..."]),
        ("list.toml", flag("'retry.owner' = []"), &[":10:1: ", "write gateway, client"]),
        (
            "token.toml",
            with("admin_token_env = 'WEIR_TEST_NOT_SET'"),
            &[":9:1: `gateway.admin_token_env`", "export WEIR_TEST_NOT_SET"],
        ),
        (
            "caller.toml",
            with("[[gateway.key]]\ntenant = 'a'\nkey_env = 'WEIR_TEST_NOT_SET'"),
            &[":11:1: `gateway.key[0].key_env`"],
        ),
        (
            "upstream.toml",
            GATEWAY.replace("http://", "ftp://"),
            &[":8:1: `gateway.upstream`", "ftp://127.0.0.1:9", "write http://"],
        ),
        (
            "listen.toml",
            GATEWAY.replace("listen = '127.0.0.1:0'\nadmin", "listen = 'nonsense'\nadmin"),
            &[":6:10: `gateway.listen`", "such as 127.0.0.1:8080"],
        ),
        (
            "rpm.toml",
            GATEWAY.replace("tpm = 1000", "rpm = -5"),
            &[":3:1: `scope[0].rpm`", "not -5 (scope `openai/acct-1/embed`)"],
        ),
        (
            "zero.toml",
            GATEWAY.replace("tpm = 1000", "tpm = 0"),
            &[":3:1: `scope[0].tpm`", "positive"],
        ),
        (
            "number.toml",
            GATEWAY.replace("1000", "'many'"),
            &[":3:7: `scope[0].tpm`", "expected a number;"],
        ),
        (
            "attempts.toml",
            GATEWAY.replace("tpm = 1000", "max_attempts_configured = 0"),
            &[":3:1: "],
        ),
        (
            "twice.toml",
            with("[[scope]]\nname = 'openai/acct-1/embed'"),
            &[":10:1: `scope[1].name`", "twice"],
        ),
        (
            "control.toml",
            GATEWAY.replace("'openai/acct-1/embed'", "\"a\\u001b[2J\""),
            &[":2:1: `scope[0].name`", "control characters"],
        ),
        ("empty.toml", String::new(), &["`gateway`: there is no", "add [gateway] with"]),
        ("half.toml", "[gateway".to_owned(), &[":1:"]),
        ("model.toml", with("[[scope]]\nname = 'b'\nmodel = 'x'"), &[":11:", "model", "models"]),
    ];
    for (name, text, words) in cases {
        refused("gateway", name, &text, words);
    }
}

#[test]
fn watch_names_what_is_missing() {
    refused(
        "watch",
        "nothing.toml",
        "environment = 'x'",
        &["`source`: there is none", "add [[source]] with"],
    );
    let source = "[[source]]\nname = 'a'\nadapter = 'carrier-pigeon'\nurl = 'http://127.0.0.1:1'";
    refused(
        "watch",
        "adapter.toml",
        source,
        &[":3:1: `source[0].adapter`", "carrier-pigeon", "simprov"],
    );
    let token = source.replace("carrier-pigeon", "weir") + "\ntoken_env = 'WEIR_TEST_NOT_SET'";
    refused("watch", "source.toml", &token, &[":5:1: `source[0].token_env`", "WEIR_TEST_NOT_SET"]);
    let flags = source.replace("carrier-pigeon", "weir") + "\n[flags]\nurl = 'http://127.0.0.1:1'";
    refused("watch", "flags_token.toml", &flags, &[":5:2: `flags`", "add `token_env`"]);
    let flags = flags + "\ntoken_env = 'WEIR_TEST_NOT_SET'";
    refused("watch", "flags_env.toml", &flags, &[":7:1: `flags.token_env`", "export WEIR_TEST"]);
    refused("watch", "section.toml", "[source]\nname = 'a'", &[":1:", "[[name]]"]);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["gateway", "-c", "no-such-file.toml"])
        .output()
        .expect("weir starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("no-such-file.toml") && errors.contains("-c FILE"), "{errors}");
}
