//! `weir diagnose`: verdicts without a screen.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{Context, Result, bail, eyre};
use serde_json::{Map, Value as Json};

use super::diagnose_text::in_words;
use super::scrape::duration;
use super::{config, explain_text, live, out};
use crate::diagnosis::{
    Diagnoser, Explanation, Facts, HEALTHY, INSUFFICIENT, Library, Owners, Verdict, explain,
    explanation_to_json, judge_once, snapshot_from_json, verdict_to_json, worst_first,
};
use crate::flag::wire::SnapshotBody;
use crate::incident::recording::Replay;
use crate::runbook;
use crate::signal::{Snapshot, definition};

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
    /// One JSON object or JSON Lines with the keys of the signal catalogue, or what `weir signals --json`
    /// or a gateway's `/admin/v1/snapshot` says; `-` is stdin
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
    /// Why this cause, or why not; may be repeated, `all` takes every cause
    #[arg(long, value_name = "CAUSE")]
    pub explain: Vec<String>,
    /// Print one JSON document per input
    #[arg(long)]
    pub json: bool,
}

/// `--explain` of every cause.
const ALL: &str = "all";

/// A verdict, and the explanations that were asked for beside it.
struct Judged {
    verdict: Verdict,
    explained: Vec<Explanation>,
}

/// Diagnoses every snapshot of the input, or every scope of the sources.
///
/// # Errors
/// When the input or the runbooks cannot be read; the error names the line. When no source answers.
pub async fn run(args: Args) -> Result<ExitCode> {
    let loaded = args.config.as_deref().map(config::load).transpose()?;
    let library = match (&args.runbooks, &loaded) {
        (named, Some(loaded)) => loaded.library(named.as_deref())?,
        (Some(dir), None) => runbook::load_dir(dir)?,
        (None, None) => runbook::embedded(),
    };
    let owners = loaded.map(|loaded| loaded.owners()).unwrap_or_default();
    let asked = asked(&args.explain, &library)?;
    let judge = |verdict: Verdict, facts: &Facts| {
        let explained = asked.iter().filter_map(|id| explain(&library, facts, &verdict, id));
        Judged { explained: explained.collect(), verdict }
    };
    let mut judged = match (&args.config, &args.snapshot) {
        (Some(config), _) => watched(config, args.span, &library, &judge).await?,
        (None, Some(snapshot)) => given(snapshot, &library, &judge)?,
        (None, None) => match &args.recording {
            Some(recording) => recorded(recording, args.at, &library, &judge)?,
            None => bail!("name --snapshot FILE, --recording FILE or -c FILE"),
        },
    };
    // Snapshots of a file are answered in their order; scopes stand side by side, the worst first.
    if args.snapshot.is_none() {
        judged.sort_by(|left, right| worst_first(&left.verdict, &right.verdict));
    }
    for one in &judged {
        print(one, (&library, &owners), args.json, !asked.is_empty())?;
    }
    let verdicts: Vec<&Verdict> = judged.iter().map(|one| &one.verdict).collect();
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

/// The causes to explain, each once; `all` is every one that the runbooks have.
fn asked(names: &[String], library: &Library) -> Result<Vec<String>> {
    let known: Vec<&str> =
        library.books().filter_map(|book| Some(book.cause.as_ref()?.id.as_str())).collect();
    let mut asked: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for name in names {
        let matching: Vec<&str> =
            known.iter().copied().filter(|id| id == name || name == ALL).collect();
        if matching.is_empty() {
            bail!("there is no cause `{name}`; name `{ALL}` or one of: {}", known.join(", "));
        }
        asked.extend(matching.into_iter().filter(|id| seen.insert(*id)).map(str::to_owned));
    }
    Ok(asked)
}

fn print(
    judged: &Judged,
    (library, owners): (&Library, &Owners),
    as_json: bool,
    explains: bool,
) -> Result<()> {
    let Judged { verdict, explained } = judged;
    if as_json {
        let mut json = verdict_to_json(verdict);
        if let Some(object) = json.as_object_mut().filter(|_| explains) {
            let explained = explained.iter().map(explanation_to_json).collect();
            object.insert("explain".to_owned(), Json::Array(explained));
        }
        return Ok(out::line(json)?);
    }
    let mut text = in_words(verdict, library, owners);
    for explanation in explained {
        text.push_str(&explain_text::in_words(explanation, verdict));
    }
    Ok(out::text(&text)?)
}

/// Puts the explanations that were asked for beside a verdict.
type Judge<'a> = dyn Fn(Verdict, &Facts) -> Judged + 'a;

/// The verdicts on the snapshots of a file.
fn given(path: &Path, library: &Arc<Library>, judge: &Judge<'_>) -> Result<Vec<Judged>> {
    let snapshots = parse(&read(path)?, &path.display().to_string())?;
    let one = |(snapshot, strangers): &(Snapshot, Vec<String>)| {
        let (mut verdict, facts) = judge_once(library, snapshot);
        for key in strangers {
            verdict.notes.push(format!("`{key}` is not in the signal catalogue: left out"));
        }
        judge(verdict, &facts)
    };
    Ok(snapshots.iter().map(one).collect())
}

/// The verdicts on the scopes of the sources, after watching them for `span`.
async fn watched(
    config: &Path,
    span: Duration,
    library: &Arc<Library>,
    judge: &Judge<'_>,
) -> Result<Vec<Judged>> {
    let mut diagnosers: BTreeMap<String, Diagnoser> = BTreeMap::new();
    let mut verdicts: Vec<Verdict> = Vec::new();
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
    let judged = verdicts.into_iter().filter_map(|verdict| {
        let facts = diagnosers.get(&verdict.scope)?.facts();
        Some(judge(verdict, facts))
    });
    Ok(judged.collect())
}

/// The verdicts on the scopes of a recording at one of its moments.
fn recorded(
    path: &Path,
    at: Option<Duration>,
    library: &Arc<Library>,
    judge: &Judge<'_>,
) -> Result<Vec<Judged>> {
    let mut replay = Replay::open(path, Arc::clone(library))?;
    let (_, last) = replay.span()?;
    let at = at.map_or(last, |at| replay.reader().moment(at));
    let moment = replay.seek(at)?.moment;
    if moment.verdicts.is_empty() {
        bail!("{}: no source had answered by then", path.display());
    }
    let judged = moment.verdicts.iter().map(|verdict| {
        let facts = replay.diagnosis_of(&verdict.scope).facts();
        judge(Verdict::clone(verdict), facts)
    });
    Ok(judged.collect())
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let mut input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let open = std::fs::File::open(path);
        Box::new(open.wrap_err_with(|| format!("cannot read {}", path.display()))?)
    };
    let read = input.by_ref().take(MAX_INPUT_BYTES + 1).read_to_string(&mut text);
    read.wrap_err_with(|| {
        format!("{}: not read as text; give one JSON object, or one a line", path.display())
    })?;
    if text.len() as u64 > MAX_INPUT_BYTES {
        bail!("{}: larger than 64 MiB; split it", path.display());
    }
    Ok(text)
}

