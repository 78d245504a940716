//! Carries the timers of flips while weir runs, for stores that have none: looks once a second, and drops
//! by a plan of its own what a timer says is over. Decides nothing: that is [`Timers`].

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use crate::flag::{
    Author, Due, Evidence, Flip, FlipEnd, FlipLog, Store, TIMER, Timed, Timers, Unsettled,
    carry_out, on_disk,
};
use crate::incident;
use crate::tui::Notice;

/// From a look to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Everything that a timer needs to be kept.
pub struct Timekeeper {
    /// Where the flags are.
    pub store: Arc<dyn Store>,
    /// Where flips are written down.
    pub log: Arc<dyn FlipLog>,
    /// The timers.
    pub timers: Arc<Mutex<Timers>>,
    /// Flips that have no answer yet.
    pub unsettled: Arc<Mutex<Vec<Unsettled>>>,
    /// Where it is said what timers have done.
    pub notices: mpsc::Sender<Notice>,
}

impl Timekeeper {
    /// Takes up what the journal says that an earlier run has left, and goes on until it is dropped.
    pub fn start(self, journal: PathBuf) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(async move {
            self.take_up(journal).await;
            let mut second = interval(EVERY);
            second.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                second.tick().await;
                self.tick(Utc::now()).await;
            }
        }))
    }

    /// Reads the timers of earlier runs.
    pub async fn take_up(&self, journal: PathBuf) {
        let name = self.store.name().to_owned();
        let read = on_disk(move || incident::timers(&journal, &name).map_err(|e| e.to_string()));
        match read.await {
            Ok(open) => *lock(&self.timers) = Timers::new(open),
            Err(why) => self.say(Utc::now(), format!("earlier timers are not known: {why}")).await,
        }
    }

    /// Does what is due.
    pub async fn tick(&self, now: DateTime<Utc>) {
        if lock(&self.timers).due(now).is_none() {
            return;
        }
        let table = match self.store.list().await {
            Ok(table) => table,
            Err(error) => return self.failed(now, &error.to_string()).await,
        };
        let due = {
            let mut timers = lock(&self.timers);
            timers.on_table(&table);
            // A flip of this moment may have taken it over.
            timers.due(now).cloned()
        };
        let Some(timed) = due else { return };
        let request_id = uuid::Uuid::now_v7().to_string();
        let plan = match timed.act(&table, &Evidence::default(), request_id) {
            Due::Nothing => return lock(&self.timers).on_done(&timed.id),
            Due::Say(text) => return self.done(&timed, now, text).await,
            Due::Revert(plan) => plan,
        };
        let incident = timed.incident.clone();
        let author = Author { actor: TIMER.to_owned(), incident, anchor: None };
        let blocked = lock(&self.unsettled).clone();
        let back = |change: &crate::flag::PlannedChange| format!("{} to {}", change.key, change.to);
        let back = plan.changes.iter().map(back).collect::<Vec<_>>().join(", ");
        let flip = match Flip::new(plan, &table, author, &blocked) {
            Ok(flip) => flip,
            Err(error) => return self.failed(now, &error.to_string()).await,
        };
        let report = carry_out(flip, Arc::clone(&self.store), Arc::clone(&self.log)).await;
        let of = format!("timer of {} by {}", timed.plan, timed.actor);
        match &report.end {
            FlipEnd::Applied { .. } => self.done(&timed, now, format!("{of}: back {back}")).await,
            FlipEnd::Overwritten { .. } => {
                self.done(&timed, now, format!("{of}: {}", report.end.say())).await;
            }
            end => self.failed(now, &format!("{of}: {}", end.say())).await,
        }
    }

    async fn done(&self, timed: &Timed, now: DateTime<Utc>, text: String) {
        lock(&self.timers).on_done(&timed.id);
        self.say(now, text).await;
    }

    /// It is tried again later, and said once.
    async fn failed(&self, now: DateTime<Utc>, why: &str) {
        let is_first = lock(&self.timers).on_failed(now);
        if is_first {
            self.say(now, format!("a timer is over and its flip still there: {why}")).await;
        }
    }

    async fn say(&self, wall: DateTime<Utc>, text: String) {
        // The screen may be gone by then; there is nobody left to tell.
        let _ = self.notices.send(Notice { wall, text }).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::flag::{
        self, Capabilities, CompareAndSet, FlagEvent, FlagTable, Outcome, Plan, Revision,
        StoreError, Terms, fixture,
    };
    use crate::incident::Journal;

    const KEY: &str = "retry.max_attempts";

    /// A store in memory, without lock and timer, that can be away.
    struct Simple {
        table: Mutex<FlagTable>,
        is_away: Mutex<bool>,
    }

    impl Simple {
        fn new() -> Arc<Self> {
            let mut table = fixture::table(&[]);
            table.flags.iter_mut().for_each(|flag| flag.effective.clear());
            Arc::new(Self { table: Mutex::new(table), is_away: Mutex::new(false) })
        }

        fn stored(&self) -> String {
            lock(&self.table).get(KEY).expect("a flag").stored().to_string()
        }
    }

    impl Store for Simple {
        fn name(&self) -> &'static str {
            "simple"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                compare_and_set: CompareAndSet::None,
                all_or_none: true,
                timer: false,
                audit: false,
                effective: false,
                comment: false,
            }
        }

        fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
            let away = StoreError::Unreachable { store: "simple".into(), why: "away".into() };
            let table = lock(&self.table).clone();
            let read = if *lock(&self.is_away) { Err(away) } else { Ok(table) };
            Box::pin(async move { read })
        }

        fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome> {
            let mut table = lock(&self.table);
            table.revision = Revision(table.revision.0 + 1);
            let revision = table.revision;
            for change in &plan.changes {
                let flag = table.flags.iter_mut().find(|flag| flag.key == change.key);
                let flag = flag.expect("a flag");
                flag.overridden = (!change.drops_override).then(|| change.to.clone());
                flag.by = Some(author.actor.clone());
                flag.revision = revision;
            }
            Box::pin(async move { Outcome::applied(revision) })
        }

        fn events(&self, _since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    struct Stage {
        store: Arc<Simple>,
        journal: PathBuf,
        keeper: Timekeeper,
        notices: mpsc::Receiver<Notice>,
        _home: tempfile::TempDir,
    }

    impl Stage {
        fn new() -> Self {
            let home = tempfile::tempdir().expect("a directory");
            let journal = home.path().join("journal.jsonl");
            let (sender, notices) = mpsc::channel(8);
            let store = Simple::new();
            let keeper = keeper(&store, &journal, sender);
            Self { store, journal, keeper, notices, _home: home }
        }

        /// Alice flips, with 15 minutes on the timer, and the journal knows.
        async fn flip(&self, word: &str) {
            let table = self.store.list().await.expect("there");
            let changes = flag::wanted(&[word]).expect("valid");
            let terms = Terms {
                reason: Some("trying".to_owned()),
                ttl_s: Some(900),
                request_id: format!("id {word}"),
            };
            let plan = flag::plan("t", &table, &changes, &Evidence::default(), terms);
            let plan = Plan { guards: Vec::new(), ..plan.expect("a plan") };
            let alice = Author { actor: "alice".to_owned(), incident: None, anchor: None };
            let flip = Flip::new(plan.clone(), &table, alice.clone(), &[]).expect("allowed");
            let store = Arc::clone(&self.store) as Arc<dyn Store>;
            let report = carry_out(flip, store, Arc::clone(&self.keeper.log)).await;
            let mut timers = lock(&self.keeper.timers);
            timers.on_sent(&plan, &alice, Utc::now());
            timers.on_table(&report.table.expect("read back"));
        }

        fn said(&mut self) -> Option<String> {
            self.notices.try_recv().ok().map(|notice| notice.text)
        }
    }

    fn keeper(
        store: &Arc<Simple>,
        journal: &std::path::Path,
        notices: mpsc::Sender<Notice>,
    ) -> Timekeeper {
        let (log, _) = Journal::open(journal).expect("a journal");
        Timekeeper {
            store: Arc::clone(store) as Arc<dyn Store>,
            log: Arc::new(log),
            timers: Arc::default(),
            unsettled: Arc::default(),
            notices,
        }
    }

    fn later(seconds: i64) -> DateTime<Utc> {
        Utc::now() + TimeDelta::seconds(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_riskier_flip_goes_back_in_the_name_of_the_timer() {
        let mut stage = Stage::new();
        stage.flip("retry.max_attempts=3").await;
        stage.keeper.tick(later(890)).await;
        assert_eq!((stage.store.stored().as_str(), stage.said()), ("3", None));
        stage.keeper.tick(later(901)).await;
        assert_eq!(stage.store.stored(), "2");
        let said = "timer of t by alice: back retry.max_attempts to 2";
        assert_eq!(stage.said().as_deref(), Some(said));
        stage.keeper.tick(later(902)).await;
        assert_eq!(stage.said(), None, "once");
        let text = std::fs::read_to_string(&stage.journal).expect("written");
        assert!(text.contains("\"actor\":\"timer\"") && text.contains("\"store\":\"simple\""));
        incident::verify(&stage.journal).expect("whole");
    }

    #[tokio::test(start_paused = true)]
    async fn a_safer_flip_is_said_and_stays() {
        let mut stage = Stage::new();
        stage.flip("retry.max_attempts=1").await;
        stage.keeper.tick(later(901)).await;
        let said = "timer of t by alice: still retry.max_attempts = 1";
        assert_eq!((stage.store.stored().as_str(), stage.said().as_deref()), ("1", Some(said)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_run_takes_the_timer_up_from_the_journal() {
        let mut stage = Stage::new();
        stage.flip("retry.max_attempts=3").await;
        stage.flip("retry.budget_ratio=0.2").await;
        let (sender, notices) = mpsc::channel(8);
        stage.notices = notices;
        stage.keeper = keeper(&stage.store, &stage.journal, sender);
        stage.keeper.take_up(stage.journal.clone()).await;
        stage.keeper.tick(later(890)).await;
        assert_eq!(stage.store.stored(), "3");
        stage.keeper.tick(later(905)).await;
        stage.keeper.tick(later(906)).await;
        assert_eq!(stage.store.stored(), "2");
        let said = [stage.said(), stage.said(), stage.said()];
        assert!(said[1].as_deref().is_some_and(|said| said.contains("retry.budget_ratio to 0.1")));
        assert_eq!(said[2], None);

        // What it has dropped is no open timer for the next one, and another store has none of it.
        assert_eq!(incident::timers(&stage.journal, "simple").expect("whole"), []);
        let history = incident::history(&stage.journal, "simple").expect("whole");
        assert_eq!(history.len(), 4, "two flips, and the timer's two");
        assert_eq!(incident::history(&stage.journal, "other").expect("whole"), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_is_said_once_and_asked_again() {
        let mut stage = Stage::new();
        stage.flip("retry.max_attempts=3").await;
        *lock(&stage.store.is_away) = true;
        for second in 901..950 {
            stage.keeper.tick(later(second)).await;
        }
        let said = stage.said().expect("said");
        assert!(said.contains("its flip still there") && said.contains("away"), "{said}");
        assert_eq!(stage.said(), None);
        *lock(&stage.store.is_away) = false;
        stage.keeper.tick(later(990)).await;
        assert_eq!(stage.store.stored(), "2");
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_has_set_meanwhile_stays() {
        let mut stage = Stage::new();
        stage.flip("retry.max_attempts=3").await;
        {
            // The same value, by somebody else.
            let mut table = lock(&stage.store.table);
            let flag = table.flags.iter_mut().find(|flag| flag.key == KEY).expect("a flag");
            flag.by = Some("carol".to_owned());
        }
        stage.keeper.tick(later(901)).await;
        assert_eq!(stage.store.stored(), "3");
        assert!(stage.said().is_some_and(|said| said.contains("was changed since")));
    }
}
