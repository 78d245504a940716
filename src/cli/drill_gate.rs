//! `weir drill --gate FILE`: a surge held against bounds, as a table, as one document, as `JUnit` XML.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use color_eyre::eyre::{Result, WrapErr as _, eyre};

use super::out;
use crate::diagnosis::Library;
use crate::drill::live::{self, Control};
use crate::drill::stage::{Stage, Staging};
use crate::drill::surge::{self, Figures, GateFile, Gated, Judged, Means, Run, State};
use crate::signal::Snapshot;

/// Exit code for a file that cannot be used.
const USAGE: u8 = 2;
/// Most seeds that are named one by one.
const SEEDS_SHOWN_MAX: usize = 8;

/// What is played and what is written about it.
#[derive(Debug, clap::Args)]
pub struct GateArgs {
    /// A surge held against the bounds of a gate file; exit code 1 when one breaks
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["check", "list", "compare", "headless", "flips", "total", "seed", "scenarios", "record"],
    )]
    pub gate: Option<PathBuf>,
    /// What the application says about its answers, JSON or JSON Lines
    #[arg(long, value_name = "FILE", requires = "gate")]
    quality: Option<PathBuf>,
    /// Write the verdicts as XML for Jenkins and GitLab (`JUnit`)
    #[arg(long, value_name = "FILE", requires = "gate")]
    junit: Option<PathBuf>,
    /// Play it through processes on loopback, in real time
    #[arg(long, requires = "gate", conflicts_with = "on_virtual_clock")]
    live: bool,
}

