//! Which words are names, and what stands in their place. What is not known to name nobody is a name.

use std::collections::{BTreeMap, BTreeSet};

use crate::flag::wire::SnapshotBody;
use crate::incident::recording::line::{
    AlertsLine, AnsweredLine, EventLine, FailedLine, Header, InstancesLine, Line, MarksLine,
    ScrapeLine, SeriesLine, ShownLine, SourceLine, Told,
};
use crate::incident::recording::names::text_of;
use crate::ingest::exposition::{Format, parse};
use serde_json::Value as Json;

use super::labels::{is_common, kind, stays};
use super::texts::{REMOVED, Words, event, hosts};

/// Facts of a drill, which name nobody.
const KEPT_FACTS: &[&str] = &["scenario", "seed", "onset_s", "seconds", "clock"];

/// The names of one recording with their pseudonyms.
#[derive(Debug)]
pub struct Mask {
    words: Words,
    /// Values of labels that stay.
    kept: BTreeSet<String>,
    own_adapters: Vec<String>,
}

impl Mask {
    /// Knows the names in a header.
    pub fn new(header: &Header) -> Self {
        let mut mask =
            Self { words: Words::default(), kept: BTreeSet::new(), own_adapters: Vec::new() };
        mask.named("environment", &header.environment);
        for source in &header.sources {
            mask.named("source", &source.name);
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
                for name in &line.names {
                    self.named("host", name);
                }
            }
            Line::Series(SeriesLine { i, names, .. }) | Line::Marks(MarksLine { i, names, .. }) => {
                self.named("host", i);
                for name in names {
                    self.series(name);
                }
            }
            Line::Scrape(line) => {
                self.named("host", &line.i);
            }
            Line::Failed(line) | Line::Undiscovered(line) | Line::Unanswered(line) => {
                self.named("host", &line.i);
                self.hosts_in(&line.why);
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
                self.named("source", &line.source);
                self.hosts_in(line.error.as_deref().unwrap_or_default());
                for (label, value) in line.alerts.iter().flat_map(|alert| &alert.labels) {
                    self.named(kind(label, value), value);
                }
            }
            Line::Recording(_)
            | Line::Look(_)
            | Line::Event(_)
            | Line::AlertsAgain(_)
            | Line::LeftOut(_) => {}
        }
    }

    fn hosts_in(&mut self, text: &str) {
        for host in hosts(text) {
            self.words.name("host", &host);
        }
    }

    /// What stands for a name of this kind.
    fn named(&mut self, kind: &str, name: &str) -> String {
        if is_common(name) { name.to_owned() } else { self.words.name(kind, name) }
    }

    /// The line without names.
    pub fn line(&mut self, line: Line) -> Line {
        match line {
            Line::Recording(header) => Line::Recording(Box::new(self.header(*header))),
            Line::Instances(line) => {
                let names = line.names.iter().map(|name| self.named("host", name)).collect();
                Line::Instances(InstancesLine { names, ..line })
            }
            Line::Series(line) => {
                let i = self.named("host", &line.i);
                let names = line.names.iter().map(|name| self.series(name)).collect();
                Line::Series(SeriesLine { i, names, ..line })
            }
            Line::Marks(line) => {
                let i = self.named("host", &line.i);
                let names = line.names.iter().map(|name| self.series(name)).collect();
                Line::Marks(MarksLine { i, names, ..line })
            }
            Line::Scrape(line) => {
                let i = self.named("host", &line.i);
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
            line @ (Line::Look(_) | Line::AlertsAgain(_) | Line::LeftOut(_)) => line,
        }
    }

    fn header(&mut self, header: Header) -> Header {
        let facts = header.facts.into_iter().filter(|(key, _)| KEPT_FACTS.contains(&key.as_str()));
        Header {
            title: self.words.hide(&header.title),
            environment: self.named("environment", &header.environment),
            facts: facts.map(|(key, value)| (key, self.words.hide(&value))).collect(),
            sources: header.sources.into_iter().map(|source| self.source(source)).collect(),
            ..header
        }
    }

    fn source(&mut self, source: SourceLine) -> SourceLine {
        let scheme = source.url.split_once("://").map_or("http", |(scheme, _)| scheme);
        let host = hosts(&source.url).first().map(|host| self.words.name("host", host));
        SourceLine {
            name: self.named("source", &source.name),
            url: format!("{scheme}://{}/", host.unwrap_or_else(|| "host".to_owned())),
            via: source.via.map(|via| self.words.name("host", &via)),
            // Only its own file makes it a name: the others ship with weir.
            adapter: self.words.exact(&source.adapter),
            ..source
        }
    }

    fn failed(&mut self, line: &FailedLine) -> FailedLine {
        FailedLine { i: self.named("host", &line.i), why: self.words.hide(&line.why), ..*line }
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
            if is_of_flag(&metric, &label) {
                self.kept.insert(value.clone());
                return (label, value);
            }
            let value = self.label(&label, &value);
            (label, value)
        });
        let labels: Vec<_> = labels.collect();
        text_of(&metric, labels)
    }

    /// What stands for the value of a label.
    fn label(&mut self, label: &str, value: &str) -> String {
        if stays(label, value) {
            self.kept.insert(value.to_owned());
            return value.to_owned();
        }
        self.named(kind(label, value), value)
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
            self.value(&mut row.value);
            row.source = self.named("source", &row.source);
            row.note = None;
            (name, row)
        });
        let signals: BTreeMap<_, _> = signals.collect();
        SnapshotBody { scope: self.label("scope", &body.scope), signals, ..body }
    }

    /// A signal's value: what it is counted by, and words that stand on no kept label.
    fn value(&mut self, value: &mut Json) {
        match value {
            Json::String(text) if self.kept.contains(text) => {}
            Json::String(text) => *text = self.named("word", text),
            Json::Array(list) => list.iter_mut().for_each(|one| self.value(one)),
            Json::Object(map) => {
                let renamed = std::mem::take(map).into_iter().map(|(key, mut one)| {
                    self.value(&mut one);
                    (self.words.exact(&key), one)
                });
                *map = renamed.collect();
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
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
            source: self.named("source", &line.source),
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
                    // A person chose these labels: none of them stays.
                    let value = self.named(kind(&name, &value), &value);
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
                "a{handler=\"/acme/v1/x\",source=\"acme\",to=\"acme\",type=\"acme\"}",
                "a{handler=\"/v1/path-1\",source=\"source-1\",to=\"source-1\",type=\"source-1\"}",
            ),
            ("a{source=\"own\",to=\"open\"}", "a{source=\"own\",to=\"open\"}"),
            ("a{reason=\"/acme\"}", "a{reason=\"reason-1\"}"),
            (
                "a{path=\"/acme/v1/embeddings\",status=\"429\"}",
                "a{path=\"/v1/path-2\",status=\"429\"}",
            ),
            ("b{tenant=\"acme\",lane=\"batch\"}", "b{tenant=\"source-1\",lane=\"batch\"}"),
            ("c{consumer=\"acme\",le=\"+Inf\"}", "c{consumer=\"source-1\",le=\"+Inf\"}"),
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
