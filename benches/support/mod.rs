//! Metrics pages like those of a busy gateway, for benches: made, so that nobody has to ship them.

use std::rc::Rc;

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// The series of one endpoint, with values that move as they do in real gateways: 45% stand still,
/// 15% count fast, 20% count now and then, 5% are sums of seconds, 5% gauges of ratios, 10% gauges of
/// small numbers.
pub struct Page {
    /// Shared by pages, so that a bench of many measures weir's memory and not its own.
    names: Rc<[String]>,
    values: Vec<f64>,
    rng: Pcg64Mcg,
}

impl Page {
    /// A page with these series.
    pub fn new(names: Rc<[String]>, seed: u64) -> Self {
        let values = vec![1000.0; names.len()];
        Self { names, values, rng: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Writes the page as it is into `body`, and moves on by a second.
    pub fn write(&mut self, body: &mut Vec<u8>) {
        use std::io::Write as _;
        body.clear();
        for (index, (name, value)) in self.names.iter().zip(&mut self.values).enumerate() {
            body.extend(name.as_bytes());
            writeln!(body, " {value}").expect("memory is always written");
            match index % 20 {
                0..9 => {}
                9..12 => *value += f64::from(self.rng.random_range(0..200_u32)),
                12..16 => *value += f64::from(u8::from(self.rng.random_bool(0.1))),
                16 => *value += self.rng.random::<f64>() * 3.0,
                17 => *value = self.rng.random(),
                _ => *value = f64::from(self.rng.random_range(0..50_u32)),
            }
        }
    }
}