/// Plays the gate of `file` and says how its bounds stand.
///
/// # Errors
/// When its processes do not start, or something cannot be written.
pub fn run(
    args: &GateArgs,
    file: &Path,
    library: &Arc<Library>,
    (as_json, redis): (bool, Option<&str>),
) -> Result<ExitCode> {
    let refuse = |error: &dyn std::error::Error| {
        out::note(format_args!("error: {}", chain(error)));
        Ok(ExitCode::from(USAGE))
    };
    let gate = match GateFile::load(file) {
        Ok(gate) => gate,
        Err(error) => return refuse(&error),
    };
    let quality = match args.quality.as_deref().map(surge::read_quality).transpose() {
        Ok(quality) => quality.unwrap_or_default(),
        Err(error) => return refuse(&error),
    };
    let runs = if args.live { play_live(&gate, library, redis)? } else { gate.play()? };
    let gated = gate.judge(&runs, &quality, !args.live);
    if let Some(junit) = &args.junit {
        std::fs::write(junit, surge::junit(&gated))
            .wrap_err_with(|| format!("cannot write {}", junit.display()))?;
    }
    if as_json {
        out::line(format_args!("{:#}", serde_json::json!(gated)))?;
    } else {
        out::text(&table(&gated))?;
    }
    Ok(if gated.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An error and what it comes from, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Plays every seed through processes, one after the other.
fn play_live(gate: &GateFile, library: &Arc<Library>, redis: Option<&str>) -> Result<Vec<Figures>> {
    let GateFile { scenario, source, total, seeds, .. } = gate;
    if scenario.upstream.is_some() {
        return Err(eyre!("a gate is played against the simulated provider; remove `[upstream]`"));
    }
    let program = std::env::current_exe().wrap_err("cannot find the program to start again")?;
    let _log = super::log_to_stderr(super::WARNINGS);
    super::on_runtime(async {
        let mut runs = Vec::new();
        for seed in seeds {
            let (program, seed, total) = (&*program, *seed, *total);
            let staging = Staging { program, scenario, source, seed, total, redis };
            let stage = Stage::set(&staging).await?;
            let control = Control::new(super::drill::reqwest_client()?, &stage)?;
            let means = Arc::new(Mutex::new(Means::default()));
            let see = {
                let means = Arc::clone(&means);
                move |snapshot: &Snapshot| lock(&means).see(snapshot)
            };
            let report = live::run(&stage, &control, library, total, &[], None, see).await?;
            for remark in &report.remarks {
                out::note(format_args!("weir: seed {seed}: {remark}"));
            }
            let mut figures = gate.figures(&report);
            figures.extend(lock(&means).figures());
            runs.push(figures);
        }
        Ok(runs)
    })
}

fn lock(means: &Mutex<Means>) -> MutexGuard<'_, Means> {
    means.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One row per bound; of several seeds, the figures from the least to the most. Fits 80 columns.
fn table(gated: &Gated) -> String {
    let clock = if gated.on_virtual_clock { "virtual" } else { "live" };
    let mut text = format!(
        "{} ({}, {clock}, {})\n\n     {:<24}{:<20}{:<18}broken in\n",
        gated.title,
        gated.scenario,
        seeds(&gated.runs),
        "figure",
        "measured",
        "wanted",
    );
    let rows = gated.runs.first().map_or(0, |run| run.bounds.len());
    for row in 0..rows {
        let bounds: Vec<_> = gated.runs.iter().filter_map(|run| run.bounds.get(row)).collect();
        let Some(first) = bounds.first() else { continue };
        let (mark, tail) = standing(&bounds);
        let row = format!(
            "{mark:<5}{:<24}{:<20}{:<18}{tail}",
            first.measure.word(),
            spread(&bounds),
            first.asked(),
        );
        let _ = writeln!(text, "{}", row.trim_end());
    }
    let word = if gated.passed { "every bound is kept" } else { "the gate is closed" };
    let _ = writeln!(text, "\n{word}");
    text
}

/// `ok`, or `FAIL` and in which seeds.
fn standing(bounds: &[&Judged]) -> (&'static str, String) {
    let seeds_in = |state| bounds.iter().filter(|bound| bound.state == state).count();
    let (broken, unknown) = (seeds_in(State::Broken), seeds_in(State::Unknown));
    match (broken + unknown, bounds.len()) {
        (0, _) => ("ok", String::new()),
        (failed, all) => ("FAIL", format!("{failed} of {all}")),
    }
}

/// Which seeds were played: all of a few, else from where to where.
fn seeds(runs: &[Run]) -> String {
    let seeds: Vec<_> = runs.iter().map(|run| run.seed.to_string()).collect();
    match &seeds[..] {
        [one] => format!("seed {one}"),
        [first, .., last] if seeds.len() > SEEDS_SHOWN_MAX => {
            format!("{} seeds, {first} to {last}", seeds.len())
        }
        few => format!("seeds {}", few.join(", ")),
    }
}

fn spread(bounds: &[&Judged]) -> String {
    let mut values: Vec<f64> = bounds.iter().filter_map(|bound| bound.value).collect();
    values.sort_by(f64::total_cmp);
    let figure = |value: &f64| match value.abs() {
        whole if whole.fract() == 0.0 => format!("{value}"),
        small if small < 1.0 => format!("{value:.4}"),
        small if small < 10.0 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    };
    match (values.first(), values.last()) {
        _ if values.len() < bounds.len() => "unknown".to_owned(),
        (Some(least), Some(most)) if least.total_cmp(most).is_eq() => figure(least),
        (Some(least), Some(most)) => format!("{} to {}", figure(least), figure(most)),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::surge::Measure;

    #[test]
    fn a_row_shows_the_spread_and_unknown_is_never_a_number() {
        let bound = |value: Option<f64>, state| Judged {
            measure: Measure::EarlyRetries,
            min: None,
            max: Some(0.0),
            value,
            state,
        };
        let row = |bounds: Vec<Judged>| {
            let run = |bound: Judged| Run { seed: 1, passed: false, bounds: vec![bound] };
            let runs = bounds.into_iter().map(run).collect();
            let (title, scenario) = ("t".to_owned(), "s".to_owned());
            table(&Gated { title, scenario, on_virtual_clock: true, passed: false, runs })
        };
        let two = row(vec![bound(Some(0.0), State::Kept), bound(Some(3.0), State::Broken)]);
        let broken = "FAIL early_retries           0 to 3              at most 0         1 of 2\n";
        assert!(two.contains(broken), "{two}");
        let unknown = row(vec![bound(None, State::Unknown)]);
        assert!(unknown.contains("unknown") && unknown.contains("the gate is closed"), "{unknown}");
    }
}
