//! `weir watch`: the dashboard on real systems.

mod reload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::FalseyValueParser;
use color_eyre::eyre::{Result, bail};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::board::{self, Feeds};
use super::config::{self, Loaded};
use super::init;
use super::live;
use super::look::LookArgs;
use super::record;
use super::walk_text;
use crate::incident::recording::{RecordingThread, SourceLine};
use crate::ingest::{
    ALERT_INTERVAL, ALERT_TIMEOUT, AlertSource, AlertWatch, Alertmanager, Alerts, Origins,
    PollConfig, Poller, Road, SourceConfig, SourceFacts, has_past, past,
};
use crate::runbook;
use crate::signal::Mono;
use crate::tui::{Arming, Backfill, Notice, Session};
use reload::{Again, Polling, Reload};

/// Notices that may wait for the screen.
const NOTICES_MAX: usize = 8;
/// What is read where no file is named.
const FILE: &str = "weir.toml";

type AlertFeed = watch::Receiver<Option<Arc<Alerts>>>;

/// The dashboard on real systems.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with [[source]] and, to change flags, [flags]
    #[arg(short, long, value_name = "FILE", default_value = FILE, env = "WEIR_CONFIG")]
    config: PathBuf,
    /// Offer no flips
    #[arg(long, env = "WEIR_READ_ONLY", value_parser = FalseyValueParser::new())]
    read_only: bool,
    /// Start armed for this environment, which must be that of the file: flips can be sent at once. Without
    /// it, `A` arms
    #[arg(long, value_name = "ENVIRONMENT", conflicts_with = "read_only")]
    arm: Option<String>,
    /// Go on with a walk that was handed over and saved
    #[arg(long, value_name = "FILE")]
    walk: Option<PathBuf>,
    /// Runbooks to put beside the built-in ones, in place of `runbooks` in the file
    #[arg(long, value_name = "DIR")]
    runbooks: Option<PathBuf>,
    /// Record everything that is heard into a new file, for `weir replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    look: LookArgs,
}

/// Runs until the person leaves. Sources are polled on the runtime `ears`.
///
/// # Errors
/// When the configuration is wrong or there is no terminal. Never because a source is down.
pub async fn run(args: Args, ears: Handle) -> Result<ExitCode> {
    // Whoever names a file wants that one; without any, this may be the first time.
    if args.config == Path::new(FILE) && !init::offer(&args.config).await? {
        return Err(init::missing(&args.config));
    }
    let loaded = config::load(&args.config)?;
    let is_armed = is_armed(args.arm.as_deref(), &loaded.environment_name())?;
    let library = match args.runbooks.as_deref().or(loaded.toml.runbooks.as_deref()) {
        // What is wrong with them is said before the screen is there.
        Some(_) => Some(loaded.library(args.runbooks.as_deref())?),
        None => None,
    };
    let library = move || library.unwrap_or_else(runbook::embedded);
    let (appearance, registry) = (args.look.appearance(Some(&loaded))?, loaded.registry()?);
    let walk = args.walk.as_deref().map(|file| walk_text::open(file, library.clone()()));
    let walk = walk.transpose()?;
    let file = &loaded.toml;
    let sources = live::sources(&loaded, &args.config)?;
    let store = loaded.flag_store()?;
    let origin = live::origin(has_past(&sources).then_some(live::PAST));
    let (sender, observations) = watch::channel(None);
    let backfill = has_past(&sources).then(|| backfilled(sources.clone(), origin));
    let alerts = alerts(&loaded, &sources)?;
    let (notify, notices) = mpsc::channel(NOTICES_MAX);
    let environment = loaded.environment_name();
    let recording = recording(&args, &environment, origin, (&sources, &notify))?;
    let tape = || recording.as_ref().map(RecordingThread::tape);
    let origins = Origins::default();
    let asked = origins.clone();
    let poll = move |sources| PollConfig {
        sources,
        interval: live::INTERVAL,
        origin,
        origins: asked.clone(),
    };
    let poller = {
        let _on = ears.enter();
        Poller::spawn_witnessed(poll(sources), sender.clone(), record::witness(tape()))?
    };
    let (alert_watch, alerts) = alerts.map(|source| watched(source, origin)).unzip();
    let (journal, open_flips) = match board::journal() {
        Ok((journal, open_flips)) => (Ok(journal), open_flips),
        Err(why) => (Err(why), Vec::new()),
    };
    if let Err(why) = &journal {
        let text = format!("flips are off, nothing can be written down: {why}");
        notify.try_send(Notice { wall: chrono::Utc::now(), text })?;
    }
    let read_only = args.read_only || file.read_only || store.is_none() || journal.is_err();
    let has_journal = journal.is_ok();
    let desk = board::Desk::new(store, journal, tape(), origins);
    desk.take_up(&open_flips);
    let arming =
        if is_armed { Arming::from(Mono::from_start(origin.elapsed())) } else { Arming::Locked };
    let time = (!read_only).then(|| desk.keep_time(notify.clone())).flatten();
    let (tell, settings) = mpsc::channel(NOTICES_MAX);
    let again = move |sources| {
        let _on = ears.enter();
        Ok(Poller::spawn(poll(sources), sender.clone())?)
    };
    let again: Option<Again> = match &recording {
        None => Some(Box::new(again)),
        Some(_) => None,
    };
    let reload = Reload {
        path: args.config.clone(),
        look: args.look.clone(),
        is_read_only: read_only,
        polling: Polling { poller, again },
        settings: tell,
    };
    let (environment_of, owners) = (environment, loaded.owners());
    // Holds the poller: it polls until this ends.
    let reload = AbortOnDropHandle::new(tokio::spawn(reload.run(loaded)));
    let exit = crate::tui::run(Session {
        title: if has_journal { "watch" } else { "watch (no journal)" }.to_owned(),
        environment: environment_of,
        started: origin.into_std(),
        updates: board::diagnosed(Feeds { observations, alerts, backfill, tape: tape() }, library),
        notices,
        read_only,
        arming,
        port: desk,
        appearance,
        person: super::actor::from_system(),
        owners,
        walk,
        registry,
        settings,
    })
    .await;
    drop((reload, alert_watch, time));
    record::end(recording);
    exit?;
    Ok(ExitCode::SUCCESS)
}

