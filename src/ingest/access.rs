//! How weir proves itself to a source: bearer token, basic password, headers, client certificate.
//!
//! A source with TLS of its own has a client of its own, because a client certificate is part of the
//! connection. Credentials stay on the host that was named: redirects elsewhere are refused, no proxy
//! is asked, and neither `Debug` nor an error ever shows a secret.

mod tls;

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use reqwest::RequestBuilder;
use rustls::ClientConfig;
use thiserror::Error;

pub use tls::{Tls, TlsFiles};

use super::transport;

/// Largest file of a token, a password or certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A secret's file is not read again sooner. Tokens are renewed minutes before they expire.
const REREAD_AFTER: Duration = Duration::from_secs(5);

/// What a source asks of its readers. The default is a source that asks nothing.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Sent as `Authorization: Bearer`.
    pub bearer: Option<Secret>,
    /// Sent as `Authorization: Basic`.
    pub basic: Option<Basic>,
    /// Sent with every request, such as `X-Scope-OrgID`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whom to trust and who we are, where that differs from the system's.
    pub tls: Option<Tls>,
}

impl Access {
    /// The HTTP client for this source: follows redirects within the host, takes gzip and zstd, asks no
    /// proxy. It sets no time limit. Cheap to clone; keep it, for it keeps the connections.
    ///
    /// # Errors
    /// [`AccessError::Client`] when the system's TLS set-up does not allow for one.
    pub fn client(&self) -> Result<reqwest::Client, AccessError> {
        match &self.tls {
            Some(tls) => Ok(tls.client().clone()),
            None => client(None),
        }
    }

    /// The request with the credentials on it.
    pub fn apply(&self, request: RequestBuilder) -> RequestBuilder {
        let mut request = request;
        if let Some(bearer) = &self.bearer {
            request = request.bearer_auth(bearer.reveal());
        }
        if let Some(basic) = &self.basic {
            request = request.basic_auth(&basic.user, Some(basic.password.reveal()));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
    }
}

/// A user and a password.
#[derive(Clone, Debug)]
pub struct Basic {
    /// Whom the source knows.
    pub user: String,
    /// Never shown.
    pub password: Secret,
}

/// A token or password that never shows itself.
///
/// One that came from a file is read again every few seconds of use, because tokens that a cluster
/// hands out expire within the hour; while the file cannot be read, the last one stands. Copies share
/// what was read.
#[derive(Clone)]
pub struct Secret(Origin);

#[derive(Clone)]
enum Origin {
    Fixed(String),
    File { file: PathBuf, last: Arc<Mutex<LastRead>> },
}

/// What a secret's file held when it last held a secret.
struct LastRead {
    value: String,
    /// When the file was last tried.
    tried: Instant,
}

impl Secret {
    /// Takes a secret; surrounding white space, as a file's last newline, is not part of it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Origin::Fixed(text.trim().to_owned()))
    }

    /// Reads a secret, now and while it is used.
    ///
    /// # Errors
    /// When the file cannot be read now, is no regular file, or holds nothing.
    pub fn from_file(file: &Path) -> Result<Self, AccessError> {
        let last = LastRead { value: read_secret(file)?, tried: Instant::now() };
        Ok(Self(Origin::File { file: file.to_owned(), last: Arc::new(Mutex::new(last)) }))
    }

    /// The secret itself, for the wire. Now and then it reads a small regular file, which is short
    /// enough to do between two awaits.
    #[must_use]
    pub fn reveal(&self) -> String {
        self.reveal_at(Instant::now())
    }

    fn reveal_at(&self, now: Instant) -> String {
        match &self.0 {
            Origin::Fixed(value) => value.clone(),
            Origin::File { file, last } => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if now.saturating_duration_since(last.tried) >= REREAD_AFTER {
                    last.tried = now;
                    if let Ok(value) = read_secret(file) {
                        last.value = value;
                    }
                }
                last.value.clone()
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Why an access cannot be used. No message holds a secret.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The HTTP client itself could not be built.
    #[error("cannot build the HTTP client: {0}")]
    Client(String),
    /// A file is not there, not readable, too large or no regular file.
    #[error("cannot read {}: {why}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file holds something else than what is asked for.
    #[error("{} holds no {wanted}", file.display())]
    Holds {
        /// The file.
        file: PathBuf,
        /// What should stand in it.
        wanted: &'static str,
    },
    /// Certificate and key do not belong together, or are of a kind that cannot be used.
    #[error("the certificate in {} and the key in {} cannot be used together: {why}", certificate.display(), key.display())]
    Identity {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What the TLS library says.
        why: String,
    },
    /// Certificates that the server's is checked against cannot be used.
    #[error("cannot check servers' certificates: {0}")]
    Roots(String),
    /// No name that a certificate could have.
    #[error("`{0}` is no name of a server")]
    ServerName(String),
}

impl AccessError {
    /// The file that is wrong, where it is one alone.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File { file, .. } | Self::Holds { file, .. } => Some(file),
            Self::Client(_) | Self::Identity { .. } | Self::Roots(_) | Self::ServerName(_) => None,
        }
    }
}

