//! What the alerts of another system mean here: when one begins and ends, and what stands out.

use std::collections::BTreeMap;

use crate::ingest::{ALERTS_MAX, Alert, AlertState, Alerts, Severity};
use crate::signal::Mono;
use crate::tui::app::Model;
use crate::tui::theme::Role;

/// Alerts of one look that get an event each; a flood is one event more.
const EVENTS_MAX: usize = 5;

/// How an alert weighs.
#[must_use]
pub const fn role(alert: &Alert) -> Role {
    match (alert.state, alert.severity) {
        (AlertState::Firing, Severity::Critical) => Role::Crit,
        (AlertState::Firing, Severity::Warning | Severity::Other) => Role::Warn,
        _ => Role::Dim,
    }
}

/// Alerts that are remembered while the list of them is cut.
const KNOWN_MAX: usize = 2 * ALERTS_MAX;

/// Remembers the alerts of the last look, to tell what is new.
#[derive(Clone, Debug, Default)]
pub struct AlertLog {
    at: Option<Mono>,
    known: BTreeMap<String, (String, AlertState)>,
}

impl AlertLog {
    /// What has begun and ended since the last good look. A look that failed ends nothing.
    pub fn follow(&mut self, alerts: &Alerts) -> Vec<(Role, String)> {
        if alerts.at.is_none() || alerts.at == self.at {
            return Vec::new();
        }
        self.at = alerts.at;
        let mut found = Vec::new();
        let mut now = BTreeMap::new();
        for alert in &alerts.alerts {
            now.insert(alert.id.clone(), (alert.name.clone(), alert.state));
            let was = self.known.remove(&alert.id).map(|(_, state)| state);
            if was == Some(alert.state) {
                continue;
            }
            match (was, alert.state) {
                (_, AlertState::Firing) => {
                    let text = format!("alert {} {}", alert.name, alert.severity.word());
                    found.push((role(alert), text));
                }
                // What was quiet before it was seen is no event.
                (Some(_), state) => {
                    let by = by_whom(alerts, alert);
                    found.push((Role::Dim, format!("alert {} {}{by}", alert.name, state.word())));
                }
                (None, _) => {}
            }
        }
        // What is left is not told any more: it is over. A list that was cut says nothing about it.
        if alerts.alerts_cut == 0 {
            for (_, (name, state)) in std::mem::replace(&mut self.known, now) {
                if state == AlertState::Firing {
                    found.push((Role::Ok, format!("alert {name} over")));
                }
            }
        } else {
            let room = KNOWN_MAX.saturating_sub(now.len());
            let before = std::mem::take(&mut self.known);
            now.extend(before.into_iter().take(room));
            self.known = now;
        }
        bounded(found)
    }
}

/// Who silenced an alert.
fn by_whom(alerts: &Alerts, alert: &Alert) -> String {
    let silence = alert.silenced_by.first().and_then(|id| alerts.silence(id));
    silence.map_or_else(String::new, |silence| format!(" by {}", silence.by))
}

fn bounded(mut found: Vec<(Role, String)>) -> Vec<(Role, String)> {
    if found.len() > EVENTS_MAX {
        let more = found.len() - EVENTS_MAX;
        found.truncate(EVENTS_MAX);
        found.push((Role::Warn, format!("and {more} more alerts changed")));
    }
    found
}

impl Model {
    /// What the Alertmanager says, as it is shown.
    #[must_use]
    pub fn alerts(&self) -> Option<&Alerts> {
        self.shown()?.alerts.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn alert(id: &str, state: AlertState) -> Alert {
        Alert {
            id: id.to_owned(),
            name: id.to_uppercase(),
            severity: Severity::Critical,
            state,
            labels: BTreeMap::new(),
            summary: None,
            since: None,
            silenced_by: Vec::new(),
        }
    }

    fn look(second: f64, alerts: Vec<Alert>) -> Alerts {
        Alerts::new(&Arc::from("am"), alerts, Vec::new(), 0, Mono::from_secs_f64(second))
    }

    #[test]
    fn begin_and_end_are_events_and_a_failed_look_ends_nothing() {
        use AlertState::{Firing, Silenced};
        let mut log = AlertLog::default();
        let mut said = |alerts: &Alerts| -> Vec<String> {
            log.follow(alerts).into_iter().map(|(_, text)| text).collect()
        };
        let first = look(1.0, vec![alert("a", Firing), alert("b", Silenced)]);
        assert_eq!(said(&first), ["alert A critical"]);
        assert!(said(&first).is_empty(), "the same look again");
        assert!(said(&first.failed("down".to_owned())).is_empty());
        let second = look(2.0, vec![alert("a", Silenced), alert("b", Silenced)]);
        assert_eq!(said(&second), ["alert A silenced"]);
        let third = look(3.0, vec![alert("a", Firing)]);
        assert_eq!(said(&third), ["alert A critical"]);
        assert_eq!(said(&look(4.0, Vec::new())), ["alert A over"]);
        assert!(said(&Alerts::default()).is_empty());
    }

    #[test]
    fn rows_that_are_not_read_hide_no_end_and_a_cut_list_is_remembered_within_bounds() {
        let firing = |ids: std::ops::Range<usize>| -> Vec<Alert> {
            ids.map(|n| alert(&format!("a{n:05}"), AlertState::Firing)).collect()
        };
        let mut log = AlertLog::default();
        log.follow(&look(1.0, firing(0..1)));
        let unread =
            Alerts::new(&Arc::from("am"), Vec::new(), Vec::new(), 3, Mono::from_secs_f64(2.0));
        assert_eq!(log.follow(&unread), [(Role::Ok, "alert A00000 over".to_owned())]);
        for round in 0..9_u32 {
            let from = round as usize * ALERTS_MAX;
            let cut = look(3.0 + f64::from(round), firing(from..from + ALERTS_MAX + 1));
            assert_eq!(cut.alerts_cut, 1);
            log.follow(&cut);
            assert!(log.known.len() <= KNOWN_MAX);
        }
        assert_eq!(log.known.len(), KNOWN_MAX);
    }

    #[test]
    fn a_flood_is_a_few_events() {
        let many = (0..40).map(|n| alert(&format!("a{n:02}"), AlertState::Firing)).collect();
        let found = AlertLog::default().follow(&look(1.0, many));
        assert_eq!(found.len(), EVENTS_MAX + 1);
        assert_eq!(found[EVENTS_MAX].1, "and 35 more alerts changed");
    }
}
