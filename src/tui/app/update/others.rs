//! Flips that this session did not make: who moved what, for the timeline.

use std::collections::BTreeMap;

use crate::flag::{BROKE_GLASS, FlagTable, Revision};
use crate::tui::app::Model;
use crate::tui::app::flip::Stage;
use crate::tui::app::mode::Mode;
use crate::tui::theme::Role;

/// A plan that is being read, and that the table has gone past, can no longer be sent: it says why at once.
pub fn overtake(model: &mut Model, table: &FlagTable) {
    for mode in &mut model.modes {
        let Mode::Plan(dialog) = mode else { continue };
        if dialog.stage == Stage::Review && table.revision > dialog.plan.revision {
            dialog.stage = Stage::Conflict { changed: dialog.plan.moved_since(table) };
        }
    }
}

/// Puts what others have changed since the last look onto the timeline.
///
/// While an answer to a flip of this session is open, its change cannot be told from another's; the
/// reading after the answer is looked at instead.
pub fn note(model: &mut Model, table: &FlagTable) {
    let is_sending = model.modes.iter().any(
        |mode| matches!(mode, Mode::Plan(dialog) if matches!(dialog.stage, Stage::Sending { .. })),
    );
    let is_restless = model.unsettled.as_ref().is_some_and(|open| !open.is_quiet());
    if is_sending || is_restless {
        return;
    }
    let Some(before) = model.flags.noted.replace(table.revision) else { return };
    if table.revision < before {
        let text = format!("flag table went from revision {before} back to {}", table.revision);
        model.timeline.push(model.wall, Role::Warn, text);
        return;
    }
    let is_own = |revision: Revision| model.flips.iter().any(|flip| flip.revision == revision);
    let mut moved: BTreeMap<(Revision, &str), Vec<String>> = BTreeMap::new();
    for flag in &table.flags {
        if flag.revision > before && !is_own(flag.revision) {
            let by = flag.by.as_deref().unwrap_or("somebody");
            let to = match &flag.overridden {
                Some(value) => format!("{} {value}", flag.key),
                None => format!("{} back to {}", flag.key, flag.base),
            };
            moved.entry((flag.revision, by)).or_default().push(to);
        }
    }
    for ((revision, by), changes) in moved {
        let text = format!("{by} set {} (r{revision})", changes.join(", "));
        let role = if by.ends_with(BROKE_GLASS) { Role::Crit } else { Role::Accent };
        model.timeline.push(model.wall, role, text);
    }
}
