//! The model: everything that the screen shows, and nothing that it does.
//!
//! [`update`] is the only thing that changes a [`Model`]. It reads no clock and awaits nothing; what
//! has to be done outside comes back as [`Effect`]s.

pub mod action;
pub mod alerts;
pub mod arming;
pub mod events;
pub mod flip;
pub mod guide;
pub mod headline;
pub mod history;
pub mod inspect;
pub mod keymap;
pub mod mode;
pub mod offer;
pub mod page;
pub mod palette;
pub mod past;
pub mod places;
mod replay;
pub mod settled;
pub mod sources;
pub mod trace;
mod update;
pub mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, TimeDelta, Utc};
use crossterm::event::KeyEvent;

use crate::admission::FLAGS;
use crate::diagnosis::{Owners, STALE_AFTER_S, Standing, Verdict, worst_first};
use crate::flag::{
    Change, Demand, FlagState, FlagTable, Forecast, Hindsight, NoForecast, Original, Outcome, Plan,
    Revision, Unsettled,
};
use crate::incident::Earlier;
use crate::ingest::Origin;
use crate::runbook::Walk;
use crate::signal::{Mono, Reading, Snapshot, Value};
use crate::tui::app::arming::Arming;
use crate::tui::app::events::{Event, Timeline};
use crate::tui::app::flip::{Flip, Visible};
use crate::tui::app::history::History;
use crate::tui::app::mode::Mode;
use crate::tui::app::past::Judged;
use crate::tui::session::{Entry, Lost, Notice, Playhead, Seek, Settings, StoreFace, Update, Wish};
use crate::tui::theme::Role;

pub use update::update;

/// When nothing was observed for so long, no number is shown: ten times the time from one
/// observation to the next, however seldom a source is asked. How long the number of a source
/// counts is its own: see [`SourceStatus::stale_after_s`](crate::ingest::SourceStatus::stale_after_s).
pub const UNOBSERVED_AFTER_S: f64 = 10.0;
/// Quota scopes followed.
pub const SCOPES_MAX: usize = 64;

/// What comes in.
#[derive(Debug)]
pub enum Msg {
    /// A key.
    Key(KeyEvent),
    /// Pasted text.
    Paste(String),
    /// The terminal has another size.
    Resized,
    /// A frame with a plan was on the screen.
    Drawn(Visible),
    /// A round of polling, with its verdicts.
    Updated(Arc<Update>),
    /// Something from elsewhere.
    Noticed(Notice),
    /// A second has passed; the calendar's time.
    Tick(DateTime<Utc>),
    /// The flags were read.
    Flags(Result<FlagTable, String>),
    /// What is known of flips whose answer was lost.
    Lost(Lost),
    /// A plan was made.
    Planned(Result<Plan, String>),
    /// What a plan would do was worked out, or why it cannot be. The id tells which.
    Foretold {
        /// The plan's `request_id`.
        request_id: String,
        /// What it would do.
        forecast: Result<Forecast, NoForecast>,
    },
    /// How earlier forecasts did was read.
    Earlier(Earlier),
    /// How a forecast did was kept, or not.
    ForecastKept(Result<(), String>),
    /// A plan was answered. The id tells which.
    Applied {
        /// The plan's `request_id`.
        request_id: String,
        /// What the store said.
        outcome: Outcome,
    },
    /// A line was journalled, or not.
    Journalled(Result<(), String>),
    /// What happened to an original was told, or why not.
    Traced {
        /// Its number.
        id: u64,
        /// What was told.
        answer: Result<Original, String>,
    },
    /// Where a signal comes from was told, or why not.
    Origin {
        /// The quota scope.
        scope: String,
        /// The signal.
        signal: String,
        /// What was told.
        answer: Result<Origin, String>,
    },
    /// A walk was written into a file, or not.
    WalkSaved(Result<String, String>),
    /// A screen was written into files, or not, and first sent to the clipboard.
    Kept {
        /// The terminal was asked to copy it.
        copied: bool,
        /// Where it is.
        saved: Result<String, String>,
    },
    /// The configuration was read again.
    Configured(Box<Settings>),
}

