//! What a key does: looked up in the registry for the mode on top, then carried out.

use crossterm::event::{Event as TermEvent, KeyCode, KeyEvent, KeyEventKind};
use tui_input::backend::crossterm::EventHandler;
use tui_input::{Input, InputRequest};

use crate::admission::{FlagValue, Kind, flag};
use crate::flag::{Change, is_ill_gate};
use crate::signal::Mono;
use crate::tui::app::action::{Action, Key, resolve};
use crate::tui::app::flip::{Focus, Stage, TYPE_AHEAD};
use crate::tui::app::mode::{Choice, Context, Editor, Mode, Palette, Prompt};
use crate::tui::app::offer::Next;
use crate::tui::app::page::{Listed, Page};
use crate::tui::app::update::{arm, dialog, guide, inspect, palette, rewind, toast, trace};
use crate::tui::app::walk::Walk;
use crate::tui::app::{Effect, Frozen, Model, Mouse};
use crate::tui::session::{Entry, Seek, Want};
use crate::tui::theme::Role;

/// Rows that a page key moves.
const PAGE: usize = 10;
/// Characters that a typed line may have.
const TYPED_MAX: usize = 400;

pub fn key(model: &mut Model, event: KeyEvent, now: Mono) -> Vec<Effect> {
    if event.kind == KeyEventKind::Release {
        return Vec::new();
    }
    let Some(pressed) = Key::of(event) else { return Vec::new() };
    arm::used(model, now);
    if let Mode::Plan(dialog) = model.mode()
        && now.saturating_since(dialog.opened) < TYPE_AHEAD
        && !pressed.is_ctrl()
    {
        return Vec::new();
    }
    model.dirty = true;
    if let Some(action) = resolve(model, model.mode().context(), pressed) {
        return act(model, action, now);
    }
    if field(model).is_none() && matches!(event.code, KeyCode::Char(_)) {
        to_field(model);
    }
    type_into(model, event);
    Vec::new()
}

/// Pasted text goes into the field under the focus; line ends and tabs become single spaces.
pub fn paste(model: &mut Model, text: &str) {
    if field(model).is_none() {
        return;
    }
    replace_selected(model);
    let Some(input) = field(model) else { return };
    let words: Vec<&str> = text.split(['\n', '\r', '\t']).filter(|part| !part.is_empty()).collect();
    let line = words.join(" ");
    for letter in line.chars().filter(|letter| !letter.is_control()).take(TYPED_MAX) {
        input.handle(InputRequest::InsertChar(letter));
    }
    palette::typed(model);
    model.dirty = true;
}

/// Drops a value that is still selected as a whole.
fn replace_selected(model: &mut Model) {
    if let Some(Mode::Edit(Editor { choice: Choice::Number(input), selected, .. })) =
        model.modes.last_mut()
        && std::mem::take(selected)
    {
        *input = Input::default();
    }
}

/// A letter typed at a button of the plan goes nowhere, and that is said.
fn to_field(model: &mut Model) {
    if matches!(model.mode(), Mode::Plan(dialog) if dialog.stage == Stage::Review) {
        toast(model, Role::Warn, "nothing is typed there: Tab moves to a field");
    }
}

fn type_into(model: &mut Model, event: KeyEvent) {
    match event.code {
        KeyCode::Char(_) | KeyCode::Backspace | KeyCode::Delete => replace_selected(model),
        _ => {
            if let Some(Mode::Edit(editor)) = model.modes.last_mut() {
                editor.selected = false;
            }
        }
    }
    if let Some(input) = field(model)
        && input.value().chars().count() < TYPED_MAX
    {
        input.handle_event(&TermEvent::Key(event));
    } else if let Some(input) = field(model)
        && matches!(event.code, KeyCode::Backspace)
    {
        input.handle(InputRequest::DeletePrevChar);
    }
    if let Some(Mode::Edit(editor)) = model.modes.last_mut() {
        editor.error = None;
    }
    palette::typed(model);
}

