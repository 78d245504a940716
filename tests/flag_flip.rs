//! Carries flips out against a store that loses answers, under virtual time.
//!
//! Goal: nothing is sent before the intent is written, nothing is sent twice, and a lost answer
//! ends in what the table really says. The store here is a model in memory; the admin API's client
//! is tested in `flag_admin.rs`.

mod flag_table;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use weir::admission::Settings;
use weir::flag::{
    self, Author, Capabilities, CompareAndSet, Conclusion, Effective, Evidence, FlagEvent,
    FlagTable, Flip, FlipEnd, FlipError, FlipLog, FlipReport, Intent, Outcome, Plan, REREADS_MAX,
    Revision, Store, StoreError, Terms,
};

/// What the store does with the next change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Answer,
    /// Stored, but the answer is lost.
    LoseAnswer,
    /// Not stored, and no answer.
    LoseRequest,
    /// No answer; stored once the table has been read this many times.
    Ghost(u32),
    Refuse,
}

struct Lossy {
    table: Mutex<FlagTable>,
    fate: Fate,
    ghost: Mutex<Option<(u32, Plan)>>,
    failing_reads: Mutex<u32>,
    trace: Trace,
}

type Trace = Arc<Mutex<Vec<&'static str>>>;

fn note(trace: &Trace, what: &'static str) {
    trace.lock().expect("no test panics while holding it").push(what);
}

fn table() -> FlagTable {
    flag_table::table(&Settings::default())
}

fn store_into(table: &mut FlagTable, plan: &Plan, by: &str) {
    table.revision.0 += 1;
    for change in &plan.changes {
        let flag = table.flags.iter_mut().find(|flag| flag.key == change.key).expect("known");
        flag.overridden = (!change.drops_override).then(|| change.to.clone());
        flag.effective.insert("gw-1".to_owned(), change.to.clone());
        flag.revision = table.revision;
        flag.by = Some(by.to_owned());
    }
}

impl Store for Lossy {
    fn name(&self) -> &'static str {
        "model"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            compare_and_set: CompareAndSet::Atomic,
            all_or_none: true,
            timer: false,
            restores: true,
            audit: false,
            effective: true,
            comment: true,
        }
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        note(&self.trace, "read");
        let mut failing = self.failing_reads.lock().expect("unpoisoned");
        if *failing > 0 {
            *failing -= 1;
            let error = StoreError::Unreachable { store: "model".into(), why: "down".into() };
            return Box::pin(async { Err(error) });
        }
        let mut table = self.table.lock().expect("unpoisoned");
        let mut ghost = self.ghost.lock().expect("unpoisoned");
        let lands = ghost.as_mut().is_some_and(|(reads, _)| {
            *reads = reads.saturating_sub(1);
            *reads == 0
        });
        if lands && let Some((_, plan)) = ghost.take() {
            store_into(&mut table, &plan, "alice");
        }
        let read = table.clone();
        Box::pin(async { Ok(read) })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome> {
        note(&self.trace, "send");
        assert_eq!(author.anchor.as_deref(), Some(ANCHOR), "the store is asked to keep it");
        let mut table = self.table.lock().expect("unpoisoned");
        if table.revision != plan.revision {
            let current = table.clone();
            return Box::pin(async { Outcome::Conflict { current } });
        }
        let lost = Outcome::Unknown { why: "timed out".to_owned() };
        let outcome = match self.fate {
            Fate::Answer => {
                store_into(&mut table, plan, &author.actor);
                Outcome::applied(table.revision)
            }
            Fate::LoseAnswer => {
                store_into(&mut table, plan, &author.actor);
                lost
            }
            Fate::LoseRequest => lost,
            Fate::Ghost(reads) => {
                *self.ghost.lock().expect("unpoisoned") = Some((reads, plan.clone()));
                lost
            }
            Fate::Refuse => Outcome::Refused { why: "interlock".to_owned() },
        };
        Box::pin(async { outcome })
    }

    fn events(&self, _since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// A log that keeps the order, and a script of failures.
struct Log {
    trace: Trace,
    failures: Mutex<VecDeque<&'static str>>,
    ends: Mutex<Vec<FlipEnd>>,
}

impl FlipLog for Log {
    fn intent(&self, intent: &Intent) -> Result<Option<String>, String> {
        assert_eq!(intent.changes.len(), 1);
        note(&self.trace, "intent");
        self.written("intent").map(|()| Some(ANCHOR.to_owned()))
    }

    fn conclusion(&self, conclusion: &Conclusion) -> Result<(), String> {
        note(&self.trace, "conclusion");
        self.ends.lock().expect("unpoisoned").push(conclusion.end.clone());
        self.written("conclusion")
    }
}

/// Where the log says that it stands.
const ANCHOR: &str = "journal:1:hash";

impl Log {
    fn written(&self, what: &str) -> Result<(), String> {
        let mut failures = self.failures.lock().expect("unpoisoned");
        if failures.front() == Some(&what) {
            failures.pop_front();
            return Err("disk full".to_owned());
        }
        Ok(())
    }
}

fn plan(word: &str) -> Plan {
    let terms =
        Terms { reason: Some("a test".to_owned()), ttl_s: None, request_id: "id-1".to_owned() };
    let changes = flag::wanted(&[word]).expect("a test names real flags");
    flag::plan("t", &table(), &changes, &Evidence::default(), terms).expect("a plan")
}

fn alice() -> Author {
    Author { actor: "alice".to_owned(), incident: None, anchor: None }
}

struct Case {
    fate: Fate,
    table: FlagTable,
    failing_reads: u32,
    failures: &'static [&'static str],
}

impl Default for Case {
    fn default() -> Self {
        Self { fate: Fate::Answer, table: table(), failing_reads: 0, failures: &[] }
    }
}

