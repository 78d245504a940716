//! Carries the timers of flips while weir runs, for stores that have none: looks once a second, and drops
//! by a plan of its own what a timer says is over. Decides nothing: that is [`Timers`].
//!
//! Flips of other processes are heard of by the journal that they write into. Which of several dashboards
//! leads a flip back is settled there too: whoever claims it first, the others leave it alone.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use crate::flag::{
    Author, Conclusion, Due, Evidence, Flip, FlipEnd, FlipLog, Intent, Store, TIMER, Timed, Timers,
    Unsettled, carry_out, on_disk,
};
use crate::incident::{Claim, Follow};
use crate::tui::Notice;

/// From a look to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Where timers are claimed, so that one process leads a flip back and no other.
pub trait TimerLog: FlipLog {
    /// Writes down that the timer of the request `of` leads back now, unless another has said so.
    ///
    /// # Errors
    /// Why it could not be written.
    fn claim(&self, intent: &Intent, of: &str) -> Result<Claim, String>;
}

/// The log of one timer's flip: to begin it is to claim it.
struct Claiming {
    log: Arc<dyn TimerLog>,
    of: String,
    /// Another was faster.
    is_taken: Mutex<bool>,
}

impl FlipLog for Claiming {
    fn intent(&self, intent: &Intent) -> Result<Option<String>, String> {
        match self.log.claim(intent, &self.of)? {
            Claim::Ours(anchor) => Ok(Some(anchor.to_string())),
            Claim::Others(why) => {
                *lock(&self.is_taken) = true;
                Err(why)
            }
        }
    }

    fn conclusion(&self, conclusion: &Conclusion) -> Result<(), String> {
        self.log.conclusion(conclusion)
    }
}

/// The journal as it is followed, and what was wrong with it at the last look.
pub struct Heard {
    follow: Arc<Mutex<Follow>>,
    trouble: Option<String>,
}

impl Heard {
    /// Nothing yet.
    pub fn new(journal: &Path, store: &str) -> Self {
        Self { follow: Arc::new(Mutex::new(Follow::new(journal, store))), trouble: None }
    }
}

/// Everything that a timer needs to be kept.
pub struct Timekeeper {
    /// Where the flags are.
    pub store: Arc<dyn Store>,
    /// Where flips are written down.
    pub log: Arc<dyn TimerLog>,
    /// The timers.
    pub timers: Arc<Mutex<Timers>>,
    /// Flips that have no answer yet.
    pub unsettled: Arc<Mutex<Vec<Unsettled>>>,
    /// Where it is said what timers have done.
    pub notices: mpsc::Sender<Notice>,
}

