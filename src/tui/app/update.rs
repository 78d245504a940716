//! How the model changes: one message in, the new model and what has to be done outside.
//!
//! Reads no clock and awaits nothing. A refresh never moves a cursor, a focus or a frozen screen.

mod arm;
mod dialog;
mod foretold;
mod guide;
mod inspect;
mod others;
mod palette;
mod press;
mod rewind;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use crate::flag::{
    Change, FlagTable, Forecast, Outcome, Plan, Progress, Revision, Unsettled, Verify,
};
use crate::signal::Mono;
use crate::tui::app::action::Action;
use crate::tui::app::flip::{Flip, Stage};
use crate::tui::app::mode::Mode;
use crate::tui::app::{Effect, Model, Msg, Onset, SCOPES_MAX, State, Toast, history, replay};
use crate::tui::session::{Entry, Settings, Update};
use crate::tui::theme::Role;

/// How long a short message stays.
const TOAST: Duration = Duration::from_secs(6);
/// The flags are read again this often while a flip is being verified or they are on the screen, this
/// often while something is wrong, for then others flip too, and otherwise this often.
///
/// Each a little less than whole seconds, which is when it is asked for.
const REREAD_BUSY: Duration = Duration::from_millis(900);
const REREAD_INCIDENT: Duration = Duration::from_millis(1_900);
const REREAD_IDLE: Duration = Duration::from_secs(10);

/// Applies one message. `now` never runs backwards; an earlier one counts as the latest seen.
pub fn update(model: &mut Model, msg: Msg, now: Mono) -> Vec<Effect> {
    model.now = model.now.max(now);
    let now = model.now;
    match msg {
        Msg::Key(event) => press::key(model, event, now),
        Msg::Paste(text) => {
            press::paste(model, &text);
            Vec::new()
        }
        Msg::Resized => {
            for mode in &mut model.modes {
                if let Mode::Plan(dialog) = mode {
                    dialog.resized();
                }
            }
            model.dirty = true;
            Vec::new()
        }
        Msg::Drawn(visible) => {
            if let Some(Mode::Plan(dialog)) = model.modes.last_mut() {
                let before = dialog.unseen();
                dialog.drawn(visible);
                // The frame that was drawn said what was locked before it was seen.
                model.dirty |= dialog.unseen() != before;
            }
            Vec::new()
        }
        Msg::Updated(update) => updated(model, update, now),
        Msg::Noticed(notice) => {
            model.timeline.push(notice.wall, Role::Accent, notice.text);
            model.dirty = true;
            Vec::new()
        }
        Msg::Tick(wall) => {
            // The calendar of a recording is its own.
            if model.playhead.is_none() {
                model.wall = wall;
            }
            tick(model, now)
        }
        Msg::Flags(result) => flags(model, result, now),
        Msg::Lost(lost) => {
            dialog::lost(model, lost);
            Vec::new()
        }
        Msg::Planned(result) => dialog::planned(model, result, now),
        Msg::Foretold { request_id, forecast } => {
            foretold::worked_out(model, &request_id, forecast);
            Vec::new()
        }
        Msg::Earlier(read) => {
            foretold::earlier(model, read);
            Vec::new()
        }
        Msg::ForecastKept(result) => {
            if let Err(why) = result {
                toast(model, Role::Warn, format!("forecasts: {why}"));
            }
            Vec::new()
        }
        Msg::Applied { request_id, outcome } => applied(model, &request_id, outcome, now),
        Msg::Traced { id, answer } => {
            trace::told(model, id, answer);
            Vec::new()
        }
        Msg::Origin { scope, signal, answer } => {
            inspect::told(model, (&scope, &signal), answer);
            Vec::new()
        }
        Msg::WalkSaved(result) => guide::saved(model, result),
        Msg::Kept { copied, saved } => {
            kept(model, copied, saved);
            Vec::new()
        }
        Msg::Configured(settings) => {
            configured(model, *settings);
            Vec::new()
        }
        Msg::Journalled(result) => {
            if let Err(why) = result {
                toast(model, Role::Warn, format!("journal: {why}"));
            }
            Vec::new()
        }
    }
}

/// The configuration was read again, or cannot be.
fn configured(model: &mut Model, Settings { changed, said }: Settings) {
    if let Some((_, owners, registry, read_only)) = changed {
        model.owners = owners;
        model.registry = registry;
        // Only toward the safe side: what was opened read-only stays so.
        model.read_only |= read_only;
    }
    let role = if said.is_bad { Role::Warn } else { Role::Accent };
    // A line each: the remedy is the part that must not be cut off. The newest stands on top.
    for part in said.text.split("; ").collect::<Vec<_>>().into_iter().rev() {
        model.timeline.push(model.wall, role, part);
    }
    toast(model, role, said.text);
}

