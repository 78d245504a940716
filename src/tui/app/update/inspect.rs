//! Lists the signals behind a screen, and asks where one comes from. Changes nothing but the screen.

use crate::ingest::Origin;
use crate::tui::app::inspect::Sought;
use crate::tui::app::mode::Mode;
use crate::tui::app::page::{Listed, Page};
use crate::tui::app::{Effect, Model};

/// Lists the signals of the screen over it, so that one step back leads there again.
pub fn list(model: &mut Model) {
    if matches!(model.screen(), Mode::Page(Page::Signals, _)) {
        return;
    }
    let list = Listed { only: model.signals_on_screen(), ..Listed::default() };
    model.modes.push(Mode::Page(Page::Signals, list));
}

/// Asks where the signal under the cursor comes from.
pub fn ask(model: &mut Model) -> Vec<Effect> {
    let Mode::Page(page @ Page::Signals, list) = model.mode() else { return Vec::new() };
    let (Some(signal), Some(scope)) = (model.row_under_cursor(*page, list), model.scope()) else {
        return Vec::new();
    };
    let scope = scope.to_owned();
    model.sought = Some(Sought { scope: scope.clone(), signal: signal.clone(), answer: None });
    model.modes.push(Mode::Origin(0));
    vec![Effect::Origin { scope, signal }]
}

/// Takes what came back, unless another one was asked for meanwhile.
pub fn told(model: &mut Model, (scope, signal): (&str, &str), answer: Result<Origin, String>) {
    let is_it = |sought: &&mut Sought| sought.scope == scope && sought.signal == signal;
    if let Some(sought) = model.sought.as_mut().filter(is_it) {
        sought.answer = Some(answer);
        model.dirty = true;
    }
}
