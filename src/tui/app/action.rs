//! The one registry of what a person can do. Keymap, help, footer, `docs/keys.md` and the keys in the
//! manual page are made from it.
//!
//! No action changes a flag: the most dangerous ones open a plan, which starts on Cancel. No default
//! key is one that tmux, screen or flow control takes, and none needs Alt.

use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::tui::app::Model;
use crate::tui::app::mode::Context;
use crate::tui::app::offer::Next;
use crate::tui::app::page::Page;
use crate::tui::app::places::Places;
use crate::tui::session::Seek;

/// What a person can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumCount)]
pub enum Action {
    /// Ask to leave, or leave.
    Quit,
    /// Ctrl-C: cancel and ask to leave; again, leave.
    Interrupt,
    /// One step back.
    Back,
    /// Show the keys.
    Help,
    /// Go to the overview.
    Overview,
    /// Go to the diagnosis.
    Diagnose,
    /// Go to the flags.
    Flags,
    /// Go to the timeline.
    Timeline,
    /// Go to a page.
    Page(Page),
    /// Ask for an original by its number.
    AskOriginal,
    /// List the signals of the screen.
    Inspect,
    /// Show where the signal under the cursor comes from.
    Origin,
    /// Show the scope under the cursor on every screen.
    ChooseScope,
    /// Show only rows with certain letters.
    Filter,
    /// Find an action by name.
    Palette,
    /// Copy the screen as text.
    Copy,
    /// Write the screen into files.
    Export,
    /// Let the wheel move rows, or leave the mouse to the terminal.
    Mouse,
    /// Hold the screen still.
    Freeze,
    /// A shorter time in the charts.
    ZoomIn,
    /// A longer one.
    ZoomOut,
    /// Next quota scope.
    NextScope,
    /// Previous quota scope.
    PreviousScope,
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// First row.
    First,
    /// Last row.
    Last,
    /// Plan the verdict's own remedy.
    TakePlan,
    /// Walk along the runbook that takes admission down.
    Rollback,
    /// Let plans be sent for a while, or lock that.
    Arm,
    /// Plan `contain`.
    Contain,
    /// Plan every flag's safe value.
    AllSafe,
    /// Plan the way back from the last flip.
    Undo,
    /// Explain the verdict, or the step of the walk.
    Why,
    /// Say how it was found.
    How,
    /// Walk along the runbooks.
    Walk,
    /// Take the choice at a step.
    TakeStep,
    /// One step of the walk back.
    StepBack,
    /// Go elsewhere than the evidence says.
    SkipStep,
    /// Hand the walk over.
    HandOver,
    /// List every cause.
    Causes,
    /// List alerts and silences.
    Alerts,
    /// Walk the tree again from now.
    Rewalk,
    /// Choose a value for the flag.
    Edit,
    /// Put the flag into the common plan, or take it out.
    Mark,
    /// Plan to drop the override.
    DropOverride,
    /// Plan all marked flags.
    PlanMarked,
    /// Read the flags again.
    Reload,
    /// Write a note.
    Note,
    /// A second on in the recording.
    SecondOn,
    /// A second back.
    SecondBack,
    /// Ten seconds on.
    TenOn,
    /// Ten seconds back.
    TenBack,
    /// A minute on.
    MinuteOn,
    /// A minute back.
    MinuteBack,
    /// To what happened next.
    NextEvent,
    /// To what happened before.
    PreviousEvent,
    /// To the start of the recording.
    ToStart,
    /// To its end.
    ToEnd,
    /// Play twice as fast.
    Faster,
    /// Play half as fast.
    Slower,
    /// Stop the program as a shell job.
    Suspend,
    /// Next field.
    NextField,
    /// Previous field.
    PreviousField,
    /// Press the button, take the choice.
    Accept,
}

impl Action {
    /// Where it moves a recording to.
    #[must_use]
    pub const fn seek(self) -> Option<Seek> {
        Some(match self {
            Self::SecondOn => Seek::By(1),
            Self::SecondBack => Seek::By(-1),
            Self::TenOn => Seek::By(10),
            Self::TenBack => Seek::By(-10),
            Self::MinuteOn => Seek::By(60),
            Self::MinuteBack => Seek::By(-60),
            Self::NextEvent => Seek::NextEvent,
            Self::PreviousEvent => Seek::PreviousEvent,
            Self::ToStart => Seek::Start,
            Self::ToEnd => Seek::End,
            Self::Faster => Seek::Faster,
            Self::Slower => Seek::Slower,
            _ => return None,
        })
    }
}

