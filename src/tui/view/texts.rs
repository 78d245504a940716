//! Lists and texts: the timeline, the help from the registry, the verdict in words, every cause.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use tui_input::Input;

use crate::diagnosis::{Evidence, Role as CauseRole, Standing};
use crate::signal::Quality;
use crate::tui::app::Model;
use crate::tui::app::action::{CHAPTERS, Danger};
use crate::tui::app::page::{Listed, above};
use crate::tui::app::places::Places;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::evidence;
use crate::tui::view::format::{clock, cut, span};
use crate::tui::view::pages::filter_words;
use crate::tui::view::widgets::{
    centred, clipped, folded, lines, more_rows, overlay, panel, right,
};

/// Cells of a text with its frame.
pub const TEXT_WIDTH: u16 = 92;

/// The role of a standing.
pub const fn standing_role(standing: Standing) -> Role {
    match standing {
        Standing::Confirmed => Role::Crit,
        Standing::Likely => Role::Warn,
        Standing::Contradicted | Standing::CannotTell => Role::Unknown,
        Standing::RuledOut => Role::Dim,
    }
}

fn heading(text: &str, look: &Appearance) -> Line<'static> {
    Line::styled(format!(" {text} "), look.style(Role::Strong))
}

/// Events on a row each.
fn event_rows<'a>(
    events: impl Iterator<Item = &'a crate::tui::app::events::Event>,
    model: &Model,
    look: &Appearance,
    area: Rect,
) -> impl Iterator<Item = Line<'static>> {
    events.map(move |event| clipped(event_line(event, model, look), usize::from(area.width), look))
}

fn event_line(
    event: &crate::tui::app::events::Event,
    model: &Model,
    look: &Appearance,
) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!(" {} ", clock(event.wall, model.zone)), look.style(Role::Dim)),
        Span::styled(format!("{} ", look.mark(event.role)), look.style(event.role)),
        Span::raw(event.text.clone()),
    ])
}

/// The newest events, in a frame.
pub fn events_panel(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(heading("events, newest first", look), area, look, buf);
    lines(event_rows(model.events(), model, look, inner), inner, buf);
}

/// The newest events as running text, for the last lines of a small screen: oldest first.
pub fn events_lines(model: &Model, look: &Appearance, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let mut rows: Vec<Vec<Span<'static>>> = Vec::new();
    let mut row: Vec<Span<'static>> = Vec::new();
    let mut used = 1;
    for event in model.events() {
        let text = format!("{} {}", clock(event.wall, model.zone), event.text);
        let text = cut(&text, width.saturating_sub(3), look.glyphs.ellipsis);
        let size = text.chars().count() + 3;
        if used + size > width && !row.is_empty() {
            rows.push(std::mem::take(&mut row));
            used = 1;
            if rows.len() >= usize::from(area.height) {
                break;
            }
        }
        used += size;
        let separator = if row.is_empty() { "" } else { look.glyphs.separator };
        row.insert(
            0,
            Span::styled(format!(" {separator} ").replace("  ", " "), look.style(Role::Dim)),
        );
        row.insert(
            0,
            Span::styled(
                text,
                look.style(if event.role == Role::Ok { Role::Plain } else { event.role }),
            ),
        );
    }
    if rows.len() < usize::from(area.height) && !row.is_empty() {
        rows.push(row);
    }
    rows.into_iter()
        .rev()
        .map(|mut spans| {
            spans.insert(0, Span::raw(" "));
            Line::from(spans)
        })
        .collect()
}

/// The whole timeline.
pub fn timeline(model: &Model, list: &Listed, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let mut title = heading("timeline, newest first", look);
    title.spans.extend(filter_words(&list.filter, look));
    let inner = panel(title, area, look, buf);
    let shown: Vec<_> = model.events().filter(|event| list.shows(&event.text)).collect();
    if shown.is_empty() {
        let none = if list.filter.is_empty() { "nothing has happened yet" } else { "none" };
        lines([Line::styled(format!(" {none}"), look.style(Role::Dim))], inner, buf);
        return;
    }
    let events = shown.into_iter().skip(list.at);
    lines(event_rows(events, model, look, inner), inner, buf);
}

