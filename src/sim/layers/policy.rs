//! One layer's policy: whether it repeats a failure, and how long it waits before.
//!
//! Knows nothing of the layers around it; `journey` asks one after the other.

use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::signal::Mono;
use crate::sim::layers::answer::Code;
use crate::sim::layers::backoff::Backoff;
use crate::sim::layers::causes::{Causes, Failure};
use crate::sim::layers::hints::{Asked, Hints};

/// Longest wait before a repeat: that of the most patient client, anthropic-python 2.14 with 49 days.
pub(super) const WAIT_S_MAX: f64 = 4_294_967.0;

/// One layer's policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    /// Calls to the layer below per call of the layer above, the first included.
    pub(super) tries: u32,
    /// The same for a call that the layer above has repeated, where it differs.
    pub(super) tries_repeated: Option<u32>,
    /// After this long in one call no further try is made.
    pub(super) within: Option<Duration>,
    /// What is repeated,
    pub(super) retries: Causes,
    /// and what is if there is a `retry-after`.
    pub(super) retries_if_hinted: Causes,
    /// Codes that are repeated whatever the status,
    pub(super) retries_codes: Vec<Code>,
    /// and those that never are.
    pub(super) stops_codes: Vec<Code>,
    pub(super) should_retry: Obedience,
    /// How likely a try is that could be made; absent means certain.
    pub(super) probability: Option<f64>,
    pub(super) wait: Wait,
    pub(super) hints: Hints,
    pub(super) mark: MarkKind,
    /// How long one request may take; only the innermost layer makes requests.
    pub(super) timeout: Option<Duration>,
    pub(super) fallback: Option<Fallback>,
}

/// How a layer waits by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    /// From the failure on.
    Backoff(Backoff),
    /// Until this long after the failed try began: the visibility timeout of a queue.
    Visibility(Duration),
}

/// Whether `x-should-retry` is obeyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Obedience {
    /// It is not read.
    #[default]
    Ignores,
    /// `false` is obeyed, `true` says nothing.
    Stops,
    /// Both are obeyed, before anything else.
    Obeys,
}

/// How a layer marks its repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MarkKind {
    /// Not at all.
    #[default]
    None,
    /// `x-stainless-retry-count`, from 0 in every call.
    Stainless,
    /// The same header, but always 0: the repeats are somebody else's.
    StainlessZero,
    /// `amz-sdk-request`
    Amz,
}

/// What a request says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    None,
    /// `x-stainless-retry-count: N`
    Stainless(u32),
    /// `amz-sdk-request: attempt=A; max=M`
    Amz {
        /// From 1.
        attempt: u32,
        /// Tries that its layer makes.
        max: u32,
    },
}

impl Mark {
    /// Which repeat it says it is; 0 is the first request, or nothing said.
    #[must_use]
    pub const fn retry_count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Stainless(count) => count,
            Self::Amz { attempt, .. } => attempt.saturating_sub(1),
        }
    }
}

/// Quota scopes that are asked one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fallback {
    /// Indices into the stack's scopes.
    pub(super) to: Vec<usize>,
    /// A repeated call goes on where the last one ended instead of at the first.
    pub(super) sticky: bool,
}

/// How far one call of a layer has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Its present try, from 0.
    pub(super) at: u32,
    /// When its first try began.
    pub(super) call_began: Mono,
    /// When its present try began.
    pub(super) try_began: Mono,
    /// What it waited last.
    pub(super) waited_s: Option<f64>,
    /// Scopes that were left behind in calls before this one; of a sticky fallback.
    pub(super) scopes_left: u32,
}

impl Progress {
    pub(super) const NONE: Self = Self {
        at: 0,
        call_began: Mono::START,
        try_began: Mono::START,
        waited_s: None,
        scopes_left: 0,
    };
}

impl Policy {
    /// Tries once, whatever happens, and says nothing.
    pub(super) fn once() -> Self {
        Self {
            tries: 1,
            tries_repeated: None,
            within: None,
            retries: Causes::stainless(),
            retries_if_hinted: Causes::default(),
            retries_codes: Vec::new(),
            stops_codes: Vec::new(),
            should_retry: Obedience::Ignores,
            probability: None,
            wait: Wait::Backoff(Backoff::NONE),
            hints: Hints::default(),
            mark: MarkKind::None,
            timeout: None,
            fallback: None,
        }
    }

    /// The wait before this layer's next try, in seconds; `None` when it passes the failure on.
    /// `repeated` tells a call that the layer above has repeated.
    pub(super) fn wait_s(
        &self,
        progress: &Progress,
        repeated: bool,
        failure: &Failure,
        random: &mut Pcg64,
        now: Mono,
    ) -> Option<f64> {
        let spent = now.saturating_since(progress.call_began);
        let may = progress.at + 1 < self.tries(repeated)
            && self.within.is_none_or(|within| spent < within)
            && self.repeats(failure)
            && self.probability.is_none_or(|likely| random.random::<f64>() < likely);
        if !may {
            return None;
        }
        let asked = match failure {
            Failure::Answer(answer) => self.hints.read(answer, random),
            Failure::Timeout | Failure::Connection => Asked::Nothing,
        };
        let wait_s = match asked {
            Asked::GiveUp => return None,
            Asked::Wait(wait_s) if !self.hints.at_least_own => wait_s,
            Asked::Wait(wait_s) => wait_s.max(self.own_wait_s(progress, failure, random, now)),
            Asked::Nothing => self.own_wait_s(progress, failure, random, now),
        };
        Some(wait_s.min(WAIT_S_MAX))
    }

    /// Tries of a call, the first included.
    pub(super) fn tries(&self, repeated: bool) -> u32 {
        self.tries_repeated.filter(|_| repeated).unwrap_or(self.tries)
    }

    fn repeats(&self, failure: &Failure) -> bool {
        let answer = failure.answer();
        match (self.should_retry, answer.should_retry) {
            (Obedience::Obeys, Some(should_retry)) => return should_retry,
            (Obedience::Stops, Some(false)) => return false,
            _ => {}
        }
        if let Some(code) = answer.code {
            if self.stops_codes.contains(&code) {
                return false;
            }
            if self.retries_codes.contains(&code) {
                return true;
            }
        }
        self.retries.contains(failure)
            || (answer.retry_after.is_some() && self.retries_if_hinted.contains(failure))
    }

    fn own_wait_s(
        &self,
        progress: &Progress,
        failure: &Failure,
        random: &mut Pcg64,
        now: Mono,
    ) -> f64 {
        match self.wait {
            Wait::Backoff(backoff) => {
                let answer = failure.answer();
                let throttled = answer.status == 429 || answer.code == Some(Code::Throttling);
                backoff.wait_s(progress.at, throttled, progress.waited_s, random)
            }
            Wait::Visibility(timeout) => {
                timeout.saturating_sub(now.saturating_since(progress.try_began)).as_secs_f64()
            }
        }
    }
}
