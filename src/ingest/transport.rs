//! What can go wrong between a request and its whole body, in the words of an operator.
//!
//! Serves every HTTP client of this room. Knows no source: callers put the name in front.

use std::error::Error;

use reqwest::Response;
use reqwest::redirect::{Action, Attempt, Policy};

/// Redirects that are followed: some gateways answer `/metrics` with one to `/metrics/`.
pub const REDIRECTS_MAX: usize = 3;
/// Room that is made for a body whose length a peer announces, at most: more is believed when it comes.
const ANNOUNCED_MAX: u64 = 1 << 20;
/// Characters of a refusing body that an error shows.
const SNIPPET_CHARS_MAX: usize = 120;

/// Why no whole answer came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// Nothing listens there.
    #[error("nothing answers ({0}): is it running?")]
    Connect(String),
    /// TLS could not be agreed on.
    #[error("TLS fails ({cause}): {remedy}")]
    Tls {
        /// What the library or the peer says.
        cause: String,
        /// What to do.
        remedy: &'static str,
    },
    /// No whole answer in time.
    #[error("no whole answer in time")]
    Timeout,
    /// Redirects without end.
    #[error("more than {REDIRECTS_MAX} redirects")]
    Redirects,
    /// A redirect away from the host that was named, or out of TLS.
    #[error("redirects to `{0}`, which is not followed: name that address if it is meant")]
    Elsewhere(String),
    /// The answer ended early.
    #[error("the answer was cut after {bytes} bytes ({cause})")]
    Cut {
        /// Bytes that came.
        bytes: usize,
        /// What the connection says.
        cause: String,
    },
    /// More than the limit.
    #[error("the answer is over {limit} bytes, the limit")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The address or the answer breaks HTTP.
    #[error("cannot ask: {0}")]
    Http(String),
}

impl TransportError {
    /// What an error of sending means.
    #[must_use]
    pub fn of(error: &reqwest::Error) -> Self {
        let cause = innermost(error);
        if error.is_timeout() {
            Self::Timeout
        } else if let Some(Elsewhere(place)) = find(error) {
            Self::Elsewhere(place.clone())
        } else if error.is_redirect() {
            Self::Redirects
        } else if let Some(tls) = find(error) {
            Self::Tls { cause, remedy: tls_remedy(tls) }
        } else if closed_at_once(error) {
            Self::Tls { cause: CLOSED_AT_ONCE.to_owned(), remedy: ASKS_FOR_CERTIFICATE }
        } else if error.is_connect() {
            Self::Connect(cause)
        } else {
            Self::Http(cause)
        }
    }
}

/// What a peer did that refuses a client of TLS 1.3 for want of a certificate, where its alert is not read.
const CLOSED_AT_ONCE: &str = "it closed the connection after the handshake";
const ASKS_FOR_CERTIFICATE: &str =
    "does it ask for a client certificate (`tls.cert_file`, `tls.key_file`)?";

/// Whether a TLS connection was closed before the request left it. The client of TLS 1.3 has finished its
/// handshake by then, and the alert that says why may come second.
fn closed_at_once(error: &reqwest::Error) -> bool {
    let is_tls = error.url().is_some_and(|url| url.scheme() == "https");
    is_tls && find::<hyper::Error>(error).is_some_and(hyper::Error::is_canceled)
}

/// Where a redirect led that is not followed. A stranger's answer is no answer of the source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Elsewhere(String);

/// Follows redirects on one host and never out of TLS: a peer does not choose whom weir talks to.
pub(super) fn within_the_host() -> Policy {
    Policy::custom(|attempt: Attempt<'_>| -> Action {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error("too many");
        }
        let Some(first) = attempt.previous().first() else { return attempt.follow() };
        let next = attempt.url();
        let same_host = next.host_str() == first.host_str();
        if same_host && (next.scheme() == "https" || first.scheme() != "https") {
            return attempt.follow();
        }
        let host = next.host_str().unwrap_or_default();
        let place = if same_host { format!("http://{host}") } else { host.to_owned() };
        attempt.error(Elsewhere(place))
    })
}

/// The whole body, up to `limit` bytes: what a peer announces or compresses does not matter.
///
/// # Errors
/// [`TransportError::Cut`], [`TransportError::TooLarge`], or [`TransportError::Timeout`] when the
/// request has a limit of its own.
pub async fn whole_body(response: &mut Response, limit: usize) -> Result<Vec<u8>, TransportError> {
    let announced = response.content_length().unwrap_or_default().min(ANNOUNCED_MAX);
    let mut body = Vec::with_capacity(usize::try_from(announced).unwrap_or_default());
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) if error.is_timeout() => return Err(TransportError::Timeout),
            Err(error) => {
                return Err(TransportError::Cut { bytes: body.len(), cause: innermost(&error) });
            }
        }
        if body.len() > limit {
            return Err(TransportError::TooLarge { limit });
        }
    }
}

/// The beginning of a refusing body as one line, for an error.
pub(super) fn snippet(body: &[u8]) -> String {
    let head = &body[..body.len().min(4 * SNIPPET_CHARS_MAX)];
    let words: Vec<_> =
        String::from_utf8_lossy(head).split_whitespace().map(str::to_owned).collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(SNIPPET_CHARS_MAX).collect()
}

/// The last cause of an error, which is what the system or the peer said.
pub(super) fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// The first cause of a type. What an I/O error wraps is not its source, and it may wrap another.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut cause = error.source();
    while let Some(found) = cause {
        if let Some(wanted) = found.downcast_ref() {
            return Some(wanted);
        }
        cause = match found.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => found.source(),
        };
    }
    None
}

fn tls_remedy(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
    match error {
        Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "name the authority that signed its certificate in `tls.ca_file`"
        }
        Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "name the host as its certificate does, or that name in `tls.server_name`",
        Error::InvalidCertificate(_) => "its certificate has to be renewed",
        Error::AlertReceived(
            Alert::CertificateRequired | Alert::BadCertificate | Alert::HandshakeFailure,
        ) => ASKS_FOR_CERTIFICATE,
        Error::AlertReceived(_) => "does it know the authority of `tls.cert_file`?",
        Error::InvalidMessage(_) => "does it speak TLS, or is it http://?",
        _ => "are address and certificates those of this source?",
    }
}
