//! What the service lets nobody do, whatever the tool has checked: the interlocks of `flag`, asked of
//! its own table and signals at the moment of the change.
//!
//! Two ways lead past them. Taking back the newest change of the same flags that is still in force: that
//! it is one is read in the service's own history, and no word of the client counts. And break-glass:
//! a second token with a reason; what was passed is written down with the change.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::{Overrides, refuse};
use crate::admission::{FlagValue, Settings};
use crate::diagnosis::Verdict;
use crate::flag::wire::{ApplyBody, ErrorBody, ErrorCode, EventRow, WireValue};
use crate::flag::{
    self, Change, EventKind, Evidence, FlagTable, Guard, Marks, Plan, PlanError, Terms, UNDO_OF,
};
use crate::signal::Snapshot;

/// What the service knows when a change is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// What the gate really uses.
    pub effective: &'a Settings,
    /// The newest signals, one snapshot per scope.
    pub scopes: &'a [Arc<Snapshot>],
    /// The verdict on top, by the same signals.
    pub verdict: Option<&'a Verdict>,
    /// The request may pass interlocks.
    pub glass: bool,
    /// Name of the token that it came with.
    pub token: Option<&'a str>,
}

type Wanted = [(String, Option<FlagValue>)];

impl Overrides {
    /// The plan that the request would be: its guards, and whether it takes something back.
    ///
    /// # Errors
    /// [`PlanError`] when a change does not fit or nothing is left to do.
    pub fn plan(
        &self,
        body: &ApplyBody,
        known: &Known<'_>,
        now: DateTime<Utc>,
    ) -> Result<Plan, PlanError> {
        let changes = body.changes.iter().map(|change| {
            let to = change.value.clone().map(FlagValue::from);
            (change.key.clone(), to)
        });
        self.plan_of(body, &changes.collect::<Vec<_>>(), known, now)
    }

    fn plan_of(
        &self,
        body: &ApplyBody,
        wanted: &Wanted,
        known: &Known<'_>,
        now: DateTime<Utc>,
    ) -> Result<Plan, PlanError> {
        let changes: Vec<Change> =
            wanted.iter().map(|(key, to)| Change { key: key.clone(), to: to.clone() }).collect();
        let table = FlagTable::from(self.table(known.effective));
        let evidence = Evidence { scopes: known.scopes, verdict: known.verdict, now: Some(now) };
        let terms = Terms {
            reason: Some(body.reason.clone()),
            ttl_s: body.ttl_s,
            request_id: body.request_id.clone(),
        };
        let name = changes.first().map_or("", |change| change.key.as_str()).to_owned();
        let plan = flag::plan(&name, &table, &changes, &evidence, terms)?;
        Ok(Plan { undo: self.takes_back(wanted).is_some(), ..plan })
    }

    /// Whether the change may be stored, and what its event says of it.
    pub(super) fn allow(
        &self,
        body: &ApplyBody,
        wanted: &Wanted,
        known: &Known<'_>,
        now: DateTime<Utc>,
    ) -> Result<Marks, Box<ErrorBody>> {
        let switches_cache_on = wanted.iter().any(|(key, to)| {
            key == "cache.enabled" && *to == Some(FlagValue::Bool(true)) && !self.settings().cache
        });
        if switches_cache_on {
            let why = "cache.enabled: this version has no cache to switch on";
            return Err(refuse(ErrorCode::Interlock, why));
        }
        let plan = match self.plan_of(body, wanted, known, now) {
            Ok(plan) => plan,
            // Everything is as wanted: nothing leads away from anything.
            Err(PlanError::NothingToChange { .. }) => return Ok(Marks::default()),
            Err(error) => return Err(refuse(ErrorCode::Value, error)),
        };
        let mut refusing = plan.refusing().peekable();
        let undoes = self.takes_back(wanted);
        // Whoever only says that it is an undo gains nothing: it is one by the history or not at all.
        if undoes.is_some() && (refusing.peek().is_some() || body.reason.starts_with(UNDO_OF)) {
            return Ok(Marks { undoes, ..Marks::default() });
        }
        let Some(first) = refusing.peek() else { return Ok(Marks::default()) };
        let Some(wish) = body.overriding.as_ref().filter(|_| known.glass) else {
            return Err(refuse(ErrorCode::Interlock, told(first)));
        };
        Ok(Marks {
            undoes: None,
            overridden: refusing.map(|guard| guard.text.clone()).collect(),
            override_reason: Some(wish.reason.clone()),
            token: None,
        })
    }

    /// The event that these changes take back exactly: the newest in force that touched one of the same
    /// flags, when each of them still is as that event left it.
    fn takes_back(&self, wanted: &Wanted) -> Option<u64> {
        let events = &self.kept.events;
        let taken_back: BTreeSet<u64> =
            events.iter().filter_map(|event| event.marks.undoes).collect();
        let stands =
            |event: &&EventRow| event.marks.undoes.is_none() && !taken_back.contains(&event.seq);
        let touches = |event: &&EventRow| {
            event.kind == EventKind::Change
                && event.changes.iter().any(|row| wanted.iter().any(|(key, _)| *key == row.key))
        };
        let newest = events.iter().rev().filter(touches).find(stands)?;
        let is_exact = newest.changes.len() == wanted.len()
            && newest.changes.iter().all(|row| {
                let now = self.kept.overrides.get(&row.key).map(|entry| &entry.value);
                // Another base than then is a state that never held.
                let base = self.base.get(&row.key).ok().map(|base| WireValue::from(&base));
                let mut wanted = wanted.iter().filter(|(key, _)| *key == row.key);
                let back = wanted.next().map(|(_, to)| to.as_ref().map(WireValue::from));
                now == row.to.as_ref()
                    && back == Some(row.from.clone())
                    && (row.from.is_some() || base.as_ref() == Some(&row.base))
            });
        is_exact.then_some(newest.seq)
    }
}

/// Why an interlock refuses, and what can be done.
fn told(guard: &Guard) -> String {
    let how = if guard.holds.is_none() { "cannot be told" } else { "does not hold" };
    format!(
        "{}; this {how}, and a change away from the safe end waits until it holds. The way past it is \
         break-glass: `weir flag set --break-glass REASON`, with the second token",
        guard.text
    )
}
