//! A world that looks like the snapshot: demand, quota, provider and callers. What the snapshot does not
//! tell is assumed in more than one way.

use std::num::NonZeroU64;

use thiserror::Error;

use crate::admission::{Mode, RetryOwner, ScopeConfig, Settings};
use crate::signal::{Snapshot, Value};
use crate::sim::arrivals::{RateStep, TenantShare};
use crate::sim::callers::{CallerConfig, LogNormalSizes, Sizes};
use crate::sim::config::{LatencyConfig, MeterConfig, ProviderConfig, ProviderStep};
use crate::sim::layers::{FrontendConfig, LayersConfig, SdkConfig, Stack, WrapperConfig};

use super::{Demand, play};

/// Seconds that the world runs before the flip, to get into the state of now.
pub(super) const WARM_UP_S: f64 = 30.0;
/// A meter that nobody has set a limit to.
const NO_LIMIT: f64 = 1e9;
/// Share of a meter above which it refuses nobody.
const HAS_ROOM: f64 = 0.1;
/// Share of refusals from which nothing gets through, and below which they are chance.
const IS_DEAD: f64 = 0.98;
const IS_CHANCE: f64 = 0.02;
/// Tries per original that are looked at when it is not known how often callers try.
const TRIES: [u32; 8] = [1, 2, 3, 4, 6, 9, 14, 20];
/// Tries of the usual SDKs, the first one included.
const SDK_TRIES: u32 = 3;
/// A model that asks so many times less often than is seen does not explain it.
const EXPLAINED: f64 = 2.0;
/// Rates nearer than this share are one.
const SAME_RATE: f64 = 0.1;
/// Share of refusals from which on what callers do when they are refused can be seen.
const REFUSED_ENOUGH: f64 = 0.3;
/// Requests per original above which somebody repeats.
const REPEATS_FROM: f64 = 1.05;
/// 95th percentile of sizes over their median, and what that makes of the mean.
const SPREAD: f64 = 2.0;
const MEAN_OVER_MEDIAN: f64 = 1.093;

/// Why nothing can be foretold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoForecast {
    /// Signals are missing.
    #[error("no forecast: {} not known", .0.join(", "))]
    Missing(Vec<&'static str>),
    /// What is known does not explain what is seen, or does not bear on the flip.
    #[error("no forecast: {0}")]
    Unlike(String),
}

/// Whether a flag is about who is served and not how much: shares of tenants and lanes, the cache.
pub(super) fn is_about_who(key: &str) -> bool {
    ["cache.", "lane.", "tenant."].iter().any(|part| key.starts_with(part))
}

/// One way to fill in what is not known.
#[derive(Clone, Debug)]
pub(super) struct Assumed {
    pub(super) provider: ProviderConfig,
    pub(super) caller: CallerConfig,
    pub(super) layers: Stack,
    pub(super) scope: ScopeConfig,
    /// The likeliest one.
    pub(super) is_likely: bool,
    /// What was taken for granted.
    pub(super) words: Vec<String>,
}

impl Assumed {
    /// The ways that fit the snapshot, the likely one first.
    pub(super) fn ways(
        snapshot: &Snapshot,
        demand: Option<Demand>,
        before: &Settings,
    ) -> Result<Vec<Self>, NoForecast> {
        let number = |name: &str| snapshot.number(name);
        let rate = number("originals_rps");
        let demand = demand.or_else(|| rate.map(Demand::steady));
        let (tpm, rpm) = (number("tpm_limit"), number("rpm_limit"));
        let tokens = number("tokens_per_request").or_else(|| number("est_tokens_per_request"));
        let mut missing = Vec::new();
        if rate.is_none() {
            missing.push("originals_rps");
        }
        if tpm.is_none() && rpm.is_none() {
            missing.push("tpm_limit or rpm_limit");
        }
        if tpm.is_some() && tokens.is_none() {
            missing.push("tokens_per_request");
        }
        if is_one_empty(snapshot) {
            let why =
                "one deployment is empty and others have room, and who goes where is not known";
            return Err(NoForecast::Unlike(why.to_owned()));
        }
        let latency_s = latency(snapshot);
        if latency_s.is_none() {
            missing.push("latency_p50_s");
        }
        let (Some(rate), Some(latency_s), []) = (rate, latency_s, missing.as_slice()) else {
            return Err(NoForecast::Missing(missing));
        };
        let tokens = tokens.unwrap_or(1.0).max(1.0);
        let mut words = vec![
            format!("{rate:.1} originals/s of {tokens:.0} tokens, as now"),
            format!("answers take {latency_s:.2} s"),
        ];
        let used = |per_original: f64| number("success_rps").unwrap_or(0.0) * per_original;
        let provider = ProviderConfig {
            concurrency_cap: number("provider_concurrency_limit").map(whole),
            latency: LatencyConfig {
                base_ms: latency_s * 800.0,
                spread_ms: latency_s * 400.0,
                per_open_call_ms: 0.0,
                refusal_ms: 5.0,
                ..LatencyConfig::default()
            },
            steps: vec![failing(snapshot, &mut words)?],
            ..ProviderConfig::new(
                meter(rpm, number("rpm_headroom"), used(1.0)),
                meter(tpm, number("tpm_headroom"), used(tokens)),
            )
        };
        let median = (tokens / MEAN_OVER_MEDIAN).max(1.0);
        let sizes = Sizes::LogNormal(LogNormalSizes { median, p95: median * SPREAD });
        let caller = CallerConfig {
            steps: vec![step(rate)],
            tenants: tenants(snapshot),
            batch_ratio: snapshot
                .value("lanes.batch.share_tokens")
                .and_then(Value::as_number)
                .unwrap_or(0.0)
                .clamp(0.0, 1.0),
            ..CallerConfig::sized(sizes)
        };
        let scope = ScopeConfig { rpm, tpm, ..ScopeConfig::named(&*snapshot.scope) }.with_buckets();
        let made =
            Self { provider, caller, layers: Stack::default(), scope, is_likely: true, words };
        let mut ways = made.with_callers(snapshot, before)?;
        let ends = demand.map_or_else(Vec::new, |demand| vec![demand.low, demand.high]);
        // More demand may be refused, and then it shows what callers do; less of it never does.
        let (likely, most) = (ways[0].clone(), ways[ways.len() - 1].clone());
        for end in ends.into_iter().filter(|end| (end - rate).abs() > rate * SAME_RATE) {
            let callers = if end > rate { vec![&likely, &most] } else { vec![&likely] };
            for way in callers {
                let mut way = Self { is_likely: false, ..way.clone() };
                way.caller.steps = vec![step(end)];
                ways.push(way);
            }
            ways[0].words.push(format!("or {end:.1} originals/s, as the last minutes may mean"));
        }
        Ok(ways)
    }

