//! What changed about one scope beside its load: limits, tier, models, instances, deploys, prompt size.
//!
//! A change is an event, and it voids baselines: what is compared with an hour ago is compared with
//! another quota, model or prompt. Which signals a change touches is the table [`touches`]. Takes
//! only what is read fresh and exact, and a new value only once two readings in a row gave it, so that
//! noise, a lost source, or our own configured limit standing in for the provider's is no change.

mod settled;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Mono, Snapshot, Value};

use self::settled::{Settled, Taken, exact, fresh, number};

/// Changes of one scope that are remembered; the oldest go first.
pub const CHANGES_MAX: usize = 64;
/// Models of one scope that are told apart.
const MODELS_MAX: usize = 64;
/// Sources whose instances are counted.
const SOURCES_MAX: usize = 64;
/// A model that first answers within this time of watching was there before.
const LEARNING: Duration = Duration::from_mins(5);
/// A model that has not answered for so long, while others have, is gone.
const MODEL_GONE: Duration = Duration::from_mins(10);
/// Prompts have another size when they differ by this factor ...
const PROMPT_FACTOR: f64 = 1.5;
/// ... for so long, and were steady for so long before.
const PROMPT_HOLD: Duration = Duration::from_mins(1);
/// Share of a new reading in the level that prompts are held against, per reading.
const PROMPT_GAIN: f64 = 0.02;

/// The limits whose change is one, by signal.
const LIMITS: &[&str] = &[
    "rpm_limit",
    "tpm_limit",
    "itpm_limit",
    "otpm_limit",
    "rpd_limit",
    "tpd_limit",
    "day_limit",
    "provider_concurrency_limit",
];

/// Words of the provider about itself, by path.
const NOTICES: &[&str] =
    &["provider_status", "provider_notices.deprecated_since", "provider_notices.sunset_on"];

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The limit of one meter, by its signal.
    Limit(&'static str),
    /// Every limit at once.
    Tier,
    /// Which models answer.
    Models,
    /// How many instances of the gate there are.
    Instances,
    /// What the provider says about itself, by path.
    Notice(&'static str),
    /// There was a deploy.
    Deploy,
    /// How large prompts are.
    PromptSize,
}

impl What {
    /// Its name on screen, in reasons and in the journal.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit(signal) => signal,
            Self::Notice(path) => match path.as_bytes() {
                b"provider_notices.deprecated_since" => "provider: deprecated since",
                b"provider_notices.sunset_on" => "provider: sunset on",
                _ => "provider status",
            },
            Self::Tier => "tier",
            Self::Models => "models",
            Self::Instances => "replicas",
            Self::Deploy => "deploy",
            Self::PromptSize => "prompt size",
        }
    }
}

/// One side of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Level {
    /// A number, in the unit of what changed.
    Number(f64),
    /// Several numbers, each with its name.
    Numbers(Vec<(&'static str, f64)>),
    /// Words.
    Words(String),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number:.0}"),
            Self::Numbers(numbers) => {
                for (index, (name, number)) in numbers.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{name} {number:.0}")?;
                }
                Ok(())
            }
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The quota scope.
    pub scope: String,
    /// What changed.
    pub what: What,
    /// From what; `None` where it was not known before.
    pub from: Option<Level>,
    /// To what.
    pub to: Level,
    /// When it was first seen; of a deploy, when it was.
    pub at: Mono,
}

const OF_REQUESTS: &[&str] = &[
    "rpm_limit",
    "rpm_remaining",
    "rpm_headroom",
    "own_rpm_headroom",
    "rpm_demand_ratio",
    "rpm_use_ratio",
    "rpm_reset_s",
    "provider_429_requests_rps",
];
const OF_TOKENS: &[&str] = &[
    "tpm_limit",
    "tpm_remaining",
    "tpm_headroom",
    "own_tpm_headroom",
    "tpm_demand_ratio",
    "tpm_use_ratio",
    "tpm_reset_s",
    "itpm_limit",
    "itpm_remaining",
    "itpm_headroom",
    "otpm_limit",
    "otpm_remaining",
    "otpm_headroom",
    "provider_429_tokens_rps",
];
const OF_DAY: &[&str] =
    &["day_limit", "day_remaining", "day_headroom", "rpd_headroom", "tpd_headroom"];
