//! One person at a weir: the real [`Flip`], a journal in memory, and a process that can die.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use weir::flag::{
    self, Author, Capabilities, Evidence, FlagEvent, FlagTable, Flip, FlipEnd, Outcome, Past, Plan,
    Settled, Step, Store, StoreError, Terms, Unsettled, apply_body,
};
use weir::incident::{Event, Journal, reconcile};

use crate::plant::Plant;
use crate::world::{Request, World, scopes};

/// What the network does with a request.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    Answer,
    /// Stored, and nobody learns it.
    LoseAnswer,
    /// Never arrives.
    LoseRequest,
    /// Arrives later.
    Delay,
    /// Arrives now, and once more later.
    Double,
}

/// What a person wants.
#[derive(Clone, Debug)]
pub enum Want {
    Change(&'static [&'static str]),
    Contain,
    Safe,
    Undo,
}

#[derive(Default)]
pub struct Operator {
    name: &'static str,
    shown: Option<FlagTable>,
    flip: Option<(Flip, Plan)>,
    /// Intents and outcomes, as the journal has them.
    journal: Vec<Event>,
    /// Flips without an answer that this run of weir knows of.
    unsettled: Vec<(String, Unsettled)>,
    /// Flips of the journal that the last start could not settle, and shows.
    open: Vec<String>,
    /// Flips that were settled on the screen and not in the journal.
    settled: Vec<String>,
    flips: u64,
    is_down: bool,
}

/// What is read after a crash: the table and the history of one moment.
struct Moment {
    table: FlagTable,
    events: Vec<FlagEvent>,
}

impl Store for Moment {
    fn name(&self) -> &'static str {
        "model"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::FULL
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        Box::pin(async { Ok(self.table.clone()) })
    }

    fn apply<'a>(&'a self, _: &'a Plan, _: &'a Author) -> BoxFuture<'a, Outcome> {
        panic!("looking up after a crash changes nothing")
    }

    fn events(&self, _: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        Box::pin(async { Ok(self.events.clone()) })
    }
}

impl Operator {
    pub fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// Reads the table; lost answers are looked up in the history.
    pub fn refresh(&mut self, world: &mut World, good: bool) -> TestCaseResult {
        if self.is_down {
            return Ok(());
        }
        if !good {
            self.unsettled.iter_mut().for_each(|(_, unsettled)| unsettled.on_failed_read());
            return Ok(());
        }
        let table = world.read();
        let events = if self.unsettled.is_empty() { Vec::new() } else { world.told() };
        for (id, mut unsettled) in std::mem::take(&mut self.unsettled) {
            let past = Past::Told { events: &events, is_fenced: true };
            let Some(settled) = unsettled.on_read(&table, past) else {
                prop_assert!(!world.stored.contains(&id), "{} has landed, and nobody is told", id);
                self.unsettled.push((id, unsettled));
                continue;
            };
            world.seen.told_late += 1;
            is_so(&id, &settled, world)?;
            self.settled.push(id);
            self.journal.push(weir::incident::settled(&unsettled, &settled));
        }
        self.shown = Some(table);
        Ok(())
    }

    /// Plans from the table that is shown. `hopes` plans as if all were calm, whatever is so.
    pub fn begin(&mut self, world: &World, want: &Want, hopes: bool) {
        let Some(table) = self.shown.clone().filter(|_| !self.is_down && self.flip.is_none())
        else {
            return;
        };
        self.flips += 1;
        let request_id = format!("{}-{}", self.name, self.flips);
        let scopes = scopes(world.calm || hopes);
        let now = if hopes { None } else { Some(world.now) };
        let evidence = Evidence { scopes: &scopes, verdict: None, now };
        let terms = Terms { reason: Some("a try".to_owned()), ttl_s: None, request_id };
        let plan = match want {
            Want::Change(words) => {
                let changes = flag::wanted(words).expect("real flags");
                flag::plan("change", &table, &changes, &evidence, terms)
            }
            Want::Contain => flag::named("contain", &table, &evidence, terms),
            Want::Safe => flag::all_safe(&table, &evidence, terms),
            Want::Undo => {
                let events = world.events();
                let Some(event) = flag::newest_in_force(&events) else { return };
                flag::undo(event, &table, &evidence, terms)
            }
        };
        let Ok(mut plan) = plan else { return };
        if hopes {
            // A tool that checks nothing: the service has to.
            plan.guards.clear();
        }
        let author = Author { actor: self.name.to_owned(), incident: None, anchor: None };
        let unsettled: Vec<_> = self.unsettled.iter().map(|(_, open)| open.clone()).collect();
        if let Ok(flip) = Flip::new(plan.clone(), &table, author, &unsettled) {
            self.flip = Some((flip, plan));
        }
    }

