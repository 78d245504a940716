//! What the verdict's plan would still change, so that nothing is offered that is in force already.

use crate::admission::{NamedPlan, PLANS, flag};
use crate::tui::app::Model;

/// The plan that the verdict offers, or one that a key opens.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The plan.
    pub plan: &'static NamedPlan,
    /// Flags that it would still change; `None` while the table is not known.
    pub left: Option<usize>,
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
    /// The plan that the verdict offers, or the one that its runbook's first flip is a part of: such a
    /// flip does little without the others.
    #[must_use]
    pub fn offer(&self) -> Option<Offer> {
        if let Some(name) = self.verdict()?.plan.as_deref() {
            return self.offer_of(name);
        }
        let flip = self.first_flip()?;
        let is_part = |plan: &&NamedPlan| {
            plan.changes.iter().any(|(key, value)| {
                *key == flip.key
                    && flag(key).and_then(|def| def.parse(value)) == Ok(flip.to.clone())
            })
        };
        self.offer_of(PLANS.iter().find(is_part)?.name)
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
