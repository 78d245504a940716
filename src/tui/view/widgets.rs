//! Small stateless pieces: panels, trends, gauges, charts, big digits. All clip; none panics on any size.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

use crate::signal::Column;
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::whole_span;

/// Draws a frame with a title and returns what is inside.
pub fn panel(title: Line<'_>, area: Rect, look: &Appearance, buf: &mut Buffer) -> Rect {
    let area = area.intersection(buf.area);
    let title = clipped(title, usize::from(area.width).saturating_sub(2), look);
    let block = Block::bordered()
        .border_set(look.glyphs.border)
        .border_style(look.style(Role::Dim))
        .title_style(Style::new().remove_modifier(Modifier::DIM))
        .title(title);
    let inner = block.inner(area);
    block.render(area, buf);
    inner
}

/// A panel that covers what lies under it.
pub fn overlay(title: Line<'_>, area: Rect, look: &Appearance, buf: &mut Buffer) -> Rect {
    let area = area.intersection(buf.area);
    Clear.render(area, buf);
    let title = clipped(title, usize::from(area.width).saturating_sub(2), look);
    let block = Block::bordered()
        .border_set(look.glyphs.border)
        .border_style(look.style(Role::Accent))
        .title(title);
    let inner = block.inner(area);
    block.render(area, buf);
    inner
}

/// Draws lines from the top of an area, as many as fit.
pub fn lines<'a>(content: impl IntoIterator<Item = Line<'a>>, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    for (line, row) in content.into_iter().zip(area.rows()) {
        line.render(row, buf);
    }
}

/// A line that is too long for its cells: its whole words, and a sign that it goes on. Half a number
/// would be taken for another one.
#[must_use]
pub fn clipped<'a>(line: Line<'a>, width: usize, look: &Appearance) -> Line<'a> {
    let blank_end = |line: &Line<'_>| {
        let end = line.spans.iter().rev().flat_map(|span| span.content.chars().rev());
        end.take_while(|letter| *letter == ' ').count()
    };
    if line.width() - blank_end(&line) <= width {
        return line;
    }
    let text: Vec<char> = line.spans.iter().flat_map(|span| span.content.chars()).collect();
    let most = width.saturating_sub(look.glyphs.ellipsis.chars().count());
    let kept = &text[..most.min(text.len())];
    let is_whole = text.get(kept.len()).is_none_or(|next| *next == ' ');
    let last_space = kept.iter().rposition(|letter| *letter == ' ').unwrap_or(0);
    // A word that is most of the line is cut all the same: without it nothing would be left.
    let end = if is_whole || last_space * 2 < width { kept.len() } else { last_space };
    let blank = kept[..end].iter().rev().take_while(|letter| **letter == ' ').count();
    let mut left = end - blank;
    let mut spans = Vec::new();
    for span in line.spans {
        let shown: String = span.content.chars().take(left).collect();
        left -= shown.chars().count();
        spans.push(Span::styled(shown, span.style));
        if left == 0 {
            break;
        }
    }
    if width > 0 {
        spans.push(Span::raw(look.glyphs.ellipsis));
    }
    Line { spans, ..line }
}

