//! `weir man`: clap's text in roff, with the keys of the registry and what no option says. Knows no
//! option by name.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use color_eyre::eyre::{Result, WrapErr as _};

use super::{keys, out};

/// What clap does not know of the environment, secrets that a drill hands to its own processes apart.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("WEIR_ADMIN_URL", "Address of the admin API; else http://127.0.0.1:9901."),
    ("WEIR_ADMIN_TOKEN", "Its bearer token; --token-file names a file instead."),
    (
        "WEIR_BREAK_GLASS_TOKEN",
        "The gateway's second token, which passes interlocks; read with --break-glass.",
    ),
    ("WEIR_ACTOR", "In whose name a flip stands; else USER, LOGNAME, or the system's name."),
    ("WEIR_INCIDENT", "The incident that a flip belongs to."),
    ("WEIR_JOURNAL", "The journal that weir flag writes, and weir report tells."),
    ("WEIR_CONFIG", "The file of weir watch, weir init and weir config check; else weir.toml."),
    ("WEIR_READ_ONLY", "When set, and not to 0, no or false, weir watch offers no flips."),
    ("WEIR_THEME", "A theme of the dashboard by name, a theme file, or auto."),
    (
        "WEIR_DRILL_REDIS",
        "URL of a Redis for a drill of gateways that share a budget; else it starts one.",
    ),
    ("WEIR_LOG", "What is logged, such as debug or weir=trace; else warn."),
    ("WEIR_LOG_FORMAT", "json: serving commands log one JSON object a line."),
    ("NO_COLOR", "When not empty, screens have no colours."),
    ("COLORTERM", "truecolor or 24bit: screens have any colour; else TERM says how many."),
    ("COLORFGBG", "Whether the background is dark or light, for the theme auto."),
    ("LC_ALL, LC_CTYPE, LANG", "Without UTF-8, screens are drawn in ASCII."),
    ("XDG_STATE_HOME", "Where the journal and logs are kept; else ~/.local/state."),
];

const FILES: &[(&str, &str)] = &[
    (
        "weir.toml",
        "Sources, quota scopes, the flag store and the gateway; read in the current folder or by \
         --config. weir doctor --schema describes it.",
    ),
    ("adapters/", "Beside weir.toml: metric names of further gateways and providers."),
    (
        "$XDG_STATE_HOME/weir/journal.jsonl",
        "The journal of flips and incidents, a hash chain; weir audit verify checks it.",
    ),
    ("$XDG_STATE_HOME/weir/forecasts.jsonl", "How forecasts of flips did; beside the journal."),
    ("$XDG_STATE_HOME/weir/weir.log", "The log of weir watch; other commands log to stderr."),
];

const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "done; for `diagnose`, healthy, or several snapshots of a file, each with its verdict"),
    ("1", "failed or refused"),
    ("2", "not understood, or not confirmed"),
    ("10, 11", "`diagnose`: a cause was found; insufficient evidence"),
];

