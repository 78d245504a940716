//! Attempts per original: how far work is multiplied, by which layer, and who refuses it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{shown, text, title};
use crate::signal::{Quality, Value};
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::trend;
use crate::tui::view::format::{count, factor, percent, rate};
use crate::tui::view::widgets::{BIG_ROWS, big, lines, panel};

/// A layer that multiplies by more than this is an amplifier.
const AMPLIFIES_ABOVE: f64 = 1.3;
/// The client layers in the order in which a request passes them; others follow by name.
const LAYER_ORDER: [&str; 4] = ["frontend", "service", "wrapper", "sdk"];

/// How bad an amplification is, against what one layer may make of an original.
pub fn amplification_role(model: &Model) -> Role {
    let Some(value) = model.number("amplification") else { return Role::Unknown };
    let allowed = model.number("max_attempts_configured").unwrap_or(2.0);
    if value > allowed * 1.1 {
        Role::Crit
    } else if value > AMPLIFIES_ABOVE {
        Role::Warn
    } else if is_lower_bound(model) {
        // That few were seen does not say that there were no more.
        Role::Unknown
    } else if callers_repeat(model) {
        Role::Warn
    } else {
        Role::Ok
    }
}

/// Whether callers send each original more often than one layer may try. Those that wait longer than the
/// window between two tries are seen there, and not in the attempts per original of the window.
fn callers_repeat(model: &Model) -> bool {
    let allowed = model.number("max_attempts_configured").unwrap_or(2.0);
    model.number("client_multiplication").is_some_and(|by| by > allowed)
}

fn is_lower_bound(model: &Model) -> bool {
    let shown = model.signal("amplification");
    matches!(shown, Shown::Known { reading, .. } if reading.quality == Quality::LowerBound)
}

/// Attempts per original, and the layer where the multiplication begins.
pub fn attempts(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(title("attempts per original", look), area, look, buf);
    let role = amplification_role(model);
    let (value, _) = text(model, look, "amplification", factor);
    let large = inner.width >= 50 && inner.height > BIG_ROWS;
    let mut content = Vec::new();
    if large {
        let width = inner.width.min(34);
        // The number alone: `1.00x` would be wider than its place.
        let digits =
            value.trim_start_matches(look.glyphs.at_least).split(['x', ' ']).next().unwrap_or("?");
        lines(big(digits, role, look), Rect { width, height: BIG_ROWS, ..inner }, buf);
        let side = Rect { x: inner.x + width, width: inner.width - width, ..inner };
        let mut beside = vec![status_line(model, role, look)];
        beside.extend(layer_rows(model, look).into_iter().take(4));
        lines(beside, Rect { height: BIG_ROWS, ..side }, buf);
        let below = Rect { y: inner.y + BIG_ROWS, height: inner.height - BIG_ROWS, ..inner };
        if below.height > 3 {
            let width = usize::from(below.width).saturating_sub(2);
            let mut line = trend(model, "amplification", width, None, role, look);
            line.spans.insert(0, Span::raw(" "));
            content.push(line);
            content.push(first_amplifier(model, look));
        }
        content.extend(retry_lines(model, look));
        lines(content, below, buf);
        return;
    }
    let mut first =
        vec![Span::styled(format!(" {} {value:>6} ", look.mark(role)), look.style(role))];
    let width = usize::from(inner.width).saturating_sub(12);
    first.extend(trend(model, "amplification", width, None, role, look).spans);
    content.push(Line::from(first));
    content.push(layers_line(model, look));
    content.push(first_amplifier(model, look));
    content.extend(retry_lines(model, look));
    lines(content, inner, buf);
}

fn status_line(model: &Model, role: Role, look: &Appearance) -> Line<'static> {
    let word = match role {
        Role::Crit => "MULTIPLIES",
        Role::Warn => raised(model),
        Role::Ok => "one each",
        _ if is_lower_bound(model) => "this or more",
        _ => "unknown",
    };
    let allowed = text(model, look, "max_attempts_configured", count).0;
    Line::from(vec![
        Span::styled(format!("{} {word}", look.mark(role)), look.style(role)),
        Span::styled(format!("  allowed {allowed}"), look.style(Role::Dim)),
    ])
}

/// What is raised, in a few words.
pub fn raised(model: &Model) -> &'static str {
    if model.number("amplification").is_some_and(|value| value <= AMPLIFIES_ABOVE) {
        "low, but callers repeat"
    } else if is_lower_bound(model) {
        "raised, or more"
    } else {
        "raised"
    }
}

