//! What is said about the quality of answers: by the application in a JSON or JSON Lines file, or by its
//! signals while a drill is played.
//!
//! Each record holds some of `citation_valid_share`, `retrieval_coverage` and `grounded_share`, from 0
//! to 1 or true or false, of as many answers as its `answers` says (one without it). What a record
//! lacks, or holds as null, it does not tell. Other keys are the application's own.

use std::path::{Path, PathBuf};

use serde_json::{Deserializer, Value};
use thiserror::Error;

use super::bounds::{Figures, Measure};
use crate::signal::Snapshot;

/// Largest file.
const FILE_LEN_MAX: u64 = 64 * 1024 * 1024;

/// Why a quality file cannot be used.
#[derive(Debug, Error)]
pub enum QualityError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is larger than a quality file can be.
    #[error("{} is larger than {FILE_LEN_MAX} bytes; write one record per run, with `answers`", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A record is wrong.
    #[error("{file}:{line}: {problem}; {remedy}")]
    Wrong {
        /// The file.
        file: String,
        /// The line at which reading stopped, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
        /// What is allowed.
        remedy: &'static str,
    },
}

/// Reads the means over all records of a file.
///
/// # Errors
/// It cannot be read, or one of its records is wrong.
pub fn read(path: &Path) -> Result<Figures, QualityError> {
    let unreadable = |source| QualityError::Unreadable { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_LEN_MAX {
        return Err(QualityError::TooLarge { path: path.to_owned() });
    }
    parse(&path.display().to_string(), &std::fs::read_to_string(path).map_err(unreadable)?)
}

/// A mean under way.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    answers: f64,
}

/// The means of all shares under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Means([Mean; Measure::OF_QUALITY.len()]);

impl Means {
    /// Adds what the signals say of quality now; of what they do not know, nothing.
    pub fn see(&mut self, snapshot: &Snapshot) {
        for (mean, measure) in self.0.iter_mut().zip(Measure::OF_QUALITY) {
            if let Some(share) = snapshot.number(measure.word()) {
                mean.sum += share;
                mean.answers += 1.0;
            }
        }
    }

    /// The means; what nobody told is unknown.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let told = Measure::OF_QUALITY.into_iter().zip(self.0);
        let known = told.filter(|(_, mean)| mean.answers > 0.0);
        known.map(|(measure, mean)| (measure, mean.sum / mean.answers)).collect()
    }
}

fn parse(file: &str, text: &str) -> Result<Figures, QualityError> {
    let mut means = Means::default();
    let mut documents = Deserializer::from_str(text).into_iter::<Value>();
    while let Some(document) = documents.next() {
        let before = &text[..documents.byte_offset().min(text.len())];
        let line = before.trim_end().lines().count().max(1);
        let wrong = |problem: String, remedy| QualityError::Wrong {
            file: file.to_owned(),
            line,
            problem,
            remedy,
        };
        let document = document.map_err(|error| QualityError::Wrong {
            file: file.to_owned(),
            line: error.line(),
            problem: error.to_string(),
            remedy: "write JSON, or one JSON object per line",
        })?;
        let records = match document {
            Value::Array(records) => records,
            one => vec![one],
        };
        for record in &records {
            add(&mut means.0, record).map_err(|(problem, remedy)| wrong(problem, remedy))?;
        }
    }
    Ok(means.figures())
}

fn add(means: &mut [Mean], record: &Value) -> Result<(), (String, &'static str)> {
    let Value::Object(fields) = record else {
        return Err((format!("{record} is no record"), "write an object with the shares as keys"));
    };
    let answers = match fields.get("answers") {
        None | Some(Value::Null) => 1.0,
        Some(value) => {
            value.as_f64().filter(|answers| (0.0..1e15).contains(answers)).ok_or_else(|| {
                (format!("`answers` is {value}"), "write how many answers the record is about")
            })?
        }
    };
    for (mean, measure) in means.iter_mut().zip(Measure::OF_QUALITY) {
        let share = match fields.get(measure.word()) {
            None | Some(Value::Null) => continue,
            Some(Value::Bool(yes)) => f64::from(u8::from(*yes)),
            Some(value) => {
                value.as_f64().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| {
                    (format!("`{}` is {value}", measure.word()), "write a share from 0 to 1")
                })?
            }
        };
        mean.sum += share * answers;
        mean.answers += answers;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(text: &str) -> Vec<Option<f64>> {
        let figures = parse("q.json", text).expect(text);
        Measure::OF_QUALITY.iter().map(|measure| figures.get(measure).copied()).collect()
    }

    #[test]
    fn records_are_weighed_by_their_answers_and_absence_is_unknown() {
        assert_eq!(shares(""), [None, None, None]);
        assert_eq!(
            shares(r#"{"citation_valid_share": 0.5, "grounded_share": null, "other": [1]}"#),
            [Some(0.5), None, None]
        );
        let lines = "{\"citation_valid_share\": true}\n{\"citation_valid_share\": false}\n\n\
                     {\"retrieval_coverage\": 0.25, \"answers\": 3}\n{\"retrieval_coverage\": 1}\n";
        assert_eq!(shares(lines), [Some(0.5), Some(0.4375), None]);
        assert_eq!(shares("[{\"grounded_share\": 1}, {\"grounded_share\": 0}]")[2], Some(0.5));
        assert_eq!(shares("{\"grounded_share\": 1, \"answers\": 0}")[2], None, "of no answers");
    }

    #[test]
    fn errors_name_the_line() {
        let check = |text: &str, expected: &str| {
            let error = parse("q.json", text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        check(
            "{}\n{\"grounded_share\": 1.5}\n",
            "q.json:2: `grounded_share` is 1.5; write a share",
        );
        check("{}\n\n{\"grounded_share\": \"high\"}", "q.json:3: `grounded_share` is \"high\"");
        check("{\"answers\": -1}", "q.json:1: `answers` is -1");
        check("{}\n{", "q.json:2: EOF");
        check("7", "q.json:1: 7 is no record");
    }
}
