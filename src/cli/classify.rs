//! `weir classify`: what a provider's answers mean.

mod line;
mod wire;

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, Utc};
use color_eyre::eyre::{Result, eyre};
use serde_json::{Value as Json, json};

use self::line::{Line, in_json};
use super::out;
use super::scrape::read;
use crate::dialect::{Classified, MeterReading, Provider};
use crate::ingest::exposition::printable;

/// What to write instead of a line that is not understood.
const REMEDY: &str = "write {\"status\": 429, \"headers\": {}, \"body\": null} on one line";

/// Says what a provider's answers mean: class, hint, meters, and the words that decided.
///
/// FILE holds JSON Lines, each with `status`, `headers`, `body`, and where known `id`, `provider`, `now`,
/// `transport` and `mid_stream`; or one HTTP answer as it went over the wire. A line that cannot be read
/// is named on standard error, with --json also in its place, and the others are answered all the same.
/// Instants count from `now` or the answer's `Date`, else from this computer's clock.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file, or `-` for stdin
    #[arg(value_name = "FILE")]
    pub source: String,
    /// Whose answers they are, where a line does not say; otherwise their own shape tells
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Print one JSON object per answer
    #[arg(long)]
    pub json: bool,
}

/// Prints what each answer means.
///
/// # Errors
/// When the file cannot be read or holds no answer.
pub fn run(args: &Args) -> Result<ExitCode> {
    let text = read(&args.source)?;
    if let Some(name) = args.provider.as_deref().filter(|name| Provider::named(name).is_none()) {
        let known = Provider::names().collect::<Vec<_>>().join(", ");
        out::note(format_args!("`{name}` is read as a stranger; known are {known}"));
    }
    let lines = lines(&text);
    if lines.is_empty() {
        return Err(eyre!(
            "{}: there is no answer in it; write one JSON object a line",
            args.source
        ));
    }
    let mut is_whole = true;
    out::write(|out| {
        let now = Utc::now();
        for Numbered { number, id, line } in lines {
            match line.and_then(|line| answered(&line, args, now)) {
                Ok(text) => out.write_all(text.as_bytes())?,
                Err(why) => {
                    is_whole = false;
                    let why = printable(&why);
                    out::note(format_args!("{}:{number}: {why}", args.source));
                    if args.json {
                        writeln!(out, "{}", json!({ "id": id, "error": why }))?;
                    }
                }
            }
        }
        Ok(())
    })?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line of the input.
struct Numbered {
    number: usize,
    /// Its `id`, also where the rest is not understood.
    id: Json,
    line: Result<Line, String>,
}

/// Every answer of the input.
fn lines(text: &[u8]) -> Vec<Numbered> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let start = text.trim_ascii_start();
    if start.starts_with(b"HTTP/") {
        let remedy = |why| format!("{why}; write it as it went over the wire, with `HTTP/1.1 429`");
        let line = Line::from_http(start).map_err(remedy);
        return vec![Numbered { number: 1, id: Json::Null, line }];
    }
    // One object may be written over several lines.
    if let Ok(line) = serde_json::from_slice(text) {
        return vec![understood(1, &line)];
    }
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.filter(|(line, _)| !line.trim_ascii().is_empty());
    lines.map(|(line, number)| parse(line, number)).collect()
}

fn parse(line: &[u8], number: usize) -> Numbered {
    match serde_json::from_slice(line) {
        Ok(line) => understood(number, &line),
        Err(error) => Numbered { number, id: Json::Null, line: Err(format!("{error}; {REMEDY}")) },
    }
}

fn understood(number: usize, line: &Json) -> Numbered {
    let id = line.get("id").cloned().unwrap_or_default();
    Numbered { number, id, line: Line::from_json(line).map_err(|why| format!("{why}; {REMEDY}")) }
}

fn answered(line: &Line, args: &Args, now: DateTime<Utc>) -> Result<String, String> {
    let name = line.provider.as_deref().or(args.provider.as_deref());
    let provider = name.and_then(Provider::named).unwrap_or_default();
    let seen = line.classify(provider, now).map_err(|why| format!("{why}; correct `headers`"))?;
    if args.json {
        return Ok(format!("{}\n", in_json(&line.id, &seen)));
    }
    Ok(in_words(&line.id, &seen))
}

/// The meaning for a person.
fn in_words(id: &Json, seen: &Classified) -> String {
    let mut head = match id {
        Json::Null => String::new(),
        Json::String(id) => format!("{}  ", printable(id)),
        id => format!("{id}  "),
    };
    head += seen.class.word();
    if let Some(meter) = seen.meter {
        let _ = write!(head, "  {}", meter.word());
    }
    if let (Some(hint), Some(source)) = (seen.hint, seen.hint_source) {
        let absurd = if seen.absurd { ", absurd" } else { "" };
        let _ = write!(head, "  wait {} s ({}{absurd})", hint.as_secs_f64(), source.word());
    }
    let mut lines = vec![head];
    lines.extend(seen.meters.iter().map(meter_line));
    lines.push(format!("  {}", printable(&seen.why)));
    lines.join("\n") + "\n"
}

fn meter_line(reading: &MeterReading) -> String {
    let count =
        |count: Option<f64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let mut line = format!(
        "  {}: {} of {} left",
        reading.meter.word(),
        count(reading.remaining),
        count(reading.limit)
    );
    if let Some(reset) = reading.reset {
        let _ = write!(line, ", full in {} s", reset.as_secs_f64());
    }
    if let Some(window) = reading.window {
        let _ = write!(line, ", per {} s", window.as_secs_f64());
    }
    line
}
