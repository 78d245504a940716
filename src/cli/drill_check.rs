//! `weir drill --check`: whether scenarios show what their files say, as a table or as one document.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use color_eyre::eyre::{Result, eyre};
use serde_json::json;

use super::columns::{COLUMNS, wrap};
use super::out;
use crate::diagnosis::Library;
use crate::drill::checks::{
    self, CONFIRMED_WITHIN, Checked, Compared, Moment, NAMED_WITHIN, Said, Told, Wrongly,
};
use crate::drill::scenario::{Scenario, names};

/// Most seeds of one check.
const SEEDS_MAX: u64 = 10_000;
/// Rows with a mark are indented so far,
const MARKED_INDENT: usize = 4;
/// and the mark takes so many columns.
const MARK_COLUMNS: usize = 5;

/// What is checked.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Whether scenarios show what their files say: evidence, cures, harms; on the virtual clock
    #[arg(long, conflicts_with_all = ["list", "compare", "headless", "flips", "total", "record"])]
    check: bool,
    /// Every shipped scenario
    #[arg(long, requires = "check", conflicts_with = "scenarios")]
    all: bool,
    /// How many seeds, from --seed on
    #[arg(long, requires = "check", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: Option<u64>,
    /// A verdict other than the expected one fails too
    #[arg(long, requires = "check")]
    strict: bool,
}

impl CheckArgs {
    /// Whether a check is asked for.
    pub const fn is_asked(&self) -> bool {
        self.check
    }
}

