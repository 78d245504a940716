//! A random world around the real gate: what it is made of, and how it is run to its end.

mod spy;

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

pub use spy::{Charge, Spy};
use weir::admission::{RetryOwner, ScopeConfig, Semantics, Settings};
use weir::signal::Mono;
use weir::sim::app::AppConfig;
use weir::sim::arrivals::{RateStep, TenantShare};
use weir::sim::callers::{CallerConfig, Leaves, TokenRange};
use weir::sim::config::{LatencyConfig, MeterConfig, ProviderConfig, ProviderStep};
use weir::sim::gated::GatedWorld;
use weir::sim::layers::{FrontendConfig, LayersConfig, SdkConfig, Stack, WrapperConfig};
use weir::sim::world::{Patience, ScopeProvider, World, WorldConfig};

/// The window of every quota here.
pub const WINDOW: Duration = Duration::from_mins(1);
/// How long the traffic lasts: into a second window.
pub const TRAFFIC_S: u32 = 90;
/// Longest that anything may take to end afterwards.
const DRAIN_MAX: Duration = Duration::from_mins(2);

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Originals per second that the request meter carries.
    pub requests_per_s: f64,
    /// Originals of mean size per second that the token meter carries.
    pub tokens_carry_per_s: f64,
    pub sizes: TokenRange,
    pub semantics: Semantics,
    /// Requests of a day, where they are limited.
    pub rpd: Option<f64>,
    /// Traffic over what the scarcer meter carries.
    pub load: f64,
    pub batch_ratio: f64,
    pub tenants: Vec<f64>,
    pub error_ratio: f64,
    /// Calls that hang or are refused without a reason, before the meters count.
    pub script: &'static str,
    /// From when on the account is dead.
    pub dead_from_s: Option<f64>,
    pub patience: Patience,
    pub settings: Settings,
    pub layers: LayersConfig,
    pub seed: u64,
}

fn settings() -> impl Strategy<Value = Settings> {
    let retries = (select(vec![RetryOwner::Gateway, RetryOwner::Client]), 1_u32..=4, 0.0..0.5);
    let queue = (0_u32..200, 0.0..12.0);
    (retries, queue, 1_u32..80, any::<bool>(), any::<bool>(), 0.3..1.0).prop_map(
        |(retries, queue, max_in_flight, adaptive, breaker, rate_factor)| Settings {
            retry_owner: retries.0,
            retry_max_attempts: retries.1,
            retry_budget_ratio: retries.2,
            queue_max_depth: queue.0,
            queue_max_age_s: queue.1,
            max_in_flight,
            adaptive,
            breaker,
            rate_factor,
            ..Settings::default()
        },
    )
}

fn patience() -> impl Strategy<Value = Patience> {
    let deadline = prop::option::of((50_u64..15_000).prop_map(Duration::from_millis));
    (deadline, 0.0..0.5, 10_u64..10_000).prop_map(|(deadline, leaving_ratio, within_ms)| Patience {
        deadline,
        leaving_ratio,
        leaves_within: Duration::from_millis(within_ms),
        noticed: true,
    })
}

/// Worlds of every kind.
pub fn plans() -> impl Strategy<Value = Plan> {
    let quota = (
        2.0..20.0,
        2.0..20.0,
        (1_u32..400, 0_u32..800),
        select(vec![Semantics::TokenBucket, Semantics::SlidingWindow]),
        prop::option::weighted(0.2, 50.0..400.0),
    );
    let traffic = (0.3..3.0, 0.0..0.6, prop::collection::vec(0.1..5.0, 1..5));
    let script = select(vec!["", "timeout:3,ok", "server_error:8,ok", "ok:50,timeout:5,ok"]);
    let dead = prop::option::weighted(0.2, 10.0..80.0);
    let faults = (prop_oneof![Just(0.0), 0.0..0.6], script, dead);
    (quota, traffic, faults, patience(), settings(), any::<u64>()).prop_map(
        |(quota, traffic, faults, patience, settings, seed)| Plan {
            requests_per_s: quota.0,
            tokens_carry_per_s: quota.1,
            sizes: TokenRange { min: quota.2.0, max: quota.2.0 + quota.2.1 },
            semantics: quota.3,
            rpd: quota.4,
            load: traffic.0,
            batch_ratio: traffic.1,
            tenants: traffic.2,
            error_ratio: faults.0,
            script: faults.1,
            dead_from_s: faults.2,
            patience,
            settings,
            layers: LayersConfig::default(),
            seed,
        },
    )
}

/// Worlds in which nothing fails and nobody leaves or asks again, and more is asked than there is.
pub fn crowded() -> impl Strategy<Value = Plan> {
    (plans(), 1.5..3.0, prop::collection::vec(0.5..5.0, 2..5)).prop_map(|(plan, load, tenants)| {
        Plan {
            rpd: None,
            load,
            tenants,
            error_ratio: 0.0,
            script: "",
            dead_from_s: None,
            patience: Patience::default(),
            settings: Settings::default(),
            layers: LayersConfig {
                sdk: SdkConfig { tries: 1, ..SdkConfig::default() },
                wrapper: WrapperConfig { tries: 1, ..WrapperConfig::default() },
                frontend: FrontendConfig { resubmits: 0, ..FrontendConfig::default() },
            },
            ..plan
        }
    })
}

