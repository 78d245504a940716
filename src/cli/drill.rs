//! `weir drill`: stages an incident, on loopback with the dashboard, without a screen, or virtually.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{Result, WrapErr as _, eyre};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::board::{self, Feeds};
use super::drill_check::CheckArgs;
use super::drill_gate::GateArgs;
use super::look::LookArgs;
use super::out::{self, OutputError};
use super::{
    drill_check, drill_compare, drill_gate, drill_list, drill_record, drill_upstream, record,
};
use crate::diagnosis::{Library, Owners, Verdict, verdict_to_json};
use crate::drill::compare;
use crate::drill::live::{self, Control};
use crate::drill::scenario::Scenario;
use crate::drill::stage::{Part, Stage, Staging};
use crate::drill::{Report, TimedFlip, virtual_run};
use crate::incident::Journal;
use crate::incident::recording::{RecordingThread, Tape, Told};
use crate::ingest::Origins;
use crate::runbook;
use crate::signal::parse_duration;
use crate::tui::app::action::REGISTRY;
use crate::tui::{Appearance, Arming, Notice, Session};

/// Exit code for a budget that was not confirmed.
const USAGE: u8 = 2;
/// How long a drill with a screen goes on unless `--for` says otherwise.
const SCREEN_RUN_MAX: Duration = Duration::from_hours(12);
/// How long a process stays down when it has died.
const RESTART_AFTER: Duration = Duration::from_secs(3);
/// How often the clients are asked whether their budget is spent.
const BUDGET_LOOK: Duration = Duration::from_secs(1);
/// Notices that may wait for the screen.
const NOTICES_MAX: usize = 64;

/// Stages an incident on loopback and opens the dashboard on it.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of a shipped scenario, or path of a scenario file; several for --check
    #[arg(default_value = "launch-0900")]
    scenarios: Vec<String>,
    /// List the shipped scenarios
    #[arg(long)]
    list: bool,
    /// No dashboard: play, then report
    #[arg(long)]
    headless: bool,
    /// On the virtual clock: minutes in seconds, the same for the same seed
    #[arg(long = "virtual")]
    on_virtual_clock: bool,
    /// The scenario's storm under five controls side by side, on the virtual clock
    #[arg(long, conflicts_with_all = ["list", "flips"])]
    compare: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length of the run, calm included and drain not
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    total: Option<Duration>,
    /// Flip a flag through the admin API at an instant of the run
    #[arg(long = "set", value_name = "FLAG=VALUE@TIME")]
    flips: Vec<TimedFlip>,
    /// Record everything that is heard into a new file, for `weir replay`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "compare"])]
    record: Option<PathBuf>,
    /// A Redis for gateways that share a budget, an empty database of it best; without it the drill
    /// starts one of its own
    #[arg(long, value_name = "URL", env = "WEIR_DRILL_REDIS", hide_env_values = true)]
    redis: Option<String>,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    look: LookArgs,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    gate: GateArgs,
}

