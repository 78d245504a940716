//! When a caller's calls arrive in an open loop, so that a slow answer never slows the questions, and
//! what each is: size, lane, tenant.
//!
//! A Poisson process whose rate changes in steps. Since it has no memory, the gap that crosses a step
//! is drawn anew from the step's instant; that is exact, not an approximation. On a ramp it is thinned:
//! drawn at the higher of the two rates and kept with the share of the rate in force. Everything comes
//! from the same generator: the same seed gives the same bits.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::signal::{Mono, Tokens};
use crate::sim::callers::job::Item;
use crate::sim::callers::{CallerConfig, Sizes, weighted};
use crate::sim::rng;

/// A rate from an instant on, and what else changes there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// The phase that begins here.
    #[serde(default)]
    pub name: String,
    /// Seconds after the start.
    pub at_s: f64,
    /// Tasks per second.
    pub rate: f64,
    /// Seconds in which the rate goes from the one before to this one, in a straight line.
    #[serde(default)]
    pub ramp_s: f64,
    /// From here on, sizes other than the caller's.
    pub tokens: Option<Sizes>,
    /// From here on, other weights for some of the caller's tenants.
    #[serde(default)]
    pub tenants: BTreeMap<String, f64>,
    /// From here on, another share of the batch lane.
    pub batch_ratio: Option<f64>,
    /// From here on, another share of calls that cannot succeed.
    pub poisoned_ratio: Option<f64>,
}

/// One tenant's part of the traffic.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantShare {
    /// Its name.
    pub name: String,
    /// Its weight among the tenants.
    pub weight: f64,
}

/// The priority class of an original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// A person waits.
    Interactive,
    /// Nobody waits.
    Batch,
}

impl Lane {
    /// The word in files, headers and labels.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives.
    pub at: Mono,
    /// Its number among those of its caller, from 0.
    pub index: u64,
    /// The size of its request.
    pub tokens: Tokens,
    /// The size of its answer.
    pub output: Tokens,
    /// Its lane.
    pub lane: Lane,
    /// Index into the caller's tenants.
    pub tenant: usize,
    /// It can never succeed.
    pub poisoned: bool,
}

/// A span of time in which the rate changes evenly from one to another.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: Mono,
    span: Duration,
    rates: (f64, f64),
    /// What is in force besides: a place in [`Arrivals::mixes`].
    mix: usize,
}

impl Segment {
    fn rate_max(&self) -> f64 {
        self.rates.0.max(self.rates.1)
    }

    fn rate_at(&self, at: Mono) -> f64 {
        let (from, to) = self.rates;
        let elapsed_s = at.saturating_since(self.from).as_secs_f64();
        from + (to - from) * (elapsed_s / self.span.as_secs_f64()).min(1.0)
    }

    /// Whether the rate is the same all along.
    fn is_flat(&self) -> bool {
        self.span.is_zero()
    }
}

/// What a caller's calls are like for a while.
#[derive(Clone, Debug)]
struct Mix {
    tokens: Sizes,
    weights: Vec<f64>,
    batch_ratio: f64,
    poisoned_ratio: f64,
}

/// What one caller asks for, by one seed. Endless, unless its last rate is zero.
#[derive(Clone, Debug)]
pub struct Arrivals {
    output: Option<Sizes>,
    lane: Option<Lane>,
    mixes: Vec<Mix>,
    segments: Vec<Segment>,
    random: Pcg64,
    seed: u64,
    caller: usize,
    /// Instant up to which the process has been drawn.
    at: Mono,
    /// Index of the segment that follows the one in force.
    upcoming: usize,
    index: u64,
}

impl Arrivals {
    /// The calls of the caller at this place among the scenario's, from a checked configuration.
    #[must_use]
    pub fn new(config: &CallerConfig, caller: usize, seed: u64) -> Self {
        let mixes = mixes(config);
        Self {
            output: config.output_tokens.clone(),
            lane: config.lane,
            segments: segments(&config.steps),
            mixes,
            random: rng::seeded(seed, rng::Stream::Arrivals(caller)),
            seed,
            caller,
            at: Mono::START,
            upcoming: 0,
            index: 0,
        }
    }

    /// The instant of the next task; `None` when the last step's rate is zero.
    fn next_instant(&mut self) -> Option<Mono> {
        loop {
            let ends_at = self.segments.get(self.upcoming).map(|segment| segment.from);
            let current = self.upcoming.checked_sub(1).map(|place| self.segments[place]);
            if let Some(segment) = current.filter(|segment| segment.rate_max() > 0.0) {
                // 1 - [0, 1) lies in (0, 1], so the logarithm is finite.
                let gap_s = -(1.0 - self.random.random::<f64>()).ln() / segment.rate_max();
                let at = self.at + Duration::try_from_secs_f64(gap_s).unwrap_or(Duration::MAX);
                if ends_at.is_none_or(|ends_at| at < ends_at) {
                    let kept = segment.is_flat() || self.is_kept(&segment, at);
                    if kept {
                        return Some(at);
                    }
                    self.at = at;
                    continue;
                }
            }
            self.at = ends_at?;
            self.upcoming += 1;
        }
    }

