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

/// A source with these lines, from line 3.
fn source(lines: &str) -> String {
    format!("[[source]]\nname = 'a'\nadapter = 'weir'\n{lines}\n")
}

#[test]
fn a_source_is_in_one_place_and_no_key_is_in_vain() {
    let page = "url = 'http://127.0.0.1:1/metrics'";
    let with = |extra: &str| source(&format!("{page}\n{extra}"));
    let dns = |extra: &str| source(&format!("dns = 'gw:4000'\n{extra}"));
    let prometheus = |extra: &str| source(&format!("prometheus = 'http://p:9090'\n{extra}"));
    let cases: [(&str, String, &[&str]); 22] = [
        ("nowhere.toml", source(""), &[":1:1: `source[0]`", "add one of `url`, `urls`, `dns`"]),
        ("both.toml", with("dns = 'gw:4000'"), &[":5:1: `source[0].dns`", "beside `url`"]),
        ("roads.toml", with("prometheus = 'http://p'"), &[":5:1: `source[0].prometheus`"]),
        ("select.toml", with("select = 'a=\"b\"'"), &[":5:1: `source[0].select`", "`prometheus`"]),
        ("path.toml", with("path = '/m'"), &[":5:1: `source[0].path`", "`dns` or `file_sd`"]),
        ("slash.toml", dns("path = 'm'"), &[":5:1: `source[0].path`", "begins with `/`"]),
        ("scheme.toml", dns("scheme = 'ftp'"), &[":5:10: `source[0].scheme`", "http"]),
        ("port.toml", source("dns = 'gw'"), &[":4:1: `source[0].dns`", "name:port"]),
        ("url.toml", source("url = 'gw:4000'"), &[":4:1: `source[0].url`", "http://host:port"]),
        ("user.toml", source("url = 'http://u:pw@gw/'"), &[":4:1: `source[0].url`", "`basic`"]),
        ("urls.toml", source("urls = []"), &[":4:1: `source[0].urls`", "at least one"]),
        ("second.toml", source("urls = ['http://a/', 'b']"), &[":4:22: `source[0].urls[1]`"]),
        ("files.toml", source("file_sd = []"), &[":4:1: `source[0].file_sd`", "1 to 32"]),
        ("folder.toml", source("file_sd = ['*/a.json']"), &["`source[0].file_sd[0]`", "last part"]),
        ("interval.toml", with("interval_s = 0.5"), &[":5:1: `source[0].interval_s`", "1 to 60"]),
        ("slow.toml", with("interval_s = 61"), &[":5:1: `source[0].interval_s`", "1 to 60"]),
        ("timeout.toml", with("timeout_s = 0"), &[":5:1: `source[0].timeout_s`", "positive"]),
        ("huge.toml", with("timeout_s = 1e300"), &[":5:1: `source[0].timeout_s`"]),
        ("api.toml", source("prometheus = 'p:9090'"), &[":4:1: `source[0].prometheus`"]),
        ("match.toml", prometheus("select = 'job'"), &[":5:1: `source[0].select`", "job="]),
        ("twice_named.toml", with("") + &with(""), &["`source[1].name`", "its own name"]),
        ("key.toml", with("urll = 'x'"), &[":5:1: `source[0].urll`", "`file_sd`"]),
    ];
    for (name, text, words) in cases {
        refused("doctor", &format!("source_{name}"), &text, words);
    }
}

/// A source, and `[flags]` at line 5 with these lines from line 6.
fn flags(lines: &str) -> String {
    source("url = 'http://127.0.0.1:1/'") + "[flags]\n" + lines
}

/// An etcd with these lines from line 9.
fn etcd(lines: &str) -> String {
    flags(&format!("kind = 'etcd'\nurl = 'http://127.0.0.1:1'\nnamespace = 'prod'\n{lines}"))
}

/// An Unleash with these lines from line 9.
fn unleash(lines: &str) -> String {
    flags(&format!("kind = 'unleash'\nurl = 'http://127.0.0.1:1'\ntoken_env = 'PATH'\n{lines}"))
}

/// An Envoy with these lines of its map from line 9.
fn envoy(lines: &str) -> String {
    flags(&format!("kind = 'envoy'\ninstances = ['http://127.0.0.1:1']\n[flags.map]\n{lines}"))
}

