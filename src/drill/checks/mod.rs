//! Whether a scenario shows what its file says: evidence after the onset, cures that cure, harms that
//! harm. Every part is a run of its own on the virtual clock, from the same seed.
//!
//! What a diagnosis says of it is reported beside, and judged only where that is asked for.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::parallel::in_order;
use super::phases::TimedFlip;
use super::report::Report;
use super::scenario::Scenario;
use super::virtual_run::{self, Play};
use crate::admission::FlagError;
use crate::diagnosis::{HEALTHY, Library, Predicate};
use crate::signal::Mono;

mod follow;
pub(super) mod spec;
mod told;

use follow::{Course, Follower};
pub use spec::{Cure, Expect, Flip, Ground, Harm, Worse};
pub use told::{CONFIRMED_WITHIN, NAMED_WITHIN, Told, Wrongly};

/// A flip is made this long after the onset, when the incident is in full swing.
const FLIP_AFTER: Duration = Duration::from_secs(20);
/// What a cure has brought back must stay so for this long.
const STAYS: Duration = Duration::from_secs(10);
/// A harm counts from this long after its flip: signals are means of ten seconds,
const HARM_SETTLING: Duration = Duration::from_secs(10);
/// and over this long.
const HARM_SPAN: Duration = Duration::from_secs(20);
/// By this share of what it would have been a signal must be worse.
const WORSE_BY: f64 = 0.1;
/// What is said of a lost source is judged this long before it is back.
const STILL_LOST: Duration = Duration::from_millis(1);
/// Differences below this are none, for signals that would have been zero.
const WORSE_BY_LEAST: f64 = 1e-9;

/// One scenario, from one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// Its name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Whether everything but the verdicts is as the file says.
    pub passed: bool,
    /// What should appear.
    pub evidence: Vec<Moment>,
    /// What is said at the end of the incident that nobody ends.
    pub verdict: Said,
    /// How soon the cause was told, and what was confirmed that is not so.
    pub told: Told,
    /// The flips that should end it.
    pub cures: Vec<CureChecked>,
    /// The flips that should make it worse.
    pub harms: Vec<HarmChecked>,
}

/// A predicate, and when it came true.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Its text.
    pub predicate: String,
    /// Seconds within which it should be true.
    pub within_s: f64,
    /// Seconds after which it was; `None` when it never was.
    pub after_s: Option<f64>,
    /// Whether that was in time.
    pub passed: bool,
    /// What it read at the end of the run, or why it could not.
    pub last: String,
}

/// What a diagnosis said, and what was expected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Said {
    /// The cause that the file expects.
    pub expected: String,
    /// The cause that was named last.
    pub cause: Option<String>,
    /// How sure it was.
    pub standing: Option<&'static str>,
    /// Whether the two are the same.
    pub matches: bool,
}

/// A cure, and what it did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CureChecked {
    /// The plan or the flags.
    pub flip: String,
    /// What should come back, and stay.
    pub back: Vec<Moment>,
    /// What is said at the end.
    pub verdict: Said,
    /// What was confirmed that is not so.
    pub wrong: Vec<Wrongly>,
}

/// A harm, and what it did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HarmChecked {
    /// The plan or the flags.
    pub flip: String,
    /// What should be worse.
    pub worse: Vec<Compared>,
}

/// A signal with a harmful flip and without it, over the same span.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The signal.
    pub signal: String,
    /// `rises` or `falls`.
    pub worse: &'static str,
    /// Its mean without the flip.
    pub without: Option<f64>,
    /// Its mean with it.
    pub with: Option<f64>,
    /// Whether it is worse, by a tenth at least.
    pub passed: bool,
}

impl Checked {
    /// Whether every verdict, too, is the expected one, in time, and nothing else was ever confirmed.
    #[must_use]
    pub fn verdicts_match(&self) -> bool {
        let cured = |cure: &CureChecked| cure.verdict.matches && cure.wrong.is_empty();
        self.verdict.matches && self.told.passed && self.cures.iter().all(cured)
    }
}

/// Checks each scenario from each seed, on every core; in the order of scenarios, then of seeds.
///
/// # Errors
/// When a flag of a scenario does not take its value.
pub fn run(
    scenarios: &[Scenario],
    seeds: &[u64],
    library: &Arc<Library>,
) -> Result<Vec<Checked>, FlagError> {
    let jobs: Vec<(&Scenario, u64)> = scenarios
        .iter()
        .flat_map(|scenario| seeds.iter().map(move |seed| (scenario, *seed)))
        .collect();
    let check = |(scenario, seed): &(&Scenario, u64)| Check::new(scenario, *seed, library).run();
    in_order(&jobs, check).into_iter().collect()
}

