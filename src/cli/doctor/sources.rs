//! Asks every source once: each instance of those that weir scrapes, and Prometheus for the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::Result;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::Instant;

use crate::ingest::prometheus::{Answers, PrometheusError};
use crate::ingest::{
    Adapter, Discovery, DiscoveryError, Instance, Road, ScrapeError, Scraper, SourceConfig, Target,
    cross_check, read_page,
};

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
    pub bad_lines: usize,
    pub prometheus_accepts: bool,
    /// Samples that `prometheus-parse` would not find.
    pub lost: usize,
    /// Metrics that the adapter reads and the page does not have.
    pub missing: BTreeSet<String>,
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

    /// The pages of all instances that answered, as one.
    pub fn page(&self) -> Option<Page> {
        let Seen::Instances(Ok(all)) = &self.seen else { return None };
        all.iter().filter_map(|one| one.page.as_ref().ok()).cloned().reduce(|sum, page| Page {
            took_s: sum.took_s.max(page.took_s),
            samples: sum.samples + page.samples,
            bad_lines: sum.bad_lines + page.bad_lines,
            prometheus_accepts: sum.prometheus_accepts && page.prometheus_accepts,
            lost: sum.lost + page.lost,
            missing: sum.missing.intersection(&page.missing).cloned().collect(),
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
    let scrape = read_page(&target.name, &body, format)?;
    let there: BTreeSet<&str> = scrape.points.iter().map(|point| &*point.name).collect();
    let missing = adapter
        .metrics()
        .filter(|metric| !there.contains(metric.as_str()) && !adapter.is_lazy(metric));
    Ok(Page {
        took_s,
        samples: scrape.report.samples,
        bad_lines: scrape.report.problem_count,
        prometheus_accepts: scrape.report.prometheus_accepts(),
        lost: cross_check(&body, format).map_err(too_large)?.lost,
        missing: missing.collect(),
    })
}

/// The signals that some source gives.
pub fn given(sources: &[Checked]) -> BTreeSet<String> {
    let entries = sources.iter().flat_map(|source| &source.adapter.signals);
    entries.filter(|(_, entry)| entry.quality().is_some()).map(|(name, _)| name.clone()).collect()
}