/// The line that is being typed.
fn field(model: &mut Model) -> Option<&mut Input> {
    match model.modes.last_mut()? {
        Mode::Arm(input)
        | Mode::Note(input)
        | Mode::Say(_, input)
        | Mode::Filter(input, _)
        | Mode::Palette(Palette { input, .. })
        | Mode::Edit(Editor { choice: Choice::Number(input), .. }) => Some(input),
        Mode::Plan(dialog) if dialog.stage == Stage::Review => match dialog.focus {
            Focus::Reason => Some(&mut dialog.reason),
            Focus::Name => Some(&mut dialog.name),
            Focus::Cancel | Focus::Apply => None,
        },
        _ => None,
    }
}

/// Carries an action out. Whether it works here is for the caller to know.
pub fn act(model: &mut Model, action: Action, now: Mono) -> Vec<Effect> {
    match action {
        Action::Quit => return quit(model),
        Action::Interrupt => {
            if matches!(model.mode(), Mode::Leaving) {
                return vec![Effect::Leave];
            }
            model.modes.push(Mode::Leaving);
        }
        Action::Suspend => return vec![Effect::Suspend],
        Action::Back if matches!(model.mode(), Mode::Filter(..)) => palette::drop_filter(model),
        Action::Back => back(model),
        Action::Help => model.modes.push(Mode::Help(0)),
        Action::Overview => close(model, 1),
        Action::Diagnose => {
            close(model, 1);
            let path = path(model);
            show(model, Mode::Diagnose(Box::new(path)));
        }
        Action::Flags => {
            show(model, Mode::Flags);
            return reload(model);
        }
        Action::Timeline => show(model, Mode::Timeline(Listed::default())),
        Action::ChooseScope => choose_row(model),
        Action::AskOriginal => trace::open(model),
        Action::Inspect => inspect::list(model),
        Action::Origin => return inspect::ask(model),
        Action::Filter => palette::open_filter(model),
        Action::Palette => model.modes.push(Mode::Palette(Palette::default())),
        Action::Page(page) => show_page(model, page),
        Action::Copy => return vec![Effect::Copy],
        Action::Export => return vec![Effect::Export],
        Action::Freeze if model.playhead.is_some() => return vec![Effect::Seek(Seek::PlayPause)],
        Action::Freeze => freeze(model, now),
        Action::Mouse => mouse(model),
        Action::ZoomIn => rewind::zoom(model, true),
        Action::ZoomOut => rewind::zoom(model, false),
        Action::NextScope => choose_scope(model, true),
        Action::PreviousScope => choose_scope(model, false),
        Action::Up => scroll(model, &|at, _| at.saturating_sub(1)),
        Action::Down => scroll(model, &|at, last| (at + 1).min(last)),
        Action::PageUp => scroll(model, &|at, _| at.saturating_sub(PAGE)),
        Action::PageDown => scroll(model, &|at, last| (at + PAGE).min(last)),
        Action::First => scroll(model, &|_, _| 0),
        Action::Last => scroll(model, &|_, last| last),
        Action::TakePlan => return take_plan(model),
        Action::Arm => return arm::arm(model),
        Action::Contain => return contain(model),
        Action::Rollback => guide::open_rollback(model),
        Action::AllSafe => return dialog::wish(model, Want::AllSafe),
        Action::Undo => return dialog::undo(model),
        Action::Why if matches!(model.mode(), Mode::Guide(_)) => {
            model.modes.push(Mode::StepWhy(0));
        }
        Action::Why => model.modes.push(Mode::Why(0)),
        Action::How => model.modes.push(Mode::How(0)),
        Action::Walk => guide::open(model),
        Action::TakeStep => return guide::take(model, now),
        Action::StepBack => guide::back(model),
        Action::SkipStep => guide::skip(model),
        Action::HandOver => model.modes.push(Mode::Say(Prompt::HandOver, Input::default())),
        Action::Causes => model.modes.push(Mode::Causes(0)),
        Action::Alerts => model.modes.push(Mode::Alerts(0)),
        Action::Rewalk => rewalk(model),
        Action::Edit => edit(model, false),
        Action::Mark => mark(model),
        Action::PlanMarked => {
            let changes = model.flags.marked.clone();
            return plan_of(model, changes);
        }
        Action::DropOverride => return drop_override(model),
        Action::Reload => return reload(model),
        Action::Note => model.modes.push(Mode::Note(Input::default())),
        Action::NextField => return next_field(model, true),
        Action::PreviousField => return next_field(model, false),
        Action::Accept => return accept(model, now),
        Action::SecondOn
        | Action::SecondBack
        | Action::TenOn
        | Action::TenBack
        | Action::MinuteOn
        | Action::MinuteBack
        | Action::NextEvent
        | Action::PreviousEvent
        | Action::ToStart
        | Action::ToEnd
        | Action::Faster
        | Action::Slower => return action.seek().map_or_else(Vec::new, |to| rewind::go(model, to)),
    }
    Vec::new()
}

