//! From a plan to a flip that has been seen to work: the dialog, the record, the verification.
//!
//! The dialog belongs to the plan it was opened for and starts on Cancel. A refresh never moves its
//! focus. A flip counts as done when every instance uses the new values, and as verified when the
//! effect has held; the absence of an answer is *unknown* and blocks until the table is read again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tui_input::Input;

use crate::admission::flag;
use crate::flag::{
    Change, Confirmation, FlagState, FlagTable, Forecast, Hindsight, NoForecast, OnExpire, Plan,
    Progress, Revision, Verify, Where, confirmation,
};
use crate::signal::Mono;
use crate::tui::app::Model;
use crate::tui::app::settled::Served;

/// For so long fewer must be served: what waits in a queue is served a little later.
const FEWER_FOR: Duration = Duration::from_secs(20);
/// Keys typed before a person can have seen the dialog are dropped.
pub const TYPE_AHEAD: Duration = Duration::from_millis(300);

/// What has the focus in the plan dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// The button that changes nothing.
    Cancel,
    /// The field for the plan's name, asked for when a change leads away from the safe end.
    Name,
    /// The button that applies.
    Apply,
    /// The reason.
    Reason,
}

/// How far a plan has come.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Being read by a person.
    Review,
    /// On its way.
    Sending {
        /// Since when.
        since: Mono,
    },
    /// Somebody else changed the table first.
    Conflict {
        /// Who changed what, in words.
        changed: Vec<String>,
    },
    /// The store refused.
    Refused {
        /// In its words.
        why: String,
    },
    /// Some flags were stored and some not.
    Partly {
        /// Which.
        said: String,
    },
    /// No answer came; nothing more is sent before the table has been read again.
    Unknown {
        /// What went wrong.
        why: String,
        /// What the table said afterwards, once it has been read.
        found: Option<String>,
    },
}

/// Which rows of a plan a frame has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// The first row shown.
    pub first: usize,
    /// The row after the last one shown.
    pub past: usize,
    /// Rows there are.
    pub rows: usize,
    /// Rows that must have been seen before the plan may be applied: changes and guards come first.
    pub vital: usize,
}

/// The plan dialog.
#[derive(Clone, Debug)]
pub struct PlanDialog {
    /// The plan.
    pub plan: Plan,
    /// The changes that lead back, from the table that the plan was made from.
    pub back: Vec<Change>,
    /// When it was opened.
    pub opened: Mono,
    /// What has the focus.
    pub focus: Focus,
    /// The reason.
    pub reason: Input,
    /// What was typed as the plan's name.
    pub name: Input,
    /// What it would do, or why that cannot be told; `None` while it is worked out.
    pub forecast: Option<Result<Forecast, NoForecast>>,
    /// How far it has come.
    pub stage: Stage,
    /// Rows scrolled down.
    pub scroll: usize,
    /// What the newest frame showed.
    pub visible: Visible,
    /// Rows from the first that have been on the screen, at its present size.
    pub seen: usize,
}

impl PlanDialog {
    /// A dialog on a fresh plan.
    #[must_use]
    pub fn new(plan: Plan, table: Option<&FlagTable>, now: Mono) -> Self {
        let back = plan
            .changes
            .iter()
            .map(|change| Change {
                key: change.key.clone(),
                to: match table.and_then(|table| table.get(&change.key)) {
                    Some(flag) => flag.overridden.clone(),
                    None => Some(change.from.clone()),
                },
            })
            .collect();
        let reason = Input::new(plan.reason.clone());
        // Nothing has been drawn yet; a plan is as long as its changes at least.
        let visible = Visible { vital: plan.changes.len(), ..Visible::default() };
        Self {
            plan,
            back,
            opened: now,
            focus: Focus::Cancel,
            reason,
            name: Input::default(),
            forecast: None,
            stage: Stage::Review,
            scroll: 0,
            visible,
            seen: 0,
        }
    }

    /// Takes note of what was on the screen.
    pub fn drawn(&mut self, visible: Visible) {
        self.visible = visible;
        if visible.first <= self.seen {
            self.seen = self.seen.max(visible.past);
        }
    }

    /// The screen has another size: what was seen must be seen again.
    pub const fn resized(&mut self) {
        self.seen = 0;
        self.visible.past = 0;
    }

    /// Rows of changes and guards that have not been on the screen.
    #[must_use]
    pub const fn unseen(&self) -> usize {
        self.visible.vital.saturating_sub(self.seen)
    }

    /// The last row that the text can be scrolled to.
    #[must_use]
    pub const fn scroll_max(&self) -> usize {
        self.visible.rows.saturating_sub(self.visible.past.saturating_sub(self.visible.first))
    }

    /// What must be typed first: asked for when a change leads away from its safe end.
    #[must_use]
    pub fn name_to_type(&self) -> Option<String> {
        match confirmation(&self.plan) {
            Confirmation::Enter => None,
            Confirmation::Type(name) => Some(name),
        }
    }

