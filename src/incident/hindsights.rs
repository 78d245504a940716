//! The file of how forecasts did, beside the journal: JSON Lines, only ever appended to.
//!
//! It is advice and no evidence, so nothing here stops anything: a line that cannot be read is left out
//! and told, an unfinished last line is another weir at work or the trace of a crash.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::flag::Hindsight;
use crate::flag::wire::HindsightRow;

use super::journal::Lock;

/// The name of the file.
const NAME: &str = "forecasts.jsonl";
/// The newest ones that are looked at.
pub const KEPT_MAX: usize = 200;
/// So much of the end of the file is read: several times what [`KEPT_MAX`] lines need.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Longest line that is written. All measures with long names are below two kilobytes.
const LINE_BYTES_MAX: usize = 16 << 10;

/// What is known of earlier forecasts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Earlier {
    /// Oldest first, [`KEPT_MAX`] at most.
    pub kept: Vec<Hindsight>,
    /// What could not be read, in words.
    pub trouble: Option<String>,
}

/// Where it is, for this journal.
#[must_use]
pub fn place_beside(journal: &Path) -> PathBuf {
    journal.with_file_name(NAME)
}

/// Reads what is known. A file that is not there is no trouble.
#[must_use]
pub fn earlier(path: &Path) -> Earlier {
    let (bytes, is_whole) = match end_of(path) {
        Ok(end) => end,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Earlier::default(),
        Err(error) => {
            let trouble = Some(format!("{}: cannot read it: {error}", path.display()));
            return Earlier { kept: Vec::new(), trouble };
        }
    };
    // Only whole lines: what comes after the last line end is being written, or was cut.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut kept = Vec::new();
    let mut damaged = 0_usize;
    let mut first: Option<String> = None;
    for (line, text) in (1_u64..).zip(bytes[..whole].split_inclusive(|byte| *byte == b'\n')) {
        if line == 1 && !is_whole {
            continue;
        }
        match serde_json::from_slice::<HindsightRow>(text) {
            Ok(row) => kept.extend(row.known()),
            Err(error) => {
                damaged += 1;
                let at = if is_whole { format!("line {line}") } else { "near its end".to_owned() };
                first.get_or_insert(format!("{at}: {error}"));
            }
        }
    }
    kept.drain(..kept.len().saturating_sub(KEPT_MAX));
    let trouble = first.map(|first| {
        let file = path.display();
        format!(
            "{file}: {damaged} damaged lines are left out ({first}); they may be deleted, nothing \
             else hangs on them"
        )
    });
    Earlier { kept, trouble }
}

/// The end of the file, and whether that is all of it.
fn end_of(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let skipped = len.saturating_sub(READ_BYTES_MAX);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok((bytes, skipped == 0))
}

/// Adds one, making file (mode 0600) and folder where needed. An unfinished last line goes first.
///
/// # Errors
/// In words, with the file's name.
pub fn keep(path: &Path, hindsight: &Hindsight) -> Result<(), String> {
    append(path, hindsight).map_err(|error| format!("{}: cannot write it: {error}", path.display()))
}

fn append(path: &Path, hindsight: &Hindsight) -> io::Result<()> {
    let mut line = serde_json::to_string(&HindsightRow::from(hindsight))?;
    line.push('\n');
    if line.len() > LINE_BYTES_MAX {
        return Err(io::Error::other(format!("a line of {} bytes is too long", line.len())));
    }
    if let Some(folder) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    let locked = Lock::exclusive(&file)?;
    let len = file.metadata()?.len();
    let whole = whole_lines(&mut file, len)?;
    if whole < len {
        file.set_len(whole)?;
    }
    file.write_all(line.as_bytes())?;
    drop(locked);
    Ok(())
}

