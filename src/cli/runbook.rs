//! `weir runbook`: list, show, lint and test runbooks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use chrono::NaiveDate;
use color_eyre::eyre::{Result, bail, eyre};
use serde_json::json;

use super::out::{self, OutputError};
use super::walk_text;
use crate::diagnosis::Library;
use crate::incident::recording::Replay;
use crate::runbook::{self, Failure, Problem, SHIPPED, Severity, TestFile};

/// Reads, judges and tests runbooks, and shows walks along them.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// The runbooks there are
    List {
        /// Runbooks beside the built-in ones
        #[arg(long, value_name = "DIR")]
        runbooks: Option<PathBuf>,
        /// One JSON document
        #[arg(long)]
        json: bool,
    },
    /// The text of one runbook
    Show {
        /// Its id, or a file
        runbook: String,
    },
    /// What is wrong with runbooks: code, file and line, remedy
    Lint {
        /// Files; without any, the built-in ones
        files: Vec<PathBuf>,
        /// Warnings fail too
        #[arg(long)]
        deny_warnings: bool,
        /// One JSON document
        #[arg(long)]
        json: bool,
    },
    /// A walk that was saved at a hand-over: its steps, the evidence then, where it stands and why
    Walk {
        /// The file
        file: PathBuf,
        /// Runbooks beside the built-in ones
        #[arg(long, value_name = "DIR")]
        runbooks: Option<PathBuf>,
    },
    /// Runs test files: series or a recording in, path and evidence out
    Test {
        /// Test files; `runbook` in each names a file beside it
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// One JSON document
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// When a file cannot be read; the error names it.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::List { runbooks, json } => list(runbooks.as_deref(), *json),
        Command::Show { runbook } => show(runbook),
        Command::Lint { files, deny_warnings, json } => lint(files, *deny_warnings, *json),
        Command::Walk { file, runbooks } => walk(file, runbooks.as_deref()),
        Command::Test { files, json } => test(files, *json),
    }
}

fn library(dir: Option<&Path>) -> Result<Arc<Library>> {
    Ok(match dir {
        Some(dir) => runbook::load_dir(dir)?,
        None => runbook::embedded(),
    })
}

fn walk(file: &Path, dir: Option<&Path>) -> Result<ExitCode> {
    out::text(&walk_text::in_words(&walk_text::open(file, library(dir)?)?))?;
    Ok(ExitCode::SUCCESS)
}

fn list(dir: Option<&Path>, as_json: bool) -> Result<ExitCode> {
    let library = library(dir)?;
    if as_json {
        let books: Vec<_> = library
            .books()
            .map(|book| json!({"id": book.id, "title": book.title, "owner": book.owner}))
            .collect();
        out::line(json!(books))?;
    } else {
        out::write(|out| {
            let mut books = library.books();
            books.try_for_each(|book| writeln!(out, "{:24} {}", book.id, book.title))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> Result<ExitCode> {
    let file = format!("{name}{}", runbook::SUFFIX);
    let shipped = SHIPPED.iter().find(|(known, _)| *known == file || *known == name);
    let text = match shipped {
        Some((_, text)) => (*text).to_owned(),
        None if Path::new(name).exists() => runbook::read_file(Path::new(name))?.1,
        None => bail!("no runbook `{name}`; `weir runbook list` names those there are"),
    };
    out::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn today() -> NaiveDate {
    chrono::Utc::now().date_naive()
}

fn lint(files: &[PathBuf], deny_warnings: bool, as_json: bool) -> Result<ExitCode> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for file in files {
        texts.push(runbook::read_file(file)?);
    }
    if texts.is_empty() {
        texts.extend(SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    }
    let pairs = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let (sheets, mut problems) = runbook::read_all(pairs.clone());
    // Files are judged beside each other where they fit together, else beside the built-in ones.
    let all = SHIPPED.iter().copied().chain(pairs);
    let library = runbook::assemble(all).map_or_else(|_| runbook::embedded(), Arc::new);
    for sheet in &sheets {
        problems.extend(runbook::lint(sheet, &library, today()));
    }
    print_problems(&problems, texts.len(), as_json)?;
    let worst = problems.iter().map(|problem| problem.severity).max();
    let fails = worst == Some(Severity::Error) || (deny_warnings && worst.is_some());
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print_problems(problems: &[Problem], files: usize, as_json: bool) -> Result<(), OutputError> {
    if as_json {
        let list: Vec<_> = problems
            .iter()
            .map(|p| {
                json!({
                    "file": p.file, "line": p.line, "code": p.code, "severity": p.severity.word(),
                    "key": p.key, "what": p.what, "remedy": p.remedy,
                })
            })
            .collect();
        return out::line(json!({"files": files, "problems": list}));
    }
    if problems.is_empty() {
        return out::line(format_args!("{files} runbooks, no problems"));
    }
    out::write(|out| problems.iter().try_for_each(|problem| writeln!(out, "{problem}")))
}

fn test(files: &[PathBuf], as_json: bool) -> Result<ExitCode> {
    let mut failures = Vec::new();
    let mut expectations = 0;
    for file in files {
        let (name, text) = runbook::read_file(file)?;
        let tests = TestFile::read(&name, &text).map_err(|error| eyre!(error))?;
        let beside = file.parent().unwrap_or(Path::new(".")).join(tests.runbook());
        let (library, book) = library_with(&beside)?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let open = |name: &str| {
            let opened = Replay::open(&folder.join(name), Arc::clone(&library));
            opened.map_err(|error| error.to_string())
        };
        failures.extend(tests.run(&library, &book, &open).map_err(|error| eyre!(error))?);
        expectations += tests.expectations();
    }
    print_failures(&failures, expectations, as_json)?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The built-in runbooks with one file beside them, and that file's id.
fn library_with(file: &Path) -> Result<(Arc<Library>, String)> {
    let (name, text) = runbook::read_file(file)?;
    let own = (name.as_str(), text.as_str());
    let library = runbook::assemble(SHIPPED.iter().copied().chain([own]))?;
    let (sheet, _) = runbook::read(&name, &text);
    let sheet = sheet.ok_or_else(|| eyre!("{name}: cannot be read; see `weir runbook lint`"))?;
    Ok((Arc::new(library), sheet.book.id))
}

fn print_failures(
    failures: &[Failure],
    expectations: usize,
    as_json: bool,
) -> Result<(), OutputError> {
    if as_json {
        let list: Vec<_> = failures
            .iter()
            .map(|f| json!({"place": f.place, "case": f.case, "what": f.what}))
            .collect();
        return out::line(json!({"expectations": expectations, "failures": list}));
    }
    out::write(|out| {
        for failure in failures {
            writeln!(out, "{}: {}: {}", failure.place, failure.case, failure.what)?;
        }
        writeln!(out, "{expectations} expectations, {} failures", failures.len())
    })
}