/// Rows of a line that is too long for one: it goes on below, a little further in.
#[must_use]
pub fn folded(line: Line<'static>, width: usize) -> Vec<Line<'static>> {
    if line.width() <= width || width == 0 {
        return vec![line];
    }
    let letters: Vec<(char, Style)> = line
        .spans
        .iter()
        .flat_map(|span| span.content.chars().map(|letter| (letter, span.style)))
        .collect();
    let indent = letters.iter().take_while(|(letter, _)| *letter == ' ').count() + 2;
    let indent = if indent * 2 > width { 0 } else { indent };
    let mut rows = Vec::new();
    let mut rest = letters.as_slice();
    while !rest.is_empty() {
        let pad = if rows.is_empty() { 0 } else { indent };
        let room = width - pad;
        let is_space = |at: usize| rest.get(at).is_none_or(|(letter, _)| *letter == ' ');
        let begun = rest.iter().position(|(letter, _)| *letter != ' ').unwrap_or(0);
        let end = (begun + 1..=room.min(rest.len())).rev().find(|at| is_space(*at));
        let end = end.unwrap_or(room.min(rest.len()));
        let mut spans = vec![Span::raw(" ".repeat(pad))];
        spans.extend(
            rest[..end].iter().map(|(letter, style)| Span::styled(letter.to_string(), *style)),
        );
        rows.push(Line { spans, ..line.clone() });
        let blank = rest[end..].iter().take_while(|(letter, _)| *letter == ' ').count();
        rest = &rest[end + blank..];
    }
    rows
}

/// `j 3 more rows`, where so many lie below.
#[must_use]
pub fn more_rows(below: usize) -> String {
    match below {
        0 => String::new(),
        1 => "j 1 more row ".to_owned(),
        _ => format!("j {below} more rows "),
    }
}

/// Draws a line at the right end of a row.
pub fn right(line: Line<'_>, row: Rect, buf: &mut Buffer) {
    line.right_aligned().render(row.intersection(buf.area), buf);
}

/// A trend on one row, scaled from zero to its own largest value, or to `top`.
#[must_use]
pub fn spark(
    columns: &[Option<f64>],
    top: Option<f64>,
    role: Role,
    look: &Appearance,
) -> Line<'static> {
    let top = top.unwrap_or_else(|| largest(columns));
    let begun = columns.iter().position(Option::is_some).unwrap_or(columns.len());
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (index, value) in columns.iter().enumerate() {
        let (glyph, style) = match value {
            Some(value) => (look.glyphs.levels[level(*value, top, 8) as usize], look.style(role)),
            None if index < begun => (" ", Style::new()),
            None => (look.glyphs.gap, look.style(Role::Dim)),
        };
        match spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(glyph),
            _ => spans.push(Span::styled(glyph.to_owned(), style)),
        }
    }
    Line::from(spans)
}

fn largest(columns: &[Option<f64>]) -> f64 {
    columns.iter().flatten().copied().fold(0.0, f64::max)
}

/// The step, from 0 to `steps` - 1, at which a value stands under `top`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..steps")]
fn level(value: f64, top: f64, steps: u16) -> u16 {
    if top <= 0.0 || value.is_nan() {
        return 0;
    }
    let step = (value / top * f64::from(steps)).ceil() - 1.0;
    step.clamp(0.0, f64::from(steps - 1)) as u16
}

/// A gauge of a share.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=width")]
pub fn gauge(share: f64, width: usize, role: Role, look: &Appearance) -> Vec<Span<'static>> {
    let cells = f64::from(u16::try_from(width).unwrap_or(u16::MAX));
    let filled = (share.clamp(0.0, 1.0) * cells).round() as usize;
    vec![
        Span::styled(look.glyphs.filled.repeat(filled.min(width)), look.style(role)),
        Span::styled(look.glyphs.empty.repeat(width - filled.min(width)), look.style(Role::Dim)),
    ]
}

/// One series of a chart.
pub struct Series<'a> {
    /// The least and the most of each column, newest last.
    pub columns: &'a [Option<Column>],
    /// Its colour.
    pub role: Role,
    /// Drawn as a light shade behind the others.
    pub shaded: bool,
}

/// A column chart with an axis: values upward from zero, time to the right, gaps left open.
pub struct Chart<'a> {
    /// Drawn in this order, later ones over earlier ones.
    pub series: &'a [Series<'a>],
    /// The value at the top.
    pub top: f64,
    /// A value as it stands at the axis.
    pub label: fn(f64) -> String,
    /// Seconds per column.
    pub step: u64,
    /// What stands under the newest column.
    pub at: &'a str,
    /// Columns with the mark of a flip under them.
    pub marks: &'a [usize],
    /// Columns with the mark of any other event under them.
    pub events: &'a [usize],
}

/// Rows from which a chart tells the least of a column from the most.
const BAND_ROWS_MIN: u16 = 4;

/// Cells for the labels of a chart's axis.
pub const AXIS: u16 = 8;

