//! A recorder on a thread of its own, so that a slow disk delays no look and no screen.
//!
//! What it is told waits in a queue that is bounded in messages and in bytes. When that is full a scrape
//! is left out and counted: a reader sees a gap, as if the scrape had failed. Which instances a source
//! has is told later then, before anything else of that source: without it nothing of them is recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
/// Bytes of pages that may wait. One page may be larger, where nothing else waits.
const WAITING_BYTES_MAX: usize = 64 << 20;

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
    queue: Arc<Queue>,
    /// By source, the newest list of its instances that found no room.
    owed: BTreeMap<usize, (News, Mono)>,
}

/// What both ends of the queue know of it.
#[derive(Debug, Default)]
struct Queue {
    left_out: AtomicU64,
    bytes: AtomicUsize,
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
        let queue = Arc::new(Queue::default());
        let other_end = Arc::clone(&queue);
        let thread = std::thread::spawn(move || work(recorder, &inbox, &other_end, on_end));
        Self { thread, tape: Tape { sender, queue, owed: BTreeMap::new() } }
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
    queue: &Queue,
    on_end: impl FnOnce(String),
) -> Result<Taken, RecordingError> {
    let mut on_end = Some(on_end);
    while let Ok(message) = inbox.recv() {
        match message {
            Message::Heard(source, news, at) => {
                recorder.hear(source, &news, at);
                queue.bytes.fetch_sub(bytes_of(&news), Ordering::Relaxed);
            }
            Message::Observed(observation) => {
                let count = queue.left_out.swap(0, Ordering::Relaxed);
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

/// What a page weighs in the queue. Everything else that is heard is small.
fn bytes_of(news: &News) -> usize {
    match news {
        News::Polled { outcome: Ok((body, _)), .. } => body.len(),
        _ => 0,
    }
}

impl Tape {
    /// Whether there was room. One whose thread has ended has nobody who would miss it.
    fn fits(&self, message: Message) -> bool {
        !matches!(self.sender.try_send(message), Err(TrySendError::Full(_)))
    }

    fn send(&self, message: Message) {
        if !self.fits(message) {
            self.queue.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn send_news(&self, source: usize, news: &News, at: Mono) -> bool {
        let bytes = bytes_of(news);
        let before = self.queue.bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before == 0 || before.saturating_add(bytes) <= WAITING_BYTES_MAX;
        let is_sent = has_room && self.fits(Message::Heard(source, Box::new(news.clone()), at));
        if !is_sent {
            self.queue.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_sent
    }

    /// Tells the instances that a source has by now, and says whether nothing is owed any more.
    fn settle(&mut self, source: usize) -> bool {
        let Some((news, at)) = self.owed.get(&source) else { return true };
        let is_settled = self.send_news(source, news, *at);
        if is_settled {
            self.owed.remove(&source);
        }
        is_settled
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
        if matches!(news, News::Instances(_)) {
            self.owed.insert(source, (news.clone(), at));
            self.settle(source);
        } else if !self.settle(source) || !self.send_news(source, news, at) {
            self.queue.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn observed(&mut self, observation: &Arc<Observation>) {
        for source in self.owed.keys().copied().collect::<Vec<_>>() {
            self.settle(source);
        }
        self.send(Message::Observed(Arc::clone(observation)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, polled};
    use super::*;

    /// A queue that nobody empties.
    fn tape(room: usize) -> (Tape, Receiver<Message>) {
        let (sender, inbox) = sync_channel(room);
        (Tape { sender, queue: Arc::default(), owed: BTreeMap::new() }, inbox)
    }

    fn instances(name: &str) -> News {
        News::Instances(vec![name.to_owned()])
    }

    #[test]
    fn pages_are_left_out_by_their_bytes() {
        let (mut tape, inbox) = tape(WAITING_MAX);
        let page = polled(Ok("x".repeat(WAITING_BYTES_MAX / 4)));
        for _ in 0..7 {
            tape.heard(0, &page, at(1));
        }
        assert_eq!(inbox.try_iter().count(), 4);
        assert_eq!(tape.queue.left_out.load(Ordering::Relaxed), 3);
        assert_eq!(tape.queue.bytes.load(Ordering::Relaxed), WAITING_BYTES_MAX);
    }

    #[test]
    fn instances_that_find_no_room_are_told_before_what_they_say() {
        let (mut tape, inbox) = tape(2);
        for _ in 0..3 {
            tape.heard(1, &polled(Ok(String::new())), at(1));
        }
        tape.heard(0, &instances("a"), at(2));
        tape.heard(0, &instances("b"), at(3));
        tape.heard(0, &polled(Ok(String::new())), at(4));
        assert_eq!(tape.queue.left_out.load(Ordering::Relaxed), 2, "two pages");
        assert_eq!(inbox.try_iter().count(), 2);
        tape.heard(0, &polled(Ok(String::new())), at(5));
        let told: Vec<_> = inbox.try_iter().collect();
        let [Message::Heard(0, first, since), Message::Heard(0, second, _)] = &told[..] else {
            panic!("{} messages", told.len())
        };
        assert!(matches!(&**first, News::Instances(names) if names == &["b"]) && *since == at(3));
        assert!(matches!(&**second, News::Polled { .. }));
    }
}
