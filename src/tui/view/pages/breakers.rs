//! What is held back: breaker, cooldowns and deployments, since when and until when, and how often it
//! happened. The past comes from the trends, and reaches back no further than they do.

use ratatui::text::{Line, Span};

use super::facts::Facts;
use super::{Content, Room, Section};
use crate::tui::app::history::{History, SLOTS_MAX};
use crate::tui::app::page::{part, records};
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::{flow_chart, trend};
use crate::tui::view::format::{clock, count, percent, rate, seconds, whole_span};
use crate::tui::view::panels::breaker_word;

/// The breaker's signal among the trends: 0 closed, 1 half-open, 2 open.
const STATE: &str = "breaker.state";
/// The least level of a breaker that lets nothing through.
const OPEN: f64 = 1.5;
/// Openings and deployments listed at most.
const LISTED_MAX: usize = 8;

/// The page.
pub fn content(model: &Model, look: &Appearance, room: Room) -> Content {
    let facts = Facts::here(model, look, room.section);
    Content {
        sections: vec![breaker(&facts), openings(&facts), cooldown(&facts), deployments(&facts)],
        charts: vec![flow_chart],
        ..Content::default()
    }
}

fn breaker(facts: &Facts<'_>) -> Section {
    let (model, look) = (facts.model, facts.look);
    let (word, role) = breaker_word(model);
    let strip = facts.width.saturating_sub(32).min(60);
    let mut state = vec![
        Span::raw(format!(" {:<18}", "state")),
        Span::styled(format!("{:>10}  ", format!("{} {word}", look.mark(role))), look.style(role)),
    ];
    state.extend(trend(model, STATE, strip, Some(2.0), role, look).spans);
    let is_closed = model.word(STATE) == Some("closed");
    let left = model.number("breaker.open_since_s").zip(model.number("breaker.reset_timeout_s"));
    let until = match left {
        Some((since, stays)) if since < stays => {
            facts.told("until", &seconds(stays - since), "then one request probes", Role::Strong)
        }
        Some(_) => facts.told("until", "due", "the next request probes", Role::Warn),
        None if is_closed => facts.told("until", "-", "it is closed", Role::Dim),
        None => facts.line("until", "breaker.reset_timeout_s", seconds),
    };
    let open_only = |label: &str, path: &'static str| {
        if is_closed {
            facts.told(label, "-", "it is closed", Role::Dim)
        } else {
            facts.line(label, path, seconds)
        }
    };
    let mut lines = vec![Line::from(state)];
    if let Some(why) = off(model) {
        lines.push(facts.say(&format!("{} {why}", look.mark(Role::Warn)), Role::Warn));
    }
    lines.extend([
        open_only("since", "breaker.open_since_s"),
        until,
        reason(facts),
        open_only("probe under way", "breaker.probe_age_s"),
        // Told only where one was seen while the breaker was not closed.
        facts.line("last success", "breaker.success_age_s", seconds),
        facts.line("served past it", "same_account_success_during_cooldown", count),
    ]);
    Section { title: "breaker".to_owned(), lines }
}

/// That the breaker is switched off.
fn off(model: &Model) -> Option<&'static str> {
    let flag = model.flag("breaker.enabled")?;
    let is_off = flag.stored().to_string() == "false";
    is_off.then_some("OFF by flag breaker.enabled: nothing is held back")
}

