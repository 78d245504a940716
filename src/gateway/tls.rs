//! TLS of both sides out of PEM files: what the data plane shows, and whom the gateway trusts behind it.
//!
//! Decides nothing about requests. A file that cannot be used is named with what to do about it; one
//! that changes for the worse while the gateway runs leaves the last good certificate in place.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::config::ConfigError;
use super::config_transport::TlsConfig;
use super::wire::Wire;

/// How HTTP/2 is named in a handshake (RFC 7301).
pub(super) const ALPN_HTTP2: &[u8] = b"h2";
/// How HTTP/1.1 is.
pub(super) const ALPN_HTTP1: &[u8] = b"http/1.1";

/// How often the files of a certificate are looked at. They change every few weeks; a certificate
/// renewed on the last day must not come a minute late.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The certificate that the data plane shows now.
#[derive(Debug)]
pub(super) struct Shown {
    config: TlsConfig,
    /// As the files were before they were read.
    first: Stamps,
    current: ArcSwap<CertifiedKey>,
}

/// When certificate and key were written and how long they are, where they can be looked at.
type Stamps = [Option<(SystemTime, u64)>; 2];

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl Shown {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`ConfigError`] names key, file and remedy.
    pub(super) fn read(config: &TlsConfig) -> Result<Arc<Self>, ConfigError> {
        let first = stamps(config);
        let current = ArcSwap::from_pointee(certified(config)?);
        Ok(Arc::new(Self { config: config.clone(), first, current }))
    }

    /// What a listener needs to speak TLS with it.
    ///
    /// # Errors
    /// [`ConfigError`] where the build has no TLS versions, which is a bug.
    pub(super) fn server(self: &Arc<Self>) -> Result<Arc<ServerConfig>, ConfigError> {
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| no_versions("gateway.tls", &error))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Self>::clone(self));
        server.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
        Ok(Arc::new(server))
    }

    /// Reads the files anew whenever one of them has changed. Runs until it is dropped.
    pub(super) async fn keep_up(&self, wire: &Wire) {
        let mut seen = self.first;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (config, before) = (self.config.clone(), seen);
            // A disk may take its time, and other people's traffic does not wait for it.
            let look = tokio::task::spawn_blocking(move || {
                let now = stamps(&config);
                (now != before).then(|| (now, certified(&config)))
            });
            let Ok(Some((now, read))) = look.await else { continue };
            match read {
                Ok(certified) => {
                    self.current.store(Arc::new(certified));
                    tracing::info!("the certificate of the data plane was read anew");
                }
                // Two files are rarely written at the same instant: the next look may find both.
                Err(error) => {
                    wire.certificate_failures.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(%error, "the changed certificate cannot be used; the old one stays");
                }
            }
            seen = now;
        }
    }
}

/// Links are followed, as secrets are often mounted through them.
fn stamps(config: &TlsConfig) -> Stamps {
    [&config.cert_file, &config.key_file].map(|file| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

/// Checks the files of `[gateway.tls]` without keeping anything.
///
/// # Errors
/// [`ConfigError`] names key, file and remedy.
pub(super) fn check(config: &TlsConfig) -> Result<(), ConfigError> {
    certified(config).map(drop)
}

fn certified(config: &TlsConfig) -> Result<CertifiedKey, ConfigError> {
    let chain = certificates("gateway.tls.cert_file", &config.cert_file)?;
    let place = "gateway.tls.key_file";
    let file = &config.key_file;
    let pem = read(place, file)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let message = format!("{} holds no private key in PEM", file.display());
        ConfigError::new(place, message, "name the key of the certificate, without a password")
    })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
        let message = format!("{} cannot be used: {error}", file.display());
        let remedy = "name the key that belongs to the first certificate of `cert_file`";
        ConfigError::new(place, message, remedy)
    })
}

/// Trusts the system's authorities, or the public ones that are built in where the system has none,
/// and those of `ca_file` beside them.
///
/// # Errors
/// [`ConfigError`] names key, file and remedy.
pub(super) fn client(
    ca_file: Option<&Path>,
    alpn: Vec<Vec<u8>>,
) -> Result<Arc<ClientConfig>, ConfigError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    // A store has a bad certificate now and then; the others are good.
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if let Some(file) = ca_file {
        for authority in authorities(file)? {
            roots.roots.push(authority);
        }
    }
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| no_versions("gateway.upstream", &error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = alpn;
    Ok(Arc::new(client))
}

/// The authorities of `gateway.upstream.ca_file`.
///
/// # Errors
/// [`ConfigError`] names key, file and remedy.
pub(super) fn authorities(
    file: &Path,
) -> Result<Vec<rustls::pki_types::TrustAnchor<'static>>, ConfigError> {
    let place = "gateway.upstream.ca_file";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(place, file)? {
        roots.add(certificate).map_err(|error| {
            let message = format!("{} holds no usable authority: {error}", file.display());
            ConfigError::new(place, message, "name the authority that signed the provider's")
        })?;
    }
    Ok(roots.roots)
}

fn certificates(place: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let pem = read(place, file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
        let message = format!("{} holds no certificate in PEM", file.display());
        ConfigError::new(place, message, "name a file with -----BEGIN CERTIFICATE----- in it")
    })
}

fn read(place: &str, file: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(file).map_err(|error| {
        let message = format!("cannot read {}: {error}", file.display());
        ConfigError::new(place, message, "name a file that the gateway's user may read")
    })
}

fn no_versions(place: &str, error: &rustls::Error) -> ConfigError {
    ConfigError::new(place, error.to_string(), "please report it")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What to do about a provider's TLS that was refused.
pub(super) const fn remedy(error: &rustls::Error) -> &'static str {
    use rustls::{CertificateError as Certificate, Error};
    match error {
        Error::InvalidCertificate(
            Certificate::UnknownIssuer | Certificate::BadSignature | Certificate::Other(_),
        ) => "name the authority that signed it in gateway.upstream.ca_file",
        Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "its certificate has expired and has to be renewed"
        }
        Error::InvalidCertificate(
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. },
        ) => "its certificate is not valid yet; is the clock right?",
        Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "write the host in gateway.upstream as its certificate names it",
        Error::InvalidCertificate(_) => "its certificate cannot be used",
        Error::InvalidMessage(_) => "it speaks no TLS; is it http://?",
        Error::NoApplicationProtocol | Error::AlertReceived(_) => {
            "it refused the handshake; see gateway.upstream.http2"
        }
        _ => "is it the address of the provider?",
    }
}
