//! Asks an Alertmanager (API v2) for its alerts and silences. Reads only.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::ACCEPT;
use thiserror::Error;

use super::access::{Access, AccessError};
use super::alerts::{Alert, Alerts, Silence, read_alerts, read_silences};
use super::transport::{TransportError, whole_body};
use crate::signal::Mono;

/// Limit of one request, unless set otherwise.
pub const ALERT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer: a flood of alerts is megabytes.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Characters of what a refusing answer says.
const SAID_CHARS_MAX: usize = 120;

/// Why there is no answer. Every message begins with the name of the Alertmanager.
#[derive(Debug, Error)]
pub enum AlertmanagerError {
    /// The HTTP client could not be built.
    #[error("{name}: {cause}")]
    Client {
        /// Its name.
        name: String,
        /// Why.
        cause: AccessError,
    },
    /// No whole answer.
    #[error("{name}: at {url}: {cause}")]
    Transport {
        /// Its name.
        name: String,
        /// What was asked.
        url: String,
        /// Why.
        cause: TransportError,
    },
    /// No answer in time.
    #[error("{name}: no whole answer within {} ms", limit.as_millis())]
    Timeout {
        /// Its name.
        name: String,
        /// The limit.
        limit: Duration,
    },
    /// Another status than 200.
    #[error("{name}: answered HTTP {status}{}{}", said(words), remedy(*status))]
    Status {
        /// Its name.
        name: String,
        /// The status.
        status: u16,
        /// What it says.
        words: String,
    },
    /// No list of alerts.
    #[error("{name}: {url} is no list of the v2 API ({cause}): is that an Alertmanager?")]
    NotAlerts {
        /// Its name.
        name: String,
        /// What was asked.
        url: String,
        /// Why not.
        cause: serde_json::Error,
    },
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(" ({words})") }
}

const fn remedy(status: u16) -> &'static str {
    match status {
        401 | 403 => ": set `token_env` or `basic` of this Alertmanager",
        404 => ": is its address the one without /api/v2, with its route prefix?",
        _ => "",
    }
}

/// One Alertmanager. Connections are kept between looks.
#[derive(Clone, Debug)]
pub struct Alertmanager {
    name: Arc<str>,
    base: String,
    access: Access,
    client: reqwest::Client,
    timeout: Duration,
}

impl Alertmanager {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// One at `url`, its address without `/api/v2`.
    ///
    /// # Errors
    /// When the HTTP client cannot be built.
    pub fn new(
        name: &str,
        url: &str,
        access: Access,
        timeout: Duration,
    ) -> Result<Self, AlertmanagerError> {
        let client = access
            .client()
            .map_err(|cause| AlertmanagerError::Client { name: name.to_owned(), cause })?;
        let base = url.trim_end_matches('/').to_owned();
        Ok(Self { name: Arc::from(name), base, access, client, timeout })
    }

    /// Alerts that fire, are silenced or inhibited, and how many could not be understood.
    ///
    /// # Errors
    /// When there is no answer, or it is no list.
    pub async fn alerts(&self) -> Result<(Vec<Alert>, usize), AlertmanagerError> {
        let query = "alerts?active=true&silenced=true&inhibited=true&unprocessed=true";
        self.list(query, read_alerts).await
    }

    /// Silences that are not over, and how many could not be understood.
    ///
    /// # Errors
    /// When there is no answer, or it is no list.
    pub async fn silences(&self) -> Result<(Vec<Silence>, usize), AlertmanagerError> {
        self.list("silences", read_silences).await
    }

    /// Both, as of `now`, which is asked for when the answers are there.
    ///
    /// # Errors
    /// When one of them fails.
    pub async fn look(&self, now: impl Fn() -> Mono) -> Result<Alerts, AlertmanagerError> {
        let (alerts, silences) = tokio::try_join!(self.alerts(), self.silences())?;
        let unread = alerts.1 + silences.1;
        Ok(Alerts::new(&self.name, alerts.0, silences.0, unread, now()))
    }

    async fn list<T>(
        &self,
        query: &str,
        read: fn(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<T, AlertmanagerError> {
        let url = format!("{}/api/v2/{query}", self.base);
        let name = || self.name.to_string();
        let body = tokio::time::timeout(self.timeout, self.get(&url)).await;
        let body =
            body.map_err(|_| AlertmanagerError::Timeout { name: name(), limit: self.timeout })??;
        read(&body).map_err(|cause| AlertmanagerError::NotAlerts { name: name(), url, cause })
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, AlertmanagerError> {
        let transport = |cause: TransportError| AlertmanagerError::Transport {
            name: self.name.to_string(),
            url: url.to_owned(),
            cause,
        };
        let request = self.client.get(url).header(ACCEPT, "application/json");
        let answer = self.access.apply(request).send().await;
        let mut answer = answer.map_err(|error| transport(TransportError::of(&error)))?;
        let body = whole_body(&mut answer, BODY_BYTES_MAX).await.map_err(transport)?;
        let status = answer.status().as_u16();
        if status == 200 {
            return Ok(body);
        }
        let name = self.name.to_string();
        Err(AlertmanagerError::Status { name, status, words: words_of(&body) })
    }
}

/// What a refusing answer says: a JSON object with a message, a bare JSON string, or plain text.
fn words_of(body: &[u8]) -> String {
    let text = match serde_json::from_slice(body) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(json) => json["message"].as_str().unwrap_or_default().to_owned(),
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    };
    let plain = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_in_each_of_its_forms() {
        let check = |body: &str, expected: &str| assert_eq!(words_of(body.as_bytes()), expected);
        check(r#"{"code":601,"message":"bad filter"}"#, "bad filter");
        check(r#""bad matcher format: x""#, "bad matcher format: x");
        check("<html>\nno", "<html> no");
        check("{}", "");
        check("", "");
    }
}
