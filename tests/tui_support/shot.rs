//! A frame as text and style, so that a test sees both. The style layer is run-length: what is not
//! plain, where.

use std::fmt::Write as _;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use weir::tui::Appearance;
use weir::tui::app::mode::Mode;
use weir::tui::app::{Effect, Model, Msg, update};
use weir::tui::theme::{ASCII, Depth, UNICODE};
use weir::tui::view::render;

/// As on most terminals.
pub const COLOUR: Appearance = Appearance { depth: Depth::Ansi16, glyphs: &UNICODE };
/// As on the plainest.
pub const PLAIN: Appearance = Appearance { depth: Depth::Mono, glyphs: &ASCII };

/// What every screen is kept at: as terminals open, two larger ones, and the least that has panels.
pub const SIZES: [(u16, u16); 4] = [(80, 24), (120, 40), (200, 50), (40, 10)];

/// Every name that [`keep`] gives: one for each screen and each dialog.
pub const KEPT: [&str; 30] = [
    "alerts", "arm", "breakers", "causes", "diagnose", "edit", "filter", "flags", "goodput",
    "guide", "help", "how", "leaving", "note", "origin", "overview", "palette", "plan", "planning",
    "queue", "retries", "say", "scopes", "signals", "sources", "step-why", "tenants", "timeline",
    "trace", "why",
];

/// Keeps what is on top of a model at every size: one file in colour, one of plain ASCII without.
///
/// The model is made anew for each frame, for it remembers how much of a plan it has shown.
#[track_caller]
pub fn keep(make: impl Fn() -> Model) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (look, word) in [(COLOUR, "colour"), (PLAIN, "mono")] {
        let mut kept = String::new();
        let mut name = "";
        for (width, height) in SIZES {
            let mut model = make();
            let area = Rect::new(0, 0, width, height);
            if let Some(visible) = render(&model, &look, area, &mut Buffer::empty(area)) {
                let now = model.now;
                update(&mut model, Msg::Drawn(visible), now);
            }
            name = name_of(model.mode());
            let seen = shot(&model, &look, width, height);
            let verdict = seen.lines().next().unwrap_or_default();
            assert!(verdict.contains("INCIDENT") || verdict.contains("CONTAINED"), "{seen}");
            assert!(seen.is_ascii() || look.depth != Depth::Mono, "{seen}");
            write!(kept, "=== {width}x{height}\n{seen}").expect("a string takes all");
        }
        assert!(KEPT.contains(&name), "{name} belongs into the list");
        settings.bind(|| insta::assert_snapshot!(format!("{name}-{word}"), kept));
    }
}

/// What a screen or a dialog is called among the snapshots.
const fn name_of(mode: &Mode) -> &'static str {
    match mode {
        Mode::Overview => "overview",
        Mode::Diagnose(_) => "diagnose",
        Mode::Flags => "flags",
        Mode::Timeline(_) => "timeline",
        Mode::Page(page, _) => page.name(),
        Mode::Help(_) => "help",
        Mode::Guide(_) => "guide",
        Mode::Why(_) => "why",
        Mode::How(_) => "how",
        Mode::StepWhy(_) => "step-why",
        Mode::Causes(_) => "causes",
        Mode::Alerts(_) => "alerts",
        Mode::Origin(_) => "origin",
        Mode::Edit(_) => "edit",
        Mode::Arm(_) => "arm",
        Mode::Note(_) => "note",
        Mode::Say(..) => "say",
        Mode::Filter(..) => "filter",
        Mode::Palette(_) => "palette",
        Mode::Planning => "planning",
        Mode::Plan(_) => "plan",
        Mode::Leaving => "leaving",
    }
}

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
