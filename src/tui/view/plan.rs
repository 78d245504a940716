//! The plan dialog: what will change, what must hold, whom it reaches, how to undo it. Starts on Cancel.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use tui_input::Input;

use crate::admission::Direction;
use crate::flag::{Forecast, Guard, OnExpire, Plan, PlannedChange, Row};
use crate::tui::app::Model;
use crate::tui::app::action::Action;
use crate::tui::app::arming::IDLE;
use crate::tui::app::flip::{Focus, PlanDialog, Stage, Visible};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, factor, percent, rate, span, whole_span};
use crate::tui::view::texts::{typed, wrap};
use crate::tui::view::widgets::{centred, folded, lines, overlay};

/// Cells of the dialog with its frame.
const WIDTH: u16 = 76;
/// Rows of a plan below which the dialog says so instead of showing it.
const ROWS_MIN: usize = 3;

/// The environment whose flags end with it.
const DRILL: &str = "drill";

/// Cells of the question before leaving with its frame.
const LEAVING_WIDTH: u16 = 56;

/// A plan is being made.
pub fn waiting(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let title = Line::styled(format!(" PLAN  {} ", model.environment), look.style(Role::Strong));
    let inner = overlay(title, centred(area, 40, 3), look, buf);
    lines([Line::from(" making the plan...  Esc drops it")], inner, buf);
}

/// The question before leaving.
pub fn leaving(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let open = model.open_overrides();
    let width = usize::from(LEAVING_WIDTH.min(area.width).saturating_sub(2));
    let mut content = Vec::new();
    if let Some(unsettled) = &model.unsettled {
        content.push(Line::styled(format!(" {unsettled}"), look.style(Role::Unknown)));
    }
    if !open.is_empty() {
        let (how, role) = if model.environment == DRILL {
            ("end with the drill", Role::Plain)
        } else {
            ("stay in force", Role::Warn)
        };
        let flags = if open.len() == 1 { "flag" } else { "flags" };
        let text = format!(" {} {flags} set by this session {how}:", open.len());
        content.extend(folded(Line::styled(text, look.style(role)), width));
        content.extend(open.iter().map(|key| {
            let value =
                model.flag(key).map_or_else(|| "?".to_owned(), |flag| flag.stored().to_string());
            Line::from(format!("   {key} = {value}"))
        }));
    }
    content.extend(carried(model, look));
    content.push(Line::from(" Enter or Ctrl-C leaves, Esc stays"));
    let height = u16::try_from(content.len() + 2).unwrap_or(3);
    let title = Line::styled(" leave weir? ", look.style(Role::Strong));
    let inner = overlay(title, centred(area, LEAVING_WIDTH, height), look, buf);
    lines(content, inner, buf);
}

/// The question before flips can be sent.
pub fn arming(model: &Model, input: &Input, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let title = Line::styled(format!(" arm {}? ", model.environment), look.style(Role::Strong));
    let inner = overlay(title, centred(area, 64, 6), look, buf);
    let width = usize::from(inner.width);
    let minutes = IDLE.as_secs() / 60;
    let content = vec![
        Line::from(" Plans can then be sent; each still asks by itself."),
        Line::from(format!(
            " {minutes} min without a key lock it again, and so does {}.",
            model.key_of(Action::Arm)
        )),
        input_line(&format!("to confirm, type {}:", model.environment), input, true, look, width),
        Line::styled(" Enter arms, Esc does not", look.style(Role::Dim)),
    ];
    lines(content, inner, buf);
}

/// What goes back by itself only while weir is there to do it.
fn carried(model: &Model, look: &Appearance) -> Vec<Line<'static>> {
    let mut content: Vec<Line<'static>> = model
        .carried()
        .map(|flag| {
            let due = flag.expires.map_or_else(String::new, |due| clock(due, model.zone));
            Line::from(format!("   {} = {}, due {due}", flag.key, flag.stored()))
        })
        .collect();
    if !content.is_empty() {
        let text = format!(" {} on a timer that reverts only while weir runs:", content.len());
        content.insert(0, Line::styled(text, look.style(Role::Warn)));
    }
    content
}

