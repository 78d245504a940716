//! `weir report`: the incident so far, as Markdown for the channel and the review.

mod flips;
mod page;
mod story;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, FixedOffset, Local, TimeDelta, Utc};
use color_eyre::eyre::{Context as _, Result, bail};

use super::scrape::duration;
use super::{audit, config, live, out, watch};
use crate::diagnosis::Owners;
use crate::incident::recording::{Moment, Replay, Told};
use crate::incident::{self, Diagnoses, Event, JournalError};
use crate::ingest::{has_past, past};
use crate::runbook;
use crate::signal::Mono;
use crate::tui::Update;
use page::{Flags, Page};
use story::Story;

/// How long before its onset what was written down still belongs to an incident.
const LEAD: TimeDelta = TimeDelta::minutes(15);

/// The incident so far as a report in Markdown: what it is, since when, what moved first, what was done.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording: the incident in it, the same text every time
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    recording: Option<PathBuf>,
    /// File with [[source]] and [flags]: the incident of now
    #[arg(short, long, value_name = "FILE", required_unless_present = "recording")]
    config: Option<PathBuf>,
    /// With --recording, the moment that the report ends with
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "recording")]
    at: Option<Duration>,
    /// With --config, how long to watch
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "15s",
        value_parser = duration,
        requires = "config"
    )]
    span: Duration,
    /// With --config, how far back the journal is told
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1h",
        value_parser = duration,
        requires = "config"
    )]
    since: Duration,
    /// The journal [default: in the user's state directory; with --recording, none]
    #[arg(long, value_name = "FILE", env = "WEIR_JOURNAL")]
    journal: Option<PathBuf>,
    /// Write it into this file; one that is there is replaced
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Runbooks to put beside the built-in ones
    #[arg(long, value_name = "DIR")]
    runbooks: Option<PathBuf>,
}

/// Writes the report.
///
/// # Errors
/// When the recording or the configuration cannot be read, no source answers, or the file cannot be written.
pub async fn run(args: Args) -> Result<ExitCode> {
    let text = match (&args.recording, &args.config) {
        (Some(recording), _) => recorded(&args, recording)?,
        (None, Some(config)) => watched(&args, config).await?,
        (None, None) => bail!("name --recording FILE or -c FILE"),
    };
    match &args.output {
        Some(path) => replace(path, &text)?,
        None => out::text(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts the text into the file whole or not at all.
fn replace(path: &Path, text: &str) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, path))
        .wrap_err_with(|| format!("cannot write {}; name another with -o FILE", path.display()))
}

fn zone_at(at: DateTime<Utc>) -> FixedOffset {
    *at.with_timezone(&Local).offset()
}

type Entries = Vec<(DateTime<Utc>, Event)>;

/// What is told of events that are no flip.
fn said(entries: &Entries) -> Vec<(DateTime<Utc>, String)> {
    let is_apart = |event: &Event| {
        matches!(event, Event::Plan { .. } | Event::Note { .. } | Event::Torn { .. } | Event::Other)
    };
    let apart = entries.iter().filter(|(_, event)| is_apart(event));
    apart.map(|(at, event)| (*at, event.line())).collect()
}

fn recorded(args: &Args, path: &Path) -> Result<String> {
    let library = match &args.runbooks {
        Some(dir) => runbook::load_dir(dir)?,
        None => runbook::embedded(),
    };
    let mut replay = Replay::open(path, Arc::clone(&library))?;
    let (first, last) = replay.span()?;
    let end = args.at.map_or(last, |at| replay.reader().moment(at));
    // Refuses a moment that it does not hold, before all of it is read.
    if args.at.is_some() {
        replay.seek(end)?;
    }
    let mut story = Story::default();
    let mut next = Some(replay.seek(first)?.moment);
    while let Some(Moment { observation, verdicts, changes, alerts }) = next {
        if observation.at > end && story.newest.is_some() {
            break;
        }
        story.see(&Update { changes, alerts, ..Update::new(observation, verdicts) });
        next = replay.step()?;
    }
    let mut entries = Entries::new();
    let mut notices = Vec::new();
    for event in replay.events().iter().filter(|event| event.at <= end) {
        match &event.told {
            Told::Journal(entry) => entries.push((event.wall, entry.clone())),
            Told::Notice(text) => notices.push((event.wall, text.clone())),
            // It is judged anew.
            Told::Verdict { .. } => {}
        }
    }
    let audit = match &args.journal {
        Some(journal) => {
            let (from, to) = story.span.unwrap_or_default();
            let (kept, audit) = journal_of(journal, from - LEAD)?;
            let is_new = |entries: &Entries, (at, event): &(DateTime<Utc>, Event)| {
                *at <= to
                    && !entries.iter().any(|(other, known)| {
                        known == event && (*other - *at).abs() < TimeDelta::seconds(2)
                    })
            };
            let new: Vec<_> = kept.into_iter().filter(|entry| is_new(&entries, entry)).collect();
            entries.extend(new);
            entries.sort_by_key(|(at, _)| *at);
            audit
        }
        None => vec![
            "not checked: a recording holds copies of entries, and not the chain; name the journal \
             with --journal FILE"
                .to_owned(),
        ],
    };
    notices.extend(said(&entries));
    let header = replay.header();
    let mut made_from = vec![format!(
        "made from the recording `{}`, written by weir {}",
        path.file_name().unwrap_or_default().to_string_lossy(),
        header.weir
    )];
    let fact = |(key, value): (&String, &String)| format!("{key}: {value}");
    made_from.extend(header.facts.iter().map(fact));
    made_from.extend(header.anonymised.clone());
    let zone = zone_at(story.span.unwrap_or_default().1);
    Ok(Page {
        title: header.title.clone(),
        environment: header.environment.clone(),
        made_from,
        zone,
        story: &story,
        library: &library,
        owners: &Owners::default(),
        said: notices,
        flips: &flips::from_journal(&entries),
        flags: Flags::ByFlips,
        audit,
    }
    .markdown())
}

