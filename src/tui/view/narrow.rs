//! The screen that is too small for panels: the verdict, the way on, and as many numbers as fit.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::diagnosis::{Truth, Verdict};
use crate::tui::app::Model;
use crate::tui::app::mode::Mode;
use crate::tui::app::walk::Walk;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::chrome::judgement;
use crate::tui::view::format::{clock, cut, factor, percent, rate, seconds};
use crate::tui::view::texts::wrap;
use crate::tui::view::widgets::lines;
use crate::tui::view::{chrome, evidence, panels, recorded};

/// Rows below which there is room for the verdict and the way on, and nothing else.
const LOW_BELOW: u16 = 4;

/// A number of the list: its name, its signal, its unit.
type Listed = (&'static str, &'static str, fn(f64) -> String);

const NUMBERS: &[Listed] = &[
    ("attempts", "amplification", factor),
    ("originals", "originals_rps", rate),
    ("offered", "offered_rps", rate),
    ("admitted", "admitted_rps", rate),
    ("served", "served_share", percent),
    ("shed", "shed_rps", rate),
    ("429", "provider_429_rps", rate),
    ("TPM free", "tpm_headroom", percent),
    ("RPM free", "rpm_headroom", percent),
    ("p95", "latency_p95_s", seconds),
];

/// The walk and what decided it, one below the other.
fn diagnosis(
    walk: &Walk,
    verdict: &Verdict,
    width: usize,
    look: &Appearance,
) -> Vec<Line<'static>> {
    let mut content = vec![Line::default()];
    for answered in &walk.steps {
        content.extend(wrap(&answered.step.title, width).into_iter().map(Line::from));
        let answer = wrap(&answered.step.branch, width.saturating_sub(2)).into_iter();
        content
            .extend(answer.map(|row| Line::styled(format!("  {row}"), look.style(Role::Strong))));
    }
    content.push(Line::default());
    for one in verdict.evidence.iter().filter(|one| one.state == Truth::True) {
        content.push(Line::from(format!("T {}", one.signal)));
        content.push(Line::from(format!("  {}", evidence::comparison(one))));
    }
    content
}

/// Draws the screen.
pub fn draw(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let said = judgement(model);
    let width = usize::from(area.width);
    let role = said.state.role();
    let amplification =
        model.number("amplification").map_or_else(|| "?".to_owned(), |value| format!("{value:.1}"));
    let (mark, word) = (look.mark(role), said.state.word());
    let verdict = format!("{mark} {word} {} {amplification}x", said.words);
    let is_low = area.height < LOW_BELOW;
    let on = match model.mode() {
        Mode::Overview => "d diagnose  q quit",
        Mode::Diagnose(_) if !is_low => "Esc back",
        _ => "window too small: 40x10 or more; Esc back",
    };
    let hint = Line::styled(on, look.style(Role::Dim));
    if is_low {
        let recorded = recorded::line(model, look, width);
        let head = Line::styled(verdict, look.style(role));
        lines(recorded.into_iter().chain([head, hint]), area, buf);
        return;
    }
    let rows = |text: &str| -> Vec<String> {
        wrap(text, width).iter().map(|row| row.trim_start().to_owned()).collect()
    };
    let mut content: Vec<Line<'static>> = recorded::line(model, look, width).into_iter().collect();
    content.extend(rows(&verdict).into_iter().map(|row| Line::styled(row, look.style(role))));
    content.extend(rows(on).into_iter().map(|row| Line::styled(row, look.style(Role::Dim))));
    if let (Mode::Diagnose(walk), Some(verdict)) = (model.screen(), model.verdict()) {
        content.extend(diagnosis(walk, verdict, width, look));
    }
    if model.snapshot().is_some() {
        content.push(Line::default());
        content.extend(NUMBERS.iter().map(|(name, signal, format)| {
            let head = Span::raw(format!("{name:<10}"));
            Line::from(vec![head, panels::shown(model, look, signal, *format)])
        }));
    }
    content.push(Line::default());
    content.extend(chrome::source_words(model, look).into_iter().map(Line::from));
    if let Some(verdict) = model.verdict() {
        content.push(Line::default());
        content.extend(rows(&verdict.say).into_iter().map(Line::from));
    }
    content.push(Line::default());
    content.extend(model.events().map(|event| {
        let text = format!("{} {}", clock(event.wall, model.zone), event.text);
        let role = if event.role == Role::Ok { Role::Plain } else { event.role };
        Line::styled(cut(&text, width, look.glyphs.ellipsis), look.style(role))
    }));
    lines(content, area, buf);
}
