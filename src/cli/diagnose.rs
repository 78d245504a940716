//! `weir diagnose`: verdicts without a screen.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{Context, Result, bail, eyre};
use serde_json::Value as Json;

use super::scrape::duration;
use super::{live, out};
use crate::diagnosis::{
    Diagnoser, Evidence, HEALTHY, INSUFFICIENT, Library, Onset, Ranked, Standing, Step, Truth,
    Verdict, diagnose_once, snapshot_from_json, verdict_to_json,
};
use crate::incident::recording::Replay;
use crate::runbook;
use crate::signal::Snapshot;

/// Largest input in bytes.
const MAX_INPUT_BYTES: u64 = 64 * 1024 * 1024;
/// A cause was found.
const FOUND: u8 = 10;
/// The evidence does not suffice.
const CANNOT_TELL: u8 = 11;

/// Names the cause that fits a snapshot of signals, or what the sources of a configuration show.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with [[source]]: watch what it names, one verdict per quota scope
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["snapshot", "recording"])]
    pub config: Option<PathBuf>,
    /// With --config, how long to watch
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "15s",
        value_parser = duration,
        requires = "config"
    )]
    pub span: Duration,
    /// One JSON object or JSON Lines with the keys of the signal catalogue; `-` is stdin
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present_any = ["config", "recording"],
        conflicts_with = "recording"
    )]
    pub snapshot: Option<PathBuf>,
    /// A recording: one verdict per quota scope, at its end
    #[arg(long, value_name = "FILE")]
    pub recording: Option<PathBuf>,
    /// With --recording, the moment to judge
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "recording")]
    pub at: Option<Duration>,
    /// Runbooks to put beside the built-in ones
    #[arg(long, value_name = "DIR")]
    pub runbooks: Option<PathBuf>,
    /// Print one JSON document per input
    #[arg(long)]
    pub json: bool,
}

/// Diagnoses every snapshot of the input, or every scope of the sources.
///
/// # Errors
/// When the input or the runbooks cannot be read; the error names the line. When no source answers.
pub async fn run(args: Args) -> Result<ExitCode> {
    let library = match &args.runbooks {
        Some(dir) => runbook::load_dir(dir)?,
        None => runbook::embedded(),
    };
    let verdicts = match (&args.config, &args.snapshot) {
        (Some(config), _) => watched(config, args.span, &library).await?,
        (None, Some(snapshot)) => given(snapshot, &library)?,
        (None, None) => match &args.recording {
            Some(recording) => recorded(recording, args.at, &library)?,
            None => bail!("name --snapshot FILE, --recording FILE or -c FILE"),
        },
    };
    for verdict in &verdicts {
        if args.json {
            out::line(verdict_to_json(verdict))?;
        } else {
            out::text(&in_words(verdict, &library))?;
        }
    }
    // Many snapshots of a file are a batch; the scopes of the sources are one state of affairs.
    if args.snapshot.is_some() && verdicts.len() != 1 {
        return Ok(ExitCode::SUCCESS);
    }
    let is = |cause: &str| verdicts.iter().any(|verdict| verdict.cause == cause);
    let is_found = verdicts.iter().any(|v| v.cause != HEALTHY && v.cause != INSUFFICIENT);
    Ok(match () {
        () if is_found => ExitCode::from(FOUND),
        () if is(INSUFFICIENT) => ExitCode::from(CANNOT_TELL),
        () => ExitCode::SUCCESS,
    })
}

/// The verdicts on the snapshots of a file.
fn given(path: &Path, library: &Arc<Library>) -> Result<Vec<Verdict>> {
    let snapshots = parse(&read(path)?, &path.display().to_string())?;
    let verdict = |(snapshot, strangers): &(Snapshot, Vec<String>)| {
        let mut verdict = diagnose_once(library, snapshot);
        for key in strangers {
            verdict.notes.push(format!("`{key}` is not in the signal catalogue: left out"));
        }
        verdict
    };
    Ok(snapshots.iter().map(verdict).collect())
}

/// The verdicts on the scopes of the sources, after watching them for `span`.
async fn watched(config: &Path, span: Duration, library: &Arc<Library>) -> Result<Vec<Verdict>> {
    let mut diagnosers: BTreeMap<String, Diagnoser> = BTreeMap::new();
    let mut verdicts = Vec::new();
    live::look(config, span, |observation| {
        let step = |snapshot: &Arc<Snapshot>| {
            let diagnoser = diagnosers
                .entry(snapshot.scope.clone())
                .or_insert_with(|| Diagnoser::new(Arc::clone(library)));
            diagnoser.step(snapshot, observation.at)
        };
        verdicts = observation.scopes.iter().map(step).collect();
    })
    .await?;
    Ok(verdicts)
}

