//! Who waits, for how long against the deadline, and what lets them through. Knows lanes and permits,
//! and not why the quota is what it is.

use ratatui::text::{Line, Span};

use super::facts::Facts;
use super::{Content, Room, Section};
use crate::tui::app::Model;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::{latency_chart, queue_chart};
use crate::tui::view::format::{count, percent, rate, seconds};
use crate::tui::view::panels::{deadline, waiting};

/// A lane and its signals.
struct Lane {
    name: &'static str,
    depth: &'static str,
    oldest: &'static str,
}

const LANES: [Lane; 3] = [
    Lane {
        name: "interactive",
        depth: "interactive_queue_depth",
        oldest: "interactive_queue_oldest_age_s",
    },
    Lane { name: "batch", depth: "batch_queue_depth", oldest: "batch_queue_oldest_age_s" },
    Lane { name: "all lanes", depth: "queue_depth", oldest: "queue_oldest_age_s" },
];

/// The page.
pub fn content(model: &Model, look: &Appearance, room: Room) -> Content {
    let facts = Facts::here(model, look, room.section);
    Content {
        sections: vec![lanes(&facts), waits(&facts), permits(&facts), gone(&facts), who(&facts)],
        charts: vec![queue_chart, latency_chart],
        ..Content::default()
    }
}

fn lanes(facts: &Facts<'_>) -> Section {
    let (model, look) = (facts.model, facts.look);
    let until = deadline(model);
    let head = format!(" {:<12}{:>7}{:>9} / {:<9}", "lane", "waiting", "oldest", "deadline");
    let mut lines = vec![Line::styled(head, look.style(Role::Dim))];
    for lane in &LANES {
        let (depth, depth_role) = facts.words(lane.depth, count);
        let (age, role) = waiting(model, lane.depth, lane.oldest, until);
        let late = if role == Role::Crit { "LATE" } else { "" };
        let limit = until.map_or_else(|| "?".to_owned(), |until| format!("{until}s"));
        let mut spans = vec![
            Span::raw(format!(" {:<12}", lane.name)),
            Span::styled(format!("{depth:>7}"), look.style(depth_role)),
            Span::styled(format!("{age:>9}"), look.style(role)),
            Span::styled(format!(" / {limit:<9}"), look.style(Role::Dim)),
            Span::styled(format!("{late:<5}"), look.style(role)),
        ];
        spans.extend(facts.trend(lane.depth, facts.width.saturating_sub(47)));
        lines.push(Line::from(spans));
    }
    Section { title: "lanes".to_owned(), lines }
}

fn waits(facts: &Facts<'_>) -> Section {
    let drains = facts.number("admitted_rps").filter(|rate| *rate > 0.0);
    let wait = match facts.number("queue_depth").zip(drains) {
        Some((depth, _)) if depth < 0.5 => {
            facts.told("next one waits", "0s", "nobody is before it", Role::Strong)
        }
        Some((depth, drains)) => {
            let text = format!("~{}", seconds(depth / drains));
            let note = "what waits, over what is admitted now";
            facts.told("next one waits", &text, note, Role::Strong)
        }
        None => facts.unknown("next one waits", "depth or what is admitted is not known"),
    };
    Section {
        title: "waits".to_owned(),
        lines: vec![
            wait,
            facts.line("waited, median", "queue_wait_p50_s", seconds),
            facts.line("waited, p95", "queue_wait_p95_s", seconds),
            facts.line("gate pauses for", "gate_pause_s", seconds),
            facts.line("drains at", "admitted_rps", rate),
        ],
    }
}

fn permits(facts: &Facts<'_>) -> Section {
    let of = facts.words("inflight_limit", count).0;
    let full = facts.number("inflight_gauge").zip(facts.number("inflight_limit"));
    let is_full = full.is_some_and(|(used, most)| most > 0.0 && used >= most);
    let (note, role) = if is_full {
        (format!("of {of}  FULL"), Role::Crit)
    } else {
        (format!("of {of}"), Role::Dim)
    };
    Section {
        title: "permits".to_owned(),
        lines: vec![
            facts.noted("in use", "inflight_gauge", count, (&note, role)),
            facts.line("open upstream", "inflight_actual", count),
            facts.line("wait for a permit", "sem_wait_s", seconds),
            facts.line("wait in the pool", "pool_wait_s", seconds),
            facts.line("event loop late", "loop_lag_s", seconds),
        ],
    }
}

fn gone(facts: &Facts<'_>) -> Section {
    Section {
        title: "who stopped waiting".to_owned(),
        lines: vec![
            facts.line("expired", "expired_rps", rate),
            facts.line("cancelled", "cancelled_rps", rate),
            facts.line("callers hang up", "client_abort_share", percent),
            facts.line("callers wait for", "client_timeout_s", seconds),
            facts.line("work for nobody", "abandoned_share", percent),
        ],
    }
}

fn who(facts: &Facts<'_>) -> Section {
    let mut lines = facts.lanes();
    lines.push(facts.unknown("waiting by tenant", "the queue is counted by lane only"));
    Section { title: "who".to_owned(), lines }
}
