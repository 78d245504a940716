//! The flag table of a store that holds overrides and nothing else: base values come from weir's own
//! configuration, since the store does not know them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::admission::{FLAGS, FlagValue, Settings};

use super::super::types::{FlagState, FlagTable, OnExpire, Revision};

/// What a store holds of one flag.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// The override in force, if there is one. A value that the flag does not take is passed on as the
    /// word that stands there: it is shown, and never taken for the base.
    pub overridden: Option<FlagValue>,
    /// What each instance uses, by instance name; empty when the store does not tell.
    pub effective: BTreeMap<String, FlagValue>,
    /// Revision of its last change.
    pub revision: u64,
    /// Who changed it last.
    pub by: Option<String>,
    /// When.
    pub at: Option<DateTime<Utc>>,
    /// When its timer runs out.
    pub expires: Option<DateTime<Utc>>,
    /// What the timer does then, where the store keeps that.
    pub on_expire: Option<OnExpire>,
}

/// The table: every flag that `held` answers for, in the order of the flag table.
pub(super) fn table(
    base: &Settings,
    revision: Revision,
    mut held: impl FnMut(&str) -> Option<Held>,
) -> FlagTable {
    let state = |def: &crate::admission::FlagDef| {
        let base = base.get(def.key).ok()?;
        let held = held(def.key)?;
        Some(FlagState {
            key: def.key.to_owned(),
            safe: def.safe_value(&base),
            base,
            overridden: held.overridden,
            effective: held.effective,
            revision: Revision(held.revision),
            by: held.by,
            at: held.at,
            expires: held.expires,
            on_expire: held.on_expire,
        })
    };
    FlagTable { revision, flags: FLAGS.iter().filter_map(state).collect() }
}
