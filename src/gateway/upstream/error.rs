//! Why an attempt got no answer, in words that say what to do. Decides nothing.

use thiserror::Error;

use crate::gateway::wire::UpstreamFault;

/// Why an attempt got no answer. All but [`Self::Broken`] mean that nothing was sent.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// Its name leads to no address.
    #[error("cannot find the provider at {0}: its name does not resolve: {1}")]
    Dns(String, String),
    /// No connection.
    #[error("cannot connect to the provider at {0}: {1}")]
    Connect(String, String),
    /// A connection, and no trust or no common language on it.
    #[error("cannot speak TLS with the provider at {0}: {1}; {2}")]
    Tls(String, String, &'static str),
    /// The connection broke after the request was on its way.
    #[error("the connection to the provider broke: {0}")]
    Broken(hyper::Error),
}

impl UpstreamError {
    /// As it is counted.
    pub(in crate::gateway) const fn fault(&self) -> UpstreamFault {
        match self {
            Self::Dns(..) => UpstreamFault::Dns,
            Self::Connect(..) => UpstreamFault::Connect,
            Self::Tls(..) => UpstreamFault::Tls,
            Self::Broken(_) => UpstreamFault::Broken,
        }
    }

    /// As callers are told it.
    pub(in crate::gateway) const fn code(&self) -> &'static str {
        match self {
            Self::Dns(..) => "weir_upstream_dns",
            Self::Tls(..) => "weir_upstream_tls",
            Self::Connect(..) | Self::Broken(_) => "weir_upstream_unreachable",
        }
    }

    /// The same for another request that waited for the same connection.
    pub(super) fn again(&self) -> Option<Self> {
        match self {
            Self::Dns(at, why) => Some(Self::Dns(at.clone(), why.clone())),
            Self::Connect(at, why) => Some(Self::Connect(at.clone(), why.clone())),
            Self::Tls(at, why, remedy) => Some(Self::Tls(at.clone(), why.clone(), remedy)),
            Self::Broken(_) => None,
        }
    }
}

impl From<hyper::Error> for UpstreamError {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error)
    }
}
