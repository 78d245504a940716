//! Puts what several sources say together into one snapshot per quota scope.
//!
//! Reads no clock and opens no socket: pages and answers come in with their time, snapshots go out. So the
//! poller, the gateway's own snapshot and the drill on the virtual clock share it. The gateway is
//! believed first, then the provider, then the clients; a later one only fills what is still unknown.
//! A source that has been quiet for too long says nothing any more, and its signals say why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Mono, SeriesBook, Snapshot, Window};

use super::adapter::{self, Adapter, Instance, Source};
use super::exposition::{Format, Report, TooLarge};
use super::intake::Intake;
use super::origin::{Account, Origin};
use super::prometheus::Answers;

/// How long a source may be quiet before its numbers are no longer now, unless set otherwise:
/// three intervals of the live screen.
pub const STALE_AFTER: Duration = Duration::from_secs(3);

/// What rates are taken over, unless a source is asked too seldom for that.
pub const WINDOW: Duration = Duration::from_secs(10);

/// How one source is read, and how long its numbers count.
#[derive(Clone, Debug)]
pub struct SourceRules {
    /// How its metrics become signals.
    pub adapter: Arc<Adapter>,
    /// What rates are taken over.
    pub window: Duration,
    /// How long an instance may be quiet before its numbers are no longer now.
    pub stale_after: Duration,
}

impl SourceRules {
    /// Rates over [`WINDOW`], pages that count for [`STALE_AFTER`].
    #[must_use]
    pub const fn new(adapter: Arc<Adapter>) -> Self {
        Self { adapter, window: WINDOW, stale_after: STALE_AFTER }
    }
}

/// One page of one instance.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The body.
    pub body: &'a [u8],
    /// Its dialect.
    pub format: Format,
}

impl<'a> Page<'a> {
    /// A page in Prometheus' text format.
    #[must_use]
    pub const fn text(body: &'a str) -> Self {
        Self { body: body.as_bytes(), format: Format::Text }
    }
}

/// A source of one assembler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId(usize);

/// The name of the only instance of a source that has one.
pub const ONLY: &str = "";

#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    rules: SourceRules,
    /// By name; those that never had a page among them.
    members: BTreeMap<String, Member>,
    /// The newest answers, of a source behind a query API.
    told: Option<Told>,
}

#[derive(Debug)]
struct Told {
    answers: Arc<Answers>,
    at: Mono,
    /// See [`Member::scopes`].
    scopes: BTreeSet<String>,
}

/// One instance of a source.
#[derive(Debug)]
struct Member {
    intake: Intake,
    /// The scopes that it told last, so that a scope stays on screen while its source is down.
    scopes: BTreeSet<String>,
}

impl Member {
    fn new(rules: &SourceRules) -> Self {
        let SourceRules { adapter, window, .. } = rules;
        let intake = Intake::new(*window, adapter.metrics()).with_spans(adapter.spans());
        let intake = intake.watched_only();
        Self { intake, scopes: BTreeSet::new() }
    }
}

/// Collects pages and gives snapshots. Call [`Self::accept`] for every page in order of time, and
/// [`Self::snapshots`] whenever one is wanted; it changes nothing.
#[derive(Debug, Default)]
pub struct Assembler {
    sources: Vec<Entry>,
}

impl Assembler {
    /// An assembler without sources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source with one instance, [`ONLY`].
    pub fn add(&mut self, name: &str, rules: SourceRules) -> SourceId {
        let members = BTreeMap::from([(ONLY.to_owned(), Member::new(&rules))]);
        self.sources.push(Entry { name: name.into(), rules, members, told: None });
        SourceId(self.sources.len() - 1)
    }

