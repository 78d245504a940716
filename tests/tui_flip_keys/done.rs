//! What a person has done in the dialog on the screen, counted from the keys alone.

use std::collections::BTreeMap;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use weir::admission::Direction;
use weir::flag::Plan;
use weir::signal::Mono;

/// Keys within this time of the dialog's opening were meant for what stood there before.
const DEAD: Duration = Duration::from_millis(300);
/// What a person has done in the dialog on the screen, from the keys alone.
pub struct Done {
    pub request_id: String,
    pub plan: Plan,
    opened: Mono,
    /// Where the focus was moved to, as a place in [`Done::stops`].
    at: usize,
    /// Letters that went into the field of the name.
    typed: BTreeMap<char, usize>,
}

impl Done {
    pub fn new(plan: Plan, opened: Mono) -> Self {
        Self { request_id: plan.request_id.clone(), plan, opened, at: 0, typed: BTreeMap::new() }
    }

    /// The flag whose name must be typed.
    pub fn name(&self) -> Option<&str> {
        let mut changes = self.plan.changes.iter();
        let risky = changes.find(|change| change.direction == Direction::Riskier)?;
        Some(&risky.key)
    }

    fn stops(&self) -> &'static [&'static str] {
        match self.name() {
            Some(_) => &["cancel", "name", "apply", "reason"],
            None => &["cancel", "apply", "reason"],
        }
    }

    pub fn stop(&self) -> &'static str {
        self.stops()[self.at]
    }

    fn go(&mut self, by: usize) {
        self.at = (self.at + by) % self.stops().len();
    }

    pub fn letter(&mut self, letter: char) {
        if self.stop() == "name" {
            *self.typed.entry(letter).or_default() += 1;
        }
    }

    /// Whether the name's letters have all gone into its field.
    pub fn name_was_typed(&self) -> bool {
        let mut left = self.typed.clone();
        self.name().unwrap_or_default().chars().all(|letter| {
            let found = left.get_mut(&letter).filter(|count| **count > 0);
            found.map(|count| *count -= 1).is_some()
        })
    }

    /// Takes a key that the dialog may see. `true` when it presses Apply.
    pub fn key(&mut self, event: KeyEvent, now: Mono) -> bool {
        let more = event.modifiers.difference(KeyModifiers::SHIFT);
        if event.kind == KeyEventKind::Release
            || !more.is_empty()
            || now.saturating_since(self.opened) < DEAD
        {
            return false;
        }
        let back = self.stops().len() - 1;
        match event.code {
            KeyCode::Tab => self.go(1),
            KeyCode::BackTab => self.go(back),
            KeyCode::Enter if self.stop() == "apply" => return true,
            KeyCode::Enter if self.stop() == "reason" => self.go(back),
            KeyCode::Enter if self.stop() != "cancel" => self.go(1),
            KeyCode::Char(letter) => self.letter(letter),
            _ => {}
        }
        false
    }
}
