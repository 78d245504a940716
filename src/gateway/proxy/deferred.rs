//! The data plane's side of the deferred lane: stores a request instead of answering it, shows what
//! became of it, and has stored ones done as any other batch request.
//!
//! Never stores a key: what is stored is sent with the gateway's own, or with none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};

use super::answer::{Fault, Held, Shape, classified, error, may_hold_error};
use super::caller::{key, key_headers};
use super::request::{Peek, text};
use super::{Asked, Outgoing, Proxy, ProxyBody};
use crate::admission::{Demand, Effect, Lane, Offer, Reason, ScopeId};
use crate::dialect::{self, Class};
use crate::gateway::config::UpstreamKind;
use crate::gateway::deferred::{
    Answer, Later, NewItem, Put, Ran, Runs, STATUS_PATH, StoreError, UnixMs, Wish, Work, status,
    together_print,
};

/// Largest answer that is kept.
const ANSWER_LEN_MAX: usize = 32 * 1024 * 1024;
/// How soon a caller may ask for the result, in seconds.
const ASK_AGAIN_S: u64 = 2;
/// How long a scope rests whose account is exhausted: a person has to act.
const EXHAUSTED_REST: Duration = Duration::from_mins(1);
/// How long an item rests that the provider does not let in with the gateway's key.
const FORBIDDEN_REST: Duration = Duration::from_mins(1);
/// How long a scope rests after a refusal that names no time.
const REFUSED_REST: Duration = Duration::from_secs(1);
/// Headers of a provider's answer that its caller may need.
const ANSWER_HEADERS: [&str; 4] = ["content-type", "x-request-id", "request-id", "openai-model"];
/// What a key in a query is called.
const KEYS_OF_QUERIES: [&str; 4] = ["key", "api_key", "api-key", "access_token"];

impl Proxy {
    /// The status page of a ticket, where the request asks for one.
    pub(super) async fn deferred_page(
        &self,
        parts: &http::request::Parts,
        shape: Shape,
    ) -> Option<Response<ProxyBody>> {
        let lane = self.lane.as_ref()?;
        let ticket = parts.uri.path().strip_prefix(STATUS_PATH)?;
        if parts.method != Method::GET {
            let message = "ask for a deferred request with GET";
            let code = "weir_deferred_method";
            return Some(error(shape, StatusCode::METHOD_NOT_ALLOWED, code, message));
        }
        let owner =
            self.terms.load().callers.owner(&parts.headers, self.named_tenant(&parts.headers));
        let now = UnixMs::now();
        Some(match lane.look(owner, ticket).await {
            Ok(Some(seen)) => {
                let mut page = json(StatusCode::OK, &status(ticket, &seen, now));
                if seen.answer.is_none() {
                    page.headers_mut().insert(RETRY_AFTER, HeaderValue::from(ASK_AGAIN_S));
                }
                page
            }
            Ok(None) => {
                let message = "there is no such deferred request of this key, or its result is \
                               forgotten; see gateway.deferred.result_ttl_s";
                error(shape, StatusCode::NOT_FOUND, "weir_deferred_unknown", message)
            }
            Err(fault) => out_of_order(shape, &fault),
        })
    }

    /// Reads what the caller says of "later" into the offer; whether the request is to be stored at
    /// once. Where there is no lane, or no key that could be sent later, a preference is no order
    /// (RFC 7240, section 2): then all is as without it, except for work that only asks for storing.
    pub(super) fn takes_later(&self, parts: &http::request::Parts, offer: &mut Offer) -> bool {
        if self.lane.is_none() {
            return false;
        }
        let Some(wish) = Wish::of(&parts.headers) else { return false };
        let is_at_once = match wish.wait {
            None => offer.lane == Lane::Batch,
            Some(wait) => wait.is_zero(),
        };
        if is_at_once {
            return true;
        }
        offer.deferrable = self.keeps_no_secret(parts);
        if let Some(wait) = wish.wait.filter(|_| offer.deferrable) {
            let until = self.shell.now() + wait;
            offer.deadline = Some(offer.deadline.map_or(until, |deadline| deadline.min(until)));
        }
        false
    }

