//! Writes a walk that is handed over, or a screen, into files of its own beside the journal, and says where.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use chrono::{DateTime, Utc};

use crate::incident::default_path;
use crate::tui::Still;

/// Files that may be saved within one second.
const TRIES: u32 = 100;

/// Saves the text of a walk in the folder `walks` beside the journal.
///
/// # Errors
/// In words with the path, when there is no place or it cannot be written.
pub(super) fn save(page: &str, now: DateTime<Utc>) -> Result<String, String> {
    let journal = default_path().map_err(|error| error.to_string())?;
    save_in(&journal.with_file_name("walks"), "walk.json", page, now)
}

/// Saves a screen in the folder `screens` beside the journal, each of its forms in a file of its own, and
/// says where the first is.
///
/// # Errors
/// As [`save`].
pub(super) fn save_screen(still: &Still, now: DateTime<Utc>) -> Result<String, String> {
    let journal = default_path().map_err(|error| error.to_string())?;
    let folder = journal.with_file_name("screens");
    let paths: Vec<String> = still
        .iter()
        .map(|(end, text)| save_in(&folder, end, text, now))
        .collect::<Result<_, _>>()?;
    let more = paths.len().saturating_sub(1);
    let ends: Vec<&str> = still.iter().skip(1).map(|(end, _)| *end).collect();
    let first = paths.into_iter().next().ok_or("there was nothing to save")?;
    Ok(if more == 0 { first } else { format!("{first} .{}", ends.join(" .")) })
}

/// Never over a file that is there: what was handed over stays as it was.
fn save_in(folder: &Path, end: &str, page: &str, now: DateTime<Utc>) -> Result<String, String> {
    let cannot = |path: &Path, error: std::io::Error| {
        format!("{}: {error}; check the folder and its permissions", path.display())
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| cannot(folder, error))?;
    let stamp = now.format("%Y-%m-%dT%H%M%SZ");
    for number in 1..=TRIES {
        let more = if number == 1 { String::new() } else { format!("-{number}") };
        let path = folder.join(format!("{stamp}{more}.{end}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match file {
            Ok(mut file) => {
                let written = file.write_all(page.as_bytes()).and_then(|()| file.sync_all());
                return match written {
                    Ok(()) => Ok(path.display().to_string()),
                    Err(error) => Err(cannot(&path, error)),
                };
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot(&path, error)),
        }
    }
    Err(format!(
        "{}: {TRIES} files were saved within one second; wait for the next",
        folder.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_walk_has_a_file_of_its_own_and_none_is_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let walks = folder.path().join("walks");
        let now = DateTime::UNIX_EPOCH;
        let first = save_in(&walks, "walk.json", "one", now).expect("saved");
        let second = save_in(&walks, "walk.json", "two", now).expect("saved");
        assert!(first.ends_with("walks/1970-01-01T000000Z.walk.json"), "{first}");
        assert!(second.ends_with("walks/1970-01-01T000000Z-2.walk.json"), "{second}");
        assert_eq!(std::fs::read_to_string(first).expect("there"), "one");
        assert_eq!(std::fs::read_to_string(second).expect("there"), "two");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        let refused = save_in(&file, "walk.json", "three", now).expect_err("no folder");
        assert!(refused.contains("check the folder"), "{refused}");
    }
}
