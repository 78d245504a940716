//! The format of `NAME.test.toml`: cases with what must come out, and thresholds written a second time.
//! Reads text and names the line of what is wrong; runs nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::diagnosis::{Standing, Truth};
use crate::signal::{Value, definition, parse_duration};

use super::blocks::line_of;
use super::series::expand;
use super::values::value_of;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) runbook: String,
    pub(super) interval: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) case: Vec<Case>,
    #[serde(default)]
    pub(super) pin: Vec<PinBlock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    #[serde(default)]
    pub(super) flags: BTreeMap<String, toml::Value>,
    #[serde(default)]
    pub(super) series: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) values: BTreeMap<String, Spanned<toml::Value>>,
    pub(super) recording: Option<Spanned<String>>,
    pub(super) scope: Option<String>,
    pub(super) expect: Vec<Expect>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) at: Spanned<String>,
    #[serde(default)]
    pub(super) flags: BTreeMap<String, toml::Value>,
    pub(super) from: Option<String>,
    #[serde(default)]
    pub(super) answers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) acted: BTreeMap<String, Outcome>,
    pub(super) path: Option<Vec<String>>,
    #[serde(default)]
    pub(super) evidence: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) verify: BTreeMap<String, Truth>,
    pub(super) standing: Option<StandingWord>,
    #[serde(default)]
    pub(super) causes: BTreeMap<String, StandingWord>,
    pub(super) verdict: Option<String>,
    #[serde(default)]
    pub(super) rank: Vec<String>,
    pub(super) offer: Option<String>,
    pub(super) allow: Option<String>,
    pub(super) refuse: Option<String>,
}

/// The path of a series and its samples; `None` stands for no sample.
pub(super) type Samples<'a> = (&'a str, Vec<Option<f64>>);

/// One threshold, written a second time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PinBlock {
    pub(super) evidence: Spanned<String>,
    pub(super) holds: Spanned<toml::Value>,
    pub(super) fails: Spanned<toml::Value>,
    pub(super) after: Option<Spanned<String>>,
    pub(super) stays: Option<Spanned<toml::Value>>,
    pub(super) clears: Option<Spanned<toml::Value>>,
    #[serde(default)]
    pub(super) given: BTreeMap<String, Spanned<toml::Value>>,
}

/// How a flip went.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Verified,
    Failed,
    Unknown,
    Undo,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StandingWord {
    Confirmed,
    Likely,
    Contradicted,
    CannotTell,
    RuledOut,
}

impl StandingWord {
    pub(super) const fn standing(self) -> Standing {
        match self {
            Self::Confirmed => Standing::Confirmed,
            Self::Likely => Standing::Likely,
            Self::Contradicted => Standing::Contradicted,
            Self::CannotTell => Standing::CannotTell,
            Self::RuledOut => Standing::RuledOut,
        }
    }
}

/// A test file that could be read.
#[derive(Debug)]
pub struct TestFile {
    name: String,
    text: String,
    pub(super) file: File,
}

