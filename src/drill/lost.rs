//! A source whose metrics page cannot be read for a while: `[sources]` of a scenario.

use std::time::Duration;

use serde::Deserialize;

use crate::sim::config::ConfigError;

/// Latest instant: a day.
const AT_S_MAX: f64 = 86_400.0;

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The admission service's.
    Gateway,
    /// The simulated provider's.
    Provider,
    /// The clients'.
    Clients,
}

impl Source {
    /// Its name on screen and in errors.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Provider => "provider",
            Self::Clients => "clients",
        }
    }
}

/// One source that is lost for a while. What it counts goes on; nobody reads it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// Whose page.
    pub lose: Source,
    /// From this second of the run,
    pub from_s: f64,
    /// up to this one.
    pub to_s: f64,
}

impl Lost {
    /// Refuses what is no span of time.
    ///
    /// # Errors
    /// The key that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let complain = |key: &str, value: f64, allowed| {
            Err(ConfigError {
                key: key.to_owned(),
                problem: format!("{value} is out of bounds"),
                allowed,
            })
        };
        if !(0.0..=AT_S_MAX).contains(&self.from_s) {
            return complain("from_s", self.from_s, "seconds from 0 to 86400");
        }
        if !(self.from_s..=AT_S_MAX).contains(&self.to_s) {
            return complain("to_s", self.to_s, "seconds from `from_s` to 86400");
        }
        Ok(())
    }

    /// When it can be read again.
    #[must_use]
    pub fn back_at(&self) -> Duration {
        Duration::from_secs_f64(self.to_s)
    }

    /// Whether `source` cannot be read at this instant of the run.
    #[must_use]
    pub fn covers(&self, source: Source, at: Duration) -> bool {
        self.lose == source && (self.from_s..self.to_s).contains(&at.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_lost_from_the_first_second_up_to_the_last() {
        let lost = Lost { lose: Source::Gateway, from_s: 10.0, to_s: 20.0 };
        for (second, covered) in [(9, false), (10, true), (19, true), (20, false)] {
            assert_eq!(lost.covers(Source::Gateway, Duration::from_secs(second)), covered);
        }
        assert!(!lost.covers(Source::Clients, Duration::from_secs(15)), "another source");
    }

    #[test]
    fn a_span_that_ends_before_it_begins_is_refused() {
        let check = |from_s, to_s| {
            let lost = Lost { lose: Source::Gateway, from_s, to_s };
            lost.check().err().map(|error| error.key)
        };
        assert_eq!(check(1.0, 1.0), None);
        assert_eq!(check(-1.0, 1.0).as_deref(), Some("from_s"));
        assert_eq!(check(2.0, 1.0).as_deref(), Some("to_s"));
        assert_eq!(check(2.0, f64::NAN).as_deref(), Some("to_s"));
    }
}