impl Plan {
    /// Requests per minute.
    pub fn rpm(&self) -> f64 {
        (self.requests_per_s * 60.0).round()
    }

    /// Tokens per minute; at least what one request needs.
    pub fn tpm(&self) -> f64 {
        let mean = f64::midpoint(f64::from(self.sizes.min), f64::from(self.sizes.max));
        (self.tokens_carry_per_s * mean * 60.0).round().max(f64::from(self.sizes.max))
    }

    /// The scope that the quota makes.
    pub fn scope(&self) -> ScopeConfig {
        let scope = ScopeConfig {
            rpm: Some(self.rpm()),
            tpm: Some(self.tpm()),
            rpd: self.rpd,
            ..ScopeConfig::named("random")
        };
        match self.semantics {
            Semantics::TokenBucket => scope.with_buckets(),
            semantics => ScopeConfig { semantics, ..scope },
        }
    }

    fn world(&self) -> WorldConfig {
        let meter = |per_minute: f64| MeterConfig {
            per_minute: whole(per_minute).try_into().expect("above zero"),
            capacity: None,
            start: None,
            slices_s: Vec::new(),
        };
        let step = ProviderStep { error_ratio: Some(self.error_ratio), ..ProviderStep::default() };
        let dead =
            self.dead_from_s.map(|at_s| ProviderStep { at_s, hard_quota: Some(true), ..step });
        let rate = self.load * self.requests_per_s.min(self.tokens_carry_per_s);
        let named =
            |rate, at_s| RateStep { name: "step".to_owned(), at_s, rate, ..RateStep::default() };
        let tenant = |(place, weight): (usize, &f64)| TenantShare {
            name: format!("tenant-{place}"),
            weight: *weight,
        };
        let provider = ProviderConfig {
            script: self.script.to_owned(),
            latency: LatencyConfig { timeout_ms: 3_000.0, ..LatencyConfig::default() },
            steps: [step].into_iter().chain(dead).collect(),
            ..ProviderConfig::new(meter(self.rpm()), meter(self.tpm()))
        };
        let Patience { deadline, leaving_ratio, leaves_within, noticed } = self.patience;
        let caller = CallerConfig {
            batch_ratio: self.batch_ratio,
            steps: vec![named(rate, 0.0), named(0.0, f64::from(TRAFFIC_S))],
            tenants: self.tenants.iter().enumerate().map(tenant).collect(),
            deadline_s: deadline.map(|deadline| deadline.as_secs_f64()),
            leaves: Some(Leaves {
                ratio: leaving_ratio,
                within_s: leaves_within.as_secs_f64(),
                noticed,
            }),
            ..CallerConfig::sized(self.sizes.into())
        };
        WorldConfig {
            providers: vec![ScopeProvider { name: "embed".to_owned(), provider }],
            callers: vec![caller],
            layers: Stack::from(&self.layers),
            app: AppConfig::default(),
            seed: self.seed,
        }
    }

    /// Plays the world to its end, looking at the gate after each second.
    pub fn play(&self) -> Run {
        let gate = GatedWorld::new(self.scope(), self.settings.clone(), self.seed);
        let wait_max = Duration::from_secs_f64(self.settings.queue_max_age_s);
        let mut world = World::new(&self.world(), Spy::new(gate, wait_max));
        let mut seconds = Vec::new();
        for second in 1..=TRAFFIC_S {
            world.run_until(Mono::from_secs_f64(f64::from(second)));
            seconds.push(Second::of(&world.gate().gate));
        }
        world.stop();
        let is_drained = world.drain(DRAIN_MAX);
        Run { world, seconds, is_drained }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "quotas are rounded, and small"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// What a gate had counted after a second.
#[derive(Clone, Copy, Debug)]
pub struct Second {
    /// Originals with a first attempt.
    pub admitted: u64,
    /// Retries that the budget was spent on.
    pub retries_used: u64,
}

impl Second {
    fn of(gate: &GatedWorld) -> Self {
        let scope = &gate.gate().scopes()[0];
        Self {
            admitted: scope.counters().originals_attempted(),
            retries_used: scope.retries_used(),
        }
    }
}

/// A world that has been played.
pub struct Run {
    pub world: World<Spy>,
    /// From the end of the first second to the end of the traffic.
    pub seconds: Vec<Second>,
    pub is_drained: bool,
}

impl Run {
    pub fn spy(&self) -> &Spy {
        self.world.gate()
    }

    /// The charges in the order in which their attempts started.
    pub fn charges(&self) -> Vec<Charge> {
        let mut charges = self.spy().charges.clone();
        charges.sort_by_key(|charge| charge.at);
        charges
    }
}
