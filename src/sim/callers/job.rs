//! A job: items that workers take from a list, run after run, until each is done or given up.
//!
//! A closed loop: a worker takes its next item when its last has ended, so a slow answer slows the job.
//! A queue with a visibility timeout hands an item out again while its first worker still has it. Every
//! item of every run is accounted for: waiting, in work, done or given up. Keeps no time of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Deserialize;
use smallvec::SmallVec;

use crate::sim::config::{ConfigError, within};

/// Most items of one run.
const ITEMS_MAX: f64 = 1_000_000.0;
/// Most workers of one job.
const WORKERS_MAX: f64 = 10_000.0;
/// Most runs that wait or work at the same time; a further one is skipped, and counted.
const RUNS_OPEN_MAX: usize = 16;
const SPAN_S_MAX: f64 = 86_400.0;

/// A job of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobConfig {
    /// Items of one run.
    pub items: u32,
    /// Seconds after the start when the first run begins.
    #[serde(default)]
    pub at_s: f64,
    /// Seconds from one run to the next; absent means one run.
    pub every_s: Option<f64>,
    /// Items in work at the same time.
    #[serde(default = "one")]
    pub workers: u32,
    /// Seconds after the start when somebody begins a further run by hand.
    #[serde(default)]
    pub by_hand_at_s: Vec<f64>,
    /// How often an item that failed is put back.
    #[serde(default)]
    pub requeues: u32,
    /// Seconds that it waits then.
    #[serde(default)]
    pub requeue_after_s: f64,
    /// Seconds after which the queue hands out an item again that is still in work; absent means never.
    pub redeliver_s: Option<f64>,
}

const fn one() -> u32 {
    1
}

impl JobConfig {
    /// When its runs begin, up to an instant: those of the schedule and those by hand, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = f64> + use<'_> {
        let mut by_hand = self.by_hand_at_s.clone();
        by_hand.sort_by(f64::total_cmp);
        let (mut by_hand, mut next_s) = (by_hand.into_iter().peekable(), Some(self.at_s));
        std::iter::from_fn(move || {
            let scheduled_s = next_s.unwrap_or(f64::INFINITY);
            if let Some(at_s) = by_hand.next_if(|at_s| *at_s < scheduled_s) {
                return Some(at_s);
            }
            next_s = next_s.and(self.every_s).map(|every_s| scheduled_s + every_s);
            scheduled_s.is_finite().then_some(scheduled_s)
        })
    }

    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let span = "seconds from 0 to 86400";
        within("job.items", f64::from(self.items), 1.0, ITEMS_MAX, "1 to 1000000 items")?;
        within("job.workers", f64::from(self.workers), 1.0, WORKERS_MAX, "1 to 10000 workers")?;
        within("job.requeues", f64::from(self.requeues), 0.0, 1_000.0, "0 to 1000 times")?;
        within("job.at_s", self.at_s, 0.0, SPAN_S_MAX, span)?;
        for (index, at_s) in self.by_hand_at_s.iter().enumerate() {
            within(&format!("job.by_hand_at_s[{index}]"), *at_s, 0.0, SPAN_S_MAX, span)?;
        }
        within("job.requeue_after_s", self.requeue_after_s, 0.0, SPAN_S_MAX, span)?;
        for (key, seconds) in [("every_s", self.every_s), ("redeliver_s", self.redeliver_s)] {
            let seconds = seconds.unwrap_or(1.0);
            within(&format!("job.{key}"), seconds, 0.1, SPAN_S_MAX, "seconds from 0.1 to 86400")?;
        }
        Ok(())
    }
}

/// An item of one run, as it is handed to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// Which run, from 0.
    pub run: u32,
    /// Which item of it, from 0.
    pub number: u32,
}

/// An item in a worker's hands. One that is handed out again is another delivery of the same item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The item.
    pub item: Item,
    /// How often it had been handed out before.
    number: u32,
}

/// What became of the items so far, all runs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemCounts {
    /// Items of the runs that have begun.
    pub listed: u64,
    /// Handed to a worker, repeats included.
    pub begun: u64,
    /// Of those, items whose number a worker had already, of this run or of another that is open.
    pub duplicates: u64,
    /// Done.
    pub done: u64,
    /// Given up.
    pub given_up: u64,
    /// Runs that were not begun because too many were open.
    pub skipped_runs: u64,
}

/// What to do after an item has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing more.
    Nothing,
    /// Call [`Job::put_back`] once the wait before a repeat is over.
    PutBack,
}

