//! The report as Markdown. What others have written stands in it with its marks escaped.

use std::cmp::Reverse;
use std::fmt::Write as _;

use chrono::{DateTime, FixedOffset, Utc};

use super::flips::{Flip, left_over, taken_back};
use super::story::{Bad, Incident, Look, NUMBERS, Part, Story};
use crate::cli::diagnose_text::{also, fetching, next_step, number};
use crate::diagnosis::{Evidence, Library, Owners, Standing, Verdict, worst_first};
use crate::flag::FlagTable;
use crate::ingest::SourceStatus;
use crate::signal::{Quality, Snapshot, Unit, definition};
use crate::tui::app::State;
use crate::tui::view::format;

/// Scopes that get a chapter of their own; what is not well comes first.
const CHAPTERS_MAX: usize = 12;
/// Other scopes that are named.
const NAMED_MAX: usize = 50;

/// What is known of the flags.
#[derive(Debug)]
pub enum Flags {
    /// The store's table, read now, and the store's name.
    Table(FlagTable, String),
    /// Only what the flips above have left.
    ByFlips,
    /// Nothing, and why.
    Unknown(String),
}

/// All that stands in a report.
#[derive(Debug)]
pub struct Page<'a> {
    /// What was watched.
    pub title: String,
    /// Where.
    pub environment: String,
    /// What it is made from, a line each.
    pub made_from: Vec<String>,
    /// The reader's zone.
    pub zone: FixedOffset,
    /// What happened.
    pub story: &'a Story,
    /// The runbooks.
    pub library: &'a Library,
    /// Who answers for which scope.
    pub owners: &'a Owners,
    /// Notes, and what else people and systems said: when, and what.
    pub said: Vec<(DateTime<Utc>, String)>,
    /// Changes of flags, oldest first.
    pub flips: &'a [Flip],
    /// The flags now.
    pub flags: Flags,
    /// The state of the audit chain, a line each.
    pub audit: Vec<String>,
}

