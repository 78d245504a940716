//! `weir drill-clients`, hidden: the clients of a drill as a process of their own.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use color_eyre::eyre::{Context, ensure};
use tokio::net::TcpListener;

use crate::cli::out;
use crate::cli::stdin_eof::stdin_eof;
use crate::drill::clients_http::{ClientsConfig, serve};
use crate::drill::provider_http::ready_line;
use crate::drill::scenario::Scenario;
use crate::drill::upstream::is_loopback;

/// Sends a scenario's traffic to a target, once it is told to start.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A shipped scenario's name, or a file.
    #[arg(long, value_name = "NAME|FILE")]
    scenario: String,
    /// Scheme, host and port of a gate; requests go to one after the other.
    #[arg(long = "target", value_name = "URL", required = true)]
    targets: Vec<http::Uri>,
    /// Scheme, host and port of the gate's admin listener, for the flag of the cache.
    #[arg(long, value_name = "URL")]
    admin: Option<http::Uri>,
    /// Seed of arrivals and jitter.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Seconds that originals arrive for; absent means the scenario's duration.
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Where control and metrics listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// End when standard input ends, so that no child outlives its parent.
    #[arg(long)]
    exit_on_stdin_eof: bool,
}

/// Runs the command.
///
/// # Errors
/// The scenario is wrong or the address cannot be used.
pub async fn run(args: Args) -> color_eyre::Result<ExitCode> {
    for target in &args.targets {
        ensure!(
            is_loopback(target),
            "`--target {target}` is not on this machine; clients send to a gate beside them"
        );
    }
    let scenario = Scenario::load(&args.scenario)?;
    let duration = match args.seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .wrap_err_with(|| format!("`--for {seconds}` is no time span"))?,
        None => scenario.duration,
    };
    let (targets, admin, seed) = (args.targets, args.admin, args.seed);
    let config = ClientsConfig { scenario, targets, admin, seed, duration };
    let listener = TcpListener::bind(args.listen)
        .await
        .wrap_err_with(|| format!("cannot listen on {}", args.listen))?;
    out::ready(&ready_line(listener.local_addr()?))?;
    serve(listener, config, stdin_eof(args.exit_on_stdin_eof)).await?;
    Ok(ExitCode::SUCCESS)
}
