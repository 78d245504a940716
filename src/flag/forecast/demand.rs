//! How many originals will be asked for: as many as now, within what the last minutes have shown. Knows
//! no clock and no schedule: a job that begins tomorrow at nine is nobody's to foresee here.

use crate::signal::Mono;

use super::HORIZON_S;

/// How far back it looks.
const PAST_S: f64 = 300.0;
/// The span whose trend is drawn on, and the fewest looks that make one.
const TREND_S: f64 = 30.0;
const TREND_LOOKS: usize = 5;
/// No trend is drawn on beyond so many times what is asked for now.
const LED_MAX: f64 = 2.0;

/// Originals per second: likely, and the bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Hardly fewer.
    pub low: f64,
    /// As now.
    pub now: f64,
    /// Hardly more.
    pub high: f64,
}

impl Demand {
    /// As many as now, for all that is known.
    #[must_use]
    pub const fn steady(now: f64) -> Self {
        Self { low: now, now, high: now }
    }

    /// From what was seen, oldest first: the extremes of five minutes, and where the trend of the last
    /// half minute leads. `None` when nothing was.
    #[must_use]
    pub fn of(seen: &[(Mono, f64)]) -> Option<Self> {
        let (at, now) = *seen.last()?;
        let age = |(then, _): &&(Mono, f64)| at.saturating_since(*then).as_secs_f64();
        let recent = seen.iter().filter(|look| age(look) <= PAST_S).map(|(_, rate)| *rate);
        let (low, high) =
            recent.fold((now, now), |(low, high), rate| (low.min(rate), high.max(rate)));
        let led = slope(seen.iter().filter(|look| age(look) <= TREND_S))
            .map_or(now, |per_s| per_s.mul_add(HORIZON_S, now))
            .clamp(now / LED_MAX, now * LED_MAX);
        Some(Self { low: low.min(led), now, high: high.max(led) })
    }
}

/// Change per second by least squares; `None` for too few looks.
fn slope<'a>(looks: impl Iterator<Item = &'a (Mono, f64)>) -> Option<f64> {
    let points: Vec<(f64, f64)> =
        looks.map(|(at, rate)| (at.since_start().as_secs_f64(), *rate)).collect();
    if points.len() < TREND_LOOKS {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful of looks")]
    let count = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (middle, level) = (mean(&|point| point.0), mean(&|point| point.1));
    let spread = mean(&|point| (point.0 - middle).powi(2));
    let together = mean(&|point| (point.0 - middle) * (point.1 - level));
    (spread > 0.0).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(rate: impl Fn(f64) -> f64, seconds: u32) -> Vec<(Mono, f64)> {
        let look = |second: u32| (Mono::from_secs_f64(f64::from(second)), rate(f64::from(second)));
        (0..=seconds).map(look).collect()
    }

    #[test]
    fn what_stands_still_stays() {
        assert_eq!(Demand::of(&looks(|_| 8.0, 60)), Some(Demand::steady(8.0)));
        assert_eq!(Demand::of(&[]), None);
        assert_eq!(Demand::of(&looks(|_| 3.0, 0)), Some(Demand::steady(3.0)));
    }

    #[test]
    fn a_rise_may_go_on_and_a_fall_ends_at_nothing() {
        let rise = Demand::of(&looks(|second| 10.0 + second, 40)).expect("looks");
        assert!((rise.high - 100.0).abs() < 0.5, "twice at most: {rise:?}");
        assert!((rise.now - 50.0).abs() < 0.01 && rise.low <= 10.0, "{rise:?}");
        let fall = Demand::of(&looks(|second| 50.0 - second, 40)).expect("looks");
        assert!((fall.low - 5.0).abs() < 0.01 && fall.high >= 50.0, "{fall:?}");
    }

    #[test]
    fn what_comes_in_bursts_has_both_ends() {
        let bursts = |second: f64| if second % 12.0 < 2.0 { 40.0 } else { 4.0 };
        let demand = Demand::of(&looks(bursts, 120)).expect("looks");
        assert!(demand.low <= 4.0 && demand.high >= 40.0, "{demand:?}");
    }
}