/// What any limit moves, whichever meter it is on.
const OF_ANY_LIMIT: &[&str] = &[
    "own_used_ratio",
    "provider_used_ratio",
    "own_view_sum_ratio",
    "reset_s",
    "served_share",
    "provider_429_rps",
    "provider_429_share",
    "provider_refused_rps",
    "provider_refused_share",
];
const OF_TIME: &[&str] = &[
    "latency_p50_s",
    "latency_p95_s",
    "latency_offered_p95_s",
    "caller_latency_p95_s",
    "provider_latency_p95_s",
    "stages_p95_s",
    "inflight_actual",
    "inflight_gauge",
];
const OF_PROMPTS: &[&str] = &[
    "tokens_per_request",
    "est_tokens_per_request",
    "actual_tokens_per_request",
    "reserved_tokens_per_request",
    "actual_output_tokens",
    "requested_tokens_p50",
    "requested_tokens_max",
    "cached_share",
    "estimate_error",
    "embeds_per_original",
    "spend_rate_x_baseline",
];
const OF_WORK: &[&str] =
    &["amplification", "client_multiplication", "retries_share", "retry_header_share", "cache"];
const OF_INSTANCES: &[&str] = &[
    "own_rpm_headroom",
    "own_tpm_headroom",
    "own_used_ratio",
    "own_view_sum_ratio",
    "queue_depth",
    "cpu_busy_ratio",
    "worker_threads_busy",
    "worker_threads_total",
];

/// The signals whose baseline a change voids. Demand (`originals_rps`) is nobody's quota, model or
/// prompt and keeps its baseline; the size of prompts is compared with its own past on purpose.
const fn touches(what: What) -> &'static [&'static [&'static str]] {
    match what {
        What::Limit(signal) => match signal.as_bytes() {
            b"rpm_limit" => &[OF_REQUESTS, OF_ANY_LIMIT],
            b"tpm_limit" | b"itpm_limit" | b"otpm_limit" => &[OF_TOKENS, OF_ANY_LIMIT],
            b"provider_concurrency_limit" => &[OF_TIME, OF_ANY_LIMIT],
            _ => &[OF_DAY, OF_ANY_LIMIT],
        },
        What::Tier => &[OF_REQUESTS, OF_TOKENS, OF_DAY, OF_ANY_LIMIT],
        What::Models => &[OF_PROMPTS, OF_TIME],
        What::Instances => &[OF_INSTANCES, OF_TIME],
        What::Deploy => &[OF_PROMPTS, OF_TIME, OF_WORK],
        What::PromptSize => {
            &[OF_TIME, &["tpm_demand_ratio", "tpm_use_ratio", "spend_rate_x_baseline"]]
        }
        What::Notice(_) => &[],
    }
}

/// How many instances a source has.
#[derive(Clone, Copy, Debug)]
pub struct InstanceCount<'a> {
    /// The source's name.
    pub source: &'a str,
    /// All of them, whether they answer or not.
    pub all: usize,
    /// When the source answered last.
    pub read_at: Mono,
}

/// Watches one scope for changes. Call [`Self::step`] with every snapshot, in order of time.
#[derive(Clone, Debug, Default)]
pub struct ChangeWatch {
    began: Option<Mono>,
    limits: BTreeMap<&'static str, Settled<u64>>,
    replicas: Option<Settled<u64>>,
    /// By source.
    instances: BTreeMap<String, Settled<usize>>,
    notices: BTreeMap<&'static str, Settled<String>>,
    models: Models,
    since_deploy_min: Option<f64>,
    prompts: Prompts,
    recent: VecDeque<Arc<Change>>,
}

impl ChangeWatch {
    /// Takes the next snapshot.
    pub fn step(&mut self, snapshot: &Snapshot, at: Mono) {
        let began = *self.began.get_or_insert(at);
        let mut found = self.limits(snapshot, at);
        found.extend(self.replicas(snapshot, at));
        found.extend(self.notices(snapshot, at));
        let learning = at.saturating_since(began) < LEARNING;
        found.extend(self.models.step(snapshot, learning, at));
        found.extend(self.deploy(snapshot, at));
        found.extend(self.prompts.step(snapshot, at));
        for one in found {
            self.note(&snapshot.scope, one);
        }
    }