/// Whether the first line alone is the beginning of something.
fn spans_lines(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().map(serde_json::from_str::<Json>);
    lines.next().is_some() && first.is_some_and(|first| first.is_err_and(|error| error.is_eof()))
}

/// The snapshots of one object: signals by name; one that `weir signals --json` printed; or the answer
/// of a gateway's `/admin/v1/snapshot`, with one a scope.
fn told(
    mut object: Map<String, Json>,
    name: &str,
    line: usize,
) -> Result<Vec<(Snapshot, Vec<String>)>> {
    let bodies = match (object.remove("scopes"), object.contains_key("signals")) {
        (Some(Json::Array(scopes)), _) => scopes,
        (_, true) => vec![Json::Object(object)],
        _ => return Ok(vec![snapshot_from_json(&object, name)]),
    };
    let one = |mut body: Json| {
        // A list there, for the reader's eye; a table on the wire.
        if let Some(Json::Array(rows)) = body.get("absent") {
            let row = |row: &Json| Some((row["name"].as_str()?.to_owned(), row["why"].clone()));
            body["absent"] = Json::Object(rows.iter().filter_map(row).collect());
        }
        let body: SnapshotBody = serde_json::from_value(body).map_err(|error| {
            let remedy = "give it as `weir signals --json` or /admin/v1/snapshot writes it";
            eyre!("{name}:{line}: `signals`: {error}; {remedy}")
        })?;
        let mut snapshot = Snapshot::from(body);
        let strangers: Vec<String> =
            snapshot.signals.keys().filter(|key| definition(key).is_none()).cloned().collect();
        snapshot.signals.retain(|key, _| definition(key).is_some());
        Ok((snapshot, strangers))
    };
    bodies.into_iter().map(one).collect()
}

/// One object, or one object a line.
fn parse(text: &str, name: &str) -> Result<Vec<(Snapshot, Vec<String>)>> {
    let text = text.trim_start_matches('\u{feff}');
    match serde_json::from_str(text) {
        Ok(Json::Object(object)) => return told(object, name, 1),
        // An object over several lines: the place of its mistake is not that of a line's end.
        Err(error) if spans_lines(text) => {
            bail!("{name}:{}: {error}; write one JSON object, or one a line", error.line())
        }
        _ => {}
    }
    let mut snapshots = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let json: Json = serde_json::from_str(line)
            .map_err(|error| eyre!("{name}:{number}: {error}; write one JSON object a line"))?;
        let Json::Object(object) = json else {
            bail!("{name}:{number}: not an object; write signals as {{\"attempts_rps\": 3}}");
        };
        snapshots.extend(told(object, name, number)?);
    }
    if snapshots.is_empty() {
        bail!("{name}: there is no snapshot in it; write one JSON object, or one a line");
    }
    Ok(snapshots)
}
