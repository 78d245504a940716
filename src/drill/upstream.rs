//! A provider that is not simulated, and what a drill may spend there. Checks it; sends nothing.
//!
//! On this machine requests cost nothing. Anywhere else the file states a budget of requests and of
//! money, and the person types it before anything starts.

use http::Uri;
use serde::Deserialize;

use super::budget::ATTEMPTS_MAX;
use crate::sim::config::ConfigError;

const ORIGIN: &str = "http://HOST[:PORT] or https://HOST[:PORT]; the path is a key of its own";
const ELSEWHERE: &str =
    "requests to another machine need budget_requests, budget_usd and usd_per_million_tokens";

/// `[upstream]` of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Scheme, host and port.
    pub url: String,
    /// Environment variable that holds the provider's key.
    pub key_env: Option<String>,
    /// The model that every request names.
    pub model: String,
    /// Where requests go.
    #[serde(default = "default_path")]
    pub path: String,
    /// The price of input, in US dollars.
    pub usd_per_million_tokens: Option<f64>,
    /// Most requests that may reach the provider.
    pub budget_requests: Option<u64>,
    /// Most money that may be spent, in US dollars.
    pub budget_usd: Option<f64>,
}

fn default_path() -> String {
    "/v1/embeddings".to_owned()
}

impl Upstream {
    /// Refuses what cannot be sent to, and a budget that is missing or cannot be kept.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let origin = self.origin();
        let origin =
            origin.ok_or_else(|| no("url", format!("`{}` is no origin", self.url), ORIGIN))?;
        if self.model.is_empty() {
            return Err(no("model", "it is empty", "the name of a model at the provider"));
        }
        let path = self.path.parse::<Uri>().ok().filter(|path| path.host().is_none());
        if !path.is_some_and(|path| {
            path.path().starts_with("/v1/") && path.path().ends_with("/embeddings")
        }) {
            let problem = format!("`{}` is not for embeddings", self.path);
            return Err(no(
                "path",
                problem,
                "a path from /v1/ to /embeddings: answers must cost nothing",
            ));
        }
        self.check_budget()?;
        if is_loopback(&origin) {
            return Ok(());
        }
        if self.key_env.is_some() && origin.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Err(no(
                "url",
                "the key would travel unencrypted",
                "https:// to another machine",
            ));
        }
        for (key, is_there) in [
            ("budget_requests", self.budget_requests.is_some()),
            ("budget_usd", self.budget_usd.is_some()),
            ("usd_per_million_tokens", self.usd_per_million_tokens.is_some()),
        ] {
            if !is_there {
                return Err(no(
                    key,
                    format!("missing, and {} costs money", self.host()),
                    ELSEWHERE,
                ));
            }
        }
        Ok(())
    }

    fn check_budget(&self) -> Result<(), ConfigError> {
        if let Some(requests) = self.budget_requests.filter(|requests| *requests < ATTEMPTS_MAX) {
            let allowed = "4 or more: the gate may try one request that often";
            return Err(no("budget_requests", format!("{requests} is too few"), allowed));
        }
        for (key, usd, is_free_allowed) in [
            ("budget_usd", self.budget_usd, false),
            ("usd_per_million_tokens", self.usd_per_million_tokens, true),
        ] {
            let is_right =
                |usd: f64| usd.is_finite() && (usd > 0.0 || is_free_allowed && usd == 0.0);
            if let Some(usd) = usd.filter(|usd| !is_right(*usd)) {
                let allowed = "US dollars above 0; a price may be 0";
                return Err(no(key, format!("{usd} is out of bounds"), allowed));
            }
        }
        if self.budget_usd.is_some() && self.usd_per_million_tokens.is_none() {
            let problem = "missing, so budget_usd cannot be kept";
            return Err(no("usd_per_million_tokens", problem, "add the price of a million tokens"));
        }
        Ok(())
    }

    /// Whether it lies on this machine, where requests cost nothing.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.origin().is_some_and(|origin| is_loopback(&origin))
    }

    /// Host and port, for people.
    #[must_use]
    pub fn host(&self) -> String {
        let authority = self.origin().and_then(|origin| origin.into_parts().authority);
        authority.map_or_else(|| self.url.clone(), |authority| authority.to_string())
    }

    /// The budget as the person types it: `500 requests 2 USD`. `None` where none is stated.
    #[must_use]
    pub fn budget_words(&self) -> Option<String> {
        Some(format!("{} requests {} USD", self.budget_requests?, self.budget_usd?))
    }

    /// The URL, if it is nothing but an origin. Credentials in it would end in a file.
    fn origin(&self) -> Option<Uri> {
        let uri: Uri = self.url.parse().ok()?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let names_nobody = !uri.authority()?.as_str().contains('@');
        (is_http && is_bare && names_nobody).then_some(uri)
    }
}