/// One scenario from one seed.
struct Check<'a> {
    scenario: &'a Scenario,
    seed: u64,
    library: &'a Arc<Library>,
    /// When a flip is made.
    flip_at: Duration,
}

impl<'a> Check<'a> {
    fn new(scenario: &'a Scenario, seed: u64, library: &'a Arc<Library>) -> Self {
        Self { scenario, seed, library, flip_at: scenario.onset + FLIP_AFTER }
    }

    fn run(&self) -> Result<Checked, FlagError> {
        let Scenario { expect, onset, .. } = self.scenario;
        let mut incident = Follower::new(&expect.evidence, self.paths(Ground::Incident), *onset);
        let total = self.length();
        let report = self.play(total, &[], true, &mut incident)?;
        let courses = incident.courses();
        let was_so = expect.cause != HEALTHY && all_were_so(&courses);
        let firsts = courses.into_iter().map(|course| (course.first, course.last));
        let evidence = moments(&expect.evidence, firsts, *onset, expect.within);
        let evidence = if was_so { nothing_new(evidence, "onset") } else { evidence };
        let verdict = said(&expect.cause, &report);
        let told = told::told(expect, *onset, &report.verdicts);
        let (cures, remedied) = self.cures()?;
        let grounds = (&incident, remedied.as_ref());
        let harms = self.scenario.harms.iter().filter_map(|harm| self.harm(harm, grounds));
        let harms = harms.collect::<Result<Vec<_>, _>>()?;
        let passed = evidence.iter().all(|moment| moment.passed)
            && cures.iter().flat_map(|cure| &cure.back).all(|moment| moment.passed)
            && harms.iter().flat_map(|harm| &harm.worse).all(|signal| signal.passed);
        let scenario = self.scenario.name.clone();
        let seed = self.seed;
        Ok(Checked { scenario, seed, passed, evidence, verdict, told, cures, harms })
    }

    /// How long the incident is played that nobody ends: as long as its harms are compared with it at
    /// least, and no longer than a source is lost, because what is said then is what is judged.
    fn length(&self) -> Duration {
        let total = self.scenario.duration.max(self.flip_at + HARM_SETTLING + HARM_SPAN);
        let lost = self.scenario.lost.map(|lost| lost.back_at().saturating_sub(STILL_LOST));
        lost.map_or(total, |lost| total.min(lost))
    }

    /// Plays every cure; the run of the first one stays to be compared with.
    fn cures(&self) -> Result<(Vec<CureChecked>, Option<Follower>), FlagError> {
        let mut checked = Vec::new();
        let mut first = None;
        for cure in &self.scenario.cures {
            let paths = self.paths(Ground::Cured);
            let mut total = self.flip_at + cure.within + STAYS;
            if first.is_none() && !paths.is_empty() {
                total = total.max(self.flip_at + cure.within + HARM_SETTLING + HARM_SPAN);
            }
            let mut follower = Follower::new(&cure.back, paths, self.flip_at);
            let flips = timed(&cure.flip, self.flip_at);
            let report = self.play(total, &flips, true, &mut follower)?;
            let courses = follower.courses();
            let was_so = all_were_so(&courses);
            let since = courses.into_iter().map(|course| (course.since, course.last));
            let back = moments(&cure.back, since, self.flip_at, cure.within);
            checked.push(CureChecked {
                flip: cure.flip.name(),
                back: if was_so { nothing_new(back, "flip") } else { back },
                verdict: said(&self.scenario.expect.after_cure, &report),
                wrong: told::wrongly(
                    &self.scenario.expect,
                    self.scenario.onset,
                    &report.verdicts,
                    true,
                ),
            });
            first.get_or_insert(follower);
        }
        Ok((checked, first))
    }

