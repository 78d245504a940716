//! Theme files: how each meaning looks, for every number of colours that a terminal may have.

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;
use thiserror::Error;

use super::{Depth, Role};
use crate::signal::{TomlError, toml_error};

/// Name and text of each theme that ships with weir.
macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../assets/themes/", $name, ".toml")))),+]
    };
}

const SHIPPED: &[(&str, &str)] = shipped![
    "dark",
    "light",
    "deuteranopia",
    "deuteranopia-light",
    "tritanopia",
    "tritanopia-light",
    "high-contrast",
];

/// Why there is no such theme.
#[derive(Debug, Error)]
pub enum ThemeError {
    /// No theme has this name.
    #[error("there is no theme `{name}`; name one of {}, auto, or a file such as ./ours.toml", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read {file}: {why}; name one of {}, or a file that is there", names().join(", "))]
    Unreadable {
        /// The file.
        file: String,
        /// What the system says.
        why: String,
    },
    /// The file is wrong.
    #[error(transparent)]
    Wrong(#[from] TomlError),
}

/// The names of the themes that ship with weir.
#[must_use]
pub fn names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// One theme.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Theme {
    /// What it is for.
    pub about: String,
    /// The backgrounds that it is made for.
    pub backgrounds: Vec<Rgb>,
    #[serde(default)]
    plain: Paint,
    #[serde(default)]
    ok: Paint,
    #[serde(default)]
    warn: Paint,
    #[serde(default)]
    crit: Paint,
    #[serde(default)]
    unknown: Paint,
    #[serde(default)]
    stale: Paint,
    #[serde(default)]
    accent: Paint,
    #[serde(default)]
    dim: Paint,
    #[serde(default = "Paint::reversed")]
    selected: Paint,
    #[serde(default)]
    strong: Paint,
}

/// How one role looks.
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Paint {
    colour: Option<Rgb>,
    index: Option<u8>,
    ansi: Option<Ansi>,
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
    reversed: bool,
}

/// A colour, written `#rrggbb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Rgb(pub u8, pub u8, pub u8);

impl TryFrom<String> for Rgb {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6);
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let [_, red, green, blue] = number
            .ok_or_else(|| format!("`{text}` is no colour; write such as #ff7b72"))?
            .to_be_bytes();
        Ok(Self(red, green, blue))
    }
}

/// One of the terminal's own sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ansi {
    Black,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
    White,
    BrightBlack,
    BrightRed,
    BrightGreen,
    BrightYellow,
    BrightBlue,
    BrightMagenta,
    BrightCyan,
    BrightWhite,
}

impl From<Ansi> for Color {
    fn from(ansi: Ansi) -> Self {
        match ansi {
            Ansi::Black => Self::Black,
            Ansi::Red => Self::Red,
            Ansi::Green => Self::Green,
            Ansi::Yellow => Self::Yellow,
            Ansi::Blue => Self::Blue,
            Ansi::Magenta => Self::Magenta,
            Ansi::Cyan => Self::Cyan,
            Ansi::White => Self::Gray,
            Ansi::BrightBlack => Self::DarkGray,
            Ansi::BrightRed => Self::LightRed,
            Ansi::BrightGreen => Self::LightGreen,
            Ansi::BrightYellow => Self::LightYellow,
            Ansi::BrightBlue => Self::LightBlue,
            Ansi::BrightMagenta => Self::LightMagenta,
            Ansi::BrightCyan => Self::LightCyan,
            Ansi::BrightWhite => Self::White,
        }
    }
}

impl Theme {
    /// Reads a theme file.
    ///
    /// # Errors
    /// Names file, line, key and what is allowed.
    pub fn parse(file: &str, text: &str) -> Result<Self, ThemeError> {
        toml::from_str(text).map_err(|error| toml_error(file, text, &error).into())
    }

    /// A theme that ships with weir.
    ///
    /// # Errors
    /// [`ThemeError::Unknown`] names those there are.
    pub fn shipped(name: &str) -> Result<Self, ThemeError> {
        let unknown = || ThemeError::Unknown { name: name.to_owned() };
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        Self::parse(&format!("assets/themes/{name}.toml"), text)
    }

    /// The styles of all roles, for a terminal of this depth.
    #[must_use]
    pub fn styles(&self, depth: Depth) -> Styles {
        Styles(Role::ALL.map(|role| self.paint(role).style(depth)))
    }

