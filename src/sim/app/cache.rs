//! A cache of answers, with the three faults that make such a cache wrong.
//!
//! A key is the question, the tenant and the version of the corpus. A fault leaves one of them out, or
//! keeps errors as if they were answers; wrong answers then come out by themselves, and every hit is
//! checked against who asked and what the corpus is by now.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::Rng;
use serde::Deserialize;

use crate::admission::Histogram;
use crate::signal::Mono;
use crate::sim::config::{ConfigError, within};

/// Most answers that are kept; the oldest goes first.
const ENTRIES_MAX: usize = 50_000;
/// How long a hit takes.
const HIT_LATENCY: Duration = Duration::from_millis(3);

/// `[app.cache]` of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// Different questions that come up again and again.
    #[serde(default = "some_keys")]
    pub keys: u32,
    /// Share of the questions that are one of those; the others come once.
    #[serde(default = "some_repeats")]
    pub repeat_ratio: f64,
    /// That share from an instant on.
    #[serde(default)]
    pub steps: Vec<RepeatStep>,
    /// How long an answer is good.
    #[serde(default = "one_hour")]
    pub ttl_s: f64,
    /// How often the corpus behind the answers changes; absent means never.
    pub corpus_every_s: Option<f64>,
    /// What is wrong with it.
    pub fault: Option<CacheFault>,
    /// Seconds after the start from when on.
    #[serde(default)]
    pub wrong_from_s: f64,
}

/// The share of repeated questions from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatStep {
    /// Seconds after the start.
    pub at_s: f64,
    /// The share.
    pub repeat_ratio: f64,
}

/// What can be wrong with a cache of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheFault {
    /// Its key lacks the tenant.
    TenantBlind,
    /// Its key lacks the version of the corpus.
    StaleCorpus,
    /// It keeps errors as answers.
    CachesErrors,
}

const fn some_keys() -> u32 {
    500
}

const fn some_repeats() -> f64 {
    0.4
}

const fn one_hour() -> f64 {
    3_600.0
}

impl CacheConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let span = "seconds from 0 to 86400";
        within("cache.keys", f64::from(self.keys), 1.0, 1e6, "1 to 1000000 questions")?;
        within("cache.repeat_ratio", self.repeat_ratio, 0.0, 1.0, "a share from 0 to 1")?;
        within("cache.ttl_s", self.ttl_s, 0.0, 86_400.0, span)?;
        within("cache.wrong_from_s", self.wrong_from_s, 0.0, 86_400.0, span)?;
        let every_s = self.corpus_every_s.unwrap_or(1.0);
        within("cache.corpus_every_s", every_s, 0.1, 86_400.0, "seconds from 0.1 to 86400")?;
        let mut earlier_s = 0.0;
        for (index, step) in self.steps.iter().enumerate() {
            let key = |name: &str| format!("cache.steps[{index}].{name}");
            within(&key("at_s"), step.at_s, earlier_s, 86_400.0, "steps stand in order")?;
            within(&key("repeat_ratio"), step.repeat_ratio, 0.0, 1.0, "a share from 0 to 1")?;
            earlier_s = step.at_s;
        }
        Ok(())
    }
}

/// What an answer is kept under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    question: u64,
    tenant: Option<usize>,
    corpus: Option<u64>,
}

/// A question that was not in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    key: Key,
    tenant: usize,
    corpus: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tenant: usize,
    corpus: u64,
    is_error: bool,
    since: Mono,
}

/// What a look into the cache gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Hit { is_wrong: bool, latency: Duration },
    Miss(Question),
}

/// What came out of the cache, every hit checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Questions that were looked up.
    pub lookups: u64,
    /// Answers that came out.
    pub hits: u64,
    /// Of those, wrong for one reason or another.
    pub wrong: u64,
    /// Written for another tenant.
    pub cross_tenant: u64,
    /// Written from a corpus that has changed since.
    pub corpus_mismatch: u64,
    /// No answers but errors.
    pub error_bodies: u64,
}

/// The cache.
#[derive(Clone, Debug)]
pub struct Cache {
    config: CacheConfig,
    entries: BTreeMap<Key, Entry>,
    /// Keys in the order in which they were kept.
    order: VecDeque<Key>,
    /// Number of the next question that comes once.
    unique: u64,
    counts: CacheCounts,
    ages: Histogram,
}

impl Cache {
    pub(super) fn new(config: CacheConfig) -> Self {
        Self {
            unique: u64::from(config.keys),
            config,
            entries: BTreeMap::new(),
            order: VecDeque::new(),
            counts: CacheCounts::default(),
            ages: Histogram::default(),
        }
    }

    fn has(&self, fault: CacheFault, now: Mono) -> bool {
        self.config.fault == Some(fault) && now >= Mono::from_secs_f64(self.config.wrong_from_s)
    }

    fn corpus(&self, now: Mono) -> u64 {
        let elapsed = now.since_start();
        self.config.corpus_every_s.map_or(0, |every_s| {
            let every = Duration::from_secs_f64(every_s);
            u64::try_from(elapsed.as_nanos() / every.as_nanos().max(1)).unwrap_or(u64::MAX)
        })
    }

    fn repeat_ratio(&self, now: Mono) -> f64 {
        let begun = |step: &&RepeatStep| Mono::from_secs_f64(step.at_s) <= now;
        let step = self.config.steps.iter().rev().find(begun);
        step.map_or(self.config.repeat_ratio, |step| step.repeat_ratio)
    }

