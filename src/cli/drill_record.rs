//! `weir drill --record`: the recording of a drill, live or on the virtual clock.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use color_eyre::eyre::Result;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::record::{self, Subject};
use crate::diagnosis::Library;
use crate::drill::scenario::Scenario;
use crate::drill::stage::Stage;
use crate::drill::virtual_run::{self, Play};
use crate::drill::{Report, TimedFlip, live};
use crate::incident::recording::{Header, Recorder, RecordingThread, SourceLine};
use crate::ingest::SourceFacts;
use crate::tui::Notice;

/// Begins the recording of a live drill, where one is wanted.
///
/// # Errors
/// When the file cannot be made.
pub fn start(
    path: Option<&Path>,
    stage: &Stage,
    notify: Option<mpsc::Sender<Notice>>,
) -> Result<Option<RecordingThread>> {
    let Some(path) = path else { return Ok(None) };
    let title = format!("drill {}", stage.scenario().name);
    let of = Subject { title: &title, environment: "drill", origin: Instant::now() };
    let sources = live::sources(stage.addresses());
    let line = |source| SourceLine::new(&SourceFacts::from(source), None);
    let sources = sources.iter().map(line).collect();
    // Without a screen nobody reads notices, and what ended it early is said at the end.
    let notify = notify.unwrap_or_else(|| mpsc::channel(1).0);
    record::start(path, &of, sources, notify).map(Some)
}

/// Plays a scenario on the virtual clock and records it: the same bits for the same seed.
///
/// # Errors
/// When the file cannot be written, or a flag of the scenario does not take its value.
pub fn play(
    path: &Path,
    scenario: &Scenario,
    library: &Arc<Library>,
    seed: u64,
    (total, flips): (Duration, &[TimedFlip]),
) -> Result<Report> {
    let facts = [("scenario", scenario.name.clone()), ("seed", seed.to_string())]
        .into_iter()
        .chain([("onset_s", scenario.onset.as_secs_f64().to_string())])
        .chain([("clock", "virtual".to_owned())]);
    let header = Header {
        weir: env!("CARGO_PKG_VERSION").to_owned(),
        title: format!("drill {} (virtual)", scenario.name),
        environment: "drill".to_owned(),
        started: DateTime::UNIX_EPOCH,
        facts: facts.map(|(key, value)| (key.to_owned(), value)).collect(),
        sources: virtual_run::sources().iter().map(|facts| SourceLine::new(facts, None)).collect(),
        ..Header::default()
    };
    let mut recorder = Recorder::create(path, header)?;
    let play = Play { scenario, seed, total, flips };
    let report = virtual_run::record(&play, library, &mut recorder)?;
    record::say(recorder.finish());
    Ok(report)
}
