//! The dashboard on canned numbers: the default drill without a socket. For looking at screens and for
//! the terminal tests. The first argument starts the drill at that second.

#[path = "../tests/tui_support/mod.rs"]
mod support;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use weir::diagnosis::Owners;
use weir::ingest::Observation;
use weir::tui::app::action::REGISTRY;
use weir::tui::{Appearance, Arming, Port, Session, Update, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), weir::tui::Error> {
    let begin: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let desk = Arc::new(support::Desk::new());
    let (tx, updates) = watch::channel(None);
    let (_notices, notices) = mpsc::channel(8);
    let started =
        Instant::now().checked_sub(Duration::from_secs(begin)).unwrap_or_else(Instant::now);
    let session = Session {
        title: "drill launch-0900".to_owned(),
        environment: "drill".to_owned(),
        started,
        updates,
        notices,
        port: Arc::clone(&desk) as Arc<dyn Port>,
        read_only: false,
        arming: Arming::NotNeeded,
        appearance: Appearance::detect(),
        person: support::PERSON.to_owned(),
        owners: Owners::default(),
        walk: None,
        registry: REGISTRY,
        settings: mpsc::channel(1).1,
    };
    let feed = tokio::spawn(async move {
        let mut cured_at = None;
        for second in 0.. {
            if cured_at.is_none() && desk.is_contained() {
                cured_at = Some(second);
            }
            let mut round = support::round(second, cured_at);
            let observation =
                Observation { wall: chrono::Utc::now(), ..(*round.observation).clone() };
            round = Update { observation: Arc::new(observation), ..round };
            tx.send_replace(Some(Arc::new(round)));
            let pause = if second < begin { 2 } else { 1_000 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    });
    let exit = run(session).await;
    feed.abort();
    writeln!(std::io::stdout(), "{:?}", exit?)?;
    Ok(())
}
