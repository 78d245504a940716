//! No answer makes the reader of providers' dialects panic, it says the same twice, and no count that it
//! shows is negative.
//!
//! The input is one byte for the provider, two for the status, then lines `name: value` up to an empty
//! line, then the body.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use weir::dialect::{Answer, Provider, classify};

fuzz_target!(|input: &[u8]| {
    let [provider, high, low, rest @ ..] = input else { return };
    let count = Provider::names().count();
    let name = Provider::names().nth(usize::from(*provider) % count).expect("one of them");
    let provider = Provider::named(name).expect("it is named");
    let status = u16::from_be_bytes([*high, *low]);
    let mut headers = HeaderMap::new();
    let mut rest = rest;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { break };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
            headers.append(name, value);
        }
    }
    let now = "2026-11-29T12:00:00Z".parse().ok();
    let seen = classify(&Answer { status, headers: &headers, body: rest }, provider, now);
    let again = classify(&Answer { status, headers: &headers, body: rest }, provider, now);
    assert_eq!(seen, again);
    for reading in &seen.meters {
        let counts = [reading.limit, reading.remaining].into_iter().flatten();
        assert!(counts.into_iter().all(|count| count >= 0.0), "{reading:?}");
    }
});