    /// Says which instances a source has now. Those that it has no more are forgotten with all that
    /// they counted.
    pub fn expect<'a>(&mut self, source: SourceId, instances: impl IntoIterator<Item = &'a str>) {
        let Entry { rules, members, .. } = &mut self.sources[source.0];
        let mut before = std::mem::take(members);
        let kept = instances.into_iter().map(|name| {
            let member = before.remove(name).unwrap_or_else(|| Member::new(rules));
            (name.to_owned(), member)
        });
        *members = kept.collect();
    }

    /// Takes in a page of an instance. One that the source does not have is dropped.
    ///
    /// # Errors
    ///
    /// When the page is too large; nothing is taken in then. Bad lines are no error: see [`Report`].
    pub fn accept(
        &mut self,
        source: SourceId,
        instance: &str,
        page: Page<'_>,
        at: Mono,
    ) -> Result<Report, TooLarge> {
        let Entry { rules, members, .. } = &mut self.sources[source.0];
        let Some(Member { intake, scopes }) = members.get_mut(instance) else {
            return Ok(Report::default());
        };
        let report = intake.accept(page.body, page.format, at)?;
        let told = adapter::scopes(&rules.adapter, intake.book());
        if !told.is_empty() {
            *scopes = told;
        }
        Ok(report)
    }

    /// Takes in what a query API answered about a source.
    pub fn answer(&mut self, source: SourceId, answers: Arc<Answers>, at: Mono) {
        let Entry { rules, told, .. } = &mut self.sources[source.0];
        let mut scopes = answers.scopes(&rules.adapter);
        if scopes.is_empty()
            && let Some(before) = told.take()
        {
            scopes = before.scopes;
        }
        *told = Some(Told { answers, at, scopes });
    }

    /// Notes that a scrape of an instance failed: its series have a gap there.
    pub fn fail(&mut self, source: SourceId, instance: &str, at: Mono) {
        if let Some(member) = self.sources[source.0].members.get_mut(instance) {
            member.intake.fail(at);
        }
    }

    /// One snapshot per quota scope, in order of their names, as of `at`.
    ///
    /// Sources that do not tell scopes apart fill the snapshot of the only scope. With several
    /// scopes they fill none, because nobody can say whose numbers they are; without any they make
    /// a snapshot of their own, with an empty scope.
    #[must_use]
    pub fn snapshots(&self, at: Mono) -> Vec<Snapshot> {
        let views = self.views(at);
        if views.is_empty() {
            return Vec::new();
        }
        let scopes = scopes_of(&views);
        if scopes.is_empty() {
            return vec![snapshot("", true, &views)];
        }
        let is_only = scopes.len() == 1;
        scopes.into_iter().map(|scope| snapshot(scope, is_only, &views)).collect()
    }

    /// Where the signal in the snapshot of `scope` comes from, as of `at`.
    #[must_use]
    pub fn origin(&self, scope: &str, signal: &str, at: Mono) -> Origin {
        let views = self.views(at);
        let is_only = scopes_of(&views).len() <= 1;
        let shown = snapshot(scope, is_only, &views);
        let accounts = views.iter().filter_map(|view| {
            let selector = view.selector(scope, is_only)?;
            view.account(signal, selector, &shown, at)
        });
        let accounts = accounts.collect();
        Origin { scope: scope.to_owned(), signal: signal.to_owned(), accounts }
    }

    /// The sources that have said anything, in the order in which they are believed.
    fn views(&self, at: Mono) -> Vec<View<'_>> {
        let mut views: Vec<_> = self.sources.iter().filter_map(|one| View::of(one, at)).collect();
        // Of several with one role, the first that was added is believed.
        views.sort_by_key(|view| view.entry.rules.adapter.role);
        views
    }
}

fn scopes_of<'a>(views: &[View<'a>]) -> BTreeSet<&'a str> {
    views.iter().flat_map(|view| &view.scopes).copied().collect()
}

/// One source with one page: what a process that looks at its own numbers needs.
#[derive(Debug)]
pub struct OnePage {
    assembler: Assembler,
    id: SourceId,
}

impl OnePage {
    /// The source called `name`.
    #[must_use]
    pub fn new(name: &str, rules: SourceRules) -> Self {
        let mut assembler = Assembler::new();
        let id = assembler.add(name, rules);
        Self { assembler, id }
    }

    /// Takes its next page in.
    ///
    /// # Errors
    ///
    /// When the page is too large.
    pub fn accept(&mut self, page: Page<'_>, at: Mono) -> Result<Report, TooLarge> {
        self.assembler.accept(self.id, ONLY, page, at)
    }

    /// See [`Assembler::snapshots`].
    #[must_use]
    pub fn snapshots(&self, at: Mono) -> Vec<Snapshot> {
        self.assembler.snapshots(at)
    }
}

/// One source at one moment.
struct View<'a> {
    entry: &'a Entry,
    scopes: BTreeSet<&'a str>,
    voice: Voice<'a>,
    /// Since the oldest of what is said; since the newest that was ever said by a silent source.
    age: Duration,
}

