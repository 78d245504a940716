//! The journal on real files: what is appended is read again, and what was tampered with is found.

use super::*;
use crate::flag::wire::WireOnExpire;
use std::os::unix::fs::PermissionsExt;

fn note(text: &str) -> Event {
    Event::Note { actor: "alice".to_owned(), text: text.to_owned() }
}

fn flip(request_id: &str) -> Event {
    Event::Flip {
        request_id: request_id.to_owned(),
        plan: "contain".to_owned(),
        revision: 41,
        actor: "alice".to_owned(),
        incident: None,
        reason: "storm".to_owned(),
        changes: Vec::new(),
        ttl_s: Some(1800),
        on_expire: WireOnExpire::Remind,
        verify: "amplification < 1.1".to_owned(),
        store: None,
        notes: Box::default(),
    }
}

fn outcome(request_id: &str, end: &str) -> Event {
    Event::Outcome {
        request_id: request_id.to_owned(),
        plan: "contain".to_owned(),
        end: end.to_owned(),
        say: String::new(),
    }
}

fn append(journal: &Journal, events: &[Event]) {
    for event in events {
        journal.append(event, DateTime::UNIX_EPOCH).expect("the disk is there");
    }
}

/// A directory, and a journal in it with three notes.
fn three() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("weir/journal.jsonl");
    let (journal, found) = Journal::open(&path).expect("a new file");
    assert_eq!(found, Found::default());
    append(&journal, &[note("one"), note("two"), note("three")]);
    (directory, path)
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("it was written");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("the disk is there");
}

#[test]
fn the_file_is_for_its_owner_only() {
    let (_directory, path) = three();
    let mode = std::fs::metadata(&path).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_line_has_the_promised_form() {
    let (_directory, path) = three();
    let text = std::fs::read_to_string(&path).expect("it was written");
    let first = text.lines().next().expect("three lines");
    let zeros = "0".repeat(64);
    let hashed = format!(
        "{{\"at\":\"1970-01-01T00:00:00.000Z\",\"event\":{{\"actor\":\"alice\",\
         \"kind\":\"note\",\"text\":\"one\"}},\"prev\":\"{zeros}\",\"seq\":1,\"v\":1}}"
    );
    let hash = blake3::hash(hashed.as_bytes()).to_hex();
    assert_eq!(first, format!("{},\"hash\":\"{hash}\"}}", &hashed[..hashed.len() - 1]));
}

#[test]
fn every_changed_byte_is_found_and_its_line_named() {
    let (_directory, path) = three();
    let good = std::fs::read(&path).expect("it was written");
    for at in 0..good.len() {
        if at + 1 == good.len() {
            continue; // The last line end: that is a torn line, and not a change.
        }
        edit(&path, |bytes| bytes[at] ^= 1);
        let line = good[..at].split(|byte| *byte == b'\n').count();
        let error = verify(&path).expect_err("a changed byte").to_string();
        assert!(error.contains(&format!("line {line}:")), "byte {at}: {error}");
        std::fs::write(&path, &good).expect("the disk is there");
    }
}

#[test]
fn lines_that_were_removed_swapped_or_doubled_are_found() {
    let check = |order: &[usize], line: u64| {
        let (_directory, path) = three();
        let text = std::fs::read_to_string(&path).expect("it was written");
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let edited: String = order.iter().map(|at| lines[*at]).collect();
        std::fs::write(&path, edited).expect("the disk is there");
        let error = verify(&path).expect_err("a broken chain");
        assert!(matches!(error, JournalError::Broken { line: at, .. } if at == line), "{error}");
    };
    check(&[1, 2], 1);
    check(&[0, 2], 2);
    check(&[0, 2, 1], 2);
    check(&[0, 1, 1, 2], 3);
}

#[test]
fn a_cut_tail_shows_against_an_anchor_only() {
    let (_directory, path) = three();
    let anchor = verify(&path).expect("whole").head.hash;
    assert!(contains_hash(&path, &anchor).expect("whole"));
    edit(&path, |bytes| {
        let end = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(end.expect("three lines") + 1);
    });
    assert_eq!(verify(&path).expect("a chain, only shorter").head.seq, 2);
    assert!(!contains_hash(&path, &anchor).expect("a chain, only shorter"));
}

#[test]
fn anchors_tell_a_cut_journal_from_a_whole_one_and_from_somebody_elses() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("journal.jsonl");
    let write = |id: &str| {
        let (journal, _) = Journal::open(&path).expect("whole");
        let anchor = journal.append(&flip(id), Utc::now()).expect("it is written");
        assert_eq!(Anchor::parse(&anchor.to_string()), Some(anchor.clone()));
        anchor
    };
    let mut anchors: Vec<Anchor> = ["a", "b", "c", "d"].map(write).into();
    let (_other, elsewhere) = three();
    let (other, _) = Journal::open(&elsewhere).expect("whole");
    anchors.push(other.append(&note("x"), Utc::now()).expect("it is written"));
    let found = check_anchors(&path, &anchors).expect("whole");
    assert_eq!(found, Anchored { held: 4, lost: Vec::new(), others: 1 });
    edit(&path, |bytes| {
        let end = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(end.expect("four lines") + 1);
    });
    let cut = Anchored { held: 3, lost: vec![anchors[3].clone()], others: 1 };
    assert_eq!(check_anchors(&path, &anchors).expect("a chain, only shorter"), cut);
    // Whoever cut it writes on: another entry now stands where the lost one stood.
    anchors.push(write("e"));
    assert_eq!((anchors[5].seq, &anchors[5].journal), (anchors[3].seq, &anchors[3].journal));
    let found = check_anchors(&path, &anchors).expect("a chain");
    assert_eq!(found, Anchored { held: 4, ..cut });
    for text in ["", "a:b:c", "a:1", "a:1:b:c"] {
        assert_eq!(Anchor::parse(text), None, "{text}");
    }
}

