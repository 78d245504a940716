//! Which words are names, and what stands in their place.

use std::collections::BTreeMap;

use crate::flag::wire::SnapshotBody;
use crate::incident::recording::line::{
    AlertsLine, AnsweredLine, EventLine, FailedLine, Header, InstancesLine, Line, MarksLine,
    ScrapeLine, SeriesLine, ShownLine, SourceLine, Told,
};
use crate::incident::recording::names::text_of;
use crate::ingest::exposition::{Format, parse};
use serde_json::Value as Json;

use super::texts::{REMOVED, Words, event, hosts};

/// Labels whose values come out of programs and name nobody.
const KEPT_LABELS: &[&str] = &[
    "action",
    "asked",
    "attempt",
    "cause",
    "class",
    "code",
    "decision",
    "direction",
    "envoy_response_code",
    "envoy_response_code_class",
    "error_code",
    "error_type",
    "evidence",
    "exception_class",
    "exception_status",
    "finished_reason",
    "flag",
    "from",
    "gen_ai_operation_name",
    "gen_ai_token_type",
    "handler",
    "kind",
    "lane",
    "layer",
    "le",
    "meter",
    "method",
    "mode",
    "outcome",
    "phase",
    "quantile",
    "reason",
    "request_type",
    "response_source",
    "result",
    "severity",
    "source",
    "stage",
    "state",
    "status",
    "status_code",
    "status_class",
    "store",
    "to",
    "token_type",
    "type",
    "unit",
    "version",
    "window",
];
/// Labels whose names are words of their own for what they name.
const WORDS: &[(&str, &str)] = &[
    ("tenant", "tenant"),
    ("team", "tenant"),
    ("team_alias", "tenant"),
    ("consumer", "tenant"),
    ("user", "tenant"),
    ("end_user", "tenant"),
    ("customer", "tenant"),
    ("org", "tenant"),
    ("api_key", "key"),
    ("api_key_alias", "key"),
    ("hashed_api_key", "key"),
    ("key", "key"),
    ("virtual_key", "key"),
    ("virtual_key_name", "key"),
    ("virtual_key_id", "key"),
    ("instance", "host"),
    ("host", "host"),
    ("hostname", "host"),
    ("pod", "host"),
    ("node", "host"),
    ("server", "host"),
    ("endpoint", "host"),
    ("url", "host"),
    ("api_base", "host"),
    ("scope", "scope"),
    ("model", "model"),
    ("model_id", "model"),
    ("model_name", "model"),
];
/// Names that everybody's are called, of sources, environments and listeners.
const COMMON: &[&str] = &[
    "admin",
    "gateway",
    "provider",
    "clients",
    "weir",
    "litellm",
    "envoy",
    "production",
    "staging",
    "drill",
    "dev",
    "development",
    "test",
    "virtual",
];
/// What adapters tell the paths of an API by, and a path of which nothing else is left.
const API: &str = "/v1/";
const API_PATH: &str = "/v1/path";
/// Facts of a drill, which name nobody.
const KEPT_FACTS: &[&str] = &["scenario", "seed", "onset_s", "seconds", "clock"];

/// The names of one recording with their pseudonyms.
#[derive(Debug)]
pub struct Mask {
    words: Words,
    own_adapters: Vec<String>,
}

impl Mask {
    /// Knows the names in a header.
    pub fn new(header: &Header) -> Self {
        let mut mask = Self { words: Words::default(), own_adapters: Vec::new() };
        if !is_common(&header.environment) {
            mask.words.name("environment", &header.environment);
        }
        for source in &header.sources {
            if !is_common(&source.name) {
                mask.words.name("source", &source.name);
            }
            for host in hosts(&source.url).into_iter().chain(source.via.clone()) {
                mask.words.name("host", &host);
            }
            if source.adapter_file.is_some() {
                mask.own_adapters.push(mask.words.name("adapter", &source.adapter));
            }
        }
        mask
    }

    /// What was replaced and what was not, for a person.
    pub fn said(&self) -> Vec<String> {
        let mut said: Vec<String> = self
            .words
            .counts()
            .map(|(kind, count)| format!("{count} {kind} names replaced"))
            .collect();
        said.push("texts that a person typed are taken out".to_owned());
        said.push("metric and label names, amounts and times are as they were".to_owned());
        said.extend(
            self.own_adapters
                .iter()
                .map(|name| format!("the file of {name} is kept word for word: read it")),
        );
        said
    }

