//! The queue: who waits, for how long against the deadline, and what lets them through.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{shown, text, title};
use crate::admission::FlagValue;
use crate::signal::Value;
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::trend;
use crate::tui::view::format::{count, cut, seconds, span};
use crate::tui::view::widgets::{clipped, lines, panel};

/// Who waits, for how long against the deadline, the permits and the breaker.
pub fn queue(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(title("queue   depth  oldest / deadline", look), area, look, buf);
    let deadline = deadline(model);
    let split = model.number("interactive_queue_depth").is_some()
        || model.number("batch_queue_depth").is_some();
    let mut content = if split {
        vec![
            lane(
                model,
                look,
                "interactive",
                "interactive_queue_depth",
                "interactive_queue_oldest_age_s",
                deadline,
            ),
            lane(model, look, "batch", "batch_queue_depth", "batch_queue_oldest_age_s", deadline),
        ]
    } else {
        vec![lane(model, look, "all lanes", "queue_depth", "queue_oldest_age_s", deadline)]
    };
    // Who does not enforce lets through more than the limit, and takes their permits all the same.
    let held = model.number("inflight_gauge").zip(model.number("inflight_limit"));
    let between = if held.is_some_and(|(held, limit)| held > limit) { " over " } else { " of " };
    content.push(Line::from(vec![
        Span::raw(" permits "),
        shown(model, look, "inflight_gauge", count),
        Span::raw(between),
        shown(model, look, "inflight_limit", count),
        Span::raw("  open upstream "),
        shown(model, look, "inflight_actual", count),
    ]));
    content.push(breaker(model, look, usize::from(inner.width)));
    let width = usize::from(inner.width);
    lines(content.into_iter().map(|line| clipped(line, width, look)), inner, buf);
}

/// How old what waits may get, as the flag says.
pub fn deadline(model: &Model) -> Option<f64> {
    match model.flag("queue.max_age_s")?.stored() {
        FlagValue::Number(number) => Some(*number),
        _ => None,
    }
}

/// The age of the oldest of a lane, by whether it is too old; nothing where nobody waits.
pub fn waiting(model: &Model, depth: &str, oldest: &str, deadline: Option<f64>) -> (String, Role) {
    match (model.number(depth), model.number(oldest)) {
        (Some(waiting), _) if waiting < 0.5 => ("-".to_owned(), Role::Dim),
        (_, Some(age)) => {
            let role = match deadline {
                Some(deadline) if age > deadline => Role::Crit,
                Some(deadline) if age > deadline * 0.8 => Role::Warn,
                _ => Role::Plain,
            };
            (seconds(age), role)
        }
        (_, None) => ("?".to_owned(), Role::Unknown),
    }
}

fn lane(
    model: &Model,
    look: &Appearance,
    name: &str,
    depth: &str,
    oldest: &str,
    deadline: Option<f64>,
) -> Line<'static> {
    let (age, role) = waiting(model, depth, oldest, deadline);
    let late = if role == Role::Crit { " LATE" } else { "" };
    let deadline = deadline.map_or_else(|| "?".to_owned(), |deadline| format!("{deadline}s"));
    Line::from(vec![
        Span::raw(format!(" {name:<11}")),
        Span::raw(format!("{:>7} ", text(model, look, depth, count).0)),
        Span::styled(format!("{age:>7}"), look.style(role)),
        Span::styled(format!(" / {deadline}"), look.style(Role::Dim)),
        Span::styled(late, look.style(role)),
    ])
}

/// The breaker's state in a word.
pub fn breaker_word(model: &Model) -> (&'static str, Role) {
    match model.signal("breaker.state") {
        Shown::Known { value: Value::Text(state), .. } => match state.as_str() {
            "closed" => ("closed", Role::Ok),
            "open" => ("OPEN", Role::Crit),
            _ => ("HALF-OPEN", Role::Warn),
        },
        Shown::Stale { .. } => ("? stale", Role::Stale),
        _ => ("?", Role::Unknown),
    }
}

fn breaker(model: &Model, look: &Appearance, width: usize) -> Line<'static> {
    let is_off = model.flags.table.as_ref().and_then(|table| table.get("breaker.enabled"));
    if is_off.is_some_and(|flag| *flag.stored() == FlagValue::Bool(false)) {
        let text = format!(" breaker {} OFF by flag: nothing is held back", look.mark(Role::Warn));
        return Line::styled(cut(&text, width, look.glyphs.ellipsis), look.style(Role::Warn));
    }
    let (word, role) = breaker_word(model);
    let since = model
        .number("breaker.open_since_s")
        .map_or_else(String::new, |since| format!(" {}", span(since)));
    let mut spans = vec![
        Span::raw(" breaker "),
        Span::styled(format!("{} {word}{since} ", look.mark(role)), look.style(role)),
    ];
    let used: usize = spans.iter().map(Span::width).sum();
    let strip = width.saturating_sub(used + 1);
    spans.extend(trend(model, "breaker.state", strip, Some(2.0), role, look).spans);
    Line::from(spans)
}
