//! One original from its first request to its end, as the gateway tells it: what was sent, what came
//! back, how long was waited. Only reads.

use ratatui::text::Line;

use super::facts::Facts;
use super::{Content, Room, Section};
use crate::flag::{Link, Original};
use crate::tui::app::Model;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, count, seconds};
use crate::tui::view::texts::wrap;

/// Links that a gateway keeps of an original; what came later is not in the chain.
const KEPT: usize = crate::admission::CHAIN_MAX;

/// The page.
pub fn content(model: &Model, look: &Appearance, room: Room) -> Content {
    // The chain is one story and takes the whole width.
    let facts = Facts::here(model, look, room.table);
    let sections = match &model.trace {
        None => vec![help(&facts, "no original was asked for")],
        Some(trace) => match &trace.answer {
            None => vec![help(&facts, &format!("asking for {}...", trace.id))],
            Some((_, Err(why))) => {
                let mut section = help(&facts, &format!("{} was not told", trace.id));
                let style = look.style(Role::Unknown);
                let why = wrap(why, room.table).into_iter().map(|row| Line::styled(row, style));
                section.lines.splice(0..0, why);
                vec![section]
            }
            Some((at, Ok(original))) => vec![whole(&facts, original), chain(&facts, original, *at)],
        },
    };
    Content { table: None, sections, charts: Vec::new(), single: true }
}

fn help(facts: &Facts<'_>, title: &str) -> Section {
    let words = [
        "Enter asks for an original by its number: the header x-weir-request-id of any answer to it.",
        "The gateway keeps it until two minutes after its last event or, once served, until 10,000 \
         others have been. Nothing is changed.",
    ];
    let lines = words.iter().flat_map(|text| wrap(text, facts.width)).map(Line::from).collect();
    Section { title: title.to_owned(), lines }
}

fn whole(facts: &Facts<'_>, original: &Original) -> Section {
    let (role, word) =
        if original.served { (Role::Ok, "served") } else { (Role::Warn, "not served so far") };
    let tokens: Vec<f64> = original.chain.iter().filter_map(|link| link.tokens).collect();
    let tokens = match tokens.len() {
        0 => facts.told("tokens", "?", "no answer told any", Role::Unknown),
        _ => facts.told("tokens", &count(tokens.iter().sum()), "billed", Role::Strong),
    };
    let plain = |label: &str, many: u64, note: &str| {
        facts.told(label, &many.to_string(), note, Role::Strong)
    };
    Section {
        title: format!("original {} of {}", original.id, original.scope),
        lines: vec![
            facts.say(&format!("{} {word}", facts.look.mark(role)), role),
            plain("requests", original.requests, "that asked for it"),
            plain("attempts", original.attempts, "at the provider"),
            tokens,
            facts.unknown("in money", "the gateway tells tokens, not their price"),
        ],
    }
}

fn chain(
    facts: &Facts<'_>,
    original: &Original,
    told_at: chrono::DateTime<chrono::Utc>,
) -> Section {
    let head = format!(
        " {:<13} {:<9}{:>7}{:>9}{:>9}{:>8}  {}",
        "when", "what", "status", "waited", "hint", "tokens", "code"
    );
    let mut lines = vec![Line::styled(head, facts.look.style(Role::Dim))];
    lines.extend(original.chain.iter().map(|link| row(facts, link, told_at)));
    if original.chain.len() >= KEPT {
        lines.push(facts.say("later events are not kept: the chain is full", Role::Warn));
    }
    Section { title: "what happened".to_owned(), lines }
}

fn row(facts: &Facts<'_>, link: &Link, told_at: chrono::DateTime<chrono::Utc>) -> Line<'static> {
    // Whole milliseconds, and a number that no clock has is now.
    #[expect(clippy::cast_possible_truncation, reason = "of an event two minutes old at most")]
    let back = chrono::TimeDelta::try_milliseconds((link.ago_s * 1_000.0) as i64);
    let at = told_at - back.unwrap_or_default();
    let when = format!("{}.{:03}", clock(at, facts.model.zone), at.timestamp_subsec_millis());
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let status = or_none(link.status.map(|status| status.to_string()));
    let waited = if link.wait_s > 0.0 { seconds(link.wait_s) } else { "-".to_owned() };
    let hint = or_none(link.hint_s.map(seconds));
    let tokens = or_none(link.tokens.map(count));
    let code = link.code.as_deref().unwrap_or("-");
    let role = match link.status {
        Some(status) if status >= 400 => Role::Warn,
        Some(_) => Role::Ok,
        None => Role::Plain,
    };
    let text =
        format!("{when:<13} {:<9}{status:>7}{waited:>9}{hint:>9}{tokens:>8}  {code}", link.what);
    facts.say(&text, role)
}
