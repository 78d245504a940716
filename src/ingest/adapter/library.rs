//! Finds adapters: those that ship with weir, and a folder of the user's own that comes first.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use thiserror::Error;

use crate::signal::TomlError;

use super::file::FILE_BYTES_MAX;
use super::model::Adapter;

/// The folder beside `weir.toml` that holds a user's own adapters.
pub const FOLDER: &str = "adapters";

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../assets/adapters/", $name, ".toml")))),+]
    };
}

/// The adapters that ship with weir, by name, as text.
pub(super) const SHIPPED: &[(&str, &str)] = shipped![
    "agentgateway",
    "apisix",
    "bifrost",
    "envoy",
    "envoy-ai-gateway",
    "kong",
    "litellm",
    "otel-genai",
    "sglang",
    "simcli",
    "simprov",
    "smg",
    "vllm",
    "vllm-router",
    "weir",
];

static PARSED: LazyLock<BTreeMap<&str, Arc<Adapter>>> = LazyLock::new(|| {
    let parse = |(name, text): &(&'static str, &str)| {
        let adapter = Adapter::parse(name, &format!("{name}.toml"), text);
        (*name, Arc::new(adapter.expect("the shipped adapters are held right by a test")))
    };
    SHIPPED.iter().map(parse).collect()
});

/// Why there is no adapter.
#[derive(Debug, Error)]
pub enum AdapterError {
    /// Nothing has this name.
    #[error("unknown adapter `{name}`: known are {}", .known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A file cannot be read.
    #[error("cannot read the adapter {}: {cause}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file is wrong.
    #[error(transparent)]
    Wrong(#[from] TomlError),
}

/// The adapters of one configuration.
#[derive(Clone, Debug, Default)]
pub struct Adapters {
    folder: Option<PathBuf>,
}

impl Adapters {
    /// Those that ship with weir.
    #[must_use]
    pub const fn shipped() -> Self {
        Self { folder: None }
    }

    /// The same, after those in the folder `adapters` of `directory`, if there is one.
    #[must_use]
    pub fn beside(directory: &Path) -> Self {
        Self { folder: Some(directory.join(FOLDER)) }
    }

    /// The names there are, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect();
        let own = self.folder.as_ref().and_then(|folder| folder.read_dir().ok());
        for entry in own.into_iter().flatten().flatten() {
            let path = entry.path();
            let is_toml = path.extension().is_some_and(|extension| extension == "toml");
            names.extend(path.file_stem().filter(|_| is_toml).map(|s| s.to_string_lossy().into()));
        }
        names.sort();
        names.dedup();
        names
    }

    /// The text of the user's own file of this name, if there is one.
    #[must_use]
    pub fn own_text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.own_file(name)?).ok()
    }

    fn own_file(&self, name: &str) -> Option<PathBuf> {
        let is_stem =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let path = self.folder.as_ref().filter(|_| is_stem)?.join(format!("{name}.toml"));
        path.is_file().then_some(path)
    }

    /// The adapter of this name.
    ///
    /// # Errors
    ///
    /// When nothing has the name, or the user's file of that name is wrong.
    pub fn get(&self, name: &str) -> Result<Arc<Adapter>, AdapterError> {
        if let Some(path) = self.own_file(name) {
            return Ok(Arc::new(load(&path)?));
        }
        let shipped = PARSED.get(name).cloned();
        shipped.ok_or_else(|| AdapterError::Unknown { name: name.to_owned(), known: self.names() })
    }
}

impl Adapter {
    /// The adapter of our own gateway.
    #[must_use]
    pub fn weir() -> Arc<Self> {
        own("weir")
    }

    /// The adapter of the simulated provider of a drill.
    #[must_use]
    pub fn simprov() -> Arc<Self> {
        own("simprov")
    }

    /// The adapter of the simulated clients of a drill.
    #[must_use]
    pub fn simcli() -> Arc<Self> {
        own("simcli")
    }
}

fn own(name: &str) -> Arc<Adapter> {
    Arc::clone(PARSED.get(name).expect("ships with weir"))
}

/// Reads one adapter file; its stem is the name.
///
/// # Errors
///
/// When it cannot be read or is wrong.
pub fn load(path: &Path) -> Result<Adapter, AdapterError> {
    let unreadable = |cause| AdapterError::Unreadable { path: path.to_owned(), cause };
    let length = path.metadata().map_err(unreadable)?.len();
    if length > FILE_BYTES_MAX as u64 {
        let cause = io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes"));
        return Err(unreadable(cause));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Adapter::parse(&name, &path.display().to_string(), &text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_adapter_is_right() {
        for (name, text) in SHIPPED {
            let adapter =
                Adapter::parse(name, name, text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!adapter.signals.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_users_file_comes_first_and_is_named_when_wrong() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join(FOLDER);
        std::fs::create_dir(&folder).expect("created");
        let head = "[adapter]\ntitle = \"mine\"\nabout = \"\"\nrole = \"gateway\"\n\
                    verified = \"run\"\n[signals]\n";
        std::fs::write(folder.join("weir.toml"), head).expect("written");
        std::fs::write(folder.join("broken.toml"), "[adapter]\nrole = 3\n").expect("written");
        let adapters = Adapters::beside(directory.path());
        assert_eq!(adapters.get("weir").expect("read").title, "mine");
        assert_ne!(adapters.get("simprov").expect("shipped").title, "mine");
        let error = adapters.get("broken").expect_err("wrong").to_string();
        assert!(error.contains("broken.toml:"), "{error}");
        let error = adapters.get("../weir").expect_err("no path").to_string();
        assert!(error.contains("known are") && error.contains("broken"), "{error}");
    }
}