    fn is_kept(&mut self, segment: &Segment, at: Mono) -> bool {
        self.random.random::<f64>() * segment.rate_max() < segment.rate_at(at)
    }

    /// One more call at `at`, with the mix in force: of a task that makes several, or of a cron.
    pub fn call(&mut self, at: Mono) -> Arrival {
        let place = self.upcoming.checked_sub(1).map_or(0, |place| self.segments[place].mix);
        let index = self.index;
        self.index += 1;
        let mix = &self.mixes[place];
        drawn(&mut self.random, mix, (self.lane, self.output.as_ref()), at, index)
    }

    /// The call for an item of a job, the same whenever the item comes up.
    #[must_use]
    pub fn item(&self, item: Item, at: Mono) -> Arrival {
        let stream = rng::Stream::Item { caller: self.caller, number: item.number };
        let mut random = rng::seeded(self.seed, stream);
        let index = u64::from(item.number);
        drawn(&mut random, &self.mixes[0], (self.lane, self.output.as_ref()), at, index)
    }
}

fn drawn(
    random: &mut Pcg64,
    mix: &Mix,
    (lane, output): (Option<Lane>, Option<&Sizes>),
    at: Mono,
    index: u64,
) -> Arrival {
    let tokens = mix.tokens.draw(random);
    let lane = lane.unwrap_or_else(|| {
        let is_batch = random.random::<f64>() < mix.batch_ratio;
        if is_batch { Lane::Batch } else { Lane::Interactive }
    });
    let tenant = weighted(mix.weights.iter().copied(), random.random());
    let output = output.map_or(Tokens(0), |sizes| sizes.draw(random));
    let poisoned = mix.poisoned_ratio > 0.0 && random.random::<f64>() < mix.poisoned_ratio;
    Arrival { at, index, tokens, output, lane, tenant, poisoned }
}

/// The rates between any two instants at which something changes.
fn segments(steps: &[RateStep]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for (mix, step) in steps.iter().enumerate() {
        let from = Mono::from_secs_f64(step.at_s);
        let ramp = Duration::try_from_secs_f64(step.ramp_s).unwrap_or_default();
        let flat =
            |from| Segment { from, span: Duration::ZERO, rates: (step.rate, step.rate), mix };
        // A step in the middle of a ramp ends it.
        while segments.last().is_some_and(|last| last.from > from) {
            segments.pop();
        }
        let before = segments
            .last()
            .map_or(0.0, |last| if last.is_flat() { last.rates.1 } else { last.rate_at(from) });
        if !ramp.is_zero() {
            segments.push(Segment { from, span: ramp, rates: (before, step.rate), mix });
        }
        segments.push(flat(from + ramp));
    }
    segments
}

/// The mix of each step; one where there are none.
fn mixes(config: &CallerConfig) -> Vec<Mix> {
    let mut mix = Mix {
        tokens: config.tokens.clone(),
        weights: config.tenants.iter().map(|tenant| tenant.weight).collect(),
        batch_ratio: config.batch_ratio,
        poisoned_ratio: config.poisoned_ratio,
    };
    if config.steps.is_empty() {
        return vec![mix];
    }
    let mut mixes = Vec::with_capacity(config.steps.len());
    for step in &config.steps {
        if let Some(tokens) = &step.tokens {
            mix.tokens.clone_from(tokens);
        }
        for (tenant, weight) in config.tenants.iter().zip(&mut mix.weights) {
            *weight = step.tenants.get(&tenant.name).copied().unwrap_or(*weight);
        }
        mix.batch_ratio = step.batch_ratio.unwrap_or(mix.batch_ratio);
        mix.poisoned_ratio = step.poisoned_ratio.unwrap_or(mix.poisoned_ratio);
        mixes.push(mix.clone());
    }
    mixes
}

impl Iterator for Arrivals {
    type Item = Arrival;

