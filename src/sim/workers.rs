//! Workers that start in step against a provider of one start per quarter of a second: what jitter is
//! for, on a scale that fits into a head.
//!
//! They back off as the SDK of `layers` does, without a hint, until each has been served.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::signal::Mono;
use crate::sim::controls::backoff_only;
use crate::sim::layers::{
    AnswerSeen, FrontendConfig, Input, Journey, LayersConfig, SdkConfig, Stack, Step, WrapperConfig,
};

/// How many workers there are.
pub const WORKERS: u64 = 4;
/// The provider lets one of them start in each span of this length.
const SPAN: Duration = Duration::from_millis(250);
/// Tries of each; that many are never needed.
const TRIES: u32 = 20;

/// What it took until every worker was served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// Requests made.
    pub requests: u64,
    /// Of those, refused with 429.
    pub refused: u64,
    /// When the last was served.
    pub last_at: Mono,
}

/// Lets [`WORKERS`] workers start at the same instant. Up to `jitter_ratio` of each wait is taken off at
/// random: 0 is none, 1 is full jitter.
#[must_use]
pub fn race(jitter_ratio: f64, seed: u64) -> Finish {
    let layers = Stack::from(&layers(jitter_ratio));
    let mut journeys: Vec<_> =
        (0..WORKERS).map(|worker| Journey::new(&layers, seed, worker)).collect();
    let mut due: BTreeSet<_> = (0..journeys.len()).map(|worker| (Mono::START, worker)).collect();
    // The span in which somebody has started last.
    let mut taken = None;
    let mut finish = Finish { requests: 0, refused: 0, last_at: Mono::START };
    while let Some((now, worker)) = due.pop_first() {
        let journey = &mut journeys[worker];
        // The wait is over, or it is the beginning: either way it sends.
        journey.next(Input::TimerDone, now);
        let span = now.since_start().as_nanos() / SPAN.as_nanos();
        let may_start = taken.replace(span) != Some(span);
        let status = if may_start { 200 } else { 429 };
        finish.requests += 1;
        finish.refused += u64::from(!may_start);
        let answer = AnswerSeen { status, ..AnswerSeen::default() };
        match journey.next(Input::Answer(answer), now) {
            Step::Wait(wait) => {
                due.insert((now + wait, worker));
            }
            _ => finish.last_at = now,
        }
    }
    finish
}

fn layers(jitter_ratio: f64) -> LayersConfig {
    LayersConfig {
        sdk: SdkConfig { tries: TRIES, ..backoff_only::sdk(jitter_ratio) },
        wrapper: WrapperConfig { tries: 1, ..WrapperConfig::default() },
        frontend: FrontendConfig { resubmits: 0, ..FrontendConfig::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_step_they_need_ten_requests_and_three_and_a_half_seconds() {
        let finish = race(0.0, 1);
        assert_eq!((finish.requests, finish.refused), (10, 6));
        assert_eq!(finish.last_at, Mono::from_secs_f64(3.5));
    }

    #[test]
    fn full_jitter_saves_more_than_half_of_the_time() {
        let seeds = 1_000_u32;
        let sum: f64 = (0..seeds).map(|seed| race(1.0, seed.into()).last_at.as_secs_f64()).sum();
        let mean_s = sum / f64::from(seeds);
        assert!((1.45..1.65).contains(&mean_s), "{mean_s}");
    }
}
