//! Which instances a source has.

use thiserror::Error;

/// One instance of a source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Its name among the others.
    pub name: String,
    /// Its metrics page.
    pub url: String,
}

/// Where instances are listed.
#[derive(Clone, Debug)]
pub enum Discovery {
    /// In the configuration.
    Static(Vec<Instance>),
}

/// Why instances are not known.
#[derive(Debug, Error)]
#[error("unknown")]
pub struct DiscoveryError;

impl Discovery {
    /// The instances now.
    pub async fn instances(&self) -> Result<Vec<Instance>, DiscoveryError> {
        match self {
            Self::Static(list) => Ok(list.clone()),
        }
    }
}
