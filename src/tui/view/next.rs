//! What to do next, in one line: on every screen, and at the end of a diagnosis.

use ratatui::text::{Line, Span};

use crate::diagnosis::Verdict;
use crate::flag::{FlagState, OnExpire};
use crate::tui::app::action::Action;
use crate::tui::app::arming::Arming;
use crate::tui::app::guide::FirstFlip;
use crate::tui::app::headline::Headline;
use crate::tui::app::mode::Mode;
use crate::tui::app::offer::Next;
use crate::tui::app::settled::Remembered;
use crate::tui::app::{Model, State};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, cut_words, factor, percent, rate, seconds, span};

/// A first step in fewer cells than this says nothing.
const FIRST_MIN: usize = 8;

/// What the line begins with.
const HEAD: &str = " next: ";

/// The line of every screen.
pub fn of_screen(model: &Model, look: &Appearance, width: usize) -> Line<'static> {
    if let Some(toast) = &model.toast {
        let text = format!(" {} {}", look.mark(toast.role), toast.text);
        let text = cut_words(&text, width, look.glyphs.ellipsis);
        return Line::styled(text, look.style(toast.role));
    }
    let dim = look.style(Role::Dim);
    let mut spans = vec![Span::styled(HEAD, dim)];
    let headline = model.headline();
    match (&headline, headline.state()) {
        // What was to be done then is no advice for now.
        _ if model.is_rewound() => spans.extend(to_now(model, look)),
        (Headline::Connecting | Headline::Undiagnosed(_), _) => {
            spans.push(Span::styled("waiting for the first answers", dim));
        }
        (Headline::Down { source, .. }, _) => {
            spans.push(Span::raw(format!("bring {} back, or correct its url", source.name)));
        }
        (Headline::Denied { .. }, _) => {
            spans.push(key(model, Action::Diagnose, look));
            spans.push(Span::raw(" diagnose: the verdict does not fit the numbers"));
        }
        _ if model.settling_flip().is_some() => spans.push(Span::raw(settling(model))),
        (Headline::Held { was, verdict }, _) => spans.extend(held(model, was, verdict, look)),
        (_, State::Ok) => spans.push(Span::raw(calm(model))),
        (_, State::Unknown) => {
            spans.extend([
                key(model, Action::Diagnose, look),
                Span::raw(" diagnose: see what is missing"),
            ]);
        }
        (_, State::Contained) => spans.extend(contained(model, look)),
        (_, State::Incident) => spans.extend(incident(model, look, width)),
    }
    let (word, role) = may_flip(model);
    let mut spans = fitted(spans, width.saturating_sub(word.chars().count()), look);
    spans.push(Span::styled(word, look.style(role)));
    let used: usize = spans.iter().map(Span::width).sum();
    let title = format!("   {}", model.title);
    if used + title.chars().count() <= width {
        spans.push(Span::styled(title, dim));
    }
    Line::from(spans)
}

/// The way back to now.
fn to_now(model: &Model, look: &Appearance) -> [Span<'static>; 2] {
    [key(model, Action::Freeze, look), Span::raw(" back to now: this was then")]
}

/// Whether flips can be sent from here, where that is not as in a drill.
fn may_flip(model: &Model) -> (String, Role) {
    match (model.read_only, model.arming, model.armed_for()) {
        (true, ..) => ("  READ-ONLY".to_owned(), Role::Accent),
        (false, Arming::NotNeeded, _) => (String::new(), Role::Plain),
        (false, _, Some(left)) => {
            let minutes = left.as_secs().div_ceil(60);
            (format!("  ARMED {} {minutes}m", model.environment), Role::Warn)
        }
        (false, ..) => ("  LOCKED".to_owned(), Role::Accent),
    }
}

/// The words up to a width, with a sign where they go on.
fn fitted(spans: Vec<Span<'static>>, width: usize, look: &Appearance) -> Vec<Span<'static>> {
    let mut left = width;
    let mut fitted = Vec::new();
    for span in spans {
        let cells = span.width();
        if cells > left {
            let text = cut_words(&span.content, left, look.glyphs.ellipsis);
            fitted.push(Span::styled(text, span.style));
            break;
        }
        left -= cells;
        fitted.push(span);
    }
    fitted
}

/// The keys that lead from any screen to the diagnosis, and there to this.
fn keys(model: &Model, action: Action) -> String {
    let there = matches!(model.screen(), Mode::Diagnose(_));
    let way = if there { String::new() } else { format!("{}, ", model.key_of(Action::Diagnose)) };
    format!("{way}{}", model.key_of(action))
}

fn key(model: &Model, action: Action, look: &Appearance) -> Span<'static> {
    Span::styled(model.key_of(action), look.style(Role::Accent))
}

