//! One storm under five controls, side by side: what each makes of the quota, and when it is over.
//!
//! On the virtual clock, so that the same seed gives the same bits. Provider, people and layers are the
//! scenario's; only what stands between them differs. The surge has an end here, because a control is
//! also judged by what it does when the cause has gone.

use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use super::observed::Observed;
use super::report::quantile;
use super::scenario::Scenario;
use super::virtual_run::scopes_of;
use crate::admission::{FlagError, PLANS, Settings, flag};
use crate::dialect::Meter;
use crate::signal::Mono;
use crate::sim::controls::{backoff_only, budget_only, client_throttling::ClientThrottling};
use crate::sim::gate::GateConfig;
use crate::sim::gated::GatedWorld;
use crate::sim::layers::Stack;
use crate::sim::model::{GateModel, PassThrough};
use crate::sim::workers;
use crate::sim::world::World;

mod quota;
mod surge;
mod watched;

use quota::Quota;
pub use surge::{Surge, SurgeError};
use watched::{BIN, Binned, Counted, Seen, ratio};

/// Longest drain at the end.
const DRAIN_MAX: Duration = Duration::from_mins(1);
/// The surge is over when at least this share of new originals is served at the first offer,
const SERVED_AT_FIRST_MIN: f64 = 0.99;
/// and an original costs no more attempts than this.
const AMPLIFICATION_MAX: f64 = 1.05;
/// Seeds over which the workers with jitter are averaged.
const RACES: u32 = 1_000;

/// Why nothing can be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// The traffic has no surge, or the run ends before it does.
    #[error(transparent)]
    Surge(#[from] SurgeError),
    /// A plan does not fit the flags.
    #[error(transparent)]
    Flag(#[from] FlagError),
}

/// What stands between the clients and the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    None,
    BackoffOnly,
    ClientThrottling,
    BudgetOnly,
    FullAdmission,
}

impl Control {
    const ALL: [Self; 5] = [
        Self::None,
        Self::BackoffOnly,
        Self::ClientThrottling,
        Self::BudgetOnly,
        Self::FullAdmission,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::None => "no-control",
            Self::BackoffOnly => "backoff-only",
            Self::ClientThrottling => "client-throttling",
            Self::BudgetOnly => "budget-only",
            Self::FullAdmission => "full-admission",
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::None => "everything passes, every layer retries",
            Self::BackoffOnly => {
                "one layer retries: 3 tries, full jitter, 0.5 s doubling, hints obeyed"
            }
            Self::ClientThrottling => "the caller refuses for itself (SRE book, K = 2, 2 min)",
            Self::BudgetOnly => {
                "the gate's budgets; no queue, breaker, adaptive rate or own retries"
            }
            Self::FullAdmission => "the gate with the plan `contain`",
        }
    }
}

/// The figures of one control. Shares and rates are those of the steady overload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub control: &'static str,
    /// What it does, in a line.
    pub meaning: &'static str,
    /// Tokens or requests of served originals over what the binding meter allows.
    pub goodput_share: Option<f64>,
    /// Attempts per original with an attempt.
    pub amplification: Option<f64>,
    /// Requests at the gate per original.
    pub client_multiplication: Option<f64>,
    /// Refusals of the provider per second.
    pub provider_429_per_s: f64,
    /// 95th percentile of requests that got a result, arrival to answer.
    pub latency_admitted_p95_s: Option<f64>,
    /// 95th percentile of all requests, arrival to answer.
    pub latency_offered_p95_s: Option<f64>,
    /// Requests that were refused before the provider saw them, over all.
    pub shed_share: Option<f64>,
    /// Served originals over originals.
    pub served_share: Option<f64>,
    /// Furthest that the goodput of a bin lies from the mean, as a share of the mean.
    pub oscillation: Option<f64>,
    /// From the end of the surge until everything was served again for good; unknown when it never was.
    pub recovery_s: Option<f64>,
}

