//! The flags: base, override, what is really in use, who changed it; the editor; this session's flips.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use crate::admission::{FLAGS, flag};
use crate::flag::{FlagState, OnExpire};
use crate::tui::app::Model;
use crate::tui::app::mode::{Choice, Editor};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, cut, cut_words, span};
use crate::tui::view::texts::{typed, wrap};
use crate::tui::view::widgets::{centred, clipped, lines, overlay, panel};

/// Cells of the editor with its frame.
const EDITOR_WIDTH: u16 = 64;
/// Cells below which a row has the flag and what is in use, and nothing else; and those of the flag then.
const NARROW_BELOW: u16 = 60;
const NARROW_KEY: usize = 22;

/// Draws the screen.
pub fn draw(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let journal = u16::try_from(model.flips.len().clamp(1, 6) + 2).unwrap_or(3);
    let journal = if area.height >= 12 { journal } else { 0 };
    let about = if area.height >= 14 { 2 } else { 0 };
    let rows = u16::try_from(model.flag_keys().len() + 3).unwrap_or(u16::MAX);
    let table_rows = rows.min(area.height.saturating_sub(journal + about));
    let parts = Layout::vertical([
        Constraint::Length(table_rows),
        Constraint::Length(about),
        Constraint::Fill(1),
    ])
    .split(area);
    table(model, look, parts[0], buf);
    meaning(model, look, parts[1], buf);
    if parts[2].height >= 3 {
        flips(model, look, parts[2], buf);
    }
}

fn title(model: &Model, look: &Appearance) -> Line<'static> {
    let (text, role) = match (&model.flags.table, &model.flags.error) {
        (Some(table), None) => {
            let age = model.flags.read_at.map(|at| model.now.saturating_since(at).as_secs_f64());
            (
                format!(
                    " flags of {}  revision {}  read {} ago ",
                    model.environment,
                    table.revision,
                    span(age.unwrap_or(0.0))
                ),
                Role::Strong,
            )
        }
        (Some(table), Some(error)) => {
            (format!(" flags  revision {}, OLD: {error} ", table.revision), Role::Crit)
        }
        (None, Some(error)) => (format!(" flags: not read: {error} "), Role::Crit),
        (None, None) => (" flags: reading... ".to_owned(), Role::Unknown),
    };
    Line::styled(text, look.style(role))
}

fn table(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(title(model, look), area, look, buf);
    store(model, look, area, buf);
    let cursor = model.flag_under_cursor();
    let wide = inner.width >= 100;
    let narrow = inner.width < NARROW_BELOW;
    let mut head = if narrow {
        format!("   {:<NARROW_KEY$} {:<10}", "flag", "in use")
    } else {
        format!("   {:<33}{:<10}{:<10}{:<11}", "flag", "base", "override", "in use")
    };
    head.push_str(match (narrow, wide) {
        (true, _) => "",
        (false, true) => "safe      rev   who and when",
        (false, false) => "who",
    });
    lines([Line::styled(head, look.style(Role::Dim))], inner, buf);
    let body = Rect { y: inner.y + 1, height: inner.height.saturating_sub(1), ..inner };
    let keys = model.flag_keys();
    let at = keys.iter().position(|key| Some(*key) == cursor).unwrap_or(0);
    let skip = (at + 1).saturating_sub(usize::from(body.height));
    let content = keys.iter().enumerate().skip(skip).map(|(index, key)| {
        let line = if narrow { narrow_row(model, key, look) } else { row(model, key, wide, look) };
        if index == at { line.patch_style(look.style(Role::Selected)) } else { line }
    });
    lines(content, body, buf);
}

/// The store's name and what it lacks, on the lower edge of the table.
fn store(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let Some(store) = &model.store else { return };
    let lacks = store.able.lacks();
    let (words, role) = if lacks.is_empty() {
        (store.name.clone(), Role::Dim)
    } else {
        (format!("{} lacks {}: {}", store.name, lacks.len(), lacks.join("; ")), Role::Warn)
    };
    let room = usize::from(area.width).saturating_sub(4);
    let edge = Rect { y: area.bottom().saturating_sub(1), height: 1, ..area };
    let edge = Rect { x: edge.x + 1, width: edge.width.saturating_sub(2), ..edge };
    let text = format!(" {} ", cut_words(&words, room, look.glyphs.ellipsis));
    lines([Line::styled(text, look.style(role))], edge, buf);
}

