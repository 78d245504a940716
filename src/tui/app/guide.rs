//! The walk along a runbook as the screen holds it: one per quota scope, on the evidence of now.
//!
//! Answers and skips move the walk and nothing else. A flip is only ever planned from here, and the
//! plan then asks.

use crate::admission::FlagValue;
use crate::diagnosis::{Facts, Goto, Standing, Truth};
use crate::runbook::{Offer, Walk};
use crate::tui::app::Model;
use crate::tui::session::Guidance;

/// One line to choose from at a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What it says.
    pub say: String,
    /// How it stands now, where that can be said.
    pub state: Option<&'static str>,
    /// What Enter does there.
    pub does: Does,
    /// Where it leads; `None` for a plan.
    pub goto: Option<Goto>,
}

/// What Enter does at a choice.
#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    /// Takes the way that the evidence offers.
    Advance,
    /// Nothing: only a skip with a reason goes there.
    Skip,
    /// Gives the answer of this place.
    Answer(usize),
    /// Opens a plan for this flip.
    Plan {
        /// The flag.
        key: String,
        /// Its new value.
        to: FlagValue,
    },
    /// Says how the flip went.
    Acted(Truth),
}

impl Model {
    /// The runbooks and the evidence, where there is a diagnosis behind what is shown.
    #[must_use]
    pub fn guidance(&self) -> Option<&Guidance> {
        self.shown()?.guide.as_deref()
    }

    /// The evidence of the scope on the screen.
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        self.guidance()?.facts.get(self.scope()?)
    }

    /// The walk of the scope on the screen, once one was begun.
    #[must_use]
    pub fn guide(&self) -> Option<&Walk> {
        self.guides.get(self.scope()?)
    }

    /// What can be chosen at the current step, in order.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        let found = self.guide().zip(self.facts());
        let Some((walk, facts)) = found else { return Vec::new() };
        let Some((view, why)) = walk.view(facts).zip(walk.why(facts)) else { return Vec::new() };
        let mut choices = Vec::new();
        if let Offer::Flip { action, .. } = &view.offer {
            let (key, to) = (action.flag.clone(), action.set.clone());
            let say = format!("plan {key} = {to}");
            choices.push(Choice { say, state: None, does: Does::Plan { key, to }, goto: None });
        }
        for (place, fork) in why.forks.into_iter().enumerate() {
            let does = match &view.offer {
                Offer::Go { goto, .. } if *goto == fork.goto => Does::Advance,
                Offer::Ask { .. } => Does::Answer(place),
                Offer::Flip { .. } => Does::Acted(match place {
                    0 => Truth::True,
                    1 => Truth::False,
                    _ => Truth::Unknown,
                }),
                Offer::Go { .. } | Offer::Ended { .. } => Does::Skip,
            };
            let (say, state, goto) = (fork.say, fork.state, Some(fork.goto));
            choices.push(Choice { say, state, does, goto });
        }
        choices
    }

    /// Where the cursor begins at the current step: at what the evidence offers.
    #[must_use]
    pub fn offered(&self) -> usize {
        self.choices().iter().position(|choice| choice.does == Does::Advance).unwrap_or(0)
    }

    /// Why no flip may be planned at the current step.
    #[must_use]
    pub fn flip_refused(&self) -> Option<String> {
        if self.read_only {
            return Some("this session is read-only".to_owned());
        }
        let (walk, facts) = self.guide().zip(self.facts())?;
        let (book, _) = walk.position();
        let verdict = self.verdict()?;
        let standing = if verdict.cause == book {
            Some(verdict.standing)
        } else {
            verdict.also.iter().find(|one| one.cause == book).map(|one| one.standing)
        };
        if standing == Some(Standing::Contradicted) {
            return Some(format!("the evidence for {book} contradicts itself: no flip"));
        }
        match walk.view(facts)?.offer {
            Offer::Flip { guard: Truth::False, .. } => {
                Some("its guard is false: there is no reason for this flip now".to_owned())
            }
            Offer::Flip { guard: Truth::Unknown, action, .. } if !action.safe => {
                Some("its guard is unknown: fetch the missing signal first".to_owned())
            }
            _ => None,
        }
    }
}