    /// The ways in which callers may behave, from how often they ask now.
    fn with_callers(self, snapshot: &Snapshot, before: &Settings) -> Result<Vec<Self>, NoForecast> {
        let seen = snapshot.number("client_multiplication").unwrap_or(1.0);
        let configured = snapshot.number("max_attempts_configured").map_or(3, whole).clamp(1, 7);
        let way = |layers: Stack, is_likely: bool| Self { layers, is_likely, ..self.clone() };
        let share = |parts: [&str; 2], of: &str| {
            let parts = parts.into_iter().filter_map(|name| snapshot.number(name)).sum::<f64>();
            parts / snapshot.number(of).unwrap_or(0.0).max(0.001)
        };
        let by_gate = snapshot.number("shed_rps").unwrap_or(0.0)
            / snapshot.number("offered_rps").unwrap_or(0.0).max(0.001);
        let refused = share(["provider_429_rps", "provider_503_rps"], "attempts_rps").max(by_gate);
        let are_told = before.retry_owner == RetryOwner::Gateway && before.mode == Mode::Enforce;
        let (mut ways, words) = if seen < REPEATS_FROM {
            let words = format!("callers try up to {configured} times; nobody repeats now");
            (vec![way(stack(configured, true), true), way(stack(1, true), false)], words)
        } else {
            let tries = fitting(seen, |tries| {
                play::multiplication(&way(stack(tries, false), true), before)
            });
            let explained = play::multiplication(&way(stack(tries, false), true), before);
            if explained * EXPLAINED < seen {
                let why = format!(
                    "callers ask {seen:.1} times per original, and no refusal of now explains that"
                );
                return Err(NoForecast::Unlike(why));
            }
            let words = format!("callers try up to {tries} times");
            if are_told {
                let words = format!("{words}, though they are told to stop");
                (vec![way(stack(tries, false), true)], words)
            } else {
                let words = format!("{words}; whether they stop when told is not known");
                (vec![way(stack(tries, true), true), way(stack(tries, false), false)], words)
            }
        };
        let mut words = vec![words];
        // What people do who are hardly ever refused, or are told to stop, is not seen in what they do.
        if refused < REFUSED_ENOUGH || are_told {
            ways.extend([
                way(stack(configured, false), false),
                way(nested_stack(configured.max(SDK_TRIES), true), false),
                way(nested_stack(configured.max(SDK_TRIES), false), false),
            ]);
            let configured = configured.max(SDK_TRIES);
            words.push(format!(
                "or {configured} times in each of three layers, once they are refused"
            ));
        }
        for one in &mut ways {
            one.words.extend(words.clone());
        }
        Ok(ways)
    }
}

/// Whether a pool is full in one place only: what a quota for all of it does to it cannot be told.
fn is_one_empty(snapshot: &Snapshot) -> bool {
    let Some(Value::List(deployments)) = snapshot.value("deployments") else { return false };
    let rooms = deployments.iter().filter_map(|one| match one {
        Value::Map(parts) => parts.get("headroom")?.as_number(),
        _ => None,
    });
    let rooms: Vec<f64> = rooms.collect();
    rooms.iter().any(|room| *room < HAS_ROOM / 2.0)
        && rooms.iter().any(|room| *room > HAS_ROOM * 3.0)
}

fn step(rate: f64) -> RateStep {
    RateStep { name: "now".to_owned(), rate, ..RateStep::default() }
}