#[test]
fn a_torn_last_line_is_told_and_cut_at_the_next_append() {
    let (_directory, path) = three();
    edit(&path, |bytes| bytes.truncate(bytes.len() - 10));
    let (journal, found) = Journal::open(&path).expect("a crash is no tampering");
    assert_eq!(found.head.seq, 2);
    assert!(found.torn_bytes > 0);
    append(&journal, &[note("after")]);
    let found = verify(&path).expect("whole again");
    assert_eq!((found.head.seq, found.torn_bytes), (4, 0));
    let text = std::fs::read_to_string(&path).expect("it was written");
    assert!(text.lines().nth(2).is_some_and(|line| line.contains("\"kind\":\"torn\"")));
}

#[test]
fn two_writers_continue_one_chain() {
    let (_directory, path) = three();
    let (mine, _) = Journal::open(&path).expect("whole");
    let (theirs, _) = Journal::open(&path).expect("whole");
    for round in ["a", "b"] {
        append(&mine, &[note(round)]);
        append(&theirs, &[note(round)]);
    }
    assert_eq!(verify(&path).expect("one chain").head.seq, 7);
}

#[test]
fn a_file_that_was_cut_under_an_open_journal_is_noticed() {
    let (_directory, path) = three();
    let (journal, _) = Journal::open(&path).expect("whole");
    edit(&path, |bytes| bytes.truncate(10));
    let error = journal.append(&note("x"), DateTime::UNIX_EPOCH).expect_err("cut");
    assert!(error.to_string().contains("was cut"), "{error}");
}

#[test]
fn flips_without_an_outcome_are_found() {
    let (_directory, path) = three();
    let (journal, _) = Journal::open(&path).expect("whole");
    append(
        &journal,
        &[
            flip("done"),
            outcome("done", "applied"),
            flip("lost"),
            outcome("lost", "unsettled"),
            flip("crashed"),
        ],
    );
    let (_, found) = Journal::open(&path).expect("whole");
    assert_eq!(found.open_flips, [flip("crashed"), flip("lost")]);
}

#[test]
fn a_line_is_bounded_on_both_sides() {
    let (_directory, path) = three();
    let (journal, _) = Journal::open(&path).expect("whole");
    let room = LINE_BYTES_MAX - 1_000;
    append(&journal, &[note(&"x".repeat(room))]);
    let error = journal.append(&note(&"x".repeat(LINE_BYTES_MAX)), DateTime::UNIX_EPOCH);
    assert!(matches!(error, Err(JournalError::TooLong { .. })));
    assert_eq!(verify(&path).expect("the long one was not written").head.seq, 4);
    edit(&path, |bytes| bytes.extend(std::iter::repeat_n(b'x', LINE_BYTES_MAX)));
    let error = verify(&path).expect_err("no torn line is as long").to_string();
    assert!(error.contains("longer than any"), "{error}");
}
