//! `weir provider`: a simulated provider on loopback.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use color_eyre::eyre::Context;
use tokio::net::TcpListener;

use crate::cli::out;
use crate::cli::stdin_eof::stdin_eof;
use crate::drill::provider_http::{ready_line, serve_scopes};
use crate::drill::scenario::{FIRST_SCOPE, Scenario, parse_provider, read_bounded};
use crate::sim::world::ScopeProvider;

/// Serves a simulated OpenAI-compatible provider.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A provider.toml, with the keys of a scenario's `[provider]`.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The providers of this scenario, by name or file; a request's model tells them apart.
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "launch-0900",
        conflicts_with = "config"
    )]
    scenario: String,
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8089")]
    listen: SocketAddr,
    /// Seed of latencies and faults.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What the first calls get: `rate_limit:2,timeout,server_error,ok`; replaces the file's.
    #[arg(long, value_name = "LIST")]
    script: Option<String>,
    /// End when standard input ends, so that no child outlives its parent.
    #[arg(long)]
    exit_on_stdin_eof: bool,
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong or the address cannot be used.
pub async fn run(args: Args) -> color_eyre::Result<ExitCode> {
    let mut scopes = match &args.config {
        Some(path) => {
            let provider = parse_provider(&path.display().to_string(), &read_bounded(path)?)?;
            vec![ScopeProvider { name: FIRST_SCOPE.to_owned(), provider }]
        }
        None => Scenario::load(&args.scenario)?.scopes(),
    };
    if let (Some(script), Some(first)) = (args.script, scopes.first_mut()) {
        first.provider.script = script;
        first.provider.check()?;
    }
    let listener = TcpListener::bind(args.listen)
        .await
        .wrap_err_with(|| format!("cannot listen on {}", args.listen))?;
    out::ready(&ready_line(listener.local_addr()?))?;
    serve_scopes(listener, scopes, args.seed, stdin_eof(args.exit_on_stdin_eof)).await?;
    Ok(ExitCode::SUCCESS)
}
