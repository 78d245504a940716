//! What the verdict's plan would still change, so that nothing is offered that is in force already.

use crate::admission::{NamedPlan, PLANS, flag};
use crate::tui::app::Model;
use crate::tui::app::guide::FirstFlip;

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
        let (offer, flip) = (self.offer(), self.first_flip());
        match (offer, flip) {
            (Some(offer), _) if !offer.is_in_force() => Some(Next::Plan(offer)),
            (_, Some(flip)) if flip.refused.is_none() => Some(Next::Flip(flip)),
            (Some(offer), _) => Some(Next::Watch(offer)),
            (None, Some(flip)) => Some(Next::Flip(flip)),
            (None, None) => self.first_node().map(|(_, node)| Next::Step(node.title.clone())),
        }
    }

    /// One of the plans that ship with weir, against the table that was read last.
    #[must_use]
    pub fn offer_of(&self, name: &str) -> Option<Offer> {
        let plan = PLANS.iter().find(|plan| plan.name == name)?;
        let left = self.flags.table.as_ref().map(|table| {
            let is_stored = |key: &str, value: &str| {
                let wanted = flag(key).and_then(|def| def.parse(value));
                table.get(key).is_some_and(|flag| wanted.is_ok_and(|to| *flag.stored() == to))
            };
            plan.changes.iter().filter(|(key, value)| !is_stored(key, value)).count()
        });
        Some(Offer { plan, left })
    }
}