/// Checks these scenarios, or all that ship; the first seed is `seed`.
///
/// # Errors
/// When a scenario cannot be read.
pub fn run(
    args: &CheckArgs,
    scenarios: &[String],
    seed: u64,
    library: &Arc<Library>,
    as_json: bool,
) -> Result<ExitCode> {
    let scenarios: Vec<Scenario> = if args.all {
        names().map(Scenario::load).collect::<Result<_, _>>()?
    } else {
        scenarios.iter().map(|name| Scenario::load(name)).collect::<Result<_, _>>()?
    };
    let last =
        seed.checked_add(args.seeds.unwrap_or(1)).ok_or_else(|| eyre!("no seed is so high"))?;
    let seeds: Vec<u64> = (seed..last).collect();
    let checked = checks::run(&scenarios, &seeds, library)?;
    let ok = |one: &Checked| one.passed && (!args.strict || one.verdicts_match());
    let passed = checked.iter().all(ok);
    if as_json {
        let document = json!({ "passed": passed, "strict": args.strict, "runs": checked });
        out::line(format_args!("{document:#}"))?;
    } else {
        out::text(&table(&checked, seeds.len(), ok))?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was found, in 80 columns; `seeds` runs of each scenario follow one another. Of several
/// scenarios a row each, and all that is known only of those that are not right.
fn table(checked: &[Checked], seeds: usize, ok: impl Fn(&Checked) -> bool) -> String {
    let scenarios: Vec<_> = checked.chunks(seeds.max(1)).collect();
    let [only] = scenarios[..] else {
        let wrong = scenarios.iter().filter(|runs| !runs.iter().all(&ok));
        let begun = overview(&scenarios, &ok);
        return wrong.fold(begun, |text, runs| text + "\n" + &detail(runs));
    };
    detail(only)
}

/// A row per scenario: whether it is right, in how many seeds, and what is said of it.
fn overview(scenarios: &[&[Checked]], ok: impl Fn(&Checked) -> bool) -> String {
    let rows = || scenarios.iter().filter_map(|runs| Some((runs.first()?, *runs)));
    let name = rows().map(|(first, _)| first.scenario.len()).max().unwrap_or(0);
    let mut text = format!(
        "     {:<name$}  {:<10}{:<9}{:<11}verdict\n",
        "scenario", "right in", "named s", "confirmed s"
    );
    for (first, runs) in rows() {
        let right = runs.iter().filter(|run| run.passed).count();
        let right = format!("{right} of {}", runs.len());
        let other = runs.iter().map(|run| &run.verdict).find(|said| !said.matches);
        let cause = other.unwrap_or(&first.verdict).cause.as_deref().unwrap_or("nothing");
        let word = if other.is_some() { "other: " } else { "" };
        let mark = mark(runs.iter().all(&ok));
        let named = slowest(runs, |told| told.named_after_s);
        let confirmed = slowest(runs, |told| told.confirmed_after_s);
        let _ = writeln!(
            text,
            "{mark:<5}{:<name$}  {right:<10}{named:<9}{confirmed:<11}{word}{cause}",
            first.scenario
        );
    }
    text
}

/// Everything that is known of one scenario, from all its seeds.
fn detail(runs: &[Checked]) -> String {
    let mut text = String::new();
    let Some(first) = runs.first() else { return text };
    let passed = runs.iter().filter(|run| run.passed).count();
    let _ = writeln!(text, "{}: {}", first.scenario, count(passed, runs.len(), "right"));
    moments(&mut text, "evidence", &each(runs, |run| &run.evidence));
    said(&mut text, "", &each(runs, |run| std::slice::from_ref(&run.verdict)));
    told(&mut text, runs);
    for (place, cure) in first.cures.iter().enumerate() {
        moments(
            &mut text,
            &format!("cure {}", cure.flip),
            &each(runs, |run| &run.cures[place].back),
        );
        let verdicts = each(runs, |run| std::slice::from_ref(&run.cures[place].verdict));
        said(&mut text, " after it", &verdicts);
        wrongly(&mut text, runs, |run| &run.cures[place].wrong);
    }
    for (place, harm) in first.harms.iter().enumerate() {
        let _ = writeln!(text, "  harm {}", harm.flip);
        compared(&mut text, &each(runs, |run| &run.harms[place].worse));
    }
    text.lines().fold(String::new(), |all, line| all + &hanging(line))
}

/// A line that continues below where its words begin, if it would go beyond the last column.
fn hanging(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    // Marks stand in a column of their own.
    let hang = if indent >= MARKED_INDENT { indent + MARK_COLUMNS } else { indent + 2 };
    if line.len() <= COLUMNS {
        return format!("{line}\n");
    }
    let (head, rest) = line.split_at(hang);
    let lines = wrap(rest, COLUMNS - hang);
    let rows = lines.iter().enumerate().map(|(number, part)| match number {
        0 => format!("{head}{part}\n"),
        _ => format!("{:hang$}{part}\n", ""),
    });
    rows.collect()
}

/// The same row of every run, row by row.
fn each<'a, T>(runs: &'a [Checked], rows: impl Fn(&'a Checked) -> &'a [T]) -> Vec<Vec<&'a T>> {
    let count = runs.first().map_or(0, |run| rows(run).len());
    (0..count).map(|row| runs.iter().filter_map(|run| rows(run).get(row)).collect()).collect()
}

fn moments(text: &mut String, title: &str, rows: &[Vec<&Moment>]) {
    let Some(first) = rows.first().and_then(|row| row.first()) else { return };
    let _ = writeln!(text, "  {title}, within {} s", first.within_s);
    for row in rows {
        let failed: Vec<_> = row.iter().filter(|moment| !moment.passed).collect();
        let when = match failed.first() {
            None => range(row.iter().filter_map(|moment| moment.after_s), 0) + " s",
            Some(moment) => {
                let after = moment.after_s.map_or_else(
                    || format!("not (last: {})", moment.last),
                    |after_s| format!("only after {after_s:.0} s"),
                );
                match row.len() {
                    1 => after,
                    all => format!("{after} ({} of {all} seeds)", failed.len()),
                }
            }
        };
        let predicate = row.first().map_or("", |moment| &moment.predicate);
        let _ = writeln!(text, "    {:<5}{predicate}: {when}", mark(failed.is_empty()));
    }
}

fn said(text: &mut String, when: &str, rows: &[Vec<&Said>]) {
    for row in rows {
        let Some(first) = row.first() else { continue };
        let other = row.iter().find(|said| !said.matches);
        let shown = other.unwrap_or(first);
        let cause = shown.cause.as_deref().unwrap_or("nothing");
        let standing = shown.standing.map_or_else(String::new, |word| format!(" ({word})"));
        let others = row.iter().filter(|said| !said.matches).count();
        let expected = match other {
            None => String::new(),
            Some(_) => format!(", expected {} ({others} of {} seeds)", first.expected, row.len()),
        };
        let _ = writeln!(text, "  verdict{when}: {cause}{standing}{expected}");
    }
}

/// The longest time of all runs, or that it never came in one.
fn slowest(runs: &[Checked], after: impl Fn(&Told) -> Option<f64>) -> String {
    let times: Option<Vec<f64>> = runs.iter().map(|run| after(&run.told)).collect();
    let longest = |times: Vec<f64>| times.into_iter().fold(0.0, f64::max);
    times.map(longest).map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0}"))
}

/// One of the times of what was told.
type After = fn(&Told) -> Option<f64>;

/// How soon the cause was told, and what was confirmed that is not so.
fn told(text: &mut String, runs: &[Checked]) {
    let rows: [(_, After, _); 2] = [
        ("named", |told| told.named_after_s, NAMED_WITHIN),
        ("confirmed", |told| told.confirmed_after_s, CONFIRMED_WITHIN),
    ];
    for (word, after, bound) in rows {
        let times: Vec<f64> = runs.iter().filter_map(|run| after(&run.told)).collect();
        let late = |seconds: &&f64| **seconds > bound.as_secs_f64();
        let (never, late) = (runs.len() - times.len(), times.iter().filter(late).count());
        let after = range(times.into_iter(), 0);
        let _ = writeln!(text, "  {word} after {after} s; {late} late, {never} never");
    }
    wrongly(text, runs, |run| &run.told.wrong);
}

