//! Runs the tests of a runbook: series or a recording in, and the path, evidence, ranking and offers
//! that must come out. Opens no file and reads no clock; time is that of what goes in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::admission::FlagValue;
use crate::diagnosis::{Diagnoser, Facts, Library, Step, Truth};
use crate::incident::recording::Replay;
use crate::signal::parse_duration;
use crate::signal::{Mono, Snapshot, Value};

use super::blocks::line_of;
use super::read::flag_value;
use super::series::expand;
use super::walk::{Offer, View, Walk};

/// Most steps of one walk in a test.
const MAX_STEPS: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    runbook: String,
    interval: Option<Spanned<String>>,
    #[serde(default)]
    case: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    flags: BTreeMap<String, toml::Value>,
    #[serde(default)]
    series: BTreeMap<String, Spanned<String>>,
    recording: Option<Spanned<String>>,
    scope: Option<String>,
    expect: Vec<Expect>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    at: Spanned<String>,
    #[serde(default)]
    flags: BTreeMap<String, toml::Value>,
    path: Option<Vec<String>>,
    #[serde(default)]
    evidence: BTreeMap<String, String>,
    #[serde(default)]
    rank: Vec<String>,
    offer: Option<String>,
    allow: Option<String>,
    refuse: Option<String>,
}

/// A test file that could be read.
#[derive(Debug)]
pub struct TestFile {
    name: String,
    text: String,
    file: File,
}

/// What did not come out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `file:line`.
    pub place: String,
    /// The case.
    pub case: String,
    /// Expected and found, in words.
    pub what: String,
}

impl TestFile {
    /// Reads the text of a test file.
    ///
    /// # Errors
    /// A sentence with file, line and key.
    pub fn read(name: &str, text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            format!("{name}:{line}: {}; see `weir runbook test --help`", error.message())
        })?;
        Ok(Self { name: name.to_owned(), text: text.to_owned(), file })
    }

    /// The file of the runbook that is tested, beside the test file.
    #[must_use]
    pub fn runbook(&self) -> &str {
        &self.file.runbook
    }

    /// How many expectations there are.
    #[must_use]
    pub fn expectations(&self) -> usize {
        self.file.case.iter().map(|case| case.expect.len()).sum()
    }

    /// Runs every case against the runbook `book` of the library. `open` opens the recording of a
    /// name, beside the test file.
    ///
    /// # Errors
    /// A sentence with file, line and key when a series, a time or a recording cannot be read.
    pub fn run(
        &self,
        library: &Arc<Library>,
        book: &str,
        open: &dyn Fn(&str) -> Result<Replay, String>,
    ) -> Result<Vec<Failure>, String> {
        let mut failures = Vec::new();
        for case in &self.file.case {
            match &case.recording {
                Some(recording) if case.series.is_empty() => {
                    let replay = open(recording.get_ref())
                        .map_err(|error| format!("{}: {error}", self.place(recording)))?;
                    self.run_recorded(case, replay, library, book, &mut failures)?;
                }
                Some(recording) => {
                    let place = self.place(recording);
                    return Err(format!("{place}: `recording` beside `series`; leave one out"));
                }
                None => self.run_case(case, self.interval()?, library, book, &mut failures)?,
            }
        }
        Ok(failures)
    }

    /// The distance between the samples of series.
    fn interval(&self) -> Result<Duration, String> {
        let Some(interval) = &self.file.interval else {
            return Err(format!("{}: `interval` is missing; series need one: `15s`", self.name));
        };
        match self.span(interval)? {
            Duration::ZERO => Err(format!("{}: `interval` is zero; write `15s`", self.name)),
            interval => Ok(interval),
        }
    }

    /// Judges a recording at the moments of a case, each since the recording's zero.
    fn run_recorded(
        &self,
        case: &Case,
        mut replay: Replay,
        library: &Arc<Library>,
        book: &str,
        failures: &mut Vec<Failure>,
    ) -> Result<(), String> {
        for expect in &case.expect {
            let place = self.place(&expect.at);
            let at = replay.reader().moment(self.span(&expect.at)?);
            let moment = replay.seek(at).map_err(|error| format!("{place}: {error}"))?.moment;
            let scopes = &moment.observation.scopes;
            let scopes: Vec<&str> = scopes.iter().map(|snapshot| snapshot.scope.as_str()).collect();
            let scope = match (&case.scope, scopes.as_slice()) {
                (Some(wanted), scopes) if scopes.contains(&wanted.as_str()) => wanted.as_str(),
                (None, [only]) => only,
                (_, scopes) => {
                    let there = scopes.join(", ");
                    return Err(format!("{place}: name one `scope` of the recording: {there}"));
                }
            };
            let facts = replay.diagnosis_of(scope).facts();
            for what in judge(expect, &case.flags, library, book, facts) {
                failures.push(Failure { place: place.clone(), case: case.name.clone(), what });
            }
        }
        Ok(())
    }

    fn run_case(
        &self,
        case: &Case,
        interval: Duration,
        library: &Arc<Library>,
        book: &str,
        failures: &mut Vec<Failure>,
    ) -> Result<(), String> {
        let mut series = BTreeMap::new();
        for (name, notation) in &case.series {
            let samples = expand(notation.get_ref()).map_err(|item| {
                let place = self.place(notation);
                format!("{place}: `{name}`: `{item}` is no item; write `a+bxn`, `axn` or `_`")
            })?;
            series.insert(name.as_str(), samples);
        }
        let mut expects = Vec::new();
        for expect in &case.expect {
            expects.push((Mono::from_start(self.span(&expect.at)?), expect));
        }
        expects.sort_by_key(|(at, _)| *at);
        let mut diagnoser = Diagnoser::new(Arc::clone(library));
        let mut tick = 0_usize;
        for (at, expect) in expects {
            loop {
                let now = Mono::from_secs_f64(as_f64(tick) * interval.as_secs_f64());
                if now > at {
                    break;
                }
                diagnoser.step(&snapshot(&series, tick, interval), now);
                tick += 1;
            }
            for what in judge(expect, &case.flags, library, book, diagnoser.facts()) {
                let place = self.place(&expect.at);
                failures.push(Failure { place, case: case.name.clone(), what });
            }
        }
        Ok(())
    }

    fn span(&self, text: &Spanned<String>) -> Result<Duration, String> {
        parse_duration(text.get_ref()).ok_or_else(|| {
            let place = self.place(text);
            format!("{place}: `{}` is no duration; write `15s` or `63m`", text.get_ref())
        })
    }

    fn place<T>(&self, spanned: &Spanned<T>) -> String {
        format!("{}:{}", self.name, line_of(&self.text, spanned.span().start))
    }
}

