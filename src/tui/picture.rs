//! A screen without a terminal: the cells of a buffer as text, as text with colours, or as an image.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use crate::tui::theme::{Rgb, indexed};

/// Text and background where no theme says otherwise.
pub const DARK: (Rgb, Rgb) = (Rgb(0xd4, 0xd4, 0xd4), Rgb(0x1e, 0x1e, 0x1e));
/// Width and height of a cell, in units of the image.
const CELL: (f64, f64) = (8.4, 17.0);
/// From the top of a row to the line that letters stand on.
const BASELINE: f64 = 13.0;
/// Blank space around.
const MARGIN: f64 = 10.0;

/// Every row as text, blanks at its end left out.
#[must_use]
pub fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in rows(buffer) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Every row with the codes that colour it in a terminal.
#[must_use]
pub fn ansi(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in rows(buffer) {
        for run in runs(row) {
            let codes = codes(run[0]);
            let words: String = run.iter().map(|cell| cell.symbol()).collect();
            if codes.is_empty() {
                text.push_str(&words);
            } else {
                let _ = write!(text, "\x1b[{codes}m{words}\x1b[0m");
            }
        }
        text.push('\n');
    }
    text
}

/// The image as SVG, with these colours for text and background that have none of their own.
///
/// Every run of cells has its own place and width, so that the columns hold whatever font is there.
#[must_use]
pub fn svg(buffer: &Buffer, (text, background): (Rgb, Rgb)) -> String {
    let area = buffer.area;
    let (width, height) = (
        f64::from(area.width) * CELL.0 + 2.0 * MARGIN,
        f64::from(area.height) * CELL.1 + 2.0 * MARGIN,
    );
    let mut image = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{}\"/>\n",
        hex(background)
    );
    for (place, row) in (0_u16..).zip(rows(buffer)) {
        let top = MARGIN + f64::from(place) * CELL.1;
        let mut column = 0_u16;
        for run in runs(row) {
            let cells = u16::try_from(run.len()).unwrap_or(u16::MAX);
            let left = MARGIN + f64::from(column) * CELL.0;
            column += cells;
            let paint = Paint::of(run[0], (text, background));
            draw(&mut image, &run, &paint, (left, top, f64::from(cells) * CELL.0));
        }
    }
    image.push_str("</svg>\n");
    image
}

/// The colours of a run.
struct Paint {
    front: String,
    back: Option<String>,
    marks: Modifier,
}

impl Paint {
    fn of(cell: &Cell, (text, background): (Rgb, Rgb)) -> Self {
        let (front, back) = (rgb(cell.fg), rgb(cell.bg));
        let marks = cell.modifier;
        if marks.contains(Modifier::REVERSED) {
            let (front, back) = (back.unwrap_or(background), front.unwrap_or(text));
            return Self { front: hex(front), back: Some(hex(back)), marks };
        }
        Self { front: hex(front.unwrap_or(text)), back: back.map(hex), marks }
    }
}

fn draw(image: &mut String, run: &[&Cell], paint: &Paint, (left, top, width): (f64, f64, f64)) {
    let height = CELL.1;
    if let Some(back) = &paint.back {
        let _ = writeln!(
            image,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{back}\"/>"
        );
    }
    let words: String = run.iter().map(|cell| cell.symbol()).collect();
    let front = &paint.front;
    // Bars are drawn: a font leaves gaps between them.
    let bars = run.iter().map(|cell| bar(cell.symbol()));
    if let Some(bars) = bars.collect::<Option<Vec<_>>>() {
        for (cell, (share, opacity)) in
            run.iter().zip(bars).enumerate().map(|(cell, (_, bar))| (cell, bar))
        {
            let offset = u32::try_from(cell).map_or(0.0, f64::from) * CELL.0;
            let (left, tall) = (left + offset, height * share);
            let top = top + height - tall;
            let wide = CELL.0;
            let _ = writeln!(
                image,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide}\" height=\"{tall:.1}\" fill=\"{front}\" \
                 fill-opacity=\"{opacity}\"/>"
            );
        }
        return;
    }
    if words.trim().is_empty() {
        return;
    }
    let marks = [
        (Modifier::BOLD, " font-weight=\"bold\""),
        (Modifier::ITALIC, " font-style=\"italic\""),
        (Modifier::UNDERLINED, " text-decoration=\"underline\""),
        (Modifier::DIM, " fill-opacity=\"0.7\""),
    ];
    let marks: String = marks
        .iter()
        .filter(|(mark, _)| paint.marks.contains(*mark))
        .map(|(_, said)| *said)
        .collect();
    let y = top + BASELINE;
    let _ = writeln!(
        image,
        "<text x=\"{left:.1}\" y=\"{y:.1}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
         fill=\"{front}\" xml:space=\"preserve\"{marks}>{}</text>",
        escaped(&words)
    );
}