    /// Why Apply would do nothing now, if so.
    #[must_use]
    pub fn blocked(&self) -> Option<String> {
        match &self.stage {
            Stage::Review => {}
            Stage::Sending { .. } => return Some("being sent".to_owned()),
            Stage::Conflict { .. } => return Some("plan again from the new table".to_owned()),
            Stage::Refused { .. } => return Some("refused".to_owned()),
            Stage::Partly { .. } => return Some("stored in part".to_owned()),
            Stage::Unknown { .. } => return Some("not known whether it was stored".to_owned()),
        }
        if let Some(guard) = self.plan.refused() {
            let word = if guard.holds.is_none() { "unknown" } else { "false" };
            return Some(format!("guard is {word}: {}", guard.text));
        }
        if self.plan.changes.is_empty() {
            return Some("nothing to change".to_owned());
        }
        if self.unseen() > 0 {
            return Some(format!("{} rows of it have not been seen; j scrolls", self.unseen()));
        }
        if self.reason.value().trim().is_empty() {
            return Some("a reason is needed".to_owned());
        }
        if let Some(name) = self.name_to_type().filter(|name| self.name.value().trim() != name) {
            let change = self.plan.changes.iter().find(|change| change.key == name);
            let risk = change.and_then(|change| {
                let def = flag(&change.key).ok()?;
                Some(format!(" ({})", def.risk(&change.from, &change.to)))
            });
            let risk = risk.unwrap_or_default();
            return Some(format!("it leads away from safe{risk}; type {name}"));
        }
        None
    }

    /// Moves the focus forward or back.
    pub fn step_focus(&mut self, forward: bool) {
        let order: &[Focus] = if self.name_to_type().is_some() {
            &[Focus::Cancel, Focus::Name, Focus::Apply, Focus::Reason]
        } else {
            // The usual way is the short one; the reason is filled in.
            &[Focus::Cancel, Focus::Apply, Focus::Reason]
        };
        let at = order.iter().position(|focus| *focus == self.focus).unwrap_or(0);
        let step = if forward { 1 } else { order.len() - 1 };
        self.focus = order[(at + step) % order.len()];
    }

    /// The plan with the reason as it was edited.
    #[must_use]
    pub fn to_send(&self) -> Plan {
        Plan { reason: self.reason.value().trim().to_owned(), ..self.plan.clone() }
    }
}

/// A flip that was applied in this session.
#[derive(Clone, Debug)]
pub struct Flip {
    /// What was done.
    pub plan: Plan,
    /// What leads back.
    pub back: Vec<Change>,
    /// The revision that it made.
    pub revision: Revision,
    /// When it was applied.
    pub at: DateTime<Utc>,
    /// When, on the run's clock.
    pub since: Mono,
    /// Where the new values are in use.
    pub reach: Option<Reach>,
    /// Looks for the effect.
    pub verify: Verify,
    /// How that stands.
    pub progress: Progress,
    /// What people got before.
    pub before: Served,
    /// Since when clearly fewer are served.
    pub fewer_since: Option<Mono>,
    /// What was foretold of it, until that is held against what came.
    pub forecast: Option<Forecast>,
    /// A later flip of this session led back.
    pub undone: bool,
    /// Which of its flags has another value since, and by whose hand.
    pub replaced: Option<String>,
}

/// On how many instances all new values are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Instances that use them.
    pub on: usize,
    /// Instances there are.
    pub of: usize,
}

impl Flip {
    /// Reads from a fresh table how far the flip has come.
    pub fn reread(&mut self, table: &FlagTable) {
        let mut reach: Option<Reach> = None;
        for change in &self.plan.changes {
            let Some(flag) = table.get(&change.key) else { continue };
            let of = flag.effective.len();
            let on = flag.effective.values().filter(|value| **value == change.to).count();
            let before = reach.unwrap_or(Reach { on: of, of });
            reach = Some(Reach { on: before.on.min(on), of: before.of.max(of) });
        }
        self.reach = reach.filter(|reach| reach.of > 0);
        self.replaced = self.plan.changes.iter().find_map(|change| {
            let flag = table.get(&change.key)?;
            let is_another = flag.revision > self.revision && *flag.stored() != change.to;
            let by = flag.by.as_deref().unwrap_or("somebody");
            is_another.then(|| format!("{} is {} by {by}", change.key, flag.stored()))
        });
    }

    /// Takes note of what people get now.
    pub fn compare(&mut self, now: &Served, at: Mono) {
        let since = self.fewer_since.filter(|_| !now.is_as_good_as(&self.before));
        self.fewer_since = since.or_else(|| now.is_less_than(&self.before).then_some(at));
    }

    /// Whether clearly fewer have been served for long enough to mean it.
    #[must_use]
    pub fn serves_fewer(&self, at: Mono) -> bool {
        self.fewer_since.is_some_and(|since| at.saturating_since(since) >= FEWER_FOR)
    }

    /// Whether the effect is still waited for.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.undone && matches!(self.progress, Progress::Pending { .. })
    }
}

impl Model {
    /// Whether the store tells what the instances really use.
    #[must_use]
    pub fn tells_effective(&self) -> bool {
        self.store.as_ref().is_none_or(|store| store.able.effective)
    }

    /// How the last forecast of a scope did, in this store or this environment.
    #[must_use]
    pub fn last_forecast(&self, scope: &str) -> Option<&Hindsight> {
        let store = self.store.as_ref().map(|store| store.name.as_str());
        let place = Where { scope, store, environment: Some(&self.environment) };
        self.forecasts.kept.iter().rev().find(|one| one.is_of(&place))
    }

    /// Flags that go back by themselves only while weir runs: their store has no timer.
    pub fn carried(&self) -> impl Iterator<Item = &FlagState> {
        let is_carried = self.store.as_ref().is_some_and(|store| !store.able.timer);
        let flags = self.flags.table.iter().flat_map(|table| &table.flags);
        flags.filter(move |flag| is_carried && matches!(flag.timer(), Some((_, OnExpire::Revert))))
    }
}
