//! Every signal of the scope, or those of a screen: value, unit, quality, age and source. What one
//! means, and how to come to its series, stands below. Judges none.

use ratatui::text::{Line, Span};

use super::facts::Facts;
use super::{Content, Room, Section, Table, TableRow, cell};
use crate::diagnosis::{fetch, is_share};
use crate::signal::{Quality, Unit, Value, definition};
use crate::tui::app::action::Action;
use crate::tui::app::page::{Listed, Page};
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{count, cut_words, exact, percent, span};
use crate::tui::view::texts::wrap;

/// Cells of a signal's name, its value, unit, quality, age.
const NAME: usize = 29;
const VALUE: usize = 12;
const UNIT: usize = 8;
const QUALITY: usize = 12;
const AGE: usize = 6;

/// The page.
pub fn content(model: &Model, list: &Listed, look: &Appearance, room: Room) -> Content {
    let head = format!(
        " {:<NAME$}{:>VALUE$} {:<UNIT$}{:<QUALITY$}{:>AGE$}  {}",
        "signal", "value", "unit", "quality", "age", "source"
    );
    let rows = model.rows(Page::Signals, list).into_iter();
    let rows =
        rows.map(|id| TableRow { line: row(model, &id, room.table, look), id, heading: None });
    let rows = rows.collect();
    let none = if list.filter.is_empty() { "no data yet" } else { "none" };
    let facts = Facts::here(model, look, room.section);
    let about = model.row_under_cursor(Page::Signals, list).map(|name| about(&facts, &name));
    let table = Some(Table { head, rows, none: none.to_owned() });
    Content { table, sections: about.into_iter().collect(), single: true, ..Content::default() }
}

/// A value in a few cells, by its unit.
pub fn in_short(name: &str, value: &Value) -> String {
    let unit = definition(name).map(|known| known.unit);
    match value {
        Value::Number(number) if is_share(name) => percent(*number),
        Value::Number(number) if matches!(unit, Some(Unit::Tokens | Unit::Count)) => count(*number),
        Value::Number(number) if number.abs() >= 1_000.0 => count(*number),
        Value::Number(number) if number.fract() == 0.0 => format!("{number}"),
        Value::Number(number) => format!("{number:.3}"),
        Value::Text(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Map(parts) => format!("{} parts", parts.len()),
        Value::List(rows) => format!("{} rows", rows.len()),
    }
}

fn unit_of(name: &str) -> &'static str {
    match definition(name) {
        // Shown in percent.
        Some(known) if is_share(known.name) => "",
        Some(known) => known.unit.word(),
        None => "",
    }
}

fn row(model: &Model, name: &str, width: usize, look: &Appearance) -> Line<'static> {
    let mut spans = vec![Span::raw(format!(" {}", cell(name, NAME, look)))];
    let left = width.saturating_sub(NAME + VALUE + UNIT + 2);
    match model.signal(name) {
        Shown::Known { value, reading, age_s } => {
            let mark =
                if reading.quality == Quality::LowerBound { look.glyphs.at_least } else { "" };
            let text = format!("{mark}{}", in_short(name, value));
            let text = cut_words(&text, VALUE, look.glyphs.ellipsis);
            let role = if reading.quality == Quality::Exact { Role::Dim } else { Role::Warn };
            spans.extend([
                Span::styled(format!("{text:>VALUE$} "), look.style(Role::Strong)),
                Span::styled(format!("{:<UNIT$}", unit_of(name)), look.style(Role::Dim)),
                Span::styled(format!("{:<QUALITY$}", reading.quality.word()), look.style(role)),
                Span::styled(format!("{:>AGE$}  ", span(age_s)), look.style(Role::Dim)),
                Span::raw(reading.source.to_string()),
            ]);
        }
        Shown::Stale { age_s } => {
            let why = format!("last read {} ago", span(age_s));
            spans.push(Span::styled(format!("{:>VALUE$} ", "?"), look.style(Role::Stale)));
            spans.push(Span::styled(
                format!("{:<UNIT$}{why}", unit_of(name)),
                look.style(Role::Stale),
            ));
        }
        Shown::Unknown { why } => {
            let why = cut_words(why, left, look.glyphs.ellipsis);
            spans.push(Span::styled(format!("{:>VALUE$} ", "?"), look.style(Role::Unknown)));
            spans.push(Span::styled(
                format!("{:<UNIT$}{why}", unit_of(name)),
                look.style(Role::Dim),
            ));
        }
    }
    Line::from(spans)
}

fn about(facts: &Facts<'_>, name: &str) -> Section {
    let wrapped = |text: &str, role: Role| {
        let style = facts.look.style(role);
        let rows = wrap(text, facts.width.saturating_sub(1)).into_iter();
        rows.map(move |row| Line::styled(row, style)).collect::<Vec<_>>()
    };
    let mut lines = Vec::new();
    if let Some(known) = definition(name) {
        lines.extend(wrapped(known.meaning, Role::Plain));
    }
    match facts.signal(name) {
        Shown::Known { value, reading, .. } => {
            if !matches!(value, Value::Number(_)) {
                lines.extend(wrapped(&whole(value), Role::Strong));
            }
            if let Some(note) = &reading.note {
                lines.extend(wrapped(note, Role::Warn));
            }
            if matches!(value, Value::Number(_)) {
                let format = if is_share(name) { percent } else { exact };
                lines.push(facts.line("now", name, format));
            }
        }
        Shown::Stale { age_s } => {
            lines.extend(wrapped(&format!("last read {} ago", span(age_s)), Role::Stale));
        }
        Shown::Unknown { why } => {
            lines.extend(wrapped(&format!("missing: {why}"), Role::Unknown));
            lines.extend(wrapped(&format!("from: {}", fetch(name)), Role::Plain));
        }
    }
    if facts.model.is_now() {
        let key = facts.model.key_of(Action::Origin);
        let text = format!("{key}: how it is read, by whom, and the series behind it");
        lines.extend(wrapped(&text, Role::Accent));
    }
    Section { title: name.to_owned(), lines }
}

/// All of a value, on one line.
pub fn whole(value: &Value) -> String {
    match value {
        Value::Number(number) => exact(*number),
        Value::Text(text) => text.clone(),
        Value::Bool(_) => in_short("", value),
        Value::Map(parts) => {
            let parts = parts.iter().map(|(name, part)| match part {
                Value::Map(_) => format!("{name} ({})", whole(part)),
                part => format!("{name} {}", whole(part)),
            });
            parts.collect::<Vec<_>>().join(", ")
        }
        Value::List(rows) => rows.iter().map(whole).collect::<Vec<_>>().join("; "),
    }
}
