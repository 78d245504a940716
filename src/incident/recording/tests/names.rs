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
