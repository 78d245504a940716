//! What a provider's quota holds: the minute's meters of every deployment, the day's, and the ramp.
//!
//! Decides whether a call fits and takes it from all meters or from none. Knows no answers.

use std::num::NonZeroU64;
use std::time::Duration;

use rand::Rng;

use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;
use crate::sim::config::{MeterConfig, ProviderConfig, Router};
use crate::sim::day::Day;
use crate::sim::meter::SimMeter;
use crate::sim::ramp::Ramp;

/// What one call takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub requests: u64,
    pub tokens: u64,
}

/// Why a call does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// A meter has too little left.
    Wait { meter: Meter, wait: Duration, limit: u64, used: u64, requested: u64 },
    /// Demand grows too fast.
    Ramp { wait: Duration },
    /// It never fits.
    Never { limit: u64, requested: u64 },
}

/// One deployment with meters of its own.
#[derive(Clone, Debug)]
struct Target {
    name: String,
    weight: f64,
    requests: SimMeter,
    tokens: SimMeter,
    calls: u64,
    /// Whether it refused its last call, and when it last refused one.
    refused: bool,
    refused_at: Option<Mono>,
}

/// One deployment, for the page.
#[derive(Clone, Copy, Debug)]
pub struct DeploymentReading<'a> {
    /// Its name.
    pub name: &'a str,
    /// Calls that were routed to it.
    pub calls: u64,
    /// When it last refused one.
    pub refused_at: Option<Mono>,
    /// Its meters: requests, then tokens.
    pub meters: [MeterReading; 2],
}

/// Every meter of one quota scope.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    /// At least one.
    targets: Vec<Target>,
    router: Router,
    /// Whom the last call went to.
    current: usize,
    day: Option<Day>,
    ramp: Option<Ramp>,
}

impl Quota {
    pub(super) fn new(config: &ProviderConfig, now: Mono) -> Self {
        let mut targets = vec![Target::new("", 1.0, &config.requests, &config.tokens, now)];
        if !config.deployments.is_empty() {
            targets.clear();
            let count = config.deployments.len() as u64;
            for one in &config.deployments {
                let requests = part(&config.requests, one.requests_per_minute, count);
                let tokens = part(&config.tokens, one.tokens_per_minute, count);
                targets.push(Target::new(&one.name, one.share, &requests, &tokens, now));
            }
        }
        Self {
            targets,
            router: config.router,
            current: 0,
            day: config.day.as_ref().map(|day| Day::new(day, now)),
            ramp: config.ramp.as_ref().map(|ramp| Ramp::new(ramp, now)),
        }
    }

    pub(super) fn refill(&mut self, now: Mono) {
        for target in &mut self.targets {
            target.requests.refill(now);
            target.tokens.refill(now);
        }
        if let Some(day) = &mut self.day {
            day.refill(now);
        }
        if let Some(ramp) = &mut self.ramp {
            ramp.advance(now);
        }
    }

    /// Every meter is full at once.
    pub(super) fn fill(&mut self) {
        for target in &mut self.targets {
            target.requests.fill();
            target.tokens.fill();
        }
        if let Some(day) = &mut self.day {
            day.fill();
        }
    }

    /// A new limit of requests for all deployments together; each keeps its part.
    pub(super) fn set_requests(&mut self, per_minute: NonZeroU64, now: Mono) {
        set_limit(self.targets.iter_mut().map(|one| &mut one.requests).collect(), per_minute, now);
    }

    /// The same for tokens.
    pub(super) fn set_tokens(&mut self, per_minute: NonZeroU64, now: Mono) {
        set_limit(self.targets.iter_mut().map(|one| &mut one.tokens).collect(), per_minute, now);
    }

    /// Others ask for so many tokens per minute, of every deployment alike.
    pub(super) fn share_tokens_with(&mut self, others_per_minute: u64) {
        let count = self.targets.len() as u64;
        for target in &mut self.targets {
            target.tokens.share_with(others_per_minute / count);
        }
    }

    /// Tokens that others got so far.
    pub(super) fn tokens_of_others(&self) -> u64 {
        self.targets.iter().map(|target| target.tokens.taken_by_others()).sum()
    }

    /// Takes what a call needs, or says why not.
    pub(super) fn charge(
        &mut self,
        need: Need,
        random: &mut impl Rng,
        now: Mono,
    ) -> Result<(), Shortage> {
        if let Some(short) = self.day.as_ref().and_then(|day| day.lacks(need, now)) {
            return Err(short);
        }
        if let Some(wait) = self.ramp.as_ref().and_then(|ramp| ramp.wait(need.tokens, now)) {
            return Err(Shortage::Ramp { wait });
        }
        self.current = self.route(random);
        let target = &mut self.targets[self.current];
        target.calls += 1;
        let charged = target.charge(need);
        target.refused = charged.is_err();
        if target.refused {
            target.refused_at = Some(now);
        }
        charged?;
        if let Some(day) = &mut self.day {
            day.take(need);
        }
        if let Some(ramp) = &mut self.ramp {
            ramp.take(need.tokens);
        }
        Ok(())
    }

