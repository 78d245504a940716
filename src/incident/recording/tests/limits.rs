//! What is bounded: files made to take memory, and a recorder that cannot go on.

use super::*;
use crate::incident::recording::column::COLUMN_MAX;
use crate::incident::recording::decode::Decoder;
use crate::incident::recording::line::{InstancesLine, Line, LookLine, SeriesLine};
use crate::incident::recording::recorder::put;
use crate::incident::recording::shorthand::Shorthand;

fn opened(lines: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("odd.weir");
    let mut lines = format!("{lines}\n").into_bytes();
    put(&mut lines, &Line::Look(LookLine { at_ns: 2, wall: DateTime::UNIX_EPOCH }));
    std::fs::write(&path, framed(&lines)).expect("a file");
    let mut replay = open(&path).map_err(|error| error.to_string())?;
    let (_, last) = replay.span().map_err(|error| error.to_string())?;
    replay.seek(last).map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_line_with_more_than_any_recorder_writes_is_refused_before_it_is_built() {
    let many = "0,".repeat(COLUMN_MAX + 1);
    let many = many.trim_end_matches(',');
    for (line, expected) in [
        (
            format!("{{\"scrape\":{{\"s\":0,\"at_ns\":1,\"took_ns\":0,\"n\":[],\"v\":[{many}]}}}}"),
            "of a column",
        ),
        (format!("{{\"series\":{{\"s\":0,\"n\":[{many}],\"names\":[]}}}}"), "of a column"),
        (format!("{{\"answered\":{{\"s\":0,\"at_ns\":1,\"answers\":[{many},0]}}}}"), "parts"),
        (
            format!(
                "{{ \"scrape\":{{\"s\":0,\"at_ns\":1,\"took_ns\":0,\"n\":[],\"v\":[{many},0]}}}}"
            ),
            "parts",
        ),
    ] {
        let error = opened(&line).expect_err(expected);
        assert!(error.contains(expected) && error.contains("line 1 of the frame"), "{error}");
    }
}

#[test]
fn events_are_kept_up_to_a_number_of_the_whole_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.weir");
    let mut recorder = Recorder::create(&path, header()).expect("a new file");
    recorder.look::<crate::signal::Snapshot>(&[], at(1), DateTime::UNIX_EPOCH);
    for number in 0..20_100 {
        recorder.tell(Told::Notice(number.to_string()), DateTime::UNIX_EPOCH);
    }
    recorder.finish().expect("the disk is there");
    let info = Reader::open(&path).and_then(|reader| reader.info()).expect("whole");
    assert_eq!(info.events.len(), 20_000);
}

#[test]
fn instances_that_go_give_their_room_back() {
    let series_of = |instance: &str| {
        Line::Series(SeriesLine {
            s: 0,
            i: instance.to_owned(),
            n: vec![u32::try_from(COLUMN_MAX - 1).expect("small")],
            names: vec!["a".to_owned()],
        })
    };
    let adapter = source().adapter;
    let mut decoder = Decoder::new([&*adapter]);
    for number in 0..6 {
        let name = format!("pod-{number}");
        let line = InstancesLine { s: 0, at_ns: 1, names: vec![name.clone()] };
        decoder.take(Line::Instances(line), None).expect("an instance");
        decoder.take(series_of(&name), None).expect("room for one at a time");
    }
    decoder.take(series_of("second"), None).expect("room for two");
    assert!(decoder.take(series_of("third"), None).is_err());
}

#[test]
fn the_recorder_counts_the_series_of_those_that_are_there() {
    let mut shorthand = Shorthand::default();
    for (second, names, expected) in [(1, vec!["a"], 1), (2, vec!["a", "b"], 2), (3, vec!["b"], 1)]
    {
        let there = names.iter().map(|name| (*name).to_owned()).collect();
        let _ = shorthand.heard(0, &News::Instances(there), at(second));
        for name in names {
            let outcome = Ok((b"a 1\n".to_vec(), Format::Text));
            let news = News::Polled { instance: Arc::from(name), took: Duration::ZERO, outcome };
            let _ = shorthand.heard(0, &news, at(second));
        }
        assert_eq!(shorthand.series(), expected, "at {second}");
    }
}

#[test]
fn what_was_ended_keeps_nothing_that_is_told_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorder =
        Recorder::create(&folder.path().join("a.weir"), header()).expect("a new file");
    let look = |recorder: &mut Recorder, at: Mono| {
        recorder.look::<crate::signal::Snapshot>(&[], at, DateTime::UNIX_EPOCH);
    };
    look(&mut recorder, at(1));
    recorder.left_out(1);
    recorder.tell(Told::Notice("before".to_owned()), DateTime::UNIX_EPOCH);
    look(&mut recorder, at(2) + SPAN_MAX);
    assert!(recorder.trouble().is_some());
    for _ in 0..3 {
        recorder.left_out(1);
        recorder.hear(0, &News::Instances(vec![ONLY.to_owned()]), at(3) + SPAN_MAX);
        recorder.tell(Told::Notice("after".to_owned()), DateTime::UNIX_EPOCH);
        recorder.alert(&alerts("acme"), at(3) + SPAN_MAX);
    }
    assert_eq!(recorder.waiting_bytes(), 0);
}

#[test]
fn what_is_written_without_a_look_is_no_look() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.weir");
    let mut recorder = Recorder::create(&path, header()).expect("a new file");
    recorder.hear(0, &News::Instances(vec![ONLY.to_owned()]), Mono::START);
    let long = "x".repeat(1_000_000);
    for number in 0..70 {
        // Each page has one new series with a long label.
        let body = format!("a{{b=\"{number}{long}\"}} 1\n");
        recorder.hear(0, &polled(Ok(body)), at(1));
    }
    recorder.hear(0, &polled(Ok(page(2, "acme"))), at(2));
    recorder.look::<crate::signal::Snapshot>(&[], at(2), DateTime::UNIX_EPOCH);
    recorder.finish().expect("the disk is there");
    let reader = Reader::open(&path).expect("whole");
    assert_eq!(reader.looks().collect::<Vec<_>>(), [at(2)]);
    assert!(reader.entries().len() > 2, "{:?}", reader.entries());
    let mut replay = open(&path).expect("whole");
    let moment = replay.seek(at(2)).expect("the only look").moment;
    assert!(moment.observation.sources[0].error.is_none(), "{:?}", moment.observation.sources);
}

#[test]
fn alerts_that_are_asked_for_anew_are_as_old_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.weir");
    let mut recorder = Recorder::create(&path, header()).expect("a new file");
    let first = alerts("acme");
    let later = |second| Arc::new(Alerts { at: Some(at(second)), ..Alerts::clone(&first) });
    for second in 1..=30 {
        recorder.alert(&later(second - second % 10), at(second));
        recorder.look::<crate::signal::Snapshot>(&[], at(second), DateTime::UNIX_EPOCH);
    }
    recorder.finish().expect("the disk is there");
    let mut replay = open(&path).expect("whole");
    for second in [5, 10, 19, 29, 30] {
        let shown = replay.seek(at(second)).expect("within").moment.alerts.expect("alerts");
        assert_eq!(*shown, *later(second - second % 10), "at {second}");
    }
}
