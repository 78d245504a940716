//! Whom a source's connection trusts and how it names itself: PEM files become one rustls set-up.
//!
//! Everything is read and checked here, once, so that a wrong file is named before the first request.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error as RustlsError, RootCertStore, SignatureScheme,
};

use super::{AccessError, client, read};

/// A source's TLS, ready to use: the client that speaks it.
#[derive(Clone)]
pub struct Tls {
    client: reqwest::Client,
}

/// Where a source's TLS stands. All of it is optional; a certificate needs its key.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsFiles<'a> {
    /// PEM certificates that are trusted in place of the system's.
    pub ca: Option<&'a Path>,
    /// PEM certificate chain and PEM key (PKCS#8, PKCS#1 or SEC1) that the client shows.
    pub identity: Option<(&'a Path, &'a Path)>,
    /// Name that the server's certificate must have, where that is not the host of the URL: instances
    /// found by DNS or in a file are mostly addresses.
    pub server_name: Option<&'a str>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`AccessError`] names the file and what it should hold.
    pub fn read(files: TlsFiles<'_>) -> Result<Self, AccessError> {
        let provider = Arc::new(ring::default_provider());
        let mut verifier = verifier(files.ca, &provider)?;
        if let Some(name) = files.server_name {
            let wrong = |_| AccessError::ServerName(name.to_owned());
            let name = ServerName::try_from(name.to_owned()).map_err(wrong)?;
            verifier = Arc::new(Named { name, inner: verifier });
        }
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| AccessError::Client(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let refused = |error: RustlsError| AccessError::Identity {
                    certificate: certificate.to_owned(),
                    key: key.to_owned(),
                    why: error.to_string(),
                };
                let chain = certificates(certificate)?;
                builder.with_client_auth_cert(chain, private_key(key)?).map_err(refused)?
            }
        };
        Ok(Self { client: client(Some(config))? })
    }

    /// The client that speaks it, shared by all clones.
    #[must_use]
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(***)")
    }
}

/// Checks servers against the system's certificates, or against those of a file alone.
fn verifier(
    ca: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, AccessError> {
    let Some(file) = ca else {
        let system = rustls_platform_verifier::Verifier::new(Arc::clone(provider));
        return Ok(Arc::new(system.map_err(|error| AccessError::Roots(error.to_string()))?));
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        let wanted = "certificate of an authority in PEM";
        let refused = |_| AccessError::Holds { file: file.to_owned(), wanted };
        roots.add(certificate).map_err(refused)?;
    }
    let given = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    Ok(given.build().map_err(|error| AccessError::Roots(error.to_string()))?)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let holds = || AccessError::Holds { file: file.to_owned(), wanted: "certificate in PEM" };
    let pem = read(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(holds)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, AccessError> {
    let wanted = "private key in PEM without a password";
    PrivateKeyDer::from_pem_slice(&read(file)?)
        .map_err(|_| AccessError::Holds { file: file.to_owned(), wanted })
}

/// Checks a server's certificate for a name of our own instead of the URL's host.
#[derive(Debug)]
struct Named {
    name: ServerName<'static>,
    inner: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        self.inner.verify_server_cert(end_entity, intermediates, &self.name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
