//! The body of a provider's answer on its way to the caller.
//!
//! It is streamed; only its first part and its tail are looked at, for the model that answered and
//! for `usage`.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::{Instant, Sleep};

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

/// Why an answer ended before its end. The caller's connection, or its stream, ends with it, so that
/// nobody takes a part for the whole.
#[derive(Debug, Error)]
pub enum RelayError {
    /// The connection to the provider broke.
    #[error("the provider's answer broke off: {0}")]
    Broken(#[from] hyper::Error),
    /// It sent nothing more.
    #[error("the provider sent nothing for {:.1} s in the middle of its answer", .0.as_secs_f64())]
    Silent(Duration),
}

/// How long the provider has been silent. Most answers are there before anybody waits, and have no
/// timer.
struct Silence {
    most: Duration,
    /// Since when the caller's side has waited.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// Ready when it has lasted too long. A stream of many parts has one timer, and moves it only when
    /// it fires.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let due = since + self.most;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
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
    silence: Silence,
    ended: bool,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
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
        if polled.is_ready() {
            self.silence.since = None;
        }
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
            Poll::Ready(Some(Err(_))) => self.break_off(),
            Poll::Pending => {
                if self.silence.poll(cx).is_ready() {
                    self.body.fell_silent();
                    self.break_off();
                    return Poll::Ready(Some(Err(RelayError::Silent(self.silence.most))));
                }
            }
        }
        polled.map_err(RelayError::Broken)
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
        silence_max: Duration,
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
            silence: Silence { most: silence_max, since: None, timer: None },
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

    fn break_off(&mut self) {
        self.ended = true;
        if let Some(ticket) = self.ticket.take() {
            ticket.broken();
        }
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
