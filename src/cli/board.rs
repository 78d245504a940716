//! Composes the dashboard: pollers and diagnosis in, flags and journal out. Used by watch and drill.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::Utc;
use tokio::sync::{oneshot, watch};

use super::actor;
use crate::diagnosis::{Diagnoser, InstanceCount, Library};
use crate::flag::{
    Author, FlagTable, Flip, FlipEnd, FlipLog, Outcome, Plan, Store, UNDO_OF, Unsettled, carry_out,
    on_disk,
};
use crate::incident::{Event, Journal, default_path};
use crate::ingest::{Alerts, Observation, SourceStatus};
use crate::signal::Snapshot;
use crate::tui::{Answer, Backfill, Entry, Port, Update, Wish};

/// What the dashboard is fed with.
pub struct Feeds {
    /// Rounds of polling, newest only.
    pub observations: watch::Receiver<Option<Arc<Observation>>>,
    /// What the Alertmanager says, where there is one.
    pub alerts: Option<watch::Receiver<Option<Arc<Alerts>>>>,
    /// The time before the first poll, where a server has watched before.
    pub backfill: Option<oneshot::Receiver<Backfill>>,
}

/// Diagnoses every observation and passes both on, newest only. Ends with the pollers.
pub fn diagnosed(
    observations: watch::Receiver<Option<Arc<Observation>>>,
    library: Arc<Library>,
) -> watch::Receiver<Option<Arc<Update>>> {
    diagnosed_with(Feeds { observations, alerts: None, backfill: None }, library)
}

/// The same with what else is known. Nothing here waits for alerts or the past.
pub fn diagnosed_with(
    mut feeds: Feeds,
    library: Arc<Library>,
) -> watch::Receiver<Option<Arc<Update>>> {
    let (sender, updates) = watch::channel(None);
    tokio::spawn(async move {
        let mut board = Board { library, diagnosers: BTreeMap::new(), backfill: None };
        while feeds.observations.changed().await.is_ok() {
            let newest = feeds.observations.borrow_and_update().clone();
            let Some(observation) = newest else { continue };
            if let Some(Ok(past)) = feeds.backfill.as_mut().map(oneshot::Receiver::try_recv) {
                board.begin_earlier(past);
            }
            let alerts = feeds.alerts.as_ref().and_then(|alerts| alerts.borrow().clone());
            let update = Update { alerts, ..board.step(observation) };
            if sender.send(Some(Arc::new(update))).is_err() {
                return;
            }
        }
    });
    updates
}

/// The diagnoses of every scope.
struct Board {
    library: Arc<Library>,
    diagnosers: BTreeMap<String, Diagnoser>,
    backfill: Option<Arc<Backfill>>,
}

impl Board {
    /// Lets every diagnosis begin with the past. What was seen since the start is seen again within
    /// seconds; a past that came later could not be put under it.
    fn begin_earlier(&mut self, past: Backfill) {
        self.diagnosers.clear();
        for (scope, samples) in &past.scopes {
            let mut diagnoser = Diagnoser::new(Arc::clone(&self.library));
            diagnoser.backfill(samples);
            self.diagnosers.insert(scope.clone(), diagnoser);
        }
        self.backfill = Some(Arc::new(past));
    }

    fn step(&mut self, observation: Arc<Observation>) -> Update {
        let mut verdicts = Vec::with_capacity(observation.scopes.len());
        let mut changes = Vec::new();
        for snapshot in &observation.scopes {
            let diagnoser = self
                .diagnosers
                .entry(snapshot.scope.clone())
                .or_insert_with(|| Diagnoser::new(Arc::clone(&self.library)));
            let told = instances(&observation, snapshot);
            let verdict = diagnoser.step_with(snapshot, told.as_ref(), observation.at);
            verdicts.push(Arc::new(verdict));
            changes.extend(diagnoser.changes().cloned());
        }
        let backfill = self.backfill.clone();
        Update { changes, backfill, ..Update::new(observation, verdicts) }
    }
}

