//! `weir classify`: what a provider's answers mean.

mod line;

use std::fmt::Write as _;
use std::process::ExitCode;

use color_eyre::eyre::{Result, eyre};
use serde_json::Value as Json;

use self::line::{Line, in_json};
use super::out;
use super::scrape::read;
use crate::dialect::{Classified, MeterReading, Provider};

/// Says what a provider's answers mean: class, hint, meters, and the words that decided.
///
/// FILE holds JSON Lines, each with `status`, `headers`, `body`, and where known `id`, `provider`, `now`,
/// `transport` and `mid_stream`; or one HTTP answer as it went over the wire. A line that cannot be read
/// is named on standard error, the others are answered all the same.
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
        for (number, line) in lines {
            match line.and_then(|line| answered(&line, args)) {
                Ok(text) => out.write_all(text.as_bytes())?,
                Err(why) => {
                    is_whole = false;
                    out::note(format_args!("{}:{number}: {why}", args.source));
                }
            }
        }
        Ok(())
    })?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every answer of the input with the number of its line.
fn lines(text: &[u8]) -> Vec<(usize, Result<Line, String>)> {
    let start = text.trim_ascii_start();
    if start.starts_with(b"HTTP/") {
        let read = Line::from_http(&String::from_utf8_lossy(start));
        let remedy = |why| format!("{why}; write it as it went over the wire, with `HTTP/1.1 429`");
        return vec![(1, read.map_err(remedy))];
    }
    // One object may be written over several lines.
    if let Ok(line) = serde_json::from_slice(text) {
        return vec![(1, Ok(line))];
    }
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.filter(|(line, _)| !line.trim_ascii().is_empty());
    lines.map(|(line, number)| (number, parse(line))).collect()
}

fn parse(line: &[u8]) -> Result<Line, String> {
    let remedy = "write {\"status\": 429, \"headers\": {}, \"body\": null} on one line";
    serde_json::from_slice(line).map_err(|error| format!("{error}; {remedy}"))
}

fn answered(line: &Line, args: &Args) -> Result<String, String> {
    let name = line.provider.as_deref().or(args.provider.as_deref());
    let provider = name.and_then(Provider::named).unwrap_or_default();
    let seen = line.classify(provider).map_err(|why| format!("{why}; correct `headers`"))?;
    if args.json {
        return Ok(format!("{}\n", in_json(&line.id, &seen)));
    }
    Ok(in_words(&line.id, &seen))
}

/// The meaning for a person.
fn in_words(id: &Json, seen: &Classified) -> String {
    let mut head = match id {
        Json::Null => String::new(),
        Json::String(id) => format!("{id}  "),
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
    lines.push(format!("  {}", seen.why));
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
