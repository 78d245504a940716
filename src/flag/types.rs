//! What a flag store knows and answers, whichever store it is.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, Utc};

use crate::admission::{Direction, FlagValue, flag};

use super::way_back::WayBack;

/// The version of the whole flag table. A change names the revision that its author has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a timer does when it runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpire {
    /// Leads back: drops the override, or sets the one before again, whichever is toward safe.
    Revert,
    /// Leaves it and reminds people.
    Remind,
}

/// One flag as the store shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagState {
    /// Its key.
    pub key: String,
    /// The value without an override.
    pub base: FlagValue,
    /// The override, if there is one. This is the stored value.
    pub overridden: Option<FlagValue>,
    /// What each instance really uses, by instance name.
    pub effective: BTreeMap<String, FlagValue>,
    /// The flag's safe end.
    pub safe: FlagValue,
    /// Revision of its last change.
    pub revision: Revision,
    /// Who changed it last.
    pub by: Option<String>,
    /// When.
    pub at: Option<DateTime<Utc>>,
    /// When the override's timer runs out.
    pub expires: Option<DateTime<Utc>>,
    /// What the timer does then, where the store tells.
    pub on_expire: Option<OnExpire>,
}

/// What stands behind the name of who passed interlocks by break-glass.
pub const BROKE_GLASS: &str = " (break-glass)";

impl FlagState {
    /// The stored value: the override, else the base.
    #[must_use]
    pub fn stored(&self) -> &FlagValue {
        self.overridden.as_ref().unwrap_or(&self.base)
    }

    /// Whether its last change passed interlocks.
    #[must_use]
    pub fn broke_glass(&self) -> bool {
        self.by.as_ref().is_some_and(|by| by.ends_with(BROKE_GLASS))
    }

    /// What its timer does, if it has one. Where the store does not tell: a timer only ever leads toward
    /// the safe end, and any other reminds.
    #[must_use]
    pub fn timer(&self) -> Option<(DateTime<Utc>, OnExpire)> {
        let leads_to_safe = || {
            flag(&self.key).is_ok_and(|def| {
                def.direction(&self.base, self.stored(), &self.base) == Direction::Safer
            })
        };
        let derived = || if leads_to_safe() { OnExpire::Revert } else { OnExpire::Remind };
        self.expires.map(|at| (at, self.on_expire.unwrap_or_else(derived)))
    }

    /// Whether the stored value is one that the flag takes. Where it is not, it is in words why there
    /// is no one value: instances differ, or the store serves several.
    #[must_use]
    pub fn has_one_value(&self) -> bool {
        // A flag of a newer store is taken at its word.
        flag(&self.key).map_or(true, |def| def.check(self.stored().clone()).is_ok())
    }
}

/// All flags at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagTable {
    /// The table's revision.
    pub revision: Revision,
    /// The flags, in the order of the table.
    pub flags: Vec<FlagState>,
}

impl FlagTable {
    /// The flag with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&FlagState> {
        self.flags.iter().find(|flag| flag.key == key)
    }
}

/// One wanted change: a new value, or `None` to drop the override.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The flag.
    pub key: String,
    /// The value to store, `None` drops the override.
    pub to: Option<FlagValue>,
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedChange {
    /// The flag.
    pub key: String,
    /// The stored value now.
    pub from: FlagValue,
    /// The stored value afterwards.
    pub to: FlagValue,
    /// The change drops the override instead of setting one.
    pub drops_override: bool,
    /// Toward the safe end or away from it.
    pub direction: Direction,
    /// Where a timer would lead it.
    pub way_back: WayBack,
    /// Who changed it last, and when.
    pub last: Option<(String, DateTime<Utc>)>,
}

/// One interlock or guard of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// What is asked, in words.
    pub text: String,
    /// `None` when it cannot be told; that refuses a riskier change and warns on a safer one.
    pub holds: Option<bool>,
}

/// What will be done, shown before it is done. All or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// `contain`, or the flag's key.
    pub name: String,
    /// The changes.
    pub changes: Vec<PlannedChange>,
    /// The revision that this plan was made from, sent as `If-Match`.
    pub revision: Revision,
    /// Interlocks and guards.
    pub guards: Vec<Guard>,
    /// Blast radius in words: instances, scopes, share of traffic.
    pub reach: String,
    /// Why; the person may edit it.
    pub reason: String,
    /// What will show that it worked, in words.
    pub verify: String,
    /// Seconds until the timer, if one is set.
    pub ttl_s: Option<u64>,
    /// What the timer does.
    pub on_expire: OnExpire,
    /// Makes a repeat of the request harmless.
    pub request_id: String,
    /// It takes a flip back. A state that held a moment ago is a person's to choose again: its guards
    /// warn and do not refuse, and a risky one is still confirmed by typing.
    pub undo: bool,
    /// Why its interlocks are to be passed with the second token, if a person has asked for that.
    pub glass: Option<String>,
}

