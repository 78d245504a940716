//! A thin client of the HTTP API that Prometheus, Thanos, Mimir and `VictoriaMetrics` share.
//!
//! One request, one answer, bounded in size; everything that came with the answer is kept. Nothing is
//! retried: a poll that failed is due again in a moment, and a server in trouble is not asked twice.
//! The time limit is the caller's, because it spans several requests.

use std::time::{Duration, Instant};

use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ingest::access::Access;
use crate::ingest::transport::{TransportError, snippet, whole_body};

use super::answer::{Answer, AnswerError, Data, parse, parse_answer};
use super::error::{PrometheusError, PrometheusErrorKind as Kind};
use super::targets::Targets;

/// Largest answer that is taken, after decompression.
pub const ANSWER_BYTES_MAX: usize = 32_000_000;
/// Most steps of one range query, which is Prometheus' own limit.
pub const STEPS_MAX: u32 = 11_000;

/// An answer with how long it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<T> {
    /// The answer, with its warnings.
    pub answer: Answer<T>,
    /// From the first byte sent to the last one read.
    pub took: Duration,
}

/// A span of time in even steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// First step, in seconds since 1970.
    pub from_s: f64,
    /// Last step.
    pub to_s: f64,
    /// From step to step.
    pub step: Duration,
}

impl Range {
    /// The same with steps so long that the API takes it.
    #[must_use]
    pub fn clamped(self) -> Self {
        let span_s = (self.to_s - self.from_s).max(0.0);
        let shortest_s = (span_s / f64::from(STEPS_MAX)).ceil().max(1.0);
        let shortest = Duration::try_from_secs_f64(shortest_s).unwrap_or(Duration::MAX);
        Self { step: self.step.max(shortest), ..self }
    }
}

/// One alert of the rules of a Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    /// Its labels, `alertname` among them.
    #[serde(default)]
    pub labels: std::collections::BTreeMap<String, String>,
    /// What a person should know.
    #[serde(default)]
    pub annotations: std::collections::BTreeMap<String, String>,
    /// `pending` or `firing`.
    pub state: String,
    /// Since when, as RFC 3339.
    pub active_at: Option<String>,
}

#[derive(Deserialize)]
struct Alerts {
    #[serde(default)]
    alerts: Vec<Alert>,
}

/// One server. Connections are kept between requests.
#[derive(Clone, Debug)]
pub struct PrometheusApi {
    name: String,
    base: Url,
    client: reqwest::Client,
    access: Access,
}