#[test]
fn a_flag_store_has_the_keys_of_its_kind_and_no_others() {
    let cases: [(&str, String, &[&str]); 7] = [
        ("kind.toml", flags("kind = 'redis'"), &[":6:8: `flags.kind`", "`flagd`", "words named"]),
        ("no_url.toml", flags(""), &[":5:2: `flags.url`: is missing", "\"weir\"", "9901"]),
        (
            "weir_namespace.toml",
            flags("url = 'http://127.0.0.1:1'\nnamespace = 'prod'"),
            &[":7:1: `flags.namespace`", "is for `kind = \"etcd\"`", "correct `kind`"],
        ),
        (
            "weir_base.toml",
            flags("url = 'http://127.0.0.1:1'\n[flags.base]\n'retry.owner' = 'client'"),
            &[":7:8: `flags.base`", "into [gateway.flags]"],
        ),
        ("flagd_file.toml", flags("kind = 'flagd'"), &[":5:2: `flags.file`: is missing"]),
        (
            "flagd_url.toml",
            flags("kind = 'flagd'\nfile = 'flags.json'\nurl = 'http://127.0.0.1:1'"),
            &[":8:1: `flags.url`", "and this is \"flagd\""],
        ),
        (
            "flagd_map.toml",
            flags("kind = 'flagd'\nfile = 'flags.json'\n[flags.map]\n'retry.owner' = 'r'"),
            &[":8:8: `flags.map`", "is for `kind = \"envoy\"`"],
        ),
    ];
    for (name, text, words) in cases {
        refused("watch", &format!("flags_{name}"), &text, words);
    }
}

#[test]
fn flags_in_etcd_have_a_namespace_and_a_whole_log_in() {
    let cases: [(&str, String, &[&str]); 11] = [
        ("etcd_url.toml", flags("kind = 'etcd'"), &[":5:2: `flags.url`: is missing", "2379"]),
        (
            "etcd_namespace.toml",
            flags("kind = 'etcd'\nurl = 'http://127.0.0.1:1'"),
            &[":5:2: `flags.namespace`: is missing", "payments-prod"],
        ),
        (
            "etcd_slash.toml",
            flags("kind = 'etcd'\nurl = 'http://127.0.0.1:1'\nnamespace = 'a/b'"),
            &[":8:1: `flags.namespace`", "`a/b`", "one word"],
        ),
        (
            "etcd_address.toml",
            flags("kind = 'etcd'\nurl = 'localhost:2379'\nnamespace = 'a'"),
            &[":7:1: `flags.url`", "http://127.0.0.1:2379"],
        ),
        ("etcd_user.toml", etcd("user = 'me'"), &[":9:1: `flags.user`", "add `password_env`"]),
        (
            "etcd_nobody.toml",
            etcd("password_env = 'PATH'"),
            &[":9:1: `flags.password_env`", "add `user`"],
        ),
        (
            "etcd_two.toml",
            etcd("user = 'me'\npassword_env = 'PATH'\npassword_file = 'x'"),
            &[":11:1: `flags.password_file`", "remove one"],
        ),
        (
            "etcd_token.toml",
            etcd("token_env = 'PATH'"),
            &[":9:1: `flags.token_env`", "`kind = \"weir\"` or `kind = \"unleash\"`"],
        ),
        (
            "etcd_base.toml",
            etcd("[flags.base]\n'retry.max_attempts' = 9"),
            &[":10:1: `flags.base.retry.max_attempts`", "from 1 to 4"],
        ),
        (
            "etcd_quotes.toml",
            etcd("[flags.base]\nretry.owner = 'client'"),
            &[":10:1: `flags.base.retry`", "\"retry.owner\" = ..."],
        ),
        (
            "etcd_gateway.toml",
            etcd(
                "[gateway]\nlisten = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\n\
                  upstream = 'http://x'\n[gateway.flags]\n'retry.owner' = 'nobody'",
            ),
            &[":14:1: `gateway.flags.retry.owner`", "write gateway, client"],
        ),
    ];
    for (name, text, words) in cases {
        refused("watch", &format!("flags_{name}"), &text, words);
    }
}

#[test]
fn flags_in_unleash_have_a_token_and_plain_names() {
    let cases: [(&str, String, &[&str]); 5] = [
        (
            "unleash_token.toml",
            flags("kind = 'unleash'\nurl = 'http://127.0.0.1:1'"),
            &[":5:2: `flags`", "add `token_env` or `token_file`"],
        ),
        ("unleash_project.toml", unleash("project = 'a/b'"), &[":9:1: `flags.project`", "`a/b`"]),
        (
            "unleash_environment.toml",
            unleash("environment = 'a b'"),
            &[":9:1: `flags.environment`", "`a b`"],
        ),
        ("unleash_prefix.toml", unleash("prefix = '#'"), &[":9:1: `flags.prefix`", "`#`"]),
        (
            "unleash_sdk.toml",
            unleash("sdk_token_env = 'WEIR_TEST_NOT_SET'"),
            &[":9:1: `flags.sdk_token_env`", "export WEIR_TEST_NOT_SET"],
        ),
    ];
    for (name, text, words) in cases {
        refused("watch", &format!("flags_{name}"), &text, words);
    }
}