/// Says where a screen is.
fn kept(model: &mut Model, copied: bool, saved: Result<String, String>) {
    let sent = if copied { "; sent to the clipboard, by OSC 52" } else { "" };
    match saved {
        Ok(path) => toast(model, Role::Ok, format!("{path}{sent}")),
        Err(why) => toast(model, Role::Crit, format!("not saved: {why}{sent}")),
    }
}

pub(super) fn toast(model: &mut Model, role: Role, text: impl Into<String>) {
    model.toast = Some(Toast { text: text.into(), role, until: model.now + TOAST });
    model.dirty = true;
}

fn updated(model: &mut Model, update: Arc<Update>, now: Mono) -> Vec<Effect> {
    let now = replay::follow(model, &update).unwrap_or(now);
    let observation = &update.observation;
    model.wall = model.wall.max(observation.wall);
    let ten_s_ago = history::slot(observation.at).saturating_sub(10);
    let trends = &model.history;
    model.timeline.follow(&update, |scope| trends.get(scope)?.at("offered_rps", ten_s_ago));
    // What was offered would not do: while the gateway is silent, the clients say that.
    let admits = observation.scopes.iter().find_map(|scope| scope.get("admitted_rps"));
    if let Some(admits) = admits {
        model.gateway_name = Some(Arc::clone(&admits.source));
    }
    for snapshot in &observation.scopes {
        if model.history.len() < SCOPES_MAX || model.history.contains_key(&snapshot.scope) {
            let trends = model.history.entry(snapshot.scope.clone()).or_default();
            trends.push(snapshot, observation.at);
        }
    }
    take_backfill(model, &update);
    for verdict in &update.verdicts {
        let known = model.onsets.get(&verdict.scope);
        if known.is_none_or(|onset| onset.cause != verdict.cause)
            && (known.is_some() || model.onsets.len() < SCOPES_MAX)
        {
            let onset = Onset {
                cause: verdict.cause.clone(),
                since: observation.at,
                wall: observation.wall,
            };
            model.onsets.insert(verdict.scope.clone(), onset);
        }
    }
    model.judged.follow(&update.verdicts, observation.at);
    if let Some(frozen) = &mut model.frozen {
        frozen.newer += 1;
    }
    model.latest = Some(update);
    follow_walk(model);
    model.remember();
    dialog::reguard(model);
    guide::observe(model, now);
    let held = foretold::hold_against(model, now);
    model.dirty = true;
    let mut effects = verify(model, None, now);
    effects.extend(held);
    let looked_into = model.looked_into();
    effects.extend(looked_into.map(|(scope, signal)| Effect::Origin { scope, signal }));
    effects
}

/// Takes the time before the first poll in, once.
fn take_backfill(model: &mut Model, update: &Update) {
    let Some(backfill) = update.backfill.as_ref().filter(|_| !model.is_backfilled) else { return };
    for (scope, samples) in &backfill.scopes {
        if model.history.len() < SCOPES_MAX || model.history.contains_key(scope) {
            model.history.entry(scope.clone()).or_default().fill(samples);
        }
    }
    model.is_backfilled = true;
}

/// Lets the walk on the screen take up answers that have become possible.
fn follow_walk(model: &mut Model) {
    if model.frozen.is_some() {
        return;
    }
    let Some(verdict) = model.verdict().cloned() else { return };
    let wall = model.wall;
    for mode in &mut model.modes {
        if let Mode::Diagnose(walk) = mode {
            walk.follow(&verdict, wall);
        }
    }
    if let Some(path) = &mut model.path {
        path.follow(&verdict, wall);
    }
}

/// Looks for the effect of every flip in the newest snapshots, and in a table that was just read.
fn verify(model: &mut Model, table: Option<&FlagTable>, now: Mono) -> Vec<Effect> {
    let latest = model.latest.clone();
    let scopes = latest.as_ref().map_or(&[][..], |update| &update.observation.scopes);
    let mut effects = Vec::new();
    let mut ended = Vec::new();
    let served = model.served();
    for flip in &mut model.flips {
        flip.compare(&served, now);
    }
    for flip in model.flips.iter_mut().filter(|flip| flip.is_pending()) {
        flip.progress = flip.verify.step(scopes, table, now);
        let why = match &flip.progress {
            Progress::Pending { .. } => continue,
            Progress::Verified => None,
            Progress::EffectSeen { known: why }
            | Progress::Failed { why }
            | Progress::Unknown { why } => Some(why.clone()),
        };
        let state = flip.progress.word();
        let is_good = matches!(flip.progress, Progress::Verified | Progress::EffectSeen { .. });
        ended.push((format!("{} {state}", flip.plan.name), why.clone(), is_good));
        effects.push(Effect::Journal(Entry::Verified {
            request_id: flip.plan.request_id.clone(),
            plan: flip.plan.name.clone(),
            revision: flip.revision,
            state,
            why,
        }));
    }
    let undo = model.key_of(Action::Undo);
    for (text, why, is_good) in ended {
        let (role, text) = match why {
            None => (Role::Ok, text),
            Some(why) if is_good => (Role::Ok, format!("{text}: {why}")),
            Some(why) => (Role::Crit, format!("{text}: {why}; {undo} plans the way back")),
        };
        model.timeline.push(model.wall, role, text.clone());
        toast(model, role, text);
    }
    effects
}

