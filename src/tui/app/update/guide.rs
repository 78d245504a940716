//! What keys do on the walk along a runbook: take a step, answer, go back, skip, note, hand over.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tui_input::Input;

use crate::admission::FlagValue;
use crate::diagnosis::{Facts, Goto, TRIAGE, Truth};
use crate::flag::Change;
use crate::runbook::{Offer, ROLLBACK, Stuck, Walk};
use crate::signal::Mono;
use crate::tui::app::action::Action;
use crate::tui::app::guide::{Does, FirstFlip};
use crate::tui::app::mode::{Mode, Prompt};
use crate::tui::app::update::{dialog, toast, trace};
use crate::tui::app::{Effect, Model, SCOPES_MAX};
use crate::tui::session::{Entry, Want};
use crate::tui::theme::Role;

/// Opens the walk of the scope on the screen: the one that was begun, the one that was handed over,
/// or a new one.
pub fn open(model: &mut Model) {
    let Some((scope, library)) =
        model.scope().map(str::to_owned).zip(model.guidance().map(|one| one.library.clone()))
    else {
        toast(model, Role::Warn, "there is no evidence yet to walk on");
        return;
    };
    let now = model.now;
    let cause = model.verdict().map(|verdict| verdict.cause.clone());
    let held = model.verdict().and_then(|verdict| model.held(verdict)).map(|was| was.cause.clone());
    // What the evidence alone has gone through is gone through again once it names another cause.
    let is_stale = |walk: &Walk| {
        let (book, _) = walk.position();
        walk.is_untouched()
            && book != TRIAGE
            && cause.as_deref() != Some(book)
            && held.as_deref() != Some(book)
    };
    if model.guides.get(&scope).is_some_and(is_stale) {
        model.guides.remove(&scope);
    }
    let (mut is_new, mut is_handed) = (false, false);
    if !model.guides.contains_key(&scope) {
        if model.guides.len() >= SCOPES_MAX {
            toast(model, Role::Warn, "too many walks; leave weir to begin anew");
            return;
        }
        let zero = model.wall - model.now.since_start();
        let fits = |handed: &mut Walk| handed.scope().is_empty() || handed.scope() == scope;
        let walk = if let Some(handed) = model.handed.take_if(fits) {
            is_handed = true;
            taken_over(model, handed, &scope, zero)
        } else {
            // What flips hold down is treated by its own runbook, whatever the evidence says of now.
            let walk = held.and_then(|cause| Walk::start_in(Arc::clone(&library), &cause).ok());
            let mut walk = walk.unwrap_or_else(|| Walk::start(library)).of(&scope, zero);
            if let Some(facts) = model.facts() {
                walk.follow_triage(facts, now);
            }
            is_new = true;
            walk
        };
        model.guides.insert(scope.clone(), walk);
    }
    // It stands where the line of what comes next says, until somebody moves it.
    follow_on(model, now, |walk, facts, now, is_so| {
        // What somebody handed over is opened where they left it.
        let is_made = !is_handed && walk.pass_what_is_so(facts, now, is_so).is_ok();
        if walk.is_untouched() && (is_new || is_made) {
            walk.follow_to_person(facts, now, is_so);
        }
    });
    model.modes.push(Mode::Guide(0));
    rest(model);
}

/// Opens the walk that takes admission down, unless another one is under way.
pub fn open_rollback(model: &mut Model) {
    let found = model.scope().map(str::to_owned).zip(model.facts().cloned());
    let Some(((scope, facts), library)) =
        found.zip(model.guidance().map(|one| Arc::clone(&one.library)))
    else {
        toast(model, Role::Warn, "there is no evidence yet to walk on");
        return;
    };
    let other = model.guides.get(&scope).filter(|walk| {
        let has_ended =
            matches!(walk.view(&facts).map(|view| view.offer), Some(Offer::Ended { .. }));
        !walk.is_untouched() && walk.position().0 != ROLLBACK && !has_ended
    });
    if let Some(walk) = other {
        let text = format!(
            "the walk along {} is under way: end it or hand it over first ({}, {})",
            walk.position().0,
            model.key_of(Action::Diagnose),
            model.key_of(Action::Walk)
        );
        toast(model, Role::Warn, text);
        return;
    }
    if model.guides.get(&scope).is_none_or(|walk| walk.position().0 != ROLLBACK) {
        let zero = model.wall - model.now.since_start();
        match Walk::start_in(library, ROLLBACK) {
            Ok(walk) => drop(model.guides.insert(scope.clone(), walk.of(&scope, zero))),
            Err(why) => return toast(model, Role::Warn, why.to_string()),
        }
    }
    model.modes.push(Mode::Guide(0));
    rest(model);
}

