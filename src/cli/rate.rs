//! `weir rate`: rates, increases and quantiles over given samples, as Prometheus 3 computes them.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use color_eyre::eyre::{Context, Result, bail};
use serde::{Deserialize, Deserializer};
use serde_json::{Value as Json, json};

use super::scrape::{number, read};
use crate::signal::promql::{Function, Query, Sample, Series, evaluate, stale_marker};
use crate::signal::{Labels, NativeHistogram, NativeSide};

/// The function over a native histogram; all others are made of parts.
const NATIVE_QUANTILE: &str = "native_histogram_quantile";

/// Computes rates, increases and histogram quantiles over given samples, as Prometheus 3 does.
///
/// A vector is an object with `id`, `fn`, `series`, `eval_s`, and `range_s`, `offset_s`, `by` and
/// `q` where the function needs them. FILE holds one, several as JSON Lines, a list, or an object
/// with a list of `vectors`. `fn` is `instant`, `rate`, `increase`, `delta`, `irate`, `idelta`,
/// `resets`, `changes`, `count_over_time`, with `sum_` before it for the sum over `by`, and
/// `histogram_quantile_of_` before that; or `histogram_quantile`, or `native_histogram_quantile`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file, or `-` for stdin
    #[arg(value_name = "FILE")]
    pub source: String,
    /// Print JSON: `id` and `result` per vector, `result` as pairs of labels and value
    #[arg(long)]
    pub json: bool,
}

/// Prints the result of every vector in a file.
///
/// # Errors
///
/// When the file cannot be read, or a vector asks for something that cannot be computed.
pub fn run(args: &Args) -> Result<ExitCode> {
    let text = String::from_utf8(read(&args.source)?)
        .wrap_err_with(|| format!("{}: not valid UTF-8", args.source))?;
    let input = vectors(&quoted(&text)).wrap_err_with(|| args.source.clone())?;
    let mut out = std::io::stdout().lock();
    let answers = |vectors: &[Vector]| vectors.iter().map(answer).collect::<Result<Vec<_>>>();
    match input {
        Input::One(vector) => print(&mut out, args.json, &[answer(&vector)?])?,
        Input::Lines(vectors) => print(&mut out, args.json, &answers(&vectors)?)?,
        Input::List(vectors) if args.json => {
            let answers: Vec<_> = answers(&vectors)?.iter().map(Answer::json).collect();
            writeln!(out, "{}", Json::from(answers))?;
        }
        Input::List(vectors) => print(&mut out, false, &answers(&vectors)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What a file holds; the answer has the same form.
enum Input {
    One(Box<Vector>),
    Lines(Vec<Vector>),
    List(Vec<Vector>),
}

fn vectors(text: &str) -> Result<Input> {
    let documents: Vec<Json> = serde_json::Deserializer::from_str(text)
        .into_iter()
        .collect::<Result<_, _>>()
        .wrap_err("not JSON")?;
    let list = |items: Vec<Json>| -> Result<Vec<Vector>> {
        let vector = |(index, item): (usize, Json)| {
            let id = item.get("id").map_or_else(|| index.to_string(), Json::to_string);
            serde_json::from_value(item).wrap_err_with(|| format!("vector {id}"))
        };
        items.into_iter().enumerate().map(vector).collect()
    };
    let mut documents = documents;
    if documents.len() != 1 {
        return Ok(Input::Lines(list(documents)?));
    }
    Ok(match documents.remove(0) {
        Json::Array(items) => Input::List(list(items)?),
        Json::Object(mut object) => match object.remove("vectors") {
            Some(Json::Array(items)) => Input::List(list(items)?),
            Some(_) => bail!("`vectors` is not a list"),
            None => {
                let vector = serde_json::from_value(Json::Object(object)).wrap_err("vector")?;
                Input::One(Box::new(vector))
            }
        },
        _ => bail!("neither a vector nor a list of vectors"),
    })
}

/// The text with bare `NaN`, `Infinity` and `-Infinity` in quotes: JSON has no such numbers, but
/// the writers of several languages make them all the same.
fn quoted(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    for (index, part) in split_at_quotes(text).enumerate() {
        if index % 2 == 1 {
            whole.push_str(part);
            continue;
        }
        let part = part.replace("-Infinity", "\"-Inf\"").replace("NaN", "\"NaN\"");
        whole.push_str(&part.replace("Infinity", "\"+Inf\""));
    }
    whole
}

/// Splits JSON at its quotes: every second part is a string with its quotes.
fn split_at_quotes(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let mut in_string = false;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = if in_string { closing_quote(rest) } else { rest.find('"') };
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        in_string = !in_string;
        rest = after;
        Some(part)
    })
}

/// Just behind the quote that closes the string at the beginning of `text`.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().enumerate().skip(1).find_map(|(index, byte)| {
        let closes = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        closes.then_some(index + 1)
    })
}

#[derive(Debug, Deserialize)]
struct Vector {
    id: Json,
    #[serde(rename = "fn")]
    function: String,
    #[serde(default)]
    q: Option<Number>,
    #[serde(default)]
    range_s: Option<f64>,
    #[serde(default)]
    offset_s: Option<f64>,
    #[serde(default)]
    eval_s: f64,
    #[serde(default)]
    by: Option<Vec<String>>,
    #[serde(default)]
    series: Vec<VectorSeries>,
    #[serde(default)]
    histogram: Option<VectorHistogram>,
}

