//! What a recording promises, on files that were made here.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use proptest::prelude::*;

use super::*;
use crate::diagnosis::{Book, Library, Node, Outcome, Predicate, Step};
use crate::incident::Event;
use crate::ingest::exposition::Format;
use crate::ingest::prometheus::Answers;
use crate::ingest::{
    Adapter, Alert, AlertState, Alerts, Ledger, News, ONLY, Severity, SourceFacts,
};
use crate::signal::Mono;

mod files;
mod limits;
mod names;

/// One source that weir's own adapter reads, once a second.
pub fn source() -> SourceFacts {
    SourceFacts {
        name: "gateway".to_owned(),
        url: "http://user:word@gw.internal:9000/metrics?key=k".to_owned(),
        via: None,
        adapter: Adapter::weir(),
        interval: Duration::from_secs(1),
        timeout: Duration::from_millis(800),
    }
}

pub fn header() -> Header {
    Header {
        weir: "test".to_owned(),
        title: "watch".to_owned(),
        environment: "production".to_owned(),
        sources: vec![SourceLine::new(&source(), None)],
        ..Header::default()
    }
}

pub fn at(second: u32) -> Mono {
    Mono::from_secs_f64(f64::from(second))
}

/// A page of a gateway for a tenant: counters that grow, one that comes and goes, and one that restarts.
pub fn page(second: u32, tenant: &str) -> String {
    let scope = "openai/acct/embed";
    let offered = 100 * second;
    let process_start = if second > 90 { 7 } else { 5 };
    let counted = if second > 90 { offered - 9_000 } else { offered };
    let mut page = format!(
        "process_start_time_seconds {process_start}\n\
         weir_offered_total{{scope=\"{scope}\",lane=\"interactive\"}} {counted}\n\
         weir_originals_total{{scope=\"{scope}\",lane=\"interactive\"}} {}\n\
         weir_attempts_total{{scope=\"{scope}\",kind=\"first\",class=\"ok\"}} {}\n\
         other_seconds_sum{{tenant=\"{tenant}\",handler=\"/{tenant}/v1/x\",source=\"{tenant}\"}} {}\n",
        counted / 2,
        counted / 2,
        f64::from(second) * 0.1,
    );
    // Rare, and counted over an hour: the breaker opens once in each of the two processes.
    let opened = if second > 90 { u32::from(second >= 150) } else { u32::from(second >= 40) };
    if second >= 40 {
        let labels = format!("scope=\"{scope}\",to=\"open\"");
        page = format!("{page}weir_breaker_transitions_total{{{labels}}} {opened}\n");
    }
    if second % 7 < 3 {
        let labels = format!("scope=\"{scope}\",kind=\"retry\",class=\"throttled\"");
        page = format!("{page}weir_attempts_total{{{labels}}} {counted}\n");
    }
    page
}

pub fn polled(outcome: Result<String, &str>) -> News {
    News::Polled {
        instance: Arc::from(ONLY),
        took: Duration::from_millis(3),
        outcome: outcome.map(|body| (body.into_bytes(), Format::Text)).map_err(ToOwned::to_owned),
    }
}

/// What an Alertmanager tells of a tenant, on labels that mean something else on a metrics page.
pub fn alerts(tenant: &str) -> Arc<Alerts> {
    let labels = ["from", "kind", "reason", "source", "tenant", "to", "type"];
    let alert = Alert {
        id: format!("id of {tenant}"),
        name: "Slow".to_owned(),
        severity: Severity::Warning,
        state: AlertState::Firing,
        labels: labels.map(|label| (label.to_owned(), tenant.to_owned())).into(),
        summary: Some(format!("{tenant} is slow")),
        since: None,
        silenced_by: Vec::new(),
    };
    Arc::new(Alerts {
        source: format!("pages {tenant}").into(),
        at: Some(at(1)),
        error: None,
        alerts: vec![alert],
        silences: Vec::new(),
        left_out: 0,
        alerts_cut: 0,
    })
}

/// A recording, and the observations as they were made while it was.
pub struct Recorded {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    pub observations: Vec<crate::ingest::Observation>,
}

/// Records `seconds` seconds; every 31st scrape fails.
pub fn record(seconds: u32, tenant: &str) -> Recorded {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.weir");
    let mut recorder = Recorder::create(&path, header()).expect("a new file");
    let mut ledger = Ledger::new([source()]);
    let mut observations = Vec::new();
    let mut hear = |recorder: &mut Recorder, news: &News, at: Mono| {
        recorder.hear(0, news, at);
        ledger.take(0, news, at);
        ledger.observation(at + Duration::from_millis(450), DateTime::UNIX_EPOCH + at.since_start())
    };
    hear(&mut recorder, &News::Instances(vec![ONLY.to_owned()]), Mono::START);
    for second in 1..=seconds {
        let news = match second % 31 {
            0 => polled(Err("gateway: nothing answers at http://gw.internal:9000/metrics")),
            _ => polled(Ok(page(second, tenant))),
        };
        let seen = hear(&mut recorder, &news, at(second));
        recorder.look(&seen.scopes, seen.at, seen.wall);
        if second == 2 {
            recorder.alert(&alerts(tenant), seen.at);
        }
        if second == 20 {
            let note = Event::Note { actor: "alice".to_owned(), text: format!("saw {tenant}") };
            recorder.tell(Told::Journal(note), seen.wall);
        }
        observations.push(seen);
    }
    recorder.finish().expect("the disk is there");
    Recorded { folder, path, observations }
}