/// Moves the walk on the screen on, past what is so already.
fn follow_on(
    model: &mut Model,
    now: Mono,
    on: impl FnOnce(&mut Walk, &Facts, Mono, &dyn Fn(&str, &FlagValue) -> bool),
) {
    let found = model.scope().map(str::to_owned).zip(model.facts().cloned());
    let Some((scope, facts)) = found else { return };
    let Some(mut walk) = model.guides.remove(&scope) else { return };
    on(&mut walk, &facts, now, &|key, to| model.is_so(key, to));
    model.guides.insert(scope, walk);
}

/// A walk that was handed over, with what is to be known of it on the timeline.
fn taken_over(model: &mut Model, handed: Walk, scope: &str, zero: DateTime<Utc>) -> Walk {
    for remark in handed.remarks() {
        model.timeline.push(model.wall, Role::Warn, format!("walk: {remark}"));
    }
    handed.of(scope, zero)
}

/// Lets every walk take the newest evidence in; none of them moves.
pub fn observe(model: &mut Model, now: Mono) {
    let Some(guide) = model.latest.as_ref().and_then(|update| update.guide.clone()) else { return };
    for (scope, walk) in &mut model.guides {
        if let Some(facts) = guide.facts.get(scope) {
            walk.observe(facts, now);
        }
    }
}

/// Plans the flip that the runbook of the cause begins with.
pub fn plan_first(model: &mut Model, flip: FirstFlip) -> Vec<Effect> {
    if let Some(why) = flip.refused {
        toast(model, Role::Warn, why);
        return Vec::new();
    }
    if let Some(offer) = model.plan_with(&flip.key, &flip.to) {
        return dialog::named(model, offer.plan.name);
    }
    let changes = vec![Change { key: flip.key.clone(), to: Some(flip.to) }];
    dialog::wish(model, Want::Changes { name: flip.key, changes })
}

/// Puts the cursor on what the evidence offers.
fn rest(model: &mut Model) {
    let offered = model.offered();
    if let Some(Mode::Guide(at)) = model.modes.last_mut() {
        *at = offered;
    }
}

/// Changes the walk on the screen, with the evidence that the screen shows; says why it cannot be.
fn change(
    model: &mut Model,
    to: impl FnOnce(&mut Walk, &Facts, &str) -> Result<(), Stuck>,
) -> bool {
    let found = model.scope().map(str::to_owned).zip(model.facts().cloned());
    let Some((scope, facts)) = found else { return false };
    let person = model.person.clone();
    let Some(walk) = model.guides.get_mut(&scope) else { return false };
    let result = to(walk, &facts, &person);
    let done = result.is_ok();
    if done {
        // A flip that is made already is nobody's question.
        let now = model.now;
        follow_on(
            model,
            now,
            |walk, facts, now, is_so| {
                while walk.pass_what_is_so(facts, now, is_so).is_ok() {}
            },
        );
    }
    if let Err(stuck) = result {
        toast(model, Role::Warn, stuck.to_string());
    }
    rest(model);
    done
}

/// Enter at a step.
pub fn take(model: &mut Model, now: Mono) -> Vec<Effect> {
    let Mode::Guide(at) = model.mode() else { return Vec::new() };
    let Some(choice) = model.choices().into_iter().nth(*at) else {
        toast(model, Role::Warn, "the walk has ended here; b goes back");
        return Vec::new();
    };
    match choice.does {
        Does::Advance => {
            change(model, |walk, facts, _| walk.advance(facts, now));
        }
        Does::Answer(place) => {
            change(model, |walk, facts, person| walk.answer(place, person, facts, now));
        }
        Does::Skip => {
            toast(
                model,
                Role::Warn,
                "the evidence does not lead there; s goes there with a reason",
            );
        }
        Does::Plan { key, to } => {
            if let Some(why) = model.flip_refused() {
                toast(model, Role::Warn, why);
                return Vec::new();
            }
            if let Some(offer) = model.plan_with(&key, &to) {
                return dialog::named(model, offer.plan.name);
            }
            let changes = vec![Change { key: key.clone(), to: Some(to) }];
            return dialog::wish(model, Want::Changes { name: key, changes });
        }
        Does::Acted(Truth::True) if choice.state != Some(Truth::True.word()) => {
            toast(model, Role::Warn, "its effect does not show yet; s goes on with a reason");
        }
        Does::Without => {
            change(model, |walk, facts, person| walk.without(person, facts, now));
        }
        Does::Acted(worked) => {
            change(model, |walk, facts, person| walk.acted(worked, person, facts, now));
        }
    }
    Vec::new()
}

