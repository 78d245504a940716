//! What every screen has: verdict, next step, what is wrong with the data, sources, keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::diagnosis::Verdict;
use crate::ingest::SourceStatus;
use crate::tui::app::action::{Action, Entry, available, page_keys};
use crate::tui::app::headline::Headline;
use crate::tui::app::mode::{Context, Mode};
use crate::tui::app::{Model, State};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, clocks, span};
use crate::tui::view::widgets::{clipped, lines, right};
use crate::tui::view::{alerts, banner, next, recorded};

/// Draws the frame of the screen and returns the part for the screen itself.
pub fn draw(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) -> Rect {
    let width = usize::from(area.width);
    let mut head = vec![verdict(model, look, width), next::of_screen(model, look, width)];
    head.extend(recorded::line(model, look, width));
    head.extend(banners(model, look, area));
    let top = u16::try_from(head.len()).unwrap_or(2);
    lines(head, area, buf);
    let bottom = Rect { y: area.bottom() - 2, height: 2, ..area };
    let time = if area.width < 60 { clock } else { clocks };
    let times = format!(" {} ", time(model.wall, model.zone));
    let room = width.saturating_sub(times.chars().count());
    lines([sources(model, look, room), keys(model, look, area.width)], bottom, buf);
    right(Line::styled(times, look.style(Role::Strong)), Rect { height: 1, ..bottom }, buf);
    Rect { y: area.y + top, height: area.height.saturating_sub(top + 2), ..area }
}

/// The lines under the head, at most a quarter of the screen.
fn banners(model: &Model, look: &Appearance, area: Rect) -> Vec<Line<'static>> {
    let most = usize::from(area.height / 4).max(1);
    let mut found = banner::all(model, look, usize::from(area.width));
    if found.len() > most {
        let hidden = found.len() - most + 1;
        found.truncate(most - 1);
        let text = format!(" {} and {hidden} more lines like this", look.mark(Role::Warn));
        found.push(Line::styled(text, look.style(Role::Warn)));
    }
    found
}

/// The first line before it is styled.
pub struct Judgement {
    /// The state.
    pub state: State,
    /// What stands beside it.
    pub words: String,
    /// What was said before that stopped counting.
    was: Option<String>,
    /// The rest of the line: the fullest wording first, shorter ones for narrower screens.
    rest: Vec<String>,
}

/// State, cause and standing of the scope on the screen, or why there are none.
pub fn judgement(model: &Model) -> Judgement {
    let headline = model.headline();
    let (mut rest, mut was) = (Vec::new(), None);
    let words = match headline {
        Headline::Connecting => {
            rest.push("no data yet".to_owned());
            "connecting...".to_owned()
        }
        Headline::Undiagnosed(why) => why.to_owned(),
        Headline::NoData { age_s, was: last } => {
            was = Some(format!("was: {}", last.cause));
            format!("no data for {}", span(age_s))
        }
        Headline::Down { source, was: last } => {
            was = last.map(|last| format!("was: {}", last.cause));
            let how = if source.last_good.is_some() { "is down" } else { "never answered" };
            format!("{} {how}", source.name)
        }
        Headline::Denied { why, was: last } => {
            was = Some(format!("though the verdict is {}", last.cause));
            why.to_owned()
        }
        Headline::Settling { flip, was: incident } => {
            let left = span(model.settles_in(flip).as_secs_f64().ceil());
            rest.push(format!("{} r{} settles, {left} left", flip.plan.name, flip.revision));
            incident.cause.clone()
        }
        Headline::Held { was: incident, verdict } => {
            rest = standing(model, verdict);
            match State::of(verdict) {
                State::Ok => format!("{}  held by flips", incident.cause),
                _ => format!("{}  held, now {}", incident.cause, verdict.cause),
            }
        }
        Headline::Verdict(verdict) => {
            rest = standing(model, verdict);
            format!("{}  {}", verdict.cause, verdict.standing)
        }
    };
    Judgement { state: headline.state(), words, was, rest }
}

