//! The palette and the filter: what is typed there, and what becomes of it.
//!
//! An action that is chosen is carried out as its key would be, on the screen below, and nowhere else:
//! one that changes flags opens its plan.

use crate::signal::Mono;
use crate::tui::app::mode::Mode;
use crate::tui::app::page::Listed;
use crate::tui::app::update::{press, toast};
use crate::tui::app::{Effect, Model};
use crate::tui::theme::Role;

/// Carries out the action under the cursor of the palette.
pub fn run(model: &mut Model, now: Mono) -> Vec<Effect> {
    let Some(Mode::Palette(palette)) = model.modes.last() else { return Vec::new() };
    let found = model.found(palette.input.value());
    let Some(chosen) = found.get(palette.at).copied() else {
        toast(model, Role::Warn, "no action fits that");
        return Vec::new();
    };
    if !chosen.works {
        let why = chosen.why_not(model.below_palette());
        toast(model, Role::Warn, why);
        return Vec::new();
    }
    model.modes.pop();
    press::act(model, chosen.entry.action, now)
}

/// Begins to type a filter for the list on the screen.
pub fn open_filter(model: &mut Model) {
    let Some(list) = model.filterable() else { return };
    let before = list.filter.clone();
    model.modes.push(Mode::Filter(before.clone().into(), before));
}

/// Keeps the filter as typed.
pub fn keep_filter(model: &mut Model) {
    model.modes.pop();
}

/// Takes the filter back to what it was.
pub fn drop_filter(model: &mut Model) {
    if let Some(Mode::Filter(_, before)) = model.modes.pop() {
        set(model, before);
    }
}

/// After a line was typed in: the list shows what fits, the palette begins at its first row.
pub fn typed(model: &mut Model) {
    match model.modes.last_mut() {
        Some(Mode::Filter(input, _)) => {
            let filter = input.value().to_owned();
            set(model, filter);
        }
        Some(Mode::Palette(palette)) => palette.at = 0,
        _ => {}
    }
}

fn set(model: &mut Model, filter: String) {
    if let Some(list) = list(model) {
        *list =
            Listed { filter, at: 0, row: list.row.take(), only: std::mem::take(&mut list.only) };
    }
}

/// The list of the screen.
pub fn list(model: &mut Model) -> Option<&mut Listed> {
    model.modes.iter_mut().rev().find_map(|mode| match mode {
        Mode::Timeline(list) | Mode::Page(_, list) => Some(list),
        _ => None,
    })
}
