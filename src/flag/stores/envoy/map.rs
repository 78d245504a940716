//! Which runtime key of Envoy stands for which flag, and how a value is written there.
//!
//! Runtime values are mostly numbers, and often on another scale than the flag: a share of 0.1 is 10
//! percent. What does not come back as it was written is refused, so that a read-back can be trusted.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::admission::{FlagDef, FlagValue, Kind, flag};

/// How a flag's value is written into the runtime.
#[derive(Clone, Debug, PartialEq)]
pub enum EnvoyValue {
    /// The number times this, 1 for the number itself.
    Scale(f64),
    /// One text for each value, as typed: `("gateway", "1")`. A value that is not here is not written.
    Table(Vec<(String, String)>),
}

/// One flag and the runtime key that it stands for. Checked when it is made.
#[derive(Clone, Debug)]
pub struct EnvoyFlag {
    def: &'static FlagDef,
    runtime_key: String,
    value: EnvoyValue,
}

/// Why a flag cannot stand for a runtime key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EnvoyFlagError {
    /// No such flag, or a value that it does not take.
    #[error(transparent)]
    Flag(#[from] crate::admission::FlagError),
    /// No runtime key.
    #[error(
        "`{key}` has no runtime key; one looks like circuit_breakers.my_cluster.default.max_retries"
    )]
    NoRuntimeKey {
        /// The flag.
        key: String,
    },
    /// A scale for what is no number, or one that leads to nothing.
    #[error("`{key}` cannot be scaled by {scale}; a number takes a scale above 0, others a table")]
    Scale {
        /// The flag.
        key: String,
        /// What was given.
        scale: String,
    },
    /// A table that does not lead back.
    #[error(
        "`{key}` has `{text}` twice in its table, or nothing; each value needs a text of its own"
    )]
    Table {
        /// The flag.
        key: String,
        /// The text or value.
        text: String,
    },
}

impl EnvoyFlag {
    /// Lets `key` stand for `runtime_key`.
    ///
    /// # Errors
    /// [`EnvoyFlagError`] when values would not come back as they were written.
    pub fn new(
        key: &str,
        runtime_key: impl Into<String>,
        value: EnvoyValue,
    ) -> Result<Self, EnvoyFlagError> {
        let (def, runtime_key, key) = (flag(key)?, runtime_key.into(), key.to_owned());
        if runtime_key.is_empty() {
            return Err(EnvoyFlagError::NoRuntimeKey { key });
        }
        match &value {
            EnvoyValue::Scale(scale) => {
                let number = matches!(def.kind, Kind::Whole { .. } | Kind::Real { .. });
                if !number || !scale.is_finite() || *scale <= 0.0 {
                    return Err(EnvoyFlagError::Scale { key, scale: scale.to_string() });
                }
            }
            EnvoyValue::Table(rows) => {
                let (mut values, mut texts) = (BTreeSet::new(), BTreeSet::new());
                for (value, text) in rows {
                    def.parse(value)?;
                    // An empty text would drop the override.
                    if text.is_empty() || !values.insert(value) || !texts.insert(text) {
                        return Err(EnvoyFlagError::Table { key, text: text.clone() });
                    }
                }
            }
        }
        Ok(Self { def, runtime_key, value })
    }

