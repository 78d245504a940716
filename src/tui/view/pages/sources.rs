//! What weir knows: every source with its age, errors and quality; then what is missing, and why.
//! Judges no number: it says how far each can be trusted.

use ratatui::text::{Line, Span};

use super::facts::Facts;
use super::{Content, Room, Section, Table, TableRow, cell};
use crate::diagnosis::fetch;
use crate::ingest::SourceStatus;
use crate::signal::{Quality, Reading, definition};
use crate::tui::app::Model;
use crate::tui::app::page::{Listed, Page, SourceRow};
use crate::tui::app::sources::short_error;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::chrome::source_state;
use crate::tui::view::format::{percent, seconds, span};
use crate::tui::view::texts::wrap;

/// Cells of a source's name and of a missing signal's.
const NAME: usize = 18;
const SIGNAL: usize = 32;

/// The page.
pub fn content(model: &Model, list: &Listed, look: &Appearance, room: Room) -> Content {
    let head = format!(
        "  {:<NAME$}{:<12}{:>6}{:>9}{:>9}  {}",
        "source", "age", "old at", "errors", "signals", "not exact"
    );
    let mut rows: Vec<TableRow> = Vec::new();
    let mut is_missing = false;
    for id in model.rows(Page::Sources, list) {
        let row = match SourceRow::of(&id) {
            SourceRow::Source(name) => {
                source(model, name).map(|one| (source_row(model, one, look), None))
            }
            SourceRow::Absent(name) => {
                let heading = (!is_missing).then(|| missing_heading(model, look));
                is_missing = true;
                Some((absent_row(model, name, room.table, look), heading))
            }
        };
        rows.extend(row.map(|(line, heading)| TableRow { id, line, heading }));
    }
    let none = if list.filter.is_empty() { "connecting..." } else { "none" };
    let sections = model.row_under_cursor(Page::Sources, list).map_or_else(Vec::new, |id| {
        let facts = Facts::here(model, look, room.section);
        match SourceRow::of(&id) {
            SourceRow::Source(name) => {
                source(model, name).map_or_else(Vec::new, |one| about_source(&facts, one))
            }
            SourceRow::Absent(name) => vec![about_signal(&facts, name)],
        }
    });
    let table = Some(Table { head, rows, none: none.to_owned() });
    Content { table, sections, ..Content::default() }
}

fn source<'a>(model: &'a Model, name: &str) -> Option<&'a SourceStatus> {
    model.shown()?.observation.sources.iter().find(|one| one.name == name)
}

/// The readings of a source in the scope on the screen.
fn readings<'a>(model: &'a Model, name: &str) -> Vec<(&'a str, &'a Reading)> {
    let Some(snapshot) = model.snapshot() else { return Vec::new() };
    let of_it = snapshot.signals.iter().filter(|(_, reading)| *reading.source == *name);
    of_it.map(|(signal, reading)| (signal.as_str(), reading)).collect()
}

fn source_row(model: &Model, source: &SourceStatus, look: &Appearance) -> Line<'static> {
    let (role, state) = source_state(model, source);
    let all = readings(model, &source.name);
    let estimated = all.iter().filter(|(_, reading)| reading.quality != Quality::Exact).count();
    let failed = if source.failures > 0 { Role::Warn } else { Role::Plain };
    Line::from(vec![
        Span::raw(format!("  {}", cell(&source.name, NAME, look))),
        Span::styled(
            format!(
                "{:<12}",
                format!("{} {state}", look.mark(if role == Role::Dim { Role::Ok } else { role }))
            ),
            look.style(if role == Role::Dim { Role::Ok } else { role }),
        ),
        Span::styled(format!("{:>6}", span(source.stale_after_s)), look.style(Role::Dim)),
        Span::styled(format!("{:>9}", source.failures), look.style(failed)),
        Span::raw(format!("{:>9}  ", all.len())),
        Span::styled(format!("{estimated:>7}"), look.style(Role::Dim)),
    ])
}

/// Whether the verdict lacks a signal.
fn is_wanted(model: &Model, name: &str) -> bool {
    model.verdict().is_some_and(|verdict| verdict.missing.iter().any(|one| one.signal == name))
}