fn tick(model: &mut Model, now: Mono) -> Vec<Effect> {
    // Ages and the clock are on the screen: a second is a visible change.
    model.dirty = true;
    if model.toast.as_ref().is_some_and(|toast| now >= toast.until) {
        model.toast = None;
    }
    let mut effects = verify(model, None, now);
    effects.extend(arm::tick(model, now));
    let is_restless = model.unsettled.as_ref().is_some_and(|open| !open.is_quiet());
    let busy = is_restless || model.flips.iter().any(Flip::is_pending);
    let every = if busy || matches!(model.screen(), Mode::Flags) {
        REREAD_BUSY
    } else if model.headline().state() == State::Ok {
        REREAD_IDLE
    } else {
        REREAD_INCIDENT
    };
    let due = model.flags.read_at.is_none_or(|at| now.saturating_since(at) >= every);
    if due && !model.flags.loading {
        model.flags.loading = true;
        effects.push(Effect::LoadFlags);
    }
    effects
}

fn flags(model: &mut Model, result: Result<FlagTable, String>, now: Mono) -> Vec<Effect> {
    model.dirty = true;
    model.flags.loading = false;
    model.flags.read_at = Some(now);
    match result {
        Ok(table) => {
            for flip in &mut model.flips {
                flip.reread(&table);
            }
            dialog::settle(model, &table);
            others::note(model, &table);
            others::overtake(model, &table);
            let effects = verify(model, Some(&table), now);
            model.flags.error = None;
            model.flags.table = Some(table);
            dialog::reguard(model);
            effects
        }
        Err(why) => {
            if let Some(unsettled) = &mut model.unsettled {
                unsettled.on_failed_read();
            }
            model.flags.error = Some(why);
            Vec::new()
        }
    }
}

fn applied(model: &mut Model, request_id: &str, outcome: Outcome, now: Mono) -> Vec<Effect> {
    model.dirty = true;
    let Some(at) = model.modes.iter().position(
        |mode| matches!(mode, Mode::Plan(dialog) if dialog.plan.request_id == request_id),
    ) else {
        return Vec::new();
    };
    let Mode::Plan(dialog) = &mut model.modes[at] else { return Vec::new() };
    match outcome {
        Outcome::Applied { revision, beside } => {
            let (plan, back) = (dialog.to_send(), dialog.back.clone());
            let forecast = dialog.forecast.clone().and_then(Result::ok);
            model.modes.truncate(at);
            if let Some(beside) = beside {
                model.timeline.push(model.wall, Role::Warn, format!("{}: {beside}", plan.name));
            }
            stored(model, (plan, forecast), back, revision, now)
        }
        Outcome::Conflict { current } => {
            let changed = dialog.plan.moved_since(&current);
            dialog.stage = Stage::Conflict { changed };
            model.flags.table = Some(current);
            model.flags.read_at = Some(now);
            Vec::new()
        }
        Outcome::Refused { why } => {
            dialog.stage = Stage::Refused { why };
            Vec::new()
        }
        Outcome::Partly(partly) => {
            let said = partly.to_string();
            model.timeline.push(model.wall, Role::Warn, format!("{}: {said}", dialog.plan.name));
            dialog.stage = Stage::Partly { said };
            model.flags.loading = true;
            vec![Effect::LoadFlags]
        }
        Outcome::Unknown { why } => {
            model.unsettled = Some(Unsettled::new(&dialog.plan, why.clone()));
            dialog.stage = Stage::Unknown { why, found: None };
            model.flags.loading = true;
            vec![Effect::LoadFlags]
        }
    }
}

/// A plan was stored: remembers the flip and starts to look for its effect.
fn stored(
    model: &mut Model,
    (plan, forecast): (Plan, Option<Forecast>),
    back: Vec<Change>,
    revision: Revision,
    now: Mono,
) -> Vec<Effect> {
    let undone = plan.name.starts_with(dialog::UNDO);
    if undone && let Some(last) = model.flips.iter_mut().rev().find(|flip| !flip.undone) {
        last.undone = true;
    }
    let count = plan.changes.len();
    let text = format!("{} applied at revision {revision}, {count} flags", plan.name);
    model.timeline.push(model.wall, Role::Accent, text.clone());
    let verify = Verify::of(&plan, now);
    let progress = Progress::Pending { left: verify.deadline().saturating_since(now) };
    let at = model.wall;
    let before = model.served();
    model.flips.push(Flip {
        undone,
        replaced: None,
        before,
        fewer_since: None,
        forecast,
        plan,
        back,
        revision,
        at,
        since: now,
        reach: None,
        verify,
        progress,
    });
    model.flags.marked.clear();
    toast(model, Role::Ok, text);
    model.flags.loading = true;
    vec![Effect::LoadFlags]
}
