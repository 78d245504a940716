//! What a layer makes of the waits that an answer asks for.
//!
//! Clients read the same headers in different orders, can or cannot read a fraction or a date, and do
//! different things with a wait of zero, one in the past, one that is too long, and with garbage. All
//! of that is data here.

use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::sim::layers::answer::{AnswerSeen, Written};
use crate::sim::layers::backoff::between;
use crate::sim::layers::causes::Causes;

/// How a layer reads waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hints {
    /// Where it looks, the first that speaks counts.
    pub(super) sources: Vec<Source>,
    /// Statuses at which it looks; absent means all.
    pub(super) statuses: Option<Causes>,
    pub(super) numbers: Numbers,
    /// Whether it can read an HTTP date.
    pub(super) dates: bool,
    /// The longest wait that it obeys.
    pub(super) max_s: f64,
    pub(super) above: Odd,
    pub(super) zero: Odd,
    pub(super) negative: Odd,
    pub(super) garbage: Odd,
    /// A wait that is shorter than the layer's own makes way for it.
    pub(super) at_least_own: bool,
    /// Up to this share is added at random.
    pub(super) smear: f64,
    /// Up to this many seconds are added at random.
    pub(super) added_s: f64,
}

/// Where a wait is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Source {
    /// `retry-after-ms`
    RetryAfterMs,
    /// `retry-after`
    RetryAfter,
    /// `x-ratelimit-reset`
    #[serde(rename = "x-ratelimit-reset")]
    RatelimitReset,
}

/// Which numbers a layer can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Numbers {
    /// Whole ones.
    Whole,
    /// Those with a fraction too.
    #[default]
    Decimal,
    /// Whatever begins with a number, as `parseFloat` does.
    Leading,
}

/// What a layer does with a wait that it cannot or will not obey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Odd {
    /// It ignores it and waits as if nothing had been said.
    #[default]
    Own,
    /// It repeats at once.
    Now,
    /// It gives up.
    GiveUp,
    /// It waits as long as it is willing to at most.
    Clamp,
}

/// What an answer asks for, in a layer's eyes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    /// Nothing.
    Nothing,
    /// To wait this long, in seconds.
    Wait(f64),
    /// To let it be.
    GiveUp,
}

impl Default for Hints {
    /// Reads none.
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            statuses: None,
            numbers: Numbers::default(),
            dates: true,
            max_s: f64::INFINITY,
            above: Odd::Own,
            zero: Odd::Own,
            negative: Odd::Own,
            garbage: Odd::Own,
            at_least_own: false,
            smear: 0.0,
            added_s: 0.0,
        }
    }
}

impl Hints {
    /// What this answer asks for. A wait that the layer ignores lets the next source speak.
    pub(super) fn read(&self, answer: &AnswerSeen, random: &mut Pcg64) -> Asked {
        if self.statuses.as_ref().is_some_and(|statuses| !statuses.has_status(answer.status)) {
            return Asked::Nothing;
        }
        for source in &self.sources {
            let said = match source {
                Source::RetryAfterMs => self.seconds(answer.retry_after_ms, 1_000.0),
                Source::RetryAfter => self.seconds(answer.retry_after, 1.0),
                Source::RatelimitReset => answer.reset_in_ms.map(|ms| Ok(float(ms) / 1_000.0)),
            };
            let asked = match said {
                None => continue,
                Some(Ok(wait_s)) if wait_s > self.max_s => return self.obey(self.above, wait_s),
                Some(Ok(wait_s)) if wait_s > 0.0 => Asked::Wait(self.smeared(wait_s, random)),
                Some(Ok(wait_s)) if wait_s < 0.0 => self.obey(self.negative, wait_s),
                Some(Ok(wait_s)) => self.obey(self.zero, wait_s),
                Some(Err(Unreadable)) => self.obey(self.garbage, 0.0),
            };
            if asked != Asked::Nothing {
                return asked;
            }
        }
        Asked::Nothing
    }

    /// What a header says, in seconds; `per_s` of its unit are one.
    fn seconds(&self, written: Option<Written>, per_s: f64) -> Option<Result<f64, Unreadable>> {
        let number = match written? {
            Written::Whole(number) => float(number),
            Written::Decimal(thousandths) if self.numbers != Numbers::Whole => {
                float(thousandths) / 1_000.0
            }
            Written::Leading(thousandths) if self.numbers == Numbers::Leading => {
                float(thousandths) / 1_000.0
            }
            // A date is the same in every unit.
            Written::Date(ahead_ms) if self.dates => float(ahead_ms) / 1_000.0 * per_s,
            _ => return Some(Err(Unreadable)),
        };
        Some(Ok(number / per_s))
    }

