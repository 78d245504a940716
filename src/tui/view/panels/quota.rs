//! Headroom: what is left of every meter, and which one binds.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{shown, text, title};
use crate::signal::Value;
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{limit, percent, seconds, span, whole_span};
use crate::tui::view::widgets::{clipped, gauge, lines, panel};

/// A meter with less headroom than this is empty.
pub const EMPTY_BELOW: f64 = 0.05;
/// And with less than this it soon is.
pub const LOW_BELOW: f64 = 0.15;

/// Headroom of every meter that is known, the binding one marked.
pub fn quota(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(title("quota headroom, limit, age", look), area, look, buf);
    let meters = [("TPM", "tpm_headroom", "tpm_limit"), ("RPM", "rpm_headroom", "rpm_limit")];
    let binding = meters
        .iter()
        .filter_map(|(_, headroom, _)| Some((*headroom, model.number(headroom)?)))
        .min_by(|left, right| left.1.total_cmp(&right.1))
        .map(|(name, _)| name);
    let mut content: Vec<Line<'static>> = meters
        .iter()
        .map(|(name, headroom, limit)| {
            let binds = binding == Some(*headroom);
            meter(model, look, name, headroom, limit, binds, usize::from(inner.width))
        })
        .collect();
    content.push(Line::from(vec![
        Span::raw(binding.map_or_else(String::new, |name| empty_for(model, name))),
        Span::raw(" reset "),
        shown(model, look, "reset_s", span),
        Span::raw("  hint "),
        shown(model, look, "retry_after_s", seconds),
    ]));
    content.push(Line::from(vec![
        Span::raw(" own count: TPM "),
        shown(model, look, "own_tpm_headroom", percent),
        Span::raw("  RPM "),
        shown(model, look, "own_rpm_headroom", percent),
        Span::styled("  left", look.style(Role::Dim)),
    ]));
    let width = usize::from(inner.width);
    lines(content.into_iter().map(|line| clipped(line, width, look)), inner, buf);
}

fn meter(
    model: &Model,
    look: &Appearance,
    name: &str,
    headroom: &str,
    limit_signal: &str,
    binds: bool,
    width: usize,
) -> Line<'static> {
    let mark = if binds { look.glyphs.pointer } else { " " };
    let (allowed, _) = text(model, look, limit_signal, limit);
    match model.signal(headroom) {
        Shown::Known { value: Value::Number(share), age_s, .. } => {
            // An empty meter is the sign of a storm only while the provider refuses; a gate that
            // works uses the quota up as well.
            let refused = model.number("provider_429_rps").is_none_or(|rate| rate > 0.5);
            let role = if *share < EMPTY_BELOW && refused {
                Role::Crit
            } else if *share < LOW_BELOW {
                Role::Warn
            } else {
                Role::Ok
            };
            let tail = format!(" {:>9} {:>4}", format!("{allowed}/min"), span(age_s));
            let bar = width.saturating_sub(12 + tail.len() + 2).clamp(4, 40);
            let mut spans = vec![
                Span::raw(format!("{mark}{name}")),
                Span::styled(
                    format!(" {:>5} {} ", percent(*share), look.mark(role)),
                    look.style(role),
                ),
            ];
            spans.extend(gauge(*share, bar, role, look));
            spans.push(Span::styled(tail, look.style(Role::Dim)));
            Line::from(spans)
        }
        Shown::Stale { age_s } => Line::styled(
            format!("{mark}{name}     ? {} last read {} ago", look.mark(Role::Stale), span(age_s)),
            look.style(Role::Stale),
        ),
        Shown::Known { .. } => {
            Line::styled(format!("{mark}{name}     ?"), look.style(Role::Unknown))
        }
        Shown::Unknown { why } => {
            Line::styled(format!("{mark}{name}     ? {why}"), look.style(Role::Unknown))
        }
    }
}

/// How long the meter has been empty, from the trend.
fn empty_for(model: &Model, headroom: &str) -> String {
    let Some(trends) = model.trends() else { return String::new() };
    let end = model.trends_end();
    let is_empty =
        |second: &u64| trends.at(headroom, *second).is_some_and(|share| share < EMPTY_BELOW);
    let held = (0..=end).rev().take_while(is_empty).fold(0, |held, _| held + 1);
    if held < 2 { String::new() } else { format!(" empty for {} ", whole_span(held)) }
}