#[derive(Clone, Debug, Default)]
struct InWork {
    /// Deliveries that are in a worker's hands now, by number.
    held: SmallVec<[u32; 2]>,
    /// How often it has been handed out.
    deliveries: u32,
    /// How often it has failed.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    New,
    Again,
}

/// The list of a job.
///
/// [`Self::begin_run`], then [`Self::take`] for every idle worker, [`Self::finish`] when it has ended,
/// [`Self::redeliver`] when the queue loses patience.
#[derive(Clone, Debug)]
pub struct Job {
    items: u32,
    requeues: u32,
    runs: u32,
    /// What is handed out next. What was handed out before may have been closed meanwhile.
    waiting: VecDeque<(Item, Standing)>,
    /// Items that are in work or about to be put back.
    open: BTreeMap<Item, InWork>,
    /// Open items of each run that is not over.
    left: BTreeMap<u32, u32>,
    /// Numbers that some worker had since the last moment at which no run was open.
    seen: BTreeSet<u32>,
    counts: ItemCounts,
}

impl Job {
    /// A job without a run.
    #[must_use]
    pub const fn new(config: &JobConfig) -> Self {
        Self {
            items: config.items,
            requeues: config.requeues,
            runs: 0,
            waiting: VecDeque::new(),
            open: BTreeMap::new(),
            left: BTreeMap::new(),
            seen: BTreeSet::new(),
            counts: ItemCounts {
                listed: 0,
                begun: 0,
                duplicates: 0,
                done: 0,
                given_up: 0,
                skipped_runs: 0,
            },
        }
    }

    /// Lists the items of a further run.
    pub fn begin_run(&mut self) {
        if self.left.len() >= RUNS_OPEN_MAX {
            self.counts.skipped_runs += 1;
            return;
        }
        let run = self.runs;
        self.runs += 1;
        self.left.insert(run, self.items);
        self.counts.listed += u64::from(self.items);
        let new = |number| (Item { run, number }, Standing::New);
        self.waiting.extend((0..self.items).map(new));
    }

    /// The next item for an idle worker.
    pub fn take(&mut self) -> Option<Delivery> {
        let item = loop {
            let (item, standing) = self.waiting.pop_front()?;
            if standing == Standing::New || self.open.contains_key(&item) {
                break item;
            }
        };
        self.counts.begun += 1;
        let in_work = self.open.entry(item).or_default();
        let number = in_work.deliveries;
        in_work.deliveries += 1;
        in_work.held.push(number);
        // A repeat after a failure is the first worker's own; it is no second delivery.
        let is_known = !self.seen.insert(item.number) && in_work.failures == 0;
        self.counts.duplicates += u64::from(is_known || in_work.held.len() > 1);
        Some(Delivery { item, number })
    }

    /// A worker is through with an item.
    pub fn finish(&mut self, delivery: Delivery, is_done: bool) -> After {
        let item = delivery.item;
        // Another worker had the same item and was quicker.
        let Some(in_work) = self.open.get_mut(&item) else { return After::Nothing };
        in_work.held.retain(|held| *held != delivery.number);
        if is_done {
            self.counts.done += 1;
        } else if !in_work.held.is_empty() {
            return After::Nothing;
        } else if in_work.failures < self.requeues {
            in_work.failures += 1;
            return After::PutBack;
        } else {
            self.counts.given_up += 1;
        }
        self.close(item);
        After::Nothing
    }

    /// The wait before a repeat is over.
    pub fn put_back(&mut self, item: Item) {
        if self.open.contains_key(&item) {
            self.waiting.push_back((item, Standing::Again));
        }
    }

    /// The visibility timeout of a delivery is over: its item is handed out again if the worker still
    /// has it.
    pub fn redeliver(&mut self, delivery: Delivery) -> bool {
        let held = |in_work: &InWork| in_work.held.contains(&delivery.number);
        let is_held = self.open.get(&delivery.item).is_some_and(held);
        if is_held {
            self.waiting.push_back((delivery.item, Standing::Again));
        }
        is_held
    }

    fn close(&mut self, item: Item) {
        self.open.remove(&item);
        if let Some(left) = self.left.get_mut(&item.run) {
            *left -= 1;
            if *left == 0 {
                self.left.remove(&item.run);
            }
        }
        if self.left.is_empty() {
            self.seen.clear();
        }
    }

    /// What became of the items.
    #[must_use]
    pub const fn counts(&self) -> ItemCounts {
        self.counts
    }

