//! Draws the model. Stateless: the same model gives the same frame.
//!
//! The verdict is on the first line of every screen, the next step on the second, then whatever is
//! wrong with the data; the last two lines are the sources with their ages, and the keys.

mod alerts;
mod banner;
mod charts;
mod chrome;
mod diagnose;
mod evidence;
mod flags;
pub mod format;
mod guide;
mod narrow;
mod next;
mod origin;
mod overview;
mod pages;
mod palette;
mod panels;
mod plan;
mod recorded;
mod texts;
mod widgets;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::app::Model;
use crate::tui::app::flip::Visible;
use crate::tui::app::mode::Mode;
use crate::tui::theme::Appearance;

/// The smallest screen that holds more than the verdict.
pub const SMALLEST: (u16, u16) = (40, 10);

/// Draws one frame, and says what it showed of a plan.
pub fn draw(frame: &mut Frame<'_>, model: &Model, look: &Appearance) -> Option<Visible> {
    let area = frame.area();
    render(model, look, area, frame.buffer_mut())
}

/// Draws the model into a buffer, and says what it shows of the plan on top, if there is one.
pub fn render(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) -> Option<Visible> {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        narrow::draw(model, look, area, buf);
        return None;
    }
    let body = chrome::draw(model, look, area, buf);
    match model.screen() {
        Mode::Diagnose(walk) => diagnose::draw(model, walk, look, body, buf),
        Mode::Flags => flags::draw(model, look, body, buf),
        Mode::Timeline(list) => texts::timeline(model, list, look, body, buf),
        Mode::Page(page, list) => pages::draw(model, (*page, list), look, body, buf),
        Mode::Guide(cursor) => guide::draw(model, *cursor, look, body, buf),
        _ => overview::draw(model, look, body, buf),
    }
    let mut visible = None;
    for mode in model.modes.iter().filter(|mode| !mode.is_screen()) {
        match mode {
            Mode::Help(scroll) => texts::help(model, *scroll, look, body, buf),
            Mode::Why(scroll) => texts::why(model, *scroll, look, body, buf),
            Mode::How(scroll) => guide::how(model, *scroll, look, body, buf),
            Mode::StepWhy(scroll) => guide::why(model, *scroll, look, body, buf),
            Mode::Causes(scroll) => texts::causes(model, *scroll, look, body, buf),
            Mode::Alerts(scroll) => alerts::list(model, *scroll, look, body, buf),
            Mode::Origin(scroll) => origin::draw(model, *scroll, look, body, buf),
            Mode::Edit(editor) => flags::editor(model, editor, look, body, buf),
            Mode::Arm(input) => plan::arming(model, input, look, body, buf),
            Mode::Note(input) => texts::note(input, look, body, buf),
            Mode::Say(prompt, input) => guide::say(prompt, input, look, body, buf),
            Mode::Filter(input, _) => pages::filter_line(input, look, body, buf),
            Mode::Palette(palette) => palette::draw(model, palette, look, body, buf),
            Mode::Planning => plan::waiting(model, look, body, buf),
            Mode::Plan(dialog) => visible = Some(plan::draw(model, dialog, look, body, buf)),
            Mode::Leaving => plan::leaving(model, look, body, buf),
            Mode::Overview
            | Mode::Diagnose(_)
            | Mode::Flags
            | Mode::Timeline(_)
            | Mode::Page(..)
            | Mode::Guide(_) => {}
        }
    }
    visible
}
