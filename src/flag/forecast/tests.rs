//! What is foretold of a storm, where nothing is, and how a forecast is held against what came.

#[path = "../../../tests/storm_signals/mod.rs"]
mod storm_signals;

use storm_signals::STORM;

use super::super::fixture::{scope, table};
use super::*;
use crate::flag::wanted;

const OFF: [(&str, &str); 2] = [("admission.mode", "off"), ("retry.owner", "client")];

fn of(signals: &[(&str, f64)], changes: &[&str]) -> Result<Forecast, NoForecast> {
    let changes = wanted(changes).expect("a test names real flags");
    forecast(&scope(signals), None, &table(&OFF), &changes)
}

fn without(name: &str) -> Vec<(&'static str, f64)> {
    STORM.into_iter().filter(|(known, _)| *known != name).collect()
}

#[test]
fn a_storm_ends_with_one_retry_owner_and_admission() {
    let contain = ["admission.mode=enforce", "retry.owner=gateway"];
    let forecast = of(&STORM, &contain).expect("all is known");
    let row = |measure| *forecast.row(measure).expect("a row");
    let attempts = row(Measure::Amplification);
    assert!(attempts.without.middle > 3.0, "{attempts:?}");
    assert!(attempts.with.middle < 1.1, "{attempts:?}");
    let admitted = row(Measure::Admitted);
    assert!((5.0..15.0).contains(&admitted.with.middle), "the quota's worth: {admitted:?}");
    for row in &forecast.rows {
        let Range { low, middle, high } = row.with;
        assert!(low <= middle && middle <= high, "{row:?}");
    }
    assert!(!forecast.assumptions.is_empty());
    assert_eq!(of(&STORM, &contain), Ok(forecast), "the same question has the same answer");
}

#[test]
fn nothing_is_foretold_of_what_is_not_known() {
    let contain = ["admission.mode=enforce"];
    for (name, said) in [
        ("originals_rps", "originals_rps"),
        ("tpm_limit", "tpm_limit or rpm_limit"),
        ("tokens_per_request", "tokens_per_request"),
        ("latency_p50_s", "latency_p50_s"),
    ] {
        let why = of(&without(name), &contain).expect_err(name).to_string();
        assert!(why.contains(said), "{name}: {why}");
    }
    let about_whom = of(&STORM, &["tenant.cap_ratio=0.4"]).expect_err("nobody knows who asks");
    assert!(about_whom.to_string().contains("tenant.cap_ratio"), "{about_whom}");
    let room: Vec<_> = without("tpm_headroom").into_iter().chain([("tpm_headroom", 0.9)]).collect();
    let why = of(&room, &contain).expect_err("refusals by no meter").to_string();
    assert!(why.contains("a rule that is not known"), "{why}");
}

#[test]
fn a_forecast_is_held_against_what_came() {
    let range = |middle| Range { low: middle * 0.8, middle, high: middle * 1.2 };
    let row =
        |measure, middle| Row { measure, now: None, without: range(1.0), with: range(middle) };
    let foretold = Forecast {
        scope: "scope".to_owned(),
        rows: vec![
            row(Measure::Admitted, 20.0),
            row(Measure::Shed, 10.0),
            row(Measure::Served, 0.5),
        ],
        assumptions: Vec::new(),
    };
    let later = scope(&[("admitted_rps", 21.0), ("shed_rps", 20.0)]);
    let record = foretold.against(&later).expect("two numbers are known");
    assert_eq!((record.held(), record.rows.len()), (1, 2));
    let said = "1 of 2 within their range; shed/s 10 foretold, 20 came: off by 50%";
    assert_eq!(record.words(), said);
    assert_eq!(foretold.against(&scope(&[])), None);
    let served = foretold.row(Measure::Served).expect("a row").words();
    assert_eq!(served, "served              100% as it is,    50% with it (40% to 60%)");
}
