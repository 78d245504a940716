//! The pages: one frame for all of them, with a table, facts in as many columns as fit, and charts.
//!
//! A page says what stands on it and knows no size but the width of its lines; only this file lays
//! out. Wider screens get more columns, taller ones charts below, never stretched ones.

mod breakers;
mod facts;
mod goodput;
mod queue;
mod retries;
mod scopes;
mod signals;
mod sources;
mod tenants;
mod trace;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use crate::tui::app::Model;
use crate::tui::app::page::{Listed, Page};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::cut_words;
use crate::tui::view::texts::typed;
use crate::tui::view::widgets::{clipped, lines, more_rows, panel};

/// Cells from which there are two columns, and three.
const COLUMNS: [u16; 2] = [98, 158];
/// Cells between columns.
const GUTTER: u16 = 2;
/// The least and the most rows of a chart.
const CHART_ROWS: (u16, u16) = (8, 14);

pub use signals::whole;

/// Draws a chart with its own frame.
type Chart = fn(&Model, &Appearance, Rect, &mut Buffer);

/// What a page draws for and on how many cells.
#[derive(Clone, Copy)]
struct Room {
    /// Cells of a line of the table.
    table: usize,
    /// Cells of a line of a section.
    section: usize,
}

/// What stands on a page.
#[derive(Default)]
struct Content {
    /// Where it is a list.
    table: Option<Table>,
    /// Facts under headings.
    sections: Vec<Section>,
    /// For what is left of the screen.
    charts: Vec<Chart>,
    /// The sections take the whole width, however wide it is.
    single: bool,
}

/// Rows with ids.
struct Table {
    head: String,
    rows: Vec<TableRow>,
    /// In place of rows, where there are none.
    none: String,
}

/// A row, with what stands above it where it begins a group.
struct TableRow {
    id: String,
    line: Line<'static>,
    heading: Option<Line<'static>>,
}

/// Facts under a heading.
struct Section {
    title: String,
    lines: Vec<Line<'static>>,
}

/// Draws a page.
pub fn draw(
    model: &Model,
    (page, list): (Page, &Listed),
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) {
    let inner = panel(title(model, page, list, look), area, look, buf);
    let columns = 1 + COLUMNS.iter().filter(|least| inner.width >= **least).count();
    let split = Layout::horizontal(vec![Constraint::Fill(1); columns]).spacing(GUTTER);
    let section = split.split(inner).first().map_or(0, |cell| cell.width);
    let room = Room { table: usize::from(inner.width), section: usize::from(section) };
    let content = content(model, page, list, look, room);
    let mut rest = inner;
    let mut rows_below = 0;
    if let Some(table) = &content.table {
        let cursor = model.row_under_cursor(page, list);
        let has_facts = !content.sections.is_empty();
        let (used, hidden) = draw_table(table, cursor.as_deref(), has_facts, look, rest, buf);
        rows_below = hidden;
        rest = Rect { y: rest.y + used, height: rest.height - used, ..rest };
    }
    let (columns, split) = if content.single {
        (1, Layout::horizontal([Constraint::Fill(1)]))
    } else {
        (columns, split)
    };
    let facts = columned(&content.sections, columns, look);
    let needed = facts.iter().map(Vec::len).max().unwrap_or(0);
    let rows = u16::try_from(needed).unwrap_or(u16::MAX).min(rest.height);
    let hidden = needed.saturating_sub(usize::from(rows));
    // A table has the keys that scroll; the facts below it are those of its row.
    let scroll = if content.table.is_some() { 0 } else { list.above(hidden) };
    for (column, cell) in facts.into_iter().zip(split.split(rest).iter()) {
        let width = usize::from(cell.width);
        let shown = column.into_iter().skip(scroll).map(|line| clipped(line, width, look));
        lines(shown, Rect { height: rows, ..*cell }, buf);
    }
    charts(&content.charts, rows, model, look, rest, buf);
    let below = if content.table.is_some() { rows_below } else { hidden - scroll };
    let edge = Rect { y: area.bottom().saturating_sub(1), height: 1.min(area.height), ..area };
    tabs(model, page, below, look, (edge, buf));
}

fn content(model: &Model, page: Page, list: &Listed, look: &Appearance, room: Room) -> Content {
    match page {
        Page::Scopes => scopes::content(model, list, look, room),
        Page::Retries => retries::content(model, look, room),
        Page::Queue => queue::content(model, look, room),
        Page::Breakers => breakers::content(model, look, room),
        Page::Tenants => tenants::content(model, list, look, room),
        Page::Goodput => goodput::content(model, look, room),
        Page::Sources => sources::content(model, list, look, room),
        Page::Trace => trace::content(model, look, room),
        Page::Signals => signals::content(model, list, look, room),
    }
}

fn title(model: &Model, page: Page, list: &Listed, look: &Appearance) -> Line<'static> {
    let of = match (page, model.scope()) {
        (Page::Scopes | Page::Trace, _) | (_, None) => String::new(),
        (_, Some(scope)) => format!("of {scope} "),
    };
    let mut spans = vec![
        Span::styled(format!(" {} ", page.name()), look.style(Role::Strong)),
        Span::styled(of, look.style(Role::Dim)),
    ];
    if !list.only.is_empty() {
        spans.push(Span::styled("those of the screen before ", look.style(Role::Warn)));
    }
    spans.extend(filter_words(&list.filter, look));
    Line::from(spans)
}

/// The filter of a list, so that nobody takes what is shown for all there is.
pub fn filter_words(filter: &str, look: &Appearance) -> Option<Span<'static>> {
    let words = format!("only rows with \"{filter}\", / changes it ");
    (!filter.is_empty()).then(|| Span::styled(words, look.style(Role::Warn)))
}

