//! Where a signal comes from, over the screen: its sources in the order in which they are believed, the
//! expressions of their adapters, and the series behind them as they were scraped last.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::diagnosis::derivation;
use crate::ingest::{Account, HowRead, Origin, RawSeries};
use crate::signal::{Quality, definition};
use crate::tui::app::inspect::Sought;
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::format::{exact, span};
use crate::tui::view::pages::whole;
use crate::tui::view::texts::{sheet, wrap};
use crate::tui::view::widgets::spark;

/// Cells of the text at most, and of a trend.
const WIDTH_MAX: u16 = 150;
const TREND: usize = 24;
/// Cells of a value and of what it gained.
const VALUE: usize = 16;
const GAINED: usize = 18;

/// Draws it, scrolled down by so many rows.
pub fn draw(model: &Model, scroll: usize, look: &Appearance, area: Rect, buf: &mut Buffer) {
    let Some(sought) = &model.sought else { return };
    let width = area.width.saturating_sub(2).min(WIDTH_MAX);
    let page = Sheet { look, width: usize::from(width.saturating_sub(3)) };
    let content = page.content(model, sought);
    let title = format!("where {} comes from: j k, Esc", sought.signal);
    sheet(&title, content, (scroll, width), look, area, buf);
}

/// What the lines are made for.
struct Sheet<'a> {
    look: &'a Appearance,
    width: usize,
}

