//! Arming the screen, keeping it armed by using it, and locking it again. Never sends anything.

use tui_input::Input;

use crate::signal::Mono;
use crate::tui::app::arming::{Arming, IDLE};
use crate::tui::app::mode::Mode;
use crate::tui::app::update::toast;
use crate::tui::app::{Effect, Model};
use crate::tui::session::Entry;
use crate::tui::theme::Role;

/// Asks for the name of the environment, or locks what is armed.
pub fn arm(model: &mut Model) -> Vec<Effect> {
    match model.arming {
        Arming::NotNeeded => Vec::new(),
        Arming::Locked => {
            model.modes.push(Mode::Arm(Input::default()));
            Vec::new()
        }
        Arming::Armed { .. } => lock(model, "locked"),
    }
}

/// A name was typed: arms if it is this environment's.
pub fn typed(model: &mut Model, now: Mono) -> Vec<Effect> {
    let Some(Mode::Arm(input)) = model.modes.last() else { return Vec::new() };
    let typed = input.value().trim().to_owned();
    if typed != model.environment {
        let text = format!("not armed: type {}, as it stands", model.environment);
        toast(model, Role::Warn, text);
        return Vec::new();
    }
    model.modes.pop();
    model.arming = Arming::from(now);
    told(model, "armed")
}

/// A key was pressed: somebody is there.
pub fn used(model: &mut Model, now: Mono) {
    if let Arming::Armed { until } = &mut model.arming {
        *until = now + IDLE;
    }
}

/// Time has passed.
pub fn tick(model: &mut Model, now: Mono) -> Vec<Effect> {
    match model.arming {
        Arming::Armed { until } if now >= until => {
            lock(model, &format!("locked after {} min without a key", IDLE.as_secs() / 60))
        }
        _ => Vec::new(),
    }
}

fn lock(model: &mut Model, how: &str) -> Vec<Effect> {
    model.arming = Arming::Locked;
    told(model, how)
}

/// Says it on the screen, on the timeline and in the journal.
fn told(model: &mut Model, how: &str) -> Vec<Effect> {
    let text = format!("{} {how}", model.environment);
    model.timeline.push(model.wall, Role::Warn, text.clone());
    toast(model, Role::Warn, text.clone());
    vec![Effect::Journal(Entry::Note(text))]
}
