//! Who may do what on the admin plane: bearer tokens, each with a name, a role and a rate of its own.
//! Knows no route and no flag.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::{ConfigError, GatewayConfig};
use super::secrets::{from_environment, from_file};
use crate::admission::Bucket;
use crate::signal::Mono;

/// Requests a second that all strangers together may make: enough to see a wrong token, too few to
/// look for a right one.
const STRANGERS_PER_S: f64 = 50.0;
/// Part of its rate that a token may spend at once.
const BURST: Duration = Duration::from_secs(2);

/// What a token allows; each role includes the ones before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Flags, events, originals, snapshots and plans: changes nothing.
    Read,
    /// Flags are changed and notes written, within the interlocks.
    Flip,
    /// Interlocks are passed, with a reason that is kept.
    BreakGlass,
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Flip => "flip",
            Self::BreakGlass => "break-glass",
        })
    }
}

/// One `[[gateway.admin_token]]` of `weir.toml`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminTokenConfig {
    /// Its name, which the audit keeps with every change that came with it.
    pub name: String,
    /// Environment variable that holds the token.
    pub token_env: Option<String>,
    /// The same in a file.
    pub token_file: Option<std::path::PathBuf>,
    /// What it allows: read, flip or break-glass.
    pub role: Role,
}

/// Whose request it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The token's name.
    pub name: Arc<str>,
    /// What it allows.
    pub role: Role,
}

/// Why a request is not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No token, or an unknown one.
    Unknown,
    /// The token's rate is spent.
    TooOften {
        /// The token; none for strangers.
        name: Option<Arc<str>>,
        /// Until the next request is looked at.
        wait: Duration,
    },
    /// The token's role does not include it.
    Role {
        /// Whose request it is.
        who: Who,
        /// What it takes.
        needs: Role,
    },
}

/// How often requests to the admin plane were refused.
#[derive(Debug, Default)]
pub struct RefusedCounts {
    unauthorized: AtomicU64,
    forbidden: AtomicU64,
    rate_limited: AtomicU64,
}