fn row(model: &Model, key: &str, wide: bool, look: &Appearance) -> Line<'static> {
    let marked = model.flags.marked.iter().find(|change| change.key == key);
    let mark = if marked.is_some() { "*" } else { " " };
    let Some(flag) = model.flag(key) else {
        return Line::styled(format!(" {mark} {key:<32} ?"), look.style(Role::Unknown));
    };
    let short = |text: String| cut(&text, 9, look.glyphs.ellipsis);
    let overridden = flag.overridden.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let role = if flag.overridden.is_some() { Role::Warn } else { Role::Dim };
    let (used, used_role) = in_use(flag, model.tells_effective());
    let mut spans = vec![
        Span::raw(format!(" {mark} {key:<32} ")),
        Span::raw(format!("{:<10}", short(flag.base.to_string()))),
        Span::styled(format!("{:<10}", short(overridden)), look.style(role)),
        Span::styled(
            format!("{:<11}", cut(&used, 10, look.glyphs.ellipsis)),
            look.style(used_role),
        ),
    ];
    let when = flag.at.map(|at| clock(at, model.zone));
    let by = flag.by.as_deref().unwrap_or("-");
    let who = if flag.broke_glass() { Role::Crit } else { Role::Plain };
    if wide {
        spans.push(Span::styled(
            format!("{:<10}", short(flag.safe.to_string())),
            look.style(Role::Dim),
        ));
        spans.push(Span::styled(format!("r{:<4} ", flag.revision.0), look.style(Role::Dim)));
        spans.push(Span::styled(format!("{by} {}", when.unwrap_or_default()), look.style(who)));
        if let Some((at, what)) = flag.timer() {
            let (word, role) = match what {
                OnExpire::Revert => ("reverts", Role::Warn),
                OnExpire::Remind if at <= model.wall => ("reminder overdue", Role::Warn),
                OnExpire::Remind => ("reminder", Role::Dim),
            };
            let text = format!("  {word} {}", clock(at, model.zone));
            spans.push(Span::styled(text, look.style(role)));
        }
    } else {
        // There is no room for both, and who it was stands below the table.
        let by = if flag.broke_glass() { "BREAK-GLASS" } else { by };
        spans.push(Span::styled(cut(by, 12, look.glyphs.ellipsis), look.style(who)));
    }
    if let Some(to) = marked.and_then(|change| change.to.as_ref()) {
        spans.push(Span::styled(format!("  {} {to}", look.glyphs.arrow), look.style(Role::Accent)));
    }
    Line::from(spans)
}

/// Where there is no room for more: the flag and what is in use, marked where it was changed.
fn narrow_row(model: &Model, key: &str, look: &Appearance) -> Line<'static> {
    let is_marked = model.flags.marked.iter().any(|change| change.key == key);
    let mark = if is_marked { "*" } else { " " };
    let key_cell = cut(key, NARROW_KEY, look.glyphs.ellipsis);
    let Some(flag) = model.flag(key) else {
        return Line::styled(
            format!(" {mark} {key_cell:<NARROW_KEY$} ?"),
            look.style(Role::Unknown),
        );
    };
    let (used, used_role) = in_use(flag, model.tells_effective());
    let (changed, role) = if flag.overridden.is_some() {
        (look.mark(Role::Warn), Role::Warn)
    } else {
        (" ", used_role)
    };
    Line::from(vec![
        Span::raw(format!(" {mark} {key_cell:<NARROW_KEY$} ")),
        Span::styled(cut(&used, 9, look.glyphs.ellipsis), look.style(role)),
        Span::styled(format!(" {changed}"), look.style(role)),
    ])
}

/// What the instances really use: one value, or how many differ.
fn in_use(flag: &FlagState, tells: bool) -> (String, Role) {
    let mut values = flag.effective.values();
    let Some(first) = values.next() else {
        return if tells {
            ("?".to_owned(), Role::Unknown)
        } else {
            ("not told".to_owned(), Role::Dim)
        };
    };
    if values.all(|value| value == first) {
        let role = if first == flag.stored() { Role::Strong } else { Role::Warn };
        return (first.to_string(), role);
    }
    let same = flag.effective.values().filter(|value| *value == flag.stored()).count();
    (format!("{same} of {}", flag.effective.len()), Role::Warn)
}