    /// Items that are neither done nor given up.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left.values().map(|left| u64::from(*left)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job(items: u32, requeues: u32) -> Job {
        let text = format!("items = {items}\nrequeues = {requeues}");
        let config: JobConfig = toml::from_str(&text).expect("fits");
        Job::new(&config)
    }

    #[test]
    fn runs_come_by_the_clock_and_by_hand() {
        let runs = |text: &str| {
            let config: JobConfig = toml::from_str(&format!("items = 1\n{text}")).expect("fits");
            config.runs().take(4).collect::<Vec<_>>()
        };
        assert_eq!(runs("at_s = 5"), [5.0]);
        assert_eq!(runs("at_s = 5\nby_hand_at_s = [9, 2]"), [2.0, 5.0, 9.0]);
        assert_eq!(runs("every_s = 10\nby_hand_at_s = [15]"), [0.0, 10.0, 15.0, 20.0]);
    }

    #[test]
    fn a_failed_item_comes_back_as_often_as_allowed() {
        let mut job = job(1, 2);
        job.begin_run();
        for _ in 0..2 {
            let item = job.take().expect("it waits");
            assert_eq!(job.finish(item, false), After::PutBack);
            assert_eq!(job.take(), None, "not before the wait is over");
            job.put_back(item.item);
        }
        let item = job.take().expect("it waits");
        assert_eq!(job.finish(item, false), After::Nothing);
        let counts = job.counts();
        assert_eq!((counts.begun, counts.given_up, counts.duplicates), (3, 1, 0));
        assert_eq!(job.left(), 0);
    }

    #[test]
    fn a_late_run_and_the_next_one_are_duplicates_of_each_other() {
        let mut job = job(10, 0);
        job.begin_run();
        let first: Vec<_> = std::iter::from_fn(|| job.take()).collect();
        job.begin_run();
        let second: Vec<_> = std::iter::from_fn(|| job.take()).collect();
        assert_eq!((first.len(), second.len(), job.counts().duplicates), (10, 10, 10));
        for item in first.into_iter().chain(second) {
            job.finish(item, true);
        }
        job.begin_run();
        job.take();
        assert_eq!(job.counts().duplicates, 10, "a run after the end of the others is new");
    }

    #[test]
    fn an_item_that_takes_too_long_is_handed_out_again_and_counts_once() {
        let mut job = job(1, 0);
        job.begin_run();
        let item = job.take().expect("it waits");
        assert!(job.redeliver(item));
        let again = job.take().expect("it is handed out again");
        assert_eq!(again.item, item.item);
        job.finish(item, true);
        job.finish(again, true);
        assert!(!job.redeliver(again), "it is done");
        assert_eq!((job.counts().done, job.counts().duplicates), (1, 1));
    }

    #[test]
    fn the_timeout_of_a_delivery_that_has_ended_hands_nothing_out() {
        let mut job = job(1, 3);
        job.begin_run();
        let first = job.take().expect("it waits");
        job.finish(first, false);
        job.put_back(first.item);
        let second = job.take().expect("it waits again");
        assert!(!job.redeliver(first), "the second worker has just begun");
        assert!(job.redeliver(second));
        let third = job.take().expect("it is handed out again");
        assert_eq!(
            job.counts().duplicates,
            1,
            "two workers have it, although it has failed before"
        );
        job.finish(third, true);
        assert_eq!((job.take(), job.left()), (None, 0));
    }

    proptest! {
        #[test]
        fn every_item_is_accounted_for(
            items in 1_u32..20,
            requeues in 0_u32..3,
            moves in prop::collection::vec((0_u8..6, any::<prop::sample::Index>(), any::<bool>()), 0..300),
        ) {
            let mut job = job(items, requeues);
            let (mut working, mut resting): (Vec<Delivery>, Vec<Item>) = (Vec::new(), Vec::new());
            for (kind, place, outcome) in moves {
                match kind {
                    0 => job.begin_run(),
                    1 | 2 => working.extend(job.take()),
                    3 if !working.is_empty() => {
                        let item = working.swap_remove(place.index(working.len()));
                        if job.finish(item, outcome) == After::PutBack {
                            resting.push(item.item);
                        }
                    }
                    4 if !resting.is_empty() => {
                        job.put_back(resting.swap_remove(place.index(resting.len())));
                    }
                    5 if !working.is_empty() => {
                        job.redeliver(working[place.index(working.len())]);
                    }
                    _ => {}
                }
                let counts = job.counts();
                prop_assert_eq!(counts.done + counts.given_up + job.left(), counts.listed);
                prop_assert!(counts.duplicates <= counts.begun);
            }
            // Whatever happened before: with workers that succeed, the job comes to its end.
            for item in resting {
                job.put_back(item);
            }
            while let Some(item) = working.pop().or_else(|| job.take()) {
                job.finish(item, true);
            }
            prop_assert_eq!(job.left(), 0);
        }
    }
}