/// The keys, by chapter, from the registry.
pub fn help(model: &Model, scroll: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let is_recording = model.playhead.is_some();
    let mut groups: BTreeMap<&str, Vec<Line<'static>>> = BTreeMap::new();
    // What can be done live depends on the moment; in a recording it depends on nothing.
    for entry in model.registry.iter().filter(|entry| !is_recording || entry.when.holds(model)) {
        let keys: Vec<String> = entry.keys.iter().map(ToString::to_string).collect();
        let role = if entry.when.holds(model) { Role::Plain } else { Role::Dim };
        groups.entry(entry.group).or_default().push(Line::from(vec![
            Span::styled(format!("  {:<16}", keys.join(" ")), look.style(Role::Accent)),
            Span::styled(format!("{:<9}", place(entry.contexts)), look.style(Role::Dim)),
            Span::styled(format!("{} ", entry.danger.sign()), look.style(Role::Warn)),
            Span::styled(entry.description, look.style(role)),
        ]));
    }
    let legend: Vec<String> = if is_recording {
        vec![" a recording: nothing can be flipped, noted or undone".to_owned()]
    } else {
        let signed = |danger: Danger| Some(format!(" {} {}", danger.sign(), danger.words()?));
        [Danger::Plans, Danger::Changes].into_iter().filter_map(signed).collect()
    };
    let mut content: Vec<_> =
        legend.into_iter().map(|words| Line::styled(words, look.style(Role::Warn))).collect();
    let mut order = CHAPTERS;
    if is_recording {
        order.sort_by_key(|group| *group != "Time");
    }
    for group in order {
        let Some(rows) = groups.remove(group) else { continue };
        content.push(heading(group, look));
        content.extend(rows);
    }
    text("keys: j k scroll, Esc closes", content, scroll, look, area, buf);
}

/// Where an action works, when that is one screen.
fn place(contexts: Places) -> String {
    let mut all = contexts.iter();
    match (all.next(), all.next()) {
        (Some(only), None) => format!("{only:?}").to_lowercase(),
        _ => String::new(),
    }
}

/// A text over the screen.
pub fn text(
    title: &str,
    content: Vec<Line<'static>>,
    scroll: usize,
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) {
    let inside = TEXT_WIDTH.min(area.width).saturating_sub(2);
    let fold = |line| folded(line, usize::from(inside));
    let content = content.into_iter().flat_map(fold).collect();
    sheet(title, content, (scroll, TEXT_WIDTH), look, area, buf);
}

/// Lines of their own making over the screen, scrolled down, on so many cells with the frame.
pub fn sheet(
    title: &str,
    content: Vec<Line<'static>>,
    (scroll, width): (usize, u16),
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) {
    let height = u16::try_from(content.len() + 2).unwrap_or(u16::MAX);
    let frame = centred(area, width, height);
    let inner = overlay(heading(title, look), frame, look, buf);
    let last = content.len().saturating_sub(usize::from(inner.height));
    let above = above(scroll, last);
    let below = last - above;
    lines(content.into_iter().skip(above), inner, buf);
    if below > 0 {
        let edge = Rect { y: inner.bottom(), height: 1, ..inner };
        let more = format!(" {}", more_rows(below));
        right(Line::styled(more, look.style(Role::Warn)), edge, buf);
    }
}

/// The verdict in words.
pub fn why(model: &Model, scroll: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let Some(verdict) = model.verdict() else {
        text(
            "why",
            vec![Line::styled(" no verdict yet", look.style(Role::Unknown))],
            scroll,
            look,
            area,
            buf,
        );
        return;
    };
    let width = usize::from(TEXT_WIDTH.min(area.width).saturating_sub(3));
    let wrapped = |text: &str, role: Role| {
        let style = look.style(role);
        wrap(text, width).into_iter().map(move |row| Line::styled(row, style))
    };
    let mut content: Vec<Line<'static>> = wrapped(&verdict.say, Role::Plain).collect();
    content.push(Line::default());
    for step in &verdict.path {
        content.extend(wrapped(&step.title, Role::Strong));
        content.extend(indented(&step.branch, width));
    }
    content.push(Line::default());
    for evidence in &verdict.evidence {
        let (letter, role) = evidence::state(evidence);
        let rows = wrap(&evidence.predicate, width.saturating_sub(2));
        content.extend(rows.into_iter().enumerate().map(|(index, row)| {
            let letter = if index == 0 { letter } else { " " };
            Line::from(vec![Span::styled(format!(" {letter}"), look.style(role)), Span::raw(row)])
        }));
        content.extend(indented(&reading(evidence), width));
    }
    content.push(Line::default());
    for note in &verdict.notes {
        content.extend(wrapped(note, Role::Plain));
    }
    if let Some(runbook) = &verdict.runbook {
        content.push(Line::styled(
            format!(" runbook: weir runbook show {runbook}"),
            look.style(Role::Accent),
        ));
    }
    text("why: j k scroll, Esc closes", content, scroll, look, area, buf);
}

