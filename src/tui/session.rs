//! What the caller passes in and gets back: the data, and the port through which the screen acts.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};
use thiserror::Error as ThisError;
use tokio::sync::{mpsc, watch};

use crate::diagnosis::{Change, Facts, Library, Owners, Verdict};
use crate::flag::{
    self, Capabilities, Evidence, FlagTable, Hindsight, Original, Outcome, Plan, PlanError,
    Revision, Settled, Terms, Unsettled,
};
use crate::incident::Earlier;
use crate::incident::recording::{EventAt, Trends};
use crate::ingest::{Alerts, Observation, Origin};
use crate::runbook::Walk;
use crate::signal::{Mono, Snapshot};
use crate::tui::app::action::Entry as ActionEntry;
use crate::tui::app::arming::Arming;
use crate::tui::theme::Appearance;

/// One round of polling and the verdicts made from it, immutable.
#[derive(Clone, Debug)]
pub struct Update {
    /// The round.
    pub observation: Arc<Observation>,
    /// One verdict per quota scope, matched by [`Verdict::scope`].
    pub verdicts: Vec<Arc<Verdict>>,
    /// What changed beside the load so far, of every scope, oldest first. Every update carries them
    /// all, so that a screen that skips one misses nothing.
    pub changes: Vec<Arc<Change>>,
    /// What the Alertmanager says; `None` where there is none.
    pub alerts: Option<Arc<Alerts>>,
    /// The time before the first poll, once it is known. Every later update carries it.
    pub backfill: Option<Arc<Backfill>>,
    /// Where the recording stands that this comes from; `None` when it is now.
    pub playhead: Option<Arc<Playhead>>,
    /// The runbooks with the evidence of every scope, to walk along them; `None` where nothing is
    /// diagnosed.
    pub guide: Option<Arc<Guidance>>,
}

/// The runbooks, and the evidence on which they can be walked.
#[derive(Clone, Debug)]
pub struct Guidance {
    /// The runbooks.
    pub library: Arc<Library>,
    /// The evidence, by quota scope.
    pub facts: BTreeMap<String, Facts>,
}

impl Update {
    /// A round with its verdicts, and nothing else known.
    #[must_use]
    pub const fn new(observation: Arc<Observation>, verdicts: Vec<Arc<Verdict>>) -> Self {
        Self {
            observation,
            verdicts,
            changes: Vec::new(),
            alerts: None,
            backfill: None,
            playhead: None,
            guide: None,
        }
    }
}

/// Snapshots from before the first poll, as a server that had watched before gives them.
#[derive(Clone, Debug, Default)]
pub struct Backfill {
    /// By quota scope, oldest first, on the run's clock: it has to begin that much earlier.
    pub scopes: BTreeMap<String, Vec<(Mono, Arc<Snapshot>)>>,
}

/// Where a recording stands while it is played.
#[derive(Clone, Debug)]
pub struct Playhead {
    /// The moment that is shown.
    pub at: Mono,
    /// The first moment of the recording.
    pub from: Mono,
    /// The last one.
    pub to: Mono,
    /// The moment that times are counted from.
    pub zero: Mono,
    /// Seconds of the recording in a second.
    pub speed: f64,
    /// It goes on by itself.
    pub is_playing: bool,
    /// Counts the jumps: a new number means that what was shown before is not what led here.
    pub jump: u64,
    /// What happened in all of the recording, as it was told then, in order.
    pub events: Arc<[EventAt]>,
    /// The looks that led here and were computed anew, since the last jump.
    pub lead: Arc<Trends>,
    /// What was before those, as it was shown then.
    pub past: Arc<Trends>,
    /// Why it does not go on.
    pub trouble: Option<String>,
}

/// What a person wants of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Go on, or stop.
    PlayPause,
    /// Twice as fast.
    Faster,
    /// Half as fast.
    Slower,
    /// So many seconds on, or back.
    By(i64),
    /// To the first moment.
    Start,
    /// To the last one.
    End,
    /// To what happened next.
    NextEvent,
    /// To what happened before.
    PreviousEvent,
}

