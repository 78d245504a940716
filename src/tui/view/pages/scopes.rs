//! Every quota scope on a row: its verdict, what is left of each meter, which one binds and when it is
//! empty. Knows no other page; the row's own facts stand below.

use ratatui::text::{Line, Span};

use super::facts::Facts;
use super::{Content, Room, Section, Table, TableRow, cell};
use crate::diagnosis::Verdict;
use crate::tui::app::page::{Listed, Page};
use crate::tui::app::{Model, Shown, State};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::headroom_chart;
use crate::tui::view::format::{limit, percent, seconds, span, tail};
use crate::tui::view::panels::{EMPTY_BELOW, LOW_BELOW};
use crate::tui::view::texts::wrap;
use crate::tui::view::widgets::gauge;

/// A meter and its signals.
struct Meter {
    name: &'static str,
    /// Its signals begin with this.
    stem: &'static str,
    /// What its limit is for.
    per: &'static str,
}

const METERS: [Meter; 6] = [
    Meter { name: "TPM", stem: "tpm", per: "/min" },
    Meter { name: "RPM", stem: "rpm", per: "/min" },
    Meter { name: "in TPM", stem: "itpm", per: "/min" },
    Meter { name: "out TPM", stem: "otpm", per: "/min" },
    Meter { name: "tok/day", stem: "tpd", per: "/day" },
    Meter { name: "req/day", stem: "rpd", per: "/day" },
];

/// Cells from which names are shown whole, and the drift with them.
const WIDE: usize = 130;
/// Seconds over which a meter's fall is taken.
const FALL_S: u16 = 10;
/// A fall slower than this share a second is none.
const FALL_MIN: f64 = 0.000_5;

impl Meter {
    fn signal(&self, part: &str) -> String {
        format!("{}_{part}", self.stem)
    }

    /// The signal of its reset. Of a day's two meters only the emptier one has its reset told.
    fn reset(&self, facts: &Facts<'_>, left: f64) -> &'static str {
        match self.stem {
            "tpm" => "tpm_reset_s",
            "rpm" => "rpm_reset_s",
            "itpm" => "itpm_reset_s",
            "otpm" => "otpm_reset_s",
            _ if facts.number("day_headroom").is_some_and(|least| left <= least) => "day_reset_s",
            _ => "",
        }
    }

    /// What is left of the limit, as it is told or as it follows.
    fn left(&self, facts: &Facts<'_>) -> Option<f64> {
        let told = facts.number(&self.signal("headroom"));
        let follows = || {
            let left = facts.number(&self.signal("remaining"))?;
            let limit = facts.number(&self.signal("limit")).filter(|limit| *limit > 0.0)?;
            Some((left / limit).clamp(0.0, 1.0))
        };
        told.or_else(follows)
    }
}

/// The meter with the least left, of those that are known.
fn binding<'a>(facts: &Facts<'_>) -> Option<(&'a Meter, f64)> {
    let known = METERS.iter().filter_map(|meter| Some((meter, meter.left(facts)?)));
    known.min_by(|left, right| left.1.total_cmp(&right.1))
}

/// What is left of the calls that may be open at once.
fn concurrency(facts: &Facts<'_>) -> Option<f64> {
    let most = facts.number("provider_concurrency_limit").filter(|most| *most > 0.0)?;
    Some((1.0 - facts.number("inflight_actual")? / most).clamp(0.0, 1.0))
}

/// Until a meter is empty, if it goes on falling as it did for the last ten seconds.
fn empty_in(facts: &Facts<'_>, end: u64, meter: &Meter, left: f64) -> Option<(String, Role)> {
    if left < EMPTY_BELOW {
        return Some(("empty".to_owned(), weight(facts, left)));
    }
    let before =
        facts.trends()?.at(&meter.signal("headroom"), end.checked_sub(u64::from(FALL_S))?)?;
    let fall = (before - left) / f64::from(FALL_S);
    if fall < FALL_MIN {
        return Some(("no fall".to_owned(), Role::Dim));
    }
    let role = if left / fall < 60.0 { Role::Warn } else { Role::Plain };
    Some((format!("~{}", span(left / fall)), role))
}

/// How bad it is that so little is left: a gate that works uses the quota up as well, and only
/// refusals make an empty meter an incident.
fn weight(facts: &Facts<'_>, left: f64) -> Role {
    if left < EMPTY_BELOW && facts.number("provider_429_rps").is_none_or(|rate| rate > 0.5) {
        Role::Crit
    } else if left < LOW_BELOW {
        Role::Warn
    } else {
        Role::Plain
    }
}