/// Every cause that was confirmed and is not so: in how many seeds, when, and for how long at most.
fn wrongly<'a>(text: &mut String, runs: &'a [Checked], of: impl Fn(&'a Checked) -> &'a [Wrongly]) {
    let all: Vec<(u64, &Wrongly)> =
        runs.iter().flat_map(|run| of(run).iter().map(|one| (run.seed, one))).collect();
    let causes: BTreeSet<&str> = all.iter().map(|(_, one)| one.cause.as_str()).collect();
    for cause in causes {
        let of_it = || all.iter().filter(|(_, one)| one.cause == cause);
        let seeds: BTreeSet<u64> = of_it().map(|(seed, _)| *seed).collect();
        let from = range(of_it().map(|(_, one)| one.after_s), 0);
        let longest = of_it().map(|(_, one)| one.for_s).fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "    FAIL {cause} was confirmed in {} of {} seeds, from {from} s on, for {longest:.0} s at most (seed {})",
            seeds.len(),
            runs.len(),
            seeds.first().copied().unwrap_or_default(),
        );
    }
}

fn compared(text: &mut String, rows: &[Vec<&Compared>]) {
    for row in rows {
        let Some(first) = row.first() else { continue };
        let passed = row.iter().filter(|signal| signal.passed).count();
        let with = range(row.iter().filter_map(|signal| signal.with), 2);
        let without = range(row.iter().filter_map(|signal| signal.without), 2);
        let _ = writeln!(
            text,
            "    {:<5}{} {}: {with}, {without} without it; {}",
            mark(passed == row.len()),
            first.signal,
            first.worse,
            count(passed, row.len(), "worse"),
        );
    }
}

const fn mark(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAIL" }
}

/// `right`, or `2 of 3 seeds right`.
fn count(some: usize, all: usize, word: &str) -> String {
    if all == 1 {
        return if some == 1 { word.to_owned() } else { format!("not {word}") };
    }
    format!("{some} of {all} seeds {word}")
}

/// `5`, or `5 to 7`; unknown without any.
fn range(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
        Some(ends.map_or((value, value), |(least, most)| (least.min(value), most.max(value))))
    });
    let Some((least, most)) = ends else { return "unknown".to_owned() };
    let (least, most) = (format!("{least:.digits$}"), format!("{most:.digits$}"));
    if least == most { least } else { format!("{least} to {most}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_one_value_is_that_value_and_of_none_unknown() {
        assert_eq!(range([6.0, 5.0, 7.4].into_iter(), 0), "5 to 7");
        assert_eq!(range([5.2, 5.4].into_iter(), 0), "5");
        assert_eq!(range([].into_iter(), 0), "unknown");
    }

    #[test]
    fn a_long_row_continues_below_its_words() {
        let short = "  verdict: healthy (confirmed)";
        assert_eq!(hanging(short), format!("{short}\n"));
        let words = "word ".repeat(20);
        let row = hanging(&format!("    ok   {words}"));
        assert!(row.lines().all(|line| line.len() <= COLUMNS) && row.lines().count() == 2, "{row}");
        assert!(row.starts_with("    ok   word") && row.contains("\n         word"), "{row}");
    }

    #[test]
    fn of_several_scenarios_there_is_a_row_each() {
        let run = |scenario: &str, matches: bool, passed| Checked {
            scenario: scenario.to_owned(),
            seed: 1,
            passed,
            evidence: Vec::new(),
            verdict: Said {
                expected: "healthy".to_owned(),
                cause: Some(if matches { "healthy" } else { "retry-backlog" }.to_owned()),
                standing: None,
                matches,
            },
            told: Told {
                named_after_s: Some(4.0),
                confirmed_after_s: None,
                wrong: Vec::new(),
                passed: true,
            },
            cures: Vec::new(),
            harms: Vec::new(),
        };
        let all = [run("calm", true, true), run("storm", false, false)];
        let text = table(&all, 1, |run| run.passed);
        let rows: Vec<_> = text.lines().collect();
        assert_eq!(rows[1], "ok   calm   1 of 1    4        -          healthy");
        assert_eq!(rows[2], "FAIL storm  0 of 1    4        -          other: retry-backlog");
        assert_eq!(rows[4], "storm: not right", "and more of what is not right: {text}");
        assert!(!text.contains("calm: "), "{text}");
    }

    #[test]
    fn a_row_says_in_how_many_seeds_it_failed() {
        let moment = |after_s: Option<f64>| Moment {
            predicate: "x > 1".to_owned(),
            within_s: 15.0,
            after_s,
            passed: after_s.is_some_and(|after_s| after_s <= 15.0),
            last: "no-data".to_owned(),
        };
        let row = |all: &[Moment]| {
            let mut text = String::new();
            moments(&mut text, "evidence", &[all.iter().collect()]);
            text
        };
        let good = row(&[moment(Some(5.0)), moment(Some(6.0))]);
        assert_eq!(good, "  evidence, within 15 s\n    ok   x > 1: 5 to 6 s\n");
        let late = row(&[moment(Some(5.0)), moment(Some(20.0))]);
        assert!(late.ends_with("FAIL x > 1: only after 20 s (1 of 2 seeds)\n"), "{late}");
        let never = row(&[moment(None)]);
        assert!(never.ends_with("FAIL x > 1: not (last: no-data)\n"), "{never}");
    }
}