/// How much a verdict rests on, and since when it stands.
fn standing(model: &Model, verdict: &Verdict) -> Vec<String> {
    let (used, of) = (verdict.used, verdict.of);
    let rewound = model.frozen.as_ref().filter(|frozen| frozen.is_rewound);
    if let Some(frozen) = rewound {
        let since = model.judged.since(&verdict.scope, frozen.since).unwrap_or(frozen.since);
        let lasted = span(frozen.since.saturating_since(since).as_secs_f64());
        return vec![format!("{used} of {of} signals  for {lasted} then")];
    }
    let Some(onset) = model.onsets.get(&verdict.scope) else {
        return vec![format!("{used} of {of} signals")];
    };
    // A moment in between in which nothing could be told is no end of the incident.
    let began = model.incidents.get(&verdict.scope).filter(|was| was.cause == verdict.cause);
    let before = began.map_or(0.0, |was| (onset.wall - was.wall).as_seconds_f64().max(0.0));
    let wall = began.map_or(onset.wall, |was| was.wall.min(onset.wall));
    let since = clock(wall, model.zone);
    let lasted = span(model.shown_now().saturating_since(onset.since).as_secs_f64() + before);
    vec![
        format!("{used} of {of} signals  since {since} ({lasted})"),
        format!("{used} of {of}  since {since} ({lasted})"),
        format!("{used} of {of}  for {lasted}"),
    ]
}

fn verdict(model: &Model, look: &Appearance, width: usize) -> Line<'static> {
    let said = judgement(model);
    let role = said.state.role();
    let head = format!(" {} {} ", look.mark(role), said.state.word());
    let mut spans = vec![
        Span::styled(head, look.style(role)),
        Span::styled(format!("{}  ", said.words), look.style(Role::Strong)),
    ];
    let fits = |spans: &[Span<'_>], text: &str| {
        spans.iter().map(Span::width).sum::<usize>() + text.chars().count() <= width
    };
    if let Some(was) = said.was.filter(|was| fits(&spans, was)) {
        spans.push(Span::styled(was, look.style(Role::Dim)));
    }
    if let Some(rest) = said.rest.iter().find(|rest| fits(&spans, rest)) {
        spans.push(Span::raw(rest.clone()));
    }
    let place = match (model.scope(), model.scopes().len()) {
        (Some(scope), many @ 2..) => format!("   {scope} (one of {many}, [ ] others)"),
        (Some(scope), _) => format!("   {scope}"),
        (None, _) => String::new(),
    };
    if fits(&spans, &place) {
        spans.push(Span::styled(place, look.style(Role::Dim)));
    }
    clipped(Line::from(spans), width, look)
}

/// The sources with their ages, whole ones only.
fn sources(model: &Model, look: &Appearance, width: usize) -> Line<'static> {
    if model.is_rewound() {
        let text = " the state of sources is not kept for the past";
        return Line::styled(text, look.style(Role::Unknown));
    }
    let all = source_words(model, look);
    if all.is_empty() {
        return Line::styled(" connecting...", look.style(Role::Unknown));
    }
    let size = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
    let count = all.len();
    let mut line = vec![Span::raw(" ")];
    for (index, mut words) in all.into_iter().enumerate() {
        let more = count - index;
        let reserved = if more > 1 { format!("+{}", more - 1).len() } else { 0 };
        if size(&line) + size(&words) + reserved > width {
            line.push(Span::styled(format!("+{more}"), look.style(Role::Warn)));
            break;
        }
        line.append(&mut words);
    }
    Line::from(line)
}

/// Every source with the age of its newest answer, or what is wrong with it.
pub fn source_words(model: &Model, look: &Appearance) -> Vec<Vec<Span<'static>>> {
    let all = model.shown().map_or(&[][..], |update| &update.observation.sources);
    all.iter()
        .map(|source| {
            let (role, text) = source_state(model, source);
            let mut words = vec![Span::raw(format!("{} ", source.name))];
            words.extend(instances(source, look));
            let via = source.via.as_ref().map(|via| format!("via {via} "));
            words.extend(via.map(|via| Span::styled(via, look.style(Role::Dim))));
            words.push(Span::styled(format!("{text}  "), look.style(role)));
            words
        })
        .chain(alerts::source_words(model, look))
        .collect()
}

/// How many instances of a source answer, where there are several.
fn instances(source: &SourceStatus, look: &Appearance) -> Option<Span<'static>> {
    let (up, all) = source.instances;
    let role = if up < all { Role::Warn } else { Role::Dim };
    (all > 1).then(|| Span::styled(format!("{up}/{all} "), look.style(role)))
}

