//! Composes the dashboard: pollers and diagnosis in, flags and journal out. Used by watch and drill.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use super::shared_notes::SharedNotes;
use super::timekeeper::{Timekeeper, TimerLog};
use super::{actor, walk_save};
use crate::diagnosis::Library;
use crate::flag::{
    Author, Conclusion, FlagTable, Flip, FlipEnd, FlipLog, FlipReport, Hindsight, Intent, Original,
    Outcome, Past, Plan, Settled, Store, Timers, UNDO_OF, Unsettled, carry_out, on_disk,
};
use crate::incident::recording::{Tape, Told};
use crate::incident::{
    self, Anchor, Claim, Diagnoses, Earlier, Event, Journal, default_path, earlier, keep,
    place_beside,
};
use crate::ingest::{Alerts, Observation, Origin, Origins};
use crate::tui::{
    Answer, Backfill, Entry, Guidance, Lost, Notice, Port, Still, StoreFace, Update, Wish,
};

/// What the dashboard is fed with.
pub struct Feeds {
    /// Rounds of polling, newest only.
    pub observations: watch::Receiver<Option<Arc<Observation>>>,
    /// What the Alertmanager says, where there is one.
    pub alerts: Option<watch::Receiver<Option<Arc<Alerts>>>>,
    /// The time before the first poll, where a server has watched before.
    pub backfill: Option<oneshot::Receiver<Backfill>>,
    /// Where verdicts and alerts are recorded.
    pub tape: Option<Tape>,
}

/// Diagnoses every observation and passes both on, newest only, with what else is known. Ends with
/// the pollers. The runbooks are read in here; nothing here waits for alerts or the past.
pub fn diagnosed(
    mut feeds: Feeds,
    library: impl FnOnce() -> Arc<Library> + Send + 'static,
) -> watch::Receiver<Option<Arc<Update>>> {
    let (sender, updates) = watch::channel(None);
    tokio::spawn(async move {
        // It takes longer to read than the first frame may.
        let Ok(library) = tokio::task::spawn_blocking(library).await else { return };
        let mut diagnoses = Diagnoses::new(Arc::clone(&library));
        let mut backfill = None;
        while feeds.observations.changed().await.is_ok() {
            let newest = feeds.observations.borrow_and_update().clone();
            let Some(observation) = newest else { continue };
            if let Some(Ok(past)) = feeds.backfill.as_mut().map(oneshot::Receiver::try_recv) {
                diagnoses.begin_earlier(&past.scopes);
                backfill = Some(Arc::new(past));
            }
            let alerts = feeds.alerts.as_ref().and_then(|alerts| alerts.borrow().clone());
            let (verdicts, changes) = diagnoses.step(&observation);
            if let Some(tape) = &feeds.tape {
                tape.judge(&verdicts, observation.at, observation.wall);
                if let Some(alerts) = &alerts {
                    tape.alert(alerts, observation.at);
                }
            }
            let backfill = backfill.clone();
            let guide = Guidance { library: Arc::clone(&library), facts: diagnoses.facts() };
            let guide = Some(Arc::new(guide));
            let fresh = Update::new(observation, verdicts);
            let update = Update { changes, alerts, backfill, guide, ..fresh };
            if sender.send(Some(Arc::new(update))).is_err() {
                return;
            }
        }
    });
    updates
}

/// What the name of a plan begins with that the screen made to lead back.
const UNDO: &str = "undo ";

/// The dashboard's way to a flag store and to the journal. Without a journal nothing is changed.
pub struct Desk {
    store: Option<Arc<dyn Store>>,
    journal: Result<Arc<Log>, String>,
    author: Author,
    known: Arc<Known>,
    origins: Origins,
}

/// What the desk knows of the flags beside what the store says.
#[derive(Default)]
struct Known {
    /// The table that is shown.
    shown: Mutex<Option<FlagTable>>,
    /// When the table was read last.
    read_at: Mutex<Option<DateTime<Utc>>>,
    unsettled: Arc<Mutex<Vec<Unsettled>>>,
    /// Flips without an answer of which it has become known what they did, and is still to be shown.
    settled: Mutex<Vec<(Unsettled, Settled)>>,
    notes: SharedNotes,
    /// The timers that weir carries, where somebody keeps the time.
    timers: Arc<Mutex<Timers>>,
}

