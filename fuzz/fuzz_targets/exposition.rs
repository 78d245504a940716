//! Nothing that a target may send makes the parser panic, and reading scrapes one after the other
//! says what reading them alone says.
//!
//! The input is one byte for the format, then scrapes parted by a zero byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::ingest::exposition::{Format, Repeat, parse};
use weir::signal::Mono;

fuzz_target!(|input: &[u8]| {
    let Some((format, scrapes)) = input.split_first() else { return };
    let format = if format % 2 == 0 { Format::Text } else { Format::OpenMetrics };
    let mut repeat = Repeat::new();
    for body in scrapes.split(|byte| *byte == 0) {
        let mut samples = 0;
        let alone = parse(body, format, |_| samples += 1).expect("inputs are small");
        assert_eq!(alone.samples, samples);
        let repeated =
            repeat.read(body, format, |_, _| {}, Mono::START).expect("inputs are small");
        assert_eq!(alone, repeated);
    }
});
