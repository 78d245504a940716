//! Nothing is sent without the keys that it takes, whatever else is pressed, pasted, read or drawn.
//!
//! Random keys and messages run against the model, and beside it a count of what a person has really
//! done: which button the focus was moved to, what was typed into which field, and when. It is kept
//! from the keys alone, by other code than the dialog's. Whatever is sent must be covered by it.
//! `WEIR_FLIP_KEY_CASES` makes more runs than the usual 256.

mod done;
mod moves;
#[path = "../tui_support/mod.rs"]
mod support;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use done::Done;
use moves::{Move, RISKY, SAFE, runs};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use weir::flag::{FlagTable, Outcome, Plan, Revision};
use weir::signal::Mono;
use weir::tui::app::action::Key;
use weir::tui::app::flip::{Focus, PlanDialog, Stage};
use weir::tui::app::mode::Mode;
use weir::tui::app::{Effect, Model, Msg, update};
use weir::tui::{Arming, Wish};

const SECOND: u64 = 60;

struct Run<'a> {
    model: Model,
    now: Mono,
    second: u64,
    table: FlagTable,
    wish: Option<Wish>,
    plans: u64,
    done: Option<Done>,
    sent: Vec<Plan>,
    answered: usize,
    over: bool,
    seat: Seat,
    /// Keys since the one that may have begun to arm, and when the newest was pressed.
    arming: Option<(String, Mono)>,
    armed: bool,
    reached: &'a Reached,
}

/// How a session starts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seat {
    Open,
    Locked,
    ReadOnly,
}

/// For so long an armed session stays so without a key.
const IDLE: Duration = Duration::from_mins(15);

/// How often the interesting ends were reached: a test that never gets there shows nothing.
#[derive(Debug, Default)]
struct Reached {
    safe: Cell<u32>,
    risky: Cell<u32>,
    read_only: Cell<u32>,
    locked: Cell<u32>,
    armed: Cell<u32>,
}

fn dialog(model: &Model) -> Option<&PlanDialog> {
    match model.mode() {
        Mode::Plan(dialog) => Some(dialog),
        _ => None,
    }
}

/// The focus of the dialog wherever it is among the screens.
fn focus(model: &Model) -> Option<(String, Focus)> {
    model.modes.iter().find_map(|mode| match mode {
        Mode::Plan(dialog) => Some((dialog.plan.request_id.clone(), dialog.focus)),
        _ => None,
    })
}

fn word(focus: Focus) -> &'static str {
    match focus {
        Focus::Cancel => "cancel",
        Focus::Name => "name",
        Focus::Apply => "apply",
        Focus::Reason => "reason",
    }
}

impl<'a> Run<'a> {
    fn new(seat: Seat, reached: &'a Reached) -> Self {
        let mut model = support::watched(SECOND, None);
        model.read_only = seat == Seat::ReadOnly;
        if seat != Seat::Open {
            model.arming = Arming::Locked;
        }
        let now = model.now;
        Self {
            model,
            now,
            second: SECOND,
            table: support::table(),
            wish: None,
            plans: 0,
            done: None,
            sent: Vec::new(),
            answered: 0,
            over: false,
            seat,
            arming: None,
            armed: false,
            reached,
        }
    }

    fn press(&mut self, event: KeyEvent) -> TestCaseResult {
        if self.over {
            return Ok(());
        }
        self.arm_by(event);
        let shown = dialog(&self.model).map(|dialog| dialog.plan.clone());
        let in_review = dialog(&self.model).is_some_and(|dialog| dialog.stage == Stage::Review);
        let mut may_send = false;
        if let (Some(done), true) = (&mut self.done, in_review) {
            let on_apply = done.stop() == "apply";
            may_send = done.key(event, self.now) && on_apply;
        }
        let effects = update(&mut self.model, Msg::Key(event), self.now);
        self.take(effects, may_send, shown.as_ref())?;
        self.follow()
    }

    /// Counts what was typed toward arming, from the keys alone: `A`, the environment's name, Enter, and
    /// never a quarter of an hour between two keys.
    fn arm_by(&mut self, event: KeyEvent) {
        if event.kind == KeyEventKind::Release || Key::of(event).is_none() {
            return;
        }
        let last = self.arming.as_ref().map(|(_, at)| *at);
        if last.is_some_and(|last| self.now.saturating_since(last) >= IDLE) {
            self.armed = false;
        }
        let (mut typed, _) = self.arming.take().unwrap_or_default();
        match event.code {
            KeyCode::Enter => self.armed |= typed.contains(&self.model.environment),
            KeyCode::Char('A') => typed.clear(),
            KeyCode::Char(letter) => typed.push(letter),
            _ => {}
        }
        self.arming = Some((typed, self.now));
    }

