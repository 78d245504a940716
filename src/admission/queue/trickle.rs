//! Lets the lower of two lines have a share of what starts while the upper would have it all.
//!
//! While both wait, each start of the upper line saves up `share` of its tokens for the lower one,
//! whose head goes next once it is paid for. So in any interval in which the lower line waits, it gets
//! at least `share` of the tokens that start, less one request of each line; and never a request
//! ahead of what it has saved up. Nothing is saved up while nobody waits.

use super::ticket::within;

/// Largest share: more would turn the precedence round.
const SHARE_MAX: f64 = 0.5;

/// One precedence of two lines, with its exception.
#[derive(Debug, Default)]
pub(super) struct Trickle {
    share: f64,
    /// `share` of the tokens started, less what the lower line had of them.
    owed: f64,
}

impl Trickle {
    pub(super) fn set_share(&mut self, share: f64) {
        self.share = within(share, 0.0, SHARE_MAX);
    }

    /// Whether the lower line's head, of so many tokens, goes before the upper line.
    pub(super) fn is_due(&self, tokens: f64) -> bool {
        self.share > 0.0 && self.owed >= (1.0 - self.share) * tokens
    }

    /// The upper line has started tokens while a request of `waiting` tokens is the lower one's head.
    pub(super) fn upper_started(&mut self, tokens: f64, waiting: f64) {
        // If the lower head was due and could not start for reasons of its own, it is not owed twice.
        let most = self.share * tokens + (1.0 - self.share) * waiting;
        self.owed = (self.owed + self.share * tokens).min(most);
    }

    /// The lower line has started tokens.
    pub(super) fn lower_started(&mut self, tokens: f64) {
        self.owed = (self.owed - (1.0 - self.share) * tokens).max(0.0);
    }

    /// Nobody waits in the lower line any more.
    pub(super) fn lower_is_empty(&mut self) {
        self.owed = 0.0;
    }

    /// Tokens of the lower line that go before `tokens` of the upper one.
    pub(super) fn before_upper(&self, tokens: f64) -> f64 {
        tokens * self.share / (1.0 - self.share)
    }

    /// Tokens of the upper line that go before `tokens` of the lower one: all of them, without a share.
    pub(super) fn before_lower(&self, tokens: f64) -> f64 {
        if self.share > 0.0 { tokens * (1.0 - self.share) / self.share } else { f64::INFINITY }
    }
}