/// The line on which a filter is typed.
pub fn filter_line(input: &tui_input::Input, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let row = Rect { y: area.bottom().saturating_sub(1), height: 1.min(area.height), ..area };
    ratatui::widgets::Widget::render(ratatui::widgets::Clear, row.intersection(buf.area), buf);
    // What is typed has to be seen.
    let help = match row.width {
        0..60 => "  Enter keeps it",
        _ => "  Enter keeps it, Esc takes it back",
    };
    let width = usize::from(row.width).saturating_sub(help.len() + 4);
    let mut line = typed(input, width, true, look);
    line.spans.insert(0, Span::styled(" /", look.style(Role::Accent)));
    line.spans.push(Span::styled(help, look.style(Role::Dim)));
    lines([line], row, buf);
}

/// The table from the top, its cursor in sight. Says how many rows of the screen it took, and how many of
/// its own lie below.
fn draw_table(
    table: &Table,
    cursor: Option<&str>,
    has_facts: bool,
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) -> (u16, usize) {
    let mut all = Vec::new();
    let mut at = 0;
    for row in &table.rows {
        let heading = row.heading.clone();
        all.extend(heading.map(|line| clipped(line, usize::from(area.width), look)));
        let is_here = cursor == Some(row.id.as_str());
        if is_here {
            at = all.len();
        }
        let line = clipped(row.line.clone(), usize::from(area.width), look);
        all.push(if is_here { line.patch_style(look.style(Role::Selected)) } else { line });
    }
    if all.is_empty() {
        all.push(Line::styled(format!(" {}", table.none), look.style(Role::Unknown)));
    }
    // Half of the screen is for the facts, unless the rows need less.
    let most = if has_facts { area.height / 2 } else { area.height }.max(3.min(area.height));
    let rows = u16::try_from(all.len() + 1).unwrap_or(u16::MAX).min(most);
    let body = usize::from(rows.saturating_sub(1));
    let skip = (at + 1).saturating_sub(body).min(all.len().saturating_sub(body));
    let width = usize::from(area.width);
    let head = Line::styled(table.head.clone(), look.style(Role::Dim));
    lines([clipped(head, width, look)], area, buf);
    let below = Rect { y: area.y + 1.min(area.height), height: rows.saturating_sub(1), ..area };
    let hidden = all.len().saturating_sub(skip + body);
    lines(all.into_iter().skip(skip), below, buf);
    let gap = u16::from(has_facts && rows < area.height);
    (rows + gap, hidden)
}

/// The sections under each other, in columns of about the same height; a section stays whole.
fn columned(sections: &[Section], columns: usize, look: &Appearance) -> Vec<Vec<Line<'static>>> {
    let size = |section: &Section| section.lines.len() + 2;
    let share = sections.iter().map(size).sum::<usize>().div_ceil(columns.max(1));
    let mut all: Vec<Vec<Line<'static>>> = vec![Vec::new()];
    for section in sections {
        let used = all.last().map_or(0, Vec::len);
        // Over its share by more than half of the section: the next column takes it.
        if used > 0 && all.len() < columns && used + size(section) / 2 > share {
            all.push(Vec::new());
        }
        let Some(column) = all.last_mut() else { continue };
        if !column.is_empty() {
            column.push(Line::default());
        }
        column.push(Line::styled(format!(" {}", section.title), look.style(Role::Strong)));
        column.extend(section.lines.iter().cloned());
    }
    all
}

fn charts(
    charts: &[Chart],
    used: u16,
    model: &Model,
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) {
    let left = area.height.saturating_sub(used + 1);
    if charts.is_empty() || left < CHART_ROWS.0 {
        return;
    }
    let row =
        Rect { y: area.bottom() - left.min(CHART_ROWS.1), height: left.min(CHART_ROWS.1), ..area };
    let fit = usize::from((area.width / 60).max(1));
    let shown = &charts[..charts.len().min(fit)];
    let cells = Layout::horizontal(vec![Constraint::Fill(1); shown.len()]).split(row);
    for (chart, cell) in shown.iter().zip(cells.iter()) {
        chart(model, look, *cell, buf);
    }
}

/// All pages with their keys on the lower edge, the one that is shown marked; and what lies below.
fn tabs(
    model: &Model,
    page: Page,
    below: usize,
    look: &Appearance,
    (edge, buf): (Rect, &mut Buffer),
) {
    let mut spans = vec![Span::raw(" ")];
    let more = more_rows(below);
    let width = usize::from(edge.width).saturating_sub(3);
    let mut used = 1 + more.len();
    for one in Page::ALL {
        let Some(entry) = model.registry.iter().find(|entry| entry.action.page() == Some(one))
        else {
            continue;
        };
        let text = format!("{} {}", entry.keys[0], one.name());
        if used + text.len() + 1 > width {
            break;
        }
        used += text.len() + 1;
        let role = if one == page { Role::Selected } else { Role::Dim };
        spans.extend([Span::styled(text, look.style(role)), Span::raw(" ")]);
    }
    spans.push(Span::styled(more, look.style(Role::Warn)));
    let inside = Rect { x: edge.x + 1, width: edge.width.saturating_sub(2), ..edge };
    lines([Line::from(spans)], inside, buf);
}

/// Text cut to its place in a row, with the place filled.
fn cell(text: &str, width: usize, look: &Appearance) -> String {
    format!("{:<width$}", cut_words(text, width, look.glyphs.ellipsis))
}
