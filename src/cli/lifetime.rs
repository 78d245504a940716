//! When a serving command ends: on SIGINT or SIGTERM, and with its parent where it is asked to; and when it
//! reads its configuration again: on SIGHUP.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::stdin_eof::stdin_eof;

/// Resolves when the process should end.
pub async fn end(with_stdin: bool) {
    tokio::select! {
        () = stdin_eof(with_stdin) => {}
        () = caught(SignalKind::terminate()) => {}
        () = caught(SignalKind::interrupt()) => {}
    }
}

/// The SIGHUPs from now on: whoever sends one before they are asked for loses nothing.
///
/// # Errors
/// When the system does not let them be heard.
pub fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

async fn caught(kind: SignalKind) {
    match signal(kind) {
        Ok(mut stream) => {
            stream.recv().await;
        }
        Err(error) => {
            tracing::warn!(%error, "cannot listen for a signal");
            std::future::pending::<()>().await;
        }
    }
}