    /// Which deployment gets the next call. One alone costs no draw.
    fn route(&self, random: &mut impl Rng) -> usize {
        let count = self.targets.len();
        match self.router {
            _ if count == 1 => 0,
            Router::Herd if self.targets[self.current].refused => (self.current + 1) % count,
            Router::Herd => self.current,
            Router::Weighted => {
                let all: f64 = self.targets.iter().map(|target| target.weight).sum();
                let mut left = random.random::<f64>() * all;
                let passed = |target: &Target| {
                    left -= target.weight;
                    left < 0.0
                };
                self.targets.iter().position(passed).unwrap_or(count - 1)
            }
        }
    }

    /// The minute's meters of the deployment that had the last call: requests, then tokens.
    pub(super) fn readings(&self) -> [MeterReading; 2] {
        self.targets[self.current].readings()
    }

    /// The minute's meters of all deployments together.
    pub(super) fn totals(&self) -> [MeterReading; 2] {
        let mut targets = self.targets.iter().map(Target::readings);
        let first = targets.next().expect("there is always a deployment");
        targets.fold(first, |[requests, tokens], [more_requests, more_tokens]| {
            [together(requests, more_requests), together(tokens, more_tokens)]
        })
    }

    /// The day's meters, as far as there are any.
    pub(super) fn day_readings(&self, now: Mono) -> Vec<MeterReading> {
        self.day.iter().flat_map(|day| day.readings(now)).collect()
    }

    /// The deployments by name; none where there is only the quota itself.
    pub(super) fn deployments(&self) -> impl Iterator<Item = DeploymentReading<'_>> {
        self.targets.iter().filter(|target| !target.name.is_empty()).map(|target| {
            DeploymentReading {
                name: &target.name,
                calls: target.calls,
                refused_at: target.refused_at,
                meters: target.readings(),
            }
        })
    }
}

impl Target {
    fn new(
        name: &str,
        weight: f64,
        requests: &MeterConfig,
        tokens: &MeterConfig,
        now: Mono,
    ) -> Self {
        Self {
            name: name.to_owned(),
            weight,
            requests: SimMeter::new(Meter::Requests, requests, now),
            tokens: SimMeter::new(Meter::Tokens, tokens, now),
            calls: 0,
            refused: false,
            refused_at: None,
        }
    }

    /// Takes from both meters, or from none.
    fn charge(&mut self, need: Need) -> Result<(), Shortage> {
        let never =
            |meter: &SimMeter, requested| Shortage::Never { limit: meter.limit(), requested };
        let requests_wait = self.requests.wait(need.requests);
        let requests_wait = requests_wait.ok_or_else(|| never(&self.requests, need.requests))?;
        let tokens_wait = self.tokens.wait(need.tokens);
        let tokens_wait = tokens_wait.ok_or_else(|| never(&self.tokens, need.tokens))?;
        if requests_wait.max(tokens_wait).is_zero() {
            self.requests.take(need.requests);
            self.tokens.take(need.tokens);
            return Ok(());
        }
        let (lacking, wait, requested) = if requests_wait > tokens_wait {
            (&self.requests, requests_wait, need.requests)
        } else {
            (&self.tokens, tokens_wait, need.tokens)
        };
        Err(lacking.short(wait, requested))
    }

    fn readings(&self) -> [MeterReading; 2] {
        [self.requests.reading(), self.tokens.reading()]
    }
}

/// A deployment's part of a meter: its own limit, else an even part, starting as full as the whole.
fn part(whole: &MeterConfig, own: Option<NonZeroU64>, count: u64) -> MeterConfig {
    let even = || NonZeroU64::new(whole.per_minute.get() / count).unwrap_or(NonZeroU64::MIN);
    let per_minute = own.unwrap_or_else(even);
    let of_part = |permits: u64| {
        let scaled = u128::from(permits) * u128::from(per_minute.get());
        u64::try_from(scaled / u128::from(whole.per_minute.get())).unwrap_or(u64::MAX)
    };
    MeterConfig {
        per_minute,
        capacity: whole.capacity.and_then(|capacity| NonZeroU64::new(of_part(capacity.get()))),
        start: whole.start.map(of_part),
        slices_s: whole.slices_s.clone(),
    }
}

/// Gives the meters a new limit together, each in proportion to what it has.
fn set_limit(meters: Vec<&mut SimMeter>, per_minute: NonZeroU64, now: Mono) {
    let all: u128 = meters.iter().map(|meter| u128::from(meter.limit())).sum();
    for meter in meters {
        let own = u128::from(meter.limit()) * u128::from(per_minute.get()) / all;
        let own = u64::try_from(own).ok().and_then(NonZeroU64::new);
        meter.set_limit(own.unwrap_or(NonZeroU64::MIN), now);
    }
}

fn together(one: MeterReading, other: MeterReading) -> MeterReading {
    let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
    MeterReading {
        limit: sum(one.limit, other.limit),
        remaining: sum(one.remaining, other.remaining),
        reset: one.reset.max(other.reset),
        ..one
    }
}
