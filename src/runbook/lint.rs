//! Judges a runbook that could be read: names, targets, bounds, guard rails, review date. Changes
//! nothing and never lets a file approve itself.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::NaiveDate;

use crate::admission::{FlagValue, Kind, PLANS, Safe, flag};
use crate::diagnosis::{
    Action, Book, Bound, Goto, Library, LibraryError, Node, Op, Step, TRIAGE, Test, UNDO,
    evidence_names, is_share, is_signed,
};
use crate::signal::{Unit, definition};

use super::exits::exits;
use super::format::Bounds;
use super::problem::{Findings, Problem, Severity};
use super::read::flag_value;
use super::sheet::Sheet;

/// Lints one sheet beside the library that it will live in. `today` is for the review date.
#[must_use]
pub fn lint(sheet: &Sheet, library: &Library, today: NaiveDate) -> Vec<Problem> {
    let mut findings = Findings::new(&sheet.file);
    judge(sheet, library, &mut findings);
    review(sheet, today, &mut findings);
    findings.found
}

/// What keeps a sheet from being used beside `library`: the errors of [`lint`], none of which depends
/// on the day.
#[must_use]
pub fn faults(sheet: &Sheet, library: &Library) -> Vec<Problem> {
    let mut findings = Findings::new(&sheet.file);
    judge(sheet, library, &mut findings);
    findings.found.retain(|problem| problem.severity == Severity::Error);
    findings.found
}

fn judge(sheet: &Sheet, library: &Library, findings: &mut Findings<'_>) {
    signals(sheet, findings);
    thresholds(sheet, findings);
    evidence(sheet, library, findings);
    targets(sheet, library, findings);
    unreachable(sheet, findings);
    exits(&sheet.book, findings);
    for node in &sheet.book.nodes {
        if let Step::Action(action) = &node.step {
            flags_of(sheet, node, action, findings);
            guard_rails(node, action, findings);
            times(node, action, findings);
        }
    }
    plan(sheet, findings);
    readings(sheet, findings);
    feeds(sheet, library, findings);
    asked_at(sheet, library, findings);
}

fn signals(sheet: &Sheet, findings: &mut Findings<'_>) {
    let remedy = "use a name of the signal catalogue (`weir signals --list`)";
    for (name, unit, line) in &sheet.signals {
        match definition(name) {
            None => findings.error("WRB011", *line, name, "no such signal", remedy),
            Some(known) if !units(known.unit).contains(&unit.as_str()) => {
                let what = format!("the unit is not `{unit}`");
                let remedy = format!("write `{}`", units(known.unit).join("` or `"));
                findings.error("WRB011", *line, name, what, remedy);
            }
            Some(_) => {}
        }
    }
    for (name, predicate) in &sheet.book.evidence {
        let line = sheet.evidence_lines.get(name).copied().unwrap_or(1);
        for signal in predicate.signals() {
            if definition(signal).is_none() {
                findings.error("WRB011", line, signal, "no such signal", remedy);
            }
        }
        if !predicate.clear_is_sane() {
            let what = "`clear` lies on the wrong side of the threshold";
            let remedy = "put it where the incident is certainly over";
            findings.error("WRB012", line, name, what, remedy);
        }
    }
    for (name, line) in &sheet.previews {
        if definition(name).is_none() {
            findings.error("WRB011", *line, name, "no such signal", remedy);
        }
    }
}