/// The page.
pub fn content(model: &Model, list: &Listed, look: &Appearance, room: Room) -> Content {
    let wide = room.table >= WIDE;
    let (name, verdict) = if wide { (34, 34) } else { (15, 16) };
    let mut head = format!("  {:<name$} {:<verdict$}", "scope", "verdict");
    head.push_str("    TPM    RPM   day  conc  empty in   reset");
    if wide {
        head.push_str("   own-theirs");
    }
    let rows = model.rows(Page::Scopes, list);
    let rows = rows.into_iter().map(|scope| {
        let line = row(&Facts::of(model, look, room.table, &scope), &scope, (name, verdict), wide);
        TableRow { id: scope, line, heading: None }
    });
    let rows: Vec<TableRow> = rows.collect();
    let none = if list.filter.is_empty() { "no scope has data yet" } else { "none" };
    let table = Some(Table { head, rows, none: none.to_owned() });
    let sections = model.row_under_cursor(Page::Scopes, list).map_or_else(Vec::new, |scope| {
        let facts = Facts::of(model, look, room.section, &scope);
        vec![meters(&facts, &scope), why(&facts, &scope)]
    });
    let is_here = model.row_under_cursor(Page::Scopes, list).as_deref() == model.scope();
    Content {
        table,
        sections,
        charts: if is_here { vec![headroom_chart] } else { Vec::new() },
        ..Content::default()
    }
}

fn verdict_of<'a>(model: &'a Model, scope: &str) -> Option<&'a Verdict> {
    let all = model.shown().map_or(&[][..], |update| &update.verdicts);
    all.iter().find(|verdict| verdict.scope == scope).map(AsRef::as_ref)
}

fn row(
    facts: &Facts<'_>,
    scope: &str,
    (name, verdict_width): (usize, usize),
    wide: bool,
) -> Line<'static> {
    let (model, look) = (facts.model, facts.look);
    let here = if model.scope() == Some(scope) { look.glyphs.pointer } else { " " };
    let (said, role) = match verdict_of(model, scope) {
        Some(verdict) => {
            let role = State::of(verdict).role();
            let standing = if wide { format!(" {}", verdict.standing) } else { String::new() };
            (format!("{} {}{standing}", look.mark(role), verdict.cause), role)
        }
        None => ("? no verdict yet".to_owned(), Role::Unknown),
    };
    let binds = binding(facts);
    let share = |left: Option<f64>, binds: bool| {
        let mark = if binds { look.glyphs.pointer } else { "" };
        let (text, role) = left.map_or_else(
            || ("?".to_owned(), Role::Unknown),
            |left| (format!("{mark}{}", percent(left)), weight(facts, left)),
        );
        (text, role)
    };
    let is_bound = |stem: &str| binds.is_some_and(|(meter, _)| meter.stem == stem);
    let of = |stem: &str| {
        let meter = METERS.iter().find(|meter| meter.stem == stem);
        share(meter.and_then(|meter| meter.left(facts)), is_bound(stem))
    };
    // A day has two meters; the emptier one counts, or what is told of the day as a whole.
    let days = METERS.iter().filter(|meter| meter.per == "/day");
    let least = days.filter_map(|meter| meter.left(facts)).min_by(f64::total_cmp);
    let day_left = facts.number("day_headroom").or(least);
    let day = share(day_left, is_bound("tpd") || is_bound("rpd"));
    let soon =
        binds.and_then(|(meter, left)| empty_in(facts, model.trends_end_of(scope), meter, left));
    let (soon, soon_role) = soon.unwrap_or_else(|| ("?".to_owned(), Role::Unknown));
    let (reset, reset_role) = facts.words("reset_s", span);
    let mut spans = vec![
        Span::raw(format!("{here} ")),
        Span::raw(format!("{} ", tail(scope, name, look.glyphs.ellipsis))),
        Span::styled(cell(&said, verdict_width, look), look.style(role)),
    ];
    for ((text, role), width) in
        [(of("tpm"), 7), (of("rpm"), 7), (day, 6), (share(concurrency(facts), false), 6)]
    {
        spans.push(Span::styled(format!("{text:>width$}"), look.style(role)));
    }
    spans.push(Span::styled(format!("{soon:>10}"), look.style(soon_role)));
    spans.push(Span::styled(format!("{reset:>8}"), look.style(reset_role)));
    if wide {
        let (text, role) =
            binds.map_or_else(|| ("?".to_owned(), Role::Unknown), |(meter, _)| drift(facts, meter));
        spans.push(Span::styled(format!("{text:>14}"), look.style(role)));
    }
    Line::from(spans)
}

