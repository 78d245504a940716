//! The drill on the virtual clock: the same gate, provider and client models, no sockets, no waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::observed::{Count, Observed};
use super::phases::{Phase, TimedFlip, phases};
use super::report::{
    LedgerReport, PhaseReport, Report, Span, Verdicts, gravest, side_by_side, unfinished,
};
use super::scenario::{FIRST_SCOPE, Scenario};
use crate::admission::{FlagError, Gate, ScopeConfig, Settings};
use crate::diagnosis::{Diagnoser, Library, Verdict};
use crate::gateway::Tally;
use crate::incident::recording::{Recorder, Told};
use crate::ingest::SourceFacts;
use crate::signal::{Mono, Snapshot};
use crate::sim::config::ProviderConfig;
use crate::sim::gated::GatedWorld;
use crate::sim::provider::Provider;
use crate::sim::world::{ScopeProvider, World};

mod sources;

use sources::Sources;

/// How often the world is looked at between events: the age of the queue, once a second the metrics.
const LOOK: Duration = Duration::from_millis(200);
const LOOKS_PER_SCRAPE: u64 = 5;
/// Longest drain.
const DRAIN_MAX: Duration = Duration::from_mins(1);

/// The full name of a scenario's quota scope.
#[must_use]
pub fn scope_name(scope: &str) -> String {
    format!("sim/drill/{scope}")
}

/// The scope that the quota of a scenario's first provider makes, as the gate believes it to be.
#[must_use]
pub fn scope_of(scenario: &Scenario) -> ScopeConfig {
    let scope = scope_config(FIRST_SCOPE, &scenario.provider, scenario.max_attempts_configured);
    scenario.gate.believes(scope)
}

/// The scopes that a scenario's quotas make, the first first. What the gate believes is of the first.
#[must_use]
pub fn scopes_of(scenario: &Scenario) -> Vec<ScopeConfig> {
    let config = |scope: &ScopeProvider| {
        scope_config(&scope.name, &scope.provider, scenario.max_attempts_configured)
    };
    [scope_of(scenario)].into_iter().chain(scenario.providers.iter().map(config)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "limits per minute are far below 2^53")]
fn scope_config(name: &str, provider: &ProviderConfig, max_attempts: u32) -> ScopeConfig {
    ScopeConfig {
        rpm: Some(provider.requests.per_minute.get() as f64),
        tpm: Some(provider.tokens.per_minute.get() as f64),
        max_attempts_configured: Some(max_attempts),
        ..ScopeConfig::named(scope_name(name).as_str()).with_buckets()
    }
}

/// The phases that a scenario's traffic and the flips make.
#[must_use]
pub fn phases_of(scenario: &Scenario, flips: &[TimedFlip], total: Duration) -> Vec<Phase> {
    let steps: Vec<_> = scenario
        .traffic
        .steps
        .iter()
        .map(|step| (Duration::from_secs_f64(step.at_s), step.name.clone()))
        .collect();
    phases(&steps, flips, total)
}

/// What is played: a scenario from one seed, with flips of its flags, for so long.
#[derive(Clone, Copy, Debug)]
pub struct Play<'a> {
    /// The incident.
    pub scenario: &'a Scenario,
    /// Seed of everything random.
    pub seed: u64,
    /// Length of the run without the drain.
    pub total: Duration,
    /// What is flipped when.
    pub flips: &'a [TimedFlip],
}

/// Plays a scenario on the virtual clock.
///
/// # Errors
/// When a flag of the scenario does not take its value.
pub fn run(
    scenario: &Scenario,
    library: &Arc<Library>,
    seed: u64,
    total: Duration,
    flips: &[TimedFlip],
) -> Result<Report, FlagError> {
    watch(&Play { scenario, seed, total, flips }, Some(library), |_, _| {})
}

/// Plays a scenario, and shows every snapshot with its instant to `see`. Without a library nothing is
/// diagnosed, which takes less time.
///
/// # Errors
/// When a flag of the scenario does not take its value.
pub fn watch(
    play: &Play<'_>,
    library: Option<&Arc<Library>>,
    see: impl FnMut(&Snapshot, Mono),
) -> Result<Report, FlagError> {
    Run::new(play, library, see, None)?.play(play)
}

/// Plays a scenario and records what is read and judged. The calendar begins with the run.
///
/// # Errors
/// When a flag of the scenario does not take its value.
pub fn record(
    play: &Play<'_>,
    library: &Arc<Library>,
    recorder: &mut Recorder,
) -> Result<Report, FlagError> {
    Run::new(play, Some(library), |_, _| {}, Some(recorder))?.play(play)
}

/// The sources that a virtual run reads, in the order in which a recording has them.
#[must_use]
pub fn sources() -> Vec<SourceFacts> {
    sources::facts(LOOK * u32::try_from(LOOKS_PER_SCRAPE).unwrap_or(1), LOOK)
}

/// A moment of a virtual run on the calendar, which begins with it.
fn wall(at: Mono) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + at.since_start()
}

struct Run<'a, See> {
    recorder: Option<&'a mut Recorder>,
    world: World<Observed<GatedWorld, Count>>,
    sources: Sources,
    library: Option<&'a Arc<Library>>,
    /// One per quota scope, by its name.
    diagnosers: BTreeMap<String, Diagnoser>,
    verdicts: Verdicts,
    see: See,
    looks: u64,
    oldest_age_max_s: f64,
}