/// A client with `tls`, or with the system's.
fn client(tls: Option<ClientConfig>) -> Result<reqwest::Client, AccessError> {
    // Another part of the process may have installed the same provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
        .redirect(transport::within_the_host())
        // Metrics ports are inside; a proxy set for the outside would answer for them.
        .no_proxy()
        .gzip(true)
        .zstd(true);
    let builder = match tls {
        Some(tls) => builder.tls_backend_preconfigured(tls),
        None => builder,
    };
    builder.build().map_err(|error| AccessError::Client(transport::innermost(&error)))
}

fn read_secret(file: &Path) -> Result<String, AccessError> {
    let wanted = "token or password";
    let holds = || AccessError::Holds { file: file.to_owned(), wanted };
    let text = String::from_utf8(read(file)?).map_err(|_| holds())?;
    let text = text.trim();
    // Anything else could not be sent, and the error of sending would not name the file.
    if text.is_empty() || HeaderValue::from_str(text).is_err() {
        return Err(holds());
    }
    Ok(text.to_owned())
}

/// The bytes of a regular file, up to [`FILE_BYTES_MAX`]. To open a pipe would already wait for its
/// writer.
fn read(file: &Path) -> Result<Vec<u8>, AccessError> {
    let failed = |why: String| AccessError::File { file: file.to_owned(), why };
    let kind = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?;
    if !kind.is_file() {
        return Err(failed("it is no regular file".to_owned()));
    }
    let open = std::fs::File::open(file).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    let mut bounded = open.take(FILE_BYTES_MAX + 1);
    bounded.read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("it is over {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let mut value = HeaderValue::from_static("tenant-secret");
        value.set_sensitive(true);
        let access = Access {
            bearer: Some(Secret::new("token-secret\n")),
            basic: Some(Basic { user: "me".to_owned(), password: Secret::new("word-secret") }),
            headers: vec![(HeaderName::from_static("x-scope-orgid"), value)],
            tls: None,
        };
        let shown = format!("{access:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("x-scope-orgid") && shown.contains("me"), "{shown}");
        assert_eq!(access.bearer.expect("set").reveal(), "token-secret");
    }

    #[test]
    fn a_secret_file_is_read_again_and_the_last_one_stands_while_it_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "first\n").expect("written");
        let secret = Secret::from_file(&file).expect("a token");
        let copy = secret.clone();
        let began = Instant::now();
        let after = |times: u32| began + REREAD_AFTER * times;
        std::fs::write(&file, "second\n").expect("written");
        assert_eq!(secret.reveal_at(began), "first", "it was read a moment ago");
        assert_eq!(secret.reveal_at(after(1)), "second");
        assert_eq!(copy.reveal_at(began), "second", "copies share it");
        std::fs::write(&file, "").expect("written");
        assert_eq!(secret.reveal_at(after(2)), "second");
        let error = Secret::from_file(&file).expect_err("nothing in it").to_string();
        assert!(error.ends_with("token holds no token or password"), "{error}");
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(secret.reveal_at(after(3)), "second");
        let error = Secret::from_file(&file).expect_err("no file").to_string();
        assert!(error.starts_with("cannot read "), "{error}");
        std::fs::write(&file, "third\n").expect("written");
        assert_eq!(secret.reveal_at(after(4)), "third");
    }

    #[test]
    fn a_file_that_is_too_large_or_none_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let large = folder.path().join("large");
        let file = std::fs::File::create(&large).expect("created");
        file.set_len(FILE_BYTES_MAX + 1).expect("made longer");
        for (path, why) in [
            (&*large, "over 1048576 bytes"),
            (folder.path(), "it is no regular file"),
            (Path::new("/dev/zero"), "it is no regular file"),
        ] {
            let error = Secret::from_file(path).expect_err("refused").to_string();
            assert!(error.ends_with(why), "{error}");
        }
    }
}