    /// Takes how many instances there are behind the source that gives the numbers of `scope`, as
    /// its list, its lookups or its server say. Call it before [`Self::step`]. Two sources are two
    /// counts: that another one gives the numbers is no change.
    pub fn instances(&mut self, scope: &str, told: &InstanceCount<'_>, at: Mono) {
        let InstanceCount { source, all, read_at } = *told;
        let Some(settled) = self.instances.get_mut(source) else {
            if self.instances.len() < SOURCES_MAX {
                self.instances.insert(source.to_owned(), Settled::new(all));
            }
            return;
        };
        if let Some((was, since)) = settled.step(all, Taken::at(read_at), at) {
            let number = |count| Level::Number(u32::try_from(count).map_or(f64::MAX, f64::from));
            let [from, to] = [was, all].map(number);
            self.note(scope, (What::Instances, Some(from), to, since));
        }
    }

    fn note(&mut self, scope: &str, (what, from, to, at): Found) {
        // The gate's own word on its instances and the list of them tell of one event each.
        let is_told = |one: &Arc<Change>| one.from == from && one.to == to;
        let last = self.recent.iter().rev().find(|one| one.what == What::Instances);
        if what == What::Instances && last.is_some_and(is_told) {
            return;
        }
        if self.recent.len() == CHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Arc::new(Change { scope: scope.to_owned(), what, from, to, at }));
    }

    /// The changes so far, oldest first, at most [`CHANGES_MAX`].
    #[must_use]
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        self.recent.iter()
    }

    /// The newest change after `since` that touches the signal of a path.
    #[must_use]
    pub fn voiding(&self, path: &str, since: Mono) -> Option<&Change> {
        let signal = path.split('.').next().unwrap_or(path);
        let touched =
            |change: &Change| touches(change.what).iter().any(|signals| signals.contains(&signal));
        self.recent.iter().rev().map(AsRef::as_ref).find(|one| one.at > since && touched(one))
    }

    fn limits(&mut self, snapshot: &Snapshot, at: Mono) -> Vec<Found> {
        // Which of the two day meters `day_limit` means may change without either changing.
        let by_kind = ["rpd_limit", "tpd_limit"].iter().any(|one| snapshot.get(one).is_some());
        let mut moved = Vec::new();
        let mut read = 0_usize;
        for name in LIMITS.iter().copied().filter(|name| *name != "day_limit" || !by_kind) {
            let Some((limit, taken)) = exact(snapshot, name, at) else { continue };
            read += 1;
            let bits = limit.to_bits();
            let settled = self.limits.entry(name).or_insert(Settled::new(bits));
            if let Some((was, since)) = settled.step(bits, taken, at) {
                moved.push((name, f64::from_bits(was), limit, since));
            }
        }
        let one = |(name, from, to, since)| {
            (What::Limit(name), Some(Level::Number(from)), Level::Number(to), since)
        };
        if moved.len() < 2 || moved.len() < read {
            return moved.into_iter().map(one).collect();
        }
        let since = moved.iter().map(|(.., since)| *since).min().unwrap_or(at);
        let side = |of: fn(&(&'static str, f64, f64, Mono)) -> f64| {
            let named = moved.iter().map(|one| (one.0.trim_end_matches("_limit"), of(one)));
            Level::Numbers(named.collect())
        };
        vec![(What::Tier, Some(side(|one| one.1)), side(|one| one.2), since)]
    }

    fn replicas(&mut self, snapshot: &Snapshot, at: Mono) -> Option<Found> {
        let (count, taken) = exact(snapshot, "replicas", at)?;
        let settled = self.replicas.get_or_insert(Settled::new(count.to_bits()));
        let (was, since) = settled.step(count.to_bits(), taken, at)?;
        let from = Level::Number(f64::from_bits(was));
        Some((What::Instances, Some(from), Level::Number(count), since))
    }

    fn notices(&mut self, snapshot: &Snapshot, at: Mono) -> Vec<Found> {
        let mut found = Vec::new();
        for path in NOTICES {
            let root = path.split('.').next().unwrap_or(path);
            let Some(reading) = fresh(snapshot, root) else { continue };
            let Some(words) = snapshot.value(path).and_then(Value::as_text).map(str::to_owned)
            else {
                continue;
            };
            let taken = Taken::of(reading, at);
            let to = Level::Words(words.clone());
            match self.notices.get_mut(path) {
                // A status has to be something at first; an announcement is news.
                None => {
                    if *path != "provider_status" {
                        found.push((What::Notice(path), None, to, at));
                    }
                    self.notices.insert(path, Settled::new(words));
                }
                Some(settled) => {
                    if let Some((was, since)) = settled.step(words, taken, at) {
                        found.push((What::Notice(path), Some(Level::Words(was)), to, since));
                    }
                }
            }
        }
        found
    }

    /// The minutes since the last deploy fall when there is another.
    fn deploy(&mut self, snapshot: &Snapshot, at: Mono) -> Option<Found> {
        let minutes = number(fresh(snapshot, "minutes_since_deploy")?)?.max(0.0);
        let was = self.since_deploy_min.replace(minutes)?;
        // A clock that is set a little or rounding is no deploy.
        if minutes + 0.5 >= was {
            return None;
        }
        let ago = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or_default();
        let words = |minutes: f64| Level::Words(format!("{minutes:.0} min ago"));
        Some((What::Deploy, Some(words(was)), words(minutes), at - ago))
    }
}