#[derive(Debug, Deserialize)]
struct VectorSeries {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    samples: Vec<(f64, Number)>,
}

/// A native histogram, by the keys of Prometheus' own test language.
#[derive(Debug, Deserialize)]
struct VectorHistogram {
    #[serde(default)]
    schema: i32,
    #[serde(default)]
    count: f64,
    #[serde(default)]
    sum: Number,
    #[serde(default)]
    z_bucket: f64,
    #[serde(default)]
    z_bucket_w: f64,
    #[serde(default)]
    offset: i32,
    #[serde(default)]
    buckets: Vec<f64>,
    #[serde(default)]
    n_offset: i32,
    #[serde(default)]
    n_buckets: Vec<f64>,
    #[serde(default)]
    custom_values: Vec<f64>,
}

/// A number, or one of the words `NaN`, `+Inf`, `-Inf` and `stale`.
#[derive(Clone, Copy, Debug, Default)]
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        match Json::deserialize(deserializer)? {
            Json::Number(number) => number.as_f64().map(Self),
            Json::String(word) if word == "stale" => Some(Self(stale_marker())),
            Json::String(word) => word.parse().ok().map(Self),
            _ => None,
        }
        .ok_or_else(|| D::Error::custom("expected a number, `NaN`, `+Inf`, `-Inf` or `stale`"))
    }
}

struct Answer {
    id: Json,
    result: Vec<(Labels, f64)>,
}

impl Answer {
    fn json(&self) -> Json {
        let pair = |(labels, value): &(Labels, f64)| {
            let labels: serde_json::Map<_, _> =
                labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            json!([labels, number(*value)])
        };
        json!({ "id": self.id, "result": self.result.iter().map(pair).collect::<Vec<_>>() })
    }
}

fn answer(vector: &Vector) -> Result<Answer> {
    let id = vector.id.clone();
    let result = result(vector).wrap_err_with(|| format!("vector {id}"))?;
    Ok(Answer { id, result })
}

fn result(vector: &Vector) -> Result<Vec<(Labels, f64)>> {
    if vector.function == NATIVE_QUANTILE {
        let (Some(histogram), Some(q)) = (&vector.histogram, vector.q) else {
            bail!("`{NATIVE_QUANTILE}` needs `histogram` and `q`");
        };
        return Ok(vec![(Labels::default(), histogram.read().quantile(q.0))]);
    }
    let query = query(vector)?;
    let series: Vec<_> = vector.series.iter().map(VectorSeries::read).collect();
    Ok(evaluate(&query, &series))
}

fn query(vector: &Vector) -> Result<Query> {
    let name = vector.function.as_str();
    let (is_quantile, inner) = match name.strip_prefix("histogram_quantile") {
        Some("") => (true, "instant"),
        Some(rest) => (true, rest.strip_prefix("_of_").unwrap_or(rest)),
        None => (false, name),
    };
    let (is_sum, inner) = match inner.strip_prefix("sum_") {
        Some(rest) => (true, rest),
        None => (false, inner),
    };
    let Some(function) = Function::of_name(inner) else {
        bail!("`fn` is `{name}`, which is none of the functions that `weir rate --help` lists");
    };
    let quantile = match (is_quantile, vector.q) {
        (true, None) => bail!("`{name}` needs `q`"),
        (true, Some(q)) => Some(q.0),
        (false, _) => None,
    };
    let range_ms = match vector.range_s {
        Some(range_s) if range_s > 0.0 => milliseconds(range_s),
        None if function == Function::Newest => 0,
        _ => bail!("`{name}` needs `range_s`, above zero"),
    };
    Ok(Query {
        function,
        eval_ms: milliseconds(vector.eval_s),
        offset_ms: milliseconds(vector.offset_s.unwrap_or_default()),
        range_ms,
        sum_by: is_sum.then(|| vector.by.clone().unwrap_or_default()),
        quantile,
    })
}

impl VectorSeries {
    fn read(&self) -> Series {
        let mut samples: Vec<_> = self
            .samples
            .iter()
            .map(|(at_s, value)| Sample { at_ms: milliseconds(*at_s), value: value.0 })
            .collect();
        samples.sort_by_key(|sample| sample.at_ms);
        Series { labels: self.labels.iter().map(|(n, v)| (&**n, &**v)).collect(), samples }
    }
}

impl VectorHistogram {
    fn read(&self) -> NativeHistogram {
        NativeHistogram {
            schema: self.schema,
            count: self.count,
            sum: self.sum.0,
            zero_width: self.z_bucket_w,
            zero_count: self.z_bucket,
            positive: NativeSide { offset: self.offset, counts: self.buckets.clone() },
            negative: NativeSide { offset: self.n_offset, counts: self.n_buckets.clone() },
            custom_bounds: self.custom_values.clone(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

fn print(out: &mut impl Write, json: bool, answers: &[Answer]) -> Result<()> {
    for answer in answers {
        if json {
            writeln!(out, "{}", answer.json())?;
            continue;
        }
        let id = answer.id.as_str().map_or_else(|| answer.id.to_string(), str::to_owned);
        if answer.result.is_empty() {
            writeln!(out, "{id}  no result")?;
        }
        for (labels, value) in &answer.result {
            let labels: Vec<_> =
                labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            writeln!(out, "{id}  {{{}}} {value}", labels.join(", "))?;
        }
    }
    Ok(())
}
