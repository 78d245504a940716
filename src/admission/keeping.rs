//! What one gate knows of a scope whose state is kept elsewhere, and whether the keeper answers.
//!
//! While it does not, the gate works with a local share: the limit over the instances last seen.
//! Sends nothing itself.

use std::time::Duration;

use super::shared::Mirror;
use crate::signal::Mono;

/// Claims of one scope that may be on their way at the same time.
const CLAIMS_MAX: u32 = 32;
/// How often a keeper that said no is asked again, at least.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How often a silent keeper is asked again.
pub const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Over which time the rate of grants is smoothed.
const FLOW_S: f64 = 3.0;

/// One scope's dealings with its keeper.
#[derive(Clone, Debug)]
pub struct Keeping {
    asked: u32,
    /// The keeper said that asking sooner is useless.
    not_before: Mono,
    lost: Option<Mono>,
    probe_at: Mono,
    probing: bool,
    mirror: Option<(Mirror, Mono)>,
    /// Tokens granted per second of late, and when that was right.
    flow: (f64, Mono),
    unanswered: u64,
}

impl Keeping {
    /// A keeper that has not been asked yet.
    #[must_use]
    pub const fn new(now: Mono) -> Self {
        Self {
            asked: 0,
            not_before: now,
            lost: None,
            probe_at: now,
            probing: false,
            mirror: None,
            flow: (0.0, now),
            unanswered: 0,
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

    /// Instances that shared the scope when the keeper last answered, this one among them.
    #[must_use]
    pub fn instances(&self) -> u32 {
        self.mirror.as_ref().map_or(1, |(mirror, _)| mirror.instances.max(1))
    }

    /// Claims on their way.
    #[must_use]
    pub(super) const fn asked(&self) -> u32 {
        self.asked
    }

    /// Whether the keeper is to be asked for the next start. `Err` is when it may be, `None` when
    /// an answer must come first.
    pub(super) fn may_ask(&self, now: Mono) -> Result<(), Option<Mono>> {
        if self.asked >= CLAIMS_MAX {
            return Err(None);
        }
        if self.not_before > now { Err(Some(self.not_before)) } else { Ok(()) }
    }

    /// Whether a silent keeper is to be asked once more now.
    pub(super) fn probe_is_due(&self, now: Mono) -> bool {
        self.lost.is_some() && !self.probing && now >= self.probe_at
    }

    /// A claim goes out.
    pub(super) const fn ask(&mut self) {
        self.asked += 1;
        self.probing = self.lost.is_some();
    }

    /// The keeper has answered a claim. True when it had been silent.
    pub(super) const fn answered(&mut self) -> bool {
        self.asked = self.asked.saturating_sub(1);
        self.probing = false;
        self.lost.take().is_some()
    }

    /// It has not. True when it had answered until now.
    pub(super) fn unheard(&mut self, now: Mono) -> bool {
        self.asked = self.asked.saturating_sub(1);
        self.probing = false;
        self.unanswered += 1;
        self.probe_at = now + PROBE_EVERY;
        self.lost.replace(self.lost.unwrap_or(now)).is_none()
    }

    /// Asking again is useless for so long; but another instance may change that sooner, so it is
    /// done at least once a second.
    pub(super) fn wait(&mut self, at_least: Duration, now: Mono) {
        self.not_before = self.not_before.max(now + at_least.min(ASK_EVERY));
    }

    /// An answer's state.
    pub(super) fn reflect(&mut self, mirror: Mirror, now: Mono) {
        self.mirror = Some((mirror, now));
    }

    /// Tokens were granted.
    pub(super) fn granted(&mut self, tokens: f64, now: Mono) {
        self.flow = (self.flow(now) + tokens / FLOW_S, now);
    }

    /// Tokens granted per second of late: the share of the quota that this instance gets.
    pub(super) fn flow(&self, now: Mono) -> f64 {
        let (rate, at) = self.flow;
        rate * (-now.saturating_since(at).as_secs_f64() / FLOW_S).exp()
    }
}