/// Something that happened elsewhere and belongs on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// When.
    pub wall: DateTime<Utc>,
    /// What, in a few words.
    pub text: String,
}

/// Something to say, for some seconds and on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What.
    pub text: String,
    /// It is a complaint.
    pub is_bad: bool,
}

/// What has become of the configuration while the dashboard runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Colours and glyphs, owners, the registry of actions with its keys, and whether nothing may be
    /// changed; `None` leaves all as it is.
    pub changed: Option<(Appearance, Owners, &'static [ActionEntry], bool)>,
    /// What is said about it.
    pub said: Said,
}

impl Settings {
    /// Nothing changes, and this is why.
    #[must_use]
    pub const fn only_said(said: Said) -> Self {
        Self { changed: None, said }
    }
}

/// Everything that one run of the dashboard needs.
pub struct Session {
    /// What is being watched (`drill launch-0900`).
    pub title: String,
    /// The environment, shown in the title of every dialog that changes something.
    pub environment: String,
    /// The zero of `Mono`: the same instant that the observations are timed from.
    pub started: Instant,
    /// The newest update; the latest wins.
    pub updates: watch::Receiver<Option<Arc<Update>>>,
    /// Events from elsewhere.
    pub notices: mpsc::Receiver<Notice>,
    /// The way to flags and journal.
    pub port: Arc<dyn Port>,
    /// Hides everything that changes something.
    pub read_only: bool,
    /// Whether flips can be sent at once.
    pub arming: Arming,
    /// Colours and glyphs.
    pub appearance: Appearance,
    /// Who sits at the screen: the name under notes, answers and hand-overs.
    pub person: String,
    /// Who answers for which quota scope.
    pub owners: Owners,
    /// A walk that was handed over and is to be gone on with.
    pub walk: Option<Walk>,
    /// The registry of actions, with the keys of whoever sits there.
    pub registry: &'static [ActionEntry],
    /// What becomes of the configuration; closed where nobody reads it again.
    pub settings: mpsc::Receiver<Settings>,
}

/// A screen to be kept: the end of a file's name, and its content.
pub type Still = Vec<(&'static str, String)>;

/// A future that a port hands out.
pub type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a person wishes to plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    /// One of the plans that ship with weir, by name.
    Named(String),
    /// Every flag's safe value.
    AllSafe,
    /// These changes, under a name.
    Changes {
        /// The plan's name.
        name: String,
        /// The changes.
        changes: Vec<flag::Change>,
    },
    /// These changes, which take a flip back.
    Undo {
        /// The plan's name.
        name: String,
        /// The changes.
        changes: Vec<flag::Change>,
    },
}

/// A wish for a plan, with what the screen knows.
#[derive(Clone, Debug)]
pub struct Wish {
    /// What is wished.
    pub want: Want,
    /// The newest update.
    pub update: Option<Arc<Update>>,
    /// The scope on the screen.
    pub scope: Option<String>,
}

impl Wish {
    /// Makes the plan from a table that was just read; what most ports do. `request_id` is new.
    ///
    /// # Errors
    /// [`PlanError`] when there is nothing to change, or a flag or value does not exist.
    pub fn plan(&self, table: &FlagTable, request_id: String) -> Result<Plan, PlanError> {
        let evidence = evidence(self.update.as_deref(), self.scope.as_deref());
        let terms = Terms { request_id, ..Terms::default() };
        match &self.want {
            Want::Named(name) => flag::named(name, table, &evidence, terms),
            Want::AllSafe => flag::all_safe(table, &evidence, terms),
            Want::Changes { name, changes } => flag::plan(name, table, changes, &evidence, terms),
            Want::Undo { name, changes } => flag::plan(name, table, changes, &evidence, terms)
                .map(|plan| Plan { undo: true, ..plan }),
        }
    }
}

/// What an update says about a scope, for plans.
#[must_use]
pub fn evidence<'a>(update: Option<&'a Update>, scope: Option<&str>) -> Evidence<'a> {
    let verdict = update.and_then(|update| {
        update.verdicts.iter().find(|verdict| Some(verdict.scope.as_str()) == scope)
    });
    Evidence {
        scopes: update.map_or(&[], |update| &update.observation.scopes),
        verdict: verdict.map(AsRef::as_ref),
        now: update.map(|update| update.observation.wall),
    }
}