impl Action {
    /// The page that it leads to.
    #[must_use]
    pub const fn page(self) -> Option<Page> {
        match self {
            Self::Page(page) => Some(page),
            _ => None,
        }
    }
}

/// How much an action can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Danger {
    /// Looks only.
    Safe,
    /// Opens a plan, which then asks.
    Plans,
    /// Changes flags: only a focused button does.
    Changes,
}

impl Danger {
    /// The sign before an action in the help.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Safe => " ",
            Self::Plans => "*",
            Self::Changes => "!",
        }
    }

    /// The same in words; nothing where it only looks.
    #[must_use]
    pub const fn words(self) -> Option<&'static str> {
        match self {
            Self::Safe => None,
            Self::Plans => Some("opens a plan, which starts on Cancel"),
            Self::Changes => Some("changes flags when the focus is on Apply; nothing else does"),
        }
    }
}

/// When an action works.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    test: fn(&Model) -> bool,
    words: Option<&'static str>,
}

impl Condition {
    const fn when(words: &'static str, test: fn(&Model) -> bool) -> Self {
        Self { test, words: Some(words) }
    }

    /// Whether it works now.
    #[must_use]
    pub fn holds(self, model: &Model) -> bool {
        (self.test)(model)
    }

    /// When it works, to follow "works"; nothing where it always does.
    #[must_use]
    pub const fn words(self) -> Option<&'static str> {
        self.words
    }
}

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    code: KeyCode,
    ctrl: bool,
}

impl Key {
    /// The key of an event; shift is part of the character.
    #[must_use]
    pub fn of(event: KeyEvent) -> Option<Self> {
        if event.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SUPER | KeyModifiers::META)
        {
            return None;
        }
        Some(Self { code: event.code, ctrl: event.modifiers.contains(KeyModifiers::CONTROL) })
    }

    /// Whether Ctrl is held.
    #[must_use]
    pub const fn is_ctrl(self) -> bool {
        self.ctrl
    }

    /// A letter, alone or with Ctrl.
    #[must_use]
    pub const fn of_letter(letter: char, ctrl: bool) -> Self {
        Self { code: KeyCode::Char(letter), ctrl }
    }

    /// A key that has a name.
    #[must_use]
    pub const fn of_code(code: KeyCode) -> Self {
        Self { code, ctrl: false }
    }

    /// The letter, if it is one.
    #[must_use]
    pub const fn letter(self) -> Option<char> {
        match self.code {
            KeyCode::Char(letter) => Some(letter),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("Ctrl-")?;
        }
        match self.code {
            KeyCode::Char(' ') => f.write_str("Space"),
            KeyCode::Char(letter) if self.ctrl => letter.to_ascii_uppercase().fmt(f),
            KeyCode::Char(letter) => letter.fmt(f),
            KeyCode::PageUp => f.write_str("PgUp"),
            KeyCode::PageDown => f.write_str("PgDn"),
            KeyCode::BackTab => f.write_str("Shift-Tab"),
            KeyCode::F(number) => write!(f, "F{number}"),
            other => write!(f, "{other:?}"),
        }
    }
}

const fn key(letter: char) -> Key {
    Key { code: KeyCode::Char(letter), ctrl: false }
}

const fn ctrl(letter: char) -> Key {
    Key { code: KeyCode::Char(letter), ctrl: true }
}

const fn on(contexts: &[Context]) -> Places {
    Places::on(contexts)
}

const fn named(code: KeyCode) -> Key {
    Key { code, ctrl: false }
}

/// One row of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What happens.
    pub action: Action,
    /// Its name.
    pub name: &'static str,
    /// What it does, for the help.
    pub description: &'static str,
    /// The chapter of the help.
    pub group: &'static str,
    /// How much it can do.
    pub danger: Danger,
    /// Where it works.
    pub contexts: Places,
    /// Its keys, the one to show first.
    pub keys: &'static [Key],
    /// The word in the footer; empty keeps it out.
    pub hint: &'static str,
    /// When it works.
    pub when: Condition,
}

use Context as C;