impl Timekeeper {
    /// Takes up what the journal says that earlier runs and other processes have left, and goes on until it
    /// is dropped.
    pub fn start(self, journal: &Path) -> AbortOnDropHandle<()> {
        let mut heard = Heard::new(journal, self.store.name());
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut second = interval(EVERY);
            second.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                second.tick().await;
                self.listen(&mut heard).await;
                self.tick(Utc::now()).await;
            }
        }))
    }

    /// Takes up what has come into the journal since the last look. What is wrong with it is said once.
    pub async fn listen(&self, heard: &mut Heard) {
        let follow = Arc::clone(&heard.follow);
        let looked = on_disk(move || lock(&follow).look().map_err(|error| error.to_string())).await;
        match looked {
            Ok(found) => {
                heard.trouble = None;
                if let Some(open) = found {
                    lock(&self.timers).take_up(open);
                }
            }
            Err(why) if heard.trouble.as_ref() == Some(&why) => {}
            Err(why) => {
                let text = format!("timers of others are not known: {why}");
                heard.trouble = Some(why);
                self.say(Utc::now(), text).await;
            }
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
        let of = timed.id.clone();
        let is_taken = Mutex::new(false);
        let claiming = Arc::new(Claiming { log: Arc::clone(&self.log), of, is_taken });
        let log = Arc::clone(&claiming) as Arc<dyn FlipLog>;
        let report = carry_out(flip, Arc::clone(&self.store), log).await;
        if *lock(&claiming.is_taken) {
            // What became of it is in the journal, or will be.
            return lock(&self.timers).on_taken(now);
        }
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

    use std::path::PathBuf;

    use super::*;
    use crate::flag::{
        self, Capabilities, CompareAndSet, FlagEvent, FlagTable, Outcome, Plan, Revision,
        StoreError, Terms, fixture,
    };
    use crate::incident::{self, Event, Journal};

    impl TimerLog for Journal {
        fn claim(&self, intent: &Intent, of: &str) -> Result<Claim, String> {
            let event = Event::timer(intent, of);
            incident::claim(self, &event, Utc::now()).map_err(|error| error.to_string())
        }
    }

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
                restores: true,
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
            let log = Arc::clone(&self.keeper.log) as Arc<dyn FlipLog>;
            let report = carry_out(flip, store, log).await;
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
        stage.keeper.listen(&mut Heard::new(&stage.journal, "simple")).await;
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

    /// Another dashboard on the same store and journal.
    fn second(stage: &Stage) -> (Timekeeper, Heard, mpsc::Receiver<Notice>) {
        let (sender, notices) = mpsc::channel(8);
        let keeper = keeper(&stage.store, &stage.journal, sender);
        (keeper, Heard::new(&stage.journal, "simple"), notices)
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_dashboard_hears_of_what_another_process_flips() {
        let stage = Stage::new();
        let (other, mut heard, mut said) = second(&stage);
        other.listen(&mut heard).await;
        assert!(lock(&other.timers).is_empty());
        stage.flip("retry.max_attempts=3").await;
        other.listen(&mut heard).await;
        let reverts = |table: &FlagTable| lock(&other.timers).of(table.get(KEY).expect("a flag"));
        let table = stage.store.list().await.expect("there");
        assert!(matches!(reverts(&table), Some((_, crate::flag::OnExpire::Revert))));
        // The one that flipped has ended: the other leads it back.
        other.tick(later(901)).await;
        assert_eq!(stage.store.stored(), "2");
        let words = "timer of t by alice: back retry.max_attempts to 2";
        assert_eq!(said.try_recv().expect("said").text, words);
        // A person's undo in another process is heard of as well: nothing is left to lead back.
        stage.flip("retry.max_attempts=3").await;
        stage.flip("retry.max_attempts=2").await;
        other.listen(&mut heard).await;
        other.tick(later(1_802)).await;
        assert_eq!(stage.store.stored(), "2");
        assert_eq!(said.try_recv().map(|notice| notice.text), Ok(still_two()));
    }

    /// The reminder of the flip to the base value.
    fn still_two() -> String {
        "timer of t by alice: still retry.max_attempts = 2".to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_dashboards_one_leads_a_flip_back_and_the_other_leaves_it_alone() {
        let mut stage = Stage::new();
        let (other, mut heard, mut said) = second(&stage);
        stage.flip("retry.max_attempts=3").await;
        other.listen(&mut heard).await;
        // Both have seen that it is due, and neither has heard of the other.
        let late = later(901);
        futures_util::future::join(stage.keeper.tick(late), other.tick(late)).await;
        assert_eq!(stage.store.stored(), "2");
        assert_eq!(lock(&stage.store.table).revision, Revision(before() + 2), "one flip, one back");
        let words = [stage.said(), said.try_recv().ok().map(|notice| notice.text)];
        assert_eq!(words.iter().flatten().count(), 1, "one of them says so: {words:?}");
        let journal = std::fs::read_to_string(&stage.journal).expect("written");
        assert_eq!(journal.matches("\"timer_of\"").count(), 1, "{journal}");
        // Whoever was late hears of it, and has nothing left to do.
        other.listen(&mut heard).await;
        stage.keeper.tick(later(960)).await;
        other.tick(later(960)).await;
        assert_eq!(lock(&stage.store.table).revision, Revision(before() + 2));
        assert_eq!((stage.said(), said.try_recv().ok()), (None, None));
        incident::verify(&stage.journal).expect("whole");
    }

    /// The revision of a table that nobody has changed.
    fn before() -> u64 {
        fixture::table(&[]).revision.0
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_of_one_that_has_crashed_ends_after_two_minutes() {
        let stage = Stage::new();
        let (other, mut heard, _said) = second(&stage);
        stage.flip("retry.max_attempts=3").await;
        // The first one claims it, and is gone before it sends.
        let timed = lock(&stage.keeper.timers).due(later(901)).cloned().expect("due");
        let table = stage.store.list().await.expect("there");
        let due = timed.act(&table, &Evidence::default(), "id back".to_owned());
        let Due::Revert(plan) = due else { panic!("it reverts: {due:?}") };
        let author = Author { actor: TIMER.to_owned(), incident: None, anchor: None };
        let flip = Flip::new(plan, &table, author, &[]).expect("allowed");
        let flag::Step::WriteIntent(intent) = flip.next() else { panic!("an intent comes first") };
        let intent = Intent { store: Some("simple".to_owned()), ..intent.clone() };
        let claim = |seconds| {
            let (journal, _) = Journal::open(&stage.journal).expect("a journal");
            let event = Event::timer(&intent, &timed.id);
            incident::claim(&journal, &event, later(seconds)).expect("the disk is there")
        };
        assert!(matches!(claim(901), Claim::Ours(_)));
        assert_eq!(claim(902), Claim::Others("another weir is leading it back".to_owned()));
        other.listen(&mut heard).await;
        assert!(!lock(&other.timers).is_empty(), "nobody knows that it was done");
        other.tick(later(903)).await;
        assert_eq!(stage.store.stored(), "3", "it may still come");
        assert!(matches!(claim(901 + incident::CLAIM_S + 1), Claim::Ours(_)), "it did not");
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
