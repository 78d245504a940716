//! `[ui]` and `[keys]`: how the dashboard looks, and a person's own keys.

use color_eyre::eyre::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Loaded;
use crate::tui::app::action::Entry;
use crate::tui::app::keymap::remapped;

/// `[ui]`: how the dashboard looks.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UiEntry {
    /// A theme by name, a theme file from this file's folder, or `auto`, which asks `COLORFGBG`; `auto`
    /// unless given.
    pub theme: Option<String>,
    /// Lines and marks in plain ASCII, also where the locale says UTF-8.
    #[serde(default)]
    pub ascii: bool,
}

impl Loaded {
    /// The registry of actions, with the keys that this file gives them.
    ///
    /// # Errors
    /// When a key is none, is taken, or belongs to the terminal.
    pub fn registry(&self) -> Result<&'static [Entry]> {
        remapped(&self.toml.keys).map_err(|error| {
            self.wrong(&format!("keys.{}", error.action), &error.why, &error.remedy)
        })
    }
}
