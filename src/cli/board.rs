//! Composes the dashboard: pollers and diagnosis in, flags and journal out. Used by watch and drill.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::Utc;
use tokio::sync::{oneshot, watch};

use super::{actor, walk_save};
use crate::diagnosis::Library;
use crate::flag::{
    Author, Conclusion, FlagTable, Flip, FlipEnd, FlipLog, Intent, Outcome, Plan, Store, UNDO_OF,
    Unsettled, carry_out, on_disk,
};
use crate::incident::recording::{Tape, Told};
use crate::incident::{Anchor, Diagnoses, Event, Journal, default_path};
use crate::ingest::{Alerts, Observation};
use crate::tui::{Answer, Backfill, Entry, Guidance, Port, Update, Wish};

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
/// the pollers; nothing here waits for alerts or the past.
pub fn diagnosed(mut feeds: Feeds, library: Arc<Library>) -> watch::Receiver<Option<Arc<Update>>> {
    let (sender, updates) = watch::channel(None);
    tokio::spawn(async move {
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
    shown: Arc<Mutex<Option<FlagTable>>>,
    unsettled: Arc<Mutex<Vec<Unsettled>>>,
}

impl Desk {
    /// A desk for whoever is logged in. Without a store, flags can be neither read nor changed;
    /// without a journal (and why), they can be read.
    #[must_use]
    pub fn new(
        store: Option<Arc<dyn Store>>,
        journal: Result<Journal, String>,
        tape: Option<Tape>,
    ) -> Arc<Self> {
        let author = Author {
            actor: actor::from_system(),
            incident: std::env::var("WEIR_INCIDENT").ok(),
            anchor: None,
        };
        let journal = journal.map(|journal| Arc::new(Log { journal, tape }));
        Arc::new(Self { store, journal, author, shown: Arc::default(), unsettled: Arc::default() })
    }

    fn store(&self) -> Result<Arc<dyn Store>, String> {
        self.store.clone().ok_or_else(|| {
            "no flag store is configured; add [flags] with `url` and `token_env`".to_owned()
        })
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

/// The journal at its usual place.
///
/// # Errors
/// In words, when it cannot be opened.
pub fn journal() -> Result<Journal, String> {
    let path = default_path().map_err(|error| error.to_string())?;
    Journal::open(&path).map(|(journal, _)| journal).map_err(|error| error.to_string())
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

/// Reads the table and keeps it as the one that is shown.
async fn read(
    store: &dyn Store,
    shown: &Mutex<Option<FlagTable>>,
    unsettled: &Mutex<Vec<Unsettled>>,
) -> Result<FlagTable, String> {
    let table = store.list().await.map_err(|error| error.to_string())?;
    *lock(shown) = Some(table.clone());
    lock(unsettled).retain_mut(|earlier| earlier.on_read(&table).is_none());
    Ok(table)
}

impl Port for Desk {
    fn load_flags(&self) -> Answer<Result<FlagTable, String>> {
        let store = self.store();
        let (shown, unsettled) = (Arc::clone(&self.shown), Arc::clone(&self.unsettled));
        Box::pin(async move { read(&*store?, &shown, &unsettled).await })
    }

    fn plan(&self, wish: Wish) -> Answer<Result<Plan, String>> {
        let store = self.store();
        let (shown, unsettled) = (Arc::clone(&self.shown), Arc::clone(&self.unsettled));
        let journal = self.journal.clone();
        Box::pin(async move {
            let journal = journal?;
            let table = read(&*store?, &shown, &unsettled).await?;
            let request_id = uuid::Uuid::now_v7().to_string();
            let plan = wish.plan(&table, request_id).map_err(|error| error.to_string())?;
            let event = Event::plan(&plan);
            on_disk(move || journal.append(event)).await?;
            Ok(plan)
        })
    }

    fn apply(&self, plan: Plan) -> Answer<Outcome> {
        let store = self.store();
        let author = self.author.clone();
        let journal = self.journal.clone();
        let (shown, unsettled) = (Arc::clone(&self.shown), Arc::clone(&self.unsettled));
        Box::pin(async move {
            let refused = |why: String| Outcome::Refused { why };
            let (store, log) = match (store, journal) {
                (Ok(store), Ok(journal)) => (store, journal as Arc<dyn FlipLog>),
                (Err(why), _) | (_, Err(why)) => return refused(why),
            };
            let Some(table) = lock(&shown).clone() else {
                return refused("the flags have not been read yet".to_owned());
            };
            let blocked = lock(&unsettled).clone();
            let flip = match Flip::new(marked(plan), &table, author, &blocked) {
                Ok(flip) => flip,
                Err(error) => return refused(error.to_string()),
            };
            let report = carry_out(flip, store, log).await;
            if let Some(table) = &report.table {
                *lock(&shown) = Some(table.clone());
            }
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
                    lock(&unsettled).push(open);
                    Outcome::Unknown { why: said }
                }
            }
        })
    }

    fn save_walk(&self, page: String) -> Answer<Result<String, String>> {
        Box::pin(on_disk(move || walk_save::save(&page, Utc::now())))
    }

    fn journal(&self, entry: Entry) -> Answer<Result<(), String>> {
        let journal = self.journal.clone();
        let actor = self.author.actor.clone();
        Box::pin(on_disk(move || {
            let event = match entry {
                Entry::Note(text) => Event::Note { actor, text },
                Entry::Verified { request_id, plan, state, why, .. } => {
                    Event::Verify { request_id, plan, state: state.to_owned(), why }
                }
            };
            journal?.append(event).map(drop)
        }))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
