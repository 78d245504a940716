//! Puts what several sources say together into one snapshot per quota scope.
//!
//! Reads no clock and opens no socket: scrapes come in with their time, snapshots go out. So the
//! poller, the gateway's own snapshot and the drill on the virtual clock share it. The gateway is
//! believed first, then the provider, then the clients; a later one only fills what is still unknown.
//! A source that has been quiet for too long says nothing any more, and its signals say why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Mono, Round, SeriesBook, Snapshot, Window};

use super::adapter::{self, Adapter, Role, Source};
use super::parsed::ParsedScrape;

/// How long a source may be quiet before its numbers are no longer now, unless set otherwise:
/// three intervals of the live screen.
pub const STALE_AFTER: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    adapter: Arc<Adapter>,
    book: SeriesBook,
    /// The scopes that it has ever told, so that a scope stays on screen while its source is down.
    scopes: BTreeSet<String>,
}

/// Collects scrapes and gives snapshots. Call [`Self::accept`] for every scrape in order of time,
/// and [`Self::snapshots`] whenever one is wanted; it changes nothing.
#[derive(Debug)]
pub struct Assembler {
    window: Duration,
    stale_after: Duration,
    /// By role first, which is the order in which sources are believed.
    sources: BTreeMap<(Role, String), Entry>,
}

impl Assembler {
    /// An assembler whose rates are taken over `window_s` seconds.
    #[must_use]
    pub fn new(window_s: f64) -> Self {
        let window = Duration::try_from_secs_f64(window_s).unwrap_or_default();
        Self { window, stale_after: STALE_AFTER, sources: BTreeMap::new() }
    }

    /// The same with another limit on the age of a scrape.
    #[must_use]
    pub const fn with_stale_after(mut self, limit: Duration) -> Self {
        self.stale_after = limit;
        self
    }

    /// Takes in a scrape of the source called `source`.
    pub fn accept(
        &mut self,
        source: &str,
        adapter: &Arc<Adapter>,
        scrape: &ParsedScrape,
        at: Mono,
    ) {
        let window = self.window;
        let key = (adapter.role, source.to_owned());
        let entry = self.sources.entry(key).or_insert_with(|| Entry {
            name: source.into(),
            adapter: Arc::clone(adapter),
            book: SeriesBook::new(window),
            scopes: BTreeSet::new(),
        });
        let round = Round {
            points: &scrape.points,
            process_start_s: scrape.process_start_s,
            is_complete: scrape.is_complete(),
        };
        entry.book.accept(round, at);
        let scopes = adapter::scopes(&entry.adapter, &entry.book);
        if !scopes.is_empty() {
            entry.scopes = scopes;
        }
    }

    /// One snapshot per quota scope, in order of their names, as of `at`.
    ///
    /// Sources that do not tell scopes apart fill the snapshot of the only scope. With several
    /// scopes they fill none, because nobody can say whose numbers they are; without any they make
    /// a snapshot of their own, with an empty scope.
    #[must_use]
    pub fn snapshots(&self, at: Mono) -> Vec<Snapshot> {
        let scopes: BTreeSet<_> = self.sources.values().flat_map(|entry| &entry.scopes).collect();
        if self.sources.is_empty() {
            return Vec::new();
        }
        if scopes.is_empty() {
            return vec![self.snapshot("", true, at)];
        }
        let is_only = scopes.len() == 1;
        scopes.into_iter().map(|scope| self.snapshot(scope, is_only, at)).collect()
    }

    fn snapshot(&self, scope: &str, is_only: bool, at: Mono) -> Snapshot {
        let mut snapshot = Snapshot::new(scope, self.window.as_secs_f64());
        let mut longest_s: Option<f64> = None;
        for entry in self.sources.values() {
            let selector = match entry.scopes.contains(scope) {
                true => Some(scope),
                false if entry.scopes.is_empty() && is_only => None,
                false => continue,
            };
            let Some(newest) = entry.book.newest() else { continue };
            let age = at.saturating_since(newest);
            let source = Source {
                name: &entry.name,
                adapter: &entry.adapter,
                book: &entry.book,
                age_s: age.as_secs_f64(),
            };
            if age > self.stale_after {
                adapter::stale(&mut snapshot, &source);
                continue;
            }
            adapter::fill(&mut snapshot, &source, selector);
            let span_s = entry.book.window().map(Window::seconds);
            longest_s = longest_s.into_iter().chain(span_s).reduce(f64::max);
        }
        if let Some(span_s) = longest_s {
            snapshot.window_s = span_s;
        }
        snapshot
    }
}

#[cfg(test)]
mod tests;