/// The dialog. Returns what it shows of the plan: what has not been shown cannot be applied.
pub fn draw(
    model: &Model,
    dialog: &PlanDialog,
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) -> Visible {
    let width = usize::from(WIDTH.min(area.width).saturating_sub(2));
    let mut content = vital(model, &dialog.plan, look, width);
    let vital = content.len();
    content.extend(foretold(model, dialog, look, width));
    content.extend(details(model, &dialog.plan, look, width));
    let rows = content.len();
    let footer = footer(model, dialog, look, width);
    // The frame, and the line that says what lies outside of the window.
    let room = usize::from(area.height).saturating_sub(2 + 1 + footer.len());
    let title = Line::styled(
        format!(" PLAN  {}  {} ", model.environment, dialog.plan.name),
        look.style(if dialog.plan.is_risky() { Role::Crit } else { Role::Strong }),
    );
    if room < ROWS_MIN.min(rows) {
        let inner = overlay(title, centred(area, WIDTH, area.height), look, buf);
        let more = ROWS_MIN - room;
        let rows_more = if more == 1 { "row" } else { "rows" };
        let text =
            format!("The window is too low to show a plan: {more} more {rows_more}, or Esc.");
        let told = wrap(&text, usize::from(inner.width));
        let told = told.into_iter().map(|row| Line::styled(row, look.style(Role::Warn)));
        lines(told, inner, buf);
        return Visible { rows, vital, ..Visible::default() };
    }
    let shown = rows.min(room);
    let first = dialog.scroll.min(rows - shown);
    let visible = Visible { first, past: first + shown, rows, vital };
    let mut body: Vec<Line<'static>> = content.into_iter().skip(first).take(shown).collect();
    body.push(outside(visible, look));
    body.extend(footer);
    let height = u16::try_from(body.len() + 2).unwrap_or(u16::MAX);
    let inner = overlay(title, centred(area, WIDTH, height), look, buf);
    lines(body, inner, buf);
    visible
}

/// How much lies above and below the window.
fn outside(visible: Visible, look: &Appearance) -> Line<'static> {
    let below = visible.rows - visible.past;
    let text = match (visible.first, below) {
        (0, 0) => return Line::default(),
        (0, below) => format!(" {below} more below: j"),
        (above, 0) => format!(" {above} more above: k"),
        (above, below) => format!(" {above} more above: k, {below} below: j"),
    };
    Line::styled(text, look.style(Role::Accent))
}

fn field(label: &str, text: &str, width: usize) -> Vec<Line<'static>> {
    let rows = wrap(text, width.saturating_sub(10));
    rows.into_iter()
        .enumerate()
        .map(|(index, row)| Line::from(format!(" {:<8}{row}", if index == 0 { label } else { "" })))
        .collect()
}

/// What will change and what must hold: all of it is seen before it can be applied.
fn vital(model: &Model, plan: &Plan, look: &Appearance, width: usize) -> Vec<Line<'static>> {
    let columns = Columns::of(plan, look);
    let mut content: Vec<Line<'static>> = plan
        .changes
        .iter()
        .flat_map(|change| change_lines(model, change, columns, look, width))
        .collect();
    content.extend(plan.guards.iter().flat_map(|guard| guard_lines(guard, plan, look, width)));
    let lacks = model.store.iter().flat_map(|store| store.able.lacks_for(plan));
    for (index, what) in lacks.enumerate() {
        let rows = field(if index == 0 { "store" } else { "" }, what, width);
        content.extend(rows.into_iter().map(|row| row.style(look.style(Role::Warn))));
    }
    content
}