impl Desk {
    /// A desk for whoever is logged in. Without a store, flags can be neither read nor changed;
    /// without a journal (and why), they can be read.
    #[must_use]
    pub fn new(
        store: Option<Arc<dyn Store>>,
        journal: Result<Journal, String>,
        tape: Option<Tape>,
        origins: Origins,
    ) -> Arc<Self> {
        let author = Author {
            actor: actor::from_system(),
            incident: std::env::var("WEIR_INCIDENT").ok(),
            anchor: None,
        };
        let journal = journal.map(|journal| Arc::new(Log { journal, tape }));
        Arc::new(Self { store, journal, author, known: Arc::default(), origins })
    }

    /// Carries the timers of flips while the answer lives; `None` where the store does it, or nothing
    /// can be changed anyway.
    pub fn keep_time(&self, notices: mpsc::Sender<Notice>) -> Option<AbortOnDropHandle<()>> {
        let store = self.store.clone().filter(|store| !store.capabilities().timer)?;
        let log = self.journal.as_ref().ok()?;
        let keeper = Timekeeper {
            store,
            log: Arc::clone(log) as Arc<dyn TimerLog>,
            timers: Arc::clone(&self.known.timers),
            unsettled: Arc::clone(&self.known.unsettled),
            notices,
        };
        Some(keeper.start(log.journal.path()))
    }

    /// Where it is kept how forecasts did; nowhere without a journal.
    fn forecasts(&self) -> Option<PathBuf> {
        self.journal.as_ref().ok().map(|log| place_beside(log.journal.path()))
    }

    /// Takes up flips that an earlier run has left without an outcome: the next readings settle them.
    pub fn take_up(&self, open_flips: &[Event]) {
        let Some(store) = &self.store else { return };
        let open = open_flips.iter().filter_map(|flip| incident::unsettled(flip, store.name()));
        lock(&self.known.unsettled).extend(open);
    }

    fn store(&self) -> Result<Arc<dyn Store>, String> {
        self.store
            .clone()
            .ok_or_else(|| "no flag store is configured; add [flags], see the README".to_owned())
    }
}

/// The journal, and the recording that has a copy of what is written into it.
struct Log {
    journal: Journal,
    tape: Option<Tape>,
}

impl Log {
    fn append(&self, event: Event) -> Result<Anchor, String> {
        let now = Utc::now();
        let anchor = self.journal.append(&event, now).map_err(|error| error.to_string())?;
        if let Some(tape) = &self.tape {
            tape.tell(Told::Journal(event), now);
        }
        Ok(anchor)
    }
}

impl FlipLog for Log {
    fn intent(&self, intent: &Intent) -> Result<Option<String>, String> {
        self.append(intent.into()).map(|anchor| Some(anchor.to_string()))
    }

    fn conclusion(&self, conclusion: &Conclusion) -> Result<(), String> {
        self.append(conclusion.into()).map(drop)
    }
}

impl TimerLog for Log {
    fn claim(&self, intent: &Intent, of: &str) -> Result<Claim, String> {
        let now = Utc::now();
        let event = Event::timer(intent, of);
        let claim = incident::claim(&self.journal, &event, now).map_err(|error| error.to_string());
        if let (Ok(Claim::Ours(_)), Some(tape)) = (&claim, &self.tape) {
            tape.tell(Told::Journal(event), now);
        }
        claim
    }
}

/// The journal at its usual place, and the flips in it that have no outcome.
///
/// # Errors
/// In words, when it cannot be opened.
pub fn journal() -> Result<(Journal, Vec<Event>), String> {
    let path = default_path().map_err(|error| error.to_string())?;
    let opened = Journal::open(&path).map_err(|error| error.to_string())?;
    let (journal, found) = opened;
    Ok((journal, found.open_flips))
}

/// The plan with a reason that says in the store's history that it is an undo.
fn marked(mut plan: Plan) -> Plan {
    if let Some(undone) = plan.name.strip_prefix(UNDO)
        && !plan.reason.trim().is_empty()
        && !plan.reason.starts_with(UNDO_OF)
    {
        plan.reason = format!("{UNDO_OF} {undone}: {}", plan.reason);
    }
    plan
}

