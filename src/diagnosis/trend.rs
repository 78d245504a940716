//! Whether a series of levels goes one way all through. Knows no signal and no time: the caller
//! thins the samples to levels that are equally far apart.
//!
//! Three things must hold together, because each alone is fooled:
//!
//! - The rank test of Mann (Econometrica 13, 1945) and Kendall: of all pairs of levels, far more must
//!   go the way than noise would give. It asks for order only, so it fits any distribution and one
//!   outlier moves it little. It takes independent levels for granted; the readings overlap by their
//!   window, so the caller hands in means of blocks that are no shorter than that window. Ties are
//!   not corrected for, which errs toward "no".
//! - Every quarter lies beyond the one before. A step passes the rank test and fails here: what has
//!   jumped once *rose*, it is not *rising*.
//! - The growth is worth the word: a fifth of the larger level, and the signal's own floor. A rank
//!   test finds the smallest drift if it goes on for long enough.

use super::history::{Course, Gap};
use super::predicate::Heading;

/// Levels that a span is thinned to.
pub(super) const LEVELS: u32 = 20;
/// With fewer levels the test cannot reach [`LEAST_Z`] unless every pair agrees.
pub(super) const LEVELS_MIN: u32 = 10;
/// One chance in two thousand that noise gives this, one-sided. A predicate is asked every second,
/// but levels of ten minutes are new every ten minutes only.
const LEAST_Z: f64 = 3.29;
/// Growth over the larger of the first and the last quarter.
const LEAST_GROWTH: f64 = 0.2;
/// Share of the growth that each quarter adds at least: what doubles with every quarter adds an
/// eighth in the first, a step adds next to nothing in two of them.
const LEAST_STEP: f64 = 0.05;

/// Judges levels in order of time; `None` where nothing was known. `floor` is a growth that matters.
///
/// # Errors
/// [`Gap::Thin`] when fewer than half of the levels, or none of a quarter, are known.
pub(super) fn judge(levels: &[Option<f64>], way: Heading, floor: f64) -> Result<Course, Gap> {
    let known: Vec<f64> = levels.iter().flatten().copied().collect();
    let least = usize::try_from(LEVELS_MIN).unwrap_or(usize::MAX);
    if known.len() < least || known.len() * 2 < levels.len() {
        let (some, all) = (known.len(), levels.len());
        return Err(Gap::Thin(format!("{some} of {all} levels are known")));
    }
    let mut quarters = [0.0; 4];
    for (place, quarter) in quarters.iter_mut().enumerate() {
        let from = levels.len() * place / 4;
        let to = levels.len() * (place + 1) / 4;
        *quarter = mean(levels[from..to].iter().flatten().copied())
            .ok_or_else(|| Gap::Thin(format!("nothing is known of quarter {}", place + 1)))?;
    }
    let [from, .., to] = quarters;
    let sign = match way {
        Heading::Up => 1.0,
        Heading::Down => -1.0,
    };
    let growth = (to - from) * sign;
    let matters = growth >= floor && growth >= LEAST_GROWTH * from.abs().max(to.abs());
    let goes_on = quarters.windows(2).all(|pair| (pair[1] - pair[0]) * sign >= LEAST_STEP * growth);
    Ok(Course { from, to, holds: matters && goes_on && rank_z(&known) * sign >= LEAST_Z })
}

fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = numbers.fold((0.0, 0.0), |(sum, count), one| (sum + one, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// The normal score of Kendall's S, with the correction for its being a whole number.
fn rank_z(levels: &[f64]) -> f64 {
    let (mut agreeing, mut n) = (0.0_f64, 0.0);
    for (place, later) in levels.iter().enumerate() {
        n += 1.0;
        for earlier in &levels[..place] {
            agreeing += f64::from(i8::from(later > earlier) - i8::from(later < earlier));
        }
    }
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0_f64).sqrt();
    let corrected = (agreeing.abs() - 1.0).max(0.0).copysign(agreeing);
    if deviation > 0.0 { corrected / deviation } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{Rng as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;

    fn levels(of: impl Fn(f64) -> f64) -> Vec<Option<f64>> {
        (0..20_u32).map(|place| Some(of(f64::from(place)))).collect()
    }

    fn holds(levels: &[Option<f64>], way: Heading) -> bool {
        judge(levels, way, 0.1).expect("enough is known").holds
    }

    #[test]
    fn a_ramp_rises_and_neither_a_step_nor_a_wave_does() {
        assert!(holds(&levels(|t| 1.0 + t), Heading::Up));
        assert!(!holds(&levels(|t| 1.0 + t), Heading::Down));
        assert!(holds(&levels(|t| 40.0 - t), Heading::Down));
        assert!(holds(&levels(|t| (t / 5.0).exp2()), Heading::Up), "what doubles in every quarter");
        for at in 1..20_u32 {
            let step = levels(|t| if t < f64::from(at) { 1.0 } else { 9.0 });
            assert!(!holds(&step, Heading::Up), "a step at {at}");
        }
        assert!(!holds(&levels(|t| 5.0 + (t / 3.0).sin()), Heading::Up));
        assert!(!holds(&levels(|t| t % 5.0), Heading::Up), "a saw");
        assert!(!holds(&levels(|_| 5.0), Heading::Up));
    }

    #[test]
    fn small_growth_is_none() {
        assert!(!holds(&levels(|t| 100.0 + t / 2.0), Heading::Up), "a tenth");
        assert!(!holds(&levels(|t| t / 1_000.0), Heading::Up), "below the floor");
    }

    #[test]
    fn gaps_are_thin() {
        let mut some = levels(|t| t);
        some[..11].fill(None);
        assert!(matches!(judge(&some, Heading::Up, 0.1), Err(Gap::Thin(_))));
        let mut no_quarter = levels(|t| t);
        no_quarter[5..10].fill(None);
        assert!(matches!(judge(&no_quarter, Heading::Up, 0.1), Err(Gap::Thin(_))));
        let mut few = levels(|t| t);
        few[3] = None;
        few[17] = None;
        assert!(holds(&few, Heading::Up));
    }

    #[test]
    fn noise_goes_nowhere() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for swing in [0.05, 0.3, 0.6, 0.9] {
            let noise = |random: &mut Pcg64Mcg| -> Vec<Option<f64>> {
                (0..20)
                    .map(|_| Some(10.0 * (1.0 + swing * random.random_range(-1.0..1.0))))
                    .collect()
            };
            let found = (0..20_000)
                .map(|_| noise(&mut random))
                .filter(|noise| holds(noise, Heading::Up) || holds(noise, Heading::Down))
                .count();
            // The bar is one in two thousand.
            assert!(found <= 15, "{found} of 20,000 at a swing of {swing}");
        }
    }

    proptest! {
        #[test]
        fn a_noisy_ramp_is_found(seed in any::<u64>(), height in 5.0..1e6_f64) {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let noisy = levels(|t| height * (0.3 + t / 20.0))
                .into_iter()
                .map(|level| level.map(|l| l + height * 0.05 * random.random_range(-1.0..1.0)))
                .collect::<Vec<_>>();
            prop_assert!(holds(&noisy, Heading::Up));
            let back: Vec<_> = noisy.into_iter().rev().collect();
            prop_assert!(holds(&back, Heading::Down), "backwards");
        }
    }
}