    /// Looks the next question of `tenant` up.
    pub(super) fn look(&mut self, tenant: usize, random: &mut impl Rng, now: Mono) -> Looked {
        let question = if random.random::<f64>() < self.repeat_ratio(now) {
            u64::from(random.random_range(0..self.config.keys))
        } else {
            self.unique += 1;
            self.unique
        };
        let corpus = self.corpus(now);
        let key = Key {
            question,
            tenant: (!self.has(CacheFault::TenantBlind, now)).then_some(tenant),
            corpus: (!self.has(CacheFault::StaleCorpus, now)).then_some(corpus),
        };
        self.counts.lookups += 1;
        let ttl = Duration::from_secs_f64(self.config.ttl_s);
        let fresh = |entry: &&Entry| now.saturating_since(entry.since) <= ttl;
        match self.entries.get(&key).filter(fresh).copied() {
            Some(entry) => self.hit(&entry, tenant, corpus, now),
            None => Looked::Miss(Question { key, tenant, corpus }),
        }
    }

    fn hit(&mut self, entry: &Entry, tenant: usize, corpus: u64, now: Mono) -> Looked {
        let (crosses, is_old) = (entry.tenant != tenant, entry.corpus != corpus);
        let is_wrong = crosses || is_old || entry.is_error;
        let counts = &mut self.counts;
        counts.hits += 1;
        counts.wrong += u64::from(is_wrong);
        counts.cross_tenant += u64::from(crosses);
        counts.corpus_mismatch += u64::from(is_old);
        counts.error_bodies += u64::from(entry.is_error);
        self.ages.observe(now.saturating_since(entry.since));
        Looked::Hit { is_wrong, latency: HIT_LATENCY }
    }

    /// Keeps an answer; an error only where that is the fault.
    pub(super) fn keep(&mut self, question: Question, is_good: bool, now: Mono) {
        if !is_good && !self.has(CacheFault::CachesErrors, now) {
            return;
        }
        let Question { key, tenant, corpus } = question;
        let entry = Entry { tenant, corpus, is_error: !is_good, since: now };
        if self.entries.insert(key, entry).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > ENTRIES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    /// What came out so far.
    #[must_use]
    pub const fn counts(&self) -> &CacheCounts {
        &self.counts
    }

    /// How old what came out was.
    #[must_use]
    pub const fn ages(&self) -> &Histogram {
        &self.ages
    }
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg64;

    use super::*;

    /// Ten questions a second of ten tenants for a minute, answered at once; one in five fails.
    fn minute(more: &str) -> CacheCounts {
        let text = format!("keys = 10\nrepeat_ratio = 0.8\nwrong_from_s = 30\n{more}");
        let config: CacheConfig = toml::from_str(&text).expect("fits");
        config.check().expect("in bounds");
        let mut cache = Cache::new(config);
        let mut random = Pcg64::new(1, 1);
        for n in 0..600_u32 {
            let now = Mono::from_secs_f64(f64::from(n) / 10.0);
            let tenant = usize::try_from(n % 10).expect("small");
            if let Looked::Miss(question) = cache.look(tenant, &mut random, now) {
                cache.keep(question, n % 5 != 0, now);
            }
        }
        *cache.counts()
    }

    #[test]
    fn a_cache_without_a_fault_is_never_wrong() {
        let counts = minute("corpus_every_s = 5");
        assert!(counts.hits > 20 && counts.hits < counts.lookups, "{counts:?}");
        assert_eq!(counts.wrong, 0, "{counts:?}");
    }

    #[test]
    fn each_fault_shows_as_itself() {
        let blind = minute("fault = 'tenant-blind'");
        assert!(blind.cross_tenant * 2 > blind.hits / 2, "{blind:?}");
        assert_eq!((blind.corpus_mismatch, blind.error_bodies), (0, 0), "{blind:?}");
        let stale = minute("fault = 'stale-corpus'\ncorpus_every_s = 5");
        assert!(stale.corpus_mismatch > 10, "{stale:?}");
        assert_eq!((stale.cross_tenant, stale.error_bodies), (0, 0), "{stale:?}");
        let errors = minute("fault = 'caches-errors'");
        assert!(errors.error_bodies > 10, "{errors:?}");
        assert_eq!((errors.cross_tenant, errors.corpus_mismatch), (0, 0), "{errors:?}");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut cache = Cache::new(toml::from_str("repeat_ratio = 0").expect("fits"));
        let mut random = Pcg64::new(1, 1);
        for _ in 0..ENTRIES_MAX + 10 {
            if let Looked::Miss(question) = cache.look(0, &mut random, Mono::START) {
                cache.keep(question, true, Mono::START);
            }
        }
        assert_eq!((cache.entries.len(), cache.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
    }

    #[test]
    fn the_share_of_repeats_follows_its_steps() {
        let text = "repeat_ratio = 0.9\nsteps = [{ at_s = 10, repeat_ratio = 0.1 }]";
        let cache = Cache::new(toml::from_str(text).expect("fits"));
        let at = |seconds| cache.repeat_ratio(Mono::from_secs_f64(seconds));
        assert_eq!((at(9.9), at(10.0)), (0.9, 0.1));
    }
}