impl Known {
    /// Reads the table and keeps it as the one that is shown. What it settles is written down.
    async fn read(&self, store: &dyn Store, log: Option<&Arc<Log>>) -> Result<FlagTable, String> {
        let mut table = match store.list().await {
            Ok(table) => table,
            Err(error) => {
                lock(&self.unsettled).iter_mut().for_each(Unsettled::on_failed_read);
                return Err(error.to_string());
            }
        };
        self.settle(store, &table, log).await;
        self.keep_elsewhere(store, &table, log).await;
        self.notes.listen(store, Utc::now()).await;
        if !store.capabilities().timer {
            let mut timers = lock(&self.timers);
            timers.on_table(&table);
            for flag in &mut table.flags {
                // What the store remembers of a timer does nothing.
                let timer = timers.of(flag);
                flag.expires = timer.map(|(at, _)| at);
                flag.on_expire = timer.map(|(_, what)| what);
            }
        }
        *lock(&self.shown) = Some(table.clone());
        Ok(table)
    }

    /// Keeps what others have changed in a store without a history, as far as this weir sees it.
    async fn keep_elsewhere(&self, store: &dyn Store, table: &FlagTable, log: Option<&Arc<Log>>) {
        let before = lock(&self.shown).clone();
        let since = lock(&self.read_at).replace(Utc::now());
        let values = |table: &FlagTable| -> Vec<_> {
            table.flags.iter().map(|flag| (flag.key.clone(), flag.overridden.clone())).collect()
        };
        let is_news = before.as_ref().is_none_or(|before| values(before) != values(table));
        let Some(log) = log.cloned().filter(|_| is_news && !store.capabilities().audit) else {
            return;
        };
        let (name, table) = (store.name().to_owned(), table.clone());
        let kept = on_disk(move || {
            let before = before.as_ref().zip(since);
            incident::keep_elsewhere(&log.journal, &name, before, &table, Utc::now())
                .map_err(|error| error.to_string())
        });
        if let Err(error) = kept.await {
            tracing::warn!(%error, "a change that was made past weir is not in the journal");
        }
    }

    /// Looks what became of flips without an answer: in the store's history, where it keeps one.
    async fn settle(&self, store: &dyn Store, table: &FlagTable, log: Option<&Arc<Log>>) {
        let able = store.capabilities();
        let is_news = lock(&self.unsettled).iter().any(|open| open.is_news(table));
        let events = if is_news && able.audit { store.events(0).await.ok() } else { None };
        let past = Past::of(able, events.as_deref());
        let mut settled = Vec::new();
        lock(&self.unsettled).retain_mut(|open| {
            let end = open.on_read(table, past);
            let is_open = end.is_none();
            settled.extend(end.map(|end| (open.clone(), end)));
            is_open
        });
        for (flip, end) in &settled {
            if let Some(log) = log.cloned() {
                let event = incident::settled(flip, end);
                // It stays open in the journal then, and is looked up again at the next start.
                let _ = on_disk(move || log.append(event)).await;
            }
        }
        lock(&self.settled).extend(settled);
    }

    /// A plan was sent: what became of it decides whether there is something for a timer to do.
    fn sent(&self, store: &dyn Store, plan: &Plan, author: &Author, report: &FlipReport) {
        let may_stand = matches!(
            report.end,
            FlipEnd::Applied { .. }
                | FlipEnd::Overwritten { .. }
                | FlipEnd::Partly(_)
                | FlipEnd::Unsettled(_)
        );
        if may_stand && !store.capabilities().timer {
            let mut timers = lock(&self.timers);
            timers.on_sent(plan, author, Utc::now());
            report.table.iter().for_each(|table| timers.on_table(table));
        }
        if let Some(table) = &report.table {
            *lock(&self.shown) = Some(table.clone());
        }
    }
}

impl Port for Desk {
    fn store(&self) -> Option<StoreFace> {
        let store = self.store.as_ref()?;
        Some(StoreFace { name: store.name().to_owned(), able: store.capabilities() })
    }

    fn load_flags(&self) -> Answer<Result<FlagTable, String>> {
        let store = self.store();
        let known = Arc::clone(&self.known);
        let log = self.journal.clone().ok();
        Box::pin(async move { known.read(&*store?, log.as_ref()).await })
    }

    fn plan(&self, wish: Wish) -> Answer<Result<Plan, String>> {
        let store = self.store();
        let known = Arc::clone(&self.known);
        let journal = self.journal.clone();
        Box::pin(async move {
            let journal = journal?;
            let store = store?;
            let table = known.read(&*store, Some(&journal)).await?;
            let request_id = uuid::Uuid::now_v7().to_string();
            let plan = wish.plan(&table, request_id).map_err(|error| error.to_string())?;
            let plan = store.capabilities().fitted(plan);
            let event = Event::plan(&plan);
            on_disk(move || journal.append(event)).await?;
            Ok(plan)
        })
    }