async fn watched(args: &Args, path: &Path) -> Result<String> {
    let loaded = config::load(path)?;
    let library = loaded.library(args.runbooks.as_deref())?;
    let sources = live::sources(&loaded, path)?;
    let flag_store = loaded.flag_store()?;
    let asks_past = has_past(&sources);
    let origin = live::origin(asks_past.then_some(live::PAST));
    let mut diagnoses = Diagnoses::new(Arc::clone(&library));
    let mut story = Story::default();
    let mut made_from =
        vec![format!("made from the sources of `{}`, watched for {:?}", path.display(), args.span)];
    if asks_past {
        let (now, wall) = (Mono::from_start(origin.elapsed()), Utc::now());
        let past = past(&sources, live::PAST, now).await;
        for trouble in &past.troubles {
            out::note(trouble);
        }
        story.see_past(&past.scopes, &mut diagnoses, |at| wall - now.saturating_since(at));
        made_from.push("the hour before is taken from Prometheus, a look each 15 s".to_owned());
    }
    let alerts = watch::alerts(&loaded, &sources)?.map(|source| watch::watched(source, origin));
    live::look_from(sources, origin, args.span, |observation| {
        let (verdicts, changes) = diagnoses.step(observation);
        let alerts = alerts.as_ref().and_then(|(_, feed)| feed.borrow().clone());
        let update = Update::new(Arc::new(observation.clone()), verdicts);
        story.see(&Update { changes, alerts, ..update });
    })
    .await?;
    let now = Utc::now();
    let earliest = now - TimeDelta::from_std(args.since).unwrap_or(TimeDelta::MAX);
    let from = story.began().map_or(earliest, |began| earliest.min(began - LEAD));
    let journal = args.journal.clone().map_or_else(incident::default_path, Ok)?;
    let (entries, audit) = journal_of(&journal, from)?;
    let mut flips = flips::from_journal(&entries);
    let flags = match &flag_store {
        None => Flags::Unknown("no flag store is configured; add [flags]".to_owned()),
        Some(place) => {
            if let Ok(events) = place.events(0).await {
                let events: Vec<_> = events.into_iter().filter(|one| one.at >= from).collect();
                flips::add_from_store(&mut flips, &events);
            }
            match place.list().await {
                Ok(table) => Flags::Table(table, place.name().to_owned()),
                Err(error) => Flags::Unknown(error.to_string()),
            }
        }
    };
    Ok(Page {
        title: "weir".to_owned(),
        environment: loaded.environment_name(),
        made_from,
        zone: zone_at(now),
        story: &story,
        library: &library,
        owners: &loaded.owners(),
        said: said(&entries),
        flips: &flips,
        flags,
        audit,
    }
    .markdown())
}

/// The entries of a journal since `from`, and the state of its chain in words.
fn journal_of(path: &Path, from: DateTime<Utc>) -> Result<(Entries, Vec<String>)> {
    let mut entries = Entries::new();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let found = incident::read(path, |entry| {
        if entry.at >= from {
            entries.push((entry.at, entry.event));
        }
    });
    let audit = match found {
        Ok(found) => audit::chain(&format!("`{name}`"), &found, |hash| format!("`{hash}`")),
        Err(broken @ JournalError::Broken { .. }) => {
            vec![format!(
                "**the chain is broken**: {broken}; what follows that line is not told here"
            )]
        }
        Err(_) if !path.exists() => vec![format!("there is no journal at `{}`", path.display())],
        Err(error) => return Err(error.into()),
    };
    Ok((entries, audit))
}
