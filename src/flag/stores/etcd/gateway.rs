//! etcd's v3 JSON gateway: log-in, one call at a time, and what an answer means.
//!
//! The gateway leaves out empty fields, writes 64-bit numbers as strings, keys and values in base64,
//! and refuses a call without a log-in with 400 ([reference](https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/)).

use std::fmt;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::flag::store::StoreError;

use super::super::http::{Client, Token, answer};

/// How etcd is told who asks.
#[derive(Clone, Debug)]
pub enum EtcdLogin {
    /// Not at all: etcd's authentication is off.
    None,
    /// As this user of etcd's [own authentication](https://etcd.io/docs/v3.4/op-guide/authentication/).
    Password {
        /// The user, who needs `readwrite` on the namespace.
        user: String,
        /// The user's password.
        password: Token,
    },
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// No answer, or a broken one: etcd may have done it.
    Unanswered(String),
    /// An answer that says no, in etcd's words.
    Refused { status: StatusCode, why: String },
    /// A good status around something else: etcd may have done it.
    Unreadable(String),
}

impl Failure {
    /// Whether etcd certainly did nothing. A 429 is not among these: etcd answers with it when its space
    /// runs out, also for a transaction that it has just carried out.
    pub(super) fn nothing_done(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if matches!(status.as_u16(), 400 | 401 | 403 | 404))
    }

    /// Whether the session is no longer known. etcd forgets its sessions when it restarts, after five
    /// minutes without a call, and when users or roles are changed.
    fn is_lost_session(&self) -> bool {
        const WORDS: [&str; 3] = ["invalid auth token", "user name is empty", "auth store is old"];
        matches!(self, Self::Refused { why, .. } if WORDS.iter().any(|words| why.contains(words)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(why) | Self::Refused { why, .. } | Self::Unreadable(why) => {
                f.write_str(why)
            }
        }
    }
}

/// One etcd, logged in where that is wanted.
#[derive(Debug)]
pub(super) struct Gateway {
    name: String,
    client: Client,
    login: EtcdLogin,
    session: Mutex<Option<Token>>,
}

impl Gateway {
    /// Sends nothing yet.
    pub(super) fn new(base_url: &str, login: EtcdLogin) -> Result<Self, StoreError> {
        const WHAT: &str = "etcd's client port";
        let client = Client::new(base_url, WHAT, "http://127.0.0.1:2379", &Token::new(""))?;
        let name = format!("etcd {}", client.place());
        Ok(Self { name, client, login, session: Mutex::new(None) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Asks for what may be asked again: a lost session is replaced, once.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        what: &'static str,
        path: &str,
        body: &Value,
    ) -> Result<T, StoreError> {
        let fail = |failure| self.error(what, failure);
        if matches!(self.login, EtcdLogin::Password { .. }) && self.session().is_none() {
            self.log_in().await.map_err(fail)?;
        }
        match self.send(path, body).await {
            Err(failure) if failure.is_lost_session() => {
                self.log_in().await.map_err(fail)?;
                self.send(path, body).await.map_err(fail)
            }
            answered => answered.map_err(fail),
        }
    }

    /// Sends once, with the session at hand.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, Failure> {
        let mut request = self.client.request(Method::POST, path).json(body);
        if let Some(session) = self.session() {
            request = request.header(http::header::AUTHORIZATION, session.text());
        }
        let (status, body) = answer(request).await.map_err(Failure::Unanswered)?;
        if status != StatusCode::OK {
            return Err(Failure::Refused { status, why: refusal(status, &body) });
        }
        serde_json::from_slice(&body).map_err(|error| Failure::Unreadable(error.to_string()))
    }

    async fn log_in(&self) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Session {
            token: String,
        }
        let EtcdLogin::Password { user, password } = &self.login else { return Ok(()) };
        self.keep(None);
        let body = json!({ "name": user, "password": password.text() });
        let Session { token } = self.send("/v3/auth/authenticate", &body).await?;
        self.keep(Some(Token::new(&token)));
        Ok(())
    }

    fn session(&self) -> Option<Token> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, session: Option<Token>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }

    fn error(&self, what: &'static str, failure: Failure) -> StoreError {
        let store = self.name.clone();
        match failure {
            Failure::Unanswered(why) => StoreError::Unreachable { store, why },
            Failure::Refused { status, why } => {
                StoreError::Refused { store, status: status.as_u16(), why }
            }
            Failure::Unreadable(why) => StoreError::Malformed { store, what, why },
        }
    }

    /// Something under a key that weir did not write like this.
    pub(super) fn malformed(&self, what: &'static str, key: &str, why: &str) -> StoreError {
        let why = format!("`{key}`: {why}; put it right, or delete it with `etcdctl del {key}`");
        StoreError::Malformed { store: self.name.clone(), what, why }
    }
}