const SCREENS: Places = on(&[
    C::Overview,
    C::Diagnose,
    C::Flags,
    C::Timeline,
    C::Guide,
    C::Scopes,
    C::Trace,
    C::Signals,
    C::Page,
]);
const BELOW_ROOT: Places =
    SCREENS.but(&[C::Overview]).and(&[C::Help, C::Text, C::Waiting, C::Leaving]);
/// Where rows or text can be moved through, also by letters.
const PAGES: Places = SCREENS.but(&[C::Overview]).and(&[C::Help, C::Text, C::Plan]);
const LISTS: Places = PAGES.and(&[C::Edit, C::Palette, C::Field]);
const FORMS: Places = on(&[C::Edit, C::Typing, C::Plan, C::Field]);

const ALWAYS: Condition = Condition { test: |_| true, words: None };
const MAY_CHANGE: Condition = Condition::when("where flags may be changed", Model::may_plan);
const HAS_PLAN: Condition =
    Condition::when("where flags may be changed and the verdict offers a plan", |model| {
        model.may_plan() && matches!(model.next(), Some(Next::Plan(_) | Next::Flip(_)))
    });
const CAN_ARM: Condition =
    Condition::when("where flags may be changed, and not in a drill", Model::can_arm);
const CAN_CONTAIN: Condition =
    Condition::when("where flags may be changed, until contain is in force", |model| {
        model.may_plan() && model.offer_of("contain").is_some_and(|offer| !offer.is_in_force())
    });
const HAS_ALERTS: Condition =
    Condition::when("where a source of alerts is watched", |model| model.alerts().is_some());
const HAS_FLIP: Condition =
    Condition::when("where flags may be changed and a flip can be taken back", |model| {
        model.may_plan() && model.last_flip().is_some()
    });
const CAN_ROLL_BACK: Condition =
    Condition::when("where flags may be changed, once there is a verdict", |model| {
        model.may_plan() && model.facts().is_some()
    });
const HAS_GUIDE: Condition =
    Condition::when("once there is a verdict", |model| model.facts().is_some());
const IS_REPLAY: Condition = Condition::when("in a recording", |model| model.playhead.is_some());
const IS_LIVE: Condition =
    Condition::when("live, not in a recording", |model| model.playhead.is_none());
const IS_NOW: Condition = Condition::when("while the screen shows now", Model::is_now);
const HAS_FILTER: Condition = Condition::when("on a list", |model| model.filterable().is_some());
const HAS_MARKS: Condition =
    Condition::when("where flags may be changed, once a flag is marked", |model| {
        model.may_plan() && !model.flags.marked.is_empty()
    });

/// The chapters of help, manual page and `docs/keys.md`, in their order.
pub const CHAPTERS: [&str; 7] = ["Screens", "Act", "Look", "Time", "Move", "Dialogs", "Leave"];