    /// The first call of the next task; `None` once the last rate is zero.
    fn next(&mut self) -> Option<Arrival> {
        self.at = self.next_instant()?;
        Some(self.call(self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> CallerConfig {
        let config: CallerConfig = toml::from_str(text).expect("the text fits the types");
        config.check().expect("the values are in bounds");
        config
    }

    fn storm() -> CallerConfig {
        config(
            "tokens = { min = 300, max = 300 }\n\
             steps = [{ name = 'calm', at_s = 0, rate = 60 }, { name = 'storm', at_s = 10, rate = 180 }]",
        )
    }

    #[test]
    fn the_same_seed_gives_the_same_bits() {
        let take = |seed| Arrivals::new(&storm(), 0, seed).take(2_000).collect::<Vec<_>>();
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }

    #[test]
    fn rates_follow_the_steps() {
        let until = |to_s| {
            let end = Mono::from_secs_f64(to_s);
            Arrivals::new(&storm(), 0, 1).take_while(|arrival| arrival.at < end).count()
        };
        let calm = until(10.0);
        let all = until(110.0);
        assert!((500..=700).contains(&calm), "600 expected in the calm, {calm} came");
        assert!((17_500..=18_500).contains(&(all - calm)), "18,000 expected, {} came", all - calm);
    }

    #[test]
    fn a_pause_and_an_end_are_possible() {
        let steps = "tokens = { min = 1, max = 9 }\nbatch_ratio = 0.5\n\
             tenants = [{ name = 'a', weight = 3 }, { name = 'b', weight = 1 }]\n\
             steps = [{ name = 'on', at_s = 1, rate = 100 }, { name = 'pause', at_s = 2, rate = 0 },\
             { name = 'on', at_s = 4, rate = 100 }, { name = 'off', at_s = 6, rate = 0 }]";
        let all: Vec<_> = Arrivals::new(&config(steps), 0, 3).collect();
        assert!((200..400).contains(&all.len()), "{} arrived", all.len());
        let out_of_hours = |at_s: f64| at_s < 1.0 || (2.0..4.0).contains(&at_s) || at_s >= 6.0;
        assert!(all.iter().all(|arrival| !out_of_hours(arrival.at.as_secs_f64())));
        assert!(all.iter().all(|arrival| (1..=9).contains(&arrival.tokens.0)));
        let of_a = all.iter().filter(|arrival| arrival.tenant == 0).count();
        assert!(of_a * 2 > all.len(), "three of four belong to a, {of_a} do");
        let batch = all.iter().filter(|arrival| arrival.lane == Lane::Batch).count();
        assert!(batch * 3 > all.len() && batch * 3 < all.len() * 2, "half are batch, {batch} are");
    }

    #[test]
    fn a_ramp_rises_in_a_straight_line() {
        let ramp = "tokens = { min = 1, max = 1 }\n\
             steps = [{ name = 'a', at_s = 0, rate = 100 },\
             { name = 'b', at_s = 10, rate = 500, ramp_s = 100 }]";
        let between = |from_s: f64, to_s: f64| {
            Arrivals::new(&config(ramp), 0, 3)
                .map(|arrival| arrival.at.as_secs_f64())
                .take_while(|at_s| *at_s < to_s)
                .filter(|at_s| *at_s >= from_s)
                .count()
        };
        let near = |count: usize, expected: usize| {
            assert!(count.abs_diff(expected) * 12 < expected, "{count} came, not {expected}");
        };
        near(between(0.0, 10.0), 1_000);
        near(between(10.0, 30.0), 2_800);
        near(between(90.0, 110.0), 9_200);
        near(between(110.0, 120.0), 5_000);
    }

    #[test]
    fn a_step_in_the_middle_of_a_ramp_goes_on_from_where_it_was() {
        let steps: Vec<RateStep> = [(0.0, 0.0, 0.0), (10.0, 100.0, 100.0), (60.0, 10.0, 10.0)]
            .map(|(at_s, rate, ramp_s)| RateStep { at_s, rate, ramp_s, ..RateStep::default() })
            .to_vec();
        let all = segments(&steps);
        assert!(all.is_sorted_by_key(|segment| segment.from), "{all:?}");
        let down = all.iter().find(|segment| segment.from == Mono::from_secs_f64(60.0));
        assert_eq!(down.map(|segment| segment.rates), Some((50.0, 10.0)));
    }

    #[test]
    fn steps_change_sizes_shares_and_who_asks() {
        let text = "tokens = { min = 100, max = 100 }\n\
             tenants = [{ name = 'a', weight = 1 }, { name = 'b', weight = 1 }]\n\
             steps = [{ name = 'calm', at_s = 0, rate = 100 }, { name = 'change', at_s = 10, rate = 100,\
             tokens = { min = 300, max = 300 }, tenants = { b = 99 }, batch_ratio = 1, poisoned_ratio = 1 }]";
        let end = Mono::from_secs_f64(20.0);
        let all = Arrivals::new(&config(text), 0, 1).take_while(|arrival| arrival.at < end);
        let (calm, changed): (Vec<_>, Vec<_>) =
            all.partition(|arrival| arrival.at < Mono::from_secs_f64(10.0));
        assert!(calm.iter().all(|call| call.tokens.0 == 100 && !call.poisoned));
        assert!(changed.iter().all(|call| call.tokens.0 == 300 && call.poisoned));
        assert!(changed.iter().all(|call| call.lane == Lane::Batch));
        let of_b = |calls: &[Arrival]| calls.iter().filter(|call| call.tenant == 1).count();
        assert!(of_b(&calm) * 3 < calm.len() * 2, "half of the calm");
        assert!(of_b(&changed) * 20 > changed.len() * 19, "nearly all afterwards");
    }

    #[test]
    fn an_item_is_the_same_in_every_run() {
        let text = "tokens = { min = 1, max = 1000 }\njob = { items = 50 }";
        let arrivals = Arrivals::new(&config(text), 1, 3);
        let sizes = |run| {
            let item = |number| arrivals.item(Item { run, number }, Mono::START).tokens;
            (0..50).map(item).collect::<Vec<_>>()
        };
        assert_eq!(sizes(0), sizes(1));
        assert!(sizes(0).windows(2).any(|pair| pair[0] != pair[1]));
    }
}
