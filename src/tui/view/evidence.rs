//! The predicates of a verdict with what they read and what it was compared with: what decided first.

use chrono::TimeDelta;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::diagnosis::{Evidence, Op, Operand, Predicate, Test, Truth, Verdict, Window};
use crate::signal::Quality;
use crate::tui::app::Model;
use crate::tui::app::walk::Walk;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::trend;
use crate::tui::view::format::{clock, cut, exact, percent, short, span};
use crate::tui::view::widgets::{clipped, lines, panel};

/// Cells inside the panel from which the predicates are shown as they are written.
const FULL_FROM: usize = 118;
/// Cells for the name of a signal where the predicate is shortened.
const NAME_MAX: usize = 24;
/// Cells that a trend takes at most; a longer one says no more.
const TREND_MAX: usize = 40;
/// A trend of fewer cells says nothing.
const TREND_MIN: usize = 4;

/// A predicate taken apart for a narrow row.
struct Asked {
    /// The signal with its window, or the whole test where it compares no numbers.
    name: String,
    /// The comparison, where it compares numbers.
    op: Option<&'static str>,
    /// How long it must hold.
    hold: String,
    /// Its numbers are shares.
    is_share: bool,
    /// What it is compared with: the bound that resolved, or the one at which it stops counting
    /// where it still counts though the first does not hold any more.
    bound: Option<f64>,
}

impl Asked {
    fn of(evidence: &Evidence) -> Self {
        let text = &evidence.predicate;
        let Ok(predicate) = Predicate::parse(text) else {
            let (name, hold) = (text.clone(), String::new());
            return Self { name, op: None, hold, is_share: false, bound: None };
        };
        let mut hold = match predicate.hold.as_secs_f64() {
            seconds if seconds > 0.0 => format!("for {}", span(seconds)),
            _ => String::new(),
        };
        let is_share = text.contains('%')
            || ["_share", "_headroom"].iter().any(|end| evidence.signal.ends_with(end));
        let (name, op) = match predicate.test {
            Test::Compare { left, op, .. } => (operand(&left), Some(op)),
            Test::Codes { op, .. } => {
                let end = text.rfind(['<', '>']).unwrap_or(text.len());
                (text[..end].replace("error_codes matching", "codes").trim().to_owned(), Some(op))
            }
            Test::Is { path, word, negated } => {
                let not = if negated { "not " } else { "" };
                (format!("{path} is {not}{word}"), None)
            }
            Test::Known { path } => (format!("{path} is known"), None),
            Test::Trend { signal, way, span: over } => {
                (format!("{signal} {} {}", way.moving(), span(over.as_secs_f64())), None)
            }
            Test::Order { first, then } => (format!("{first} before {then}"), None),
        };
        let mut bound = evidence.threshold;
        if let (Some(op), Some(value), Some(first), Some(clear)) =
            (op, evidence.value, bound, predicate.clear)
            && evidence.state == Truth::True
            && !op.holds(value, first)
        {
            bound = Some(clear);
            "clear".clone_into(&mut hold);
        }
        let op = op.map(|op| match op {
            Op::Below => "<",
            Op::Above => ">",
        });
        Self { name, op, hold, is_share, bound }
    }

    fn number(&self, value: Option<f64>) -> String {
        match value {
            None => "?".to_owned(),
            Some(value) if self.is_share => percent(value),
            Some(value) if value != 0.0 && value.abs() < 0.01 => exact(value),
            Some(value) if value.abs() < 9.995 => format!("{value:.2}"),
            Some(value) => short(value),
        }
    }

    fn threshold(&self) -> String {
        match self.bound {
            Some(bound) if !self.is_share => exact(bound),
            bound => self.number(bound),
        }
    }
}

fn operand(operand: &Operand) -> String {
    let window = match operand.window {
        Window::Fast => String::new(),
        Window::Span(length) => format!("[{}]", span(length.as_secs_f64())),
    };
    let ago = operand.ago.map_or_else(String::new, |ago| format!("@{}", span(ago.as_secs_f64())));
    format!("{}{window}{ago}", operand.signal)
}

/// What was read against what it was compared with: `7.34 > 3.3`, or what a word was.
pub fn comparison(evidence: &Evidence) -> String {
    let asked = Asked::of(evidence);
    match asked.op {
        Some(op) => {
            format!("{} {op} {}", asked.number(evidence.value), asked.threshold())
        }
        None => evidence.reason.clone().unwrap_or_else(|| "?".to_owned()),
    }
}

