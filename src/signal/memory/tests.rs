//! An hour of scrapes on a virtual clock: what is kept, for how long, and in how many bytes.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::signal::promql::{Function, Query, Series, evaluate, stale_marker};

fn at(seconds: u32) -> Mono {
    Mono::from_secs_f64(f64::from(seconds))
}

/// A memory of one series, scraped every second from 1 s on.
fn memory(values: &[f64], is_watched: bool) -> Memory {
    let mut memory = Memory::new();
    if is_watched {
        memory.watch(SeriesId(0));
    }
    for (second, value) in (1..).zip(values) {
        memory.accept(&[*value], &[], at(second));
    }
    memory
}

#[test]
fn watched_series_last_an_hour_and_the_rest_five_minutes() {
    let hours: Vec<f64> = (0..7500_u32).map(|n| f64::from(n) * 3.0).collect();
    for (is_watched, least, most) in [(true, 3600, 3600 + 120), (false, 300, 300 + 120)] {
        let memory = memory(&hours, is_watched);
        let samples = memory.samples(SeriesId(0), Mono::START, at(7500));
        assert!((least..=most).contains(&samples.len()), "{is_watched}: {}", samples.len());
        let first = 7501 - u32::try_from(samples.len()).expect("small");
        for (second, sample) in (first..).zip(&samples) {
            let expected =
                Sample { at_ms: i64::from(second) * 1000, value: f64::from(second - 1) * 3.0 };
            assert_eq!(*sample, expected);
        }
    }
}

#[test]
fn a_window_is_left_open_and_fits_promql() {
    let values: Vec<f64> = (0..600_u32).map(f64::from).collect();
    let memory = memory(&values, true);
    let samples = memory.samples(SeriesId(0), at(100), at(160));
    assert_eq!((samples.len(), samples[0].at_ms), (60, 101_000));
    let series = Series { labels: crate::signal::Labels::default(), samples };
    let query = Query {
        function: Function::Rate,
        eval_ms: 160_000,
        offset_ms: 0,
        range_ms: 60_000,
        sum_by: None,
        quantile: None,
    };
    let rate = evaluate(&query, &[series])[0].1;
    assert!((rate - 1.0).abs() < 1e-12, "{rate}");
}

#[test]
fn gaps_stay_gaps() {
    let mut memory = Memory::new();
    memory.watch(SeriesId(1));
    for second in 1..=400 {
        // Series 1 comes late and is missing for a while; at 50 s the whole scrape failed.
        let late = if second < 20 || (200..210).contains(&second) { stale_marker() } else { 7.0 };
        let values: &[f64] = match second {
            50 => &[],
            1..10 => &[1.0],
            _ => &[1.0, late],
        };
        memory.accept(values, &[], at(second));
    }
    let is_gap = |sample: &&Sample| is_stale_marker(sample.value);
    let samples = memory.samples(SeriesId(1), Mono::START, at(400));
    assert_eq!((samples.len(), samples.iter().filter(is_gap).count()), (400, 19 + 1 + 10));
    let samples = memory.samples(SeriesId(0), at(100), at(400));
    assert_eq!((samples.len(), samples.iter().filter(is_gap).count()), (300, 0));
    let never = memory.samples(SeriesId(9), at(100), at(400));
    assert_eq!(never.iter().filter(is_gap).count(), 300);
}

