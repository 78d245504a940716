//! The flow of work: what was asked for, what passed, what was answered, and what fell out on the way.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{completed_signal, first_known, shown, text, title};
use crate::tui::app::Model;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::trend;
use crate::tui::view::format::{count, percent, rate};
use crate::tui::view::widgets::{clipped, lines, panel};

/// Cells of the remark beside a rate, so that the trends begin under each other.
const NOTE_CELLS: usize = 20;
/// A trend of fewer cells says nothing.
const TREND_CELLS_MIN: usize = 8;

/// The flow from originals to answers, with everything that falls out on the way.
pub fn work(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(title("work", look), area, look, buf);
    let width = usize::from(inner.width);
    // Where a gateway does not tell originals, the share is of its requests.
    let knows = |signal| model.number(signal).is_some();
    let of_requests = knows("served_share") && !knows("originals_rps");
    let of = if of_requests { "requests" } else { "originals" };
    let served = format!("{} of {of}", text(model, look, "served_share", percent).0);
    let by = text(model, look, "client_multiplication", |value| format!("{value:.1}")).0;
    let clients = (format!("x{by} by clients"), clients_role(model));
    let sheds = model.number("shed_rps").is_some_and(|value| value > 0.05);
    let shed = (shed_note(model), if sheds { Role::Warn } else { Role::Dim });
    let flow = |label, signal, note| flow(model, look, label, signal, note, width);
    let pair = |label: &'static str, left: &str, other: &'static str, right: &str| {
        let (value, role) = text(model, look, left, rate);
        Line::from(vec![
            Span::raw(format!(" {label:<10}")),
            Span::styled(format!("{value:>9} "), look.style(role)),
            Span::raw(format!(" {other} ")),
            shown(model, look, right, rate),
        ])
    };
    let tokens = first_known(model, &["actual_tokens_per_request", "tokens_per_request"]);
    let content = vec![
        flow("originals", "originals_rps", (String::new(), Role::Dim)),
        flow("offered", "offered_rps", clients),
        flow("admitted", "admitted_rps", gate_word(model)),
        flow("completed", completed_signal(model), (served, Role::Strong)),
        flow("shed", "shed_rps", shed),
        pair("deferred", "deferred_rps", "cancelled", "cancelled_rps"),
        pair("expired", "expired_rps", "attempts", "attempts_rps"),
        Line::from(vec![
            Span::raw(" tokens/request "),
            shown(model, look, tokens, count),
            Span::raw("  estimated "),
            shown(model, look, "est_tokens_per_request", count),
        ]),
    ];
    // Six rows hold the flow itself; what falls out on the way shares the last of them.
    let content = if inner.height <= 6 { squeeze(content, model, look) } else { content };
    let width = usize::from(inner.width);
    lines(content.into_iter().map(|line| clipped(line, width, look)), inner, buf);
}

/// One stage of the flow: rate, remark, and the trend where there is room for it.
fn flow(
    model: &Model,
    look: &Appearance,
    label: &'static str,
    signal: &str,
    (note, note_role): (String, Role),
    width: usize,
) -> Line<'static> {
    let (value, role) = text(model, look, signal, rate);
    let role = if role == Role::Plain { Role::Strong } else { role };
    let note = if note.is_empty() { note } else { format!("{note:<NOTE_CELLS$}") };
    let mut spans = vec![
        Span::raw(format!(" {label:<10}")),
        Span::styled(format!("{value:>9} "), look.style(role)),
        Span::styled(format!(" {note}"), look.style(note_role)),
    ];
    let used: usize = spans.iter().map(Span::width).sum();
    let room = width.saturating_sub(used + 1);
    if room >= TREND_CELLS_MIN {
        spans.extend(trend(model, signal, room, None, Role::Accent, look).spans);
    }
    Line::from(spans)
}

/// Deferred, cancelled and expired on one line, for the smallest panel.
fn squeeze(
    mut content: Vec<Line<'static>>,
    model: &Model,
    look: &Appearance,
) -> Vec<Line<'static>> {
    content.truncate(5);
    let short = |value: f64| format!("{value:.0}");
    content.push(Line::from(vec![
        Span::raw(" deferred "),
        shown(model, look, "deferred_rps", short),
        Span::raw(" cancelled "),
        shown(model, look, "cancelled_rps", short),
        Span::raw(" expired "),
        shown(model, look, "expired_rps", short),
        Span::raw(" /s"),
    ]));
    content
}

fn clients_role(model: &Model) -> Role {
    match model.number("client_multiplication") {
        Some(factor) if factor > 1.5 => Role::Crit,
        Some(_) => Role::Dim,
        None => Role::Unknown,
    }
}

/// Whether the gate decides, in a word: a breaker that is open holds nothing back while it does not.
fn gate_word(model: &Model) -> (String, Role) {
    if model.is_gateway_down() {
        return ("gate ? (down)".to_owned(), Role::Unknown);
    }
    let is_open = model.word("breaker.state") == Some("open");
    let Some(flag) = model.flag("admission.mode") else {
        let unknown = ("gate ?".to_owned(), Role::Unknown);
        return if is_open { ("breaker OPEN".to_owned(), Role::Crit) } else { unknown };
    };
    match flag.effective.values().next().unwrap_or(flag.stored()).to_string().as_str() {
        "enforce" if is_open => ("breaker OPEN".to_owned(), Role::Crit),
        "enforce" => ("gate ENFORCE".to_owned(), Role::Ok),
        "shadow" => ("gate SHADOW".to_owned(), Role::Warn),
        "off" => ("gate OFF".to_owned(), Role::Warn),
        other => (format!("gate {other}"), Role::Unknown),
    }
}

fn shed_note(model: &Model) -> String {
    let share = model
        .number("shed_rps")
        .zip(model.number("offered_rps"))
        .filter(|(_, offered)| *offered > 0.0);
    share.map_or_else(String::new, |(shed, offered)| {
        format!("{} of offered", percent(shed / offered))
    })
}