    pub(super) fn key(&self) -> &'static str {
        self.def.key
    }

    pub(super) fn runtime_key(&self) -> &str {
        &self.runtime_key
    }

    /// A value as it stands in the runtime; one that the flag does not take as the words that stand there.
    pub(super) fn read(&self, text: &str) -> FlagValue {
        let value = match &self.value {
            EnvoyValue::Scale(scale) => text
                .parse::<f64>()
                .ok()
                .and_then(|number| self.def.check(FlagValue::Number(number / scale)).ok()),
            EnvoyValue::Table(rows) => {
                let row = rows.iter().find(|(_, known)| known == text);
                row.and_then(|(value, _)| self.def.parse(value).ok())
            }
        };
        value.unwrap_or_else(|| FlagValue::Word(text.to_owned()))
    }

    /// The value as the runtime is given it; in words why it cannot be.
    pub(super) fn write(&self, value: &FlagValue) -> Result<String, String> {
        let text = match (&self.value, value) {
            (EnvoyValue::Scale(scale), FlagValue::Number(number)) => Some(scaled(number * scale)),
            (EnvoyValue::Scale(_), _) => None,
            (EnvoyValue::Table(rows), _) => {
                let typed = value.to_string();
                rows.iter().find(|(known, _)| *known == typed).map(|(_, text)| text.clone())
            }
        };
        text.filter(|text| self.read(text) == *value).ok_or_else(|| {
            format!(
                "`{}` cannot be {value} in the runtime key {}: its mapping does not lead there and \
                 back; choose another value, or map this one",
                self.def.key, self.runtime_key
            )
        })
    }
}

/// Without the dust that a multiplication leaves: 0.07 of 100 is 7.
fn scaled(number: f64) -> String {
    const PLACES: f64 = 1e9;
    let rounded = (number * PLACES).round() / PLACES;
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, &str)]) -> EnvoyValue {
        let own = |(value, text): &(&str, &str)| ((*value).to_owned(), (*text).to_owned());
        EnvoyValue::Table(rows.iter().map(own).collect())
    }

    #[test]
    fn shares_become_percent_and_come_back_the_same() {
        let flag = EnvoyFlag::new("retry.budget_ratio", "r", EnvoyValue::Scale(100.0));
        let flag = flag.expect("a good mapping");
        for percent in 0..=100 {
            let share = FlagValue::Number(f64::from(percent) / 100.0);
            assert_eq!(flag.write(&share), Ok(percent.to_string()));
            assert_eq!(flag.read(&percent.to_string()), share);
        }
        assert_eq!(flag.read("250"), FlagValue::Word("250".to_owned()), "shown as it stands there");
        assert_eq!(flag.read("many"), FlagValue::Word("many".to_owned()));
        let fine = FlagValue::Number(0.123_456_789_012_3);
        assert!(flag.write(&fine).expect_err("would not come back").contains("and back"));
        assert!(flag.write(&FlagValue::Word("differs".to_owned())).is_err());
    }

    #[test]
    fn a_table_writes_what_it_knows() {
        let table = rows(&[("1", "0"), ("2", "3")]);
        let flag = EnvoyFlag::new("retry.max_attempts", "r", table).expect("a good mapping");
        assert_eq!(flag.write(&FlagValue::Number(1.0)), Ok("0".to_owned()));
        assert_eq!(flag.read("3"), FlagValue::Number(2.0));
        assert!(flag.write(&FlagValue::Number(4.0)).is_err());
        let table = rows(&[("true", "100"), ("false", "0")]);
        let flag = EnvoyFlag::new("breaker.enabled", "r", table).expect("a good mapping");
        assert_eq!(flag.write(&FlagValue::Bool(false)), Ok("0".to_owned()));
    }

    #[test]
    fn a_mapping_that_cannot_work_says_why() {
        let check = |key: &str, runtime_key: &str, value: EnvoyValue, expected: &str| {
            let error = EnvoyFlag::new(key, runtime_key, value).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("retry.nothing", "r", EnvoyValue::Scale(1.0), "no flag `retry.nothing`");
        check("retry.max_attempts", "", EnvoyValue::Scale(1.0), "no runtime key");
        check("retry.max_attempts", "r", EnvoyValue::Scale(0.0), "above 0");
        check("retry.max_attempts", "r", EnvoyValue::Scale(f64::NAN), "above 0");
        check("retry.owner", "r", EnvoyValue::Scale(1.0), "others a table");
        check("retry.owner", "r", rows(&[("nobody", "1")]), "gateway, client");
        check("retry.owner", "r", rows(&[("client", "")]), "a text of its own");
        check("retry.owner", "r", rows(&[("client", "1"), ("gateway", "1")]), "`1` twice");
        check("retry.owner", "r", rows(&[("client", "1"), ("client", "2")]), "of its own");
    }
}