/// A comparison that comes out the same whatever a source says is no evidence.
fn thresholds(sheet: &Sheet, findings: &mut Findings<'_>) {
    for (name, predicate) in &sheet.book.evidence {
        let line = sheet.evidence_lines.get(name).copied().unwrap_or(1);
        let mut wrong = |what: String, remedy: &str| {
            findings.error("WRB018", line, name, what, remedy);
        };
        let (signal, op, number) = match &predicate.test {
            Test::Compare { left, op, bound: Bound::Fixed(number) } => {
                (&*left.signal, *op, *number)
            }
            Test::Codes { op, share, .. } => ("the share of a code", *op, *share),
            _ => continue,
        };
        let root = signal.split('.').next().unwrap_or(signal);
        let unit = definition(root).map(|known| known.unit);
        let is_share = unit.is_none() || is_share(signal);
        let in_percent = predicate.text.contains('%');
        let is_ratio = is_share || matches!(unit, Some(Unit::Ratio | Unit::Record));
        let always = match op {
            Op::Above if number < 0.0 && !is_signed(root) => Some(true),
            Op::Below if number <= 0.0 && !is_signed(root) => Some(false),
            Op::Above if number >= 1.0 && is_share => Some(false),
            Op::Below if number > 1.0 && is_share => Some(true),
            _ => None,
        };
        if in_percent && !is_ratio {
            let unit = unit.map_or("no unit", Unit::word);
            wrong(format!("`{signal}` is no ratio: {unit}"), "write the number in that unit");
        } else if let Some(always) = always {
            let what = format!("`{signal}` makes this {always} whatever it reads");
            let remedy = if is_share && number.abs() >= 1.0 {
                "a share lies between 0 and 1; write `5%` or `0.05`"
            } else {
                "nothing is below zero; to ask whether there is a reading write `is known`"
            };
            wrong(what, remedy);
        }
    }
}

/// The words in which a runbook may write a unit.
const fn units(unit: Unit) -> &'static [&'static str] {
    match unit {
        Unit::PerSecond => &["1/s"],
        Unit::PerMinute => &["1/min"],
        Unit::Seconds => &["s"],
        Unit::Minutes => &["min"],
        Unit::Hours => &["h"],
        Unit::Ratio => &["ratio"],
        Unit::Percent => &["percent"],
        Unit::Count => &["count", "1/min"],
        Unit::Tokens => &["tok", "tok/min"],
        Unit::Usd => &["usd"],
        Unit::Text => &["text"],
        Unit::Record => &["record"],
    }
}

fn evidence(sheet: &Sheet, library: &Library, findings: &mut Findings<'_>) {
    let book = &sheet.book;
    let used: BTreeSet<&str> = evidence_names(book).collect();
    for name in &used {
        if library.predicate(book, name).is_none() && !sheet.evidence_lines.contains_key(*name) {
            let line = line_that_names(book, name);
            let remedy = "define it under [evidence], here or in triage";
            findings.error("WRB013", line, name, "no such evidence", remedy);
        }
    }
    let elsewhere: BTreeSet<&str> = if book.id == TRIAGE {
        library.books().flat_map(evidence_names).collect()
    } else {
        BTreeSet::new()
    };
    for (name, line) in &sheet.evidence_lines {
        if !used.contains(name.as_str()) && !elsewhere.contains(name.as_str()) {
            let remedy = "remove it, or use it in a step or the cause";
            findings.warning("WRB014", *line, name, "the evidence is never used", remedy);
        }
    }
}

fn line_that_names(book: &Book, name: &str) -> usize {
    let names = |node: &&Node| {
        node.show.iter().any(|shown| shown == name)
            || node.step.expressions().any(|expr| expr.names().contains(&name))
    };
    book.nodes.iter().find(names).map_or(1, |node| node.line)
}

fn targets(sheet: &Sheet, library: &Library, findings: &mut Findings<'_>) {
    let book = &sheet.book;
    let entry = (book.entry.clone(), sheet.entry_line);
    if book.node(&book.entry).is_none() {
        let remedy = "name the node where the runbook starts";
        findings.error("WRB001", entry.1, &entry.0, "the entry is no node", remedy);
    }
    for (target, line) in &sheet.targets {
        match Goto::parse(target) {
            Goto::Node(id) if id == UNDO || book.node(&id).is_some() => {}
            Goto::Node(_) => {
                let remedy = "name a `##` node of this file, or `runbook:ID`";
                findings.error("WRB020", *line, target, "no such node", remedy);
            }
            Goto::Runbook(id) if id == book.id || library.book(&id).is_some() => {}
            Goto::Runbook(_) => {
                let remedy = "add that runbook beside this one";
                findings.warning("WRB020", *line, target, "no such runbook is loaded", remedy);
            }
        }
    }
}

fn unreachable(sheet: &Sheet, findings: &mut Findings<'_>) {
    let book = &sheet.book;
    let mut seen = BTreeSet::new();
    let mut open = vec![book.entry.as_str()];
    while let Some(id) = open.pop() {
        let Some(node) = book.node(id).filter(|node| seen.insert(node.id.as_str())) else {
            continue;
        };
        for goto in node.step.targets() {
            if let Goto::Node(next) = goto {
                open.push(next);
            }
        }
    }
    for node in book.nodes.iter().filter(|node| !seen.contains(node.id.as_str())) {
        let remedy = "lead a step there, or remove it";
        findings.error("WRB023", node.line, &node.id, "no step leads here", remedy);
    }
}

