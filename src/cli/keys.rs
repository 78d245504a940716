//! `weir keys`: every key of the dashboard, from the registry, for paper. Knows no screen and no session.

use std::fmt::Write as _;
use std::process::ExitCode;

use color_eyre::eyre::Result;

use super::out;
use crate::tui::app::action::{CHAPTERS, Entry, REGISTRY};

/// How `docs/keys.md` begins.
const HEAD: &str = "\
# Keys of the dashboard

Made from the registry of actions; do not edit. `weir keys --markdown > docs/keys.md` renews it.
";

/// Print every key of the dashboard.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print them as the Markdown of `docs/keys.md`
    #[arg(long)]
    markdown: bool,
}

/// Prints the keys.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    out::text(&if args.markdown { markdown() } else { plain() })?;
    Ok(ExitCode::SUCCESS)
}

/// The chapters that have actions, with them.
pub fn chapters() -> impl Iterator<Item = (&'static str, Vec<&'static Entry>)> {
    CHAPTERS.into_iter().filter_map(|chapter| {
        let rows: Vec<_> = REGISTRY.iter().filter(|entry| entry.group == chapter).collect();
        (!rows.is_empty()).then_some((chapter, rows))
    })
}

/// When it works, and what it can do: a sentence of each that has one.
pub fn remarks(entry: &Entry) -> Vec<String> {
    let condition = entry.when.words().map(|words| format!("Works {words}."));
    let danger = entry.danger.words().map(|words| format!("It {words}."));
    condition.into_iter().chain(danger).collect()
}

fn plain() -> String {
    let mut page = String::new();
    for (chapter, rows) in chapters() {
        let gap = if page.is_empty() { "" } else { "\n" };
        let _ = writeln!(page, "{gap}{chapter}");
        for entry in rows {
            let keys = keys(entry, "");
            let _ = writeln!(page, "  {keys:<16} {:<15} {}", entry.name, entry.description);
        }
    }
    page
}

fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for (chapter, rows) in chapters() {
        let _ = write!(
            page,
            "\n## {chapter}\n\n| keys | action | what it does | on |\n|---|---|---|---|\n"
        );
        for entry in rows {
            let mut does = entry.description.to_owned();
            for remark in remarks(entry) {
                let end = if does.ends_with('.') { "" } else { "." };
                let _ = write!(does, "{end} {remark}");
            }
            let (keys, name, places) = (keys(entry, "`"), entry.name, entry.places());
            // A bar would end the cell, even within backquotes.
            let cells = [keys.as_str(), name, &does, &places].map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(page, "| {} |", cells.join(" | "));
        }
    }
    page
}

/// The keys of an action, each between `quote`.
fn keys(entry: &Entry, quote: &str) -> String {
    let keys: Vec<_> = entry.keys.iter().map(|key| format!("{quote}{key}{quote}")).collect();
    keys.join(" ")
}