/// A rate above a number below zero only says that the rate is known.
pub fn says_something(evidence: &Evidence) -> bool {
    evidence.state != Truth::True || evidence.threshold.is_none_or(|threshold| threshold >= 0.0)
}

/// The order of the rows: what is true decided, then what is about to, what is false, what is unknown.
const fn place(evidence: &Evidence) -> u8 {
    match evidence.state {
        Truth::True => 0,
        Truth::Unknown if evidence.pending => 1,
        Truth::False => 2,
        Truth::Unknown => 3,
    }
}

/// The letter of a state, and its weight.
pub fn state(evidence: &Evidence) -> (&'static str, Role) {
    match evidence.state {
        _ if evidence.pending => ("~", Role::Warn),
        Truth::True => ("T", Role::Ok),
        Truth::False => ("F", Role::Dim),
        Truth::Unknown => ("?", Role::Unknown),
    }
}

/// One row's texts, before they are aligned with the others.
struct Row<'a> {
    evidence: &'a Evidence,
    asked: Asked,
    name: String,
    value: String,
    threshold: String,
}

/// Widths of the columns, of all rows alike.
struct Columns {
    name: usize,
    value: usize,
    threshold: usize,
    hold: usize,
}

/// Draws the panel.
pub fn draw(
    model: &Model,
    walk: &Walk,
    verdict: &Verdict,
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) {
    let fits = usize::from(area.height.saturating_sub(2));
    let rows = verdict.evidence.iter().filter(|one| says_something(one)).count();
    let below = rows.saturating_sub(fits);
    let left = below.saturating_sub(walk.scroll.min(below));
    let more = match (left, below) {
        (_, 0) => String::new(),
        (0, _) => " end: k ".to_owned(),
        (left, _) => format!(" {left} more: j "),
    };
    let marks = "T true  F false  ? unknown  ~ not held long enough";
    // Of the past only what was found when a verdict was first said is kept.
    let title = match said_at(model, verdict) {
        Some(at) => format!(" evidence of {at}, when it was first said: {marks} "),
        None => format!(" evidence: {marks} "),
    };
    let title = Line::from(vec![
        Span::styled(title, look.style(Role::Strong)),
        Span::styled(more, look.style(Role::Accent)),
    ]);
    let inner = panel(title, area, look, buf);
    if verdict.evidence.is_empty() {
        lines([Line::styled(" none was looked at", look.style(Role::Unknown))], inner, buf);
        return;
    }
    let width = usize::from(inner.width);
    let mut ordered: Vec<&Evidence> =
        verdict.evidence.iter().filter(|one| says_something(one)).collect();
    ordered.sort_by_key(|evidence| place(evidence));
    let rows: Vec<Row<'_>> = ordered.into_iter().map(|one| row(one, width)).collect();
    let longest = |text: fn(&Row<'_>) -> usize| rows.iter().map(text).max().unwrap_or(0);
    let name_max = if width >= FULL_FROM { width.saturating_sub(45) } else { NAME_MAX };
    let columns = Columns {
        name: longest(|row| row.name.chars().count()).min(name_max),
        value: longest(|row| row.value.chars().count()),
        threshold: longest(|row| row.threshold.chars().count()),
        hold: if width >= FULL_FROM { 0 } else { longest(|row| row.asked.hold.chars().count()) },
    };
    let content = rows.iter().map(|row| line(model, walk, row, &columns, width, look));
    let content = content.map(|line| clipped(line, width, look));
    lines(content.skip(walk.scroll.min(below)), inner, buf);
}

/// On a screen of the past, when the verdict that stood then was first said.
fn said_at(model: &Model, verdict: &Verdict) -> Option<String> {
    let frozen = model.frozen.as_ref().filter(|frozen| frozen.is_rewound)?;
    let since = model.judged.since(&verdict.scope, frozen.since)?;
    let ago = TimeDelta::from_std(frozen.since.saturating_since(since)).ok()?;
    Some(clock(frozen.wall - ago, model.zone))
}

fn row(evidence: &Evidence, width: usize) -> Row<'_> {
    let asked = Asked::of(evidence);
    let name = if width >= FULL_FROM { evidence.predicate.clone() } else { asked.name.clone() };
    let (value, threshold) = match asked.op {
        Some(_) => (asked.number(evidence.value), asked.threshold()),
        None => (String::new(), String::new()),
    };
    Row { evidence, asked, name, value, threshold }
}