    /// Plays a harm beside what it is done to; `None` without anything to compare with.
    fn harm(
        &self,
        harm: &Harm,
        (incident, cured): (&Follower, Option<&Follower>),
    ) -> Option<Result<HarmChecked, FlagError>> {
        let (without, mut flips, at) = match harm.on {
            Ground::Incident => (incident, Vec::new(), self.flip_at),
            Ground::Cured => {
                let cure = self.scenario.cures.first()?;
                (cured?, timed(&cure.flip, self.flip_at), self.flip_at + cure.within)
            }
        };
        flips.extend(timed(&harm.flip, at));
        let (from, to) = (at + HARM_SETTLING, at + HARM_SETTLING + HARM_SPAN);
        let paths = harm.worse.iter().map(|worse| worse.signal.as_str());
        let mut with = Follower::new([], paths, at);
        if let Err(error) = self.play(to, &flips, false, &mut with) {
            return Some(Err(error));
        }
        let compare = |worse| compared(worse, without, &with, (from, to));
        let worse = harm.worse.iter().map(compare).collect();
        Some(Ok(HarmChecked { flip: harm.flip.name(), worse }))
    }

    /// The signals that harms on this ground are judged by.
    fn paths(&self, ground: Ground) -> Vec<&str> {
        let harms = self.scenario.harms.iter().filter(|harm| harm.on == ground);
        harms.flat_map(|harm| &harm.worse).map(|worse| worse.signal.as_str()).collect()
    }

    fn play(
        &self,
        total: Duration,
        flips: &[TimedFlip],
        diagnose: bool,
        follower: &mut Follower,
    ) -> Result<Report, FlagError> {
        let play = Play { scenario: self.scenario, seed: self.seed, total, flips };
        let library = diagnose.then_some(self.library);
        virtual_run::watch(&play, library, |snapshot, at| follower.see(snapshot, at))
    }
}

fn timed(flip: &Flip, at: Duration) -> Vec<TimedFlip> {
    let flags = flip.flags.iter().cloned();
    flags.map(|(key, value)| TimedFlip { at, key, value }).collect()
}

/// Whether what is claimed to come true was true already, all of it: then it tells nothing.
fn all_were_so(courses: &[Course]) -> bool {
    !courses.is_empty() && courses.iter().all(|course| course.was)
}

/// The same claims, none of which counts.
fn nothing_new(moments: Vec<Moment>, event: &str) -> Vec<Moment> {
    let so = |moment| Moment {
        passed: false,
        last: format!("all of it was true before the {event} as well"),
        ..moment
    };
    moments.into_iter().map(so).collect()
}

/// When each predicate came true, counted from `from`.
fn moments(
    predicates: &[Predicate],
    seen: impl Iterator<Item = (Option<Mono>, String)>,
    from: Duration,
    within: Duration,
) -> Vec<Moment> {
    let moment = |(predicate, (at, last)): (&Predicate, (Option<Mono>, String))| {
        let after = at.map(|at| at.since_start().saturating_sub(from));
        Moment {
            predicate: predicate.text.clone(),
            within_s: within.as_secs_f64(),
            after_s: after.map(|after| after.as_secs_f64()),
            passed: after.is_some_and(|after| after <= within),
            last,
        }
    };
    predicates.iter().zip(seen).map(moment).collect()
}

fn said(expected: &str, report: &Report) -> Said {
    let last = report.verdicts.last.as_ref();
    Said {
        expected: expected.to_owned(),
        cause: last.map(|verdict| verdict.cause.clone()),
        standing: last.map(|verdict| verdict.standing.word()),
        matches: last.is_some_and(|verdict| verdict.cause == expected),
    }
}

/// A signal on both sides, in the scope in which it got worst.
fn compared(
    worse: &Worse,
    without: &Follower,
    with: &Follower,
    (from, to): (Duration, Duration),
) -> Compared {
    let before = without.means(&worse.signal, from, to);
    let after = with.means(&worse.signal, from, to);
    let pairs = after.iter().filter_map(|(scope, mean)| Some((*before.get(scope)?, *mean)));
    let by =
        |(without, with): (f64, f64)| if worse.falls { without - with } else { with - without };
    let gravest = pairs.max_by(|a, b| by(*a).total_cmp(&by(*b)));
    Compared {
        signal: worse.signal.clone(),
        worse: if worse.falls { "falls" } else { "rises" },
        // A signal that one side lacks is shown as far as it is known.
        without: gravest.map(|pair| pair.0).or_else(|| before.values().next().copied()),
        with: gravest.map(|pair| pair.1).or_else(|| after.values().next().copied()),
        passed: gravest
            .is_some_and(|pair| by(pair) > (pair.0.abs() * WORSE_BY).max(WORSE_BY_LEAST)),
    }
}

#[cfg(test)]
mod tests;
