//! A flip whose answer was lost: what it may have done, and when that is known again.
//!
//! A request that was given up can still be carried out later (seen with a store whose database
//! came back). So nothing is sent again, and the opposite flip waits until the table has read the
//! same twice in a row. That it has landed, and that it never will, is told by the store's history and
//! by nothing else: without one it stays open, and shown.

use std::fmt;

use crate::admission::FlagValue;

use super::store::EventChange;
use super::trace::{Overwritten, Past, Sent, Target, Trace, trace};
use super::types::{FlagTable, Guard, Partly, Plan, Revision};

/// A flip that may or may not have been stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsettled {
    name: String,
    request_id: String,
    sent_at_revision: Revision,
    targets: Vec<Target>,
    why: String,
    last: Option<Look>,
    /// The table has read the same twice in a row.
    is_quiet: bool,
}

/// What one read showed.
#[derive(Clone, Debug, PartialEq)]
struct Look {
    revision: Revision,
    values: Vec<Option<FlagValue>>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It has landed, and its values are stored.
    Stored {
        /// At this revision.
        revision: Revision,
        /// What says so, in words.
        how: String,
    },
    /// It has landed, and somebody has changed one of its flags to something else since.
    Overwritten {
        /// The revision that it landed at.
        landed: Revision,
        /// Who came afterwards.
        by: String,
        /// At this revision.
        revision: Revision,
    },
    /// It was not stored, and can no longer be.
    NotStored {
        /// How that is known.
        why: String,
    },
    /// Some are: the store writes flags one by one, keeps no history, and stopped on the way.
    Partly(Partly),
}

impl Settled {
    /// The word used in the journal: that of the flip's end.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Stored { .. } => "applied",
            Self::Overwritten { .. } => "overwritten",
            Self::NotStored { .. } => "not-stored",
            Self::Partly(_) => "partly",
        }
    }

    /// One sentence for a person.
    #[must_use]
    pub fn say(&self) -> String {
        match self {
            Self::Stored { revision, how } => format!("landed at revision {revision} ({how})"),
            Self::Overwritten { landed, by, revision } => overwrote(*landed, by, *revision),
            Self::NotStored { why } => format!("was not stored: {why}"),
            Self::Partly(partly) => partly.to_string(),
        }
    }
}

/// That a change was stored and is not in force, in words.
pub(super) fn overwrote(landed: Revision, by: &str, revision: Revision) -> String {
    format!("landed at revision {landed}, then {by} overwrote it (revision {revision})")
}

impl Unsettled {
    /// A flip that got no answer, and why.
    #[must_use]
    pub fn new(plan: &Plan, why: impl Into<String>) -> Self {
        let targets = plan.changes.iter().map(Target::from).collect();
        Self {
            name: plan.name.clone(),
            request_id: plan.request_id.clone(),
            sent_at_revision: plan.revision,
            targets,
            why: why.into(),
            last: None,
            is_quiet: false,
        }
    }

    /// A flip of an earlier run, of which only the intent was written down.
    #[must_use]
    pub fn of_intent(
        request_id: &str,
        plan: &str,
        revision: Revision,
        changes: impl Iterator<Item = EventChange>,
    ) -> Self {
        let target = |change: EventChange| {
            let to = change.value_after().clone();
            Target { key: change.key, to }
        };
        Self {
            name: plan.to_owned(),
            request_id: request_id.to_owned(),
            sent_at_revision: revision,
            targets: changes.map(target).collect(),
            why: "its outcome was not written down".to_owned(),
            last: None,
            is_quiet: false,
        }
    }

    /// The plan's name.
    #[must_use]
    pub fn plan(&self) -> &str {
        &self.name
    }

    /// The id of its request.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Whether the table has read the same twice in a row without it: it may still land, and nobody
    /// has to wait for it any more.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Whether this table shows something that the last one did not, so that the history is worth a look.
    #[must_use]
    pub fn is_news(&self, table: &FlagTable) -> bool {
        !self.is_quiet || self.last.as_ref() != Some(&self.look_at(table))
    }

    /// A guard that is false when `plan` would set one of the same flags to something else, while the
    /// table has not come to rest.
    #[must_use]
    pub fn blocks(&self, plan: &Plan) -> Option<Guard> {
        let opposite = plan.changes.iter().find(|change| {
            let mut targets = self.targets.iter();
            targets.any(|target| target.key == change.key && target.to != change.to)
        });
        let opposite = opposite.filter(|_| !self.is_quiet)?;
        let text = format!("{}: {self}; wait until it is settled", opposite.key);
        Some(Guard { text, holds: Some(false) })
    }

