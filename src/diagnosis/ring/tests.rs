//! What a history keeps, what it gives back, and why it does not.

use super::*;
use crate::diagnosis::derive::complete;
use crate::diagnosis::history::{HOUR, QUARTER, Single};
use crate::signal::Snapshot;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn completed(numbers: &[(&str, f64)]) -> Arc<Completed> {
    let mut snapshot = Snapshot::new("scope", 10.0);
    for (name, number) in numbers {
        snapshot.set(name, Value::Number(*number), &Arc::from("test"));
    }
    Arc::new(complete(&snapshot))
}

fn span(seconds: u64) -> Window {
    Window::Span(Duration::from_secs(seconds))
}

#[test]
fn a_ring_reads_means_and_the_past() {
    let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
    for second in 0..=120_u32 {
        let depth = f64::from(second);
        ring.push(completed(&[("queue_depth", depth)]), at(depth));
    }
    let value = |read: Result<Read<f64>, Gap>| read.expect("known").value;
    assert!((value(ring.number("queue_depth", Window::Fast)) - 120.0).abs() < 1e-9);
    assert!((value(ring.number("queue_depth", span(10))) - 115.5).abs() < 1e-9);
    let ago = ring.number_ago("queue_depth", span(10), Duration::from_mins(1));
    assert!((value(ago) - 55.5).abs() < 1e-9);
    let hour = ring.number_ago("queue_depth", Window::Fast, HOUR);
    assert_eq!(hour.expect_err("too young"), Gap::NoBaseline(None));
    assert_eq!(ring.series("queue_depth").count(), 121);
}

#[test]
fn what_a_snapshot_holds_counts_at_every_interval_that_can_be_set() {
    for (age_s, expected) in [(15.0, Ok(1.0)), (60.0, Ok(1.0)), (301.0, Err(Gap::Stale(None)))] {
        let mut snapshot = Snapshot::new("scope", 10.0);
        snapshot.set("queue_depth", Value::Number(1.0), &Arc::from("test"));
        snapshot.signals.get_mut("queue_depth").expect("set").age_s = age_s;
        let done = Arc::new(complete(&snapshot));
        let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
        ring.push(Arc::clone(&done), at(0.0));
        for readings in [&ring as &dyn Readings, &Single(&done)] {
            let read = readings.number("queue_depth", Window::Fast).map(|read| read.value);
            assert_eq!(read, expected, "{age_s} s old");
        }
    }
}

#[test]
fn a_past_with_wide_steps_is_found() {
    for step in [15_u32, 60] {
        let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
        for second in (0..3_640).step_by(step as usize).chain(3_640..=3_647) {
            let depth = f64::from(second);
            ring.push(completed(&[("queue_depth", depth)]), at(depth));
        }
        let hour = ring.number_ago("queue_depth", Window::Fast, HOUR).map(|read| read.value);
        // 47 s: the sample before it, whose step it lies in.
        assert_eq!(hour, Ok(f64::from(47 / step * step)), "every {step} s");
    }
}

#[test]
fn gaps_say_why() {
    let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
    ring.push(completed(&[("queue_depth", 1.0)]), at(0.0));
    let gap = |ring: &Ring, window| ring.number("queue_depth", window).expect_err("unknown");
    assert_eq!(gap(&ring, span(60)), Gap::WarmingUp(None));
    ring.push(completed(&[]), at(1.0));
    assert_eq!(gap(&ring, Window::Fast), Gap::Stale(None));
    let other = ring.number("reset_s", Window::Fast).expect_err("unknown");
    assert_eq!(other, Gap::NoData(None));
}

#[test]
fn a_change_voids_the_past_until_it_is_older_than_distance_and_window() {
    let mut ring = Ring::new(BTreeSet::from(["tpm_headroom".to_owned()]));
    let push = |ring: &mut Ring, second: u32, limit: f64| {
        let numbers = [("tpm_headroom", 0.5), ("tpm_limit", limit), ("tpm_headroom_1h_ago", 0.7)];
        ring.push(completed(&numbers), at(f64::from(second)));
    };
    let ask = |ring: &Ring| {
        let read = ring.number_ago("tpm_headroom", span(60), QUARTER);
        read.map(|read| read.value).map_err(|gap| gap.to_string())
    };
    for second in 0..1_200 {
        push(&mut ring, second, 900.0);
    }
    assert_eq!(ask(&ring), Ok(0.5));
    for second in 1_200..1_922 {
        push(&mut ring, second, 450.0);
    }
    let why = "no-baseline: tpm_limit changed 12 min ago".to_owned();
    assert_eq!(ask(&ring), Err(why.clone()));
    // What a source gives under the name of the past is no better.
    let named = ring.number("tpm_headroom_1h_ago", Window::Fast).expect_err("void");
    assert_eq!(named.to_string(), why);
    assert!(ring.number("tpm_headroom", span(60)).is_ok(), "now is now");
    for second in 1_922..2_160 {
        push(&mut ring, second, 450.0);
    }
    assert!(ask(&ring).is_err(), "the window still reaches back before the change");
    push(&mut ring, 2_160, 450.0);
    assert_eq!(ask(&ring), Ok(0.5));
}

