//! Placeholders, proofs of windows, every row of every table, lists, and arbitrary text.

use super::*;
use http::HeaderValue;
use proptest::prelude::*;

fn read(headers: &[(&'static str, &str)]) -> Shown {
    let map: HeaderMap = headers
        .iter()
        .map(|(name, text)| {
            let value = HeaderValue::from_str(text).expect("visible text");
            (HeaderName::from_static(name), value)
        })
        .collect();
    let now = "2026-11-29T12:00:00Z".parse().ok();
    Shown::read(&map, Provider::GENERIC, Clock::of(&map, now))
}

#[test]
fn placeholders_are_unknown_and_overdrawn_is_empty() {
    let limit = "x-ratelimit-limit-tokens";
    let remaining = "x-ratelimit-remaining-tokens";
    let reset = "x-ratelimit-reset-tokens";
    assert_eq!(read(&[(limit, "-1"), (remaining, "-1"), (reset, "0")]).meters, []);
    let overdrawn = read(&[(limit, "1000"), (remaining, "-853")]);
    assert_eq!((overdrawn.meters[0].limit, overdrawn.meters[0].remaining), (Some(1e3), Some(0.0)));
    assert_eq!(overdrawn.negative, [(Meter::Tokens, -853.0)]);
    let no_limit = read(&[(limit, "0"), (remaining, "12")]);
    assert_eq!((no_limit.meters[0].limit, no_limit.meters[0].remaining), (None, Some(12.0)));
    assert_eq!(read(&[(limit, "1e5")]).meters, []);
    assert_eq!(read(&[("x-ratelimit-limit-tokens_usage_based", "160000")]).meters, []);
}

#[test]
fn a_reset_proves_a_window_or_says_nothing() {
    let check = |limit: &str, remaining: &str, reset: &str, expected: (Meter, Option<u64>)| {
        let shown = read(&[
            ("x-ratelimit-limit-requests", limit),
            ("x-ratelimit-remaining-requests", remaining),
            ("x-ratelimit-reset-requests", reset),
        ]);
        let one = shown.meters[0];
        let window_s = one.window.map(|window| window.as_secs());
        assert_eq!((one.meter, window_s), expected, "{limit} {remaining} {reset}");
    };
    let day = (Meter::RequestsPerDay, Some(86_400));
    check("200", "197", "16m17.764s", day);
    check("14400", "14370", "2m59.56s", day);
    check("14400", "14399", "6s", day);
    check("10000", "9999", "8.64s", day);
    // One millisecond of a minute's meter, rounded up.
    check("60000", "59999", "1s", (Meter::Requests, None));
    check("3000", "2999", "20ms", (Meter::Requests, Some(60)));
    check("6000", "0", "1m0s", (Meter::Requests, Some(60)));
    // A bare number is the end of a fixed window and says nothing about its length.
    check("1000", "999", "60", (Meter::Requests, None));
    check("200", "200", "0s", (Meter::Requests, None));
    // Two windows would fit.
    check("10000000", "9999000", "2ms", (Meter::Requests, None));
}

#[test]
fn every_row_of_every_table_is_read() {
    for row in Provider::GENERIC.rows() {
        let name = |name: &Option<HeaderName>| name.clone().expect("both stand in every row");
        let map: HeaderMap = [
            (name(&row.limit), HeaderValue::from_static("50")),
            (name(&row.remaining), HeaderValue::from_static("0")),
        ]
        .into_iter()
        .collect();
        let shown = Shown::read(&map, Provider::GENERIC, Clock::of(&map, None));
        assert_eq!(shown.meters.len(), 1, "{row:?}");
        assert_eq!(shown.meters[0].meter, row.meter, "{row:?}");
        let has_name = row.meter != Meter::Tokens || row.window_s != Some(Duration::from_secs(1));
        assert_eq!(shown.empty_meter(), has_name.then_some(row.meter), "{row:?}");
    }
}

#[test]
fn a_meter_is_shown_once() {
    let both =
        read(&[("anthropic-ratelimit-tokens-limit", "8"), ("x-ratelimit-limit-tokens", "9")]);
    assert_eq!(both.meters.len(), 1);
}

#[test]
fn lists_without_a_window_do_not_name_a_meter() {
    let shown = read(&[("x-ratelimit-limit", "120"), ("x-ratelimit-remaining", "0")]);
    assert_eq!((shown.meters[0].meter, shown.empty_meter()), (Meter::Requests, None));
    let shown = read(&[("ratelimit", "\"a\";r=0"), ("ratelimit-policy", "\"a\";q=9;w=60")]);
    assert_eq!(shown.empty_meter(), Some(Meter::Requests));
    let shown = read(&[("ratelimit", "\"a\";r=0"), ("ratelimit-policy", "\"a\";q=9;w=3600")]);
    assert_eq!(shown.empty_meter(), Some(Meter::RequestsPerHour));
}

#[test]
fn the_policy_of_a_limit_can_hold_its_reset() {
    let window = |limit: &str, reset: &str| {
        let shown = read(&[("ratelimit-limit", limit), ("ratelimit-reset", reset)]);
        shown.meters[0].window.map(|window| window.as_secs())
    };
    assert_eq!(window("100, 100;w=60;comment=\"a, b; c\", 5000;w=3600", "44"), Some(60));
    assert_eq!(window("10, 10;w=1, 50;w=60", "7"), None);
    assert_eq!(window("10, 10;w=1, 50;w=60", "1"), Some(1));
    assert_eq!(window("10", "1"), None);
}

#[test]
fn a_list_with_a_member_that_has_no_name_is_read_without_it() {
    let left = |text: &str| {
        let shown = read(&[("x-ratelimit-limit", "9, 9"), ("x-ratelimit-remaining", text)]);
        shown.meters.first().and_then(|meter| meter.remaining)
    };
    assert_eq!([";,;", "\"\",;,"].map(left), [None, None]);
    assert_eq!(left("7,;"), Some(7.0));
}

proptest! {
    #[test]
    fn no_text_panics(
        texts in prop::collection::vec(prop_oneof!["[ -~]{0,80}", "[\",;= a0-9]{0,20}"], 4),
    ) {
        let _ = read(&[
            ("ratelimit", &texts[0]),
            ("ratelimit-policy", &texts[1]),
            ("x-ratelimit-limit", &texts[2]),
            ("x-ratelimit-remaining", &texts[3]),
            ("x-ratelimit-reset-tokens", &texts[0]),
        ]);
    }
}
