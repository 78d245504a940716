//! The palette: what is typed, and the actions that fit. Draws what the model found, and picks nothing.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::tui::app::Model;
use crate::tui::app::mode::Palette;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::cut_words;
use crate::tui::view::texts::{TEXT_WIDTH, typed};
use crate::tui::view::widgets::{centred, clipped, lines, overlay, right};

/// Rows of actions that are shown at most.
const ROWS_MAX: u16 = 16;
/// Cells of an action's name with its key.
const NAME: usize = 16;
const KEY: usize = 6;

/// Draws the palette.
pub fn draw(model: &Model, palette: &Palette, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let title = Line::styled(" what do you want to do? ", look.style(Role::Strong));
    let inner = overlay(title, centred(area, TEXT_WIDTH, ROWS_MAX + 4), look, buf);
    let width = usize::from(inner.width);
    let mut field = typed(&palette.input, width.saturating_sub(3), true, look);
    field.spans.insert(0, Span::styled(" :", look.style(Role::Accent)));
    lines([field], inner, buf);
    let list =
        Rect { y: inner.y + 1.min(inner.height), height: inner.height.saturating_sub(2), ..inner };
    let found = model.found(palette.input.value());
    let at = palette.at.min(found.len().saturating_sub(1));
    let skip = (at + 1).saturating_sub(usize::from(list.height));
    let below = model.below_palette();
    let content = found.iter().enumerate().skip(skip).map(|(index, one)| {
        let entry = one.entry;
        let (sign, words) = if one.works {
            (entry.danger.sign(), entry.description.to_owned())
        } else {
            ("-", one.why_not(below))
        };
        let left = width.saturating_sub(NAME + KEY + 5);
        let role = if one.works { Role::Plain } else { Role::Dim };
        let line = Line::from(vec![
            Span::styled(format!(" {sign} "), look.style(Role::Warn)),
            Span::styled(format!("{:<NAME$}", entry.name), look.style(role)),
            Span::styled(format!("{:<KEY$}", entry.keys[0].to_string()), look.style(Role::Accent)),
            Span::styled(cut_words(&words, left, look.glyphs.ellipsis), look.style(Role::Dim)),
        ]);
        if index == at { line.patch_style(look.style(Role::Selected)) } else { line }
    });
    if found.is_empty() {
        lines([Line::styled(" no action fits that", look.style(Role::Unknown))], list, buf);
    } else {
        lines(content, list, buf);
    }
    let foot = Rect { y: inner.bottom().saturating_sub(1), height: 1.min(inner.height), ..inner };
    let help = " Enter does it, Esc closes; * opens a plan, - not here";
    lines([clipped(Line::styled(help, look.style(Role::Dim)), width, look)], foot, buf);
    let below = found.len().saturating_sub(skip + usize::from(list.height));
    if below > 0 {
        let edge = Rect { y: inner.bottom(), height: 1, ..inner };
        right(Line::styled(format!(" {below} more "), look.style(Role::Warn)), edge, buf);
    }
}
