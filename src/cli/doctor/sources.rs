//! Asks every source once: each instance of those that weir scrapes, and Prometheus for the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::Result;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::Instant;

use crate::ingest::prometheus::{Answers, PrometheusError};
use crate::ingest::{
    Adapter, Discovery, DiscoveryError, Instance, PageRead, Road, ScrapeError, Scraper,
    SourceConfig, Target, cross_check, degraded, read_page,
};
use crate::signal::{Quality, Snapshot};

/// Instances that are scraped together: each page may take 50 MB.
const TOGETHER_MAX: usize = 8;

/// What one source came to.
pub struct Checked {
    pub name: String,
    pub adapter: Arc<Adapter>,
    /// From one question to the next, when it is watched.
    pub interval: Duration,
    pub seen: Seen,
}

/// What was seen of a source, by the road that its numbers take.
pub enum Seen {
    /// Its instances, or why they are not known.
    Instances(Result<Vec<OneInstance>, DiscoveryError>),
    /// What Prometheus knows about it.
    Answers(Box<Result<Answers, PrometheusError>>),
}

/// What a source tells of one signal.
pub struct Word<'a> {
    pub signal: &'a str,
    /// How well, or why not.
    pub quality: Result<Quality, String>,
    pub note: Option<&'a str>,
}

/// What one instance came to.
pub struct OneInstance {
    pub name: String,
    pub url: String,
    pub page: Result<Page, ScrapeError>,
}

/// What one scrape showed, or the scrapes of all instances together.
#[derive(Clone, Default)]
pub struct Page {
    pub took_s: f64,
    pub samples: usize,
    pub bad_line_count: usize,
    /// The first bad lines, with their reasons.
    pub bad_lines: Vec<(usize, String)>,
    pub prometheus_accepts: bool,
    /// Samples that `prometheus-parse` would not find.
    pub lost: usize,
    /// Metrics that the adapter reads and the page has.
    pub present: BTreeSet<String>,
}

impl Checked {
    /// Whether everything of it answered.
    pub fn is_well(&self) -> bool {
        self.error().is_none()
    }

    /// The first thing that is wrong.
    pub fn error(&self) -> Option<String> {
        match &self.seen {
            Seen::Instances(Err(error)) => Some(format!("{}: {error}", self.name)),
            Seen::Instances(Ok(all)) if all.is_empty() => Some(format!(
                "{}: has no instance; has its service been scaled to none?",
                self.name
            )),
            Seen::Instances(Ok(all)) => {
                all.iter().find_map(|one| one.page.as_ref().err().map(ToString::to_string))
            }
            Seen::Answers(answers) => answers.as_ref().as_ref().err().map(ToString::to_string),
        }
    }

    /// Whether it said anything, so that what it tells is seen and not promised.
    pub fn has_answered(&self) -> bool {
        match &self.seen {
            Seen::Answers(answers) => answers.is_ok(),
            Seen::Instances(_) => self.page().is_some(),
        }
    }