fn no(key: &str, problem: impl Into<String>, allowed: &'static str) -> ConfigError {
    ConfigError { key: key.to_owned(), problem: problem.into(), allowed }
}

/// Whether a URL names this machine by its loopback addresses. Anything else counts as elsewhere.
#[must_use]
pub fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let ip = host.parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: &str = "budget_requests = 500\nbudget_usd = 2\nusd_per_million_tokens = 0.02";

    fn parse(text: &str) -> Upstream {
        toml::from_str(&format!("model = 'm'\n{text}")).expect("the text fits the types")
    }

    /// The key that is refused, if any.
    fn check(text: &str, expected: Option<&str>) {
        let refused = parse(text).check().err().map(|error| error.key);
        assert_eq!(refused.as_deref(), expected, "{text}");
    }

    #[test]
    fn loopback_needs_no_budget_and_keeps_the_one_it_states() {
        for url in ["http://127.0.0.1:9", "http://localhost:9/", "https://[::1]:9"] {
            check(&format!("url = '{url}'"), None);
            check(&format!("url = '{url}'\nkey_env = 'KEY'\nbudget_requests = 4"), None);
            check(&format!("url = '{url}'\nbudget_requests = 3"), Some("budget_requests"));
            check(&format!("url = '{url}'\nbudget_usd = 1"), Some("usd_per_million_tokens"));
        }
    }

    #[test]
    fn another_machine_needs_the_whole_budget() {
        let elsewhere = "url = 'https://api.example.com'";
        check(&format!("{elsewhere}\n{BUDGET}"), None);
        for key in ["budget_requests", "budget_usd", "usd_per_million_tokens"] {
            let lines = BUDGET.lines().filter(|line| !line.starts_with(key));
            let without = lines.collect::<Vec<_>>().join("\n");
            check(&format!("{elsewhere}\n{without}"), Some(key));
        }
        for (from, to, key) in [
            ("= 500", "= 0", "budget_requests"),
            ("budget_usd = 2", "budget_usd = 0", "budget_usd"),
            ("budget_usd = 2", "budget_usd = inf", "budget_usd"),
            ("0.02", "-0.02", "usd_per_million_tokens"),
            ("0.02", "nan", "usd_per_million_tokens"),
        ] {
            check(&format!("{elsewhere}\n{}", BUDGET.replacen(from, to, 1)), Some(key));
        }
        for url in ["http://127.0.0.1.example.com", "http://0.0.0.0:9", "http://127.1"] {
            check(&format!("url = '{url}'"), Some("budget_requests"));
        }
        check(&format!("url = 'http://api.example.com'\nkey_env = 'KEY'\n{BUDGET}"), Some("url"));
    }

    #[test]
    fn only_an_origin_and_embeddings_are_sent_to() {
        for url in ["", "api.example.com", "ftp://x", "https://x/v1", "https://x?a=b", "http://k@x"]
        {
            check(&format!("url = '{url}'"), Some("url"));
        }
        check("url = 'http://127.0.0.1@api.example.com'", Some("url"));
        let path = |path: &str| format!("url = 'http://127.0.0.1:9'\npath = '{path}'");
        check(&path("/v1/engines/m/embeddings"), None);
        for costs in ["/v1/chat/completions", "/v1/responses", "/embeddings", "", "v1/embeddings"] {
            check(&path(costs), Some("path"));
        }
    }

    #[test]
    fn the_budget_is_typed_as_a_person_would() {
        let words = |text: &str| parse(&format!("url = 'http://localhost'\n{text}")).budget_words();
        assert_eq!(words(BUDGET).as_deref(), Some("500 requests 2 USD"));
        let half = BUDGET.replace("budget_usd = 2", "budget_usd = 0.5");
        assert_eq!(words(&half).as_deref(), Some("500 requests 0.5 USD"));
        assert_eq!(words("budget_requests = 500"), None);
    }
}
