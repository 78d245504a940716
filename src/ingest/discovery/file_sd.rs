//! Prometheus' `file_sd` in its JSON form: `[{"targets": ["host:port"], "labels": {...}}]`.
//!
//! Of the labels, `__scheme__`, `__metrics_path__` and `__param_NAME` say how a target is asked, and
//! `instance` is its name, as in Prometheus. Other labels are left to Prometheus. YAML is not read.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use reqwest::Url;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::ingest::adapter::Pattern;

use super::{DiscoveryError, Endpoint, Found, INSTANCES_MAX, Scheme, page_at};

/// Largest file: [`INSTANCES_MAX`] targets with four kilobytes of labels each.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Most files of one source.
const FILES_MAX: usize = INSTANCES_MAX;
/// Most names in a folder that a pattern is held against.
const ENTRIES_MAX: usize = 10_000;

/// The targets of all files that the patterns name.
pub(super) fn targets(
    patterns: &[PathBuf],
    endpoint: &Endpoint,
) -> Result<Vec<Found>, DiscoveryError> {
    let mut found = Vec::new();
    for file in files(patterns)? {
        let text = read(&file)?;
        let groups: Vec<Group> =
            serde_json::from_str(&text).map_err(|error| content(&file, &error))?;
        for group in groups {
            for target in &group.targets {
                // Checked when it was read; labels may still make an address of it that is none.
                let url = group.labels.page_of(&target.0, endpoint).map_err(|message| {
                    let (line, column) = place(&text, &target.0);
                    DiscoveryError::Content { file: file.clone(), line, column, message }
                })?;
                found.push((group.labels.instance.clone(), url));
            }
            if found.len() > INSTANCES_MAX {
                return Err(DiscoveryError::TooMany { found: found.len() });
            }
        }
    }
    Ok(found)
}

/// The files that exist now, sorted, each once.
fn files(patterns: &[PathBuf]) -> Result<Vec<PathBuf>, DiscoveryError> {
    let mut files = Vec::new();
    for pattern in patterns {
        let before = files.len();
        match pattern.file_name().and_then(|name| name.to_str()) {
            Some(glob) if glob.contains('*') => {
                let folder = pattern.parent().filter(|path| !path.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new("."));
                let failed = |error| unreadable(folder, &error);
                let glob = Pattern::new(glob);
                for entry in fs::read_dir(folder).map_err(failed)?.take(ENTRIES_MAX) {
                    let name = entry.map_err(failed)?.file_name();
                    if name.to_str().is_some_and(|name| glob.matches(name)) {
                        files.push(folder.join(name));
                    }
                }
            }
            _ => files.push(pattern.clone()),
        }
        if files.len() == before {
            return Err(DiscoveryError::NoFile { pattern: pattern.clone() });
        }
    }
    files.sort();
    files.dedup();
    if files.len() > FILES_MAX {
        return Err(DiscoveryError::TooMany { found: files.len() });
    }
    Ok(files)
}

fn read(file: &Path) -> Result<String, DiscoveryError> {
    let failed = |error| unreadable(file, &error);
    let mut text = String::new();
    let open = fs::File::open(file).map_err(failed)?;
    open.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it is over {FILE_BYTES_MAX} bytes");
        return Err(DiscoveryError::Unreadable { path: file.to_owned(), why });
    }
    Ok(text)
}

fn unreadable(path: &Path, error: &std::io::Error) -> DiscoveryError {
    DiscoveryError::Unreadable { path: path.to_owned(), why: error.to_string() }
}

fn content(file: &Path, error: &serde_json::Error) -> DiscoveryError {
    let (line, column) = (error.line(), error.column());
    let said = error.to_string();
    let message = said.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&said);
    let is_yaml = matches!(file.extension().and_then(|e| e.to_str()), Some("yml" | "yaml"));
    let message = if is_yaml { "is YAML, and only JSON is read" } else { message };
    DiscoveryError::Content { file: file.to_owned(), line, column, message: message.to_owned() }
}

/// Line and column of the first place where a target is written.
fn place(text: &str, target: &str) -> (usize, usize) {
    let before = text.find(target).map_or("", |at| &text[..at]);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Targets that share labels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    targets: Vec<Target>,
    #[serde(default)]
    labels: Labels,
}

/// An address, checked where it stands so that an error names the line.
struct Target(String);

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let address = String::deserialize(from)?;
        let any = Endpoint { scheme: Scheme::Http, path: "/".to_owned() };
        page_at(&address, &any).map_err(D::Error::custom)?;
        Ok(Self(address))
    }
}

/// The labels that weir acts on.
#[derive(Default)]
struct Labels {
    scheme: Option<Scheme>,
    path: Option<String>,
    params: Vec<(String, String)>,
    instance: Option<String>,
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut labels = Self::default();
        for (name, value) in BTreeMap::<String, String>::deserialize(from)? {
            match name.as_str() {
                "__scheme__" => {
                    let scheme = Scheme::of_word(&value);
                    let wrong = || {
                        D::Error::custom(format!("`__scheme__` is http or https, not `{value}`"))
                    };
                    labels.scheme = Some(scheme.ok_or_else(wrong)?);
                }
                "__metrics_path__" if !value.starts_with('/') => {
                    let wrong = format!("`__metrics_path__` begins with `/`, unlike `{value}`");
                    return Err(D::Error::custom(wrong));
                }
                "__metrics_path__" => labels.path = Some(value),
                "instance" if !value.is_empty() => labels.instance = Some(value),
                name => {
                    let param = name.strip_prefix("__param_").map(str::to_owned);
                    labels.params.extend(param.map(|param| (param, value)));
                }
            }
        }
        Ok(labels)
    }
}

impl Labels {
    fn page_of(&self, address: &str, endpoint: &Endpoint) -> Result<Url, String> {
        let endpoint = Endpoint {
            scheme: self.scheme.unwrap_or(endpoint.scheme),
            path: self.path.as_ref().unwrap_or(&endpoint.path).clone(),
        };
        let mut url = page_at(address, &endpoint)?;
        if !self.params.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.params);
        }
        Ok(url)
    }
}
