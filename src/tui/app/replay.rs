//! How the model follows a recording: forward as it follows what is live, and anew after a jump.
//!
//! After a jump nothing that was shown counts any more. The trends are those that led to the moment,
//! and the timeline is what was told until then; both come with the update. What stands at that moment
//! has stood for longer than the screen knows, so it is no event of it.

use std::sync::Arc;

use crate::incident::recording::{EventAt, Told};
use crate::signal::Mono;
use crate::tui::app::events::Timeline;
use crate::tui::app::{Model, Onset, SCOPES_MAX};
use crate::tui::session::{Playhead, Update};
use crate::tui::theme::Role;

/// Takes the playhead of an update over, if it has one, and says what time it is then.
pub fn follow(model: &mut Model, update: &Update) -> Option<Mono> {
    let head = update.playhead.as_ref()?;
    let before = model.playhead.replace(Arc::clone(head)).filter(|before| before.jump == head.jump);
    model.now = head.at;
    model.wall = update.observation.wall;
    model.read_only = true;
    match before {
        Some(before) => tell(model, head, |event| event.at > before.at),
        None => arrive(model, head),
    }
    Some(head.at)
}

/// Puts what was told until now on the timeline, where it is new.
fn tell(model: &mut Model, head: &Playhead, is_new: impl Fn(&EventAt) -> bool) {
    let until_now = head.events.iter().take_while(|event| event.at <= head.at);
    for event in until_now.filter(|event| is_new(event)) {
        model.timeline.push(event.wall, Role::Accent, event.told.words());
    }
}

fn arrive(model: &mut Model, head: &Playhead) {
    model.history.clear();
    model.onsets.clear();
    model.timeline = Timeline::from_amid();
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
    tell(model, head, |_| true);
    for event in head.events.iter().take_while(|event| event.at <= head.at) {
        if let Told::Verdict { scope, cause, .. } = &event.told
            && model.onsets.get(scope).is_none_or(|onset| onset.cause != *cause)
        {
            let onset = Onset { cause: cause.clone(), since: event.at, wall: event.wall };
            model.onsets.insert(scope.clone(), onset);
        }
    }
}
