//! The stack of modes: what is on the screen, and what lies under it.
//!
//! The overview is always at the bottom. A mode carries its own data, so that closing it forgets it.

use tui_input::Input;

use crate::diagnosis::Goto;
use crate::tui::app::flip::{Focus, PlanDialog};
use crate::tui::app::page::{Listed, Page};
use crate::tui::app::walk::Walk;

/// One layer of the screen.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The verdict and every number.
    Overview,
    /// The walk from symptom to cause.
    Diagnose(Box<Walk>),
    /// The flags.
    Flags,
    /// What happened when; rows scrolled up from the newest.
    Timeline(Listed),
    /// One of the pages.
    Page(Page, Listed),
    /// The keys; rows scrolled down.
    Help(usize),
    /// The walk along a runbook; the choice under the cursor.
    Guide(usize),
    /// The verdict in words; rows scrolled down.
    Why(usize),
    /// How it was found; rows scrolled down.
    How(usize),
    /// Why the step of the walk is asked; rows scrolled down.
    StepWhy(usize),
    /// Every cause; rows scrolled down.
    Causes(usize),
    /// Alerts and silences; rows scrolled down.
    Alerts(usize),
    /// Where a signal comes from; rows scrolled down.
    Origin(usize),
    /// A new value for one flag.
    Edit(Editor),
    /// The name of the environment being typed, to arm it.
    Arm(Input),
    /// A note being typed.
    Note(Input),
    /// A line that the walk asks for.
    Say(Prompt, Input),
    /// The filter of the list below being typed; what it was before.
    Filter(Input, String),
    /// Every action, by name.
    Palette(Palette),
    /// A plan is being made.
    Planning,
    /// A plan, and what becomes of it.
    Plan(Box<PlanDialog>),
    /// The question before leaving.
    Leaving,
}

/// Where a key is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The overview.
    Overview,
    /// The diagnosis.
    Diagnose,
    /// The flags.
    Flags,
    /// The timeline.
    Timeline,
    /// The walk along a runbook.
    Guide,
    /// The page of scopes.
    Scopes,
    /// The page of one original.
    Trace,
    /// The page of signals.
    Signals,
    /// Any other page.
    Page,
    /// The help.
    Help,
    /// Text to scroll.
    Text,
    /// A choice of values.
    Edit,
    /// The palette.
    Palette,
    /// A line being typed, and nothing else.
    Typing,
    /// The buttons of the plan dialog.
    Plan,
    /// A line being typed in the plan dialog.
    Field,
    /// Waiting for an answer.
    Waiting,
    /// The question before leaving.
    Leaving,
}

impl Context {
    /// All of them, in the order of their names here.
    pub const ALL: [Self; 18] = [
        Self::Overview,
        Self::Diagnose,
        Self::Flags,
        Self::Timeline,
        Self::Guide,
        Self::Scopes,
        Self::Trace,
        Self::Signals,
        Self::Page,
        Self::Help,
        Self::Text,
        Self::Edit,
        Self::Palette,
        Self::Typing,
        Self::Plan,
        Self::Field,
        Self::Waiting,
        Self::Leaving,
    ];

    /// The place in words, to follow "on".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Overview => "the overview",
            Self::Diagnose => "the diagnosis",
            Self::Flags => "the flags",
            Self::Timeline => "the timeline",
            Self::Guide => "the walk",
            Self::Scopes => "the page of scopes",
            Self::Trace => "the trace",
            Self::Signals => "the page of signals",
            Self::Page => "the other pages",
            Self::Help => "the help",
            Self::Text => "texts",
            Self::Edit => "a choice of values",
            Self::Palette => "the palette",
            Self::Typing => "a line being typed",
            Self::Plan => "the plan's buttons",
            Self::Field => "the plan's fields",
            Self::Waiting => "a plan being made",
            Self::Leaving => "the question before leaving",
        }
    }
}

impl Mode {
    /// Where keys of this mode are looked up.
    #[must_use]
    pub fn context(&self) -> Context {
        match self {
            Self::Overview => Context::Overview,
            Self::Diagnose(_) => Context::Diagnose,
            Self::Flags => Context::Flags,
            Self::Timeline(_) => Context::Timeline,
            Self::Help(_) => Context::Help,
            Self::Guide(_) => Context::Guide,
            Self::Page(Page::Scopes, _) => Context::Scopes,
            Self::Page(Page::Trace, _) => Context::Trace,
            Self::Page(Page::Signals, _) => Context::Signals,
            Self::Page(..) => Context::Page,
            Self::Why(_)
            | Self::How(_)
            | Self::StepWhy(_)
            | Self::Causes(_)
            | Self::Alerts(_)
            | Self::Origin(_) => Context::Text,
            Self::Edit(Editor { choice: Choice::Words { .. }, .. }) => Context::Edit,
            Self::Palette(_) => Context::Palette,
            Self::Edit(_) | Self::Arm(_) | Self::Note(_) | Self::Say(..) | Self::Filter(..) => {
                Context::Typing
            }
            Self::Plan(dialog) => match dialog.focus {
                Focus::Cancel | Focus::Apply => Context::Plan,
                Focus::Name | Focus::Reason => Context::Field,
            },
            Self::Planning => Context::Waiting,
            Self::Leaving => Context::Leaving,
        }
    }

    /// Whether it fills the screen, rather than lying over another.
    #[must_use]
    pub const fn is_screen(&self) -> bool {
        matches!(
            self,
            Self::Overview
                | Self::Diagnose(_)
                | Self::Flags
                | Self::Timeline(_)
                | Self::Guide(_)
                | Self::Page(..)
        )
    }
}

/// The palette: what is typed, and which of the actions that fit is under the cursor.
#[derive(Clone, Debug, Default)]
pub struct Palette {
    /// What is typed.
    pub input: Input,
    /// The row under the cursor.
    pub at: usize,
}

/// What a typed line is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// The reason to go there against the evidence.
    Skip(Goto),
    /// To whom the walk goes, and what has to be known.
    HandOver,
    /// The number of an original.
    Original,
}

/// The editor of one flag's value.
#[derive(Clone, Debug)]
pub struct Editor {
    /// The flag.
    pub key: String,
    /// The value being chosen.
    pub choice: Choice,
    /// Why the value cannot be taken.
    pub error: Option<String>,
    /// Enter marks the flag instead of planning at once.
    pub marking: bool,
    /// The stored value is still selected as a whole: what is typed takes its place.
    pub selected: bool,
}

/// How a value is chosen.
#[derive(Clone, Debug)]
pub enum Choice {
    /// One of a few words.
    Words {
        /// The words.
        words: Vec<String>,
        /// The one under the cursor.
        at: usize,
    },
    /// A number, typed.
    Number(Input),
}