    /// Takes one good read of the table, and what of the history was read after it.
    pub fn on_read(&mut self, table: &FlagTable, past: Past<'_>) -> Option<Settled> {
        let look = self.look_at(table);
        let is_repeat = self.last.as_ref() == Some(&look);
        self.is_quiet |= is_repeat;
        self.last = Some(look);
        match past {
            Past::NotKept if !is_repeat => None,
            _ => self.judge(table, past),
        }
    }

    /// What one look says, whatever was read before.
    #[must_use]
    pub fn judge(&self, table: &FlagTable, past: Past<'_>) -> Option<Settled> {
        match past {
            Past::Unread => None,
            Past::NotKept => self.by_values(table),
            Past::Told { events, is_fenced } => {
                let sent = Sent {
                    request_id: &self.request_id,
                    at_revision: self.sent_at_revision,
                    targets: &self.targets,
                };
                match trace(sent, table, events, is_fenced) {
                    Trace::Open => None,
                    Trace::RuledOut => {
                        let why = format!(
                            "the table has moved on to revision {}, and the store's history does not \
                             have it",
                            table.revision
                        );
                        Some(Settled::NotStored { why })
                    }
                    Trace::Landed { revision, how, overwritten: None } => {
                        Some(Settled::Stored { revision, how })
                    }
                    Trace::Landed { revision: landed, overwritten: Some(on_top), .. } => {
                        let Overwritten { by, revision } = on_top;
                        Some(Settled::Overwritten { landed, by, revision })
                    }
                }
            }
        }
    }

    /// Values that are there are there, whoever put them; values that are not may still come.
    fn by_values(&self, table: &FlagTable) -> Option<Settled> {
        let (stored, missing) = self.halves(table);
        if stored.is_empty() {
            return None;
        }
        Some(if missing.is_empty() {
            let how =
                "its values are there; whose change it was, this store does not tell".to_owned();
            Settled::Stored { revision: table.revision, how }
        } else {
            Settled::Partly(Partly { stored, missing, why: self.why.clone() })
        })
    }

    fn look_at(&self, table: &FlagTable) -> Look {
        let stored =
            |target: &Target| table.get(&target.key).map(super::FlagState::stored).cloned();
        Look { revision: table.revision, values: self.targets.iter().map(stored).collect() }
    }

    /// What is stored as wanted and what is not. A flag whose instances were written one by one and do
    /// not agree has no one value, and is told instance by instance.
    fn halves(&self, table: &FlagTable) -> (Vec<String>, Vec<String>) {
        let (mut stored, mut missing) = (Vec::new(), Vec::new());
        let mut tell = |as_wanted: bool, what: String| {
            if as_wanted { stored.push(what) } else { missing.push(what) }
        };
        for Target { key, to } in &self.targets {
            let state = table.get(key);
            let several = state.filter(|state| !state.has_one_value());
            match several.filter(|state| state.effective.values().any(|value| value == to)) {
                Some(state) => {
                    for (instance, value) in &state.effective {
                        tell(value == to, format!("{key} on {instance}"));
                    }
                }
                None => tell(state.is_some_and(|state| state.stored() == to), key.clone()),
            }
        }
        (stored, missing)
    }

    /// A read that failed: what was read before no longer counts as "in a row".
    pub fn on_failed_read(&mut self) {
        self.last = None;
        self.is_quiet = false;
    }
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, why, .. } = self;
        match self.last.as_ref().filter(|_| self.is_quiet) {
            None => write!(f, "the flip `{name}` got no answer and may have been stored ({why})"),
            Some(Look { revision, .. }) => write!(
                f,
                "the flip `{name}` got no answer ({why}); it is not seen to have landed by revision \
                 {revision}, and still may"
            ),
        }
    }
}

/// Who changed any flag last, after `revision`. A conflict is with them: the flags that a plan names
/// may have been left alone.
pub(super) fn author_since(table: &FlagTable, revision: Revision) -> String {
    let since = table.flags.iter().filter(|flag| flag.revision > revision);
    last_author(table, since.map(|flag| flag.key.as_str()))
}

