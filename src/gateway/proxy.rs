//! The data plane: reads a request, offers it to the gate, carries out what the gate decides.
//!
//! Decides nothing itself. Good answers are streamed, see `relay`.

mod answer;
mod body;
mod caller;
mod deferred;
mod request;
mod terms;
mod unserved;

pub use terms::Terms;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};

use answer::{
    Fault, Held, Shape, annotate, classified, error, first_part, is_listed, may_hold_error,
    passed_on, read_error, refuse,
};
use body::Unreadable;
use caller::{Caller, key_headers};
use request::{Peek, identity, repeatable, retry_mark, text};

use super::config::{GatewayConfig, UpstreamKind};
use super::deferred::DeferredLane;
use super::faults::Faults;
use super::relay::{Asked, Relayed};
use super::shell::{Shell, Ticket};
use super::upstream::{Upstream, UpstreamError};
use crate::admission::{
    AttemptId, Demand, Effect, Ending, Lane, Offer, Reason, ScopeId, guess_tokens,
};
use crate::dialect;

/// Headers that belong to one connection and are not passed on (RFC 9110, section 7.6.1), and those
/// that the gateway writes itself.
const NOT_FORWARDED: [&str; 13] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
    "accept-encoding",
    "expect",
];

/// Which attempt of its request this is, from 1.
const ATTEMPT: HeaderName = HeaderName::from_static("x-weir-attempt");
/// Milliseconds until nobody waits for the answer any more, by the name that Envoy reads.
const TIME_LEFT: HeaderName = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");

/// The body of every answer of the data plane.
pub type ProxyBody = Either<Full<Bytes>, Relayed>;

/// The data plane of one instance.
pub struct Proxy {
    shell: Arc<Shell>,
    upstream: Arc<Upstream>,
    /// What can change while it runs.
    terms: ArcSwap<Terms>,
    kind: UpstreamKind,
    /// How long the provider may be silent in the middle of an answer.
    silence_max: Duration,
    /// Where requests wait that are done later.
    lane: Option<Arc<DeferredLane>>,
    /// What is wrong on purpose.
    faults: Faults,
}

/// What is sent to the provider: the caller's head and body.
type Outgoing<'a> = (&'a http::request::Parts, Bytes);

impl Proxy {
    /// A proxy for a checked configuration.
    #[must_use]
    pub fn new(
        config: &GatewayConfig,
        terms: Terms,
        shell: Arc<Shell>,
        upstream: Arc<Upstream>,
        faults: Faults,
    ) -> Self {
        Self {
            shell,
            upstream,
            terms: ArcSwap::from_pointee(terms),
            kind: config.upstream.kind,
            silence_max: config.transport.stream_idle_timeout(),
            lane: None,
            faults,
        }
    }

    /// From now on requests are read by these terms.
    pub fn take(&self, terms: Terms) {
        self.terms.store(Arc::new(terms));
    }

    /// The same with a lane for what is done later.
    #[must_use]
    pub fn with_lane(self, lane: Option<Arc<DeferredLane>>) -> Self {
        Self { lane, ..self }
    }