    /// Does the next thing that the flip asks for.
    pub fn step(&mut self, world: &mut World, fate: Fate, good: bool) -> TestCaseResult {
        let Some((flip, plan)) = &mut self.flip else { return Ok(()) };
        match flip.next() {
            Step::WriteIntent(intent) => {
                let is_skipped =
                    world.plant == Some(Plant::JournalSkipsLine) && self.flips.is_multiple_of(3);
                if good && !is_skipped {
                    let seen = intent.changes.iter();
                    let seen: BTreeMap<_, _> =
                        seen.map(|change| (change.key.clone(), change.from.clone())).collect();
                    world.intents.insert(intent.request_id.clone(), seen);
                    self.journal.push(intent.into());
                }
                let written = if good { Ok(None) } else { Err("disk full".to_owned()) };
                flip.on_intent_written(written);
            }
            Step::Send(plan, author) => {
                let body = apply_body(plan, author);
                let request = Request { body, seen: plan.revision, glass: false };
                world.sent(&request)?;
                let lost = Outcome::Unknown { why: "timed out".to_owned() };
                world.seen.lost += u64::from(!matches!(fate, Fate::Answer | Fate::Double));
                let outcome = match fate {
                    Fate::Answer => world.deliver(&request)?,
                    Fate::LoseAnswer => {
                        world.deliver(&request)?;
                        lost
                    }
                    Fate::LoseRequest => lost,
                    Fate::Delay => {
                        world.ghosts.push(request.clone());
                        lost
                    }
                    Fate::Double => {
                        world.ghosts.push(request.clone());
                        world.deliver(&request)?
                    }
                };
                let is_lost = matches!(outcome, Outcome::Unknown { .. });
                flip.on_outcome(outcome);
                if is_lost && world.plant == Some(Plant::SendsAgain) {
                    world.sent(&request)?;
                    world.deliver(&request)?;
                }
                tells_no_lies(flip, world)?;
            }
            Step::Read { .. } => {
                let why = "down".to_owned();
                let down = StoreError::Unreachable { store: "model".to_owned(), why };
                flip.on_table(if good { Ok(world.read()) } else { Err(down) });
                tells_no_lies(flip, world)?;
            }
            Step::LookUp { .. } => {
                let events = world.told();
                let past = Past::Told { events: &events, is_fenced: true };
                let why = "down".to_owned();
                let down = StoreError::Unreachable { store: "model".to_owned(), why };
                flip.on_look(if good { Ok(world.read()) } else { Err(down) }, past);
                tells_no_lies(flip, world)?;
            }
            Step::WriteConclusion(conclusion) => {
                if good {
                    self.journal.push(conclusion.into());
                }
                let written = if good { Ok(()) } else { Err("disk full".to_owned()) };
                flip.on_conclusion_written(written);
            }
            Step::Done(end) => {
                let is_stored = world.stored.contains(&plan.request_id);
                match end {
                    FlipEnd::Refused { .. }
                    | FlipEnd::Conflict { .. }
                    | FlipEnd::NotSent { .. } => {
                        prop_assert!(!is_stored, "{} and stored all the same", end.word());
                    }
                    FlipEnd::Unsettled(unsettled) => {
                        let id = plan.request_id.clone();
                        match world.plant {
                            Some(Plant::DropsUnknown) => {}
                            Some(Plant::DeniesByValues) => {
                                let not_stored = Settled::NotStored { why: "by values".to_owned() };
                                self.journal.push(weir::incident::settled(unsettled, &not_stored));
                                world.denied.insert(id);
                            }
                            _ => self.unsettled.push((id, unsettled.clone())),
                        }
                        self.flip = None;
                        return Ok(());
                    }
                    _ => {}
                }
                self.settled.push(plan.request_id.clone());
                self.flip = None;
            }
        }
        Ok(())
    }

    /// The process dies; only the journal is left.
    pub fn crash(&mut self, world: &mut World) {
        if !self.is_down {
            world.seen.crashes += 1;
            let journal = std::mem::take(&mut self.journal);
            let (name, flips) = (self.name, self.flips);
            *self = Self { name, flips, journal, is_down: true, ..Self::default() };
        }
    }