pub fn open(path: &std::path::Path) -> Result<Replay, RecordingError> {
    Replay::open(path, library())
}

/// A triage with one piece of evidence, so that there are verdicts to compare.
fn library() -> Arc<Library> {
    let predicate = Predicate::parse("offered_rps > 50 for 3s").expect("a predicate");
    let node = Node {
        id: "end".to_owned(),
        title: String::new(),
        prose: String::new(),
        show: vec!["busy".to_owned()],
        step: Step::End { outcome: Outcome::Inconclusive, cause: None, say: String::new() },
        line: 1,
    };
    let book = Book {
        id: "triage".to_owned(),
        title: String::new(),
        owner: String::new(),
        entry: "end".to_owned(),
        evidence: [("busy".to_owned(), predicate)].into(),
        cause: None,
        nodes: vec![node],
        digest: String::new(),
    };
    Arc::new(Library::new([book]).expect("it fits together"))
}

#[test]
fn every_moment_comes_out_as_it_was_seen_however_it_is_reached() {
    let recorded = record(200, "acme");
    let mut replay = open(&recorded.path).expect("whole");
    let mut steps = open(&recorded.path).expect("whole");
    let (first, last) = replay.span().expect("looks");
    assert_eq!((first, last), (recorded.observations[0].at, recorded.observations[199].at));
    steps.seek(first).expect("the first");
    for (index, seen) in recorded.observations.iter().enumerate() {
        let is_compared = index % 31 == 0 || index > 196 || (88..94).contains(&index);
        if is_compared {
            let moment = replay.seek(seen.at).expect("within").moment;
            assert_eq!(moment.observation.at, seen.at);
            assert_eq!(moment.observation.wall, seen.wall);
            assert_eq!(moment.observation.scopes, seen.scopes, "second {}", index + 1);
            let errors = |o: &crate::ingest::Observation| o.sources[0].error.clone();
            assert_eq!(errors(&moment.observation), errors(seen));
        }
        if index > 0 {
            let stepped = steps.step().expect("whole").expect("one more");
            assert_eq!(stepped.observation.scopes, seen.scopes, "second {}", index + 1);
        }
    }
    assert!(steps.step().expect("whole").is_none());
    let opened = recorded.observations[199].scopes[0].number("breaker_opens_per_hour");
    assert_eq!(opened, Some(2.0), "the hour reaches back over what is read again");
}

#[test]
fn a_series_that_stands_still_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.weir");
    let mut recorder = Recorder::create(&path, header()).expect("a new file");
    let lines: Vec<_> = (0..20_000).map(|n| format!("some_total{{n=\"{n}\"}} {n}\n")).collect();
    let body = lines.concat();
    recorder.hear(0, &News::Instances(vec![ONLY.to_owned()]), Mono::START);
    let mut sizes = Vec::new();
    for second in 1..=50 {
        recorder.hear(0, &polled(Ok(body.clone())), at(second));
        recorder.look::<crate::signal::Snapshot>(&[], at(second), DateTime::UNIX_EPOCH);
        sizes.push(std::fs::metadata(&path).expect("a file").len());
    }
    assert!(sizes[49] - sizes[0] < 49 * 300, "{sizes:?}");
}

#[test]
fn a_recording_is_bounded_in_time_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.weir");
    let mut recorder = Recorder::create(&path, header()).expect("a new file");
    let look = |recorder: &mut Recorder, at: Mono| {
        recorder.look::<crate::signal::Snapshot>(&[], at, DateTime::UNIX_EPOCH);
    };
    look(&mut recorder, at(1));
    look(&mut recorder, at(1) + SPAN_MAX);
    assert!(recorder.trouble().is_none());
    look(&mut recorder, at(2) + SPAN_MAX);
    let trouble = recorder.trouble().expect("too long").to_string();
    assert!(trouble.contains("24 h"), "{trouble}");
    assert!(recorder.finish().is_err());
    let reader = Reader::open(&path).expect("what was before is there");
    assert_eq!(reader.looks().count(), 2);
}