/// What the workers of [`workers`] need, in step and apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkersReport {
    /// Requests without jitter.
    pub requests: u64,
    /// Of those, refused with 429.
    pub refused: u64,
    /// When the last was served without jitter.
    pub last_s: f64,
    /// The same with full jitter, mean over many seeds.
    pub jittered_requests: f64,
    /// Refusals with full jitter.
    pub jittered_refused: f64,
    /// When the last was served with full jitter.
    pub jittered_last_s: f64,
}

/// One storm under every control.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Length of the run without the drain.
    pub seconds: f64,
    /// The surge.
    pub surge: Surge,
    /// The meter that binds: `tokens` or `requests`.
    pub binding_meter: &'static str,
    /// How long was looked for recovery, from the end of the surge.
    pub recovery_observed_s: f64,
    /// One row per control.
    pub controls: Vec<Row>,
    /// Four workers in step and apart.
    pub four_workers: WorkersReport,
}

/// Plays the scenario's storm under every control. Without `total` the run ends two minutes, which are
/// two windows of the quota, after the surge.
///
/// # Errors
/// When the scenario has no surge, or the run ends before the surge does.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    total: Option<Duration>,
) -> Result<Comparison, CompareError> {
    let (surge, steps) = Surge::of(&scenario.traffic.steps, total)?;
    let mut scenario = scenario.clone();
    scenario.traffic.steps = steps;
    let quota = Quota::of(&scenario.provider, &scenario.traffic.tokens);
    let rows = Control::ALL.into_iter().map(|control| {
        let measured = play(&scenario, control, seed, &surge)?;
        Ok(row(control, &measured, &surge, &quota))
    });
    Ok(Comparison {
        controls: rows.collect::<Result<_, FlagError>>()?,
        scenario: scenario.name.clone(),
        seed,
        seconds: surge.total.as_secs_f64(),
        binding_meter: quota.binding().word(),
        recovery_observed_s: surge.total.saturating_sub(surge.to).as_secs_f64(),
        surge,
        four_workers: four_workers(),
    })
}

fn play(
    scenario: &Scenario,
    control: Control,
    seed: u64,
    surge: &Surge,
) -> Result<Seen, FlagError> {
    // A sound gate, whatever is wrong with that of the scenario.
    let sound = GateConfig::default();
    let gated = |scopes, settings| GatedWorld::configured(scopes, &sound, settings, seed);
    let layers = scenario.layers.clone();
    Ok(match control {
        Control::None => watch(scenario, layers, PassThrough::default(), seed, surge),
        Control::BackoffOnly => {
            let layers = backoff_only::layers(&layers);
            watch(scenario, layers, PassThrough::default(), seed, surge)
        }
        Control::ClientThrottling => {
            watch(scenario, layers, ClientThrottling::new(seed), seed, surge)
        }
        Control::BudgetOnly => {
            let scopes = scopes_of(scenario).into_iter().map(budget_only::scope).collect();
            watch(scenario, layers, gated(scopes, budget_only::settings()), seed, surge)
        }
        Control::FullAdmission => {
            watch(scenario, layers, gated(scopes_of(scenario), contained()?), seed, surge)
        }
    })
}

/// The defaults, and the plan that contains a storm.
fn contained() -> Result<Settings, FlagError> {
    let mut settings = Settings::default();
    let plan = PLANS.iter().find(|plan| plan.name == "contain");
    for (key, value) in plan.map_or(&[][..], |plan| plan.changes) {
        settings.set(key, flag(key)?.parse(value)?)?;
    }
    Ok(settings)
}

fn watch<G: GateModel>(
    scenario: &Scenario,
    layers: Stack,
    gate: G,
    seed: u64,
    surge: &Surge,
) -> Seen {
    let mut config = scenario.world(seed);
    config.layers = layers;
    let steady = (Mono::from_start(surge.steady_from), Mono::from_start(surge.to));
    let mut world = World::new(&config, Observed::new(gate, Binned::new(steady)));
    world.run_until(Mono::from_start(surge.total));
    world.stop();
    // What waits for its answer still gets it: it decides about the last originals.
    world.drain(DRAIN_MAX);
    world.gate_mut().witness_mut().seen()
}