    fn smeared(&self, wait_s: f64, random: &mut Pcg64) -> f64 {
        let most_s = wait_s * self.smear + self.added_s;
        if most_s > 0.0 { wait_s + between(0.0, most_s, random) } else { wait_s }
    }

    const fn obey(&self, how: Odd, wait_s: f64) -> Asked {
        match how {
            Odd::Own => Asked::Nothing,
            Odd::Now => Asked::Wait(0.0),
            Odd::GiveUp => Asked::GiveUp,
            Odd::Clamp => Asked::Wait(wait_s.clamp(0.0, self.max_s)),
        }
    }
}

/// The layer's parser makes nothing of it.
struct Unreadable;

#[expect(clippy::cast_precision_loss, reason = "a wait that long is not obeyed to the millisecond")]
const fn float(number: i64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg64;

    use super::*;

    fn stainless() -> Hints {
        Hints {
            sources: vec![Source::RetryAfterMs, Source::RetryAfter],
            max_s: 60.0,
            ..Hints::default()
        }
    }

    fn check(hints: &Hints, ms: Option<Written>, s: Option<Written>, expected: Asked) {
        let answer =
            AnswerSeen { status: 429, retry_after_ms: ms, retry_after: s, ..AnswerSeen::default() };
        let asked = hints.read(&answer, &mut Pcg64::new(1, 1));
        assert_eq!(asked, expected, "{ms:?} {s:?}");
    }

    #[test]
    fn the_first_source_that_counts_is_obeyed_up_to_the_cap() {
        use Written::{Date, Decimal, Garbage, Leading, Whole};
        let hints = stainless();
        check(&hints, None, None, Asked::Nothing);
        check(&hints, Some(Whole(511)), Some(Whole(30)), Asked::Wait(0.511));
        check(&hints, Some(Garbage), Some(Whole(30)), Asked::Wait(30.0));
        check(&hints, Some(Whole(0)), Some(Whole(30)), Asked::Wait(30.0));
        check(&hints, None, Some(Whole(60)), Asked::Wait(60.0));
        check(&hints, None, Some(Whole(61)), Asked::Nothing);
        check(&hints, None, Some(Decimal(1_500)), Asked::Wait(1.5));
        check(&hints, None, Some(Leading(3_000)), Asked::Nothing);
        check(&hints, None, Some(Date(5_000)), Asked::Wait(5.0));
        check(&hints, None, Some(Date(-5_000)), Asked::Nothing);
        let no_dates = Hints { dates: false, ..hints };
        check(&no_dates, None, Some(Date(5_000)), Asked::Nothing);
    }

    #[test]
    fn odd_waits_are_told_apart() {
        use Written::{Garbage, Leading, Whole};
        let hints = Hints {
            numbers: Numbers::Leading,
            above: Odd::Clamp,
            zero: Odd::Now,
            negative: Odd::GiveUp,
            garbage: Odd::Now,
            ..stainless()
        };
        check(&hints, None, Some(Whole(61)), Asked::Wait(60.0));
        check(&hints, None, Some(Whole(0)), Asked::Wait(0.0));
        check(&hints, Some(Whole(0)), Some(Whole(30)), Asked::Wait(0.0));
        check(&hints, None, Some(Whole(-1)), Asked::GiveUp);
        check(&hints, None, Some(Garbage), Asked::Wait(0.0));
        check(&hints, None, Some(Leading(3_000)), Asked::Wait(3.0));
        let strict = Hints { above: Odd::GiveUp, numbers: Numbers::Whole, ..hints };
        check(&strict, None, Some(Whole(61)), Asked::GiveUp);
        check(&strict, None, Some(Written::Decimal(1_500)), Asked::Wait(0.0));
    }

    #[test]
    fn a_smear_adds_and_other_statuses_say_nothing() {
        let hints = Hints { smear: 0.5, statuses: Some(Causes::default()), ..stainless() };
        check(&hints, None, Some(Written::Whole(10)), Asked::Nothing);
        let hints = Hints { statuses: None, ..hints };
        let answer = AnswerSeen { retry_after: Some(Written::Whole(10)), ..AnswerSeen::default() };
        let mut random = Pcg64::new(1, 1);
        for _ in 0..100 {
            let Asked::Wait(wait_s) = hints.read(&answer, &mut random) else { panic!("a wait") };
            assert!((10.0..=15.0).contains(&wait_s), "{wait_s}");
        }
    }

    #[test]
    fn a_reset_is_an_instant() {
        let hints = Hints { sources: vec![Source::RatelimitReset], ..stainless() };
        let answer = AnswerSeen { reset_in_ms: Some(2_500), ..AnswerSeen::default() };
        assert_eq!(hints.read(&answer, &mut Pcg64::new(1, 1)), Asked::Wait(2.5));
    }
}
