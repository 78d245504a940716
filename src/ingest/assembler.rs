//! Puts what several sources say together into one snapshot per quota scope.
//!
//! Reads no clock and opens no socket: pages come in with their time, snapshots go out. So the
//! poller, the gateway's own snapshot and the drill on the virtual clock share it. The gateway is
//! believed first, then the provider, then the clients; a later one only fills what is still unknown.
//! A source that has been quiet for too long says nothing any more, and its signals say why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Mono, Snapshot, Window};

use super::adapter::{self, Adapter, Instance, Source};
use super::exposition::{Format, Report, TooLarge};
use super::intake::Intake;

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
    terms: SourceRules,
    /// By name; those that never had a page among them.
    members: BTreeMap<String, Member>,
}

/// One instance of a source.
#[derive(Debug)]
struct Member {
    intake: Intake,
    /// The scopes that it told last, so that a scope stays on screen while its source is down.
    scopes: BTreeSet<String>,
}

impl Member {
    fn new(terms: &SourceRules) -> Self {
        let intake = Intake::new(terms.window, terms.adapter.metrics());
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
    pub fn add(&mut self, name: &str, terms: SourceRules) -> SourceId {
        let members = BTreeMap::from([(ONLY.to_owned(), Member::new(&terms))]);
        self.sources.push(Entry { name: name.into(), terms, members });
        SourceId(self.sources.len() - 1)
    }

    /// Says which instances a source has now. Those that it has no more are forgotten with all that
    /// they counted.
    pub fn expect<'a>(&mut self, source: SourceId, instances: impl IntoIterator<Item = &'a str>) {
        let Entry { terms, members, .. } = &mut self.sources[source.0];
        let mut before = std::mem::take(members);
        let kept = instances.into_iter().map(|name| {
            let member = before.remove(name).unwrap_or_else(|| Member::new(terms));
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
        let Entry { terms, members, .. } = &mut self.sources[source.0];
        let Some(Member { intake, scopes }) = members.get_mut(instance) else {
            return Ok(Report::default());
        };
        let report = intake.accept(page.body, page.format, at)?;
        let told = adapter::scopes(&terms.adapter, intake.book());
        if !told.is_empty() {
            *scopes = told;
        }
        Ok(report)
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
        let mut views: Vec<_> = self.sources.iter().filter_map(|one| View::of(one, at)).collect();
        views.sort_by_key(|view| (view.entry.terms.adapter.role, Arc::clone(&view.entry.name)));
        if views.is_empty() {
            return Vec::new();
        }
        let scopes: BTreeSet<_> = views.iter().flat_map(|view| &view.scopes).copied().collect();
        if scopes.is_empty() {
            return vec![snapshot("", true, &views)];
        }
        let is_only = scopes.len() == 1;
        scopes.into_iter().map(|scope| snapshot(scope, is_only, &views)).collect()
    }
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
    pub fn new(name: &str, terms: SourceRules) -> Self {
        let mut assembler = Assembler::new();
        let id = assembler.add(name, terms);
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
    /// Those whose newest page is not too old.
    answering: Vec<Instance<'a>>,
    /// Since the oldest of their pages; since the newest page of all where none is answering.
    age: Duration,
}

impl<'a> View<'a> {
    /// `None` before the first page.
    fn of(entry: &'a Entry, at: Mono) -> Option<Self> {
        let members = || entry.members.values();
        let ages = members().filter_map(|one| one.intake.book().newest());
        let newest = ages.map(|newest| at.saturating_since(newest)).min()?;
        let mut view = Self {
            entry,
            scopes: members().flat_map(|one| &one.scopes).map(String::as_str).collect(),
            answering: Vec::new(),
            age: newest,
        };
        for book in members().map(|one| one.intake.book()) {
            let age = book.newest().map(|newest| at.saturating_since(newest));
            if let Some(age) = age.filter(|age| *age <= entry.terms.stale_after) {
                view.answering.push(Instance::new(book));
                view.age = view.age.max(age);
            }
        }
        Some(view)
    }

    fn source(&self) -> Source<'_> {
        Source {
            name: &self.entry.name,
            adapter: &self.entry.terms.adapter,
            instances: &self.answering,
            expected: self.entry.members.len(),
            age_s: self.age.as_secs_f64(),
        }
    }
}

fn snapshot(scope: &str, is_only: bool, views: &[View<'_>]) -> Snapshot {
    let mut snapshot = Snapshot::new(scope, 0.0);
    let mut longest: Option<Duration> = None;
    for view in views {
        let selector = match view.scopes.contains(scope) {
            true => Some(scope),
            false if view.scopes.is_empty() && is_only => None,
            false => continue,
        };
        longest = longest.max(Some(view.entry.terms.window));
        if view.answering.is_empty() {
            adapter::stale(&mut snapshot, &view.source());
            continue;
        }
        adapter::fill(&mut snapshot, &view.source(), selector);
    }
    let spans = views.iter().flat_map(|view| &view.answering).filter_map(Instance::window);
    let span_s = spans.map(Window::seconds).reduce(f64::max);
    snapshot.window_s = span_s.unwrap_or(longest.unwrap_or_default().as_secs_f64());
    snapshot
}

#[cfg(test)]
mod tests;
