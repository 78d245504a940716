//! Walks the triage over the evidence and says what it found. Keeps hysteresis and history per
//! scope; reads no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::signal::{Mono, Snapshot};

use super::change::{Change, InstanceCount};
use super::derive::{Completed, complete};
use super::evaluate::Watch;
use super::fetch::fetch;
use super::history::{Readings, Single};
use super::onset::Onset;
use super::predicate::Predicate;
use super::rank::{Score, Seen, score};
use super::ring::Ring;
use super::role::Roles;
use super::sentence::fill;
use super::settling::Settling;
use super::severity::toll;
use super::tree::{Book, Cause, Goto, Library, Node, Step, evidence_names};
use super::verdict::{Evidence, Missing, PathStep, Ranked, Standing, Truth, Verdict};

/// Most steps of one walk; a triage that is longer goes round in circles.
const MAX_STEPS: usize = 32;
/// The cause that is named when nothing else can be.
pub const INSUFFICIENT: &str = "insufficient-evidence";
/// The cause that stands for no incident.
pub const HEALTHY: &str = "healthy";
/// A meter with less than this is full.
const AT_LIMIT: f64 = 0.05;

/// Every piece of evidence of every runbook at one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    places: Arc<BTreeMap<(String, String), usize>>,
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
        let found = self.place(book, name).and_then(|place| self.evidence.get(place));
        found.map_or(Seen { state: Truth::Unknown, pending: false }, |evidence| Seen {
            state: evidence.state,
            pending: evidence.pending,
        })
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
                places.insert((book.to_owned(), name.to_owned()), place);
            }
        }
        facts
    }

    fn place(&self, book: &str, name: &str) -> Option<usize> {
        self.places.get(&(book.to_owned(), name.to_owned())).copied()
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
        let mut places = BTreeMap::new();
        for book in library.books() {
            let own = book.evidence.keys().map(String::as_str);
            for name in own.chain(evidence_names(book)) {
                if let Some(predicate) = library.predicate(book, name) {
                    places.insert((book.id.clone(), name.to_owned()), watch.add(predicate));
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
        self.see(snapshot, instances, at);
        let onsets = self.onsets();
        Verdict { onsets, ..conclude(&self.library, &self.facts, self.ring.newest()) }
    }

    /// The same without a verdict: for what leads up to a moment that is to be judged.
    pub fn see(&mut self, snapshot: &Snapshot, instances: Option<&InstanceCount<'_>>, at: Mono) {
        if let Some(told) = instances {
            self.ring.instances(&snapshot.scope, told, at);
        }
        self.ring.push(Arc::new(complete(snapshot)), at);
        self.facts.evidence = Arc::new(self.watch.step(&self.ring, at));
        let scores = score_all(&self.library, &self.facts);
        let window_s = self.ring.newest().snapshot.window_s;
        let standings = scores.iter().map(|(cause, score)| (*cause, score.standing));
        self.settling.step(standings, window_s, at);
        self.facts.settling = self.settling.open(window_s).map(str::to_owned).collect();
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
    let verdict = conclude(library, &diagnoser.facts, &completed);
    (verdict, diagnoser.facts)
}

/// The walk so far: what was asked, and on which evidence.
#[derive(Default)]
struct Trail {
    path: Vec<PathStep>,
    names: Vec<String>,
}

fn conclude(library: &Library, facts: &Facts, completed: &Completed) -> Verdict {
    let scores = score_all(library, facts);
    let (named, trail) = walk(library, facts);
    let cause = library.cause(&named);
    let standing = match scores.get(named.as_str()) {
        Some(score) if named != INSUFFICIENT => facts.told(&named, score.standing),
        _ => Standing::CannotTell,
    };
    let evidence = shown(library, facts, cause, &trail);
    let predicates = wanted(library, facts, &scores, &named, &evidence);
    let (used, missing) = completeness(&predicates, &completed.snapshot);
    let mut notes = completed.notes.clone();
    if named == HEALTHY && at_limit(&completed.snapshot) {
        notes.push("at-limit".to_owned());
    }
    Verdict {
        standing,
        scope: completed.snapshot.scope.clone(),
        say: cause.map_or_else(String::new, |cause| fill(&cause.say, &completed.snapshot)),
        path: trail.path,
        evidence,
        also: others(library, facts, &scores, &named),
        used,
        of: used + missing.len(),
        missing,
        runbook: library.book(&named).map(|book| book.id.clone()),
        pages_owner: standing >= Standing::Likely && cause.is_some_and(|cause| cause.pages_owner),
        plan: cause.and_then(|cause| cause.plan.clone()).filter(|_| standing >= Standing::Likely),
        notes,
        toll: toll(&completed.snapshot),
        onsets: Vec::new(),
        cause: named,
    }
}

/// Scores every cause at once.
pub(super) fn score_all<'a>(library: &'a Library, facts: &Facts) -> BTreeMap<&'a str, Score> {
    library
        .books()
        .filter_map(|book| book.cause.as_ref().map(|cause| (book, cause)))
        .map(|(book, cause)| {
            (cause.id.as_str(), score(&cause.grounds, &|name| facts.seen(&book.id, name)))
        })
        .collect()
}

/// Follows the triage until it names a cause.
fn walk(library: &Library, facts: &Facts) -> (String, Trail) {
    let triage = library.triage();
    let mut trail = Trail::default();
    let mut at = triage.entry.clone();
    for _ in 0..MAX_STEPS {
        let Some(node) = triage.node(&at) else { break };
        let goto = match &node.step {
            Step::Decide { .. } => decide(node, triage, facts, &mut trail),
            Step::Rank { .. } => {
                let ranked = ranking(library, triage, node, facts);
                let (goto, say) = choose(node, &ranked, facts);
                trail.path.push(step_of(node, say));
                goto
            }
            Step::End { cause, .. } => {
                let named = cause.clone().unwrap_or_else(|| INSUFFICIENT.to_owned());
                return (named, trail);
            }
            Step::Human { .. } | Step::Action(_) => break,
        };
        match goto {
            Goto::Node(next) => at = next,
            Goto::Runbook(cause) => return (cause, trail),
        }
    }
    (INSUFFICIENT.to_owned(), trail)
}

fn decide(node: &Node, triage: &Book, facts: &Facts, trail: &mut Trail) -> Goto {
    let (goto, say, names) = decision(node, &|name| facts.seen(&triage.id, name).state);
    trail.names.extend(names);
    trail.path.push(step_of(node, say));
    goto
}

/// The way out of a decide node: where, in which words, and which evidence was looked at.
pub fn decision(node: &Node, truth: &impl Fn(&str) -> Truth) -> (Goto, String, Vec<String>) {
    let Step::Decide { branches, otherwise, unknown } = &node.step else {
        return (Goto::Node(node.id.clone()), String::new(), Vec::new());
    };
    let looked = |at: usize| {
        let names = branches[..=at].iter().flat_map(|branch| branch.when.names());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    match chosen(branches, truth) {
        Chosen::Branch(at) => (branches[at].goto.clone(), branches[at].say.clone(), looked(at)),
        Chosen::Unknown(at) => {
            (unknown.clone(), format!("cannot tell whether: {}", branches[at].say), looked(at))
        }
        Chosen::Otherwise => {
            let names = branches.len().checked_sub(1).map(looked).unwrap_or_default();
            (otherwise.clone(), "none of these".to_owned(), names)
        }
    }
}

/// Which way a decision goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// By the branch at this place, the first that is true.
    Branch(usize),
    /// The branch at this place cannot be told before any is true.
    Unknown(usize),
    /// No branch is true.
    Otherwise,
}

/// The way that the evidence takes among the branches of a decision.
pub fn chosen(branches: &[super::tree::Branch], truth: &impl Fn(&str) -> Truth) -> Chosen {
    for (at, branch) in branches.iter().enumerate() {
        match branch.when.eval(&mut |name| truth(name)) {
            Truth::True => return Chosen::Branch(at),
            Truth::Unknown => return Chosen::Unknown(at),
            Truth::False => {}
        }
    }
    Chosen::Otherwise
}

/// How each hypothesis and cause of a rank node stands, in the order of the file, and where it leads.
#[must_use]
pub fn ranking(
    library: &Library,
    book: &Book,
    node: &Node,
    facts: &Facts,
) -> Vec<(String, Standing, Goto)> {
    let Step::Rank { hypotheses, among, .. } = &node.step else { return Vec::new() };
    let own = hypotheses.iter().map(|hypothesis| {
        let found = score(&hypothesis.grounds, &|name| facts.seen(&book.id, name));
        (hypothesis.id.clone(), found.standing, hypothesis.goto.clone())
    });
    let causes = among.iter().filter_map(|id| {
        let found = score(&library.cause(id)?.grounds, &|name| facts.seen(id, name));
        Some((id.clone(), found.standing, Goto::Runbook(id.clone())))
    });
    own.chain(causes).collect()
}

/// The way out of a rank node, given its ranking: where, and in which words.
#[must_use]
pub fn choose(node: &Node, ranked: &[(String, Standing, Goto)], facts: &Facts) -> (Goto, String) {
    let Step::Rank { none, unknown, .. } = &node.step else {
        return (Goto::Node(node.id.clone()), String::new());
    };
    if let Some((id, standing, goto)) = best(ranked) {
        return (goto.clone(), format!("{id} is {}", facts.told(id, *standing)));
    }
    match ranked.iter().filter(|entry| entry.1 == Standing::CannotTell).count() {
        0 => (none.clone(), "none of these".to_owned()),
        open => (unknown.clone(), format!("none stands, {open} cannot be told")),
    }
}

/// The first of the best that stand, so that the order of the file decides between equals.
#[must_use]
pub fn best(ranked: &[(String, Standing, Goto)]) -> Option<&(String, Standing, Goto)> {
    ranked
        .iter()
        .filter(|(_, standing, _)| *standing >= Standing::Likely)
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
}

fn step_of(node: &Node, branch: String) -> PathStep {
    PathStep { node: node.id.clone(), title: node.title.clone(), branch }
}

/// The evidence to show: that of the path, then that of the cause, each predicate once.
fn shown(library: &Library, facts: &Facts, cause: Option<&Cause>, trail: &Trail) -> Vec<Evidence> {
    let triage = &library.triage().id;
    let on_path = trail.names.iter().map(|name| facts.get(triage, name));
    let of_cause = cause.into_iter().flat_map(|cause| {
        let names = cause.grounds.all().flat_map(super::expr::Expr::names);
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
    scores: &BTreeMap<&str, Score>,
    named: &str,
    shown: &[Evidence],
) -> Vec<&'a Predicate> {
    let texts: BTreeSet<&str> = shown.iter().map(|evidence| evidence.predicate.as_str()).collect();
    let open = |book: &Book| {
        named == INSUFFICIENT
            && scores.get(book.id.as_str()).is_some_and(|s| s.standing == Standing::CannotTell)
    };
    let mut predicates: Vec<&Predicate> = Vec::new();
    for book in library.books() {
        for name in evidence_names(book) {
            let Some(predicate) = library.predicate(book, name) else { continue };
            let unknown = facts.seen(&book.id, name).state == Truth::Unknown;
            let take = texts.contains(predicate.text.as_str()) || (open(book) && unknown);
            if take && !predicates.iter().any(|known| known.text == predicate.text) {
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
fn others(
    library: &Library,
    facts: &Facts,
    scores: &BTreeMap<&str, Score>,
    named: &str,
) -> Vec<Ranked> {
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