/// The verdicts on the scopes of a recording at one of its moments.
fn recorded(path: &Path, at: Option<Duration>, library: &Arc<Library>) -> Result<Vec<Verdict>> {
    let mut replay = Replay::open(path, Arc::clone(library))?;
    let (_, last) = replay.span()?;
    let at = at.map_or(last, |at| replay.reader().moment(at));
    let moment = replay.seek(at)?.moment;
    if moment.verdicts.is_empty() {
        bail!("{}: no source had answered by then", path.display());
    }
    Ok(moment.verdicts.iter().map(|verdict| Verdict::clone(verdict)).collect())
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let mut input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let open = std::fs::File::open(path);
        Box::new(open.wrap_err_with(|| format!("cannot read {}", path.display()))?)
    };
    input.by_ref().take(MAX_INPUT_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_INPUT_BYTES {
        bail!("{}: larger than 64 MiB; split it", path.display());
    }
    Ok(text)
}

/// One object, or one object a line.
fn parse(text: &str, name: &str) -> Result<Vec<(Snapshot, Vec<String>)>> {
    if let Ok(Json::Object(object)) = serde_json::from_str(text) {
        return Ok(vec![snapshot_from_json(&object, name)]);
    }
    let mut snapshots = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let json: Json = serde_json::from_str(line)
            .map_err(|error| eyre!("{name}:{number}: {error}; write one JSON object a line"))?;
        let Json::Object(object) = json else {
            bail!("{name}:{number}: not an object; write signals as {{\"attempts_rps\": 3}}");
        };
        snapshots.push(snapshot_from_json(&object, name));
    }
    if snapshots.is_empty() {
        bail!("{name}: there is no snapshot in it; write one JSON object, or one a line");
    }
    Ok(snapshots)
}

/// The verdict for a person: what it is, how it was found, on what, and what to do.
pub(super) fn in_words(verdict: &Verdict, library: &Arc<Library>) -> String {
    let mut lines = vec![format!(
        "{}  {}  {} of {} signals{}",
        verdict.cause,
        verdict.standing,
        verdict.used,
        verdict.of,
        if verdict.scope.is_empty() { String::new() } else { format!("  {}", verdict.scope) },
    )];
    if !verdict.say.is_empty() {
        lines.push(format!("  {}", verdict.say));
    }
    lines.push("path".to_owned());
    for (number, step) in (1..).zip(&verdict.path) {
        lines.push(format!("  {number} {}  {}", step.title, step.branch));
    }
    lines.push("evidence".to_owned());
    lines.extend(verdict.evidence.iter().map(evidence_line));
    if !verdict.onsets.is_empty() {
        lines.push("first movers".to_owned());
        let line = |one: &Onset| format!("  {:>4.0} s ago  {one}", one.ago_s);
        lines.extend(verdict.onsets.iter().map(line));
    }
    let also: Vec<String> = verdict
        .also
        .iter()
        .filter(|ranked| ranked.standing >= Standing::Contradicted)
        .map(|ranked| {
            let Ranked { cause, standing, evidence_for, evidence_against, .. } = ranked;
            format!("  {cause}  {standing}  {evidence_for} for, {evidence_against} against")
        })
        .collect();
    if !also.is_empty() {
        lines.push("also".to_owned());
        lines.extend(also);
    }
    if !verdict.missing.is_empty() {
        lines.push("missing".to_owned());
        for missing in &verdict.missing {
            lines.push(format!("  {}  {}", missing.signal, missing.reason));
        }
    }
    lines.extend(verdict.notes.iter().map(|note| format!("note: {note}")));
    lines.push(format!("next: {}", next_step(verdict, library)));
    lines.push(String::new());
    lines.join("\n") + "\n"
}

fn evidence_line(evidence: &Evidence) -> String {
    let mark = match evidence.state {
        Truth::True => 'T',
        Truth::False => 'F',
        Truth::Unknown => '?',
    };
    let number = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |v| format!("{v:.4}"));
    let trim = |text: String| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        }
    };
    let value = trim(number(evidence.value));
    let reason = evidence.reason.as_deref().map(|why| format!("  ({why})")).unwrap_or_default();
    format!("  {mark} {}  {value}{reason}", evidence.predicate)
}

fn next_step(verdict: &Verdict, library: &Library) -> String {
    if let Some(plan) = &verdict.plan {
        return format!("plan {plan} (weir flag plan {plan})");
    }
    let first = verdict
        .runbook
        .as_deref()
        .and_then(|id| library.book(id))
        .and_then(|book| Some((book, book.node(&book.entry)?)));
    match first {
        Some((book, node)) => match &node.step {
            Step::End { say, .. } => say.clone(),
            _ => format!("runbook {}: {}", book.id, node.title),
        },
        None => "there is no runbook for it".to_owned(),
    }
}
