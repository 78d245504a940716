//! What is written is read back as what it was, in every dialect.

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::*;
use crate::dialect::{Answer, Class, Classified, classify};

const NOW: &str = "2026-11-29T12:00:00Z";

fn now() -> DateTime<Utc> {
    NOW.parse().expect("an instant")
}

fn read(dialect: Dialect, status: u16, headers: &[(HeaderName, String)], body: &str) -> Classified {
    let value = |text: &str| HeaderValue::from_str(text).expect("visible text");
    let headers: HeaderMap =
        headers.iter().map(|(name, text)| (name.clone(), value(text))).collect();
    let answer = Answer { status, headers: &headers, body: body.as_bytes() };
    classify(&answer, dialect.provider(), Some(now()))
}

/// A fault with the class, the meter and the hint that must survive.
fn faults(wait: Duration) -> Vec<(Fault<'static>, Class, Option<Meter>, Option<Duration>)> {
    let limited =
        |meter| Fault::RateLimited { meter, limit: 60, used: 59, requested: 3, wait: Some(wait) };
    vec![
        (limited(Meter::Requests), Class::TransientRateLimit, Some(Meter::Requests), Some(wait)),
        (limited(Meter::Tokens), Class::TransientRateLimit, Some(Meter::Tokens), Some(wait)),
        (Fault::SlowDown, Class::TransientRateLimit, None, None),
        (Fault::TooLarge { limit: 60, requested: 61 }, Class::BadRequest, None, None),
        (Fault::TooLong { limit: 60, requested: 61 }, Class::BadRequest, None, None),
        (Fault::AccountExhausted, Class::PermanentQuota, Some(Meter::Spend), None),
        (Fault::TooManyOpen { cap: 2 }, Class::TransientRateLimit, Some(Meter::Concurrency), None),
        (Fault::Overloaded, Class::TemporaryOverload, None, None),
        (Fault::Failed, Class::TemporaryOverload, None, None),
        (Fault::TimedOut, Class::TemporaryOverload, None, None),
        (Fault::Rejected { status: 400, complaint: "no model" }, Class::BadRequest, None, None),
        (Fault::Rejected { status: 404, complaint: "no path" }, Class::BadRequest, None, None),
    ]
}

/// The finest that a dialect writes a hint in.
fn rounded(dialect: Dialect, span: Duration) -> Duration {
    match dialect {
        Dialect::OpenAi | Dialect::Azure | Dialect::Gemini => span,
        Dialect::Anthropic | Dialect::Ietf | Dialect::IetfFields => {
            Duration::from_secs(whole_seconds(span))
        }
    }
}

/// The reading as the dialect can carry it.
fn carried(dialect: Dialect, reading: MeterReading) -> MeterReading {
    let reset = match dialect {
        Dialect::OpenAi => reading.reset,
        _ => reading.reset.map(|reset| Duration::from_secs(whole_seconds(reset))),
    };
    MeterReading { reset, ..reading }
}

fn reading(meter: Meter) -> impl Strategy<Value = MeterReading> {
    let parts = (1..(1_u32 << 31), 0..(1_u32 << 31), (0_u64..60, 0_u32..1_000_000_000));
    parts.prop_map(move |(limit, remaining, (seconds, nanos))| MeterReading {
        meter,
        limit: Some(f64::from(limit)),
        remaining: Some(f64::from(remaining)),
        reset: Some(Duration::new(seconds, nanos)),
        window: Some(Duration::from_mins(1)),
    })
}

proptest! {
    #[test]
    fn headers_written_then_read_are_the_same(
        requests in reading(Meter::Requests),
        tokens in reading(Meter::Tokens),
        wait_ms in 1_u64..100_000,
    ) {
        let hint = Duration::from_millis(wait_ms);
        for dialect in Dialect::ALL {
            let written = write_headers(dialect, &[requests, tokens], Some(hint), now());
            let seen = read(dialect, 200, &written, "");
            let expected = match dialect {
                Dialect::Gemini => vec![],
                Dialect::IetfFields => vec![requests],
                _ => vec![requests, tokens],
            };
            prop_assert_eq!(seen.meters.len(), expected.len(), "{:?} {:?}", dialect, written);
            for expected in expected.into_iter().map(|one| carried(dialect, one)) {
                let unit = expected.meter.unit();
                let got = seen.meters.iter().find(|one| one.meter.unit() == unit).expect("it");
                let parts = |one: &MeterReading| (one.limit, one.remaining, one.reset);
                prop_assert_eq!(parts(got), parts(&expected), "{:?} {:?}", dialect, written);
                if dialect == Dialect::Ietf {
                    prop_assert_eq!(got, &expected);
                }
            }
            if dialect != Dialect::Gemini {
                prop_assert_eq!(seen.hint, Some(rounded(dialect, hint)), "{:?}", dialect);
            }
        }
    }

    #[test]
    fn errors_written_then_read_are_the_same(wait_ms in 1_u64..100_000) {
        let wait = Duration::from_millis(wait_ms);
        for dialect in Dialect::ALL {
            for (fault, class, meter, hint) in faults(wait) {
                let error = write_error(dialect, &fault, "m");
                let headers = write_headers(dialect, &[], hint, now());
                let seen = read(dialect, error.status, &headers, &error.body.to_string());
                prop_assert_eq!(seen.class, class, "{:?} {:?}: {}", dialect, fault, seen.why);
                if meter.is_some() {
                    prop_assert_eq!(seen.meter, meter, "{:?} {:?}", dialect, fault);
                }
                let hint = hint.map(|hint| rounded(dialect, hint));
                prop_assert_eq!(seen.hint, hint, "{:?} {:?}", dialect, fault);
            }
        }
    }
}

#[test]
fn what_is_unknown_is_not_written() {
    let none = MeterReading {
        meter: Meter::Requests,
        limit: None,
        remaining: Some(3.0),
        reset: None,
        window: None,
    };
    let names = |dialect| {
        let written = write_headers(dialect, &[none], None, now());
        written.into_iter().map(|(name, text)| format!("{name}: {text}")).collect::<Vec<_>>()
    };
    assert_eq!(names(Dialect::OpenAi), ["x-ratelimit-remaining-requests: 3"]);
    assert_eq!(names(Dialect::IetfFields), ["ratelimit-remaining: 3"]);
    assert_eq!(
        names(Dialect::Ietf),
        ["ratelimit: \"requests\";r=3", "ratelimit-policy: \"requests\""]
    );
}
