//! How the model follows a recording: forward as it follows what is live, and anew after a jump.
//!
//! After a jump nothing that was shown counts any more. The trends are those that led to the moment,
//! and the timeline is what was told until then; both come with the update.

use crate::incident::recording::Told;
use crate::signal::Mono;
use crate::tui::app::events::Timeline;
use crate::tui::app::{Model, Onset, SCOPES_MAX};
use crate::tui::session::{Playhead, Update};
use crate::tui::theme::Role;

/// Takes the playhead of an update over, if it has one, and says what time it is then.
pub fn follow(model: &mut Model, update: &Update) -> Option<Mono> {
    let head = update.playhead.as_ref()?;
    let has_jumped = model.playhead.as_ref().is_none_or(|before| before.jump != head.jump);
    model.playhead = Some(head.clone());
    model.now = head.at;
    model.wall = update.observation.wall;
    model.read_only = true;
    if has_jumped {
        arrive(model, head);
    }
    Some(head.at)
}

fn arrive(model: &mut Model, head: &Playhead) {
    model.history.clear();
    model.onsets.clear();
    model.timeline = Timeline::default();
    model.toast = None;
    for (scope, samples) in head.lead.iter().take(SCOPES_MAX) {
        let trends = model.history.entry(scope.clone()).or_default();
        for (at, snapshot) in samples {
            trends.push(snapshot, *at);
        }
    }
    for (scope, samples) in head.past.iter().take(SCOPES_MAX) {
        model.history.entry(scope.clone()).or_default().fill(samples);
    }
    for event in head.events.iter().take_while(|event| event.at <= head.at) {
        model.timeline.push(event.wall, Role::Accent, event.told.words());
        if let Told::Verdict { scope, cause, .. } = &event.told
            && model.onsets.get(scope).is_none_or(|onset| onset.cause != *cause)
        {
            let onset = Onset { cause: cause.clone(), since: event.at, wall: event.wall };
            model.onsets.insert(scope.clone(), onset);
        }
    }
}
