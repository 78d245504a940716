//! What it costs to check a journal of 100,000 entries from end to end, and to hold it against 1,000
//! anchors: it is to take less than a second.

use std::hint::black_box;
use std::path::Path;

use chrono::DateTime;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir::flag::wire::WireOnExpire;
use weir::incident::{Anchor, Event, Journal, check_anchors, verify};

const ENTRIES: u64 = 100_000;
/// One flip in so many entries; the others are notes and plans.
const FLIP_EVERY: u64 = 100;

fn event(number: u64) -> Event {
    let (actor, plan) = ("alice".to_owned(), "contain".to_owned());
    if number.is_multiple_of(FLIP_EVERY) {
        return Event::Flip {
            request_id: format!("id-{number}"),
            plan,
            revision: number,
            actor,
            incident: Some("INC-42".to_owned()),
            reason: "nested-retries confirmed in openai/acct-1/embed, amplification 9.3".to_owned(),
            changes: Vec::new(),
            ttl_s: Some(1_800),
            on_expire: WireOnExpire::Remind,
            verify: "effective everywhere, amplification < 1.1 for 10 s".to_owned(),
            store: None,
            notes: Box::default(),
        };
    }
    if number.is_multiple_of(2) {
        let changes = ["admission.mode off -> enforce", "retry.max_attempts 3 -> 2"];
        let changes = changes.map(str::to_owned).to_vec();
        return Event::Plan { name: plan, changes, refused: None };
    }
    Event::Note { actor, text: format!("quiet again, look {number} of many") }
}

fn written(path: &Path) -> Vec<Anchor> {
    let (journal, _) = Journal::open(path).expect("a new file");
    let mut anchors = Vec::new();
    for number in 0..ENTRIES {
        let anchor = journal.append(&event(number), DateTime::UNIX_EPOCH).expect("room on disk");
        if number.is_multiple_of(FLIP_EVERY) {
            anchors.push(anchor);
        }
    }
    anchors
}

fn checks(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("journal.jsonl");
    let anchors = written(&path);
    let mut group = criterion.benchmark_group("journal of 100,000 entries");
    group.throughput(Throughput::Elements(ENTRIES)).sample_size(10);
    group.bench_function("verify", |bencher| {
        bencher.iter(|| black_box(verify(&path).expect("whole")));
    });
    group.bench_function("check 1,000 anchors", |bencher| {
        bencher.iter(|| black_box(check_anchors(&path, &anchors).expect("whole")));
    });
    group.finish();
}

criterion_group!(benches, checks);
criterion_main!(benches);
