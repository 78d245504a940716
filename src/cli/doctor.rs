//! `weir doctor`: what each source says, how well, and which causes cannot be told without the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::Result;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::config;
use super::scrape::duration;
use crate::diagnosis::{Reach, Within, reach};
use crate::ingest::{
    Adapter, ParsedScrape, Road, ScrapeError, Scraper, SourceConfig, Target, cross_check,
};
use crate::runbook;
use crate::signal::Quality;

/// Checks the sources of a configuration: what they say, how well, and which causes cannot be told.
///
/// Scrapes each source once. Fails when one does not answer.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with [[source]]
    #[arg(short, long, value_name = "FILE", default_value = "weir.toml")]
    config: PathBuf,
    /// Longest wait for one source
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    timeout: Duration,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What one source came to.
struct Checked {
    name: String,
    adapter: Arc<Adapter>,
    page: Result<Page, ScrapeError>,
}

/// What one scrape showed.
struct Page {
    took_s: f64,
    samples: usize,
    bad_lines: usize,
    prometheus_accepts: bool,
    /// Samples that `prometheus-parse` would not find.
    lost: usize,
    /// Metrics that the adapter reads and the page does not have.
    missing: Vec<String>,
}

/// Checks every source.
///
/// # Errors
/// When the configuration or an adapter is wrong. A source that is down is a finding.
pub async fn run(args: Args) -> Result<ExitCode> {
    let file = config::load(&args.config)?;
    let adapters = config::adapters(&args.config);
    let scraper = Scraper::new()?;
    let mut sources = Vec::new();
    for index in 0..file.toml.sources.len() {
        let SourceConfig { road, adapter, .. } = file.source(index, &adapters)?;
        let Road::Pages { target, .. } = road else { continue };
        let target = Target { timeout: args.timeout, ..target };
        let page = page(&scraper, &target, &adapter).await;
        sources.push(Checked { name: target.name, adapter, page });
    }
    let causes = reach(&runbook::embedded(), &given(&sources));
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", as_json(&sources, &causes))?;
    } else {
        write!(out, "{}", in_words(&sources, &causes))?;
    }
    let is_well = sources.iter().all(|source| source.page.is_ok());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn page(scraper: &Scraper, target: &Target, adapter: &Adapter) -> Result<Page, ScrapeError> {
    let begun = Instant::now();
    let (body, format) = scraper.fetch(target).await?;
    let took_s = begun.elapsed().as_secs_f64();
    let too_large =
        |_| ScrapeError::TooLarge { source_name: target.name.clone(), limit: target.body_max };
    let scrape = ParsedScrape::parse(&body, format).map_err(too_large)?;
    let there: BTreeSet<&str> = scrape.points.iter().map(|point| &*point.name).collect();
    let missing: BTreeSet<String> = adapter
        .metrics()
        .filter(|metric| !there.contains(metric.as_str()) && !adapter.is_lazy(metric))
        .collect();
    Ok(Page {
        took_s,
        samples: scrape.report.samples,
        bad_lines: scrape.report.problem_count,
        prometheus_accepts: scrape.report.prometheus_accepts(),
        lost: cross_check(&body, format).map_err(too_large)?.lost,
        missing: missing.into_iter().collect(),
    })
}

/// The signals that some source gives.
fn given(sources: &[Checked]) -> BTreeSet<String> {
    let entries = sources.iter().flat_map(|source| &source.adapter.signals);
    entries.filter(|(_, entry)| entry.quality().is_some()).map(|(name, _)| name.clone()).collect()
}

