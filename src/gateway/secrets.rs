//! Where the gateway's secrets come from: variables of the environment and files that the configuration
//! names. Never the configuration itself.

use std::path::Path;

use super::config::ConfigError;

pub(super) fn from_environment(key: &str, variable: &str) -> Result<String, ConfigError> {
    std::env::var(variable)
        .ok()
        .filter(|value| !value.is_empty())
        .ok_or_else(|| ConfigError::not_in_environment(key, variable))
}

pub(super) fn from_file(key: &str, file: &Path) -> Result<String, ConfigError> {
    let cannot = |why: String| {
        let remedy = "write the token into it, for the gateway's user only";
        ConfigError::new(key, format!("{}: {why}", file.display()), remedy)
    };
    let text = std::fs::read_to_string(file).map_err(|error| cannot(error.to_string()))?;
    match text.trim() {
        "" => Err(cannot("is empty".to_owned())),
        token => Ok(token.to_owned()),
    }
}
