//! The metrics pages of a stage, polled once a second: each gateway is an instance of one source, and a
//! page that the scenario loses is not read for a while.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Observations;
use super::control::Control;
use crate::drill::lost::{Lost, Source};
use crate::drill::stage::Addresses;
use crate::incident::recording::Tape;
use crate::ingest::{
    Adapter, Discovery, Fetched, Instance, ONLY, Origins, PollConfig, Poller, Road, ScrapeError,
    Scraper, SourceConfig, Target, Witness,
};

const SCRAPE_TIMEOUT: Duration = Duration::from_millis(800);
const SCRAPE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A source that is lost for a while, once the run has begun.
#[derive(Clone, Debug)]
pub(super) struct Losing {
    lost: Option<Lost>,
    /// The run's zero.
    zero: Arc<OnceLock<Instant>>,
}

impl Losing {
    /// What a scenario loses.
    pub(super) fn new(lost: Option<Lost>) -> Self {
        Self { lost, zero: Arc::default() }
    }

    /// The run begins now, unless it has begun.
    pub(super) fn begin(&self) -> Instant {
        *self.zero.get_or_init(Instant::now)
    }

    /// Whether a source, by its name, cannot be read now.
    fn covers(&self, source: &str) -> bool {
        let (Some(lost), Some(zero)) = (self.lost, self.zero.get()) else { return false };
        lost.lose.word() == source && lost.covers(lost.lose, zero.elapsed())
    }
}

/// What there is to poll on a stage.
#[must_use]
pub fn sources(addresses: &Addresses) -> Vec<SourceConfig> {
    let source = |of: Source, pages: Vec<Instance>, adapter| {
        let url = pages[0].url.clone();
        let target = Target {
            timeout: SCRAPE_TIMEOUT,
            body_max: SCRAPE_BYTES_MAX,
            ..Target::new(of.word(), url)
        };
        let source = SourceConfig::page(target.clone(), adapter);
        let road = Road::Pages { target: Box::new(target), instances: Discovery::Static(pages) };
        SourceConfig { road, ..source }
    };
    let page = |name: &str, address| Instance {
        name: name.to_owned(),
        url: format!("http://{address}/metrics"),
    };
    let gateways = match &addresses.gateways[..] {
        [only] => vec![page(ONLY, only.admin)],
        several => {
            let numbered = several.iter().enumerate();
            numbered.map(|(number, at)| page(&number.to_string(), at.admin)).collect()
        }
    };
    let mut sources = vec![source(Source::Gateway, gateways, Adapter::weir())];
    let provider = addresses.provider.map(|address| vec![page(ONLY, address)]);
    sources.extend(provider.map(|pages| source(Source::Provider, pages, Adapter::simprov())));
    let clients = vec![page(ONLY, addresses.clients)];
    sources.push(source(Source::Clients, clients, Adapter::simcli()));
    sources
}

/// Polls the processes of a stage once a second. A tape has everything that is heard.
///
/// # Errors
/// When no HTTP client can be made.
pub fn poll(
    control: &Control,
    origin: Instant,
    origins: Origins,
    tape: Option<Tape>,
) -> Result<(Poller, Observations), ScrapeError> {
    let (sender, receiver) = watch::channel(None);
    let sources = sources(control.addresses());
    let config = PollConfig { sources, interval: Duration::from_secs(1), origin, origins };
    let witness = tape.map(|tape| Box::new(tape) as Box<dyn Witness>);
    let (scraper, losing) = (Scraper::new()?, control.losing().clone());
    let fetch = move |target: Arc<Target>| fetch(scraper.clone(), losing.clone(), target);
    Ok((Poller::begin(config, fetch, sender, witness), receiver))
}

/// Reads a page, unless it is lost.
async fn fetch(scraper: Scraper, losing: Losing, target: Arc<Target>) -> Fetched {
    // An instance goes by its source's name and its own.
    let source = target.name.split(' ').next().unwrap_or_default();
    if losing.covers(source) {
        return Err(ScrapeError::Connect {
            source_name: target.name.clone(),
            url: target.url.clone(),
            cause: "lost by the scenario".to_owned(),
        });
    }
    scraper.fetch(&target).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::stage::GatewayAddress;

    fn addresses(gateways: u16) -> Addresses {
        let at = |port| ([127, 0, 0, 1], port).into();
        let gateway = |number| GatewayAddress { data: at(100 + number), admin: at(200 + number) };
        let gateways = (0..gateways).map(gateway).collect();
        Addresses { provider: Some(at(1)), gateways, clients: at(2) }
    }

    #[test]
    fn gateways_are_instances_of_one_source() {
        let pages = |count| {
            let sources = sources(&addresses(count));
            let names: Vec<_> = sources.iter().map(|source| source.name.clone()).collect();
            assert_eq!(names, ["gateway", "provider", "clients"]);
            let Road::Pages { instances: Discovery::Static(pages), .. } = sources[0].road.clone()
            else {
                panic!("a list of pages");
            };
            pages.into_iter().map(|page| (page.name, page.url)).collect::<Vec<_>>()
        };
        let url = |port| format!("http://127.0.0.1:{port}/metrics");
        assert_eq!(pages(1), [(ONLY.to_owned(), url(200))]);
        assert_eq!(pages(2), [("0".to_owned(), url(200)), ("1".to_owned(), url(201))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_is_lost_from_the_beginning_of_the_run_on() {
        let lost = Lost { lose: Source::Gateway, from_s: 10.0, to_s: 20.0 };
        let losing = Losing::new(Some(lost));
        tokio::time::advance(Duration::from_secs(15)).await;
        assert!(!losing.covers("gateway"), "it has not begun");
        losing.begin();
        for (seconds, covered) in [(9, false), (2, true), (8, true), (2, false)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(losing.covers("gateway"), covered);
            assert!(!losing.covers("clients"), "another source");
        }
        assert!(!Losing::new(None).covers("gateway"));
    }
}
