//! Going back through the hour that the trends hold, while everything goes on being collected.

use std::time::Duration;

use chrono::TimeDelta;

use crate::signal::Mono;
use crate::tui::app::history::slot;
use crate::tui::app::mode::Mode;
use crate::tui::app::update::toast;
use crate::tui::app::walk::Walk;
use crate::tui::app::{Effect, Frozen, Model};
use crate::tui::session::Seek;
use crate::tui::theme::Role;

/// Spans of the charts, in seconds, the shortest first.
pub const ZOOMS: [u64; 7] = [60, 120, 300, 600, 900, 1_800, 3_600];

/// Moves the recording that is played, else the screen within its own past.
pub fn go(model: &mut Model, to: Seek) -> Vec<Effect> {
    if model.playhead.is_some() {
        return vec![Effect::Seek(to)];
    }
    seek(model, to);
    Vec::new()
}

/// Shows another moment. The newest is the present again.
fn seek(model: &mut Model, to: Seek) {
    let Some(newest) = model.latest.as_ref().map(|update| slot(update.observation.at)) else {
        toast(model, Role::Warn, "there is no past yet");
        return;
    };
    let here = model.frozen.as_ref().map_or(newest, |frozen| slot(frozen.since));
    let oldest = model.oldest_second().unwrap_or(newest);
    let wanted = match to {
        Seek::By(seconds) => here.saturating_add_signed(seconds),
        Seek::Start => oldest,
        Seek::End => newest,
        Seek::NextEvent => event(model, newest, here, true).unwrap_or(newest),
        Seek::PreviousEvent => event(model, newest, here, false).unwrap_or(oldest),
        Seek::PlayPause | Seek::Faster | Seek::Slower => return,
    };
    let wanted = wanted.max(oldest);
    if wanted >= newest {
        return to_now(model);
    }
    let Some(update) = model.moment(wanted) else { return };
    let (since, wall) = (Mono::from_start(Duration::from_secs(wanted)), update.observation.wall);
    let newer = model.frozen.as_ref().map_or(0, |frozen| frozen.newer);
    let update = Some(std::sync::Arc::new(update));
    model.frozen = Some(Frozen { update, since, wall, newer, is_rewound: true });
    fit_path(model);
}

/// Shows the present again.
pub fn to_now(model: &mut Model) {
    model.frozen = None;
    fit_path(model);
}

/// The path that is read belongs to the verdict that is shown.
fn fit_path(model: &mut Model) {
    let Some(verdict) = model.verdict().cloned() else { return };
    let wall = model.wall;
    for mode in &mut model.modes {
        if let Mode::Diagnose(walk) = mode
            && !walk.is_of(&verdict)
        {
            **walk = Walk::begin(Some(&verdict), wall);
        }
    }
}

/// The second of the event on the timeline that comes next, or came before.
fn event(model: &Model, newest: u64, here: u64, forward: bool) -> Option<u64> {
    let now = model.latest.as_ref()?.observation.wall;
    let second = |wall| {
        let ago: TimeDelta = now - wall;
        newest.checked_sub(u64::try_from(ago.num_seconds()).ok()?)
    };
    let seconds = model.timeline.newest_first().filter_map(|event| second(event.wall));
    if forward {
        seconds.filter(|second| *second > here).min()
    } else {
        seconds.filter(|second| *second < here).max()
    }
}

/// Shows a shorter or a longer time in the charts.
pub fn zoom(model: &mut Model, closer: bool) {
    let at = model.zoom_s.and_then(|span| ZOOMS.iter().position(|zoom| *zoom == span));
    let last = ZOOMS.len() - 1;
    model.zoom_s = match (at, closer) {
        (None, true) => Some(ZOOMS[2]),
        (None, false) => None,
        (Some(at), true) => Some(ZOOMS[at.saturating_sub(1)]),
        (Some(at), false) if at == last => None,
        (Some(at), false) => Some(ZOOMS[at + 1]),
    };
}
