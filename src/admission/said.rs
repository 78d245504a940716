//! What the provider says in passing: that something ends, and which model really answers.
//!
//! Decides nothing about a request; it is kept for the metrics, where a silent change shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::dialect::{Notices, Since};
use crate::signal::Mono;

use chrono::{DateTime, Utc};

/// How long a notice is believed after it was last read.
pub const NOTICE_KEPT: Duration = Duration::from_hours(1);
/// Pairs of an asked and an answering model that are told apart; the rest are `other`.
pub const MODELS_MAX: usize = 16;
/// The name of those beyond [`MODELS_MAX`].
const OTHER: &str = "other";

/// The model that was asked for, and the one that the answer names.
pub type ModelPair = (Arc<str>, Arc<str>);

/// What one scope's provider has said.
#[derive(Clone, Debug, Default)]
pub struct Said {
    deprecated: Option<(Since, Mono)>,
    sunset: Option<(DateTime<Utc>, Mono)>,
    models: BTreeMap<ModelPair, u64>,
    asked: BTreeMap<Arc<str>, Calls>,
}

/// Calls for one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Those that the provider answered, whatever it said.
    pub answered: u64,
    /// Those that it answered with 429.
    pub refused: u64,
}

impl Said {
    /// Takes in the notices of an answer. One without any takes nothing back: other paths of the
    /// same provider may have none.
    pub fn noticed(&mut self, notices: &Notices, now: Mono) {
        self.deprecated = notices.deprecated.map(|since| (since, now)).or(self.deprecated);
        self.sunset = notices.sunset.map(|at| (at, now)).or(self.sunset);
    }

    /// Counts a good answer to a request for `asked` that names `by`.
    pub fn answered(&mut self, asked: &str, by: &str) {
        let pair = (Arc::from(asked), Arc::from(by));
        let is_known = self.models.contains_key(&pair) || self.models.len() < MODELS_MAX;
        let pair = if is_known { pair } else { (Arc::from(OTHER), Arc::from(OTHER)) };
        *self.models.entry(pair).or_default() += 1;
    }

    /// Counts a call for a model that was answered with this status.
    pub fn called(&mut self, asked: &str, status: u16) {
        let is_known = self.asked.contains_key(asked) || self.asked.len() < MODELS_MAX;
        let name = if is_known { asked } else { OTHER };
        if !self.asked.contains_key(name) {
            self.asked.insert(Arc::from(name), Calls::default());
        }
        if let Some(calls) = self.asked.get_mut(name) {
            calls.answered += 1;
            calls.refused += u64::from(status == 429);
        }
    }

    /// Since when it is deprecated, as far as that was said lately.
    #[must_use]
    pub fn deprecated(&self, now: Mono) -> Option<Since> {
        lately(self.deprecated, now)
    }

    /// When it ends, as far as that was said lately.
    #[must_use]
    pub fn sunset(&self, now: Mono) -> Option<DateTime<Utc>> {
        lately(self.sunset, now)
    }

    /// Good answers by the model asked for and the model that answered.
    #[must_use]
    pub const fn models(&self) -> &BTreeMap<ModelPair, u64> {
        &self.models
    }

    /// Calls by the model asked for.
    #[must_use]
    pub const fn asked(&self) -> &BTreeMap<Arc<str>, Calls> {
        &self.asked
    }
}

fn lately<T>(said: Option<(T, Mono)>, now: Mono) -> Option<T> {
    said.filter(|(_, at)| now.saturating_since(*at) <= NOTICE_KEPT).map(|(said, _)| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_lasts_an_hour_beyond_its_last_reading() {
        let mut said = Said::default();
        let sunset: DateTime<Utc> = "2026-12-31T00:00:00Z".parse().expect("an instant");
        let notices = Notices { deprecated: Some(Since::Undated), sunset: Some(sunset) };
        said.noticed(&notices, Mono::START);
        said.noticed(&Notices::default(), Mono::START + Duration::from_mins(30));
        assert_eq!(said.deprecated(Mono::START + NOTICE_KEPT), Some(Since::Undated));
        assert_eq!(said.sunset(Mono::START + NOTICE_KEPT), Some(sunset));
        assert_eq!(said.sunset(Mono::START + NOTICE_KEPT + Duration::from_millis(1)), None);
    }

    #[test]
    fn models_of_a_hostile_provider_are_bounded() {
        let mut said = Said::default();
        for n in 0..100 {
            said.answered("m", &format!("m-{n}"));
        }
        for n in 0..100 {
            said.called(&format!("m-{n}"), if n < 50 { 429 } else { 200 });
        }
        assert_eq!(said.asked().len(), MODELS_MAX + 1);
        let sum = |read: fn(&Calls) -> u64| said.asked().values().map(read).sum::<u64>();
        assert_eq!((sum(|one| one.answered), sum(|one| one.refused)), (100, 50));
        assert_eq!(said.models().len(), MODELS_MAX + 1);
        assert_eq!(said.models().values().sum::<u64>(), 100);
    }
}