async fn run(case: Case) -> (FlipReport, Vec<&'static str>) {
    let trace = Trace::default();
    let store = Arc::new(Lossy {
        table: Mutex::new(case.table),
        fate: case.fate,
        ghost: Mutex::new(None),
        failing_reads: Mutex::new(case.failing_reads),
        trace: Arc::clone(&trace),
    });
    let log = Arc::new(Log {
        trace: Arc::clone(&trace),
        failures: Mutex::new(case.failures.iter().copied().collect()),
        ends: Mutex::default(),
    });
    let flip = Flip::new(plan("retry.max_attempts=1"), &table(), alice(), &[]).expect("allowed");
    let report = flag::carry_out(flip, store, Arc::clone(&log) as Arc<dyn FlipLog>).await;
    let trace = trace.lock().expect("unpoisoned").clone();
    let sent = trace.iter().filter(|what| **what == "send").count();
    assert!(sent <= 1, "sent {sent} times: {trace:?}");
    if sent == 1 {
        let ends = log.ends.lock().expect("unpoisoned");
        assert_eq!(
            *ends,
            std::slice::from_ref(&report.end),
            "every flip that was sent has one conclusion"
        );
    }
    (report, trace)
}

#[tokio::test(start_paused = true)]
async fn the_intent_comes_first_and_the_read_back_last() {
    let (report, trace) = run(Case::default()).await;
    assert_eq!(trace, ["intent", "send", "read", "conclusion"]);
    let effective = Some(Effective { on: 1, of: 1 });
    assert_eq!(report.end, FlipEnd::Applied { revision: Revision(42), effective, beside: None });
}

#[tokio::test(start_paused = true)]
async fn without_a_journal_nothing_is_sent() {
    let (report, trace) = run(Case { failures: &["intent"], ..Case::default() }).await;
    assert_eq!(trace, ["intent"]);
    assert_eq!(report.end, FlipEnd::NotSent { why: "disk full".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn a_conclusion_that_cannot_be_written_is_said() {
    let (report, _) = run(Case { failures: &["conclusion"], ..Case::default() }).await;
    assert_eq!(report.log_error.as_deref(), Some("disk full"));
    assert_eq!(report.end.word(), "applied");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_in_the_stores_words() {
    let (report, trace) = run(Case { fate: Fate::Refuse, ..Case::default() }).await;
    assert_eq!(report.end, FlipEnd::Refused { why: "interlock".to_owned() });
    assert_eq!(trace, ["intent", "send", "conclusion"]);
}

#[tokio::test(start_paused = true)]
async fn the_slower_of_two_operators_sees_who_was_faster() {
    let mut moved = table();
    store_into(&mut moved, &plan("retry.max_attempts=3"), "bob");
    let (report, _) = run(Case { table: moved, ..Case::default() }).await;
    let moved = ["retry.max_attempts: 2 -> 3, by bob at revision 42"];
    assert_eq!(
        report.end,
        FlipEnd::Conflict {
            by: "bob".to_owned(),
            revision: Revision(42),
            moved: moved.map(str::to_owned).to_vec(),
        }
    );
    assert_eq!(report.table.map(|table| table.revision), Some(Revision(42)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_up_and_never_sent_again() {
    for (fate, expected) in [
        (Fate::LoseAnswer, "applied"),
        // This store keeps no history: what is not there may still come.
        (Fate::LoseRequest, "unsettled"),
        // It lands at the second read: the two reads differ, so a third and a fourth decide.
        (Fate::Ghost(2), "applied"),
    ] {
        let (report, trace) = run(Case { fate, ..Case::default() }).await;
        assert_eq!(report.end.word(), expected, "{fate:?}: {trace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_settles_the_flip() {
    let case = Case { fate: Fate::LoseAnswer, failing_reads: 10, ..Case::default() };
    let (report, trace) = run(case).await;
    assert_eq!(report.end.word(), "applied");
    assert_eq!(trace.iter().filter(|what| **what == "read").count(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_leaves_it_unsettled_and_the_opposite_blocked() {
    let case = Case { fate: Fate::LoseAnswer, failing_reads: u32::MAX, ..Case::default() };
    let (report, trace) = run(case).await;
    let reads = trace.iter().filter(|what| **what == "read").count();
    assert_eq!(reads, REREADS_MAX as usize);
    let FlipEnd::Unsettled(unsettled) = report.end else { panic!("{:?}", report.end) };
    let earlier = std::slice::from_ref(&unsettled);
    let opposite = Flip::new(plan("retry.max_attempts=3"), &table(), alice(), earlier);
    let refusal = opposite.expect_err("blocked").to_string();
    assert!(refusal.contains("retry.max_attempts"), "{refusal}");
    assert!(Flip::new(plan("queue.max_age_s=5"), &table(), alice(), earlier).is_ok());
}

#[test]
fn a_flip_needs_a_reason_a_name_and_the_table_that_was_shown() {
    let check = |change: fn(&mut Plan, &mut Author, &mut FlagTable), expected: &str| {
        let (mut plan, mut author, mut table) = (plan("retry.max_attempts=1"), alice(), table());
        change(&mut plan, &mut author, &mut table);
        let error = Flip::new(plan, &table, author, &[]).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(|plan, _, _| plan.reason = "  ".to_owned(), "needs a reason");
    check(|_, author, _| author.actor.clear(), "needs a name");
    check(|_, _, table| table.revision = Revision(42), "made for revision 41");
}

#[test]
fn a_refused_plan_cannot_be_carried_out() {
    let plan = plan("admission.mode=off");
    let error = Flip::new(plan, &table(), alice(), &[]).expect_err("nothing is known");
    assert!(matches!(error, FlipError::Guard { .. }), "{error}");
}
