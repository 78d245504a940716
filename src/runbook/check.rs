//! Runs the tests of a runbook: series or a recording in, and the path, evidence, standings and offers
//! that must come out. Opens no file and reads no clock; time is that of what goes in.

use std::sync::Arc;
use std::time::Duration;

use crate::diagnosis::{Diagnoser, Library};
use crate::incident::recording::Replay;
use crate::signal::{Mono, Snapshot, Value};

use super::coverage::Coverage;
use super::judge::Moment;
use super::pin::Pin;
use super::suite::{Case, Samples, TestFile};
use super::values::put;

/// Most samples of one case: those of the longest series.
const MAX_TICKS: usize = 36_000;

/// Opens the recording of a name, beside the test file, to be judged by these runbooks.
pub type Open<'a> = &'a dyn Fn(&str, &Arc<Library>) -> Result<Replay, String>;

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

/// What a run of a test file found.
#[derive(Clone, Debug)]
pub struct Run {
    /// What did not come out.
    pub failures: Vec<Failure>,
    /// Which ways out were taken by expectations that passed.
    pub coverage: Coverage,
}

impl TestFile {
    /// Runs every case and pin against the runbook `book` of the library.
    ///
    /// # Errors
    /// A sentence with file, line and key when a series, a time or a recording cannot be read.
    pub fn run(&self, library: &Arc<Library>, book: &str, open: Open<'_>) -> Result<Run, String> {
        let tested =
            library.book(book).ok_or_else(|| format!("the runbook `{book}` is not loaded"))?;
        let mut coverage = Coverage::of(tested);
        let mut failures = Vec::new();
        for moment in self.moments(library, open)? {
            let judged = moment.judge(library, book, &moment.facts);
            if judged.wrong.is_empty() {
                coverage.walked(judged.left);
            }
            failures.extend(judged.wrong.into_iter().map(|what| moment.failure(what)));
        }
        for pin in self.pins()? {
            let Some(predicate) = library.predicate(tested, pin.evidence()) else {
                return Err(format!("{}: no evidence `{}`", pin.place, pin.evidence()));
            };
            failures.extend(pin.check(predicate)?.into_iter().map(|what| Failure {
                place: pin.place.clone(),
                case: format!("pin {}", pin.evidence()),
                what,
            }));
        }
        Ok(Run { failures, coverage })
    }

    /// The pins, ready to be held against a predicate.
    pub(super) fn pins(&self) -> Result<Vec<Pin>, String> {
        self.file.pin.iter().map(|block| Pin::read(self, block)).collect()
    }

    /// The evidence at the moment of every expectation, in one pass per case.
    pub(super) fn moments<'a>(
        &'a self,
        library: &Arc<Library>,
        open: Open<'_>,
    ) -> Result<Vec<Moment<'a>>, String> {
        let mut moments = Vec::new();
        for case in &self.file.case {
            match &case.recording {
                Some(recording) if case.series.is_empty() && case.values.is_empty() => {
                    let replay = open(recording.get_ref(), library)
                        .map_err(|error| format!("{}: {error}", self.place(recording)))?;
                    self.recorded(case, replay, &mut moments)?;
                }
                Some(recording) => {
                    let place = self.place(recording);
                    return Err(format!(
                        "{place}: `recording` beside `series` or `values`; leave one out"
                    ));
                }
                None => self.played(case, library, &mut moments)?,
            }
        }
        Ok(moments)
    }

    /// A recording at the moments of a case, each since the recording's zero.
    fn recorded<'a>(
        &self,
        case: &'a Case,
        mut replay: Replay,
        moments: &mut Vec<Moment<'a>>,
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
            let facts = replay.diagnosis_of(scope).facts().clone();
            moments.push(Moment { case, expect, place, facts });
        }
        Ok(())
    }

    fn played<'a>(
        &self,
        case: &'a Case,
        library: &Arc<Library>,
        moments: &mut Vec<Moment<'a>>,
    ) -> Result<(), String> {
        let Some(interval) = self.interval()? else {
            let what = "`interval` is missing; series need one: `15s`";
            return Err(format!("{}: {what}", self.file_name()));
        };
        let series = self.samples(case)?;
        let constants = self.constants(&case.values)?;
        let mut expects = Vec::new();
        for expect in &case.expect {
            let at = self.span(&expect.at)?;
            if at.as_secs_f64() / interval.as_secs_f64() > as_f64(MAX_TICKS) {
                let place = self.place(&expect.at);
                return Err(format!("{place}: more than {MAX_TICKS} samples; widen `interval`"));
            }
            expects.push((Mono::from_start(at), expect));
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
                diagnoser.see(&snapshot(&constants, &series, tick, interval), None, now);
                tick += 1;
            }
            let (place, facts) = (self.place(&expect.at), diagnoser.facts().clone());
            moments.push(Moment { case, expect, place, facts });
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "series are bounded to 36,000 samples")]
const fn as_f64(tick: usize) -> f64 {
    tick as f64
}

fn snapshot(
    constants: &[(&str, Value)],
    series: &[Samples<'_>],
    tick: usize,
    interval: Duration,
) -> Snapshot {
    let mut snapshot = Snapshot::new("test", interval.as_secs_f64());
    let source = Arc::from("series");
    for (path, value) in constants {
        put(&mut snapshot, path, value.clone(), &source);
    }
    for (path, samples) in series {
        if let Some(Some(number)) = samples.get(tick) {
            put(&mut snapshot, path, Value::Number(*number), &source);
        }
    }
    snapshot
}
