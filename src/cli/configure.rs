//! `weir config`: a commented template, the JSON Schema, and a check of `weir.toml` without the network.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use color_eyre::eyre::Result;

use super::look::LookArgs;
use super::{config, live, out};
use crate::gateway;

/// Every key, commented; as it is, it says nothing that the defaults do not.
const TEMPLATE: &str = include_str!("../../assets/weir.template.toml");

/// The configuration: a template, its schema, a check.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print a weir.toml with every key, commented
    Template,
    /// Print the JSON Schema of weir.toml, for editors
    Schema,
    /// Read weir.toml and say what is wrong, file and line; asks no source and no store
    Check {
        /// The file
        #[arg(short, long, value_name = "FILE", default_value = "weir.toml", env = "WEIR_CONFIG")]
        config: PathBuf,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// When the file is wrong; the error names file, line, key and what is allowed.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Template => out::text(TEMPLATE)?,
        Command::Schema => out::line(super::doctor::schema::pretty())?,
        Command::Check { config } => out::text(&check(config)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Every part that a command would read, checked as that command checks it.
fn check(path: &Path) -> Result<String> {
    let file = config::load(path)?;
    let toml = &file.toml;
    let mut lines = Vec::new();
    if toml.sources.is_empty() {
        lines.push("no [[source]]: weir watch has nothing to show".to_owned());
    } else {
        let sources = live::sources(&file, path)?;
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        lines.push(format!("{} sources: {}", names.len(), names.join(", ")));
    }
    // Only the gateway cannot do without.
    if !toml.scopes.is_empty() || toml.gateway.is_some() {
        gateway::scopes(&toml.scopes).map_err(|error| file.refused(&error))?;
    }
    lines.push(format!("{} scopes", toml.scopes.len()));
    lines.push(match file.flag_store()? {
        Some(store) => format!("flags: {}", store.name()),
        None => "no [flags]: weir watch only watches".to_owned(),
    });
    if let Some(gateway) = &toml.gateway {
        gateway.check().map_err(|error| file.refused(&error))?;
        gateway.base_settings().map_err(|error| file.refused(&error))?;
        lines.push(format!("gateway {} on {}", gateway.instance, gateway.listen));
    }
    if let Some((url, _)) = file.alertmanager()? {
        lines.push(format!("alerts of {url}"));
    }
    file.library(None)?;
    LookArgs::default().appearance(Some(&file))?;
    file.registry()?;
    let mut text = format!("{}: nothing is wrong\n", path.display());
    for line in lines {
        text.push_str("  ");
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str("  whether they answer: weir doctor\n");
    Ok(text)
}
