//! Carries the gate's claims and reports to the keeper of the shared state, and its answers back.
//!
//! Decides nothing: a keeper that does not answer in time is told to the gate as such.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use super::health::Health;
use super::shell::Shell;
use super::store::{Keeper, KeeperError};
use crate::admission::{AttemptId, Claim, Report, ScopeId};

/// What the gate wants of the keeper.
#[derive(Debug)]
pub(super) enum Wanted {
    Claim { attempt: AttemptId, scope: ScopeId, claim: Box<Claim> },
    Report { scope: ScopeId, report: Box<Report> },
}

/// Carries until the shell is gone. Every exchange is a task of its own: a slow answer holds up
/// nobody else's.
pub(super) async fn carry(
    shell: Arc<Shell>,
    keeper: Arc<dyn Keeper>,
    health: Arc<Health>,
    mut wanted: mpsc::UnboundedReceiver<Wanted>,
) {
    let names: Arc<[Arc<str>]> =
        shell.read(|gate, _| gate.scopes().iter().map(|scope| Arc::clone(scope.name())).collect());
    while let Some(one) = wanted.recv().await {
        let (shell, keeper, names) = (Arc::clone(&shell), Arc::clone(&keeper), Arc::clone(&names));
        let health = Arc::clone(&health);
        tokio::spawn(async move { exchange(&shell, &*keeper, &health, &names, one).await });
    }
}

async fn exchange(
    shell: &Shell,
    keeper: &dyn Keeper,
    health: &Health,
    names: &[Arc<str>],
    wanted: Wanted,
) {
    let asked = Instant::now();
    match wanted {
        Wanted::Claim { attempt, scope, claim } => {
            let answer = keeper.claim(&names[scope.0], &claim).await;
            let answer = heard(answer, &names[scope.0], health, asked);
            shell.with(|gate, now| {
                gate.handle_verdict(attempt, scope, claim.demand, answer, now);
            });
        }
        Wanted::Report { scope, report } => {
            let answer = keeper.report(&names[scope.0], &report).await;
            let mirror = heard(answer, &names[scope.0], health, asked);
            shell.with(|gate, now| gate.handle_mirror(scope, mirror, now));
        }
    }
}

fn heard<T>(
    answer: Result<T, KeeperError>,
    scope: &str,
    health: &Health,
    asked: Instant,
) -> Option<T> {
    let took = asked.elapsed();
    match &answer {
        Ok(_) => health.store().answered(took),
        Err(KeeperError::Timeout { .. }) => health.store().timed_out(took),
        Err(_) => health.store().failed(),
    }
    answer.inspect_err(|error| tracing::debug!(%error, scope, "no answer of the keeper")).ok()
}
