//! Where the work multiplies: the waterfall from originals to the provider, what attempts and retries
//! come to, and who refuses. Names no cause.

use ratatui::text::{Line, Span};

use super::facts::Facts;
use super::{Content, Room, Section};
use crate::signal::Value;
use crate::tui::app::page::{part, records};
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::{amplification_chart, flow_chart};
use crate::tui::view::format::{count, factor, percent, rate, seconds, short};
use crate::tui::view::panels::{amplification_role, client_layers, first_amplifier_of, raised};

/// Cells of a stage's name.
const STAGE: usize = 12;
/// More of the calls than this refused with 429 is bad.
const REFUSED_TOO_MUCH: f64 = 0.05;
/// Codes and models listed at most.
const LISTED_MAX: usize = 8;

/// The page.
pub fn content(model: &Model, look: &Appearance, room: Room) -> Content {
    let facts = Facts::here(model, look, room.section);
    Content {
        sections: vec![
            waterfall(&facts),
            attempts(&facts),
            refusals(&facts),
            clock(&facts),
            codes(&facts),
            models(&facts),
        ],
        charts: vec![amplification_chart, flow_chart],
        ..Content::default()
    }
}

/// A bar of how much stands here for one original, against the most that does anywhere.
fn bar(many: f64, most: f64, room: usize, role: Role, look: &Appearance) -> Span<'static> {
    #[expect(clippy::cast_precision_loss, reason = "a width on a screen")]
    let whole = room as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let cells = (many / most.max(1e-9) * whole).round().clamp(0.0, whole) as usize;
    Span::styled(look.glyphs.filled.repeat(cells.max(1).min(room)), look.style(role))
}

fn waterfall(facts: &Facts<'_>) -> Section {
    let (model, look) = (facts.model, facts.look);
    let layers = client_layers(model);
    let first = first_amplifier_of(&layers);
    let by_clients = facts.number("client_multiplication");
    let in_all = facts.number("attempts_rps").zip(facts.number("originals_rps"));
    let in_all = in_all.filter(|(_, originals)| *originals > 0.0);
    let in_all = in_all.map(|(attempts, originals)| attempts / originals);
    let product: f64 = layers.iter().map(|(_, by)| by).product();
    let most = [Some(product), by_clients, in_all].into_iter().flatten().fold(1.0, f64::max);
    let room = facts.width.saturating_sub(STAGE + 34).min(24);
    let stage = |name: &str, by: String, so_far: Option<f64>, note: Span<'static>, role: Role| {
        let so_far_words = so_far.map_or_else(|| "?".to_owned(), factor);
        let mark = if role == Role::Crit { look.glyphs.pointer } else { " " };
        let mut spans = vec![Span::styled(
            format!("{mark}{name:<STAGE$}{by:>7}{so_far_words:>8} "),
            look.style(role),
        )];
        spans.extend(so_far.map(|many| bar(many, most, room, role, look)));
        spans.extend([Span::raw(" "), note]);
        Line::from(spans)
    };
    let plain = |text: String| Span::styled(text, look.style(Role::Dim));
    let head = format!(" {:<STAGE$}{:>7}{:>8}", "stage", "by", "so far");
    let mut lines = vec![Line::styled(head, look.style(Role::Dim))];
    let originals = facts.shown("originals_rps", rate);
    lines.push(stage("originals", String::new(), Some(1.0), originals, Role::Plain));
    let mut so_far = 1.0;
    for (index, (name, by)) in layers.iter().enumerate() {
        so_far *= by;
        let is_first = first == Some(index);
        let role = if is_first { Role::Crit } else { Role::Plain };
        let note = if is_first { "first amplifier" } else { "" };
        let note = Span::styled(note, look.style(role));
        lines.push(stage(name, factor(*by), Some(so_far), note, role));
    }
    if layers.is_empty() {
        let by = by_clients.map_or_else(|| "?".to_owned(), factor);
        let note = plain("which layer: ? (clients export no counters)".to_owned());
        lines.push(stage("clients", by, by_clients, note, Role::Unknown));
    }
    lines.push(stage(
        "offered",
        String::new(),
        by_clients,
        facts.shown("offered_rps", rate),
        Role::Plain,
    ));
    let admitted = facts.number("admitted_rps").zip(facts.number("offered_rps"));
    let passes = admitted.filter(|(_, offered)| *offered > 0.0);
    let passes =
        passes.map(|(admitted, offered)| format!("passes {}", percent(admitted / offered)));
    let gate = facts.number("attempts_rps").zip(facts.number("admitted_rps"));
    let by = gate.filter(|(_, admitted)| *admitted > 0.0).map(|(tries, admitted)| tries / admitted);
    let by = by.map_or_else(|| "?".to_owned(), factor);
    let passes = plain(passes.unwrap_or_else(|| "passes ?".to_owned()));
    lines.push(stage("gateway", by, in_all, passes, Role::Plain));
    let mut note = facts.shown("attempts_rps", rate);
    note.content.to_mut().push_str(" reach it");
    lines.push(stage("provider", String::new(), in_all, note, Role::Plain));
    match first {
        _ if layers.is_empty() => lines.push(facts.say("first amplifier: ?", Role::Unknown)),
        Some(_) => {}
        None => lines.push(facts.say("no layer multiplies", Role::Ok)),
    }
    Section { title: "from originals to the provider".to_owned(), lines }
}