fn incident(model: &Model, look: &Appearance, width: usize) -> Vec<Span<'static>> {
    let strong = look.style(Role::Strong);
    let next = model.next();
    if let Some(Next::Watch(offer)) = &next {
        let name = Span::styled(offer.plan.name, strong);
        return vec![name, Span::raw(format!(" applied, watching: {}", watched(model)))];
    }
    // Who has gone on along the runbook has paged already.
    let page =
        model.verdict().filter(|verdict| verdict.pages_owner && model.walked_node().is_none());
    let mut spans = Vec::new();
    if let Some(verdict) = page {
        let first = format!("{}, then ", model.owners.page(&verdict.scope));
        spans.push(Span::styled(first, strong));
    }
    // Whoever reads the diagnosis need not be sent to it.
    if !matches!(model.screen(), Mode::Diagnose(_)) {
        spans.extend([key(model, Action::Diagnose, look), Span::raw(" diagnose  ")]);
    }
    spans.extend([key(model, Action::Flags, look), Span::raw(" flags")]);
    let (how, first) = match next {
        Some(Next::Plan(offer)) if !model.read_only => {
            let head = format!("  first ({}): plan ", keys(model, Action::TakePlan));
            (head, format!("{} ({})", offer.plan.name, offer.size()))
        }
        Some(Next::Flip(flip)) => {
            let is_open = flip.refused.is_none() && !model.read_only;
            let way = if is_open { Action::TakePlan } else { Action::Walk };
            (format!("  first ({}): ", keys(model, way)), flip.to_string())
        }
        // The owner is named in front already.
        Some(Next::Step(title)) if page.is_none() => {
            (format!("  first ({}): ", keys(model, Action::Walk)), title)
        }
        _ => return spans,
    };
    let used: usize = spans.iter().map(Span::width).sum();
    let room = width.saturating_sub(used + HEAD.len() + how.len());
    if room >= FIRST_MIN {
        spans.push(Span::raw(how));
        spans.push(Span::styled(cut_words(&first, room, look.glyphs.ellipsis), strong));
    }
    spans
}

/// A flip was just made: nothing is offered before its effect can show.
fn settling(model: &Model) -> String {
    let Some(flip) = model.settling_flip() else { return String::new() };
    let left = model.settles_in(flip).as_secs_f64().ceil();
    format!("wait {}: {} settles", span(left), flip.plan.name)
}

/// The numbers in which a plan that was applied shows.
fn watched(model: &Model) -> String {
    let number = |signal: &str, format: fn(f64) -> String| {
        model.number(signal).map_or_else(|| "?".to_owned(), format)
    };
    format!(
        "{} attempts, 429 {}, served {}",
        number("amplification", factor),
        number("provider_429_rps", rate),
        number("served_share", percent)
    )
}

/// All is well; and what holds it that way, which somebody has to take back or write down.
fn calm(model: &Model) -> String {
    let flags = model.flags.table.as_ref().map_or(&[][..], |table| &table.flags);
    let mut flipped = flags.iter().filter(|flag| flag.stored() != &flag.base);
    let Some(first) = flipped.next() else { return "nothing to do".to_owned() };
    let until = until(model).map_or_else(String::new, |text| format!("; {text}"));
    let more = match flipped.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("nothing now; flips are in place: {} = {}{more} (f){until}", first.key, first.stored())
}

/// Shedding is what the gate is for. What is worth a flip: a cause that is still there beside it, and a
/// queue that stands too long.
fn contained(model: &Model, look: &Appearance) -> Vec<Span<'static>> {
    // The keys stand before the reason: a narrow line loses its end.
    let open = |flip: &FirstFlip, state: String, why: String| {
        let flip = Span::styled(format!("{} = {}", flip.key, flip.to), look.style(Role::Strong));
        vec![
            Span::raw(format!("{state}; ")),
            Span::styled(keys(model, Action::TakePlan), look.style(Role::Accent)),
            Span::raw(": "),
            flip,
            Span::raw(why),
        ]
    };
    match model.contained_flip() {
        Some((Some(cause), flip)) => open(&flip, format!("{cause} is still there"), String::new()),
        Some((None, flip)) => {
            let p95 = model.number("latency_p95_s");
            let why = p95.map_or_else(String::new, |p95| format!(" against p95 {}", seconds(p95)));
            open(&flip, "shedding is intended".to_owned(), why)
        }
        None => {
            let text = format!(
                "shedding is intended: demand is above the quota; buy, borrow or reduce ({})",
                keys(model, Action::Walk)
            );
            vec![Span::raw(text)]
        }
    }
}

