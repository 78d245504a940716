//! `weir audit`: checks the hash chain of the journal. Changes nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use color_eyre::eyre::eyre;
use serde_json::json;

use super::{flag, out};
use crate::flag::Store;
use crate::incident::{self, Anchor, Found};

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
        /// A gateway's admin address: its events hold where the journal stood at each flip
        #[arg(long, value_name = "URL")]
        gateway: Option<String>,
        /// File that holds the gateway's bearer token; otherwise `WEIR_ADMIN_TOKEN` is read
        #[arg(long, value_name = "FILE", requires = "gateway")]
        token_file: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command: 0 the chain holds, 1 it does not.
///
/// # Errors
/// When there is no journal to check.
pub async fn run(args: Args) -> color_eyre::Result<ExitCode> {
    let Command::Verify { file, anchor, gateway, token_file, json } = args.command;
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
    let mut makers = BTreeSet::new();
    let kept = match &gateway {
        Some(url) => {
            let events = flag::admin(url, token_file.as_deref())?.events(0).await?;
            let told = events.iter().filter_map(|event| event.anchor.as_ref());
            let read = |text: &String| {
                let why = "write the gateway's events down, they are evidence";
                Anchor::parse(text)
                    .ok_or_else(|| eyre!("`{text}` is no anchor of a journal; {why}"))
            };
            let anchors = told.map(read).collect::<Result<Vec<_>, _>>()?;
            makers.extend(
                events
                    .iter()
                    .filter(|event| event.anchor.is_some())
                    .map(|event| event.actor.clone()),
            );
            Some(incident::check_anchors(&path, &anchors)?)
        }
        None => None,
    };
    let is_cut = kept.as_ref().is_some_and(|kept| !kept.lost.is_empty());
    // An emptied journal begins a chain of its own, and so does that of somebody who never flipped.
    let is_another = kept.as_ref().is_some_and(|kept| kept.held == 0 && kept.others > 0);
    let ok = anchored != Some(false) && !is_cut && !is_another;
    let document = json!({
        "ok": ok,
        "file": path.display().to_string(),
        "entries": found.head.seq,
        "head": found.head.hash,
        "torn_bytes": found.torn_bytes,
        "open_flips": found.open_flips.len(),
        "anchored": anchored,
        "gateway": kept.as_ref().map(|kept| json!({
            "held": kept.held,
            "others": kept.others,
            "lost": kept.lost.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })),
    });
    report(json, &document, ok, || {
        let mut lines = chain(&path.display().to_string(), &found, str::to_owned);
        if let Some(kept) = &kept {
            lines.push(match (kept.held, kept.lost.first()) {
                (0, None) if kept.others == 0 => "the gateway has no flips".to_owned(),
                (0, None) => format!(
                    "the gateway has {} flips{}, and none is of this journal: if one of them was made \
                     from here, the journal was emptied or replaced; otherwise verify the one that they \
                     were made with",
                    kept.others,
                    by(&makers),
                ),
                (held, None) => {
                    format!("the gateway has {held} of its flips, all are in the chain")
                }
                (_, Some(lost)) => format!(
                    "the gateway has seen entry {} of this journal, and it is not in the chain: \
                     lines were cut or forged",
                    lost.seq
                ),
            });
        }
        if anchored == Some(false) {
            lines.push("the anchor is not in this chain: lines were cut, or it is another".into());
        }
        lines.join("\n")
    })
}

/// The state of a chain that holds, line by line. `mark` is put around its hash.
pub(super) fn chain(name: &str, found: &Found, mark: impl Fn(&str) -> String) -> Vec<String> {
    let mut lines = vec![
        format!("{name}: {} entries, the chain holds", found.head.seq),
        format!("head {}", mark(&found.head.hash)),
    ];
    if found.torn_bytes > 0 {
        let bytes = found.torn_bytes;
        lines.push(format!("the last line is unfinished ({bytes} bytes), as after a crash"));
    }
    lines.extend(found.open_flips.iter().map(|flip| format!("no outcome: {}", flip.line())));
    lines
}

/// Who made them, to follow a number.
fn by(makers: &BTreeSet<String>) -> String {
    if makers.is_empty() {
        return String::new();
    }
    format!(" by {}", makers.iter().cloned().collect::<Vec<_>>().join(", "))
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
