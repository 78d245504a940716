//! The body of a provider's answer on its way to the caller.
//!
//! It is streamed; only its first part and its tail are looked at, for the model that answered and
//! for `usage`.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};

use super::shell::Ticket;
use super::upstream::Answer;
use crate::admission::{Demand, ScopeId};
use crate::dialect;

/// Bytes of an answer's end that are kept to find `usage` in.
const TAIL_MAX: usize = 16 * 1024;
/// Bytes of an answer's beginning in which the model is looked for.
const HEAD_MAX: usize = 4 * 1024;

/// Longest name of a model that is held against the answer's.
const MODEL_LEN_MAX: usize = 100;

/// The model that a request names, and the scope that it is on.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    scope: ScopeId,
    model: String,
}

impl Asked {
    /// `None` for a name that is no model's.
    pub(super) fn new(scope: ScopeId, model: Option<&str>) -> Option<Self> {
        let model = model.filter(|model| !model.is_empty() && model.len() <= MODEL_LEN_MAX)?;
        Some(Self { scope, model: model.to_owned() })
    }

    /// Its name.
    pub(super) fn model(&self) -> &str {
        &self.model
    }
}

/// A provider's body on its way to the caller; its end settles the reservation, dropping it early
/// cancels the request.
pub struct Relayed {
    /// What was read before the gate decided.
    read: Bytes,
    body: Box<Answer>,
    tail: BytesMut,
    ticket: Option<Ticket>,
    asked: Option<Asked>,
    /// Whether what the answer says of its usage counts.
    reads_usage: bool,
    /// The model that the first part of the body names.
    model: Option<String>,
    /// The first part was looked at.
    begun: bool,
    ended: bool,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if !self.read.is_empty() {
            let read = std::mem::take(&mut self.read);
            self.look_at(&read);
            if self.body.is_end_stream() {
                self.settle();
            }
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        let polled = Pin::new(&mut *self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.look_at(data);
                }
                // With a known length, nobody polls past the last byte.
                if self.body.is_end_stream() {
                    self.settle();
                }
            }
            Poll::Ready(None) => self.settle(),
            Poll::Ready(Some(Err(_))) => {
                self.ended = true;
                if let Some(ticket) = self.ticket.take() {
                    ticket.broken();
                }
            }
            Poll::Pending => {}
        }
        polled
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        let read = self.read.len() as u64;
        let mut all = SizeHint::new();
        all.set_lower(rest.lower() + read);
        if let Some(upper) = rest.upper() {
            all.set_upper(upper + read);
        }
        all
    }
}

impl Relayed {
    /// `asked` only where the answer is a good one; without a ticket its end is nobody's.
    pub(super) fn new(
        read: Bytes,
        body: Box<Answer>,
        ticket: Option<Ticket>,
        asked: Option<Asked>,
        reads_usage: bool,
    ) -> Self {
        Self {
            read,
            body,
            tail: BytesMut::new(),
            ticket,
            asked,
            reads_usage,
            model: None,
            begun: false,
            ended: false,
        }
    }

    fn look_at(&mut self, data: &Bytes) {
        if !self.begun && self.asked.is_some() {
            let first = &data[..data.len().min(HEAD_MAX)];
            self.model = dialect::answered_model(first).map(str::to_owned);
        }
        self.begun = true;
        keep_tail(&mut self.tail, data);
    }

    fn settle(&mut self) {
        self.ended = true;
        if let Some(ticket) = self.ticket.take() {
            let named = self.model.as_deref().or_else(|| dialect::answered_model(&self.tail));
            if let (Some(asked), Some(by)) = (&self.asked, named) {
                ticket.answered_by(asked.scope, &asked.model, by);
            }
            let usage = dialect::usage_from_tail(&self.tail).filter(|_| self.reads_usage);
            ticket.end(usage.map(|usage| used(&usage)));
        }
    }
}

fn keep_tail(tail: &mut BytesMut, data: &Bytes) {
    let data = &data[data.len().saturating_sub(TAIL_MAX)..];
    let surplus = (tail.len() + data.len()).saturating_sub(TAIL_MAX);
    if surplus > 0 {
        let _ = tail.split_to(surplus);
    }
    tail.extend_from_slice(data);
}

/// What an answer says that it used. A total without its parts counts as the request's.
fn used(usage: &dialect::Usage) -> Demand {
    let output = usage.completion_tokens.map_or(0.0, crate::signal::Tokens::as_f64);
    Demand { input: (usage.total_tokens.as_f64() - output).max(0.0), output }
}