fn row(control: Control, seen: &Seen, surge: &Surge, quota: &Quota) -> Row {
    let steady = &seen.steady;
    let span = surge.to.saturating_sub(surge.steady_from);
    let allowed = quota.allowed(surge.steady_from, surge.to);
    let p95 = |latency: &crate::admission::Histogram| quantile(0.95, &[], &latency.buckets);
    Row {
        control: control.word(),
        meaning: control.meaning(),
        goodput_share: (allowed > 0.0).then(|| quota.used(steady) / allowed),
        amplification: steady.amplification(),
        client_multiplication: ratio(steady.offered, steady.originals),
        provider_429_per_s: rate(steady.refused, span),
        latency_admitted_p95_s: p95(&seen.latency_admitted),
        latency_offered_p95_s: p95(&seen.latency_offered),
        shed_share: ratio(steady.shed, steady.offered),
        served_share: ratio(steady.served, steady.originals),
        oscillation: oscillation(&seen.bins, surge, quota),
        recovery_s: recovery(&seen.bins, surge).map(|after| after.as_secs_f64()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of one drill")]
fn rate(count: u64, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}

/// The bins that lie wholly between two instants, with the number of each.
fn between(
    bins: &[Counted],
    from: Duration,
    to: Duration,
) -> impl Iterator<Item = (u32, &Counted)> {
    let inside = move |place: &u32| BIN * *place >= from && BIN * (*place + 1) <= to;
    (0..).zip(bins).filter(move |(place, _)| inside(place))
}

fn oscillation(bins: &[Counted], surge: &Surge, quota: &Quota) -> Option<f64> {
    let goodput: Vec<f64> = between(bins, surge.steady_from, surge.to)
        .map(|(place, bin)| quota.used(bin) / quota.allowed(BIN * place, BIN * (place + 1)))
        .collect();
    let count = u32::try_from(goodput.len()).ok().filter(|count| *count > 0)?;
    let mean = goodput.iter().sum::<f64>() / f64::from(count);
    let furthest = goodput.iter().map(|share| (share - mean).abs()).fold(0.0, f64::max);
    (mean > 0.0).then_some(furthest / mean)
}

/// From the end of the surge to the first bin from which on every bin is well.
fn recovery(bins: &[Counted], surge: &Surge) -> Option<Duration> {
    let after: Vec<_> = between(bins, surge.to, surge.total).collect();
    let sick = after.iter().rposition(|(_, bin)| !is_well(bin));
    let (place, _) = after.get(sick.map_or(0, |sick| sick + 1))?;
    Some((BIN * *place).saturating_sub(surge.to))
}

/// Nearly all of a bin's originals were served by their first request, and nothing multiplies. A bin in
/// which nothing happened is well.
fn is_well(bin: &Counted) -> bool {
    let served = ratio(bin.served_at_first, bin.originals).unwrap_or(1.0);
    let amplified = match bin.attempts {
        0 => Some(1.0),
        _ => bin.amplification(),
    };
    served >= SERVED_AT_FIRST_MIN && amplified.is_some_and(|factor| factor <= AMPLIFICATION_MAX)
}

fn four_workers() -> WorkersReport {
    let in_step = workers::race(0.0, 0);
    let races: Vec<_> = (0..RACES).map(|seed| workers::race(1.0, seed.into())).collect();
    let mean =
        |read: fn(&workers::Finish) -> f64| races.iter().map(read).sum::<f64>() / f64::from(RACES);
    #[expect(clippy::cast_precision_loss, reason = "a dozen requests")]
    WorkersReport {
        requests: in_step.requests,
        refused: in_step.refused,
        last_s: in_step.last_at.as_secs_f64(),
        jittered_requests: mean(|finish| finish.requests as f64),
        jittered_refused: mean(|finish| finish.refused as f64),
        jittered_last_s: mean(|finish| finish.last_at.as_secs_f64()),
    }
}

impl Quota {
    /// What `counted` used of the binding meter.
    fn used(&self, counted: &Counted) -> f64 {
        match self.binding() {
            Meter::Requests => crate::signal::Requests(counted.served).as_f64(),
            _ => counted.tokens.as_f64(),
        }
    }
}

#[cfg(test)]
mod tests;
