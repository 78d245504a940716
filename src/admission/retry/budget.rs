//! What a scope may spend on retries: a share of its admitted originals, and tokens and money if limited.
//!
//! The share is taken over a window (Google SRE book, chapter 21), with no floor per second: at the
//! rates of language models a floor of ten would be the larger part. Time is counted in slots. An
//! admission counts while its whole slot lies in the window, a retry while any part of its slot does.
//! So whenever a retry is spent, this holds exactly for the window that ends at that instant:
//! retries <= share * admitted originals + [`SPARE`]. An admission's worth is never spent twice,
//! because it leaves the window before the retry that it paid for.

use std::time::Duration;

use crate::admission::counters::Denied;
use crate::signal::Mono;

/// The budget's window.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Slots in a window.
const SLOTS: u32 = 10;
/// Slots that are kept: those of the window, and the one that its beginning cuts.
const SLOTS_KEPT: usize = SLOTS as usize + 1;
/// Retries that a quiet scope may always make in one window, so that one fault is not final.
const SPARE: f64 = 1.0;

/// What the configuration lets one scope spend on retries in any 10 s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowance {
    /// Retries per admitted original; zero forbids all.
    pub ratio: f64,
    /// Tokens, if limited.
    pub tokens_max: Option<f64>,
    /// US dollars, if limited.
    pub usd_max: Option<f64>,
}

/// What one retry is expected to cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Tokens.
    pub tokens: f64,
    /// US dollars; zero where the scope has no price.
    pub usd: f64,
}

/// What is left of an [`Allowance`] now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
    /// Retries; a fraction of one allows none.
    pub retries: f64,
    /// Tokens, if limited.
    pub tokens: Option<f64>,
    /// US dollars, if limited.
    pub usd: Option<f64>,
}

