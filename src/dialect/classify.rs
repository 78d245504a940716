//! What an answer means: status, codes, typed fields, headers and prose, in this order of trust.
//!
//! The knowledge is in the tables; here is how they are asked. The rules of the provider come first,
//! then those that hold for everybody. Status alone decides only where it is not ambiguous: an
//! exhausted account, a full meter and a request that can never fit may share one.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::dialect::class::{Answer, Class, Classified};
use crate::dialect::headers::Shown;
use crate::dialect::hint::{is_absurd, read_hint};
use crate::dialect::meter::{Meter, Unit};
use crate::dialect::moment::Clock;
use crate::dialect::naming;
use crate::dialect::provider::Provider;
use crate::dialect::said::Said;
use crate::dialect::table::{Condition, NamedMeter, Rule};

/// A wait longer than this is not for a meter of the minute.
const MINUTE_WAIT_MAX: Duration = Duration::from_hours(1);
/// The status of an error that came with 200 and names none.
const STATUS_INSIDE: u16 = 500;
/// Errors of AWS name themselves in a header; the second is that of an event in a stream.
const CODE_HEADERS: [&str; 2] = ["x-amzn-errortype", "exception-type"];

/// Says what an answer of `provider` means. `now` is used only for dates in an answer without a `Date`
/// of its own.
#[must_use]
pub fn classify(answer: &Answer<'_>, provider: Provider, now: Option<DateTime<Utc>>) -> Classified {
    let clock = Clock::of(answer.headers, now);
    let said = listen(answer);
    let evidence = Evidence::of(answer, &said);
    let provider = match provider {
        Provider::GENERIC => evidence.recognise().unwrap_or(provider),
        named => named,
    };
    let mut shown = Shown::read(answer.headers, provider, clock);
    if !said.headers.is_empty() {
        shown.add(Shown::read(&said.headers, provider, clock));
    }
    let hint = read_hint(answer.headers, &said, clock);
    let verdict = evidence.judge(provider, &shown);
    if let Some(window) = verdict.window {
        shown.name_window(window);
    }
    let meter = evidence.binding(&verdict, &shown, hint.map(|(span, _)| span));
    let should_retry = answer.headers.get("x-should-retry").and_then(|value| {
        value.to_str().ok().and_then(|text| text.trim().to_ascii_lowercase().parse().ok())
    });
    Classified {
        class: verdict.class,
        hint: hint.map(|(span, _)| span),
        hint_source: hint.map(|(_, source)| source),
        absurd: hint.is_some_and(|(span, _)| is_absurd(span)),
        code: said.codes.first().cloned(),
        kind: said.kinds.first().cloned(),
        meter,
        meters: shown.meters,
        negative: shown.negative,
        should_retry,
        why: verdict.why,
    }
}

fn listen(answer: &Answer<'_>) -> Said {
    let is_failed_event = answer.headers.contains_key(CODE_HEADERS[1]);
    if (200..300).contains(&answer.status) && !is_failed_event {
        return Said::of_success(answer.body);
    }
    let mut said = Said::of_error(answer.body);
    said.is_error |= is_failed_event;
    for name in CODE_HEADERS {
        // "ThrottlingException:http://internal.amazon.com/coral/..."
        let text = answer.headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(code) = text.and_then(|text| text.split(':').next()) {
            said.codes.insert(0, code.to_owned());
        }
    }
    said
}

/// What a rule is held against.
struct Evidence<'a> {
    answer: &'a Answer<'a>,
    said: &'a Said,
    /// The status, or the one inside a success that is an error.
    status: u16,
    is_success: bool,
}

/// What was decided.
struct Verdict {
    class: Class,
    meter: Option<NamedMeter>,
    window: Option<Duration>,
    why: String,
}

impl<'a> Evidence<'a> {
    fn of(answer: &'a Answer<'a>, said: &'a Said) -> Self {
        let is_2xx = (200..300).contains(&answer.status);
        let inside = said.status.unwrap_or(STATUS_INSIDE);
        let status = if is_2xx && said.is_error { inside } else { answer.status };
        Self { answer, said, status, is_success: is_2xx && !said.is_error }
    }

