//! Holds the house in order: rooms use only rooms below them, and the cores stay pure.
//!
//! Rooms and their order are read from `src/lib.rs`, from the ground up. Paths are taken from the
//! text, comments and literals blanked, groups (`crate::{a, b}`) expanded. What the text cannot
//! show, such as a type that arrives through another room's re-export, is not found. Every rule
//! has a test that plants a breach.

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms, and parts of rooms, that do no I/O, read no clock and let no hash order decide.
const CORES: &[&str] = &["signal", "dialect", "admission", "sim", "diagnosis", "runbook/walk"];

/// What a core may not name, as consecutive path segments, and what to use instead.
const BANNED: &[(&[&str], &str)] = &[
    (&["tokio"], "return a decision and let a shell wait"),
    (&["reqwest"], "return a decision and let a shell send"),
    (&["hyper"], "return a decision and let a shell send"),
    (&["axum"], "return a decision and let a shell answer"),
    (&["std", "fs"], "take the text as an argument"),
    (&["std", "net"], "take what was received as an argument"),
    (&["std", "env"], "take the setting as an argument"),
    (&["Instant"], "take `now: Mono` as an argument"),
    (&["SystemTime"], "take `now` as an argument"),
    (&["Utc", "now"], "take `now` as an argument"),
    (&["Local", "now"], "take `now` as an argument"),
    (&["thread", "sleep"], "return until when to wait"),
    (&["HashMap"], "use a BTreeMap: its order is the same in every run"),
    (&["HashSet"], "use a BTreeSet: its order is the same in every run"),
    (&["rand", "rng"], "take a seeded generator as an argument"),
];

#[test]
fn the_house_is_in_order() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rooms = rooms(&read(&src.join("lib.rs")));
    assert!(rooms.len() > 10, "lib.rs lists the rooms: {rooms:?}");
    let mut breaches = Vec::new();
    for file in rust_files(&src) {
        let name = file.strip_prefix(&src).expect("below src").to_string_lossy().into_owned();
        let source = read(&file);
        breaches.extend(header(&name, &source));
        breaches.extend(arrows(&rooms, &name, &source));
        breaches.extend(impurities(&name, &source));
    }
    assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory of the sources");
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The rooms in order, from the ground up.
fn rooms(lib: &str) -> Vec<String> {
    lib.lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

/// The room that a file belongs to: `flag` for `flag/plan.rs` and for `flag.rs`.
fn room_of(name: &str) -> &str {
    let first = name.split('/').next().unwrap_or(name);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// A file begins by saying what it is.
fn header(name: &str, source: &str) -> Option<String> {
    let said = source.starts_with("//! ");
    (!said).then(|| format!("{name}:1: begin the file with `//!` and what it decides"))
}

/// Uses of rooms that stand above the file's own.
fn arrows(rooms: &[String], name: &str, source: &str) -> Vec<String> {
    let place = |room: &str| rooms.iter().position(|known| known == room);
    let own = room_of(name);
    let Some(own_place) = place(own) else { return Vec::new() };
    let mut breaches = Vec::new();
    // How far a name is seen is no use of a room.
    for path in paths(&code_of(source).replace("pub(crate)", "pub")) {
        let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
        let used = match segments.as_slice() {
            ["crate", used, ..] => *used,
            ["crate"] => "crate",
            ["super", "super", rest @ ..] => {
                let used = rest.iter().find(|segment| **segment != "super");
                // Deep inside a room `super::super` is still the room itself.
                match used {
                    Some(used) if place(used).is_some() => used,
                    _ => continue,
                }
            }
            _ => continue,
        };
        let complaint = match place(used) {
            Some(used_place) if used_place <= own_place => continue,
            Some(_) => format!("`{own}` stands below `{used}` and may not use it"),
            None => format!("`{}` names no room; write `crate::room::...`", segments.join("::")),
        };
        breaches.push(format!("{name}:{}: {complaint}", path.line));
    }
    breaches
}

/// What a core may not touch. Tests inside a core are free to read files.
fn impurities(name: &str, source: &str) -> Vec<String> {
    let is_core = CORES.iter().any(|core| {
        let rest = name.strip_prefix(core);
        rest.is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    });
    let is_test = matches!(name.rsplit('/').next(), Some("tests.rs" | "fixture.rs"));
    if !is_core || is_test {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    for path in paths(&without_tests(&code_of(source))) {
        let named =
            |banned: &[&str]| path.segments.windows(banned.len()).any(|part| part == banned);
        for (banned, instead) in BANNED.iter().filter(|(banned, _)| named(banned)) {
            let line = path.line;
            breaches.push(format!("{name}:{line}: a core names {}; {instead}", banned.join("::")));
        }
    }
    breaches
}

/// A path in the code, group members one by one.
#[derive(Debug, PartialEq)]
struct PathUse {
    line: usize,
    segments: Vec<String>,
}

/// Every path, `a::{b, c::d}` as `a::b` and `a::c::d`.
fn paths(code: &str) -> Vec<PathUse> {
    let mut found = Vec::new();
    let mut reader = Reader { code: code.as_bytes(), at: 0 };
    while reader.at < reader.code.len() {
        if reader.ident_starts() {
            reader.tree(&[], &mut found);
        } else {
            reader.at += 1;
        }
    }
    found
}

struct Reader<'a> {
    code: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    fn ident_starts(&self) -> bool {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let starts = self.peek().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        starts && !self.at.checked_sub(1).and_then(|at| self.code.get(at)).is_some_and(is_word)
    }

    fn ident(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.code[start..self.at]).into_owned()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Moves behind `::`, blanks around it included, if that comes next.
    fn colons(&mut self) -> bool {
        let start = self.at;
        self.skip_space();
        if self.code[self.at..].starts_with(b"::") {
            self.at += 2;
            self.skip_space();
            return true;
        }
        self.at = start;
        false
    }

    /// Reads one path behind `prefix`, with all that a group in it names.
    fn tree(&mut self, prefix: &[String], found: &mut Vec<PathUse>) {
        let line = self.code[..self.at].split(|byte| *byte == b'\n').count();
        let mut segments = prefix.to_vec();
        loop {
            if self.peek() == Some(b'{') {
                self.group(&segments, found);
                return;
            }
            if self.peek() == Some(b'*') {
                self.at += 1;
                segments.push("*".to_owned());
                break;
            }
            let ident = self.ident();
            if ident.is_empty() {
                break; // A turbofish: its inside is read as paths of its own.
            }
            segments.push(ident);
            if !self.colons() {
                break;
            }
        }
        found.push(PathUse { line, segments });
    }

    fn group(&mut self, prefix: &[String], found: &mut Vec<PathUse>) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            if byte == b'}' {
                self.at += 1;
                return;
            }
            if self.ident_starts() || byte == b'*' {
                self.tree(prefix, found);
            } else {
                self.at += 1;
            }
        }
    }
}

