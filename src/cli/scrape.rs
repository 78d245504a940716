//! `weir scrape`: parses one exposition and prints its samples, or why it is bad.

use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use color_eyre::eyre::{Context, Result, bail, eyre};
use serde_json::{Map, Value as Json, json};

use super::out;
use crate::ingest::exposition::{
    self, BODY_BYTES_MAX, Format, Report, Sample, open_metrics_float, printable,
};
use crate::ingest::{Scraper, Target};
use crate::signal::parse_duration;

/// Parses one exposition of metrics and prints its samples, or why it is bad.
///
/// Bad lines do not stop it: they are listed at the end, with whether Prometheus would take the
/// scrape at all. Fails when no sample could be read.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An address (`http://…`), a file, or `-` for stdin
    #[arg(value_name = "URL|FILE")]
    pub source: String,
    /// The dialect; without it the content type decides, in a file its last line
    #[arg(long, value_enum)]
    pub format: Option<Dialect>,
    /// Longest wait for an address
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
    /// Print one JSON object per sample, then one with the summary
    #[arg(long)]
    pub json: bool,
}

/// A dialect as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// Prometheus text format 0.0.4
    Text,
    /// `OpenMetrics` 1.0
    #[value(name = "openmetrics", help = "OpenMetrics 1.0")]
    OpenMetrics,
}

impl From<Dialect> for Format {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Text => Self::Text,
            Dialect::OpenMetrics => Self::OpenMetrics,
        }
    }
}

/// Prints the samples of one exposition.
///
/// # Errors
///
/// When the address does not answer with metrics, the file cannot be read, or no sample is in it.
pub async fn run(args: Args) -> Result<ExitCode> {
    let (body, told) = if is_url(&args.source) {
        let timeout = args.timeout;
        let target = Target { timeout, ..Target::new(&args.source, &args.source) };
        Scraper::new()?.fetch(&target).await?
    } else {
        let body = read(&args.source)?;
        let told = if ends_with_eof(&body) { Format::OpenMetrics } else { Format::Text };
        (body, told)
    };
    let format = args.format.map_or(told, Format::from);
    let mut parsed = None;
    out::write(|out| {
        let mut written = Ok(());
        let result = exposition::parse(&body, format, |sample| {
            if written.is_ok() {
                written = if args.json {
                    writeln!(out, "{}", as_json(sample))
                } else {
                    writeln!(out, "{}", in_words(sample))
                };
            }
        });
        written?;
        match parsed.insert(result) {
            Ok(report) if args.json => writeln!(out, "{}", summary(report)),
            Ok(report) => out.write_all(summary_in_words(report).as_bytes()),
            Err(_) => Ok(()),
        }
    })?;
    let report = parsed.ok_or_else(|| eyre!("{}: was not read", args.source))??;
    let is_empty = body.iter().all(u8::is_ascii_whitespace);
    if report.samples == 0 {
        let what = if is_empty { "is empty" } else { "holds no sample that can be read" };
        let source = if args.source == "-" { "standard input" } else { &args.source };
        bail!("{source} {what}");
    }
    Ok(ExitCode::SUCCESS)
}

/// A duration as it is typed.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| format!("`{text}` is not a duration such as 90s, 5m or 1h"))
}

fn is_url(source: &str) -> bool {
    source.starts_with("http://") || source.starts_with("https://")
}

/// The content of a file or of stdin, at most as long as an exposition may be.
pub(super) fn read(source: &str) -> Result<Vec<u8>> {
    let mut input: Box<dyn Read> = if source == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let path = PathBuf::from(source);
        Box::new(std::fs::File::open(&path).wrap_err_with(|| format!("cannot read {source}"))?)
    };
    let mut body = Vec::new();
    let most = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
    input
        .by_ref()
        .take(most.saturating_add(1))
        .read_to_end(&mut body)
        .wrap_err_with(|| format!("cannot read {source}"))?;
    if body.len() > BODY_BYTES_MAX {
        bail!("{source}: larger than {} MiB", BODY_BYTES_MAX >> 20);
    }
    Ok(body)
}

/// Whether a file says by its last line that it is `OpenMetrics`.
pub(super) fn ends_with_eof(body: &[u8]) -> bool {
    body.trim_ascii_end().ends_with(b"\n# EOF") || body.trim_ascii() == b"# EOF"
}

fn as_json(sample: &Sample<'_>) -> Json {
    let labels: Map<String, Json> = sample
        .labels
        .iter()
        .map(|(name, value)| (name.to_string(), sample.stored_value(name, value).into()))
        .collect();
    json!({
        "name": sample.name,
        "labels": labels,
        "value": number(sample.value),
        "timestamp_ms": sample.timestamp_ms,
        "type": sample.kind.word(),
    })
}

/// JSON has no NaN and no infinity; they become the words of the formats.
pub(super) fn number(value: f64) -> Json {
    if value.is_finite() { value.into() } else { open_metrics_float(value).into() }
}

fn summary(report: &Report) -> Json {
    let errors: Vec<_> = report
        .problems
        .iter()
        .map(|problem| json!({ "line": problem.line, "reason": problem.fault.to_string() }))
        .collect();
    json!({
        "samples": report.samples,
        "errors": errors,
        "prometheus_accepts": report.prometheus_accepts(),
    })
}

fn in_words(sample: &Sample<'_>) -> String {
    let labels: Vec<_> = sample
        .labels
        .iter()
        .map(|(name, value)| format!("{}={value:?}", printable(name)))
        .collect();
    let timestamp = sample.timestamp_ms.map_or_else(String::new, |ms| format!(" @{ms} ms"));
    let value = if sample.value.is_finite() {
        sample.value.to_string()
    } else {
        open_metrics_float(sample.value)
    };
    let (name, kind) = (printable(&sample.name), sample.kind.word());
    format!("{name}{{{}}} {value}{timestamp}  ({kind})", labels.join(", "))
}

fn summary_in_words(report: &Report) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        let fault = problem.fault.to_string();
        let _ = writeln!(text, "line {}: {}", problem.line, printable(&fault));
    }
    let untold = report.problem_count - report.problems.len();
    if untold > 0 {
        let _ = writeln!(text, "and {untold} more bad lines");
    }
    let verdict = if report.prometheus_accepts() {
        "Prometheus would accept this scrape"
    } else {
        "Prometheus would reject all of this scrape"
    };
    let _ =
        writeln!(text, "{} samples, {} bad lines: {verdict}", report.samples, report.problem_count);
    if report.cut {
        let _ = writeln!(text, "it ends in the middle of a line or without `# EOF`: it may be cut");
    }
    text
}
