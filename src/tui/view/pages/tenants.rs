//! Who asks: tenants by tokens and requests, how much of it is refused and how much fails. Accuses
//! nobody: what it means is for the verdict to say.

use ratatui::text::{Line, Span};

use super::facts::Facts;
use super::{Content, Room, Section, Table, TableRow, cell};
use crate::tui::app::page::{Listed, Page, Tenant};
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{percent, rate, seconds, span};
use crate::tui::view::widgets::gauge;

/// Cells of a name.
const NAME: usize = 24;
/// Cells of the bar.
const BAR: usize = 8;
/// A share of refusals from which it is said aloud.
const MUCH: f64 = 0.5;

/// The page.
pub fn content(model: &Model, list: &Listed, look: &Appearance, room: Room) -> Content {
    let name = if room.table < 76 { NAME / 2 } else { NAME };
    let head = format!(
        "  {:<name$}{:>7} {:<BAR$}{:>10}{:>9}{:>9}{:>8}",
        "tenant", "tokens", "", "requests", "refused", "failures", "p95"
    );
    let shown = model.rows(Page::Tenants, list);
    let rows: Vec<TableRow> = model
        .tenants()
        .into_iter()
        .filter(|tenant| shown.contains(&tenant.id))
        .map(|tenant| TableRow { line: row(&tenant, name, look), id: tenant.id, heading: None })
        .collect();
    let none = match model.signal("tenants") {
        _ if !list.filter.is_empty() => "none".to_owned(),
        Shown::Known { .. } => "nobody asked in the window".to_owned(),
        Shown::Stale { age_s } => format!("? last told {} ago", span(age_s)),
        Shown::Unknown { why } => format!("? {why}"),
    };
    let facts = Facts::here(model, look, room.section);
    Content {
        table: Some(Table { head, rows, none }),
        sections: vec![callers(&facts), extras(&facts)],
        ..Content::default()
    }
}

fn row(tenant: &Tenant, name: usize, look: &Appearance) -> Line<'static> {
    let share = |value: Option<f64>, width: usize, is_bad: bool| {
        let (text, role) = match value {
            None => ("?".to_owned(), Role::Unknown),
            Some(share) if is_bad && share > MUCH => (percent(share), Role::Crit),
            Some(share) if is_bad && share > 0.0 => (percent(share), Role::Warn),
            Some(share) => (percent(share), Role::Plain),
        };
        Span::styled(format!("{text:>width$}"), look.style(role))
    };
    let mut spans = vec![
        Span::raw(format!("  {}", cell(&tenant.id, name, look))),
        share(tenant.tokens, 7, false),
        Span::raw(" "),
    ];
    spans.extend(gauge(tenant.tokens.unwrap_or(0.0), BAR, Role::Accent, look));
    spans.extend([
        share(tenant.requests, 10, false),
        share(tenant.refused, 9, true),
        share(tenant.failed, 9, false),
    ]);
    let (p95, role) = tenant
        .latency_p95_s
        .map_or_else(|| ("?".to_owned(), Role::Unknown), |p95| (seconds(p95), Role::Plain));
    spans.push(Span::styled(format!("{p95:>8}"), look.style(role)));
    Line::from(spans)
}

fn callers(facts: &Facts<'_>) -> Section {
    let mut lines = vec![
        facts.line("largest caller", "top_caller_share", percent),
        facts.line("new callers", "new_source_share", percent),
        facts.line("of largest feature", "top_feature_share", percent),
        facts.line("new models", "new_model_share", percent),
    ];
    lines.extend(facts.lanes());
    Section { title: "callers and lanes".to_owned(), lines }
}

fn extras(facts: &Facts<'_>) -> Section {
    Section {
        title: "beside the work itself".to_owned(),
        lines: vec![
            facts.line("our own probes", "probe_rps", rate),
            facts.line("  of the tokens", "probe_tokens_share", percent),
            facts.line("extras", "aux_rps", rate),
            facts.line("  of the tokens", "aux_share", percent),
            facts.line("same few requests", "same_fingerprint_share", percent),
            facts.line("jobs seen twice", "duplicate_job_id_share", percent),
        ],
    }
}
