//! One run of the world that was assumed: as it is now, then with the flips.

use crate::admission::{Gate, Lane, Settings};
use crate::signal::Mono;
use crate::sim::app::AppConfig;
use crate::sim::gated::GatedWorld;
use crate::sim::world::{ScopeProvider, World, WorldConfig};

use super::Measure;
use super::assume::{Assumed, WARM_UP_S};

/// Rates are means of so many seconds, as the signals are.
pub(super) const WINDOW_S: f64 = 10.0;
/// Seconds of the run that finds out how often callers ask.
const FITTING_S: f64 = 15.0;

/// What one run came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers([f64; 7]);

impl Numbers {
    pub(super) fn of(&self, measure: Measure) -> f64 {
        self.0[measure as usize]
    }
}

/// Totals at an instant.
struct Totals {
    originals: u64,
    served: u64,
    offered: u64,
    admitted: u64,
    shed: u64,
    attempts: u64,
}

impl Totals {
    fn of(gate: &Gate) -> Self {
        let counters = gate.scopes()[0].counters();
        Self {
            originals: counters.originals.total(),
            served: counters.originals_served,
            offered: counters.offered.total(),
            admitted: counters.admitted.total(),
            shed: counters.shed.total(),
            attempts: counters.attempts(),
        }
    }
}

fn world(way: &Assumed, settings: &Settings, seed: u64) -> World<GatedWorld> {
    let name = way.scope.name.to_string();
    let provider = ScopeProvider { name, provider: way.provider.clone() };
    let config = WorldConfig {
        providers: vec![provider],
        callers: vec![way.caller.clone()],
        layers: way.layers.clone(),
        app: AppConfig::default(),
        seed,
    };
    World::new(&config, GatedWorld::new(way.scope.clone(), settings.clone(), seed))
}

/// Requests per original under the settings of now.
pub(super) fn multiplication(way: &Assumed, settings: &Settings) -> f64 {
    let mut world = world(way, settings, 1);
    world.run_until(Mono::from_secs_f64(FITTING_S));
    let before = Totals::of(world.gate().gate());
    world.run_until(Mono::from_secs_f64(FITTING_S + WINDOW_S));
    let after = Totals::of(world.gate().gate());
    ratio(after.offered - before.offered, after.originals - before.originals)
}

/// So long after the flip from `before` to `after`.
pub(super) fn play(
    way: &Assumed,
    before: &Settings,
    after: &Settings,
    seed: u64,
    horizon_s: f64,
) -> Numbers {
    let mut world = world(way, before, seed);
    if before != after {
        let flip = Mono::from_secs_f64(WARM_UP_S);
        world.run_until(flip);
        world.gate_mut().apply(after, flip);
    }
    let end_s = WARM_UP_S + horizon_s;
    world.run_until(Mono::from_secs_f64(end_s - WINDOW_S));
    let from = Totals::of(world.gate().gate());
    for gate in world.gate_mut().marking() {
        gate.mark();
    }
    world.run_until(Mono::from_secs_f64(end_s));
    let attempted: u64 = world.gate_mut().marking().map(Gate::mark).sum();
    let to = Totals::of(world.gate().gate());
    let now = world.now();
    let scope = &world.gate().gate().scopes()[0];
    let ages = Lane::ALL.map(|lane| scope.queue().oldest_age(lane, now).unwrap_or_default());
    let oldest = ages.into_iter().max().unwrap_or_default();
    let left = |meter: usize, world: &mut World<GatedWorld>| {
        let reading = world.meters()[0][meter];
        reading.remaining.zip(reading.limit).map_or(f64::NAN, |(left, limit)| left / limit)
    };
    let readings = [left(0, &mut world), left(1, &mut world)];
    let [requests, tokens] = readings;
    let rate = |count: u64| ratio(count, 1) / WINDOW_S;
    let mut numbers = [0.0; 7];
    for measure in Measure::ALL {
        numbers[measure as usize] = match measure {
            Measure::Amplification => ratio(to.attempts - from.attempts, attempted).max(1.0),
            Measure::Admitted => rate(to.admitted - from.admitted),
            Measure::Shed => rate(to.shed - from.shed),
            Measure::Served => {
                ratio(to.served - from.served, to.originals - from.originals).min(1.0)
            }
            Measure::QueueAge => oldest.as_secs_f64(),
            Measure::TokenHeadroom => tokens.clamp(0.0, 1.0),
            Measure::RequestHeadroom => requests.clamp(0.0, 1.0),
        };
    }
    Numbers(numbers)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a minute")]
fn ratio(count: u64, of: u64) -> f64 {
    if of == 0 { 1.0 } else { count as f64 / of as f64 }
}