    const fn paint(&self, role: Role) -> &Paint {
        match role {
            Role::Plain => &self.plain,
            Role::Ok => &self.ok,
            Role::Warn => &self.warn,
            Role::Crit => &self.crit,
            Role::Unknown => &self.unknown,
            Role::Stale => &self.stale,
            Role::Accent => &self.accent,
            Role::Dim => &self.dim,
            Role::Selected => &self.selected,
            Role::Strong => &self.strong,
        }
    }
}

impl Paint {
    fn reversed() -> Self {
        Self { reversed: true, ..Self::default() }
    }

    fn style(&self, depth: Depth) -> Style {
        let colour = match depth {
            Depth::Mono | Depth::Themed(_) => None,
            Depth::Ansi16 => self.ansi.map(Color::from),
            Depth::Ansi256 => {
                let index = self.index.or_else(|| self.colour.map(nearest));
                index.map(Color::Indexed)
            }
            Depth::TrueColor => {
                self.colour.map(|Rgb(red, green, blue)| Color::Rgb(red, green, blue))
            }
        };
        let marks = [
            (self.bold, Modifier::BOLD),
            (self.dim, Modifier::DIM),
            (self.italic, Modifier::ITALIC),
            (self.underlined, Modifier::UNDERLINED),
            (self.reversed, Modifier::REVERSED),
        ];
        let style = colour.map_or_else(Style::new, |colour| Style::new().fg(colour));
        let set = marks.iter().filter(|(is_set, _)| *is_set);
        set.fold(style, |style, (_, mark)| style.add_modifier(*mark))
    }
}

/// The style of every role, for one terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Styles([Style; Role::ALL.len()]);

impl Styles {
    /// The style of a role.
    #[must_use]
    pub const fn of(&self, role: Role) -> Style {
        self.0[role as usize]
    }
}

/// Steps of the 6 x 6 x 6 colours of a terminal with 256.
const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// What a terminal shows for one of its colours 16 to 255, which all agree on.
#[must_use]
pub fn indexed(index: u8) -> Rgb {
    match index.saturating_sub(16) {
        cube @ 0..216 => {
            let step = |place: u8| STEPS[usize::from(place % 6)];
            Rgb(step(cube / 36), step(cube / 6), step(cube))
        }
        grey => {
            let level = 8 + 10 * (grey - 216);
            Rgb(level, level, level)
        }
    }
}

/// The nearest of a terminal's colours 16 to 255.
#[must_use]
pub(super) fn nearest(Rgb(red, green, blue): Rgb) -> u8 {
    let distance = |index: &u8| {
        let Rgb(r, g, b) = indexed(*index);
        let apart = |one: u8, other: u8| u32::from(one.abs_diff(other)).pow(2);
        apart(red, r) + apart(green, g) + apart(blue, b)
    };
    (16..=u8::MAX).min_by_key(distance).unwrap_or(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colours_of_256_are_where_terminals_have_them() {
        for (index, rgb) in [
            (16, Rgb(0, 0, 0)),
            (21, Rgb(0, 0, 255)),
            (208, Rgb(255, 135, 0)),
            (231, Rgb(255, 255, 255)),
            (232, Rgb(8, 8, 8)),
            (255, Rgb(238, 238, 238)),
        ] {
            assert_eq!(indexed(index), rgb, "{index}");
            assert_eq!(nearest(rgb), index);
        }
    }

    #[test]
    fn a_wrong_theme_is_told_with_its_place() {
        let wrong = |text: &str| Theme::parse("ours.toml", text).expect_err(text).to_string();
        let head = "about = 'x'\nbackgrounds = ['#000000']\n";
        let said = wrong(&format!("{head}[crit]\ncolour = 'reddish'"));
        assert!(said.starts_with("ours.toml:4:") && said.contains("such as #ff7b72"), "{said}");
        let said = wrong(&format!("{head}[crti]\nbold = true"));
        assert!(said.starts_with("ours.toml:3:") && said.contains("crit"), "{said}");
        let said = Theme::shipped("solarized").expect_err("there is none").to_string();
        assert!(said.contains("deuteranopia, ") && said.contains("`solarized`"), "{said}");
    }
}