fn attempts(facts: &Facts<'_>) -> Section {
    let role = amplification_role(facts.model);
    let allowed = facts.words("max_attempts_configured", count).0;
    let word = match role {
        Role::Crit => "more than one layer may make",
        Role::Warn => raised(facts.model),
        Role::Ok => "one each",
        _ => "this or more",
    };
    let note = format!("{} {word}; allowed {allowed}", facts.look.mark(role));
    let mut lines = vec![
        facts.noted("per original", "amplification", factor, (&note, role)),
        facts.line("retries, of all", "retries_share", percent),
        facts.line("retries that serve", "retry_success_share", percent),
        facts.line("retries denied", "retries_denied_rps", rate),
        facts.line("carry a mark", "retry_header_share", percent),
        facts.line("retries left", "retry_budget_left", count),
    ];
    lines.extend(histogram(facts));
    Section { title: "attempts".to_owned(), lines }
}

/// How many originals needed how many attempts, as far as somebody counts.
fn histogram(facts: &Facts<'_>) -> Vec<Line<'static>> {
    let Shown::Known { value: Value::Map(map), .. } = facts.signal("attempts_histogram") else {
        return vec![
            facts.line("needed two or more", "retried_originals_share", percent),
            facts.line("originals by tries", "attempts_histogram", count),
        ];
    };
    let parts: Vec<(&String, f64)> =
        map.iter().filter_map(|(tries, many)| Some((tries, many.as_number()?))).collect();
    let all: f64 = parts.iter().map(|(_, many)| many).sum();
    let share = |many: f64| if all > 0.0 { percent(many / all) } else { "?".to_owned() };
    parts
        .into_iter()
        .map(|(tries, many)| {
            facts.told(&format!("{tries} attempts"), &share(many), "", Role::Plain)
        })
        .collect()
}

fn refusals(facts: &Facts<'_>) -> Section {
    let of_calls = facts.number("provider_429_rps").zip(facts.number("attempts_rps"));
    let of_calls = of_calls.filter(|(_, attempts)| *attempts > 0.0);
    let share = of_calls.map(|(refused, attempts)| refused / attempts);
    let role = match share {
        Some(share) if share > REFUSED_TOO_MUCH => Role::Crit,
        Some(_) => Role::Ok,
        None => Role::Unknown,
    };
    let said = share.map_or_else(|| "?".to_owned(), percent);
    Section {
        title: "refused by the provider".to_owned(),
        lines: vec![
            facts.told("429, of all calls", &said, "", role),
            facts.line("429", "provider_429_rps", rate),
            facts.line("  for tokens", "provider_429_tokens_rps", rate),
            facts.line("  for requests", "provider_429_requests_rps", rate),
            facts.line("503", "provider_503_rps", rate),
            facts.line("other 5xx", "provider_5xx_other_rps", rate),
            facts.line("other 4xx", "provider_4xx_other_rps", rate),
            facts.line("timeouts", "timeout_rps", rate),
            facts.line("gate's own 429", "gate_429_rps", rate),
            facts.line("gate's own 503", "gate_503_rps", rate),
        ],
    }
}

fn clock(facts: &Facts<'_>) -> Section {
    Section {
        title: "when they come back".to_owned(),
        lines: vec![
            facts.line("hint on refusals", "retry_after_s", seconds),
            facts.line("wait, median", "retry_wait_p50_s", seconds),
            facts.line("in step", "retry_sync_share", percent),
            facts.line("until they give up", "retry_budget_s", seconds),
            facts.line("give up", "give_up_share", percent),
        ],
    }
}

fn codes(facts: &Facts<'_>) -> Section {
    let title = "codes, in the window".to_owned();
    let Shown::Known { value: Value::Map(map), .. } = facts.signal("error_codes") else {
        return Section { title, lines: vec![facts.line("codes", "error_codes", short)] };
    };
    let mut codes: Vec<(&String, f64)> =
        map.iter().filter_map(|(code, many)| Some((code, many.as_number()?))).collect();
    codes.sort_by(|left, right| right.1.total_cmp(&left.1));
    let hidden = codes.len().saturating_sub(LISTED_MAX);
    let mut lines: Vec<Line<'static>> = codes
        .iter()
        .take(LISTED_MAX)
        .map(|(code, many)| facts.say(&format!("{:>10}  {code}", count(*many)), Role::Plain))
        .collect();
    if lines.is_empty() {
        lines.push(facts.say("none", Role::Dim));
    }
    if hidden > 0 {
        lines.push(facts.say(&format!("and {hidden} more"), Role::Dim));
    }
    Section { title, lines }
}

/// Who is asked and refuses, by model; then who answers.
fn models(facts: &Facts<'_>) -> Section {
    let snapshot = facts.model.snapshot();
    let rows = |name| match (facts.signal(name), snapshot) {
        (Shown::Known { .. }, Some(snapshot)) => records(snapshot, name),
        _ => Vec::new(),
    };
    let share = |row, name| part(row, name).map_or_else(|| "?".to_owned(), percent);
    let mut lines = Vec::new();
    for (id, row) in rows("models_asked").into_iter().take(LISTED_MAX) {
        let refused = part(row, "refused_share");
        let role = match refused {
            Some(refused) if refused > REFUSED_TOO_MUCH => Role::Crit,
            Some(_) => Role::Plain,
            None => Role::Unknown,
        };
        let (of_calls, refused) = (share(row, "share"), share(row, "refused_share"));
        let text = format!("429 {refused:>6}  of {of_calls:>5} of the calls  {id}");
        lines.push(facts.say(&text, role));
    }
    if lines.is_empty() {
        lines.push(facts.line("429 by model", "models_asked", short));
    }
    let answering = rows("models");
    if answering.is_empty() {
        lines.push(facts.line("answers by model", "models", short));
    }
    for (id, row) in answering.into_iter().take(LISTED_MAX) {
        let text = format!("{:>6} of the answers  {id}", share(row, "share"));
        lines.push(facts.say(&text, Role::Plain));
    }
    Section { title: "by model".to_owned(), lines }
}
