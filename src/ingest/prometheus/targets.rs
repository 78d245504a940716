//! What a server says about its targets: how often it scrapes them, and why it cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;

use crate::signal::Labels;

/// Characters of a target's error that are shown.
const ERROR_CHARS_MAX: usize = 160;
/// Label of the job that scrapes a target.
const JOB: &str = "job";
/// Label that names a target.
pub(super) const INSTANCE: &str = "instance";

/// The active targets of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Targets {
    #[serde(default)]
    active_targets: Vec<Target>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    last_error: String,
    #[serde(default)]
    scrape_interval: String,
    #[serde(default)]
    discovered_labels: BTreeMap<String, String>,
}

impl Targets {
    /// The longest scrape interval among these jobs.
    #[must_use]
    pub fn interval(&self, jobs: &BTreeSet<String>) -> Option<Duration> {
        let targets = self.active_targets.iter();
        let of_job =
            |target: &&Target| target.labels.get(JOB).is_some_and(|job| jobs.contains(job));
        targets.filter(of_job).filter_map(Target::interval).max()
    }

    /// Why the target with these labels cannot be scraped, as far as the server says.
    #[must_use]
    pub fn error_of(&self, labels: &Labels) -> Option<String> {
        let is_it = |target: &&Target| {
            let named = target.labels.iter();
            named.clone().all(|(name, value)| labels.get(name) == Some(value))
                && target.labels.contains_key(INSTANCE)
        };
        let target = self.active_targets.iter().find(is_it)?;
        (!target.last_error.is_empty()).then(|| shortened(&target.last_error))
    }
}

impl Target {
    fn interval(&self) -> Option<Duration> {
        let discovered = self.discovered_labels.get("__scrape_interval__");
        let text = discovered.map_or(self.scrape_interval.as_str(), String::as_str);
        go_duration(text).filter(|interval| !interval.is_zero())
    }
}

/// `1m30s` as Prometheus writes it.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit_s = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit_s).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    Some(total)
}

/// Without the `Get "http://...": ` that Go puts in front: the target is named already.
fn shortened(error: &str) -> String {
    let reason = error.strip_prefix("Get \"").and_then(|rest| rest.split_once("\": "));
    let reason = reason.map_or(error, |(_, reason)| reason);
    reason.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::super::answer::parse;
    use super::*;

    const FACT: &str = include_str!("../../../tests/data/prometheus/targets-litellm-down.json");

    #[test]
    fn a_real_server_says_interval_and_error() {
        let targets: Targets = parse(FACT.as_bytes()).expect("read").data;
        let jobs = BTreeSet::from(["litellm".to_owned()]);
        assert_eq!(targets.interval(&jobs), Some(Duration::from_secs(2)));
        assert_eq!(targets.interval(&BTreeSet::new()), None);
        let jobs = BTreeSet::from(["no such job".to_owned()]);
        assert_eq!(targets.interval(&jobs), None);
        let labels = |job: &str, instance: &str| -> Labels {
            [("__name__", "up"), ("job", job), ("instance", instance)].into_iter().collect()
        };
        for (labels, expected) in [
            (
                labels("dead", "127.0.0.1:41999"),
                Some("dial tcp 127.0.0.1:41999: connect: connection refused"),
            ),
            (
                labels("litellm", "127.0.0.1:41400"),
                Some("dial tcp 127.0.0.1:41400: connect: connection refused"),
            ),
            (labels("dead", "127.0.0.1:1"), None),
        ] {
            assert_eq!(targets.error_of(&labels).as_deref(), expected, "{labels:?}");
        }
    }

    #[test]
    fn durations_are_read_as_prometheus_writes_them() {
        for (text, expected_ms) in [
            ("15s", Some(15_000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("1.5s", Some(1_500)),
            ("1h0m0s", Some(3_600_000)),
            ("", Some(0)),
            ("15", None),
            ("s", None),
            ("1y", None),
            ("99999999999999999999h", None),
        ] {
            let got = go_duration(text).map(|duration| duration.as_millis());
            assert_eq!(got, expected_ms, "{text}");
        }
    }
}
