//! `weir doctor`: what each source says, how well, which causes cannot be told without the rest, and
//! whether everything else that an incident needs is at hand.
//!
//! Asks everything once and changes nothing. What is wrong is a finding with a next step, not an
//! error, unless the configuration itself cannot be read.

mod document;
mod finding;
pub(super) mod schema;
mod sources;
mod surroundings;
mod terminal;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use color_eyre::eyre::Result;

use super::scrape::duration;
use super::{config, out};
use crate::diagnosis::{Reach, reach};
use crate::runbook;

use finding::{Finding, Standing};
use sources::Checked;

/// Checks a configuration: what its sources say, how well, which causes cannot be told, and the rest.
///
/// Asks each source once. Fails when one does not answer or something else is wrong.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with [[source]]
    #[arg(short, long, value_name = "FILE", default_value = "weir.toml")]
    config: PathBuf,
    /// Longest wait for one source
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    timeout: Duration,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print a JSON Schema of weir.toml, for editors, and check nothing
    #[arg(long, conflicts_with_all = ["config", "timeout", "json"])]
    schema: bool,
}

/// Everything that was found.
struct Report {
    sources: Vec<Checked>,
    findings: Vec<Finding>,
    causes: Vec<Reach>,
}

impl Report {
    /// Whether nothing is wrong.
    fn is_well(&self) -> bool {
        self.sources.iter().all(Checked::is_well)
            && self.findings.iter().all(|finding| finding.standing != Standing::Wrong)
    }
}

/// Checks everything.
///
/// # Errors
/// When the configuration or an adapter is wrong. A source that is down is a finding.
pub async fn run(args: Args) -> Result<ExitCode> {
    if args.schema {
        out::line(schema::pretty())?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = config::load(&args.config)?;
    let adapters = config::adapters(&args.config);
    let sources = (0..file.toml.sources.len())
        .map(|index| file.source(index, &adapters))
        .collect::<Result<Vec<_>>>()?;
    let sources = sources::check(sources, args.timeout).await?;
    let mut findings = vec![surroundings::adapters(&adapters, &args.config)];
    findings.extend(surroundings::scopes(&file));
    findings.extend(surroundings::flags(&file).await);
    findings.extend(surroundings::alertmanager(&file, args.timeout).await);
    findings.push(surroundings::journal());
    findings.extend(terminal::check(&terminal::Seat::ours(), |name| std::env::var(name).ok()));
    let causes = reach(&runbook::embedded(), &sources::given(&sources));
    let report = Report { sources, findings, causes };
    if args.json {
        out::line(document::of(&report))?;
    } else {
        out::text(&words::of(&report))?;
    }
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
