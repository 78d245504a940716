//! `weir audit`: checks the hash chain of the journal. Changes nothing.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::out;
use crate::incident;

/// The journal of flips and incidents.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check every line; names file and line of the first that was changed, removed or forged
    Verify {
        /// The journal [default: in the user's state directory]
        file: Option<PathBuf>,
        /// A hash that was kept elsewhere and must be in the chain; finds a tail that was cut
        #[arg(long, value_name = "HASH")]
        anchor: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command: 0 the chain holds, 1 it does not.
///
/// # Errors
/// When there is no journal to check.
pub fn run(args: Args) -> color_eyre::Result<ExitCode> {
    let Command::Verify { file, anchor, json } = args.command;
    let path = match file {
        Some(path) => path,
        None => incident::default_path()?,
    };
    let found = match incident::verify(&path) {
        Ok(found) => found,
        Err(broken @ incident::JournalError::Broken { .. }) => {
            let document = json!({"ok": false, "error": broken.to_string()});
            return report(json, &document, false, || broken.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    let anchored = match &anchor {
        Some(hash) => Some(incident::contains_hash(&path, hash)?),
        None => None,
    };
    let ok = anchored != Some(false);
    let document = json!({
        "ok": ok,
        "file": path.display().to_string(),
        "entries": found.head.seq,
        "head": found.head.hash,
        "torn_bytes": found.torn_bytes,
        "open_flips": found.open_flips.len(),
        "anchored": anchored,
    });
    report(json, &document, ok, || {
        let mut lines = vec![
            format!("{}: {} entries, the chain holds", path.display(), found.head.seq),
            format!("head {}", found.head.hash),
        ];
        if found.torn_bytes > 0 {
            let bytes = found.torn_bytes;
            lines.push(format!("the last line is unfinished ({bytes} bytes), as after a crash"));
        }
        lines.extend(found.open_flips.iter().map(|flip| format!("no outcome: {}", flip.line())));
        if !ok {
            lines.push("the anchor is not in this chain: lines were cut, or it is another".into());
        }
        lines.join("\n")
    })
}

fn report(
    json: bool,
    document: &serde_json::Value,
    ok: bool,
    text: impl FnOnce() -> String,
) -> color_eyre::Result<ExitCode> {
    if json {
        out::line(document)?;
    } else if ok {
        out::line(text())?;
    } else {
        out::note(text());
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
