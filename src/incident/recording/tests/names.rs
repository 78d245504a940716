//! Recordings without names.

use super::*;

/// Everything that is legible in a file.
fn decoded(path: &std::path::Path) -> String {
    let bytes = std::fs::read(path).expect("a file");
    let plain = zstd::stream::decode_all(&bytes[..]).expect("frames of zstd");
    String::from_utf8(plain).expect("JSON Lines")
}

#[test]
fn names_are_gone_and_the_signals_are_the_same() {
    let recorded = record(130, "acme-corp");
    let path = recorded.folder.path().join("b.weir");
    let done = anonymise(&recorded.path, &path).expect("whole");
    let text = decoded(&path);
    for name in ["acme", "alice", "gw.internal", "user", "word", "acct"] {
        assert!(!text.contains(name), "{name}");
    }
    assert!(done.said.iter().any(|line| line.contains("1 tenant names")), "{:?}", done.said);
    let mut hidden = open(&path).expect("whole");
    let mut whole = open(&recorded.path).expect("whole");
    let (_, last) = whole.span().expect("looks");
    let there = whole.seek(last).expect("within").moment.observation.scopes[0].clone();
    let here = hidden.seek(last).expect("within").moment.observation.scopes[0].clone();
    assert_eq!(here.signals, there.signals);
    assert_ne!(here.scope, there.scope);
}

/// Whoever lost the news of an instance has its name on every other line.
#[test]
fn an_instance_that_was_never_announced_is_a_name_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("a.weir"), folder.path().join("b.weir"));
    for line in [
        r#"{"series":{"s":0,"i":"acme-1","n":[0],"names":["a"]}}"#,
        r#"{"scrape":{"s":0,"i":"acme-1","at_ns":1,"took_ns":0,"n":[],"v":[]}}"#,
        r#"{"failed":{"s":0,"i":"acme-1","at_ns":1,"why":"acme-1 is gone"}}"#,
        r#"{"marks":{"s":0,"i":"acme-1","at_ns":1,"names":[],"v":[]}}"#,
        r#"{"instances":{"s":0,"at_ns":1,"names":["acme-1"]}}"#,
        r#"{"shown":{"at_ns":1,"scopes":[{"scope":"s","window_s":1.0,"absent":{},"signals":
            {"tenants":{"value":[{"id":"acme-1"}],"age_s":0.0,"source":"acme-1","quality":"exact","note":"acme-1"}}}]}}"#,
    ] {
        let look = "{\"look\":{\"at_ns\":2,\"wall\":\"1970-01-01T00:00:00Z\"}}";
        let lines = format!("{}\n{look}\n", line.replace('\n', ""));
        std::fs::write(&from, framed(lines.as_bytes())).expect("a file");
        anonymise(&from, &to).expect("whole");
        let text = decoded(&to);
        assert!(!text.contains("acme"), "{line}: {text}");
        std::fs::remove_file(&to).expect("a file");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_tenant_is_left_in_the_text(tenant in "[a-z]{5,9}[-. ]?[0-9a-zäß]{2,6}") {
        let recorded = record(3, &tenant);
        prop_assert!(decoded(&recorded.path).contains(&tenant));
        let path = recorded.folder.path().join("b.weir");
        anonymise(&recorded.path, &path).expect("whole");
        prop_assert!(!decoded(&path).contains(&tenant));
    }
}