/// A line for the journal that is not a flip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A person's note.
    Note(String),
    /// How the verification of a flip ended.
    Verified {
        /// The id of the request that carried the flip.
        request_id: String,
        /// The plan's name.
        plan: String,
        /// The revision that the flip made.
        revision: Revision,
        /// `verified`, `failed` or `unknown`.
        state: &'static str,
        /// Why, unless verified.
        why: Option<String>,
    },
}

/// Flips whose answer was lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lost {
    /// Those that were settled since this was asked for last.
    pub settled: Vec<(Unsettled, Settled)>,
    /// Those that are still open, oldest first.
    pub open: Vec<Unsettled>,
}

/// The flag store as the screen shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFace {
    /// Its name.
    pub name: String,
    /// What it can do.
    pub able: Capabilities,
}

/// Everything with a network or a disk behind it.
///
/// The screen runs these on tasks of their own and never waits for one. Errors are words for a person.
pub trait Port: Send + Sync {
    /// The flag store and what it can do, without asking it; `None` where it does not matter.
    fn store(&self) -> Option<StoreFace> {
        None
    }
    /// Reads the flag table.
    fn load_flags(&self) -> Answer<Result<FlagTable, String>>;
    /// Makes a plan with its interlocks. Changes nothing.
    fn plan(&self, wish: Wish) -> Answer<Result<Plan, String>>;
    /// Journals the intent, applies the plan with the revision that it names, journals the outcome.
    fn apply(&self, plan: Plan) -> Answer<Outcome>;
    /// Writes a line to the journal.
    fn journal(&self, entry: Entry) -> Answer<Result<(), String>>;
    /// Reads how earlier forecasts did, also those of other sessions.
    fn earlier_forecasts(&self) -> Answer<Earlier> {
        Box::pin(async { Earlier::default() })
    }
    /// Keeps how a forecast did, for later sessions.
    fn keep_forecast(&self, _hindsight: Hindsight) -> Answer<Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
    /// Writes the text of a walk into a new file and says where that is.
    fn save_walk(&self, _page: String) -> Answer<Result<String, String>> {
        Box::pin(async { Err("walks are not saved here".to_owned()) })
    }
    /// Asks the gateway what happened to one original.
    fn original(&self, _id: u64) -> Answer<Result<Original, String>> {
        Box::pin(async { Err("no gateway can be asked here".to_owned()) })
    }
    /// Asks where a signal of a scope comes from.
    fn origin(&self, _scope: String, _signal: String) -> Answer<Result<Origin, String>> {
        Box::pin(async { Err("no source can be asked here".to_owned()) })
    }
    /// Writes a screen into new files and says where they are.
    fn save_screen(&self, _still: Still) -> Answer<Result<String, String>> {
        Box::pin(async { Err("screens are not saved here".to_owned()) })
    }
    /// What is known of flips whose answer was lost, after a table was read; `None` where nobody keeps them.
    fn lost(&self) -> Option<Lost> {
        None
    }
    /// What others have told since this was asked last.
    fn heard(&self) -> Vec<Notice> {
        Vec::new()
    }
    /// Moves the recording that is played. Where nothing is, nothing moves.
    fn seek(&self, _to: Seek) {}
}

/// Why the dashboard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The person left.
    Quit,
    /// A signal of this name came.
    Signal(&'static str),
    /// The terminal is gone.
    TerminalLost,
}

/// How the dashboard ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Why.
    pub reason: ExitReason,
    /// Flips that were applied in this session.
    pub flips: usize,
    /// Flags that this session has set and that are still overridden.
    pub open_overrides: Vec<String>,
}

/// Why the dashboard could not run.
#[derive(Debug, ThisError)]
pub enum Error {
    /// There is no terminal to draw on.
    #[error(
        "the dashboard needs a terminal; without one use `weir diagnose` or `--headless --json`"
    )]
    NoTerminal,
    /// The terminal refused.
    #[error("cannot set the terminal up: {0}")]
    Terminal(#[from] io::Error),
}
