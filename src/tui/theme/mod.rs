//! Colours and glyphs by meaning, for every terminal.
//!
//! A view names a [`Role`], never a colour. A status is always a word and a glyph too, so that
//! nothing is lost without colour. Backgrounds stay the terminal's own: light and dark both work.

mod glyphs;

use ratatui::style::{Color, Modifier, Style};

pub use glyphs::{ASCII, Glyphs, UNICODE};

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text.
    Plain,
    /// As it should be.
    Ok,
    /// Look here.
    Warn,
    /// Wrong now.
    Crit,
    /// Not known.
    Unknown,
    /// Known once, too old now.
    Stale,
    /// A heading or a key.
    Accent,
    /// Context.
    Dim,
    /// Under the cursor.
    Selected,
    /// A number that matters.
    Strong,
}

/// How many colours the terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None: bold, reverse and underline only.
    Mono,
    /// The terminal's own sixteen.
    Ansi16,
    /// Any.
    TrueColor,
}

/// Colours and glyphs of one session.
#[derive(Clone, Copy, Debug)]
pub struct Appearance {
    /// Colours.
    pub depth: Depth,
    /// Glyphs.
    pub glyphs: &'static Glyphs,
}

impl Appearance {
    /// The appearance that the environment asks for.
    #[must_use]
    pub fn detect() -> Self {
        Self::from_env(|name| std::env::var(name).ok())
    }

    /// As [`Appearance::detect`], with the environment as an argument.
    ///
    /// `NO_COLOR` is decided here and not by the terminal library, which would drop bold and reverse
    /// along with the colours and so hide the selection.
    #[must_use]
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let depth = if set("NO_COLOR").is_some() || term == "dumb" {
            Depth::Mono
        } else if set("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit") {
            Depth::TrueColor
        } else {
            Depth::Ansi16
        };
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let utf8 = locale.is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            value.contains("utf-8") || value.contains("utf8")
        });
        let glyphs = if utf8 && term != "dumb" && term != "linux" { &UNICODE } else { &ASCII };
        Self { depth, glyphs }
    }

    /// The style of a role.
    #[must_use]
    pub const fn style(&self, role: Role) -> Style {
        match self.depth {
            Depth::Mono => mono(role),
            Depth::Ansi16 => ansi16(role),
            Depth::TrueColor => true_colour(role),
        }
    }

    /// The glyph that stands beside a status word.
    #[must_use]
    pub const fn mark(&self, role: Role) -> &'static str {
        match role {
            Role::Ok => self.glyphs.ok,
            Role::Warn => self.glyphs.warn,
            Role::Crit => self.glyphs.crit,
            Role::Unknown => self.glyphs.unknown,
            Role::Stale => self.glyphs.stale,
            _ => " ",
        }
    }
}

const fn mono(role: Role) -> Style {
    let style = Style::new();
    match role {
        Role::Plain | Role::Ok => style,
        Role::Warn | Role::Accent | Role::Strong => style.add_modifier(Modifier::BOLD),
        Role::Crit => style.add_modifier(Modifier::BOLD).add_modifier(Modifier::UNDERLINED),
        Role::Unknown | Role::Stale => style.add_modifier(Modifier::ITALIC),
        Role::Dim => style.add_modifier(Modifier::DIM),
        Role::Selected => style.add_modifier(Modifier::REVERSED),
    }
}

const fn ansi16(role: Role) -> Style {
    let style = Style::new();
    match role {
        Role::Plain => style,
        Role::Ok => style.fg(Color::Green),
        Role::Warn => style.fg(Color::Yellow).add_modifier(Modifier::BOLD),
        Role::Crit => style.fg(Color::Red).add_modifier(Modifier::BOLD),
        Role::Unknown => style.fg(Color::Magenta),
        Role::Stale => style.fg(Color::Magenta).add_modifier(Modifier::ITALIC),
        Role::Accent => style.fg(Color::Cyan),
        Role::Dim => style.add_modifier(Modifier::DIM),
        Role::Selected => style.add_modifier(Modifier::REVERSED),
        Role::Strong => style.add_modifier(Modifier::BOLD),
    }
}

// Middle tones: each keeps a contrast of at least 3 on black and on white.
const fn true_colour(role: Role) -> Style {
    let style = Style::new();
    match role {
        Role::Plain => style,
        Role::Ok => style.fg(Color::Rgb(0x1a, 0x9c, 0x57)),
        Role::Warn => style.fg(Color::Rgb(0xc7, 0x82, 0x0a)).add_modifier(Modifier::BOLD),
        Role::Crit => style.fg(Color::Rgb(0xe0, 0x3e, 0x3e)).add_modifier(Modifier::BOLD),
        Role::Unknown => style.fg(Color::Rgb(0xa0, 0x5c, 0xd6)),
        Role::Stale => style.fg(Color::Rgb(0xa0, 0x5c, 0xd6)).add_modifier(Modifier::ITALIC),
        Role::Accent => style.fg(Color::Rgb(0x22, 0x8f, 0xb5)),
        Role::Dim => style.fg(Color::Rgb(0x80, 0x80, 0x80)),
        Role::Selected => style.add_modifier(Modifier::REVERSED),
        Role::Strong => style.add_modifier(Modifier::BOLD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(vars: &[(&str, &str)]) -> (Depth, bool) {
        let found = Appearance::from_env(|name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        });
        (found.depth, std::ptr::eq(found.glyphs, &raw const UNICODE))
    }

    #[test]
    fn the_environment_decides() {
        assert_eq!(look(&[]), (Depth::Ansi16, false));
        assert_eq!(look(&[("LANG", "C.UTF-8")]), (Depth::Ansi16, true));
        assert_eq!(look(&[("LC_ALL", "C"), ("LANG", "de_DE.utf8")]), (Depth::Ansi16, false));
        assert_eq!(look(&[("COLORTERM", "truecolor")]), (Depth::TrueColor, false));
        assert_eq!(look(&[("COLORTERM", "truecolor"), ("NO_COLOR", "1")]), (Depth::Mono, false));
        assert_eq!(look(&[("NO_COLOR", "")]), (Depth::Ansi16, false));
        assert_eq!(look(&[("TERM", "dumb"), ("LANG", "C.UTF-8")]), (Depth::Mono, false));
        assert_eq!(look(&[("TERM", "linux"), ("LANG", "C.UTF-8")]), (Depth::Ansi16, false));
    }

    #[test]
    fn without_colour_no_role_has_a_colour() {
        for role in [Role::Plain, Role::Ok, Role::Warn, Role::Crit, Role::Unknown, Role::Selected] {
            let style = Appearance { depth: Depth::Mono, glyphs: &ASCII }.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
    }
}