/// What has to be done outside.
#[derive(Debug)]
pub enum Effect {
    /// Read the flags.
    LoadFlags,
    /// Make a plan.
    MakePlan(Wish),
    /// Work out what a plan would do.
    Foretell(Box<Question>),
    /// Read how earlier forecasts did.
    EarlierForecasts,
    /// Keep how a forecast did.
    KeepForecast(Box<Hindsight>),
    /// Apply a plan.
    Apply(Plan),
    /// Write to the journal.
    Journal(Entry),
    /// Write the text of a walk into a file.
    SaveWalk(String),
    /// Copy the screen as text, into a file too.
    Copy,
    /// Write the screen into files.
    Export,
    /// Ask what happened to an original.
    Trace(u64),
    /// Ask where a signal comes from.
    Origin {
        /// The quota scope.
        scope: String,
        /// The signal.
        signal: String,
    },
    /// Move the recording that is played.
    Seek(Seek),
    /// Stop as a shell job.
    Suspend,
    /// Leave.
    Leave,
}

/// What a forecast is asked on: all that it knows.
#[derive(Clone, Debug)]
pub struct Question {
    /// The plan's `request_id`.
    pub request_id: String,
    /// The signals of the scope on the screen.
    pub snapshot: Arc<Snapshot>,
    /// What the last minutes have shown of the demand.
    pub demand: Option<Demand>,
    /// The flags.
    pub table: FlagTable,
    /// What the plan changes.
    pub changes: Vec<Change>,
}

/// What the flags screen holds.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// The newest table.
    pub table: Option<FlagTable>,
    /// When it was read.
    pub read_at: Option<Mono>,
    /// Why the last reading failed.
    pub error: Option<String>,
    /// A reading is under way.
    pub loading: bool,
    /// The flag under the cursor, by key, so that a refresh does not move it.
    pub cursor: Option<String>,
    /// Changes gathered for one plan.
    pub marked: Vec<Change>,
    /// The revision up to which flips of others are on the timeline.
    pub noted: Option<Revision>,
}

/// Since when a cause has stood on top.
#[derive(Clone, Debug, PartialEq)]
pub struct Onset {
    /// The cause.
    pub cause: String,
    /// Since when.
    pub since: Mono,
    /// Since when, on the calendar.
    pub wall: DateTime<Utc>,
}

/// The screen held still.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// What is shown.
    pub update: Option<Arc<Update>>,
    /// Since when.
    pub since: Mono,
    /// Since when, on the calendar.
    pub wall: DateTime<Utc>,
    /// Updates that came in the meantime.
    pub newer: u64,
    /// It is put together again from the trends.
    pub is_rewound: bool,
}

/// A short message that goes away by itself.
#[derive(Clone, Debug)]
pub struct Toast {
    /// What.
    pub text: String,
    /// How it weighs.
    pub role: Role,
    /// Until when.
    pub until: Mono,
}

/// Whose the mouse is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mouse {
    /// The terminal's: it selects text.
    Terminal,
    /// Weir's: the wheel moves rows.
    Weir,
}

