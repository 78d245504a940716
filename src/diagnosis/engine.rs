//! Walks the triage over the evidence and says what it found. Keeps hysteresis and history per
//! scope; reads no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::admission::PLANS;
use crate::signal::{Mono, Snapshot};

use super::change::{Change, InstanceCount};
use super::derive::{Completed, complete};
use super::evaluate::Watch;
use super::expr::Expr;
use super::fetch::fetch;
use super::history::{Readings, Single};
use super::leave::{Taken, first_step, triaged};
use super::onset::Onset;
use super::predicate::Predicate;
use super::rank::{Score, Seen, score};
use super::ring::Ring;
use super::role::Roles;
use super::sentence::fill;
use super::settling::Settling;
use super::severity::toll;
use super::tree::{Book, Cause, Grounds, Library, Node, Step, TRIAGE, evidence_names};
use super::verdict::{Evidence, FirstStep, Missing, PathStep, Ranked, Standing, Truth, Verdict};

/// The cause that is named when nothing else can be.
pub const INSUFFICIENT: &str = "insufficient-evidence";
/// The cause that stands for no incident.
pub const HEALTHY: &str = "healthy";
/// A meter with less than this is full.
const AT_LIMIT: f64 = 0.05;

/// Every piece of evidence of every runbook at one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// By runbook and name.
    places: Arc<BTreeMap<String, BTreeMap<String, usize>>>,
    evidence: Arc<Vec<Evidence>>,
    /// Causes that are proven and not yet for long enough.
    settling: BTreeSet<String>,
}

impl Facts {
    /// The evidence that a runbook knows by this name.
    #[must_use]
    pub fn get(&self, book: &str, name: &str) -> Option<Evidence> {
        let place = self.place(book, name)?;
        self.evidence.get(place).map(|found| Evidence { name: name.to_owned(), ..found.clone() })
    }

    /// What the ranking sees of it; a name that is not there is unknown.
    #[must_use]
    pub fn seen(&self, book: &str, name: &str) -> Seen {
        self.seen_in(self.places.get(book), name)
    }

    /// The same, where the names of the runbook were looked up already.
    fn seen_in(&self, names: Option<&BTreeMap<String, usize>>, name: &str) -> Seen {
        let place = names.and_then(|names| names.get(name));
        let found = place.and_then(|place| self.evidence.get(*place));
        found.map_or(Seen { state: Truth::Unknown, pending: false }, |evidence| Seen {
            state: evidence.state,
            pending: evidence.pending,
        })
    }

    /// How an expression of a runbook stands.
    #[must_use]
    pub fn truth(&self, book: &str, expr: &Expr) -> Truth {
        let names = self.places.get(book);
        expr.eval(&mut |name| self.seen_in(names, name).state)
    }

    /// How something of a runbook stands on its grounds.
    #[must_use]
    pub fn score(&self, book: &str, grounds: &Grounds) -> Score {
        let names = self.places.get(book);
        score(grounds, &|name| self.seen_in(names, name))
    }

    /// A cause's standing as it is told: what was only just proven is likely.
    #[must_use]
    pub fn told(&self, cause: &str, standing: Standing) -> Standing {
        if self.settling.contains(cause) { standing.min(Standing::Likely) } else { standing }
    }

    /// The same moment, where each of `names` (runbook and name) reads what `book` knows as `other`:
    /// how the change of one predicate is tried without evaluating all others again.
    #[must_use]
    pub fn read_as<'a>(
        &self,
        names: impl IntoIterator<Item = (&'a str, &'a str)>,
        (book, other): (&str, &str),
    ) -> Self {
        let mut facts = self.clone();
        if let Some(place) = self.place(book, other) {
            let places = Arc::make_mut(&mut facts.places);
            for (book, name) in names {
                places.entry(book.to_owned()).or_default().insert(name.to_owned(), place);
            }
        }
        facts
    }

    fn place(&self, book: &str, name: &str) -> Option<usize> {
        self.places.get(book)?.get(name).copied()
    }
}

/// The diagnosis of one scope, stepped with each snapshot.
#[derive(Clone, Debug)]
pub struct Diagnoser {
    library: Arc<Library>,
    watch: Watch,
    ring: Ring,
    settling: Settling,
    facts: Facts,
}

impl Diagnoser {
    /// A diagnosis that has seen nothing yet.
    #[must_use]
    pub fn new(library: Arc<Library>) -> Self {
        let mut watch = Watch::default();
        let mut places: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for book in library.books() {
            let places = places.entry(book.id.clone()).or_default();
            let own = book.evidence.keys().map(String::as_str);
            for name in own.chain(evidence_names(book)) {
                if let Some(predicate) = library.predicate(book, name) {
                    places.insert(name.to_owned(), watch.add(predicate));
                }
            }
        }
        let ring = Ring::new(watch.paths()).following(&watch.movers());
        let facts = Facts { places: Arc::new(places), ..Facts::default() };
        Self { library, watch, ring, settling: Settling::default(), facts }
    }