/// Every action, in the order of footer and, within a chapter, of help.
#[rustfmt::skip]
pub const REGISTRY: &[Entry] = &[
    row(Action::Accept, "accept", "press the button, take the choice", "Dialogs", Danger::Changes, on(&[C::Edit, C::Palette, C::Typing, C::Plan, C::Field, C::Leaving]), &[named(KeyCode::Enter)], "press", ALWAYS),
    row(Action::NextField, "next-field", "next field; in the editor: mark and go on", "Dialogs", Danger::Safe, FORMS, &[named(KeyCode::Tab)], "next", ALWAYS),
    row(Action::PreviousField, "previous-field", "previous field", "Dialogs", Danger::Safe, FORMS, &[named(KeyCode::BackTab)], "", ALWAYS),
    row(Action::TakePlan, "take-plan", "open the plan that the verdict offers", "Act", Danger::Plans, on(&[C::Diagnose]), &[named(KeyCode::Enter)], "plan it", HAS_PLAN),
    row(Action::Diagnose, "diagnose", "walk from the symptom to the cause", "Screens", Danger::Safe, SCREENS, &[key('d')], "diagnose", ALWAYS),
    row(Action::Flags, "flags", "see and plan flags", "Screens", Danger::Safe, SCREENS, &[key('f')], "flags", ALWAYS),
    row(Action::Edit, "edit", "choose a new value for this flag", "Act", Danger::Safe, on(&[C::Flags]), &[named(KeyCode::Enter)], "edit", MAY_CHANGE),
    row(Action::Mark, "mark", "into the common plan, or out of it", "Act", Danger::Safe, on(&[C::Flags]), &[key(' ')], "mark", MAY_CHANGE),
    row(Action::PlanMarked, "plan-marked", "plan all marked flags as one change", "Act", Danger::Plans, on(&[C::Flags]), &[key('m')], "plan marked", HAS_MARKS),
    row(Action::DropOverride, "drop-override", "plan to drop the override of this flag", "Act", Danger::Plans, on(&[C::Flags]), &[key('x')], "", MAY_CHANGE),
    row(Action::Contain, "contain", "plan contain: one retry owner, within the quota", "Act", Danger::Plans, on(&[C::Overview, C::Flags]), &[key('c')], "contain", CAN_CONTAIN),
    row(Action::Arm, "arm", "let plans be sent while keys are pressed; again: lock", "Act", Danger::Safe, SCREENS.and(&[C::Plan]), &[key('A')], "arm", CAN_ARM),
    row(Action::AllSafe, "all-safe", "plan every flag's safe value", "Act", Danger::Plans, on(&[C::Flags]), &[key('S')], "all safe", MAY_CHANGE),
    row(Action::Rollback, "rollback", "walk admission down by steps, on a calm day", "Act", Danger::Safe, on(&[C::Flags]), &[key('R')], "", CAN_ROLL_BACK),
    row(Action::Undo, "undo", "plan the way back from the last flip", "Act", Danger::Plans, SCREENS, &[key('u')], "undo", HAS_FLIP),
    row(Action::TakeStep, "take-step", "take the choice: goes on, answers, or opens a plan", "Act", Danger::Plans, on(&[C::Guide]), &[named(KeyCode::Enter)], "take", ALWAYS),
    row(Action::StepBack, "step-back", "one step of the walk back", "Act", Danger::Safe, on(&[C::Guide]), &[key('b')], "step back", ALWAYS),
    row(Action::SkipStep, "skip-step", "go to the choice against the evidence, with a reason", "Act", Danger::Safe, on(&[C::Guide]), &[key('s')], "skip", ALWAYS),
    row(Action::HandOver, "hand-over", "hand the walk over: it is written into a file", "Act", Danger::Safe, on(&[C::Guide]), &[key('H')], "hand over", IS_LIVE),
    row(Action::Why, "why", "explain the verdict, or the step of the walk", "Look", Danger::Safe, on(&[C::Diagnose, C::Guide]), &[key('w')], "why", ALWAYS),
    row(Action::How, "how", "how it was found: path, evidence then and now, people", "Look", Danger::Safe, on(&[C::Diagnose, C::Guide]), &[key('h')], "how", ALWAYS),
    row(Action::Walk, "walk", "walk along the runbook, step by step", "Screens", Danger::Safe, on(&[C::Diagnose]), &[key('l')], "walk", HAS_GUIDE),
    row(Action::Causes, "causes", "list every cause", "Look", Danger::Safe, on(&[C::Diagnose]), &[key('x')], "causes", ALWAYS),
    row(Action::Rewalk, "rewalk", "walk again from now", "Look", Danger::Safe, on(&[C::Diagnose]), &[key('r')], "rewalk", ALWAYS),
    row(Action::Reload, "reload", "read the flags again", "Look", Danger::Safe, on(&[C::Flags]), &[key('r')], "reload", ALWAYS),
    row(Action::Timeline, "timeline", "what happened in which order", "Screens", Danger::Safe, SCREENS, &[key('t')], "timeline", ALWAYS),
    row(Action::Alerts, "alerts", "list alerts and silences", "Look", Danger::Safe, SCREENS, &[key('a')], "alerts", HAS_ALERTS),
    row(Action::Overview, "overview", "back to the overview", "Screens", Danger::Safe, SCREENS, &[key('o')], "", ALWAYS),
    row(Action::NextScope, "next-scope", "next quota scope", "Look", Danger::Safe, SCREENS, &[key(']')], "", ALWAYS),
    row(Action::PreviousScope, "previous-scope", "previous quota scope", "Look", Danger::Safe, SCREENS, &[key('[')], "", ALWAYS),
    row(Action::Page(Page::Scopes), "scopes", "every quota scope, and what binds it", "Screens", Danger::Safe, SCREENS, &[key('1')], "pages", ALWAYS),
    row(Action::Page(Page::Retries), "retries", "where the work multiplies", "Screens", Danger::Safe, SCREENS, &[key('2')], "", ALWAYS),
    row(Action::Page(Page::Queue), "queue", "who waits, how long, for what", "Screens", Danger::Safe, SCREENS, &[key('3')], "", ALWAYS),
    row(Action::Page(Page::Breakers), "breakers", "breakers and cooldowns: since when, until when", "Screens", Danger::Safe, SCREENS, &[key('4')], "", ALWAYS),
    row(Action::Page(Page::Tenants), "tenants", "who asks, who is refused", "Screens", Danger::Safe, SCREENS, &[key('5')], "", ALWAYS),
    row(Action::Page(Page::Goodput), "goodput", "what comes out, and what it costs", "Screens", Danger::Safe, SCREENS, &[key('6')], "", ALWAYS),
    row(Action::Page(Page::Sources), "sources", "what weir knows, how well, and what is missing", "Screens", Danger::Safe, SCREENS, &[key('7')], "", ALWAYS),
    row(Action::Page(Page::Trace), "trace", "one original from its first request to its end", "Screens", Danger::Safe, SCREENS, &[key('8')], "", ALWAYS),
    row(Action::Page(Page::Signals), "signals", "every signal, how good it is, and where it comes from", "Screens", Danger::Safe, SCREENS, &[key('9')], "", ALWAYS),
    row(Action::Freeze, "freeze", "hold the screen still; a recording: play, stop", "Look", Danger::Safe, SCREENS, &[key('p')], "freeze", ALWAYS),
    row(Action::Freeze, "freeze", "hold the screen still; a recording: play, stop", "Look", Danger::Safe, on(&[C::Overview, C::Diagnose, C::Timeline, C::Scopes, C::Trace, C::Signals, C::Page]), &[key(' ')], "", ALWAYS),
    row(Action::SecondOn, "second-on", "a second on, in a recording or the last hour", "Time", Danger::Safe, SCREENS, &[named(KeyCode::Right)], "+1s", ALWAYS),
    row(Action::SecondBack, "second-back", "a second back", "Time", Danger::Safe, SCREENS, &[named(KeyCode::Left)], "-1s", ALWAYS),
    row(Action::TenOn, "ten-on", "ten seconds on", "Time", Danger::Safe, SCREENS, &[key('.')], "", ALWAYS),
    row(Action::TenBack, "ten-back", "ten seconds back", "Time", Danger::Safe, SCREENS, &[key(',')], "", ALWAYS),
    row(Action::MinuteOn, "minute-on", "a minute on", "Time", Danger::Safe, SCREENS, &[key('>')], "+1m", ALWAYS),
    row(Action::MinuteBack, "minute-back", "a minute back", "Time", Danger::Safe, SCREENS, &[key('<')], "-1m", ALWAYS),
    row(Action::NextEvent, "next-event", "to what happened next", "Time", Danger::Safe, SCREENS, &[key('e')], "event", ALWAYS),
    row(Action::PreviousEvent, "previous-event", "to what happened before", "Time", Danger::Safe, SCREENS, &[key('E')], "", ALWAYS),
    row(Action::ToStart, "start", "to the start of the recording, or of the last hour", "Time", Danger::Safe, SCREENS, &[key('0')], "", ALWAYS),
    row(Action::ToEnd, "end", "to the end of the recording, or to now", "Time", Danger::Safe, SCREENS, &[key('$')], "", ALWAYS),
    row(Action::Faster, "faster", "play twice as fast", "Time", Danger::Safe, SCREENS, &[key('+')], "faster", IS_REPLAY),
    row(Action::Slower, "slower", "play half as fast", "Time", Danger::Safe, SCREENS, &[key('-')], "slower", IS_REPLAY),
    row(Action::ZoomIn, "zoom-in", "show a shorter time in the charts", "Time", Danger::Safe, SCREENS, &[key('z')], "", ALWAYS),
    row(Action::ZoomOut, "zoom-out", "show a longer time in the charts", "Time", Danger::Safe, SCREENS, &[key('Z')], "", ALWAYS),
    row(Action::Mouse, "mouse", "let the wheel move rows; again: the mouse is the terminal's", "Look", Danger::Safe, SCREENS, &[key('M')], "", ALWAYS),
    row(Action::Copy, "copy", "copy this screen as text: to the clipboard, and a file", "Look", Danger::Safe, SCREENS, &[key('y')], "", ALWAYS),
    row(Action::Export, "export", "write this screen: text, colours, image, signals, trends", "Look", Danger::Safe, SCREENS, &[key('X')], "", ALWAYS),
    row(Action::Note, "note", "write a note into the journal and the timeline", "Act", Danger::Safe, SCREENS, &[key('n')], "note", IS_LIVE),
    row(Action::AskOriginal, "ask-original", "ask for an original by its number", "Look", Danger::Safe, on(&[C::Trace]), &[named(KeyCode::Enter)], "ask for a number", IS_LIVE),
    row(Action::Inspect, "inspect", "the signals on this screen: which, how good, from where", "Look", Danger::Safe, SCREENS, &[key('i')], "", ALWAYS),
    row(Action::Origin, "origin", "where this signal comes from: expression, raw series", "Look", Danger::Safe, on(&[C::Signals]), &[named(KeyCode::Enter)], "where from", IS_NOW),
    row(Action::ChooseScope, "choose-scope", "show this scope on every screen", "Look", Danger::Safe, on(&[C::Scopes]), &[named(KeyCode::Enter)], "show it everywhere", ALWAYS),
    row(Action::Filter, "filter", "show only rows with these letters", "Look", Danger::Safe, on(&[C::Timeline, C::Scopes, C::Signals, C::Page]), &[key('/')], "filter", HAS_FILTER),
    row(Action::Palette, "palette", "find an action by its name", "Screens", Danger::Safe, SCREENS, &[key(':')], "find", ALWAYS),
    row(Action::Up, "up", "up", "Move", Danger::Safe, LISTS, &[named(KeyCode::Up)], "", ALWAYS),
    row(Action::Up, "up", "up", "Move", Danger::Safe, PAGES, &[key('k')], "", ALWAYS),
    row(Action::Down, "down", "down", "Move", Danger::Safe, LISTS, &[named(KeyCode::Down)], "", ALWAYS),
    row(Action::Down, "down", "down", "Move", Danger::Safe, PAGES, &[key('j')], "", ALWAYS),
    row(Action::PageUp, "page-up", "a page up", "Move", Danger::Safe, PAGES, &[named(KeyCode::PageUp)], "", ALWAYS),
    row(Action::PageDown, "page-down", "a page down", "Move", Danger::Safe, PAGES, &[named(KeyCode::PageDown)], "", ALWAYS),
    row(Action::First, "first", "to the top", "Move", Danger::Safe, PAGES, &[key('g'), named(KeyCode::Home)], "", ALWAYS),
    row(Action::Last, "last", "to the end", "Move", Danger::Safe, PAGES, &[key('G'), named(KeyCode::End)], "", ALWAYS),
    row(Action::Help, "help", "these keys", "Screens", Danger::Safe, SCREENS, &[key('?'), named(KeyCode::F(1))], "help", ALWAYS),
    row(Action::Back, "back", "one step back; nothing is changed", "Leave", Danger::Safe, BELOW_ROOT, &[named(KeyCode::Esc), key('q'), named(KeyCode::Backspace)], "back", ALWAYS),
    row(Action::Back, "cancel", "close the dialog; nothing is changed", "Dialogs", Danger::Safe, FORMS.and(&[C::Palette]), &[named(KeyCode::Esc)], "cancel", ALWAYS),
    row(Action::Quit, "quit", "leave; asks while its flips are in force", "Leave", Danger::Safe, on(&[C::Overview]), &[key('q')], "quit", ALWAYS),
    row(Action::Interrupt, "interrupt", "cancel and ask to leave; twice leaves", "Leave", Danger::Safe, Places::ALL, &[ctrl('c')], "", ALWAYS),
    row(Action::Suspend, "suspend", "stop as a shell job; `fg` comes back", "Leave", Danger::Safe, Places::ALL, &[ctrl('z')], "", ALWAYS),
];