fn as_json(sources: &[Checked], causes: &[Reach]) -> Json {
    let source = |checked: &Checked| {
        let adapter = &checked.adapter;
        let told = adapter.signals.iter().filter_map(|(name, entry)| {
            let quality = entry.quality()?.word();
            Some((name.clone(), json!({ "quality": quality, "note": entry.note() })))
        });
        let absent = adapter.signals.iter().filter(|(_, entry)| entry.quality().is_none());
        let absent: Vec<_> =
            absent.map(|(name, entry)| json!({ "name": name, "why": entry.note() })).collect();
        json!({
            "name": checked.name,
            "adapter": adapter.name,
            "title": adapter.title,
            "verified": adapter.verified.word(),
            "signals": told.collect::<serde_json::Map<_, _>>(),
            "absent": absent,
            "scrape": checked.page.as_ref().ok().map(page_json),
            "error": checked.page.as_ref().err().map(ToString::to_string),
        })
    };
    let causes: Vec<_> = causes
        .iter()
        .map(|r| json!({ "cause": r.cause, "at_most": within(r.within), "needs": r.needs }))
        .collect();
    json!({ "sources": sources.iter().map(source).collect::<Vec<_>>(), "causes": causes })
}

fn page_json(page: &Page) -> Json {
    json!({
        "took_s": page.took_s,
        "samples": page.samples,
        "bad_lines": page.bad_lines,
        "prometheus_accepts": page.prometheus_accepts,
        "prometheus_parse_loses": page.lost,
        "missing_metrics": page.missing,
    })
}

const fn within(within: Within) -> &'static str {
    match within {
        Within::Confirmed => "confirmed",
        Within::Likely => "likely",
        Within::CannotTell => "cannot-tell",
    }
}

fn in_words(sources: &[Checked], causes: &[Reach]) -> String {
    let mut text = String::new();
    if sources.is_empty() {
        text.push_str("no [[source]]: add one with `name`, `adapter` and `url`\n");
    }
    for source in sources {
        let Adapter { name, title, verified, .. } = &*source.adapter;
        let _ = writeln!(text, "{}  adapter {name}: {title}, {}", source.name, verified.word());
        match &source.page {
            Ok(page) => text.push_str(&page_in_words(page)),
            Err(error) => {
                let _ = writeln!(text, "  does not answer: {error}");
            }
        }
        text.push_str(&signals_in_words(&source.adapter));
        text.push('\n');
    }
    text.push_str(&causes_in_words(causes));
    text
}

fn page_in_words(page: &Page) -> String {
    let Page { took_s, samples, bad_lines, lost, .. } = page;
    let mut text = format!("  answered in {took_s:.2} s with {samples} samples\n");
    if *bad_lines > 0 {
        let verdict = if page.prometheus_accepts { "keeps the rest" } else { "rejects the page" };
        let _ = writeln!(text, "  {bad_lines} bad lines: Prometheus {verdict}");
    }
    if *lost > 0 {
        let _ = writeln!(
            text,
            "  the prometheus-parse family of parsers loses {lost} of your {samples} samples, without a word"
        );
    }
    if !page.missing.is_empty() {
        let _ = writeln!(text, "  not on its page: {}", page.missing.join(", "));
    }
    text
}

fn signals_in_words(adapter: &Adapter) -> String {
    let mut text = String::new();
    for quality in [Quality::Exact, Quality::LowerBound, Quality::Inferred] {
        let of = adapter.signals.iter().filter(|(_, entry)| entry.quality() == Some(quality));
        let names: Vec<&str> = of.map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "  {:<12} {}", quality.word(), names.join(", "));
        }
    }
    // Signals that are absent for the same reason share a line.
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, entry) in &adapter.signals {
        if entry.quality().is_none() {
            reasons.entry(entry.note().unwrap_or_default()).or_default().push(name);
        }
    }
    for (why, names) in reasons {
        let _ = writeln!(text, "  {:<12} {}: {why}", "absent", names.join(", "));
    }
    text
}

fn causes_in_words(causes: &[Reach]) -> String {
    let of = |wanted| causes.iter().filter(move |reach| reach.within == wanted);
    let named: Vec<&str> = of(Within::Confirmed).map(|reach| reach.cause.as_str()).collect();
    let mut text = format!("can be confirmed: {}\n", list(&named));
    for (wanted, title) in [
        (Within::Likely, "can be likely at most, for what would contradict it is not seen"),
        (Within::CannotTell, "cannot be told"),
    ] {
        if of(wanted).next().is_some() {
            let _ = writeln!(text, "{title}:");
        }
        for reach in of(wanted) {
            let _ = writeln!(text, "  {:<24} needs {}", reach.cause, reach.needs.join(", "));
        }
    }
    text
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