    /// Whether a request can be sent later without its caller's key.
    fn keeps_no_secret(&self, parts: &http::request::Parts) -> bool {
        let is_key = |pair: &str| {
            let name = pair.split('=').next().unwrap_or_default();
            KEYS_OF_QUERIES.iter().any(|key| name.eq_ignore_ascii_case(key))
        };
        let in_query = parts.uri.query().is_some_and(|query| query.split('&').any(is_key));
        !in_query && (self.terms.load().upstream_key.is_some() || key(&parts.headers).is_none())
    }

    /// Stores a request and says where its answer will be. `not_before` where the gate put it off.
    pub(super) async fn put_off(
        &self,
        (parts, body): Outgoing<'_>,
        offer: &Offer,
        not_before: Option<Duration>,
        shape: Shape,
    ) -> Response<ProxyBody> {
        let Some(lane) = &self.lane else {
            let message = "the gate put the request off and there is no lane; please report it";
            return error(shape, StatusCode::INTERNAL_SERVER_ERROR, "weir_internal", message);
        };
        if !self.keeps_no_secret(parts) {
            let message = "weir stores no key: set gateway.upstream_key_env, so that it can send \
                           the request later with a key of its own, or ask without respond-async";
            let code = "weir_deferred_key";
            let mut refusal = error(shape, StatusCode::NOT_IMPLEMENTED, code, message);
            refusal.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
            return refusal;
        }
        let not_before_ms = UnixMs::now().plus(not_before.unwrap_or_default());
        match lane.put(self.new_item(parts, body, offer, not_before_ms)).await {
            Ok(Put::Stored { ticket, .. }) => {
                if not_before.is_none() {
                    let (scope, lane) = (offer.scope, offer.lane);
                    self.shell.with(|gate, _| gate.count_deferred(scope, lane));
                }
                accepted(&ticket)
            }
            Ok(Put::Mismatch) => {
                let message = "this idempotency key came with another request before; a key \
                               stands for one request";
                error(shape, StatusCode::UNPROCESSABLE_ENTITY, "weir_idempotency_mismatch", message)
            }
            Err(fault) => out_of_order(shape, &fault),
        }
    }

