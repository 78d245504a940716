//! `weir gateway`: the admission service.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use color_eyre::eyre::{Report, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::gateway_state::State;
use super::{config, lifetime, out};
use crate::gateway::{Gateway, Reloader, StartError};

/// Runs the admission service.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with [gateway] and [[scope]]
    #[arg(short, long, value_name = "FILE", default_value = "weir.toml")]
    config: PathBuf,
    /// Where to write the admin token that weir makes when the file has no `admin_token_env`
    /// [default: in the user's state directory]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// End when standard input ends: no orphan survives its parent
    #[arg(long, hide = true)]
    exit_on_stdin_eof: bool,
}

/// Takes as many descriptors as the system lets it: every caller and every call needs one, and the
/// usual soft limit of 1024 is for programs that cannot have more.
fn take_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
}

impl Args {
    /// What is logged unless `WEIR_LOG` says otherwise: warnings, and a line for each request that is
    /// not served. In a drill thousands of those are meant, and nobody reads them.
    pub const fn logs(&self) -> &'static str {
        if self.exit_on_stdin_eof { super::WARNINGS } else { "warn,weir::unserved=info" }
    }
}

/// Runs until a signal comes.
///
/// # Errors
/// When the configuration is wrong or an address is taken.
pub async fn run(args: Args) -> Result<ExitCode> {
    let file = config::load(&args.config)?;
    let Some(gateway) = &file.toml.gateway else {
        let remedy = "add [gateway] with `listen`, `admin_listen` and `upstream`";
        return Err(file.wrong("gateway", "there is no such table", remedy));
    };
    gateway.check().map_err(|error| file.refused(&error))?;
    let mut gateway = gateway.clone();
    let makes_token = gateway.admin_token_env.is_none();
    let writes_token = makes_token && !args.exit_on_stdin_eof;
    let token_file = args.token_file.filter(|_| writes_token);
    let needs_state = gateway.state_file.is_none() || (writes_token && token_file.is_none());
    let state = if needs_state { State::claim(&gateway.instance)? } else { None };
    if gateway.state_file.is_none() {
        gateway.state_file = state.as_ref().map(State::overrides);
    }
    take_descriptors();
    let started =
        Gateway::start(&gateway, &file.toml.scopes).await.map_err(|error| match error {
            StartError::Config(error) => file.refused(&error),
            error => Report::from(error),
        })?;
    // Before it says that it is ready: a SIGHUP ends whoever does not listen for it.
    let mut hangups = lifetime::hangups()?;
    let mut ready = json!({
        "data": started.data_address().to_string(),
        "admin": started.admin_address().to_string(),
    });
    if writes_token {
        let written = State::write_token(state.as_ref(), token_file, started.token())?;
        ready["token_file"] = written.display().to_string().into();
    } else if makes_token {
        // Its parent holds the other end of this pipe.
        ready["token"] = started.token().into();
    }
    out::ready(&ready.to_string())?;
    let grace = gateway.transport.drain();
    let reloader = started.reloader();
    let (path, state_file) = (args.config.clone(), gateway.state_file.clone());
    let reloads = tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            if let Err(error) = reload(&reloader, &path, state_file.as_ref()) {
                reloader.refused();
                tracing::error!("the configuration stays as it was: {error}");
            }
        }
    });
    started.run(lifetime::end(args.exit_on_stdin_eof), grace).await;
    reloads.abort();
    Ok(ExitCode::SUCCESS)
}

/// Reads the file again and takes over what can be; says what needs a restart.
fn reload(reloader: &Reloader, path: &Path, state_file: Option<&PathBuf>) -> Result<()> {
    let file = config::load(path)?;
    let Some(gateway) = &file.toml.gateway else {
        let remedy = "put [gateway] back, or stop the gateway";
        return Err(file.wrong("gateway", "there is no such table", remedy));
    };
    let mut gateway = gateway.clone();
    if gateway.state_file.is_none() {
        gateway.state_file = state_file.cloned();
    }
    let stays = reloader.take(&gateway, &file.toml.scopes).map_err(|error| file.refused(&error))?;
    if stays.is_empty() {
        tracing::warn!(file = %path.display(), "the configuration was read again and is in force");
    } else {
        let stays = stays.join(", ");
        tracing::warn!(stays, "the configuration was read again; what stays needs a restart");
    }
    Ok(())
}
