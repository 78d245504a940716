//! `[gateway.tls]` and `[gateway.transport]`: certificates, limits and patience of the sockets. Opens none.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::config::ConfigError;

/// The bounds of [`TransportConfig::head_max`]: no client works with less, nobody means more.
const HEAD_MAX_BOUNDS: std::ops::RangeInclusive<usize> = 8 * 1024..=1024 * 1024;
/// Longest time that any key of the table takes: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// How long a load balancer has to see that this instance leaves, where one can be in front of it.
const NOTICE: Duration = Duration::from_secs(5);

/// `[gateway.tls]`: the certificate that the data plane shows. It is read anew when a file changes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Certificate chain in PEM, the gateway's own first.
    pub cert_file: PathBuf,
    /// Its private key in PEM, without a password.
    pub key_file: PathBuf,
}

/// `[gateway.transport]`. Every key has a default that fits a load balancer in front and a model API
/// behind.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransportConfig {
    /// Seconds that a client's connection may take for the head of its next request, idle time
    /// included. Keep it above the idle time of the load balancer in front.
    pub head_timeout_s: f64,
    /// Largest head of a request in bytes, from 8192 to 1048576; a larger one is answered with 431.
    pub head_max: usize,
    /// Connections of clients at once; more wait to be taken. Unless it is given, three quarters of the
    /// descriptors that the process may open: the provider's and the admin plane's need the rest.
    pub connections_max: Option<usize>,
    /// Requests at once on one HTTP/2 connection of a client.
    pub streams_max: u32,
    /// Seconds for which a caller may take nothing of its answer; then its connection is cut.
    pub write_timeout_s: f64,
    /// Seconds that the provider may be silent in the middle of an answer; then it is broken off.
    pub stream_idle_timeout_s: f64,
    /// Seconds for one connection to the provider, name and TLS included.
    pub connect_timeout_s: f64,
    /// Seconds that an idle connection to the provider is kept; below what its server keeps it.
    pub upstream_idle_s: f64,
    /// Seconds between the word that this instance leaves (`/readyz` says 503) and the end of its
    /// listener: 5, and 0 where it listens on loopback.
    pub notice_s: Option<f64>,
    /// Seconds that requests at the provider may take to finish after that.
    pub drain_s: f64,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            head_timeout_s: 75.0,
            head_max: 64 * 1024,
            connections_max: None,
            streams_max: 256,
            write_timeout_s: 60.0,
            stream_idle_timeout_s: 300.0,
            connect_timeout_s: 5.0,
            upstream_idle_s: 20.0,
            notice_s: None,
            drain_s: 30.0,
        }
    }
}

impl TransportConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`ConfigError`] names the key and what is allowed.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for (key, seconds, least) in [
            ("head_timeout_s", self.head_timeout_s, 0.05),
            ("write_timeout_s", self.write_timeout_s, 0.05),
            ("stream_idle_timeout_s", self.stream_idle_timeout_s, 0.05),
            ("connect_timeout_s", self.connect_timeout_s, 0.05),
            ("upstream_idle_s", self.upstream_idle_s, 0.0),
            ("notice_s", self.notice_s.unwrap_or(0.0), 0.0),
            ("drain_s", self.drain_s, 0.0),
        ] {
            if !(least..=SECONDS_MAX).contains(&seconds) {
                let message = format!("{seconds} is not from {least} to {SECONDS_MAX}");
                return Err(wrong(key, message, "write seconds"));
            }
        }
        if !HEAD_MAX_BOUNDS.contains(&self.head_max) {
            let (least, most) = HEAD_MAX_BOUNDS.into_inner();
            let message = format!("{} is not from {least} to {most}", self.head_max);
            return Err(wrong("head_max", message, "write bytes"));
        }
        if self.connections_max == Some(0) {
            return Err(wrong("connections_max", "0 serve nobody".to_owned(), "write 1 or more"));
        }
        if self.streams_max == 0 {
            return Err(wrong("streams_max", "0 requests are none".to_owned(), "write 1 or more"));
        }
        Ok(())
    }

    /// [`Self::head_timeout_s`].
    #[must_use]
    pub fn head_timeout(&self) -> Duration {
        seconds(self.head_timeout_s)
    }

    /// [`Self::write_timeout_s`].
    #[must_use]
    pub fn write_timeout(&self) -> Duration {
        seconds(self.write_timeout_s)
    }

    /// [`Self::stream_idle_timeout_s`].
    #[must_use]
    pub fn stream_idle_timeout(&self) -> Duration {
        seconds(self.stream_idle_timeout_s)
    }

    /// [`Self::connect_timeout_s`].
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        seconds(self.connect_timeout_s)
    }

    /// [`Self::upstream_idle_s`].
    #[must_use]
    pub fn upstream_idle(&self) -> Duration {
        seconds(self.upstream_idle_s)
    }

    /// [`Self::notice_s`] of an instance that listens on `address`: no load balancer asks a loopback
    /// for its health, and a shell on it should not wait.
    #[must_use]
    pub fn notice(&self, address: IpAddr) -> Duration {
        let unsaid = if address.is_loopback() { Duration::ZERO } else { NOTICE };
        self.notice_s.map_or(unsaid, seconds)
    }

    /// [`Self::drain_s`].
    #[must_use]
    pub fn drain(&self) -> Duration {
        seconds(self.drain_s)
    }
}

fn wrong(key: &str, message: String, remedy: &str) -> ConfigError {
    ConfigError::new(format!("gateway.transport.{key}"), message, remedy)
}

/// Seconds that were checked.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_on_both_sides() {
        let check = |text: &str| {
            let config: TransportConfig = toml::from_str(text).expect("well-formed");
            config.check().map_err(|error| error.to_string())
        };
        for right in [
            "",
            "head_max = 8192",
            "head_max = 1048576",
            "drain_s = 0",
            "streams_max = 1",
            "connections_max = 1",
        ] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for (text, expected) in [
            ("head_max = 8191", "`gateway.transport.head_max`: 8191 is not from 8192 to 1048576"),
            ("head_max = 1048577", "is not from 8192"),
            ("streams_max = 0", "write 1 or more"),
            ("connections_max = 0", "`gateway.transport.connections_max`: 0 serve nobody"),
            ("drain_s = -1", "`gateway.transport.drain_s`: -1 is not from 0 to 86400"),
            ("drain_s = 86401", "is not from 0"),
            ("connect_timeout_s = 0", "is not from 0.05"),
            ("stream_idle_timeout_s = nan", "is not from 0.05"),
            ("notice_s = -0.5", "`gateway.transport.notice_s`"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn only_where_a_load_balancer_can_be_there_is_notice() {
        let notice = |text: &str, address: [u8; 4]| {
            let config: TransportConfig = toml::from_str(text).expect("well-formed");
            config.notice(address.into())
        };
        assert_eq!(notice("", [127, 0, 0, 1]), Duration::ZERO);
        assert_eq!(notice("", [0, 0, 0, 0]), NOTICE);
        assert_eq!(notice("notice_s = 1", [127, 0, 0, 1]), Duration::from_secs(1));
        assert_eq!(notice("notice_s = 0", [10, 0, 0, 1]), Duration::ZERO);
    }
}