/// What changed, from what, to what, when.
type Found = (What, Option<Level>, Level, Mono);

/// Which models answer.
#[derive(Clone, Debug, Default)]
struct Models {
    /// By id, when each answered last.
    seen: BTreeMap<String, Mono>,
    /// New ones that were in the last reading for the first time.
    candidates: BTreeSet<String>,
    last: Option<Taken>,
}

impl Models {
    fn step(&mut self, snapshot: &Snapshot, learning: bool, at: Mono) -> Option<Found> {
        let reading = fresh(snapshot, "models")?;
        let Value::List(rows) = &reading.value else { return None };
        let id = |row: &Value| match row {
            Value::Map(parts) => parts.get("id").and_then(Value::as_text).map(str::to_owned),
            _ => None,
        };
        let now: BTreeSet<String> = rows.iter().take(MODELS_MAX).filter_map(id).collect();
        let taken = Taken::of(reading, at);
        if now.is_empty() || self.last.is_some_and(|last| !taken.is_newer_than(last)) {
            return None;
        }
        self.last = Some(taken);
        let before = self.set();
        let candidates = std::mem::take(&mut self.candidates);
        for id in now {
            let is_settled = self.seen.contains_key(&id) || learning || candidates.contains(&id);
            if is_settled && (self.seen.len() < MODELS_MAX || self.seen.contains_key(&id)) {
                self.seen.insert(id, at);
            } else {
                self.candidates.insert(id);
            }
        }
        self.seen.retain(|_, last| at.saturating_since(*last) < MODEL_GONE);
        let after = self.set();
        let changed = before != after && !before.is_empty() && !learning;
        changed.then_some((What::Models, Some(Level::Words(before)), Level::Words(after), at))
    }

    fn set(&self) -> String {
        self.seen.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// How large prompts are, and since when they are of another size.
#[derive(Clone, Debug, Default)]
struct Prompts {
    level: Option<f64>,
    steady_since: Option<Mono>,
    away: Option<Away>,
    last: Option<Taken>,
}

/// Readings on the other side of [`PROMPT_FACTOR`].
#[derive(Clone, Copy, Debug)]
struct Away {
    since: Mono,
    larger: bool,
    sum: f64,
    count: f64,
}

impl Prompts {
    fn step(&mut self, snapshot: &Snapshot, at: Mono) -> Option<Found> {
        let (tokens, taken) = exact(snapshot, "tokens_per_request", at)?;
        if tokens <= 0.0 || self.last.is_some_and(|last| !taken.is_newer_than(last)) {
            return None;
        }
        self.last = Some(taken);
        let Some(level) = self.level else {
            (self.level, self.steady_since) = (Some(tokens), Some(at));
            return None;
        };
        let ratio = tokens / level;
        let larger = ratio > PROMPT_FACTOR;
        if !larger && ratio > 1.0 / PROMPT_FACTOR {
            self.level = Some(level + PROMPT_GAIN * (tokens - level));
            self.away = None;
            return None;
        }
        let fresh = Away { since: at, larger, sum: 0.0, count: 0.0 };
        let mut away = self.away.filter(|away| away.larger == larger).unwrap_or(fresh);
        away.sum += tokens;
        away.count += 1.0;
        self.away = Some(away);
        if at.saturating_since(away.since) < PROMPT_HOLD {
            return None;
        }
        let to = away.sum / away.count;
        let steady = self.steady_since.map_or(Duration::ZERO, |s| away.since.saturating_since(s));
        (self.level, self.steady_since, self.away) = (Some(to), Some(away.since), None);
        (steady >= PROMPT_HOLD).then_some((
            What::PromptSize,
            Some(Level::Number(level)),
            Level::Number(to),
            away.since,
        ))
    }
}

#[cfg(test)]
mod tests;