/// What it would do, by the simulator run forward from now, and how far that was off last time.
fn foretold(
    model: &Model,
    dialog: &PlanDialog,
    look: &Appearance,
    width: usize,
) -> Vec<Line<'static>> {
    let dim = look.style(Role::Dim);
    let mut content = match &dialog.forecast {
        None => {
            let since = model.now.saturating_since(dialog.opened).as_secs();
            field("in 60 s", &format!("being worked out, {since}s so far"), width)
        }
        Some(Err(why)) => field("in 60 s", &why.to_string(), width),
        Some(Ok(forecast)) => {
            let row = |(index, row): (usize, &Row)| {
                let label = if index == 0 { "in 60 s" } else { "" };
                Line::from(format!(" {label:<8}{}", row.words()))
            };
            let mut content: Vec<_> = forecast.rows.iter().enumerate().map(row).collect();
            content.extend(price(model, &dialog.plan, forecast, look, width));
            let assumed = field("", &forecast.assumed(), width);
            content.extend(assumed.into_iter().map(|line| line.style(dim)));
            content
        }
    };
    let scope = match &dialog.forecast {
        Some(Ok(forecast)) => Some(forecast.scope.as_str()),
        _ => model.scope(),
    };
    if let Some(last) = scope.and_then(|scope| model.last_forecast(scope)) {
        let ago = (model.wall - last.at).num_seconds().max(0).unsigned_abs();
        let text =
            format!("last time ({}, {} ago) {}", last.plan, whole_span(ago), last.record.words());
        content.extend(field("", &text, width).into_iter().map(|line| line.style(dim)));
    }
    if let Some(trouble) = &model.forecasts.trouble {
        let rows = field("", &format!("earlier forecasts: {trouble}"), width);
        content.extend(rows.into_iter().map(|line| line.style(look.style(Role::Warn))));
    }
    content
}

/// Why fewer are to be served, where the cause's runbook has an answer.
fn price(
    model: &Model,
    plan: &Plan,
    forecast: &Forecast,
    look: &Appearance,
    width: usize,
) -> Vec<Line<'static>> {
    if plan.is_risky() || !forecast.serves_fewer() {
        return Vec::new();
    }
    let Some(price) = model.price() else { return Vec::new() };
    let strong = look.style(Role::Strong);
    field("price", price, width).into_iter().map(|line| line.style(strong)).collect()
}

fn details(model: &Model, plan: &Plan, look: &Appearance, width: usize) -> Vec<Line<'static>> {
    let mut content = field("reaches", &plan.reach, width);
    let [flow, left] = effect_now(model);
    content.extend(field("now", &flow, width));
    content.extend(field("", &left, width));
    content.extend(field("verify", &plan.verify, width));
    if !model.tells_effective() {
        content.extend(field("", "effective: not told by this store", width));
    }
    let timer = match (plan.ttl_s, plan.on_expire) {
        (None, _) => "u opens the way back as a plan; no timer".to_owned(),
        (Some(ttl), OnExpire::Revert) => {
            let carried = model.store.as_ref().is_some_and(|store| !store.able.timer);
            let only = if carried { ", if weir still runs then" } else { "" };
            let back: Vec<String> =
                plan.restores().map(|(key, before)| format!("{key} to {before}")).collect();
            let back =
                if back.is_empty() { String::new() } else { format!(": {}", back.join(", ")) };
            format!("u, or by itself in {}{only}{back}", whole_span(ttl))
        }
        (Some(ttl), OnExpire::Remind) => {
            format!("u; reminds in {}, never reverts by itself", whole_span(ttl))
        }
    };
    content.extend(field("undo", &timer, width));
    let made = format!(" made from revision {}", plan.revision);
    content.push(Line::styled(made, look.style(Role::Dim)));
    content
}

/// The numbers that the flip is about, as they are: the flow, and what is left of the quota.
fn effect_now(model: &Model) -> [String; 2] {
    let number = |path: &str, format: fn(f64) -> String| {
        model.number(path).map_or_else(|| "?".to_owned(), format)
    };
    [
        format!(
            "attempts/original {}  offered {}  admitted {}",
            number("amplification", factor),
            number("offered_rps", rate),
            number("admitted_rps", rate)
        ),
        format!(
            "left: TPM {}  RPM {}",
            number("tpm_headroom", percent),
            number("rpm_headroom", percent)
        ),
    ]
}

/// Widths of key and values, of all changes alike.
#[derive(Clone, Copy)]
struct Columns {
    key: usize,
    values: usize,
}

