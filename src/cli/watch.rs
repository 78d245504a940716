//! `weir watch`: the dashboard on real systems.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use color_eyre::eyre::Result;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{board, config, live};
use crate::flag::Store;
use crate::ingest::{PollConfig, Poller};
use crate::runbook;
use crate::tui::{Appearance, Notice, Session};

/// The dashboard on real systems.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with [[source]] and, to change flags, [flags]
    #[arg(short, long, value_name = "FILE", default_value = "weir.toml")]
    config: PathBuf,
    /// Offer no flips
    #[arg(long)]
    read_only: bool,
}

/// Runs until the person leaves.
///
/// # Errors
/// When the configuration is wrong or there is no terminal. Never because a source is down.
pub async fn run(args: Args) -> Result<ExitCode> {
    let loaded = config::load(&args.config)?;
    let file = &loaded.toml;
    let sources = live::sources(&loaded, &args.config)?;
    let store = loaded.flag_store()?.map(|store| Arc::new(store) as Arc<dyn Store>);
    let origin = Instant::now();
    let (sender, observations) = watch::channel(None);
    let poll = PollConfig { sources, interval: live::INTERVAL, origin };
    let poller = Poller::spawn(poll, sender)?;
    let (notify, notices) = mpsc::channel(1);
    let journal = board::journal();
    if let Err(why) = &journal {
        let text = format!("flips are off, nothing can be written down: {why}");
        notify.try_send(Notice { wall: chrono::Utc::now(), text })?;
    }
    let exit = crate::tui::run(Session {
        title: if journal.is_ok() { "watch" } else { "watch (no journal)" }.to_owned(),
        environment: file.environment.clone().unwrap_or_else(|| "production".to_owned()),
        started: origin.into_std(),
        updates: board::diagnosed(observations, runbook::embedded()),
        notices,
        read_only: args.read_only || file.read_only || store.is_none() || journal.is_err(),
        port: board::Desk::new(store, journal),
        appearance: Appearance::detect(),
    })
    .await;
    drop(poller);
    exit?;
    Ok(ExitCode::SUCCESS)
}
