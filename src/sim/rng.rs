//! One seed, many independent generators: each user of chance draws from a stream of its own.
//!
//! So an extra draw in one place never shifts another, and what the clients do with a seed does not
//! depend on what the provider drew.

use rand_pcg::Pcg64;

/// Who draws.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    /// What the caller at this place asks for.
    Arrivals(usize),
    /// The provider's latencies and faults.
    Provider,
    /// How late timers fire.
    Timers,
    /// How long people wait.
    Departures,
    /// What a control of `controls` decides by chance.
    Controls,
    /// The application around the calls.
    Application,
    /// What one item of a job is like.
    Item {
        /// The job's caller.
        caller: usize,
        /// The item.
        number: u32,
    },
    /// Which permits leak.
    Leaks,
    /// Which questions to a store fail.
    Store,
    /// One original's jitter and resubmission.
    Original(u64),
}

/// Where the streams of callers begin; originals count up from 3 and never get there.
const CALLERS: u128 = 1 << 100;

/// The generator of `stream` for `seed`.
pub(super) fn seeded(seed: u64, stream: Stream) -> Pcg64 {
    let number = match stream {
        Stream::Arrivals(0) => 0,
        Stream::Provider => 1,
        Stream::Timers => 2,
        // Originals count up from 3; these stand where none of them gets.
        Stream::Departures => u128::MAX,
        Stream::Controls => u128::MAX - 1,
        Stream::Application => u128::MAX - 2,
        // Callers are few; each has a range of its own, far from the others.
        Stream::Arrivals(caller) => CALLERS + ((caller as u128) << 64),
        Stream::Item { caller, number } => {
            CALLERS + ((caller as u128) << 64) + 1 + u128::from(number)
        }
        Stream::Leaks => u128::MAX - 16,
        Stream::Store => u128::MAX - 17,
        Stream::Original(index) => 3 + u128::from(index),
    };
    Pcg64::new(mixed(seed, number), number)
}

/// Spreads seed and stream over the whole state, since neighbouring states start alike.
fn mixed(seed: u64, stream: u128) -> u128 {
    const SEED_ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    const STREAM_ODD: u128 = 0xd1b5_4a32_d192_ed03_bf58_476d_1ce4_e5b9;
    let state = (u128::from(seed) + 1).wrapping_mul(SEED_ODD) ^ stream.wrapping_mul(STREAM_ODD);
    state ^ (state >> 64)
}