pub fn back(model: &mut Model) {
    let Some(scope) = model.scope().map(str::to_owned) else { return };
    let moved = model.guides.get_mut(&scope).is_some_and(Walk::back);
    if !moved {
        toast(model, Role::Warn, "this is where the walk began");
    }
    rest(model);
}

/// Asks for the reason of a skip to the choice under the cursor.
pub fn skip(model: &mut Model) {
    let Mode::Guide(at) = model.mode() else { return };
    match model.choices().into_iter().nth(*at).and_then(|choice| choice.goto) {
        Some(goto) => model.modes.push(Mode::Say(Prompt::Skip(goto), Input::default())),
        None => toast(model, Role::Warn, "choose a way with the arrows first"),
    }
}

/// A line was typed and taken.
pub fn said(model: &mut Model, now: Mono) -> Vec<Effect> {
    let Some(Mode::Say(prompt, input)) = model.modes.pop() else { return Vec::new() };
    let text = input.value().trim().to_owned();
    match prompt {
        Prompt::Skip(_) if text.is_empty() => {
            toast(model, Role::Warn, "not skipped: a reason is needed");
            Vec::new()
        }
        Prompt::Skip(goto) => skipped(model, &goto, &text, now),
        Prompt::HandOver => handed_over(model, &text, now),
        Prompt::Original => trace::ask(model, &text),
    }
}

fn skipped(model: &mut Model, goto: &Goto, reason: &str, now: Mono) -> Vec<Effect> {
    let place = model.guide().map(|walk| walk.position().1.to_owned()).unwrap_or_default();
    if !change(model, |walk, facts, person| walk.skip(goto, reason, person, facts, now)) {
        return Vec::new();
    }
    let text = format!("skipped {place}: {reason}");
    model.timeline.push(model.wall, Role::Accent, text.clone());
    vec![Effect::Journal(Entry::Note(text))]
}

/// The walk is written down for the next one; where it was saved is said when it was.
fn handed_over(model: &mut Model, text: &str, now: Mono) -> Vec<Effect> {
    let said = text.split_once(':').map(|(to, text)| (to.trim(), text.trim()));
    let Some((to, text)) = said.filter(|(to, _)| !to.is_empty()) else {
        toast(model, Role::Warn, "not handed over: write `name: what the next one has to know`");
        return Vec::new();
    };
    if !change(model, |walk, _, person| walk.hand_over(person, to, text, now)) {
        return Vec::new();
    }
    let line = format!("handed over to {to}: {text}");
    model.timeline.push(model.wall, Role::Accent, line.clone());
    let Some(walk) = model.guide() else { return Vec::new() };
    let page = walk.write(&model.person, model.wall);
    vec![Effect::Journal(Entry::Note(line)), Effect::SaveWalk(page)]
}

/// A note that was written on the walk belongs to its step as well.
pub fn note(model: &mut Model, text: &str) {
    if matches!(model.mode(), Mode::Guide(_)) {
        change(model, |walk, _, person| walk.note(text, person));
    }
}

/// The file was written, or not.
pub fn saved(model: &mut Model, result: Result<String, String>) -> Vec<Effect> {
    match result {
        Ok(path) => {
            let text = format!("walk saved: {path}");
            model.timeline.push(model.wall, Role::Ok, text.clone());
            toast(model, Role::Ok, format!("{text}; weir watch --walk opens it"));
            vec![Effect::Journal(Entry::Note(text))]
        }
        Err(why) => {
            toast(model, Role::Crit, format!("the walk was not saved: {why}"));
            Vec::new()
        }
    }
}
