//! The guided diagnosis: the answers so far, the evidence, the ranking, what is missing, what to do.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use crate::diagnosis::{Onset, Standing, Truth, Verdict};
use crate::tui::app::Model;
use crate::tui::app::walk::{Answered, Walk};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::amplification_chart;
use crate::tui::view::format::{clock, cut, cut_words, listed, span};
use crate::tui::view::texts::{cause_line, role_words, wrap};
use crate::tui::view::widgets::{lines, panel};
use crate::tui::view::{evidence, next};

/// A question cut shorter than this says nothing; its answer then goes onto a line of its own.
const QUESTION_MIN: usize = 20;
/// Cells from which the path says in whole words what its marks mean.
const WORDY_FROM: usize = 98;

/// Rows from which the sentence has two lines, and the causes that are ruled out have one.
const ROOMY_FROM: u16 = 24;

/// Draws the screen.
pub fn draw(model: &Model, walk: &Walk, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let Some(verdict) = model.verdict() else {
        let inner = panel(Line::from(" diagnosis "), area, look, buf);
        let none = if model.is_rewound() {
            " no verdict had been reached by then"
        } else {
            " no verdict yet: waiting for data"
        };
        lines([Line::styled(none, look.style(Role::Unknown))], inner, buf);
        return;
    };
    let answers = path(model, walk, look, usize::from(area.width.saturating_sub(2)));
    let path = rows(answers.len() + 2, area.height / 3);
    let mut ranked = ranking(verdict, look);
    if area.height >= ROOMY_FROM {
        ranked.extend(ruled_out(verdict, look));
    }
    let causes = rows(ranked.len() + 2, area.height / 3);
    let evidence = rows(verdict.evidence.len().max(1) + 2, area.height);
    // A tall screen has room for the verdict in words and for the curve that it is about.
    let width = usize::from(area.width);
    let said = wrap(&verdict.say, width);
    let said_rows = match area.height {
        0..10 => 0,
        10..ROOMY_FROM => 1,
        _ => u16::try_from(said.len()).map_or(2, |rows| rows.min(2)),
    };
    let rest = area.height.saturating_sub(said_rows + path + causes + evidence + 2);
    let (evidence, more) = if rest >= 9 {
        (Constraint::Length(evidence), Constraint::Fill(1))
    } else {
        (Constraint::Min(3), Constraint::Length(0))
    };
    let [sentence, below] =
        Layout::vertical([Constraint::Length(said_rows), Constraint::Fill(1)]).areas(area);
    let strong = look.style(Role::Strong);
    let said = if said_rows == 1 {
        vec![format!(" {}", cut_words(&verdict.say, width.saturating_sub(1), look.glyphs.ellipsis))]
    } else {
        said
    };
    lines(said.into_iter().map(|row| Line::styled(row, strong)), sentence, buf);
    let parts = Layout::vertical([
        Constraint::Length(path),
        evidence,
        Constraint::Length(causes),
        more,
        Constraint::Length(2),
    ])
    .split(below);
    draw_path(walk, answers, look, parts[0], buf);
    evidence::draw(model, walk, verdict, look, parts[1], buf);
    draw_causes(ranked, look, parts[2], buf);
    if parts[3].height >= 3 {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).split(parts[3]);
        draw_onsets(verdict, look, halves[0], buf);
        amplification_chart(model, look, halves[1], buf);
    }
    let offered = next::of_diagnosis(model, verdict, look, width);
    lines([missing(verdict, look, width), offered], parts[4], buf);
}

fn rows(wanted: usize, most: u16) -> u16 {
    u16::try_from(wanted).unwrap_or(u16::MAX).min(most.max(4))
}

fn draw_path(
    walk: &Walk,
    answers: Vec<Line<'static>>,
    look: &Appearance,
    area: Rect,
    buf: &mut Buffer,
) {
    let hidden = answers.len().saturating_sub(usize::from(area.height.saturating_sub(2)));
    let mut title = " path".to_owned();
    if walk.has_changed() {
        title.push_str(": CHANGED SINCE, r walks again");
    }
    if hidden > 0 {
        title.push_str(", its end");
    }
    title.push(' ');
    let role = if walk.has_changed() { Role::Warn } else { Role::Strong };
    let inner = panel(Line::styled(title, look.style(role)), area, look, buf);
    lines(answers.into_iter().skip(hidden), inner, buf);
}

fn draw_causes(ranked: Vec<Line<'static>>, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let hidden = ranked.len().saturating_sub(usize::from(area.height.saturating_sub(2)));
    let mut title = vec![Span::styled(" causes ", look.style(Role::Strong))];
    if hidden > 0 {
        title.push(Span::styled(format!(" {hidden} more: x "), look.style(Role::Accent)));
    }
    lines(ranked, panel(Line::from(title), area, look, buf), buf);
}

/// What left its usual level, the first mover first.
fn draw_onsets(verdict: &Verdict, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let inner = panel(
        Line::styled(" what moved, first on top ", look.style(Role::Strong)),
        area,
        look,
        buf,
    );
    if verdict.onsets.is_empty() {
        let words = " nothing within a quarter of an hour, or no history of it";
        lines([Line::styled(words, look.style(Role::Dim))], inner, buf);
        return;
    }
    let width = usize::from(inner.width);
    let row = |one: &Onset| {
        let text = format!(" {:>6} ago  {one}", span(one.ago_s));
        Line::from(cut(&text, width, look.glyphs.ellipsis))
    };
    lines(verdict.onsets.iter().map(row), inner, buf);
}

