//! Plans: wishing for one, showing it, sending it, and learning what became of it.

use crate::admission::FlagValue;
use crate::flag::{Change, FlagTable, Past, Plan, Settled, Unsettled, interlocks};
use crate::signal::Mono;
use crate::tui::app::flip::{Focus, PlanDialog, Stage};
use crate::tui::app::mode::Mode;
use crate::tui::app::update::foretold::question;
use crate::tui::app::update::toast;
use crate::tui::app::{Effect, Model};
use crate::tui::session::{Lost, Want, Wish, evidence};
use crate::tui::theme::Role;

/// Asks for a plan, and waits for it on the screen.
pub fn wish(model: &mut Model, want: Want) -> Vec<Effect> {
    if let Some(open) = model.unsettled.as_ref().filter(|open| !open.is_quiet()) {
        let text = format!("first {open}: reading the flags");
        toast(model, Role::Warn, text);
        return vec![Effect::LoadFlags];
    }
    let wish = Wish { want, update: model.latest.clone(), scope: model.scope().map(str::to_owned) };
    model.modes.push(Mode::Planning);
    vec![Effect::MakePlan(wish)]
}

/// Plans a named plan.
pub fn named(model: &mut Model, name: &str) -> Vec<Effect> {
    wish(model, Want::Named(name.to_owned()))
}

/// Plans the way back from the last flip.
pub fn undo(model: &mut Model) -> Vec<Effect> {
    let Some(flip) = model.last_flip() else { return Vec::new() };
    let name = format!("{UNDO}{}", flip.plan.name);
    let changes = flip.back.clone();
    wish(model, Want::Undo { name, changes })
}

/// What the name of a plan that leads back begins with.
pub const UNDO: &str = "undo ";

/// The common plan with one more change, in place of an earlier one on the same flag.
pub fn marked_with(model: &Model, key: &str, to: FlagValue) -> Vec<Change> {
    let others = model.flags.marked.iter().filter(|change| change.key != key).cloned();
    others.chain([Change { key: key.to_owned(), to: Some(to) }]).collect()
}

/// Asks the interlocks of a plan that is being read again: evidence moves on, the focus does not.
pub fn reguard(model: &mut Model) {
    let found = model.flags.table.clone().zip(model.latest.clone());
    let Some((table, update)) = found else { return };
    let scope = model.scope().map(str::to_owned);
    for mode in &mut model.modes {
        let Mode::Plan(dialog) = mode else { continue };
        // A table that has moved on is a conflict, and not for a guard to say.
        if dialog.stage == Stage::Review && table.revision == dialog.plan.revision {
            let evidence = evidence(Some(&update), scope.as_deref());
            dialog.plan.guards = interlocks(&dialog.plan.changes, &table, &evidence);
        }
    }
}

/// A plan was made: shows it, unless the person has gone on, and asks what it would do.
pub fn planned(model: &mut Model, result: Result<Plan, String>, now: Mono) -> Vec<Effect> {
    model.dirty = true;
    let Some(at) = model.modes.iter().position(|mode| matches!(mode, Mode::Planning)) else {
        return Vec::new();
    };
    match result {
        Ok(plan) => {
            let question = question(model, &plan);
            let dialog = PlanDialog::new(plan, model.flags.table.as_ref(), now);
            model.modes[at] = Mode::Plan(Box::new(dialog));
            let foretell = question.map(|one| Effect::Foretell(Box::new(one)));
            foretell.into_iter().chain([Effect::EarlierForecasts]).collect()
        }
        Err(why) => {
            model.modes.remove(at);
            toast(model, Role::Crit, format!("no plan: {why}"));
            Vec::new()
        }
    }
}

/// The button under the focus was pressed.
pub fn accept(model: &mut Model, now: Mono) -> Vec<Effect> {
    let locked = !model.may_send();
    let Some(Mode::Plan(dialog)) = model.modes.last_mut() else { return Vec::new() };
    match dialog.focus {
        Focus::Cancel => {
            if !matches!(dialog.stage, Stage::Sending { .. }) {
                model.modes.pop();
            }
            Vec::new()
        }
        // Nothing can be sent any more: what stands there is read first, and the next press closes it.
        _ if !matches!(dialog.stage, Stage::Review | Stage::Sending { .. }) => {
            dialog.focus = Focus::Cancel;
            Vec::new()
        }
        Focus::Name | Focus::Reason => {
            dialog.focus = Focus::Apply;
            Vec::new()
        }
        Focus::Apply => {
            if locked || dialog.blocked().is_some() {
                return Vec::new();
            }
            let plan = dialog.to_send();
            dialog.stage = Stage::Sending { since: now };
            dialog.focus = Focus::Cancel;
            vec![Effect::Apply(plan)]
        }
    }
}

/// A table was read: two equal readings, and nobody has to wait any more for a plan whose answer never
/// came. What became of it is said by whoever keeps the store; without one, the values have to do.
pub fn settle(model: &mut Model, table: &FlagTable) {
    let past = if model.store.is_some() { Past::Unread } else { Past::NotKept };
    let Some(unsettled) = &mut model.unsettled else { return };
    let settled = unsettled.on_read(table, past);
    if let Some(settled) = settled
        && let Some(unsettled) = model.unsettled.take()
    {
        say_settled(model, &unsettled, &settled);
        return;
    }
    let Some(open) = model.unsettled.as_ref().filter(|open| open.is_quiet()) else { return };
    let (id, words) = (open.request_id().to_owned(), open.to_string());
    found(model, &id, &words);
}

/// What the store's history has told about flips whose answer was lost.
pub fn lost(model: &mut Model, lost: Lost) {
    model.dirty = true;
    for (unsettled, settled) in lost.settled {
        say_settled(model, &unsettled, &settled);
    }
    model.unsettled = lost.open.last().cloned();
}

fn say_settled(model: &mut Model, unsettled: &Unsettled, settled: &Settled) {
    let words = settled.say();
    found(model, unsettled.request_id(), &words);
    let text = format!("{}: no answer came, and it {words}", unsettled.plan());
    model.timeline.push(model.wall, Role::Warn, text);
}

/// Says it in the plan's dialog, if that is still open.
fn found(model: &mut Model, request_id: &str, words: &str) {
    for mode in &mut model.modes {
        if let Mode::Plan(dialog) = mode
            && dialog.plan.request_id == request_id
            && let Stage::Unknown { found, .. } = &mut dialog.stage
        {
            *found = Some(words.to_owned());
        }
    }
}