fn flags_of(sheet: &Sheet, node: &Node, action: &Action, findings: &mut Findings<'_>) {
    let mut touched = vec![(action.flag.as_str(), &action.set, true)];
    touched.extend(action.undo.iter().map(|undo| (action.flag.as_str(), &undo.set, true)));
    touched.extend(action.needs.iter().map(|(key, value)| (key.as_str(), value, false)));
    for (key, value, changes) in touched {
        let known = match flag(key) {
            Ok(known) => known,
            Err(error) => {
                let remedy = "name a flag of the admission service";
                findings.error("WRB031", node.line, key, error.to_string(), remedy);
                continue;
            }
        };
        if let Err(error) = known.check(value.clone()) {
            let remedy = "stay within what the flag accepts";
            findings.error("WRB032", node.line, key, error.to_string(), remedy);
        }
        match sheet.flags.get(key) {
            None if changes => {
                let what = "the file does not list this flag";
                let remedy = "add it to [flags] with its bounds";
                findings.error("WRB031", node.line, key, what, remedy);
            }
            Some(bounds) if changes && !within(bounds, value) => {
                let what = format!("{value} is outside of the file's own bounds");
                findings.error("WRB032", node.line, key, what, "stay within [flags]");
            }
            _ => {}
        }
    }
}

fn within(bounds: &Bounds, value: &FlagValue) -> bool {
    let listed = bounds
        .values
        .as_ref()
        .is_none_or(|values| values.iter().any(|known| flag_value(known).as_ref() == Some(value)));
    let between = match value {
        FlagValue::Number(number) => {
            bounds.min.is_none_or(|min| *number >= min)
                && bounds.max.is_none_or(|max| *number <= max)
        }
        FlagValue::Bool(_) | FlagValue::Word(_) => true,
    };
    listed && between
}

fn guard_rails(node: &Node, action: &Action, findings: &mut Findings<'_>) {
    let mut rail = |code, what: &str, remedy: &str| {
        findings.error(code, node.line, &node.id, what, remedy);
    };
    if action.safe && action.reverts {
        rail(
            "WRB036",
            "a timer would undo a flip toward the safe end",
            "write on_expire = \"remind\"",
        );
    }
    if !action.safe {
        if action.undo.is_none() {
            rail("WRB033", "an unsafe flip has no undo", "add [undo] with set and goto");
        }
        if !action.reverts {
            rail(
                "WRB034",
                "an unsafe flip would stay when its timer ends",
                "write on_expire = \"revert\"",
            );
        }
        if action.needs.is_empty() {
            rail("WRB035", "an unsafe flip has no interlock", "add needs = { \"FLAG\" = VALUE }");
        }
    }
    if action.undo.as_ref().is_some_and(|undo| undo.set == action.set) {
        rail(
            "WRB038",
            "the undo sets what the flip has set",
            "write the value from before the flip",
        );
    }
    if is_safe_end(&action.flag, &action.set) == Some(!action.safe) {
        rail("WRB037", "the direction contradicts the flag's safe end", "turn `direction` round");
    }
}

/// Longest time that a flip may be left to its timer.
const TTL_MAX: Duration = Duration::from_hours(24);

fn times(node: &Node, action: &Action, findings: &mut Findings<'_>) {
    let mut wrong = |key: &str, what: &str, remedy: &str| {
        findings.error("WRB039", node.line, key, what, remedy);
    };
    if action.ttl.is_zero() || action.ttl > TTL_MAX {
        wrong("ttl", "the timer ends at once, or later than in a day", "write such as `30m`");
    }
    if action.verify_within.is_zero() {
        wrong("verify_within", "nothing can be seen in no time", "write such as `2m`");
    } else if action.verify_within > action.ttl {
        let remedy = "let the timer last longer than the look at what the flip did";
        wrong("verify_within", "the timer ends before the flip has been verified", remedy);
    }
}