/// Who changed one of these flags last.
pub(super) fn last_author<'a>(table: &FlagTable, keys: impl Iterator<Item = &'a str>) -> String {
    keys.filter_map(|key| table.get(key))
        .max_by_key(|flag| flag.revision)
        .and_then(|flag| flag.by.clone())
        .unwrap_or_else(|| "somebody".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{table, value};
    use super::super::plan::{Evidence, Terms, plan, wanted};
    use super::super::store::{EventKind, FlagEvent, Marks};
    use super::*;

    fn plan_of(word: &str) -> Plan {
        let changes = wanted(&[word]).expect("a test names real flags");
        plan("t", &table(&[]), &changes, &Evidence::default(), Terms::default()).expect("a plan")
    }

    #[test]
    fn only_a_different_value_for_the_same_flag_is_blocked() {
        let lost = Unsettled::new(&plan_of("retry.max_attempts=1"), "timed out");
        for (word, blocked) in [
            ("retry.max_attempts=3", true),
            ("retry.max_attempts=1", false),
            ("retry.owner=client", false),
        ] {
            assert_eq!(lost.blocks(&plan_of(word)).is_some(), blocked, "{word}");
        }
    }

    const BY_VALUES: Past<'static> = Past::NotKept;

    #[test]
    fn without_a_history_two_equal_reads_in_a_row_tell_what_is_there() {
        let mut lost = Unsettled::new(&plan_of("retry.max_attempts=1"), "timed out");
        let before = table(&[]);
        let mut landed = table(&[("retry.max_attempts", "1")]);
        landed.revision = Revision(42);
        assert_eq!(lost.on_read(&before, BY_VALUES), None);
        assert_eq!(lost.on_read(&landed, BY_VALUES), None, "the ghost has landed in between");
        lost.on_failed_read();
        assert_eq!(lost.on_read(&landed, BY_VALUES), None, "a failed read breaks the row");
        let settled = lost.on_read(&landed, BY_VALUES).expect("twice the same");
        assert_eq!(settled.word(), "applied");
        assert!(settled.say().contains("whose change it was, this store does not tell"));
    }

    #[test]
    fn without_a_history_what_is_not_there_stays_open_and_blocks_nobody_for_ever() {
        let mut lost = Unsettled::new(&plan_of("retry.max_attempts=1"), "timed out");
        let opposite = plan_of("retry.max_attempts=3");
        let mut table = table(&[]);
        assert_eq!(lost.on_read(&table, BY_VALUES), None);
        assert!(!lost.is_quiet() && lost.blocks(&opposite).is_some());
        assert_eq!(lost.on_read(&table, BY_VALUES), None);
        assert!(lost.is_quiet() && lost.blocks(&opposite).is_none());
        assert!(lost.to_string().ends_with("by revision 41, and still may"), "{lost}");
        assert!(!lost.is_news(&table));
        table.revision = Revision(44);
        assert!(lost.is_news(&table));
        assert_eq!(lost.on_read(&table, BY_VALUES), None, "a moved table rules nothing out here");
    }

    #[test]
    fn a_flip_that_stopped_half_way_names_both_halves() {
        let changes = wanted(&["retry.max_attempts=1", "retry.owner=client"]).expect("real flags");
        let plan = plan("t", &table(&[]), &changes, &Evidence::default(), Terms::default());
        let mut lost = Unsettled::new(&plan.expect("a plan"), "timed out");
        let half = table(&[("retry.max_attempts", "1")]);
        lost.on_read(&half, BY_VALUES);
        let stored = vec!["retry.max_attempts".to_owned()];
        let missing = vec!["retry.owner".to_owned()];
        let why = "timed out".to_owned();
        let partly = Settled::Partly(Partly { stored, missing, why });
        assert_eq!(lost.on_read(&half, BY_VALUES), Some(partly));
    }

    #[test]
    fn instances_that_do_not_agree_are_halves_too() {
        let mut lost = Unsettled::new(&plan_of("retry.max_attempts=1"), "timed out");
        let mut half = table(&[]);
        half.revision = Revision(42);
        let flag = half.flags.iter_mut().find(|flag| flag.key == "retry.max_attempts");
        let flag = flag.expect("flag of the table");
        flag.overridden = Some(FlagValue::Word("differs by instance".to_owned()));
        flag.effective.insert("gw-1".to_owned(), FlagValue::Number(1.0));
        lost.on_read(&half, BY_VALUES);
        let Some(Settled::Partly(partly)) = lost.on_read(&half, BY_VALUES) else {
            panic!("it is in part")
        };
        assert_eq!(partly.stored, ["retry.max_attempts on gw-1"]);
        assert_eq!(partly.missing, ["retry.max_attempts on gw-2"]);
    }

    #[test]
    fn a_conflict_is_with_whoever_changed_the_table_last() {
        let mut current = table(&[("retry.max_attempts", "4")]);
        assert_eq!(author_since(&current, Revision(40)), "bob");
        assert_eq!(author_since(&current, Revision(41)), "somebody", "bob was seen already");
        let other = current.flags.iter_mut().find(|flag| flag.key == "queue.max_depth");
        let other = other.expect("flag of the table");
        (other.revision, other.by) = (Revision(42), Some("alice".to_owned()));
        for seen in [40, 41] {
            assert_eq!(author_since(&current, Revision(seen)), "alice", "{seen}");
        }
    }

    /// One line of a history: number, whose request, who, and what the flag became.
    fn event(seq: u64, id: Option<&str>, actor: &str, to: &str) -> FlagEvent {
        const KEY: &str = "retry.max_attempts";
        FlagEvent {
            seq,
            at: chrono::DateTime::UNIX_EPOCH,
            actor: actor.to_owned(),
            reason: String::new(),
            incident: None,
            request_id: id.map(str::to_owned),
            revision: Revision(40 + seq),
            kind: EventKind::Change,
            changes: vec![EventChange {
                key: KEY.to_owned(),
                base: value(KEY, "2"),
                from: None,
                to: Some(value(KEY, to)),
            }],
            anchor: None,
            marks: Marks::default(),
        }
    }

    /// What a history says of the flip to 1 at revision 41, whose id is `id`.
    fn told(events: &[FlagEvent], now: &str, revision: u64, is_fenced: bool) -> Option<Settled> {
        let plan = Plan { request_id: "id".to_owned(), ..plan_of("retry.max_attempts=1") };
        let mut table = table(&[("retry.max_attempts", now)]);
        table.revision = Revision(revision);
        Unsettled::new(&plan, "timed out").judge(&table, Past::Told { events, is_fenced })
    }

    #[test]
    fn a_history_tells_what_landed_and_who_came_on_top_of_it() {
        let own = || event(2, Some("id"), "alice", "1");
        let bobs = || event(3, Some("b"), "bob", "4");
        let say = |events: &[FlagEvent], now, revision| {
            told(events, now, revision, true).map(|settled| settled.say())
        };
        let landed = "landed at revision 42 (event 2 of the store's history has its id)";
        let overwritten = "landed at revision 42, then bob overwrote it (revision 43)";
        assert_eq!(say(&[own()], "1", 42).as_deref(), Some(landed));
        assert_eq!(say(&[own()], "3", 41).as_deref(), Some(landed), "between the two reads");
        assert_eq!(say(&[own(), bobs()], "4", 43).as_deref(), Some(overwritten));
        assert_eq!(say(&[own(), bobs()], "3", 41).as_deref(), Some(overwritten));
        let again = event(4, Some("c"), "carol", "1");
        assert_eq!(say(&[own(), bobs(), again], "1", 44).as_deref(), Some(landed), "as wanted now");
        // Past the history: the table is all that tells.
        let outside = "landed at revision 42, then bob overwrote it (revision 44)";
        assert_eq!(say(&[own()], "4", 44).as_deref(), Some(outside));
    }

    #[test]
    fn only_a_fence_that_has_been_passed_rules_a_late_one_out() {
        let bobs = [event(3, Some("b"), "bob", "4")];
        let say = |settled: Option<Settled>| settled.map(|settled| settled.word());
        assert_eq!(say(told(&[], "2", 41, true)), None, "nothing has moved: it may still come");
        assert_eq!(say(told(&bobs, "4", 43, true)), Some("not-stored"));
        assert_eq!(say(told(&bobs, "4", 43, false)), None, "no fence: it may still come");
    }

    #[test]
    fn where_ids_can_be_missing_flag_value_and_time_tell() {
        let say = |events: &[FlagEvent]| told(events, "1", 43, false).map(|settled| settled.say());
        let unnamed = say(&[event(2, None, "admin", "1")]).expect("it is there");
        assert!(unnamed.contains("retry.max_attempts by event 2 of admin"), "{unnamed}");
        assert_eq!(say(&[event(1, None, "admin", "1")]), None, "before it was sent");
        assert_eq!(say(&[event(2, Some("b"), "bob", "1")]), None, "another request's");
        assert_eq!(say(&[event(2, None, "admin", "3")]), None, "another value");
    }

    #[test]
    fn a_history_that_was_not_read_settles_nothing() {
        let mut lost = Unsettled::new(&plan_of("retry.max_attempts=1"), "timed out");
        let landed = table(&[("retry.max_attempts", "1")]);
        assert_eq!(lost.on_read(&landed, Past::Unread), None);
        assert_eq!(lost.on_read(&landed, Past::Unread), None);
        assert!(lost.is_quiet());
    }
}