#[test]
fn history_is_bounded() {
    let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
    for second in 0..8_000_u32 {
        ring.push(completed(&[("queue_depth", 1.0)]), at(f64::from(second)));
    }
    assert!(ring.series("queue_depth").count() <= 3_721);
}

#[test]
fn a_single_snapshot_stands_for_its_window() {
    let done = completed(&[
        ("originals_rps", 4.0),
        ("originals_rps_15m_ago", 9.0),
        ("tokens_per_request", 5.0),
        ("tokens_per_request_baseline", 2.0),
    ]);
    let single = Single(&done);
    let ago = |name: &str, seconds| {
        single.number_ago(name, Window::Fast, Duration::from_secs(seconds)).map(|r| r.value)
    };
    assert_eq!(ago("originals_rps", 10), Ok(4.0));
    assert_eq!(ago("originals_rps", 900), Ok(9.0));
    assert_eq!(ago("tokens_per_request", 3_600), Ok(2.0));
    assert_eq!(ago("tokens_per_request", 60), Err(Gap::NoBaseline(None)));
}

#[test]
fn a_minute_counts_after_48_seconds_and_while_48_of_it_are_known() {
    let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
    let gap = |ring: &Ring| ring.number("queue_depth", span(60)).err();
    for second in 0..=200_u32 {
        let known = !(100..120).contains(&second);
        let numbers: &[_] = if known { &[("queue_depth", 1.0)] } else { &[] };
        ring.push(completed(numbers), at(f64::from(second)));
        match second {
            ..48 => assert_eq!(gap(&ring), Some(Gap::WarmingUp(None)), "{second}"),
            48..=111 | 167.. => assert_eq!(gap(&ring), None, "{second}"),
            // From 13 s of the gap on, until no more than 12 s of it lie within the minute.
            112..167 => assert!(matches!(gap(&ring), Some(Gap::Thin(_))), "{second}"),
        }
    }
}

#[test]
fn a_pause_of_the_poller_is_no_coverage() {
    let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
    for second in (0..100_u32).chain(150..155) {
        ring.push(completed(&[("queue_depth", 1.0)]), at(f64::from(second)));
    }
    let gap = ring.number("queue_depth", span(60)).expect_err("a third is known");
    assert_eq!(gap.to_string(), "thin: 19 s of 60 s are known");
}

#[test]
fn slow_polls_cover_their_windows() {
    for step in [15_u32, 30, 60] {
        let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
        for second in (0..4_000).step_by(step as usize) {
            ring.push(completed(&[("queue_depth", 2.0)]), at(f64::from(second)));
        }
        let number = ring.number("queue_depth", span(300)).map(|read| read.value);
        assert_eq!(number, Ok(2.0), "every {step} s");
        for ago_s in [890, 901, 3_000] {
            let ago = Duration::from_secs(ago_s);
            let past = ring.number_ago("queue_depth", span(60), ago).map(|read| read.value);
            assert_eq!(past, Ok(2.0), "every {step} s, {ago_s} s ago");
        }
    }
}

#[test]
fn a_thin_past_is_no_baseline_unless_a_source_tells_it() {
    let mut ring = Ring::new(BTreeSet::from(["originals_rps".to_owned()]));
    for second in 0..1_000_u32 {
        let known = !(30..90).contains(&second);
        let mut numbers = vec![("originals_rps_15m_ago", 7.0)];
        numbers.extend(known.then_some(("originals_rps", 3.0)));
        if second == 999 {
            numbers.remove(0);
        }
        ring.push(completed(&numbers), at(f64::from(second)));
        if second == 998 {
            let past = ring.number_ago("originals_rps", span(60), QUARTER);
            assert_eq!(past.map(|read| read.value), Ok(7.0), "the source knows");
        }
    }
    let past = ring.number_ago("originals_rps", span(60), QUARTER).expect_err("mostly a gap");
    assert!(matches!(past, Gap::Thin(_)), "{past}");
}