/// A refusal in etcd's words, with what to do where weir knows it.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let said = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let Some(message) = said.get("message").or_else(|| said.get("error")).and_then(Value::as_str)
    else {
        return match status.as_u16() {
            404 => {
                "nothing at this address; is it etcd 3.4 or newer, and its client port?".to_owned()
            }
            _ => format!("HTTP {status} without an explanation"),
        };
    };
    let remedy = if message.contains("user name is empty") {
        "; this etcd wants a log-in: give weir a user and a password"
    } else if message.contains("permission denied") {
        "; the user needs `readwrite` on weir's namespace: `etcdctl role grant-permission`"
    } else if message.contains("authentication is not enabled") {
        "; this etcd knows no users: give weir no log-in"
    } else {
        ""
    };
    format!("{message}{remedy}")
}

/// Text for a key or a value.
pub(super) fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// The head of every answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Header {
    /// The cluster's revision after the call.
    #[serde(default, deserialize_with = "number")]
    pub revision: u64,
}

/// One key with its value.
#[derive(Debug, Deserialize)]
pub(super) struct KeyValue {
    #[serde(deserialize_with = "text")]
    pub key: String,
    #[serde(default, deserialize_with = "text")]
    pub value: String,
    /// The cluster's revision when it was last put.
    #[serde(default, deserialize_with = "number")]
    pub mod_revision: u64,
}

/// The answer to one range.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Range {
    #[serde(default)]
    pub kvs: Vec<KeyValue>,
    /// The limit has cut it.
    #[serde(default)]
    pub more: bool,
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct Transacted {
    pub header: Header,
    #[serde(default)]
    pub succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Debug, Deserialize)]
struct Response {
    #[serde(default, alias = "responseRange")]
    response_range: Option<Range>,
}

impl Transacted {
    /// What its ranges found, in order.
    pub(super) fn ranges(self) -> impl Iterator<Item = Range> {
        self.responses.into_iter().map(|response| response.response_range.unwrap_or_default())
    }
}

/// A lease as granted, or as it stands.
#[derive(Debug, Deserialize)]
pub(super) struct Lease {
    /// Its id, 64 bits in decimal.
    #[serde(rename = "ID", deserialize_with = "digits")]
    pub id: String,
    /// Seconds that it has left; -1 when there is no such lease (any more).
    #[serde(rename = "TTL", default, deserialize_with = "signed")]
    pub ttl_s: i64,
}

/// A 64-bit number, which JSON made a string of.
#[derive(Deserialize)]
#[serde(untagged)]
enum Wide {
    Text(String),
    Number(i64),
}

fn signed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    match Wide::deserialize(deserializer)? {
        Wide::Text(text) => text.parse().map_err(D::Error::custom),
        Wide::Number(number) => Ok(number),
    }
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    u64::try_from(signed(deserializer)?).map_err(D::Error::custom)
}

fn digits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    signed(deserializer).map(|number| number.to_string())
}

/// Text that is not UTF-8 can only be somebody else's; it is kept apart by its replacement characters.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let encoded = String::deserialize(deserializer)?;
    let bytes = STANDARD.decode(encoded).map_err(D::Error::custom)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_and_wide_numbers_are_read() {
        let check = |text: &str| serde_json::from_str::<Transacted>(text).expect("an answer");
        let stale = check(r#"{"header":{"revision":"3"},"responses":[{"response_range":{}}]}"#);
        assert!(!stale.succeeded);
        assert!(stale.ranges().all(|range| range.kvs.is_empty()));
        let kv = r#"{"key":"eA==","mod_revision":"9007199254740993"}"#;
        let found = check(&format!(
            r#"{{"header":{{}},"succeeded":true,"responses":[{{"responseRange":{{"kvs":[{kv}]}}}}]}}"#
        ));
        assert_eq!((found.succeeded, found.header.revision), (true, 0));
        let kvs: Vec<KeyValue> = found.ranges().flat_map(|range| range.kvs).collect();
        assert_eq!((kvs[0].key.as_str(), kvs[0].value.as_str()), ("x", ""));
        assert_eq!(kvs[0].mod_revision, 9_007_199_254_740_993);
        let gone: Lease = serde_json::from_str(r#"{"ID":"-5","TTL":"-1"}"#).expect("a lease");
        assert_eq!((gone.id.as_str(), gone.ttl_s), ("-5", -1));
    }

    #[test]
    fn refusals_are_in_etcds_words_with_a_remedy() {
        let check = |status: u16, body: &str, words: &str, nothing_done: bool| {
            let status = StatusCode::from_u16(status).expect("a status");
            let failure = Failure::Refused { status, why: refusal(status, body.as_bytes()) };
            assert!(failure.to_string().contains(words), "{failure}");
            assert_eq!(failure.nothing_done(), nothing_done, "{status}");
        };
        let both = r#"{"error":"etcdserver: user name is empty","message":"etcdserver: user name is empty","code":3}"#;
        check(400, both, "give weir a user and a password", true);
        check(403, r#"{"message":"etcdserver: permission denied"}"#, "`readwrite`", true);
        check(401, r#"{"error":"etcdserver: invalid auth token"}"#, "invalid auth token", true);
        check(404, "404 page not found", "3.4 or newer", true);
        check(429, r#"{"error":"etcdserver: mvcc: database space exceeded"}"#, "space", false);
        check(503, "<html>", "without an explanation", false);
    }
}