/// What flips hold down is still there: what ends it, and what happens when their time is up.
fn held(
    model: &Model,
    was: &Remembered,
    verdict: &Verdict,
    look: &Appearance,
) -> Vec<Span<'static>> {
    if State::of(verdict) == State::Contained && model.contained_flip().is_some() {
        return contained(model, look);
    }
    let lasting = model
        .guidance()
        .and_then(|guide| guide.library.cause(&was.cause))
        .map(|cause| cause.lasting.clone())
        .filter(|lasting| !lasting.is_empty());
    let for_good =
        lasting.unwrap_or_else(|| format!("find what began it ({})", keys(model, Action::Walk)));
    let timer = until(model).map(|text| Span::raw(format!("{text}; ")));
    let mut spans: Vec<_> = timer.into_iter().collect();
    spans.push(Span::raw("for good: "));
    spans.push(Span::styled(for_good, look.style(Role::Strong)));
    spans
}

/// What takes itself back next, and when. A timer that would lead away from the safe end only reminds.
fn until(model: &Model) -> Option<String> {
    let reverts = |flag: &FlagState| match flag.timer() {
        Some((at, OnExpire::Revert)) if *flag.stored() != flag.base => Some(at),
        _ => None,
    };
    let flags = &model.flags.table.as_ref()?.flags;
    let at = clock(flags.iter().filter_map(reverts).min()?, model.zone);
    Some(format!("back by itself at {at}"))
}

/// The last line of a diagnosis.
pub fn of_diagnosis(
    model: &Model,
    verdict: &Verdict,
    look: &Appearance,
    width: usize,
) -> Line<'static> {
    let mut spans = vec![Span::styled(HEAD, look.style(Role::Dim))];
    let next = model.next();
    let text = match &next {
        _ if model.is_rewound() => {
            spans.extend(to_now(model, look));
            String::new()
        }
        _ if model.settling_flip().is_some() => settling(model),
        Some(Next::Watch(offer)) => {
            spans.push(Span::styled(offer.plan.name, look.style(Role::Strong)));
            format!(" applied, watching: {}", watched(model))
        }
        Some(Next::Plan(offer)) if !model.read_only => {
            spans.push(key(model, Action::TakePlan, look));
            let name = format!(" plan {} ", offer.plan.name);
            spans.push(Span::styled(name, look.style(Role::Strong)));
            format!("({}): {}", offer.size(), offer.plan.meaning)
        }
        Some(Next::Plan(offer)) => {
            format!("plan {} (this session is read-only)", offer.plan.name)
        }
        _ => match State::of(verdict) {
            State::Ok => match model.held(verdict) {
                Some(was) => {
                    spans.extend(held(model, was, verdict, look));
                    String::new()
                }
                None => calm(model),
            },
            State::Contained => {
                spans.extend(match model.held(verdict) {
                    Some(was) => held(model, was, verdict, look),
                    None => contained(model, look),
                });
                String::new()
            }
            State::Unknown if verdict.cause == "insufficient-evidence" => {
                "get the missing signals; nothing is offered on a guess".to_owned()
            }
            State::Unknown | State::Incident => {
                if verdict.pages_owner && model.walked_node().is_none() {
                    let page = format!("{}, then ", model.owners.page(&verdict.scope));
                    spans.push(Span::styled(page, look.style(Role::Strong)));
                }
                let runbook = verdict.runbook.as_deref().unwrap_or(&verdict.cause);
                match next {
                    Some(Next::Flip(flip)) if flip.refused.is_none() && !model.read_only => {
                        spans.push(key(model, Action::TakePlan, look));
                        format!(" plan {flip}")
                    }
                    Some(Next::Flip(flip)) => {
                        spans.push(key(model, Action::Walk, look));
                        format!(" walk {runbook}, first: {flip}")
                    }
                    Some(Next::Step(title)) => {
                        spans.push(key(model, Action::Walk, look));
                        format!(" walk {runbook}, first: {title}")
                    }
                    _ => {
                        spans.push(key(model, Action::Walk, look));
                        format!(" walk {runbook}, step by step")
                    }
                }
            }
        },
    };
    spans.push(Span::raw(text));
    Line::from(fitted(spans, width, look))
}
