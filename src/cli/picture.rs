//! `weir replay --screen`: what a screen shows at a moment of a recording, without a terminal.

use std::sync::Arc;

use chrono::{FixedOffset, Offset as _, Utc};
use clap::ValueEnum;
use color_eyre::eyre::{Result, bail, eyre};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tokio::sync::watch;

use super::look::LookArgs;
use super::player;
use crate::incident::recording::Replay;
use crate::signal::Mono;
use crate::tui::app::action::REGISTRY;
use crate::tui::app::mode::Context;
use crate::tui::app::{Model, Msg, update};
use crate::tui::{Playhead, Update, picture, view};

/// Cells of a side, at most: more than any terminal has.
const SIDE_MAX: u16 = 1_000;

/// How the screen is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text alone.
    Text,
    /// Text with the codes that colour it in a terminal.
    Ansi,
    /// An image.
    Svg,
}

/// What is to be drawn.
#[derive(Clone, Debug, clap::Args)]
pub struct PictureArgs {
    /// No dashboard: print this screen at that moment (overview, diagnose, flags, timeline, alerts, help)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["headless", "json"])]
    pub screen: Option<String>,
    /// With --screen, columns and rows
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "120x40", value_parser = size, requires = "screen")]
    size: (u16, u16),
    /// With --screen, how it is printed
    #[arg(long, value_enum, default_value = "text", requires = "screen")]
    format: Format,
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let read = |side: &str| side.parse().ok().filter(|side| (1..=SIDE_MAX).contains(side));
    let sides =
        text.split_once('x').and_then(|(width, height)| Some((read(width)?, read(height)?)));
    sides.ok_or_else(|| format!("`{text}` is no size; write such as 120x40, at most 1000x1000"))
}

impl PictureArgs {
    /// The screen `name` of the recording at a moment. Times are UTC, so that it is the same everywhere.
    ///
    /// # Errors
    /// When there is no such screen or theme, or the recording does not hold the moment.
    pub fn draw(&self, name: &str, replay: Replay, at: Mono, look: &LookArgs) -> Result<String> {
        let (title, environment) =
            (format!("replay {}", replay.header().title), replay.header().environment.clone());
        let (sender, updates) = watch::channel(None);
        drop(player::play(replay, at, sender)?);
        let shown = updates.borrow().clone();
        let shown: Arc<Update> = shown.ok_or_else(|| eyre!("the recording shows nothing then"))?;
        let still = shown
            .playhead
            .as_deref()
            .map(|head| Arc::new(Playhead { is_playing: false, ..head.clone() }));
        let (now, wall) = (shown.observation.at, shown.observation.wall);
        let zone: FixedOffset = Utc.fix();
        let mut model = Model::new(title, environment, zone, wall);
        model.read_only = true;
        let shown = Update { playhead: still, ..Update::clone(&shown) };
        // What it asks for is a flag store, which a recording has none of.
        let _ = update(&mut model, Msg::Updated(Arc::new(shown)), now);
        let _ = update(&mut model, Msg::Key(key_of(name)?), now);
        let (width, height) = self.size;
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        let (appearance, colours) = look.picture(self.format != Format::Text)?;
        view::render(&model, &appearance, area, &mut buffer);
        Ok(match self.format {
            Format::Text => picture::text(&buffer),
            Format::Ansi => picture::ansi(&buffer),
            Format::Svg => picture::svg(&buffer, colours),
        })
    }
}

/// The key that leads to a screen, from the registry.
fn key_of(name: &str) -> Result<KeyEvent> {
    let leads = REGISTRY.iter().filter(|entry| {
        (entry.group == "Screens" || entry.name == "alerts")
            && entry.contexts.contains(Context::Overview)
    });
    let mut names = Vec::new();
    for entry in leads {
        names.push(entry.name);
        let letter = entry.keys.iter().find_map(|key| key.letter());
        if let Some(letter) = letter.filter(|_| entry.name == name) {
            return Ok(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
        }
    }
    bail!("there is no screen `{name}`; name one of {}", names.join(", "))
}