#[expect(clippy::cast_precision_loss, reason = "series are bounded to 36,000 samples")]
const fn as_f64(tick: usize) -> f64 {
    tick as f64
}

fn snapshot(
    series: &BTreeMap<&str, Vec<Option<f64>>>,
    tick: usize,
    interval: Duration,
) -> Snapshot {
    let mut snapshot = Snapshot::new("test", interval.as_secs_f64());
    let source = Arc::from("series");
    for (name, samples) in series {
        if let Some(Some(value)) = samples.get(tick) {
            snapshot.set(name, Value::Number(*value), &source);
        }
    }
    snapshot
}

/// What an expectation finds wrong.
fn judge(
    expect: &Expect,
    flags: &BTreeMap<String, toml::Value>,
    library: &Arc<Library>,
    book: &str,
    facts: &Facts,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let Ok(mut walk) = Walk::start_in(Arc::clone(library), book) else {
        return vec![format!("the runbook `{book}` is not loaded")];
    };
    let mut path = Vec::new();
    let mut ranking = Vec::new();
    for _ in 0..MAX_STEPS {
        let Some(View { node, offer, .. }) = walk.view(facts) else { break };
        path.push(node.id.clone());
        let Offer::Go { ranking: ranked, .. } = offer else { break };
        ranking.extend(ranked.iter().map(|(id, standing)| format!("{id}={standing}")));
        if walk.advance(facts, Mono::START).is_err() {
            break;
        }
    }
    if let Some(wanted) = &expect.path
        && *wanted != path
    {
        wrong.push(format!("path is {path:?}, expected {wanted:?}"));
    }
    for (name, wanted) in &expect.evidence {
        let found = facts.get(book, name).map_or_else(
            || "not defined".to_owned(),
            |evidence| match (evidence.state, evidence.reason) {
                (Truth::Unknown, Some(reason)) => format!("unknown:{reason}"),
                (state, _) => state.word().to_owned(),
            },
        );
        // `unknown` stands for any reason, `unknown:thin` for every text that goes with that one.
        let detail = found.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.starts_with(':'));
        if found != *wanted && !detail {
            wrong.push(format!("evidence `{name}` is {found}, expected {wanted}"));
        }
    }
    for wanted in expect.rank.iter().filter(|wanted| !ranking.contains(wanted)) {
        wrong.push(format!("rank has {ranking:?}, expected {wanted}"));
    }
    if let Some(wanted) = &expect.offer
        && path.last() != Some(wanted)
    {
        wrong.push(format!("offered is {:?}, expected {wanted}", path.last()));
    }
    let mut set: BTreeMap<&str, &toml::Value> = BTreeMap::new();
    set.extend(flags.iter().chain(&expect.flags).map(|(key, value)| (key.as_str(), value)));
    for (wanted, node) in [(true, &expect.allow), (false, &expect.refuse)] {
        let Some(node) = node else { continue };
        match allowed(library, book, node, &set, facts) {
            None => wrong.push(format!("`{node}` is no action")),
            Some(found) if found != wanted => {
                let word = if wanted { "refused" } else { "allowed" };
                wrong.push(format!("`{node}` is {word}"));
            }
            Some(_) => {}
        }
    }
    wrong
}

/// Whether an action's guard holds and its interlocks are met; `None` when it is no action.
fn allowed(
    library: &Library,
    book: &str,
    node: &str,
    flags: &BTreeMap<&str, &toml::Value>,
    facts: &Facts,
) -> Option<bool> {
    let Step::Action(action) = &library.book(book)?.node(node)?.step else { return None };
    let guard = action.guard.eval(&mut |name| facts.seen(book, name).state);
    let met = action.needs.iter().all(|(key, value)| {
        flags
            .get(key.as_str())
            .and_then(|set| flag_value(set))
            .is_some_and(|set: FlagValue| set == *value)
    });
    Some(guard == Truth::True && met)
}