/// Gives the mouse to the dashboard, or back to the terminal.
fn mouse(model: &mut Model) {
    model.mouse = match model.mouse {
        Mouse::Terminal => Mouse::Weir,
        Mouse::Weir => Mouse::Terminal,
    };
    let text = if model.mouse == Mouse::Weir {
        "the wheel moves rows; a click does nothing; Shift selects text on most terminals"
    } else {
        "the mouse is the terminal's again"
    };
    toast(model, Role::Plain, text);
}

/// Opens the plan that comes next, if the next step is one.
fn take_plan(model: &mut Model) -> Vec<Effect> {
    match model.next() {
        Some(Next::Plan(offer)) => dialog::named(model, offer.plan.name),
        Some(Next::Flip(flip)) => guide::plan_first(model, flip),
        Some(Next::Watch(_) | Next::Step(_)) | None => Vec::new(),
    }
}

/// Begins the walk on the screen anew.
fn rewalk(model: &mut Model) {
    let walk = Walk::begin(model.verdict().map(AsRef::as_ref), model.wall);
    if let Some(Mode::Diagnose(current)) = model.modes.last_mut() {
        **current = walk;
    }
}

/// Shows a page, with its cursor at the beginning; the one that is shown stays as it is.
fn show_page(model: &mut Model, page: Page) {
    if !matches!(model.screen(), Mode::Page(shown, _) if *shown == page) {
        show(model, Mode::Page(page, Listed::default()));
    }
}

/// Opens the plan, unless it would switch a gate on again that was taken out of the way for being ill.
fn contain(model: &mut Model) -> Vec<Effect> {
    let verdict = model.verdict().cloned();
    let held = verdict.as_ref().and_then(|verdict| model.held(verdict));
    if let Some(cause) = held.map(|was| was.cause.clone()).filter(|cause| is_ill_gate(cause)) {
        let text = format!("not contain: it would bring {cause} back; single flags are under f");
        toast(model, Role::Warn, text);
        return Vec::new();
    }
    dialog::named(model, "contain")
}

/// Leaves at once, or asks when flips of this session are still in force.
fn quit(model: &mut Model) -> Vec<Effect> {
    let is_clear = model.open_overrides().is_empty() && model.carried().next().is_none();
    if is_clear && model.unsettled.is_none() {
        return vec![Effect::Leave];
    }
    model.modes.push(Mode::Leaving);
    Vec::new()
}

fn back(model: &mut Model) {
    if let Mode::Plan(dialog) = model.mode()
        && matches!(dialog.stage, Stage::Sending { .. })
    {
        toast(model, Role::Warn, "already sent: the answer will be shown here");
        return;
    }
    if model.modes.len() > 1 {
        close(model, model.modes.len() - 1);
    }
}

/// Shows a screen in place of the one that is shown.
fn show(model: &mut Model, mode: Mode) {
    close(model, 1);
    model.modes.push(mode);
}

/// Leaves all but so many modes; a path that was read is kept as it was.
fn close(model: &mut Model, left: usize) {
    while model.modes.len() > left {
        if let Some(Mode::Diagnose(path)) = model.modes.pop() {
            model.path = Some(path);
        }
    }
}

/// The path that was read before, while it leads to what is named; else the one of now.
fn path(model: &mut Model) -> Walk {
    let verdict = model.verdict().cloned();
    let fits = |path: &mut Box<Walk>| verdict.as_ref().is_some_and(|verdict| path.is_of(verdict));
    let kept = model.path.take_if(fits);
    kept.map_or_else(|| Walk::begin(verdict.as_deref(), model.wall), |kept| *kept)
}