impl Chart<'_> {
    /// Draws the chart.
    pub fn draw(&self, area: Rect, look: &Appearance, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        if area.width <= AXIS + 1 || area.height < 3 {
            return;
        }
        let plot =
            Rect { x: area.x + AXIS, width: area.width - AXIS, height: area.height - 1, ..area };
        if self.series.iter().all(|series| series.columns.iter().all(Option::is_none)) {
            lines([Line::styled(" no data yet", look.style(Role::Unknown))], area, buf);
            return;
        }
        self.axis(area, plot, look, buf);
        for series in self.series {
            self.columns(series, plot, look, buf);
        }
        let flips = self.marks.iter().map(|mark| (mark, look.glyphs.flip, Role::Accent));
        let events = self.events.iter().map(|mark| (mark, look.glyphs.event, Role::Dim));
        for (mark, glyph, role) in flips.chain(events) {
            let x = plot.x.saturating_add(u16::try_from(*mark).unwrap_or(u16::MAX));
            // The times stay readable.
            let is_free = |cell: &Cell| cell.symbol() == " ";
            if x < plot.right() && buf.cell((x, plot.bottom())).is_some_and(is_free) {
                buf.set_string(x, plot.bottom(), glyph, look.style(role));
            }
        }
    }

    fn axis(&self, area: Rect, plot: Rect, look: &Appearance, buf: &mut Buffer) {
        let dim = look.style(Role::Dim);
        let width = usize::from(AXIS - 1);
        for (value, row) in [(self.top, plot.y), (self.top / 2.0, plot.y + plot.height / 2)] {
            let text = format!("{:>width$}", (self.label)(value));
            buf.set_stringn(area.x, row, text, width, dim);
        }
        if plot.height >= 2 {
            buf.set_stringn(area.x, plot.bottom() - 1, format!("{:>width$}", "0"), width, dim);
        }
        let back = |columns: u16| format!("-{}", whole_span(u64::from(columns) * self.step));
        let left = back(plot.width);
        buf.set_stringn(plot.x, plot.bottom(), &left, usize::from(plot.width), dim);
        if plot.width >= 40 {
            let middle = back(plot.width / 2);
            buf.set_stringn(plot.x + plot.width / 2, plot.bottom(), middle, 12, dim);
        }
        right(
            Line::styled(self.at.to_owned(), dim),
            Rect { y: plot.bottom(), height: 1, ..plot },
            buf,
        );
    }

    fn columns(&self, series: &Series<'_>, plot: Rect, look: &Appearance, buf: &mut Buffer) {
        let style = if series.shaded { look.style(Role::Dim) } else { look.style(series.role) };
        let eighths = plot.height.saturating_mul(8);
        let has_room = plot.height >= BAND_ROWS_MIN && !series.shaded;
        for (column, x) in series.columns.iter().rev().zip((plot.x..plot.right()).rev()) {
            let Some(column) = column else { continue };
            let height = level(column.max, self.top, eighths) + 1;
            let least = level(column.min, self.top, eighths) + 1;
            for row in 0..plot.height {
                let here = height.saturating_sub(row * 8).min(8);
                if here == 0 {
                    break;
                }
                // Above what was always reached stands what was reached at times.
                let at_times = has_room && least <= row * 8;
                let glyph = match here {
                    8 if series.shaded => look.glyphs.shade,
                    8 if at_times => look.glyphs.band,
                    here => look.glyphs.levels[usize::from(here - 1)],
                };
                buf.set_string(x, plot.bottom() - 1 - row, glyph, style);
            }
        }
    }
}

