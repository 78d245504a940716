//! Which failures a policy names: statuses, and requests that got no answer.
//!
//! Written as a list of words: `["429", "5xx", "timeout", "connection"]`.

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::dialect::status_range;
use crate::sim::layers::answer::AnswerSeen;

/// What became of a request that was not served.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// It was answered with an error.
    Answer(AnswerSeen),
    /// No answer came in time.
    Timeout,
    /// The connection was refused or broke.
    Connection,
}

impl Failure {
    /// What was answered; of no answer, a blank one.
    pub(super) fn answer(&self) -> AnswerSeen {
        match self {
            Self::Answer(answer) => *answer,
            Self::Timeout | Self::Connection => AnswerSeen::default(),
        }
    }
}

/// A set of failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Causes {
    statuses: Vec<RangeInclusive<u16>>,
    timeout: bool,
    connection: bool,
}

impl Causes {
    /// Every failure there is: what a person or a blind helper repeats.
    pub(super) fn all() -> Self {
        Self { statuses: vec![0..=u16::MAX], timeout: true, connection: true }
    }

    /// What the SDKs made by Stainless repeat: 408, 409, 429, from 500 on, and no answer
    /// (openai-python 3.57 `_base_client.py:925`).
    pub(super) fn stainless() -> Self {
        let statuses = vec![408..=409, 429..=429, 500..=u16::MAX];
        Self { statuses, timeout: true, connection: true }
    }

    pub(super) fn contains(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Answer(answer) => self.has_status(answer.status),
            Failure::Timeout => self.timeout,
            Failure::Connection => self.connection,
        }
    }

    pub(super) fn has_status(&self, status: u16) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
    }
}

impl<'de> Deserialize<'de> for Causes {
    fn deserialize<D: Deserializer<'de>>(list: D) -> Result<Self, D::Error> {
        let mut causes = Self::default();
        for word in Vec::<String>::deserialize(list)? {
            match word.as_str() {
                "timeout" => causes.timeout = true,
                "connection" => causes.connection = true,
                status => causes.statuses.push(status_range(status).ok_or_else(|| {
                    let expected = "expected \"429\", \"5xx\", \"timeout\" or \"connection\"";
                    D::Error::custom(format!("`{status}` is no failure, {expected}"))
                })?),
            }
        }
        Ok(causes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        retries: Causes,
    }

    fn parse(list: &str) -> Result<Causes, String> {
        let file: Result<File, _> = toml::from_str(&format!("retries = {list}"));
        file.map(|file| file.retries).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn words_are_statuses_or_kinds_of_silence() {
        let causes = parse("['429', '5xx', 'timeout']").expect("right");
        for (failure, expected) in [
            (Failure::Answer(AnswerSeen { status: 429, ..AnswerSeen::default() }), true),
            (Failure::Answer(AnswerSeen { status: 599, ..AnswerSeen::default() }), true),
            (Failure::Answer(AnswerSeen { status: 400, ..AnswerSeen::default() }), false),
            (Failure::Timeout, true),
            (Failure::Connection, false),
        ] {
            assert_eq!(causes.contains(&failure), expected, "{failure:?}");
        }
        let wrong = parse("['sometimes']").expect_err("no failure");
        assert!(wrong.contains("`sometimes` is no failure, expected \"429\""), "{wrong}");
    }
}
