//! Reads the JSON that a query of Prometheus' HTTP API is answered with. Does no I/O, never panics.
//!
//! Takes what Prometheus 2 and 3, Thanos, Mimir and `VictoriaMetrics` send. Native histograms are
//! kept as the fact that there was one; no query of weir asks for them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use thiserror::Error;

use crate::signal::Labels;

/// Most warnings and infos of one answer that are kept, each.
const NOTICES_MAX: usize = 16;
/// Characters of a notice or an error that are kept.
const NOTICE_CHARS_MAX: usize = 300;
/// What warnings about the query itself begin with; others are about data that is missing.
const ABOUT_THE_QUERY: &str = "PromQL ";

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T = Data> {
    /// What was asked for.
    pub data: T,
    /// Doubts about the answer.
    pub warnings: Vec<String>,
    /// Hints about the query.
    pub infos: Vec<String>,
    /// Whether a part of the data is missing: said outright, or by a warning that is not about the
    /// query. Thanos has no other way to say it.
    pub is_partial: bool,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// A number, NaN and infinities among them.
    Number(f64),
    /// A native histogram, whose buckets are not kept.
    Histogram,
}

/// One series of a result, with times in seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its labels, `__name__` among them where it has one.
    pub labels: Labels,
    /// Its values by time; one in a vector.
    pub samples: Vec<(f64, Sample)>,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// One number.
    Scalar(f64, f64),
    /// One text.
    String(f64, String),
    /// Series with one value each.
    Vector(Vec<Series>),
    /// Series with several values.
    Matrix(Vec<Series>),
}

/// Why a body is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The API says no.
    #[error("{kind}: {message}")]
    Refused {
        /// The kind, such as `bad_data`; a status in digits from `VictoriaMetrics`.
        kind: String,
        /// Why.
        message: String,
    },
    /// It is JSON of something else, or none.
    #[error("{0}")]
    Unreadable(String),
}

/// Reads the answer to `query` or `query_range`.
///
/// # Errors
///
/// When the API refuses, or the body is not what the API sends.
pub fn parse_answer(body: &[u8]) -> Result<Answer, AnswerError> {
    let Answer { data, warnings, infos, is_partial } = parse::<Raw>(body)?;
    Ok(Answer { data: data.read()?, warnings, infos, is_partial })
}

/// Reads any answer of the API.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<Answer<T>, AnswerError> {
    // The status first: an error has no data, and its data may be of another shape.
    let envelope: Envelope<IgnoredAny> = json(body)?;
    if envelope.status != "success" {
        let kind = envelope.error_type.unwrap_or_else(|| "error".to_owned());
        let message = envelope.error.unwrap_or_else(|| "no reason given".to_owned());
        return Err(AnswerError::Refused { kind: cut(&kind), message: cut(&message) });
    }
    let Envelope { data, warnings, infos, is_partial, .. } = json::<Envelope<T>>(body)?;
    let data =
        data.ok_or_else(|| AnswerError::Unreadable("an answer without `data`".to_owned()))?;
    let warnings = notices(warnings);
    let lacks = warnings.iter().any(|warning| !warning.starts_with(ABOUT_THE_QUERY));
    let is_partial = is_partial.unwrap_or(false) || lacks;
    Ok(Answer { data, warnings, infos: notices(infos), is_partial })
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, AnswerError> {
    serde_json::from_slice(body).map_err(|error| AnswerError::Unreadable(cut(&error.to_string())))
}