impl Page<'_> {
    /// The text.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let title = format!("{}, {}", self.title, self.environment);
        let _ = writeln!(text, "# Incident report: {}\n", plain(&title));
        for line in self.span().into_iter().chain(self.made_from.clone()) {
            let _ = writeln!(text, "- {line}");
        }
        let mut parts: Vec<(&str, &Part, &Verdict)> = self
            .story
            .parts
            .iter()
            .filter_map(|(scope, part)| Some((scope.as_str(), part, part.verdict.as_deref()?)))
            .collect();
        parts.sort_by(|left, right| worst_first(left.2, right.2));
        // What was ill is told of although it is well again.
        parts.sort_by_key(|(_, part, _)| Reverse(part.incident.is_some()));
        if parts.is_empty() {
            text.push_str("\nNo source had answered: nothing is known of any quota scope.\n");
        }
        for (scope, part, verdict) in parts.iter().take(CHAPTERS_MAX) {
            self.chapter(&mut text, scope, part, verdict);
        }
        if parts.len() > CHAPTERS_MAX {
            others(&mut text, &parts[CHAPTERS_MAX..]);
        }
        self.timeline(&mut text);
        self.changes(&mut text);
        self.overrides(&mut text);
        self.sources(&mut text);
        text.push_str("\n## Audit chain\n\n");
        for line in &self.audit {
            let _ = writeln!(text, "- {line}");
        }
        text
    }

    fn span(&self) -> Option<String> {
        let (first, last) = self.story.span?;
        let seconds = (last - first).as_seconds_f64();
        let (from, to) = (self.day(first), self.day(last));
        Some(format!("from {from} to {to}, {}", format::span(seconds)))
    }

    fn chapter(&self, text: &mut String, scope: &str, part: &Part, verdict: &Verdict) {
        let name = if scope.is_empty() { "the only scope".to_owned() } else { code(scope) };
        let _ = writeln!(text, "\n## Scope {name}\n");
        let state = State::of(verdict).word();
        let _ = writeln!(text, "**{state}: {} {}**", verdict.cause, verdict.standing);
        let last = self.story.span.map(|(_, last)| last);
        if let Some(incident) = &part.incident {
            let _ = writeln!(text, "\n{}", self.course(incident, part.earlier, last));
        }
        self.verdict(text, verdict, "Verdict at the end");
        if let Some(incident) = &part.incident {
            let (wall, height) = &incident.height;
            if height.cause != verdict.cause {
                let head = format!("Verdict at its height, {}", self.clock(*wall));
                self.verdict(text, height, &head);
            }
            self.movers(text, incident);
        }
        self.numbers(text, part);
        unknowns(text, verdict);
    }

    fn course(&self, incident: &Incident, earlier: usize, last: Option<DateTime<Utc>>) -> String {
        let since = incident.onset.wall;
        let first = format!("Since {}", self.day(since));
        let lasted = |until: DateTime<Utc>| format::span((until - since).as_seconds_f64());
        let mut said = match (incident.over, last) {
            (Some(over), _) => {
                format!(
                    "{first}, healthy again since {} (it lasted {})",
                    self.clock(over),
                    lasted(over)
                )
            }
            (None, Some(last)) => format!("{first}, {} until the end of this report", lasted(last)),
            (None, None) => first,
        };
        let (wall, height) = &incident.height;
        let _ = write!(said, ". {} {} at {}.", height.cause, height.standing, self.clock(*wall));
        if earlier > 0 {
            let _ = write!(said, " Earlier incidents of this scope in the same time: {earlier}.");
        }
        said
    }

    fn verdict(&self, text: &mut String, verdict: &Verdict, head: &str) {
        let _ = writeln!(text, "\n### {head}\n");
        let (cause, standing) = (&verdict.cause, verdict.standing);
        let _ = writeln!(
            text,
            "{} {standing}, on {} of {} signals. {}",
            code(cause),
            verdict.used,
            verdict.of,
            plain(&verdict.say)
        );
        let path: Vec<String> =
            verdict.path.iter().map(|step| format!("{} ({})", step.title, step.branch)).collect();
        if !path.is_empty() {
            let _ = writeln!(text, "\nPath: {}", plain(&path.join(" > ")));
        }
        if !verdict.evidence.is_empty() {
            text.push_str("\n| evidence | value | holds | remark |\n|---|---|---|---|\n");
        }
        for one in &verdict.evidence {
            let Evidence { predicate, value, state, reason, .. } = one;
            let value = value.map_or_else(|| "unknown".to_owned(), number);
            let reason = plain(reason.as_deref().unwrap_or_default());
            let _ =
                writeln!(text, "| {} | {value} | {} | {reason} |", code(predicate), state.word());
        }
        let standing = verdict.also.iter().filter(|one| one.standing >= Standing::Contradicted);
        let others: Vec<String> = standing.map(|one| also(one, cause)).collect();
        if !others.is_empty() {
            text.push_str("\nAlso:\n\n");
            for line in &others {
                let _ = writeln!(text, "- {}", line.trim());
            }
        }
        let owner =
            verdict.pages_owner.then(|| format!("First: {}", self.owners.page(&verdict.scope)));
        let next = format!("Next: {}", next_step(verdict, self.library));
        let notes = verdict.notes.iter().map(|note| format!("Note: {note}"));
        text.push('\n');
        for line in notes.chain(owner).chain([next]) {
            let _ = writeln!(text, "- {}", plain(&line));
        }
    }

    fn movers(&self, text: &mut String, incident: &Incident) {
        let onsets = &incident.height.1.onsets;
        text.push_str("\n### First movers\n\n");
        if onsets.is_empty() {
            text.push_str("Unknown: no change of a signal was seen before the verdict.\n");
        }
        let (wall, at) = (incident.onset.wall, incident.onset.at);
        for (place, onset) in (1..).zip(onsets) {
            let moved = if onset.at <= at {
                wall - at.saturating_since(onset.at)
            } else {
                wall + onset.at.saturating_since(at)
            };
            let _ = writeln!(text, "{place}. {} {}", self.clock(moved), code(&onset.to_string()));
        }
    }

    fn numbers(&self, text: &mut String, part: &Part) {
        let Some(now) = part.now() else { return };
        text.push_str("\n### Numbers\n\n");
        let Some(incident) = &part.incident else {
            text.push_str("| number | now |\n|---|---|\n");
            for (signal, name, _) in NUMBERS {
                let _ = writeln!(text, "| {name} | {} |", reading(&now.snapshot, signal));
            }
            return;
        };
        let of = |look: Option<&Look>| look.map_or_else(String::new, |look| self.clock(look.wall));
        let _ = writeln!(
            text,
            "| number | before ({}) | onset ({}) | worst since | now ({}) |\n|---|---|---|---|---|",
            of(incident.before.as_ref()),
            of(Some(&incident.onset)),
            of(Some(now)),
        );
        for (signal, name, bad) in NUMBERS {
            let before = incident.before.as_ref().map(|look| reading(&look.snapshot, signal));
            let end = match bad {
                Bad::High => "highest",
                Bad::Low => "lowest",
            };
            let worst = incident.worst.get(signal).map_or_else(
                || "unknown".to_owned(),
                |(value, wall)| {
                    format!("{end} {} at {}", amount(signal, *value), self.clock(*wall))
                },
            );
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {worst} | {} |",
                before.unwrap_or_else(|| "unknown".to_owned()),
                reading(&incident.onset.snapshot, signal),
                reading(&now.snapshot, signal),
            );
        }
    }

    fn timeline(&self, text: &mut String) {
        text.push_str("\n## Timeline\n\n");
        let shown =
            self.story.timeline.newest_first().map(|event| (event.wall, event.text.clone()));
        let mut rows: Vec<(DateTime<Utc>, String)> = shown.collect();
        rows.reverse();
        rows.extend(self.said.iter().cloned());
        rows.extend(self.flips.iter().map(|flip| (flip.at, flip_line(flip))));
        rows.sort_by_key(|(wall, _)| *wall);
        if self.story.is_full() {
            text.push_str("Older events were more than are kept; the newest follow.\n\n");
        }
        if rows.is_empty() {
            text.push_str("Nothing was seen or written down.\n");
            return;
        }
        text.push_str("| time | since onset | what |\n|---|---|---|\n");
        let began = self.story.began();
        for (wall, what) in rows {
            let since = began.map_or_else(String::new, |began| {
                let seconds = (wall - began).as_seconds_f64();
                let sign = if seconds < 0.0 { "-" } else { "+" };
                format!("{sign}{}", format::span(seconds.abs()))
            });
            let _ = writeln!(text, "| {} | {since} | {} |", self.clock(wall), plain(&what));
        }
    }

    fn changes(&self, text: &mut String) {
        text.push_str("\n## Changes of flags\n\n");
        if self.flips.is_empty() {
            let known =
                "None was written down in this time. What a drill sets by its plan stands on the";
            let _ = writeln!(text, "{known} timeline only.");
            return;
        }
        text.push_str("| time | who | what | why | outcome | effect | taken back |\n");
        text.push_str("|---|---|---|---|---|---|---|\n");
        for (place, flip) in self.flips.iter().enumerate() {
            let changes: Vec<String> = flip.changes.iter().map(one_change).collect();
            let plan =
                if flip.plan.is_empty() { String::new() } else { format!("{}: ", flip.plan) };
            let back = match taken_back(self.flips, place) {
                Some(later) => format!("{} by {}", self.clock(later.at), plain(&later.by)),
                None if flip.is_undo => "is an undo".to_owned(),
                None => "no".to_owned(),
            };
            let word = |text: &Option<String>| plain(text.as_deref().unwrap_or("unknown"));
            let _ = writeln!(
                text,
                "| {} | {} | {}{} | {} | {} | {} | {back} |",
                self.clock(flip.at),
                plain(&flip.by),
                plain(&plan),
                changes.join(", "),
                plain(if flip.reason.is_empty() { "unknown" } else { &flip.reason }),
                word(&flip.outcome),
                word(&flip.effect),
            );
        }
    }

    fn overrides(&self, text: &mut String) {
        text.push_str("\n## Flags that are still overridden\n\n");
        match &self.flags {
            Flags::Unknown(why) => {
                let _ = writeln!(text, "Unknown: {}.", plain(why));
            }
            Flags::ByFlips if self.flips.is_empty() => {
                let why = "no change was written down, and a recording holds no table of flags";
                let _ = writeln!(text, "Unknown: {why}.");
            }
            Flags::ByFlips => {
                let left = left_over(self.flips);
                text.push_str("By the changes above; a recording holds no table of flags.\n\n");
                for (key, to, flip) in &left {
                    let (by, at) = (plain(&flip.by), self.clock(flip.at));
                    let _ = writeln!(text, "- {} = {}, by {by} at {at}", code(key), code(to));
                }
                if left.is_empty() {
                    text.push_str("None is known.\n");
                }
            }
            Flags::Table(table, store) => {
                let _ = writeln!(text, "{} at revision {}.\n", plain(store), table.revision);
                let mut none = true;
                for flag in &table.flags {
                    let Some(value) = &flag.overridden else { continue };
                    none = false;
                    let by = flag.by.as_deref().map_or("unknown".to_owned(), plain);
                    let at = flag.at.map_or("unknown".to_owned(), |at| self.day(at));
                    let timer = flag
                        .expires
                        .map_or("no timer".to_owned(), |at| format!("timer at {}", self.clock(at)));
                    let (key, value) = (code(&flag.key), code(&value.to_string()));
                    let base = code(&flag.base.to_string());
                    let _ =
                        writeln!(text, "- {key} = {value} (base {base}), by {by} at {at}, {timer}");
                }
                if none {
                    text.push_str("None.\n");
                }
            }
        }
    }

    fn sources(&self, text: &mut String) {
        let Some(newest) = &self.story.newest else { return };
        if newest.sources.is_empty() {
            return;
        }
        text.push_str("\n## Sources at the end\n\n");
        for source in &newest.sources {
            let SourceStatus { name, last_good, error, .. } = source;
            let age = last_good.map_or_else(
                || "never answered".to_owned(),
                |at| {
                    let age_s = newest.at.saturating_since(at).as_secs_f64();
                    format!("answered {} before the end", format::span(age_s))
                },
            );
            let error = error.as_ref().map_or_else(String::new, |why| format!("; {why}"));
            let _ = writeln!(text, "- {}: {}", plain(name), plain(&format!("{age}{error}")));
        }
    }

    /// A moment with its day.
    fn day(&self, at: DateTime<Utc>) -> String {
        format!("{} {}", at.with_timezone(&self.zone).format("%Y-%m-%d"), self.clock(at))
    }

    /// A moment of the day: local, with its offset, and UTC.
    fn clock(&self, at: DateTime<Utc>) -> String {
        let utc = at.format("%H:%M:%SZ");
        if self.zone.local_minus_utc() == 0 {
            return utc.to_string();
        }
        format!("{} ({utc})", at.with_timezone(&self.zone).format("%H:%M:%S%:::z"))
    }
}