/// How a source stands: the age of its newest answer, or what is wrong.
pub fn source_state(model: &Model, source: &SourceStatus) -> (Role, String) {
    let age = source.last_good.map(|at| model.shown_now().saturating_since(at).as_secs_f64());
    let is_stale = |age: f64| age > source.stale_after_s;
    match (age, &source.error) {
        (None, None) => (Role::Unknown, "connecting".to_owned()),
        (None, Some(_)) => (Role::Crit, "DOWN".to_owned()),
        (Some(age), Some(_)) if is_stale(age) => (Role::Crit, format!("STALE {}", span(age))),
        (Some(age), Some(_)) => (Role::Warn, format!("ERROR {}", span(age))),
        (Some(age), None) if is_stale(age) => (Role::Stale, format!("STALE {}", span(age))),
        (Some(_), None) if model.is_foreign(source) => (Role::Warn, "no weir metrics".to_owned()),
        (Some(age), None) => (Role::Dim, span(age)),
    }
}

/// The keys that work now, from the registry. What Enter does and the ways to help and out have their
/// place first.
fn keys(model: &Model, look: &Appearance, width: u16) -> Line<'static> {
    let context = model.mode().context();
    let hinted: Vec<&Entry> = available(model, context)
        .filter(|entry| !entry.hint.is_empty() && !is_here(entry.action, model.mode()))
        .filter(|entry| entry.action.seek().is_none() || is_in_time(model))
        .filter(|entry| entry.action != Action::NextField || has_fields(model.mode()))
        .collect();
    let hint = |entry: &Entry| match (entry.action, &model.playhead) {
        (Action::Freeze, Some(head)) if head.is_playing => "pause",
        (Action::Freeze, Some(_)) => "play",
        (Action::Freeze, None) if model.frozen.is_some() => "now",
        (Action::Arm, _) if model.may_send() => "lock",
        (Action::Accept, _) if context == Context::Leaving => "leave",
        // There is no button on a line that is typed.
        (Action::Accept, _) if !has_fields(model.mode()) && context == Context::Typing => "done",
        _ => entry.hint,
    };
    // One hint stands for all pages.
    let key = |entry: &Entry| match entry.action.page() {
        Some(_) => page_keys(model),
        None => entry.keys[0].to_string(),
    };
    let size = |entry: &Entry| key(entry).len() + hint(entry).len() + 3;
    let out = |entry: &Entry| matches!(entry.action, Action::Help | Action::Back | Action::Quit);
    let reserved: usize = hinted.iter().filter(|entry| out(entry)).map(|entry| size(entry)).sum();
    let mut left = usize::from(width).saturating_sub(reserved + 1);
    let enter = hinted.iter().find(|entry| key(entry) == "Enter" && size(entry) <= left);
    let enter = enter.map(|entry| entry.action);
    left -= hinted.iter().find(|entry| Some(entry.action) == enter).map_or(0, |one| size(one));
    let always = |entry: &Entry| out(entry) || Some(entry.action) == enter;
    let mut spans = vec![Span::raw(" ")];
    for entry in hinted {
        if !always(entry) {
            let Some(rest) = left.checked_sub(size(entry)) else { continue };
            left = rest;
        }
        spans.push(Span::styled(key(entry), look.style(Role::Accent)));
        spans.push(Span::raw(format!(" {}  ", hint(entry))));
    }
    Line::from(spans)
}

/// Whether there is another field to go to.
const fn has_fields(mode: &Mode) -> bool {
    matches!(mode, Mode::Plan(_) | Mode::Edit(_))
}

/// Whether another moment than now is shown.
fn is_in_time(model: &Model) -> bool {
    model.playhead.is_some() || model.frozen.is_some()
}

/// Whether an action leads to the screen that is shown.
fn is_here(action: Action, mode: &Mode) -> bool {
    match mode {
        Mode::Diagnose(_) => action == Action::Diagnose,
        Mode::Flags => action == Action::Flags,
        Mode::Timeline(_) => action == Action::Timeline,
        // The edge of a page names all pages with their keys.
        Mode::Page(..) => action.page().is_some(),
        _ => false,
    }
}