    /// Answers one request.
    ///
    /// # Errors
    /// Never; every fault becomes an answer.
    pub async fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<ProxyBody>, Infallible> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let shape = Shape::of(self.kind, path);
        if self.kind == UpstreamKind::Llm && !path.starts_with("/v1/") {
            return Ok(error(
                shape,
                StatusCode::NOT_FOUND,
                "weir_not_found",
                "this listener forwards paths under /v1/; admin and /metrics have their own",
            ));
        }
        if let Some(page) = self.deferred_page(&parts, shape).await {
            return Ok(page);
        }
        let (body, peek) = match self.read(&parts.headers, body).await {
            Ok(read) => read,
            Err(why) => {
                self.upstream.wire().client_fault(why.fault());
                return Ok(why.answer(shape));
            }
        };
        let scope = match self.scope(&parts.headers, &peek, body.is_empty()) {
            Ok(scope) => scope,
            Err(why) => return Ok(error(shape, StatusCode::NOT_FOUND, "weir_no_scope", &why)),
        };
        self.faults.stall(self.shell.now());
        let mut offer = self.offer(&parts, &body, &peek, scope);
        if self.takes_later(&parts, &mut offer) {
            return Ok(self.put_off((&parts, body), &offer, None, shape).await);
        }
        let asked = Asked::new(scope, peek.model.as_str());
        let ticket = self.shell.offer(&offer);
        let request = ticket.request().number();
        let mut response = self.carry_out(ticket, &offer, asked, (&parts, body), shape).await;
        self.confess(response.headers_mut(), scope);
        if !response.status().is_success() {
            self.write_down(request, &offer, &response);
        }
        Ok(response)
    }

    /// The body, and what the gate needs to know of it.
    async fn read(&self, headers: &HeaderMap, body: Incoming) -> Result<(Bytes, Peek), Unreadable> {
        let most = self.terms.load().body_max;
        let body = body::read(headers, body, most, self.time_allowed(headers)).await?;
        if self.kind == UpstreamKind::Http || body.is_empty() {
            return Ok((body, Peek::default()));
        }
        match serde_json::from_slice(&body) {
            Ok(peek) => Ok((body, peek)),
            // JSON of another form is the provider's to judge, and so is what says it is none.
            Err(why) if why.is_data() || !body::is_said_json(headers) => {
                Ok((body, Peek::default()))
            }
            Err(why) => Err(Unreadable::NotJson(why)),
        }
    }

    /// The quota scope that a request is counted on, or why there is none.
    fn scope(&self, headers: &HeaderMap, peek: &Peek, is_empty: bool) -> Result<ScopeId, String> {
        let terms = self.terms.load();
        if self.kind == UpstreamKind::Http {
            let named = text(headers, "x-weir-scope");
            let found = match named {
                Some(name) => terms.by_name.get(name).copied(),
                None if terms.by_name.len() == 1 => Some(ScopeId(0)),
                None => terms.other_models,
            };
            return found.ok_or_else(|| match named {
                Some(name) => format!("there is no quota scope `{name}`; add it as a [[scope]]"),
                None => "there are several quota scopes; name one in the header x-weir-scope, or \
                         leave `models` out of one of them"
                    .to_owned(),
            });
        }
        let model = peek.model.as_str();
        let found = model.and_then(|model| terms.by_model.get(model).copied());
        // A question without a body (GET /v1/models) names no model and uses no tokens.
        let found = found.or(terms.other_models).or_else(|| is_empty.then_some(ScopeId(0)));
        found.ok_or_else(|| {
            let model = model.unwrap_or("(none)");
            format!(
                "model `{model}` is on no quota scope; add it to a [[scope]], or add a scope without `models` for the rest"
            )
        })
    }

    /// Says in the answer that the shared budget is out of reach and a local share decides.
    fn confess(&self, headers: &mut HeaderMap, scope: ScopeId) {
        let lost = self.shell.read(|gate, _| {
            let keeping = gate.scopes()[scope.0].keeping()?;
            keeping.lost_since().map(|_| keeping.instances())
        });
        let said = lost.map(|instances| format!("local-share; instances={instances}"));
        if let Some(said) = said.and_then(|said| HeaderValue::from_str(&said).ok()) {
            headers.insert("x-weir-budget", said);
        }
    }

    fn offer(
        &self,
        parts: &http::request::Parts,
        body: &Bytes,
        peek: &Peek,
        scope: ScopeId,
    ) -> Offer {
        let headers = &parts.headers;
        let Caller { tenant, trusted, weight } = self.terms.load().callers.of(headers);
        let named = text(headers, "x-weir-tenant").filter(|_| trusted);
        let lane = text(headers, "x-weir-lane");
        Offer {
            scope,
            identity: identity(parts, body),
            lane: match lane {
                Some("batch" | "backfill") => Lane::Batch,
                _ => Lane::Interactive,
            },
            backfill: lane == Some("backfill"),
            weight,
            repeatable: repeatable(parts),
            deferrable: false,
            tenant: named.map_or(tenant, Arc::from),
            guess: self.guess(body, peek),
            deadline: Some(self.shell.now() + self.time_allowed(headers)),
            retry_mark: retry_mark(headers),
        }
    }

    /// How many tokens it may use. Only models use any.
    fn guess(&self, body: &Bytes, peek: &Peek) -> Demand {
        match self.kind {
            UpstreamKind::Llm => self.faults.guess(guess_tokens(body.len(), peek.output_tokens())),
            UpstreamKind::Http => Demand::default(),
        }
    }

    /// How long the caller waits, end to end, by the headers of the contract in their order.
    fn time_allowed(&self, headers: &HeaderMap) -> Duration {
        let number = |name: &str| text(headers, name)?.trim().parse::<f64>().ok();
        let millis = |name: &str| number(name).map(|ms| ms / 1_000.0);
        millis("x-weir-deadline-ms")
            .or_else(|| millis("x-envoy-expected-rq-timeout-ms"))
            .or_else(|| number("x-stainless-timeout"))
            .or_else(|| number("x-stainless-read-timeout"))
            .filter(|seconds| *seconds > 0.0)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .unwrap_or_else(|| self.terms.load().default_deadline)
    }

    async fn carry_out(
        &self,
        mut ticket: Ticket,
        offer: &Offer,
        asked: Option<Asked>,
        (parts, body): Outgoing<'_>,
        shape: Shape,
    ) -> Response<ProxyBody> {
        let number = ticket.request().number();
        let mut held: Option<Held> = None;
        let mut sent: u32 = 0;
        loop {
            match ticket.next().await {
                Some(Effect::Send { attempt }) => {
                    sent = attempt.number;
                    held = Some(
                        self.attempt(attempt, offer, asked.as_ref(), (parts, body.clone())).await,
                    );
                }
                Some(Effect::Deliver { forbid_retry, attempts, queued, .. }) => {
                    let mut held = held.take().unwrap_or(Held::Fault(Fault::UNKNOWN));
                    self.ask_for_payment(&mut held, offer.scope);
                    let mut response = self.answered(ticket, held, asked, shape);
                    annotate(response.headers_mut(), number, forbid_retry, attempts, queued);
                    return response;
                }
                Some(Effect::Defer { not_before, .. }) => {
                    ticket.end(None);
                    return self.put_off((parts, body), offer, Some(not_before), shape).await;
                }
                // The keeper's effects are the shell's.
                Some(Effect::Claim { .. } | Effect::Report { .. }) => {}
                Some(Effect::Refuse { refusal, .. }) => {
                    let scope = offer.scope;
                    let name = self.shell.read(|gate, _| gate.scopes()[scope.0].name().clone());
                    ticket.end(None);
                    let mut response = refuse(shape, &name, &refusal, sent);
                    if self.terms.load().payment_required && refusal.reason == Reason::AccountDead {
                        *response.status_mut() = StatusCode::PAYMENT_REQUIRED;
                    }
                    return response;
                }
                None => {
                    return error(
                        shape,
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "weir_internal",
                        "the gate lost this request; please report it",
                    );
                }
            }
        }
    }

    /// One attempt at the provider; tells the gate how it went and keeps what to deliver.
    async fn attempt(
        &self,
        attempt: AttemptId,
        offer: &Offer,
        asked: Option<&Asked>,
        request: Outgoing<'_>,
    ) -> Held {
        let most = self.terms.load().attempt_timeout;
        let left = offer
            .deadline
            .map_or(most, |deadline| deadline.saturating_since(self.shell.now()).min(most));
        let exchange = self.exchange((attempt, left), (offer.scope, asked), request);
        let (ending, fault) = match tokio::time::timeout(left, exchange).await {
            Ok(Ok(held)) => return held,
            Ok(Err(error)) => (Ending::Transport, Fault::of(&error)),
            Err(_) => {
                let why = format!("no answer of the provider within {:.1} s", left.as_secs_f64());
                let is_callers = left < most;
                let ending = if is_callers { Ending::Deadline } else { Ending::Timeout };
                (ending, Fault::late(why))
            }
        };
        self.shell.with(|gate, now| gate.handle_failed(attempt, ending, now));
        Held::Fault(fault)
    }

    async fn exchange(
        &self,
        (attempt, left): (AttemptId, Duration),
        (scope, asked): (ScopeId, Option<&Asked>),
        (parts, body): Outgoing<'_>,
    ) -> Result<Held, UpstreamError> {
        let ready = self.upstream.ready().await?;
        let request = self.outgoing((attempt, left), parts, body);
        self.shell.with(|gate, now| gate.handle_sent(attempt, now));
        let response = self.upstream.send(ready, request).await?;
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let answer = if head.status.is_success() {
            first_part(head, body).await?
        } else {
            read_error(head, body).await
        };
        let (Held::Stream(head, read, _) | Held::Whole(head, read)) = &answer else {
            return Ok(answer);
        };
        let provider = self.terms.load().dialect(scope);
        // Of a good answer's body nothing is read but what says that it is none.
        let body =
            if (200..300).contains(&status) && !may_hold_error(read) { &[] } else { &**read };
        let seen = classified(&dialect::Answer { status, headers: &head.headers, body }, provider);
        let seen = self.faults.read(seen);
        let notices = dialect::read_notices(&head.headers);
        self.shell.with(|gate, now| {
            gate.handle_notices(scope, &notices, now);
            if let Some(asked) = asked {
                gate.handle_call(scope, asked.model(), status);
            }
            gate.handle_head(attempt, &seen, now);
        });
        Ok(answer)
    }

    /// What was held, as the caller gets it; the ticket ends with it.
    fn answered(
        &self,
        ticket: Ticket,
        held: Held,
        asked: Option<Asked>,
        shape: Shape,
    ) -> Response<ProxyBody> {
        match held {
            // Nobody polls a body that has ended already.
            Held::Stream(parts, read, body) if read.is_empty() && body.is_end_stream() => {
                ticket.end(None);
                Response::from_parts(passed_on(parts), Either::Left(Full::new(read)))
            }
            Held::Stream(parts, read, body) => {
                let is_good = parts.status.is_success();
                let asked = asked.filter(|_| is_good);
                let ticket =
                    if is_good { self.faults.leak(ticket, self.shell.now()) } else { Some(ticket) };
                let usage = self.faults.reads_usage();
                let relayed = Relayed::new(read, body, ticket, asked, usage, self.silence_max);
                Response::from_parts(passed_on(parts), Either::Right(relayed))
            }
            Held::Whole(parts, body) => {
                ticket.end(None);
                Response::from_parts(passed_on(parts), Either::Left(Full::new(body)))
            }
            Held::Fault(fault) => {
                ticket.end(None);
                error(shape, fault.status, fault.code, &fault.why)
            }
        }
    }

    fn outgoing(
        &self,
        (attempt, left): (AttemptId, Duration),
        parts: &http::request::Parts,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let length = body.len();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        for (name, value) in &parts.headers {
            let of_connection =
                NOT_FORWARDED.contains(&name.as_str()) || is_listed(&parts.headers, name);
            // Who answers `respond-async` here does not let the provider answer it too.
            let is_ours = name.as_str().starts_with("x-weir-")
                || (self.lane.is_some() && name.as_str() == "prefer");
            if !of_connection && !is_ours {
                headers.append(name.clone(), value.clone());
            }
        }
        if let Ok(host) = HeaderValue::from_str(self.upstream.authority()) {
            headers.insert(HOST, host);
        }
        if parts.method != Method::GET || length > 0 {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        if let Some((name, key)) = &self.terms.load().upstream_key {
            // The callers' own keys are for the gateway.
            for name in key_headers() {
                headers.remove(name);
            }
            headers.insert(name, key.clone());
        }
        headers.insert(ATTEMPT, HeaderValue::from(attempt.number));
        // A proxy or another gateway on the way may give up when this one does.
        let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        headers.insert(TIME_LEFT, HeaderValue::from(left));
        request
    }
}