#[test]
fn gains_are_what_was_counted() {
    let gap = stale_marker();
    let series = |value: f64, restarts: &'static [Restart]| (value, restarts);
    let plain = |values: &[f64]| values.iter().map(|value| series(*value, &[])).collect::<Vec<_>>();
    for (what, scrapes, expected) in [
        ("nothing", plain(&[]), None),
        ("one value is no rate, not zero", plain(&[5.0]), None),
        ("one value beside gaps", plain(&[gap, 5.0, gap]), None),
        ("growth", plain(&[5.0, 7.0, 9.0]), Some(4.0)),
        ("across a gap nothing is lost", plain(&[5.0, gap, 9.0]), Some(4.0)),
        ("a fall is a reset", plain(&[5.0, 3.0, 4.0]), Some(4.0)),
        (
            "a new process above the old value",
            vec![series(5.0, &[]), series(9.0, &[Restart::Process])],
            Some(9.0),
        ),
        (
            "a new process during a gap",
            vec![series(5.0, &[]), series(gap, &[Restart::Process]), series(9.0, &[])],
            Some(9.0),
        ),
        (
            "a series made anew",
            vec![series(5.0, &[]), series(9.0, &[Restart::Series(SeriesId(0))])],
            Some(9.0),
        ),
        (
            "another series made anew",
            vec![series(5.0, &[]), series(9.0, &[Restart::Series(SeriesId(1))])],
            Some(4.0),
        ),
        (
            "more restarts than are told apart",
            vec![
                series(5.0, &[]),
                series(9.0, &[Restart::Series(SeriesId(1)); RESTARTS_PER_SCRAPE_MAX + 1]),
            ],
            Some(9.0),
        ),
        (
            "as many as are told apart",
            vec![
                series(5.0, &[]),
                series(9.0, &[Restart::Series(SeriesId(1)); RESTARTS_PER_SCRAPE_MAX]),
            ],
            Some(4.0),
        ),
    ] {
        let mut memory = Memory::new();
        for (second, (value, restarts)) in (1..).zip(&scrapes) {
            memory.accept(&[*value], restarts, at(second));
        }
        assert_eq!(memory.gain(SeriesId(0), Mono::START, at(100)), expected, "{what}");
    }
}

#[test]
fn a_scrape_from_the_past_is_ignored() {
    let mut memory = Memory::new();
    memory.accept(&[1.0], &[], at(5));
    memory.accept(&[2.0], &[], at(5));
    memory.accept(&[3.0], &[], at(4));
    let samples = memory.samples(SeriesId(0), Mono::START, at(9));
    assert_eq!(samples, [Sample { at_ms: 5000, value: 1.0 }]);
}

#[test]
fn slow_scrapes_are_kept_as_long_as_quick_ones() {
    let mut memory = Memory::new();
    memory.watch(SeriesId(0));
    for minute in 0..600 {
        memory.accept(&[f64::from(minute), 1.0], &[], at(minute * 60));
    }
    let samples = memory.samples(SeriesId(0), Mono::START, at(600 * 60));
    assert!(samples.len() >= 60, "an hour, {}", samples.len());
    assert!(samples.len() <= 60 + 2 * BLOCK_SCRAPES, "bounded, {}", samples.len());
}

/// One second in the life of a series like those of real gateways: 45% stand still, 15% count fast,
/// 20% count now and then, 5% are sums of seconds, 5% gauges of ratios, 10% gauges of small numbers.
fn step(index: usize, value: &mut f64, rng: &mut Pcg64Mcg) {
    match index % 20 {
        0..9 => {}
        9..12 => *value += f64::from(rng.random_range(0..200_u32)),
        12..16 => *value += f64::from(u8::from(rng.random_bool(0.1))),
        16 => *value += rng.random::<f64>() * 3.0,
        17 => *value = rng.random(),
        _ => *value = f64::from(rng.random_range(0..50_u32)),
    }
}

#[test]
fn ten_thousand_watched_series_for_an_hour_fit_65_mb() {
    const BYTES_MAX: usize = 65_000_000;
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut memory = Memory::new();
    (0..10_000).map(SeriesId).for_each(|id| memory.watch(id));
    let mut values = vec![1000.0; 10_000];
    for second in 1..=3600 {
        for (index, value) in values.iter_mut().enumerate() {
            step(index, value, &mut rng);
        }
        memory.accept(&values, &[], at(second));
    }
    let samples = memory.samples(SeriesId(9), Mono::START, at(3600));
    assert_eq!(samples.len(), 3600);
    assert!(is_same(samples[3599].value, values[9]));
    let held = memory.held_bytes();
    assert!(held <= BYTES_MAX, "{held} bytes");
    assert!(held > 10_000_000, "{held} bytes cannot be all of it");
}
