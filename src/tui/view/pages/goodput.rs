//! What comes out: where each request ended, useful tokens against the quota, what it costs, and how
//! long it takes for those who are served and for all who ask.

use ratatui::text::{Line, Span};

use super::facts::Facts;
use super::{Content, Room, Section};
use crate::tui::app::Model;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::{flow_chart, latency_chart};
use crate::tui::view::format::{count, limit, percent, rate, seconds};
use crate::tui::view::panels::completed_signal;

/// Cells of a stage's name, of its rate, of its share.
const STAGE: usize = 12;

/// The page.
pub fn content(model: &Model, look: &Appearance, room: Room) -> Content {
    let facts = Facts::here(model, look, room.section);
    Content {
        sections: vec![
            flow(&facts),
            tokens(&facts),
            latency(&facts),
            money(&facts),
            answers(&facts),
        ],
        charts: vec![flow_chart, latency_chart],
        ..Content::default()
    }
}

fn flow(facts: &Facts<'_>) -> Section {
    let (model, look) = (facts.model, facts.look);
    let offered = facts.number("offered_rps").filter(|rate| *rate > 0.0);
    let head = format!(" {:<STAGE$}{:>10}{:>12}", "", "per second", "of offered");
    let mut lines = vec![Line::styled(head, look.style(Role::Dim))];
    let stage = |label: &str, signal: &str, bad: bool| {
        let value = facts.number(signal);
        let share =
            value.zip(offered).map_or_else(|| "?".to_owned(), |(value, all)| percent(value / all));
        let is_bad = bad && value.is_some_and(|value| value > 0.05);
        let (text, role) = facts.words(signal, rate);
        let role = match role {
            Role::Plain if is_bad => Role::Warn,
            Role::Plain => Role::Strong,
            other => other,
        };
        let mut spans = vec![
            Span::raw(format!(" {label:<STAGE$}")),
            Span::styled(format!("{text:>10}"), look.style(role)),
            Span::styled(format!("{share:>12}  "), look.style(Role::Dim)),
        ];
        spans.extend(facts.trend(signal, facts.width.saturating_sub(STAGE + 26)));
        Line::from(spans)
    };
    lines.extend([
        stage("originals", "originals_rps", false),
        stage("offered", "offered_rps", false),
        stage("admitted", "admitted_rps", false),
        stage("completed", completed_signal(model), false),
        stage("shed", "shed_rps", true),
        stage("deferred", "deferred_rps", true),
        stage("cancelled", "cancelled_rps", true),
        stage("expired", "expired_rps", true),
    ]);
    let served = facts.words("served_share", percent).0;
    lines.push(facts.told("originals served", &served, "", Role::Strong));
    Section { title: "where it ended".to_owned(), lines }
}

/// Tokens a minute in answers that were of use, from those of one request.
fn useful(facts: &Facts<'_>) -> Option<f64> {
    let each =
        facts.number("actual_tokens_per_request").or_else(|| facts.number("tokens_per_request"))?;
    Some(facts.number("success_rps").or_else(|| facts.number("delivered_rps"))? * each * 60.0)
}

fn tokens(facts: &Facts<'_>) -> Section {
    let useful = useful(facts);
    let made = match useful {
        Some(tokens) => facts.told(
            "useful",
            &format!("~{}", limit(tokens)),
            "tokens a minute in good answers",
            Role::Strong,
        ),
        None => facts.unknown("useful", "tokens of a request are not told"),
    };
    let share = useful.zip(facts.number("tpm_limit").filter(|most| *most > 0.0));
    let of = match share {
        Some((tokens, most)) => {
            facts.told("of the quota", &format!("~{}", percent(tokens / most)), "", Role::Strong)
        }
        None => facts.line("of the quota", "tpm_limit", limit),
    };
    let estimates = facts.words("est_tokens_per_request", count).0;
    let note = format!("a request; estimated {estimates}");
    Section {
        title: "tokens".to_owned(),
        lines: vec![
            made,
            facts.line("quota a minute", "tpm_limit", limit),
            of,
            facts.noted("used", "actual_tokens_per_request", count, (&note, Role::Dim)),
        ],
    }
}

fn money(facts: &Facts<'_>) -> Section {
    let dollars = |value: f64| format!("${value:.2}");
    let retries = facts.words("retries_share", percent).0;
    let serve = facts.words("retry_success_share", percent).0;
    let calls = facts.number("attempts_rps").zip(facts.number("retries_share"));
    let calls = calls.map(|(attempts, share)| rate(attempts * share));
    Section {
        title: "cost".to_owned(),
        lines: vec![
            facts.line("spend a minute", "spend_usd_per_min", dollars),
            facts.line("left to spend", "spend_remaining_usd", dollars),
            facts.told(
                "retries",
                &calls.unwrap_or_else(|| "?".to_owned()),
                &format!("calls, {retries} of all; {serve} of them serve"),
                Role::Strong,
            ),
            facts.line("billed errors", "billed_error_share", percent),
            facts.unknown("retries in money", "tokens are not counted by first try and retry"),
        ],
    }
}

fn latency(facts: &Facts<'_>) -> Section {
    Section {
        title: "latency".to_owned(),
        lines: vec![
            facts.line("admitted, median", "latency_p50_s", seconds),
            facts.line("admitted, p95", "latency_p95_s", seconds),
            facts.line("all offered, p95", "latency_offered_p95_s", seconds),
            facts.line("as callers see it", "caller_latency_p95_s", seconds),
            facts.line("one call, p95", "provider_latency_p95_s", seconds),
        ],
    }
}

fn answers(facts: &Facts<'_>) -> Section {
    Section {
        title: "answers, as the application judges them".to_owned(),
        lines: vec![
            facts.line("valid citations", "citation_valid_share", percent),
            facts.line("coverage", "retrieval_coverage", percent),
            facts.line("grounded", "grounded_share", percent),
            facts.line("errors inside 200", "error_body_share", percent),
        ],
    }
}
