//! Trends over time: the small ones beside a number, and the charts of larger screens.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::signal::Column;
use crate::tui::app::Model;
use crate::tui::app::history::{History, slot};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{clock, count, percent, seconds, short};
use crate::tui::view::panels::{amplification_role, completed_signal};
use crate::tui::view::widgets::{AXIS, Chart, Series, nice_top, panel, spark};

/// How far back a small trend reaches.
const SPARK_SPAN_S: u64 = 300;

impl Model {
    /// How far back a small trend reaches, in seconds, and the second that it ends at.
    pub(in crate::tui::view) fn span(&self) -> (u64, u64) {
        (self.zoom_s.unwrap_or(SPARK_SPAN_S), self.trends_end())
    }
}

/// A small trend of one signal.
pub fn trend(
    model: &Model,
    signal: &str,
    width: usize,
    top: Option<f64>,
    role: Role,
    look: &Appearance,
) -> Line<'static> {
    trend_of(model.trends(), signal, width, model.span(), top, role, look)
}

/// A small trend of one signal of any scope, over this span.
pub fn trend_of(
    trends: Option<&History>,
    signal: &str,
    width: usize,
    (span_s, end): (u64, u64),
    top: Option<f64>,
    role: Role,
    look: &Appearance,
) -> Line<'static> {
    let Some(trends) = trends else { return Line::default() };
    let step = trends.step(width, span_s);
    let columns = trends.columns(signal, width, step, end);
    let most: Vec<Option<f64>> = columns.iter().map(|column| Some(column.as_ref()?.max)).collect();
    spark(&most, top, role, look)
}

/// One line of a chart.
struct Plotted {
    name: &'static str,
    signal: &'static str,
    role: Role,
    shaded: bool,
}

fn chart(
    title: &'static str,
    plotted: &[Plotted],
    top: Option<f64>,
    label: fn(f64) -> String,
    model: &Model,
    look: &Appearance,
    (area, buf): (Rect, &mut Buffer),
) {
    let mut heading = vec![Span::styled(format!(" {title} "), look.style(Role::Strong))];
    for one in plotted {
        let role = if one.shaded { Role::Dim } else { one.role };
        let glyph = if one.shaded { look.glyphs.shade } else { look.glyphs.filled };
        heading.push(Span::styled(format!("{glyph} {} ", one.name), look.style(role)));
        // The cursor stands where the chart ends: now, or the moment that is looked at.
        let value = model.trends().and_then(|trends| trends.at(one.signal, model.trends_end()));
        let value = value.map_or_else(|| "?".to_owned(), label);
        heading.push(Span::styled(format!("{value} "), look.style(Role::Strong)));
    }
    let inner = panel(Line::from(heading), area, look, buf);
    let Some(trends) = model.trends() else { return };
    let width = usize::from(inner.width.saturating_sub(AXIS));
    let step = trends.step(width, model.zoom_s.unwrap_or(u64::MAX));
    let end = model.trends_end();
    let columns: Vec<Vec<Option<Column>>> =
        plotted.iter().map(|one| trends.columns(one.signal, width, step, end)).collect();
    let largest = columns.iter().flatten().flatten().map(|column| column.max).fold(0.0, f64::max);
    let series: Vec<Series<'_>> = plotted
        .iter()
        .zip(&columns)
        .map(|(one, columns)| Series { columns, role: one.role, shaded: one.shaded })
        .collect();
    let column = |second: u64| {
        let back = (end / step).checked_sub(second / step)?;
        width.checked_sub(1)?.checked_sub(usize::try_from(back).ok()?)
    };
    let marks: Vec<usize> =
        model.flips.iter().filter_map(|flip| column(slot(flip.since))).collect();
    let events: Vec<usize> = event_seconds(model).filter_map(column).collect();
    let top = top.unwrap_or_else(|| nice_top(largest));
    let at = model.frozen.as_ref().map(|frozen| clock(frozen.wall, model.zone));
    let at = at.unwrap_or_else(|| "now".to_owned());
    Chart { series: &series, top, label, step, at: &at, marks: &marks, events: &events }
        .draw(inner, look, buf);
}

/// The seconds of what is on the timeline.
fn event_seconds(model: &Model) -> impl Iterator<Item = u64> {
    let latest =
        model.latest.as_ref().map(|update| (slot(update.observation.at), update.observation.wall));
    model.timeline.newest_first().filter_map(move |event| {
        let (newest, now) = latest?;
        let ago = u64::try_from((now - event.wall).num_seconds()).ok()?;
        newest.checked_sub(ago)
    })
}

/// Offered against completed: the gap is what the storm burns.
pub fn flow_chart(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let plotted = [
        Plotted { name: "offered", signal: "offered_rps", role: Role::Warn, shaded: true },
        Plotted {
            name: "completed",
            signal: completed_signal(model),
            role: Role::Ok,
            shaded: false,
        },
    ];
    chart("per second", &plotted, None, short, model, look, (area, buf));
}

/// Attempts per original.
pub fn amplification_chart(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let role = amplification_role(model);
    let plotted = [Plotted { name: "now", signal: "amplification", role, shaded: false }];
    chart(
        "attempts per original",
        &plotted,
        None,
        |value| format!("{value:.1}x"),
        model,
        look,
        (area, buf),
    );
}

/// The token meter over time.
pub fn headroom_chart(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let plotted = [
        Plotted { name: "RPM", signal: "rpm_headroom", role: Role::Accent, shaded: true },
        Plotted { name: "TPM", signal: "tpm_headroom", role: Role::Ok, shaded: false },
    ];
    chart("headroom", &plotted, Some(1.0), percent, model, look, (area, buf));
}

/// p95 of what was offered behind p95 of what was admitted.
pub fn latency_chart(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let plotted = [
        Plotted {
            name: "offered",
            signal: "latency_offered_p95_s",
            role: Role::Warn,
            shaded: true,
        },
        Plotted { name: "admitted", signal: "latency_p95_s", role: Role::Accent, shaded: false },
    ];
    chart("latency p95", &plotted, None, seconds, model, look, (area, buf));
}

/// What is counted has no digits behind the point; half of an odd top has one.
fn whole(value: f64) -> String {
    if value.fract() == 0.0 { count(value) } else { short(value) }
}

/// Requests waiting.
pub fn queue_chart(model: &Model, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let plotted =
        [Plotted { name: "waiting", signal: "queue_depth", role: Role::Accent, shaded: false }];
    chart("queue depth", &plotted, None, whole, model, look, (area, buf));
}