    /// It is started again: what the journal leaves open is looked up with the tool's own code.
    pub fn restart(&mut self, world: &mut World) -> TestCaseResult {
        if !self.is_down {
            return Ok(());
        }
        self.is_down = false;
        let open = self.open_flips();
        if open.is_empty() {
            return Ok(());
        }
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("journal.jsonl");
        let (journal, _) = Journal::open(&path).expect("a new file");
        let moment = Moment { table: world.read(), events: world.told() };
        let before = open.clone();
        let left = reconcile(&journal, open, &moment);
        let left = left.now_or_never().expect("nothing to wait for").expect("it is readable");
        for flip in before.iter().filter(|flip| !left.contains(flip)) {
            let (id, revision) = named(flip);
            let is_stored = world.stored.contains(id);
            let text = std::fs::read_to_string(&path).expect("it was written");
            let line = text.lines().find(|line| line.contains(&format!("\"{id}\"")));
            let line = line.expect("settled is written down");
            let is_applied =
                ["applied", "overwritten"].iter().any(|end| line.contains(&format!("\"{end}\"")));
            prop_assert_eq!(is_applied, is_stored, "{} was looked up wrongly", id);
            // Final: a late one names a revision that has passed.
            prop_assert!(is_stored || revision < world.revision().0);
            world.seen.reconciled += 1;
            self.journal.push(Event::Outcome {
                request_id: id.to_owned(),
                plan: String::new(),
                end: if is_applied { "applied" } else { "not-stored" }.to_owned(),
                say: String::new(),
            });
        }
        self.open = left.iter().map(|flip| named(flip).0.to_owned()).collect();
        Ok(())
    }

    fn open_flips(&self) -> Vec<Event> {
        let is_over = |id: &str| {
            self.journal.iter().any(|event| {
                matches!(event, Event::Outcome { request_id, end, .. }
                    if request_id == id && end != "unsettled")
            })
        };
        let flips = self.journal.iter().filter(|event| matches!(event, Event::Flip { .. }));
        flips.filter(|flip| !is_over(named(flip).0)).cloned().collect()
    }

    /// Whether a request of the journal is settled in it, settled where the journal could not be written,
    /// or shown as open.
    pub fn accounts_for(&self) -> TestCaseResult {
        for flip in self.open_flips() {
            let id = named(&flip).0;
            let is_shown = self.open.iter().any(|open| open == id)
                || self.unsettled.iter().any(|(open, _)| open == id)
                || self.settled.iter().any(|settled| settled == id);
            prop_assert!(is_shown, "{} was begun, and nobody knows what became of it", id);
        }
        Ok(())
    }

    /// Runs the flip to its end, with a store that answers again.
    pub fn finish(&mut self, world: &mut World) -> TestCaseResult {
        self.restart(world)?;
        for _ in 0..flag::REREADS_MAX + 8 {
            self.step(world, Fate::Answer, true)?;
        }
        prop_assert!(self.flip.is_none(), "a flip that never ends");
        self.refresh(world, true)?;
        self.refresh(world, true)?;
        let is_quiet = self.unsettled.iter().all(|(_, open)| open.is_quiet());
        prop_assert!(is_quiet, "two equal reads let everybody go on");
        Ok(())
    }
}

/// What is said of a flip that got no answer is so, now and for ever.
fn is_so(id: &str, settled: &Settled, world: &mut World) -> TestCaseResult {
    let is_stored = world.stored.contains(id);
    match settled {
        Settled::Stored { .. } => prop_assert!(is_stored, "{} is said to have landed", id),
        Settled::Overwritten { landed, revision, .. } => {
            prop_assert!(is_stored, "{} is said to have landed", id);
            prop_assert!(landed < revision);
            world.seen.told_overwritten += 1;
        }
        Settled::NotStored { .. } => {
            prop_assert!(!is_stored, "{} is stored, and is said not to be", id);
            world.denied.insert(id.to_owned());
        }
        Settled::Partly(_) => prop_assert!(false, "the store stores all or nothing"),
    }
    Ok(())
}

/// How a flip has just ended is how it is; that it was not stored holds for ever.
fn tells_no_lies(flip: &Flip, world: &mut World) -> TestCaseResult {
    let Step::WriteConclusion(conclusion) = flip.next() else { return Ok(()) };
    let id = &conclusion.request_id;
    let is_stored = world.stored.contains(id);
    match conclusion.end {
        FlipEnd::NotStored { .. } => {
            prop_assert!(!is_stored, "{} is stored, and is said not to be", id);
            world.denied.insert(id.clone());
        }
        FlipEnd::Applied { .. } | FlipEnd::Overwritten { .. } => {
            prop_assert!(is_stored, "{} is said to be stored, and is not", id);
        }
        _ => {}
    }
    Ok(())
}

fn named(flip: &Event) -> (&str, u64) {
    match flip {
        Event::Flip { request_id, revision, .. } => (request_id, *revision),
        other => panic!("not a flip: {other:?}"),
    }
}