fn indented(text: &str, width: usize) -> impl Iterator<Item = Line<'static>> {
    wrap(text, width.saturating_sub(2)).into_iter().map(|row| Line::from(format!("  {row}")))
}

/// What a predicate read, against what, for how long, and from where.
fn reading(evidence: &Evidence) -> String {
    let mut text = evidence::comparison(evidence);
    if evidence.held_s >= 1.0 {
        let _ = write!(text, ", held {}", span(evidence.held_s));
    }
    if let Some(reason) = evidence.reason.as_deref().filter(|reason| !text.contains(reason)) {
        let _ = write!(text, ", {reason}");
    }
    if let Some(source) = &evidence.source {
        let age = evidence.age_s.map_or_else(|| "?".to_owned(), span);
        let _ =
            write!(text, ", {source} {age} ago, {}", evidence.quality.map_or("?", Quality::word));
    }
    text
}

/// Every cause with its standing.
pub fn causes(model: &Model, scroll: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let content = model.verdict().map_or_else(Vec::new, |verdict| {
        let first = (verdict.cause.clone(), verdict.standing, String::from("on top"));
        std::iter::once(first)
            .chain(verdict.also.iter().map(|other| {
                let counts = format!(
                    "{} for, {} against, {} unknown{}",
                    other.evidence_for,
                    other.evidence_against,
                    other.evidence_unknown,
                    role_words(other.role)
                );
                (other.cause.clone(), other.standing, counts)
            }))
            .map(|(cause, standing, counts)| cause_line(&cause, standing, &counts, look))
            .collect()
    });
    text("all causes: j k scroll, Esc closes", content, scroll, look, area, buf);
}

/// How a cause relates to the one on top, behind its counts.
pub const fn role_words(role: CauseRole) -> &'static str {
    match role {
        CauseRole::Contributing => "; contributing",
        CauseRole::Consequence => "; a consequence",
        CauseRole::Other => "",
    }
}

/// One cause of the ranking.
pub fn cause_line(
    cause: &str,
    standing: Standing,
    counts: &str,
    look: &Appearance,
) -> Line<'static> {
    let role = standing_role(standing);
    Line::from(vec![
        Span::styled(format!(" {:<13}", standing.word()), look.style(role)),
        Span::raw(format!("{cause:<22} ")),
        Span::styled(counts.to_owned(), look.style(Role::Dim)),
    ])
}

/// The line for a note.
pub fn note(input: &Input, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let frame = centred(area, 72, 4);
    let inner = overlay(heading("note for journal and timeline", look), frame, look, buf);
    lines(
        [
            typed(input, usize::from(inner.width).saturating_sub(2), true, look),
            Line::styled(" Enter writes it, Esc drops it", look.style(Role::Dim)),
        ],
        inner,
        buf,
    );
}

/// A field: while it is typed in, with its cursor in reverse; else from its beginning.
pub fn typed(input: &Input, width: usize, focused: bool, look: &Appearance) -> Line<'static> {
    let width = width.max(1);
    if !focused {
        return Line::from(format!(" {}", cut(input.value(), width, look.glyphs.ellipsis)));
    }
    let scroll = input.visual_scroll(width.saturating_sub(1));
    let shown: Vec<char> = input.value().chars().skip(scroll).take(width).collect();
    let at = input.visual_cursor().saturating_sub(scroll);
    let before: String = shown.iter().take(at).collect();
    let under: String = shown.get(at).map_or_else(|| " ".to_owned(), ToString::to_string);
    let after: String = shown.iter().skip(at + 1).collect();
    Line::from(vec![
        Span::raw(" "),
        Span::raw(before),
        Span::styled(under, look.style(Role::Selected)),
        Span::raw(after),
    ])
}

/// Text broken into rows at spaces.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut rows = vec![String::from(" ")];
    for word in text.split_whitespace() {
        let row = rows.last_mut().expect("there is always a row");
        if row.chars().count() + word.chars().count() + 1 > width && row.len() > 1 {
            rows.push(format!(" {word}"));
        } else {
            if row.len() > 1 {
                row.push(' ');
            }
            row.push_str(word);
        }
    }
    rows
}
