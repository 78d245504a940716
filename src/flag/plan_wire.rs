//! A plan as JSON, for `POST /admin/v1/flags:plan` and the command line. Written only, never read:
//! what is applied is always the request, planned again against the table of that moment.

use serde::Serialize;

use crate::admission::Direction;

use super::types::{Guard, Plan, PlannedChange};
use super::wire::{WireOnExpire, WireValue};

/// One line of a [`PlanBody`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedRow {
    /// The flag.
    pub key: String,
    /// The stored value now.
    pub from: WireValue,
    /// The stored value afterwards.
    pub to: WireValue,
    /// The change drops the override instead of setting one.
    pub drops_override: bool,
    /// What the plan's timer sets again; absent where it drops the override, or only reminds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_sets: Option<WireValue>,
    /// `safer`, `riskier` or `same`.
    pub direction: &'static str,
}

/// One guard of a [`PlanBody`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuardRow {
    /// What is asked.
    pub text: String,
    /// null when it cannot be told.
    pub holds: Option<bool>,
}

/// A plan as JSON: the answer of `POST flags:plan`, and what `weir flag plan --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanBody {
    /// The plan's name.
    pub name: String,
    /// The revision that it was made from.
    pub revision: u64,
    /// The changes.
    pub changes: Vec<PlannedRow>,
    /// Interlocks and guards.
    pub guards: Vec<GuardRow>,
    /// A change leads away from its safe end.
    pub risky: bool,
    /// The guard that refuses the plan, null when none does.
    pub refused: Option<String>,
    /// The guards that break-glass passes, or would pass; empty when none refuses.
    pub overrides: Vec<String>,
    /// Why they are passed; null when they are not.
    pub break_glass: Option<String>,
    /// Blast radius in words.
    pub reach: String,
    /// Why.
    pub reason: String,
    /// What will show that it worked.
    pub verify: String,
    /// Seconds until the timer.
    pub ttl_s: Option<u64>,
    /// What the timer does.
    pub on_expire: WireOnExpire,
    /// Makes a repeat harmless.
    pub request_id: String,
}

impl From<&Plan> for PlanBody {
    fn from(plan: &Plan) -> Self {
        let row = |change: &PlannedChange| PlannedRow {
            key: change.key.clone(),
            from: (&change.from).into(),
            to: (&change.to).into(),
            drops_override: change.drops_override,
            timer_sets: plan
                .restores()
                .find(|(key, _)| *key == change.key)
                .map(|(_, to)| to.into()),
            direction: match change.direction {
                Direction::Safer => "safer",
                Direction::Riskier => "riskier",
                Direction::Same => "same",
            },
        };
        let guard = |guard: &Guard| GuardRow { text: guard.text.clone(), holds: guard.holds };
        Self {
            name: plan.name.clone(),
            revision: plan.revision.0,
            changes: plan.changes.iter().map(row).collect(),
            guards: plan.guards.iter().map(guard).collect(),
            risky: plan.is_risky(),
            refused: plan.refused().map(|guard| guard.text.clone()),
            overrides: plan.overridable().map(|guard| guard.text.clone()).collect(),
            break_glass: plan.glass.clone(),
            reach: plan.reach.clone(),
            reason: plan.reason.clone(),
            verify: plan.verify.clone(),
            ttl_s: plan.ttl_s,
            on_expire: plan.on_expire.into(),
            request_id: plan.request_id.clone(),
        }
    }
}
