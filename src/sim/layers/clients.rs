//! The clients of `assets/clients` by name, and those that a user writes by path.
//!
//! One file per client and version: its layers as data, where they were read, what was measured. The
//! README beside the files explains the keys.

use serde::Deserialize;

use crate::signal::toml_error;
use crate::sim::config::ConfigError;
use crate::sim::layers::stack::ReadFile;
use crate::sim::layers::table::LayerTable;

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../assets/clients/", $name, ".toml")))),+]
    };
}

/// The files as text, in the order in which they are listed to a user.
const SHIPPED: &[(&str, &str)] = shipped![
    "openai-python",
    "openai-python-2",
    "openai-node",
    "openai-node-6",
    "openai-node-4",
    "azure-openai",
    "anthropic-python",
    "anthropic-python-0.75",
    "anthropic-node",
    "anthropic-node-0.70",
    "groq",
    "together",
    "google-genai",
    "google-genai-retrying",
    "cohere",
    "mistral",
    "mistral-retrying",
    "voyage",
    "voyage-retrying",
    "langchain-openai",
    "langchain-with-retry",
    "langchain-js",
    "llama-index",
    "litellm",
    "litellm-num-retries",
    "litellm-router",
    "vercel-ai-sdk",
    "boto3",
    "boto3-legacy",
    "azure-core",
    "urllib3",
    "urllib3-get",
    "requests",
    "httpx",
    "spring-ai",
    "async-openai",
    "haystack",
    "semantic-kernel",
    "pgai",
    "pinecone",
    "huggingface-hub",
    "tenacity",
    "tenacity-random",
    "frontend",
    "job-queue",
    "fallback",
];

/// One client.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientFile {
    /// The name that a scenario writes.
    pub(super) name: String,
    /// What it is, in a line.
    #[serde(rename = "title")]
    _title: String,
    /// Package, version, file and line.
    #[serde(rename = "source")]
    _source: String,
    /// What a persistent failure made of it, and what its policy leaves out.
    #[serde(rename = "measured")]
    _measured: String,
    /// Outermost first.
    pub(super) layers: Vec<LayerTable>,
}

/// The names of the clients that ship with weir.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// The client that ships under `name`, or the file if it is a path that ends in `.toml`. `key` is where
/// a scenario uses it.
pub(super) fn find(name: &str, key: &str, read: &ReadFile<'_>) -> Result<ClientFile, ConfigError> {
    let wrong = |problem, allowed| ConfigError { key: format!("{key}.use"), problem, allowed };
    let is_path = std::path::Path::new(name).extension().is_some_and(|end| end == "toml");
    let read_text;
    let text = match SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        Some((_, text)) => *text,
        None if is_path => {
            read_text = read(name).map_err(|why| wrong(why, "give a file that can be read"))?;
            &read_text
        }
        None => {
            let known: Vec<_> = names().collect();
            let problem = format!("no client `{name}`; there are {}", known.join(", "));
            return Err(wrong(problem, "or give the path of a .toml file"));
        }
    };
    let broken = |error| wrong(toml_error(name, text, &error).to_string(), "correct that file");
    toml::from_str(text).map_err(broken)
}