    fn apply(&self, plan: Plan) -> Answer<Outcome> {
        let store = self.store();
        let author = self.author.clone();
        let journal = self.journal.clone();
        let known = Arc::clone(&self.known);
        Box::pin(async move {
            let refused = |why: String| Outcome::Refused { why };
            let (store, log) = match (store, journal) {
                (Ok(store), Ok(journal)) => (store, journal as Arc<dyn FlipLog>),
                (Err(why), _) | (_, Err(why)) => return refused(why),
            };
            let Some(table) = lock(&known.shown).clone() else {
                return refused("the flags have not been read yet".to_owned());
            };
            let blocked = lock(&known.unsettled).clone();
            let plan = marked(plan);
            let flip = match Flip::new(plan.clone(), &table, author.clone(), &blocked) {
                Ok(flip) => flip,
                Err(error) => return refused(error.to_string()),
            };
            let report = carry_out(flip, Arc::clone(&store), log).await;
            known.sent(&*store, &plan, &author, &report);
            let said = report.end.say();
            match report.end {
                FlipEnd::Applied { revision, beside, .. } => Outcome::Applied { revision, beside },
                FlipEnd::Overwritten { revision, .. } => {
                    Outcome::Applied { revision, beside: Some(said) }
                }
                FlipEnd::Conflict { .. } => {
                    report.table.map_or(refused(said), |current| Outcome::Conflict { current })
                }
                FlipEnd::Refused { .. } | FlipEnd::NotStored { .. } | FlipEnd::NotSent { .. } => {
                    refused(said)
                }
                FlipEnd::Partly(partly) => Outcome::Partly(partly),
                FlipEnd::Unsettled(open) => {
                    lock(&known.unsettled).push(open);
                    Outcome::Unknown { why: said }
                }
            }
        })
    }

    fn earlier_forecasts(&self) -> Answer<Earlier> {
        let Some(path) = self.forecasts() else { return Box::pin(async { Earlier::default() }) };
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || earlier(&path)).await;
            read.unwrap_or_else(|error| Earlier {
                trouble: Some(format!("earlier forecasts were not read: {error}")),
                ..Earlier::default()
            })
        })
    }

    fn keep_forecast(&self, hindsight: Hindsight) -> Answer<Result<(), String>> {
        let Some(path) = self.forecasts() else { return Box::pin(async { Ok(()) }) };
        Box::pin(on_disk(move || keep(&path, &hindsight)))
    }

    fn lost(&self) -> Option<Lost> {
        let settled = std::mem::take(&mut *lock(&self.known.settled));
        Some(Lost { settled, open: lock(&self.known.unsettled).clone() })
    }

    fn original(&self, id: u64) -> Answer<Result<Original, String>> {
        let store = self.store();
        Box::pin(async move {
            let store = store?;
            match store.original(id) {
                Some(answer) => answer.await.map_err(|error| error.to_string()),
                None => Err(format!("{} keeps flags only, and no originals", store.name())),
            }
        })
    }

    fn origin(&self, scope: String, signal: String) -> Answer<Result<Origin, String>> {
        let origins = self.origins.clone();
        Box::pin(async move { origins.ask(scope, signal).await })
    }

    fn heard(&self) -> Vec<Notice> {
        self.known.notes.take()
    }

    fn save_screen(&self, still: Still) -> Answer<Result<String, String>> {
        Box::pin(on_disk(move || walk_save::save_screen(&still, Utc::now())))
    }

    fn save_walk(&self, page: String) -> Answer<Result<String, String>> {
        Box::pin(on_disk(move || walk_save::save(&page, Utc::now())))
    }

    fn journal(&self, entry: Entry) -> Answer<Result<(), String>> {
        let (journal, store) = (self.journal.clone(), self.store.clone());
        let (author, known) = (self.author.clone(), Arc::clone(&self.known));
        Box::pin(async move {
            let actor = author.actor.clone();
            let (event, shared) = match entry {
                Entry::Note(text) => (Event::Note { actor, text: text.clone() }, Some(text)),
                Entry::Verified { request_id, plan, state, why, .. } => {
                    (Event::Verify { request_id, plan, state: state.to_owned(), why }, None)
                }
            };
            let written = on_disk(move || journal?.append(event).map(drop)).await;
            let sent = match (&store, &shared) {
                (Some(store), Some(text)) => known.notes.send(&**store, &author, text).await,
                _ => Ok(()),
            };
            written.and(sent)
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
