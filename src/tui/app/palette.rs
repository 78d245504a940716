//! The palette: every action of the registry by its name, those that fit what is typed first.
//!
//! What can be chosen is what a key can do on the screen below: the same registry, the same
//! conditions. What works elsewhere is listed as well, and says where.

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

use crate::tui::app::Model;
use crate::tui::app::action::{Action, Entry};
use crate::tui::app::mode::{Context, Mode};

/// An action in the palette.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its row of the registry.
    pub entry: &'static Entry,
    /// It works on the screen below, now.
    pub works: bool,
}

impl Found {
    /// Why it does not work on the screen below.
    #[must_use]
    pub fn why_not(&self, below: Context) -> String {
        let is_elsewhere = !self.entry.contexts.contains(below);
        match self.entry.when.words() {
            Some(words) if !is_elsewhere => format!("{} works {words}", self.entry.name),
            _ => format!("{} works on {}", self.entry.name, self.entry.places()),
        }
    }
}

impl Model {
    /// Where the action of the palette would be carried out.
    #[must_use]
    pub fn below_palette(&self) -> Context {
        let mut below = self.modes.iter().rev().skip_while(|mode| matches!(mode, Mode::Palette(_)));
        below.next().map_or(Context::Overview, Mode::context)
    }

    /// The actions that fit what is typed: those that work now first, then the best match.
    #[must_use]
    pub fn found(&self, typed: &str) -> Vec<Found> {
        let below = self.below_palette();
        let works = |entry: &Entry| entry.contexts.contains(below) && entry.when.holds(self);
        let mut rows: Vec<Found> = Vec::new();
        for entry in self.registry.iter().filter(|entry| is_listed(entry)) {
            let found = Found { entry, works: works(entry) };
            match rows.iter_mut().find(|row| row.entry.action == entry.action) {
                Some(row) if found.works && !row.works => *row = found,
                Some(_) => {}
                None => rows.push(found),
            }
        }
        let pattern = Pattern::parse(typed, CaseMatching::Ignore, Normalization::Never);
        let mut matcher = Matcher::new(Config::DEFAULT);
        let mut score = |text: &str| {
            pattern.score(Utf32Str::new(text, &mut Vec::new()), &mut matcher).unwrap_or(0)
        };
        let mut fit: Vec<(u32, Found)> = rows
            .into_iter()
            .map(|row| {
                // Some letters of a name find it; of what it does, only whole parts of words do.
                let is_said = typed.split_whitespace().all(|word| {
                    row.entry.description.to_lowercase().contains(&word.to_lowercase())
                });
                (score(row.entry.name).max(u32::from(is_said)), row)
            })
            .filter(|(score, _)| typed.trim().is_empty() || *score > 0)
            .collect();
        // Stable: what fits alike stays in the order of the registry.
        fit.sort_by_key(|(score, row)| (!row.works, std::cmp::Reverse(*score)));
        fit.into_iter().map(|(_, row)| row).collect()
    }
}

/// Moving about, and the buttons of dialogs, have no place in a list of things to do.
fn is_listed(entry: &Entry) -> bool {
    !matches!(entry.group, "Dialogs" | "Move") && entry.action != Action::Palette
}