/// Everything that the screen shows.
#[derive(Debug)]
pub struct Model {
    /// What is being watched.
    pub title: String,
    /// The environment.
    pub environment: String,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Whether a plan may be sent.
    pub arming: Arming,
    /// Where the flags are; `None` shows nothing of it.
    pub store: Option<StoreFace>,
    /// The offset of local time.
    pub zone: FixedOffset,
    /// The calendar's time.
    pub wall: DateTime<Utc>,
    /// The run's time.
    pub now: Mono,
    /// The newest update.
    pub latest: Option<Arc<Update>>,
    /// The screen is held still.
    pub frozen: Option<Frozen>,
    /// The source that says what was admitted, once one has: nobody but a gateway does.
    pub gateway_name: Option<Arc<str>>,
    /// Trends, by scope.
    pub history: BTreeMap<String, History>,
    /// The trends reach back before the first poll, as far as somebody knew.
    pub is_backfilled: bool,
    /// The scope that a person chose; `None` follows the worst.
    pub chosen_scope: Option<String>,
    /// Whose the mouse is.
    pub mouse: Mouse,
    /// How far back the charts reach, in seconds; `None` as far as is known.
    pub zoom_s: Option<u64>,
    /// The verdicts of the last hour.
    pub judged: Judged,
    /// Since when each scope has its cause.
    pub onsets: BTreeMap<String, Onset>,
    /// What happened.
    pub timeline: Timeline,
    /// The flags.
    pub flags: Flags,
    /// Flips of this session, oldest first.
    pub flips: Vec<Flip>,
    /// A flip whose answer was lost; nothing more is sent until the table has come to rest.
    pub unsettled: Option<Unsettled>,
    /// The modes, the overview first.
    pub modes: Vec<Mode>,
    /// A short message.
    pub toast: Option<Toast>,
    /// Where the recording stands that is played; `None` when what is shown is now.
    pub playhead: Option<Arc<Playhead>>,
    /// Who sits at the screen.
    pub person: String,
    /// Who answers for which quota scope.
    pub owners: Owners,
    /// The walks that were begun, by scope.
    pub guides: BTreeMap<String, Walk>,
    /// The incident of each scope, as it was last confirmed.
    pub incidents: BTreeMap<String, settled::Remembered>,
    /// A walk that was handed over and not opened yet.
    pub handed: Option<Walk>,
    /// How earlier forecasts did, this session's among them, oldest first.
    pub forecasts: Earlier,
    /// The path on the diagnosis screen as it was left.
    pub path: Option<Box<walk::Walk>>,
    /// The original that was asked for.
    pub trace: Option<trace::Trace>,
    /// The signal whose origin was asked for.
    pub sought: Option<inspect::Sought>,
    /// The registry of actions, with the keys of whoever sits there.
    pub registry: &'static [action::Entry],
    /// Something visible has changed.
    pub dirty: bool,
}