impl Args {
    /// The scenario, where one is played.
    fn scenario(&self) -> Result<&str> {
        match &self.scenarios[..] {
            [one] => Ok(one),
            _ => Err(eyre!("one scenario is played at a time; only --check takes several")),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Some(span) if span.is_zero() => Err("must be longer than 0 s".to_owned()),
        Some(span) => Ok(span),
        None => Err(format!("`{text}` is not a time such as 90s, 5m or 15.5s")),
    }
}

/// Plays the drill that the arguments ask for.
///
/// # Errors
/// When the scenario is wrong or its processes do not start.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        return drill_list::run(args.json);
    }
    let library = runbook::embedded();
    if let Some(file) = &args.gate.gate {
        let redis = args.redis.as_deref();
        return drill_gate::run(&args.gate, file, &library, (args.json, redis));
    }
    if args.check.is_asked() {
        return drill_check::run(&args.check, &args.scenarios, args.seed, &library, args.json);
    }
    let name = args.scenario()?;
    // Read once: what is confirmed is what is played.
    let source = Scenario::source(name)?;
    let scenario = Scenario::parse(name, &source)?;
    if args.compare {
        drill_compare::print(&compare::run(&scenario, args.seed, args.total)?, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let total = args.total.unwrap_or(scenario.duration);
    if let Some(late) = args.flips.iter().find(|flip| flip.at >= total) {
        let at = late.at.as_secs_f64();
        let total = total.as_secs_f64();
        return Err(eyre!("--set {}=...@{at}s is after the end of the run ({total} s)", late.key));
    }
    if args.on_virtual_clock {
        let report = match &args.record {
            Some(path) => {
                drill_record::play(path, &scenario, &library, args.seed, (total, &args.flips))?
            }
            None => virtual_run::run(&scenario, &library, args.seed, total, &args.flips)?,
        };
        print(&report, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    live(args, &scenario, &source, &library, total)
}

fn live(
    args: &Args,
    scenario: &Scenario,
    source: &str,
    library: &Arc<Library>,
    total: Duration,
) -> Result<ExitCode> {
    if let Some(upstream) = &scenario.upstream
        && !drill_upstream::may_start(upstream)?
    {
        return Ok(ExitCode::from(USAGE));
    }
    let program = std::env::current_exe().wrap_err("cannot find the program to start again")?;
    let _log = if args.headless {
        Some(super::log_to_stderr(super::WARNINGS))
    } else {
        super::log_to_file()
    };
    let total = if args.headless { total } else { args.total.unwrap_or(SCREEN_RUN_MAX) };
    let (program, seed, redis) = (&*program, args.seed, args.redis.as_deref());
    let staging = Staging { program, scenario, source, seed, total, redis };
    super::on_runtime(async {
        if args.headless {
            let stage = Stage::set(&staging).await?;
            out::note(format_args!("weir: {}", admin_words(&stage)));
            let control = Control::new(reqwest_client()?, &stage)?;
            let recording = drill_record::start(args.record.as_deref(), &stage, None)?;
            let tape = recording.as_ref().map(RecordingThread::tape);
            let report =
                live::run(&stage, &control, library, total, &args.flips, tape, |_| {}).await;
            record::end(recording);
            let report = report?;
            print(&report, args.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        if !std::io::stdout().is_terminal() {
            return Err(crate::tui::Error::NoTerminal.into());
        }
        let appearance = args.look.appearance(None)?;
        let stage = Stage::set(&staging).await?;
        screen(stage, library, args, appearance).await
    })
}

/// How to reach the drill's admin API with `weir flag --url ... --token-file ...`.
fn admin_words(stage: &Stage) -> String {
    let gateways = stage.addresses().gateways.iter();
    let admins: Vec<_> = gateways.map(|at| format!("http://{}", at.admin)).collect();
    format!("admin {}, token in {} (0600)", admins.join(" "), stage.token_file().display())
}

/// The usual journal, or one that goes with the drill; then why, in words.
fn journal(stage: &Stage) -> Result<(Journal, Option<String>)> {
    match board::journal() {
        Ok((journal, _)) => Ok((journal, None)),
        Err(why) => {
            let (journal, _) = Journal::open(&stage.folder().join("journal.jsonl"))?;
            let file = journal.path().display();
            let words = format!("flips go to {file}, which goes with the drill: {why}");
            Ok((journal, Some(words)))
        }
    }
}

/// What speaks to the processes of a stage.
pub(super) fn reqwest_client() -> Result<reqwest::Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

/// The dashboard on the running stage; ends when the person leaves.
async fn screen(
    stage: Stage,
    library: &Arc<Library>,
    args: &Args,
    appearance: Appearance,
) -> Result<ExitCode> {
    let control = Control::new(reqwest_client()?, &stage)?;
    let origin = Instant::now();
    let (notify, notices) = mpsc::channel(NOTICES_MAX);
    let recording = drill_record::start(args.record.as_deref(), &stage, Some(notify.clone()))?;
    let tape = || recording.as_ref().map(RecordingThread::tape);
    let origins = Origins::default();
    let (poller, observations) = live::poll(&control, origin, origins.clone(), tape())?;
    let feeds = Feeds { observations, alerts: None, backfill: None, tape: tape() };
    let library = Arc::clone(library);
    let updates = board::diagnosed(feeds, move || library);
    let (journal, substitute) = journal(&stage)?;
    let port = board::Desk::new(Some(control.flags()), Ok(journal), tape(), origins);
    for words in substitute.into_iter().chain([admin_words(&stage)]) {
        say(&notify, words).await;
    }
    let title = format!("drill {}", stage.scenario().name);
    control.start().await?;
    let script = tokio::spawn(play(stage, control, args.flips.clone(), (notify, tape())));
    let exit = crate::tui::run(Session {
        title,
        environment: "drill".to_owned(),
        started: origin.into_std(),
        updates,
        notices,
        port,
        read_only: false,
        arming: Arming::NotNeeded,
        appearance,
        person: super::actor::from_system(),
        owners: Owners::default(),
        walk: None,
        registry: REGISTRY,
        settings: mpsc::channel(1).1,
    })
    .await;
    script.abort();
    drop(poller);
    record::end(recording);
    exit?;
    Ok(ExitCode::SUCCESS)
}

/// What happens on the stage while the dashboard is open: timed flips, and processes that come back
/// when they die. Holds the stage; ends by being aborted.
async fn play(
    mut stage: Stage,
    control: Control,
    mut flips: Vec<TimedFlip>,
    (notices, tape): (mpsc::Sender<Notice>, Option<Tape>),
) {
    let zero = Instant::now();
    let mut budget = std::pin::pin!(budget_ended(&control, stage.scenario().upstream.is_some()));
    let mut is_told = false;
    flips.sort_by_key(|flip| flip.at);
    let mut steps: Vec<_> = stage
        .scenario()
        .traffic
        .steps
        .iter()
        .map(|step| (Duration::from_secs_f64(step.at_s), step.name.clone(), step.rate))
        .collect();
    loop {
        let flip_at = flips.first().map(|flip| zero + flip.at);
        let step_at = steps.first().map(|(at, ..)| zero + *at);
        tokio::select! {
            () = until(step_at) => {
                let (_, name, rate) = steps.remove(0);
                say(&notices, format!("drill: {name}, {rate} originals/s")).await;
            }
            () = until(flip_at) => {
                let at = flips[0].at;
                let due: Vec<_> = flips.iter().filter(|flip| flip.at == at).cloned().collect();
                flips.retain(|flip| flip.at != at);
                let words = match control.flip(&due.iter().collect::<Vec<_>>()).await {
                    Ok(()) => format!("drill: set {}", due.iter().map(|f| f.key.as_str()).collect::<Vec<_>>().join(", ")),
                    Err(error) => format!("drill: {error}"),
                };
                if let Some(tape) = &tape {
                    tape.tell(Told::Notice(words.clone()), chrono::Utc::now());
                }
                say(&notices, words).await;
            }
            words = &mut budget, if !is_told => {
                is_told = true;
                say(&notices, format!("drill: {words}")).await;
            }
            (part, how) = stage.died() => {
                let name = part.word();
                let seconds = RESTART_AFTER.as_secs();
                say(&notices, format!("{name} ended ({how}); starting again in {seconds} s")).await;
                tokio::time::sleep(RESTART_AFTER).await;
                let again = match stage.restart(part).await {
                    Ok(()) if part == Part::Clients => {
                        control.start_clients().await.map_err(|error| error.to_string())
                    }
                    other => other.map_err(|error| error.to_string()),
                };
                if let Err(error) = again {
                    say(&notices, error).await;
                }
            }
        }
    }
}

/// Waits until the clients have spent their budget, and says so. Only an upstream has one.
async fn budget_ended(control: &Control, has_upstream: bool) -> String {
    if !has_upstream {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(BUDGET_LOOK).await;
        if let Ok(ledger) = control.clients().await
            && let Some(words) = ledger.ended_by_budget()
        {
            return words;
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn say(notices: &mpsc::Sender<Notice>, text: String) {
    // The screen may have closed; then nobody needs to know.
    let _ = notices.send(Notice { wall: chrono::Utc::now(), text }).await;
}

fn print(report: &Report, as_json: bool) -> Result<(), OutputError> {
    if as_json {
        out::line(format_args!("{:#}", document(report)))
    } else {
        out::text(&table(report))
    }
}

fn document(report: &Report) -> Value {
    let seconds = |span: Duration| span.as_secs_f64();
    let since_onset = |at: Duration| seconds(at) - seconds(report.onset);
    let verdict = |verdict: &Verdict| verdict_to_json(verdict);
    let verdicts = &report.verdicts;
    let ledger = report.ledger.as_ref();
    json!({
        "scenario": report.scenario,
        "seed": report.seed,
        "seconds": seconds(report.total),
        "onset_s": seconds(report.onset),
        "virtual": report.virtual_clock,
        "phases": report.phases,
        "verdict": verdicts.confirmed.as_ref().map(|(_, cause)| verdict(cause)),
        "verdict_after_s": verdicts.confirmed.as_ref().map(|(at, _)| since_onset(*at)),
        "named_after_s": verdicts.named_at().map(since_onset),
        "verdict_final": verdicts.last.as_ref().map(verdict),
        "flags": report.flags.iter().map(|(at, key, value)| {
            json!({"at_s": seconds(*at), "key": key, "value": value})
        }).collect::<Vec<_>>(),
        "ledger": {
            "originals": ledger.map(|counted| counted.originals),
            "attempts": ledger.map(|counted| counted.attempts),
            "provider_429": ledger.map(|counted| counted.provider_429),
            "tokens_sent": ledger.map(|counted| counted.tokens_sent),
        },
        "remarks": report.remarks,
    })
}

fn table(report: &Report) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let number = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |v| format!("{v:.2}"));
    let _ = writeln!(
        text,
        "{} (seed {}, {} s)\n\n{:<14}{:>8}{:>10}{:>9}{:>9}{:>9}{:>9}{:>8}{:>9}{:>7}{:>8}",
        report.scenario,
        report.seed,
        report.total.as_secs_f64(),
        "phase",
        "from s",
        "originals",
        "served",
        "offered",
        "admit",
        "shed",
        "429",
        "attempts",
        "x",
        "p95 s",
    );
    for phase in &report.phases {
        let _ = writeln!(
            text,
            "{:<14}{:>8}{:>10}{:>8.1}%{:>9}{:>9}{:>9}{:>8}{:>9}{:>7}{:>8}",
            phase.name,
            phase.from_s,
            phase.originals,
            phase.served_share.unwrap_or(0.0) * 100.0,
            phase.offered,
            phase.admitted,
            phase.shed,
            phase.provider_429,
            phase.attempts,
            number(phase.amplification),
            number(phase.latency_admitted_p95_s),
        );
    }
    if let Some((at, verdict)) = &report.verdicts.confirmed {
        let after = at.as_secs_f64() - report.onset.as_secs_f64();
        let _ = writeln!(text, "\n{} confirmed {after:.0} s after the onset", verdict.cause);
    }
    if let Some(last) = &report.verdicts.last {
        let _ = writeln!(text, "at the end: {} ({})", last.cause, last.standing);
    }
    if let Some(ledger) = &report.ledger {
        let _ = writeln!(
            text,
            "the provider counted {} originals, {} attempts, {} refusals (429), {} tokens",
            ledger.originals, ledger.attempts, ledger.provider_429, ledger.tokens_sent
        );
    }
    for remark in &report.remarks {
        let _ = writeln!(text, "note: {remark}");
    }
    text
}