impl Sheet<'_> {
    fn content(&self, model: &Model, sought: &Sought) -> Vec<Line<'static>> {
        let mut all = self.shown(model, sought);
        match &sought.answer {
            None => all.extend(self.words("asking...", Role::Dim)),
            Some(Err(why)) => all.extend(self.words(why, Role::Unknown)),
            Some(Ok(origin)) => all.extend(self.origin(origin)),
        }
        all
    }

    /// The number itself, as every screen shows it.
    fn shown(&self, model: &Model, sought: &Sought) -> Vec<Line<'static>> {
        let scopes = model.shown().map_or(&[][..], |update| &update.observation.scopes);
        let snapshot = scopes.iter().find(|one| one.scope == sought.scope);
        let of = if sought.scope.is_empty() { "the only scope" } else { &sought.scope };
        let known = definition(&sought.signal);
        let unit = known.map_or("", |known| known.unit.word());
        let mut all = Vec::new();
        if let Some(known) = known {
            all.extend(self.words(&format!("{}; of {of}", known.meaning), Role::Plain));
        }
        match snapshot.map(|snapshot| model.signal_of(snapshot, &sought.signal)) {
            Some(Shown::Known { value, reading, age_s }) => {
                let (quality, age) = (reading.quality.word(), span(age_s));
                let value = whole(value);
                all.extend(self.words(
                    &format!("{value} {unit}, {quality}, {age} old, from {}", reading.source),
                    Role::Strong,
                ));
                all.extend(reading.note.iter().flat_map(|note| self.words(note, Role::Warn)));
            }
            Some(Shown::Stale { age_s }) => {
                all.extend(self.words(&format!("? last read {} ago", span(age_s)), Role::Stale));
            }
            Some(Shown::Unknown { why }) => {
                all.extend(self.words(&format!("? {why}"), Role::Unknown));
            }
            None => all.extend(self.words("? the scope is not seen any more", Role::Unknown)),
        }
        if let Some(formula) = derivation(&sought.signal) {
            let text = format!("where no source gives it, the diagnosis takes {formula}");
            all.extend(self.words(&text, Role::Dim));
        }
        all
    }

    fn origin(&self, origin: &Origin) -> Vec<Line<'static>> {
        if origin.accounts.is_empty() {
            return self.words("no source that has answered has a way to read it", Role::Unknown);
        }
        origin.accounts.iter().flat_map(|account| self.account(account)).collect()
    }

    fn account(&self, account: &Account) -> Vec<Line<'static>> {
        let Account { source, adapter, verified, age_s, silent, is_believed, readings } = account;
        let (role, standing) = match (is_believed, silent) {
            (true, _) => (Role::Ok, "this is the number that is shown"),
            (false, Some(_)) => (Role::Unknown, "does not say it"),
            (false, None) if readings.iter().any(|one| one.outcome.is_ok()) => {
                (Role::Dim, "not needed: another source is believed first")
            }
            (false, None) => (Role::Unknown, "does not say it now"),
        };
        let mut all = vec![
            Line::default(),
            Line::from(vec![
                Span::styled(format!(" {} ", self.look.mark(role)), self.look.style(role)),
                Span::styled(source.to_string(), self.look.style(Role::Strong)),
                Span::styled(format!("  {standing}"), self.look.style(role)),
            ]),
        ];
        let about = format!("read as {adapter}, {}; {} old", verified.word(), span(*age_s));
        all.extend(self.words(&about, Role::Dim));
        all.extend(silent.iter().flat_map(|why| self.words(why, Role::Unknown)));
        let ways = readings.len();
        for (index, reading) in readings.iter().enumerate() {
            let way = (ways > 1).then(|| format!("way {} of {ways}: ", index + 1));
            all.extend(self.reading(reading, way.as_deref().unwrap_or_default()));
        }
        all
    }

    fn reading(&self, reading: &HowRead, way: &str) -> Vec<Line<'static>> {
        let HowRead { expressions, quality, outcome, is_taken, signals, series, more, note } =
            reading;
        let mut all = Vec::new();
        let role = if *is_taken { Role::Accent } else { Role::Dim };
        for (part, text) in expressions {
            let name = if part.is_empty() { String::new() } else { format!("{part}: ") };
            all.extend(self.words(&format!("{way}{name}{text}"), role));
        }
        match outcome {
            Ok(value) => {
                let good = if *quality == Quality::Exact { Role::Plain } else { Role::Warn };
                all.extend(self.words(&format!("= {}  ({})", whole(value), quality.word()), good));
            }
            Err(why) => all.extend(self.words(&format!("? {why}"), Role::Unknown)),
        }
        all.extend(note.iter().flat_map(|note| self.words(note, Role::Dim)));
        if !signals.is_empty() {
            let text = format!("made of the signals {}", signals.join(", "));
            all.extend(self.words(&text, Role::Dim));
        }
        if !series.is_empty() {
            let head = format!("   {:>VALUE$}{:>GAINED$}  series", "value", "gained");
            all.push(Line::styled(head, self.look.style(Role::Dim)));
        } else if *is_taken && signals.is_empty() {
            all.extend(self.words("no series is selected", Role::Unknown));
        }
        all.extend(series.iter().flat_map(|one| self.series(one)));
        if *more > 0 {
            all.extend(self.words(&format!("and {more} series more"), Role::Warn));
        }
        all
    }

    fn series(&self, series: &RawSeries) -> Vec<Line<'static>> {
        let RawSeries { instance, name, labels, value, gained, recent } = series;
        let value = value.map_or_else(|| "gone".to_owned(), exact);
        let increase = gained.map_or_else(
            || "-".to_owned(),
            |(count, s)| format!("+{} in {}", exact(count), span(s)),
        );
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let of = if instance.is_empty() { String::new() } else { format!("{instance}: ") };
        let text = if labels.is_empty() {
            format!("{of}{name}")
        } else {
            format!("{of}{name}{{{}}}", labels.join(", "))
        };
        let indent = 3 + VALUE + GAINED + 2;
        let rest = self.width.saturating_sub(indent);
        // Where the labels do not fit beside the numbers they stand below them.
        let (first, below) = if text.chars().count() <= rest {
            (text, Vec::new())
        } else {
            (String::new(), wrap(&text, self.width.saturating_sub(6)))
        };
        let mut line = Line::from(vec![
            Span::styled(format!("   {value:>VALUE$}"), self.look.style(Role::Strong)),
            Span::styled(format!("{increase:>GAINED$}  "), self.look.style(Role::Plain)),
            Span::raw(first.clone()),
        ]);
        if first.is_empty() || rest >= first.chars().count() + TREND + 2 {
            line.push_span(Span::raw("  "));
            line.extend(self.trend(recent, gained.is_some()).spans);
        }
        let below = below.into_iter().map(|row| Line::raw(format!("     {row}")));
        std::iter::once(line).chain(below).collect()
    }

    /// What a gauge said, or what a counter gained, from scrape to scrape.
    fn trend(&self, recent: &[Option<f64>], counts: bool) -> Line<'static> {
        let columns: Vec<Option<f64>> = if counts {
            recent.windows(2).map(|pair| Some((pair[1]? - pair[0]?).max(0.0))).collect()
        } else {
            recent.to_vec()
        };
        let first = columns.len().saturating_sub(TREND);
        spark(&columns[first..], None, Role::Accent, self.look)
    }

    fn words(&self, text: &str, role: Role) -> Vec<Line<'static>> {
        let style = self.look.style(role);
        wrap(text, self.width).into_iter().map(|row| Line::styled(row, style)).collect()
    }
}