/// What our own count has left over what the provider says, in points of the limit.
fn drift(facts: &Facts<'_>, meter: &Meter) -> (String, Role) {
    let own = facts.number(&format!("own_{}_headroom", meter.stem));
    let Some((own, theirs)) = own.zip(meter.left(facts)) else {
        return ("?".to_owned(), Role::Unknown);
    };
    let points = (own - theirs) * 100.0;
    let role = if points.abs() > 10.0 { Role::Warn } else { Role::Plain };
    (format!("{points:+.1} pt"), role)
}

fn meters(facts: &Facts<'_>, scope: &str) -> Section {
    let look = facts.look;
    let binds = binding(facts).map(|(meter, _)| meter.stem);
    let mut lines = vec![Line::styled(
        "           left            limit   reset   own    apart",
        look.style(Role::Dim),
    )];
    // A provider has two or three of these meters: those that nobody tells share a line.
    let mut untold: Vec<&'static str> = Vec::new();
    let mut why = None;
    for meter in &METERS {
        let pointer = if binds == Some(meter.stem) { look.glyphs.pointer } else { " " };
        let label = format!("{pointer}{:<8}", meter.name);
        let Some(left) = meter.left(facts) else {
            match facts.signal(&meter.signal("headroom")) {
                Shown::Stale { age_s } => {
                    let text = format!("{label}     ? last read {} ago", span(age_s));
                    lines.push(Line::styled(text, look.style(Role::Stale)));
                }
                Shown::Unknown { why: reason } => {
                    untold.push(meter.name);
                    why = why.or(Some(reason));
                }
                Shown::Known { .. } => untold.push(meter.name),
            }
            continue;
        };
        lines.push(known_meter(facts, meter, left, label));
    }
    match concurrency(facts) {
        Some(left) => lines.push(Line::from(vec![
            Span::raw(" at once "),
            Span::styled(format!("{:>6}  ", percent(left)), look.style(weight(facts, left))),
            facts.shown("inflight_actual", limit),
            Span::raw(" open of "),
            facts.shown("provider_concurrency_limit", limit),
        ])),
        None => untold.push("at once"),
    }
    if !untold.is_empty() {
        lines.push(facts.say(&format!("? not told: {}", untold.join(", ")), Role::Unknown));
        let why = why.unwrap_or("its limit or what is left of it is not known");
        lines.push(facts.say(&format!("  {why}"), Role::Dim));
    }
    Section { title: format!("meters of {scope}"), lines }
}

fn known_meter(facts: &Facts<'_>, meter: &Meter, left: f64, label: String) -> Line<'static> {
    let look = facts.look;
    let (most, most_role) = facts.words(&meter.signal("limit"), limit);
    let (reset, reset_role) = facts.words(meter.reset(facts, left), span);
    let (own, own_role) = facts.words(&format!("own_{}_headroom", meter.stem), percent);
    let (apart, apart_role) = drift(facts, meter);
    let role = weight(facts, left);
    let mut spans =
        vec![Span::raw(label), Span::styled(format!("{:>6} ", percent(left)), look.style(role))];
    spans.extend(gauge(left, 4, if role == Role::Plain { Role::Ok } else { role }, look));
    spans.extend([
        Span::styled(format!("{:>11}", format!("{most}{}", meter.per)), look.style(most_role)),
        Span::styled(format!("{reset:>8}"), look.style(reset_role)),
        Span::styled(format!("{own:>6}"), look.style(own_role)),
        Span::styled(format!("{apart:>9}"), look.style(apart_role)),
    ]);
    Line::from(spans)
}

fn why(facts: &Facts<'_>, scope: &str) -> Section {
    let (model, look) = (facts.model, facts.look);
    let mut lines = Vec::new();
    if let Some(verdict) = verdict_of(model, scope) {
        let role = State::of(verdict).role();
        let head = format!(" {} {} {}", look.mark(role), verdict.cause, verdict.standing);
        lines.push(Line::styled(head, look.style(role)));
        let said = wrap(&verdict.say, facts.width);
        lines.extend(said.into_iter().map(Line::from));
    } else {
        lines.push(facts.say("? no verdict yet", Role::Unknown));
    }
    lines.push(facts.line("hint on refusals", "retry_after_s", seconds));
    lines.push(facts.line("used, own count", "own_used_ratio", percent));
    lines.push(facts.line("used, all copies", "own_view_sum_ratio", percent));
    lines.push(facts.line("gate's own rate", "gate_rate_factor", percent));
    Section { title: "why".to_owned(), lines }
}
