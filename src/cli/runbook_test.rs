//! `weir runbook test`: runs test files, and says which ways and which thresholds no test holds.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use color_eyre::eyre::{Result, eyre};
use serde_json::{Value, json};

use super::out::{self, OutputError};
use crate::diagnosis::Library;
use crate::incident::recording::Replay;
use crate::runbook::{self, Coverage, Failure, Mutation, Severity, Sheet, TestFile};

/// What `weir runbook test` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Test files; `runbook` in each names a file beside it
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Says which ways out of steps no test walks
    #[arg(long)]
    coverage: bool,
    /// Fails when a file's tests walk less than this share of the ways out
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    min_coverage: Option<f64>,
    /// Changes the runbook in one place after the other and says what no test notices
    #[arg(long)]
    mutate: bool,
    /// Fails when more than this share of a file's changes survives
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    max_survivors: Option<f64>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err("write a share from 0 to 100, such as `90`".to_owned()),
    }
}

/// What one test file showed.
struct Shown {
    file: String,
    runbook: String,
    expectations: usize,
    failures: Vec<Failure>,
    coverage: Option<Coverage>,
    mutation: Option<Mutation>,
}

/// Runs the subcommand.
///
/// # Errors
/// When a file cannot be read; the error names it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let shown: Vec<Shown> = args.files.iter().map(|file| one(file, args)).collect::<Result<_>>()?;
    if args.json {
        out::line(as_json(&shown))?;
    } else {
        print(&shown)?;
    }
    let fails = shown.iter().any(|file| {
        let covered = file.coverage.as_ref().map(|c| share(c.covered(), c.of_all()));
        let survived = file.mutation.as_ref().map(|m| share(m.survivors.len(), m.mutants));
        !file.failures.is_empty()
            || covered.zip(args.min_coverage).is_some_and(|(covered, least)| covered < least)
            || survived.zip(args.max_survivors).is_some_and(|(survived, most)| survived > most)
    });
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Percent of `of`; of nothing, everything is covered and nothing survives.
#[expect(clippy::cast_precision_loss, reason = "a file has at most some thousand of either")]
fn share(part: usize, of: usize) -> f64 {
    if of == 0 { if part == 0 { 100.0 } else { 0.0 } } else { 100.0 * part as f64 / of as f64 }
}

fn one(file: &Path, args: &Args) -> Result<Shown> {
    let (name, text) = runbook::read_file(file)?;
    let tests = TestFile::read(&name, &text).map_err(|error| eyre!(error))?;
    let folder = folder_of(file);
    let (library, sheet) = library_with(&folder.join(tests.runbook()))?;
    let open = opener(&folder);
    let run = tests.run(&library, &sheet.book.id, &open).map_err(|error| eyre!(error))?;
    let mutates = (args.mutate || args.max_survivors.is_some()) && run.failures.is_empty();
    let mutation = mutates
        .then(|| runbook::mutate(&tests, &sheet, &library, &open))
        .transpose()
        .map_err(|error| eyre!(error))?;
    let covers = args.coverage || args.min_coverage.is_some();
    Ok(Shown {
        file: name,
        runbook: sheet.file,
        expectations: tests.expectations(),
        failures: run.failures,
        coverage: covers.then_some(run.coverage),
        mutation,
    })
}

/// The folder of a file, in which what it names lies.
pub fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Opens recordings that lie in a folder.
pub fn opener(folder: &Path) -> impl Fn(&str, &Arc<Library>) -> Result<Replay, String> + '_ {
    |name, library| {
        let opened = Replay::open(&folder.join(name), Arc::clone(library));
        opened.map_err(|error| error.to_string())
    }
}

/// The built-in runbooks with those of the file's folder beside them, and the file itself.
fn library_with(file: &Path) -> Result<(Arc<Library>, Sheet)> {
    let (name, text) = runbook::read_file(file)?;
    let mut beside = runbook::files_of(&folder_of(file))?;
    beside.retain(|(name, text)| *name != file.display().to_string() && is_sound(name, text));
    let beside = beside.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let own = (name.as_str(), text.as_str());
    let library = runbook::assemble(runbook::SHIPPED.iter().copied().chain(beside).chain([own]))?;
    let (sheet, _) = runbook::read(&name, &text);
    let sheet = sheet.ok_or_else(|| eyre!("{name}: cannot be read; see `weir runbook lint`"))?;
    Ok((Arc::new(library), sheet))
}