fn others(text: &mut String, rest: &[(&str, &Part, &Verdict)]) {
    text.push_str("\n## Other scopes\n\n");
    for (scope, _, verdict) in rest.iter().take(NAMED_MAX) {
        let _ = writeln!(text, "- {}: {} {}", code(scope), verdict.cause, verdict.standing);
    }
    if rest.len() > NAMED_MAX {
        let _ = writeln!(text, "- and {} more", rest.len() - NAMED_MAX);
    }
}

fn unknowns(text: &mut String, verdict: &Verdict) {
    text.push_str("\n### What is not known\n\n");
    if verdict.missing.is_empty() {
        text.push_str("Every signal that the verdict asked for was there.\n");
        return;
    }
    let named = verdict.missing.iter();
    let named: Vec<String> =
        named.map(|one| format!("{} ({})", code(&one.signal), plain(&one.reason))).collect();
    let _ = writeln!(text, "Missing: {}. Where to fetch it:\n", named.join(", "));
    for line in fetching(&verdict.missing) {
        let _ = writeln!(text, "- {}", plain(line.trim()));
    }
}

/// The flip as an event of the timeline; the table below has all of it.
fn flip_line(flip: &Flip) -> String {
    let changes: Vec<String> = flip.changes.iter().map(in_words).collect();
    let what = if flip.is_undo { "undo" } else { "flip" };
    let plan = if flip.plan.is_empty() { String::new() } else { format!(" {}", flip.plan) };
    let end = flip.outcome.as_ref().map_or("unknown outcome", |outcome| outcome);
    format!("{what}{plan} by {}: {} ({}); {end}", flip.by, changes.join(", "), flip.reason)
}