impl Plan {
    /// Its changes as they were wished for.
    #[must_use]
    pub fn wanted(&self) -> Vec<Change> {
        let wanted = |change: &PlannedChange| Change {
            key: change.key.clone(),
            to: Some(change.to.clone()),
        };
        self.changes.iter().map(wanted).collect()
    }

    /// What has changed in the store since the plan was made, flag by flag, and by whom.
    #[must_use]
    pub fn moved_since(&self, current: &FlagTable) -> Vec<String> {
        let is_newer = |flag: &&FlagState| {
            let planned = self.changes.iter().find(|change| change.key == flag.key);
            flag.revision > self.revision
                || planned.is_some_and(|change| change.from != *flag.stored())
        };
        let say = |flag: &FlagState| {
            let by = flag.by.as_deref().unwrap_or("somebody");
            let planned = self.changes.iter().find(|change| change.key == flag.key);
            let was = planned.map_or_else(String::new, |change| format!("{} -> ", change.from));
            let to = match &flag.overridden {
                Some(value) => value.to_string(),
                None => format!("{} (base)", flag.base),
            };
            format!("{}: {was}{to}, by {by} at revision {}", flag.key, flag.revision)
        };
        current.flags.iter().filter(is_newer).map(say).collect()
    }

    /// What a timer sets again that drops no override but restores the one before, flag by flag.
    pub fn restores(&self) -> impl Iterator<Item = (&str, &FlagValue)> {
        let timed = self.ttl_s.is_some() && self.on_expire == OnExpire::Revert;
        self.changes.iter().filter(move |_| timed).filter_map(|change| match &change.way_back {
            WayBack::ToBefore(before) => Some((change.key.as_str(), before)),
            WayBack::ToBase | WayBack::Nowhere => None,
        })
    }

    /// Whether any change leads away from its safe end.
    #[must_use]
    pub fn is_risky(&self) -> bool {
        self.changes.iter().any(|change| change.direction == Direction::Riskier)
    }

    /// Why the plan must not be applied, if so: a guard that is false, or one that is unknown when
    /// a change leads away from the safe end. Never for an undo, nor with the glass broken.
    #[must_use]
    pub fn refused(&self) -> Option<&Guard> {
        self.overridable().next().filter(|_| self.glass.is_none())
    }

    /// The guards that break-glass passes, or would pass.
    pub fn overridable(&self) -> impl Iterator<Item = &Guard> {
        self.refusing().filter(|_| !self.undo)
    }

    /// Every guard that is false, or unknown when a change leads away from the safe end.
    pub fn refusing(&self) -> impl Iterator<Item = &Guard> {
        let risky = self.is_risky();
        self.guards.iter().filter(move |guard| !guard.holds.unwrap_or(!risky))
    }
}

/// What a store answers to a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Stored, at this revision.
    Applied {
        /// The new revision.
        revision: Revision,
        /// What somebody else changed in the same moment, in words: where a store cannot keep two
        /// writers apart, it can still be seen that there were two.
        beside: Option<String>,
    },
    /// Somebody changed the table since the plan was made. Nothing was stored.
    Conflict {
        /// The table as it is now.
        current: FlagTable,
    },
    /// The store refused: an interlock, a bad value, no right to. Nothing was stored.
    Refused {
        /// In the store's words.
        why: String,
    },
    /// Some changes are stored and the others are not: the store writes flags one by one.
    Partly(Partly),
    /// No answer came. It may or may not have been stored: read again before anything else.
    Unknown {
        /// What went wrong on the way.
        why: String,
    },
}

impl Outcome {
    /// Stored, and nobody else was there.
    #[must_use]
    pub const fn applied(revision: Revision) -> Self {
        Self::Applied { revision, beside: None }
    }
}

/// A plan that was stored in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partly {
    /// Flags that are as wanted.
    pub stored: Vec<String>,
    /// Flags that are not.
    pub missing: Vec<String>,
    /// Why it stopped.
    pub why: String,
}

impl fmt::Display for Partly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stored, missing) = (self.stored.join(", "), self.missing.join(", "));
        write!(
            f,
            "stored in part: {stored} is, {missing} is not ({}); plan it again, or undo",
            self.why
        )
    }
}