#[test]
fn flags_in_envoy_are_mapped_one_to_one() {
    let cases: [(&str, String, &[&str]); 9] = [
        (
            "envoy_nobody.toml",
            flags("kind = 'envoy'"),
            &[":5:2: `flags.instances`: is missing", "list the admin ports"],
        ),
        (
            "envoy_map.toml",
            flags("kind = 'envoy'\ninstances = ['http://127.0.0.1:1']"),
            &[":5:2: `flags.map`: is missing", "add [flags.map]"],
        ),
        (
            "envoy_twice.toml",
            flags(
                "kind = 'envoy'\ninstances = ['http://a:1', 'http://a:1']\n\
                   map = { 'retry.max_attempts' = 'r' }",
            ),
            &[":7:28: `flags.instances[1]`", "listed twice"],
        ),
        ("envoy_flag.toml", envoy("'retry.maximum' = 'r'"), &[":9:1: `flags.map.retry.maximum`"]),
        (
            "envoy_scale.toml",
            envoy("'retry.max_attempts' = { key = 'r', scale = 0 }"),
            &[":9:1: `flags.map.retry.max_attempts`", "a scale above 0"],
        ),
        (
            "envoy_words.toml",
            envoy("'retry.owner' = 'r'"),
            &[":9:1: `flags.map.retry.owner`", "others a table"],
        ),
        (
            "envoy_both.toml",
            envoy("'retry.owner' = { key = 'r', scale = 1, values = { client = 1 } }"),
            &[":9:1: `flags.map.retry.owner`", "`scale` and `values`"],
        ),
        (
            "envoy_shared.toml",
            envoy("'retry.max_attempts' = 'r'\n'retry.budget_ratio' = 'r'"),
            &["`flags.map.retry.", "has the runtime key of", "of its own"],
        ),
        (
            "envoy_quotes.toml",
            envoy("retry.owner = 'r'"),
            &[":9:1: `flags.map.retry`", "needs its quotes"],
        ),
    ];
    for (name, text, words) in cases {
        refused("watch", &format!("flags_{name}"), &text, words);
    }
}

#[test]
fn access_keys_are_refused_without_showing_a_secret() {
    let with = |extra: &str| source(&format!("url = 'http://127.0.0.1:1/metrics'\n{extra}"));
    let unset = "WEIR_TEST_NOT_SET";
    let cases: [(&str, String, &[&str]); 14] = [
        (
            "two_tokens.toml",
            with("token_env = 'PATH'\ntoken_file = 'x'"),
            &[":6:1: `source[0].token_file`", "remove one"],
        ),
        ("no_token.toml", with("token_file = 'no-token'"), &[":5:1: `source[0].token_file`"]),
        ("no_word.toml", with("basic = { user = 'me' }"), &["`source[0].basic`", "`password_env`"]),
        (
            "word.toml",
            with(&format!("basic = {{ user = 'me', password_env = '{unset}' }}")),
            &["`source[0].basic.password_env`", "export WEIR_TEST_NOT_SET"],
        ),
        (
            "two_ways.toml",
            with("token_env = 'PATH'\nheaders = { Authorization = 'x' }"),
            &["`source[0]`", "two ways", "keep the token"],
        ),
        (
            "header.toml",
            with("headers = { 'X Y' = 'x' }"),
            &["`source[0].headers.X Y`", "X-Scope-OrgID"],
        ),
        ("line.toml", with("headers = { X = \"a\\nb\" }"), &["`source[0].headers.X`", "one line"]),
        (
            "number_header.toml",
            with("headers = { X = 7 }"),
            &["`source[0].headers.X`", "{ env = \"VARIABLE\" }"],
        ),
        (
            "header_env.toml",
            with(&format!("headers = {{ X = {{ env = '{unset}' }} }}")),
            &["`source[0].headers.X`", "export WEIR_TEST_NOT_SET"],
        ),
        ("ca.toml", with("tls = { ca_file = 'no-ca.pem' }"), &["`source[0].tls.ca_file`"]),
        ("half.toml", with("tls = { cert_file = 'a' }"), &["`source[0].tls`", "`key_file`"]),
        (
            "name.toml",
            with("tls = { server_name = 'no name' }"),
            &["`source[0].tls.server_name`", "no name of a server"],
        ),
        ("tls.toml", with("tls = { ca = 'a' }"), &["`source[0].tls.ca`", "`ca_file`"]),
        ("user.toml", with("basic = { password_env = 'x' }"), &["`source[0].basic`", "user"]),
    ];
    for (name, text, words) in cases {
        refused("doctor", &format!("access_{name}"), &text, words);
    }
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
