//! The layers above the gate, as one state machine per original: a frontend, a wrapper, an SDK.
//!
//! Each retries without knowing of the others; that is how 3 x 3 tries and a resubmission come from
//! one question. The policies are those of the default drill and of the OpenAI SDK (statuses, backoff,
//! hints, `x-should-retry`). Sends nothing and keeps no time: a driver carries out each [`Step`] and
//! reports back with an [`Input`].

use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::signal::Mono;
use crate::sim::config::{ConfigError, within};
use crate::sim::rng;

/// Most tries that one layer may be told to make.
const TRIES_MAX: f64 = 20.0;
/// Longest wait that a layer may be told to make.
const WAIT_S_MAX: f64 = 3_600.0;

/// The retry policy of every layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayersConfig {
    /// Innermost.
    pub sdk: SdkConfig,
    /// Around it.
    pub wrapper: WrapperConfig,
    /// Outermost.
    pub frontend: FrontendConfig,
}

impl LayersConfig {
    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let tries = "tries are counted from 1 to 20, the first included";
        within("sdk.tries", f64::from(self.sdk.tries), 1.0, TRIES_MAX, tries)?;
        within("wrapper.tries", f64::from(self.wrapper.tries), 1.0, TRIES_MAX, tries)?;
        let resubmits = f64::from(self.frontend.resubmits);
        within("frontend.resubmits", resubmits, 0.0, TRIES_MAX, "0 to 20")?;
        for (key, seconds) in [
            ("sdk.base_s", self.sdk.base_s),
            ("sdk.cap_s", self.sdk.cap_s),
            ("sdk.hint_max_s", self.sdk.hint_max_s),
            ("wrapper.base_s", self.wrapper.base_s),
            ("frontend.after_s", self.frontend.after_s),
        ] {
            within(key, seconds, 0.0, WAIT_S_MAX, "seconds from 0 to 3600")?;
        }
        for (key, share) in [
            ("sdk.jitter_ratio", self.sdk.jitter_ratio),
            ("frontend.probability", self.frontend.probability),
        ] {
            within(key, share, 0.0, 1.0, "a share from 0 to 1")?;
        }
        Ok(())
    }
}

/// An SDK's own retries.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SdkConfig {
    /// Requests per call, the first included.
    pub tries: u32,
    /// First wait without a hint; doubles.
    pub base_s: f64,
    /// Longest wait without a hint.
    pub cap_s: f64,
    /// Up to this share is taken off a wait at random.
    pub jitter_ratio: f64,
    /// Longest hint that is obeyed.
    pub hint_max_s: f64,
    /// Whether `retry-after-ms` and `retry-after` are read.
    pub obeys_hints: bool,
    /// Whether `x-should-retry` is read.
    pub obeys_should_retry: bool,
}

impl Default for SdkConfig {
    fn default() -> Self {
        Self {
            tries: 3,
            base_s: 0.5,
            cap_s: 8.0,
            jitter_ratio: 0.25,
            hint_max_s: 60.0,
            obeys_hints: true,
            obeys_should_retry: true,
        }
    }
}

/// A retry helper around the SDK.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WrapperConfig {
    /// SDK calls per submission, the first included.
    pub tries: u32,
    /// First wait; doubles.
    pub base_s: f64,
    /// Goes on although the answer said `x-should-retry: false`.
    pub deaf: bool,
}

impl Default for WrapperConfig {
    fn default() -> Self {
        Self { tries: 3, base_s: 0.5, deaf: false }
    }
}

/// The person or page in front.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FrontendConfig {
    /// How often a failed submission is made again at most.
    pub resubmits: u32,
    /// How likely each time.
    pub probability: f64,
    /// After how long.
    pub after_s: f64,
}

impl Default for FrontendConfig {
    fn default() -> Self {
        Self { resubmits: 1, probability: 0.2, after_s: 3.0 }
    }
}

/// What a client sees of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerSeen {
    /// HTTP status.
    pub status: u16,
    /// `x-should-retry`.
    pub should_retry: Option<bool>,
    /// `retry-after-ms`.
    pub retry_after_ms: Option<u64>,
    /// `retry-after`.
    pub retry_after_s: Option<u64>,
}

/// What happened to a journey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It begins.
    Start,
    /// The request that was sent got an answer.
    Answer(AnswerSeen),
    /// The request that was sent got none.
    TransportError,
    /// The wait is over.
    TimerDone,
}

/// What a journey does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a request.
    Send(Place),
    /// Waits, then wants `TimerDone`.
    Wait(Duration),
    /// The user got an answer.
    Served,
    /// The user got none.
    Failed,
}