impl Columns {
    fn of(plan: &Plan, look: &Appearance) -> Self {
        let longest = |text: &dyn Fn(&PlannedChange) -> String| {
            plan.changes.iter().map(|change| text(change).chars().count()).max().unwrap_or(0)
        };
        Self {
            key: longest(&|change| change.key.clone()),
            values: longest(&|change| {
                let (from, to) = values(change, look);
                format!("{from}{to}")
            }),
        }
    }
}

fn values(change: &PlannedChange, look: &Appearance) -> (String, String) {
    let drops = if change.drops_override { " (base)" } else { "" };
    (format!("{} {} ", change.from, look.glyphs.arrow), format!("{}{drops}", change.to))
}

fn change_lines(
    model: &Model,
    change: &PlannedChange,
    columns: Columns,
    look: &Appearance,
    width: usize,
) -> Vec<Line<'static>> {
    let (word, role) = match change.direction {
        Direction::Safer => ("safer", Role::Ok),
        Direction::Riskier => ("RISKIER", Role::Crit),
        Direction::Same => ("same", Role::Dim),
    };
    let Columns { key, values: room } = columns;
    let strong = look.style(Role::Strong);
    let (from, to) = values(change, look);
    let pad = room.saturating_sub(from.chars().count() + to.chars().count());
    let name = Span::styled(format!(" {:<key$}  ", change.key), strong);
    let mut spans = vec![
        Span::raw(from),
        Span::styled(to, strong),
        Span::raw(" ".repeat(pad + 2)),
        Span::styled(format!("{} {word}", look.mark(role)), look.style(role)),
    ];
    let used: usize = spans.iter().map(Span::width).sum();
    if name.width() + used > width {
        spans.insert(0, Span::raw("   "));
        return vec![Line::from(name), Line::from(spans)];
    }
    if let Some((by, at)) = &change.last {
        let last = format!("  last {by} {}", clock(*at, model.zone));
        if name.width() + used + last.chars().count() <= width {
            spans.push(Span::styled(last, look.style(Role::Dim)));
        }
    }
    spans.insert(0, name);
    vec![Line::from(spans)]
}

fn guard_lines(guard: &Guard, plan: &Plan, look: &Appearance, width: usize) -> Vec<Line<'static>> {
    let (letter, role, note) = match guard.holds {
        Some(true) => ("T", Role::Ok, ""),
        // Who takes a flip back chooses a state that was there a moment ago.
        Some(false) if plan.undo => ("F", Role::Crit, "warns: "),
        Some(false) => ("F", Role::Crit, "refuses: "),
        None if plan.is_risky() && !plan.undo => {
            ("?", Role::Crit, "refuses, a riskier change needs proof: ")
        }
        None => ("?", Role::Unknown, "warns: "),
    };
    let rows = wrap(&format!("{note}{}", guard.text), width.saturating_sub(10));
    let head = |index: usize| if index == 0 { "guard" } else { "" };
    let mut content: Vec<Line<'static>> = Vec::new();
    for (index, row) in rows.into_iter().enumerate() {
        let sign = if index == 0 { letter } else { " " };
        let row = row.trim_start().to_owned();
        let mut spans = vec![
            Span::raw(format!(" {:<8}", head(index))),
            Span::styled(format!("{sign} "), look.style(role)),
        ];
        match row.strip_prefix(note.trim_end()).filter(|_| index == 0 && !note.is_empty()) {
            Some(rest) => {
                spans.push(Span::styled(note.trim_end().to_owned(), look.style(role)));
                spans.push(Span::raw(rest.to_owned()));
            }
            None => spans.push(Span::raw(row)),
        }
        content.push(Line::from(spans));
    }
    content
}

