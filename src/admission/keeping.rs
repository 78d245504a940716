//! What one gate knows of a scope whose state is kept elsewhere, and whether the keeper answers.
//!
//! While it does not, the gate works with a local share: the limit over the instances last seen.
//! Sends nothing itself.

use std::collections::VecDeque;
use std::time::Duration;

use super::counters::PerLane;
use super::queue::{Ahead, Lane};
use super::shared::{Binding, Demand, Mirror};
use crate::signal::Mono;

/// Claims of one scope that may be on their way at the same time.
const CLAIMS_MAX: u32 = 32;
/// How often a keeper that said no is asked again, at least.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// A silent keeper is asked again after so long at first: most silences are a hiccup, and until it
/// answers the local share comes on top of what the others take.
const PROBE_FIRST: Duration = Duration::from_millis(100);
/// The wait doubles from one question to the next, up to this.
pub const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Charges that are remembered for a silent keeper: a burst's worth of a scope with as many requests.
const UNTOLD_MAX: usize = 256;
/// A silence of this length is no hiccup.
const GONE_AFTER: Duration = Duration::from_millis(500);
/// Over which time the rate of grants is smoothed.
const FLOW_S: f64 = 3.0;

/// One scope's dealings with its keeper.
#[derive(Clone, Debug)]
pub struct Keeping {
    expected: u32,
    asked: u32,
    /// Claims that may be on their way: one after a no, twice as many with every yes.
    window: u32,
    /// The keeper said that asking sooner is useless, by lane.
    not_before: PerLane<Mono>,
    /// What it said that keeps the lane waiting.
    why: PerLane<Option<Binding>>,
    lost: Option<Mono>,
    probe_at: Mono,
    probe_wait: Duration,
    probing: bool,
    mirror: Option<(Mirror, Mono)>,
    /// Tokens granted per second of late, and when that was right.
    flow: (Ahead, Mono),
    unanswered: u64,
    /// What was used without the keeper, and when, the newest last.
    untold: VecDeque<(Mono, Demand)>,
}

impl Keeping {
    /// A keeper that has not been asked yet, for at least so many instances.
    #[must_use]
    pub fn new(expected: u32, now: Mono) -> Self {
        Self {
            expected: expected.max(1),
            asked: 0,
            window: CLAIMS_MAX,
            not_before: PerLane::both(now),
            why: PerLane::default(),
            lost: None,
            probe_at: now,
            probe_wait: PROBE_FIRST,
            probing: false,
            mirror: None,
            flow: (Ahead::default(), now),
            unanswered: 0,
            untold: VecDeque::new(),
        }
    }

    /// Since when the keeper is silent, if it is.
    #[must_use]
    pub const fn lost_since(&self) -> Option<Mono> {
        self.lost
    }

    /// Claims that it has not answered in time, or not at all.
    #[must_use]
    pub const fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Its last answer, and when it came.
    #[must_use]
    pub const fn mirror(&self) -> Option<&(Mirror, Mono)> {
        self.mirror.as_ref()
    }

    /// Instances that shared the scope when the keeper last answered, this one among them, and at
    /// least as many as are expected.
    #[must_use]
    pub fn instances(&self) -> u32 {
        self.mirror.as_ref().map_or(1, |(mirror, _)| mirror.instances).max(self.expected)
    }

    /// Claims on their way.
    #[must_use]
    pub(super) const fn asked(&self) -> u32 {
        self.asked
    }

    /// Whether the keeper is to be asked for the next start of a lane. `Err` is when it may be, `None`
    /// when an answer must come first.
    pub(super) fn may_ask(
        &self,
        lane: Lane,
        claims_max: u32,
        now: Mono,
    ) -> Result<(), Option<Mono>> {
        if self.asked >= claims_max.min(self.window) {
            return Err(None);
        }
        let not_before = self.not_before[lane];
        if not_before > now { Err(Some(not_before)) } else { Ok(()) }
    }

