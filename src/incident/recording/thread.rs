//! A recorder on a thread of its own, so that a slow disk delays no look and no screen.
//!
//! What it is told waits in a bounded queue. When that is full a scrape is left out and counted: a
//! reader sees a gap, as if the scrape had failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use chrono::{DateTime, Utc};

use crate::diagnosis::Verdict;
use crate::ingest::{Alerts, News, Observation, Witness};
use crate::signal::Mono;

use super::error::RecordingError;
use super::line::Told;
use super::recorder::{Recorder, Taken};

/// What may wait to be written: a few seconds of many sources.
const WAITING_MAX: usize = 1024;

enum Message {
    Heard(usize, Box<News>, Mono),
    Observed(Arc<Observation>),
    Told(Told, DateTime<Utc>),
    Judged(Vec<Arc<Verdict>>, Mono, DateTime<Utc>),
    Alerts(Arc<Alerts>, Mono),
    End,
}

/// The way to a recorder. Copies lead to the same one.
#[derive(Clone, Debug)]
pub struct Tape {
    sender: SyncSender<Message>,
    left_out: Arc<AtomicU64>,
}

/// A recorder at work.
#[derive(Debug)]
pub struct RecordingThread {
    thread: JoinHandle<Result<Taken, RecordingError>>,
    tape: Tape,
}

impl RecordingThread {
    /// Lets a recorder work. `on_end` is told, in words, when it has to stop early.
    #[must_use]
    pub fn start(recorder: Recorder, on_end: impl FnOnce(String) + Send + 'static) -> Self {
        let (sender, inbox) = sync_channel(WAITING_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&left_out);
        let thread = std::thread::spawn(move || work(recorder, &inbox, &counted, on_end));
        Self { thread, tape: Tape { sender, left_out } }
    }

    /// The way to it.
    #[must_use]
    pub fn tape(&self) -> Tape {
        self.tape.clone()
    }

    /// Ends the recording, with everything that waits.
    ///
    /// # Errors
    /// What ended it early, or that it cannot be made durable.
    ///
    /// # Panics
    /// When the recorder did.
    pub fn end(self) -> Result<Taken, RecordingError> {
        // A thread that has ended already needs no end.
        let _ = self.tape.sender.send(Message::End);
        self.thread.join().expect("the recorder does not panic")
    }
}

fn work(
    mut recorder: Recorder,
    inbox: &Receiver<Message>,
    left_out: &AtomicU64,
    on_end: impl FnOnce(String),
) -> Result<Taken, RecordingError> {
    let mut on_end = Some(on_end);
    while let Ok(message) = inbox.recv() {
        match message {
            Message::Heard(source, news, at) => recorder.hear(source, &news, at),
            Message::Observed(observation) => {
                let count = left_out.swap(0, Ordering::Relaxed);
                if count > 0 {
                    recorder.left_out(count);
                }
                recorder.observed(&observation);
            }
            Message::Told(told, wall) => recorder.tell(told, wall),
            Message::Judged(verdicts, at, wall) => {
                for verdict in &verdicts {
                    recorder.judge(verdict, at, wall);
                }
            }
            Message::Alerts(alerts, at) => recorder.alert(&alerts, at),
            Message::End => break,
        }
        if let Some(trouble) = recorder.trouble()
            && let Some(on_end) = on_end.take()
        {
            on_end(trouble.to_string());
        }
    }
    recorder.finish()
}

impl Tape {
    fn send(&self, message: Message) {
        // One whose thread has ended has nobody who would miss it.
        if let Err(TrySendError::Full(_)) = self.sender.try_send(message) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Something happened.
    pub fn tell(&self, told: Told, wall: DateTime<Utc>) {
        self.send(Message::Told(told, wall));
    }

    /// Verdicts were shown.
    pub fn judge(&self, verdicts: &[Arc<Verdict>], at: Mono, wall: DateTime<Utc>) {
        self.send(Message::Judged(verdicts.to_vec(), at, wall));
    }

    /// Alerts were shown.
    pub fn alert(&self, alerts: &Arc<Alerts>, at: Mono) {
        self.send(Message::Alerts(Arc::clone(alerts), at));
    }
}

impl Witness for Tape {
    fn heard(&mut self, source: usize, news: &News, at: Mono) {
        self.send(Message::Heard(source, Box::new(news.clone()), at));
    }

    fn observed(&mut self, observation: &Arc<Observation>) {
        self.send(Message::Observed(Arc::clone(observation)));
    }
}
