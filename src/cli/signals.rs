//! `weir signals`: the snapshot as weir computes it, from two scrapes or from the sources of
//! `weir.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{Result, bail, eyre};
use serde_json::{Value as Json, json};

use super::scrape::{duration, ends_with_eof, read};
use super::{live, out};
use crate::flag::wire::SnapshotBody;
use crate::ingest::exposition::Format;
use crate::ingest::prometheus::{Select, promql_of};
use crate::ingest::{Adapter, Adapters, OnePage, Page, SourceRules, degraded, load_adapter};
use crate::signal::{CATALOGUE, Definition, Mono, Snapshot};

/// Time between two scrapes, and to watch for.
const EVERY: Duration = Duration::from_secs(15);
/// Window of a query: four of Prometheus' usual scrape intervals.
const PROMQL_WINDOW: Duration = Duration::from_mins(1);

/// Prints the signals that weir computes: from two scrapes of one page, or from the sources of a
/// configuration, watched for as long as `--every` says.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with [[source]]: watch what it names
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["adapter", "scrapes"])]
    pub config: Option<PathBuf>,
    /// Every signal there is: name, unit, meaning
    #[arg(long, conflicts_with_all = ["config", "adapter", "scrapes"])]
    pub list: bool,
    /// How the metrics become signals: an adapter's name, or a file that ends in `.toml`
    #[arg(long, value_name = "NAME|FILE", required_unless_present_any = ["config", "list"])]
    pub adapter: Option<String>,
    /// Two expositions of the same source, the earlier one first
    #[arg(long = "scrape", value_name = "FILE", required_unless_present_any = ["config", "promql", "list"])]
    pub scrapes: Vec<String>,
    /// Print the adapter's signals as PromQL instead, for a panel or a rule
    #[arg(long, conflicts_with_all = ["config", "scrapes"])]
    pub promql: bool,
    /// With --promql, label matchers of the source's series: `job="litellm"`
    #[arg(long, value_name = "MATCHERS", requires = "promql", default_value = "")]
    pub select: Select,
    /// Time between the scrapes, or to watch for (15s), or that rates of PromQL are taken over (1m)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub every: Option<Duration>,
    /// The quota scope, where the source has several
    #[arg(long)]
    pub scope: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// The catalogue.
