//! The line that says that nothing here is now: which moment of a recording it is, and where that lies.

use ratatui::text::{Line, Span};

use crate::signal::Mono;
use crate::tui::app::Model;
use crate::tui::session::Playhead;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, cut_words, span};

/// The time line is left out where it would be narrower than this.
const LINE_MIN: usize = 12;

/// The line, when what is shown was recorded.
pub fn line(model: &Model, look: &Appearance, width: usize) -> Option<Line<'static>> {
    let head = model.playhead.as_deref()?;
    let since = |at: Mono| span(at.saturating_since(head.zero).as_secs_f64());
    let how = match (&head.trouble, head.is_playing) {
        (Some(_), _) => "stopped".to_owned(),
        (None, false) => "paused".to_owned(),
        (None, true) => format!("x{}", head.speed),
    };
    let words = format!(
        " RECORDED {}  {} of {}  {how} ",
        clock(model.wall, model.zone),
        since(head.at),
        since(head.to),
    );
    let strong = look.style(Role::Stale);
    if let Some(trouble) = &head.trouble {
        let text = cut_words(&format!("{words} {trouble}"), width, look.glyphs.ellipsis);
        return Some(Line::styled(text, look.style(Role::Crit)));
    }
    let room = width.saturating_sub(words.chars().count() + 1);
    if room < LINE_MIN {
        return Some(Line::styled(cut_words(&words, width, look.glyphs.ellipsis), strong));
    }
    let mut spans = vec![Span::styled(words, strong)];
    spans.extend(time_line(head, look, room));
    Some(Line::from(spans))
}

/// All of the recording from left to right: what has passed, where it stands, what happened when.
fn time_line(head: &Playhead, look: &Appearance, width: usize) -> Vec<Span<'static>> {
    let whole = head.to.saturating_since(head.from).as_secs_f64();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a column of a screen"
    )]
    let column = |at: Mono| {
        let share = at.saturating_since(head.from).as_secs_f64() / whole.max(1e-9);
        ((share * (width - 1) as f64).round() as usize).min(width - 1)
    };
    let mut cells = vec![(look.glyphs.empty, Role::Dim); width];
    for cell in cells.iter_mut().take(column(head.at)) {
        *cell = (look.glyphs.filled, Role::Dim);
    }
    for event in head.events.iter().filter(|event| event.at >= head.from) {
        cells[column(event.at)] = (look.glyphs.flip, Role::Accent);
    }
    cells[column(head.at)] = (look.glyphs.pointer, Role::Strong);
    cells.into_iter().map(|(glyph, role)| Span::styled(glyph, look.style(role))).collect()
}