/// The source with comments and the insides of literals blanked, line for line.
fn code_of(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = skipped(bytes, at);
        if end == at {
            // Only ASCII matters for paths; the rest may be any one character.
            code.push(if bytes[at].is_ascii() { char::from(bytes[at]) } else { ' ' });
            at += 1;
        } else {
            let lines = bytes[at..end].split(|byte| *byte == b'\n').count() - 1;
            code.push(' ');
            code.extend(std::iter::repeat_n('\n', lines));
            at = end;
        }
    }
    code
}

/// Where the comment or literal at `at` ends; `at` itself when there is none.
fn skipped(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |from: usize, what: &[u8]| {
        let found = rest[from..].windows(what.len()).position(|window| window == what);
        found.map_or(bytes.len(), |offset| at + from + offset + what.len())
    };
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => find(2, b"\n") - 1,
        [b'/', b'*', ..] => find(2, b"*/"),
        [b'r', b'"' | b'#', ..] if !in_word => {
            let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
            if rest.get(1 + hashes) != Some(&b'"') {
                return at; // `r#ident`
            }
            let mut close = vec![b'"'];
            close.resize(1 + hashes, b'#');
            find(2 + hashes, &close)
        }
        [b'"', ..] => {
            let mut end = 1;
            while end < rest.len() && rest[end] != b'"' {
                end += if rest[end] == b'\\' { 2 } else { 1 };
            }
            (at + end + 1).min(bytes.len())
        }
        [b'\'', b'\\', ..] => find(3, b"'"),
        // A lifetime has no closing quote.
        [b'\'', _, b'\'', ..] => at + 3,
        _ => at,
    }
}

/// The code without its `#[cfg(test)] mod name { ... }`, line for line.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        let (before, after) = rest.split_at(at);
        kept.push_str(before);
        let body = after.find(['{', ';']).unwrap_or(after.len());
        let mut depth = 0_usize;
        let end = after[body..].char_indices().find_map(|(offset, character)| {
            match character {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0).then_some(body + offset + 1)
        });
        let (test, behind) = after.split_at(end.unwrap_or(after.len()));
        kept.extend(test.chars().filter(|character| *character == '\n'));
        rest = behind;
    }
    kept + rest
}

