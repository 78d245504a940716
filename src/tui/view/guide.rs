//! The walk along a runbook: what was passed, the step with its evidence, and what can be chosen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use crate::diagnosis::Truth;
use crate::runbook::{Frozen, View, Walk};
use crate::tui::app::Model;
use crate::tui::app::guide::{Choice, Does};
use crate::tui::app::mode::Prompt;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::evidence::{comparison, state};
use crate::tui::view::format::{clock, cut, span};
use crate::tui::view::texts::{self, text, typed, wrap};
use crate::tui::view::widgets::{centred, lines, overlay, panel};

/// Rows of the prose of a step; `w` shows all of it.
const PROSE_ROWS: usize = 4;
/// Rows below which there is no room for what was passed.
const LOW_BELOW: u16 = 10;

/// Draws the screen.
pub fn draw(model: &Model, cursor: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let found = model.guide().zip(model.facts());
    let view = found.and_then(|(walk, facts)| Some((walk, walk.view(facts)?)));
    let Some((walk, view)) = view else {
        let inner = panel(Line::from(" walk "), area, look, buf);
        let words = " this scope has no walk yet: Esc, then l";
        lines([Line::styled(words, look.style(Role::Unknown))], inner, buf);
        return;
    };
    let passed = u16::try_from(walk.trail().len().max(1) + 2).unwrap_or(u16::MAX);
    let choices = model.choices();
    let wanted = u16::try_from(choices.len().max(1) + 2).unwrap_or(u16::MAX);
    // What can be chosen is seen on any screen; what was passed already gives way to it.
    let (passed, least) = match area.height {
        0..LOW_BELOW => (0, 3),
        height => (passed.min((height / 3).max(3)), 4),
    };
    let [above, middle, below] = Layout::vertical([
        Constraint::Length(passed),
        Constraint::Min(least),
        Constraint::Length(wanted.min((area.height / 2).max(3))),
    ])
    .areas(area);
    if passed > 0 {
        trail(model, walk, look, above, buf);
    }
    // The sentence of the cause names whom its questions are about.
    let said = model.verdict().filter(|verdict| verdict.cause == view.book.id);
    step(&view, said.map(|verdict| verdict.say.as_str()), look, middle, buf);
    ways(&choices, cursor, look, below, buf);
}

fn trail(model: &Model, walk: &Walk, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let changed = walk.trail().iter().any(|step| step.changed_at.is_some());
    let (title, role) = if changed {
        (" passed: CHANGED SINCE, b goes back ", Role::Warn)
    } else {
        (" passed ", Role::Strong)
    };
    let inner = panel(Line::styled(title, look.style(role)), area, look, buf);
    if walk.trail().is_empty() {
        lines([Line::styled(" nothing yet", look.style(Role::Dim))], inner, buf);
        return;
    }
    let hidden = walk.trail().len().saturating_sub(usize::from(inner.height));
    let width = usize::from(inner.width);
    let shown = walk.trail().iter().enumerate().skip(hidden);
    lines(shown.map(|(index, step)| passed(model, index + 1, step, width, look)), inner, buf);
}

fn passed(
    model: &Model,
    number: usize,
    step: &Frozen,
    width: usize,
    look: &Appearance,
) -> Line<'static> {
    let by = step.by.as_ref().map(|by| format!(" ({by})")).unwrap_or_default();
    let skipped = if step.skipped { "skipped: " } else { "" };
    let mark = step.changed_at.map(|at| {
        let seconds = (model.wall - at).as_seconds_f64().max(0.0);
        format!(" changed {} ago", span(seconds))
    });
    let notes = if step.notes.is_empty() { "" } else { " +note" };
    let at = clock(step.at, model.zone);
    let body = format!(" {number} {at} {} {skipped}{}{by}{notes}", step.title, step.answer);
    let room = width.saturating_sub(mark.as_ref().map_or(0, |mark| mark.chars().count()));
    let mut spans = vec![Span::raw(cut(&body, room, look.glyphs.ellipsis))];
    spans.extend(mark.map(|mark| Span::styled(mark, look.style(Role::Warn))));
    Line::from(spans)
}

fn step(view: &View<'_>, said: Option<&str>, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let place = format!(" {}: {} ", view.book.id, view.node.title);
    let inner = panel(Line::styled(place, look.style(Role::Strong)), area, look, buf);
    let width = usize::from(inner.width);
    let mut rows: Vec<Line<'static>> = Vec::new();
    if let crate::runbook::Offer::Ended { say, .. } = &view.offer {
        rows.extend(
            wrap(say, width).into_iter().map(|row| Line::styled(row, look.style(Role::Strong))),
        );
    }
    if let crate::runbook::Offer::Ask { question, .. } = &view.offer {
        let role = look.style(Role::Strong);
        rows.extend(wrap(question, width).into_iter().map(|row| Line::styled(row, role)));
    }
    let prose = wrap(&view.node.prose, width);
    let left = prose.len().saturating_sub(PROSE_ROWS);
    rows.extend(
        prose.into_iter().take(PROSE_ROWS).map(|row| Line::styled(row, look.style(Role::Dim))),
    );
    if left > 0 {
        rows.push(Line::styled(" ... w shows all of it", look.style(Role::Dim)));
    }
    for one in &view.evidence {
        let (letter, role) = state(one);
        let read = match comparison(one) {
            read if read.is_empty() => one.reason.clone().unwrap_or_default(),
            read => read,
        };
        let room = width.saturating_sub(read.chars().count() + 5);
        rows.push(Line::from(vec![
            Span::styled(format!(" {letter} "), look.style(role)),
            Span::raw(format!("{:<room$} ", cut(&one.predicate, room, look.glyphs.ellipsis))),
            Span::styled(read, look.style(Role::Strong)),
        ]));
    }
    if let Some(said) = said {
        rows.extend(wrap(said, width).into_iter().map(Line::from));
    }
    lines(rows, inner, buf);
}