impl Left {
    /// Whether one more retry at this cost is within it.
    ///
    /// # Errors
    /// Names the first limit that it would overdraw.
    pub fn covers(&self, cost: Cost) -> Result<(), Denied> {
        if self.retries < 1.0 {
            Err(Denied::Budget)
        } else if self.tokens.is_some_and(|left| cost.tokens > left) {
            Err(Denied::Tokens)
        } else if self.usd.is_some_and(|left| cost.usd > left) {
            Err(Denied::Money)
        } else {
            Ok(())
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Slots since the start of the run.
    number: u64,
    admitted: u32,
    retries: u32,
    tokens: f64,
    usd: f64,
}

/// Originals admitted and retries made by one scope, over the last window.
#[derive(Clone, Debug, Default)]
pub struct RetryBudget {
    /// A slot lies where its number says, modulo the length.
    slots: [Slot; SLOTS_KEPT],
    used: u64,
}

impl RetryBudget {
    /// Counts an admitted original.
    pub fn admitted(&mut self, now: Mono) {
        let slot = self.current(now);
        slot.admitted = slot.admitted.saturating_add(1);
    }

    /// Spends one retry, or nothing at all.
    ///
    /// # Errors
    /// Names the limit that would be overdrawn.
    pub fn spend(&mut self, allowance: &Allowance, cost: Cost, now: Mono) -> Result<(), Denied> {
        self.left(allowance, now).covers(cost)?;
        let slot = self.current(now);
        slot.retries = slot.retries.saturating_add(1);
        slot.tokens += cost.tokens;
        slot.usd += cost.usd;
        self.used += 1;
        Ok(())
    }

    /// Retries spent so far.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// What is left now.
    #[must_use]
    pub fn left(&self, allowance: &Allowance, now: Mono) -> Left {
        let newest = number(now);
        let (mut admitted, mut retries, mut tokens, mut usd) = (0.0, 0.0, 0.0, 0.0);
        for slot in self.slots.iter().filter(|slot| slot.number + u64::from(SLOTS) >= newest) {
            if slot.number + u64::from(SLOTS) > newest {
                admitted += f64::from(slot.admitted);
            }
            retries += f64::from(slot.retries);
            tokens += slot.tokens;
            usd += slot.usd;
        }
        let earned = if allowance.ratio > 0.0 { admitted * allowance.ratio + SPARE } else { 0.0 };
        Left {
            retries: (earned - retries).max(0.0),
            tokens: allowance.tokens_max.map(|most| (most - tokens).max(0.0)),
            usd: allowance.usd_max.map(|most| (most - usd).max(0.0)),
        }
    }

    /// Something of what an admission counts in, only to have looked at it.
    pub(in crate::admission) fn touched(&self, now: Mono) -> impl Copy + use<> {
        (self.used, self.slots[place(number(now))].number)
    }

    fn current(&mut self, now: Mono) -> &mut Slot {
        let number = number(now);
        let slot = &mut self.slots[place(number)];
        if slot.number != number {
            *slot = Slot { number, ..Slot::default() };
        }
        slot
    }
}

fn number(now: Mono) -> u64 {
    let width = WINDOW.as_nanos() / u128::from(SLOTS);
    u64::try_from(now.since_start().as_nanos() / width).unwrap_or(u64::MAX - u64::from(SLOTS))
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder below eleven")]
const fn place(number: u64) -> usize {
    (number % SLOTS_KEPT as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TENTH: Allowance = Allowance { ratio: 0.1, tokens_max: None, usd_max: None };

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn the_budget_is_a_share_of_admitted_originals_in_the_window() {
        let mut budget = RetryBudget::default();
        for _ in 0..100 {
            budget.admitted(at(5.0));
        }
        let spent = (0..50).filter(|_| budget.spend(&TENTH, Cost::default(), at(5.0)).is_ok());
        assert_eq!(spent.count(), 11, "a tenth of a hundred, and the spare one");
        assert_eq!(budget.used(), 11);
        assert!(budget.left(&TENTH, at(15.9)).retries < 1e-9, "the retries are still in a window");
        assert!((budget.left(&TENTH, at(16.0)).retries - 1.0).abs() < 1e-9, "it has passed");
    }

    #[test]
    fn a_ratio_of_zero_allows_none() {
        let mut budget = RetryBudget::default();
        let refused = budget.spend(&Allowance::default(), Cost::default(), at(1.0));
        assert_eq!((refused, budget.used()), (Err(Denied::Budget), 0));
    }

    #[test]
    fn tokens_and_money_are_limits_of_their_own_and_a_refusal_spends_nothing() {
        let cost = Cost { tokens: 400.0, usd: 0.02 };
        for (allowance, tries, then) in [
            (Allowance { ratio: 1.0, tokens_max: Some(1_000.0), usd_max: None }, 2, Denied::Tokens),
            (Allowance { ratio: 1.0, tokens_max: None, usd_max: Some(0.07) }, 3, Denied::Money),
            (
                Allowance { ratio: 1.0, tokens_max: Some(0.0), usd_max: Some(0.0) },
                0,
                Denied::Tokens,
            ),
            (
                Allowance { ratio: 1.0, tokens_max: Some(9e9), usd_max: Some(9e9) },
                11,
                Denied::Budget,
            ),
        ] {
            let mut budget = RetryBudget::default();
            for _ in 0..10 {
                budget.admitted(at(1.0));
            }
            for _ in 0..tries {
                assert_eq!(budget.spend(&allowance, cost, at(1.0)), Ok(()), "{allowance:?}");
            }
            assert_eq!(budget.spend(&allowance, cost, at(1.0)), Err(then), "{allowance:?}");
            assert_eq!(budget.used(), tries);
        }
    }

    proptest! {
        /// Against a log of exact instants, which the budget does not keep.
        #[test]
        fn a_storm_never_overdraws_any_window_that_ends_with_a_retry(
            ratio in 0.01..1.0f64,
            steps in prop::collection::vec((0u64..1_500, 0u32..30, 0u32..30), 1..80),
        ) {
            let allowance = Allowance { ratio, tokens_max: Some(5_000.0), usd_max: None };
            let cost = Cost { tokens: 100.0, usd: 0.0 };
            let mut budget = RetryBudget::default();
            let (mut millis, mut admitted, mut retries) = (0, Vec::new(), Vec::new());
            for (wait, arrive, demand) in steps {
                millis += wait;
                let now = Mono::from_start(Duration::from_millis(millis));
                for _ in 0..arrive {
                    budget.admitted(now);
                    admitted.push(millis);
                }
                for _ in 0..demand {
                    let left = budget.left(&allowance, now);
                    if budget.spend(&allowance, cost, now).is_err() {
                        continue;
                    }
                    retries.push(millis);
                    prop_assert!(left.covers(cost).is_ok());
                    let count = |log: &[u64]| log.iter().filter(|at| **at + 10_000 > millis).count();
                    let (earned, spent) = (count(&admitted), count(&retries));
                    #[expect(clippy::cast_precision_loss, reason = "hundreds")]
                    let (earned, spent) = (earned as f64, spent as f64);
                    prop_assert!(spent <= ratio * earned + SPARE + 1e-9, "{spent} of {earned}");
                    prop_assert!(spent * cost.tokens <= 5_000.0);
                }
            }
            prop_assert_eq!(budget.used(), retries.len() as u64);
        }
    }
}