#[test]
fn nothing_is_ever_written_over_and_a_second_writer_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.weir");
    std::fs::write(&path, "precious").expect("a file");
    assert!(matches!(Recorder::create(&path, header()), Err(RecordingError::Exists { .. })));
    assert_eq!(std::fs::read(&path).expect("a file"), b"precious");
    let other = folder.path().join("b.weir");
    let _first = Recorder::create(&other, header()).expect("a new file");
    assert!(matches!(Recorder::create(&other, header()), Err(RecordingError::Exists { .. })));
}

#[test]
fn a_part_says_what_the_whole_says() {
    let recorded = record(400, "acme");
    let mut whole = open(&recorded.path).expect("whole");
    for (from, to) in [(30, 50), (150, 200), (333, 390)] {
        let part_path = recorded.folder.path().join(format!("{from}.weir"));
        let span = (Some(Duration::from_secs(from)), Some(Duration::from_secs(to)));
        let taken = cut(&recorded.path, span, &part_path).expect("a part");
        assert!(taken.span <= Duration::from_secs(to - from), "{taken:?}");
        let mut part = open(&part_path).expect("whole");
        let (first, last) = part.span().expect("looks");
        for look in [first, last] {
            let here = part.seek(look).expect("within").moment;
            let there = whole.seek(look).expect("within").moment;
            assert_eq!(here.observation.scopes, there.observation.scopes, "{look:?} of {from}");
            assert_eq!(here.verdicts, there.verdicts, "{look:?} of {from}");
        }
        assert!(matches!(
            part.seek(first - Duration::from_secs(1)),
            Err(RecordingError::Outside { .. })
        ));
    }
    let nowhere = (Some(Duration::from_mins(15)), None);
    let refused = cut(&recorded.path, nowhere, &recorded.folder.path().join("none.weir"));
    assert!(matches!(refused, Err(RecordingError::Outside { .. })));
}

#[test]
fn instances_that_come_and_go_and_answers_of_a_server_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.weir");
    let sources = || [source(), SourceFacts { name: "server".to_owned(), ..source() }];
    let lines = sources().iter().map(|facts| SourceLine::new(facts, None)).collect();
    let mut recorder =
        Recorder::create(&path, Header { sources: lines, ..header() }).expect("a new file");
    let mut ledger = Ledger::new(sources());
    let mut seen = Vec::new();
    for second in 1..=220_u32 {
        let mut news = Vec::new();
        match second {
            1 | 150 => news.push((0, News::Instances(vec!["a".to_owned(), "b".to_owned()]))),
            100 => news.push((0, News::Instances(vec!["a".to_owned()]))),
            170 => news.push((0, News::Undiscovered("nobody knows".to_owned()))),
            _ => {}
        }
        for (name, tenant) in [("a", "acme"), ("b", "brave")] {
            let News::Polled { took, outcome, .. } = polled(Ok(page(second, tenant))) else {
                continue;
            };
            news.push((0, News::Polled { instance: Arc::from(name), took, outcome }));
        }
        if second % 5 == 0 {
            news.push((1, News::Answered(Ok(Arc::new(answers(second))))));
        } else if second % 17 == 0 {
            news.push((1, News::Answered(Err("server: HTTP 503".to_owned()))));
        }
        for (source, news) in &news {
            recorder.hear(*source, news, at(second));
            ledger.take(*source, news, at(second));
        }
        let wall = DateTime::UNIX_EPOCH + at(second).since_start();
        let observation = ledger.observation(at(second), wall);
        recorder.look(&observation.scopes, observation.at, observation.wall);
        seen.push(observation);
    }
    recorder.finish().expect("the disk is there");
    let mut replay = open(&path).expect("whole");
    for second in [1, 2, 99, 100, 149, 150, 152, 171, 187, 220] {
        let there = &seen[second - 1];
        let here = replay.seek(there.at).expect("within").moment.observation;
        assert_eq!(here.scopes, there.scopes, "second {second}");
        for (here, there) in here.sources.iter().zip(&there.sources) {
            assert_eq!((&here.error, &here.warnings), (&there.error, &there.warnings), "{second}");
            assert_eq!(here.instances, there.instances, "{second}");
        }
    }
}

/// What a server answers that has seen the gateway.
fn answers(second: u32) -> Answers {
    let scope = serde_json::json!([["scope", "openai/acct/embed"]]);
    Answers::from_json(serde_json::json!({
        "window_s": 10.0, "present": {"weir_offered_total": [[scope, "1"]]}, "extrapolated": [],
        "groups": {"rate": [[scope, second.to_string()]]}, "newborn": {}, "silent": null,
        "caveat": "1 of 2 instances", "warnings": ["w"], "instances": [1, 2], "series": 7,
        "age_s": 0.5, "window_ns": 10_000_000_000_u64, "fresh_for_ns": 15_000_000_000_u64,
        "took_ns": 1_000,
    }))
    .expect("the form of answers")
}
