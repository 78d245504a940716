//! The way to ask whatever polls now where a number comes from.
//!
//! Outlives the poller: when another one takes its place, the next question goes to that one.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use crate::ingest::origin::Origin;

/// Questions that may wait.
const ASKS_MAX: usize = 8;

/// A question: of which scope, for which signal, and where the answer goes.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) scope: String,
    pub(super) signal: String,
    pub(super) answer: oneshot::Sender<Origin>,
}

/// Asks the poller that was given this last. Copies ask the same one.
#[derive(Clone, Debug, Default)]
pub struct Origins(Arc<Mutex<Option<mpsc::Sender<Ask>>>>);

impl Origins {
    /// Lets a poller answer from now on.
    pub(super) fn listen(&self) -> mpsc::Receiver<Ask> {
        let (sender, asks) = mpsc::channel(ASKS_MAX);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        asks
    }

    /// Where a signal of a scope comes from.
    ///
    /// # Errors
    /// In words, while nothing polls.
    pub async fn ask(&self, scope: String, signal: String) -> Result<Origin, String> {
        let none = || "nothing is polled now".to_owned();
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (answer, told) = oneshot::channel();
        let ask = Ask { scope, signal, answer };
        sender.ok_or_else(none)?.send(ask).await.map_err(|_| none())?;
        told.await.map_err(|_| none())
    }
}
