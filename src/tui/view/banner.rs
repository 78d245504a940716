//! The lines under the head: a frozen screen, a lost answer, sources that are down, the newest flip.

use ratatui::text::Line;

use crate::flag::Progress;
use crate::ingest::SourceStatus;
use crate::tui::app::action::Action;
use crate::tui::app::flip::Flip;
use crate::tui::app::settled::Served;
use crate::tui::app::sources::{is_down, short_error};
use crate::tui::app::{Model, State};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::alerts;
use crate::tui::view::format::{clock, cut_words, percent, seconds, span};

/// Sources that are down have a line each up to so many.
const DOWN_MAX: usize = 3;
/// Seconds for which a flip stays here after it was verified.
const RECENT_S: u64 = 60;

/// Every line that is due, the most urgent first.
pub fn all(model: &Model, look: &Appearance, width: usize) -> Vec<Line<'static>> {
    let mut found = Vec::new();
    if let Some(frozen) = &model.frozen {
        let ago = span(model.now.saturating_since(frozen.since).as_secs_f64());
        let (word, how) =
            if frozen.is_rewound { ("BACK", ", from the trends") } else { ("FROZEN", "") };
        let text = format!(
            "{word} at {} ({ago} ago){how}, {} newer updates wait: {} goes on",
            clock(frozen.wall, model.zone),
            frozen.newer,
            model.key_of(Action::Freeze),
        );
        found.push((Role::Stale, text));
    }
    if let Some(unsettled) = &model.unsettled {
        let reading = if unsettled.is_quiet() { "" } else { "; reading the flags again" };
        found.push((Role::Unknown, format!("{unsettled}{reading}")));
    }
    found.extend(sources(model));
    found.extend(alerts::due(model));
    let recent = model.last_flip().filter(|flip| is_recent(model, flip));
    found.extend(recent.map(|flip| flipped(model, flip)));
    found
        .into_iter()
        .map(|(role, text)| {
            let text = format!(" {} {text}", look.mark(role));
            Line::styled(cut_words(&text, width, look.glyphs.ellipsis), look.style(role))
        })
        .collect()
}

/// What is wrong with the sources: those that are down, then those that are read in part.
fn sources(model: &Model) -> Vec<(Role, String)> {
    let all = model.shown().map_or(&[][..], |update| &update.observation.sources);
    let mut found: Vec<(Role, String)> = all.iter().filter_map(|one| down(model, one)).collect();
    if found.len() > DOWN_MAX {
        let more = found.len() - DOWN_MAX;
        found.truncate(DOWN_MAX);
        found.push((Role::Crit, format!("and {more} more sources are down")));
    }
    for source in all.iter().filter(|source| !is_down(source)) {
        found.extend(in_part(source).map(|text| (Role::Warn, text)));
    }
    found
}

/// What a source that answers keeps back: lines that are bad, parts that it warns about.
fn in_part(source: &SourceStatus) -> impl Iterator<Item = String> {
    let bad = source.degraded.first().map(|(line, reason)| {
        let more = match source.degraded.len() {
            1 => String::new(),
            bad => format!(" and {} more", bad - 1),
        };
        format!("{}: Prometheus would reject this target: line {line}{more}: {reason}", source.name)
    });
    let warned = source.warnings.first().map(|first| {
        let more = match source.warnings.len() {
            1 => String::new(),
            warnings => format!(" ({} more)", warnings - 1),
        };
        format!("{} warns{more}: {first}", source.name)
    });
    bad.into_iter().chain(warned)
}

fn down(model: &Model, source: &SourceStatus) -> Option<(Role, String)> {
    let error = short_error(source)?;
    let how = match source.last_good {
        Some(at) => {
            let age = model.shown_now().saturating_since(at).as_secs_f64();
            format!("down {}", span(age))
        }
        None => "never answered".to_owned(),
    };
    Some((Role::Crit, format!("{} {how}: {error}", source.name)))
}

/// Whether a flip still belongs on every screen: while it is verified, and a minute longer.
fn is_recent(model: &Model, flip: &Flip) -> bool {
    let ended = model.now.saturating_since(flip.verify.deadline());
    flip.is_pending() || ended.as_secs() < RECENT_S
}

fn flipped(model: &Model, flip: &Flip) -> (Role, String) {
    let now = model
        .number("amplification")
        .map_or_else(|| "?".to_owned(), |value| format!("{value:.2}x"));
    let (role, state) = match &flip.progress {
        Progress::Verified | Progress::EffectSeen { .. } | Progress::Pending { .. }
            if let Some(how) = &flip.replaced =>
        {
            (Role::Warn, format!("replaced since: {how}"))
        }
        Progress::Verified | Progress::Pending { .. } if flip.serves_fewer(model.now) => {
            // Where shedding is what the flip is for, going back would bring the storm back.
            let is_meant = model.headline().state() == State::Contained;
            let undo = model.key_of(Action::Undo);
            let way = match model.price() {
                _ if is_meant => String::new(),
                Some(_) => format!(", which is the price of it; {undo} plans the way back"),
                None => format!(": {undo} plans the way back"),
            };
            (Role::Warn, format!("in effect, and fewer are served{way}"))
        }
        Progress::Pending { left } => {
            (Role::Accent, format!("verifying, {} left", span(left.as_secs_f64())))
        }
        Progress::Verified => (Role::Ok, "VERIFIED".to_owned()),
        Progress::EffectSeen { known } => (Role::Ok, format!("EFFECT SEEN: {known}")),
        Progress::Failed { why } => (Role::Crit, format!("FAILED: {why}")),
        Progress::Unknown { why } => (Role::Unknown, format!("UNKNOWN: {why}")),
    };
    // What was in use when the flags could still be read is no word about now.
    let reach = flip.reach.filter(|_| model.flags.error.is_none());
    let reach = reach.map_or_else(|| "?".to_owned(), |reach| format!("{}/{}", reach.on, reach.of));
    let (name, revision) = (&flip.plan.name, flip.revision);
    if model.is_rewound() {
        // The numbers are those of then, and the flip goes on.
        return (role, format!("now: {name} r{revision} in use {reach}, {state}"));
    }
    let served = people(flip, &model.served());
    (role, format!("{name} r{revision} in use {reach}, {state}   {served}attempts/original {now}"))
}

/// What people get, before the flip and now.
fn people(flip: &Flip, now: &Served) -> String {
    let word = |value: Option<f64>, format: fn(f64) -> String| {
        value.map_or_else(|| "?".to_owned(), format)
    };
    let before = &flip.before;
    format!(
        "served {} -> {}  p95 {} -> {}  ",
        word(before.share, percent),
        word(now.share, percent),
        word(before.p95_s, seconds),
        word(now.p95_s, seconds)
    )
}