fn freeze(model: &mut Model, now: Mono) {
    if model.frozen.is_some() {
        return rewind::to_now(model);
    }
    let (update, wall) = (model.latest.clone(), model.wall);
    model.frozen = Some(Frozen { update, since: now, wall, newer: 0, is_rewound: false });
}

fn choose_scope(model: &mut Model, forward: bool) {
    let scopes = model.scopes();
    let Some(count) = Some(scopes.len()).filter(|count| *count > 0) else { return };
    let at = scopes.iter().position(|name| Some(*name) == model.scope()).unwrap_or(0);
    let next = (at + if forward { 1 } else { count - 1 }) % count;
    model.chosen_scope = Some(scopes[next].to_owned());
}

/// Shows the scope under the cursor on every screen.
fn choose_row(model: &mut Model) {
    let Mode::Page(page @ Page::Scopes, list) = model.mode() else { return };
    let Some(scope) = model.row_under_cursor(*page, list) else { return };
    toast(model, Role::Ok, format!("every screen shows {scope} now"));
    model.chosen_scope = Some(scope);
}

/// Moves the cursor or the text of the mode on top. `to` gets where it is and the last row.
fn scroll(model: &mut Model, to: &dyn Fn(usize, usize) -> usize) {
    if matches!(model.mode(), Mode::Flags) {
        let keys = model.flag_keys();
        let cursor = model.flag_under_cursor();
        let at = keys.iter().position(|key| Some(*key) == cursor).unwrap_or(0);
        let next = to(at, keys.len().saturating_sub(1));
        model.flags.cursor = keys.get(next).map(|key| (*key).to_owned());
        return;
    }
    if let Mode::Page(page, list) = model.mode()
        && page.has_rows()
    {
        let rows = model.rows(*page, list);
        let cursor = model.row_under_cursor(*page, list);
        let at = rows.iter().position(|row| Some(row) == cursor.as_ref()).unwrap_or(0);
        let next = rows.get(to(at, rows.len().saturating_sub(1))).cloned();
        if let Some(list) = palette::list(model) {
            list.row = next;
        }
        return;
    }
    let events = model
        .filterable()
        .map_or(0, |list| model.events().filter(|event| list.shows(&event.text)).count());
    let events = events.saturating_sub(1);
    let found = match model.mode() {
        Mode::Palette(palette) => model.found(palette.input.value()).len().saturating_sub(1),
        _ => 0,
    };
    let choices = model.choices().len().saturating_sub(1);
    let alerts = model.alerts().map_or(0, |all| 2 * (all.alerts.len() + all.silences.len()));
    match model.modes.last_mut() {
        Some(Mode::Timeline(list)) => list.at = to(list.at, events),
        Some(Mode::Palette(palette)) => palette.at = to(palette.at, found),
        Some(Mode::Alerts(at)) => *at = to(*at, alerts),
        // How high these are is for the view to know.
        Some(
            Mode::Help(at)
            | Mode::Why(at)
            | Mode::How(at)
            | Mode::StepWhy(at)
            | Mode::Causes(at)
            | Mode::Origin(at),
        ) => *at = to(*at, Listed::LAST),
        Some(Mode::Page(_, list)) => list.at = to(list.at, Listed::LAST),
        Some(Mode::Guide(at)) => *at = to(*at, choices),
        Some(Mode::Plan(dialog)) => dialog.scroll = to(dialog.scroll, dialog.scroll_max()),
        Some(Mode::Diagnose(walk)) => walk.scroll = to(walk.scroll, 100),
        Some(Mode::Edit(Editor { choice: Choice::Words { words, at }, .. })) => {
            *at = to(*at, words.len().saturating_sub(1));
        }
        _ => {}
    }
}

fn edit(model: &mut Model, marking: bool) {
    let Some(key) = model.flag_under_cursor().map(str::to_owned) else { return };
    let Ok(def) = flag(&key) else {
        toast(model, Role::Warn, format!("{key} is not a flag that weir knows: it is shown only"));
        return;
    };
    let stored = model.flag(&key).map(|flag| flag.stored().to_string());
    let words: Vec<String> = match def.kind {
        Kind::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        Kind::Bool => vec!["true".to_owned(), "false".to_owned()],
        Kind::Whole { .. } | Kind::Real { .. } => Vec::new(),
    };
    let choice = if words.is_empty() {
        Choice::Number(Input::new(stored.unwrap_or_default()))
    } else {
        let at = words.iter().position(|word| Some(word) == stored.as_ref()).unwrap_or(0);
        Choice::Words { words, at }
    };
    model.modes.push(Mode::Edit(Editor { key, choice, error: None, marking, selected: true }));
}

