//! Whatever is done to a journal's file shows, by its chain, by the anchors that the store keeps with each
//! flip, or by the hash of its end that a person keeps. `WEIR_TAMPERINGS` makes more than the usual 1,000.
//!
//! What only the last of the three shows is said here too: entries behind the last flip.

use std::path::{Path, PathBuf};

use chrono::{DateTime, TimeDelta};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use weir::flag::wire::WireOnExpire;
use weir::incident::{Anchor, Event, Journal, check_anchors, contains_hash, verify};

/// Flips of the journal under test; behind the last there is its outcome and a note.
const FLIPS: usize = 12;

struct Kept {
    text: String,
    /// What the store was given with each flip.
    anchors: Vec<Anchor>,
    /// What a person has written down of its end.
    head: String,
}

fn whole() -> Kept {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("journal.jsonl");
    let (journal, _) = Journal::open(&path).expect("a new file");
    let mut anchors = Vec::new();
    for number in 0..FLIPS {
        let at = DateTime::UNIX_EPOCH + TimeDelta::seconds(i64::try_from(number).expect("few"));
        let (request_id, plan) = (format!("id-{number}"), "contain".to_owned());
        let actor = "alice".to_owned();
        let flip = Event::Flip {
            request_id: request_id.clone(),
            plan: plan.clone(),
            revision: 40 + number as u64,
            actor: actor.clone(),
            incident: None,
            reason: format!("storm {number}"),
            changes: Vec::new(),
            ttl_s: Some(900),
            on_expire: WireOnExpire::Remind,
            verify: "amplification < 1.1".to_owned(),
            store: None,
            notes: Box::default(),
        };
        let outcome = Event::Outcome {
            request_id,
            plan,
            end: "applied".to_owned(),
            say: "stored".to_owned(),
        };
        anchors.push(journal.append(&flip, at).expect("it can be written to"));
        journal.append(&outcome, at).expect("it can be written to");
        let note = Event::Note { actor, text: format!("quiet again, {number}") };
        journal.append(&note, at).expect("it can be written to");
    }
    let text = std::fs::read_to_string(&path).expect("it was written");
    Kept { text, anchors, head: journal.head().hash }
}

#[derive(Clone, Debug)]
enum Tampering {
    Byte {
        at: prop::sample::Index,
        to: u8,
    },
    Cut(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Double {
        from: prop::sample::Index,
        to: prop::sample::Index,
    },
    /// So many lines off the end.
    Tail(usize),
    /// The end of the last line, so that it is unfinished.
    Torn(usize),
    /// One line says something else, and its own hash fits.
    Forged(prop::sample::Index),
    /// The same, and so do all lines behind it.
    Rewritten(prop::sample::Index),
    Deleted,
    /// Nothing is left but an empty file.
    Emptied,
}

fn tamperings() -> impl Strategy<Value = Tampering> {
    use Tampering::{Byte, Cut, Deleted, Double, Emptied, Forged, Rewritten, Swap, Tail, Torn};
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (index(), any::<u8>()).prop_map(|(at, to)| Byte { at, to }),
        3 => index().prop_map(Cut),
        2 => (index(), index()).prop_map(|(one, other)| Swap(one, other)),
        2 => (index(), index()).prop_map(|(from, to)| Double { from, to }),
        3 => (1..3 * FLIPS).prop_map(Tail),
        1 => (1_usize..40).prop_map(Torn),
        3 => index().prop_map(Forged),
        3 => index().prop_map(Rewritten),
        1 => Just(Deleted),
        1 => Just(Emptied),
    ]
}

/// The line with the hash that its content has, and `prev` in place of what it follows on.
fn hashed(line: &str, prev: Option<&str>) -> String {
    let (open, _) = line.rsplit_once(",\"hash\":\"").expect("it ends in its hash");
    let mut open = open.to_owned();
    if let Some(prev) = prev {
        let (before, rest) = open.split_once("\"prev\":\"").expect("it has one");
        open = format!("{before}\"prev\":\"{prev}{}", &rest[64..]);
    }
    let hash = blake3::hash(format!("{open}}}").as_bytes()).to_hex();
    format!("{open},\"hash\":\"{hash}\"}}")
}

