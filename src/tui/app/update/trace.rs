//! Asks the gateway for one original, and takes its answer. Changes nothing but the page.

use crate::flag::Original;
use crate::tui::app::mode::{Mode, Prompt};
use crate::tui::app::trace::Trace;
use crate::tui::app::update::toast;
use crate::tui::app::{Effect, Model};
use crate::tui::theme::Role;

/// Asks for the number of an original, with the last one to begin with.
pub fn open(model: &mut Model) {
    let last = model.trace.as_ref().map(|trace| trace.id.to_string());
    model.modes.push(Mode::Say(Prompt::Original, last.unwrap_or_default().into()));
}

/// Asks the gateway for the number that was typed.
pub fn ask(model: &mut Model, typed: &str) -> Vec<Effect> {
    let Ok(id) = typed.parse::<u64>() else {
        toast(model, Role::Warn, "not asked: type the number in the header x-weir-request-id");
        return Vec::new();
    };
    model.trace = Some(Trace { id, answer: None });
    vec![Effect::Trace(id)]
}

/// Takes what the gateway said, unless another one was asked for meanwhile.
pub fn told(model: &mut Model, id: u64, answer: Result<Original, String>) {
    let wall = model.wall;
    if let Some(trace) = model.trace.as_mut().filter(|trace| trace.id == id) {
        trace.answer = Some((wall, answer));
        model.dirty = true;
    }
}