/// Where in the layers a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The SDK's own count, from 0: `x-stainless-retry-count`.
    pub retry_count: u32,
    /// The wrapper's try, from 0.
    pub wrapper_try: u32,
    /// The frontend's submission, from 0.
    pub submission: u32,
}

/// Calls that each layer made to the one below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCalls {
    /// Submissions.
    pub frontend: u64,
    /// SDK calls.
    pub wrapper: u64,
    /// HTTP requests.
    pub sdk: u64,
}

impl LayerCalls {
    /// Counts one request in every layer that made a call for it.
    pub fn count(&mut self, place: &Place) {
        self.sdk += 1;
        if place.retry_count == 0 {
            self.wrapper += 1;
            if place.wrapper_try == 0 {
                self.frontend += 1;
            }
        }
    }
}

/// One original on its way through the layers.
///
/// Begin with [`Input::Start`]; after [`Step::Send`] report `Answer` or `TransportError`, after
/// [`Step::Wait`] report `TimerDone`. `Served` and `Failed` end it.
#[derive(Clone, Debug)]
pub struct Journey {
    config: LayersConfig,
    random: Pcg64,
    at: Place,
}

impl Journey {
    /// A journey that has not begun; `stream` tells the originals of one run apart.
    #[must_use]
    pub fn new(config: &LayersConfig, seed: u64, stream: u64) -> Self {
        let at = Place { retry_count: 0, wrapper_try: 0, submission: 0 };
        Self { config: *config, random: rng::seeded(seed, rng::Stream::Original(stream)), at }
    }

    /// Takes what happened, says what to do.
    pub fn next(&mut self, input: Input) -> Step {
        match input {
            Input::Start | Input::TimerDone => Step::Send(self.at),
            Input::Answer(answer) if answer.status < 400 => Step::Served,
            Input::Answer(answer) => self.after_failure(&answer),
            Input::TransportError => self.after_failure(&AnswerSeen::default()),
        }
    }

    /// Asks each layer in turn, innermost first, whether it tries again.
    fn after_failure(&mut self, answer: &AnswerSeen) -> Step {
        let Place { retry_count, wrapper_try, submission } = self.at;
        let wait_s = if retry_count + 1 < self.config.sdk.tries && self.sdk_retries(answer) {
            self.at.retry_count += 1;
            self.sdk_wait_s(answer, retry_count)
        } else if wrapper_try + 1 < self.config.wrapper.tries && self.wrapper_retries(answer) {
            self.at = Place { retry_count: 0, wrapper_try: wrapper_try + 1, submission };
            doubled(self.config.wrapper.base_s, wrapper_try)
        } else if submission < self.config.frontend.resubmits && self.person_tries_again() {
            self.at = Place { retry_count: 0, wrapper_try: 0, submission: submission + 1 };
            self.config.frontend.after_s
        } else {
            return Step::Failed;
        };
        Step::Wait(Mono::from_secs_f64(wait_s).since_start())
    }

    fn sdk_retries(&self, answer: &AnswerSeen) -> bool {
        match answer.should_retry {
            Some(should_retry) if self.config.sdk.obeys_should_retry => should_retry,
            _ => is_retryable(answer.status),
        }
    }

    fn wrapper_retries(&self, answer: &AnswerSeen) -> bool {
        let told_to_stop = answer.should_retry == Some(false) && !self.config.wrapper.deaf;
        !told_to_stop && is_retryable(answer.status)
    }

    fn person_tries_again(&mut self) -> bool {
        self.random.random::<f64>() < self.config.frontend.probability
    }

    fn sdk_wait_s(&mut self, answer: &AnswerSeen, retry_count: u32) -> f64 {
        let sdk = self.config.sdk;
        let hint_s = hint_s(answer).filter(|hint_s| sdk.obeys_hints && *hint_s <= sdk.hint_max_s);
        hint_s.unwrap_or_else(|| {
            let wait_s = doubled(sdk.base_s, retry_count).min(sdk.cap_s);
            wait_s * (1.0 - sdk.jitter_ratio * self.random.random::<f64>())
        })
    }
}

/// `retry-after-ms` before `retry-after`; a hint of zero is no hint.
#[expect(clippy::cast_precision_loss, reason = "a hint that large is not obeyed anyway")]
fn hint_s(answer: &AnswerSeen) -> Option<f64> {
    let from_ms = answer.retry_after_ms.filter(|ms| *ms > 0).map(|ms| ms as f64 / 1_000.0);
    from_ms.or_else(|| answer.retry_after_s.filter(|s| *s > 0).map(|s| s as f64))
}

/// What the OpenAI SDK retries; status 0 stands for no answer at all.
const fn is_retryable(status: u16) -> bool {
    matches!(status, 0 | 408 | 409 | 429) || status >= 500
}

