//! The per-call script: what the next calls get, whatever the meters say.

use std::collections::VecDeque;

use crate::sim::config::ConfigError;

/// Most calls that a script may cover.
const SCRIPT_CALLS_MAX: usize = 100_000;

const SCRIPT_ALLOWED: &str = "a script is a comma list of ok, rate_limit, timeout, server_error, bad_request, each with an optional :COUNT";

/// What one scripted call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scripted {
    /// The normal behaviour.
    Ok,
    /// A refusal of the request meter.
    RateLimit,
    /// No answer.
    Timeout,
    /// A 500.
    ServerError,
    /// A 400.
    BadRequest,
}

/// What is left of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    calls: VecDeque<Scripted>,
    /// What every call gets after those.
    then: Option<Scripted>,
}

impl Script {
    /// What the next call gets; normal behaviour once the script is over.
    pub(super) fn next(&mut self) -> Scripted {
        self.calls.pop_front().or(self.then).unwrap_or(Scripted::Ok)
    }
}

/// Reads `rate_limit:2,timeout,ok`. An element without a count stands for one call, and as the last
/// of the list for every call from then on: `rate_limit` refuses for good, `rate_limit:2` twice.
///
/// # Errors
/// The element that is not understood.
pub(super) fn parse(text: &str) -> Result<Script, String> {
    let mut script = Script::default();
    let elements: Vec<_> =
        text.split(',').map(str::trim).filter(|element| !element.is_empty()).collect();
    for (place, element) in elements.iter().enumerate() {
        let (word, count) = match element.split_once(':') {
            None => (*element, None),
            Some((word, count)) => {
                let count = count.trim().parse::<usize>().map_err(|_| (*element).to_owned())?;
                (word, Some(count))
            }
        };
        let scripted = match word.trim() {
            "ok" => Scripted::Ok,
            "rate_limit" => Scripted::RateLimit,
            "timeout" => Scripted::Timeout,
            "server_error" => Scripted::ServerError,
            "bad_request" => Scripted::BadRequest,
            _ => return Err((*element).to_owned()),
        };
        if count.is_none() && place + 1 == elements.len() {
            script.then = Some(scripted);
            continue;
        }
        let count = count.unwrap_or(1);
        if count > SCRIPT_CALLS_MAX - script.calls.len() {
            return Err((*element).to_owned());
        }
        script.calls.extend(std::iter::repeat_n(scripted, count));
    }
    Ok(script)
}

/// The refusal of a script that has `element` in it.
pub(super) fn error(element: &str) -> ConfigError {
    ConfigError {
        key: "script".to_owned(),
        problem: format!("`{element}` is not understood"),
        allowed: SCRIPT_ALLOWED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str, calls: usize) -> Vec<Scripted> {
        let mut script = parse(text).expect("understood");
        (0..calls).map(|_| script.next()).collect()
    }

    #[test]
    fn a_count_is_how_often_and_a_bare_last_word_is_for_good() {
        use Scripted::{Ok as Fine, RateLimit, ServerError, Timeout};
        assert_eq!(
            first("rate_limit:2, timeout,server_error:1", 6),
            [RateLimit, RateLimit, Timeout, ServerError, Fine, Fine]
        );
        assert_eq!(first("ok:1,rate_limit", 4), [Fine, RateLimit, RateLimit, RateLimit]);
        assert_eq!(first("", 2), [Fine, Fine]);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for bad in ["maybe", "ok:x", "ok:-1", "ok:100001"] {
            assert_eq!(parse(bad), Err(bad.to_owned()));
        }
        assert!(parse("ok:100000").is_ok());
    }
}