    /// What it tells of each signal: as seen, and by its adapter's word where it did not answer.
    pub fn words(&self) -> Vec<Word<'_>> {
        let adapter = &self.adapter;
        let page = self.page();
        let answers = match &self.seen {
            Seen::Answers(answers) => answers.as_ref().as_ref().ok(),
            Seen::Instances(_) => None,
        };
        let answered = answers.map(|answers| {
            let scope = answers.scopes(adapter).into_iter().next();
            let mut snapshot = Snapshot::new(scope.as_deref().unwrap_or_default(), 0.0);
            let name = Arc::from(self.name.as_str());
            answers.fill(&mut snapshot, &name, adapter, scope.as_deref(), answers.age_s());
            snapshot
        });
        let is_foreign = page.as_ref().is_some_and(|page| page.present.is_empty());
        let has = |metric: &str| page.as_ref().is_none_or(|page| page.present.contains(metric));
        let word = |signal| {
            let mut quality = adapter.quality_where(signal, &has);
            if is_foreign && quality.is_ok() {
                quality = Err(format!("none of the metrics of adapter {} is there", adapter.name));
            }
            if let Some(snapshot) = &answered {
                let absent = || snapshot.absent.get(signal).cloned().unwrap_or_default();
                quality = snapshot.get(signal).map(|reading| reading.quality).ok_or_else(absent);
            }
            Word { signal, quality, note: adapter.signals[signal].note() }
        };
        adapter.signals.keys().map(|signal| word(signal.as_str())).collect()
    }

    /// Metrics that its adapter reads and the page does not have, lazy ones apart.
    pub fn missing_on(&self, page: &Page) -> BTreeSet<String> {
        let adapter = &self.adapter;
        let is_missing =
            |metric: &String| !page.present.contains(metric) && !adapter.is_lazy(metric);
        adapter.metrics().filter(is_missing).collect()
    }

    /// The pages of all instances that answered, as one.
    pub fn page(&self) -> Option<Page> {
        let Seen::Instances(Ok(all)) = &self.seen else { return None };
        all.iter().filter_map(|one| one.page.as_ref().ok()).cloned().reduce(|sum, page| Page {
            took_s: sum.took_s.max(page.took_s),
            samples: sum.samples + page.samples,
            bad_line_count: sum.bad_line_count + page.bad_line_count,
            bad_lines: sum.bad_lines.into_iter().chain(page.bad_lines).collect(),
            prometheus_accepts: sum.prometheus_accepts && page.prometheus_accepts,
            lost: sum.lost + page.lost,
            present: sum.present.into_iter().chain(page.present).collect(),
        })
    }
}

/// Asks every source, one after another, and no part of one for longer than `timeout`.
///
/// # Errors
/// When there can be no HTTP client.
pub async fn check(sources: Vec<SourceConfig>, timeout: Duration) -> Result<Vec<Checked>> {
    let scraper = Scraper::new()?;
    let mut checked = Vec::new();
    for source in sources {
        let SourceConfig { name, adapter, road, interval, .. } = source;
        let seen = match road {
            Road::Pages { target, instances } => {
                let target = Target { timeout, ..*target };
                Seen::Instances(scrape(&scraper, target, &instances, &adapter).await)
            }
            Road::Queries(queries) => Seen::Answers(Box::new(queries.poll().await)),
        };
        checked.push(Checked { name, adapter, interval, seen });
    }
    Ok(checked)
}

async fn scrape(
    scraper: &Scraper,
    target: Target,
    instances: &Discovery,
    adapter: &Arc<Adapter>,
) -> Result<Vec<OneInstance>, DiscoveryError> {
    let one = |instance: Instance| {
        let (adapter, source) = (Arc::clone(adapter), target.clone());
        async move {
            let name = [source.name.as_str(), instance.name.as_str()].join(" ").trim().to_owned();
            let target = Target { name, url: instance.url, ..source };
            let page = page(scraper, &target, &adapter).await;
            OneInstance { name: instance.name, url: target.url, page }
        }
    };
    let found = instances.instances().await?;
    Ok(stream::iter(found).map(one).buffered(TOGETHER_MAX).collect().await)
}

async fn page(scraper: &Scraper, target: &Target, adapter: &Adapter) -> Result<Page, ScrapeError> {
    let begun = Instant::now();
    let (body, format) = scraper.fetch(target).await?;
    let took_s = begun.elapsed().as_secs_f64();
    let too_large =
        |_| ScrapeError::TooLarge { source_name: target.name.clone(), limit: target.body_max };
    let PageRead { metrics, report, .. } = read_page(&target.name, &body, format)?;
    let read: BTreeSet<String> = adapter.metrics().collect();
    Ok(Page {
        took_s,
        samples: report.samples,
        bad_line_count: report.problem_count,
        bad_lines: degraded(&report),
        prometheus_accepts: report.prometheus_accepts(),
        lost: cross_check(&body, format).map_err(too_large)?.lost,
        present: read.intersection(&metrics).cloned().collect(),
    })
}

/// The signals that some source gives.
pub fn given(sources: &[Checked]) -> BTreeSet<String> {
    let words = sources.iter().flat_map(Checked::words);
    words.filter(|word| word.quality.is_ok()).map(|word| word.signal.to_owned()).collect()
}