/// How often callers try who ask so often: more tries never mean fewer requests.
fn fitting(seen: f64, multiplication: impl Fn(u32) -> f64) -> u32 {
    let (mut low, mut high) = (0, TRIES.len() - 1);
    while low < high {
        let middle = usize::midpoint(low, high);
        if multiplication(TRIES[middle]) < seen {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let above = TRIES[low];
    let Some(below) = low.checked_sub(1).map(|place| TRIES[place]) else { return above };
    let off = |tries: u32| (multiplication(tries).max(1.0) / seen).ln().abs();
    if off(below) < off(above) { below } else { above }
}

/// How long a good answer takes: by Little's law from the calls that are open, else as it was measured.
fn latency(snapshot: &Snapshot) -> Option<f64> {
    let open = snapshot.number("inflight_actual").zip(snapshot.number("success_rps"));
    let by_law =
        open.filter(|(open, rate)| *open >= 2.0 && *rate > 1.0).map(|(open, rate)| open / rate);
    let measured = snapshot.number("provider_latency_p95_s").or(snapshot.number("latency_p50_s"));
    let waited = snapshot.number("queue_oldest_age_s").unwrap_or(0.0) > 1.0;
    let direct = if waited { None } else { snapshot.number("latency_p50_s") };
    direct.or(by_law).or(measured).map(|seconds| seconds.clamp(0.01, 60.0))
}

/// What the provider refuses whatever its meters say.
fn failing(snapshot: &Snapshot, words: &mut Vec<String>) -> Result<ProviderStep, NoForecast> {
    let number = |name: &str| snapshot.number(name);
    let attempts = number("attempts_rps").unwrap_or(0.0).max(0.001);
    let share = |name: &str| (number(name).unwrap_or(0.0) / attempts).clamp(0.0, 1.0);
    let has_room = ["tpm_headroom", "rpm_headroom"]
        .iter()
        .all(|meter| number(meter).is_none_or(|left| left > HAS_ROOM));
    let overloaded = (share("provider_503_rps") + share("provider_5xx_other_rps")).min(1.0);
    let refused = if has_room { share("provider_429_rps") } else { 0.0 };
    let is_dead = refused > IS_DEAD && share("success_rps") < 1.0 - IS_DEAD;
    if overloaded > 0.0 {
        words.push(format!("{:.0}% of attempts fail whatever is sent", overloaded * 100.0));
    }
    if is_dead {
        words.push("the provider refuses everything".to_owned());
    } else if refused > IS_CHANCE && number("provider_concurrency_limit").is_none() {
        let why = "the provider refuses though its meters have room, by a rule that is not known";
        return Err(NoForecast::Unlike(why.to_owned()));
    }
    Ok(ProviderStep {
        error_ratio: Some(overloaded),
        hard_quota: is_dead.then_some(true),
        ..ProviderStep::default()
    })
}

/// A meter that after the warm-up stands where it stands now.
fn meter(limit: Option<f64>, headroom: Option<f64>, used_per_s: f64) -> MeterConfig {
    let per_minute = limit.unwrap_or(NO_LIMIT).max(1.0);
    let back_per_s = per_minute / 60.0 - used_per_s;
    let left = per_minute * headroom.unwrap_or(1.0);
    let start = (left - back_per_s * WARM_UP_S).clamp(0.0, per_minute);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "limits per minute, from 1 to 1e9"
    )]
    let (whole, start) = (per_minute as u64, start as u64);
    MeterConfig {
        per_minute: NonZeroU64::new(whole).unwrap_or(NonZeroU64::MIN),
        capacity: None,
        start: Some(start),
        slices_s: Vec::new(),
    }
}

fn tenants(snapshot: &Snapshot) -> Vec<TenantShare> {
    let Some(top) = snapshot.number("top_tenant_share").filter(|top| (0.05..0.95).contains(top))
    else {
        return Vec::new();
    };
    let share = |name: &str, weight: f64| TenantShare { name: name.to_owned(), weight };
    vec![share("top", top), share("other", 1.0 - top)]
}

/// One layer that tries so often, with the waits of the OpenAI SDK.
fn stack(tries: u32, obeys: bool) -> Stack {
    layers(tries, obeys, 1, 0)
}

/// Three layers that try so often each, and stop when they are told or do not.
fn nested_stack(tries: u32, obeys: bool) -> Stack {
    layers(tries, obeys, tries, tries.saturating_sub(1))
}

fn layers(tries: u32, obeys: bool, wrapper: u32, resubmits: u32) -> Stack {
    Stack::from(&LayersConfig {
        sdk: SdkConfig { tries, obeys_should_retry: obeys, ..SdkConfig::default() },
        wrapper: WrapperConfig { tries: wrapper, deaf: !obeys, ..WrapperConfig::default() },
        frontend: FrontendConfig { resubmits, probability: 1.0, ..FrontendConfig::default() },
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count that was clamped to a u32"
)]
fn whole(number: f64) -> u32 {
    number.clamp(1.0, 1e9) as u32
}
