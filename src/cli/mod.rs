//! The command line: parse, compose, print. One file per command.

mod actor;
mod audit;
mod board;
mod classify;
mod columns;
mod config;
mod configure;
mod diagnose;
mod diagnose_text;
mod doctor;
mod drill;
mod drill_check;
mod drill_clients;
mod drill_compare;
mod drill_gate;
mod drill_list;
mod drill_record;
mod drill_upstream;
mod explain_text;
mod flag;
mod flag_text;
mod gateway;
mod gateway_state;
mod init;
mod keys;
mod lifetime;
mod live;
mod look;
mod manual;
mod out;
mod picture;
mod player;
mod provider;
mod rate;
mod record;
mod recording;
mod replay;
mod report;
mod runbook;
mod runbook_page;
mod runbook_test;
mod scrape;
mod shared_notes;
mod signals;
mod stdin_eof;
mod timekeeper;
mod walk_save;
mod walk_text;
mod watch;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser, Subcommand};
use color_eyre::eyre::Result;
use tokio::runtime::Runtime;

use out::OutputError;

/// The terminal for rate-limit incidents of LLM, embedding and search APIs.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stage an incident on loopback and open the dashboard on it
    Drill(drill::Args),
    /// The dashboard on real systems
    Watch(watch::Args),
    /// Write a first weir.toml from what answers on this machine
    Init(init::Args),
    /// The configuration: a template, its schema, a check
    Config(configure::Args),
    #[command(hide = true)]
    DrillClients(drill_clients::Args),
    /// A simulated provider
    Provider(provider::Args),
    /// The dashboard on a recording, with time travel
    Replay(replay::Args),
    /// Recordings: what one holds; cut a part out; take the names out
    Recording(recording::Args),
    /// Verdicts, no screen
    Diagnose(diagnose::Args),
    /// The incident so far, as a report in Markdown
    Report(report::Args),
    /// What a provider's answers mean: class, wait, meters
    Classify(classify::Args),
    /// Runbooks: list, show, lint, test, walk
    Runbook(runbook::Args),
    /// Parse one metrics page, print its samples or why it is bad
    Scrape(scrape::Args),
    /// Check sources: what they say, how well, and which causes cannot be told
    Doctor(doctor::Args),
    /// The signals as weir computes them
    Signals(signals::Args),
    /// Rates, increases and quantiles over given samples, as Prometheus computes them
    Rate(rate::Args),
    /// Read and change the flags of the admission service
    Flag(flag::Args),
    /// The admission service
    Gateway(gateway::Args),
    /// The journal of flips and incidents
    Audit(audit::Args),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man(manual::Args),
    /// Every key of the dashboard
    Keys(keys::Args),
}

/// Runs the command that the arguments name; says what went wrong on stderr.
#[must_use]
pub fn main() -> ExitCode {
    if let Err(error) =
        color_eyre::config::HookBuilder::default().display_env_section(false).install()
    {
        out::note(format_args!("weir: {error}"));
    }
    let ended = match Cli::try_parse() {
        Ok(cli) => dispatch(cli.command),
        Err(refused) if refused.use_stderr() => {
            let _ = refused.print();
            return ExitCode::from(2);
        }
        Err(help) => shown(&help),
    };
    ended.unwrap_or_else(|report| match report.downcast_ref::<OutputError>() {
        Some(error) if error.reader_left() => ExitCode::SUCCESS,
        _ => {
            out::note(format_args!("error: {}", said(&report)));
            ExitCode::FAILURE
        }
    })
}

/// Prints help or version, in colour where a terminal shows it.
fn shown(help: &clap::Error) -> Result<ExitCode> {
    let printed = help.print().and_then(|()| std::io::stdout().flush());
    printed.map_err(OutputError::from)?;
    Ok(ExitCode::SUCCESS)
}

/// The report as a chain of lines, outermost first; no backtrace, which helps nobody at 3 am.
fn said(report: &color_eyre::Report) -> String {
    let mut lines = report.chain().map(ToString::to_string);
    let mut text = lines.next().unwrap_or_default();
    for line in lines {
        text.push_str("\n  caused by: ");
        text.push_str(&line);
    }
    text
}

