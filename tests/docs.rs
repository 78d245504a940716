//! The pages in `docs/`: what is made from something else is as that says, and every link and command is
//! one that there is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("weir starts")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every page for people, the README among them.
fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("readable").path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    docs.chain([root().join("README.md"), root().join("assets/themes/README.md")]).collect()
}

#[test]
fn the_page_of_causes_is_what_the_runbooks_say() {
    let output = weir(&["runbook", "causes"]);
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let page = read(&root().join("docs/causes.md"));
    assert!(page == printed, "run `weir runbook causes > docs/causes.md`");
    let causes = weir::runbook::embedded();
    let causes = causes.books().filter(|book| book.cause.is_some());
    let missing: Vec<_> =
        causes.filter(|book| !page.contains(&format!("\n## `{}`: ", book.id))).collect();
    assert!(missing.is_empty(), "{:?}", missing.iter().map(|book| &book.id).collect::<Vec<_>>());
}

#[test]
fn every_link_leads_to_a_file_and_every_page_is_linked() {
    let mut linked = BTreeSet::new();
    for page in pages() {
        let text = read(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let target = page.parent().expect("a folder").join(link);
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
            linked.insert(target.canonicalize().expect("it exists"));
        }
    }
    for page in pages() {
        let is_root = page == root().join("README.md");
        let page = page.canonicalize().expect("it exists");
        assert!(is_root || linked.contains(&page), "nothing links to {}", page.display());
    }
}

#[test]
fn every_command_in_the_pages_is_one() {
    let mut commands = BTreeSet::new();
    for page in pages() {
        let text = read(&page);
        let mut is_code = false;
        let mut said: Vec<&str> = text.split("`weir ").skip(1).collect();
        for line in text.lines() {
            is_code ^= line.starts_with("```");
            said.extend(line.trim_start().strip_prefix("weir ").filter(|_| is_code));
        }
        for rest in said {
            let mut words =
                rest.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-');
            let Some(command) = words.next().filter(|word| !word.is_empty()) else { continue };
            let below = words.next().unwrap_or_default();
            commands.insert((command.to_owned(), below.to_owned()));
        }
    }
    assert!(commands.len() > 20, "{commands:?}");
    for (command, below) in commands {
        let help = weir(&[&command, "--help"]);
        assert!(help.status.success(), "there is no command `weir {command}`");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        // A word behind the command is a subcommand where it has any.
        if help.contains("\nCommands:\n") && !below.is_empty() && !below.starts_with('-') {
            assert!(help.contains(&format!("\n  {below} ")), "no `weir {command} {below}`");
        }
    }
}

#[test]
fn every_mark_on_the_page_of_screens_is_that_of_the_screen() {
    let page = read(&root().join("docs/screens.md"));
    let (many, plain) = (&weir::tui::theme::UNICODE, &weir::tui::theme::ASCII);
    for (mark, ascii) in [
        (many.ok, plain.ok),
        (many.warn, plain.warn),
        (many.crit, plain.crit),
        (many.unknown, plain.unknown),
        (many.stale, plain.stale),
        (many.at_least, plain.at_least),
    ] {
        assert!(page.contains(&format!("| `{mark}` | `{ascii}` |")), "{mark} {ascii}");
    }
}

/// The cells of every row of a page's table, its head and the line below it left out.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    rows.skip(1).map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Why a proof is none: `file: name` has to be a test that there is.
fn no_proof(proof: &str) -> Option<String> {
    let Some((file, name)) = proof.trim_matches('`').split_once(": ") else {
        return Some(format!("{proof}: write it as `file: name`"));
    };
    let Ok(source) = std::fs::read_to_string(root().join(file)) else {
        return Some(format!("{proof}: no such file"));
    };
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_test = lines.windows(2).any(|pair| {
        let [before, line] = pair else { return false };
        before.contains("test]")
            && line.trim_start_matches("async ").starts_with(&format!("fn {name}("))
    });
    (!is_test).then(|| format!("{proof}: no such test"))
}

#[test]
fn what_weir_has_beside_its_peers_is_proven_by_a_test_that_there_is() {
    let page = read(&root().join("docs/peers.md"));
    let rows = rows(&page);
    assert!(rows.len() > 30, "{}", rows.len());
    for row in rows {
        let [what, peers, weir, how, proof] = row[..] else { panic!("five cells: {row:?}") };
        assert!(!peers.is_empty() && !how.is_empty(), "{what}");
        assert!(["yes", "no"].contains(&weir), "{what}: {weir}");
        assert_eq!(no_proof(proof), None, "{what}");
    }
    for wrong in ["`tests/docs.rs: rows`", "`tests/docs.rs: not_there`", "`tests/x.rs: y`", "a"] {
        assert!(no_proof(wrong).is_some(), "{wrong}");
    }
}