    /// Takes note of the names in a line.
    pub fn learn(&mut self, line: &Line) {
        match line {
            Line::Instances(line) => {
                for name in line.names.iter().filter(|name| !name.is_empty()) {
                    self.words.name("host", name);
                }
            }
            Line::Series(line) => {
                for name in &line.names {
                    self.series(name);
                }
            }
            Line::Failed(line) | Line::Undiscovered(line) | Line::Unanswered(line) => {
                for host in hosts(&line.why) {
                    self.words.name("host", &host);
                }
            }
            Line::Answered(line) => groups(&line.answers, &mut |label, value| {
                self.label(label, value);
            }),
            Line::Shown(line) => {
                for body in &line.scopes {
                    self.label("scope", &body.scope);
                }
            }
            Line::Event(EventLine { told: Told::Verdict { scope, .. }, .. }) => {
                self.label("scope", scope);
            }
            Line::Alerts(line) => {
                for (label, value) in line.alerts.iter().flat_map(|alert| &alert.labels) {
                    self.label(label, value);
                }
            }
            _ => {}
        }
    }

    /// The line without names.
    pub fn line(&mut self, line: Line) -> Line {
        match line {
            Line::Recording(header) => Line::Recording(Box::new(self.header(*header))),
            Line::Instances(line) => {
                let names = line.names.iter().map(|name| self.instance(name)).collect();
                Line::Instances(InstancesLine { names, ..line })
            }
            Line::Series(line) => {
                let i = self.instance(&line.i);
                let names = line.names.iter().map(|name| self.series(name)).collect();
                Line::Series(SeriesLine { i, names, ..line })
            }
            Line::Marks(line) => {
                let i = self.instance(&line.i);
                let names = line.names.iter().map(|name| self.series(name)).collect();
                Line::Marks(MarksLine { i, names, ..line })
            }
            Line::Scrape(line) => {
                let i = self.instance(&line.i);
                // A line that nobody could read may say anything. One bad line is like another.
                let bad = line.bad.iter().map(|_| "!".to_owned()).collect();
                Line::Scrape(ScrapeLine { i, bad, ..line })
            }
            Line::Undiscovered(line) => Line::Undiscovered(self.failed(&line)),
            Line::Failed(line) => Line::Failed(self.failed(&line)),
            Line::Unanswered(line) => Line::Unanswered(self.failed(&line)),
            Line::Answered(line) => {
                let answers = self.answers(line.answers);
                Line::Answered(AnsweredLine { answers, ..line })
            }
            Line::Shown(line) => {
                let scopes = line.scopes.into_iter().map(|body| self.shown(body)).collect();
                Line::Shown(ShownLine { scopes, ..line })
            }
            Line::Event(line) => Line::Event(EventLine { told: self.told(line.told), ..line }),
            Line::Alerts(line) => Line::Alerts(Box::new(self.alerts(*line))),
            line @ (Line::Look(_) | Line::LeftOut(_)) => line,
        }
    }

    fn header(&mut self, header: Header) -> Header {
        let facts = header.facts.into_iter().filter(|(key, _)| KEPT_FACTS.contains(&key.as_str()));
        Header {
            title: self.words.hide(&header.title),
            environment: self.words.exact(&header.environment),
            facts: facts.map(|(key, value)| (key, self.words.hide(&value))).collect(),
            sources: header.sources.into_iter().map(|source| self.source(source)).collect(),
            ..header
        }
    }

    fn source(&self, source: SourceLine) -> SourceLine {
        let scheme = source.url.split_once("://").map_or("http", |(scheme, _)| scheme);
        let host = hosts(&source.url).first().map(|host| self.words.exact(host));
        SourceLine {
            name: self.words.exact(&source.name),
            url: format!("{scheme}://{}/", host.unwrap_or_else(|| "host".to_owned())),
            via: source.via.map(|via| self.words.exact(&via)),
            adapter: self.words.exact(&source.adapter),
            ..source
        }
    }

    fn failed(&self, line: &FailedLine) -> FailedLine {
        FailedLine { i: self.instance(&line.i), why: self.words.hide(&line.why), ..*line }
    }

    fn instance(&self, name: &str) -> String {
        self.words.exact(name)
    }

    /// A series' text with other label values; learns those that are new.
    fn series(&mut self, name: &str) -> String {
        let line = format!("{name} 0\n");
        let mut found = None;
        let _ = parse(line.as_bytes(), Format::Text, |sample| {
            let labels = sample.labels.iter().map(|(l, v)| (l.to_string(), v.to_string()));
            found = Some((sample.name.to_string(), labels.collect::<Vec<_>>()));
        });
        let Some((metric, labels)) = found else { return "unreadable".to_owned() };
        let labels = labels.into_iter().map(|(label, value)| {
            let value =
                if is_of_flag(&metric, &label) { value } else { self.label(&label, &value) };
            (label, value)
        });
        let labels: Vec<_> = labels.collect();
        text_of(&metric, labels)
    }

    /// What stands for the value of a label.
    fn label(&mut self, label: &str, value: &str) -> String {
        if is_common(value) || KEPT_LABELS.contains(&label) {
            return value.to_owned();
        }
        if value.contains(API) {
            return self.words.name(API_PATH, value);
        }
        let known = WORDS.iter().find(|(name, _)| *name == label);
        let kind = known.map_or(label, |(_, word)| word);
        self.words.name(kind, value)
    }