/// How long a line that is being written when a command ends may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Drill(args) => drill::run(&args),
        Command::DrillClients(args) => {
            let _log = log_to_stderr(WARNINGS);
            on_runtime(drill_clients::run(args))
        }
        Command::Provider(args) => {
            let _log = log_to_stderr(WARNINGS);
            on_runtime(provider::run(args))
        }
        Command::Watch(args) => {
            let _log = log_to_file();
            // What is heard is read on a thread of its own: whatever it takes, the rest does not wait,
            // and to hand a page from one thread to another costs more than to read it.
            let (ears, rest) = (runtime_of(1)?, runtime_of(1)?);
            let ended = run_on(rest, watch::run(args, ears.handle().clone()));
            ears.shutdown_timeout(LAST_WORDS);
            ended
        }
        Command::Init(args) => on_runtime(init::run(args)),
        Command::Config(args) => configure::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Recording(args) => recording::run(&args),
        Command::Scrape(args) => on_runtime(scrape::run(args)),
        Command::Doctor(args) => on_runtime(doctor::run(args)),
        Command::Signals(args) => on_runtime(signals::run(args)),
        Command::Classify(args) => classify::run(&args),
        Command::Rate(args) => rate::run(&args),
        Command::Runbook(args) => runbook::run(&args),
        Command::Diagnose(args) => on_runtime(diagnose::run(args)),
        Command::Report(args) => on_runtime(report::run(args)),
        Command::Flag(args) => on_runtime(flag::run(args)),
        Command::Audit(args) => on_runtime(audit::run(args)),
        Command::Gateway(args) => {
            let _log = log_to_stderr(args.logs());
            on_runtime(gateway::run(args))
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
            out::write(|out| out.write_all(&script))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(args) => manual::run(&args, Cli::command()),
        Command::Keys(args) => keys::run(&args),
    }
}

/// Runs a command on a runtime of its own.
fn on_runtime<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    run_on(runtime_of(2)?, command)
}

/// What is still worked out on other threads when the command ends is not waited for, such as a forecast
/// that nobody will read; a line that is being written is.
fn run_on<T>(runtime: Runtime, command: impl Future<Output = Result<T>>) -> Result<T> {
    let ended = runtime.block_on(command);
    runtime.shutdown_timeout(LAST_WORDS);
    ended
}

fn runtime_of(threads: usize) -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}

/// Logs of the dashboard go to a file in the state directory, for nothing may write over the screen.
/// Hold the guard until the end: dropping it flushes.
fn log_to_file() -> Option<tracing_appender::non_blocking::WorkerGuard> {
    let journal = crate::incident::default_path().ok()?;
    let folder = journal.parent()?;
    std::fs::create_dir_all(folder).ok()?;
    let file = folder.join("weir.log");
    let file = std::fs::OpenOptions::new().append(true).create(true).open(file).ok()?;
    let (writer, guard) = tracing_appender::non_blocking(file);
    let filter = tracing_subscriber::EnvFilter::try_from_env("WEIR_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(false)
        .try_init()
        .ok()?;
    Some(guard)
}

/// What serving commands log without `WEIR_LOG`.
const WARNINGS: &str = "warn";

/// Logs of serving commands go to stderr, by `WEIR_LOG`; with `WEIR_LOG_FORMAT=json` one
/// JSON object a line. Nobody waits for a slow reader: what it cannot take is dropped. Hold the guard
/// until the end: dropping it flushes.
fn log_to_stderr(unless_said: &str) -> tracing_appender::non_blocking::WorkerGuard {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WEIR_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(unless_said));
    let (writer, guard) = tracing_appender::non_blocking(std::io::stderr());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    if std::env::var("WEIR_LOG_FORMAT").is_ok_and(|format| format == "json") {
        lines.json().flatten_event(true).init();
    } else {
        lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
    }
    guard
}