fn ways(choices: &[Choice], cursor: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let title = Line::styled(" choose, then Enter ", look.style(Role::Strong));
    let inner = panel(title, area, look, buf);
    if choices.is_empty() {
        lines([Line::styled(" the walk ends here", look.style(Role::Dim))], inner, buf);
        return;
    }
    let height = usize::from(inner.height).max(1);
    let first = (cursor + 1).saturating_sub(height);
    let row = |(index, choice): (usize, &Choice)| {
        let offered = match &choice.does {
            Does::Advance => " << the evidence",
            Does::Plan { .. } => " (a plan, which asks)",
            Does::Skip | Does::Answer(_) | Does::Acted(_) | Does::Without => "",
        };
        let state = choice.state.map(|state| format!(" [{state}]")).unwrap_or_default();
        let mark = if index == cursor { '>' } else { ' ' };
        let text = format!("{mark}{}{state}{offered}", choice.say);
        let text = cut(&text, usize::from(inner.width), look.glyphs.ellipsis);
        let role = if index == cursor { Role::Selected } else { Role::Plain };
        Line::styled(text, look.style(role))
    };
    lines(choices.iter().enumerate().skip(first).map(row), inner, buf);
}

/// Why the current step is asked.
pub fn why(model: &Model, scroll: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let found = model.guide().zip(model.facts()).and_then(|(walk, facts)| walk.why(facts));
    let said = found.map_or_else(|| vec!["no step".to_owned()], |why| why.lines());
    over("why this step: j k scroll, Esc closes", &said, scroll, look, area, buf);
}

/// How the verdict and the walk came about.
pub fn how(model: &Model, scroll: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let time = |at| clock(at, model.zone);
    let mut said = Vec::new();
    let screen = model.modes.iter().find_map(|mode| match mode {
        crate::tui::app::mode::Mode::Diagnose(walk) => Some(walk),
        _ => None,
    });
    if let Some(walk) = screen {
        said.push("the triage:".to_owned());
        for (number, answered) in (1..).zip(&walk.steps) {
            let (at, step) = (time(answered.at), &answered.step);
            let now = answered.changed.as_ref().map(|now| format!("; now: {now}"));
            let now = now.unwrap_or_default();
            let (node, branch) = (&step.node, &step.branch);
            let colon = if step.title.ends_with('?') { "" } else { ":" };
            said.push(format!("{number} {at} {node} {}{colon} {branch}{now}", step.title));
        }
        said.push("its evidence, as it was first seen and as it is:".to_owned());
        for one in model.verdict().map_or(&[][..], |verdict| &verdict.evidence) {
            let then = walk.first_state(&one.name).map_or("?", Truth::letter);
            let now = one.state.letter();
            said.push(format!("  {then} {now} {}  {}", one.predicate, comparison(one)));
        }
    }
    let verdict = model.verdict().map(AsRef::as_ref);
    if let Some(walk) = model.guide() {
        said.push("the walk:".to_owned());
        said.extend(walk.how(verdict).lines(&time));
    } else if let Some(verdict) = verdict {
        let (used, of) = (verdict.used, verdict.of);
        said.push(format!("{} is {}, on {used} of {of} signals", verdict.cause, verdict.standing));
        said.extend(verdict.missing.iter().map(|missing| {
            format!("  missing {} ({}): {}", missing.signal, missing.reason, missing.fetch)
        }));
    }
    over("how it was found: j k scroll, Esc closes", &said, scroll, look, area, buf);
}

fn over(
    title: &str,
    said: &[String],
    scroll: usize,
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) {
    let width = usize::from(texts::TEXT_WIDTH.min(area.width).saturating_sub(3));
    let rows = said.iter().flat_map(|line| {
        let indent = line.len() - line.trim_start().len();
        let pad = " ".repeat(indent);
        let rows = wrap(line, width.saturating_sub(indent));
        rows.into_iter().map(move |row| Line::from(format!("{pad}{row}")))
    });
    text(title, rows.collect(), scroll, look, area, buf);
}

/// The line that a skip or a hand-over asks for.
pub fn say(
    prompt: &Prompt,
    input: &tui_input::Input,
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) {
    let (title, below) = match prompt {
        Prompt::Skip(_) => ("why the evidence is passed over", " Enter goes there, Esc stays"),
        Prompt::HandOver => (
            "hand over, as `name: what to know`",
            " Enter writes the walk into a file, Esc drops it",
        ),
        Prompt::Original => (
            "number of an original, from x-weir-request-id",
            " Enter asks the gateway, Esc drops it",
        ),
    };
    let heading = Line::styled(format!(" {title} "), look.style(Role::Strong));
    let inner = overlay(heading, centred(area, 72, 4), look, buf);
    let width = usize::from(inner.width).saturating_sub(2);
    let below = Line::styled(below, look.style(Role::Dim));
    lines([typed(input, width, true, look), below], inner, buf);
}
