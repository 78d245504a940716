//! Lines of facts: a label, a number or why there is none, and its trend where there is room.
//!
//! Every number of a page that comes from a signal goes through here, so that unknown reads `?` with
//! its reason, stale reads `?` with its age, and a lower bound is marked as one.

use ratatui::text::{Line, Span};

use crate::signal::Snapshot;
use crate::tui::app::history::History;
use crate::tui::app::{Model, Shown};
use crate::tui::theme::{Appearance, Role};
use crate::tui::view::charts::trend_of;
use crate::tui::view::format::{cut_words, percent, span};
use crate::tui::view::panels::worded;

/// Cells of a label and of a number.
const LABEL: usize = 18;
const NUMBER: usize = 10;
/// A trend of fewer cells says nothing.
const TREND_MIN: usize = 10;
/// The most cells of a trend.
const TREND_MAX: usize = 40;

/// The scope that is read, and how its lines look.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The model.
    pub model: &'a Model,
    /// Colours and glyphs.
    pub look: &'a Appearance,
    /// Cells of a line.
    pub width: usize,
    snapshot: Option<&'a Snapshot>,
    trends: Option<&'a History>,
}

impl<'a> Facts<'a> {
    /// Those of the scope on the screen.
    pub fn here(model: &'a Model, look: &'a Appearance, width: usize) -> Self {
        let snapshot = model.snapshot().map(AsRef::as_ref);
        Self { model, look, width, snapshot, trends: model.trends() }
    }

    /// Those of any scope.
    pub fn of(model: &'a Model, look: &'a Appearance, width: usize, scope: &str) -> Self {
        let scopes = model.shown().map_or(&[][..], |update| &update.observation.scopes);
        let snapshot = scopes.iter().find(|one| one.scope == scope).map(AsRef::as_ref);
        Self { model, look, width, snapshot, trends: model.history.get(scope) }
    }

    /// A signal as it may be shown.
    pub fn signal(&self, path: &str) -> Shown<'a> {
        match self.snapshot {
            Some(snapshot) => self.model.signal_of(snapshot, path),
            None => Shown::Unknown { why: "no data yet" },
        }
    }

    /// A number that is known and fresh.
    pub fn number(&self, path: &str) -> Option<f64> {
        match self.signal(path) {
            Shown::Known { value, .. } => value.as_number(),
            _ => None,
        }
    }

    /// A number in words, with its weight.
    pub fn words(&self, path: &str, format: fn(f64) -> String) -> (String, Role) {
        worded(&self.signal(path), self.look, format)
    }

    /// A number in words, styled.
    pub fn shown(&self, path: &str, format: fn(f64) -> String) -> Span<'static> {
        let (text, role) = self.words(path, format);
        Span::styled(text, self.look.style(role))
    }

    /// Trends of the scope.
    pub const fn trends(&self) -> Option<&'a History> {
        self.trends
    }

    /// `label  number  note`, with why instead where it is unknown.
    pub fn noted(
        &self,
        label: &str,
        path: &str,
        format: fn(f64) -> String,
        (note, role): (&str, Role),
    ) -> Line<'static> {
        let shown = self.signal(path);
        let (text, number_role) = worded(&shown, self.look, format);
        let (rest, rest_role) = match shown {
            Shown::Unknown { why } => (why.to_owned(), Role::Dim),
            Shown::Stale { age_s } => (format!("last read {} ago", span(age_s)), Role::Stale),
            Shown::Known { .. } => (note.to_owned(), role),
        };
        let text = if matches!(shown, Shown::Stale { .. }) { "?".to_owned() } else { text };
        let weight = if number_role == Role::Plain { Role::Strong } else { number_role };
        let mut spans = vec![
            Span::raw(format!(" {label:<LABEL$}")),
            Span::styled(format!("{text:>NUMBER$} "), self.look.style(weight)),
        ];
        let left = self.width.saturating_sub(LABEL + NUMBER + 3);
        let rest = cut_words(&rest, left, self.look.glyphs.ellipsis);
        let used = rest.chars().count();
        spans.push(Span::styled(format!(" {rest}"), self.look.style(rest_role)));
        if matches!(shown, Shown::Known { .. }) && rest.is_empty() {
            spans.extend(self.trend(path, left.saturating_sub(used)));
        }
        Line::from(spans)
    }

    /// `label  number` with the trend.
    pub fn line(&self, label: &str, path: &str, format: fn(f64) -> String) -> Line<'static> {
        self.noted(label, path, format, ("", Role::Dim))
    }

    /// The trend of a signal, where there is room for one.
    pub fn trend(&self, path: &str, room: usize) -> Vec<Span<'static>> {
        if room < TREND_MIN {
            return Vec::new();
        }
        let width = room.min(TREND_MAX);
        let span = self.model.span();
        trend_of(self.trends, path, width, span, None, Role::Accent, self.look).spans
    }

    /// A value that is worked out here, from signals: marked with `~` where it is an estimate.
    pub fn told(&self, label: &str, value: &str, note: &str, role: Role) -> Line<'static> {
        let left = self.width.saturating_sub(LABEL + NUMBER + 3);
        let note = cut_words(note, left, self.look.glyphs.ellipsis);
        Line::from(vec![
            Span::raw(format!(" {label:<LABEL$}")),
            Span::styled(format!("{value:>NUMBER$} "), self.look.style(role)),
            Span::styled(format!(" {note}"), self.look.style(Role::Dim)),
        ])
    }

    /// What nobody tells, and why.
    pub fn unknown(&self, label: &str, why: &str) -> Line<'static> {
        self.told(label, "?", why, Role::Unknown)
    }

    /// What each lane has of the tokens, and how much of what it asks is refused.
    pub fn lanes(&self) -> Vec<Line<'static>> {
        if !matches!(self.signal("lanes"), Shown::Known { .. }) {
            return vec![self.line("lanes", "lanes", percent)];
        }
        let lane = |name: &str| {
            let part = |what: &str| self.words(&format!("lanes.{name}.{what}"), percent).0;
            let note = format!("of the tokens, refused {}", part("refused_share"));
            self.told(name, &part("share_tokens"), &note, Role::Strong)
        };
        ["interactive", "batch"].map(lane).into()
    }

    /// Words that take the whole line.
    pub fn say(&self, text: &str, role: Role) -> Line<'static> {
        let text = cut_words(text, self.width.saturating_sub(1), self.look.glyphs.ellipsis);
        Line::styled(format!(" {text}"), self.look.style(role))
    }
}