/// Begins the recording that was asked for.
fn recording(
    args: &Args,
    environment: &str,
    origin: Instant,
    (sources, notify): (&[SourceConfig], &mpsc::Sender<Notice>),
) -> Result<Option<RecordingThread>> {
    let Some(path) = &args.record else { return Ok(None) };
    let adapters = config::adapters(&args.config);
    let of = record::Subject { title: "watch", environment, origin };
    let line = |facts: SourceFacts| {
        let own = adapters.own_text(&facts.adapter.name);
        SourceLine::new(&facts, own)
    };
    let lines = sources.iter().map(SourceFacts::from).map(line).collect();
    record::start(path, &of, lines, notify.clone()).map(Some)
}

/// Whether it starts armed: when the environment that was to be armed is the one of the file.
fn is_armed(asked: Option<&str>, environment: &str) -> Result<bool> {
    match asked {
        Some(name) if name != environment => {
            bail!("this is `{environment}`, not `{name}`: nothing was started")
        }
        asked => Ok(asked.is_some()),
    }
}

/// Asks for the hour before the first poll. What cannot be had is in the log: the dashboard is no
/// worse for it, and the source's own state tells whether it answers now.
fn backfilled(sources: Vec<SourceConfig>, origin: Instant) -> oneshot::Receiver<Backfill> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let now = Mono::from_start(origin.elapsed());
        let past = past(&sources, live::PAST, now).await;
        for trouble in &past.troubles {
            tracing::warn!(trouble, "no back-fill");
        }
        let _ = sender.send(Backfill { scopes: past.scopes });
    });
    receiver
}

/// Whose alerts are shown: those of the Alertmanager that is named, else of the first Prometheus.
pub(super) fn alerts(loaded: &Loaded, sources: &[SourceConfig]) -> Result<Option<AlertSource>> {
    if let Some((url, access)) = loaded.alertmanager()? {
        let alertmanager = Alertmanager::new("alertmanager", &url, access, ALERT_TIMEOUT)?;
        return Ok(Some(AlertSource::Alertmanager(Box::new(alertmanager))));
    }
    Ok(sources.iter().find_map(|source| match &source.road {
        Road::Queries(prometheus) => Some(AlertSource::Prometheus(Arc::clone(prometheus))),
        Road::Pages { .. } => None,
    }))
}

/// Asks for alerts while the first of the answer lives.
pub(super) fn watched(source: AlertSource, origin: Instant) -> (AlertWatch, AlertFeed) {
    let (sender, receiver) = watch::channel(None);
    (AlertWatch::spawn(source, ALERT_INTERVAL, origin, sender), receiver)
}
