//! `weir drill --compare`: one storm under five controls, and the figures that were promised.

#[expect(dead_code, reason = "a comparison has no phases and no ledger")]
mod drill_support;

use std::process::{Command, Output};

use drill_support::{assert_between, drill, number};
use serde_json::Value;

fn weir(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["drill", "--compare"]).args(arguments).output().expect("weir starts")
}

fn row<'a>(report: &'a Value, control: &str) -> &'a Value {
    let rows = report["controls"].as_array().expect("rows");
    rows.iter().find(|row| row["control"] == control).expect("one of the five")
}

#[test]
fn the_document_has_what_full_admission_promises() {
    let report = drill(&["--compare", "--for", "180s"]);
    assert_eq!(report["controls"].as_array().map(Vec::len), Some(5));
    assert_eq!(report["surge"]["to_s"], 70.0, "the storm gets an end");
    assert_eq!(report["recovery_observed_s"], 110.0);
    let full = row(&report, "full-admission");
    assert_between("goodput", number(full, "goodput_share"), 0.97, 1.0);
    assert_between("amplification", number(full, "amplification"), 1.0, 1.05);
    assert_between("recovery", number(full, "recovery_s"), 0.0, 120.0);
    assert_between("oscillation", number(full, "oscillation"), 0.0, 0.05);
    let none = row(&report, "no-control");
    assert_between("amplification", number(none, "amplification"), 6.0, 9.5);
    assert_between("shed", number(none, "shed_share"), 0.0, 0.0);
    let workers = &report["four_workers"];
    assert_eq!((&workers["requests"], &workers["refused"]), (&10.into(), &6.into()));
    assert_between("last", number(workers, "last_s"), 3.5, 3.5);
    assert_between("last with jitter", number(workers, "jittered_last_s"), 1.45, 1.65);
}

#[test]
fn the_same_seed_prints_the_same_table_within_120_columns() {
    let print = || {
        let output = weir(&["--for", "75s", "--seed", "3"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let table = print();
    assert_eq!(table, print());
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    assert!(table.contains("not within 5 s"), "no control is well so soon\n{table}");
}

#[test]
fn a_run_that_ends_before_the_surge_is_refused_with_a_remedy() {
    let output = weir(&["--for", "60s"]);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("the surge only at 70 s") && words.contains("--for"), "{words}");
}
