//! What to do next, in one line: on every screen, and at the end of a diagnosis.

use ratatui::text::{Line, Span};

use crate::diagnosis::Verdict;
use crate::tui::app::headline::Headline;
use crate::tui::app::offer::Next;
use crate::tui::app::{Model, State};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, cut_words, factor, percent, rate, seconds};

/// p95 of admitted requests above which a queue that stands is too patient.
const PATIENT_ABOVE_S: f64 = 5.0;
/// Fewer waiting requests than this are no queue.
const STANDS_FROM: f64 = 1.0;

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
        (Headline::Connecting | Headline::Undiagnosed(_), _) => {
            spans.push(Span::styled("waiting for the first answers", dim));
        }
        (Headline::Down { source, .. }, _) => {
            spans.push(Span::raw(format!("bring {} back, or correct its url", source.name)));
        }
        (Headline::Denied { .. }, _) => {
            spans.push(key("d", look));
            spans.push(Span::raw(" diagnose: the verdict does not fit the numbers"));
        }
        (_, State::Ok) => spans.push(Span::raw(calm(model))),
        (_, State::Unknown) => {
            spans.extend([key("d", look), Span::raw(" diagnose: see what is missing")]);
        }
        (_, State::Contained) => spans.push(Span::raw(contained(model))),
        (_, State::Incident) => spans.extend(incident(model, look, width)),
    }
    if model.read_only {
        spans.push(Span::styled("  READ-ONLY", look.style(Role::Accent)));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    let title = format!("   {}", model.title);
    if used + title.chars().count() <= width {
        spans.push(Span::styled(title, dim));
    }
    Line::from(spans)
}

fn key(text: &'static str, look: &Appearance) -> Span<'static> {
    Span::styled(text, look.style(Role::Accent))
}

fn incident(model: &Model, look: &Appearance, width: usize) -> Vec<Span<'static>> {
    let strong = look.style(Role::Strong);
    let next = model.next();
    if let Some(Next::Watch(offer)) = &next {
        let name = Span::styled(offer.plan.name, strong);
        return vec![name, Span::raw(format!(" applied, watching: {}", watched(model)))];
    }
    let page = model.verdict().filter(|verdict| verdict.pages_owner);
    let mut spans = Vec::new();
    if let Some(verdict) = page {
        let first = format!("{}, then ", model.owners.page(&verdict.scope));
        spans.push(Span::styled(first, strong));
    }
    spans.extend([key("d", look), Span::raw(" diagnose  "), key("f", look), Span::raw(" flags")]);
    let (how, first) = match next {
        Some(Next::Plan(offer)) if !model.read_only => {
            ("  first plan: ", format!("{} ({})", offer.plan.name, offer.size()))
        }
        Some(Next::Flip(flip)) => {
            let is_open = flip.refused.is_none() && !model.read_only;
            (if is_open { "  first (d, Enter): " } else { "  first (d, l): " }, flip.to_string())
        }
        // The owner is named in front already.
        Some(Next::Step(title)) if page.is_none() => ("  first (d, l): ", title),
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
    let until =
        first.expires.map_or_else(String::new, |at| format!(" until {}", clock(at, model.zone)));
    let more = match flipped.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("nothing now; flips are in place: {} = {}{until}{more} (f)", first.key, first.stored())
}

/// Shedding is what the gate is for; only a queue that stands too long is worth a flip.
fn contained(model: &Model) -> String {
    let stands = model.number("queue_depth").is_some_and(|depth| depth >= STANDS_FROM);
    match model.number("latency_p95_s") {
        Some(p95) if stands && p95 > PATIENT_ABOVE_S => {
            let p95 = seconds(p95);
            format!("shedding is intended. p95 {p95}: lower queue.max_age_s to shed sooner (f)")
        }
        _ => "shedding is intended: demand is above the quota".to_owned(),
    }
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
        Some(Next::Watch(offer)) => {
            spans.push(Span::styled(offer.plan.name, look.style(Role::Strong)));
            format!(" applied, watching: {}", watched(model))
        }
        Some(Next::Plan(offer)) if !model.read_only => {
            spans.push(key("Enter", look));
            let name = format!(" plan {} ", offer.plan.name);
            spans.push(Span::styled(name, look.style(Role::Strong)));
            format!("({}): {}", offer.size(), offer.plan.meaning)
        }
        Some(Next::Plan(offer)) => {
            format!("plan {} (this session is read-only)", offer.plan.name)
        }
        _ => match State::of(verdict) {
            State::Ok => calm(model),
            State::Contained => contained(model),
            State::Unknown if verdict.cause == "insufficient-evidence" => {
                "get the missing signals; nothing is offered on a guess".to_owned()
            }
            State::Unknown | State::Incident => {
                if verdict.pages_owner {
                    let page = format!("{}, then ", model.owners.page(&verdict.scope));
                    spans.push(Span::styled(page, look.style(Role::Strong)));
                }
                let runbook = verdict.runbook.as_deref().unwrap_or(&verdict.cause);
                match next {
                    Some(Next::Flip(flip)) if flip.refused.is_none() && !model.read_only => {
                        spans.push(key("Enter", look));
                        format!(" plan {flip}")
                    }
                    Some(Next::Flip(flip)) => {
                        spans.push(key("l", look));
                        format!(" walk {runbook}, first: {flip}")
                    }
                    Some(Next::Step(title)) => {
                        spans.push(key("l", look));
                        format!(" walk {runbook}, first: {title}")
                    }
                    _ => {
                        spans.push(key("l", look));
                        format!(" walk {runbook}, step by step")
                    }
                }
            }
        },
    };
    let used: usize = spans.iter().map(Span::width).sum();
    spans.push(Span::raw(cut_words(&text, width.saturating_sub(used), look.glyphs.ellipsis)));
    Line::from(spans)
}
