//! The event loop: everything that can wake the screen, in one select.
//!
//! Drains what is ready, draws once if something visible has changed, and at most every 33 ms. Nothing
//! here waits for a network: effects run on tasks of their own and come back as messages.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use chrono::{Local, Utc};
use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, MouseEventKind};
use futures_util::StreamExt;
use ratatui::Frame;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::flag::{NoForecast, forecast};
use crate::signal::Mono;
use crate::tui::app::{Effect, Model, Msg, Question, update};
use crate::tui::session::{Error, Exit, ExitReason, Notice, Port, Session, Settings};
use crate::tui::term::{Screen, is_lost};
use crate::tui::theme::Appearance;
use crate::tui::view;
use crate::tui::{clipboard, still};

/// The shortest time between two frames.
const FRAME_MIN: Duration = Duration::from_millis(33);
/// The clock on the screen moves on this often.
const SECOND: Duration = Duration::from_secs(1);
/// A tick comes with an update if the last one is at least this long ago: one frame shows both.
const TICK_WITH_UPDATE: Duration = Duration::from_millis(500);
/// How long a tick waits for the next update, which as a rule comes a second after the last.
const TICK_WAITS: Duration = Duration::from_millis(1_200);
/// Answers of effects that may wait to be read.
const ANSWERS_MAX: usize = 64;
/// The terminal cannot send it in raw mode, but `kill` can.
const SIGTSTP: i32 = rustix::process::Signal::TSTP.as_raw();
/// Also after a stop from outside.
const SIGCONT: i32 = rustix::process::Signal::CONT.as_raw();

/// Runs the dashboard until the person leaves, a signal comes or the terminal is gone.
///
/// # Errors
/// [`Error`] when the terminal cannot be set up. A terminal that vanishes later is an [`Exit`].
pub async fn run(session: Session) -> Result<Exit, Error> {
    let mut signals = Signals::listen()?;
    let mut screen = Screen::enter()?;
    let mut desk = Desk::new(session);
    desk.carry_out(Effect::EarlierForecasts);
    let mut terminal = EventStream::new();
    let mut second = interval(SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ticked = Instant::now();
    let mut drawn: Option<Instant> = None;
    let mut resizes = 0;
    let reason = loop {
        let due = drawn.map_or_else(Instant::now, |drawn| drawn + FRAME_MIN);
        if desk.model.dirty && Instant::now() >= due {
            let mut visible = None;
            if std::mem::replace(&mut resizes, desk.resizes) != desk.resizes {
                screen.resized();
            }
            let draw = |frame: &mut Frame<'_>| {
                visible = view::draw(frame, &desk.model, &desk.appearance);
            };
            if screen.set_mouse(desk.model.mouse).is_err() || screen.draw(draw).is_err() {
                break ExitReason::TerminalLost;
            }
            desk.model.dirty = false;
            if let Some(visible) = visible {
                desk.step(Msg::Drawn(visible));
            }
            drawn = Some(Instant::now());
        }
        let woken = tokio::select! {
            biased;
            name = signals.recv() => match name {
                "SIGTSTP" => Woken::Suspend,
                "SIGCONT" => {
                    if screen.continued().is_err() {
                        break ExitReason::TerminalLost;
                    }
                    desk.model.dirty = true;
                    Woken::Nothing
                }
                name => break ExitReason::Signal(name),
            },
            event = terminal.next() => match event {
                Some(Ok(event)) => terminal_msg(event).map_or(Woken::Nothing, Woken::msg),
                Some(Err(_)) | None => break ExitReason::TerminalLost,
            },
            Some(msg) = desk.answers.recv() => Woken::msg(msg),
            changed = desk.session.updates.changed(), if !desk.closed.updates => {
                desk.closed.updates = changed.is_err();
                second.reset_after(TICK_WAITS);
                match desk.newest() {
                    Some(msg) if ticked.elapsed() >= TICK_WITH_UPDATE => {
                        Woken::Second(Some(Box::new(msg)))
                    }
                    msg => msg.map_or(Woken::Nothing, Woken::msg),
                }
            }
            notice = desk.session.notices.recv(), if !desk.closed.notices => {
                desk.closed.notices = notice.is_none();
                notice.map_or(Woken::Nothing, |notice| Woken::msg(Msg::Noticed(notice)))
            }
            settings = desk.session.settings.recv(), if !desk.closed.settings => {
                desk.closed.settings = settings.is_none();
                settings.map_or(Woken::Nothing, |settings| Woken::msg(desk.set(settings)))
            }
            _ = second.tick() => Woken::Second(None),
            () = sleep_until(due), if desk.model.dirty => Woken::Nothing,
        };
        if matches!(woken, Woken::Second(_)) {
            if is_lost() {
                break ExitReason::TerminalLost;
            }
            ticked = Instant::now();
        }
        match desk.take(woken, &mut terminal).await {
            Next::Go => {}
            Next::Leave => break ExitReason::Quit,
            Next::Suspend => {
                if screen.suspend().is_err() {
                    break ExitReason::TerminalLost;
                }
                desk.model.dirty = true;
            }
        }
    };
    drop(screen);
    Ok(Exit { reason, flips: desk.model.flips.len(), open_overrides: desk.model.open_overrides() })
}

