//! `weir init`: asks this machine's usual ports what answers there, and writes a first `weir.toml`.
//!
//! Only loopback is asked, and what a person names. A file that is there is never written over.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use color_eyre::eyre::{Context as _, Result, bail, eyre};
use futures_util::future::join_all;
use serde_json::Value;

use super::out;

/// How long one page may take.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Bytes of an answer that are looked at.
const BYTES_MAX: usize = 4 << 20;
/// Exit code for what was not confirmed or not understood.
const USAGE: u8 = 2;

/// Pages of metrics that are asked for.
const PAGES: [&str; 5] = [
    "http://127.0.0.1:9901/metrics",
    "http://127.0.0.1:9901/stats/prometheus",
    "http://127.0.0.1:4000/metrics/",
    "http://127.0.0.1:8000/metrics",
    "http://127.0.0.1:30000/metrics",
];
const PROMETHEUS: &str = "http://127.0.0.1:9090";
const ALERTMANAGER: &str = "http://127.0.0.1:9093";

/// What a line of a page begins with, by adapter; the more special one first.
const MARKS: [(&str, &str); 6] = [
    ("weir", "weir_"),
    ("litellm", "litellm_"),
    ("vllm-router", "vllm_router_"),
    ("vllm", "vllm:"),
    ("sglang", "sglang:"),
    ("envoy", "envoy_"),
];

/// Writes a first weir.toml from what answers on this machine's usual ports.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file to write; one that is there is left alone
    #[arg(short, long, value_name = "FILE", default_value = "weir.toml", env = "WEIR_CONFIG")]
    config: PathBuf,
    /// Ask nothing: take everything that answered
    #[arg(long)]
    yes: bool,
    /// A metrics page to ask as well; may be repeated
    #[arg(long, value_name = "URL")]
    page: Vec<String>,
}

/// What answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// A metrics page that an adapter reads.
    Page { adapter: &'static str, url: String },
    /// A job of a Prometheus.
    Job { adapter: &'static str, job: String },
    /// An Alertmanager.
    Alertmanager,
}

impl Found {
    fn words(&self) -> String {
        match self {
            Self::Page { adapter, url } => format!("{adapter} at {url}"),
            Self::Job { adapter, job } => {
                format!("{adapter}, as job \"{job}\" of the Prometheus at {PROMETHEUS}")
            }
            Self::Alertmanager => format!("an Alertmanager at {ALERTMANAGER}"),
        }
    }
}

/// Runs the wizard as a command.
///
/// # Errors
/// When the file is there, nothing answers, or it cannot be written.
pub async fn run(args: Args) -> Result<ExitCode> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !args.yes && !is_terminal {
        out::note(
            "error: weir init asks, and this is no terminal; take all that answers with --yes",
        );
        return Ok(ExitCode::from(USAGE));
    }
    let is_written = wizard(&args.config, args.yes, &args.page).await?;
    Ok(if is_written { ExitCode::SUCCESS } else { ExitCode::from(USAGE) })
}

/// Offers to write the file that is missing, where there is a terminal to ask on; whether it is there now.
///
/// # Errors
/// As [`run`].
pub async fn offer(path: &Path) -> Result<bool> {
    if path.exists() || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(path.exists());
    }
    out::note(format_args!("There is no {} here.", path.display()));
    wizard(path, false, &[]).await
}

