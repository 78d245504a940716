//! `weir runbook`: list, show, lint and test runbooks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use chrono::NaiveDate;
use color_eyre::eyre::{Result, bail};
use serde_json::json;

use super::columns::COLUMNS;
use super::out::{self, OutputError};
use super::runbook_page::page;
use super::runbook_test::{self, folder_of, opener};
use super::walk_text;
use crate::diagnosis::Library;
use crate::runbook::{self, LoadError, Problem, SHIPPED, Severity, Sheet, TestFile};

/// How runbooks, their evidence and their tests are written, and the codes of the linter.
const FORMAT: &str = include_str!("../../runbooks/README.md");
/// How the name of a test file ends.
const TEST_SUFFIX: &str = ".test.toml";

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
    /// One runbook, laid out for reading
    Show {
        /// Its id, or a file
        runbook: String,
        /// The file as it is
        #[arg(long)]
        raw: bool,
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
    /// How runbooks and their tests are written
    Format,
    /// Every cause in its runbook's own words, as Markdown: `docs/causes.md`
    Causes,
    /// Runs test files: series or a recording in, path and evidence out
    #[command(after_help = "`weir runbook format` tells how a test file is written.")]
    Test(runbook_test::Args),
}

/// Runs the subcommand.
///
/// # Errors
/// When a file cannot be read; the error names it.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::List { runbooks, json } => list(runbooks.as_deref(), *json),
        Command::Show { runbook, raw } => show(runbook, *raw),
        Command::Lint { files, deny_warnings, json } => lint(files, *deny_warnings, *json),
        Command::Walk { file, runbooks } => walk(file, runbooks.as_deref()),
        Command::Format => {
            out::text(FORMAT)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Causes => {
            out::text(&causes())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Test(args) => runbook_test::run(args),
    }
}

fn walk(file: &Path, dir: Option<&Path>) -> Result<ExitCode> {
    let library = match dir {
        Some(dir) => runbook::load_dir(dir)?,
        None => runbook::embedded(),
    };
    out::text(&walk_text::in_words(&walk_text::open(file, library)?))?;
    Ok(ExitCode::SUCCESS)
}