/// Whether a neighbour can be used; one that cannot is somebody else's work in progress, and is named.
fn is_sound(name: &str, text: &str) -> bool {
    let (_, problems) = runbook::read(name, text);
    let worst = problems.into_iter().find(|problem| problem.severity == Severity::Error);
    if let Some(problem) = &worst {
        out::note(format_args!("left out, the tests run without it: {problem}"));
    }
    worst.is_none()
}

fn as_json(shown: &[Shown]) -> Value {
    let failures = shown.iter().flat_map(|file| &file.failures);
    let failures: Vec<_> =
        failures.map(|f| json!({"place": f.place, "case": f.case, "what": f.what})).collect();
    let expectations: usize = shown.iter().map(|file| file.expectations).sum();
    let files: Vec<_> = shown
        .iter()
        .map(|file| {
            json!({
                "file": file.file, "runbook": file.runbook, "expectations": file.expectations,
                "failures": file.failures.len(),
                "coverage": file.coverage.as_ref().map(coverage_json),
                "mutation": file.mutation.as_ref().map(mutation_json),
            })
        })
        .collect();
    json!({"expectations": expectations, "failures": failures, "files": files})
}

fn coverage_json(coverage: &Coverage) -> Value {
    let uncovered: Vec<_> = coverage
        .uncovered()
        .map(|exit| {
            json!({
                "node": exit.node, "line": exit.line, "way": exit.way.to_string(),
                "when": exit.when, "target": exit.target,
            })
        })
        .collect();
    json!({"covered": coverage.covered(), "of": coverage.of_all(), "uncovered": uncovered})
}

fn mutation_json(mutation: &Mutation) -> Value {
    let survivors: Vec<_> = mutation
        .survivors
        .iter()
        .map(|s| json!({"line": s.line, "what": s.what, "remedy": s.remedy}))
        .collect();
    json!({
        "killed": mutation.killed(), "of": mutation.mutants, "left_out": mutation.left_out,
        "survivors": survivors,
    })
}

fn print(shown: &[Shown]) -> Result<(), OutputError> {
    out::write(|out| {
        for file in shown {
            for failure in &file.failures {
                writeln!(out, "{}: {}: {}", failure.place, failure.case, failure.what)?;
            }
            if let Some(coverage) = &file.coverage {
                for exit in coverage.uncovered() {
                    writeln!(out, "{}:{}: not covered: {exit}", file.runbook, exit.line)?;
                }
                let (covered, all) = (coverage.covered(), coverage.of_all());
                writeln!(out, "{}: covered {covered} of {all}", file.runbook)?;
            }
            if let Some(mutation) = &file.mutation {
                for survivor in &mutation.survivors {
                    let (line, what) = (survivor.line, &survivor.what);
                    writeln!(
                        out,
                        "{}:{line}: survived: {what}; {}",
                        file.runbook, survivor.remedy
                    )?;
                }
                let (killed, all) = (mutation.killed(), mutation.mutants);
                let rate = share(killed, all);
                writeln!(out, "{}: killed {killed} of {all} ({rate:.0} %)", file.runbook)?;
                if mutation.left_out > 0 {
                    let more = mutation.left_out;
                    writeln!(out, "{}: {more} more were not tried", file.runbook)?;
                }
            }
        }
        let expectations: usize = shown.iter().map(|file| file.expectations).sum();
        let failures: usize = shown.iter().map(|file| file.failures.len()).sum();
        writeln!(out, "{expectations} expectations, {failures} failures")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_nothing_are_whole() {
        assert!((share(0, 0) - 100.0).abs() < f64::EPSILON);
        assert!((share(1, 4) - 25.0).abs() < f64::EPSILON);
        assert_eq!(percent("90%"), Ok(90.0));
        assert!(percent("900").is_err());
    }
}