impl TestFile {
    /// Reads the text of a test file.
    ///
    /// # Errors
    /// A sentence with file, line and key.
    pub fn read(name: &str, text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            format!("{name}:{line}: {}; see runbooks/README.md, Tests", error.message())
        })?;
        Ok(Self { name: name.to_owned(), text: text.to_owned(), file })
    }

    /// The file of the runbook that is tested, beside the test file.
    #[must_use]
    pub fn runbook(&self) -> &str {
        &self.file.runbook
    }

    /// How many expectations there are, pins included.
    #[must_use]
    pub fn expectations(&self) -> usize {
        self.file.case.iter().map(|case| case.expect.len()).sum::<usize>() + self.file.pin.len()
    }

    /// The distance between samples, where the file gives one.
    pub(super) fn interval(&self) -> Result<Option<Duration>, String> {
        let Some(interval) = &self.file.interval else { return Ok(None) };
        match self.span(interval)? {
            Duration::ZERO => {
                Err(format!("{}: `interval` is zero; write `15s`", self.place(interval)))
            }
            interval => Ok(Some(interval)),
        }
    }

    pub(super) fn span(&self, text: &Spanned<String>) -> Result<Duration, String> {
        parse_duration(text.get_ref()).ok_or_else(|| {
            let place = self.place(text);
            format!("{place}: `{}` is no duration; write `15s` or `63m`", text.get_ref())
        })
    }

    /// The name that it was read by.
    pub(super) fn file_name(&self) -> &str {
        &self.name
    }

    /// `file:line` of something in the file.
    pub(super) fn place<T>(&self, spanned: &Spanned<T>) -> String {
        format!("{}:{}", self.name, line_of(&self.text, spanned.span().start))
    }

    /// The samples of every series of a case, by path.
    pub(super) fn samples<'a>(&self, case: &'a Case) -> Result<Vec<Samples<'a>>, String> {
        let mut series = Vec::new();
        for (path, notation) in &case.series {
            let samples = expand(notation.get_ref()).map_err(|item| {
                let place = self.place(notation);
                format!("{place}: `{path}`: `{item}` is no item; write `a+bxn`, `axn` or `_`")
            })?;
            self.known(path, notation)?;
            series.push((path.as_str(), samples));
        }
        Ok(series)
    }

    /// Constants by path, as snapshots hold them.
    pub(super) fn constants<'a>(
        &self,
        values: &'a BTreeMap<String, Spanned<toml::Value>>,
    ) -> Result<Vec<(&'a str, Value)>, String> {
        let mut constants = Vec::new();
        for (path, value) in values {
            self.known(path, value)?;
            constants.push((path.as_str(), self.value(path, value)?));
        }
        Ok(constants)
    }

    /// One constant as snapshots hold it.
    pub(super) fn value(&self, path: &str, value: &Spanned<toml::Value>) -> Result<Value, String> {
        value_of(value.get_ref()).ok_or_else(|| {
            let place = self.place(value);
            format!("{place}: `{path}` is no value; write a number, word, boolean, table or array")
        })
    }

    /// A misspelt signal would be one that is missing, and test nothing.
    pub(super) fn known<T>(&self, path: &str, at: &Spanned<T>) -> Result<(), String> {
        let root = path.split('.').next().unwrap_or(path);
        if definition(root).is_some() {
            return Ok(());
        }
        let place = self.place(at);
        Err(format!("{place}: `{root}` is no signal; `weir signals --list` names those there are"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        let check = |text: &str, words: &str| {
            let text = format!("runbook = \"x\"\ninterval = \"5s\"\n{text}");
            let error = TestFile::read("x.test.toml", &text).expect_err(&text);
            assert!(error.starts_with("x.test.toml:"), "{error}");
            assert!(error.contains(words), "{text}: {error}");
        };
        check("[[case]]\nname = \"a\"\nexpects = []", "5: unknown field `expects`");
        let expect = "[[case]]\nname = \"a\"\n[[case.expect]]\nat = \"5s\"\n";
        check(&format!("{expect}standing = \"sure\""), "7: unknown variant `sure`");
        check(&format!("{expect}acted = {{ a = \"done\" }}"), "7: unknown variant `done`");
        check("[[pin]]\nevidence = \"a\"\nholds = 1", "missing field `fails`");
    }

    #[test]
    fn a_signal_that_is_none_is_refused() {
        let text = "runbook = \"x\"\n[[case]]\nname = \"a\"\nexpect = []\n\
                    series = { tpm_hedroom = \"1\" }\nvalues = { \"breaker.state\" = 1979-01-01 }";
        let tests = TestFile::read("x.test.toml", text).expect(text);
        let error = tests.samples(&tests.file.case[0]).expect_err("misspelt");
        assert!(error.starts_with("x.test.toml:5: `tpm_hedroom` is no signal"), "{error}");
        let error = tests.constants(&tests.file.case[0].values).expect_err("a date");
        assert!(error.starts_with("x.test.toml:6: `breaker.state` is no value"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = TestFile::read("x", &text);
        }
    }
}
