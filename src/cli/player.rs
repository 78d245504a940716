//! Plays a recording to the dashboard: forward at a speed, and to wherever a person wants.
//!
//! Works on a thread of its own, because reading takes time and the screen does not wait.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::incident::recording::{Arrival, EventAt, Moment, RecordingError, Replay, Trends};
use crate::signal::Mono;
use crate::tui::{Playhead, Seek, Update};

/// Speeds, in seconds of the recording in a second.
const SPEEDS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
/// As fast as it was.
const AS_IT_WAS: usize = 2;
/// Playing that is behind by more is not made up for.
const LATE_MAX: Duration = Duration::from_secs(1);
/// Wishes that may wait.
const WISHES_MAX: usize = 64;

type Updates = watch::Sender<Option<Arc<Update>>>;

/// A recording that is played.
struct Player {
    replay: Replay,
    from: Mono,
    to: Mono,
    events: Arc<[EventAt]>,
    lead: Arc<Trends>,
    past: Arc<Trends>,
    newest: Moment,
    /// The look after that, and when it is due by its own clock.
    next: Option<Mono>,
    speed: usize,
    is_playing: bool,
    jump: u64,
    trouble: Option<String>,
    updates: Updates,
}

/// Opens the recording on the screen at a moment, and plays it from there.
///
/// # Errors
/// When the moment is not in it.
pub fn play(
    mut replay: Replay,
    at: Mono,
    updates: Updates,
) -> Result<SyncSender<Seek>, RecordingError> {
    let (from, to) = replay.span()?;
    let Arrival { moment, lead, past } = replay.seek(at)?;
    let events = replay.events().iter().filter(|event| event.at <= to).cloned().collect();
    let mut player = Player {
        replay,
        from,
        to,
        events,
        lead: Arc::new(lead),
        past: Arc::new(past),
        newest: moment,
        next: None,
        speed: AS_IT_WAS,
        is_playing: true,
        jump: 0,
        trouble: None,
        updates,
    };
    let (sender, wishes) = sync_channel(WISHES_MAX);
    player.look_ahead();
    player.show();
    std::thread::spawn(move || player.run(&wishes));
    Ok(sender)
}

impl Player {
    fn run(mut self, wishes: &Receiver<Seek>) {
        let mut shown = Instant::now();
        loop {
            let due =
                self.wait().map(|wait| (shown + wait).saturating_duration_since(Instant::now()));
            let wish = match due {
                Some(due) => wishes.recv_timeout(due),
                None => wishes.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match wish {
                Ok(wish) => {
                    self.wish(wish);
                    shown = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {
                    shown += self.wait().unwrap_or_default();
                    let late = Instant::now().checked_sub(LATE_MAX);
                    shown = late.map_or(shown, |late| shown.max(late));
                    self.go_on();
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.show();
            if self.updates.is_closed() {
                return;
            }
        }
    }

    /// How long the moment that is shown stands; `None` while nothing comes after it by itself.
    fn wait(&self) -> Option<Duration> {
        let next = self.next.filter(|_| self.is_playing && self.trouble.is_none())?;
        Some(next.saturating_since(self.at()).div_f64(SPEEDS[self.speed]))
    }

    fn at(&self) -> Mono {
        self.newest.observation.at
    }

    fn wish(&mut self, wish: Seek) {
        match wish {
            Seek::PlayPause if self.next.is_none() && self.trouble.is_none() => {
                self.is_playing = true;
                self.go_to(self.from);
            }
            Seek::PlayPause => self.is_playing = !self.is_playing,
            Seek::Faster => self.speed = (self.speed + 1).min(SPEEDS.len() - 1),
            Seek::Slower => self.speed = self.speed.saturating_sub(1),
            Seek::By(1) => self.go_on(),
            Seek::By(seconds) => {
                let span = Duration::from_secs(seconds.unsigned_abs());
                let to = if seconds < 0 { self.at() - span } else { self.at() + span };
                self.go_to(to);
            }
            Seek::Start => self.go_to(self.from),
            Seek::End => self.go_to(self.to),
            Seek::NextEvent => {
                let shown_at = self.events.iter().map(|event| self.look_of(event));
                if let Some(at) = shown_at.filter(|at| *at > self.at()).min() {
                    self.go_to(at);
                }
            }
            Seek::PreviousEvent => {
                let shown_at = self.events.iter().map(|event| self.look_of(event));
                if let Some(at) = shown_at.filter(|at| *at < self.at()).max() {
                    self.go_to(at);
                }
            }
        }
    }

    /// The first look that shows an event.
    fn look_of(&self, event: &EventAt) -> Mono {
        self.replay.reader().looks().find(|look| *look >= event.at).unwrap_or(self.to)
    }

    fn go_on(&mut self) {
        match self.replay.step() {
            Ok(Some(moment)) => self.newest = moment,
            Ok(None) => {}
            Err(error) => self.trouble = Some(error.to_string()),
        }
        self.look_ahead();
    }

    fn go_to(&mut self, at: Mono) {
        match self.replay.seek(at.clamp(self.from, self.to)) {
            Ok(Arrival { moment, lead, past }) => {
                (self.lead, self.past) = (Arc::new(lead), Arc::new(past));
                self.newest = moment;
                self.jump += 1;
                self.trouble = None;
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
        self.look_ahead();
    }

    fn look_ahead(&mut self) {
        let at = self.at();
        self.next = self.replay.reader().looks().find(|look| *look > at);
    }

    fn show(&self) {
        let Moment { observation, verdicts, changes, alerts } = self.newest.clone();
        let playhead = Playhead {
            at: self.at(),
            from: self.from,
            to: self.to,
            zero: self.replay.reader().moment(Duration::ZERO),
            speed: SPEEDS[self.speed],
            is_playing: self.is_playing && self.next.is_some(),
            jump: self.jump,
            events: Arc::clone(&self.events),
            lead: Arc::clone(&self.lead),
            past: Arc::clone(&self.past),
            trouble: self.trouble.clone(),
        };
        let playhead = Some(Arc::new(playhead));
        let update = Update { changes, alerts, playhead, ..Update::new(observation, verdicts) };
        self.updates.send_replace(Some(Arc::new(update)));
    }
}
