//! Colours and glyphs by meaning, for every terminal.
//!
//! A view names a [`Role`], never a colour. A status is always a word and a glyph too, so that
//! nothing is lost without colour. Backgrounds stay the terminal's own: light and dark both work.

mod file;
mod glyphs;

use ratatui::style::{Color, Modifier, Style};

pub use file::{Rgb, Styles, Theme, ThemeError, indexed, names};
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

impl Role {
    /// Every role, in order.
    pub const ALL: [Self; 10] = [
        Self::Plain,
        Self::Ok,
        Self::Warn,
        Self::Crit,
        Self::Unknown,
        Self::Stale,
        Self::Accent,
        Self::Dim,
        Self::Selected,
        Self::Strong,
    ];
}

/// How many colours the terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None: bold, reverse and underline only.
    Mono,
    /// The terminal's own sixteen.
    Ansi16,
    /// 256, of which all terminals show the last 240 alike.
    Ansi256,
    /// Any.
    TrueColor,
    /// Those of a theme, which was made for what the terminal has.
    Themed(&'static Styles),
}

/// What is behind the text, as far as the terminal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Dark.
    Dark,
    /// Light.
    Light,
}

impl Background {
    /// What `COLORFGBG` says. The terminal is not asked: its answer would arrive among the keys.
    #[must_use]
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Option<Self> {
        match var("COLORFGBG")?.rsplit(';').next()?.parse::<u8>().ok()? {
            0..=6 | 8 => Some(Self::Dark),
            7 | 9..=15 => Some(Self::Light),
            _ => None,
        }
    }

    /// The theme for it.
    #[must_use]
    pub const fn theme(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
        }
    }
}

/// What terminals that show any colour are called, where `COLORTERM` did not come along, as over ssh.
const TRUE_COLOUR: [&str; 6] = ["-direct", "kitty", "alacritty", "foot", "wezterm", "ghostty"];

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
        } else if set("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit")
            || TRUE_COLOUR.iter().any(|name| term.contains(name))
        {
            Depth::TrueColor
        } else if term.contains("256color") {
            Depth::Ansi256
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
            Depth::Ansi256 => indexed_colour(role),
            Depth::TrueColor => true_colour(role),
            Depth::Themed(styles) => styles.of(role),
        }
    }

    /// The same with the styles of a theme, for as many colours as the terminal has. Without colours it
    /// stays as it is. A theme stays in memory to the end: a session has few.
    #[must_use]
    pub fn with_theme(self, theme: &Theme) -> Self {
        match self.depth {
            Depth::Mono | Depth::Themed(_) => self,
            depth => {
                let styles: &'static Styles = Box::leak(Box::new(theme.styles(depth)));
                Self { depth: Depth::Themed(styles), ..self }
            }
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

/// The same, each as the nearest of 256.
const fn indexed_colour(role: Role) -> Style {
    let index = match role {
        Role::Ok => 35,
        Role::Warn => 172,
        Role::Crit => 167,
        Role::Unknown | Role::Stale => 134,
        Role::Accent => 31,
        Role::Dim => 244,
        Role::Plain | Role::Selected | Role::Strong => return true_colour(role),
    };
    true_colour(role).fg(Color::Indexed(index))
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
        assert_eq!(look(&[("TERM", "tmux-256color")]), (Depth::Ansi256, false));
        assert_eq!(look(&[("TERM", "xterm-kitty")]), (Depth::TrueColor, false));
        assert_eq!(look(&[("TERM", "xterm-direct")]), (Depth::TrueColor, false));
    }

    #[test]
    fn the_background_is_known_where_the_terminal_says_it() {
        for (said, expected) in [
            (Some("15;0"), Some(Background::Dark)),
            (Some("0;15"), Some(Background::Light)),
            (Some("0;default;7"), Some(Background::Light)),
            (Some("15;8"), Some(Background::Dark)),
            (Some("0;default"), None),
            (Some("0;99"), None),
            (Some(""), None),
            (None, None),
        ] {
            assert_eq!(Background::from_env(|_| said.map(str::to_owned)), expected, "{said:?}");
        }
    }

    #[test]
    fn without_a_theme_256_colours_are_the_middle_tones() {
        for role in Role::ALL {
            let Some(Color::Rgb(red, green, blue)) = true_colour(role).fg else { continue };
            let nearest = file::nearest(Rgb(red, green, blue));
            assert_eq!(indexed_colour(role).fg, Some(Color::Indexed(nearest)), "{role:?}");
        }
    }

    #[test]
    fn a_theme_is_for_as_many_colours_as_there_are() {
        let theme = Theme::shipped("dark").expect("it ships");
        let crit =
            |depth| Appearance { depth, glyphs: &ASCII }.with_theme(&theme).style(Role::Crit).fg;
        assert_eq!(crit(Depth::Mono), None);
        assert_eq!(crit(Depth::Ansi16), Some(Color::LightRed));
        assert_eq!(crit(Depth::Ansi256), Some(Color::Indexed(209)));
        assert_eq!(crit(Depth::TrueColor), Some(Color::Rgb(0xff, 0x7b, 0x72)));
    }

    #[test]
    fn without_colour_no_role_has_a_colour() {
        for role in [Role::Plain, Role::Ok, Role::Warn, Role::Crit, Role::Unknown, Role::Selected] {
            let style = Appearance { depth: Depth::Mono, glyphs: &ASCII }.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
    }
}
