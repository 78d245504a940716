//! What a gate reads of a simulated provider's answer: the same as `dialect` reads off the wire.
//!
//! A table, because an answer that is written as JSON only to be parsed again would take most of a
//! drill's time; a test holds it against the words themselves.

use crate::admission::Head;
use crate::dialect::{Class, Meter};
use crate::sim::outcome::{Disguise, Outcome, Reply};

/// The answer, in the words of OpenAI, to a gate that reads what is said of meters, or does not.
pub(super) fn head(reply: &Reply, reads_meters: bool) -> Head {
    let (class, code, meter) = meaning(reply);
    let shows_meters = !reply.is_disguised()
        && matches!(
            reply.outcome,
            Outcome::Ok { .. } | Outcome::RateLimited { .. } | Outcome::TooLarge { .. }
        );
    Head {
        status: reply.status(),
        class,
        hint: reply.retry_after_ms().map(std::time::Duration::from_millis),
        code: code.map(str::to_owned),
        meter: meter.filter(|_| reads_meters),
        forbids_retry: false,
        meters: if shows_meters && reads_meters { reply.meters.to_vec() } else { Vec::new() },
    }
}

fn meaning(reply: &Reply) -> (Class, Option<&'static str>, Option<Meter>) {
    let plain = match reply.outcome {
        Outcome::Ok { .. } => (Class::Success, None, None),
        Outcome::RateLimited { meter, .. } => {
            (Class::TransientRateLimit, Some("rate_limit_exceeded"), Some(meter))
        }
        Outcome::SlowDown { .. } => (Class::TransientRateLimit, Some("slow_down"), None),
        Outcome::ConcurrencyCap { .. } => {
            let code = Some("concurrency_limit_exceeded");
            (Class::TransientRateLimit, code, Some(Meter::Concurrency))
        }
        Outcome::TooLarge { .. } => {
            (Class::BadRequest, Some("rate_limit_exceeded"), Some(Meter::Tokens))
        }
        Outcome::TooLong { .. } => (Class::BadRequest, Some("context_length_exceeded"), None),
        Outcome::InsufficientQuota => {
            (Class::PermanentQuota, Some("insufficient_quota"), Some(Meter::Spend))
        }
        Outcome::Rejected { .. } => (Class::BadRequest, None, None),
        Outcome::Overloaded { .. } => {
            (Class::TemporaryOverload, Some("server_is_overloaded"), None)
        }
        Outcome::ServerError { .. } | Outcome::Timeout => (Class::TemporaryOverload, None, None),
    };
    let (class, code, meter) = plain;
    match (reply.disguise, class) {
        _ if !reply.is_disguised() => plain,
        // The code of an exhausted account means the same inside any status; that of a cap, too.
        (_, Class::PermanentQuota) => plain,
        _ if meter == Some(Meter::Concurrency) => plain,
        (Disguise::Forbidden, _) => (Class::AuthOrPermission, code, None),
        (Disguise::Failure, _) => (Class::TemporaryOverload, code, None),
        // That a request is too large is said by status and numbers together.
        (Disguise::Success, Class::BadRequest) => (Class::TransientRateLimit, code, meter),
        (Disguise::Success | Disguise::None, _) => plain,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::dialect::{Answer, Dialect, MeterReading, classify, write_error, write_headers};
    use crate::signal::Tokens;
    use crate::sim::provider::{CallId, HintForm};

    fn outcomes() -> Vec<Outcome> {
        let wait = Duration::from_millis(1_500);
        let limited =
            |meter| Outcome::RateLimited { meter, wait, limit: 60, used: 59, requested: 3 };
        vec![
            limited(Meter::Requests),
            limited(Meter::Tokens),
            limited(Meter::RequestsPerDay),
            limited(Meter::TokensPerDay),
            Outcome::SlowDown { wait },
            Outcome::TooLarge { limit: 60, requested: 61 },
            Outcome::TooLong { limit: 60, requested: 61 },
            Outcome::InsufficientQuota,
            Outcome::ConcurrencyCap { cap: 3 },
            Outcome::Overloaded { wait: None },
            Outcome::Overloaded { wait: Some(wait) },
            Outcome::ServerError { status: 500 },
            Outcome::Rejected { status: 400 },
        ]
    }

    /// What `dialect` reads from the answer as the simulated provider writes it.
    fn read(reply: &Reply) -> crate::dialect::Classified {
        let error = write_error(Dialect::OpenAi, &reply.fault(None), "m");
        let hint = reply.retry_after_ms().map(Duration::from_millis);
        let mut headers = HeaderMap::new();
        for (name, text) in write_headers(Dialect::OpenAi, &[], hint, chrono::DateTime::UNIX_EPOCH)
        {
            headers.insert(name, HeaderValue::from_str(&text).expect("visible text"));
        }
        if reply.has_malformed_hint() {
            headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("a moment"));
        }
        let body = error.body.to_string();
        let answer = Answer { status: reply.status(), headers: &headers, body: body.as_bytes() };
        classify(&answer, Dialect::OpenAi.provider(), None)
    }

    #[test]
    fn the_table_says_what_dialect_reads() {
        use {Disguise as D, HintForm as H};
        let hints = [H::Exact, H::None, H::Malformed, H::Absurd, H::TooEarly];
        for outcome in outcomes() {
            for disguise in [D::None, D::Success, D::Forbidden, D::Failure] {
                for hint_form in hints {
                    let reply = Reply {
                        call: CallId(1),
                        latency: Duration::ZERO,
                        outcome,
                        meters: [Meter::Requests, Meter::Tokens].map(MeterReading::unknown),
                        hint_form,
                        disguise,
                    };
                    let (seen, told) = (read(&reply), head(&reply, true));
                    let of =
                        format!("{outcome:?} as {disguise:?} with {hint_form:?}: {}", seen.why);
                    assert_eq!(told.class, seen.class, "{of}");
                    assert_eq!(told.code, seen.code, "{of}");
                    assert_eq!(told.meter, seen.meter, "{of}");
                    assert_eq!(told.hint, seen.hint, "{of}");
                    assert_eq!(told.status, reply.status(), "{of}");
                }
            }
        }
    }

    #[test]
    fn meters_are_seen_by_whom_reads_headers() {
        let reply = Reply {
            call: CallId(1),
            latency: Duration::ZERO,
            outcome: Outcome::Ok { tokens: Tokens(1) },
            meters: [Meter::Requests, Meter::Tokens].map(MeterReading::unknown),
            hint_form: HintForm::Exact,
            disguise: Disguise::Success,
        };
        assert_eq!(head(&reply, true).meters.len(), 2);
        assert_eq!(head(&reply, false).meters.len(), 0);
        assert_eq!(reply.status(), 200, "only refusals are disguised");
    }
}