impl<'a, See: FnMut(&Snapshot, Mono)> Run<'a, See> {
    fn new(
        play: &Play<'_>,
        library: Option<&'a Arc<Library>>,
        see: See,
        recorder: Option<&'a mut Recorder>,
    ) -> Result<Self, FlagError> {
        let Play { scenario, seed, .. } = *play;
        let mut settings = Settings::default();
        for (key, value) in &scenario.flags {
            settings.set(key, value.clone())?;
        }
        let scopes = scopes_of(scenario);
        let names = scopes.iter().map(|scope| scope.name.to_string()).collect();
        let gate = GatedWorld::configured(scopes, &scenario.gate, settings, seed);
        let gates = gate.gates().count();
        Ok(Self {
            recorder,
            world: World::new(&scenario.world(seed), Observed::new(gate, Count::default())),
            sources: Sources::new(scenario, names, gates),
            library,
            diagnosers: BTreeMap::new(),
            verdicts: Verdicts::default(),
            see,
            looks: 0,
            oldest_age_max_s: 0.0,
        })
    }

    /// Plays to the end, flips and drain included.
    fn play(mut self, play: &Play<'_>) -> Result<Report, FlagError> {
        let Play { scenario, seed, total, flips } = *play;
        let mut reports = Vec::new();
        let mut set = Vec::new();
        let mut remarks: Vec<_> = side_by_side(scenario.gate.instances).into_iter().collect();
        let cut = phases_of(scenario, flips, total);
        let last = cut.len().saturating_sub(1);
        let mut after = self.mark();
        for (place, phase) in cut.into_iter().enumerate() {
            for flip in flips.iter().filter(|flip| flip.at == phase.from) {
                self.set(flip)?;
                set.push((flip.at, flip.key.clone(), flip.value.to_string()));
            }
            let before = after;
            self.oldest_age_max_s = before.queue_oldest_age_s;
            self.until(Mono::from_start(phase.to));
            if place == last && !self.drain() {
                remarks.push(unfinished(DRAIN_MAX));
            }
            let ended = self.world.now().since_start();
            after = self.mark();
            let oldest_age_max_s = self.oldest_age_max_s;
            let ended = if place == last { ended } else { phase.to };
            reports.push(PhaseReport::of(&Span {
                phase,
                ended,
                before,
                after: after.clone(),
                oldest_age_max_s,
            }));
        }
        let ledger = self.ledger();
        Ok(Report {
            scenario: scenario.name.clone(),
            seed,
            total,
            onset: scenario.onset,
            phases: reports,
            totals: self.world.gate().witness().totals(&self.world.counts()),
            verdicts: self.verdicts,
            flags: set,
            ledger: Some(ledger),
            virtual_clock: true,
            remarks,
        })
    }

    fn set(&mut self, flip: &TimedFlip) -> Result<(), FlagError> {
        let mut settings = self.world.gate().gate().gate().settings().clone();
        settings.set(&flip.key, flip.value.clone())?;
        let now = self.world.now();
        self.world.gate_mut().gate_mut(now).apply(&settings, now);
        if let Some(recorder) = &mut self.recorder {
            let told = Told::Notice(format!("set {} = {}", flip.key, flip.value));
            recorder.tell(told, wall(now));
        }
        Ok(())
    }

    fn mark(&mut self) -> Tally {
        let now = self.world.now();
        let gates = self.world.gate_mut().gate_mut(now);
        let originals_attempted = gates.marking().map(Gate::mark).sum();
        let tally = Tally::of_all(gates.gates(), now);
        Tally { originals_attempted: Some(originals_attempted), ..tally }
    }

    /// What the providers of all scopes counted.
    fn ledger(&self) -> LedgerReport {
        let mut sum = LedgerReport::NOTHING;
        self.world.providers().iter().map(Provider::ledger).for_each(|ledger| sum.add(ledger));
        sum
    }

    fn until(&mut self, end: Mono) {
        loop {
            let next = Mono::from_start(LOOK * u32::try_from(self.looks + 1).unwrap_or(u32::MAX));
            if next > end {
                break;
            }
            self.world.run_until(next);
            self.looks += 1;
            self.look();
        }
        self.world.run_until(end);
    }

    fn look(&mut self) {
        let now = self.world.now();
        let tally = Tally::of_all(self.world.gate().gate().gates(), now);
        self.oldest_age_max_s = self.oldest_age_max_s.max(tally.queue_oldest_age_s);
        if !self.looks.is_multiple_of(LOOKS_PER_SCRAPE) {
            return;
        }
        let snapshots = self.sources.scrape(&mut self.world, self.recorder.as_deref_mut());
        for snapshot in &snapshots {
            (self.see)(snapshot, now);
        }
        let verdicts = snapshots.iter().filter_map(|snapshot| self.diagnose(snapshot, now));
        let verdicts: Vec<_> = verdicts.collect();
        if let Some(recorder) = &mut self.recorder {
            for verdict in &verdicts {
                recorder.judge(verdict, now, wall(now));
            }
            recorder.look(&snapshots, now, wall(now));
        }
        if let Some(verdict) = gravest(verdicts) {
            self.verdicts.see(&verdict, now.since_start());
        }
    }

    fn diagnose(&mut self, snapshot: &Snapshot, now: Mono) -> Option<Verdict> {
        let library = self.library?;
        let scope = snapshot.scope.clone();
        let fresh = || Diagnoser::new(Arc::clone(library));
        Some(self.diagnosers.entry(scope).or_insert_with(fresh).step(snapshot, now))
    }

    /// Whether nothing was left to do.
    fn drain(&mut self) -> bool {
        self.world.stop();
        let now = self.world.now();
        self.world.gate_mut().gate_mut(now).drain(now);
        self.world.drain(DRAIN_MAX)
    }
}
