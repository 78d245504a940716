//! Nothing that a server may answer a query with makes the reader of Prometheus' JSON panic, and what
//! it reads of it is the same each time, with its notices bounded and its samples in order of time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::ingest::prometheus::{Data, parse_answer};

fuzz_target!(|body: &[u8]| {
    match parse_answer(body) {
        Ok(answer) => {
            assert!(answer.warnings.len() + answer.infos.len() <= 32);
            if let Data::Vector(series) | Data::Matrix(series) = answer.data {
                for one in series {
                    let times = one.samples.iter().map(|(at_s, _)| *at_s);
                    assert!(times.is_sorted());
                }
            }
        }
        Err(error) => assert!(error.to_string().chars().count() <= 1000),
    }
});
