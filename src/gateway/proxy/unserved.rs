//! What becomes of requests that are not served: the line in the log, and the status of a spent account.
//! Decides nothing about them.

use http::{Response, StatusCode};

use super::answer::{Held, classified};
use super::request::text;
use super::{Proxy, ProxyBody};
use crate::admission::{Offer, ScopeId};
use crate::dialect::{self, Class};

impl Proxy {
    /// One line for a request that was refused or failed: who, where and why, and nothing of what was
    /// asked, answered or used as a key.
    pub(super) fn write_down(&self, request: u64, offer: &Offer, response: &Response<ProxyBody>) {
        if !tracing::enabled!(target: "weir::unserved", tracing::Level::INFO) {
            return;
        }
        let scope = offer.scope;
        let scope = self.shell.read(|gate, _| gate.scopes()[scope.0].name().clone());
        let said = |name| text(response.headers(), name);
        tracing::info!(
            target: "weir::unserved",
            request,
            scope = &*scope,
            lane = offer.lane.word(),
            tenant = &*offer.tenant,
            status = response.status().as_u16(),
            decision = said("x-weir-decision"),
            attempts = said("x-weir-attempts"),
            queue_ms = said("x-weir-queue-ms"),
            retry_after_s = said("retry-after"),
            "not served"
        );
    }

    /// Where it is configured: a quota that is spent for good gets the status at which every client stops
    /// (402, RFC 9110, section 15.5.3), whatever the provider calls it.
    pub(super) fn ask_for_payment(&self, held: &mut Held, scope: ScopeId) {
        let (Held::Whole(parts, body) | Held::Stream(parts, body, _)) = held else { return };
        if !self.terms.load().payment_required || parts.status != StatusCode::TOO_MANY_REQUESTS {
            return;
        }
        let provider = self.terms.load().dialect(scope);
        let answer =
            dialect::Answer { status: parts.status.as_u16(), headers: &parts.headers, body };
        if classified(&answer, provider).class == Class::PermanentQuota {
            parts.status = StatusCode::PAYMENT_REQUIRED;
        }
    }
}
