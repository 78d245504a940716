//! Repeated reading says what plain parsing says, whatever changed between the scrapes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::parse;
use super::*;

/// Series by their text, as a plain parse sees one scrape: the first of equal ones, no cut line.
fn plain(body: &[u8], format: Format) -> (BTreeMap<String, u64>, Report) {
    let mut samples: Vec<(usize, String, u64)> = Vec::new();
    let report = parse(body, format, |sample| {
        samples.push((sample.line, shown(sample), sample.value.to_bits()));
    })
    .expect("small");
    if !body.ends_with(b"\n") {
        samples.retain(|(line, ..)| *line != report.lines);
    }
    let mut series = BTreeMap::new();
    for (_, name, value) in samples {
        series.entry(name).or_insert(value);
    }
    (series, report)
}

fn shown(sample: &Sample<'_>) -> String {
    format!("{} {:?}", sample.name, sample.labels)
}

/// Reads scrapes one after the other, each held against a plain parse.
struct Rig {
    repeat: Repeat,
    names: BTreeMap<SeriesId, String>,
    at: Mono,
}

impl Rig {
    fn new() -> Self {
        Self { repeat: Repeat::new(), names: BTreeMap::new(), at: Mono::START }
    }

    fn read(&mut self, body: &[u8], format: Format) -> Report {
        let names = &mut self.names;
        let on_new = |id, sample: &Sample<'_>| {
            names.insert(id, shown(sample));
        };
        let report = self.repeat.read(body, format, on_new, self.at).expect("small");
        self.at = self.at + Duration::from_secs(1);
        let mut series = BTreeMap::new();
        for (id, name) in &self.names {
            let value = self.repeat.values()[id.index()];
            if !is_stale_marker(value) {
                // Of equal series in another spelling the later may come first; neither is wrong.
                series.entry(name.clone()).or_insert(value.to_bits());
            }
        }
        let (expected, expected_report) = plain(body, format);
        assert_eq!(series, expected, "{:?}", String::from_utf8_lossy(body));
        assert_eq!(report, expected_report, "{:?}", String::from_utf8_lossy(body));
        report
    }
}

#[test]
fn whatever_changes_between_scrapes() {
    let mut rig = Rig::new();
    for body in [
        "# TYPE a counter\na 1\na{x=\"1\"} 2\nb 3\n",
        "# TYPE a counter\na 2\na{x=\"1\"} 2.5\nb NaN\n",
        // New lines before, within and behind.
        "z 1\n# TYPE a counter\na 2\na{x=\"0\"} 1\na{x=\"1\"} +Inf\nb 1e3\nc 1\n",
        // Lines that left, another order, another spelling.
        "b 1\na{x=\"1\"} 1\nz 2\n",
        "a{x=\"1\"} 1 5\nb  7\nz 2\n",
        // Bad lines and equal ones.
        "b x\na{x=\"1\"} 1\nb 2\nb 3\n<html>\n",
        "b 2\n\nb 3\n# comment\n  c 4\n",
        "b 2\n\nb 4\n# comment\n  c 5\n",
        "b 2\r\nc 1\r\n# comment\r\n",
        "b 2\r\nc 1\r\n# comment\r\n",
        // Cut.
        "b 12",
        "b 123\n",
        "",
        "b 1\na 1",
    ] {
        rig.read(body.as_bytes(), Format::Text);
    }
}

#[test]
fn open_metrics_and_a_change_of_format() {
    let mut rig = Rig::new();
    for (body, format) in [
        ("# TYPE a counter\na_total 1\n# EOF\n", Format::OpenMetrics),
        ("# TYPE a counter\na_total 2 # {t=\"x\"} 1\n# EOF\n", Format::OpenMetrics),
        ("# TYPE a counter\na_total 3\n# EOF\na_total 4\n", Format::OpenMetrics),
        ("# TYPE a counter\na_total 4\n", Format::OpenMetrics),
        ("# free\na{ x=\"1\" } 5\n", Format::Text),
        ("# free\na{ x=\"1\" } 6\n", Format::OpenMetrics),
        ("# free\na{ x=\"1\" } 7\n", Format::Text),
    ] {
        rig.read(body.as_bytes(), format);
    }
}

