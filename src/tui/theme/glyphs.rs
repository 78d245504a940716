//! The glyphs of the screen, one set for UTF-8 and one for ASCII. Every glyph is one cell wide.

use ratatui::symbols::border;

/// One set of glyphs.
#[derive(Debug)]
pub struct Glyphs {
    /// As it should be.
    pub ok: &'static str,
    /// Look here.
    pub warn: &'static str,
    /// Wrong now.
    pub crit: &'static str,
    /// Not known.
    pub unknown: &'static str,
    /// Too old.
    pub stale: &'static str,
    /// Before a number that is a lower bound.
    pub at_least: &'static str,
    /// From old to new.
    pub arrow: &'static str,
    /// The row under the cursor, and the meter that binds.
    pub pointer: &'static str,
    /// Heights from an eighth to full.
    pub levels: [&'static str; 8],
    /// A second, lighter column behind the first.
    pub shade: &'static str,
    /// Between the least and the most of a column.
    pub band: &'static str,
    /// A moment without a sample.
    pub gap: &'static str,
    /// The filled part of a gauge.
    pub filled: &'static str,
    /// The empty part of a gauge.
    pub empty: &'static str,
    /// A flip on a time axis.
    pub flip: &'static str,
    /// Any other event on a time axis.
    pub event: &'static str,
    /// Between parts of a line.
    pub separator: &'static str,
    /// More text than fits.
    pub ellipsis: &'static str,
    /// Frames.
    pub border: border::Set<'static>,
    /// A pixel of a big digit.
    pub pixel: &'static str,
}

/// For terminals that show UTF-8.
pub static UNICODE: Glyphs = Glyphs {
    ok: "✓",
    warn: "!",
    crit: "✗",
    unknown: "?",
    stale: "~",
    at_least: "≥",
    arrow: "→",
    pointer: "▸",
    levels: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    shade: "░",
    band: "▒",
    gap: "·",
    filled: "█",
    empty: "░",
    flip: "▲",
    event: "╵",
    separator: "│",
    ellipsis: "…",
    border: border::PLAIN,
    pixel: "█",
};

/// For all others.
pub static ASCII: Glyphs = Glyphs {
    ok: "+",
    warn: "!",
    crit: "X",
    unknown: "?",
    stale: "~",
    at_least: ">",
    arrow: "->",
    pointer: ">",
    levels: ["_", ".", ",", "-", "=", "+", "*", "#"],
    shade: ":",
    band: "%",
    gap: " ",
    filled: "#",
    empty: ".",
    flip: "^",
    event: "'",
    separator: "|",
    ellipsis: "~",
    border: border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    },
    pixel: "#",
};