/// The answers so far, one or two lines each: an answer is never cut for its question.
fn path(model: &Model, walk: &Walk, look: &Appearance, width: usize) -> Vec<Line<'static>> {
    if walk.steps.is_empty() {
        return vec![Line::styled(" no question could be answered yet", look.style(Role::Unknown))];
    }
    let last = walk.steps.len() - 1;
    let numbered = walk.steps.iter().enumerate();
    numbered
        .flat_map(|(index, answered)| {
            let at = clock(answered.at, model.zone);
            let (mark, role) = match (index == last, width >= WORDY_FROM) {
                (true, true) => ("<< you are here".to_owned(), Role::Accent),
                (true, false) => ("<< here".to_owned(), Role::Accent),
                (false, true) => (format!("since {at}"), Role::Dim),
                (false, false) => (at, Role::Dim),
            };
            let mark = Span::styled(mark, look.style(role));
            let mut rows = answer(index + 1, answered, mark, width, look);
            rows.extend(changed(model, answered, width, look));
            rows
        })
        .collect()
}

fn answer(
    number: usize,
    answered: &Answered,
    mark: Span<'static>,
    width: usize,
    look: &Appearance,
) -> Vec<Line<'static>> {
    let (question, branch) = (&answered.step.title, &answered.step.branch);
    let head = format!(" {number} ");
    let room = width.saturating_sub(head.len() + mark.width() + 3);
    let strong = look.style(Role::Strong);
    let beside = room.saturating_sub(branch.chars().count() + 3);
    let fits = question.chars().count() <= beside || beside >= QUESTION_MIN;
    let indent = " ".repeat(head.len());
    let asked = cut_words(question, if fits { beside } else { room }, look.glyphs.ellipsis);
    let mut first = vec![Span::raw(head), Span::raw(asked)];
    if fits {
        first.push(Span::styled(format!(" {} {branch}", look.glyphs.arrow), strong));
    }
    let used: usize = first.iter().map(Span::width).sum();
    let pad = width.saturating_sub(used + mark.width() + 1);
    first.push(Span::raw(" ".repeat(pad)));
    first.push(mark);
    let mut content = vec![Line::from(first)];
    if !fits {
        let text = wrap(branch, width.saturating_sub(indent.len()));
        content.extend(text.into_iter().map(|row| Line::styled(format!("  {row}"), strong)));
    }
    content
}

/// What would be answered now, and for how long that has been another answer.
fn changed(
    model: &Model,
    answered: &Answered,
    width: usize,
    look: &Appearance,
) -> Option<Line<'static>> {
    let now = answered.changed.as_ref()?;
    let ago = answered.changed_at.map_or_else(String::new, |at| {
        format!(", changed {} ago", span((model.wall - at).as_seconds_f64().max(0.0)))
    });
    let text = cut(&format!("   now: {now}{ago}"), width, look.glyphs.ellipsis);
    Some(Line::styled(text, look.style(Role::Warn)))
}

/// The causes worth a line.
fn ranking(verdict: &Verdict, look: &Appearance) -> Vec<Line<'static>> {
    // What is false on the way here spoke against other causes, not against this one.
    let told = verdict.evidence.iter().filter(|one| evidence::says_something(one));
    let holding = told.filter(|one| one.state == Truth::True).count();
    let counts = format!("{holding} {}", if holding == 1 { "holds" } else { "hold" });
    let mut content = vec![cause_line(&verdict.cause, verdict.standing, &counts, look)];
    let alive = verdict.also.iter().filter(|other| other.standing != Standing::RuledOut);
    content.extend(alive.take(8).map(|other| {
        let feeds = role_words(other.role);
        let (of, against) = (other.evidence_for, other.evidence_against);
        let counts = if other.standing == Standing::Likely && of == 0 {
            format!("holds, not yet for long enough{feeds}")
        } else {
            format!("{of} for, {against} against{feeds}")
        };
        cause_line(&other.cause, other.standing, &counts, look)
    }));
    content
}

/// What is ruled out, in one line.
fn ruled_out(verdict: &Verdict, look: &Appearance) -> Option<Line<'static>> {
    let out: Vec<&str> = verdict
        .also
        .iter()
        .filter(|other| other.standing == Standing::RuledOut)
        .map(|other| other.cause.as_str())
        .collect();
    let named = out.iter().take(2).copied().collect::<Vec<_>>().join(", ");
    let more = match out.len().saturating_sub(2) {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    let text = format!(" ruled-out    {named}{more} (x lists all)");
    (!out.is_empty()).then(|| Line::styled(text, look.style(Role::Dim)))
}

fn missing(verdict: &Verdict, look: &Appearance, width: usize) -> Line<'static> {
    if verdict.missing.is_empty() {
        return Line::styled(" missing: nothing that was wanted", look.style(Role::Dim));
    }
    let names: Vec<String> = verdict
        .missing
        .iter()
        .map(|missing| format!("{} ({})", missing.signal, missing.reason))
        .collect();
    let head = format!(" {} missing: ", look.mark(Role::Unknown));
    let room = width.saturating_sub(head.chars().count());
    let text = format!("{head}{}", listed(&names, room, look.glyphs.ellipsis));
    Line::styled(text, look.style(Role::Unknown))
}