#[test]
fn types_of_skipped_comments_reach_new_series() {
    let mut repeat = Repeat::new();
    let mut kinds = Vec::new();
    for body in ["# TYPE a gauge\na{x=\"1\"} 1\n", "# TYPE a gauge\na{x=\"1\"} 1\na{x=\"2\"} 1\n"] {
        let on_new = |_, sample: &Sample<'_>| kinds.push(sample.kind);
        repeat.read(body.as_bytes(), Format::Text, on_new, Mono::START).expect("small");
    }
    assert_eq!(kinds, [super::super::Kind::Gauge; 2]);
}

#[test]
fn nothing_grows_over_a_thousand_scrapes() {
    // No other test has these lines, so nobody shares them.
    let body = |n: u32| -> String {
        let line = |index| format!("grows{{i=\"{index}\"}} {}\n", n * index);
        (0..1000).map(line).collect::<Vec<_>>().concat()
    };
    let mut rig = Rig::new();
    rig.read(body(0).as_bytes(), Format::Text);
    let held = rig.repeat.held_bytes();
    for n in 1..=1000 {
        let body = body(n);
        let on_new = |_, _: &Sample<'_>| panic!("every series is known");
        rig.repeat.read(body.as_bytes(), Format::Text, on_new, rig.at).expect("small");
        assert_eq!(rig.repeat.held_bytes(), held, "scrape {n}");
    }
}

#[test]
fn sources_with_the_same_lines_share_their_text() {
    let body = |own: &str| -> String {
        let line = |index| format!("shares{{i=\"{index}\"}} {index}\n");
        let lines = (0..1000).map(line).collect::<Vec<_>>().concat();
        format!("own{{pod=\"{own}\"}} 1\n{lines}")
    };
    let read = |own: &str| {
        let mut rig = Rig::new();
        rig.read(body(own).as_bytes(), Format::Text);
        rig
    };
    let first = read("a");
    let alone = first.repeat.text.held_bytes();
    let others = ["b", "c", "d"].map(read);
    let shared = first.repeat.text.held_bytes();
    assert!(shared < alone / 2, "{shared} of {alone}");
    drop(others);
    assert_eq!(first.repeat.text.held_bytes(), alone);
}

#[test]
fn series_that_come_and_go_are_forgotten() {
    let mut rig = Rig::new();
    for round in 0..50_u32 {
        let line = |pod: u32| format!("c{{pod=\"{round}-{pod}\"}} 1\n");
        let body = (0..100).map(line).collect::<Vec<_>>().concat();
        let names = &mut rig.names;
        let on_new = |id, sample: &Sample<'_>| {
            names.insert(id, shown(sample));
        };
        rig.at = Mono::START + FORGOTTEN_AFTER * round;
        rig.repeat.read(body.as_bytes(), Format::Text, on_new, rig.at).expect("small");
        let there = rig.repeat.values().iter().filter(|value| !is_stale_marker(**value)).count();
        assert_eq!(there, 100);
    }
    assert!(rig.names.len() <= 400, "numbers are used again: {}", rig.names.len());
    assert!(rig.repeat.held_bytes() < 100_000, "{}", rig.repeat.held_bytes());
}

#[test]
fn more_series_than_are_kept_are_left_out() {
    let line = |index| format!("c{{i=\"{index}\"}} 1\n");
    let body = (0..=SERIES_MAX).map(line).collect::<Vec<_>>().concat();
    let mut repeat = Repeat::new();
    for _ in 0..2 {
        let report = repeat.read(body.as_bytes(), Format::Text, |_, _| {}, Mono::START);
        assert_eq!(report.expect("small").samples, SERIES_MAX + 1);
        assert_eq!(repeat.values().len(), SERIES_MAX);
    }
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => ("[ab]", 0..3_u8, "-?[0-9]{1,2}(\\.[0-9])?")
            .prop_map(|(name, label, value)| format!("{name}{{x=\"{label}\"}} {value}")),
        2 => "# (TYPE [ab] (gauge|counter|x)|HELP a b|EOF)",
        1 => "[ab] ?[{]?[0-9 ]{0,3}(e[0-9]{1,3}|NaN|\r)?",
    ]
}

proptest! {
    #[test]
    fn any_scrapes_in_a_row(
        bodies in proptest::collection::vec(
            (proptest::collection::vec(line(), 0..8), any::<bool>(), any::<bool>()), 1..6),
    ) {
        let mut rig = Rig::new();
        for (lines, is_whole, is_text) in bodies {
            let end = if is_whole { "\n" } else { "" };
            let format = if is_text { Format::Text } else { Format::OpenMetrics };
            rig.read((lines.join("\n") + end).as_bytes(), format);
        }
    }
}