fn list(as_json: bool) -> Result<ExitCode> {
    if as_json {
        let row = |one: &Definition| {
            json!({
                "name": one.name, "unit": one.unit.word(), "group": one.group, "meaning": one.meaning,
            })
        };
        out::line(Json::Array(CATALOGUE.iter().map(row).collect()))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::write(|out| {
        CATALOGUE.iter().try_for_each(|one| {
            writeln!(out, "{:36} {:8} {}", one.name, one.unit.word(), one.meaning)
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the signals of two scrapes, or of the sources of a configuration.
///
/// # Errors
///
/// When a file cannot be read, holds no metrics, no source answers, or the scope is not to be told.
pub async fn run(args: Args) -> Result<ExitCode> {
    if args.list {
        return list(args.json);
    }
    if args.every.is_some_and(|every| every.is_zero()) {
        bail!("--every must be longer than zero");
    }
    let every = args.every.unwrap_or(EVERY);
    if let (true, Some(name)) = (args.promql, &args.adapter) {
        return in_promql(&*adapter(name)?, &args);
    }
    let (snapshots, source) = match (&args.config, &args.adapter) {
        (Some(config), _) => (watched(config, every).await?, "the sources".to_owned()),
        (None, Some(name)) => {
            let adapter = adapter(name)?;
            (between(&args.scrapes, &adapter, every)?, format!("adapter {}", adapter.name))
        }
        (None, None) => bail!("name --adapter with two --scrape, or -c FILE"),
    };
    let mut snapshot = pick(snapshots, args.scope.as_deref())?;
    for definition in CATALOGUE {
        let is_told = snapshot.signals.contains_key(definition.name)
            || snapshot.absent.contains_key(definition.name);
        if !is_told && definition.name != "window_s" {
            let why = format!("no metric of {source} says it");
            snapshot.absent.insert(definition.name.to_owned(), why);
        }
    }
    let body = SnapshotBody::from(&snapshot);
    if args.json {
        out::line(as_json(&body)?)?;
    } else {
        out::text(&in_words(&body))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints each signal that is one number as a query.
fn in_promql(adapter: &Adapter, args: &Args) -> Result<ExitCode> {
    let window = args.every.unwrap_or(PROMQL_WINDOW);
    let queries = adapter.signals.keys().filter_map(|signal| {
        Some((signal.as_str(), promql_of(adapter, signal, &args.select, window)?))
    });
    if args.json {
        let queries = queries.map(|(name, query)| (name.to_owned(), Json::String(query)));
        out::line(Json::Object(queries.collect()))?;
    } else {
        let lines: Vec<_> = queries.map(|(name, query)| format!("{name}\n    {query}\n")).collect();
        out::text(&lines.concat())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the sources of a configuration say after a while.
async fn watched(config: &Path, span: Duration) -> Result<Vec<Snapshot>> {
    let observation = live::look(config, span, |_| {}).await?;
    Ok(observation.scopes.iter().map(|snapshot| Snapshot::clone(snapshot)).collect())
}

/// What pages that were taken so far apart say.
fn between(scrapes: &[String], adapter: &Arc<Adapter>, every: Duration) -> Result<Vec<Snapshot>> {
    let mut source = OnePage::new(
        &adapter.name,
        SourceRules { window: every, ..SourceRules::new(Arc::clone(adapter)) },
    );
    let mut at = Mono::START;
    for (index, name) in scrapes.iter().enumerate() {
        at = Mono::START + every.saturating_mul(u32::try_from(index).unwrap_or(u32::MAX));
        take(&mut source, name, at)?;
    }
    Ok(source.snapshots(at))
}

/// The adapter of this name, one in the folder `adapters` first, or the file.
fn adapter(name: &str) -> Result<Arc<Adapter>> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "toml") {
        return Ok(Arc::new(load_adapter(path)?));
    }
    Ok(Adapters::beside(Path::new("")).get(name)?)
}

/// Puts the page of this name in, and says what is bad about it.
fn take(source: &mut OnePage, name: &str, at: Mono) -> Result<()> {
    let body = read(name)?;
    let format = if ends_with_eof(&body) { Format::OpenMetrics } else { Format::Text };
    let report = source.accept(Page { body: &body, format }, at)?;
    for (line, reason) in degraded(&report) {
        out::note(format_args!("{name}: line {line}: {reason}"));
    }
    if report.samples == 0 {
        bail!("{name}: holds no metrics");
    }
    Ok(())
}

fn pick(snapshots: Vec<Snapshot>, scope: Option<&str>) -> Result<Snapshot> {
    let names: Vec<_> = snapshots.iter().map(|snapshot| snapshot.scope.clone()).collect();
    let mut fitting =
        snapshots.into_iter().filter(|snapshot| scope.is_none_or(|scope| snapshot.scope == scope));
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => bail!("several scopes, name one with --scope: {}", names.join(", ")),
        (None, _) => Err(eyre!("no such scope; the source has: {}", names.join(", "))),
    }
}

fn as_json(body: &SnapshotBody) -> Result<Json> {
    let absent: Vec<_> =
        body.absent.iter().map(|(name, why)| json!({ "name": name, "why": why })).collect();
    Ok(json!({
        "scope": body.scope,
        "window_s": body.window_s,
        "signals": serde_json::to_value(&body.signals)?,
        "absent": absent,
    }))
}

fn in_words(body: &SnapshotBody) -> String {
    use std::fmt::Write as _;
    let mut text = format!("scope {:?}, over {} s\n", body.scope, body.window_s);
    for (name, row) in &body.signals {
        let note = row.note.as_ref().map_or_else(String::new, |note| format!("  {note}"));
        let _ = writeln!(text, "{name:<32} {}  ({}){note}", row.value, row.quality);
    }
    // Signals that are unknown for the same reason share a line.
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, why) in &body.absent {
        reasons.entry(why).or_default().push(name);
    }
    for (why, names) in reasons {
        let _ = writeln!(text, "unknown ({why}): {}", names.join(", "));
    }
    text
}