/// What woke the loop.
enum Woken {
    Msg(Box<Msg>),
    /// Another second, with the update that came then.
    Second(Option<Box<Msg>>),
    Suspend,
    Nothing,
}

impl Woken {
    fn msg(msg: Msg) -> Self {
        Self::Msg(Box::new(msg))
    }
}

/// What the loop does next.
enum Next {
    Go,
    Leave,
    Suspend,
}

/// The feeds that have ended: nobody asks them again.
#[derive(Default)]
struct Closed {
    updates: bool,
    notices: bool,
    settings: bool,
}

/// The model with its inputs and outputs.
struct Desk {
    model: Model,
    appearance: Appearance,
    session: Session,
    answers: mpsc::Receiver<Msg>,
    answer: mpsc::Sender<Msg>,
    closed: Closed,
    /// How often the terminal has changed its size.
    resizes: u32,
}

impl Desk {
    fn new(mut session: Session) -> Self {
        let zone = *Local::now().offset();
        let mut model =
            Model::new(session.title.clone(), session.environment.clone(), zone, Utc::now());
        model.read_only = session.read_only;
        model.arming = session.arming;
        model.store = session.port.store();
        model.person.clone_from(&session.person);
        model.owners.clone_from(&session.owners);
        model.registry = session.registry;
        if let Some(walk) = session.walk.take() {
            model.take_over(walk);
        }
        let (answer, answers) = mpsc::channel(ANSWERS_MAX);
        session.updates.mark_changed();
        Self {
            model,
            appearance: session.appearance,
            session,
            answers,
            answer,
            closed: Closed::default(),
            resizes: 0,
        }
    }

    /// Takes the looks over; the rest is the model's.
    fn set(&mut self, settings: Settings) -> Msg {
        if let Some((appearance, ..)) = &settings.changed {
            self.appearance = *appearance;
        }
        Msg::Configured(Box::new(settings))
    }

    fn now(&self) -> Mono {
        // A recording has a time of its own, which stands still when it does.
        let played = self.model.playhead.as_ref().map(|head| head.at);
        played.unwrap_or_else(|| Mono::from_start(self.session.started.elapsed()))
    }

    fn newest(&mut self) -> Option<Msg> {
        self.session.updates.borrow_and_update().clone().map(Msg::Updated)
    }

    /// Takes what woke the loop and everything else that is ready.
    async fn take(&mut self, woken: Woken, terminal: &mut EventStream) -> Next {
        let mut next = match woken {
            Woken::Msg(msg) => self.step(*msg),
            Woken::Second(update) => match update.map_or(Next::Go, |update| self.step(*update)) {
                Next::Go => self.step(Msg::Tick(Utc::now())),
                other => other,
            },
            Woken::Suspend => Next::Suspend,
            Woken::Nothing => Next::Go,
        };
        while matches!(next, Next::Go) {
            let ready = match ready(terminal).await {
                Some(event) => terminal_msg(event),
                None => match self.answers.try_recv() {
                    Ok(msg) => Some(msg),
                    Err(_) => break,
                },
            };
            if let Some(msg) = ready {
                next = self.step(msg);
            }
        }
        next
    }

    fn step(&mut self, msg: Msg) -> Next {
        let now = self.now();
        let mut next = Next::Go;
        if matches!(msg, Msg::Resized) {
            self.resizes = self.resizes.wrapping_add(1);
        }
        for effect in update(&mut self.model, msg, now) {
            match effect {
                Effect::Leave => return Next::Leave,
                Effect::Suspend => next = Next::Suspend,
                other => self.carry_out(other),
            }
        }
        next
    }