fn reason(facts: &Facts<'_>) -> Line<'static> {
    match facts.signal("breaker.opened_for") {
        Shown::Known { value, .. } => {
            let words = value.as_text().unwrap_or("?").to_owned();
            facts.told("opened last for", "", &words, Role::Plain)
        }
        Shown::Stale { .. } => facts.line("opened last for", "breaker.opened_for", count),
        Shown::Unknown { .. } => facts.unknown("opened last for", "no reason is told"),
    }
}

/// An opening: when it began, and how long it was.
struct Opening {
    from: u64,
    length_s: u64,
    is_over: bool,
}

/// The openings that the trends know, newest first, and the seconds of which the state is known.
fn openings_of(trends: &History, end: u64) -> (Vec<Opening>, u64) {
    let mut found: Vec<Opening> = Vec::new();
    let mut known = 0;
    let first = (end + 1).saturating_sub(SLOTS_MAX as u64);
    let mut was_open = false;
    for second in first..=end {
        let Some(level) = trends.at(STATE, second) else {
            was_open = false;
            continue;
        };
        known += 1;
        let is_open = level >= OPEN;
        match found.last_mut() {
            Some(last) if is_open && was_open => last.length_s += 1,
            _ if is_open => found.push(Opening { from: second, length_s: 1, is_over: true }),
            _ => {}
        }
        was_open = is_open;
    }
    if let Some(last) = found.last_mut() {
        last.is_over = !was_open;
    }
    found.reverse();
    (found, known)
}

fn openings(facts: &Facts<'_>) -> Section {
    let model = facts.model;
    let end = model.trends_end();
    let mut lines = vec![facts.line("in the last hour", "breaker_opens_per_hour", count)];
    let seen = facts.trends().map(|trends| openings_of(trends, end));
    match seen.filter(|(_, known)| *known > 0) {
        Some((found, known)) => {
            let open: u64 = found.iter().map(|one| one.length_s).sum();
            #[expect(clippy::cast_precision_loss, reason = "seconds of an hour")]
            let share = percent(open as f64 / known as f64);
            let note = format!("of the {} that weir has seen", whole_span(known));
            let role = if open > 0 { Role::Warn } else { Role::Strong };
            lines.push(facts.told("open for", &share, &note, role));
            let shown = found.iter().take(LISTED_MAX);
            lines.extend(shown.map(|one| {
                let back = chrono::TimeDelta::seconds(i64::try_from(end - one.from).unwrap_or(0));
                let at = clock(model.wall - back, model.zone);
                let so_far = if one.is_over { "" } else { " so far" };
                facts.say(&format!("{at}  open {}{so_far}", whole_span(one.length_s)), Role::Plain)
            }));
        }
        None => lines.push(facts.unknown("open for", "the state was never told")),
    }
    Section { title: "openings".to_owned(), lines }
}

fn cooldown(facts: &Facts<'_>) -> Section {
    let of = facts.words("cooldown.total", count).0;
    Section {
        title: "cooldowns".to_owned(),
        lines: vec![
            facts.noted(
                "cooling down",
                "cooldown.in_cooldown",
                count,
                (&format!("of {of}"), Role::Dim),
            ),
            facts.line("for", "cooldown.cooldown_s", seconds),
            facts.line("to and fro", "cooldown_flaps_per_min", count),
            facts.line("fallbacks serve", "fallback_success_share", percent),
            facts.line("first choice dead", "primary_dead_s", seconds),
            facts.line("unreachable", "unreachable_rps", rate),
        ],
    }
}

fn deployments(facts: &Facts<'_>) -> Section {
    let snapshot = facts.model.snapshot();
    let rows = match facts.signal("deployments") {
        Shown::Known { .. } => {
            snapshot.map_or_else(Vec::new, |snapshot| records(snapshot, "deployments"))
        }
        _ => Vec::new(),
    };
    let number = |row, name| part(row, name).map_or_else(|| "?".to_owned(), percent);
    let mut lines: Vec<Line<'static>> = rows
        .iter()
        .take(LISTED_MAX)
        .map(|(id, row)| {
            let state = match row {
                crate::signal::Value::Map(map) => map.get("state").and_then(|one| one.as_text()),
                _ => None,
            };
            let state = state.unwrap_or("?");
            let text = format!(
                "{state:<9} share {:>5}  left {:>5}  {id}",
                number(row, "share"),
                number(row, "headroom")
            );
            facts.say(&text, if state == "refuses" { Role::Warn } else { Role::Plain })
        })
        .collect();
    if lines.is_empty() {
        lines.push(facts.line("deployments", "deployments", count));
    }
    Section { title: "deployments".to_owned(), lines }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::signal::{Mono, Snapshot, Value};

    #[test]
    fn openings_end_where_the_state_is_not_known() {
        let mut trends = History::default();
        for (second, state) in
            ["closed", "open", "open", "half_open", "", "open"].iter().enumerate()
        {
            let mut snapshot = Snapshot::new("s", 10.0);
            let parts = BTreeMap::from([("state".to_owned(), Value::Text((*state).to_owned()))]);
            snapshot.set("breaker", Value::Map(parts), &Arc::from("gateway"));
            #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
            trends.push(&snapshot, Mono::from_secs_f64(second as f64));
        }
        let (found, known) = openings_of(&trends, 5);
        let seen: Vec<_> = found.iter().map(|one| (one.from, one.length_s, one.is_over)).collect();
        assert_eq!(seen, [(5, 1, false), (1, 2, true)]);
        assert_eq!(known, 5, "what was not told is neither open nor closed");
    }
}