fn meaning(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let Some(key) = model.flag_under_cursor() else { return };
    let Some(def) = FLAGS.iter().find(|def| def.key == key) else { return };
    let state = model.flag(key);
    let safe = state.map_or_else(String::new, |flag| format!("  safe: {}", flag.safe));
    let effective =
        if model.tells_effective() { "" } else { "  effective: not told by this store" };
    let changed = state.and_then(|flag| {
        Some(format!("  changed by {} at {}", flag.by.as_ref()?, clock(flag.at?, model.zone)))
    });
    lines(
        [
            Line::from(format!(" {key}: {}", def.meaning)),
            Line::styled(
                format!(" takes {}{safe}{effective}{}", def.kind, changed.unwrap_or_default()),
                look.style(Role::Dim),
            ),
        ],
        area,
        buf,
    );
}

fn flips(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(
        Line::styled(" flips of this session, newest first ", look.style(Role::Strong)),
        area,
        look,
        buf,
    );
    if model.flips.is_empty() {
        lines([Line::styled(" none", look.style(Role::Dim))], inner, buf);
        return;
    }
    let content = model.flips.iter().rev().map(|flip| {
        let unread = if model.tells_effective() { "?" } else { "not told " };
        let reach = flip
            .reach
            .map_or_else(|| unread.to_owned(), |reach| format!("{} of {}", reach.on, reach.of));
        let state = match &flip.replaced {
            _ if flip.undone => "undone",
            Some(_) => "replaced",
            None => flip.progress.word(),
        };
        Line::from(vec![
            Span::styled(
                format!(" {} r{:<4}", clock(flip.at, model.zone), flip.revision.0),
                look.style(Role::Dim),
            ),
            Span::styled(format!("{:<14}", flip.plan.name), look.style(Role::Strong)),
            Span::raw(format!("in use {reach:<8}{state:<10} ")),
            Span::styled(flip.plan.reason.clone(), look.style(Role::Dim)),
        ])
    });
    let width = usize::from(inner.width);
    lines(content.map(|line| clipped(line, width, look)), inner, buf);
}

/// The editor of one flag.
pub fn editor(model: &Model, editor: &Editor, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let Ok(def) = flag(&editor.key) else { return };
    let width = usize::from(EDITOR_WIDTH.min(area.width).saturating_sub(2));
    let dim = look.style(Role::Dim);
    // Where it is low, the choices have their rows first.
    let choices = match &editor.choice {
        Choice::Words { words, .. } => words.len(),
        Choice::Number(_) => 1,
    };
    let room = usize::from(area.height).saturating_sub(2 + choices);
    let meaning = wrap(def.meaning, width).into_iter().take(room);
    let mut content: Vec<_> = meaning.map(|row| Line::styled(row, dim)).collect();
    let stored = model.flag(&editor.key).map(|flag| flag.stored().to_string());
    match &editor.choice {
        Choice::Words { words, at } => {
            content.extend(words.iter().enumerate().map(|(index, word)| {
                let now = if Some(word) == stored.as_ref() { "  (now)" } else { "" };
                let pointer = if index == *at { look.glyphs.pointer } else { " " };
                let style = look.style(if index == *at { Role::Selected } else { Role::Plain });
                Line::styled(format!(" {pointer} {word}{now} "), style)
            }));
        }
        Choice::Number(input) if editor.selected => {
            let value = Span::styled(input.value().to_owned(), look.style(Role::Selected));
            let note = Span::styled("  typing replaces it", dim);
            content.push(Line::from(vec![Span::raw(" "), value, note]));
        }
        Choice::Number(input) => content.push(typed(input, width.saturating_sub(2), true, look)),
    }
    content.push(Line::styled(format!(" takes {}", def.kind), dim));
    let help =
        if editor.marking { "Enter marks it" } else { "Enter plans it, Tab marks it and goes on" };
    let (said, style) = match &editor.error {
        Some(error) => (format!("{} {error}", look.mark(Role::Crit)), look.style(Role::Crit)),
        None => (format!("{help}, Esc drops it"), dim),
    };
    content.extend(wrap(&said, width).into_iter().map(|row| Line::styled(row, style)));
    let title = Line::styled(
        format!(" {} of {} ", editor.key, model.environment),
        look.style(Role::Strong),
    );
    let height = u16::try_from(content.len() + 2).unwrap_or(u16::MAX);
    let inner = overlay(title, centred(area, EDITOR_WIDTH, height), look, buf);
    lines(content, inner, buf);
}