fn line(
    model: &Model,
    walk: &Walk,
    row: &Row<'_>,
    columns: &Columns,
    width: usize,
    look: &Appearance,
) -> Line<'static> {
    let one = row.evidence;
    let (letter, role) = state(one);
    let (name, value, threshold) = (columns.name, columns.value, columns.threshold);
    let read = if one.value.is_some() { Role::Strong } else { Role::Unknown };
    let mut spans = vec![
        Span::styled(format!(" {letter} "), look.style(role)),
        Span::raw(format!("{:<name$} ", cut(&row.name, name, look.glyphs.ellipsis))),
        Span::styled(format!("{:>value$}", row.value), look.style(read)),
        Span::raw(format!(" {:<1} ", row.asked.op.unwrap_or(""))),
        Span::styled(format!("{:<threshold$} ", row.threshold), look.style(Role::Strong)),
    ];
    if columns.hold > 0 {
        let hold = columns.hold;
        spans.push(Span::styled(format!("{:<hold$} ", row.asked.hold), look.style(Role::Dim)));
    }
    let held = held(row, look);
    let used: usize = spans.iter().map(Span::width).sum();
    let needed = used + held.content.trim_end().chars().count();
    if needed > width && one.state == Truth::Unknown && !one.pending {
        // Why it is unknown says more than the columns that have nothing to show.
        spans.truncate(1);
        spans.push(Span::raw(format!("{}  ", cut(&row.name, name, look.glyphs.ellipsis))));
    }
    spans.push(held);
    if let Some(before) = walk.first_state(&one.name).filter(|before| *before != one.state) {
        spans.push(Span::styled(format!("was {} ", before.letter()), look.style(Role::Warn)));
    }
    let source = source(one, width, look);
    let used: usize = spans.iter().map(Span::width).sum();
    let room = width.saturating_sub(used + source.chars().count() + 1).min(TREND_MAX);
    if room >= TREND_MIN && one.state != Truth::Unknown && row.asked.op.is_some() {
        spans.extend(trend(model, &one.signal, room, None, role, look).spans);
    }
    if used + source.chars().count() <= width {
        spans.push(Span::styled(source, look.style(Role::Dim)));
    }
    Line::from(spans)
}

/// How long it has held, or why it cannot be told.
fn held(row: &Row<'_>, look: &Appearance) -> Span<'static> {
    let one = row.evidence;
    if one.state == Truth::Unknown || row.asked.op.is_none() {
        let why = one.reason.as_deref().unwrap_or("no data");
        Span::styled(format!("{why}  "), look.style(Role::Unknown))
    } else if one.held_s >= 1.0 {
        Span::styled(format!("held {:<5}", span(one.held_s)), look.style(Role::Dim))
    } else {
        Span::raw(" ".repeat(10))
    }
}

fn source(one: &Evidence, width: usize, look: &Appearance) -> String {
    one.source.as_deref().map_or_else(String::new, |source| {
        let age = one.age_s.map_or_else(|| "?".to_owned(), span);
        // A narrow screen spends its cells on the trend and names only what may be too low.
        let quality = match one.quality {
            Some(Quality::LowerBound) => " lower".to_owned(),
            Some(_) if width < 90 => String::new(),
            Some(quality) => format!(" {}", quality.word()),
            None => " ?".to_owned(),
        };
        format!(" {} {age}{quality}", cut(source, 8, look.glyphs.ellipsis))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_shows_what_it_resolved_to() {
        let check = |predicate: &str, value: f64, threshold: f64, name: &str, expected: &str| {
            let evidence = Evidence {
                predicate: predicate.to_owned(),
                signal: predicate.split(['[', ' ']).next().unwrap_or("").to_owned(),
                value: Some(value),
                threshold: Some(threshold),
                ..Evidence::empty(Truth::True)
            };
            assert_eq!(Asked::of(&evidence).name, name);
            assert_eq!(comparison(&evidence), expected);
        };
        let storm = "amplification[fast] > max_attempts_configured * 1.1 for 3s clear 1.3";
        check(storm, 7.342, 3.3, "amplification", "7.34 > 3.3");
        check("tpm_headroom[fast] < 5% for 3s", 0.002, 0.05, "tpm_headroom", "0.2% < 5.0%");
        let still = "tpm_headroom[fast] < 5% for 3s clear 15%";
        check(still, 0.11, 0.05, "tpm_headroom", "11% < 15%");
        check("amplification[1m] < 1.1 for 1m", 1.0, 1.1, "amplification[1m00s]", "1.00 < 1.1");
        let fell = "originals_rps[fast] < originals_rps@15m * 0.7";
        check(fell, 176.0, 42.0, "originals_rps", "176 < 42");
    }
}