fn list(dir: Option<&Path>, as_json: bool) -> Result<ExitCode> {
    let mut texts: Vec<(String, String)> = shipped().collect();
    if let Some(dir) = dir {
        // What does not fit together is refused here as it is where it is used.
        runbook::load_dir(dir)?;
        texts.extend(runbook::files_of(dir)?);
    }
    let (sheets, _) = runbook::read_all(texts.iter().map(|(n, text)| (n.as_str(), text.as_str())));
    // A later file of the same id is in the place of an earlier one.
    let by_id: BTreeMap<&str, &Sheet> =
        sheets.iter().map(|sheet| (sheet.book.id.as_str(), sheet)).collect();
    if as_json {
        let books: Vec<_> = by_id
            .values()
            .map(|sheet| {
                let book = &sheet.book;
                json!({
                    "id": book.id, "title": book.title, "owner": book.owner,
                    "cause": book.cause.is_some(), "steps": book.nodes.len(),
                    "reviewed": sheet.reviewed().map(|date| date.to_string()), "file": sheet.file,
                })
            })
            .collect();
        out::line(json!(books))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::write(|out| {
        writeln!(out, "{:24} {:5} {:>5} {:10} TITLE", "ID", "CAUSE", "STEPS", "REVIEWED")?;
        by_id.values().try_for_each(|sheet| {
            let book = &sheet.book;
            let cause = if book.cause.is_some() { "yes" } else { "-" };
            let reviewed = sheet.reviewed().map_or_else(|| "-".to_owned(), |date| date.to_string());
            let (id, steps, title) = (&book.id, book.nodes.len(), &book.title);
            writeln!(out, "{id:24} {cause:5} {steps:5} {reviewed:10} {title}")
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Name and text of the runbooks in the binary.
fn shipped() -> impl Iterator<Item = (String, String)> {
    SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
}

/// How `docs/causes.md` begins.
const CAUSES: &str = "\
# Causes

Every cause that weir can name, in the words of its runbook. Made from `runbooks/`; do not edit.
`weir runbook causes > docs/causes.md` renews it. `weir runbook show ID` shows the steps;
`weir diagnose --explain ID` says why it is that cause now, or why not.
";

/// Every cause: its title, what its runbook says before the first step, and its first aid.
fn causes() -> String {
    let library = runbook::embedded();
    let mut page = CAUSES.to_owned();
    for (name, text) in SHIPPED {
        let id = name.strip_suffix(runbook::SUFFIX).unwrap_or(name);
        let Some(cause) = library.book(id).and_then(|book| book.cause.as_ref()) else { continue };
        let words = text.split("\n```").next().unwrap_or_default();
        let (title, words) = words.split_once('\n').unwrap_or((words, ""));
        let title = title.trim_start_matches("# ");
        let _ = write!(page, "\n## `{id}`: {title}\n\n{}\n", words.trim());
        if let Some(plan) = &cause.plan {
            let _ = write!(page, "\nFirst aid: the plan `{plan}`.");
        }
        if !cause.lasting.is_empty() {
            let gap = if cause.plan.is_some() { " " } else { "\n" };
            let _ = write!(page, "{gap}For good: {}.", cause.lasting);
        }
        if cause.plan.is_some() || !cause.lasting.is_empty() {
            page.push('\n');
        }
    }
    page
}

fn show(name: &str, raw: bool) -> Result<ExitCode> {
    let file = format!("{name}{}", runbook::SUFFIX);
    let built_in = shipped().find(|(known, _)| *known == file || *known == name);
    let (file, text) = match built_in {
        Some(found) => found,
        None if Path::new(name).exists() => runbook::read_file(Path::new(name))?,
        None => bail!("no runbook `{name}`; `weir runbook list` names those there are"),
    };
    // What cannot be laid out is shown as it is: at night, any text is better than none.
    match runbook::read(&file, &text).0.filter(|_| !raw) {
        Some(sheet) => out::text(&page(&sheet, width()))?,
        None => out::text(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Columns of the terminal, or of a narrow one when nobody sees it.
fn width() -> usize {
    let terminal = std::io::stdout().is_terminal();
    let size = crossterm::terminal::size().ok().filter(|_| terminal);
    size.map_or(COLUMNS, |(columns, _)| usize::from(columns))
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
        texts.extend(shipped());
    }
    let pairs = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let (sheets, mut problems) = runbook::read_all(pairs.clone());
    // Files are judged beside each other where they fit together, else beside the built-in ones.
    let all = SHIPPED.iter().copied().chain(pairs);
    let (library, unfit) = match runbook::assemble(all) {
        Ok(library) => (Arc::new(library), None),
        Err(LoadError::Library(error)) => (runbook::embedded(), Some(error)),
        Err(LoadError::Bad(_) | LoadError::Unreadable { .. }) => (runbook::embedded(), None),
    };
    for sheet in &sheets {
        problems.extend(runbook::lint(sheet, &library, today()));
        problems.extend(lint_tests(sheet, &library));
    }
    // What the rules have named with its line need not be said again.
    let is_named = problems.iter().any(|problem| problem.severity == Severity::Error);
    if let Some((error, (file, _))) = unfit.zip(texts.first()).filter(|_| !is_named) {
        problems.push(runbook::unfit(file, &error));
    }
    print_problems(&problems, texts.len(), as_json)?;
    let worst = problems.iter().map(|problem| problem.severity).max();
    let fails = worst == Some(Severity::Error) || (deny_warnings && worst.is_some());
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What the test file beside a runbook does not hold; one that cannot be used is a finding too.
fn lint_tests(sheet: &Sheet, library: &Arc<Library>) -> Vec<Problem> {
    let runbook = Path::new(&sheet.file);
    let Some(stem) = sheet.file.strip_suffix(runbook::SUFFIX) else { return Vec::new() };
    let beside = PathBuf::from(format!("{stem}{TEST_SUFFIX}"));
    if !beside.is_file() {
        return Vec::new();
    }
    let folder = folder_of(runbook);
    let found =
        runbook::read_file(&beside).map_err(|error| error.to_string()).and_then(|(name, text)| {
            let tests = TestFile::read(&name, &text)?;
            runbook::lint_thresholds(&tests, sheet, library, &opener(&folder))
        });
    found.unwrap_or_else(|why| vec![runbook::unusable_tests(&sheet.file, &why)])
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