fn hash_of(line: &str) -> &str {
    let (_, hash) = line.rsplit_once(",\"hash\":\"").expect("it ends in its hash");
    hash.strip_suffix("\"}").expect("as it is written")
}

/// What is left of the file; `None` when there is no file. Unchanged where nothing was done.
fn tampered(text: &str, how: &Tampering) -> Option<Vec<u8>> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = lines.len();
    match how {
        Tampering::Byte { at, to } => {
            let mut bytes = text.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = *to;
            return Some(bytes);
        }
        Tampering::Torn(bytes) => return Some(text.as_bytes()[..text.len() - bytes].to_vec()),
        Tampering::Deleted => return None,
        Tampering::Emptied => return Some(Vec::new()),
        Tampering::Cut(at) => drop(lines.remove(at.index(count))),
        Tampering::Swap(one, other) => lines.swap(one.index(count), other.index(count)),
        Tampering::Double { from, to } => {
            lines.insert(to.index(count + 1), lines[from.index(count)].clone());
        }
        Tampering::Tail(cut) => lines.truncate(count - cut),
        Tampering::Forged(at) | Tampering::Rewritten(at) => {
            let at = at.index(count);
            let said = ["alice", "contain", "quiet"].iter().find(|word| lines[at].contains(**word));
            lines[at] = hashed(&lines[at].replacen(said.expect("each has one"), "nobody", 1), None);
            if matches!(how, Tampering::Rewritten(_)) {
                for place in at + 1..count {
                    let prev = hash_of(&lines[place - 1]).to_owned();
                    lines[place] = hashed(&lines[place], Some(&prev));
                }
            }
        }
    }
    let whole: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    Some(whole.into_bytes())
}

/// By what it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    Chain,
    Store,
    Head,
    Nothing,
}

fn found(path: &Path, kept: &Kept) -> By {
    let Ok(chain) = verify(path) else { return By::Chain };
    // An unfinished line, and a flip whose outcome is gone, are both said.
    if chain.torn_bytes > 0 || !chain.open_flips.is_empty() {
        return By::Chain;
    }
    let anchored = check_anchors(path, &kept.anchors).expect("the chain holds");
    // A journal that knows none of the flips that were made with it is another one.
    if !anchored.lost.is_empty() || anchored.held < kept.anchors.len() {
        return By::Store;
    }
    if contains_hash(path, &kept.head).expect("the chain holds") { By::Nothing } else { By::Head }
}

fn place(folder: &Path, bytes: Option<&[u8]>) -> PathBuf {
    let path = folder.join("journal.jsonl");
    match bytes {
        Some(bytes) => std::fs::write(&path, bytes).expect("it can be written to"),
        None => {
            let _ = std::fs::remove_file(&path);
        }
    }
    path
}

#[test]
fn whatever_is_done_to_the_file_shows() {
    let kept = whole();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let as_it_was = place(folder.path(), Some(kept.text.as_bytes()));
    assert_eq!(found(&as_it_was, &kept), By::Nothing, "nothing was done to it");
    let cases = std::env::var("WEIR_TAMPERINGS").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: cases.unwrap_or(1_000),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let tally = std::cell::RefCell::new(std::collections::BTreeMap::<By, u32>::new());
    let run = TestRunner::new(config).run(&tamperings(), |how| {
        let bytes = tampered(&kept.text, &how);
        prop_assume!(bytes.as_deref() != Some(kept.text.as_bytes()));
        let by = found(&place(folder.path(), bytes.as_deref()), &kept);
        *tally.borrow_mut().entry(by).or_default() += 1;
        prop_assert_ne!(by, By::Nothing, "{:?} was not found", how);
        // The chain up to the last flip and its outcome needs nobody's memory but the store's.
        let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
        let behind = kept.text.lines().count() - 1;
        let only_the_end = text.lines().zip(kept.text.lines()).take_while(|(a, b)| a == b).count();
        prop_assert!(
            by != By::Head || only_the_end + 2 >= behind,
            "{:?} in line {}",
            how,
            only_the_end
        );
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    let tally = tally.into_inner();
    for by in [By::Chain, By::Store, By::Head] {
        assert!(tally.get(&by).is_some_and(|count| *count > 0), "never found by {by:?}: {tally:?}");
    }
}
