//! The two scripts, what they are told and what they answer, as Redis values.
//!
//! A number goes over as text with all its digits: a time as whole microseconds, any other as the
//! shortest text that reads back as the same float. Absent is the empty text, never zero.

use std::time::Duration;

use redis::{FromRedisValue, Script, ScriptInvocation, Value};

use crate::admission::{
    Binding, Claim, Demand, Limit, Mirror, Outcome, Receipt, Report, Rules, Semantics,
    SharedBreaker, Spread, Verdict,
};
use crate::dialect::{Meter, MeterReading};

/// The layout of keys and registers. A change of either is another version with keys of its own, so
/// that during a deploy old and new instances never read each other's.
const LAYOUT: u32 = 1;

/// What both scripts begin with.
macro_rules! with_shared {
    ($script:literal) => {
        concat!(include_str!("shared.lua"), include_str!($script))
    };
}

/// The scripts. The server keeps them by their digest: a changed one never meets an old one.
pub(super) struct Scripts {
    claim: Script,
    report: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: Script::new(with_shared!("claim.lua")),
            report: Script::new(with_shared!("report.lua")),
        }
    }

    /// A claim, ready to be sent. `now` is the server's own clock unless a test says otherwise.
    pub(super) fn claim<'a>(
        &'a self,
        scope: &str,
        instance: &str,
        claim: &Claim,
        now: Option<u64>,
    ) -> ScriptInvocation<'a> {
        let mut call = begin(&self.claim, scope, instance, claim.in_flight, &claim.rules, now);
        call.arg(u8::from(claim.rules.breaker)).arg(optional(claim.in_flight_max));
        call.arg(claim.demand.input).arg(claim.demand.output).arg(claim.limits.len());
        for limit in &claim.limits {
            push_limit(&mut call, limit);
            for part in parts(limit.meter) {
                call.arg(part);
            }
        }
        call
    }

    /// A report, ready to be sent.
    pub(super) fn report<'a>(
        &'a self,
        scope: &str,
        instance: &str,
        report: &Report,
        now: Option<u64>,
    ) -> ScriptInvocation<'a> {
        let mut call = begin(&self.report, scope, instance, report.in_flight, &report.rules, now);
        let (outcome, pause, refused) = match report.outcome {
            Outcome::Good => ("good", Duration::ZERO, None),
            Outcome::Fault { overload: false } => ("fault", Duration::ZERO, None),
            Outcome::Fault { overload: true } => ("overload", Duration::ZERO, None),
            // Says nothing about the rate.
            Outcome::Throttled { pause, meter: Some(Meter::Concurrency) } => {
                ("crowded", pause, None)
            }
            Outcome::Throttled { pause, meter } => ("throttled", pause, meter),
            Outcome::Exhausted => ("exhausted", Duration::ZERO, None),
            Outcome::Neither => ("neither", Duration::ZERO, None),
        };
        let rules = &report.rules;
        call.arg(rules.faults_in_row).arg(u8::from(rules.adaptive));
        call.arg(Spread::by_name(scope).share());
        call.arg(optional(report.receipt.map(|receipt| receipt.0))).arg(outcome);
        call.arg(micros(pause)).arg(report.limits.len());
        for limit in &report.limits {
            // What is counted over another window is not this meter.
            let same = |reading: &&MeterReading| {
                let window = reading.window.is_none_or(|window| window == limit.window);
                reading.meter == limit.meter && window
            };
            let reading = report.readings.iter().find(same);
            let amount = |demand: Demand| demand.of(limit.meter);
            push_limit(&mut call, limit);
            call.arg(amount(report.reserved)).arg(optional(report.charged.map(amount)));
            call.arg(u8::from(refused == Some(limit.meter)));
            call.arg(optional(reading.and_then(|reading| reading.remaining)));
            call.arg(optional(reading.and_then(|reading| reading.limit)));
            call.arg(optional(reading.and_then(|reading| reading.reset).map(micros)));
        }
        call
    }
}

/// The keys of a scope, and what every call says first.
fn begin<'a>(
    script: &'a Script,
    scope: &str,
    instance: &str,
    in_flight: u32,
    rules: &Rules,
    now: Option<u64>,
) -> ScriptInvocation<'a> {
    let mut call = script.prepare_invoke();
    for part in ["state", "cells", "leases"] {
        call.key(key(scope, part));
    }
    call.arg(optional(now)).arg(instance).arg(in_flight).arg(micros(rules.lease));
    call
}

/// The braces put all keys of a scope on one slot of a cluster; a brace in a name must not end them.
fn key(scope: &str, part: &str) -> String {
    let scope = scope.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    format!("weir:{LAYOUT}:{{{scope}}}:{part}")
}

/// A limit as both scripts take it. Its first word names its registers: another window or another
/// way to count is another meter, another amount is not.
fn push_limit(call: &mut ScriptInvocation<'_>, limit: &Limit) {
    let semantics = match limit.semantics {
        Semantics::TokenBucket => "bucket",
        Semantics::SlidingWindow => "sliding",
        Semantics::FixedWindow => "fixed",
    };
    let window = micros(limit.window);
    call.arg(format!("{}/{window}/{semantics}", limit.meter.word()));
    call.arg(limit.amount).arg(window).arg(semantics).arg(micros(limit.burst));
}

/// How much of a meter a request takes: for itself, for each token of input and for each of output.
fn parts(meter: Meter) -> [f64; 3] {
    let of = |input, output| Demand { input, output }.of(meter);
    let itself = of(0.0, 0.0);
    [itself, of(1.0, 0.0) - itself, of(0.0, 1.0) - itself]
}

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// What a claim was answered.
pub(super) fn read_claim(answer: Value, limits: &[Limit]) -> Result<(Verdict, Mirror), String> {
    let (verdict, mirror): ((u64, u64, String), Value) = read(answer)?;
    let (receipt, at_least, why) = verdict;
    let why = match why.as_str() {
        "" => return Ok((Verdict::Granted(Receipt(receipt)), read_mirror(mirror)?)),
        "pause" => Binding::Pause,
        "breaker" => Binding::Breaker,
        "concurrency" => Binding::Meter(Meter::Concurrency),
        place => {
            let limit =
                place.parse().ok().and_then(|place: usize| limits.get(place.checked_sub(1)?));
            Binding::Meter(limit.ok_or_else(|| format!("no limit is called `{place}`"))?.meter)
        }
    };
    let at_least = Duration::from_micros(at_least);
    Ok((Verdict::Wait { at_least, why }, read_mirror(mirror)?))
}

/// The state that every answer carries.
pub(super) fn read_mirror(answer: Value) -> Result<Mirror, String> {
    let (paused, factor, breaker, instances, in_flight, left): (
        u64,
        f64,
        (String, u64),
        u32,
        u32,
        Vec<f64>,
    ) = read(answer)?;
    let breaker = match (breaker.0.as_str(), breaker.1) {
        ("closed", _) => SharedBreaker::Closed,
        ("open", left) => SharedBreaker::Open { left: Duration::from_micros(left) },
        ("half-open", probing) => SharedBreaker::HalfOpen { probing: probing > 0 },
        (other, _) => return Err(format!("no breaker is `{other}`")),
    };
    let paused = Duration::from_micros(paused);
    Ok(Mirror { paused, factor, breaker, instances, in_flight, left })
}

fn read<T: FromRedisValue>(answer: Value) -> Result<T, String> {
    T::from_redis_value(answer).map_err(|error| error.to_string())
}
