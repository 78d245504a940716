//! The panels of the overview: one question each, with value, trend, and `?` where nothing is known.

mod attempts;
mod queue;
mod quota;
mod work;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use crate::signal::{Quality, Value};
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::trend;
use crate::tui::view::format::{seconds, span};
use crate::tui::view::widgets::{lines, panel};

pub use attempts::{amplification_role, attempts, client_layers, first_amplifier_of, raised};
pub use queue::{breaker_word, deadline, queue, waiting};
pub use quota::{EMPTY_BELOW, LOW_BELOW, quota};
pub use work::work;

/// A number of a signal in its unit, or `?`, or `?` with the age of what was known. A lower bound is
/// marked as one, because a reader takes a bare number for the truth.
fn text(model: &Model, look: &Appearance, path: &str, format: fn(f64) -> String) -> (String, Role) {
    worded(&model.signal(path), look, format)
}

/// What a signal shows in its unit, or `?`, or `?` with the age of what was known.
pub fn worded(shown: &Shown<'_>, look: &Appearance, format: fn(f64) -> String) -> (String, Role) {
    match shown {
        Shown::Known { value: Value::Number(number), reading, .. } => {
            let mark = match reading.quality {
                Quality::LowerBound => look.glyphs.at_least,
                Quality::Exact | Quality::Inferred => "",
            };
            (format!("{mark}{}", format(*number)), Role::Plain)
        }
        Shown::Known { .. } | Shown::Unknown { .. } => ("?".to_owned(), Role::Unknown),
        Shown::Stale { age_s } => (format!("? {}", span(*age_s)), Role::Stale),
    }
}

/// A number of a signal, styled by whether it is known.
pub fn shown(
    model: &Model,
    look: &Appearance,
    path: &str,
    format: fn(f64) -> String,
) -> Span<'static> {
    let (text, role) = text(model, look, path, format);
    Span::styled(text, look.style(role))
}

/// The first of several signals that is known, else the first.
fn first_known<'a>(model: &Model, names: &[&'a str]) -> &'a str {
    names.iter().find(|name| model.number(name).is_some()).unwrap_or(&names[0])
}

/// What is served to users, however the gateway counts it.
pub fn completed_signal(model: &Model) -> &'static str {
    first_known(model, &["delivered_rps", "success_rps", "provider_completed_rps"])
}

fn title(name: &'static str, look: &Appearance) -> Line<'static> {
    Line::styled(format!(" {name} "), look.style(Role::Strong))
}

/// p95 of what was served, of everything offered and of what callers see, side by side.
pub fn latency(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(title("latency p95", look), area, look, buf);
    let part = |label: &'static str, signal: &'static str, width: u16| {
        let (value, role) = text(model, look, signal, seconds);
        let before = model
            .trends()
            .and_then(|trends| trends.at(signal, model.trends_end().checked_sub(900)?))
            .map_or_else(String::new, |before| format!("15m ago {} ", seconds(before)));
        let mut spans = vec![
            Span::raw(format!(" {label} ")),
            Span::styled(
                format!("{value:>6} "),
                look.style(if role == Role::Plain { Role::Strong } else { role }),
            ),
            Span::styled(before, look.style(Role::Dim)),
        ];
        let used: usize = spans.iter().map(Span::width).sum();
        let room = usize::from(width).saturating_sub(used + 1);
        spans.extend(trend(model, signal, room, None, Role::Accent, look).spans);
        Line::from(spans)
    };
    // What callers see includes their own waits and retries; a gateway alone cannot know it.
    let callers = model.number("caller_latency_p95_s").is_some();
    let parts: &[(&str, &str)] = &[
        ("admitted", "latency_p95_s"),
        ("offered", "latency_offered_p95_s"),
        ("callers", "caller_latency_p95_s"),
    ][..if callers { 3 } else { 2 }];
    let cells = Layout::horizontal(parts.iter().map(|_| Constraint::Fill(1))).split(inner);
    for ((label, signal), cell) in parts.iter().zip(cells.iter()) {
        lines([part(label, signal, cell.width)], *cell, buf);
    }
}
