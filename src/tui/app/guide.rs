//! The walk along a runbook as the screen holds it: one per quota scope, on the evidence of now.
//!
//! Answers and skips move the walk and nothing else. A flip is only ever planned from here, and the
//! plan then asks.

use std::fmt;

use crate::admission::FlagValue;
use crate::diagnosis::{Book, Facts, Goto, Node, Standing, Step, Truth, first_step};
use crate::runbook::{HandOver, Offer, Walk, is_open_answer};
use crate::tui::app::Model;
use crate::tui::session::Guidance;
use crate::tui::theme::Role;

/// The flip that a runbook begins with.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstFlip {
    /// What it is for.
    pub title: String,
    /// The flag.
    pub key: String,
    /// Its value.
    pub to: FlagValue,
    /// Why it may not be made now.
    pub refused: Option<String>,
}

impl fmt::Display for FirstFlip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.key, self.to, self.title)
    }
}

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
    /// Goes on without the flip.
    Without,
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

    /// Takes a walk that was handed over: it is opened where its scope is seen, and what people said on
    /// it is on the timeline at once, also while no source answers.
    pub fn take_over(&mut self, walk: Walk) {
        for step in walk.trail().iter().filter(|step| step.by.is_some() || !step.notes.is_empty()) {
            for note in &step.notes {
                let text = format!("walk, at {}: {note}", step.title);
                self.timeline.push(step.at, Role::Accent, text);
            }
            if let Some(by) = &step.by {
                let text = format!("walk, at {}: {by}: {}", step.title, step.answer);
                self.timeline.push(step.at, Role::Accent, text);
            }
        }
        for HandOver { from, to, at, text } in walk.hand_overs() {
            let text = format!("walk handed over by {from} to {to}: {text}");
            self.timeline.push(*at, Role::Warn, text);
        }
        self.handed = Some(walk);
    }

    /// What can be chosen at the current step, in order.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        let found = self.guide().zip(self.facts());
        let Some((walk, facts)) = found else { return Vec::new() };
        let Some((view, why)) = walk.view(facts).zip(walk.why(facts)) else { return Vec::new() };
        let mut choices = Vec::new();
        if let Offer::Flip { action, guard, .. } = &view.offer {
            let (key, to) = (action.flag.clone(), action.set.clone());
            let remark = if self.is_so(&key, &to) {
                ", which it is already"
            } else if *guard == Truth::Unknown {
                ", though it cannot be told whether there is reason for it"
            } else {
                ""
            };
            let whole = self.plan_with(&key, &to).map_or_else(String::new, |offer| {
                format!(", with all of {} ({})", offer.plan.name, offer.size())
            });
            let say = format!("plan {key} = {to}{whole}{remark}");
            let is_made = self.flags.table.is_none() || self.is_so(&key, &to);
            choices.push(Choice { say, state: None, does: Does::Plan { key, to }, goto: None });
            // What was not made has neither worked nor failed.
            if !is_made {
                let goto = Some(action.resolve(&action.failed).clone());
                let say = "go on without this flip".to_owned();
                choices.push(Choice { say, state: None, does: Does::Without, goto });
                return choices;
            }
        }
        for (place, fork) in why.forks.into_iter().enumerate() {
            let does = match &view.offer {
                Offer::Go { place: taken, .. } if *taken == place => Does::Advance,
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

    /// Where the cursor begins at the current step: at what the evidence offers, at the answer of
    /// somebody who cannot tell, and past a flip that changes nothing.
    #[must_use]
    pub fn offered(&self) -> usize {
        let choices = self.choices();
        let place = |wanted: &dyn Fn(&Choice) -> bool| choices.iter().position(wanted);
        let open =
            |choice: &Choice| matches!(choice.does, Does::Answer(_)) && is_open_answer(&choice.say);
        let is_so =
            |choice: &Choice| matches!(&choice.does, Does::Plan { key, to } if self.is_so(key, to));
        if choices.first().is_some_and(is_so) {
            // What is not told yet is nobody's to answer: Enter does nothing there.
            let told = |one: &Choice| one.state == Some(Truth::True.word());
            return choices.iter().position(told).unwrap_or(0);
        }
        place(&|choice| choice.does == Does::Advance).or_else(|| place(&open)).unwrap_or(0)
    }

    /// Whether a flag has this value already, stored and on every instance.
    #[must_use]
    pub fn is_so(&self, key: &str, to: &FlagValue) -> bool {
        let flag = self.flags.table.as_ref().and_then(|table| table.get(key));
        flag.is_some_and(|flag| {
            flag.stored() == to && flag.effective.values().all(|value| value == to)
        })
    }

    /// Where the runbook of the verdict's cause needs somebody first on the evidence of now; `None`
    /// where the cause is not likely at least.
    #[must_use]
    pub fn first_node(&self) -> Option<(&Book, &Node)> {
        let verdict = self.verdict().filter(|verdict| verdict.standing >= Standing::Likely)?;
        let library = &self.guidance()?.library;
        let is_so = |key: &str, to: &FlagValue| self.is_so(key, to);
        first_step(library, &verdict.cause, self.facts()?, is_so)
    }

    /// Where the walk stands that somebody has begun along the runbook of the verdict's cause.
    #[must_use]
    pub fn walked_node(&self) -> Option<(&Book, &Node)> {
        let verdict = self.verdict().filter(|verdict| verdict.standing >= Standing::Likely)?;
        let walk = self.guide().filter(|walk| !walk.is_untouched())?;
        let (book, node) = walk.position();
        let book = self.guidance()?.library.book(book).filter(|book| book.id == verdict.cause)?;
        Some((book, book.node(node)?))
    }

    /// The step that somebody is needed at: where the walk stands, else where the runbook begins.
    #[must_use]
    pub fn due_node(&self) -> Option<(&Book, &Node)> {
        self.walked_node().or_else(|| self.first_node())
    }

    /// What the first flips of the verdict's cause, or of the one that flips hold down, cost callers, and
    /// why that is worth it.
    #[must_use]
    pub fn price(&self) -> Option<&str> {
        let verdict = self.verdict()?;
        let held = self.held(verdict).map(|was| was.cause.as_str());
        let library = &self.guidance()?.library;
        let known = held.into_iter().chain([verdict.cause.as_str()]);
        known
            .filter_map(|id| library.cause(id))
            .map(|cause| cause.price.as_str())
            .find(|price| !price.is_empty())
    }

    /// The flip that comes next, if a flip does.
    #[must_use]
    pub fn first_flip(&self) -> Option<FirstFlip> {
        let (book, node) = self.due_node()?;
        self.flip_at(book, node)
    }

    /// The flip that another cause has first which is confirmed beside the verdict's, where it may be
    /// made: what is contained has a reason that is still there.
    #[must_use]
    pub fn flip_beside(&self) -> Option<(String, FirstFlip)> {
        let verdict = self.verdict()?;
        let guidance = self.guidance()?;
        let is_so = |key: &str, to: &FlagValue| self.is_so(key, to);
        let beside = verdict.also.iter().filter(|other| other.standing == Standing::Confirmed);
        let held = self.held(verdict).map(|was| was.cause.as_str());
        beside.map(|other| other.cause.as_str()).chain(held).find_map(|cause| {
            let (book, node) = first_step(&guidance.library, cause, self.facts()?, is_so)?;
            let flip = self.flip_at(book, node)?;
            flip.refused.is_none().then(|| (cause.to_owned(), flip))
        })
    }

    fn flip_at(&self, book: &Book, node: &Node) -> Option<FirstFlip> {
        let Step::Action(action) = &node.step else { return None };
        if self.is_so(&action.flag, &action.set) {
            return None;
        }
        let guard = self.facts()?.truth(&book.id, &action.guard);
        let refused = action.refusal(guard, |key, value| self.is_so(key, value));
        Some(FirstFlip {
            title: node.title.clone(),
            key: action.flag.clone(),
            to: action.set.clone(),
            refused: refused.map(|why| why.to_string()),
        })
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
        let Offer::Flip { action, guard, .. } = walk.view(facts)?.offer else { return None };
        action.refusal(guard, |key, value| self.is_so(key, value)).map(|why| why.to_string())
    }
}