/// The axis' top for a largest value: the next of 1, 2, 5 times a power of ten.
#[must_use]
pub fn nice_top(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

/// Rows of a big digit.
pub const BIG_ROWS: u16 = 5;

#[rustfmt::skip]
const DIGITS: [(char, [&str; BIG_ROWS as usize]); 13] = [
    ('0', ["###", "# #", "# #", "# #", "###"]),
    ('1', [" # ", "## ", " # ", " # ", "###"]),
    ('2', ["###", "  #", "###", "#  ", "###"]),
    ('3', ["###", "  #", "###", "  #", "###"]),
    ('4', ["# #", "# #", "###", "  #", "  #"]),
    ('5', ["###", "#  ", "###", "  #", "###"]),
    ('6', ["###", "#  ", "###", "# #", "###"]),
    ('7', ["###", "  #", "  #", " # ", " # "]),
    ('8', ["###", "# #", "###", "# #", "###"]),
    ('9', ["###", "# #", "###", "  #", "###"]),
    ('.', [" ", " ", " ", " ", "#"]),
    ('x', ["   ", "# #", " # ", "# #", "   "]),
    ('?', ["###", "  #", " ##", "   ", " # "]),
];

/// A short number in digits of five rows.
#[must_use]
pub fn big(text: &str, role: Role, look: &Appearance) -> Vec<Line<'static>> {
    (0..usize::from(BIG_ROWS))
        .map(|row| {
            let mut line = String::from(" ");
            for letter in text.chars() {
                let Some((_, shape)) = DIGITS.iter().find(|(known, _)| *known == letter) else {
                    continue;
                };
                for pixel in shape[row].chars() {
                    // A cell is about twice as high as wide.
                    line.push_str(&(if pixel == '#' { look.glyphs.pixel } else { " " }).repeat(2));
                }
                line.push_str("  ");
            }
            Line::styled(line, look.style(role))
        })
        .collect()
}

/// A rectangle of at most this size in the middle of another.
#[must_use]
pub fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let width = width.min(area.width);
    let height = height.min(area.height);
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::{ASCII, Depth, UNICODE};

    const LOOK: Appearance = Appearance { depth: Depth::Mono, glyphs: &UNICODE };

    fn text(line: &Line<'_>) -> String {
        line.spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn a_trend_tells_zero_from_a_gap_and_from_before() {
        let columns = [None, Some(0.0), Some(5.0), None, Some(10.0)];
        assert_eq!(text(&spark(&columns, None, Role::Ok, &LOOK)), " ▁▄·█");
        let ascii = Appearance { glyphs: &ASCII, ..LOOK };
        assert_eq!(text(&spark(&columns, None, Role::Ok, &ascii)), " _- #");
    }

    #[test]
    fn gauges_fill() {
        let cells = |share| {
            gauge(share, 4, Role::Ok, &LOOK)
                .iter()
                .map(|span| span.content.to_string())
                .collect::<String>()
        };
        assert_eq!(cells(0.0), "░░░░");
        assert_eq!(cells(0.5), "██░░");
        assert_eq!(cells(7.0), "████");
    }

    #[test]
    fn a_line_is_clipped_between_words_and_never_in_a_number() {
        let clip = |words: &str, width| text(&clipped(Line::from(words.to_owned()), width, &LOOK));
        assert_eq!(clip("shop  60%   54%", 15), "shop  60%   54%");
        assert_eq!(clip("shop  60%   54%", 13), "shop  60%…");
        assert_eq!(clip("why: j k scroll, Esc closes", 20), "why: j k scroll,…");
        assert_eq!(clip("a-word-that-is-all", 8), "a-word-…");
        assert_eq!(clip("nothing lost    ", 12), "nothing lost    ");
        for width in 0..20 {
            let line = clipped(Line::from("a bc  def"), width, &LOOK);
            assert!(line.width() <= width, "{width}");
        }
    }

    #[test]
    fn a_line_is_folded_between_words_and_loses_none() {
        let rows = folded(Line::from(" d  walk from the symptom to the cause"), 20);
        let rows: Vec<String> = rows.iter().map(text).collect();
        assert_eq!(rows, [" d  walk from the", "   symptom to the", "   cause"]);
        assert_eq!(folded(Line::from("short"), 20).len(), 1);
        assert_eq!(text(&folded(Line::from("    one-long-word"), 14)[0]), "    one-long-w");
        assert_eq!(folded(Line::from("one-long-word"), 5).len(), 4);
    }

    #[test]
    fn axis_tops_are_round() {
        for (value, top) in [(0.0, 1.0), (0.7, 1.0), (9.3, 10.0), (1_680.0, 2_000.0), (2.1, 5.0)] {
            assert!((nice_top(value) - top).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn big_digits_have_the_same_width_on_every_row() {
        for (letter, shape) in DIGITS {
            assert!(shape.iter().all(|row| row.len() == shape[0].len()), "{letter}");
        }
    }
}
