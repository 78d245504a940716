//! Nothing that a target may send makes the parser panic, and reading scrapes one after the other,
//! each of them twice, says what reading them alone says: the same report, series and values.
//!
//! The input is one byte for the format, then scrapes parted by a zero byte.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use weir::ingest::exposition::{Format, Repeat, Report, Sample, parse};
use weir::signal::promql::is_stale_marker;
use weir::signal::{Mono, SeriesId};

/// The values that a scrape has for each series. A series may stand there more than once, and in
/// another spelling it is another one to a `Repeat`.
type Series = BTreeMap<String, BTreeSet<u64>>;

fuzz_target!(|input: &[u8]| {
    let Some((format, scrapes)) = input.split_first() else { return };
    let format = if format % 2 == 0 { Format::Text } else { Format::OpenMetrics };
    let mut repeat = Repeat::new();
    let mut names = BTreeMap::new();
    for body in scrapes.split(|byte| *byte == 0) {
        let (alone, report) = alone(body, format);
        for _ in 0..2 {
            let on_new = |id: SeriesId, sample: &Sample<'_>| {
                names.insert(id, shown(sample));
            };
            let repeated =
                repeat.read(body, format, on_new, Mono::START).expect("inputs are small");
            assert_eq!(report, repeated);
            let mut seen = BTreeSet::new();
            for (id, name) in &names {
                let value = repeat.values()[id.index()];
                if !is_stale_marker(value) {
                    assert!(alone[name].contains(&value.to_bits()), "{name} = {value}");
                    seen.insert(name);
                }
            }
            assert!(seen.into_iter().eq(alone.keys()), "{alone:?}");
        }
    }
});

fn alone(body: &[u8], format: Format) -> (Series, Report) {
    let mut samples = Vec::new();
    let report = parse(body, format, |sample| {
        samples.push((sample.line, shown(sample), sample.value.to_bits()));
    })
    .expect("inputs are small");
    assert_eq!(report.samples, samples.len());
    if !body.ends_with(b"\n") {
        // A last line that may be cut is no sample of a `Repeat`.
        samples.retain(|(line, ..)| *line != report.lines);
    }
    let mut series = Series::new();
    for (_, name, value) in samples {
        series.entry(name).or_default().insert(value);
    }
    (series, report)
}

fn shown(sample: &Sample<'_>) -> String {
    format!("{} {:?}", sample.name, sample.labels)
}
