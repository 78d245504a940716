//! A saved walk: opened from its file, and as a person reads it in a terminal.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use color_eyre::eyre::{Context, Result, eyre};

use crate::diagnosis::{Facts, Library};
use crate::runbook::{MAX_WALK_BYTES, Walk};

/// Opens the file of a walk on these runbooks.
///
/// # Errors
/// When it cannot be read, or is no walk; the error names the file.
pub(super) fn open(file: &Path, library: Arc<Library>) -> Result<Walk> {
    let name = file.display();
    let opened = std::fs::File::open(file).wrap_err_with(|| format!("cannot read {name}"))?;
    let mut text = String::new();
    // One byte more than a walk can have tells that it is too large without reading all of it.
    let most = MAX_WALK_BYTES as u64 + 1;
    opened
        .take(most)
        .read_to_string(&mut text)
        .wrap_err_with(|| format!("{name} is no text; name a file that weir saved"))?;
    Walk::read(&text, library, DateTime::UNIX_EPOCH).map_err(|error| eyre!("{name}: {error}"))
}

/// The walk for a person: how it came where it stands, and why it stands there.
pub(super) fn in_words(walk: &Walk) -> String {
    let clock = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    let (book, node) = walk.position();
    let mut lines = vec![format!("walk{} at {book}/{node}", scope(walk))];
    lines.extend(walk.remarks().iter().map(|remark| format!("note: {remark}")));
    lines.push("how it came here".to_owned());
    lines.extend(walk.how(None).lines(&clock).iter().map(|line| format!("  {line}")));
    lines.push("why this step".to_owned());
    // There is no evidence of now in a file: what decides is named and not judged.
    match walk.why(&Facts::default()) {
        Some(why) => lines.extend(why.lines().iter().map(|line| format!("  {line}"))),
        None => lines.push("  the step is not in the runbooks that are loaded".to_owned()),
    }
    lines.extend(walk.notes().iter().map(|note| format!("note by {note}")));
    lines.join("\n") + "\n"
}

fn scope(walk: &Walk) -> String {
    if walk.scope().is_empty() { String::new() } else { format!(" of {}", walk.scope()) }
}