impl RefusedCounts {
    fn count(&self, denied: &Denied) {
        let counter = match denied {
            Denied::Unknown => &self.unauthorized,
            Denied::Role { .. } => &self.forbidden,
            Denied::TooOften { .. } => &self.rate_limited,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts by reason, in one order.
    #[must_use]
    pub fn read(&self) -> [(&'static str, u64); 3] {
        [
            ("unauthorized", self.unauthorized.load(Ordering::Relaxed)),
            ("forbidden", self.forbidden.load(Ordering::Relaxed)),
            ("rate_limited", self.rate_limited.load(Ordering::Relaxed)),
        ]
    }
}

struct Token {
    who: Who,
    /// The secret's hash: two hashes are compared in constant time, whatever was sent.
    hash: blake3::Hash,
    left: Mutex<Bucket>,
}

/// The tokens of the admin plane.
pub struct Tokens {
    known: Vec<Token>,
    strangers: Mutex<Bucket>,
    /// Passes interlocks beside another token.
    second: Option<blake3::Hash>,
    /// The first token, for whoever started the gateway.
    first: String,
    refused: RefusedCounts,
}

impl Tokens {
    /// Reads them all; the first one is made where none is named.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn of(config: &GatewayConfig) -> Result<Self, ConfigError> {
        let first = match &config.admin_token_env {
            Some(variable) => from_environment("gateway.admin_token_env", variable)?,
            None => uuid::Uuid::new_v4().simple().to_string(),
        };
        let per_s = config.admin_requests_per_s;
        let mut tokens = Self {
            known: vec![Token::new("admin", Role::Flip, &first, per_s)],
            strangers: allowance(STRANGERS_PER_S),
            second: None,
            first,
            refused: RefusedCounts::default(),
        };
        for (index, entry) in config.admin_tokens.iter().enumerate() {
            let key = |last: &str| format!("gateway.admin_token[{index}].{last}");
            let (last, secret) = one_of(
                key,
                ("token_env", entry.token_env.as_deref()),
                ("token_file", entry.token_file.as_deref()),
            )?
            .ok_or_else(|| {
                let remedy = "name a variable that holds it, or write `token_file`";
                ConfigError::new(key("token_env"), "is missing", remedy)
            })?;
            if tokens.named(&entry.name) {
                let message = format!("`{}` is the name of another token", entry.name);
                let remedy = "give every token a name of its own; the audit keeps it";
                return Err(ConfigError::new(key("name"), message, remedy));
            }
            if tokens.knows(&secret) {
                let message = "is the same token as another one";
                return Err(ConfigError::new(key(last), message, "make another token"));
            }
            tokens.known.push(Token::new(&entry.name, entry.role, &secret, per_s));
        }
        let second = one_of(
            |last| format!("gateway.{last}"),
            ("break_glass_token_env", config.break_glass_token_env.as_deref()),
            ("break_glass_token_file", config.break_glass_token_file.as_deref()),
        )?;
        if let Some((last, secret)) = second {
            if tokens.knows(&secret) {
                let message = "is an admin token; passing interlocks takes a second identity";
                let key = format!("gateway.{last}");
                return Err(ConfigError::new(key, message, "make another token"));
            }
            tokens.second = Some(hash(&secret));
        }
        Ok(tokens)
    }

    /// The first token, for whoever started the gateway.
    #[must_use]
    pub fn first(&self) -> &str {
        &self.first
    }

    /// Whose request it is, when the token that came with it allows what `needs` says.
    ///
    /// # Errors
    /// [`Denied`], counted.
    pub fn who(&self, given: &str, needs: Role, now: Mono) -> Result<Who, Denied> {
        let given = hash(given);
        // Every token is compared, wherever the right one stands.
        let mut found = None;
        for token in &self.known {
            found = if token.hash == given { Some(token) } else { found };
        }
        let judged = match found {
            None => match spend(&self.strangers, now) {
                Ok(()) => Err(Denied::Unknown),
                Err(wait) => Err(Denied::TooOften { name: None, wait }),
            },
            Some(token) => match spend(&token.left, now) {
                Err(wait) => {
                    Err(Denied::TooOften { name: Some(Arc::clone(&token.who.name)), wait })
                }
                Ok(()) if token.who.role < needs => {
                    Err(Denied::Role { who: token.who.clone(), needs })
                }
                Ok(()) => Ok(token.who.clone()),
            },
        };
        judged.inspect_err(|denied| self.refused.count(denied))
    }

    /// Whether this is the second token; `None` when there is none.
    #[must_use]
    pub fn is_second(&self, given: &str) -> Option<bool> {
        self.second.map(|second| second == hash(given))
    }

    /// Refused requests so far.
    #[must_use]
    pub const fn refused(&self) -> &RefusedCounts {
        &self.refused
    }

    fn named(&self, name: &str) -> bool {
        self.known.iter().any(|token| &*token.who.name == name)
    }

    fn knows(&self, secret: &str) -> bool {
        let secret = hash(secret);
        self.known.iter().any(|token| token.hash == secret)
    }
}

impl Token {
    fn new(name: &str, role: Role, secret: &str, per_s: f64) -> Self {
        let who = Who { name: Arc::from(name), role };
        Self { who, hash: hash(secret), left: allowance(per_s) }
    }
}

fn hash(secret: &str) -> blake3::Hash {
    blake3::hash(secret.as_bytes())
}

/// The secret from the variable or the file, and by which key; none without either.
fn one_of(
    key: impl Fn(&str) -> String,
    (env, variable): (&'static str, Option<&str>),
    (file, path): (&'static str, Option<&std::path::Path>),
) -> Result<Option<(&'static str, String)>, ConfigError> {
    match (variable, path) {
        (Some(_), Some(_)) => {
            let message = format!("stands beside `{file}`");
            Err(ConfigError::new(key(env), message, "keep one of the two"))
        }
        (Some(variable), None) => Ok(Some((env, from_environment(&key(env), variable)?))),
        (None, Some(path)) => Ok(Some((file, from_file(&key(file), path)?))),
        (None, None) => Ok(None),
    }
}

/// A full allowance of this many requests a second.
fn allowance(per_s: f64) -> Mutex<Bucket> {
    Mutex::new(Bucket::full(per_s, BURST, Mono::START))
}

/// Takes one request, or says how long until there is one.
fn spend(allowance: &Mutex<Bucket>, now: Mono) -> Result<(), Duration> {
    let mut left = allowance.lock().unwrap_or_else(PoisonError::into_inner);
    // A rate above zero refills every amount.
    let wait = left.wait(1.0, 0.0, now).unwrap_or(Duration::MAX);
    if wait.is_zero() {
        left.take(1.0, now);
        return Ok(());
    }
    Err(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    fn tokens() -> Tokens {
        Tokens {
            known: vec![
                Token::new("screens", Role::Read, "r", 10.0),
                Token::new("admin", Role::Flip, "f", 10.0),
                Token::new("safe", Role::BreakGlass, "g", 10.0),
            ],
            strangers: allowance(STRANGERS_PER_S),
            second: Some(hash("second")),
            first: "f".to_owned(),
            refused: RefusedCounts::default(),
        }
    }

    #[test]
    fn a_role_includes_the_ones_before_it_and_no_other() {
        let tokens = tokens();
        for (given, allowed) in [("r", Role::Read), ("f", Role::Flip), ("g", Role::BreakGlass)] {
            for needs in [Role::Read, Role::Flip, Role::BreakGlass] {
                let judged = tokens.who(given, needs, at(0.0));
                assert_eq!(judged.is_ok(), needs <= allowed, "{given} for {needs}: {judged:?}");
            }
        }
        assert_eq!(tokens.who("", Role::Read, at(0.0)), Err(Denied::Unknown));
        assert_eq!(tokens.who("second", Role::Read, at(0.0)), Err(Denied::Unknown));
        assert_eq!(
            tokens.refused().read(),
            [("unauthorized", 2), ("forbidden", 3), ("rate_limited", 0)]
        );
    }

    #[test]
    fn one_token_spends_its_own_rate_and_no_other_s() {
        let tokens = tokens();
        let ask = |given, now| tokens.who(given, Role::Read, at(now));
        let allowed = (0..100).filter(|_| ask("r", 5.0).is_ok()).count();
        assert_eq!(allowed, 20, "two seconds of ten a second");
        assert!(ask("f", 5.0).is_ok());
        let Err(Denied::TooOften { name: Some(name), wait }) = ask("r", 5.0) else {
            panic!("it is spent")
        };
        assert_eq!((&*name, wait.as_millis()), ("screens", 100));
        assert!(ask("r", 5.11).is_ok(), "and comes back");
        let guesses = (0..1_000).filter(|_| ask("x", 5.0) == Err(Denied::Unknown)).count();
        assert_eq!(guesses, 100, "all strangers together");
        assert!(ask("f", 5.0).is_ok(), "and nobody else pays for them");
    }
}