    /// The provider whose signs the answer bears.
    fn recognise(&self) -> Option<Provider> {
        let none = Shown::default();
        Provider::known().find(|one| one.signs().iter().any(|sign| self.holds(sign, &none)))
    }

    fn judge(&self, provider: Provider, shown: &Shown) -> Verdict {
        if self.is_success {
            let why = format!("status {} without an error", self.answer.status);
            return Verdict { class: Class::Success, meter: None, window: None, why };
        }
        if let Some((limit, requested)) = self.more_than_the_limit() {
            let why = format!("requested {requested} of a limit of {limit}: no wait makes it fit");
            return Verdict { class: Class::BadRequest, meter: None, window: None, why };
        }
        let rules = provider.rules().chain(Provider::GENERIC.rules());
        let mut holding = rules.filter(|(_, rule)| self.holds(&rule.when, shown));
        match holding.next() {
            Some((table, rule)) => Verdict {
                class: rule.class,
                meter: rule.meter,
                window: rule.window_s,
                why: self.words(table, rule),
            },
            // The generic table has a rule for every status there is; a number beyond is no status.
            None => Verdict {
                class: Class::TemporaryOverload,
                meter: None,
                window: None,
                why: format!("{} is no status", self.status),
            },
        }
    }

    /// "Request too large ... Limit 30000, Requested 30601".
    fn more_than_the_limit(&self) -> Option<(u64, u64)> {
        let messages = self.said.messages.iter().filter(|_| matches!(self.status, 413 | 429));
        let mut numbers = messages.filter_map(|message| {
            Some((number_after(message, "limit")?, number_after(message, "requested")?))
        });
        numbers.find(|(limit, requested)| requested > limit)
    }

    fn holds(&self, when: &Condition, shown: &Shown) -> bool {
        let said = self.said;
        let status_is = |status: u16| when.status.iter().any(|range| range.contains(&status));
        let in_prose = |parts: &[String]| {
            parts.is_empty()
                || said.messages.iter().any(|text| parts.iter().any(|part| text.contains(part)))
        };
        (when.status.is_empty() || status_is(self.status) || status_is(self.answer.status))
            && (when.code.is_empty() || shared(&said.codes, &when.code).is_some())
            && (when.kind.is_empty() || shared(&said.kinds, &when.kind).is_some())
            && (when.reason.is_empty() || shared(&said.reasons, &when.reason).is_some())
            && (when.quota.is_empty() || self.quota(when).is_some())
            && (when.header.is_empty() || self.header(when).is_some())
            && (when.empty.is_empty() || has_empty(shown, &when.empty))
            && in_prose(&when.message)
            && in_prose(&when.also)
    }

    fn quota(&self, when: &Condition) -> Option<&String> {
        self.said.quotas.iter().find(|quota| when.quota.iter().any(|part| quota.contains(part)))
    }

    fn header(&self, when: &'a Condition) -> Option<&'a str> {
        let holds = |wanted: &&crate::dialect::table::HeaderPart| {
            let values = self.answer.headers.get_all(&wanted.name);
            values.iter().any(|value| match &wanted.part {
                Some(part) => {
                    value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains(part))
                }
                None => true,
            })
        };
        when.header.iter().find(holds).map(|wanted| wanted.name.as_str())
    }

    /// The rule and the words that it went by.
    fn words(&self, table: &str, rule: &Rule) -> String {
        let (said, when) = (self.said, &rule.when);
        let mut why = format!("{table}/{}: status {}", rule.id, self.answer.status);
        let mut add = |name: &str, word: &str| {
            let _ = write!(why, ", {name} `{word}`");
        };
        let found = [
            ("code", shared(&said.codes, &when.code)),
            ("type", shared(&said.kinds, &when.kind)),
            ("reason", shared(&said.reasons, &when.reason)),
            ("quota", self.quota(when).map(String::as_str)),
        ];
        for (name, word) in found {
            if let Some(word) = word {
                add(name, word);
            }
        }
        if let Some(name) = self.header(&rule.when) {
            add("header", name);
        }
        for parts in [&when.message, &when.also] {
            let found = parts.iter().find(|part| said.messages.iter().any(|m| m.contains(*part)));
            if let Some(part) = found {
                add("message", part);
            }
        }
        if !when.empty.is_empty() {
            add("empty meter", &when.empty.join(" or "));
        }
        why
    }