/// How tall and how dense a bar is, if it is one.
fn bar(symbol: &str) -> Option<(f64, f64)> {
    let letter = symbol.chars().next()?;
    Some(match letter {
        '▁'..='█' => (f64::from(u32::from(letter) - u32::from('▁') + 1) / 8.0, 1.0),
        '░' => (1.0, 0.25),
        '▒' => (1.0, 0.5),
        _ => return None,
    })
}

fn rows(buffer: &Buffer) -> impl Iterator<Item = Vec<&Cell>> {
    let width = usize::from(buffer.area.width).max(1);
    buffer.content.chunks(width).map(|row| row.iter().collect())
}

/// Neighbours that look alike. Bars and letters are drawn in different ways, and stand apart.
fn runs(row: Vec<&Cell>) -> Vec<Vec<&Cell>> {
    let alike = |one: &Cell, other: &Cell| {
        (one.fg, one.bg, one.modifier) == (other.fg, other.bg, other.modifier)
            && bar(one.symbol()).is_some() == bar(other.symbol()).is_some()
    };
    let mut runs: Vec<Vec<_>> = Vec::new();
    for cell in row {
        match runs.last_mut() {
            Some(run) if alike(run[0], cell) => run.push(cell),
            _ => runs.push(vec![cell]),
        }
    }
    runs
}

fn codes(cell: &Cell) -> String {
    let marks = [
        (Modifier::BOLD, "1"),
        (Modifier::DIM, "2"),
        (Modifier::ITALIC, "3"),
        (Modifier::UNDERLINED, "4"),
        (Modifier::REVERSED, "7"),
    ];
    let set = marks.iter().filter(|(mark, _)| cell.modifier.contains(*mark));
    let mut codes: Vec<String> = set.map(|(_, code)| (*code).to_owned()).collect();
    for (colour, place) in [(cell.fg, 38), (cell.bg, 48)] {
        if let Some(Rgb(red, green, blue)) = rgb(colour) {
            codes.push(format!("{place};2;{red};{green};{blue}"));
        }
    }
    codes.join(";")
}

/// A colour that is the same everywhere; the terminal's own sixteen are not.
fn rgb(colour: Color) -> Option<Rgb> {
    match colour {
        Color::Rgb(red, green, blue) => Some(Rgb(red, green, blue)),
        Color::Indexed(index @ 16..) => Some(indexed(index)),
        _ => None,
    }
}

fn hex(Rgb(red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    const COLOURS: (Rgb, Rgb) = (Rgb(0xee, 0xee, 0xee), Rgb(0x11, 0x11, 0x11));

    fn buffer() -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 2));
        let red = Style::new().fg(Color::Rgb(255, 0, 0)).add_modifier(Modifier::BOLD);
        buffer.set_string(0, 0, "a<b", red);
        buffer.set_string(4, 0, "▄█", Style::new());
        buffer.set_string(0, 1, "x", Style::new().add_modifier(Modifier::REVERSED));
        buffer
    }

    #[test]
    fn text_is_what_stands_there() {
        assert_eq!(text(&buffer()), "a<b ▄█\nx\n");
    }

    #[test]
    fn colours_end_with_the_run_that_has_them() {
        let said = ansi(&buffer());
        assert!(said.starts_with("\u{1b}[1;38;2;255;0;0ma<b\u{1b}[0m ▄█"), "{said:?}");
        assert!(said.contains("\u{1b}[7mx\u{1b}[0m"), "{said:?}");
    }

    #[test]
    fn an_image_has_a_place_for_each_run_and_no_open_mark() {
        let image = svg(&buffer(), COLOURS);
        assert!(image.contains(">a&lt;b</text>") && !image.contains("a<b"), "{image}");
        assert!(
            image.contains("textLength=\"25.2\"") && image.contains("fill=\"#ff0000\""),
            "{image}"
        );
        // The half bar, the whole one, the reversed cell, and the background.
        assert_eq!(image.matches("<rect ").count(), 4, "{image}");
        assert!(image.contains("height=\"8.5\"") && image.contains("fill=\"#eeeeee\""), "{image}");
        assert_eq!(image.matches("<text ").count(), image.matches("</text>").count());
    }
}