fn doubled(base_s: f64, times: u32) -> f64 {
    base_s * 2_f64.powi(i32::try_from(times).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16) -> AnswerSeen {
        AnswerSeen { status, ..AnswerSeen::default() }
    }

    fn stop() -> AnswerSeen {
        AnswerSeen { should_retry: Some(false), ..refusal(429) }
    }

    /// Answers every request alike: the requests made, the waits between them, and the end.
    fn run(config: &LayersConfig, seed: u64, answer: AnswerSeen) -> (Vec<Place>, Vec<f64>, Step) {
        let mut journey = Journey::new(config, seed, 0);
        let (mut sends, mut waits) = (Vec::new(), Vec::new());
        let mut step = journey.next(Input::Start);
        loop {
            step = match step {
                Step::Send(request) => {
                    sends.push(request);
                    journey.next(Input::Answer(answer))
                }
                Step::Wait(wait) => {
                    waits.push(wait.as_secs_f64());
                    journey.next(Input::TimerDone)
                }
                end => return (sends, waits, end),
            };
        }
    }

    fn without_frontend() -> LayersConfig {
        LayersConfig {
            frontend: FrontendConfig { probability: 0.0, ..FrontendConfig::default() },
            ..LayersConfig::default()
        }
    }

    #[test]
    fn three_times_three_tries_and_the_count_restarts() {
        let (sends, waits, end) = run(&without_frontend(), 1, refusal(503));
        let counts: Vec<u32> = sends.iter().map(|send| send.retry_count).collect();
        assert_eq!(counts, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(end, Step::Failed);
        for (index, wait_s) in waits.iter().enumerate() {
            let (least, most) =
                [(0.375, 0.5), (0.75, 1.0), (0.5, 0.5), (0.375, 0.5), (0.75, 1.0), (1.0, 1.0)]
                    [index % 6];
            assert!((least..=most).contains(wait_s), "wait {index} is {wait_s}");
        }
    }

    #[test]
    fn hints_are_obeyed_exactly_up_to_their_cap() {
        let hinted = |ms, s| AnswerSeen { retry_after_ms: ms, retry_after_s: s, ..refusal(429) };
        let first_wait = |answer| run(&without_frontend(), 1, answer).1[0];
        assert!((first_wait(hinted(Some(511), Some(30))) - 0.511).abs() < 1e-9);
        assert!((first_wait(hinted(None, Some(60))) - 60.0).abs() < 1e-9);
        assert!(first_wait(hinted(None, Some(61))) <= 0.5, "longer hints are ignored");
        assert!(first_wait(hinted(Some(0), None)) >= 0.375, "zero is no hint");
    }

    #[test]
    fn a_stop_ends_sdk_and_wrapper_unless_the_wrapper_is_deaf() {
        assert_eq!(run(&without_frontend(), 1, stop()).0.len(), 1);
        let mut deaf = without_frontend();
        deaf.wrapper.deaf = true;
        assert_eq!(run(&deaf, 1, stop()).0.len(), 3);
    }

    #[test]
    fn bad_requests_are_not_repeated_and_successes_end() {
        assert_eq!(run(&without_frontend(), 1, refusal(400)).0.len(), 1);
        let (sends, _, end) = run(&without_frontend(), 1, refusal(200));
        assert_eq!((sends.len(), end), (1, Step::Served));
        let told_to = AnswerSeen { should_retry: Some(true), ..refusal(400) };
        assert_eq!(run(&without_frontend(), 1, told_to).0.len(), 3, "the SDK obeys, others do not");
    }

    #[test]
    fn one_in_five_people_tries_again_once() {
        let submissions = |seed| {
            let (sends, ..) = run(&LayersConfig::default(), seed, stop());
            sends.last().map_or(0, |send| send.submission + 1)
        };
        let again = (0..2_000).filter(|seed| submissions(*seed) == 2).count();
        assert!((340..=460).contains(&again), "400 of 2,000 expected, {again} did");
        assert!((0..2_000).all(|seed| submissions(seed) <= 2));
    }

    #[test]
    fn calls_are_counted_per_layer() {
        let mut calls = LayerCalls::default();
        for send in run(&without_frontend(), 1, refusal(429)).0 {
            calls.count(&send);
        }
        assert_eq!(calls, LayerCalls { frontend: 1, wrapper: 3, sdk: 9 });
    }

    #[test]
    fn bounds_are_checked() {
        let mut config = LayersConfig::default();
        assert_eq!(config.check(), Ok(()));
        config.sdk.tries = 20;
        assert_eq!(config.check(), Ok(()));
        config.sdk.tries = 21;
        assert_eq!(config.check().expect_err("too many").key, "sdk.tries");
    }
}