/// Bytes up to the last line end. What is longer than any line that is written stays as it is.
fn whole_lines(file: &mut File, len: u64) -> io::Result<u64> {
    let from = len.saturating_sub(LINE_BYTES_MAX as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.take(LINE_BYTES_MAX as u64).read_to_end(&mut end)?;
    let last = end.iter().rposition(|byte| *byte == b'\n');
    Ok(match last {
        Some(at) => from + at as u64 + 1,
        None if from == 0 => 0,
        None => len,
    })
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::flag::{Came, Measure, Range, Record, Where};

    fn of(number: usize) -> Hindsight {
        let foretold = Range { low: 8.0, middle: 10.0, high: 12.5 };
        Hindsight {
            at: DateTime::UNIX_EPOCH + TimeDelta::seconds(i64::try_from(number).expect("small")),
            request_id: format!("id-{number}"),
            plan: "contain".to_owned(),
            scope: "openai/acct-1/embed".to_owned(),
            store: Some("weir admin 127.0.0.1:9901".to_owned()),
            environment: None,
            record: Record { rows: vec![Came { measure: Measure::Shed, foretold, came: 20.0 }] },
        }
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().expect("a folder");
        let path = place_beside(&home.path().join("state/weir/journal.jsonl"));
        (home, path)
    }

    #[test]
    fn what_is_kept_is_read_again_by_whoever_comes_later() {
        let (_home, path) = place();
        assert_eq!(earlier(&path), Earlier::default(), "none yet is no trouble");
        for number in 0..3 {
            keep(&path, &of(number)).expect("the disk is there");
        }
        let found = earlier(&path);
        assert_eq!(found, Earlier { kept: vec![of(0), of(1), of(2)], trouble: None });
        let mode = std::fs::metadata(&path).expect("written").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let here = |scope, store, environment| of(0).is_of(&Where { scope, store, environment });
        let scope = "openai/acct-1/embed";
        assert!(here(scope, Some("weir admin 127.0.0.1:9901"), None));
        assert!(!here(scope, Some("weir admin 127.0.0.1:9902"), None), "another gateway");
        assert!(
            !here(scope, None, None) && !here("other", Some("weir admin 127.0.0.1:9901"), None)
        );
    }

    #[test]
    fn a_cut_last_line_is_passed_over_and_gone_with_the_next_one() {
        let (_home, path) = place();
        keep(&path, &of(0)).expect("the disk is there");
        keep(&path, &of(1)).expect("the disk is there");
        let text = std::fs::read_to_string(&path).expect("written");
        for cut in 1..text.len() / 2 {
            std::fs::write(&path, &text[..text.len() - cut]).expect("the disk is there");
            let found = earlier(&path);
            assert_eq!((found.kept, found.trouble), (vec![of(0)], None), "{cut} bytes less");
        }
        keep(&path, &of(2)).expect("the disk is there");
        assert_eq!(earlier(&path), Earlier { kept: vec![of(0), of(2)], trouble: None });
    }

    #[test]
    fn a_damaged_line_is_left_out_and_told() {
        let (_home, path) = place();
        (0..3).for_each(|number| keep(&path, &of(number)).expect("the disk is there"));
        let text = std::fs::read_to_string(&path).expect("written");
        let second = text.lines().nth(1).expect("three lines");
        std::fs::write(&path, text.replace(second, "{\"v\":1,\"at\":\u{0}")).expect("written");
        let found = earlier(&path);
        assert_eq!(found.kept, [of(0), of(2)]);
        let said = found.trouble.expect("told");
        assert!(
            said.contains("forecasts.jsonl: 1 damaged lines") && said.contains("line 2"),
            "{said}"
        );
        std::fs::write(&path, [0xff; 40]).expect("written");
        assert_eq!(earlier(&path), Earlier::default(), "no line at all");
        std::fs::remove_file(&path).expect("there");
        std::fs::create_dir(&path).expect("a folder in its place");
        let found = earlier(&path);
        assert!(found.trouble.is_some_and(|said| said.contains("cannot read it")));
        assert!(keep(&path, &of(0)).expect_err("a folder").contains("forecasts.jsonl"));
    }

    #[test]
    fn the_newest_are_kept_and_a_long_file_is_read_from_its_end() {
        let (_home, path) = place();
        keep(&path, &of(0)).expect("the disk is there");
        let line = std::fs::read_to_string(&path).expect("written");
        let many = usize::try_from(READ_BYTES_MAX).expect("small") / line.len() + 10;
        std::fs::write(&path, line.repeat(many)).expect("written");
        keep(&path, &of(7)).expect("the disk is there");
        let found = earlier(&path);
        assert_eq!((found.kept.len(), found.trouble), (KEPT_MAX, None));
        assert_eq!(found.kept.last(), Some(&of(7)));
    }
}