    /// Takes the next snapshot of the scope and says what it looks like now.
    pub fn step(&mut self, snapshot: &Snapshot, at: Mono) -> Verdict {
        self.step_with(snapshot, None, at)
    }

    /// The same, knowing how many instances the numbers come from: a count that changes voids what
    /// it was compared with.
    pub fn step_with(
        &mut self,
        snapshot: &Snapshot,
        instances: Option<&InstanceCount<'_>>,
        at: Mono,
    ) -> Verdict {
        let library = Arc::clone(&self.library);
        let scores = self.take(&library, snapshot, instances, at);
        let onsets = self.onsets();
        Verdict { onsets, ..conclude(&library, &self.facts, &scores, self.ring.newest()) }
    }

    /// The same without a verdict: for what leads up to a moment that is to be judged.
    pub fn see(&mut self, snapshot: &Snapshot, instances: Option<&InstanceCount<'_>>, at: Mono) {
        let library = Arc::clone(&self.library);
        self.take(&library, snapshot, instances, at);
    }

    /// Takes the next snapshot, and how all causes stand on it.
    fn take<'a>(
        &mut self,
        library: &'a Library,
        snapshot: &Snapshot,
        instances: Option<&InstanceCount<'_>>,
        at: Mono,
    ) -> Scores<'a> {
        if let Some(told) = instances {
            self.ring.instances(&snapshot.scope, told, at);
        }
        self.ring.push(Arc::new(complete(snapshot)), at);
        self.facts.evidence = Arc::new(self.watch.step(&self.ring, at));
        let scores = score_all(library, &self.facts);
        let window_s = self.ring.newest().snapshot.window_s;
        let standings = scores.iter().map(|(cause, score)| (*cause, score.standing));
        self.settling.step(standings, window_s, at);
        self.facts.settling = self.settling.open(window_s).map(str::to_owned).collect();
        scores
    }

    /// The evidence as of the last step.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The history, for trends.
    #[must_use]
    pub const fn history(&self) -> &Ring {
        &self.ring
    }

    /// What changed beside the load, oldest first, at most [`super::CHANGES_MAX`].
    #[must_use]
    pub fn changes(&self) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        self.ring.changes()
    }

    /// When the key signals moved within the last quarter of an hour, the first mover first; at most
    /// [`super::ONSETS_MAX`].
    #[must_use]
    pub fn onsets(&self) -> Vec<Onset> {
        self.ring.onsets()
    }

    /// Takes in snapshots from before the first step, oldest first, as the past to compare with.
    /// They say nothing about now, and once a step was made they are too late.
    pub fn backfill(&mut self, samples: &[(Mono, Arc<Snapshot>)]) {
        for (at, snapshot) in samples {
            self.ring.push(Arc::new(complete(snapshot)), *at);
        }
    }

    /// The runbooks.
    #[must_use]
    pub const fn library(&self) -> &Arc<Library> {
        &self.library
    }
}

/// Diagnoses one snapshot that stands for its window of constant values.
#[must_use]
pub fn diagnose_once(library: &Arc<Library>, snapshot: &Snapshot) -> Verdict {
    judge_once(library, snapshot).0
}

/// The same, with the evidence that it rests on.
#[must_use]
pub fn judge_once(library: &Arc<Library>, snapshot: &Snapshot) -> (Verdict, Facts) {
    let mut diagnoser = Diagnoser::new(Arc::clone(library));
    let completed = complete(snapshot);
    let readings: &dyn Readings = &Single(&completed);
    diagnoser.facts.evidence = Arc::new(diagnoser.watch.step(readings, Mono::START));
    let scores = score_all(library, &diagnoser.facts);
    let verdict = conclude(library, &diagnoser.facts, &scores, &completed);
    (verdict, diagnoser.facts)
}

fn conclude(
    library: &Library,
    facts: &Facts,
    scores: &Scores<'_>,
    completed: &Completed,
) -> Verdict {
    let (named, steps) = triaged(library, facts);
    let cause = library.cause(&named);
    let standing = match scores.get(named.as_str()) {
        Some(score) if named != INSUFFICIENT => facts.told(&named, score.standing),
        _ => Standing::CannotTell,
    };
    let evidence = shown(facts, cause, &steps);
    let is_offered = standing >= Standing::Likely;
    let first = first_step(library, &named, facts, |_, _| false).filter(|_| is_offered);
    let own_plan = cause.and_then(|cause| cause.plan.clone());
    let predicates = wanted(library, facts, scores, &named, &evidence);
    let (used, missing) = completeness(&predicates, &completed.snapshot);
    let mut notes = completed.notes.clone();
    if named == HEALTHY && at_limit(&completed.snapshot) {
        notes.push("at-limit".to_owned());
    }
    Verdict {
        standing,
        scope: completed.snapshot.scope.clone(),
        say: cause.map_or_else(String::new, |cause| fill(&cause.say, &completed.snapshot)),
        path: steps.into_iter().map(|(node, taken)| step_of(node, taken)).collect(),
        evidence,
        also: others(library, facts, scores, &named),
        used,
        of: used + missing.len(),
        missing,
        runbook: library.book(&named).map(|book| book.id.clone()),
        pages_owner: is_offered && cause.is_some_and(|cause| cause.pages_owner),
        plan: own_plan.or_else(|| plan_of(first?.1)).filter(|_| is_offered),
        first: first.map(|(book, node)| FirstStep {
            runbook: book.id.clone(),
            node: node.id.clone(),
            title: node.title.clone(),
        }),
        notes,
        toll: toll(&completed.snapshot),
        onsets: Vec::new(),
        cause: named,
    }
}

