//! `weir flag`: reads and changes flags from a shell, by the same plans and rules as the screen.

mod foresight;
mod reach;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use color_eyre::eyre::{bail, eyre};
use serde::Serialize;
use serde_json::json;

use super::out::{self, OutputError};
use super::{actor, flag_text};
use crate::diagnosis::{Verdict, diagnose_once, worst_first};
use crate::flag::wire::{EventRow, EventsBody, ForecastBody, PlanBody, TableBody};
use crate::flag::{
    self, Author, Confirmation, Evidence, FlagTable, Flip, FlipEnd, FlipError, FlipLog, FlipReport,
    Plan, PlanError, Revision, Store, Terms,
};
use crate::incident::{self, Journal};
use crate::runbook;
use std::time::Duration;

use crate::signal::{Snapshot, parse_duration};

use foresight::Foresight;
pub(super) use reach::admin;
use reach::{ADMIN_URL_ENV, Reached};

/// Exit code for a command that was not understood or not confirmed.
const USAGE: u8 = 2;

/// Read and change the flags of the admission service, or of another store.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, ClapArgs)]
struct Connection {
    /// File whose [flags] names the store [default: weir.toml, if it is there and --url is not given]
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the gateway's admin listener [default: `http://127.0.0.1:9901`]
    #[arg(long, global = true, env = ADMIN_URL_ENV)]
    url: Option<String>,
    /// File that holds its bearer token; otherwise `WEIR_ADMIN_TOKEN` is read
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every flag: value, base, what the instances use, who and when
    List,
    /// One flag
    Get {
        /// The flag's key
        key: String,
    },
    /// What a change would do; changes nothing
    Plan {
        /// KEY=VALUE, KEY=base to drop the override, or the name of a plan such as `contain`
        #[arg(required = true)]
        changes: Vec<String>,
        #[command(flatten)]
        terms: TermOptions,
    },
    /// Change flags, all or none
    Set {
        /// KEY=VALUE, KEY=base to drop the override, or the name of a plan such as `contain`
        #[arg(required = true)]
        changes: Vec<String>,
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// Take one change back, whoever made it
    Undo {
        /// The event's number in `weir flag events` [default: the newest that is not undone]
        event: Option<u64>,
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// Every flag to its safe value
    Safe {
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// Who changed what, oldest first
    Events {
        /// Only events after this number
        #[arg(long, default_value_t = 0)]
        since: u64,
    },
}

#[derive(Debug, ClapArgs)]
struct TermOptions {
    /// Why; the next person on call reads it
    #[arg(long)]
    reason: Option<String>,
    /// Timer, as 90s, 15m or 1h; a riskier flip reverts then, a safer one reminds
    #[arg(long, value_parser = seconds, value_name = "TIME")]
    ttl: Option<u64>,
    /// Refuse when the table is not at this revision
    #[arg(long, value_name = "N")]
    if_revision: Option<u64>,
    /// Pass the interlocks that refuse, for this reason; it stands in the history for good
    #[arg(long, value_name = "REASON")]
    break_glass: Option<String>,
    /// File with the gateway's second token, for --break-glass; else `WEIR_BREAK_GLASS_TOKEN` is read
    #[arg(long, value_name = "FILE", requires = "break_glass")]
    break_glass_token_file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
struct ChangeOptions {
    #[command(flatten)]
    terms: TermOptions,
    /// Print the plan and stop
    #[arg(long)]
    dry_run: bool,
    /// Do not ask; for scripts
    #[arg(long)]
    yes: bool,
    /// In whose name
    #[arg(long, env = "WEIR_ACTOR")]
    actor: Option<String>,
    /// The incident that it belongs to
    #[arg(long, env = "WEIR_INCIDENT")]
    incident: Option<String>,
    /// The journal [default: in the user's state directory]
    #[arg(long, value_name = "FILE", env = "WEIR_JOURNAL")]
    journal: Option<PathBuf>,
}

/// Runs the command: 0 done, 1 failed or refused, 2 not understood or not confirmed.
///
/// # Errors
/// When the service cannot be read, or the journal cannot be written.
pub async fn run(args: Args) -> color_eyre::Result<ExitCode> {
    let Args { connection, command } = args;
    let reached = reach::reach(&connection)?;
    let store = Arc::clone(&reached.store);
    let json = connection.json;
    match command {
        Command::List => {
            let table = store.list().await?;
            let body = reached.of(TableBody::from(&table));
            show(json, &body, || flag_text::table(&table, &*store))?;
        }
        Command::Get { key } => {
            let table = store.list().await?;
            let Some(state) = table.get(&key) else {
                // The table's own words name the flags there are.
                return Ok(usage(&flag::wanted(&[format!("{key}=base")]).map_or_else(
                    |error| error.to_string(),
                    |_| format!("the store has no flag `{key}`"),
                )));
            };
            let one = FlagTable { revision: table.revision, flags: vec![state.clone()] };
            let tells = reached.able().effective;
            show(json, &TableBody::from(&one).flags[0], || flag_text::flag(state, tells))?;
        }
        Command::Events { since } => {
            let events = history(&*store, None).await?;
            let events: Vec<_> = events.into_iter().filter(|event| event.seq > since).collect();
            let body = EventsBody { events: events.iter().map(EventRow::from).collect() };
            show(json, &body, || flag_text::events(&events))?;
        }
        Command::Plan { changes, terms } => {
            let session = Session::read(reached, &terms, json).await?;
            let plan = session.plan(&Wanted::Changes(changes), &terms);
            return session.dry_run(plan, None);
        }
        Command::Set { changes, change } => {
            return set(reached, &Wanted::Changes(changes), change, json).await;
        }
        Command::Safe { change } => return set(reached, &Wanted::Safe, change, json).await,
        Command::Undo { event, change } => {
            return set(reached, &Wanted::Undo(event), change, json).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked for.
enum Wanted {
    Changes(Vec<String>),
    Undo(Option<u64>),
    Safe,
}

/// A plan, and what it would do.
#[derive(Serialize)]
struct Foretold {
    #[serde(flatten)]
    plan: PlanBody,
    forecast: ForecastBody,
}

/// What was read for one plan.
struct Session {
    reached: Reached,
    table: FlagTable,
    scopes: Vec<Arc<Snapshot>>,
    /// The worst that the signals show.
    verdict: Option<Verdict>,
    events: Vec<flag::FlagEvent>,
    json: bool,
}

impl Session {
    async fn read(reached: Reached, terms: &TermOptions, json: bool) -> color_eyre::Result<Self> {
        if terms.break_glass.is_some() && !reached.has_glass() {
            bail!(reached.no_glass());
        }
        let table = reached.store.list().await?;
        if let Some(wanted) = terms.if_revision.map(Revision)
            && wanted != table.revision
        {
            bail!(
                "the table is at revision {}, not {wanted}: look at `weir flag events --since` \
                 and plan again",
                table.revision
            );
        }
        let scopes = reached.scopes().await;
        let library = runbook::embedded();
        let verdicts = scopes.iter().map(|scope| diagnose_once(&library, scope));
        let verdict = verdicts.min_by(worst_first);
        Ok(Self { reached, table, scopes, verdict, events: Vec::new(), json })
    }

    fn plan(&self, wanted: &Wanted, terms: &TermOptions) -> Result<Plan, PlanError> {
        let plan = self.plain(wanted, terms)?;
        Ok(self.reached.able().fitted(Plan { glass: terms.break_glass.clone(), ..plan }))
    }

    /// The plan that has to hold.
    fn plain(&self, wanted: &Wanted, terms: &TermOptions) -> Result<Plan, PlanError> {
        let now = Some(chrono::Utc::now());
        let evidence = Evidence { scopes: &self.scopes, verdict: self.verdict.as_ref(), now };
        // A person says why; only what must always be open has words of its own.
        let given = terms.reason.clone();
        let reason =
            if matches!(wanted, Wanted::Safe) { given } else { Some(given.unwrap_or_default()) };
        let terms =
            Terms { reason, ttl_s: terms.ttl, request_id: uuid::Uuid::now_v7().to_string() };
        match wanted {
            Wanted::Safe => flag::all_safe(&self.table, &evidence, terms),
            Wanted::Undo(_) => match self.events.first() {
                Some(event) => flag::undo(event, &self.table, &evidence, terms),
                None => Err(PlanError::NothingToChange { name: "undo".to_owned() }),
            },
            Wanted::Changes(words) => match words.as_slice() {
                [name] if !name.contains('=') => flag::named(name, &self.table, &evidence, terms),
                words => {
                    let changes = flag::wanted(words)?;
                    let name = match changes.as_slice() {
                        [one] => one.key.clone(),
                        many => format!("{} flags", many.len()),
                    };
                    flag::plan(&name, &self.table, &changes, &evidence, terms)
                }
            },
        }
    }

    fn dry_run(
        &self,
        plan: Result<Plan, PlanError>,
        journal: Option<&Path>,
    ) -> color_eyre::Result<ExitCode> {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => return self.no_plan(&error),
        };
        let foresight = Foresight::of(&plan, &self.table, &self.scopes, &self.reached, journal);
        let body = Foretold { plan: PlanBody::from(&plan), forecast: foresight.body() };
        show(self.json, &self.reached.of(body), || self.text(&plan) + &foresight.text())?;
        Ok(if plan.refused().is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn text(&self, plan: &Plan) -> String {
        flag_text::plan(plan, &*self.reached.store, self.reached.has_glass())
    }

    fn no_plan(&self, error: &PlanError) -> color_eyre::Result<ExitCode> {
        match error {
            PlanError::NothingToChange { .. } => {
                let document = json!({"end": "nothing-to-change", "say": error.to_string()});
                show(self.json, &document, || error.to_string())?;
                Ok(ExitCode::SUCCESS)
            }
            PlanError::NotInTable { .. } | PlanError::ChangedSince { .. } => {
                Err(eyre!(error.to_string()))
            }
            _ => Ok(usage(&error.to_string())),
        }
    }
}

async fn set(
    reached: Reached,
    wanted: &Wanted,
    change: ChangeOptions,
    json: bool,
) -> color_eyre::Result<ExitCode> {
    // Before anything is read: a token that is not there is no matter of the plan.
    let glass = match change.terms.break_glass.as_deref().filter(|_| !change.dry_run) {
        Some(why) => Some(reached.breaking(change.terms.break_glass_token_file.as_deref(), why)?),
        None => None,
    };
    let mut session = Session::read(reached, &change.terms, json).await?;
    let store = glass.unwrap_or_else(|| Arc::clone(&session.reached.store));
    if let Wanted::Undo(seq) = wanted {
        let events = history(&*store, change.journal.as_deref()).await?;
        session.events.extend(pick(events, *seq)?);
        if let Some(event) = session.events.first().filter(|_| !store.capabilities().audit) {
            let whose = if event.actor == incident::SOMEBODY {
                "a change that was made past weir, and seen"
            } else {
                "a change that weir made"
            };
            out::note(format_args!(
                "weir: the store keeps no history; entry {} of weir's own journal is taken back, \
                 {whose}",
                event.seq
            ));
        }
    }
    let plan = session.plan(wanted, &change.terms);
    if change.dry_run {
        return session.dry_run(plan, change.journal.as_deref());
    }
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => return session.no_plan(&error),
    };
    // With --json, stdout is for the one document at the end.
    if json {
        out::note(session.text(&plan));
    } else {
        // A plan that cannot be shown is not sent, also when its reader has only left.
        out::line(session.text(&plan))
            .map_err(|error| eyre!("{error}: the plan cannot be shown, nothing was sent"))?;
    }
    let named = change.actor.filter(|name| !name.trim().is_empty());
    let actor = named.unwrap_or_else(actor::from_system);
    let author = Author { actor, incident: change.incident, anchor: None };
    let flip = match Flip::new(plan.clone(), &session.table, author, &[]) {
        Ok(flip) => flip,
        Err(error) => {
            let past = match error {
                FlipError::Guard { .. } if session.reached.has_glass() => {
                    format!("; the way past it is {}", flag_text::WAY_PAST)
                }
                _ => String::new(),
            };
            let say = format!("{error}{past}");
            if json {
                let document =
                    json!({"plan": PlanBody::from(&plan), "end": "not-sent", "say": say});
                // A reader who has left does not make it a success.
                out::line(document).or_else(OutputError::unless_left)?;
            }
            bail!(say);
        }
    };
    if !change.yes {
        if !io::stdin().is_terminal() {
            return Ok(usage("nobody is there to confirm; add --yes, or --dry-run to only look"));
        }
        if !confirmed(&plan)? {
            return Ok(usage("cancelled, nothing was sent"));
        }
    }
    let journal = open_journal(change.journal, &*store).await?;
    let log: Arc<dyn FlipLog> = Arc::new(journal);
    let report = flag::carry_out(flip, store, log).await;
    conclude(&plan, &report, &session.reached, json)
}

/// The event to take back: the one asked for, else the newest change that is in force.
fn pick(
    events: Vec<flag::FlagEvent>,
    seq: Option<u64>,
) -> color_eyre::Result<Option<flag::FlagEvent>> {
    match seq {
        None => Ok(flag::newest_in_force(&events).cloned()),
        Some(seq) => match events.into_iter().find(|event| event.seq == seq) {
            Some(event) => Ok(Some(event)),
            None => bail!("there is no event {seq}; `weir flag events` lists them"),
        },
    }
}

/// The store's history; where it keeps none, what weir's own journal knows of it.
async fn history(
    store: &dyn Store,
    journal: Option<&Path>,
) -> color_eyre::Result<Vec<flag::FlagEvent>> {
    if store.capabilities().audit {
        return Ok(store.events(0).await?);
    }
    let path = match journal {
        Some(path) => path.to_owned(),
        None => incident::default_path()?,
    };
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let table = store.list().await?;
    let kept = Journal::open(&path).and_then(|(journal, _)| {
        incident::keep_elsewhere(&journal, store.name(), None, &table, chrono::Utc::now())
    });
    if let Err(error) = kept {
        out::note(format_args!("weir: what was changed past weir is not kept: {error}"));
    }
    Ok(incident::history(&path, store.name())?)
}

async fn open_journal(file: Option<PathBuf>, store: &dyn Store) -> color_eyre::Result<Journal> {
    let path = match file {
        Some(path) => path,
        None => incident::default_path()?,
    };
    let (journal, found) = Journal::open(&path)?;
    let open = incident::reconcile(&journal, found.open_flips, store)
        .await
        .map_err(|why| eyre!("an earlier flip has no outcome and cannot be looked up: {why}"))?;
    for flip in open {
        out::note(format_args!("weir: an earlier flip may still land: {}", flip.line()));
    }
    Ok(journal)
}

fn confirmed(plan: &Plan) -> io::Result<bool> {
    let word = match flag::confirmation(plan) {
        Confirmation::Enter => "apply".to_owned(),
        Confirmation::Type(name) => name,
    };
    let line = out::ask(&format!("type `{word}` to send this, anything else cancels: "))?;
    Ok(line.trim() == word)
}

/// Says how the flip ended. The exit code is the flip's, also when its reader has left.
fn conclude(
    plan: &Plan,
    report: &FlipReport,
    reached: &Reached,
    json: bool,
) -> color_eyre::Result<ExitCode> {
    let (revision, effective) = match &report.end {
        FlipEnd::Applied { revision, effective, .. } => (Some(revision.0), *effective),
        FlipEnd::Overwritten { revision, .. } | FlipEnd::Conflict { revision, .. } => {
            (Some(revision.0), None)
        }
        _ => (None, None),
    };
    let say = report.end.say();
    let document = json!({
        "plan": PlanBody::from(plan),
        "end": report.end.word(),
        "say": say,
        "revision": revision,
        "effective_on": effective.map(|effective| effective.on),
        "instances": effective.map(|effective| effective.of),
        "journal_error": report.log_error,
        "store": reached.body(),
    });
    let shown = show(json, &document, || say.clone());
    if let Some(why) = &report.log_error {
        out::note(format_args!("weir: the outcome could not be written down: {why}"));
    }
    match shown {
        Err(error) if !error.reader_left() => Err(eyre!("{error}; the flip was: {say}")),
        _ if matches!(report.end, FlipEnd::Applied { .. }) => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

fn show(
    json: bool,
    document: &impl serde::Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), OutputError> {
    if json {
        out::line(serde_json::to_string(document).expect("wire structs have string keys"))
    } else {
        out::line(text())
    }
}

fn usage(why: &str) -> ExitCode {
    out::note(format_args!("weir: {why}"));
    ExitCode::from(USAGE)
}

/// A duration as typed, in whole seconds, rounded to the nearest.
fn seconds(text: &str) -> Result<u64, String> {
    let span = parse_duration(text)
        .ok_or_else(|| format!("`{text}` is no duration; write 90s, 15m or 1h"))?;
    Ok((span + Duration::from_millis(500)).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, expected) in [
            ("90s", Some(90)),
            ("15m", Some(900)),
            ("1.5h", Some(5400)),
            ("0.4s", Some(0)),
            ("90", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("infs", None),
            ("1µ", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text}");
        }
    }
}