    fn new_item(
        &self,
        parts: &http::request::Parts,
        body: Bytes,
        offer: &Offer,
        not_before: UnixMs,
    ) -> NewItem {
        let owner =
            self.terms.load().callers.owner(&parts.headers, self.named_tenant(&parts.headers));
        let scope = self.shell.read(|gate, _| gate.scopes()[offer.scope.0].name().to_string());
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let is_embedding = parts.uri.path() == "/v1/embeddings";
        let said = parts.headers.get("idempotency-key");
        let headers = kept(&parts.headers);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&owner);
        for field in [parts.method.as_str(), path, &scope] {
            hasher.update(field.as_bytes()).update(&[0]);
        }
        for (name, value) in &headers {
            hasher.update(name.as_bytes()).update(&[0]).update(value.as_bytes()).update(&[0]);
        }
        // The same text has the same embedding; whoever asks a model twice may want two answers.
        if let Some(said) = said.filter(|_| !is_embedding) {
            hasher.update(said.as_bytes());
        }
        hasher.update(&[0]).update(&body);
        let work_print = *hasher.finalize().as_bytes();
        let derived = || format!("weir-{}", &blake3::Hash::from(work_print).to_hex()[..32]);
        let mut work = Work {
            scope,
            tenant: offer.tenant.to_string(),
            backfill: offer.backfill,
            method: parts.method.to_string(),
            path: path.to_owned(),
            headers,
            body,
            idempotency_key: text(&parts.headers, "idempotency-key")
                .map_or_else(derived, str::to_owned),
            together: None,
        };
        work.together = together_print(&owner, &work);
        NewItem {
            ticket: uuid::Uuid::new_v4().simple().to_string(),
            owner,
            work_print,
            takes_done: is_embedding,
            repeat_print: said.map(|said| {
                let mut hasher = blake3::Hasher::new();
                *hasher.update(&owner).update(said.as_bytes()).finalize().as_bytes()
            }),
            work,
            not_before,
        }
    }

    /// The scopes that can have work.
    pub(in crate::gateway) fn scope_names(&self) -> Vec<String> {
        self.terms.load().by_name.keys().cloned().collect()
    }

    /// One try of stored work: through the gate, and what it means.
    async fn try_again(&self, work: &Work) -> Ran {
        let Some(scope) = self.terms.load().by_name.get(&work.scope).copied() else {
            return Ran::Later(Later {
                after: REFUSED_REST,
                holds_scope: true,
                ..Later::default()
            });
        };
        let Some(parts) = parts_of(work) else {
            return Ran::Dead(own_words(
                StatusCode::BAD_REQUEST,
                "weir_deferred_broken",
                "it cannot be sent",
            ));
        };
        let peek: Peek = match self.kind {
            UpstreamKind::Llm => serde_json::from_slice(&work.body).unwrap_or_default(),
            UpstreamKind::Http => Peek::default(),
        };
        let offer = Offer {
            scope,
            // Every try is an original of its own: the gate is done with one that it put off.
            identity: uuid::Uuid::new_v4().as_u128(),
            lane: Lane::Batch,
            backfill: work.backfill,
            weight: self.terms.load().callers.weight(&work.tenant),
            repeatable: true,
            deferrable: true,
            tenant: Arc::from(work.tenant.as_str()),
            guess: self.guess(&work.body, &peek),
            deadline: None,
            retry_mark: 0,
        };
        let asked = Asked::new(scope, peek.model.as_str());
        let mut ticket = self.shell.offer(&offer);
        let mut held: Option<Held> = None;
        let mut attempts = 0;
        loop {
            match ticket.next().await {
                Some(Effect::Send { attempt }) => {
                    attempts += 1;
                    let outgoing = (&parts, work.body.clone());
                    held = Some(self.attempt(attempt, &offer, asked.as_ref(), outgoing).await);
                }
                Some(Effect::Deliver { .. }) => {
                    let held = held.take().unwrap_or(Held::Fault(Fault::UNKNOWN));
                    let is_fault = matches!(held, Held::Fault(..));
                    let answered = self.answered(ticket, held, asked, Shape::OpenAi);
                    return self.judged(answered, is_fault, scope, attempts).await;
                }
                Some(Effect::Defer { not_before, .. }) => {
                    ticket.end(None);
                    let said = match held {
                        Some(Held::Whole(parts, said)) => Some(answer_of(&parts, said, None)),
                        _ => None,
                    };
                    // Nothing was sent: the next in line would hear the same.
                    let holds_scope = attempts == 0;
                    return Ran::Later(Later { after: not_before, attempts, holds_scope, said });
                }
                Some(Effect::Refuse { refusal, .. }) => {
                    ticket.end(None);
                    let reason: Reason = refusal.reason;
                    if reason == Reason::TooLarge {
                        let status = StatusCode::PAYLOAD_TOO_LARGE;
                        return Ran::Dead(own_words(status, reason.code(), reason.advice()));
                    }
                    let after = refusal.retry_after.unwrap_or(REFUSED_REST);
                    return Ran::Later(Later { after, attempts, holds_scope: true, said: None });
                }
                Some(Effect::Claim { .. } | Effect::Report { .. }) => {}
                None => {
                    return Ran::Later(Later { after: REFUSED_REST, attempts, ..Later::default() });
                }
            }
        }
    }

    /// What the provider's last word means for the item.
    async fn judged(
        &self,
        response: Response<ProxyBody>,
        is_fault: bool,
        scope: ScopeId,
        attempts: u32,
    ) -> Ran {
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, ANSWER_LEN_MAX).collect().await {
            Ok(body) => body,
            Err(fault) if fault.is::<LengthLimitError>() => {
                let message = format!("the answer is larger than {ANSWER_LEN_MAX} bytes");
                let code = "weir_deferred_answer_too_large";
                return Ran::Dead(own_words(StatusCode::BAD_GATEWAY, code, &message));
            }
            // It broke off.
            Err(_) => return Ran::Later(Later { attempts, ..Later::default() }),
        };
        let body = body.to_bytes();
        if is_fault {
            let said = Some(answer_of(&head, body, None));
            return Ran::Later(Later { attempts, said, ..Later::default() });
        }
        let provider = self.terms.load().dialect(scope);
        let looked = if head.status.is_success() && !may_hold_error(&body) { &[] } else { &*body };
        let status = head.status.as_u16();
        let seen =
            classified(&dialect::Answer { status, headers: &head.headers, body: looked }, provider);
        let answer = answer_of(&head, body.clone(), seen.code);
        let hint = seen.hint.unwrap_or_default();
        let later = |after: Duration, attempts: u32, holds_scope: bool| {
            let said = Some(answer.clone());
            Ran::Later(Later { after, attempts, holds_scope, said })
        };
        match seen.class {
            Class::Success => Ran::Done(answer),
            Class::BadRequest => Ran::Dead(answer),
            // Money or a day's quota: the work is not at fault, and a try costs nothing but a call.
            Class::PermanentQuota => later(hint.max(EXHAUSTED_REST), 0, true),
            Class::AuthOrPermission => later(hint.max(FORBIDDEN_REST), attempts, false),
            Class::TransientRateLimit
            | Class::TemporaryOverload
            | Class::Cancelled
            | Class::DeadlineExpired => later(hint, attempts, false),
        }
    }

    fn named_tenant<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        text(headers, "x-weir-tenant").filter(|_| self.terms.load().callers.of(headers).trusted)
    }
}