/// How many instances there are behind the source that gives most numbers of a snapshot. Unknown
/// while it does not answer, and before it first did.
fn instances<'a>(observation: &'a Observation, snapshot: &Snapshot) -> Option<InstanceCount<'a>> {
    let given = |source: &SourceStatus| {
        snapshot.signals.values().filter(|reading| *reading.source == *source.name).count()
    };
    let source = observation.sources.iter().max_by_key(|source| given(source))?;
    let is_known = source.error.is_none() && source.instances.1 > 0 && given(source) > 0;
    let read_at = source.last_good.filter(|_| is_known)?;
    Some(InstanceCount { source: &source.name, all: source.instances.1, read_at })
}

/// What the name of a plan begins with that the screen made to lead back.
const UNDO: &str = "undo ";

/// The dashboard's way to a flag store and to the journal. Without a journal nothing is changed.
pub struct Desk {
    store: Option<Arc<dyn Store>>,
    journal: Result<Arc<Journal>, String>,
    author: Author,
    shown: Arc<Mutex<Option<FlagTable>>>,
    unsettled: Arc<Mutex<Vec<Unsettled>>>,
}

impl Desk {
    /// A desk for whoever is logged in. Without a store, flags can be neither read nor changed;
    /// without a journal (and why), they can be read.
    #[must_use]
    pub fn new(store: Option<Arc<dyn Store>>, journal: Result<Journal, String>) -> Arc<Self> {
        let author =
            Author { actor: actor::from_system(), incident: std::env::var("WEIR_INCIDENT").ok() };
        let journal = journal.map(Arc::new);
        Arc::new(Self { store, journal, author, shown: Arc::default(), unsettled: Arc::default() })
    }

    fn store(&self) -> Result<Arc<dyn Store>, String> {
        self.store.clone().ok_or_else(|| {
            "no flag store is configured; add [flags] with `url` and `token_env`".to_owned()
        })
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
            on_disk(move || journal.append(&event, Utc::now()).map_err(|error| error.to_string()))
                .await?;
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
                FlipEnd::Applied { revision, .. } | FlipEnd::Overwritten { revision, .. } => {
                    Outcome::Applied { revision }
                }
                FlipEnd::Conflict { .. } => {
                    report.table.map_or(refused(said), |current| Outcome::Conflict { current })
                }
                FlipEnd::Refused { .. } | FlipEnd::NotStored { .. } | FlipEnd::NotSent { .. } => {
                    refused(said)
                }
                FlipEnd::Unsettled(open) => {
                    lock(&unsettled).push(open);
                    Outcome::Unknown { why: said }
                }
            }
        })
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
            journal?.append(&event, Utc::now()).map_err(|error| error.to_string())
        }))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{Mono, Value};

    fn source(name: &str, all: usize, error: Option<&str>) -> SourceStatus {
        SourceStatus {
            name: name.to_owned(),
            url: String::new(),
            via: None,
            last_good: Some(Mono::START),
            stale_after_s: 3.0,
            error: error.map(str::to_owned),
            degraded: Vec::new(),
            warnings: Vec::new(),
            instances: (1, all),
            took_s: 0.0,
            samples: 0,
            polls: 1,
            failures: 0,
        }
    }

    #[test]
    fn instances_are_those_of_the_source_that_gives_most_numbers_while_it_answers() {
        let mut snapshot = Snapshot::new("s", 10.0);
        for (signal, source) in [("a", "gateway"), ("b", "gateway"), ("c", "clients")] {
            snapshot.set(signal, Value::Number(1.0), &Arc::from(source));
        }
        let count = |sources: Vec<SourceStatus>| {
            let (at, wall) = (Mono::START, chrono::DateTime::UNIX_EPOCH);
            let observation = Observation { at, wall, scopes: Vec::new(), sources };
            instances(&observation, &snapshot).map(|told| (told.source.to_owned(), told.all))
        };
        let clients = || source("clients", 9, None);
        let gateway = |all, error| source("gateway", all, error);
        let of_gateway = Some(("gateway".to_owned(), 3));
        assert_eq!(count(vec![gateway(3, None), clients()]), of_gateway);
        assert_eq!(count(vec![gateway(3, Some("refused")), clients()]), None);
        assert_eq!(count(vec![gateway(0, None), clients()]), None);
        assert_eq!(count(vec![source("other", 2, None)]), None);
    }
}