    fn answers(&mut self, mut answers: Json) -> Json {
        let Some(object) = answers.as_object_mut() else { return Json::Null };
        for (key, value) in object.iter_mut() {
            match key.as_str() {
                "present" | "groups" | "newborn" => self.rename_groups(value),
                "silent" | "caveat" | "warnings" => self.words.hide_all(value),
                _ => {}
            }
        }
        answers
    }

    fn rename_groups(&mut self, metrics: &mut Json) {
        let groups = metrics.as_object_mut().into_iter().flatten();
        let rows = groups.filter_map(|(_, rows)| rows.as_array_mut()).flatten();
        for label in rows.filter_map(|row| row.get_mut(0)?.as_array_mut()).flatten() {
            if let Some([name, value]) = label.as_array_mut().map(Vec::as_mut_slice)
                && let (Some(name), Some(text)) = (name.as_str(), value.as_str())
            {
                *value = Json::from(self.label(name, text));
            }
        }
    }

    fn shown(&mut self, body: SnapshotBody) -> SnapshotBody {
        let signals = body.signals.into_iter().map(|(name, mut row)| {
            self.words.exact_all(&mut row.value);
            row.source = self.words.exact(&row.source);
            row.note = None;
            (name, row)
        });
        let signals: BTreeMap<_, _> = signals.collect();
        SnapshotBody { scope: self.label("scope", &body.scope), signals, ..body }
    }

    fn told(&mut self, told: Told) -> Told {
        match told {
            Told::Journal(entry) => Told::Journal(event(entry, &mut self.words)),
            Told::Verdict { scope, cause, standing } => {
                Told::Verdict { scope: self.label("scope", &scope), cause, standing }
            }
            Told::Notice(text) => Told::Notice(self.words.hide(&text)),
        }
    }

    fn alerts(&mut self, line: AlertsLine) -> AlertsLine {
        let mut line = AlertsLine {
            source: self.words.hide(&line.source),
            error: line.error.map(|error| self.words.hide(&error)),
            ..line
        };
        for alert in &mut line.alerts {
            alert.name = self.words.name("alert", &alert.name);
            alert.id = self.words.name("id", &alert.id);
            alert.summary = None;
            let labels = std::mem::take(&mut alert.labels).into_iter();
            alert.labels = labels
                .map(|(name, value)| {
                    let value = self.label(&name, &value);
                    (name, value)
                })
                .collect();
            for id in &mut alert.silenced_by {
                *id = self.words.name("id", id);
            }
        }
        for silence in &mut line.silences {
            silence.id = self.words.name("id", &silence.id);
            silence.by = self.words.name("person", &silence.by);
            REMOVED.clone_into(&mut silence.comment);
            silence.matchers.clear();
        }
        line
    }
}

/// Whether a label says which of weir's own flags it is about, or how that stands.
fn is_of_flag(metric: &str, label: &str) -> bool {
    metric.starts_with("weir_flag") && matches!(label, "key" | "value" | "overridden")
}

fn is_common(name: &str) -> bool {
    name.is_empty() || COMMON.contains(&name)
}

/// Every label with its value in the answers of a query API.
fn groups(answers: &Json, each: &mut impl FnMut(&str, &str)) {
    for key in ["present", "groups", "newborn"] {
        let metrics = answers.get(key).and_then(Json::as_object).into_iter().flatten();
        let rows = metrics.filter_map(|(_, rows)| rows.as_array()).flatten();
        for label in rows.filter_map(|row| row.get(0)?.as_array()).flatten() {
            if let (Some(name), Some(value)) =
                (label.get(0).and_then(Json::as_str), label.get(1).and_then(Json::as_str))
            {
                each(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_adapters_select_by_stays_and_the_rest_is_a_name() {
        let mut mask = Mask::new(&Header::default());
        for (series, expected) in [
            (
                "a{path=\"/acme/v1/embeddings\",status=\"429\"}",
                "a{path=\"/v1/path-1\",status=\"429\"}",
            ),
            ("b{tenant=\"acme\",lane=\"batch\"}", "b{tenant=\"tenant-1\",lane=\"batch\"}"),
            ("c{consumer=\"acme\",le=\"+Inf\"}", "c{consumer=\"tenant-1\",le=\"+Inf\"}"),
            (
                "d{envoy_http_conn_manager_prefix=\"admin\"}",
                "d{envoy_http_conn_manager_prefix=\"admin\"}",
            ),
            (
                "weir_flag_info{key=\"cache.enabled\",value=\"false\"}",
                "weir_flag_info{key=\"cache.enabled\",value=\"false\"}",
            ),
            ("e{shard=\"acme-eu\"}", "e{shard=\"shard-1\"}"),
            ("f{model_id=\"\"}", "f{model_id=\"\"}"),
            ("no name", "unreadable"),
        ] {
            assert_eq!(mask.series(series), expected);
        }
    }
}