impl Model {
    /// A model that has seen nothing.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        environment: impl Into<String>,
        zone: FixedOffset,
        wall: DateTime<Utc>,
    ) -> Self {
        Self {
            title: title.into(),
            environment: environment.into(),
            read_only: false,
            arming: Arming::NotNeeded,
            zone,
            wall,
            now: Mono::START,
            latest: None,
            frozen: None,
            gateway_name: None,
            history: BTreeMap::new(),
            is_backfilled: false,
            chosen_scope: None,
            mouse: Mouse::Terminal,
            zoom_s: None,
            judged: Judged::default(),
            onsets: BTreeMap::new(),
            timeline: Timeline::default(),
            flags: Flags::default(),
            flips: Vec::new(),
            unsettled: None,
            modes: vec![Mode::Overview],
            toast: None,
            playhead: None,
            person: "on-call".to_owned(),
            store: None,
            owners: Owners::default(),
            guides: BTreeMap::new(),
            incidents: BTreeMap::new(),
            handed: None,
            forecasts: Earlier::default(),
            path: None,
            trace: None,
            sought: None,
            registry: action::REGISTRY,
            dirty: true,
        }
    }

    /// The mode on top.
    ///
    /// # Panics
    /// Never: the overview is not popped.
    #[must_use]
    pub fn mode(&self) -> &Mode {
        self.modes.last().expect("the overview is never popped")
    }

    /// The screen under whatever lies over it.
    #[must_use]
    pub fn screen(&self) -> &Mode {
        self.modes.iter().rev().find(|mode| mode.is_screen()).unwrap_or(&self.modes[0])
    }

    /// The update that is shown: the newest, or the one the screen was frozen on.
    #[must_use]
    pub fn shown(&self) -> Option<&Arc<Update>> {
        match &self.frozen {
            Some(frozen) => frozen.update.as_ref(),
            None => self.latest.as_ref(),
        }
    }

    /// Whether the screen shows a moment that is put together again from the trends.
    #[must_use]
    pub fn is_rewound(&self) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| frozen.is_rewound)
    }

    /// Whether the screen shows now, and nothing recorded, held still or past.
    #[must_use]
    pub const fn is_now(&self) -> bool {
        self.playhead.is_none() && self.frozen.is_none()
    }

    /// Whether a plan may be opened: nothing is planned on a screen that shows the past.
    #[must_use]
    pub fn may_plan(&self) -> bool {
        !self.read_only && !self.is_rewound()
    }

    /// What had happened by the moment that is shown, newest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        let then = self.frozen.as_ref().filter(|frozen| frozen.is_rewound);
        let end = then.map(|frozen| frozen.wall + TimeDelta::seconds(1));
        self.timeline.newest_first().filter(move |event| end.is_none_or(|end| event.wall < end))
    }

    /// The moment that the screen shows.
    #[must_use]
    pub fn shown_now(&self) -> Mono {
        self.frozen.as_ref().map_or(self.now, |frozen| frozen.since)
    }

    /// Seconds since the shown observation was made.
    #[must_use]
    pub fn observation_age_s(&self) -> Option<f64> {
        let at = self.shown()?.observation.at;
        Some(self.shown_now().saturating_since(at).as_secs_f64())
    }

    /// The names of the scopes, worst first; those without a verdict last, as they were observed.
    #[must_use]
    pub fn scopes(&self) -> Vec<&str> {
        let Some(update) = self.shown() else { return Vec::new() };
        let observed = update.observation.scopes.iter().map(|snapshot| snapshot.scope.as_str());
        let mut scopes: Vec<&str> = observed.collect();
        let verdict = |scope: &str| update.verdicts.iter().find(|verdict| verdict.scope == scope);
        scopes.sort_by(|left, right| match (verdict(left), verdict(right)) {
            (Some(left), Some(right)) => worst_first(left, right),
            (left, right) => right.is_some().cmp(&left.is_some()),
        });
        scopes
    }

    /// The scope on the screen: the chosen one, else the worst.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        let scopes = self.scopes();
        if let Some(chosen) = self.chosen_scope.as_deref().filter(|name| scopes.contains(name)) {
            return Some(chosen);
        }
        let worst = self.shown()?.verdicts.iter().min_by(|left, right| worst_first(left, right));
        worst.map(|verdict| verdict.scope.as_str()).or_else(|| scopes.first().copied())
    }

    /// The snapshot of the scope on the screen.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        let scope = self.scope()?;
        self.shown()?.observation.scopes.iter().find(|snapshot| snapshot.scope == scope)
    }

    /// The verdict on the scope on the screen.
    #[must_use]
    pub fn verdict(&self) -> Option<&Arc<Verdict>> {
        let scope = self.scope()?;
        self.shown()?.verdicts.iter().find(|verdict| verdict.scope == scope)
    }

    /// The trends of the scope on the screen.
    #[must_use]
    pub fn trends(&self) -> Option<&History> {
        self.history.get(self.scope()?)
    }

    /// The newest second that the screen shows of the trends.
    #[must_use]
    pub fn trends_end(&self) -> u64 {
        self.scope().map_or(0, |scope| self.trends_end_of(scope))
    }

    /// The newest second that the screen shows of the trends of a scope.
    #[must_use]
    pub fn trends_end_of(&self, scope: &str) -> u64 {
        let newest = self.history.get(scope).and_then(History::newest).unwrap_or(0);
        match &self.frozen {
            Some(frozen) => newest.min(history::slot(frozen.since)),
            None => newest,
        }
    }

    /// A signal of the scope on the screen.
    #[must_use]
    pub fn signal(&self, path: &str) -> Shown<'_> {
        match self.snapshot() {
            Some(snapshot) => self.signal_of(snapshot, path),
            None => Shown::Unknown { why: "no data yet" },
        }
    }

    /// A signal of a snapshot that is shown, of any scope.
    #[must_use]
    pub fn signal_of<'a>(&self, snapshot: &'a Snapshot, path: &str) -> Shown<'a> {
        let root = path.split('.').next().unwrap_or(path);
        let Some(reading) = snapshot.get(path).or_else(|| snapshot.get(root)) else {
            let why = snapshot.absent.get(path).or_else(|| snapshot.absent.get(root));
            return Shown::Unknown { why: why.map_or("no source gives it", String::as_str) };
        };
        if sources::hollow(snapshot) == Some(&*reading.source) && is_zero(&reading.value) {
            return Shown::Unknown { why: "no weir metrics" };
        }
        let unobserved_s = self.observation_age_s().unwrap_or(0.0);
        let age_s = reading.age_s + unobserved_s;
        if unobserved_s > UNOBSERVED_AFTER_S || reading.age_s > STALE_AFTER_S {
            return Shown::Stale { age_s };
        }
        match snapshot.value(path) {
            Some(value) => Shown::Known { value, reading, age_s },
            None => Shown::Unknown { why: "not told" },
        }
    }

    /// A number of the scope on the screen, if it is known and fresh.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<f64> {
        match self.signal(path) {
            Shown::Known { value, .. } => value.as_number(),
            _ => None,
        }
    }

    /// A word of the scope on the screen, if it is known and fresh.
    #[must_use]
    pub fn word(&self, path: &str) -> Option<&str> {
        match self.signal(path) {
            Shown::Known { value, .. } => value.as_text(),
            _ => None,
        }
    }

    /// A flag, as last read.
    #[must_use]
    pub fn flag(&self, key: &str) -> Option<&FlagState> {
        self.flags.table.as_ref()?.get(key)
    }

    /// The last flip that has not been undone.
    #[must_use]
    pub fn last_flip(&self) -> Option<&Flip> {
        self.flips.iter().rev().find(|flip| !flip.undone)
    }

    /// Flags that this session has set and that are still overridden, as last read.
    #[must_use]
    pub fn open_overrides(&self) -> Vec<String> {
        let mut keys: Vec<String> = self
            .flips
            .iter()
            .filter(|flip| !flip.undone)
            .flat_map(|flip| flip.plan.changes.iter().map(|change| change.key.clone()))
            .filter(|key| self.flag(key).is_none_or(|flag| flag.overridden.is_some()))
            .collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// The flag under the cursor, else the first.
    #[must_use]
    pub fn flag_under_cursor(&self) -> Option<&str> {
        let keys = self.flag_keys();
        let chosen = self.flags.cursor.as_deref().filter(|key| keys.contains(key));
        chosen.or_else(|| keys.first().copied())
    }

    /// The keys of the flags as listed: the table's, or the built-in list before it was read.
    #[must_use]
    pub fn flag_keys(&self) -> Vec<&str> {
        match &self.flags.table {
            Some(table) => table.flags.iter().map(|flag| flag.key.as_str()).collect(),
            None => FLAGS.iter().map(|def| def.key).collect(),
        }
    }
}

