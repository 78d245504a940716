//! A flip whose answer was lost: what it may have done, and when that is known again.
//!
//! A request that was given up can still be carried out later (seen with a store whose database
//! came back). So nothing is sent again, and the opposite flip waits until the table has read the
//! same twice in a row.

use std::fmt;

use crate::admission::FlagValue;

use super::types::{FlagTable, Guard, Partly, Plan, Revision};

/// A flip that may or may not have been stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsettled {
    name: String,
    sent_at_revision: Revision,
    targets: Vec<(String, FlagValue)>,
    why: String,
    last: Option<Look>,
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
    /// The wanted values are stored.
    Stored {
        /// At this revision.
        revision: Revision,
    },
    /// They are not.
    NotStored {
        /// What the table says instead.
        why: String,
    },
    /// Some are: the store writes flags one by one, and stopped on the way.
    Partly(Partly),
}

impl Unsettled {
    /// A flip that got no answer, and why.
    #[must_use]
    pub fn new(plan: &Plan, why: impl Into<String>) -> Self {
        let target = |change: &super::PlannedChange| (change.key.clone(), change.to.clone());
        Self {
            name: plan.name.clone(),
            sent_at_revision: plan.revision,
            targets: plan.changes.iter().map(target).collect(),
            why: why.into(),
            last: None,
        }
    }

    /// A guard that is false when `plan` would set one of the same flags to something else.
    #[must_use]
    pub fn blocks(&self, plan: &Plan) -> Option<Guard> {
        let opposite = plan.changes.iter().find(|change| {
            self.targets.iter().any(|(key, to)| *key == change.key && *to != change.to)
        })?;
        let text = format!("{}: {self}; wait until it is settled", opposite.key);
        Some(Guard { text, holds: Some(false) })
    }

    /// Takes one good read of the table; the second equal one in a row settles it.
    pub fn on_read(&mut self, table: &FlagTable) -> Option<Settled> {
        let stored =
            |(key, _): &(String, FlagValue)| table.get(key).map(super::FlagState::stored).cloned();
        let look =
            Look { revision: table.revision, values: self.targets.iter().map(stored).collect() };
        if self.last.as_ref() != Some(&look) {
            self.last = Some(look);
            return None;
        }
        let (stored, missing) = self.halves(table);
        Some(if missing.is_empty() {
            Settled::Stored { revision: table.revision }
        } else if !stored.is_empty() {
            Settled::Partly(Partly { stored, missing, why: self.why.clone() })
        } else if table.revision == self.sent_at_revision {
            Settled::NotStored { why: format!("the table is still at {}", table.revision) }
        } else {
            let by = author_since(table, self.sent_at_revision);
            Settled::NotStored { why: format!("the table is at {} by {by}", table.revision) }
        })
    }

    /// What is stored as wanted and what is not. A flag whose instances were written one by one and do
    /// not agree has no one value, and is told instance by instance.
    fn halves(&self, table: &FlagTable) -> (Vec<String>, Vec<String>) {
        let (mut stored, mut missing) = (Vec::new(), Vec::new());
        let mut tell = |as_wanted: bool, what: String| {
            if as_wanted { stored.push(what) } else { missing.push(what) }
        };
        for (key, to) in &self.targets {
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
    }
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the flip `{}` got no answer and may have been stored ({})", self.name, self.why)
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
    use super::super::fixture::table;
    use super::super::plan::{Evidence, Terms, plan, wanted};
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

    #[test]
    fn two_equal_reads_in_a_row_settle_it() {
        let mut lost = Unsettled::new(&plan_of("retry.max_attempts=1"), "timed out");
        let before = table(&[]);
        let mut landed = table(&[("retry.max_attempts", "1")]);
        landed.revision = Revision(42);
        assert_eq!(lost.on_read(&before), None);
        assert_eq!(lost.on_read(&landed), None, "the ghost has landed in between");
        lost.on_failed_read();
        assert_eq!(lost.on_read(&landed), None, "a failed read breaks the row");
        assert_eq!(lost.on_read(&landed), Some(Settled::Stored { revision: Revision(42) }));
    }

    #[test]
    fn a_flip_that_stopped_half_way_names_both_halves() {
        let changes = wanted(&["retry.max_attempts=1", "retry.owner=client"]).expect("real flags");
        let plan = plan("t", &table(&[]), &changes, &Evidence::default(), Terms::default());
        let mut lost = Unsettled::new(&plan.expect("a plan"), "timed out");
        let half = table(&[("retry.max_attempts", "1")]);
        lost.on_read(&half);
        let stored = vec!["retry.max_attempts".to_owned()];
        let missing = vec!["retry.owner".to_owned()];
        let why = "timed out".to_owned();
        let partly = Settled::Partly(Partly { stored, missing, why });
        assert_eq!(lost.on_read(&half), Some(partly));
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
        lost.on_read(&half);
        let Some(Settled::Partly(partly)) = lost.on_read(&half) else { panic!("it is in part") };
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

    #[test]
    fn a_table_that_moved_on_names_who_moved_it() {
        let mut lost = Unsettled::new(&plan_of("retry.max_attempts=1"), "timed out");
        let mut other = table(&[("retry.max_attempts", "4")]);
        other.revision = Revision(44);
        for flag in other.flags.iter_mut().filter(|flag| flag.overridden.is_some()) {
            flag.revision = other.revision;
        }
        lost.on_read(&other);
        let why = "the table is at 44 by bob".to_owned();
        assert_eq!(lost.on_read(&other), Some(Settled::NotStored { why }));
    }
}
