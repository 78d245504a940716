//! What weir says of itself on paper: completions, the manual page, `docs/keys.md`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir::tui::app::action::{Entry, REGISTRY};

/// Every command that a person sees.
const COMMANDS: [&str; 21] = [
    "drill",
    "watch",
    "init",
    "config",
    "provider",
    "replay",
    "recording",
    "diagnose",
    "report",
    "classify",
    "runbook",
    "scrape",
    "doctor",
    "signals",
    "rate",
    "flag",
    "gateway",
    "audit",
    "completions",
    "man",
    "keys",
];

fn weir(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("weir starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    assert_eq!(said, "", "{args:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a page without fonts and escapes.
fn read_aloud(page: &str) -> String {
    ["\\fB", "\\fI", "\\fR", "\\&"]
        .iter()
        .fold(page.to_owned(), |text, font| text.replace(font, ""))
        .replace("\\-", "-")
        .replace("\\*(Aq", "'")
        .replace("\\\\", "\\")
}

fn keys(entry: &Entry) -> Vec<String> {
    entry.keys.iter().map(ToString::to_string).collect()
}

/// Only macros of man(7), each heading named, every indent closed.
fn assert_roff(name: &str, page: &str) {
    let known = ["ie", "el", "TH", "SH", "SS", "TP", "PP", "IP", "RS", "RE", "B", "br"];
    let mut depth = 0_i32;
    for line in page.lines() {
        let Some(control) = line.strip_prefix('.') else {
            assert!(!line.starts_with('\''), "{name}: {line}");
            continue;
        };
        let (macro_name, rest) = control.split_once(' ').unwrap_or((control, ""));
        assert!(known.contains(&macro_name), "{name}: {line}");
        let is_heading = matches!(macro_name, "TH" | "SH" | "SS");
        assert!(!is_heading || !rest.trim().is_empty(), "{name}: {line}");
        depth += i32::from(macro_name == "RS") - i32::from(macro_name == "RE");
        assert!(depth >= 0, "{name}: closes an indent that is not open");
    }
    assert_eq!(depth, 0, "{name}: an indent stays open");
    assert!(page.is_ascii(), "{name}");
    assert_eq!(page.matches("\n.TH ").count(), 1, "{name}");
}

/// What groff complains of; nothing where there is none.
fn complaints(file: &Path) -> String {
    let groff = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(file).output();
    groff.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn every_shell_completes_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = weir(&["completions", shell]);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
        assert!(script.contains("read-only"), "{shell} does not know options");
    }
}

#[test]
fn the_page_of_weir_tells_commands_keys_surroundings_and_exits() {
    let page = weir(&["man"]);
    assert_roff("weir.1", &page);
    let text = read_aloud(&page);
    for command in COMMANDS {
        let heading = format!(".SS \"weir {command}\"\n");
        assert!(text.contains(&heading), "{command}");
    }
    assert!(text.contains(".SS \"weir flag set\"\n") && !text.contains("weir drill-clients"));
    for heading in ["COMMANDS", "KEYS", "ENVIRONMENT", "FILES", "\"EXIT STATUS\""] {
        assert_eq!(text.matches(&format!("\n.SH {heading}\n")).count(), 1, "{heading}");
    }
    for file in ["weir.toml", "journal.jsonl", "forecasts.jsonl", "NO_COLOR"] {
        assert!(text.contains(file), "{file}");
    }
}

#[test]
fn every_row_of_the_registry_is_in_the_page_with_its_keys_condition_and_danger() {
    let text = read_aloud(&weir(&["man"]));
    for entry in REGISTRY {
        let row = format!("\n{}  {}\n{}.\n", keys(entry).join("  "), entry.name, entry.description);
        let (_, after) = text.split_once(&row).unwrap_or_else(|| panic!("no {row:?}"));
        let own = after.split("\n.").next().unwrap_or(after);
        let told = [entry.when.words(), entry.danger.words(), Some(entry.places().as_str())]
            .iter()
            .flatten()
            .all(|words| own.contains(words));
        // Two rows of a name and key differ in nothing that is told here.
        assert!(told, "{}: {own}", entry.name);
    }
}

#[test]
fn every_variable_that_the_sources_read_is_in_the_page() {
    let text = read_aloud(&weir(&["man"]));
    let mut seen = 0;
    for file in rust_files(&root().join("src")) {
        let source = std::fs::read_to_string(&file).expect("readable");
        for (at, _) in source.match_indices("WEIR_") {
            let name: String = source[at..]
                .chars()
                .take_while(|letter| letter.is_ascii_uppercase() || *letter == '_')
                .collect();
            // A drill hands these to its own processes, nobody sets them.
            let handed = ["WEIR_DRILL_ADMIN_TOKEN", "WEIR_DRILL_BREAK_GLASS_TOKEN"];
            if handed.contains(&name.as_str()) || name == "WEIR_DRILL_STORE_URL" {
                continue;
            }
            seen += 1;
            assert!(text.contains(&format!("\n{name}\n")), "{name} of {}", file.display());
        }
    }
    assert!(seen > 10, "the sources name variables: {seen}");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn the_exits_are_those_of_the_readme() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("readable");
    let text = read_aloud(&weir(&["man"]));
    let table = readme.split("| exit code | meaning |\n|---|---|\n").nth(1).expect("a table");
    let rows: Vec<_> = table.lines().take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() >= 4, "{rows:?}");
    for row in rows {
        let (code, meaning) = row.trim_matches(['|', ' ']).split_once(" | ").expect("two cells");
        assert!(text.contains(&format!("\n.TP\n{code}\n{meaning}\n")), "{code}: {meaning}");
    }
}

#[test]
fn a_folder_gets_a_page_of_every_command_and_is_told_which() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("man1");
    std::fs::create_dir(&place).expect("made");
    std::fs::write(place.join("weir.1"), "old").expect("written");
    let told = weir(&["man", "--dir", place.to_str().expect("UTF-8")]);
    let names = COMMANDS.map(|command| format!("weir-{command}.1"));
    for name in names.iter().map(String::as_str).chain(["weir.1", "weir-flag-set.1"]) {
        assert!(
            told.contains(&format!("wrote {}\n", place.join(name).display())),
            "{name}: {told}"
        );
    }
    let mut count = 0;
    for entry in std::fs::read_dir(&place).expect("a folder") {
        let file = entry.expect("readable").path();
        let page = std::fs::read_to_string(&file).expect("UTF-8");
        assert_roff(&file.display().to_string(), &page);
        assert_eq!(complaints(&file), "", "{}", file.display());
        count += 1;
    }
    assert_eq!(count, told.lines().count());
    let whole = folder.path().join("whole.1");
    std::fs::write(&whole, weir(&["man"])).expect("written");
    assert_eq!(complaints(&whole), "");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["man", "--dir"])
        .arg(&file)
        .output()
        .expect("weir starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with(&format!("error: cannot make {}", file.display())), "{said}");
}

#[test]
fn the_document_of_keys_is_up_to_date() {
    let now = weir(&["keys", "--markdown"]);
    let kept = std::fs::read_to_string(root().join("docs/keys.md")).unwrap_or_default();
    assert!(
        now == kept,
        "docs/keys.md is out of date; renew it: cargo run -q -- keys --markdown > docs/keys.md"
    );
    let plain = weir(&["keys"]);
    for entry in REGISTRY {
        let quoted: Vec<_> = keys(entry).iter().map(|key| format!("`{key}`")).collect();
        let row = format!("| {} | {} | {}", quoted.join(" "), entry.name, entry.description);
        assert!(now.contains(&row), "{row}");
        let (keys, name) = (keys(entry).join(" "), entry.name);
        assert!(plain.contains(&format!("  {keys:<16} {name:<15} ")), "{keys} {name}");
    }
}
