//! A frame as text and style, so that a test sees both. The style layer is run-length: what is not
//! plain, where.

use std::fmt::Write as _;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use weir::tui::Appearance;
use weir::tui::app::{Effect, Model, Msg, update};
use weir::tui::theme::{ASCII, Depth, UNICODE};
use weir::tui::view::render;

/// As on most terminals.
pub const COLOUR: Appearance = Appearance { depth: Depth::Ansi16, glyphs: &UNICODE };
/// As on the plainest.
pub const PLAIN: Appearance = Appearance { depth: Depth::Mono, glyphs: &ASCII };

/// A frame.
pub fn draw(model: &Model, look: &Appearance, width: u16, height: u16) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    render(model, look, area, &mut buffer);
    buffer
}

/// The text, then one line per row that has styles: `row: from-to style`.
pub fn shot(model: &Model, look: &Appearance, width: u16, height: u16) -> String {
    let buffer = draw(model, look, width, height);
    let mut text = String::new();
    let mut styles = String::new();
    for y in 0..height {
        let row: Vec<&Cell> = (0..width).map(|x| &buffer[(x, y)]).collect();
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        writeln!(text, "{}", line.trim_end()).expect("a string takes all");
        let mut runs = String::new();
        let mut from = 0;
        for to in 1..=row.len() {
            if to < row.len() && look_of(row[to]) == look_of(row[from]) {
                continue;
            }
            if let Some(style) = look_of(row[from]) {
                write!(runs, " {from}-{} {style};", to - 1).expect("a string takes all");
            }
            from = to;
        }
        if !runs.is_empty() {
            writeln!(styles, "{y:>2}:{runs}").expect("a string takes all");
        }
    }
    format!("{text}--- styles\n{styles}")
}

fn look_of(cell: &Cell) -> Option<String> {
    let style = cell.style();
    let colour = style.fg.filter(|fg| *fg != ratatui::style::Color::Reset);
    let mut parts: Vec<String> =
        colour.map(|fg| fg.to_string().to_lowercase()).into_iter().collect();
    if !style.add_modifier.is_empty() {
        parts.push(format!("{:?}", style.add_modifier).to_lowercase());
    }
    (!parts.is_empty()).then(|| parts.join("+"))
}

/// Presses a key, a moment after the last one.
pub fn press(model: &mut Model, code: KeyCode) -> Vec<Effect> {
    let now = model.now + Duration::from_millis(400);
    update(model, Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)), now)
}