async fn wizard(path: &Path, takes_all: bool, pages: &[String]) -> Result<bool> {
    if path.exists() {
        let name = path.display();
        bail!("{name} is there already and was left alone; name another file with -c FILE");
    }
    out::note("Asking the usual ports of this machine ...");
    let found = probe(pages).await?;
    if found.is_empty() {
        bail!(
            "nothing answered on the usual ports; name a page with `weir init --page URL`, or begin \
             from `weir config template > {}`",
            path.display()
        );
    }
    let mut taken = Vec::new();
    for one in found {
        if takes_all || agrees(&format!("  {}: take it?", one.words()))? {
            if takes_all {
                out::note(format_args!("  {}", one.words()));
            }
            taken.push(one);
        }
    }
    if !taken.iter().any(|one| *one != Found::Alertmanager) {
        out::note("No source was taken: nothing is written.");
        return Ok(false);
    }
    let environment = if takes_all { String::new() } else { ask("  Environment [production]: ")? };
    let environment = match environment.trim() {
        "" => "production",
        named => named,
    };
    let has_token = std::env::var("WEIR_ADMIN_TOKEN").is_ok_and(|token| !token.is_empty());
    write_new(path, &text_of(environment, &taken, has_token))?;
    let name = path.display();
    out::note(format_args!("{name} is written. Next: weir doctor, then weir watch."));
    Ok(true)
}

fn ask(question: &str) -> Result<String> {
    out::ask(question).wrap_err("nobody answers; use --yes")
}

fn agrees(question: &str) -> Result<bool> {
    let said = ask(&format!("{question} [Y/n] "))?;
    Ok(matches!(said.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes"))
}

/// Writes a file that was not there.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let name = path.display();
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let mut file =
        made.wrap_err_with(|| format!("cannot write {name}; name another with -c FILE"))?;
    file.write_all(text.as_bytes()).wrap_err_with(|| format!("cannot write {name}"))
}

/// What answers, in the order of the questions.
async fn probe(pages: &[String]) -> Result<Vec<Found>> {
    let client = super::drill::reqwest_client()?;
    let asked = pages.iter().map(String::as_str).chain(PAGES);
    let asked = asked.map(|url| page(&client, url));
    let (pages, jobs, alerts) =
        tokio::join!(join_all(asked.collect::<Vec<_>>()), jobs(&client), alertmanager(&client));
    let found = pages.into_iter().flatten().chain(jobs).chain(alerts);
    Ok(found.collect())
}

async fn page(client: &reqwest::Client, url: &str) -> Option<Found> {
    let answer = client.get(url).timeout(PATIENCE).send().await.ok()?.error_for_status().ok()?;
    let body = answer.bytes().await.ok()?;
    let text = String::from_utf8_lossy(&body[..body.len().min(BYTES_MAX)]);
    let adapter = adapter_of(&text)?;
    Some(Found::Page { adapter, url: url.to_owned() })
}

/// The adapter that reads a page.
fn adapter_of(page: &str) -> Option<&'static str> {
    let has = |mark: &str| page.lines().any(|line| line.starts_with(mark));
    MARKS.iter().find(|(_, mark)| has(mark)).map(|(adapter, _)| *adapter)
}

/// The jobs of a Prometheus whose series an adapter reads.
async fn jobs(client: &reqwest::Client) -> Vec<Found> {
    let mut found = Vec::new();
    for (adapter, mark) in MARKS {
        let query = format!("count by (job) ({{__name__=~\"{mark}.+\"}})");
        let url = format!("{PROMETHEUS}/api/v1/query");
        let Ok(answer) = client.get(url).timeout(PATIENCE).query(&[("query", &query)]).send().await
        else {
            break;
        };
        let Ok(answer) = answer.json::<Value>().await else { break };
        let rows = answer["data"]["result"].as_array().into_iter().flatten();
        let jobs = rows.filter_map(|row| row["metric"]["job"].as_str());
        found.extend(jobs.map(|job| Found::Job { adapter, job: job.to_owned() }));
    }
    found
}

async fn alertmanager(client: &reqwest::Client) -> Option<Found> {
    let answer =
        client.get(format!("{ALERTMANAGER}/api/v2/status")).timeout(PATIENCE).send().await.ok()?;
    let status = answer.error_for_status().ok()?.json::<Value>().await.ok()?;
    status["cluster"].is_object().then_some(Found::Alertmanager)
}