    /// Runs an effect on a task of its own; its answer comes back as a message.
    fn carry_out(&self, effect: Effect) {
        let port: Arc<dyn Port> = Arc::clone(&self.session.port);
        match effect {
            Effect::LoadFlags => {
                let answer = port.load_flags();
                let back = self.answer.clone();
                tokio::spawn(async move {
                    // The screen may be gone by then; there is nobody left to tell.
                    let _ = back.send(Msg::Flags(answer.await)).await;
                    if let Some(lost) = port.lost() {
                        let _ = back.send(Msg::Lost(lost)).await;
                    }
                    for notice in port.heard() {
                        let _ = back.send(Msg::Noticed(notice)).await;
                    }
                });
            }
            Effect::MakePlan(wish) => {
                let answer = port.plan(wish);
                self.spawn(async move { Msg::Planned(answer.await) });
            }
            Effect::Foretell(question) => {
                self.spawn(async move {
                    let request_id = question.request_id.clone();
                    // Seconds of computing, on a thread that nothing else waits for.
                    let worked_out = tokio::task::spawn_blocking(move || {
                        let Question { snapshot, demand, table, changes, .. } = *question;
                        forecast(&snapshot, demand, &table, &changes)
                    });
                    let forecast = worked_out.await.unwrap_or_else(|_| {
                        let why = "the simulator failed".to_owned();
                        Err(NoForecast::Unlike(why))
                    });
                    Msg::Foretold { request_id, forecast }
                });
            }
            Effect::EarlierForecasts => {
                let answer = port.earlier_forecasts();
                self.spawn(async move { Msg::Earlier(answer.await) });
            }
            Effect::KeepForecast(hindsight) => {
                let answer = port.keep_forecast(*hindsight);
                self.spawn(async move { Msg::ForecastKept(answer.await) });
            }
            Effect::Apply(plan) => {
                let request_id = plan.request_id.clone();
                let answer = port.apply(plan);
                self.spawn(async move { Msg::Applied { request_id, outcome: answer.await } });
            }
            Effect::Journal(entry) => {
                let answer = port.journal(entry);
                self.spawn(async move { Msg::Journalled(answer.await) });
            }
            Effect::SaveWalk(page) => {
                let answer = port.save_walk(page);
                self.spawn(async move { Msg::WalkSaved(answer.await) });
            }
            Effect::Trace(id) => {
                let answer = port.original(id);
                self.spawn(async move { Msg::Traced { id, answer: answer.await } });
            }
            Effect::Origin { scope, signal } => {
                let answer = port.origin(scope.clone(), signal.clone());
                self.spawn(async move { Msg::Origin { scope, signal, answer: answer.await } });
            }
            Effect::Copy => {
                let text = still::text(&self.model, &self.appearance, size());
                let in_tmux = std::env::var_os("TMUX").is_some();
                let copied = clipboard::copy(&mut io::stdout().lock(), &text, in_tmux);
                let copied = copied.unwrap_or(false);
                let answer = port.save_screen(vec![("txt", text)]);
                self.spawn(async move { Msg::Kept { copied, saved: answer.await } });
            }
            Effect::Export => {
                let still = still::all(&self.model, &self.appearance, size());
                let answer = port.save_screen(still);
                self.spawn(async move { Msg::Kept { copied: false, saved: answer.await } });
            }
            Effect::Seek(to) => port.seek(to),
            Effect::Suspend | Effect::Leave => {}
        }
    }

    fn spawn(&self, answer: impl Future<Output = Msg> + Send + 'static) {
        let back = self.answer.clone();
        tokio::spawn(async move {
            // Nobody waits in silence for an answer that cannot come.
            let msg = tokio::spawn(answer).await.unwrap_or_else(|_| {
                let text = "a task of weir failed, its answer will not come".to_owned();
                Msg::Noticed(Notice { wall: Utc::now(), text })
            });
            // The screen may be gone by then; there is nobody left to tell.
            let _ = back.send(msg).await;
        });
    }
}

/// Columns and rows of the terminal; where it tells none, what fits anywhere.
fn size() -> (u16, u16) {
    crossterm::terminal::size().unwrap_or((80, 24))
}

/// The next event if it is there already.
///
/// Polled with the loop's own waker: the stream keeps the first one that it is given until it has
/// fired, so a poll with a throw-away waker would swallow the next wake-up.
async fn ready(terminal: &mut EventStream) -> Option<Event> {
    let poll = poll_fn(|context| Poll::Ready(terminal.poll_next_unpin(context))).await;
    match poll {
        Poll::Ready(Some(Ok(event))) => Some(event),
        _ => None,
    }
}

fn terminal_msg(event: Event) -> Option<Msg> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(Msg::Key(key)),
        Event::Paste(text) => Some(Msg::Paste(text)),
        Event::Resize(..) => Some(Msg::Resized),
        // The wheel is the arrows. A click does nothing: none can hit a button by mistake.
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::ScrollUp => Some(KeyCode::Up),
            MouseEventKind::ScrollDown => Some(KeyCode::Down),
            _ => None,
        }
        .map(|code| Msg::Key(code.into())),
        _ => None,
    }
}

/// The signals that end or stop the dashboard, or let it go on.
struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
    stop: Signal,
    go_on: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            stop: signal(SignalKind::from_raw(SIGTSTP))?,
            go_on: signal(SignalKind::from_raw(SIGCONT))?,
        })
    }

    async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hang_up.recv() => "SIGHUP",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.stop.recv() => "SIGTSTP",
            _ = self.go_on.recv() => "SIGCONT",
        }
    }
}
