//! Whether flips may be sent from this screen: it starts locked, a person arms it for one environment, and
//! it locks itself again. Knows no flag and sends nothing.

use std::time::Duration;

use crate::signal::Mono;
use crate::tui::app::Model;

/// Without a key for so long, it is locked again.
pub const IDLE: Duration = Duration::from_mins(15);

/// Whether a plan may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arming {
    /// At any time: a drill hurts nobody.
    #[default]
    NotNeeded,
    /// Not before a person has armed it. Plans can be read.
    Locked,
    /// Until then; every key moves that on.
    Armed {
        /// When it locks itself.
        until: Mono,
    },
}

impl Arming {
    /// Armed from now on.
    #[must_use]
    pub fn from(now: Mono) -> Self {
        Self::Armed { until: now + IDLE }
    }
}

impl Model {
    /// Whether a plan may be sent from here now.
    #[must_use]
    pub fn may_send(&self) -> bool {
        !self.read_only && self.arming != Arming::Locked
    }

    /// Whether arming and locking are a person's to choose.
    #[must_use]
    pub fn can_arm(&self) -> bool {
        !self.read_only && self.arming != Arming::NotNeeded
    }

    /// For how long it stays armed without a key; `None` when it is not, or needs not be.
    #[must_use]
    pub fn armed_for(&self) -> Option<Duration> {
        match self.arming {
            Arming::Armed { until } => Some(until.saturating_since(self.now)),
            Arming::NotNeeded | Arming::Locked => None,
        }
    }
}
