//! `weir replay`: the dashboard on a recording, or what it shows at one moment, for scripts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use chrono::Utc;
use color_eyre::eyre::Result;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::diagnose_text::in_words;
use super::look::LookArgs;
use super::picture::PictureArgs;
use super::scrape::duration;
use super::walk_save;
use super::{out, player};
use crate::diagnosis::{Owners, verdict_to_json};
use crate::flag::wire::SnapshotBody;
use crate::flag::{FlagTable, Outcome, Plan, on_disk};
use crate::incident::recording::{Moment, Replay};
use crate::runbook;
use crate::tui::app::action::REGISTRY;
use crate::tui::{Answer, Arming, Entry, Port, Seek, Session, Still, Wish};

/// The dashboard on a recording. Nothing can be changed in it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The recording
    file: PathBuf,
    /// The moment to begin with; to print, the last one unless given
    #[arg(long, value_name = "TIME", value_parser = duration)]
    at: Option<Duration>,
    /// No dashboard: print what it shows at that moment
    #[arg(long)]
    headless: bool,
    /// Print it as one JSON document
    #[arg(long)]
    json: bool,
    /// Runbooks to put beside the built-in ones
    #[arg(long, value_name = "DIR")]
    runbooks: Option<PathBuf>,
    #[command(flatten)]
    picture: PictureArgs,
    #[command(flatten)]
    look: LookArgs,
}

/// Shows the recording.
///
/// # Errors
/// When it is no recording, was changed, or does not hold the moment.
pub fn run(args: &Args) -> Result<ExitCode> {
    let library = match &args.runbooks {
        Some(dir) => runbook::load_dir(dir)?,
        None => runbook::embedded(),
    };
    let mut replay = Replay::open(&args.file, library)?;
    let (first, last) = replay.span()?;
    let at = args.at.map(|at| replay.reader().moment(at));
    if args.headless || args.json {
        let moment = replay.seek(at.unwrap_or(last))?.moment;
        print(&replay, &moment, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(screen) = &args.picture.screen {
        let at = at.unwrap_or(last);
        out::text(&args.picture.draw(screen, replay, at, &args.look)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let appearance = args.look.appearance(None)?;
    let _log = super::log_to_file();
    super::on_runtime(async {
        let header = replay.header();
        let (title, environment) = (format!("replay {}", header.title), header.environment.clone());
        let (sender, updates) = watch::channel(None);
        let wishes = player::play(replay, at.unwrap_or(first), sender)?;
        let (_notify, notices) = mpsc::channel(1);
        crate::tui::run(Session {
            title,
            environment,
            started: Instant::now(),
            updates,
            notices,
            port: std::sync::Arc::new(Shelf(wishes)),
            read_only: true,
            arming: Arming::Locked,
            appearance,
            person: super::actor::from_system(),
            owners: Owners::default(),
            walk: None,
            registry: REGISTRY,
            settings: mpsc::channel(1).1,
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn print(replay: &Replay, moment: &Moment, as_json: bool) -> Result<()> {
    let seconds = |at| replay.reader().since_zero(at).as_secs_f64();
    let Moment { observation, verdicts, .. } = moment;
    if as_json {
        let bodies = observation.scopes.iter().map(|scope| SnapshotBody::from(&**scope));
        let sources = observation.sources.iter().map(|source| {
            let age_s =
                source.last_good.map(|at| observation.at.saturating_since(at).as_secs_f64());
            json!({"name": source.name, "age_s": age_s, "error": source.error})
        });
        out::line(json!({
            "at_s": seconds(observation.at),
            "wall": observation.wall,
            "sources": sources.collect::<Vec<_>>(),
            "scopes": serde_json::to_value(bodies.collect::<Vec<_>>())?,
            "verdicts": verdicts.iter().map(|verdict| verdict_to_json(verdict)).collect::<Vec<_>>(),
        }))?;
        return Ok(());
    }
    let mut text = format!("recorded {}, at {:.1} s\n", observation.wall, seconds(observation.at));
    for verdict in verdicts {
        text.push_str(&in_words(verdict, replay.library(), &Owners::default()));
    }
    out::text(&text)?;
    Ok(())
}

/// What a recording offers in place of flags and journal: nothing but moving in it.
struct Shelf(SyncSender<Seek>);

const RECORDED: &str = "this is a recording: nothing can be read or changed now";

impl Port for Shelf {
    fn load_flags(&self) -> Answer<Result<FlagTable, String>> {
        Box::pin(async { Err("a recording holds no table of flags".to_owned()) })
    }

    fn plan(&self, _wish: Wish) -> Answer<Result<Plan, String>> {
        Box::pin(async { Err(RECORDED.to_owned()) })
    }

    fn apply(&self, _plan: Plan) -> Answer<Outcome> {
        Box::pin(async { Outcome::Refused { why: RECORDED.to_owned() } })
    }

    fn journal(&self, _entry: Entry) -> Answer<Result<(), String>> {
        Box::pin(async { Err(RECORDED.to_owned()) })
    }

    fn save_screen(&self, still: Still) -> Answer<Result<String, String>> {
        Box::pin(on_disk(move || walk_save::save_screen(&still, Utc::now())))
    }

    fn seek(&self, to: Seek) {
        // When so many wishes wait already, one more would not be seen either.
        let _ = self.0.try_send(to);
    }
}
