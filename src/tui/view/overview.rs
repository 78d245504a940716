//! The overview: where the work multiplies, which meter binds, who waits, what happened first.
//!
//! Wider and taller screens get more columns, more history and more events, never stretched ones.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;

use crate::tui::app::Model;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::widgets::{lines, panel};
use crate::tui::view::{charts, panels, texts};

type Panel = fn(&Model, &Appearance, Rect, &mut Buffer);

/// Draws the overview.
pub fn draw(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    if model.snapshot().is_none() {
        waiting(model, look, area, buf);
    } else if area.width >= 160 && area.height >= 34 {
        wide(model, look, area, buf);
    } else if area.width >= 100 && area.height >= 24 {
        medium(model, look, area, buf);
    } else {
        compact(model, look, area, buf);
    }
}

/// Before the first good scrape: what is being asked, and what came back.
fn waiting(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(Line::from(" connecting... "), area, look, buf);
    let mut content =
        vec![Line::styled(" no numbers yet", look.style(Role::Unknown)), Line::default()];
    if let Some(update) = model.shown() {
        for source in &update.observation.sources {
            let state = match (&source.error, source.last_good) {
                (Some(error), _) => error.clone(),
                (None, Some(_)) => "answers; rates need a second scrape".to_owned(),
                (None, None) => "asked, no answer yet".to_owned(),
            };
            content.push(Line::from(format!(" {:<10} {}", source.name, source.url)));
            content.push(Line::styled(format!(" {:<10} {state}", ""), look.style(Role::Dim)));
        }
    }
    lines(content, inner, buf);
}

fn side_by_side(parts: &[Panel], model: &Model, look: &Appearance, row: Rect, buf: &mut Buffer) {
    let shares = vec![Constraint::Fill(1); parts.len()];
    for (part, cell) in parts.iter().zip(Layout::horizontal(shares).split(row).iter()) {
        part(model, look, *cell, buf);
    }
}

fn compact(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let narrow = area.width < 76;
    let rows: &[(u16, &[Panel])] = if narrow {
        &[
            (8, &[panels::attempts]),
            (8, &[panels::work]),
            (6, &[panels::quota]),
            (6, &[panels::queue]),
            (3, &[panels::latency]),
        ]
    } else {
        &[
            (8, &[panels::work, panels::attempts]),
            (6, &[panels::quota, panels::queue]),
            (3, &[panels::latency]),
        ]
    };
    let mut rest = area;
    for (height, parts) in rows {
        if rest.height < 3 {
            break;
        }
        let row = Rect { height: (*height).min(rest.height), ..rest };
        side_by_side(parts, model, look, row, buf);
        rest = Rect { y: rest.y + row.height, height: rest.height - row.height, ..rest };
    }
    if rest.height >= 6 {
        texts::events_panel(model, look, rest, buf);
    } else {
        lines(texts::events_lines(model, look, rest), rest, buf);
    }
}

fn medium(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let events = if area.height >= 32 { 8 } else { 0 };
    let rows = Layout::vertical([
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(3),
        Constraint::Fill(1),
        Constraint::Length(events),
    ])
    .split(area);
    side_by_side(&[panels::work, panels::attempts], model, look, rows[0], buf);
    side_by_side(&[panels::quota, panels::queue], model, look, rows[1], buf);
    panels::latency(model, look, rows[2], buf);
    side_by_side(&[charts::flow_chart, charts::amplification_chart], model, look, rows[3], buf);
    texts::events_panel(model, look, rows[4], buf);
}

fn wide(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let rows = Layout::vertical([
        Constraint::Length(12),
        Constraint::Length(3),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ])
    .split(area);
    let top = Layout::horizontal([Constraint::Fill(1); 3]).split(rows[0]);
    panels::work(model, look, top[0], buf);
    panels::attempts(model, look, top[1], buf);
    let right = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).split(top[2]);
    panels::quota(model, look, right[0], buf);
    panels::queue(model, look, right[1], buf);
    panels::latency(model, look, rows[1], buf);
    let upper: &[Panel] =
        &[charts::flow_chart, charts::amplification_chart, charts::headroom_chart];
    side_by_side(upper, model, look, rows[2], buf);
    let lower: &[Panel] = &[charts::latency_chart, charts::queue_chart, texts::events_panel];
    side_by_side(lower, model, look, rows[3], buf);
}
