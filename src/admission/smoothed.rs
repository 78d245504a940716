//! A mean that follows its samples, and how far they lie from it. Knows neither unit nor time.
//!
//! The method of TCP's round-trip times (RFC 6298): gains 1/8 and 1/4, two deviations to either side.

const GAIN: f64 = 1.0 / 8.0;
const DEVIATION_GAIN: f64 = 1.0 / 4.0;
const DEVIATIONS: f64 = 2.0;

/// A smoothed mean with its mean deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Smoothed {
    mean: f64,
    deviation: f64,
    samples: u64,
}

impl Smoothed {
    /// Without a sample, `mean` is what is assumed.
    pub const fn at(mean: f64) -> Self {
        Self { mean, deviation: 0.0, samples: 0 }
    }

    pub fn learn(&mut self, sample: f64) {
        self.samples = self.samples.saturating_add(1);
        if self.samples == 1 {
            self.mean = sample;
            return;
        }
        self.deviation += DEVIATION_GAIN * ((sample - self.mean).abs() - self.deviation);
        self.mean += GAIN * (sample - self.mean);
    }

    /// Whether there was a sample.
    pub const fn is_known(&self) -> bool {
        self.samples > 0
    }

    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// Few samples lie above.
    pub fn high(&self) -> f64 {
        self.mean + DEVIATIONS * self.deviation
    }

    /// Few samples lie below.
    pub fn low(&self) -> f64 {
        (self.mean - DEVIATIONS * self.deviation).max(0.0)
    }
}