/// The plan that a flip is a part of.
fn plan_of(node: &Node) -> Option<String> {
    let Step::Action(action) = &node.step else { return None };
    let found = PLANS.iter().find(|plan| plan.sets(&action.flag, &action.set));
    found.map(|plan| plan.name.to_owned())
}

/// How each cause stands.
pub(super) type Scores<'a> = BTreeMap<&'a str, Score>;

/// Scores every cause at once.
pub(super) fn score_all<'a>(library: &'a Library, facts: &Facts) -> Scores<'a> {
    library
        .books()
        .filter_map(|book| book.cause.as_ref().map(|cause| (book, cause)))
        .map(|(book, cause)| (cause.id.as_str(), facts.score(&book.id, &cause.grounds)))
        .collect()
}

fn step_of(node: &Node, taken: Taken) -> PathStep {
    PathStep { node: node.id.clone(), title: node.title.clone(), branch: taken.say }
}

/// The evidence to show: that of the path, then that of the cause, each predicate once.
fn shown(facts: &Facts, cause: Option<&Cause>, steps: &[(&Node, Taken)]) -> Vec<Evidence> {
    let names = steps.iter().flat_map(|(_, taken)| &taken.names);
    let on_path = names.map(|name| facts.get(TRIAGE, name));
    let of_cause = cause.into_iter().flat_map(|cause| {
        let names = cause.grounds.all().flat_map(Expr::names);
        names.map(|name| facts.get(&cause.id, name))
    });
    let mut texts = BTreeSet::new();
    on_path
        .chain(of_cause)
        .flatten()
        .filter(|evidence| texts.insert(evidence.predicate.clone()))
        .collect()
}

/// The predicates whose signals the verdict wanted: those shown, and, when no cause could be named,
/// those of the causes that could not be told.
fn wanted<'a>(
    library: &'a Library,
    facts: &Facts,
    scores: &Scores<'_>,
    named: &str,
    shown: &[Evidence],
) -> Vec<&'a Predicate> {
    let texts: BTreeSet<&str> = shown.iter().map(|evidence| evidence.predicate.as_str()).collect();
    let open = |book: &Book| {
        named == INSUFFICIENT
            && scores.get(book.id.as_str()).is_some_and(|s| s.standing == Standing::CannotTell)
    };
    let mut predicates: Vec<&Predicate> = Vec::new();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for book in library.books() {
        let is_open = open(book);
        for name in evidence_names(book) {
            let Some(predicate) = library.predicate(book, name) else { continue };
            let is_unknown = || facts.seen(&book.id, name).state == Truth::Unknown;
            let take = texts.contains(predicate.text.as_str()) || (is_open && is_unknown());
            if take && taken.insert(&predicate.text) {
                predicates.push(predicate);
            }
        }
    }
    predicates
}

fn completeness(predicates: &[&Predicate], snapshot: &Snapshot) -> (usize, Vec<Missing>) {
    let names: BTreeSet<&str> = predicates.iter().flat_map(|p| p.signals()).collect();
    let missing: Vec<Missing> = names
        .iter()
        .filter(|name| snapshot.get(name).is_none())
        .map(|name| Missing {
            signal: (*name).to_owned(),
            reason: snapshot.absent.get(*name).cloned().unwrap_or_else(|| "no-data".to_owned()),
            fetch: fetch(name),
        })
        .collect();
    (names.len() - missing.len(), missing)
}

/// The other causes, best first; between equals the one with more support, then the order of the
/// runbooks.
fn others(library: &Library, facts: &Facts, scores: &Scores<'_>, named: &str) -> Vec<Ranked> {
    let roles = Roles::beside(named, library, facts, scores);
    let mut also: Vec<Ranked> = library
        .books()
        .filter_map(|book| book.cause.as_ref())
        .filter(|cause| cause.id != named && cause.id != INSUFFICIENT)
        .filter_map(|cause| {
            scores.get(cause.id.as_str()).map(|score| Ranked {
                cause: cause.id.clone(),
                standing: facts.told(&cause.id, score.standing),
                evidence_for: score.evidence_for,
                evidence_against: score.evidence_against,
                evidence_unknown: score.evidence_unknown,
                role: roles.of(cause),
            })
        })
        .collect();
    also.sort_by(|a, b| b.standing.cmp(&a.standing).then(b.evidence_for.cmp(&a.evidence_for)));
    also
}

fn at_limit(snapshot: &Snapshot) -> bool {
    ["tpm_headroom", "rpm_headroom", "itpm_headroom", "otpm_headroom"]
        .iter()
        .any(|meter| snapshot.number(meter).is_some_and(|headroom| headroom < AT_LIMIT))
}
