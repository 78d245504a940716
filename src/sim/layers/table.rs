//! One layer as it is written, in a client's file and in a scenario: every key optional.
//!
//! What is absent in a scenario is taken from the client, and what is absent there from a layer that
//! tries once, says nothing and reads nothing. The keys are explained in `assets/clients/README.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::sim::config::{ConfigError, within};
use crate::sim::layers::answer::Code;
use crate::sim::layers::backoff::{Backoff, Jitter};
use crate::sim::layers::causes::Causes;
use crate::sim::layers::hints::{Hints, Numbers, Odd, Source};
use crate::sim::layers::policy::{MarkKind, Obedience, Policy, WAIT_S_MAX, Wait};

/// Most tries that one layer may be told to make.
const TRIES_MAX: u32 = 100;
/// Most tries of a layer that counts time instead: nearly three a second for an hour.
const UNCOUNTED_TRIES_MAX: u32 = 10_000;
/// Longest own wait that a layer may be told to make.
const OWN_WAIT_S_MAX: f64 = 3_600.0;
/// Longest time that a call, a request or a delivery may be given: a day.
const TIME_S_MAX: f64 = 86_400.0;
/// Most scopes of a fallback, and most times that it goes round them.
const SCOPES_MAX: u32 = 8;
const PASSES_MAX: u32 = 20;

const TRIES: &str = "tries are counted from 1 to 100, the first included";
const SECONDS: &str = "seconds from 0 to 3600";
const SHARE: &str = "a share from 0 to 1";

/// One layer as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayerTable {
    #[serde(rename = "use")]
    pub(super) client: Option<String>,
    pub(super) name: Option<String>,
    pub(super) with: BTreeMap<String, LayerTable>,
    tries: Option<u32>,
    tries_repeated: Option<u32>,
    within_s: Option<f64>,
    retries: Option<Causes>,
    retries_if_hinted: Option<Causes>,
    retries_codes: Option<Vec<Code>>,
    stops_codes: Option<Vec<Code>>,
    should_retry: Option<Obedience>,
    probability: Option<f64>,
    base_s: Option<f64>,
    throttled_base_s: Option<f64>,
    factor: Option<f64>,
    cap_s: Option<f64>,
    first_s: Option<f64>,
    jitter: Option<Jitter>,
    visibility_s: Option<f64>,
    hints: Option<Vec<Source>>,
    hint_statuses: Option<Causes>,
    hint_numbers: Option<Numbers>,
    hint_dates: Option<bool>,
    hint_max_s: Option<f64>,
    hint_above: Option<Odd>,
    hint_zero: Option<Odd>,
    hint_negative: Option<Odd>,
    hint_garbage: Option<Odd>,
    hint_at_least_own: Option<bool>,
    hint_smear: Option<f64>,
    hint_added_s: Option<f64>,
    mark: Option<MarkKind>,
    pub(super) timeout_s: Option<f64>,
    to: Option<Vec<String>>,
    passes: Option<u32>,
    sticky: Option<bool>,
}

impl LayerTable {
    /// The keys of `base` where this table has none.
    pub(super) fn over(&self, base: &Self) -> Self {
        macro_rules! first_of {
            ($($key:ident),+ $(,)?) => {
                Self {
                    client: None,
                    name: None,
                    with: BTreeMap::new(),
                    $($key: self.$key.clone().or_else(|| base.$key.clone()),)+
                }
            };
        }
        first_of!(
            tries,
            tries_repeated,
            within_s,
            retries,
            retries_if_hinted,
            retries_codes,
            stops_codes,
            should_retry,
            probability,
            base_s,
            throttled_base_s,
            factor,
            cap_s,
            first_s,
            jitter,
            visibility_s,
            hints,
            hint_statuses,
            hint_numbers,
            hint_dates,
            hint_max_s,
            hint_above,
            hint_zero,
            hint_negative,
            hint_garbage,
            hint_at_least_own,
            hint_smear,
            hint_added_s,
            mark,
            timeout_s,
            to,
            passes,
            sticky,
        )
    }

    /// The scopes of a fallback; none of another layer.
    pub(super) fn to(&self) -> &[String] {
        self.to.as_deref().unwrap_or_default()
    }

    pub(super) fn is_sticky(&self) -> bool {
        self.sticky.unwrap_or(false)
    }

    /// The policy that is written here, without the fallback, whose scopes are the stack's.
    pub(super) fn policy(&self) -> Result<Policy, ConfigError> {
        self.check()?;
        let once = Policy::once();
        Ok(Policy {
            tries: self.tries_in_all(),
            tries_repeated: self.tries_repeated,
            within: self.within_s.map(Duration::from_secs_f64),
            retries: self.retries.clone().unwrap_or(once.retries),
            retries_if_hinted: self.retries_if_hinted.clone().unwrap_or_default(),
            retries_codes: self.retries_codes.clone().unwrap_or_default(),
            stops_codes: self.stops_codes.clone().unwrap_or_default(),
            should_retry: self.should_retry.unwrap_or_default(),
            probability: self.probability,
            wait: self.wait(),
            hints: self.read_hints(),
            mark: self.mark.unwrap_or_default(),
            timeout: self.timeout_s.map(Duration::from_secs_f64),
            fallback: None,
        })
    }

