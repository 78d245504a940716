//! `weir recording`: what a recording holds, a part of it, or all of it without names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use color_eyre::eyre::Result;
use serde_json::json;

use super::out;
use super::record::words;
use super::scrape::duration;
use crate::incident::recording::{Damage, Info, Reader, anonymise, cut};

/// Looks into recordings, cuts them and takes names out of them.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// What a recording holds; every byte of it is checked
    Info {
        /// The recording
        file: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Copies a part; what it says at any moment is what the whole says
    Cut {
        /// The recording
        file: PathBuf,
        /// Where the part begins, such as 90s
        #[arg(long, value_name = "TIME", value_parser = duration)]
        from: Option<Duration>,
        /// Where it ends
        #[arg(long, value_name = "TIME", value_parser = duration)]
        to: Option<Duration>,
        /// The new file
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Copies it without the names of tenants, keys, hosts and people, to show it to others
    #[command(visible_alias = "anonymize")]
    Anonymise {
        /// The recording
        file: PathBuf,
        /// The new file
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// When the file is no recording, was changed, or the new one cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Info { file, json } => info(&Reader::open(file)?, *json),
        Command::Cut { file, from, to, output } => {
            out::line(words(&cut(file, (*from, *to), output)?))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Anonymise { file, output } => {
            let done = anonymise(file, output)?;
            out::write(|out| {
                writeln!(out, "{}", words(&done.taken))?;
                done.said.iter().try_for_each(|line| writeln!(out, "  {line}"))
            })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn info(reader: &Reader, as_json: bool) -> Result<ExitCode> {
    let info = reader.info()?;
    if as_json {
        out::line(document(reader, &info))?;
    } else {
        out::text(&in_words(reader, &info))?;
    }
    let is_whole = !matches!(info.damage, Some(Damage::Changed { .. }));
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn damage_words(damage: &Damage) -> String {
    match damage {
        Damage::Torn { bytes } => {
            format!("ends inside a frame: the last {bytes} bytes are not read")
        }
        Damage::Changed { offset, why } => format!("byte {offset}: {why}"),
    }
}

fn document(reader: &Reader, info: &Info) -> serde_json::Value {
    let seconds = |at| reader.since_zero(at).as_secs_f64();
    let header = reader.header();
    let events: Vec<_> = info
        .events
        .iter()
        .map(|event| json!({"at_s": seconds(event.at), "text": event.told.words()}))
        .collect();
    json!({
        "file": reader.path().display().to_string(),
        "title": header.title,
        "environment": header.environment,
        "weir": header.weir,
        "started": header.started,
        "facts": header.facts,
        "sources": header.sources.iter().map(|source| &source.name).collect::<Vec<_>>(),
        "anonymised": header.anonymised,
        "from_s": seconds(info.from),
        "to_s": seconds(info.to),
        "looks": info.looks,
        "bytes": info.bytes,
        "frames": info.frames,
        "events": events,
        "damage": info.damage.as_ref().map(damage_words),
    })
}

fn in_words(reader: &Reader, info: &Info) -> String {
    use std::fmt::Write as _;
    let seconds = |at| reader.since_zero(at).as_secs_f64();
    let header = reader.header();
    let sources: Vec<_> = header.sources.iter().map(|source| source.name.as_str()).collect();
    let mut text = format!(
        "{}  {} ({})\n  {:.1} s to {:.1} s, {} looks, {} KiB in {} frames, by weir {}\n  sources: {}\n",
        reader.path().display(),
        header.title,
        header.environment,
        seconds(info.from),
        seconds(info.to),
        info.looks,
        info.bytes.div_ceil(1024),
        info.frames,
        header.weir,
        sources.join(", "),
    );
    for words in info.damage.iter().map(damage_words).chain(header.anonymised.clone()) {
        let _ = writeln!(text, "  {words}");
    }
    for event in &info.events {
        let _ = writeln!(text, "  {:>8.1} s  {}", seconds(event.at), event.told.words());
    }
    text
}