impl PrometheusApi {
    /// A client of the API at `base`, path prefix included; `name` begins every error.
    ///
    /// # Errors
    ///
    /// When the address is none, or a certificate of `access` cannot be used.
    pub fn new(name: &str, base: &str, access: Access) -> Result<Self, PrometheusError> {
        let error = |kind| PrometheusError { source_name: name.to_owned(), kind };
        let address = || error(Kind::Address(base.to_owned()));
        let base = Url::parse(base.trim_end_matches('/')).map_err(|_| address())?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(address());
        }
        let client = access.client().map_err(|cause| error(Kind::Client(cause.to_string())))?;
        Ok(Self { name: name.to_owned(), base, client, access })
    }

    /// Evaluates `query` at one moment; at the server's own now without `at_s`.
    ///
    /// # Errors
    ///
    /// When there is no usable answer.
    pub async fn query(
        &self,
        query: &str,
        at_s: Option<f64>,
    ) -> Result<Reply<Data>, PrometheusError> {
        let mut form = vec![("query", query.to_owned())];
        form.extend(at_s.map(|at_s| ("time", format!("{at_s:.3}"))));
        self.ask("api/v1/query", &form, parse_answer).await
    }

    /// Evaluates `query` at every step of `range`, whose step is made long enough.
    ///
    /// # Errors
    ///
    /// When there is no usable answer.
    pub async fn query_range(
        &self,
        query: &str,
        range: Range,
    ) -> Result<Reply<Data>, PrometheusError> {
        let range = range.clamped();
        let form = [
            ("query", query.to_owned()),
            ("start", format!("{:.3}", range.from_s)),
            ("end", format!("{:.3}", range.to_s)),
            ("step", format!("{:.3}", range.step.as_secs_f64())),
        ];
        self.ask("api/v1/query_range", &form, parse_answer).await
    }

    /// The targets that are scraped now. Thanos and Mimir have none and answer 404.
    ///
    /// # Errors
    ///
    /// When there is no usable answer.
    pub async fn targets(&self) -> Result<Reply<Targets>, PrometheusError> {
        self.look_up("api/v1/targets?state=active").await
    }

    /// The alerts that are pending or firing.
    ///
    /// # Errors
    ///
    /// When there is no usable answer.
    pub async fn alerts(&self) -> Result<Reply<Vec<Alert>>, PrometheusError> {
        let Reply { answer, took } = self.look_up::<Alerts>("api/v1/alerts").await?;
        let Answer { data, warnings, infos, is_partial } = answer;
        Ok(Reply { answer: Answer { data: data.alerts, warnings, infos, is_partial }, took })
    }

    /// Sends a form: queries are longer than some proxies let a URL be. Who refuses that gets a GET.
    async fn ask<T>(
        &self,
        path: &str,
        form: &[(&str, String)],
        read: impl Fn(&[u8]) -> Result<Answer<T>, AnswerError>,
    ) -> Result<Reply<T>, PrometheusError> {
        let begun = Instant::now();
        let url = self.url(path);
        let request = self.access.apply(self.client.post(url.clone()).form(form));
        let mut response = self.sent(request).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            let request = self.access.apply(self.client.get(url).query(form));
            response = self.sent(request).await?;
        }
        self.reply(response, begun, read).await
    }

    async fn look_up<T: DeserializeOwned>(&self, path: &str) -> Result<Reply<T>, PrometheusError> {
        let begun = Instant::now();
        let request = self.access.apply(self.client.get(self.url(path)));
        let response = self.sent(request).await?;
        self.reply(response, begun, parse).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base.as_str().trim_end_matches('/'))
    }

    async fn sent(&self, request: reqwest::RequestBuilder) -> Result<Response, PrometheusError> {
        request.send().await.map_err(|error| self.error(TransportError::of(&error).into()))
    }

    async fn reply<T>(
        &self,
        mut response: Response,
        begun: Instant,
        read: impl Fn(&[u8]) -> Result<Answer<T>, AnswerError>,
    ) -> Result<Reply<T>, PrometheusError> {
        let status = response.status().as_u16();
        let body = whole_body(&mut response, ANSWER_BYTES_MAX).await;
        let body = body.map_err(|error| self.error(error.into()))?;
        match read(&body) {
            Ok(answer) if status == 200 => Ok(Reply { answer, took: begun.elapsed() }),
            Err(AnswerError::Refused { kind, message }) => {
                Err(self.error(refusal(status, &kind, message, &self.base)))
            }
            Err(AnswerError::Unreadable(cause)) if status == 200 => {
                Err(self.error(Kind::Unreadable { cause }))
            }
            Ok(_) | Err(AnswerError::Unreadable(_)) => {
                Err(self.error(refusal(status, "", snippet(&body), &self.base)))
            }
        }
    }

    /// An error of this source.
    pub(super) fn error(&self, kind: Kind) -> PrometheusError {
        PrometheusError { source_name: self.name.clone(), kind }
    }
}

/// What a refusal means, by its status, and by its kind where a proxy changed the status.
fn refusal(status: u16, kind: &str, said: String, base: &Url) -> Kind {
    match (status, kind) {
        (401 | 403, _) => Kind::Unauthorized { status, said },
        (404, _) => Kind::NotFound { url: base.to_string(), said },
        (429, _) => Kind::TooMany(said),
        (502..=504, _) | (_, "timeout" | "unavailable" | "canceled") => {
            Kind::Unavailable { status, said }
        }
        (400, _) | (_, "bad_data") => Kind::BadQuery(said),
        (422, _) | (_, "execution" | "422") => Kind::Execution(said),
        _ => Kind::Status { status, said },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_never_more_than_the_api_takes() {
        for (span_s, step_s, expected_s) in [
            (3600.0, 15, 15),
            (3600.0, 0, 1),
            (11_000.0, 1, 1),
            (11_001.0, 1, 2),
            (604_800.0, 15, 55),
            (-5.0, 15, 15),
        ] {
            let range = Range { from_s: 0.0, to_s: span_s, step: Duration::from_secs(step_s) };
            assert_eq!(range.clamped().step.as_secs(), expected_s, "{span_s} s by {step_s} s");
        }
    }

    #[test]
    fn a_refusal_has_the_kind_of_its_status_and_a_remedy() {
        let base = Url::parse("http://prometheus:9090").expect("an address");
        for (status, kind, part) in [
            (400, "bad_data", "refuses the query (why): check the adapter's expressions"),
            (401, "", "answers 401: why: check the key"),
            (403, "", "answers 403: why: check the key"),
            (404, "", "has no query API at http://prometheus:9090/: why: is the path"),
            (422, "execution", "cannot execute the query (why)"),
            (422, "422", "cannot execute the query (why)"),
            (429, "", "asks for fewer queries (429: why): raise"),
            (499, "canceled", "cannot answer now (499: why)"),
            (500, "timeout", "cannot answer now (500: why)"),
            (503, "unavailable", "cannot answer now (503: why)"),
            (504, "", "cannot answer now (504: why)"),
            (500, "internal", "answers 500: why"),
            (200, "bad_data", "refuses the query (why)"),
        ] {
            let error = refusal(status, kind, "why".to_owned(), &base).to_string();
            assert!(error.starts_with(part), "{status} {kind}: {error}");
        }
    }
}