#[test]
fn the_words_of_a_source_are_a_reason() {
    let check = |why: &str, expected: &str| {
        let mut snapshot = Snapshot::new("scope", 10.0);
        snapshot.absent.insert("tpm_remaining".to_owned(), why.to_owned());
        snapshot.set("tpm_limit", Value::Number(1.0), &Arc::from("test"));
        let done = Arc::new(complete(&snapshot));
        let mut ring = Ring::new(BTreeSet::from(["tpm_remaining".to_owned()]));
        ring.push(Arc::clone(&done), at(0.0));
        for readings in [&ring as &dyn Readings, &Single(&done)] {
            for path in ["tpm_remaining", "tpm_headroom"] {
                let gap = readings.number(path, Window::Fast).expect_err("absent").to_string();
                assert!(gap.starts_with(expected), "{path}: {gap}, expected {expected}");
            }
        }
    };
    check("stale: gateway last answered 12 s ago", "stale: gateway last answered");
    check("gateway: warming up: a rate needs two scrapes within the window", "warming-up: gateway");
    check("prom: Prometheus cannot scrape gw-1: connection refused", "source-error: prom");
    check("gateway: does not export weir_x", "no-data");
}

#[test]
fn what_comes_from_a_lower_bound_has_no_trend() {
    let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
    for second in 0..700_u32 {
        let mut done = Completed::clone(&completed(&[("queue_depth", f64::from(second))]));
        if second == 699 {
            let reading = done.snapshot.signals.get_mut("queue_depth").expect("set");
            reading.quality = Quality::LowerBound;
        }
        ring.push(Arc::new(done), at(f64::from(second)));
        let trend = ring.trend("queue_depth", Heading::Up, Duration::from_mins(10));
        match second {
            0..480 => assert_eq!(trend, Err(Gap::WarmingUp(None)), "{second}"),
            480..699 => assert!(trend.expect("known").value.holds, "{second}"),
            _ => assert_eq!(trend, Err(Gap::LowerBound)),
        }
    }
}

#[test]
fn a_trend_across_a_new_quota_is_none() {
    let mut ring = Ring::new(BTreeSet::from(["tpm_headroom".to_owned()]));
    for second in 0..900_u32 {
        let limit = if second < 500 { 900.0 } else { 450.0 };
        let numbers = [("tpm_headroom", 0.9 - f64::from(second) / 1_200.0), ("tpm_limit", limit)];
        ring.push(completed(&numbers), at(f64::from(second)));
    }
    let trend = |minutes| ring.trend("tpm_headroom", Heading::Down, Duration::from_mins(minutes));
    assert!(matches!(trend(10), Err(Gap::NoBaseline(Some(_)))));
    assert!(trend(5).expect("all of it under the new quota").value.holds);
}

#[test]
fn a_trend_in_gaps_or_over_too_short_a_span_is_thin() {
    let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
    for second in 0..1_000_u32 {
        let known = second % 60 < 20;
        let numbers = [("queue_depth", f64::from(second))];
        let numbers: &[_] = if known || second == 999 { &numbers } else { &[] };
        ring.push(completed(numbers), at(f64::from(second)));
    }
    for minutes in [1, 10] {
        let trend = ring.trend("queue_depth", Heading::Up, Duration::from_mins(minutes));
        assert!(matches!(trend, Err(Gap::Thin(_))), "{minutes} min: {trend:?}");
    }
}

#[test]
fn openings_of_a_breaker_are_counted_where_nobody_does() {
    let mut ring = Ring::new(BTreeSet::from(["breaker_opens_per_hour".to_owned()]));
    for second in 0..100_u32 {
        let state = if second % 20 < 10 { "closed" } else { "open" };
        let mut snapshot = Snapshot::new("scope", 10.0);
        let record = [("state".to_owned(), Value::Text(state.to_owned()))];
        snapshot.set("breaker", Value::Map(record.into()), &Arc::from("test"));
        ring.push(Arc::new(complete(&snapshot)), at(f64::from(second)));
    }
    let read = ring.number("breaker_opens_per_hour", Window::Fast).expect("counted");
    assert_eq!((read.value, read.quality), (5.0, Quality::LowerBound));
}