#[expect(clippy::too_many_arguments, reason = "one line per action reads as a table")]
const fn row(
    action: Action,
    name: &'static str,
    description: &'static str,
    group: &'static str,
    danger: Danger,
    contexts: Places,
    keys: &'static [Key],
    hint: &'static str,
    when: Condition,
) -> Entry {
    Entry { action, name, description, group, danger, contexts, keys, hint, when }
}

/// The action of a key in a context, if its condition holds.
#[must_use]
pub fn resolve(model: &Model, context: Context, key: Key) -> Option<Action> {
    model
        .registry
        .iter()
        .find(|entry| entry.contexts.contains(context) && entry.keys.contains(&key))
        .filter(|entry| entry.when.holds(model))
        .map(|entry| entry.action)
}

impl Entry {
    /// Where it works, to follow "on".
    #[must_use]
    pub fn places(&self) -> String {
        if self.contexts == Places::ALL {
            return "every screen and dialog".to_owned();
        }
        let whole = SCREENS.both(self.contexts) == SCREENS;
        let rest = self.contexts.iter().filter(|place| !(whole && SCREENS.contains(*place)));
        let all = whole.then_some("every screen");
        let words: Vec<&str> = all.into_iter().chain(rest.map(Context::words)).collect();
        words.join(", ")
    }
}

