//! Where the gateway's secrets come from: variables of the environment and files that the configuration
//! names. Never the configuration itself.

use std::path::Path;

use subtle::ConstantTimeEq;

use super::config::{ConfigError, GatewayConfig};

/// The tokens of the admin plane. Neither is ever printed.
pub struct Tokens {
    admin: String,
    break_glass: Option<String>,
}

impl Tokens {
    /// Reads both; an admin token is made where none is named.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn of(config: &GatewayConfig) -> Result<Self, ConfigError> {
        let admin = match &config.admin_token_env {
            Some(variable) => from_environment("gateway.admin_token_env", variable)?,
            None => uuid::Uuid::new_v4().simple().to_string(),
        };
        let key = "gateway.break_glass_token_env";
        let break_glass = match (&config.break_glass_token_env, &config.break_glass_token_file) {
            (Some(_), Some(_)) => {
                let message = "stands beside `break_glass_token_file`";
                return Err(ConfigError::new(key, message, "keep one of the two"));
            }
            (Some(variable), None) => Some(from_environment(key, variable)?),
            (None, Some(file)) => Some(from_file("gateway.break_glass_token_file", file)?),
            (None, None) => None,
        };
        if break_glass.as_ref() == Some(&admin) {
            let message = "is the admin token; passing interlocks takes a second identity";
            return Err(ConfigError::new(key, message, "make another token"));
        }
        Ok(Self { admin, break_glass })
    }

    /// The admin token, for whoever started the gateway.
    #[must_use]
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// Whether this is the admin token. Takes as long for every wrong one of the same length.
    #[must_use]
    pub fn is_admin(&self, given: &str) -> bool {
        self.admin.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// Whether this is the token that passes interlocks, in the same way; `None` when there is none.
    #[must_use]
    pub fn is_break_glass(&self, given: &str) -> Option<bool> {
        self.break_glass.as_ref().map(|token| token.as_bytes().ct_eq(given.as_bytes()).into())
    }
}

pub(super) fn from_environment(key: &str, variable: &str) -> Result<String, ConfigError> {
    std::env::var(variable)
        .ok()
        .filter(|value| !value.is_empty())
        .ok_or_else(|| ConfigError::not_in_environment(key, variable))
}

fn from_file(key: &str, file: &Path) -> Result<String, ConfigError> {
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
