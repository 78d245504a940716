//! The gate behind a lock: feeds it events with the time, routes its effects to waiting requests.
//!
//! The only place of the gateway that holds the gate. Nothing awaits while it is locked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, mpsc};

use super::keeping::Wanted;
use crate::admission::{Demand, Effect, Gate, Offer, RequestId, ScopeId};
use crate::signal::Mono;

/// Effects that one request can have pending: it asks for the next only after acting on the last.
const PENDING_MAX: usize = 2;

struct Inner {
    gate: Gate,
    /// Where claims and reports go, if somebody keeps the state.
    keeper: Option<mpsc::UnboundedSender<Wanted>>,
    waiting: BTreeMap<RequestId, mpsc::Sender<Effect>>,
}

/// The shared gate of one instance.
pub struct Shell {
    inner: Mutex<Inner>,
    started: Instant,
    timer: Notify,
}

impl Shell {
    /// Puts a gate behind a lock; `started` is the instant that the gate calls zero.
    #[must_use]
    pub fn new(gate: Gate, started: Instant) -> Arc<Self> {
        Self::build(gate, None, started)
    }

    /// The same for a gate whose claims and reports go to a keeper.
    #[must_use]
    pub(super) fn with_keeper(
        gate: Gate,
        keeper: mpsc::UnboundedSender<Wanted>,
        started: Instant,
    ) -> Arc<Self> {
        Self::build(gate.with_keeper(Mono::START), Some(keeper), started)
    }

    fn build(
        gate: Gate,
        keeper: Option<mpsc::UnboundedSender<Wanted>>,
        started: Instant,
    ) -> Arc<Self> {
        let inner = Inner { gate, keeper, waiting: BTreeMap::new() };
        Arc::new(Self { inner: Mutex::new(inner), started, timer: Notify::new() })
    }

    /// Now, on the gate's clock.
    #[must_use]
    pub fn now(&self) -> Mono {
        Mono::from_start(self.started.elapsed())
    }

    /// The instant of the process clock that the gate calls `at`.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Instant {
        self.started + at.since_start()
    }

    /// Looks at the gate without changing it.
    pub fn read<R>(&self, look: impl FnOnce(&Gate, Mono) -> R) -> R {
        let now = self.now();
        look(&self.lock().gate, now)
    }

    /// Changes the gate and routes what follows from it.
    pub fn with<R>(&self, change: impl FnOnce(&mut Gate, Mono) -> R) -> R {
        let now = self.now();
        let mut inner = self.lock();
        let before = inner.gate.poll_timeout();
        let result = change(&mut inner.gate, now);
        let after = inner.route();
        drop(inner);
        if after.is_some() && (before.is_none() || after < before) {
            self.timer.notify_one();
        }
        result
    }

    /// Offers a request. The ticket yields its effects; dropping it cancels the request.
    #[must_use]
    pub fn offer(self: &Arc<Self>, offer: &Offer) -> Ticket {
        let (sender, effects) = mpsc::channel(PENDING_MAX);
        let now = self.now();
        let mut inner = self.lock();
        let before = inner.gate.poll_timeout();
        let request = inner.gate.handle_request(offer, now);
        inner.waiting.insert(request, sender);
        let after = inner.route();
        drop(inner);
        if after.is_some() && (before.is_none() || after < before) {
            self.timer.notify_one();
        }
        Ticket { shell: Arc::clone(self), request, effects, over: false }
    }

    /// Wakes the gate when it asks for it. Runs until it is dropped.
    pub async fn run_timer(&self) {
        loop {
            let next = self.lock().gate.poll_timeout();
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep_until(self.instant(at).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => self.with(Gate::handle_timeout),
                () = self.timer.notified() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in the gate is a bug; other people's traffic goes on.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn route(&mut self) -> Option<Mono> {
        while let Some(effect) = self.gate.poll_effect() {
            let request = match effect {
                Effect::Send { attempt } => attempt.request,
                Effect::Deliver { request, .. }
                | Effect::Defer { request, .. }
                | Effect::Refuse { request, .. } => request,
                Effect::Claim { attempt, scope, claim } => {
                    self.want(Wanted::Claim { attempt, scope, claim });
                    continue;
                }
                Effect::Report { scope, report } => {
                    self.want(Wanted::Report { scope, report });
                    continue;
                }
            };
            if let Some(sender) = self.waiting.get(&request)
                && sender.try_send(effect).is_err()
            {
                tracing::debug!(request = request.number(), "effect for a request that is gone");
            }
        }
        self.gate.poll_timeout()
    }

    fn want(&self, wanted: Wanted) {
        // The other end goes only when the process does.
        if let Some(keeper) = &self.keeper {
            let _ = keeper.send(wanted);
        }
    }
}

/// One request at the gate. Dropping it before [`Ticket::end`] means that the caller has gone.
pub struct Ticket {
    shell: Arc<Shell>,
    request: RequestId,
    effects: mpsc::Receiver<Effect>,
    over: bool,
}

impl Ticket {
    /// What the gate wants next; `None` only if it forgot the request, which is a bug.
    pub async fn next(&mut self) -> Option<Effect> {
        self.effects.recv().await
    }

    /// The request.
    #[must_use]
    pub const fn request(&self) -> RequestId {
        self.request
    }

    /// A good answer to a request for the model `asked` names the model `by`.
    pub fn answered_by(&self, scope: ScopeId, asked: &str, by: &str) {
        self.shell.with(|gate, _| gate.handle_model(scope, asked, by));
    }

    /// The answer is complete; `billed` are the tokens of its `usage`.
    pub fn end(mut self, used: Option<Demand>) {
        self.over = true;
        let request = self.request;
        self.shell.with(|gate, now| gate.handle_end(request, used, now));
    }

    /// The provider's answer broke off.
    pub fn broken(mut self) {
        self.over = true;
        let request = self.request;
        self.shell.with(|gate, now| gate.handle_broken(request, now));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let request = self.request;
        if !self.over {
            self.shell.with(|gate, now| gate.handle_cancel(request, now));
        }
        self.shell.lock().waiting.remove(&request);
    }
}