/// Whether a value is the flag's safe end, or as far from it as it gets; `None` in between.
fn is_safe_end(key: &str, value: &FlagValue) -> Option<bool> {
    let known = flag(key).ok()?;
    match (known.safe, value, known.kind) {
        (Safe::Bool(safe), FlagValue::Bool(on), _) => Some(*on == safe),
        (Safe::Word(safe), FlagValue::Word(word), Kind::Words(words)) => {
            if word == safe {
                Some(true)
            } else {
                (words.last() == Some(&word.as_str())).then_some(false)
            }
        }
        (Safe::Number(safe), FlagValue::Number(number), _)
            if (safe - number).abs() < f64::EPSILON =>
        {
            Some(true)
        }
        _ => None,
    }
}

/// The readings in braces of the cause's sentence.
fn readings(sheet: &Sheet, findings: &mut Findings<'_>) {
    let Some(cause) = &sheet.book.cause else { return };
    let inside = |part: &'_ str| part.split_once('}').map(|(name, _)| name.to_owned());
    for name in cause.say.split('{').skip(1).filter_map(inside) {
        let root = name.split('.').next().unwrap_or_default();
        if definition(root).is_none() {
            let remedy = "use a name of the signal catalogue (`weir signals --list`)";
            findings.error("WRB011", sheet.plan_line, &name, "`say` reads no such signal", remedy);
        }
    }
}

fn plan(sheet: &Sheet, findings: &mut Findings<'_>) {
    let Some(name) = sheet.book.cause.as_ref().and_then(|cause| cause.plan.as_ref()) else {
        return;
    };
    if !PLANS.iter().any(|plan| plan.name == name) {
        let known: Vec<&str> = PLANS.iter().map(|plan| plan.name).collect();
        let remedy = format!("name one of: {}", known.join(", "));
        findings.error("WRB031", sheet.plan_line, name, "no such plan", remedy);
    }
}

/// What a cause feeds is another cause, each named once. Another file may bring one that is not
/// loaded here.
fn feeds(sheet: &Sheet, library: &Library, findings: &mut Findings<'_>) {
    let mut seen = BTreeSet::new();
    for (id, line) in &sheet.feeds {
        if *id == sheet.book.id {
            let remedy = "name the causes whose evidence this one produces";
            findings.error("WRB015", *line, id, "a cause cannot feed itself", remedy);
        } else if !seen.insert(id) {
            findings.warning("WRB015", *line, id, "the cause is named twice", "name it once");
        } else if library.cause(id).is_none() {
            let remedy = "use the id of a runbook with a [cause]";
            findings.warning("WRB015", *line, id, "no such cause is loaded", remedy);
        }
    }
}

/// A cause is asked for where the triage ranks causes.
fn asked_at(sheet: &Sheet, library: &Library, findings: &mut Findings<'_>) {
    let triage = if sheet.book.id == TRIAGE { &sheet.book } else { library.triage() };
    let ranks = |node: &&Node| matches!(node.step, Step::Rank { .. });
    let known: Vec<&str> = triage.nodes.iter().filter(ranks).map(|node| node.id.as_str()).collect();
    for (id, line) in sheet.asked_at.iter().filter(|(id, _)| !known.contains(&id.as_str())) {
        let remedy = format!("name one of: {}", known.join(", "));
        findings.error("WRB016", *line, id, "no rank node of the triage", remedy);
    }
}

/// Says that runbooks which can be read do not fit together, of the first of them.
#[must_use]
pub fn unfit(file: &str, error: &LibraryError) -> Problem {
    let mut findings = Findings::new(file);
    let remedy = "lint the files that belong together at once, and correct the one that is named";
    findings.error("WRB017", 1, "runbooks", error.to_string(), remedy);
    findings.found.remove(0)
}

fn review(sheet: &Sheet, today: NaiveDate, findings: &mut Findings<'_>) {
    let Some(reviewed) = sheet.reviewed else { return };
    let days = sheet.review_every.as_secs() / 86_400;
    let due = reviewed.checked_add_days(chrono::Days::new(days));
    let what = if reviewed > today {
        format!("reviewed on {reviewed}, which is still to come")
    } else if due.is_none_or(|due| due < today) {
        format!("last reviewed on {reviewed}, every {days} days")
    } else {
        return;
    };
    let remedy = "read it against the system as it is, then write the date of that day";
    findings.warning("WRB040", sheet.reviewed_line, "reviewed", what, remedy);
}
