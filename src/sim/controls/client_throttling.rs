//! Client-side throttling: the caller refuses for itself when the provider accepts too little of it.
//!
//! The adaptive throttling of the Google SRE book, chapter 21 "Handling Overload": a call is refused
//! locally with probability max(0, (requests - K x accepts) / (requests + 1)) over the last two minutes,
//! K = 2. Requests are those that the application asks for, counted when they start: a count made at
//! their end does not see those that are open, and lets a storm through before it learns of it.

use std::collections::VecDeque;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::signal::Mono;
use crate::sim::layers::AnswerSeen;
use crate::sim::model::{GateEffect, GateModel, OfferedRequest, PassThrough};
use crate::sim::provider::Reply;
use crate::sim::rng;

/// Requests per accepted request at which nothing is refused locally yet.
pub const K: f64 = 2.0;
/// The window, in slots of a second.
pub const WINDOW_S: u64 = 120;

/// What was asked for and accepted in one second.
#[derive(Clone, Copy, Debug)]
struct Slot {
    second: u64,
    requests: u32,
    accepts: u32,
}

/// Requests and accepts of the last [`WINDOW_S`] seconds.
#[derive(Clone, Debug, Default)]
struct Recent {
    /// Oldest first, at most [`WINDOW_S`] of them.
    slots: VecDeque<Slot>,
    requests: u32,
    accepts: u32,
}

impl Recent {
    fn slot(&mut self, now: Mono) -> &mut Slot {
        self.forget(now);
        let second = now.since_start().as_secs();
        if self.slots.back().is_none_or(|slot| slot.second < second) {
            self.slots.push_back(Slot { second, requests: 0, accepts: 0 });
        }
        self.slots.back_mut().expect("a slot of this second was just made sure of")
    }

    fn forget(&mut self, now: Mono) {
        let second = now.since_start().as_secs();
        while let Some(slot) = self.slots.front().filter(|slot| slot.second + WINDOW_S <= second) {
            self.requests -= slot.requests;
            self.accepts -= slot.accepts;
            self.slots.pop_front();
        }
    }

    fn started(&mut self, now: Mono) {
        self.slot(now).requests += 1;
        self.requests += 1;
    }

    fn accepted(&mut self, now: Mono) {
        self.slot(now).accepts += 1;
        self.accepts += 1;
    }

    /// How likely the next request is to be refused locally.
    fn refusal_probability(&mut self, now: Mono) -> f64 {
        self.forget(now);
        let (requests, accepts) = (f64::from(self.requests), f64::from(self.accepts));
        ((requests - K * accepts) / (requests + 1.0)).max(0.0)
    }
}

/// All clients of one service behind one throttle.
#[derive(Clone, Debug)]
pub struct ClientThrottling {
    inner: PassThrough,
    recent: Recent,
    random: Pcg64,
    refusals: VecDeque<GateEffect>,
}

impl ClientThrottling {
    /// A throttle that has seen nothing yet; `seed` decides whom it refuses.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            inner: PassThrough::default(),
            recent: Recent::default(),
            random: rng::seeded(seed, rng::Stream::Controls),
            refusals: VecDeque::new(),
        }
    }
}

impl GateModel for ClientThrottling {
    fn handle_request(&mut self, request: &OfferedRequest, now: Mono) {
        let refused = self.random.random::<f64>() < self.recent.refusal_probability(now);
        self.recent.started(now);
        if refused {
            // A refusal of one's own carries no hint; the layers above take it for the provider's.
            let answer = AnswerSeen { status: 429, ..AnswerSeen::default() };
            self.refusals.push_back(GateEffect::Answer { request: request.id, answer });
        } else {
            self.inner.handle_request(request, now);
        }
    }

    fn handle_reply(&mut self, attempt: u64, reply: &Reply, now: Mono) {
        let status = reply.status();
        if status != 429 && status < 500 {
            self.recent.accepted(now);
        }
        self.inner.handle_reply(attempt, reply, now);
    }

    fn handle_cancel(&mut self, request: u64, now: Mono) {
        self.inner.handle_cancel(request, now);
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.inner.handle_timeout(now);
    }

    fn poll_effect(&mut self) -> Option<GateEffect> {
        self.refusals.pop_front().or_else(|| self.inner.poll_effect())
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.inner.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn up_to_k_requests_per_accept_nothing_is_refused() {
        let mut recent = Recent::default();
        for _ in 0..100 {
            recent.started(at(1.0));
            recent.started(at(1.0));
            recent.accepted(at(1.5));
        }
        assert!(recent.refusal_probability(at(2.0)) <= 0.0);
        recent.started(at(2.0));
        assert!(recent.refusal_probability(at(2.0)) > 0.0);
    }

    #[test]
    fn open_requests_count_before_they_end() {
        let mut recent = Recent::default();
        for _ in 0..99 {
            recent.started(at(1.0));
        }
        assert!((recent.refusal_probability(at(1.0)) - 0.99).abs() < 1e-9, "99 of 100");
    }

    #[test]
    fn the_window_is_two_minutes_to_the_second() {
        let mut recent = Recent::default();
        recent.started(at(0.5));
        assert!(recent.refusal_probability(at(119.9)) > 0.0);
        assert!(recent.refusal_probability(at(120.0)) <= 0.0);
        assert_eq!(recent.slots.len(), 0);
    }
}
