//! `--record`: begins a recording beside whatever is watched, and says how it ended.

use std::path::Path;

use chrono::Utc;
use color_eyre::eyre::Result;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::out;
use crate::incident::recording::{
    Header, Recorder, RecordingError, RecordingThread, SourceLine, Taken, Tape,
};
use crate::ingest::Witness;
use crate::tui::Notice;

/// What is recorded.
pub struct Subject<'a> {
    /// What is watched (`watch`, `drill launch-0900`).
    pub title: &'a str,
    /// The environment.
    pub environment: &'a str,
    /// The zero of the run's clock, which may lie before now.
    pub origin: Instant,
}

/// The first line of a recording that begins now.
pub fn header(of: &Subject<'_>, sources: Vec<SourceLine>) -> Header {
    Header {
        weir: env!("CARGO_PKG_VERSION").to_owned(),
        title: of.title.to_owned(),
        environment: of.environment.to_owned(),
        started: Utc::now(),
        sources,
        zero_ns: u64::try_from(of.origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
        ..Header::default()
    }
}

/// Begins a recording in a new file. When it has to end early, a notice says so.
///
/// # Errors
/// When the file cannot be made.
pub fn start(
    path: &Path,
    of: &Subject<'_>,
    sources: Vec<SourceLine>,
    notify: mpsc::Sender<Notice>,
) -> Result<RecordingThread> {
    let recorder = Recorder::create(path, header(of, sources))?;
    Ok(RecordingThread::start(recorder, move |text| {
        // A screen that is gone, or has too much to say, leaves it to the end.
        let _ = notify.try_send(Notice { wall: Utc::now(), text });
    }))
}

/// Who is told what pollers hear.
pub fn witness(tape: Option<Tape>) -> Option<Box<dyn Witness>> {
    tape.map(|tape| Box::new(tape) as Box<dyn Witness>)
}

/// Ends a recording, where there is one, and says on standard error what came of it.
pub fn end(recording: Option<RecordingThread>) {
    if let Some(recording) = recording {
        say(recording.end());
    }
}

/// Says what came of a recording.
pub fn say(ended: Result<Taken, RecordingError>) {
    match ended {
        Ok(taken) => out::note(words(&taken)),
        Err(error) => out::note(error),
    }
}

/// What was written, in words.
pub fn words(taken: &Taken) -> String {
    let (seconds, kib) = (taken.span.as_secs(), taken.bytes.div_ceil(1024));
    format!("recorded {seconds} s to {} ({kib} KiB)", taken.path.display())
}
