//! The screen as it is, to keep or to hand on: text, colours, image, signals and trends. Reads no clock and
//! writes nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use chrono::TimeDelta;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::json;

use crate::diagnosis::verdict_to_json;
use crate::flag::wire::SnapshotsBody;
use crate::tui::app::Model;
use crate::tui::picture;
use crate::tui::session::Still;
use crate::tui::theme::Appearance;
use crate::tui::view;

/// The text of the screen alone.
#[must_use]
pub fn text(model: &Model, look: &Appearance, size: (u16, u16)) -> String {
    picture::text(&drawn(model, look, size))
}

/// Everything that a screen can be kept as, by the end of its file's name.
#[must_use]
pub fn all(model: &Model, look: &Appearance, size: (u16, u16)) -> Still {
    let buffer = drawn(model, look, size);
    vec![
        ("txt", picture::text(&buffer)),
        ("ansi", picture::ansi(&buffer)),
        ("svg", picture::svg(&buffer, picture::DARK)),
        ("json", numbers(model)),
        ("csv", trends(model)),
    ]
}

fn drawn(model: &Model, look: &Appearance, (width, height): (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    view::render(model, look, area, &mut buffer);
    buffer
}

/// The signals and the verdicts that are shown, of every scope.
fn numbers(model: &Model) -> String {
    let Some(update) = model.shown() else { return "null\n".to_owned() };
    let scopes = update.observation.scopes.iter().map(AsRef::as_ref).collect::<SnapshotsBody>();
    let verdicts: Vec<_> = update.verdicts.iter().map(|verdict| verdict_to_json(verdict)).collect();
    let document = json!({
        "at": update.observation.wall,
        "scope": model.scope(),
        "verdicts": verdicts,
        "scopes": scopes.scopes,
    });
    format!("{document:#}\n")
}

/// The trends of the scope on the screen, a line for each second; what is not known is empty.
fn trends(model: &Model) -> String {
    let (Some(trends), Some(update)) = (model.trends(), model.latest.as_ref()) else {
        return "time\n".to_owned();
    };
    let (Some(oldest), end) = (trends.oldest(), model.trends_end()) else {
        return "time\n".to_owned();
    };
    let seconds = || oldest..=end;
    let names: BTreeSet<&str> =
        seconds().flat_map(|second| trends.moment(second).map(|(name, _)| name)).collect();
    let mut text = String::from("time");
    for name in &names {
        let _ = write!(text, ",{}", quoted(name));
    }
    text.push('\n');
    let newest = trends.newest().unwrap_or(end);
    for second in seconds() {
        let ago = TimeDelta::seconds(i64::try_from(newest - second).unwrap_or(0));
        let wall = update.observation.wall - ago;
        let _ = write!(text, "{}", wall.format("%Y-%m-%dT%H:%M:%SZ"));
        for name in &names {
            match trends.at(name, second) {
                Some(value) => {
                    let _ = write!(text, ",{value}");
                }
                None => text.push(','),
            }
        }
        text.push('\n');
    }
    text
}

/// A field of a CSV file (RFC 4180).
fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n']) {
        return format!("\"{}\"", name.replace('"', "\"\""));
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use chrono::{DateTime, FixedOffset};

    use super::*;
    use crate::ingest::Observation;
    use crate::signal::{Mono, Snapshot, Value};
    use crate::tui::Update;
    use crate::tui::app::{Msg, update};

    #[test]
    fn a_screen_is_kept_as_text_colours_image_signals_and_trends() {
        let zone = FixedOffset::east_opt(0).expect("a zone");
        let mut model = Model::new("watch", "staging", zone, DateTime::UNIX_EPOCH);
        let source: Arc<str> = Arc::from("gateway");
        for (second, offered) in [(0_i64, Some(7.5)), (1, None), (2, Some(8.0))] {
            let mut snapshot = Snapshot::new("openai/a", 10.0);
            snapshot.set("shed_rps", Value::Number(1.0), &source);
            if let Some(offered) = offered {
                snapshot.set("offered_rps", Value::Number(offered), &source);
            }
            let wall = DateTime::UNIX_EPOCH + TimeDelta::seconds(second);
            let at = Mono::from_start(std::time::Duration::from_secs(second.unsigned_abs()));
            let scopes = vec![Arc::new(snapshot)];
            let observation = Observation { at, wall, scopes, sources: Vec::new() };
            let round = Update::new(Arc::new(observation), Vec::new());
            update(&mut model, Msg::Updated(Arc::new(round)), at);
        }
        let look = Appearance::from_env(|_| None);
        let still: BTreeMap<_, _> = all(&model, &look, (80, 24)).into_iter().collect();
        assert_eq!(still["txt"].lines().count(), 24);
        assert_eq!(still["txt"], text(&model, &look, (80, 24)));
        assert!(still["svg"].starts_with("<svg") && still["ansi"].contains("offered"));
        let numbers: serde_json::Value = serde_json::from_str(&still["json"]).expect("JSON");
        assert_eq!(numbers["scopes"][0]["scope"], "openai/a");
        assert_eq!(numbers["scope"], "openai/a");
        let lines: Vec<&str> = still["csv"].lines().collect();
        assert_eq!(
            lines,
            [
                "time,offered_rps,shed_rps",
                "1970-01-01T00:00:00Z,7.5,1",
                "1970-01-01T00:00:01Z,,1",
                "1970-01-01T00:00:02Z,8,1",
            ]
        );
        assert_eq!(quoted("a,\"b"), "\"a,\"\"b\"");
    }
}