    /// The meter that refused: named by the rule, by a type, by names of quotas, by prose, or shown
    /// empty by the headers.
    fn binding(&self, verdict: &Verdict, shown: &Shown, hint: Option<Duration>) -> Option<Meter> {
        match verdict.meter {
            Some(NamedMeter::This(meter)) => return Some(meter),
            Some(NamedMeter::Unknown) => return None,
            None => {}
        }
        let is_limit = matches!(verdict.class, Class::TransientRateLimit | Class::PermanentQuota);
        let is_too_large =
            verdict.class == Class::BadRequest && self.more_than_the_limit().is_some();
        if !is_limit && !is_too_large {
            return None;
        }
        let named = self.named_meter(shown);
        let empty = || {
            let meter = shown.empty_meter()?;
            let is_long = hint.is_some_and(|wait| wait > MINUTE_WAIT_MAX);
            Some(if is_long { of_the_day(meter) } else { meter })
        };
        named.or_else(|| empty().filter(|_| is_limit))
    }

    fn named_meter(&self, shown: &Shown) -> Option<Meter> {
        let said = self.said;
        let identifiers = said.quotas.iter().chain(&said.codes).chain(&said.kinds);
        let named = naming::in_identifiers(identifiers)
            .or_else(|| said.messages.iter().find_map(|text| naming::in_prose(text)));
        // A type says the unit and leaves the window to the prose, else to the headers: some names of
        // requests mean the day. Without any it is the minute.
        let by_kind = said.kinds.iter().find_map(|kind| match kind.as_str() {
            "tokens" => Some(Meter::Tokens),
            "requests" => Some(Meter::Requests),
            _ => None,
        });
        match (by_kind, named) {
            (Some(by_kind), Some(named)) if named.unit() == by_kind.unit() => Some(named),
            (Some(by_kind), _) => Some(shown.empty_meter_of(by_kind.unit()).unwrap_or(by_kind)),
            (None, named) => named,
        }
    }
}

fn of_the_day(meter: Meter) -> Meter {
    match meter.unit() {
        Unit::Tokens => meter_or(meter, Meter::TokensPerDay),
        Unit::Requests => meter_or(meter, Meter::RequestsPerDay),
        Unit::Other => meter,
    }
}

/// The meter itself where its window is longer than a minute already.
const fn meter_or(meter: Meter, day: Meter) -> Meter {
    match meter {
        Meter::Requests | Meter::Tokens | Meter::InputTokens | Meter::OutputTokens => day,
        longer => longer,
    }
}

/// The first word that stands in both lists, whatever its case.
fn shared<'a>(said: &'a [String], wanted: &[String]) -> Option<&'a str> {
    let is_wanted = |word: &&String| wanted.iter().any(|one| one.eq_ignore_ascii_case(word));
    said.iter().find(is_wanted).map(String::as_str)
}

fn has_empty(shown: &Shown, meters: &[String]) -> bool {
    let mut empty = shown.meters.iter().filter(|reading| reading.is_empty());
    empty.any(|reading| meters.iter().any(|word| word == "any" || word == reading.meter.word()))
}

/// The number right after the first `word` that has one: "limit: 30000".
fn number_after(text: &str, word: &str) -> Option<u64> {
    text.match_indices(word).find_map(|(at, _)| {
        let after = text[at + word.len()..].trim_start_matches([':', ' ']);
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(after.len());
        // "10,000" has its commas between digits, "30000," does not.
        after[..end].trim_end_matches(',').replace(',', "").parse().ok()
    })
}

#[cfg(test)]
mod tests;
