//! What the verdict's plan would still change, so that nothing is offered that is in force already.

use crate::admission::{FlagValue, NamedPlan, PLANS};
use crate::flag::left_of;
use crate::tui::app::guide::FirstFlip;
use crate::tui::app::{Model, State};

/// p95 of admitted requests above which a queue that stands is too patient.
const PATIENT_ABOVE_S: f64 = 5.0;
/// Fewer waiting requests than this are no queue.
const STANDS_FROM: f64 = 1.0;

/// The plan that the verdict offers, or one that a key opens.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The plan.
    pub plan: &'static NamedPlan,
    /// Flags that it would still change; `None` while the table is not known.
    pub left: Option<usize>,
}

/// What comes next.
#[derive(Clone, Debug)]
pub enum Next {
    /// A plan that still changes something.
    Plan(Offer),
    /// The flip that the cause's runbook has first, made or not allowed.
    Flip(FirstFlip),
    /// A plan that is in force: its effect.
    Watch(Offer),
    /// A step that is a question, or an end.
    Step(String),
}

impl Offer {
    /// Whether every value is stored as the plan wants it.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        self.left == Some(0)
    }

    /// How many flags it changes, as far as that is known, in words.
    #[must_use]
    pub fn size(&self) -> String {
        match self.left.unwrap_or(self.plan.changes.len()) {
            1 => "1 flag".to_owned(),
            many => format!("{many} flags"),
        }
    }
}

impl Model {
    /// The plan that the verdict offers.
    #[must_use]
    pub fn offer(&self) -> Option<Offer> {
        self.offer_of(self.verdict()?.plan.as_deref()?)
    }

    /// What comes next about the verdict: one answer for the keys, the line of every screen and the
    /// diagnosis.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        // What comes after a flip is known once its effect can show.
        if self.settling_flip().is_some() {
            return None;
        }
        if self.verdict().is_some_and(|verdict| State::of(verdict) == State::Contained) {
            return self.contained_flip().map(|(_, flip)| Next::Flip(flip));
        }
        let (offer, flip) = (self.offer(), self.first_flip());
        // A walk that somebody has begun knows better what comes next than the first step does.
        let offer = offer.filter(|_| self.walked_node().is_none());
        if let Some(name) = offer.map(|offer| offer.plan.name).filter(|name| self.took_back(name)) {
            return Some(Next::Step(format!(
                "{name} was made and taken back: look for another way"
            )));
        }
        match (offer, flip) {
            (Some(offer), _) if !offer.is_in_force() => Some(Next::Plan(offer)),
            (_, Some(flip)) if flip.refused.is_none() => Some(Next::Flip(flip)),
            (Some(offer), _) if self.is_watched(offer.plan.name) => Some(Next::Watch(offer)),
            (_, Some(flip)) => Some(Next::Flip(flip)),
            (_, None) => self.due_node().map(|(_, node)| Next::Step(node.title.clone())),
        }
    }

    /// The flip that is worth a thought while demand is contained, and the cause that it is for where
    /// that is another than the demand: one that is still there, or a queue that stands too long.
    #[must_use]
    pub fn contained_flip(&self) -> Option<(Option<String>, FirstFlip)> {
        if let Some((cause, flip)) = self.flip_beside() {
            return Some((Some(cause), flip));
        }
        let stands = self.number("queue_depth").is_some_and(|depth| depth >= STANDS_FROM);
        let is_patient = self.number("latency_p95_s").is_some_and(|p95| p95 > PATIENT_ABOVE_S);
        let flip = self.first_flip().filter(|flip| flip.refused.is_none());
        flip.filter(|_| stands && is_patient).map(|flip| (None, flip))
    }

    /// Whether this plan was made in the present incident and taken back.
    fn took_back(&self, plan: &str) -> bool {
        let began = self.verdict().and_then(|verdict| self.incidents.get(&verdict.scope));
        let newest = self.flips.iter().rev().find(|flip| flip.plan.name == plan);
        newest.zip(began).is_some_and(|(flip, began)| flip.undone && flip.at >= began.wall)
    }

    /// Whether a flip of this plan is still being verified.
    fn is_watched(&self, plan: &str) -> bool {
        self.last_flip().is_some_and(|flip| flip.plan.name == plan && flip.is_pending())
    }

    /// The plan that this flip is a part of, where more of that plan is left to do and nobody has taken
    /// it back.
    #[must_use]
    pub fn plan_with(&self, key: &str, to: &FlagValue) -> Option<Offer> {
        let plan = PLANS.iter().find(|plan| plan.sets(key, to) && !self.took_back(plan.name))?;
        self.offer_of(plan.name).filter(|offer| offer.left.is_some_and(|left| left > 1))
    }

    /// One of the plans that ship with weir, against the table that was read last.
    #[must_use]
    pub fn offer_of(&self, name: &str) -> Option<Offer> {
        let plan = PLANS.iter().find(|plan| plan.name == name)?;
        let table = self.flags.table.as_ref();
        let left = table.and_then(|table| left_of(plan, table).ok()).map(|left| left.len());
        Some(Offer { plan, left })
    }
}