    /// Whether a silent keeper is to be asked once more now.
    pub(super) fn probe_is_due(&self, now: Mono) -> bool {
        self.next_probe().is_some_and(|at| at <= now)
    }

    /// When a silent keeper is asked next.
    pub(super) fn next_probe(&self) -> Option<Mono> {
        (self.lost.is_some() && !self.probing).then_some(self.probe_at)
    }

    /// A claim goes out.
    pub(super) const fn ask(&mut self) {
        self.asked += 1;
    }

    /// A claim has come back, with an answer or without.
    pub(super) const fn back(&mut self) {
        self.asked = self.asked.saturating_sub(1);
    }

    /// A silent keeper is asked whether it is there.
    pub(super) const fn probe(&mut self) {
        self.probing = true;
    }

    /// The keeper has answered. True when it had been silent.
    pub(super) const fn heard(&mut self) -> bool {
        self.probing = false;
        self.probe_wait = PROBE_FIRST;
        self.lost.take().is_some()
    }

    /// It has not. True when it had answered until now.
    pub(super) fn unheard(&mut self, now: Mono) -> bool {
        self.unanswered += 1;
        if self.lost.is_none() || self.probing {
            self.probe_at = now + self.probe_wait;
            self.probe_wait = (self.probe_wait * 2).min(PROBE_EVERY);
        }
        self.probing = false;
        self.lost.replace(self.lost.unwrap_or(now)).is_none()
    }

    /// Asking again for a lane is useless for so long; but another instance may change that sooner,
    /// so it is done at least once a second.
    pub(super) fn wait(&mut self, lane: Lane, at_least: Duration, why: Binding, now: Mono) {
        self.window = 1;
        self.why[lane] = Some(why);
        self.not_before[lane] = self.not_before[lane].max(now + at_least.min(ASK_EVERY));
    }

    /// So much was used of which the silent keeper does not know.
    pub(super) fn used_without(&mut self, charged: Demand, now: Mono) {
        if self.untold.len() >= UNTOLD_MAX {
            self.untold.pop_front();
        }
        self.untold.push_back((now, charged));
    }

    /// What the keeper must be told of now that it answers. What was used before `since` is not: what
    /// had flowed in for it has overflowed meanwhile.
    pub(super) fn take_untold(&mut self, since: Mono) -> impl Iterator<Item = Demand> + use<> {
        let untold = std::mem::take(&mut self.untold).into_iter();
        untold.filter(move |(at, _)| *at >= since).map(|(_, charged)| charged)
    }

    /// Whether the keeper's last word on a claim was no: others use what this instance does not.
    pub(super) const fn is_short(&self) -> bool {
        self.window == 1
    }

    /// Whether it has been silent for long enough that nobody need wait for it in vain.
    pub(super) fn is_gone(&self, now: Mono) -> bool {
        self.lost.is_some_and(|since| now.saturating_since(since) >= GONE_AFTER)
    }

    /// What kept a lane waiting when it last had to.
    pub(super) fn why(&self, lane: Lane) -> Option<Binding> {
        self.why[lane]
    }

    /// An answer's state. True when the number of instances has changed.
    pub(super) fn reflect(&mut self, mirror: Mirror, now: Mono) -> bool {
        let before = self.instances();
        self.mirror = Some((mirror, now));
        self.instances() != before
    }

    /// A claim for so many tokens was granted.
    pub(super) fn granted(&mut self, tokens: f64, now: Mono) {
        self.window = (self.window * 2).min(CLAIMS_MAX);
        let Ahead { requests, tokens: before } = self.flow(now);
        let flow = Ahead { requests: requests + 1.0 / FLOW_S, tokens: before + tokens / FLOW_S };
        self.flow = (flow, now);
    }

    /// What was granted per second of late: the share of the quota that this instance gets.
    pub(super) fn flow(&self, now: Mono) -> Ahead {
        let (rate, at) = self.flow;
        let left = (-now.saturating_since(at).as_secs_f64() / FLOW_S).exp();
        Ahead { requests: rate.requests * left, tokens: rate.tokens * left }
    }
}
