//! The configuration while the dashboard runs: a file that was saved is read again.
//!
//! What is right is taken over; what is wrong changes nothing and is said with file, line and remedy.
//! What only a restart can take over is named, so that nobody believes otherwise.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use color_eyre::eyre::Result;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::config::{self, Loaded};
use crate::cli::live;
use crate::cli::look::LookArgs;
use crate::ingest::{Poller, SourceConfig};
use crate::tui::{Said, Settings};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Folders beside the file whose files count as part of it.
const FOLDERS: [&str; 2] = ["adapters", "themes"];
/// What only a restart takes over, by key.
const FIXED: [&str; 4] = ["environment", "flags", "alertmanager", "runbooks"];

/// Makes a poller of these sources.
pub type Again = Box<dyn Fn(Vec<SourceConfig>) -> Result<Poller> + Send>;

/// What polls the sources, and how it is made anew for others.
pub struct Polling {
    /// The poller; it is replaced whole.
    pub poller: Poller,
    /// Makes another one; `None` while a recording is made, whose sources are written down already.
    pub again: Option<Again>,
}

/// Whoever reads the file again.
pub struct Reload {
    /// The file.
    pub path: PathBuf,
    /// What the command line says of the looks.
    pub look: LookArgs,
    /// `--read-only`, or what makes flips impossible.
    pub is_read_only: bool,
    /// What runs.
    pub polling: Polling,
    /// Where the screen hears of it.
    pub settings: mpsc::Sender<Settings>,
}

type Print = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

impl Reload {
    /// Looks at the file until the screen is gone. Holds the poller.
    pub async fn run(mut self, loaded: Loaded) {
        let mut running = loaded;
        let begun = running.table();
        let mut seen = self.print(&running);
        let mut clock = interval(LOOK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            if self.settings.is_closed() {
                return;
            }
            // An editor that writes a new file and renames it leaves none for a moment.
            if !self.path.exists() {
                continue;
            }
            let print = self.print(&running);
            if print == seen {
                continue;
            }
            let new_adapters = adapters_of(&print) != adapters_of(&seen);
            seen = print;
            let told = match self.take_over(&running, &begun, new_adapters) {
                Ok((loaded, settings)) => {
                    running = loaded;
                    // The theme may be another file now.
                    seen = self.print(&running);
                    settings
                }
                Err(error) => Settings::only_said(Said {
                    text: format!("{error}; what was read before stays in force"),
                    is_bad: true,
                }),
            };
            if self.settings.send(told).await.is_err() {
                return;
            }
        }
    }

    /// Reads and checks all of it before any of it counts.
    fn take_over(
        &mut self,
        running: &Loaded,
        begun: &toml::Table,
        new_adapters: bool,
    ) -> Result<(Loaded, Settings)> {
        let loaded = config::load(&self.path)?;
        let sources = live::sources(&loaded, &self.path)?;
        let appearance = self.look.appearance(Some(&loaded))?;
        let registry = loaded.registry()?;
        let (old, new) = (running.table(), loaded.table());
        let differs = |key: &str, other: &toml::Table| new.get(key) != other.get(key);
        let mut taken: Vec<&str> =
            ["ui", "keys", "scope"].into_iter().filter(|key| differs(key, &old)).collect();
        // Only who answers for a scope is shown here; its limits are the gateway's.
        if let Some(scope) = taken.iter_mut().find(|key| **key == "scope") {
            *scope = "owners of scopes";
        }
        let mut restart: Vec<&str> = FIXED.into_iter().filter(|key| differs(key, begun)).collect();
        if differs("source", &old) || new_adapters {
            match &self.polling.again {
                Some(again) => {
                    self.polling.poller = again(sources)?;
                    taken.push("sources (rates need some seconds again)");
                }
                None => restart.push("source (a recording is being made)"),
            }
        }
        let read_only = loaded.toml.read_only || self.is_read_only;
        match (running.toml.read_only, loaded.toml.read_only) {
            (false, true) => taken.push("read_only"),
            (true, false) => restart.push("read_only"),
            _ => {}
        }
        let name = self.path.display();
        let mut text = format!("{name} was read again");
        if !taken.is_empty() {
            let _ = write!(text, ", in force: {}", taken.join(", "));
        }
        if !restart.is_empty() {
            let _ = write!(text, "; restart weir watch for: {}", restart.join(", "));
        }
        let said = Said { text, is_bad: false };
        let owners = loaded.owners();
        Ok((loaded, Settings { changed: Some((appearance, owners, registry, read_only)), said }))
    }

    /// What the files look like from outside.
    fn print(&self, loaded: &Loaded) -> Print {
        let folder = loaded.folder();
        let inside = |name: &str| {
            let entries = std::fs::read_dir(folder.join(name)).into_iter().flatten();
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
        };
        let files = FOLDERS.iter().flat_map(|name| inside(name));
        let files = files.chain(self.look.files(loaded)).chain([self.path.clone()]);
        let of = |path: PathBuf| {
            let about = std::fs::metadata(&path).ok()?;
            Some((path, (about.len(), about.modified().ok())))
        };
        files.filter_map(of).collect()
    }
}

fn adapters_of(print: &Print) -> Vec<(&Path, u64, Option<SystemTime>)> {
    let is_adapter = |path: &Path| path.parent().is_some_and(|folder| folder.ends_with(FOLDERS[0]));
    let of = print.iter().filter(|(path, _)| is_adapter(path));
    of.map(|(path, (bytes, at))| (path.as_path(), *bytes, *at)).collect()
}