fn in_words((key, from, to): &(String, Option<String>, Option<String>)) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "base".to_owned());
    format!("{key} {} -> {}", side(from), side(to))
}

fn one_change(change: &(String, Option<String>, Option<String>)) -> String {
    code(&in_words(change))
}

/// A signal as it stood then, with what has to be known about it.
fn reading(snapshot: &Snapshot, signal: &str) -> String {
    let Some(value) = snapshot.number(signal) else {
        let why = snapshot.absent.get(signal);
        return why.map_or("unknown".to_owned(), |why| format!("unknown ({})", plain(why)));
    };
    let quality = snapshot.get(signal).map_or(Quality::Exact, |reading| reading.quality);
    let said = amount(signal, value);
    match quality {
        Quality::Exact => said,
        Quality::LowerBound => format!("at least {said}"),
        Quality::Inferred => format!("{said} (inferred)"),
    }
}

fn amount(signal: &str, value: f64) -> String {
    match definition(signal).map(|definition| definition.unit) {
        Some(Unit::PerSecond) => format::rate(value),
        Some(Unit::Seconds) => format::seconds(value),
        Some(Unit::Ratio) if signal.ends_with("_share") || signal.ends_with("_headroom") => {
            format::percent(value)
        }
        Some(Unit::Ratio) => format::factor(value),
        _ => format::short(value),
    }
}

