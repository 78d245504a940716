//! The metrics pages of a virtual run, read as those of a live one are: three sources, the same
//! adapters, one snapshot per quota scope. Counts nothing itself.

use std::sync::Arc;
use std::time::Duration;

use crate::drill::client_page::{self, ClientFacts};
use crate::drill::lost::{Lost, Source};
use crate::drill::observed::{Count, Observed};
use crate::drill::provider_page::{self, PageFacts};
use crate::drill::scenario::Scenario;
use crate::gateway::{Facts, render};
use crate::incident::recording::Recorder;
use crate::ingest::exposition::Format;
use crate::ingest::{Adapter, Assembler, News, ONLY, Page, SourceFacts, SourceId, SourceRules};
use crate::signal::{Mono, Snapshot};
use crate::sim::callers::CallerConfig;
use crate::sim::gated::GatedWorld;
use crate::sim::layers::Stack;
use crate::sim::world::World;

/// What is heard of the sources, for a recording if there is one.
struct Tape<'a> {
    recorder: Option<&'a mut Recorder>,
    is_first: bool,
}

impl Tape<'_> {
    fn instances(&mut self, source: Source, names: &[String], now: Mono) {
        if let Some(recorder) = self.recorder.as_mut().filter(|_| self.is_first) {
            recorder.hear(source as usize, &News::Instances(names.to_vec()), now);
        }
    }

    fn polled(&mut self, source: Source, name: &str, page: Result<String, String>, now: Mono) {
        let Some(recorder) = &mut self.recorder else { return };
        let outcome = page.map(|page| (page.into_bytes(), Format::Text));
        let news = News::Polled { instance: Arc::from(name), took: Duration::ZERO, outcome };
        recorder.hear(source as usize, &news, now);
    }
}

/// The sources in the order of [`Source`], without a way to them.
pub(super) fn facts(interval: Duration, timeout: Duration) -> Vec<SourceFacts> {
    let fact = |(source, adapter): (Source, Arc<Adapter>)| SourceFacts {
        name: source.word().to_owned(),
        url: String::new(),
        via: None,
        adapter,
        interval,
        timeout,
    };
    let adapters = [
        (Source::Gateway, Adapter::weir()),
        (Source::Provider, Adapter::simprov()),
        (Source::Clients, Adapter::simcli()),
    ];
    adapters.map(fact).into()
}

/// Every process of a virtual run starts with its clock.
const STARTED_EPOCH_S: f64 = 0.0;

/// The sources of one run.
#[derive(Debug)]
pub(super) struct Sources {
    assembler: Assembler,
    gateway: SourceId,
    provider: SourceId,
    clients: SourceId,
    lost: Option<Lost>,
    has_begun: bool,
    /// Names of the gates.
    gates: Vec<String>,
    /// Full names of the quota scopes.
    scopes: Vec<String>,
    callers: Vec<CallerConfig>,
    layers: Stack,
    deployed: Option<Duration>,
}

impl Sources {
    /// Sources that have not been read yet, of which one may be lost for a while.
    pub(super) fn new(scenario: &Scenario, scopes: Vec<String>, gates: usize) -> Self {
        let mut assembler = Assembler::new();
        let mut add =
            |source: Source, adapter| assembler.add(source.word(), SourceRules::new(adapter));
        let gateway = add(Source::Gateway, Adapter::weir());
        let provider = add(Source::Provider, Adapter::simprov());
        let clients = add(Source::Clients, Adapter::simcli());
        let name = |number: usize| if gates == 1 { ONLY.to_owned() } else { number.to_string() };
        let gates: Vec<_> = (0..gates).map(name).collect();
        assembler.expect(gateway, gates.iter().map(String::as_str));
        Self {
            assembler,
            gateway,
            provider,
            clients,
            lost: scenario.lost,
            has_begun: false,
            gates,
            scopes,
            callers: scenario.all_callers(),
            layers: scenario.layers.clone(),
            deployed: scenario.deployed,
        }
    }

    /// Reads every page, and says what they say together.
    pub(super) fn scrape(
        &mut self,
        world: &mut World<Observed<GatedWorld, Count>>,
        recorder: Option<&mut Recorder>,
    ) -> Vec<Snapshot> {
        let now = world.now();
        let mut tape = Tape { recorder, is_first: !std::mem::replace(&mut self.has_begun, true) };
        tape.instances(Source::Gateway, &self.gates, now);
        tape.instances(Source::Clients, &[ONLY.to_owned()], now);
        tape.instances(Source::Provider, &[ONLY.to_owned()], now);
        for number in 0..self.gates.len() {
            let gate = self.gates[number].clone();
            self.read(Source::Gateway, &gate, now, &mut tape, |_| {
                gateway_page(world, number, &gate, now)
            });
        }
        self.read(Source::Clients, ONLY, now, &mut tape, |sources| sources.client_page(world, now));
        self.read(Source::Provider, ONLY, now, &mut tape, |sources| {
            sources.provider_page(world, now)
        });
        self.assembler.snapshots(now)
    }

    /// Takes a page in, or a gap where the source is lost.
    fn read(
        &mut self,
        source: Source,
        target: &str,
        now: Mono,
        tape: &mut Tape<'_>,
        render: impl FnOnce(&Self) -> String,
    ) {
        let id = match source {
            Source::Gateway => self.gateway,
            Source::Provider => self.provider,
            Source::Clients => self.clients,
        };
        if self.lost.is_some_and(|lost| lost.covers(source, now.since_start())) {
            tape.polled(
                source,
                target,
                Err(format!("{}: lost by the scenario", source.word())),
                now,
            );
            return self.assembler.fail(id, target, now);
        }
        let page = render(self);
        let taken = self.assembler.accept(id, target, Page::text(&page), now);
        debug_assert!(taken.is_ok(), "a page of our own is small");
        tape.polled(source, target, Ok(page), now);
    }

    /// The pages of all scopes as one.
    fn provider_page(&self, world: &mut World<Observed<GatedWorld, Count>>, now: Mono) -> String {
        let latency = world.gate().witness().provider_latency().clone();
        let several = self.scopes.len() > 1;
        let pages = world.providers_mut().iter_mut().zip(&self.scopes).map(|(provider, scope)| {
            let facts = PageFacts {
                process_start_s: STARTED_EPOCH_S,
                // How long answers took is not told apart by scope.
                latency: (!several).then_some(&latency),
                scope: several.then_some(scope),
            };
            provider_page::render(provider, &facts, now)
        });
        provider_page::as_one(pages)
    }

    fn client_page(&self, world: &World<Observed<GatedWorld, Count>>, now: Mono) -> String {
        let facts = ClientFacts {
            started_epoch_s: STARTED_EPOCH_S,
            deployed: self.deployed,
            scopes: &self.scopes,
            callers: &self.callers,
            layers: &self.layers,
        };
        client_page::render(world.tallies(), world.app(), &facts, now)
    }
}

fn gateway_page(
    world: &World<Observed<GatedWorld, Count>>,
    number: usize,
    instance: &str,
    now: Mono,
) -> String {
    let gated = world.gate().gate();
    let gate = gated.gates().nth(number).expect("gates are counted at the start");
    let facts = Facts {
        instance,
        process_start_s: STARTED_EPOCH_S,
        upstream_open: gated.open_calls(number),
        loop_lag: Some(gated.loop_lag(now)),
        store: gated.store_counters(number),
        ..Facts::default()
    };
    render(gate, &facts, now)
}