/// Print the manual page.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write it into this folder instead, and a page of every subcommand; overwrites
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Prints the page of `weir`, or writes all and says which.
///
/// # Errors
/// When standard output, the folder or a page cannot be written.
pub fn run(args: &Args, weir: Command) -> Result<ExitCode> {
    let weir = weir.disable_help_subcommand(true);
    let Some(folder) = &args.dir else {
        out::text(&whole(weir)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(folder).wrap_err_with(|| format!("cannot make {}", folder.display()))?;
    for (name, page) in pages(weir)? {
        let file = folder.join(name);
        fs::write(&file, page).wrap_err_with(|| format!("cannot write {}", file.display()))?;
        out::line(format_args!("wrote {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All of weir on one page.
fn whole(weir: Command) -> io::Result<String> {
    // Every command would say that it has --help.
    let mut brief = weir.clone().disable_help_flag(true);
    brief.build();
    let mut page = Page::default();
    page.opening(&of(weir))?;
    page.heading("COMMANDS");
    for command in shown(&brief) {
        page.command(command)?;
    }
    page.closing();
    Ok(page.0)
}

/// A page of weir and of every command below it, by file name.
fn pages(mut weir: Command) -> io::Result<Vec<(String, String)>> {
    weir.build();
    let mut page = Page::default();
    let man = of(weir.clone());
    page.opening(&man)?;
    page.section(|to| man.render_subcommands_section(to))?;
    page.closing();
    let mut pages = vec![(man.get_filename(), page.0)];
    for command in shown(&weir) {
        below(command, &mut pages)?;
    }
    Ok(pages)
}

fn below(command: &Command, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    let man = of(command.clone());
    let mut page = Page::default();
    page.section(|to| man.render(to))?;
    page.heading("SEE ALSO");
    page.add(|roff| {
        roff.text([bold("weir"), roman("(1)")]);
    });
    pages.push((man.get_filename(), page.0));
    shown(command).try_for_each(|command| below(command, pages))
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

fn of(command: Command) -> Man {
    let source = concat!("weir ", env!("CARGO_PKG_VERSION"));
    Man::new(command).source(source).manual("weir manual")
}

/// Other letters by their numbers: groff takes bytes for Latin-1 when nobody tells it better.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            out.push(letter);
        } else {
            let _ = write!(out, "\\[u{:04X}]", u32::from(letter));
        }
    }
    out
}

/// A page in roff, as far as it is written.
#[derive(Default)]
struct Page(String);

impl Page {
    /// Adds what `render` writes.
    fn section(
        &mut self,
        render: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        render(&mut bytes)?;
        let text = ascii(&String::from_utf8(bytes).map_err(io::Error::other)?);
        // Each piece defines the apostrophe anew; once is enough.
        let preamble = Roff::new().render();
        let piece = text.strip_prefix(&preamble).unwrap_or(&text);
        if self.0.is_empty() {
            self.0.push_str(&preamble);
        }
        self.0.push_str(piece);
        Ok(())
    }

    fn add(&mut self, write: impl FnOnce(&mut Roff)) {
        let mut roff = Roff::new();
        write(&mut roff);
        let text = ascii(&roff.render());
        self.0.push_str(text.strip_prefix(&Roff::new().render()).unwrap_or(&text));
    }

    fn heading(&mut self, words: &str) {
        self.add(|roff| {
            roff.control("SH", [words]);
        });
    }

    /// From the title to the options.
    fn opening(&mut self, man: &Man) -> io::Result<()> {
        self.section(|to| man.render_title(to))?;
        self.section(|to| man.render_name_section(to))?;
        self.section(|to| man.render_synopsis_section(to))?;
        self.section(|to| man.render_description_section(to))?;
        self.section(|to| man.render_options_section(to))
    }

    /// A command and what is below it, in sections of the page of weir.
    fn command(&mut self, command: &Command) -> io::Result<()> {
        let man = of(command.clone());
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        self.add(|roff| {
            roff.control("SS", [name]);
        });
        let mut inner = Page::default();
        inner.section(|to| man.render_synopsis_section(to))?;
        inner.section(|to| man.render_description_section(to))?;
        inner.section(|to| man.render_options_section(to))?;
        for line in inner.0.lines().skip(Roff::new().render().lines().count()) {
            // The heading above stands for theirs; a group of options keeps its own.
            match line.strip_prefix(".SH ") {
                Some("SYNOPSIS" | "OPTIONS") => {}
                Some("DESCRIPTION") => self.0.push_str(".PP\n"),
                Some(group) => self.0.extend([".PP\n.B ", group, "\n"]),
                None => self.0.extend([line, "\n"]),
            }
        }
        shown(command).try_for_each(|command| self.command(command))
    }

    /// What clap does not know.
    fn closing(&mut self) {
        self.keys();
        self.list("ENVIRONMENT", ENVIRONMENT, bold);
        self.add(|roff| {
            roff.control("PP", []);
            roff.text([
                roman("Other secrets are read from the variables that "),
                italic("weir.toml"),
                roman(" names in keys ending in _env."),
            ]);
        });
        self.list("FILES", FILES, italic);
        self.list("EXIT STATUS", EXIT_STATUS, bold);
    }

    /// The registry, by the chapters of the help.
    fn keys(&mut self) {
        self.heading("KEYS");
        self.add(|roff| {
            roff.text([roman(
                "Of the dashboard: weir drill, weir watch and weir replay. No key changes a flag by \
                 itself: a flip is chosen, planned and confirmed.",
            )]);
            for (chapter, rows) in keys::chapters() {
                roff.control("SS", [chapter]);
                for entry in rows {
                    roff.control("TP", []);
                    let mut head = Vec::new();
                    for key in entry.keys {
                        head.extend([bold(key.to_string()), roman("  ")]);
                    }
                    head.push(roman(entry.name));
                    roff.text(head);
                    roff.text([roman(format!("{}.", entry.description))]);
                    for remark in keys::remarks(entry) {
                        roff.text([roman(remark)]);
                    }
                    roff.text([roman(format!("On {}.", entry.places()))]);
                }
            }
        });
    }

    fn list(&mut self, heading: &str, rows: &[(&str, &str)], name: fn(String) -> Inline) {
        self.heading(heading);
        self.add(|roff| {
            for (term, words) in rows {
                roff.control("TP", []);
                roff.text([name((*term).to_owned())]);
                roff.text([roman(*words)]);
            }
        });
    }
}