fn missing_heading(model: &Model, look: &Appearance) -> Line<'static> {
    let many = model.snapshot().map_or(0, |snapshot| snapshot.absent.len());
    let mark = look.mark(Role::Warn);
    let text = format!(" missing: {many} signals, {mark} where the verdict lacks it");
    Line::styled(text, look.style(Role::Strong))
}

fn absent_row(model: &Model, name: &str, width: usize, look: &Appearance) -> Line<'static> {
    let why = model.snapshot().and_then(|snapshot| snapshot.absent.get(name)).cloned();
    let (mark, role) =
        if is_wanted(model, name) { (look.mark(Role::Warn), Role::Warn) } else { (" ", Role::Dim) };
    let left = width.saturating_sub(SIGNAL + 3);
    let why = crate::tui::view::format::cut_words(
        why.as_deref().unwrap_or("?"),
        left,
        look.glyphs.ellipsis,
    );
    Line::from(vec![
        Span::styled(format!("{mark} "), look.style(role)),
        Span::styled(format!("{} ", cell(name, SIGNAL, look)), look.style(Role::Unknown)),
        Span::styled(why, look.style(Role::Dim)),
    ])
}

fn about_source(facts: &Facts<'_>, source: &SourceStatus) -> Vec<Section> {
    let (up, all) = source.instances;
    #[expect(clippy::cast_precision_loss, reason = "a share of scrapes on a screen")]
    let failed = (source.polls > 0).then(|| source.failures as f64 / source.polls as f64);
    let failed = failed.map_or_else(|| "?".to_owned(), percent);
    let mut lines = Vec::new();
    if !source.url.is_empty() {
        lines.push(facts.say(&source.url, Role::Plain));
    }
    if let Some(via) = &source.via {
        lines.push(facts.say(&format!("asked of the Prometheus at {via}"), Role::Plain));
    }
    let asked = format!("of {} asked", source.polls);
    lines.extend([
        facts.told("instances up", &up.to_string(), &format!("of {all}"), Role::Strong),
        facts.told("no answer", &failed, &asked, Role::Strong),
        facts.told("last one took", &seconds(source.took_s), "", Role::Strong),
        facts.told("samples", &source.samples.to_string(), "in the last good answer", Role::Strong),
        facts.told(
            "counts until",
            &span(source.stale_after_s),
            "old; then it is shown as stale",
            Role::Strong,
        ),
    ]);
    if let Some(error) = short_error(source) {
        lines.extend(wrapped(facts, &error, Role::Crit));
    }
    let bad = source.degraded.iter().map(|(line, why)| format!("line {line}: {why}"));
    for text in bad.chain(source.warnings.iter().cloned()) {
        lines.extend(wrapped(facts, &text, Role::Warn));
    }
    let mut notes: Vec<Line<'static>> = Vec::new();
    for (signal, reading) in readings(facts.model, &source.name) {
        let quality = (reading.quality != Quality::Exact).then(|| reading.quality.word());
        let note = reading.note.as_deref();
        let words: Vec<&str> = quality.into_iter().chain(note).collect();
        if !words.is_empty() {
            notes.push(facts.say(&format!("{signal}: {}", words.join(", ")), Role::Dim));
        }
    }
    if notes.is_empty() {
        notes.push(facts.say("every signal of it is counted, none estimated", Role::Dim));
    }
    vec![
        Section { title: source.name.clone(), lines },
        Section { title: "not to be taken at its word".to_owned(), lines: notes },
    ]
}

fn wrapped(facts: &Facts<'_>, text: &str, role: Role) -> Vec<Line<'static>> {
    let style = facts.look.style(role);
    wrap(text, facts.width).into_iter().map(|row| Line::styled(row, style)).collect()
}

fn about_signal(facts: &Facts<'_>, name: &str) -> Section {
    let why = facts.model.snapshot().and_then(|snapshot| snapshot.absent.get(name));
    let mut lines = Vec::new();
    if let Some(known) = definition(name) {
        let text = format!("{}, in {}", known.meaning, known.unit.word());
        lines.extend(wrapped(facts, &text, Role::Plain));
    }
    let why = format!("missing: {}", why.map_or("?", String::as_str));
    lines.extend(wrapped(facts, &why, Role::Unknown));
    lines.extend(wrapped(facts, &format!("from: {}", fetch(name)), Role::Plain));
    if is_wanted(facts.model, name) {
        lines.push(facts.say("the verdict lacks it", Role::Warn));
    }
    Section { title: name.to_owned(), lines }
}