fn footer(
    model: &Model,
    dialog: &PlanDialog,
    look: &Appearance,
    width: usize,
) -> Vec<Line<'static>> {
    let mut content = Vec::new();
    if dialog.stage == Stage::Review {
        if let Some(name) = dialog.name_to_type() {
            content.push(input_line(
                &format!("to confirm, type {name}:"),
                &dialog.name,
                dialog.focus == Focus::Name,
                look,
                width,
            ));
        }
        content.push(input_line(
            "reason",
            &dialog.reason,
            dialog.focus == Focus::Reason,
            look,
            width,
        ));
    }
    content.extend(answer(model, dialog, look, width));
    content.push(buttons(dialog, look));
    content
}

fn input_line(
    label: &str,
    input: &tui_input::Input,
    focused: bool,
    look: &Appearance,
    width: usize,
) -> Line<'static> {
    let role = if focused { Role::Accent } else { Role::Dim };
    let pointer = if focused { look.glyphs.pointer } else { " " };
    let head = format!("{pointer}{label} [");
    let room = width.saturating_sub(head.chars().count() + 3);
    let mut spans = vec![Span::styled(head, look.style(role))];
    spans.extend(typed(input, room, focused, look).spans);
    spans.push(Span::styled("]", look.style(role)));
    Line::from(spans)
}

/// What became of the plan, or why it cannot be applied.
fn answer(
    model: &Model,
    dialog: &PlanDialog,
    look: &Appearance,
    width: usize,
) -> Vec<Line<'static>> {
    let (role, rows) = match &dialog.stage {
        Stage::Review if !model.may_send() && dialog.plan.refused().is_none() => {
            let key = model.key_of(Action::Arm);
            let text =
                format!("Apply is locked: {} is not armed; {key} arms it", model.environment);
            (Role::Warn, vec![text])
        }
        Stage::Review => match dialog.blocked() {
            Some(why) => (Role::Warn, vec![format!("Apply is locked: {why}")]),
            None if dialog.focus == Focus::Apply => {
                (Role::Ok, vec!["Apply is ready: Enter sends it".to_owned()])
            }
            None if dialog.forecast.is_none() => {
                let text = "Apply is ready, the forecast is not yet: Tab to it, then Enter";
                (Role::Ok, vec![text.to_owned()])
            }
            None => (Role::Ok, vec!["Apply is ready: Tab to it, then Enter".to_owned()]),
        },
        Stage::Sending { since } => {
            let waited = model.now.saturating_since(*since).as_secs_f64();
            (Role::Accent, vec![format!("SENDING, {} so far", span(waited))])
        }
        Stage::Conflict { changed } => {
            let mut rows = vec!["CONFLICT: the table has changed; nothing was stored".to_owned()];
            rows.extend(changed.iter().take(3).cloned());
            (Role::Crit, rows)
        }
        Stage::Refused { why } => (Role::Crit, vec![format!("REFUSED, nothing was stored: {why}")]),
        Stage::Partly { said } => (Role::Crit, vec![said.clone()]),
        Stage::Unknown { why, found } => {
            let then = found
                .clone()
                .unwrap_or_else(|| "reading the table before anything else".to_owned());
            (Role::Unknown, vec![format!("UNKNOWN, no answer: {why}"), then])
        }
    };
    rows.into_iter()
        .flat_map(|row| wrap(&row, width.saturating_sub(4)))
        .enumerate()
        .map(|(index, row)| {
            let mark = if index == 0 { look.mark(role) } else { " " };
            Line::styled(format!(" {mark}{row}"), look.style(role))
        })
        .collect()
}

fn buttons(dialog: &PlanDialog, look: &Appearance) -> Line<'static> {
    let button = |text: &'static str, focus: Focus| {
        if dialog.focus == focus {
            Span::styled(format!("[ {text} ]"), look.style(Role::Selected))
        } else {
            Span::raw(format!("  {text}  "))
        }
    };
    let cancel = if dialog.stage == Stage::Review { "Cancel" } else { "Close" };
    let mut spans = vec![Span::raw("            "), button(cancel, Focus::Cancel)];
    if dialog.stage == Stage::Review {
        spans.push(Span::raw("      "));
        spans.push(button("Apply", Focus::Apply));
        spans.push(Span::styled("     Tab moves, Enter presses", look.style(Role::Dim)));
    }
    Line::from(spans)
}