/// A signal as the screen may show it. Unknown is never zero.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'a> {
    /// Known and fresh.
    Known {
        /// The value.
        value: &'a Value,
        /// Where it came from.
        reading: &'a Reading,
        /// Seconds since it was read.
        age_s: f64,
    },
    /// Known once.
    Stale {
        /// Seconds since it was read.
        age_s: f64,
    },
    /// Not known.
    Unknown {
        /// Why.
        why: &'a str,
    },
}

/// How a verdict is called on the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No incident.
    Ok,
    /// Demand is above the quota and the gate keeps it out.
    Contained,
    /// It cannot be told.
    Unknown,
    /// An incident with a cause.
    Incident,
}

impl State {
    /// The state that a verdict means.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Self {
        match (verdict.cause.as_str(), verdict.standing) {
            ("insufficient-evidence", _) => Self::Unknown,
            ("healthy", Standing::Confirmed | Standing::Likely) => Self::Ok,
            ("demand-over-capacity", Standing::Confirmed | Standing::Likely) => Self::Contained,
            (_, Standing::Confirmed | Standing::Likely) => Self::Incident,
            _ => Self::Unknown,
        }
    }

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Contained => "CONTAINED",
            Self::Unknown => "UNKNOWN",
            Self::Incident => "INCIDENT",
        }
    }

    /// Its weight.
    #[must_use]
    pub const fn role(self) -> Role {
        match self {
            Self::Ok => Role::Ok,
            Self::Contained => Role::Warn,
            Self::Unknown => Role::Unknown,
            Self::Incident => Role::Crit,
        }
    }
}

fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Number(number) if *number == 0.0)
}