fn notices(texts: Option<Vec<String>>) -> Vec<String> {
    texts.unwrap_or_default().iter().take(NOTICES_MAX).map(|text| cut(text)).collect()
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NOTICE_CHARS_MAX).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<T> {
    status: String,
    data: Option<T>,
    error_type: Option<String>,
    error: Option<String>,
    warnings: Option<Vec<String>>,
    infos: Option<Vec<String>>,
    is_partial: Option<bool>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Raw {
    Scalar((f64, String)),
    String((f64, String)),
    Vector(Vec<RawSeries>),
    Matrix(Vec<RawSeries>),
}

#[derive(Deserialize)]
struct RawSeries {
    #[serde(default)]
    metric: BTreeMap<Box<str>, Box<str>>,
    value: Option<(f64, String)>,
    values: Option<Vec<(f64, String)>>,
    histogram: Option<(f64, IgnoredAny)>,
    histograms: Option<Vec<(f64, IgnoredAny)>>,
}

impl Raw {
    fn read(self) -> Result<Data, AnswerError> {
        let all = |series: Vec<RawSeries>| {
            series.into_iter().map(RawSeries::read).collect::<Result<_, _>>()
        };
        Ok(match self {
            Self::Scalar((at_s, text)) => Data::Scalar(at_s, number(&text)?),
            Self::String((at_s, text)) => Data::String(at_s, text),
            Self::Vector(series) => Data::Vector(all(series)?),
            Self::Matrix(series) => Data::Matrix(all(series)?),
        })
    }
}

impl RawSeries {
    fn read(self) -> Result<Series, AnswerError> {
        let mut samples = Vec::new();
        for (at_s, text) in self.value.into_iter().chain(self.values.into_iter().flatten()) {
            samples.push((at_s, Sample::Number(number(&text)?)));
        }
        let histograms = self.histogram.into_iter().chain(self.histograms.into_iter().flatten());
        samples.extend(histograms.map(|(at_s, _)| (at_s, Sample::Histogram)));
        samples.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok(Series { labels: self.metric.into_iter().collect(), samples })
    }
}

/// A value as Prometheus writes it: `1.5`, `NaN`, `+Inf`.
fn number(text: &str) -> Result<f64, AnswerError> {
    text.parse().map_err(|_| AnswerError::Unreadable(format!("`{}` is no value", cut(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(name: &str) -> Vec<u8> {
        let path = format!("{}/tests/data/prometheus/{name}.json", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn data(body: &str) -> Data {
        parse_answer(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}")).data
    }

    fn vector(result: &str) -> Vec<Series> {
        let body = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#
        );
        let Data::Vector(series) = data(&body) else { panic!("{body}") };
        series
    }

    #[test]
    fn answers_of_a_real_prometheus_are_read() {
        for (name, series) in [
            ("query-up", 4),
            ("query-post", 4),
            ("query-empty", 0),
            ("query-nan", 1),
            ("query-stats-warn", 4),
        ] {
            let Data::Vector(found) = parse_answer(&fact(name)).expect(name).data else {
                panic!("{name}");
            };
            assert_eq!(found.len(), series, "{name}");
            assert!(found.iter().all(|series| series.samples.len() == 1), "{name}");
        }
        let Data::Matrix(found) = parse_answer(&fact("query_range-p99")).expect("read").data else {
            panic!("a matrix");
        };
        assert_eq!(found[0].samples.len(), 5);
        let (at_s, Sample::Number(first)) = found[0].samples[0] else { panic!("a number") };
        assert!(first.is_nan() && at_s > 1.7e9);
        let scalar = parse_answer(&fact("query-scalar")).expect("read").data;
        assert!(matches!(scalar, Data::Scalar(_, 1.0)), "{scalar:?}");
        let string = parse_answer(&fact("query-string")).expect("read").data;
        assert!(matches!(&string, Data::String(_, text) if text == "hi"), "{string:?}");
    }

    #[test]
    fn refusals_of_a_real_prometheus_keep_kind_and_reason() {
        for (name, kind, part) in [
            ("error-parse", "bad_data", "parse error"),
            ("error-too-many-points", "bad_data", "11,000 points"),
            ("error-many-to-many", "execution", "many-to-many"),
        ] {
            match parse_answer(&fact(name)) {
                Err(AnswerError::Refused { kind: got, message }) => {
                    assert!(got == kind && message.contains(part), "{name}: {got}: {message}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(matches!(parse_answer(&fact("error-404")), Err(AnswerError::Unreadable(_))));
    }

    #[test]
    fn numbers_come_as_text_and_histograms_do_not_hurt() {
        for (text, expected) in
            [("1.5", 1.5), ("+Inf", f64::INFINITY), ("-Inf", f64::NEG_INFINITY), ("1e3", 1000.0)]
        {
            let series = vector(&format!(r#"{{"metric":{{"a":"b"}},"value":[1.5,"{text}"]}}"#));
            assert_eq!(series[0].samples, [(1.5, Sample::Number(expected))], "{text}");
            assert_eq!(series[0].labels.get("a"), Some("b"));
        }
        let series = vector(
            r#"{"metric":{},"histogram":[1,{"count":"3","sum":"2","buckets":[[0,"1","2","3"]]}]}"#,
        );
        assert_eq!(series[0].samples, [(1.0, Sample::Histogram)]);
    }

    #[test]
    fn the_order_of_keys_does_not_matter_and_unknown_ones_are_let_pass() {
        let body = r#"{"isPartial":false,"stats":{"x":[]},"data":{"stats":{},"result":
            [{"value":[1,"2"],"metric":{}}],"resultType":"vector"},"status":"success"}"#;
        assert!(matches!(data(body), Data::Vector(series) if series.len() == 1));
    }

    #[test]
    fn only_missing_data_makes_an_answer_partial() {
        for (extra, is_partial) in [
            ("", false),
            (r#","warnings":["PromQL warning: bucket label \"le\" is missing"]"#, false),
            (r#","infos":["PromQL info: metric might not be a counter"]"#, false),
            (r#","warnings":["No StoreAPIs matched for this query"]"#, true),
            (r#","isPartial":true"#, true),
            (r#","warnings":null"#, false),
        ] {
            let body = format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":[]}}{extra}}}"#
            );
            let answer = parse_answer(body.as_bytes()).expect("read");
            assert_eq!(answer.is_partial, is_partial, "{extra}");
            let said = answer.warnings.len() + answer.infos.len();
            assert_eq!(said, usize::from(extra.contains("[\"")), "{extra}");
        }
    }

    #[test]
    fn anything_else_says_what_it_is() {
        for (body, part) in [
            ("", "EOF"),
            ("<html>", "expected value"),
            ("[]", "invalid"),
            (r#"{"status":"success"}"#, "without `data`"),
            (r#"{"status":"error"}"#, "no reason given"),
            (r#"{"status":"error","errorType":"422","error":"x"}"#, "422: x"),
            (
                r#"{"status":"success","data":{"resultType":"streams","result":[]}}"#,
                "unknown variant `streams`",
            ),
            (
                r#"{"status":"success","data":{"resultType":"scalar","result":[1,"x"]}}"#,
                "`x` is no value",
            ),
            (
                r#"{"status":"success","data":{"resultType":"vector","result":[{"value":[1,2]}]}}"#,
                "invalid type",
            ),
        ] {
            let error = parse_answer(body.as_bytes()).expect_err(body).to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
    }
}