/// The client layers' multiplications from the user inward.
pub fn client_layers(model: &Model) -> Vec<(String, f64)> {
    let Shown::Known { value: Value::Map(map), .. } = model.signal("layer_multiplication") else {
        return Vec::new();
    };
    let mut found: Vec<(String, f64)> =
        map.iter().filter_map(|(name, value)| Some((name.clone(), value.as_number()?))).collect();
    let place = |name: &str| {
        LAYER_ORDER.iter().position(|known| *known == name).unwrap_or(LAYER_ORDER.len())
    };
    found.sort_by(|(left, _), (right, _)| place(left).cmp(&place(right)).then(left.cmp(right)));
    found
}

/// The same with the gate behind them.
fn layers(model: &Model) -> Vec<(String, f64)> {
    let mut found = client_layers(model);
    if found.is_empty() {
        return found;
    }
    if let Some((attempts, admitted)) =
        model.number("attempts_rps").zip(model.number("admitted_rps"))
        && admitted > 0.0
    {
        found.push(("gate".to_owned(), attempts / admitted));
    }
    found
}

/// The first layer that multiplies.
pub fn first_amplifier_of(layers: &[(String, f64)]) -> Option<usize> {
    layers.iter().position(|(_, factor)| *factor > AMPLIFIES_ABOVE)
}

fn layers_line(model: &Model, look: &Appearance) -> Line<'static> {
    let layers = layers(model);
    if layers.is_empty() {
        return Line::styled(" layers ? (clients export no counters)", look.style(Role::Unknown));
    }
    let first = first_amplifier_of(&layers);
    let mut spans = vec![Span::raw(" ")];
    for (index, (name, factor)) in layers.iter().enumerate() {
        if index > 0 {
            spans.push(Span::styled(" > ", look.style(Role::Dim)));
        }
        let role = if Some(index) == first { Role::Crit } else { Role::Plain };
        spans.push(Span::styled(format!("{name} {factor:.1}"), look.style(role)));
    }
    Line::from(spans)
}

fn layer_rows(model: &Model, look: &Appearance) -> Vec<Line<'static>> {
    let layers = layers(model);
    if layers.is_empty() {
        return vec![Line::styled("layers ?", look.style(Role::Unknown))];
    }
    let first = first_amplifier_of(&layers);
    layers
        .iter()
        .enumerate()
        .map(|(index, (name, factor))| {
            let is_first = Some(index) == first;
            let role = if is_first { Role::Crit } else { Role::Plain };
            let mark = if is_first { look.glyphs.pointer } else { " " };
            let note = if is_first { " first" } else { "" };
            Line::styled(format!("{mark} {name:<9} x{factor:.2}{note}"), look.style(role))
        })
        .collect()
}

fn first_amplifier(model: &Model, look: &Appearance) -> Line<'static> {
    let layers = layers(model);
    let allowed = text(model, look, "max_attempts_configured", count).0;
    match first_amplifier_of(&layers) {
        _ if layers.is_empty() => Line::styled(" first amplifier ?", look.style(Role::Unknown)),
        Some(index) => Line::from(vec![
            Span::raw(" first amplifier: "),
            Span::styled(layers[index].0.clone(), look.style(Role::Crit)),
            Span::styled(format!(" (allowed {allowed})"), look.style(Role::Dim)),
        ]),
        None => Line::styled(" no layer multiplies", look.style(Role::Ok)),
    }
}

/// What the gate itself refuses: 429 by quota, 503 by queue and breaker. Unknown if a part of it is.
fn gate_refuses(model: &Model, look: &Appearance) -> Span<'static> {
    match model.number("gate_429_rps").zip(model.number("gate_503_rps")) {
        Some((quota, queue)) => Span::styled(rate(quota + queue), look.style(Role::Plain)),
        None => Span::styled("?", look.style(Role::Unknown)),
    }
}

fn retry_lines(model: &Model, look: &Appearance) -> Vec<Line<'static>> {
    let refusals = |signal: &str| {
        let bad = model.number(signal).is_some_and(|value| value > 0.05);
        let (text, role) = text(model, look, signal, rate);
        Span::styled(text, look.style(if bad { Role::Crit } else { role }))
    };
    vec![
        Line::from(vec![
            Span::raw(" retries "),
            shown(model, look, "retries_share", percent),
            Span::raw("  ok "),
            shown(model, look, "retry_success_share", percent),
            Span::raw("  denied "),
            shown(model, look, "retries_denied_rps", rate),
        ]),
        Line::from(vec![
            Span::raw(" provider 429 "),
            refusals("provider_429_rps"),
            Span::raw("  503 "),
            refusals("provider_503_rps"),
        ]),
        Line::from(vec![
            Span::raw(" gate refuses "),
            gate_refuses(model, look),
            Span::raw("  retry marks "),
            shown(model, look, "retry_header_share", percent),
        ]),
    ]
}
