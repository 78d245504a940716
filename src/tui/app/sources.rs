//! How the sources stand: which one is the gateway, whether it is down, and its errors in few words.

use crate::ingest::SourceStatus;
use crate::signal::Snapshot;
use crate::tui::app::Model;

/// Good scrapes after which a source has said everything that it ever says.
const SETTLED_AFTER: u64 = 3;
/// Characters of a host that an error shows.
const HOST_MAX: usize = 24;
/// What a gateway is called unless its numbers have named it.
pub const GATEWAY: &str = "gateway";

/// Whether a source does not answer now.
#[must_use]
pub const fn is_down(source: &SourceStatus) -> bool {
    source.error.is_some()
}

/// The error of a source without its name in front, with its address shortened and without the
/// system's number for it, so that the reason stands where a line is not yet cut.
#[must_use]
pub fn short_error(source: &SourceStatus) -> Option<String> {
    let error = source.error.as_deref()?;
    let short = if source.url.is_empty() {
        error.to_owned()
    } else {
        error.replace(&source.url, &address(&source.url))
    };
    Some(short_reason(&short, &source.name))
}

/// An error without the name of what it is about in front, and without the system's number for it.
#[must_use]
pub fn short_reason(error: &str, name: &str) -> String {
    let bare = error.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(error);
    without_number(bare)
}

/// Words of the system without the number that stands behind them: ` (os error 111)`.
fn without_number(text: &str) -> String {
    let cut = text.split_once(" (os error ").and_then(|(before, rest)| {
        let (number, after) = rest.split_once(')')?;
        number.parse::<i32>().is_ok().then(|| format!("{before}{after}"))
    });
    cut.unwrap_or_else(|| text.to_owned())
}

/// Host and port of an address.
fn address(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    // Whoever reads the screen may not know a password that stands in an address.
    let host = host.rsplit('@').next().unwrap_or(host);
    host.chars().take(HOST_MAX).collect()
}

/// The source whose numbers are zeros that nobody counted.
///
/// A gateway creates some counters with their first event, and a reader takes none of them for none
/// happened. A process that counts no offered request is no gateway, and its zeros say nothing.
#[must_use]
pub fn hollow(snapshot: &Snapshot) -> Option<&str> {
    let counted = snapshot.get("offered_rps").or_else(|| snapshot.get("originals_rps"));
    let lazy = snapshot.get("shed_rps")?;
    counted.is_none_or(|counted| counted.source != lazy.source).then(|| lazy.source.as_ref())
}

impl Model {
    /// The gateway among the sources that are shown.
    #[must_use]
    pub fn gateway(&self) -> Option<&SourceStatus> {
        let name = self.gateway_name.as_deref().unwrap_or(GATEWAY);
        self.shown()?.observation.sources.iter().find(|source| source.name == name)
    }

    /// Whether the gateway is a source and does not answer.
    #[must_use]
    pub fn is_gateway_down(&self) -> bool {
        self.gateway().is_some_and(is_down)
    }

    /// Whether a source answers with metrics of which none is a gateway's.
    #[must_use]
    pub fn is_foreign(&self, source: &SourceStatus) -> bool {
        let Some(update) = self.shown() else { return false };
        let scopes = &update.observation.scopes;
        let has_settled = source.last_good.is_some()
            && !is_down(source)
            && source.polls.saturating_sub(source.failures) >= SETTLED_AFTER
            && !scopes.is_empty();
        if !has_settled {
            return false;
        }
        let is_hollow = |snapshot: &Snapshot| hollow(snapshot) == Some(source.name.as_str());
        let speaks = |snapshot: &Snapshot| {
            snapshot.signals.values().any(|reading| *reading.source == *source.name)
        };
        let is_gateway = self.gateway().is_some_and(|gateway| gateway.name == source.name);
        scopes.iter().any(|snapshot| is_hollow(snapshot))
            || is_gateway && !scopes.iter().any(|snapshot| speaks(snapshot))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::signal::Value;

    fn source(url: &str, error: &str) -> SourceStatus {
        SourceStatus {
            name: "gateway".to_owned(),
            url: url.to_owned(),
            via: None,
            last_good: None,
            stale_after_s: 3.0,
            error: Some(error.to_owned()),
            degraded: Vec::new(),
            warnings: Vec::new(),
            instances: (1, 1),
            took_s: 0.0,
            samples: 0,
            polls: 1,
            failures: 1,
        }
    }

    #[test]
    fn errors_lose_what_the_line_says_already() {
        let check = |url: &str, error: &str, expected: &str| {
            assert_eq!(short_error(&source(url, error)).as_deref(), Some(expected));
        };
        let url = "http://127.0.0.1:9000/metrics";
        let error = "gateway: nothing answers at http://127.0.0.1:9000/metrics (refused)";
        check(url, error, "nothing answers at 127.0.0.1:9000 (refused)");
        check(url, "gateway: answered HTTP 503", "answered HTTP 503");
        check("", "odd", "odd");
        let error = "gateway: at http://127.0.0.1:9000/metrics (refused (os error 111)): why?";
        check(url, error, "at 127.0.0.1:9000 (refused): why?");
        check("", "odd (os error x)", "odd (os error x)");
        let secret = "https://me:word@gw.example/metrics?x=1";
        check(secret, &format!("at {secret}: no"), "at gw.example: no");
    }

    #[test]
    fn zeros_of_a_process_that_counts_nothing_are_hollow() {
        let (gateway, other): (Arc<str>, Arc<str>) = (Arc::from("gateway"), Arc::from("other"));
        let mut snapshot = Snapshot::new("", 10.0);
        assert_eq!(hollow(&snapshot), None);
        snapshot.set("shed_rps", Value::Number(0.0), &other);
        assert_eq!(hollow(&snapshot), Some("other"));
        snapshot.set("offered_rps", Value::Number(3.0), &gateway);
        assert_eq!(hollow(&snapshot), Some("other"));
        snapshot.set("shed_rps", Value::Number(0.0), &gateway);
        assert_eq!(hollow(&snapshot), None);
    }
}
