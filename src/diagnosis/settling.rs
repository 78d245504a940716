//! How long a cause has been all proven. Counts time only; judges no evidence.
//!
//! Signals are means of a window. When a state ends and another begins, they tell for one window of a
//! mixture that never was, and each at its own pace: a cause can look proven that is none. So what is
//! proven is confirmed once it has been proven for as long as a window in sum, times when it was not
//! taken off: a sign that comes and goes once a second settles too, one that is seldom there does not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::verdict::Standing;
use crate::signal::Mono;

/// Bounds of the wait, whatever the window: a mixture is over in the end, and never at once.
const SHORTEST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(30);
/// What has settled stays so through gaps of this share of the wait.
const SLACK: f64 = 0.5;

/// For how long each cause has been proven.
#[derive(Clone, Debug, Default)]
pub(super) struct Settling {
    proven: BTreeMap<String, Proven>,
    last: Option<Mono>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Proven {
    now: bool,
    /// In sum, times when it was not taken off.
    sum: Duration,
}

impl Settling {
    /// Takes how all causes stand at `at`, by signals over `window_s`.
    pub fn step<'a>(
        &mut self,
        standings: impl Iterator<Item = (&'a str, Standing)>,
        window_s: f64,
        at: Mono,
    ) {
        let passed = self.last.map_or(Duration::ZERO, |last| at.saturating_since(last));
        self.last = Some(at);
        let most = wait(window_s).mul_f64(1.0 + SLACK);
        for (cause, standing) in standings {
            let now = standing >= Standing::Confirmed;
            let known = self.proven.get_mut(cause);
            let sum = |was: Proven| {
                if was.now { (was.sum + passed).min(most) } else { was.sum.saturating_sub(passed) }
            };
            match known {
                Some(was) => *was = Proven { now, sum: sum(*was) },
                None if now => {
                    self.proven.insert(cause.to_owned(), Proven { now, sum: Duration::ZERO });
                }
                None => {}
            }
        }
    }

    /// The causes that are proven, and have not been for as long as a window of `window_s`.
    pub fn open(&self, window_s: f64) -> impl Iterator<Item = &str> {
        let wait = wait(window_s);
        let open = self.proven.iter().filter(move |(_, proven)| proven.now && proven.sum < wait);
        open.map(|(cause, _)| cause.as_str())
    }
}

fn wait(window_s: f64) -> Duration {
    Duration::try_from_secs_f64(window_s).unwrap_or(LONGEST).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a cause is open at each second, given whether it is proven.
    fn open(window_s: f64, proven: &str) -> String {
        let mut settling = Settling::default();
        let look = |(second, mark): (usize, char)| {
            let standing = if mark == 'P' { Standing::Confirmed } else { Standing::Likely };
            let at = Mono::from_start(Duration::from_secs(second as u64));
            settling.step([("a", standing)].into_iter(), window_s, at);
            if settling.open(window_s).count() == 1 { 'o' } else { '.' }
        };
        proven.chars().enumerate().map(look).collect()
    }

    #[test]
    fn what_is_proven_is_open_for_a_window() {
        assert_eq!(open(10.0, "--PPPPPPPPPPPP"), "..oooooooooo..");
        assert_eq!(open(0.0, "PPPPPPP"), "ooooo..", "never at once");
        assert_eq!(open(f64::NAN, &"P".repeat(32)), "o".repeat(30) + "..");
    }

    #[test]
    fn what_has_settled_outlives_short_gaps_and_no_long_ones() {
        assert_eq!(open(5.0, "PPPPPPPP--PPP-P"), "ooooo..........");
        assert_eq!(open(5.0, "PPPPPPPPP-------PP"), "ooooo...........oo");
    }

    #[test]
    fn a_sign_that_is_seldom_there_never_settles() {
        let seldom = "P--".repeat(40);
        assert_eq!(open(5.0, &seldom), "o..".repeat(40));
        assert!(open(5.0, &"PPP-".repeat(10)).ends_with("...."), "one that mostly is does");
    }
}
