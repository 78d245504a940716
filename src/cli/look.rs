//! How the dashboard looks: what the terminal can show, and the theme that somebody chose.
//!
//! Nothing, `[ui]` of the file, `WEIR_THEME`, the command line: each comes before the one before it.

use std::path::{Path, PathBuf};

use color_eyre::eyre::{Result, eyre};

use super::config::Loaded;
use crate::tui::Appearance;
use crate::tui::picture::DARK;
use crate::tui::theme::{ASCII, Background, Depth, Rgb, Theme, ThemeError, UNICODE};

/// The theme that follows the terminal.
const AUTO: &str = "auto";
/// The folder beside `weir.toml` with a person's own.
const FOLDER: &str = "themes";

/// How the dashboard looks.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LookArgs {
    /// A theme by name (dark, light, deuteranopia, tritanopia, high-contrast, ...), a theme file, or auto
    #[arg(long, value_name = "THEME", env = "WEIR_THEME")]
    theme: Option<String>,
    /// Lines and marks in plain ASCII
    #[arg(long)]
    ascii: bool,
}

impl LookArgs {
    /// The appearance for this terminal, with what the file says where the command line does not.
    ///
    /// # Errors
    /// When there is no such theme, or its file is wrong.
    pub fn appearance(&self, file: Option<&Loaded>) -> Result<Appearance> {
        let mut look = Appearance::detect();
        let ui = file.and_then(|file| file.toml.ui.as_ref());
        if self.ascii || ui.is_some_and(|ui| ui.ascii) {
            look.glyphs = &ASCII;
        }
        let beside = file.map_or_else(PathBuf::new, Loaded::folder);
        let theme = match (&self.theme, ui.and_then(|ui| ui.theme.as_ref())) {
            // What is given on the command line is taken from where that is typed.
            (Some(name), _) => {
                find(name, Path::new(""), &beside).map_err(|error| eyre!("{error}"))?
            }
            (None, Some(name)) => {
                find(name, &beside, &beside).map_err(|error| match (&error, file) {
                    (ThemeError::Wrong(_), _) | (_, None) => eyre!("{error}"),
                    (_, Some(file)) => {
                        let said = error.to_string();
                        let (why, remedy) =
                            said.split_once("; ").unwrap_or((&said, "name another"));
                        file.wrong("ui.theme", why, remedy)
                    }
                })?
            }
            (None, None) => find(AUTO, Path::new(""), &beside).map_err(|error| eyre!("{error}"))?,
        };
        Ok(theme.map_or(look, |theme| look.with_theme(&theme)))
    }

    /// The appearance of a picture, and the colours of its text and background, whatever terminal this is.
    ///
    /// # Errors
    /// When there is no such theme, or its file is wrong.
    pub fn picture(&self, has_colours: bool) -> Result<(Appearance, (Rgb, Rgb))> {
        let glyphs = if self.ascii { &ASCII } else { &UNICODE };
        let plain = Appearance { depth: Depth::Mono, glyphs };
        let name = self.theme.as_deref().filter(|name| *name != AUTO);
        let theme = find(name.unwrap_or(Background::Dark.theme()), Path::new(""), Path::new(""));
        let theme = theme.map_err(|error| eyre!("{error}"))?;
        let Some(theme) = theme.filter(|_| has_colours) else { return Ok((plain, DARK)) };
        let look = Appearance { depth: Depth::TrueColor, glyphs }.with_theme(&theme);
        // The second of a theme's backgrounds is the usual one: not the darkest, nor the lightest.
        let background = theme.backgrounds.get(1).or(theme.backgrounds.first());
        let background = background.copied().unwrap_or(DARK.1);
        let is_light =
            u16::from(background.0) + u16::from(background.1) + u16::from(background.2) > 384;
        Ok((look, (if is_light { DARK.1 } else { DARK.0 }, background)))
    }

    /// The files that the theme may come from, to see when one changes.
    #[must_use]
    pub fn files(&self, file: &Loaded) -> Vec<PathBuf> {
        let said = file.toml.ui.as_ref().and_then(|ui| ui.theme.as_ref());
        let of = |name: &String, base: &Path| is_path(name).then(|| base.join(name));
        let named = self.theme.as_ref().and_then(|name| of(name, Path::new("")));
        let named = named.or_else(|| of(said?, &file.folder()));
        named.into_iter().collect()
    }
}

fn is_path(name: &str) -> bool {
    name.contains('/') || Path::new(name).extension().is_some_and(|extension| extension == "toml")
}

/// A theme by name or file; `None` where the terminal's own middle is best. A path is taken from `base`,
/// and `beside` may have a folder with themes of a person's own.
fn find(name: &str, base: &Path, beside: &Path) -> Result<Option<Theme>, ThemeError> {
    let read = |path: &Path| {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ThemeError::Unreadable {
            file: file.clone(),
            why: error.to_string(),
        })?;
        Theme::parse(&file, &text).map(Some)
    };
    if is_path(name) {
        return read(&base.join(name));
    }
    let own = beside.join(FOLDER).join(format!("{name}.toml"));
    if own.is_file() {
        return read(&own);
    }
    if name == AUTO {
        let background = Background::from_env(|name| std::env::var(name).ok());
        return background.map(|background| Theme::shipped(background.theme())).transpose();
    }
    Theme::shipped(name).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_theme_is_found_by_name_by_file_and_beside_the_configuration() {
        let folder = tempfile::tempdir().expect("a folder");
        let (base, own) = (folder.path(), folder.path().join("themes"));
        std::fs::create_dir(&own).expect("a folder");
        let text = "about = 'ours'\nbackgrounds = ['#000000']\n";
        std::fs::write(own.join("dark.toml"), text).expect("written");
        std::fs::write(base.join("mine.toml"), text.replace("ours", "mine")).expect("written");
        let about = |name: &str, beside: &Path| {
            find(name, base, beside).expect(name).map(|theme| theme.about)
        };
        assert_eq!(about("dark", base).as_deref(), Some("ours"));
        assert_eq!(about("dark", Path::new("")).as_deref(), Some("Dark terminals."));
        assert_eq!(about("mine.toml", base).as_deref(), Some("mine"));
        let said = find("nowhere.toml", base, base).expect_err("none").to_string();
        assert!(
            said.contains("nowhere.toml") && said.contains("name one of dark, light"),
            "{said}"
        );
    }
}