impl Runs for Proxy {
    fn is_open(&self) -> bool {
        self.shell.read(|gate, _| gate.settings().batch_lane && !gate.is_draining())
    }

    fn tokens(&self, work: &Work) -> u64 {
        let Demand { input, output } = self.guess(&work.body, &Peek::default());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate of at most a body's bytes"
        )]
        let tokens = (input + output) as u64;
        tokens
    }

    fn run<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Ran> {
        self.try_again(work).boxed()
    }

    fn used_up(&self, attempts: u32) -> Answer {
        let message = format!(
            "it was tried {attempts} times and the provider never answered; see \
             gateway.deferred.attempts_max"
        );
        own_words(StatusCode::SERVICE_UNAVAILABLE, "weir_deferred_attempts", &message)
    }
}

/// The headers that make the request what it is; none that could hold a key.
fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let belongs = |name: &HeaderName| {
        let word = name.as_str();
        let is_of_api = word.starts_with("openai-") || word.starts_with("anthropic-");
        (is_of_api || *name == CONTENT_TYPE || *name == ACCEPT)
            && !key_headers().any(|key| key == name)
    };
    let kept = headers.iter().filter(|(name, _)| belongs(name));
    let mut kept: Vec<_> = kept
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect();
    kept.sort();
    kept
}

fn parts_of(work: &Work) -> Option<http::request::Parts> {
    let mut request = Request::builder().method(work.method.as_str()).uri(work.path.as_str());
    for (name, value) in &work.headers {
        request = request.header(name, value);
    }
    request = request.header("idempotency-key", work.idempotency_key.as_str());
    Some(request.body(()).ok()?.into_parts().0)
}

fn answer_of(head: &http::response::Parts, body: Bytes, code: Option<String>) -> Answer {
    let header = |name: &&str| Some(((*name).to_owned(), text(&head.headers, name)?.to_owned()));
    let headers = ANSWER_HEADERS.iter().filter_map(header).collect();
    Answer { status: head.status.as_u16(), headers, body, code }
}

/// The gate's own last word.
fn own_words(status: StatusCode, code: &str, message: &str) -> Answer {
    let body = Shape::OpenAi.body(status, code, &format!("weir: {message}"));
    Answer {
        status: status.as_u16(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: Bytes::from(body.to_string()),
        code: Some(code.to_owned()),
    }
}

fn json(status: StatusCode, value: &serde_json::Value) -> Response<ProxyBody> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(value.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn accepted(ticket: &str) -> Response<ProxyBody> {
    let place = format!("{STATUS_PATH}{ticket}");
    let page = serde_json::json!({
        "id": ticket,
        "object": "weir.deferred",
        "status": "queued",
        "status_url": place,
    });
    let mut response = json(StatusCode::ACCEPTED, &page);
    let headers = response.headers_mut();
    if let Ok(place) = HeaderValue::from_str(&place) {
        headers.insert(LOCATION, place);
    }
    headers.insert("preference-applied", HeaderValue::from_static("respond-async"));
    headers.insert("x-weir-decision", HeaderValue::from_static("deferred"));
    headers.insert(RETRY_AFTER, HeaderValue::from(ASK_AGAIN_S));
    response
}

/// The lane cannot do its part; inline requests are not concerned.
fn out_of_order(shape: Shape, fault: &StoreError) -> Response<ProxyBody> {
    let message = format!("weir: {fault}; requests without respond-async are answered as ever");
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut response = error(shape, status, "weir_deferred_store", &message);
    let decision = HeaderValue::from_static("refused; reason=deferred_store");
    response.headers_mut().insert("x-weir-decision", decision);
    response
}
