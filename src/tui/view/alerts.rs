//! Alerts of another system: the line that says whether any fires, and the list of all of them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::ingest::{Alert, AlertState, Alerts};
use crate::tui::app::Model;
use crate::tui::app::alerts::role;
use crate::tui::app::sources::short_reason;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, span};
use crate::tui::view::texts;

/// Labels that a row of the list shows.
const LABELS_SHOWN: usize = 4;

/// What is due under the head: how many fire and the worst of them, or that nobody can tell.
pub fn due(model: &Model) -> Vec<(Role, String)> {
    let Some(alerts) = model.alerts() else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(worst) = alerts.worst() {
        let lasted = since(model, worst).map_or_else(String::new, |age| format!(" for {age}"));
        let text = format!(
            "alerts: {}: {} {}{lasted}; a lists them",
            counted(alerts),
            worst.name,
            worst.severity.word()
        );
        found.push((role(worst), text));
    }
    if let Some(why) = &alerts.error {
        let how = age(model, alerts).map_or_else(
            || "never answered".to_owned(),
            |age| format!("down, alerts are {age} old"),
        );
        let why = short_reason(why, &alerts.source);
        found.push((Role::Warn, format!("{} {how}: {why}", alerts.source)));
    }
    found
}

/// `3 firing (1 silenced, 2 inhibited)`.
fn counted(alerts: &Alerts) -> String {
    let held: Vec<String> = [AlertState::Silenced, AlertState::Inhibited, AlertState::Pending]
        .into_iter()
        .map(|state| (alerts.count(state), state.word()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let firing = format!("{} firing", alerts.count(AlertState::Firing));
    if held.is_empty() { firing } else { format!("{firing} ({})", held.join(", ")) }
}

/// The words of the source line: the age of the last look.
pub fn source_words(model: &Model, look: &Appearance) -> Option<Vec<Span<'static>>> {
    let alerts = model.alerts()?;
    let (role, text) = match (age(model, alerts), &alerts.error) {
        (None, None) => (Role::Unknown, "connecting".to_owned()),
        (None, Some(_)) => (Role::Warn, "DOWN".to_owned()),
        (Some(age), Some(_)) => (Role::Warn, format!("ERROR {age}")),
        (Some(age), None) => (Role::Dim, age),
    };
    Some(vec![
        Span::raw(format!("{} ", alerts.source)),
        Span::styled(format!("{text}  "), look.style(role)),
    ])
}

/// Age of the last good look.
fn age(model: &Model, alerts: &Alerts) -> Option<String> {
    let at = alerts.at?;
    Some(span(model.shown_now().saturating_since(at).as_secs_f64()))
}

/// How long an alert has stood, by the clock of who sent it.
fn since(model: &Model, alert: &Alert) -> Option<String> {
    let lasted = (model.wall - alert.since?).to_std().ok()?;
    Some(span(lasted.as_secs_f64()))
}

/// Every alert and silence.
pub fn list(model: &Model, scroll: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let mut content = Vec::new();
    let Some(alerts) = model.alerts() else { return };
    let age = age(model, alerts).map_or_else(|| "never".to_owned(), |age| format!("{age} ago"));
    content.push(Line::styled(
        format!(" {}, as {} said {age}", counted(alerts), alerts.source),
        look.style(Role::Strong),
    ));
    if let Some(why) = &alerts.error {
        content.push(Line::styled(format!(" {why}"), look.style(Role::Warn)));
    }
    if alerts.left_out > 0 {
        let text = format!(" {} more are left out or could not be read", alerts.left_out);
        content.push(Line::styled(text, look.style(Role::Warn)));
    }
    content.extend(alerts.alerts.iter().flat_map(|alert| rows(model, alert, look)));
    if !alerts.silences.is_empty() {
        content.push(Line::default());
        content.push(Line::styled(" silences", look.style(Role::Strong)));
    }
    for silence in &alerts.silences {
        let until = silence.until.map_or_else(|| "?".to_owned(), |at| clock(at, model.zone));
        content.push(Line::from(format!(" {}", silence.matchers.join(" "))));
        let why = format!("   until {until} by {}: {}", silence.by, silence.comment);
        content.push(Line::styled(why, look.style(Role::Dim)));
    }
    texts::text("alerts: j k scroll, Esc closes", content, scroll, look, area, buf);
}

fn rows(model: &Model, alert: &Alert, look: &Appearance) -> Vec<Line<'static>> {
    let role = role(alert);
    let lasted = since(model, alert).unwrap_or_else(|| "?".to_owned());
    let labels: Vec<String> = alert
        .labels
        .iter()
        .take(LABELS_SHOWN)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut rows = vec![Line::from(vec![
        Span::styled(format!(" {} {:<9} ", look.mark(role), alert.state.word()), look.style(role)),
        Span::styled(format!("{:<8} ", alert.severity.word()), look.style(role)),
        Span::raw(format!("{} ", alert.name)),
        Span::styled(format!("{lasted}  {}", labels.join(" ")), look.style(Role::Dim)),
    ])];
    let summary = alert.summary.as_ref();
    rows.extend(summary.map(|text| Line::styled(format!("   {text}"), look.style(Role::Dim))));
    rows
}
