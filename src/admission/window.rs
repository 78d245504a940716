//! Counts what was taken in a window of time: sliding, or fixed to the clock. Knows no meter.
//!
//! The sliding window is a counter of cells, not a log: the current, partial cell and the
//! [`CELLS`] before it always cover a whole window, so that the sum is never too low and at most a
//! 240th of a window too wide.

use std::time::Duration;

use crate::signal::Mono;

/// Cells of a sliding window.
const CELLS: u64 = 240;
/// A sliding window counts up to a cell more than its length: by so much wider it is, at most.
pub const WIDENING: f64 = 241.0 / 240.0;
/// Kept cells: the window's and the one that is filling.
const KEPT: usize = 241;
/// What is left of a sum after everything has been taken away again: rounding.
const DUST: f64 = 1e-6;

/// A sliding window.
#[derive(Clone, Debug)]
pub struct Sliding {
    cell_ns: u64,
    /// Allocated with the first amount, given up when all of it has left.
    cells: Option<Box<[f64; KEPT]>>,
    sum: f64,
    newest: u64,
}

impl Sliding {
    /// An empty window of this length.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        let cell_ns = (nanos(window) / CELLS).max(1);
        Self { cell_ns, cells: None, sum: 0.0, newest: 0 }
    }

    /// What was taken in the window that ends now.
    #[must_use]
    pub fn sum(&self, now: Mono) -> f64 {
        let number = self.number(now);
        let Some(cells) = &self.cells else { return 0.0 };
        let left: f64 = self.leaving(number).map(|cell| cells[place(cell)]).sum();
        let rest = self.sum - left;
        if number > self.newest + CELLS || rest < DUST { 0.0 } else { rest }
    }

    /// Adds `amount` now.
    pub fn add(&mut self, amount: f64, now: Mono) {
        self.advance(now);
        let cells = self.cells.get_or_insert_with(|| Box::new([0.0; KEPT]));
        cells[place(self.newest)] += amount;
        self.sum += amount;
    }

    /// Takes `amount` away from where it was added at `at`, if that is still counted; a negative
    /// amount is added there.
    pub fn give(&mut self, amount: f64, at: Mono, now: Mono) {
        self.advance(now);
        let cell = self.number(at);
        if cell + CELLS < self.newest || cell > self.newest {
            return;
        }
        let cells = self.cells.get_or_insert_with(|| Box::new([0.0; KEPT]));
        cells[place(cell)] -= amount;
        self.sum -= amount;
    }

    /// Time until at least `amount` of the sum has left; `None` when the sum is less than that.
    #[must_use]
    pub fn until_left(&self, amount: f64, now: Mono) -> Option<Duration> {
        let cells = self.cells.as_ref()?;
        let number = self.number(now);
        let mut left = 0.0;
        let alive = number.saturating_sub(CELLS)..=self.newest;
        let found = alive.into_iter().find(|cell| {
            left += cells[place(*cell)];
            left >= amount - DUST
        })?;
        let at_ns = (found + CELLS + 1).saturating_mul(self.cell_ns);
        Some(Duration::from_nanos(at_ns.saturating_sub(nanos(now.since_start()))))
    }

    /// Gives the cells up when nothing in them counts any more.
    pub fn tidy(&mut self, now: Mono) {
        if self.sum(now) <= 0.0 {
            self.cells = None;
            self.sum = 0.0;
        }
    }

    fn number(&self, at: Mono) -> u64 {
        nanos(at.since_start()) / self.cell_ns
    }

    /// The cells that count no longer when `number` is the current one.
    fn leaving(&self, number: u64) -> std::ops::Range<u64> {
        let oldest = self.newest.saturating_sub(CELLS);
        oldest..number.saturating_sub(CELLS).clamp(oldest, self.newest + 1)
    }

    fn advance(&mut self, now: Mono) {
        let number = self.number(now);
        if number <= self.newest {
            return;
        }
        let leaving = self.leaving(number);
        if let Some(cells) = &mut self.cells {
            for cell in leaving {
                self.sum -= cells[place(cell)];
                cells[place(cell)] = 0.0;
            }
        }
        // With no cell left, what the sum still holds is rounding.
        if number > self.newest + CELLS || self.sum < DUST {
            self.sum = 0.0;
        }
        self.newest = number;
    }
}

/// A window that begins and ends with the clock.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    window_ns: u64,
    /// Where windows begin, modulo their length.
    phase_ns: u64,
    number: u64,
    used: f64,
}