    /// Forgets the dialog once it is gone; while a person reads, both focuses are the same.
    fn follow(&mut self) -> TestCaseResult {
        let open = focus(&self.model);
        self.done = self.done.take().filter(|done| {
            open.as_ref().is_some_and(|(request_id, _)| *request_id == done.request_id)
        });
        let Some(dialog) = dialog(&self.model).filter(|dialog| dialog.stage == Stage::Review)
        else {
            return Ok(());
        };
        let done = self.done.as_ref();
        let done = done.ok_or_else(|| TestCaseError::fail("a dialog that nobody asked for"))?;
        prop_assert_eq!(word(dialog.focus), done.stop(), "the focus is elsewhere than the keys");
        Ok(())
    }

    fn take(
        &mut self,
        effects: Vec<Effect>,
        may_send: bool,
        shown: Option<&Plan>,
    ) -> TestCaseResult {
        for effect in effects {
            match effect {
                Effect::MakePlan(wish) => self.wish = Some(wish),
                Effect::Leave => self.over = true,
                Effect::Apply(plan) => {
                    prop_assert!(!self.model.read_only, "sent in a read-only session");
                    if self.seat == Seat::Locked {
                        prop_assert!(self.armed, "sent without being armed");
                        self.reached.armed.set(self.reached.armed.get() + 1);
                    }
                    prop_assert!(may_send, "sent without Enter on the Apply button");
                    let done = self.done.as_ref().expect("it may be sent");
                    prop_assert!(done.name_was_typed(), "sent without the flag's name");
                    let shown = shown.expect("it may be sent");
                    for of in [&done.plan, shown] {
                        prop_assert_eq!(&plan.changes, &of.changes);
                        prop_assert_eq!(plan.revision, of.revision);
                        prop_assert_eq!(&plan.request_id, &of.request_id);
                    }
                    prop_assert_eq!(shown.refused(), None);
                    let twice = self.sent.iter().any(|sent| sent.request_id == plan.request_id);
                    prop_assert!(!twice, "one plan is sent once");
                    let risky = done.name().is_some();
                    let count = if risky { &self.reached.risky } else { &self.reached.safe };
                    count.set(count.get() + 1);
                    self.sent.push(plan);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Anything that is no key: it sends nothing and moves no focus.
    fn tell(&mut self, msg: Msg) -> TestCaseResult {
        let before = focus(&self.model);
        let effects = update(&mut self.model, msg, self.now);
        self.take(effects, false, None)?;
        if let (Some(before), Some(after)) = (&before, &focus(&self.model))
            && before.0 == after.0
        {
            prop_assert_eq!(before.1, after.1, "only a key moves the focus");
        }
        Ok(())
    }

    fn answer(&mut self, good: bool) -> TestCaseResult {
        let Some(wish) = self.wish.take() else { return Ok(()) };
        self.plans += 1;
        let made = wish.plan(&self.table, format!("id-{}", self.plans));
        let made = made.map_err(|error| error.to_string());
        self.planned(if good { made } else { Err("the store is down".to_owned()) })
    }

    fn planned(&mut self, made: Result<Plan, String>) -> TestCaseResult {
        let is_awaited = self.model.modes.iter().any(|mode| matches!(mode, Mode::Planning));
        let plan = made.clone().ok().filter(|_| is_awaited);
        self.tell(Msg::Planned(made))?;
        if let Some(plan) = plan {
            prop_assert_eq!(focus(&self.model), Some((plan.request_id.clone(), Focus::Cancel)));
            self.done = Some(Done::new(plan, self.model.now));
        }
        self.follow()
    }

    fn letters(&mut self, text: &str) -> TestCaseResult {
        for letter in text.chars() {
            self.press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE))?;
        }
        Ok(())
    }

    fn code(&mut self, code: KeyCode) -> TestCaseResult {
        self.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn paste(&mut self, text: &str) -> TestCaseResult {
        let in_review = dialog(&self.model).is_some_and(|dialog| dialog.stage == Stage::Review);
        if let (Some(done), true) = (&mut self.done, in_review) {
            text.chars().for_each(|letter| done.letter(letter));
        }
        self.tell(Msg::Paste(text.to_owned()))
    }

    fn edit(&mut self, key: &str, value: &str) -> TestCaseResult {
        if dialog(&self.model).is_some() {
            return Ok(());
        }
        self.letters("fg")?;
        let place = self.model.flag_keys().iter().position(|known| *known == key);
        for _ in 0..place.unwrap_or(0) {
            self.letters("j")?;
        }
        self.code(KeyCode::Enter)?;
        self.letters(value)?;
        self.code(KeyCode::Enter)
    }

    fn step(&mut self, step: Move) -> TestCaseResult {
        match step {
            Move::Key(event) => self.press(event),
            Move::Paste(text) => self.paste(&text),
            Move::Name { cut, pasted } => {
                let name = self.done.as_ref().and_then(Done::name).unwrap_or("queue.max_depth");
                let name = name[..name.len().saturating_sub(cut)].to_owned();
                if pasted { self.paste(&name) } else { self.letters(&name) }
            }
            Move::Edit { risky, which } => {
                let choices = if risky { &RISKY[..] } else { &SAFE[..] };
                let (key, value) = choices[which % choices.len()];
                self.edit(key, value)
            }
            Move::Contain => self.letters("oc"),
            Move::Arm { cut } => {
                let name = self.model.environment.clone();
                self.letters("A")?;
                self.letters(&name[..name.len() - cut])?;
                self.code(KeyCode::Enter)
            }
            Move::Tabs(count) => (0..count).try_for_each(|_| self.code(KeyCode::Tab)),
            Move::Enter => self.code(KeyCode::Enter),
            Move::Answer(good) => self.answer(good),
            Move::Stray => {
                let changes = weir::flag::wanted(&["queue.max_depth=600"]).expect("a flag");
                let want = weir::tui::Want::Changes { name: "stray".to_owned(), changes };
                let wish = Wish { want, update: self.model.latest.clone(), scope: None };
                let made = wish.plan(&self.table, "stray".to_owned());
                let awaited = self.model.modes.iter().any(|mode| matches!(mode, Mode::Planning));
                // Where a plan is waited for, any answer is the answer.
                if awaited { Ok(()) } else { self.planned(made.map_err(|error| error.to_string())) }
            }
            Move::Sent(how) => self.sent(how),
            Move::Flags(which) => {
                if which == 1 {
                    self.table.revision = Revision(self.table.revision.0 + 1);
                }
                let answer =
                    if which == 2 { Err("down".to_owned()) } else { Ok(self.table.clone()) };
                self.tell(Msg::Flags(answer))
            }
            Move::Updated => {
                self.second += 1;
                self.tell(Msg::Updated(Arc::new(support::round(self.second, None))))
            }
            Move::Wait(millis) => {
                self.now = self.model.now + Duration::from_millis(millis);
                self.tell(Msg::Tick(support::wall(self.second)))
            }
            Move::Draw(width, height) => {
                let before = focus(&self.model);
                support::look_at(&mut self.model, width, height);
                prop_assert_eq!(before, focus(&self.model));
                Ok(())
            }
            Move::Resized => self.tell(Msg::Resized),
        }
    }

    /// The store's answer to what was sent last.
    fn sent(&mut self, how: usize) -> TestCaseResult {
        let Some(plan) = self.sent.get(self.answered).cloned() else { return Ok(()) };
        self.answered += 1;
        let outcome = match how {
            0 if plan.revision == self.table.revision => {
                self.table =
                    support::after(&self.table, &plan, "alice", support::wall(self.second));
                Outcome::applied(self.table.revision)
            }
            0 | 1 => Outcome::Conflict { current: self.table.clone() },
            2 => Outcome::Refused { why: "no".to_owned() },
            _ => Outcome::Unknown { why: "timed out".to_owned() },
        };
        self.tell(Msg::Applied { request_id: plan.request_id, outcome })
    }
}

#[test]
fn nothing_is_sent_without_the_keys_that_it_takes() {
    let cases = std::env::var("WEIR_FLIP_KEY_CASES").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: cases.unwrap_or(256),
        // The smallest failing run is printed; there is nothing else to keep.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let reached = Reached::default();
    let seats = prop_oneof![
        6 => Just(Seat::Open),
        3 => Just(Seat::Locked),
        1 => Just(Seat::ReadOnly)
    ];
    let run = TestRunner::new(config).run(&(seats, runs()), |(seat, steps)| {
        let mut run = Run::new(seat, &reached);
        for step in steps {
            if !run.over {
                run.step(step)?;
            }
        }
        match seat {
            Seat::Open => {}
            Seat::Locked => reached.locked.set(reached.locked.get() + 1),
            Seat::ReadOnly => reached.read_only.set(reached.read_only.get() + 1),
        }
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    let Reached { safe, risky, read_only, locked, armed } = &reached;
    let ends = [safe, risky, read_only, locked, armed];
    assert!(ends.iter().all(|end| end.get() > 0), "never there: {reached:?}");
}