/// What a source says now.
enum Voice<'a> {
    /// The instances whose newest page is not too old, one at least.
    Pages(Vec<Instance<'a>>),
    Answers(&'a Answers),
    Silent,
}

impl<'a> View<'a> {
    /// `None` before the source said anything.
    fn of(entry: &'a Entry, at: Mono) -> Option<Self> {
        match &entry.told {
            Some(told) => Some(Self::of_answers(entry, told, at)),
            None => Self::of_pages(entry, at),
        }
    }

    fn of_pages(entry: &'a Entry, at: Mono) -> Option<Self> {
        let members = || entry.members.values();
        let ages = members().filter_map(|one| one.intake.book().newest());
        let mut age = ages.map(|newest| at.saturating_since(newest)).min()?;
        let mut answering = Vec::new();
        // A page of something else answers too, and says nothing: it is no instance of this source
        // unless all are such pages, which is then the reason for what is unknown.
        let adapter = &entry.rules.adapter;
        let is_its_page = |book: &SeriesBook| adapter.metrics().any(|metric| book.has(&metric));
        let any_is = members().any(|one| is_its_page(one.intake.book()));
        for book in members().map(|one| one.intake.book()) {
            let own = book.newest().map(|newest| at.saturating_since(newest));
            let own = own.filter(|own| *own <= entry.rules.stale_after);
            if let Some(own) = own.filter(|_| !any_is || is_its_page(book)) {
                answering.push(Instance::new(book));
                age = age.max(own);
            }
        }
        let voice = if answering.is_empty() { Voice::Silent } else { Voice::Pages(answering) };
        let scopes = members().flat_map(|one| &one.scopes).map(String::as_str).collect();
        Some(Self { entry, scopes, voice, age })
    }

    fn of_answers(entry: &'a Entry, told: &'a Told, at: Mono) -> Self {
        let Told { answers, at: taken, scopes } = told;
        let age = at.saturating_since(*taken)
            + Duration::try_from_secs_f64(answers.age_s()).unwrap_or(Duration::MAX);
        let is_fresh = age <= entry.rules.stale_after.max(answers.fresh_for());
        let voice = if is_fresh { Voice::Answers(answers) } else { Voice::Silent };
        Self { entry, scopes: scopes.iter().map(String::as_str).collect(), voice, age }
    }

    /// How its series of a scope are told apart: not at all where it knows no scopes, and `None` where
    /// it knows others.
    #[expect(clippy::option_option, reason = "the scope it is asked for, where it is asked at all")]
    fn selector<'s>(&self, scope: &'s str, is_only: bool) -> Option<Option<&'s str>> {
        if self.scopes.contains(scope) {
            return Some(Some(scope));
        }
        (self.scopes.is_empty() && is_only).then_some(None)
    }

    /// What it has to say about a signal; `None` where its adapter does not speak of it.
    fn account(
        &self,
        signal: &str,
        scope: Option<&str>,
        shown: &Snapshot,
        at: Mono,
    ) -> Option<Account> {
        let Entry { name, rules, members, .. } = self.entry;
        let adapter = &*rules.adapter;
        if !adapter.speaks_of(signal) {
            return None;
        }
        let told = match &self.voice {
            Voice::Pages(instances) => {
                let named: Vec<(&str, &Intake)> = members
                    .iter()
                    .filter(|(_, one)| instances.iter().any(|other| other.is(one.intake.book())))
                    .map(|(name, one)| (name.as_str(), &one.intake))
                    .collect();
                let books: Vec<_> = named.iter().map(|(name, one)| (*name, one.book())).collect();
                let mut told = adapter::readings(&self.source(instances), scope, signal, &books);
                for series in told.iter_mut().flatten().flat_map(|reading| &mut reading.series) {
                    let intake = named.iter().find(|(name, _)| *name == series.instance);
                    series.recent = intake.map_or_else(Vec::new, |(_, one)| {
                        one.recent(&series.name, &series.labels, at)
                    });
                }
                told
            }
            Voice::Answers(answers) => answers.readings(name, adapter, scope, signal),
            Voice::Silent => Err(format!("last answered {:.0} s ago", self.age.as_secs_f64())),
        };
        let (readings, silent) = told.map_or_else(|why| (Vec::new(), Some(why)), |all| (all, None));
        Some(Account {
            source: Arc::clone(name),
            adapter: adapter.title.clone(),
            verified: adapter.verified,
            age_s: self.age.as_secs_f64(),
            silent: silent.or_else(|| adapter.why_absent(signal).map(str::to_owned)),
            is_believed: shown.get(signal).is_some_and(|reading| reading.source == *name),
            readings,
        })
    }

    /// What it is made of, with those of its instances that answer.
    fn source<'s>(&'s self, instances: &'s [Instance<'s>]) -> Source<'s> {
        let Entry { name, rules, members, .. } = self.entry;
        let age_s = self.age.as_secs_f64();
        Source { name, adapter: &rules.adapter, instances, expected: members.len(), age_s }
    }

    /// Writes what it says about `scope` into `snapshot`.
    fn fill(&self, snapshot: &mut Snapshot, scope: Option<&str>) {
        let Entry { name, rules, .. } = self.entry;
        match &self.voice {
            Voice::Pages(instances) => adapter::fill(snapshot, &self.source(instances), scope),
            Voice::Answers(answers) => {
                let age_s = self.age.as_secs_f64();
                answers.fill(snapshot, name, &rules.adapter, scope, age_s);
            }
            Voice::Silent => adapter::stale(snapshot, &self.source(&[])),
        }
    }

    /// What its rates are taken over, in seconds.
    fn window_s(&self) -> Option<f64> {
        match &self.voice {
            Voice::Pages(instances) => {
                let windows = instances.iter().filter_map(Instance::window);
                windows.map(Window::seconds).reduce(f64::max)
            }
            Voice::Answers(answers) => Some(answers.window().as_secs_f64()),
            Voice::Silent => None,
        }
    }
}

fn snapshot(scope: &str, is_only: bool, views: &[View<'_>]) -> Snapshot {
    let mut snapshot = Snapshot::new(scope, 0.0);
    let mut spans_s = Vec::new();
    for view in views {
        let Some(selector) = view.selector(scope, is_only) else { continue };
        view.fill(&mut snapshot, selector);
        spans_s.extend(view.window_s());
    }
    let wanted_s = views.iter().map(|view| view.entry.rules.window.as_secs_f64());
    let longest_s = spans_s.into_iter().reduce(f64::max);
    snapshot.window_s = longest_s.or_else(|| wanted_s.reduce(f64::max)).unwrap_or_default();
    snapshot
}

#[cfg(test)]
mod tests;