impl Model {
    /// The key to press for an action, as a person has chosen it.
    #[must_use]
    pub fn key_of(&self, action: Action) -> String {
        let entry = self.registry.iter().find(|entry| entry.action == action);
        entry.and_then(|entry| entry.keys.first()).map_or_else(String::new, Key::to_string)
    }
}

/// The keys of the pages, from the first to the last.
#[must_use]
pub fn page_keys(model: &Model) -> String {
    let keys: Vec<&Key> = model
        .registry
        .iter()
        .filter(|entry| entry.action.page().is_some())
        .filter_map(|entry| entry.keys.first())
        .collect();
    match keys[..] {
        [first, .., last] => format!("{first}-{last}"),
        _ => String::new(),
    }
}

/// What works in a context now.
pub fn available(model: &Model, context: Context) -> impl Iterator<Item = &'static Entry> {
    model
        .registry
        .iter()
        .filter(move |entry| entry.contexts.contains(context) && entry.when.holds(model))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use strum::EnumCount as _;

    use super::*;

    #[test]
    fn no_key_has_two_meanings_in_one_context() {
        for context in Context::ALL {
            let mut seen: Vec<(Key, &str)> = Vec::new();
            for entry in REGISTRY.iter().filter(|entry| entry.contexts.contains(context)) {
                for key in entry.keys {
                    let clash = seen.iter().find(|(known, _)| known == key);
                    assert!(clash.is_none(), "{key} in {context:?}: {} and {clash:?}", entry.name);
                    seen.push((*key, entry.name));
                }
            }
        }
    }

    #[test]
    fn no_default_key_belongs_to_the_terminal_or_to_tmux() {
        for entry in REGISTRY {
            assert!(!entry.keys.is_empty() && !entry.contexts.is_empty(), "{}", entry.name);
            for key in entry.keys {
                let taken = ['a', 'b', 'q', 's'].map(ctrl);
                assert!(!taken.contains(key), "{} has {key}", entry.name);
            }
        }
    }

    #[test]
    fn every_action_stands_in_a_chapter() {
        for entry in REGISTRY {
            assert!(CHAPTERS.contains(&entry.group), "{} is in {}", entry.name, entry.group);
        }
    }

    #[test]
    fn only_a_button_changes_anything() {
        for entry in REGISTRY.iter().filter(|entry| entry.danger == Danger::Changes) {
            assert_eq!(entry.action, Action::Accept);
            assert!(entry.contexts.both(SCREENS).is_empty());
        }
    }

    #[test]
    fn every_action_stands_in_the_registry() {
        let known: HashSet<_> = REGISTRY.iter().map(|entry| discriminant(&entry.action)).collect();
        assert_eq!(known.len(), Action::COUNT);
        let pages: Vec<Page> = REGISTRY.iter().filter_map(|entry| entry.action.page()).collect();
        assert_eq!(pages, Page::ALL);
    }

    #[test]
    fn every_context_has_a_way_out() {
        for context in Context::ALL {
            assert!(
                REGISTRY.iter().any(|entry| entry.contexts.contains(context)
                    && matches!(entry.action, Action::Back | Action::Quit)),
                "{context:?}"
            );
        }
    }
}
