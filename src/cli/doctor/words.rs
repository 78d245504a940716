//! The report as a person reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::diagnosis::{Reach, Within};
use crate::ingest::Adapter;
use crate::ingest::prometheus::Answers;
use crate::signal::Quality;

use super::Report;
use super::finding::Finding;
use super::sources::{Checked, OneInstance, Page, Seen};

/// Instances of one source that are named when they do not answer.
const NAMED_MAX: usize = 10;

/// The report in words.
pub fn of(report: &Report) -> String {
    let mut text = String::new();
    if report.sources.is_empty() {
        text.push_str("no [[source]]: add one with `name`, `adapter` and `url`\n");
    }
    for source in &report.sources {
        let Adapter { name, title, verified, .. } = &*source.adapter;
        let _ = writeln!(text, "{}  adapter {name}: {title}, {}", source.name, verified.word());
        text.push_str(&seen(source));
        text.push_str(&signals(source));
        text.push('\n');
    }
    let silent: Vec<&str> = report
        .sources
        .iter()
        .filter(|source| !source.has_answered())
        .map(|source| source.name.as_str())
        .collect();
    if !silent.is_empty() {
        let _ = writeln!(text, "once {} answers:", silent.join(", "));
    }
    text.push_str(&causes(&report.causes));
    text.push('\n');
    for finding in &report.findings {
        text.push_str(&line(finding));
    }
    text
}

fn line(finding: &Finding) -> String {
    let Finding { what, standing, said, next } = finding;
    let next = next.as_ref().map_or_else(String::new, |next| format!("; {next}"));
    format!("{:<6} {what:<13} {said}{next}\n", standing.word())
}

fn seen(source: &Checked) -> String {
    match &source.seen {
        Seen::Answers(answers) => match answers.as_ref() {
            Ok(answers) => from_prometheus(answers),
            Err(error) => format!("  does not answer: {error}\n"),
        },
        Seen::Instances(Ok(all)) => {
            instances(all) + &source.page().map_or_else(String::new, |sum| page(&sum, source))
        }
        Seen::Instances(Err(error)) => format!("  instances are not known: {error}\n"),
    }
}

/// Who does not answer, and how many do where there are many.
fn instances(all: &[OneInstance]) -> String {
    let failed: Vec<_> = all.iter().filter_map(|one| one.page.as_ref().err()).collect();
    let mut text = String::new();
    if all.len() != 1 {
        let _ = writeln!(text, "  {} of {} instances answer", all.len() - failed.len(), all.len());
    }
    for error in failed.iter().take(NAMED_MAX) {
        let _ = writeln!(text, "  does not answer: {error}");
    }
    if failed.len() > NAMED_MAX {
        let _ = writeln!(text, "  and {} more, in --json", failed.len() - NAMED_MAX);
    }
    text
}

fn from_prometheus(answers: &Answers) -> String {
    let took_s = answers.took().as_secs_f64();
    let series = answers.series();
    let mut text = format!("  Prometheus answered in {took_s:.2} s with {series} series");
    let _ = writeln!(text, ", the newest {:.0} s old", answers.age_s());
    match answers.instances() {
        Some((up, all)) => {
            let _ = writeln!(text, "  it scrapes {up} of {all} instances");
        }
        None => text.push_str("  it has no `up` series for them; does `select` fit them?\n"),
    }
    for warning in answers.warnings() {
        let _ = writeln!(text, "  warns: {warning}");
    }
    text
}

fn page(page: &Page, of: &Checked) -> String {
    let Page { took_s, samples, bad_line_count, bad_lines, lost, .. } = page;
    let mut text = format!("  answered in {took_s:.2} s with {samples} samples\n");
    if *bad_line_count > 0 {
        let _ = writeln!(text, "  {bad_line_count} bad lines: Prometheus would reject this target");
    }
    for (line, reason) in bad_lines.iter().take(NAMED_MAX) {
        let _ = writeln!(text, "    line {line}: {reason}");
    }
    if *lost > 0 {
        let _ = writeln!(
            text,
            "  the prometheus-parse family of parsers loses {lost} of your {samples} samples, without a word"
        );
    }
    let missing: Vec<_> = of.missing_on(page).into_iter().collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "  not on its page: {}", missing.join(", "));
    }
    text
}

fn signals(source: &Checked) -> String {
    let mut text = String::new();
    if !source.has_answered() {
        text.push_str("  when it answers it should tell, by its adapter:\n");
    }
    let words = source.words();
    for quality in [Quality::Exact, Quality::LowerBound, Quality::Inferred] {
        let of = words.iter().filter(|word| word.quality.as_ref() == Ok(&quality));
        let names: Vec<&str> = of.map(|word| word.signal).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "  {:<12} {}", quality.word(), names.join(", "));
        }
    }
    // Signals that are absent for the same reason share a line.
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for word in &words {
        if let Err(why) = &word.quality {
            reasons.entry(why).or_default().push(word.signal);
        }
    }
    for (why, names) in reasons {
        let _ = writeln!(text, "  {:<12} {}: {why}", "absent", names.join(", "));
    }
    text
}

fn causes(causes: &[Reach]) -> String {
    let of = |wanted| causes.iter().filter(move |reach| reach.within == wanted);
    let named: Vec<&str> = of(Within::Confirmed).map(|reach| reach.cause.as_str()).collect();
    let mut text = format!("can be confirmed: {}\n", list(&named));
    for (wanted, title) in [
        (Within::Likely, "can be likely at most, for what would contradict it is not seen"),
        (Within::CannotTell, "cannot be told"),
    ] {
        if of(wanted).next().is_some() {
            let _ = writeln!(text, "{title}:");
        }
        for reach in of(wanted) {
            let _ = writeln!(text, "  {:<24} needs {}", reach.cause, reach.needs.join(", "));
        }
    }
    text
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