/// The first `weir.toml`.
fn text_of(environment: &str, found: &[Found], has_token: bool) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let mut text = format!(
        "# Written by weir init. Every other key: weir config template\n\
         environment = {}\n",
        quoted(environment)
    );
    let mut names: Vec<String> = Vec::new();
    for one in found {
        let (adapter, road) = match one {
            Found::Page { adapter, url } => (adapter, format!("url = {}\n", quoted(url))),
            Found::Job { adapter, job } => {
                let select = format!("job={}", serde_json::Value::from(job.as_str()));
                let road =
                    format!("prometheus = {}\nselect = {}\n", quoted(PROMETHEUS), quoted(&select));
                (adapter, road)
            }
            Found::Alertmanager => continue,
        };
        let taken = names
            .iter()
            .filter(|name| name.as_str() == *adapter || name.starts_with(&format!("{adapter}-")))
            .count();
        let name =
            if taken == 0 { (*adapter).to_owned() } else { format!("{adapter}-{}", taken + 1) };
        let _ = write!(
            text,
            "\n[[source]]\nname = {}\nadapter = {}\n{road}",
            quoted(&name),
            quoted(adapter)
        );
        names.push(name);
    }
    if found.contains(&Found::Alertmanager) {
        let _ = write!(text, "\n[alertmanager]\nurl = {}\n", quoted(ALERTMANAGER));
    }
    let ours = found.iter().find_map(|one| match one {
        Found::Page { adapter: "weir", url } => url.strip_suffix("/metrics"),
        _ => None,
    });
    if let Some(admin) = ours {
        // Without the token in the environment, weir watch would refuse the file.
        let mark = if has_token { "" } else { "#" };
        let _ = write!(
            text,
            "\n# To change flags from the dashboard: export WEIR_ADMIN_TOKEN first.\n\
             {mark}[flags]\n{mark}url = {}\n{mark}token_env = \"WEIR_ADMIN_TOKEN\"\n",
            quoted(admin)
        );
    }
    text.push_str(
        "\n# One quota; deployments that share a quota share a scope. What weir reads needs none of this;\n\
         # it says who is to be paged, and what `weir gateway` may let through.\n\
         #[[scope]]\n#name = \"openai/acct-1/embed\"\n#owner = \"team-search\"\n#rpm = 6000\n#tpm = 1200000\n",
    );
    text
}

/// What to do where there is no file and nobody to ask.
pub fn missing(path: &Path) -> color_eyre::Report {
    eyre!(
        "there is no {}; make one with `weir init` (`weir init --yes` asks nothing), or begin from \
         `weir config template`, or name a file with -c FILE",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::config::WeirToml;

    #[test]
    fn a_page_is_known_by_its_names() {
        for (page, expected) in [
            ("# TYPE weir_x counter\nweir_x 1\n", Some("weir")),
            ("litellm_requests_metric_total{a=\"b\"} 1\n", Some("litellm")),
            ("vllm:num_requests_running 1\n", Some("vllm")),
            ("envoy_cluster_upstream_rq{a=\"b\"} 1\n", Some("envoy")),
            ("go_goroutines 7\n# about weir_x\n", None),
        ] {
            assert_eq!(adapter_of(page), expected, "{page}");
        }
    }

    #[test]
    fn what_is_written_is_a_configuration_with_these_parts() {
        let page = |url: &str| Found::Page { adapter: "weir", url: url.to_owned() };
        let found = [
            page("http://127.0.0.1:9901/metrics"),
            page("http://127.0.0.1:9902/metrics"),
            Found::Job { adapter: "litellm", job: "a \"b\"".to_owned() },
            Found::Alertmanager,
        ];
        let read = |has_token| -> WeirToml {
            toml::from_str(&text_of("pro\"d", &found, has_token)).expect("TOML")
        };
        let toml = read(true);
        let names: Vec<&str> = toml.sources.iter().map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["weir", "weir-2", "litellm"]);
        assert_eq!(toml.environment.as_deref(), Some("pro\"d"));
        assert_eq!(toml.sources[2].select.as_deref(), Some("job=\"a \\\"b\\\"\""));
        assert!(toml.alertmanager.is_some() && toml.flags.is_some());
        assert!(read(false).flags.is_none());
    }
}