fn mark(model: &mut Model) {
    let Some(key) = model.flag_under_cursor().map(str::to_owned) else { return };
    let before = model.flags.marked.len();
    model.flags.marked.retain(|change| change.key != key);
    if model.flags.marked.len() == before {
        edit(model, true);
    }
}

fn drop_override(model: &mut Model) -> Vec<Effect> {
    let Some(key) = model.flag_under_cursor().map(str::to_owned) else { return Vec::new() };
    if model.flag(&key).is_none_or(|flag| flag.overridden.is_none()) {
        toast(model, Role::Warn, format!("{key} has no override"));
        return Vec::new();
    }
    plan_of(model, vec![Change { key, to: None }])
}

/// Plans changes under a name that says what they are.
fn plan_of(model: &mut Model, changes: Vec<Change>) -> Vec<Effect> {
    let name = match changes.as_slice() {
        [only] => only.key.clone(),
        many => format!("{} flags", many.len()),
    };
    dialog::wish(model, Want::Changes { name, changes })
}

fn reload(model: &mut Model) -> Vec<Effect> {
    if model.flags.loading {
        return Vec::new();
    }
    model.flags.loading = true;
    vec![Effect::LoadFlags]
}

fn next_field(model: &mut Model, forward: bool) -> Vec<Effect> {
    match model.modes.last_mut() {
        Some(Mode::Plan(dialog)) => dialog.step_focus(forward),
        Some(Mode::Edit(editor)) => {
            editor.marking = true;
            return take_value(model);
        }
        _ => {}
    }
    Vec::new()
}

fn accept(model: &mut Model, now: Mono) -> Vec<Effect> {
    match model.mode().context() {
        Context::Leaving => vec![Effect::Leave],
        Context::Plan | Context::Field => dialog::accept(model, now),
        _ => match model.mode() {
            Mode::Arm(_) => arm::typed(model, now),
            Mode::Note(_) => note(model),
            Mode::Palette(_) => palette::run(model, now),
            Mode::Filter(..) => {
                palette::keep_filter(model);
                Vec::new()
            }
            Mode::Say(..) => guide::said(model, now),
            _ => take_value(model),
        },
    }
}

fn note(model: &mut Model) -> Vec<Effect> {
    let Some(Mode::Note(input)) = model.modes.pop() else { return Vec::new() };
    let text = input.value().trim().to_owned();
    if text.is_empty() {
        return Vec::new();
    }
    guide::note(model, &text);
    model.timeline.push(model.wall, Role::Accent, format!("note: {text}"));
    vec![Effect::Journal(Entry::Note(text))]
}

/// Takes the value of the editor: marks the flag, or plans it with everything marked.
fn take_value(model: &mut Model) -> Vec<Effect> {
    let Some(Mode::Edit(editor)) = model.modes.last_mut() else { return Vec::new() };
    let text = match &editor.choice {
        Choice::Words { words, at } => words.get(*at).cloned().unwrap_or_default(),
        Choice::Number(input) => input.value().trim().to_owned(),
    };
    let value: FlagValue = match flag(&editor.key).and_then(|def| def.parse(&text)) {
        Ok(value) => value,
        Err(error) => {
            editor.error = Some(error.to_string());
            return Vec::new();
        }
    };
    let (key, marking) = (editor.key.clone(), editor.marking);
    model.modes.pop();
    if model.flag(&key).is_some_and(|flag| *flag.stored() == value) {
        toast(model, Role::Warn, format!("{key} is {value} already"));
        return Vec::new();
    }
    let changes = dialog::marked_with(model, &key, value);
    if marking {
        model.flags.marked = changes;
        return Vec::new();
    }
    // Not marked: who leaves this plan has left the value behind as well.
    plan_of(model, changes)
}
