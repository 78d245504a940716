//! How well the forecast of a flip foretells what happens: every cure and harm of every scenario, from
//! several seeds, on the virtual clock. `cargo bench --bench forecast [-- SCENARIO]`.
//!
//! A flip is made twenty seconds into the incident. The forecast sees the snapshot of that moment and the
//! flags, never the scenario; sixty seconds later it is held against the snapshot of then.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../tests/flag_table/mod.rs"]
mod flag_table;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use weir::admission::Settings;
use weir::drill::TimedFlip;
use weir::drill::checks::{Flip, Ground};
use weir::drill::scenario::{Scenario, names};
use weir::drill::virtual_run::{Play, watch};
use weir::flag::{Change, Demand, FlagTable, HORIZON_S, Measure, forecast};
use weir::signal::Snapshot;

const SEEDS: u64 = 3;
const FLIP_AFTER: Duration = Duration::from_secs(20);

/// The flags as a scenario begins with them.
fn table(scenario: &Scenario) -> FlagTable {
    let mut settings = Settings::default();
    for (key, value) in &scenario.flags {
        settings.set(key, value.clone()).expect("a scenario was checked");
    }
    flag_table::table(&settings)
}

#[derive(Default)]
struct Score {
    held: u32,
    of: u32,
    errors: Vec<f64>,
}

impl Score {
    fn median(&mut self) -> f64 {
        self.errors.sort_by(f64::total_cmp);
        self.errors.get(self.errors.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

#[expect(clippy::too_many_lines, reason = "a script")]
fn main() {
    let only: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut scores: BTreeMap<Measure, Score> = BTreeMap::new();
    let (mut flips_seen, mut flips_held, mut none, mut took) = (0, 0, 0, Vec::new());
    for name in names() {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        let scenario = Scenario::load(name).expect("it is shipped");
        let cures = scenario.cures.iter().map(|cure| &cure.flip);
        let harms = scenario.harms.iter().filter(|harm| harm.on == Ground::Incident);
        let flips: Vec<&Flip> = cures.chain(harms.map(|harm| &harm.flip)).collect();
        for flip in flips {
            for seed in 1..=SEEDS {
                let at = scenario.onset + FLIP_AFTER;
                let end = at + Duration::from_secs_f64(HORIZON_S);
                let timed: Vec<_> = flip
                    .flags
                    .iter()
                    .map(|(key, value)| TimedFlip { at, key: key.clone(), value: value.clone() })
                    .collect();
                let play = Play { scenario: &scenario, seed, total: end, flips: &timed };
                let mut seen = Vec::new();
                let (mut before, mut after): (Option<Snapshot>, Option<Snapshot>) = (None, None);
                watch(&play, None, |snapshot, now| {
                    if snapshot.scope.ends_with("/embed") {
                        if let Some(rate) = snapshot.number("originals_rps")
                            && now.since_start() <= at
                        {
                            seen.push((now, rate));
                        }
                        let kept = if now.since_start() <= at { &mut before } else { &mut after };
                        *kept = Some(snapshot.clone());
                    }
                })
                .expect("flags were checked");
                let (Some(before), Some(after)) = (before, after) else { continue };
                let changes: Vec<_> = flip
                    .flags
                    .iter()
                    .map(|(key, value)| Change { key: key.clone(), to: Some(value.clone()) })
                    .collect();
                let began = Instant::now();
                let foretold = forecast(&before, Demand::of(&seen), &table(&scenario), &changes);
                took.push(began.elapsed().as_secs_f64());
                let foretold = match foretold {
                    Ok(foretold) => foretold,
                    Err(why) => {
                        none += 1;
                        if seed == 1 {
                            println!("{name} {}: {why}", flip.name());
                        }
                        continue;
                    }
                };
                flips_seen += 1;
                let mut all = true;
                let mut line = String::new();
                for row in &foretold.rows {
                    let Some(actual) = after.number(row.measure.signal()) else { continue };
                    let score = scores.entry(row.measure).or_default();
                    let holds = row.with.holds(actual);
                    score.of += 1;
                    score.held += u32::from(holds);
                    let error = (row.with.middle - actual).abs() / actual.abs().max(0.05);
                    score.errors.push(error);
                    all &= holds;
                    let mark = if holds { ' ' } else { '!' };
                    let _ = write!(
                        line,
                        " {mark}{} {:.2} [{:.2} {:.2} {:.2}]",
                        &row.measure.signal()[..5],
                        actual,
                        row.with.low,
                        row.with.middle,
                        row.with.high
                    );
                }
                flips_held += u32::from(all);
                if seed == 1 {
                    let told = [
                        "originals_rps",
                        "offered_rps",
                        "admitted_rps",
                        "attempts_rps",
                        "shed_rps",
                        "client_multiplication",
                        "gate_refused_share",
                        "provider_refused_share",
                        "served_share",
                        "originals_rps_15m_ago",
                    ]
                    .map(|n| format!("{n}={:?}", before.number(n)))
                    .join(" ");
                    if !all {
                        println!("BEFORE {told}");
                    }
                    println!("{name} {}:{line}", flip.name());
                }
            }
        }
    }
    println!(
        "\n{flips_seen} flips, {none} without a forecast; every number within its range in {flips_held}"
    );
    for (measure, score) in &mut scores {
        let share = 100.0 * f64::from(score.held) / f64::from(score.of);
        println!(
            "{:20} held {share:5.1} %  median error {:5.1} %",
            measure.signal(),
            100.0 * score.median()
        );
    }
    took.sort_by(f64::total_cmp);
    println!(
        "a forecast takes {:.2} s at the median, {:.2} s at most",
        took[took.len() / 2],
        took[took.len() - 1]
    );
}