impl Fixed {
    /// An empty window of this length; windows begin at the start of the run until the provider
    /// says otherwise.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        Self { window_ns: nanos(window).max(1), phase_ns: 0, number: 0, used: 0.0 }
    }

    /// What was taken in the present window.
    #[must_use]
    pub fn sum(&self, now: Mono) -> f64 {
        if self.number(now) == self.number { self.used.max(0.0) } else { 0.0 }
    }

    /// Adds `amount` now.
    pub fn add(&mut self, amount: f64, now: Mono) {
        self.advance(now);
        self.used += amount;
    }

    /// Takes `amount` away again if its window is still the present one.
    pub fn give(&mut self, amount: f64, at: Mono, now: Mono) {
        self.advance(now);
        if self.number(at) == self.number {
            self.used -= amount;
        }
    }

    /// Time until the next window begins.
    #[must_use]
    pub fn until_next(&self, now: Mono) -> Duration {
        let passed = (nanos(now.since_start()) + self.window_ns - self.phase_ns) % self.window_ns;
        Duration::from_nanos(self.window_ns - passed)
    }

    /// The provider counts at least `used` in a window that ends after `reset`, if it says when.
    pub fn believe(&mut self, used: f64, reset: Option<Duration>, now: Mono) {
        if reset.is_some_and(|reset| reset.is_zero()) {
            // The window is just ending: it says nothing about the next.
            return;
        }
        self.advance(now);
        self.used = self.used.max(used);
        if let Some(reset) = reset.filter(|reset| nanos(*reset) <= self.window_ns) {
            self.phase_ns = (nanos(now.since_start()) + nanos(reset)) % self.window_ns;
            self.number = self.number(now);
        }
    }

    fn number(&self, at: Mono) -> u64 {
        (nanos(at.since_start()) + self.window_ns - self.phase_ns) / self.window_ns
    }

    fn advance(&mut self, now: Mono) {
        let number = self.number(now);
        if number != self.number {
            (self.number, self.used) = (number, 0.0);
        }
    }
}

fn place(cell: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "a remainder below 241")]
    let place = (cell % KEPT as u64) as usize;
    place
}

/// A span in nanoseconds; 584 years fit.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn what_was_taken_leaves_a_window_later_and_a_cell_at_most() {
        let mut window = Sliding::new(MINUTE);
        window.add(10.0, at(1.1));
        assert!((window.sum(at(61.1)) - 10.0).abs() < 1e-9, "a whole window");
        let until = window.until_left(10.0, at(20.0)).expect("ten are there");
        let gone = at(20.0) + until;
        assert!(gone >= at(61.1) && gone <= at(61.36), "{gone:?}");
        assert!(window.sum(gone - Duration::from_nanos(1)) > 9.0);
        assert!(window.sum(gone).abs() < 1e-9);
        assert_eq!(window.until_left(10.1, at(20.0)), None);
    }

    #[test]
    fn a_settlement_lands_where_the_reservation_was() {
        let mut window = Sliding::new(MINUTE);
        window.add(10.0, at(1.0));
        window.add(5.0, at(30.0));
        window.give(4.0, at(1.0), at(31.0));
        assert!((window.sum(at(31.0)) - 11.0).abs() < 1e-9);
        assert!((window.sum(at(62.0)) - 5.0).abs() < 1e-9, "the first cell has left with its six");
        window.give(5.0, at(1.0), at(100.0));
        assert!(window.sum(at(100.0)).abs() < 1e-9, "what has left cannot be given back");
    }

    #[test]
    fn a_fixed_window_forgets_at_its_end_and_follows_the_provider() {
        let mut window = Fixed::new(MINUTE);
        window.add(10.0, at(50.0));
        assert!((window.sum(at(59.9)) - 10.0).abs() < 1e-9);
        assert_eq!(window.until_next(at(50.0)), Duration::from_secs(10));
        assert!(window.sum(at(60.0)).abs() < 1e-9);
        window.add(3.0, at(61.0));
        window.believe(7.0, Some(Duration::from_secs(20)), at(70.0));
        assert!((window.sum(at(89.9)) - 7.0).abs() < 1e-9);
        assert!(window.sum(at(90.0)).abs() < 1e-9, "its windows end at 30 past");
    }

    proptest! {
        #[test]
        fn the_sum_is_never_below_that_of_the_true_window(
            steps in prop::collection::vec((0.0..9.0f64, 0.0..50.0f64), 1..120),
        ) {
            let mut window = Sliding::new(MINUTE);
            let mut log: Vec<(f64, f64)> = Vec::new();
            let mut now = 0.0;
            for (gap, amount) in steps {
                now += gap;
                window.add(amount, at(now));
                log.push((now, amount));
                let of = |span: f64| -> f64 {
                    log.iter().filter(|(when, _)| *when > now - span).map(|(_, amount)| amount).sum()
                };
                let sum = window.sum(at(now));
                prop_assert!(sum >= of(60.0) - 1e-6, "{sum} of {}", of(60.0));
                prop_assert!(sum <= of(60.26) + 1e-6, "{sum} of {}", of(60.26));
            }
        }
    }
}