    fn tries_in_all(&self) -> u32 {
        let scopes = u32::try_from(self.to().len()).unwrap_or(SCOPES_MAX);
        match (self.tries, scopes, self.within_s) {
            (Some(tries), ..) => tries,
            (None, 1.., _) => scopes * self.passes.unwrap_or(1),
            (None, 0, Some(_)) => UNCOUNTED_TRIES_MAX,
            (None, 0, None) => 1,
        }
    }

    fn wait(&self) -> Wait {
        if let Some(timeout_s) = self.visibility_s {
            return Wait::Visibility(Duration::from_secs_f64(timeout_s));
        }
        Wait::Backoff(Backoff {
            base_s: self.base_s.unwrap_or(Backoff::NONE.base_s),
            throttled_base_s: self.throttled_base_s,
            factor: self.factor.unwrap_or(Backoff::NONE.factor),
            cap_s: self.cap_s.unwrap_or(Backoff::NONE.cap_s),
            first_s: self.first_s,
            jitter: self.jitter.unwrap_or_default(),
        })
    }

    fn read_hints(&self) -> Hints {
        Hints {
            sources: self.hints.clone().unwrap_or_default(),
            statuses: self.hint_statuses.clone(),
            numbers: self.hint_numbers.unwrap_or_default(),
            dates: self.hint_dates.unwrap_or(true),
            max_s: self.hint_max_s.unwrap_or(f64::INFINITY),
            above: self.hint_above.unwrap_or_default(),
            zero: self.hint_zero.unwrap_or_default(),
            negative: self.hint_negative.unwrap_or_default(),
            garbage: self.hint_garbage.unwrap_or_default(),
            at_least_own: self.hint_at_least_own.unwrap_or(false),
            smear: self.hint_smear.unwrap_or(0.0),
            added_s: self.hint_added_s.unwrap_or(0.0),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (key, tries) in [("tries", self.tries), ("tries_repeated", self.tries_repeated)] {
            let tries = tries.map(f64::from);
            optional(key, tries, 1.0, f64::from(TRIES_MAX), TRIES)?;
        }
        for (key, seconds) in [
            ("base_s", self.base_s),
            ("throttled_base_s", self.throttled_base_s),
            ("cap_s", self.cap_s),
            ("first_s", self.first_s),
            ("hint_added_s", self.hint_added_s),
        ] {
            optional(key, seconds, 0.0, OWN_WAIT_S_MAX, SECONDS)?;
        }
        for (key, seconds) in [("within_s", self.within_s), ("visibility_s", self.visibility_s)] {
            optional(key, seconds, 0.0, TIME_S_MAX, "seconds from 0 to 86400")?;
        }
        let a_request =
            "seconds from 0.001 to 86400; leave it out for a client that waits for ever";
        optional("timeout_s", self.timeout_s, 0.001, TIME_S_MAX, a_request)?;
        for (key, share) in [("probability", self.probability), ("hint_smear", self.hint_smear)] {
            optional(key, share, 0.0, 1.0, SHARE)?;
        }
        optional("factor", self.factor, 1.0, 100.0, "a factor from 1 to 100")?;
        let longest = "seconds from 0 to 4294967; leave it out for no cap";
        optional("hint_max_s", self.hint_max_s, 0.0, WAIT_S_MAX, longest)?;
        if self.hint_garbage == Some(Odd::Clamp) {
            let problem = "garbage has no length to clamp".to_owned();
            let allowed = "write own, now or give-up";
            return Err(ConfigError { key: "hint_garbage".to_owned(), problem, allowed });
        }
        self.check_jitter()?;
        self.check_fallback()
    }

    fn check_jitter(&self) -> Result<(), ConfigError> {
        match self.jitter.unwrap_or_default() {
            Jitter::None | Jitter::Full | Jitter::Decorrelated => Ok(()),
            Jitter::Minus(share) => within("jitter.minus", share, 0.0, 1.0, SHARE),
            Jitter::Times(from, to) => {
                let rising = "two factors from 0 to 10, the smaller first";
                within("jitter.times", from, 0.0, 10.0, rising)?;
                within("jitter.times", to, from, 10.0, rising)
            }
            Jitter::AddedS(most_s) => {
                within("jitter.added_s", most_s, 0.0, OWN_WAIT_S_MAX, SECONDS)
            }
            Jitter::FromS(least_s) => {
                within("jitter.from_s", least_s, 0.0, OWN_WAIT_S_MAX, SECONDS)
            }
        }
    }

    fn check_fallback(&self) -> Result<(), ConfigError> {
        let passes = self.passes.map(f64::from);
        optional("passes", passes, 1.0, f64::from(PASSES_MAX), "1 to 20 passes")?;
        let scopes = u32::try_from(self.to().len()).unwrap_or(u32::MAX);
        within("to", f64::from(scopes), 0.0, f64::from(SCOPES_MAX), "name 1 to 8 scopes")?;
        let Some(key) = [("passes", self.passes.is_some()), ("sticky", self.sticky.is_some())]
            .into_iter()
            .find_map(|(key, given)| given.then_some(key))
            .filter(|_| scopes == 0)
        else {
            return Ok(());
        };
        let problem = "there is nowhere to fall back to".to_owned();
        Err(ConfigError { key: key.to_owned(), problem, allowed: "name scopes with `to`" })
    }
}

fn optional(
    key: &str,
    value: Option<f64>,
    min: f64,
    max: f64,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    value.map_or(Ok(()), |value| within(key, value, min, max, allowed))
}