/// Text in which nothing is a mark, on one line, fit for a cell of a table.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '|' | '#' => {
                escaped.push('\\');
                escaped.push(character);
            }
            _ if character.is_control() => escaped.push(' '),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Text as code. It cannot hold a quote of its own kind, nor end a cell.
fn code(text: &str) -> String {
    let inner: String = text
        .chars()
        .map(|character| match character {
            '`' => '\'',
            _ if character.is_control() => ' ',
            _ => character,
        })
        .collect();
    format!("`{}`", inner.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Value;
    use std::sync::Arc;

    #[test]
    fn what_others_wrote_is_no_mark() {
        assert_eq!(plain("a|b\n# *c* <d> [e](f)"), "a\\|b \\# \\*c\\* \\<d> \\[e\\](f)");
        assert_eq!(code("a`b|c\td"), "`a'b\\|c d`");
    }

    #[test]
    fn what_is_not_known_is_said_with_its_reason() {
        let mut snapshot = Snapshot::new("s", 10.0);
        assert_eq!(reading(&snapshot, "amplification"), "unknown");
        snapshot.absent.insert("amplification".to_owned(), "no-data".to_owned());
        assert_eq!(reading(&snapshot, "amplification"), "unknown (no-data)");
        for (signal, value, expected) in [
            ("amplification", 0.0, "0.00x"),
            ("served_share", 0.0, "0%"),
            ("offered_rps", 1547.4, "1,547/s"),
            ("latency_p95_s", 0.2, "0.20s"),
        ] {
            snapshot.set(signal, Value::Number(value), &Arc::from("gateway"));
            assert_eq!(reading(&snapshot, signal), expected, "{signal}");
        }
        let reading_of = snapshot.signals.get_mut("amplification").expect("it was set");
        reading_of.quality = Quality::LowerBound;
        assert_eq!(reading(&snapshot, "amplification"), "at least 0.00x");
    }
}