const LIB: &str = "//! x\npub mod signal;\n\npub mod flag;\npub mod tui;\n";

#[test]
fn an_arrow_upward_is_found_in_every_form() {
    let check = |source: &str, breaches: usize| {
        let found = arrows(&rooms(LIB), "flag/plan.rs", source);
        assert_eq!(found.len(), breaches, "{source}: {found:?}");
    };
    check("use crate::signal::Mono;", 0);
    check("use crate::flag::types;", 0);
    check("use crate::tui::Model;", 1);
    check("use crate::{signal::Mono, tui::Model};", 1);
    check("use crate::{\n    signal,\n    tui::{self, Model},\n};", 2);
    check("use crate :: tui :: Model;", 1);
    check("fn f() { crate::tui::draw::<u8>() }", 1);
    check("fn f() -> Vec<crate::tui::Model> {}", 1);
    check("fn f() { g::<crate::tui::Model>() }", 1);
    check("use super::super::tui::Model;", 1);
    check("use super::super::{signal::Mono, tui};", 1);
    check("use super::super::types::Plan;", 0);
    check("use crate::*;", 1);
    check("use crate as weir;", 1);
    check("pub(crate) fn f() {}", 0);
    check("pub(crate) use crate::tui::Model;", 1);
    check("// use crate::tui::Model;\n/* crate::tui */", 0);
    check("const TEXT: &str = \"crate::tui\";", 0);
    check("const TEXT: &str = r#\"\"crate::tui\"#;", 0);
    check("const Q: char = '\"'; use crate::tui::Model; const R: char = '\"';", 1);
    check("fn f<'a>(x: &'a str) { crate::tui::draw(x) }", 1);
    assert!(arrows(&rooms(LIB), "tui/mod.rs", "use crate::flag::Plan;").is_empty());
    assert!(arrows(&rooms(LIB), "main.rs", "use crate::tui;").is_empty());
}

#[test]
fn a_breach_names_file_line_and_remedy() {
    let found = arrows(&rooms(LIB), "flag/plan.rs", "//! x\n\nuse crate::{\n    tui::Model,\n};\n");
    assert_eq!(found, ["flag/plan.rs:4: `flag` stands below `tui` and may not use it"]);
    let found = impurities("sim/clock.rs", "//! x\nuse std::time::Instant;\n");
    assert_eq!(found, ["sim/clock.rs:2: a core names Instant; take `now: Mono` as an argument"]);
}

#[test]
fn every_ban_can_fail_and_only_in_a_core() {
    for (banned, _) in BANNED {
        let path = banned.join("::");
        for source in [format!("use {path};"), format!("fn f() {{ let _ = {path}; }}")] {
            assert_eq!(impurities("admission/queue.rs", &source).len(), 1, "{source}");
            assert_eq!(impurities("gateway/proxy.rs", &source), [""; 0], "{source}");
        }
    }
    let check = |name: &str, source: &str, breaches: usize| {
        let found = impurities(name, source);
        assert_eq!(found.len(), breaches, "{name} {source}: {found:?}");
    };
    check("signal/time.rs", "use std::{collections::BTreeMap, fs, net::IpAddr};", 2);
    check("sim/mod.rs", "use chrono::{DateTime, Utc};\nfn f(now: DateTime<Utc>) {}", 0);
    check("sim/mod.rs", "fn f() { chrono::Utc::now(); }", 1);
    check("sim.rs", "use std::fs;", 1);
    check("simple/mod.rs", "use std::fs;", 0);
    check("runbook/walk.rs", "use std::fs;", 1);
    check("runbook/walk/step.rs", "use std::fs;", 1);
    check("runbook/load.rs", "use std::fs;", 0);
    check("sim/mod.rs", "#[cfg(test)]\nmod tests { use std::fs; fn f() {} }", 0);
    check("sim/mod.rs", "#[cfg(test)]\nmod tests;\nuse std::fs;", 1);
    check("sim/mod.rs", "#[cfg(test)]\nmod tests { fn f() {} }\nuse std::fs;", 1);
}

#[test]
fn a_file_without_a_first_line_is_found() {
    assert_eq!(header("flag/plan.rs", "//! Builds plans.\n"), None);
    assert!(header("flag/plan.rs", "use std::fs;\n").is_some());
}

#[test]
fn rooms_are_read_in_order() {
    assert_eq!(rooms(LIB), ["signal", "flag", "tui"]);
}
