//! A fleet of stores in memory, of which one may say no.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::admission::{Direction, FlagValue};
use crate::flag::{CompareAndSet, FlagState, OnExpire, WayBack};

/// What a store answers to a change.
#[derive(Clone, Copy)]
enum Mood {
    Takes,
    Refuses,
    IsSilent,
    HasMoved,
}

struct Memory {
    name: &'static str,
    mood: Mood,
    table: Mutex<FlagTable>,
}

const KEY: &str = "queue.max_age_s";

impl Memory {
    fn new(name: &'static str, mood: Mood, revision: u64, overridden: Option<f64>) -> Arc<Self> {
        let flag = FlagState {
            key: KEY.to_owned(),
            base: FlagValue::Number(10.0),
            overridden: overridden.map(FlagValue::Number),
            effective: BTreeMap::from([(name.to_owned(), FlagValue::Number(10.0))]),
            safe: FlagValue::Number(5.0),
            revision: Revision(revision),
            by: None,
            at: None,
            expires: None,
            on_expire: None,
        };
        let table = FlagTable { revision: Revision(revision), flags: vec![flag] };
        Arc::new(Self { name, mood, table: Mutex::new(table) })
    }

    fn overridden(&self) -> Option<FlagValue> {
        self.table.lock().expect("nobody panicked").flags[0].overridden.clone()
    }

    fn take(&self, plan: &Plan) -> Outcome {
        let mut table = self.table.lock().expect("nobody panicked");
        match self.mood {
            Mood::Takes => {}
            Mood::Refuses => return Outcome::Refused { why: "an interlock".to_owned() },
            Mood::IsSilent => return Outcome::Unknown { why: "silence".to_owned() },
            Mood::HasMoved => return Outcome::Conflict { current: table.clone() },
        }
        assert_eq!(plan.revision, table.revision, "{}: asked with its own revision", self.name);
        table.revision = Revision(table.revision.0 + 1);
        for change in &plan.changes {
            table.flags[0].overridden = (!change.drops_override).then(|| change.to.clone());
        }
        Outcome::applied(table.revision)
    }
}

impl Store for Memory {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            compare_and_set: CompareAndSet::Atomic,
            all_or_none: true,
            timer: false,
            restores: true,
            audit: false,
            effective: true,
            comment: false,
        }
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        let table = self.table.lock().expect("nobody panicked").clone();
        Box::pin(async move { Ok(table) })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, _: &'a Author) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { self.take(plan) })
    }

    fn events(&self, _: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn plan(table: &FlagTable) -> Plan {
    Plan {
        name: KEY.to_owned(),
        changes: vec![PlannedChange {
            key: KEY.to_owned(),
            from: table.flags[0].stored().clone(),
            to: FlagValue::Number(5.0),
            drops_override: false,
            direction: Direction::Safer,
            way_back: WayBack::Nowhere,
            last: None,
        }],
        revision: table.revision,
        guards: Vec::new(),
        reach: String::new(),
        reason: String::new(),
        verify: String::new(),
        ttl_s: None,
        on_expire: OnExpire::Remind,
        request_id: "r".to_owned(),
        undo: false,
        glass: None,
    }
}

async fn flip(stores: &[&Arc<Memory>]) -> Outcome {
    let mut all = stores.iter().map(|store| Arc::clone(store) as Arc<dyn Store>);
    let first = all.next().expect("a fleet has a first");
    let fleet = Fleet::new(first, all.collect());
    let table = fleet.list().await.expect("it answers");
    assert_eq!(table.flags[0].effective.len(), stores.len(), "what each instance uses");
    let author = Author { actor: "a".to_owned(), incident: None, anchor: None };
    fleet.apply(&plan(&table), &author).await
}

#[tokio::test]
async fn a_flip_goes_to_all_each_at_its_own_revision() {
    let (first, second) =
        (Memory::new("1", Mood::Takes, 4, None), Memory::new("2", Mood::Takes, 9, Some(7.0)));
    let outcome = flip(&[&first, &second]).await;
    assert_eq!(outcome, Outcome::applied(Revision(5)), "the first one's");
    assert_eq!(first.overridden(), Some(FlagValue::Number(5.0)));
    assert_eq!(second.overridden(), Some(FlagValue::Number(5.0)));
}

#[tokio::test]
async fn where_one_says_no_the_others_are_as_they_were() {
    for (mood, expected) in
        [(Mood::Refuses, "Refused"), (Mood::IsSilent, "Unknown"), (Mood::HasMoved, "Refused")]
    {
        let first = Memory::new("1", Mood::Takes, 4, None);
        let second = Memory::new("2", Mood::Takes, 9, Some(7.0));
        let third = Memory::new("3", mood, 1, None);
        let outcome = format!("{:?}", flip(&[&first, &second, &third]).await);
        assert!(outcome.starts_with(expected), "{outcome}");
        assert_eq!(first.overridden(), None, "{expected}");
        assert_eq!(second.overridden(), Some(FlagValue::Number(7.0)), "{expected}");
    }
}
