//! Puts the shipped runbooks together with those of a directory. Reads files; runs nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use thiserror::Error;

use crate::diagnosis::{Book, Library, LibraryError};

use super::lint::faults;
use super::problem::{Problem, Severity};
use super::read::{MAX_FILE_BYTES, read};
use super::sheet::Sheet;

/// The runbook that takes admission down; no cause leads to it.
pub const ROLLBACK: &str = "rollback";
/// How the name of a runbook file ends.
pub const SUFFIX: &str = ".runbook.md";
/// Most runbook files of one directory.
const MAX_FILES: usize = 1_000;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// The runbooks in the binary: file name and text.
        pub const SHIPPED: &[(&str, &str)] = &[
            $((
                concat!($name, ".runbook.md"),
                include_str!(concat!("../../runbooks/", $name, ".runbook.md")),
            )),*
        ];
    };
}

shipped!(
    "backfill-contention",
    "breaker-stuck",
    "burst-or-ramp",
    "cached-answer-wrong",
    "calendar-quota",
    "concurrency-cap",
    "demand-over-capacity",
    "disguised-refusals",
    "fallback-loop",
    "fan-out-tail",
    "gate-refuses-wrongly",
    "hard-quota",
    "healthy",
    "insufficient-evidence",
    "leaked-permits",
    "limiter-store-fault",
    "local-queueing",
    "nested-retries",
    "poisoned-request",
    "pool-imbalance",
    "probe-spend",
    "provider-overload",
    "quota-view-drift",
    "recovery",
    "retry-backlog",
    "retry-clock",
    "rollback",
    "rpm-exhausted",
    "runaway-demand",
    "tenant-starvation",
    "tpm-exhausted",
    "triage",
);

/// Why runbooks could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file or directory cannot be read.
    #[error("{path}: {why}; check the path and its permissions")]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// A file has errors.
    #[error("{}", list(.0))]
    Bad(Vec<Problem>),
    /// They do not fit together.
    #[error(transparent)]
    Library(#[from] LibraryError),
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The shipped runbooks, built once.
///
/// # Panics
/// Never in a released binary: the tests load exactly these texts.
#[must_use]
pub fn embedded() -> Arc<Library> {
    static LIBRARY: OnceLock<Arc<Library>> = OnceLock::new();
    let build =
        || Arc::new(assemble(SHIPPED.iter().copied()).expect("shipped runbooks are tested"));
    Arc::clone(LIBRARY.get_or_init(build))
}

/// The shipped runbooks with those of `dir` beside them; the same id replaces.
///
/// # Errors
/// [`LoadError`] names file, line, key and remedy: of what cannot be read, and of what the linter
/// calls an error, for nobody offers a flip from a runbook that is not fit.
pub fn load_dir(dir: &Path) -> Result<Arc<Library>, LoadError> {
    let own = files_of(dir)?;
    let own = || own.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let library = assemble(SHIPPED.iter().copied().chain(own()))?;
    let (sheets, _) = read_all(own());
    let unfit: Vec<Problem> = sheets.iter().flat_map(|sheet| faults(sheet, &library)).collect();
    if unfit.is_empty() { Ok(Arc::new(library)) } else { Err(LoadError::Bad(unfit)) }
}

/// Name and text of every runbook file of a directory, by name.
///
/// # Errors
/// [`LoadError::Unreadable`].
pub fn files_of(dir: &Path) -> Result<Vec<(String, String)>, LoadError> {
    let unreadable = |path: &Path, why: &dyn std::fmt::Display| LoadError::Unreadable {
        path: path.to_owned(),
        why: why.to_string(),
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| unreadable(dir, &error))? {
        let path = entry.map_err(|error| unreadable(dir, &error))?.path();
        if path.to_string_lossy().ends_with(SUFFIX) {
            paths.push(path);
        }
    }
    if paths.len() > MAX_FILES {
        return Err(unreadable(dir, &"more than 1,000 runbooks"));
    }
    paths.sort();
    paths.iter().map(|path| read_file(path)).collect()
}

/// Name and text of one runbook file.
///
/// # Errors
/// [`LoadError::Unreadable`].
pub fn read_file(path: &Path) -> Result<(String, String), LoadError> {
    let unreadable = |why: String| LoadError::Unreadable { path: path.to_owned(), why };
    let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if size > MAX_FILE_BYTES as u64 {
        return Err(unreadable("the file is larger than 512 KiB".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    Ok((path.display().to_string(), text))
}

/// Builds a library of texts; a later one replaces an earlier one of the same id.
///
/// # Errors
/// [`LoadError`] when a text has errors or they do not fit together.
pub fn assemble<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Library, LoadError> {
    let (sheets, problems) = read_all(files);
    let bad: Vec<Problem> =
        problems.into_iter().filter(|problem| problem.severity == Severity::Error).collect();
    if !bad.is_empty() {
        return Err(LoadError::Bad(bad));
    }
    let mut books: BTreeMap<String, Book> = BTreeMap::new();
    for sheet in sheets {
        books.insert(sheet.book.id.clone(), sheet.book);
    }
    Ok(Library::new(books.into_values())?)
}

/// Reads texts; what could be read, and every problem.
#[must_use]
pub fn read_all<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> (Vec<Sheet>, Vec<Problem>) {
    let mut sheets = Vec::new();
    let mut problems = Vec::new();
    for (file, text) in files {
        let (sheet, found) = read(file, text);
        sheets.extend(sheet);
        problems.extend(found);
    }
    (sheets, problems)
}
